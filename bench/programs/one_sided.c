/* One-sided calls, each by itself: 2 ranks, what a call and its flush cost on rank 0 while rank 1 waits in a barrier (or computes, where the row says so).
 *
 * Rows "allocated" are of memory that MPI_Win_allocate made, "created" of the program's own (MPI_Win_create). A row is a function that runs its operation
 * `count` times and returns the seconds that they took. one_sided BUDGET_MS [ROW...] prints a JSON line a row; with ROW, only of those whose names have one
 * of the words.
 */
#include "measure.h"

enum { WINDOW = 64, LARGE = 64 << 10, COMPUTE_OPERATIONS_MAX = 1 << 12 };

#define WORLD MPI_COMM_WORLD

static int rank;
static MPI_Win wins[2], win;
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

static double put_8(int count) { PASSIVE(MPI_Put(out, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win); MPI_Win_flush(1, win)); }
static double get_8(int count) { PASSIVE(MPI_Get(in, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win); MPI_Win_flush(1, win)); }
static double put_4k(int count) { PASSIVE(MPI_Put(out, 4096, MPI_BYTE, 1, 0, 4096, MPI_BYTE, win); MPI_Win_flush(1, win)); }
static double put_64k(int count) { PASSIVE(MPI_Put(out, LARGE, MPI_BYTE, 1, 0, LARGE, MPI_BYTE, win); MPI_Win_flush(1, win)); }
static double get_64k(int count) { PASSIVE(MPI_Get(in, LARGE, MPI_BYTE, 1, 0, LARGE, MPI_BYTE, win); MPI_Win_flush(1, win)); }
static double fetch_and_op(int count) { PASSIVE(MPI_Fetch_and_op(out, in, MPI_LONG, 1, 0, MPI_SUM, win); MPI_Win_flush(1, win)); }
static double compare_and_swap(int count) { PASSIVE(MPI_Compare_and_swap(out, &compare, in, MPI_LONG, 1, 0, win); MPI_Win_flush(1, win)); }
static double accumulate_8(int count) { PASSIVE(MPI_Accumulate(out, 1, MPI_LONG, 1, 0, 1, MPI_LONG, MPI_SUM, win); MPI_Win_flush(1, win)); }
static double accumulate_4k(int count) { PASSIVE(MPI_Accumulate(out, 512, MPI_LONG, 1, 0, 512, MPI_LONG, MPI_SUM, win); MPI_Win_flush(1, win)); }
static double get_accumulate_8(int count)
{
    PASSIVE(MPI_Get_accumulate(out, 1, MPI_LONG, in, 1, MPI_LONG, 1, 0, 1, MPI_LONG, MPI_SUM, win); MPI_Win_flush(1, win));
}
static double put_many(int count) { PASSIVE(MANY(MPI_Put(out, 1, MPI_LONG, 1, each, 1, MPI_LONG, win))); }
static double get_many(int count) { PASSIVE(MANY(MPI_Get(in + each, 1, MPI_LONG, 1, each, 1, MPI_LONG, win))); }
static double accumulates(int count) { PASSIVE(MANY(MPI_Accumulate(out, 1, MPI_LONG, 1, each, 1, MPI_LONG, MPI_SUM, win))); }
static double fetches(int count) { PASSIVE(MANY(MPI_Fetch_and_op(out, in + each, MPI_LONG, 1, 0, MPI_SUM, win))); }
static double flush(int count) { PASSIVE(MPI_Win_flush(1, win)); }

