/* One-sided calls, each by itself: 2 ranks, what a call and its flush cost on rank 0 while rank 1 waits in a barrier (or computes, where the row says so).
 *
 * Rows "allocated" are of memory that MPI_Win_allocate made, "shared" MPI_Win_allocate_shared; "created" of the program's own (MPI_Win_create), "dynamic" of
 * memory that it has attached. one_sided BUDGET_MS [ROW...] prints a JSON line a row; with ROW, only of those whose names have one
 * of the words.
 */
#include "measure.h"

enum { WINDOW = 64, LARGE = 64 << 10, COMPUTE_OPERATIONS_MAX = 1 << 12 };

#define WORLD MPI_COMM_WORLD
#define AT(element) (begin + (element) * step)

enum { ALLOCATED, SHARED, CREATED, DYNAMIC, KINDS };
static const char *const kinds[KINDS] = {"allocated", "shared", "created", "dynamic"};

static int rank;
static MPI_Win win;
/* Displacement of the other rank's first element, and from one to the next. */
static MPI_Aint begin, step;
static long in[LARGE / sizeof(long)], out[LARGE / sizeof(long)], compare;

/* Runs BODY `count` times on rank 0 under a shared lock of rank 1. */
#define PASSIVE(body)                                                                                      \
    do {                                                                                                   \
        double seconds = 0;                                                                                \
        MPI_Barrier(WORLD);                                                                                \
        if (rank == 0) {                                                                                   \
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);                                                      \
            double start = MPI_Wtime();                                                                    \
            for (int i = 0; i < count; i++) {                                                              \
                body;                                                                                      \
            }                                                                                              \
            seconds = MPI_Wtime() - start;                                                                 \
            MPI_Win_unlock(1, win);                                                                        \
        }                                                                                                  \
        MPI_Barrier(WORLD);                                                                                \
        return seconds;                                                                                    \
    } while (0)

/* A call of many before one flush. */
#define MANY(call)                                                                                         \
    do {                                                                                                   \
        for (int each = 0; each < WINDOW; each++)                                                          \
            call;                                                                                          \
        MPI_Win_flush(1, win);                                                                             \
    } while (0)

static double put_8(int count) { PASSIVE(MPI_Put(out, 1, MPI_LONG, 1, AT(0), 1, MPI_LONG, win); MPI_Win_flush(1, win)); }
static double get_8(int count) { PASSIVE(MPI_Get(in, 1, MPI_LONG, 1, AT(0), 1, MPI_LONG, win); MPI_Win_flush(1, win)); }
static double put_4k(int count) { PASSIVE(MPI_Put(out, 4096, MPI_BYTE, 1, AT(0), 4096, MPI_BYTE, win); MPI_Win_flush(1, win)); }
static double put_64k(int count) { PASSIVE(MPI_Put(out, LARGE, MPI_BYTE, 1, AT(0), LARGE, MPI_BYTE, win); MPI_Win_flush(1, win)); }
static double get_64k(int count) { PASSIVE(MPI_Get(in, LARGE, MPI_BYTE, 1, AT(0), LARGE, MPI_BYTE, win); MPI_Win_flush(1, win)); }
static double fetch_and_op(int count) { PASSIVE(MPI_Fetch_and_op(out, in, MPI_LONG, 1, AT(0), MPI_SUM, win); MPI_Win_flush(1, win)); }
static double compare_and_swap(int count) { PASSIVE(MPI_Compare_and_swap(out, &compare, in, MPI_LONG, 1, AT(0), win); MPI_Win_flush(1, win)); }
static double accumulate_8(int count) { PASSIVE(MPI_Accumulate(out, 1, MPI_LONG, 1, AT(0), 1, MPI_LONG, MPI_SUM, win); MPI_Win_flush(1, win)); }
static double accumulate_4k(int count) { PASSIVE(MPI_Accumulate(out, 512, MPI_LONG, 1, AT(0), 512, MPI_LONG, MPI_SUM, win); MPI_Win_flush(1, win)); }
static double get_accumulate_8(int count)
{
    PASSIVE(MPI_Get_accumulate(out, 1, MPI_LONG, in, 1, MPI_LONG, 1, AT(0), 1, MPI_LONG, MPI_SUM, win); MPI_Win_flush(1, win));
}
static double put_many(int count) { PASSIVE(MANY(MPI_Put(out, 1, MPI_LONG, 1, AT(each), 1, MPI_LONG, win))); }
static double get_many(int count) { PASSIVE(MANY(MPI_Get(in + each, 1, MPI_LONG, 1, AT(each), 1, MPI_LONG, win))); }
static double accumulates(int count) { PASSIVE(MANY(MPI_Accumulate(out, 1, MPI_LONG, 1, AT(each), 1, MPI_LONG, MPI_SUM, win))); }
static double fetches(int count) { PASSIVE(MANY(MPI_Fetch_and_op(out, in + each, MPI_LONG, 1, AT(0), MPI_SUM, win))); }
static double flush(int count) { PASSIVE(MPI_Win_flush(1, win)); }

static double locked_put(int count)
{
    MPI_Barrier(WORLD);
    double start = MPI_Wtime();
    for (int i = 0; rank == 0 && i < count; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Put(out, 1, MPI_LONG, 1, AT(0), 1, MPI_LONG, win);
        MPI_Win_unlock(1, win);
    }
    double seconds = MPI_Wtime() - start;
    MPI_Barrier(WORLD);
    return seconds;
}

static double lock_all(int count)
{
    MPI_Barrier(WORLD);
    double start = MPI_Wtime();
    for (int i = 0; rank == 0 && i < count; i++) {
        MPI_Win_lock_all(0, win);
        MPI_Win_unlock_all(win);
    }
    double seconds = MPI_Wtime() - start;
    MPI_Barrier(WORLD);
    return seconds;
}

