/* Two ranks on a network: single round trips of a short message, then a stream of long ones. Both end when their time is over, however
 * slow the network is.
 *
 * Latency is half of a round trip, each of which is timed, so that what a lost datagram costs is seen in the mean and in the longest ones. Goodput
 * is the bytes of whole windows over the time until the last one was answered.
 *
 * Arguments: budget_ms (of each part), bytes=LIST (of the stream), window (messages under way), latency (0: no round trips).
 */
#include "../overlap/work.h"

enum { TRIPS_MAX = 1 << 18, SHORT_BYTES = 8, WINDOW_MAX = 64, TAG_ANSWER = 6 };

static void round_trips(double budget_us)
{
    static double trips_us[TRIPS_MAX];
    unsigned char message[SHORT_BYTES] = {0};
    int count = 0, peer = 1 - world_rank();
    double sum_us = 0, start = now_us();

    for (; !message[0]; count++) {
        double left = now_us();
        if (world_rank() == 0) {
            message[0] = left - start > budget_us || count + 1 == TRIPS_MAX; /* the last one */
            MPI_Send(message, SHORT_BYTES, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD);
        }
        MPI_Recv(message, SHORT_BYTES, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (world_rank() == 1)
            MPI_Send(message, SHORT_BYTES, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD);
        trips_us[count] = (now_us() - left) / 2;
        sum_us += trips_us[count];
    }
    if (world_rank() != 0)
        return;
    qsort(trips_us, (size_t)count, sizeof *trips_us, compare_doubles);
    printf("{\"bench\": \"latency\", \"bytes\": %d, \"messages\": %d, \"mean_us\": %.3f, \"median_us\": %.3f, \"p99_us\": %.3f, "
           "\"longest_us\": %.3f}\n",
           SHORT_BYTES, count, sum_us / count, trips_us[count / 2], trips_us[(size_t)count * 99 / 100], trips_us[count - 1]);
    fflush(stdout);
}

/* One window and its answer; whether it was the last. */
static int send_window(char *buffer, int bytes, int window, int last)
{
    MPI_Request requests[WINDOW_MAX];
    int peer = 1 - world_rank();
    if (world_rank() == 0)
        buffer[0] = (char)last;
    for (int i = 0; i < window; i++) {
        char *message = buffer + (size_t)i * (size_t)bytes;
        if (world_rank() == 0)
            MPI_Isend(message, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(message, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    if (world_rank() == 0)
        MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_ANSWER, MPI_COMM_WORLD);
    return buffer[0];
}

static void stream(int bytes, int window, double budget_us)
{
    size_t total = (size_t)bytes * (size_t)window;
    char *buffer = buffer_of(total);
    if (world_rank() == 0)
        fill(buffer + 1, total - 1, 3);
    send_window(buffer, bytes, window, 0);
    double start = now_us(), windows = 0;
    for (int last = 0; !last; windows++)
        last = send_window(buffer, bytes, window, now_us() - start > budget_us);
    double seconds = (now_us() - start) / 1e6;
    if (world_rank() == 1)
        check(buffer + 1, total - 1, 3);
    else
        printf("{\"bench\": \"goodput\", \"bytes\": %d, \"window\": %d, \"seconds\": %.3f, \"mb_s\": %.3f}\n", bytes, window, seconds,
               windows * (double)total / seconds / 1e6);
    fflush(stdout);
    free(buffer);
}

int main(int argc, char **argv)
{
    double sizes[LIST_MAX];
    MPI_Init(&argc, &argv);
    need_two_ranks();
    double budget_us = number(argc, argv, "budget_ms", 300) * 1e3;
    int window = (int)number(argc, argv, "window", 16), count = numbers(argc, argv, "bytes", "65536", sizes);
    if (window < 1 || window > WINDOW_MAX)
        fail("window is not within 1 to 64");
    if (number(argc, argv, "latency", 1) != 0)
        round_trips(budget_us);
    for (int i = 0; i < count; i++)
        stream((int)sizes[i], window, budget_us);
    MPI_Finalize();
    return 0;
}
