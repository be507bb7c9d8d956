/* Shared windows among the ranks of a host: loads and stores, queries, parts that follow each other or do not, and queries of allocated windows. Among
 * ranks of several hosts they are refused.
 * ranks: 1 2 3 4
 */
#include "check.h"
#include <stdint.h>

/* Of the ranks that share memory with this one. */
static MPI_Comm near;
static int rank, size;

static void parts(int apart) {
    MPI_Win win;
    MPI_Info info;
    int *base, unit;
    MPI_Aint bytes;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "alloc_shared_noncontig", apart ? "true" : "false"));
    /* Rank r has r elements: rank 0 none. */
    OK(MPI_Win_allocate_shared(rank * sizeof(int), sizeof(int), info, near, &base, &win));
    OK(MPI_Info_free(&info));
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < rank; i++) base[i] = 1000 * rank + i;
    OK(MPI_Win_sync(win));
    OK(MPI_Barrier(near));
    OK(MPI_Win_sync(win));
    int *next = NULL;
    for (int r = 0; r < size; r++) {
        int *theirs;
        OK(MPI_Win_shared_query(win, r, &bytes, &unit, &theirs));
        CHECK(bytes == r * (MPI_Aint)sizeof(int) && unit == sizeof(int));
        for (int i = 0; i < r; i++) CHECK(theirs[i] == 1000 * r + i);
        if (!apart && next) CHECK(theirs == next);
        next = theirs + r;
    }
    int *first;
    MPI_Aint unit_c;
    OK(MPI_Win_shared_query_c(win, MPI_PROC_NULL, &bytes, &unit_c, &first));
    CHECK(bytes == (size > 1 ? (MPI_Aint)sizeof(int) : 0) && (size == 1 || *first == 1000));
    OK(MPI_Barrier(near));
    int one = 1, old;
    if (size > 1) {
        OK(MPI_Fetch_and_op(&one, &old, MPI_INT, size - 1, 0, MPI_SUM, win));
        OK(MPI_Win_flush(size - 1, win));
        CHECK(old >= 1000 * (size - 1) && old < 1000 * (size - 1) + size);
    }
    OK(MPI_Barrier(near));
    if (rank > 0 && rank == size - 1) CHECK(base[0] == 1000 * rank + size);
    OK(MPI_Win_unlock_all(win));
    MPI_Info used;
    char value[64];
    int flag, length = sizeof value;
    OK(MPI_Win_get_info(win, &used));
    OK(MPI_Info_get_string(used, "alloc_shared_noncontig", &length, value, &flag));
    CHECK(flag && !strcmp(value, apart ? "true" : "false"));
    OK(MPI_Info_free(&used));
    OK(MPI_Win_free(&win));
}

static void allocated(void) {
    MPI_Win win;
    double *base;
    MPI_Aint bytes;
    int unit;
    OK(MPI_Win_allocate(10 * sizeof(double), sizeof(double), MPI_INFO_NULL, near, &base, &win));
    for (int i = 0; i < 10; i++) base[i] = rank + i / 16.0;
    OK(MPI_Win_fence(0, win));
    for (int r = 0; r < size; r++) {
        double *theirs;
        OK(MPI_Win_shared_query(win, r, &bytes, &unit, &theirs));
        CHECK(bytes == 10 * (MPI_Aint)sizeof(double) && unit == sizeof(double));
        for (int i = 0; i < 10; i++) CHECK(theirs[i] == r + i / 16.0);
    }
    OK(MPI_Win_free(&win));
    /* Of memory that others cannot load from there is nothing to tell. */
    double own[3];
    OK(MPI_Win_create(own, sizeof own, 1, MPI_INFO_NULL, near, &win));
    for (int r = 0; r < size; r++) {
        void *theirs;
        OK(MPI_Win_shared_query(win, r, &bytes, &unit, &theirs));
        CHECK(r == rank ? bytes == sizeof own && theirs == own : bytes == 0 && !theirs);
    }
    /* The first rank that has memory is rank 0, for all. */
    void *first;
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first));
    CHECK(rank == 0 ? bytes == sizeof own && first == own : bytes == 0 && !first);
    OK(MPI_Win_free(&win));
}

/* All ways to ask for the ranks that share memory give the same ones. */
static void splits(void) {
    MPI_Info info;
    MPI_Comm other;
    int same;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory"));
    int guided[] = {MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED};
    for (int i = 0; i < 2; i++) {
        OK(MPI_Comm_split_type(MPI_COMM_WORLD, guided[i], 0, info, &other));
        OK(MPI_Comm_compare(near, other, &same));
        CHECK(same == MPI_CONGRUENT);
        OK(MPI_Comm_free(&other));
    }
    OK(MPI_Info_free(&info));
}

int main(int argc, char **argv) {
    int all;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near));
    OK(MPI_Comm_rank(near, &rank));
    OK(MPI_Comm_size(near, &size));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &all));
#ifdef ALONE
    CHECK(size == 1);
#endif
    splits();
    parts(0);
    parts(1);
    allocated();
    if (size < all) {
        MPI_Win win;
        void *base;
        int class;
        OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
        OK(MPI_Error_class(MPI_Win_allocate_shared(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win), &class));
        CHECK(class == MPI_ERR_RMA_SHARED);
    }
    OK(MPI_Comm_free(&near));
    OK(MPI_Finalize());
    return 0;
}
