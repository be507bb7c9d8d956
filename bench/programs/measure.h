/* Timing shared by the benchmark programs: plain MPI, so that every library compiles the same source.
 *
 * A measurement is a number of batches of equal length, each timed on rank 0. The length is found first by doubling
 * until one batch fills its share of the time budget, so a slow library is not waited for any longer than a fast one.
 * Where a single operation is longer than its share, there are fewer batches.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCHES = 15, BATCHES_MIN = 3, OPERATIONS_MAX = 1 << 20 };

struct timing {
    double median_us; /* per operation: median of the batches */
    double best_us;   /* per operation: fastest batch */
    int operations;   /* operations in one batch */
    int batches;
};

/* Runs the operation `count` times; called by all ranks with the same count. */
typedef void operation(void *state, int count);

static inline int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static inline int world_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static inline int world_size(void)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

static inline struct timing measure(operation *run, void *state, double budget_s)
{
    double batch_s = budget_s / BATCHES, samples_us[BATCHES];
    int count = 1, batches = BATCHES;

    run(state, 1);
    for (;;) {
        double start = MPI_Wtime();
        run(state, count);
        double elapsed = MPI_Wtime() - start;
        int plan[2] = {count, BATCHES}; /* the next count, and how many batches if it is the same */
        if (elapsed < batch_s / 2 && count < OPERATIONS_MAX)
            plan[0] = elapsed < batch_s / 20 ? count * 8 : count * 2;
        if (elapsed * BATCHES > 3 * budget_s)
            plan[1] = elapsed * BATCHES_MIN > 3 * budget_s ? BATCHES_MIN : (int)(3 * budget_s / elapsed);
        MPI_Bcast(plan, 2, MPI_INT, 0, MPI_COMM_WORLD);
        batches = plan[1];
        if (plan[0] == count)
            break;
        count = plan[0];
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int batch = 0; batch < batches; batch++) {
        double start = MPI_Wtime();
        run(state, count);
        samples_us[batch] = (MPI_Wtime() - start) * 1e6 / count;
    }
    qsort(samples_us, (size_t)batches, sizeof *samples_us, compare_doubles);
    return (struct timing){samples_us[batches / 2], samples_us[0], count, batches};
}

/* One JSON line on rank 0. `share` divides the time of an operation: 2 for a ping-pong, the window for a stream. */
static inline void report(const char *name, long bytes, int window, struct timing timing, double share)
{
    if (world_rank() == 0) {
        printf("{\"bench\": \"%s\", \"ranks\": %d, \"bytes\": %ld, \"window\": %d, \"operations\": %d, "
               "\"batches\": %d, \"median_us\": %.4f, \"best_us\": %.4f}\n",
               name, world_size(), bytes, window, timing.operations, timing.batches, timing.median_us / share,
               timing.best_us / share);
        fflush(stdout);
    }
}

/* Page-aligned and touched, so that no first fault is measured. */
static inline char *buffer_of(size_t bytes)
{
    void *buffer = NULL;
    if (bytes == 0)
        bytes = 1;
    if (posix_memalign(&buffer, 4096, bytes) != 0) {
        fprintf(stderr, "no memory for a buffer of %zu bytes\n", bytes);
        exit(2);
    }
    memset(buffer, 1, bytes);
    return buffer;
}

static inline void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", world_rank(), what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static inline void fill(char *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (char)(i * 31 + (i >> 8) * 7 + seed);
}

static inline void check(const char *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (buffer[i] != (char)(i * 31 + (i >> 8) * 7 + seed))
            fail("a message arrived with wrong contents");
}

/* Arguments: the time budget of one measurement in milliseconds, then message sizes in bytes. */
static inline double budget_argument(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s BUDGET_MS [BYTES...]\n", argv[0]);
        exit(2);
    }
    return atof(argv[1]) / 1000;
}

/* A row of a table of calls: a function that runs its operation `count` times and returns the seconds that they took. */
struct row {
    const char *name;
    double (*run)(int count);
    int share;          /* operations in one count */
    int operations_max; /* counts in a batch at most; 0: OPERATIONS_MAX */
};

/* Batches of equal length, which is found by doubling until one fills its share of the budget. */
static inline void measure_row(const char *name, const struct row *row, double budget_s)
{
    double samples_us[BATCHES];
    int count = 1, more = 1, count_max = row->operations_max ? row->operations_max : OPERATIONS_MAX;
    if (count_max > OPERATIONS_MAX * 8 / row->share)
        count_max = OPERATIONS_MAX * 8 / row->share;
    while (more) {
        double seconds = row->run(count);
        more = seconds < budget_s / BATCHES / 2 && count < count_max;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        count *= more ? 2 : 1;
    }
    for (int batch = 0; batch < BATCHES; batch++)
        samples_us[batch] = row->run(count) * 1e6 / count;
    qsort(samples_us, BATCHES, sizeof *samples_us, compare_doubles);
    report(name, 8, 0, (struct timing){samples_us[BATCHES / 2], samples_us[0], count, BATCHES}, row->share);
}

/* Whether the arguments after the budget name a row by one of its words, or there are none. */
static inline int wanted(const char *name, int argc, char **argv)
{
    int found_word = argc <= 2;
    for (int i = 2; i < argc; i++)
        found_word |= strstr(name, argv[i]) != NULL;
    return found_word;
}

static inline void need_two_ranks(void)
{
    if (world_size() != 2)
        fail("this program runs on 2 ranks");
}

#endif
