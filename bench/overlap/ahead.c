/* A sender that is always 100 messages ahead, and a new tag for each message: when the sender looks at the announcement of a receive, the message that
 * it is for has been overtaken by more messages than the sender remembers.
 *
 * In each round rank 1 posts 100 receives, the long ones first, and raises a flag in a file that both have mapped; rank 0, which is outside MPI until then,
 * sends the 100 messages, the long ones last. Short messages leave without a look at what the receiver says, and so do all datagrams.
 *
 * Arguments: FILE, messages, long ones among 100, bytes of a long one, bytes that the receives of short ones have room for.
 * Rank 0 prints the time of a message from the flag to the end of the round, µs.
 */
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AHEAD = 100, SHORT = 8 };

static void fail(const char *what, int value)
{
    fprintf(stderr, "check failed: %s %d\n", what, value);
    MPI_Abort(MPI_COMM_WORLD, 8);
}

int main(int argc, char **argv)
{
    MPI_Request requests[AHEAD];
    int rank, there, *upper;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper, &there);
    if (argc != 6)
        fail("arguments", argc);
    int messages = atoi(argv[2]), longs = atoi(argv[3]), bytes = atoi(argv[4]), room = atoi(argv[5]);
    if (messages % AHEAD || longs > AHEAD || bytes < 1 || room < SHORT || !there || *upper < messages)
        fail("messages", messages);

    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(atomic_int)))
        fail("file", file);
    atomic_int *flag = mmap(NULL, sizeof(atomic_int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    size_t each = (size_t)(room > bytes ? room : bytes);
    unsigned char *memory = malloc(AHEAD * each);
    if (flag == MAP_FAILED || memory == NULL)
        fail("memory", (int)each);
    memset(memory, 0, AHEAD * each);

    double spent = 0;
    for (int tag = 0; tag < messages; tag += AHEAD) {
        atomic_store(flag, 0);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            for (int i = 0; i < AHEAD; i++)
                MPI_Irecv(memory + i * each, i < longs ? bytes : room, MPI_BYTE, 0, tag + i, MPI_COMM_WORLD, &requests[i]);
            atomic_store(flag, 1);
        } else {
            while (!atomic_load(flag))
                sched_yield();
            double start = MPI_Wtime();
            for (int i = AHEAD - 1; i >= 0; i--) {
                int length = i < longs ? bytes : SHORT;
                memory[i * each] = memory[i * each + (size_t)length - 1] = (unsigned char)(tag + i);
                MPI_Isend(memory + i * each, length, MPI_BYTE, 1, tag + i, MPI_COMM_WORLD, &requests[i]);
            }
            spent -= start;
        }
        MPI_Waitall(AHEAD, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            spent += MPI_Wtime();
        for (int i = 0; rank == 1 && i < AHEAD; i++) {
            int last = (i < longs ? bytes : SHORT) - 1;
            if (memory[i * each] != (unsigned char)(tag + i) || memory[i * each + (size_t)last] != (unsigned char)(tag + i))
                fail("content of message", tag + i);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%.4f us a message\n", spent * 1e6 / messages);
    free(memory);
    MPI_Finalize();
    return 0;
}
