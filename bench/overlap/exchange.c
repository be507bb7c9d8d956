/* Two neighbours that produce, exchange and consume data, over lengths of computing: the two models of the paper's Fig. 15.
 *
 * The time of an iteration is that of a batch over its iterations, the slower rank's; batches are short and many, so that some
 * of them run undisturbed, and the lengths of computing take turns batch by batch. Half of the computing produces, half consumes. With imbalance, the ranks compute more and less in turn, or each
 * iteration by chance (the same for every library), by at most so many percent: two ranks that are equally busy leave
 * no core any time to copy in.
 *
 * Arguments: model=LIST (1, 2), bytes=LIST, comp_us=LIST (produce and consume together), imbalance (percent), pack=1|0 (0: the data lie
 * in one piece and are sent as they are), turns=alternating|random, budget_ms (of one length), compute=cpu|device, work_ns (0: measure
 * it and print it).
 */
#include "work.h"

enum { BATCHES_MIN_OF_LENGTH = 9, BATCHES_OF_LENGTH = 41, ITERATIONS_MIN = 8, BLOCK = 64 };

struct exchange {
    int model, bytes, random, packs;
    double imbalance; /* 0 to 1 */
    double pack_us;   /* spent in packing so far */
    char *grid, *outgoing, *incoming;
    struct computing computing;
    uint64_t chance[2]; /* state of either rank's generator: every process knows both */
};

/* Share of the nominal computing that this rank does in an iteration. */
static double share(struct exchange *x, int iteration)
{
    double sign = (iteration + world_rank()) % 2 ? 1 : -1;
    if (x->random) {
        uint64_t *state = &x->chance[world_rank()];
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sign = (double)(*state >> 11) / (double)(1ull << 52) - 1;
    }
    return 1 + sign * x->imbalance;
}

/* Gathers blocks that lie two blocks apart. */
static void pack(struct exchange *x)
{
    if (!x->packs)
        return;
    double start = now_us();
    for (int at = 0; at + BLOCK <= x->bytes; at += BLOCK)
        memcpy(x->outgoing + at, x->grid + 2 * (size_t)at, BLOCK);
    x->pack_us += now_us() - start;
}

static void iterate(struct exchange *x, double comp_us, int count)
{
    int peer = 1 - world_rank();
    MPI_Request out, in;

    for (int i = 0; i < count; i++) {
        double half_us = share(x, i) * comp_us / 2;
        if (x->model == 1) {
            MPI_Irecv(x->incoming, x->bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &in);
            pack(x);
            MPI_Isend(x->outgoing, x->bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &out);
            compute(&x->computing, half_us);
            MPI_Wait(&out, MPI_STATUS_IGNORE);
            MPI_Wait(&in, MPI_STATUS_IGNORE);
            compute(&x->computing, half_us);
        } else {
            pack(x);
            MPI_Isend(x->outgoing, x->bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &out);
            if (i > 0)
                compute(&x->computing, half_us);
            MPI_Irecv(x->incoming, x->bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &in);
            compute(&x->computing, half_us);
            MPI_Wait(&out, MPI_STATUS_IGNORE);
            MPI_Wait(&in, MPI_STATUS_IGNORE);
        }
    }
    if (x->model == 2)
        compute(&x->computing, comp_us / 2);
}

