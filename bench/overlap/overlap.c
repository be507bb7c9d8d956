/* How much of a transfer passes while one side computes, and whether it goes on without that side.
 *
 * Rank 0 is the side that computes between its nonblocking call and its wait; rank 1 does nothing but the transfer. In the
 * scenario "sender first" the receive is called only after the sender has said, in a small message sent after its send
 * call, that it has made it; "receiver first" likewise. A receiver's time runs from its receive call to the end of its
 * wait; a sender's from its send call until it has heard that the whole message arrived. Per round: the transfer without
 * computing, with each length of computing, and each computing alone, so that a change of the machine's mood meets all of
 * them. Each figure is the lower quartile of the rounds.
 *
 * Arguments: bytes=LIST, ratios=LIST (computing over transfer time), budget_ms, compute=cpu|device, work_ns.
 */
#include "work.h"
#include <sys/uio.h>

enum { ROUNDS_MIN = 7, ROUNDS_MAX = 400, WARM_UP = 24, COPIES = 15 };

struct transfer {
    int bytes, receives, receiver_first; /* `receives`: rank 0 is the receiver */
    char *buffer;
    struct computing computing;
};

struct times {
    double total_us;   /* until rank 0 is through */
    double arrival_us; /* until the whole message has arrived at the receiver */
};

/* One transfer; the times are rank 0's. */
static struct times once(const struct transfer *t, double length_us)
{
    int rank = world_rank(), peer = 1 - rank, receiving = (rank == 0) == t->receives;
    int early = receiving == t->receiver_first, computes = rank == 0;
    MPI_Request request;
    double start, end = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    if (!early)
        MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    start = now_us();
    if (receiving)
        MPI_Irecv(t->buffer, t->bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &request);
    else
        MPI_Isend(t->buffer, t->bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &request);
    if (early)
        MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_GO, MPI_COMM_WORLD);
    if (computes)
        compute(&t->computing, length_us);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (receiving)
        end = now_us();
    if (!t->receives) { /* the receiver tells the sender when it had everything */
        if (receiving)
            MPI_Send(&end, 1, MPI_DOUBLE, peer, TAG_DONE, MPI_COMM_WORLD);
        else
            MPI_Recv(&end, 1, MPI_DOUBLE, peer, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return (struct times){now_us() - start, end - start};
    }
    return (struct times){end - start, end - start};
}

/* One computing with no transfer, while rank 1 waits. */
static double alone(const struct transfer *t, double length_us)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_us();
    if (world_rank() == 0)
        compute(&t->computing, length_us);
    return now_us() - start;
}

/* The message copied by one core with one system call, what no single copier beats; 0 where that is not allowed. */
static double one_core_copy_us(struct transfer *t)
{
    struct {
        uint64_t pid, address;
    } other = {(uint64_t)getpid(), (uint64_t)(uintptr_t)t->buffer};
    double samples[COPIES];
    int copied = 0;

    if (world_rank() == 1)
        MPI_Send(&other, sizeof other, MPI_BYTE, 0, TAG_GO, MPI_COMM_WORLD);
    else
        MPI_Recv(&other, sizeof other, MPI_BYTE, 1, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < COPIES && world_rank() == 0; i++) {
        struct iovec here = {t->buffer, (size_t)t->bytes};
        struct iovec there = {(void *)(uintptr_t)other.address, (size_t)t->bytes};
        double start = now_us();
        if (process_vm_readv((pid_t)other.pid, &here, 1, &there, 1, 0) != t->bytes)
            break;
        samples[copied++] = now_us() - start;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return copied == COPIES ? quartile(samples, copied) : 0;
}

static void verify(const struct transfer *t, unsigned seed)
{
    size_t bytes = (size_t)t->bytes;
    int receiving = (world_rank() == 0) == t->receives;
    if (receiving)
        memset(t->buffer, 0, bytes);
    else
        fill(t->buffer, bytes, seed);
    once(t, 0);
    if (receiving)
        check(t->buffer, bytes, seed);
}

static void measure_transfer(struct transfer *t, const double *ratios, int count, double budget_us)
{
    static double comm[ROUNDS_MAX], arrival[ROUNDS_MAX], total[LIST_MAX][ROUNDS_MAX], arrived[LIST_MAX][ROUNDS_MAX],
        computed[LIST_MAX][ROUNDS_MAX];
    double estimate_us, ratios_sum = 0, copy_us = one_core_copy_us(t);
    int rounds;

    for (int i = 0; i < WARM_UP; i++)
        comm[i] = once(t, 0).total_us;
    estimate_us = quartile(comm + WARM_UP / 2, WARM_UP / 2);
    MPI_Bcast(&estimate_us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        ratios_sum += 2 * ratios[i] + 1;
    rounds = (int)(budget_us / (estimate_us * (1 + ratios_sum)));
    rounds = rounds < ROUNDS_MIN ? ROUNDS_MIN : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;

    struct counters before = counters_read();
    for (int round = 0; round < rounds; round++) {
        struct times bare = once(t, 0);
        comm[round] = bare.total_us;
        arrival[round] = bare.arrival_us;
        for (int i = 0; i < count; i++) {
            struct times with = once(t, ratios[i] * estimate_us);
            total[i][round] = with.total_us;
            arrived[i][round] = with.arrival_us;
            computed[i][round] = alone(t, ratios[i] * estimate_us);
        }
    }
    if (world_rank() == 0) {
        printf("{\"bench\": \"overlap\", \"side\": \"%s\", \"first\": \"%s\", \"bytes\": %d, \"rounds\": %d, "
               "\"comm_us\": %.3f, \"arrival_us\": %.3f, \"one_core_copy_us\": %.3f, \"points\": [",
               t->receives ? "receiver" : "sender", t->receiver_first ? "receiver" : "sender", t->bytes, rounds,
               quartile(comm, rounds), quartile(arrival, rounds), copy_us);
        for (int i = 0; i < count; i++)
            printf("%s{\"comp_us\": %.3f, \"total_us\": %.3f, \"arrival_us\": %.3f}", i ? ", " : "",
                   quartile(computed[i], rounds), quartile(total[i], rounds), quartile(arrived[i], rounds));
        printf("]");
    }
    record_end(before);
}

int main(int argc, char **argv)
{
    double bytes[LIST_MAX], ratios[LIST_MAX];
    MPI_Init(&argc, &argv);
    need_two_ranks();
    counters_start();
    struct computing computing = computing_argument(argc, argv);
    int sizes = numbers(argc, argv, "bytes", "1048576", bytes);
    int count = numbers(argc, argv, "ratios", "0.5,1,2", ratios);

    for (int size = 0; size < sizes; size++) {
        for (int scenario = 0; scenario < 4; scenario++) {
            struct transfer t = {(int)bytes[size], scenario < 2, scenario % 2, buffer_of((size_t)bytes[size]), computing};
            measure_transfer(&t, ratios, count, number(argc, argv, "budget_ms", 60) * 1e3);
            verify(&t, (unsigned)scenario);
            free(t.buffer);
        }
    }
    MPI_Finalize();
    return 0;
}
