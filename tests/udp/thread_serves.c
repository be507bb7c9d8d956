/* A thread that makes progress for others keeps nobody awake: ranks whose progress thread has waited for long still find each other quiet and end.
 * ranks: 3
 * cflags: -pthread
 * env: WHIMBREL_FABRIC=udp WHIMBREL_PROGRESS=thread
 * timeout: 30
 */
#include "../programs-c/world.h"

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    int value = rank, got = -1;
    OK(MPI_Sendrecv(&value, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == (rank + size - 1) % size);
    nap_ms(2500); /* longer than it takes until the lives of others matter to who waits */
    return end();
}