/* One batch: microseconds per iteration of the slower rank; `pack_us` of these in packing, if it is not NULL. */
static double batch(struct exchange *x, double comp_us, int count, double *pack_us)
{
    double elapsed, slower;
    x->pack_us = 0;
    x->chance[0] = 1;
    x->chance[1] = 2;
    MPI_Barrier(MPI_COMM_WORLD);
    compute(&x->computing, comp_us / 2); /* the first data; those of the last iteration stay, so that each has its share */
    elapsed = now_us();
    iterate(x, comp_us, count);
    elapsed = (now_us() - elapsed) / count;
    if (pack_us)
        *pack_us = x->pack_us / count;
    MPI_Allreduce(&elapsed, &slower, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slower;
}

static void verify(struct exchange *x)
{
    size_t bytes = (size_t)x->bytes;
    for (size_t at = 0; at + BLOCK <= bytes; at += BLOCK)
        memset(x->grid + 2 * at, (char)(at / BLOCK * 5 + (size_t)world_rank()), BLOCK);
    memset(x->incoming, 0, bytes);
    if (!x->packs)
        for (size_t at = 0; at + BLOCK <= bytes; at += BLOCK)
            memcpy(x->outgoing + at, x->grid + 2 * at, BLOCK);
    iterate(x, 0, 1);
    for (size_t at = 0; at < bytes / BLOCK * BLOCK; at++)
        if (x->incoming[at] != (char)(at / BLOCK * 5 + 1 - (size_t)world_rank()))
            fail("an exchanged message arrived with wrong contents");
}

static void measure_exchange(struct exchange *x, const double *lengths, int count, double budget_us)
{
    static double samples[LIST_MAX][BATCHES_OF_LENGTH], packs[LIST_MAX][BATCHES_OF_LENGTH];
    struct counters before = counters_read();
    int iterations[LIST_MAX], batches[LIST_MAX]; /* fewer batches of long iterations */

    for (int i = 0; i < count; i++) {
        batch(x, lengths[i], ITERATIONS_MIN, NULL);
        double fitting = budget_us / batch(x, lengths[i], ITERATIONS_MIN, NULL); /* iterations in all; the same at every rank */
        iterations[i] = (int)(fitting / BATCHES_OF_LENGTH) / 2 * 2; /* even: each rank has its turn as often */
        batches[i] = BATCHES_OF_LENGTH;
        if (iterations[i] < ITERATIONS_MIN) {
            iterations[i] = ITERATIONS_MIN;
            batches[i] = (int)(fitting / ITERATIONS_MIN);
            batches[i] = batches[i] < BATCHES_MIN_OF_LENGTH ? BATCHES_MIN_OF_LENGTH : batches[i];
        }
        if (batches[i] > BATCHES_OF_LENGTH)
            batches[i] = BATCHES_OF_LENGTH;
    }
    for (int round = 0; round < BATCHES_OF_LENGTH; round++)
        for (int i = 0; i < count; i++)
            if (round < batches[i])
                samples[i][round] = batch(x, lengths[i], iterations[i], &packs[i][round]);
    if (world_rank() == 0) {
        printf("{\"bench\": \"exchange\", \"model\": %d, \"bytes\": %d, \"imbalance\": %g, \"points\": [", x->model,
               x->bytes, x->imbalance * 100);
        for (int i = 0; i < count; i++) {
            double low = quartile(samples[i], batches[i]);
            printf("%s{\"comp_us\": %.3f, \"iterations\": %d, \"quartile_us\": %.3f, \"best_us\": %.3f, \"pack_us\": %.3f}",
                   i ? ", " : "", lengths[i], iterations[i], low, samples[i][0], quartile(packs[i], batches[i]));
        }
        printf("]");
    }
    record_end(before);
}

int main(int argc, char **argv)
{
    double models[LIST_MAX], bytes[LIST_MAX], lengths[LIST_MAX];
    MPI_Init(&argc, &argv);
    need_two_ranks();
    counters_start();
    struct computing computing = computing_argument(argc, argv);
    int models_count = numbers(argc, argv, "model", "1,2", models);
    int sizes = numbers(argc, argv, "bytes", "131072", bytes);
    int count = numbers(argc, argv, "comp_us", "0", lengths);
    if (world_rank() == 0)
        printf("{\"bench\": \"work\", \"work_ns\": %.6f}\n", computing.work_ns);

    for (int size = 0; size < sizes; size++) {
        for (int model = 0; model < models_count; model++) {
            size_t length = (size_t)bytes[size];
            struct exchange x = {(int)models[model], (int)length,
                                 strcmp(argument(argc, argv, "turns", "alternating"), "random") == 0,
                                 number(argc, argv, "pack", 1) != 0, number(argc, argv, "imbalance", 0) / 100, 0,
                                 buffer_of(2 * length), buffer_of(length),
                                 buffer_of(length), computing, {1, 2}};
            measure_exchange(&x, lengths, count, number(argc, argv, "budget_ms", 150) * 1e3);
            verify(&x);
            free(x.grid);
            free(x.outgoing);
            free(x.incoming);
        }
    }
    MPI_Finalize();
    return 0;
}
