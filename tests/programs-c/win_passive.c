/* Passive targets: locks of both kinds, flushes, atomic counters of many types, compare and swap, requests.
 * ranks: 1 2 3 4
 */
#include "check.h"
#include <stdbool.h>
#include <stdint.h>

static int rank, size;
static MPI_Win win;
static char *base;
enum { BYTES = 4096 };

static void make(int flavor) {
    if (flavor == MPI_WIN_FLAVOR_ALLOCATE) {
        OK(MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    } else {
        base = malloc(BYTES);
        OK(MPI_Win_create(base, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    }
    memset(base, 0, BYTES);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void clear(void) {
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
    memset(base, 0, BYTES);
    OK(MPI_Win_unlock(rank, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Each rank reads, adds and writes under an exclusive lock: nothing gets lost. */
static void exclusive(void) {
    enum { ROUNDS = 50 };
    clear();
    for (int i = 0; i < ROUNDS; i++) {
        long value;
        int target = i % size;
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win));
        OK(MPI_Get(&value, 1, MPI_LONG, target, 8, 1, MPI_LONG, win));
        OK(MPI_Win_flush(target, win));
        value++;
        OK(MPI_Put(&value, 1, MPI_LONG, target, 8, 1, MPI_LONG, win));
        OK(MPI_Win_unlock(target, win));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    long sum = 0, value;
    for (int target = 0; target < size; target++) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win));
        OK(MPI_Get(&value, 1, MPI_LONG, target, 8, 1, MPI_LONG, win));
        OK(MPI_Win_unlock(target, win));
        sum += value;
    }
    CHECK(sum == (long)ROUNDS * size);
}

/* Tickets by fetch and add are all different. */
static void tickets(void) {
    enum { ROUNDS = 200 };
    clear();
    char *seen = calloc(ROUNDS * size, 1), *all = calloc(ROUNDS * size, 1);
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < ROUNDS; i++) {
        int one = 1, ticket = -1;
        OK(MPI_Fetch_and_op(&one, &ticket, MPI_INT, 0, 16, MPI_SUM, win));
        OK(MPI_Win_flush_local(0, win));
        CHECK(ticket >= 0 && ticket < ROUNDS * size && !seen[ticket]);
        seen[ticket] = 1;
    }
    OK(MPI_Win_flush_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Allreduce(seen, all, ROUNDS * size, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < ROUNDS * size; i++) CHECK(all[i] == 1);
    int last = -1;
    OK(MPI_Fetch_and_op(NULL, &last, MPI_INT, 0, 16, MPI_NO_OP, win));
    OK(MPI_Win_flush(0, win));
    CHECK(last == ROUNDS * size);
    OK(MPI_Win_unlock_all(win));
    free(seen);
    free(all);
}

#define SUMS(type, datatype, at)                                                                           \
    do {                                                                                                   \
        clear();                                                                                           \
        OK(MPI_Win_lock_all(0, win));                                                                      \
        type one[3] = {1, 2, 3}, found[3] = {0, 0, 0};                                                     \
        for (int i = 0; i < 10; i++)                                                                       \
            for (int target = 0; target < size; target++)                                                  \
                OK(MPI_Accumulate(one, 3, datatype, target, at, 3, datatype, MPI_SUM, win));               \
        OK(MPI_Win_flush_all(win));                                                                        \
        OK(MPI_Barrier(MPI_COMM_WORLD));                                                                   \
        OK(MPI_Get_accumulate(NULL, 0, datatype, found, 3, datatype, (rank + 1) % size, at, 3, datatype, MPI_NO_OP, win)); \
        OK(MPI_Win_unlock_all(win));                                                                       \
        for (int k = 0; k < 3; k++) CHECK(found[k] == (type)(10 * size * (k + 1)));                        \
    } while (0)

static void every_type(void) {
    for (int at = 32; at < 34; at++) {
        SUMS(int8_t, MPI_INT8_T, at);
        SUMS(uint16_t, MPI_UINT16_T, at);
        SUMS(int, MPI_INT, at);
        SUMS(unsigned long, MPI_UNSIGNED_LONG, at);
        SUMS(float, MPI_FLOAT, at);
        SUMS(double, MPI_DOUBLE, at);
        SUMS(long double, MPI_LONG_DOUBLE, at);
        SUMS(MPI_Aint, MPI_AINT, at);
        SUMS(double _Complex, MPI_C_DOUBLE_COMPLEX, at);
        SUMS(float _Complex, MPI_C_FLOAT_COMPLEX, at);
    }
}

/* Value and place of the largest, and logical and bitwise operations. */
static void operations(void) {
    struct { double value; int rank; } mine = {100 - rank, rank}, found;
    clear();
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Accumulate(&mine, 1, MPI_DOUBLE_INT, 0, 64, 1, MPI_DOUBLE_INT, MPI_MAXLOC, win));
    unsigned bit = 1u << rank, bits;
    OK(MPI_Accumulate(&bit, 1, MPI_UNSIGNED, 0, 128, 1, MPI_UNSIGNED, MPI_BOR, win));
    _Bool yes = true;
    OK(MPI_Accumulate(&yes, 1, MPI_C_BOOL, 0, 132, 1, MPI_C_BOOL, MPI_LOR, win));
    int value = rank + 3;
    OK(MPI_Accumulate(&value, 1, MPI_INT, 0, 136, 1, MPI_INT, MPI_MAX, win));
    OK(MPI_Win_flush_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Get(&found, 1, MPI_DOUBLE_INT, 0, 64, 1, MPI_DOUBLE_INT, win));
    OK(MPI_Get(&bits, 1, MPI_UNSIGNED, 0, 128, 1, MPI_UNSIGNED, win));
    yes = false;
    OK(MPI_Get(&yes, 1, MPI_C_BOOL, 0, 132, 1, MPI_C_BOOL, win));
    OK(MPI_Get(&value, 1, MPI_INT, 0, 136, 1, MPI_INT, win));
    OK(MPI_Win_unlock_all(win));
    CHECK(found.value == 100 && found.rank == 0 && bits == (1u << size) - 1 && yes && value == size + 2);
}

/* A lock made of compare and swap. */
static void swaps(void) {
    enum { ROUNDS = 20 };
    clear();
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < ROUNDS; i++) {
        long long mine = rank + 1, free_ = 0, found;
        do {
            OK(MPI_Compare_and_swap(&mine, &free_, &found, MPI_LONG_LONG, 0, 200, win));
            OK(MPI_Win_flush(0, win));
        } while (found != 0);
        int count;
        OK(MPI_Get(&count, 1, MPI_INT, 0, 208, 1, MPI_INT, win));
        OK(MPI_Win_flush(0, win));
        count++;
        OK(MPI_Put(&count, 1, MPI_INT, 0, 208, 1, MPI_INT, win));
        OK(MPI_Win_flush(0, win));
        OK(MPI_Compare_and_swap(&free_, &mine, &found, MPI_LONG_LONG, 0, 200, win));
        OK(MPI_Win_flush(0, win));
        CHECK(found == mine);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int count;
    OK(MPI_Get(&count, 1, MPI_INT, 0, 208, 1, MPI_INT, win));
    OK(MPI_Win_unlock_all(win));
    CHECK(count == ROUNDS * size);
}

static void requests(void) {
    enum { LONG = 3000 };
    char *mine = malloc(LONG), *theirs = calloc(LONG, 1);
    int right = (rank + 1) % size;
    MPI_Request request[4];
    MPI_Status status[4];
    clear();
    memset(mine, 'a' + rank, LONG);
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    OK(MPI_Rput(mine, LONG, MPI_CHAR, right, 0, LONG, MPI_CHAR, win, &request[0]));
    OK(MPI_Wait(&request[0], &status[0]));
    OK(MPI_Win_flush(right, win));
    OK(MPI_Rget(theirs, LONG, MPI_CHAR, right, 0, LONG, MPI_CHAR, win, &request[0]));
    int one = 1, old = -1, done = 0;
    OK(MPI_Raccumulate(&one, 1, MPI_INT, right, 3200, 1, MPI_INT, MPI_SUM, win, &request[1]));
    OK(MPI_Rget_accumulate(&one, 1, MPI_INT, &old, 1, MPI_INT, right, 3200, 1, MPI_INT, MPI_SUM, win, &request[2]));
    OK(MPI_Rput(&one, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &request[3]));
    while (!done) OK(MPI_Testall(4, request, &done, status));
    CHECK(!memcmp(mine, theirs, LONG) && old == 1);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    CHECK(*(int *)(base + 3200) == 2 && base[0] == 'a' + (rank + size - 1) % size);
    OK(MPI_Win_unlock(rank, win));
    free(mine);
    free(theirs);
}

int main(int argc, char **argv) {
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    for (int f = 0; f < 2; f++) {
        make(f ? MPI_WIN_FLAVOR_CREATE : MPI_WIN_FLAVOR_ALLOCATE);
        exclusive();
        tickets();
        every_type();
        operations();
        swaps();
        requests();
        OK(MPI_Win_free(&win));
        if (f) free(base);
    }
    OK(MPI_Finalize());
    return 0;
}
