/* What the application patterns share: timed MPI calls, computing as long as the class asks, and the report.
 *
 * The patterns are those of the paper's Fig. 18. Message sizes are the class's on four processes, as in the paper. Computing is the
 * class's arithmetic at a nominal 1 Gflop/s, divided by `shorten` (default 100): at its full length the chance by which
 * one rank computes longer than another hides all that a transfer costs.
 *
 * Arguments: repeats, iterations, shorten, imbalance (percent: each computing is longer or shorter by chance, by at most so much),
 * compute=cpu|device, work_ns (0: measure it and print it).
 */
#ifndef PATTERN_H
#define PATTERN_H

#include "../overlap/work.h"

struct pattern {
    int rank, size, iterations;
    double shorten, imbalance;
    struct computing computing;
    uint64_t chance;
    double wait_us; /* inside MPI_Wait and MPI_Waitall */
    double mpi_us;  /* inside all MPI calls */
};

/* One step of the application, `iteration` counted from 0. */
typedef void step(struct pattern *p, int iteration);

static inline void timed_wait(struct pattern *p, MPI_Request *requests, int count)
{
    double start = now_us();
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    double elapsed = now_us() - start;
    p->wait_us += elapsed;
    p->mpi_us += elapsed;
}

static inline void timed_send(struct pattern *p, const char *buffer, int bytes, int to)
{
    double start = now_us();
    MPI_Send(buffer, bytes, MPI_BYTE, to, TAG_DATA, MPI_COMM_WORLD);
    p->mpi_us += now_us() - start;
}

static inline void timed_isend(struct pattern *p, const char *buffer, int bytes, int to, MPI_Request *request)
{
    double start = now_us();
    MPI_Isend(buffer, bytes, MPI_BYTE, to, TAG_DATA, MPI_COMM_WORLD, request);
    p->mpi_us += now_us() - start;
}

static inline void timed_irecv(struct pattern *p, char *buffer, int bytes, int from, MPI_Request *request)
{
    double start = now_us();
    MPI_Irecv(buffer, bytes, MPI_BYTE, from, TAG_DATA, MPI_COMM_WORLD, request);
    p->mpi_us += now_us() - start;
}

/* Computes what takes `class_us` microseconds at the class's full length. */
static inline void produce(struct pattern *p, double class_us)
{
    p->chance = p->chance * 6364136223846793005u + 1442695040888963407u;
    double sign = (double)(p->chance >> 11) / (double)(1ull << 52) - 1;
    compute(&p->computing, class_us / p->shorten * (1 + sign * p->imbalance));
}

/* Marks a message with a number at both ends, and looks for it. */
static inline void mark(char *buffer, int bytes, int value)
{
    memcpy(buffer, &value, sizeof value);
    memcpy(buffer + bytes - sizeof value, &value, sizeof value);
}

static inline void expect(const char *buffer, int bytes, int value)
{
    if (memcmp(buffer, &value, sizeof value) != 0 || memcmp(buffer + bytes - sizeof value, &value, sizeof value) != 0)
        fail("a message of the pattern arrived with wrong contents");
}

/* Runs the pattern `repeats` times, with one line for each; the first is a warm-up and says so by its number, 0. */
static inline void run_pattern(int argc, char **argv, const char *name, int iterations, step *run, void (*end)(struct pattern *))
{
    struct pattern p = {.rank = world_rank(), .size = world_size()};
    int repeats = (int)number(argc, argv, "repeats", 15);

    if (p.size < 2)
        fail("a pattern wants at least 2 ranks");
    counters_start();
    p.computing = computing_argument(argc, argv);
    p.iterations = (int)number(argc, argv, "iterations", iterations);
    p.shorten = number(argc, argv, "shorten", 100);
    p.imbalance = number(argc, argv, "imbalance", 0) / 100;
    if (p.rank == 0)
        printf("{\"bench\": \"work\", \"work_ns\": %.6f}\n", p.computing.work_ns);

    for (int repeat = 0; repeat <= repeats; repeat++) {
        struct counters before = counters_read();
        p.chance = (uint64_t)(p.rank + 1);
        p.wait_us = p.mpi_us = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now_us();
        for (int i = 0; i < p.iterations; i++)
            run(&p, i);
        if (end)
            end(&p);
        double mine[3] = {now_us() - start, p.wait_us, p.mpi_us}, sum[3];
        MPI_Reduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (p.rank == 0)
            printf("{\"bench\": \"pattern\", \"name\": \"%s\", \"ranks\": %d, \"repeat\": %d, \"imbalance\": %g, "
                   "\"shorten\": %g, \"total_us\": %.1f, \"wait_us\": %.1f, \"mpi_us\": %.1f",
                   name, p.size, repeat, p.imbalance * 100, p.shorten, sum[0] / p.size, sum[1] / p.size,
                   sum[2] / p.size);
        record_end(before);
    }
}

#endif
