/* Messages of 8 bytes back and forth between two ranks over the stand-in, for counting instructions (bench/instructions_verbs): those of rank 0, in
 * `counted_send` and `counted_receive`. Each begins when all has come that was sent before, so that nothing is counted that waits.
 * Arguments: how many messages, and a file of a page that both ranks map. */
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BEFORE = 200 };

/* How many replies have left. */
static volatile long *replies;
static void (*settle)(void);

__attribute__((noinline)) void counted_send(long *word)
{
    MPI_Send(word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
}

__attribute__((noinline)) void counted_receive(long *word)
{
    MPI_Recv(word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    int me;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int messages = argc > 1 ? atoi(argv[1]) : 0;
    int file = open(argc > 2 ? argv[2] : "", O_RDWR);
    replies = mmap(NULL, sizeof *replies, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    settle = library ? (void (*)(void))dlsym(library, "standin_settle") : NULL;
    if (replies == MAP_FAILED || !settle) {
        fprintf(stderr, "it does not go over the stand-in\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (long at = 0; at < BEFORE + messages; at++) {
        long word = at;
        if (me == 1) {
            MPI_Recv(&word, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&word, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
            /* What had to wait leaves now. */
            int unused;
            MPI_Iprobe(0, 1, MPI_COMM_WORLD, &unused, MPI_STATUS_IGNORE);
            *replies = at + 1;
        } else if (at < BEFORE) {
            MPI_Send(&word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            settle();
            counted_send(&word);
            while (*replies <= at)
                usleep(100);
            settle();
            counted_receive(&word);
        }
        if (word != at)
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
}