static double locked_put(int count)
{
    MPI_Barrier(WORLD);
    double start = MPI_Wtime();
    for (int i = 0; rank == 0 && i < count; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Put(out, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
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
        MPI_Put(out, 1, MPI_LONG, 1 - rank, 0, 1, MPI_LONG, win);
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
            MPI_Put(out, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
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
            MPI_Put(out, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
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

struct row {
    const char *name;
    double (*run)(int count);
    double share;
    int operations_max;
};

static const struct row rows[] = {
    {"Put of 8 B, flush", put_8, 1, OPERATIONS_MAX},
    {"Get of 8 B, flush", get_8, 1, OPERATIONS_MAX},
    {"Put of 4 KiB, flush", put_4k, 1, OPERATIONS_MAX},
    {"Put of 64 KiB, flush", put_64k, 1, OPERATIONS_MAX},
    {"Get of 64 KiB, flush", get_64k, 1, OPERATIONS_MAX},
    {"Fetch_and_op, flush", fetch_and_op, 1, OPERATIONS_MAX},
    {"Compare_and_swap, flush", compare_and_swap, 1, OPERATIONS_MAX},
    {"Accumulate of 8 B, flush", accumulate_8, 1, OPERATIONS_MAX},
    {"Accumulate of 4 KiB, flush", accumulate_4k, 1, OPERATIONS_MAX},
    {"Get_accumulate of 8 B, flush", get_accumulate_8, 1, OPERATIONS_MAX},
    {"one of 64 Put of 8 B", put_many, WINDOW, OPERATIONS_MAX},
    {"one of 64 Get of 8 B", get_many, WINDOW, OPERATIONS_MAX},
    {"one of 64 Accumulate of 8 B", accumulates, WINDOW, OPERATIONS_MAX},
    {"one of 64 Fetch_and_op", fetches, WINDOW, OPERATIONS_MAX},
    {"flush of nothing", flush, 1, OPERATIONS_MAX},
    {"lock, Put of 8 B, unlock", locked_put, 1, OPERATIONS_MAX},
    {"lock_all, unlock_all", lock_all, 1, OPERATIONS_MAX},
    {"Put of 8 B both ways, fence", fence, 1, OPERATIONS_MAX},
    {"post, start, Put of 8 B, complete, wait", post_start, 1, OPERATIONS_MAX},
    {"Put of 8 B, flush, target computes", computing, 1, COMPUTE_OPERATIONS_MAX},
};

/* Batches of equal length, which is found by doubling until one fills its share of the budget. */
static void measure_row(const char *name, const struct row *row, double budget_s)
{
    double samples_us[BATCHES];
    int count = 1, more = 1;
    while (more) {
        double seconds = row->run(count);
        more = seconds < budget_s / BATCHES / 2 && count < row->operations_max;
        MPI_Bcast(&more, 1, MPI_INT, 0, WORLD);
        count *= more ? 2 : 1;
    }
    for (int batch = 0; batch < BATCHES; batch++)
        samples_us[batch] = row->run(count) * 1e6 / count;
    qsort(samples_us, BATCHES, sizeof *samples_us, compare_doubles);
    report(name, 8, 0, (struct timing){samples_us[BATCHES / 2], samples_us[0], count, BATCHES}, row->share);
}

static int wanted(const char *name, int argc, char **argv)
{
    int found_word = argc <= 2;
    for (int i = 2; i < argc; i++)
        found_word |= strstr(name, argv[i]) != NULL;
    return found_word;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    rank = world_rank();
    double budget_s = budget_argument(argc, argv);
    void *memory;
    MPI_Win_allocate(LARGE, sizeof(long), MPI_INFO_NULL, WORLD, &memory, &wins[0]);
    memset(memory, 0, LARGE);
    memory = buffer_of(LARGE);
    MPI_Win_create(memory, LARGE, sizeof(long), MPI_INFO_NULL, WORLD, &wins[1]);
    for (int kind = 0; kind < 2; kind++) {
        win = wins[kind];
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            char name[80];
            snprintf(name, sizeof name, "%s: %s", kind ? "created" : "allocated", rows[i].name);
            if (wanted(name, argc, argv))
                measure_row(name, &rows[i], budget_s);
        }
    }
    MPI_Win_free(&wins[0]);
    MPI_Win_free(&wins[1]);
    free(memory);
    MPI_Finalize();
    return 0;
}
