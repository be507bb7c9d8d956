/* Latency when the receive and the send are called at the same moment, so that what either side says crosses the other's.
 *
 * Before each message the ranks agree on a moment of their common clock and spin until then, outside MPI; then one calls
 * MPI_Send and the other MPI_Recv. The latency runs from the agreed moment until the receive has returned. Ranks take turns in
 * sending, as in a ping-pong.
 *
 * Arguments: bytes=LIST, budget_ms (of one size), skew_ns (the send is so much later than the receive; may be negative).
 */
#include "work.h"

enum { MESSAGES_MIN = 20, MESSAGES_MAX = 4000, WARM_UP = 64 };
static const double LEAD_US = 6; /* from the agreement to the agreed moment: more than the agreement itself takes */

/* One message from `sender`; the receiver's latency, 0 at the sender. */
static double once(char *buffer, int bytes, int sender, double skew_us)
{
    int rank = world_rank(), peer = 1 - rank;
    double moment;
    if (rank == 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        moment = now_us() + LEAD_US;
        MPI_Send(&moment, 1, MPI_DOUBLE, peer, TAG_GO, MPI_COMM_WORLD);
    } else {
        MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_DONE, MPI_COMM_WORLD);
        MPI_Recv(&moment, 1, MPI_DOUBLE, peer, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == sender) {
        spin_until(moment + skew_us);
        MPI_Send(buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD);
        return 0;
    }
    spin_until(moment);
    MPI_Recv(buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return now_us() - moment;
}

static void measure_size(int bytes, double skew_us, double budget_us)
{
    static double mine[MESSAGES_MAX], other[MESSAGES_MAX], all[2 * MESSAGES_MAX];
    char *buffer = buffer_of((size_t)bytes);
    double start = now_us();
    int count;

    for (int i = 0; i < 2 * WARM_UP; i++)
        once(buffer, bytes, i % 2, skew_us);
    count = (int)(budget_us / ((now_us() - start) / (2 * WARM_UP)) / 2);
    count = count < MESSAGES_MIN ? MESSAGES_MIN : count > MESSAGES_MAX ? MESSAGES_MAX : count;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);

    struct counters before = counters_read();
    for (int i = 0; i < count; i++) {
        double first = once(buffer, bytes, 0, skew_us), second = once(buffer, bytes, 1, skew_us);
        mine[i] = first + second;
    }
    if (world_rank() == 0) {
        MPI_Recv(other, count, MPI_DOUBLE, 1, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        memcpy(all, mine, (size_t)count * sizeof *all);
        memcpy(all + count, other, (size_t)count * sizeof *all);
        double middle = median(all, 2 * count);
        printf("{\"bench\": \"crossing\", \"bytes\": %d, \"messages\": %d, \"median_us\": %.3f, \"best_us\": %.3f", bytes,
               2 * count, middle, all[0]);
    } else {
        MPI_Send(mine, count, MPI_DOUBLE, 0, TAG_DONE, MPI_COMM_WORLD);
    }
    record_end(before);
    for (int sender = 0; sender < 2; sender++) {
        if (world_rank() == sender)
            fill(buffer, (size_t)bytes, (unsigned)sender);
        else
            memset(buffer, 0, (size_t)bytes);
        once(buffer, bytes, sender, skew_us);
        if (world_rank() != sender)
            check(buffer, (size_t)bytes, (unsigned)sender);
    }
    free(buffer);
}

int main(int argc, char **argv)
{
    double bytes[LIST_MAX];
    MPI_Init(&argc, &argv);
    need_two_ranks();
    counters_start();
    int sizes = numbers(argc, argv, "bytes", "262144", bytes);
    for (int size = 0; size < sizes; size++)
        measure_size((int)bytes[size], number(argc, argv, "skew_ns", 0) / 1e3, number(argc, argv, "budget_ms", 100) * 1e3);
    MPI_Finalize();
    return 0;
}
