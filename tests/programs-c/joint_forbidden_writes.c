/* A sandbox forbids process_vm_writev alone, so that the trial read succeeds: copies that both sides began end through the ring.
 * ranks: 2 4
 * env: WHIMBREL_JOINT_MIN=65536 WHIMBREL_REPORT=1
 * output: rendezvous
 */
#include "world.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void forbid_writes(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv)
{
    enum { BYTES_MAX = 6 << 20 };
    forbid_writes();
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
