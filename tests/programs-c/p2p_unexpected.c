/* Half a gigabyte that nobody asked for yet: the senders wait or keep it, and the receiver's memory stays small.
 * ranks: 2 3
 * timeout: 120
 */
#include "world.h"

#include <sys/resource.h>

enum { GROWTH_KIB_MAX = 64 << 10, TOTAL_BYTES = 512 << 20 };

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void flood(int bytes)
{
    int messages = TOTAL_BYTES / bytes / (size - 1);
    if (messages > 200000)
        messages = 200000;
    unsigned char *buffer = memory_of((size_t)bytes);
    if (rank != 0) {
        for (int i = 0; i < messages; i++) {
            memcpy(buffer, &i, sizeof i);
            OK(MPI_Send(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
        }
    } else {
        int next[8] = {0}, number, marker;
        MPI_Status status;
        long before = peak_kib();
        /* Probes for what never comes: progress is made, and the flood is not received. */
        nap_ms(100);
        for (int i = 0; i < 1000; i++) {
            OK(MPI_Iprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &marker, MPI_STATUS_IGNORE));
            CHECK(!marker);
        }
        for (int i = 0; i < messages * (size - 1); i++) {
            OK(MPI_Recv(buffer, bytes, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status));
            memcpy(&number, buffer, sizeof number);
            CHECK(number == next[status.MPI_SOURCE]++);
        }
        long growth = peak_kib() - before;
        if (growth > GROWTH_KIB_MAX)
            fprintf(stderr, "messages of %d bytes: the receiver grew by %ld KiB\n", bytes, growth);
        CHECK(growth <= GROWTH_KIB_MAX);
    }
    free(buffer);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    flood(8);
    flood(1000);
    flood(10000);
    flood(200000);
    return end();
}
