/* There is no memory for the room that one rank needs for longer collectives: all ranks go by messages, on all communicators, and the sums are right.
 * ranks: 2 3
 * timeout: 60
 */
#include "world.h"
#include "forbid.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { CALLS = 30, COUNT = 1024 };

/* From now on no pages are mapped ahead. That they could be is still said. */
static void forbid_pages(void)
{
    unsigned advice = offsetof(struct seccomp_data, args[2]), bytes = offsetof(struct seccomp_data, args[1]);
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, advice),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, bytes),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(rules, sizeof rules / sizeof *rules);
}

static long in[COUNT], out[COUNT];

/* Sums of all ranks, right each time. */
static void sums(MPI_Comm comm, int calls)
{
    for (int call = 0; call < calls; call++) {
        for (int i = 0; i < COUNT; i++)
            in[i] = rank + (long)i * call;
        OK(MPI_Allreduce(in, out, COUNT, MPI_LONG, MPI_SUM, comm));
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == (long)size * (size - 1) / 2 + (long)i * call * size);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm later;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &later));
    if (rank == size - 1)
        forbid_pages();
    sums(MPI_COMM_WORLD, CALLS);
    sums(later, CALLS);
    for (int call = 0; call < CALLS; call++) {
        MPI_Request request;
        for (int i = 0; i < COUNT; i++)
            in[i] = (long)i * rank + call;
        OK(MPI_Iallreduce(in, out, COUNT, MPI_LONG, MPI_SUM, later, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == (long)i * size * (size - 1) / 2 + (long)call * size);
    }
    OK(MPI_Comm_free(&later));
    return end();
}
