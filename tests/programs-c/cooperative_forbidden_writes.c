/* A sandbox forbids process_vm_writev alone, so that the trial read succeeds: copies that both sides began end through the ring.
 * ranks: 2 4
 * env: WHIMBREL_COOPERATIVE_MIN=65536 WHIMBREL_REPORT=1
 * output: rendezvous
 */
#include "world.h"
#include "forbid.h"

int main(int argc, char **argv)
{
    enum { BYTES_MAX = 6 << 20 };
    forbid(SYS_process_vm_writev, SYS_process_vm_writev, EPERM);
    begin(&argc, &argv);
    unsigned char *out = memory_of(BYTES_MAX), *in = memory_of(BYTES_MAX);
    int peer = rank ^ 1;
    for (int round = 0; round < 30; round++) {
        int bytes = round % 3 == 0 ? BYTES_MAX : (70000 << (round % 6)) + round;
        MPI_Request request;
        fill(out, (size_t)bytes, (unsigned)(round * 7 + rank));
        OK(MPI_Irecv(in, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &request));
        OK(MPI_Send(out, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(holds(in, (size_t)bytes, (unsigned)(round * 7 + peer)));
    }
    free(out);
    free(in);
    return end();
}