/* Both put. */
static double fence(int count)
{
    MPI_Win_fence(0, win);
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        MPI_Put(out, 1, MPI_LONG, 1 - rank, AT(0), 1, MPI_LONG, win);
        MPI_Win_fence(0, win);
    }
    double seconds = MPI_Wtime() - start;
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    return seconds;
}

/* Rank 0 puts, rank 1 exposes. */
static double post_start(int count)
{
    MPI_Group world, other;
    int target = 1 - rank;
    MPI_Comm_group(WORLD, &world);
    MPI_Group_incl(world, 1, &target, &other);
    MPI_Barrier(WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Win_start(other, 0, win);
            MPI_Put(out, 1, MPI_LONG, 1, AT(0), 1, MPI_LONG, win);
            MPI_Win_complete(win);
        } else {
            MPI_Win_post(other, 0, win);
            MPI_Win_wait(win);
        }
    }
    double seconds = MPI_Wtime() - start;
    MPI_Group_free(&world);
    MPI_Group_free(&other);
    MPI_Barrier(WORLD);
    return seconds;
}

/* Rank 1 is outside of MPI for a millisecond at a time, as long as rank 0 puts. */
static double computing(int count)
{
    int over = 0;
    MPI_Request told;
    double seconds = 0;
    if (count > COMPUTE_OPERATIONS_MAX)
        count = COMPUTE_OPERATIONS_MAX;
    MPI_Barrier(WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
        double start = MPI_Wtime();
        for (int i = 0; i < count; i++) {
            MPI_Put(out, 1, MPI_LONG, 1, AT(0), 1, MPI_LONG, win);
            MPI_Win_flush(1, win);
        }
        seconds = MPI_Wtime() - start;
        MPI_Win_unlock(1, win);
        MPI_Send(out, 0, MPI_BYTE, 1, 1, WORLD);
    } else {
        MPI_Irecv(in, 0, MPI_BYTE, 0, 1, WORLD, &told);
        while (!over) {
            for (double start = MPI_Wtime(); MPI_Wtime() < start + 1e-3;) {
            }
            MPI_Test(&told, &over, MPI_STATUS_IGNORE);
        }
    }
    MPI_Barrier(WORLD);
    return seconds;
}

static const struct row rows[] = {
    {"Put of 8 B, flush", put_8, 1, 0},
    {"Get of 8 B, flush", get_8, 1, 0},
    {"Put of 4 KiB, flush", put_4k, 1, 0},
    {"Put of 64 KiB, flush", put_64k, 1, 0},
    {"Get of 64 KiB, flush", get_64k, 1, 0},
    {"Fetch_and_op, flush", fetch_and_op, 1, 0},
    {"Compare_and_swap, flush", compare_and_swap, 1, 0},
    {"Accumulate of 8 B, flush", accumulate_8, 1, 0},
    {"Accumulate of 4 KiB, flush", accumulate_4k, 1, 0},
    {"Get_accumulate of 8 B, flush", get_accumulate_8, 1, 0},
    {"one of 64 Put of 8 B", put_many, WINDOW, 0},
    {"one of 64 Get of 8 B", get_many, WINDOW, 0},
    {"one of 64 Accumulate of 8 B", accumulates, WINDOW, 0},
    {"one of 64 Fetch_and_op", fetches, WINDOW, 0},
    {"flush of nothing", flush, 1, 0},
    {"lock, Put of 8 B, unlock", locked_put, 1, 0},
    {"lock_all, unlock_all", lock_all, 1, 0},
    {"Put of 8 B both ways, fence", fence, 1, 0},
    {"post, start, Put of 8 B, complete, wait", post_start, 1, 0},
    {"Put of 8 B, flush, target computes", computing, 1, COMPUTE_OPERATIONS_MAX},
};

static void make(int kind, void **memory, void *own)
{
    *memory = own;
    if (kind == ALLOCATED)
        MPI_Win_allocate(LARGE, sizeof(long), MPI_INFO_NULL, WORLD, memory, &win);
    else if (kind == SHARED)
        MPI_Win_allocate_shared(LARGE, sizeof(long), MPI_INFO_NULL, WORLD, memory, &win);
    else if (kind == CREATED)
        MPI_Win_create(own, LARGE, sizeof(long), MPI_INFO_NULL, WORLD, &win);
    else {
        MPI_Win_create_dynamic(MPI_INFO_NULL, WORLD, &win);
        MPI_Win_attach(win, own, LARGE);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    rank = world_rank();
    double budget_s = budget_argument(argc, argv);
    void *memory, *own[2] = {buffer_of(LARGE), buffer_of(LARGE)};
    for (int kind = 0; kind < KINDS; kind++) {
        MPI_Aint address, addresses[2];
        make(kind, &memory, own[kind % 2]);
        memset(memory, 0, LARGE);
        MPI_Get_address(memory, &address);
        MPI_Allgather(&address, 1, MPI_AINT, addresses, 1, MPI_AINT, WORLD);
        begin = kind == DYNAMIC ? addresses[1 - rank] : 0;
        step = kind == DYNAMIC ? sizeof(long) : 1;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            char name[80];
            snprintf(name, sizeof name, "%s: %s", kinds[kind], rows[i].name);
            if (wanted(name, argc, argv))
                measure_row(name, &rows[i], budget_s);
        }
        MPI_Barrier(WORLD);
        if (kind == DYNAMIC)
            MPI_Win_detach(win, memory);
        MPI_Win_free(&win);
    }
    free(own[0]);
    free(own[1]);
    MPI_Finalize();
    return 0;
}
