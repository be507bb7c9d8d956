/* Every error class of one-sided communication, names, error handlers, attributes with callbacks, info.
 * ranks: 1 2
 */
#include "check.h"

static int rank, size, called, deleted;
static int cell[4];

static void handler(MPI_Win *win, int *code, ...) {
    CHECK(*win != MPI_WIN_NULL && *code == MPI_ERR_RMA_SYNC);
    called++;
}

static int delete_attr(MPI_Win win, int key, void *value, void *extra) {
    (void)win, (void)key, (void)extra;
    deleted += *(int *)value;
    return MPI_SUCCESS;
}

static void arguments(void) {
    MPI_Win win;
    void *base;
    MPI_Info no = MPI_INFO_NULL;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_COMM, MPI_Win_create(cell, 4, 1, no, MPI_COMM_NULL, &win));
    FAILS(MPI_ERR_SIZE, MPI_Win_create(cell, -1, 1, no, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_DISP, MPI_Win_create(cell, 4, 0, no, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_BASE, MPI_Win_create(NULL, 4, 1, no, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_SIZE, MPI_Win_allocate(-8, 1, no, MPI_COMM_WORLD, &base, &win));
    FAILS(MPI_ERR_ARG, MPI_Win_allocate(8, 1, no, MPI_COMM_WORLD, NULL, &win));
    FAILS(MPI_ERR_ARG, MPI_Win_create(cell, 4, 1, no, MPI_COMM_WORLD, NULL));
    /* One rank's mistake is an error everywhere. */
    FAILS(MPI_ERR_SIZE, MPI_Win_allocate(rank == 0 ? -8 : 8, 1, no, MPI_COMM_WORLD, &base, &win));
    FAILS(MPI_ERR_WIN, MPI_Win_fence(0, MPI_WIN_NULL));
    win = MPI_WIN_NULL;
    FAILS(MPI_ERR_WIN, MPI_Win_free(&win));
}

static void calls(void) {
    MPI_Win win, freed;
    int value = 7, result, flag;
    MPI_Request request;
    MPI_Datatype two, mixed;
    MPI_Group group;
    OK(MPI_Win_create(cell, sizeof cell, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush_local_all(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_complete(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_wait(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_test(win, &flag));
    FAILS(MPI_ERR_LOCKTYPE, MPI_Win_lock(0, 0, 0, win));
    FAILS(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win));
    FAILS(MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOPUT, win));
    FAILS(MPI_ERR_ASSERT, MPI_Win_fence(1, win));
    FAILS(MPI_ERR_GROUP, MPI_Win_post(MPI_GROUP_NULL, 0, win));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_attach(win, cell, 4));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, win));
    OK(MPI_Win_unlock(MPI_PROC_NULL, win));

    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_fence(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_free(&win));
    if (size > 1) FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RANK, MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RANK, MPI_Put(&value, 1, MPI_INT, -7, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_COUNT, MPI_Put(&value, -1, MPI_INT, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_COUNT, MPI_Get(&value, 1, MPI_INT, 0, 0, -1, MPI_INT, win));
    FAILS(MPI_ERR_TYPE, MPI_Put(&value, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_BUFFER, MPI_Put(NULL, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_DISP, MPI_Put(&value, 1, MPI_INT, 0, -1, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, 0, 4, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Get(cell, 4, MPI_INT, 0, 1, 4, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Accumulate(&value, 1, MPI_INT, 0, ((MPI_Aint)1 << 62), 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_TYPE, MPI_Put(&value, 1, MPI_INT, 0, 0, 2, MPI_INT, win));
    FAILS(MPI_ERR_OP, MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_OP_NULL, win));
    FAILS(MPI_ERR_OP, MPI_Accumulate(&value, 1, MPI_FLOAT, 0, 0, 1, MPI_FLOAT, MPI_BAND, win));
    FAILS(MPI_ERR_TYPE, MPI_Accumulate(&value, 1, MPI_FLOAT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_TYPE, MPI_Compare_and_swap(&value, &value, &result, MPI_FLOAT, 0, 0, win));
    OK(MPI_Type_contiguous(2, MPI_INT, &two));
    FAILS(MPI_ERR_TYPE, MPI_Put(cell, 1, two, 0, 0, 2, MPI_INT, win));
    OK(MPI_Type_commit(&two));
    FAILS(MPI_ERR_TYPE, MPI_Fetch_and_op(cell, cell, two, 0, 0, MPI_SUM, win));
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {0, 4};
    MPI_Datatype types[2] = {MPI_INT, MPI_FLOAT};
    OK(MPI_Type_create_struct(2, lengths, places, types, &mixed));
    OK(MPI_Type_commit(&mixed));
    FAILS(MPI_ERR_TYPE, MPI_Accumulate(cell, 1, mixed, 0, 0, 1, mixed, MPI_REPLACE, win));
    OK(MPI_Accumulate(cell, 1, two, 0, 0, 2, MPI_INT, MPI_SUM, win));
    /* Of nothing, every operation can be done. */
    OK(MPI_Accumulate(cell, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, MPI_SUM, win));
    OK(MPI_Type_free(&two));
    OK(MPI_Type_free(&mixed));
    OK(MPI_Win_unlock(0, win));

    OK(MPI_Win_fence(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Rput(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request));
    OK(MPI_Put(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    /* A lock is another epoch: that of a fence before, in which nothing was done, does not go on after it. */
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    OK(MPI_Win_unlock(rank, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Win_unlock_all(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Get(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));

    OK(MPI_Comm_group(MPI_COMM_SELF, &group));
    OK(MPI_Win_post(group, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_post(group, 0, win));
    OK(MPI_Win_start(group, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_start(group, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    if (size > 1) FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, 1 - rank, 0, 1, MPI_INT, win));
    OK(MPI_Put(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    OK(MPI_Group_free(&group));
    freed = win;
    OK(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL);
    FAILS(MPI_ERR_WIN, MPI_Win_fence(0, freed));
}

static void dynamic(void) {
    MPI_Win win;
    char memory[64];
    MPI_Aint address, size_;
    int unit;
    void *start;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_attach(win, memory, 32));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, memory + 16, 32));
    OK(MPI_Win_attach(win, memory + 32, 32));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, memory + 1));
    FAILS(MPI_ERR_SIZE, MPI_Win_attach(win, memory, -1));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_shared_query(win, 0, &size_, &unit, &start));
    OK(MPI_Get_address(memory, &address));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
    int value = 3, old = 0;
    memset(memory, 0, sizeof memory);
    OK(MPI_Accumulate(&value, 1, MPI_INT, rank, address, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Get_accumulate(&value, 1, MPI_INT, &old, 1, MPI_INT, rank, address, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Win_flush(rank, win));
    CHECK(old == 3);
    /* Not attached: one's own is found out at once, others' when they have looked. */
    FAILS(MPI_ERR_RMA_RANGE, MPI_Accumulate(&value, 1, MPI_INT, rank, address + 62, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Get(&value, 1, MPI_INT, rank, address + 61, 1, MPI_INT, win));
    /* Over both regions. */
    OK(MPI_Get(&value, 1, MPI_INT, rank, address + 30, 1, MPI_INT, win));
    OK(MPI_Win_unlock(rank, win));
    int other = size - 1 - rank;
    if (other != rank) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win));
        OK(MPI_Accumulate(&value, 1, MPI_INT, other, 64, 1, MPI_INT, MPI_SUM, win));
        FAILS(MPI_ERR_RMA_RANGE, MPI_Win_flush(other, win));
        OK(MPI_Get_accumulate(&value, 1, MPI_INT, &old, 1, MPI_INT, other, 64, 1, MPI_INT, MPI_SUM, win));
        FAILS(MPI_ERR_RMA_RANGE, MPI_Win_unlock(other, win));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_detach(win, memory));
    OK(MPI_Win_detach(win, memory + 32));
    OK(MPI_Win_free(&win));
}

static void carried(void) {
    MPI_Win win;
    MPI_Errhandler mine, found;
    MPI_Info info;
    MPI_Group group, world;
    char text[MPI_MAX_OBJECT_NAME];
    int length, key, flag, *value, number = 5, same;
    OK(MPI_Win_create(cell, sizeof cell, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_get_errhandler(win, &found));
    CHECK(found == MPI_ERRORS_ARE_FATAL);
    OK(MPI_Win_create_errhandler(handler, &mine));
    OK(MPI_Win_set_errhandler(win, mine));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock(0, win));
    OK(MPI_Win_call_errhandler(win, MPI_ERR_RMA_SYNC));
    CHECK(called == 2);
    OK(MPI_Win_get_errhandler(win, &found));
    CHECK(found == mine);
    OK(MPI_Errhandler_free(&found));
    OK(MPI_Errhandler_free(&mine));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));

    OK(MPI_Win_get_name(MPI_WIN_NULL, text, &length));
    CHECK(length == 12 && !strcmp(text, "MPI_WIN_NULL"));
    OK(MPI_Win_get_name(win, text, &length));
    CHECK(length == 0 && !*text);
    OK(MPI_Win_set_name(win, "a window"));
    OK(MPI_Win_get_name(win, text, &length));
    CHECK(length == 8 && !strcmp(text, "a window"));

    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_attr, &key, NULL));
    OK(MPI_Win_get_attr(win, key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Win_set_attr(win, key, &number));
    OK(MPI_Win_get_attr(win, key, &value, &flag));
    CHECK(flag && value == &number);
    OK(MPI_Win_delete_attr(win, key));
    CHECK(deleted == 5);
    OK(MPI_Win_set_attr(win, key, &number));
    FAILS(MPI_ERR_KEYVAL, MPI_Win_set_attr(win, MPI_WIN_BASE, &number));

    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "no_locks", "true"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    OK(MPI_Win_get_info(win, &info));
    length = sizeof text;
    OK(MPI_Info_get_string(info, "no_locks", &length, text, &flag));
    CHECK(flag && !strcmp(text, "true"));
    OK(MPI_Info_free(&info));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));

    OK(MPI_Win_get_group(win, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_compare(group, world, &same));
    CHECK(same == MPI_IDENT);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&world));
    OK(MPI_Win_free(&win));
    CHECK(deleted == 10);
    OK(MPI_Win_free_keyval(&key));
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    arguments();
    calls();
    dynamic();
    carried();
    OK(MPI_Finalize());
    return 0;
}
