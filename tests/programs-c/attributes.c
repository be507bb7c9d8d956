/* Attributes: predefined ones, copies on duplication, callbacks and their order, MPI-1 names, datatypes.
 * ranks: 1 2
 */
#include "check.h"
#include <stdint.h>

static int copies, deletions, last_deleted;
static char state;

static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
    (void) comm, (void) keyval;
    CHECK(extra == &state);
    copies++;
    *(void **) out = (char *) in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int keyval, void *value, void *extra) {
    (void) comm, (void) keyval;
    CHECK(extra == &state);
    deletions++;
    last_deleted = (int) (intptr_t) value;
    return MPI_SUCCESS;
}

static int refuse(MPI_Comm comm, int keyval, void *value, void *extra) {
    (void) comm, (void) keyval, (void) value, (void) extra;
    return MPI_ERR_OTHER;
}

static int at_the_end(MPI_Comm comm, int keyval, void *value, void *extra) {
    int finalized;
    (void) keyval, (void) value, (void) extra;
    CHECK(comm == MPI_COMM_SELF);
    OK(MPI_Finalized(&finalized));
    CHECK(!finalized);
    deletions = -1;
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int flag, *number, key, freed_key, dup_key, null_key, refused_key, code;
    void *value;
    MPI_Comm comm, other;

    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag));
    CHECK(flag && *number >= 32767);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &number, &flag));
    CHECK(flag && (*number == 0 || *number == 1));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &number, &flag));
    CHECK(flag && *number == MPI_ANY_SOURCE);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag));
    CHECK(flag && *number == MPI_ERR_LASTCODE);
    OK(MPI_Add_error_class(&code));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag));
    CHECK(flag && *number == code);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag));
    CHECK(!flag || *number == 0);

    OK(MPI_Comm_create_keyval(copy, delete, &key, &state));
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup_key, NULL));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &null_key, NULL));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_set_attr(comm, key, (void *) 10));
    OK(MPI_Comm_set_attr(comm, dup_key, (void *) 20));
    OK(MPI_Comm_set_attr(comm, null_key, (void *) 30));
    OK(MPI_Comm_set_attr(comm, key, (void *) 11));
    CHECK(deletions == 1 && last_deleted == 10);
    OK(MPI_Comm_dup(comm, &other));
    CHECK(copies == 1);
    OK(MPI_Comm_get_attr(other, key, &value, &flag));
    CHECK(flag && value == (void *) 12);
    OK(MPI_Comm_get_attr(other, dup_key, &value, &flag));
    CHECK(flag && value == (void *) 20);
    OK(MPI_Comm_get_attr(other, null_key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_free(&other));
    CHECK(deletions == 2 && last_deleted == 12);
    OK(MPI_Comm_delete_attr(comm, key));
    CHECK(deletions == 3 && last_deleted == 11);

    /* A key that is freed serves its attributes until they go. */
    OK(MPI_Attr_put(comm, key, (void *) 40));
    OK(MPI_Comm_dup(comm, &other));
    freed_key = key;
    OK(MPI_Comm_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Comm_get_attr(other, freed_key, &value, &flag));
    CHECK(flag && value == (void *) 41);
    OK(MPI_Comm_delete_attr(other, freed_key));
    CHECK(deletions == 4 && last_deleted == 41);
    key = freed_key;
    OK(MPI_Comm_free_keyval(&key));
    OK(MPI_Comm_free(&comm));
    CHECK(deletions == 5 && last_deleted == 40);
    OK(MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_get_attr(other, freed_key, &value, &flag));
    OK(MPI_Comm_free(&other));

    /* A callback's refusal is the call's error, and the attribute stays. */
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Keyval_create(MPI_NULL_COPY_FN, refuse, &refused_key, NULL));
    OK(MPI_Comm_set_attr(comm, refused_key, (void *) 1));
    FAILS(MPI_ERR_OTHER, MPI_Comm_delete_attr(comm, refused_key));
    OK(MPI_Attr_get(comm, refused_key, &value, &flag));
    CHECK(flag && value == (void *) 1);
    FAILS(MPI_ERR_OTHER, MPI_Comm_free(&comm));
    CHECK(comm != MPI_COMM_NULL);
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_set_attr(comm, MPI_TAG_UB, (void *) 1));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_set_attr(comm, 123456789, (void *) 1));

    /* Attributes of MPI_COMM_SELF go at the start of MPI_Finalize. */
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL));
    OK(MPI_Finalize());
    CHECK(deletions == -1);
    return 0;
}
