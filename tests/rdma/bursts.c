/* Bursts of messages of many lengths and modes between all ranks, with pauses in which nobody says anything; every byte, and the order, is checked. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EACH = 60, LONGEST = 100000, RANKS_MAX = 8 };

static const int SIZES[] = {8, 100, 0, 300, 4000, 64, 20000, 8, 9000, 8, LONGEST, 250};
static int me, all, sent[RANKS_MAX], came[RANKS_MAX];

static void check(int good, const char *what, int which)
{
    if (!good) {
        fprintf(stderr, "check failed: rank %d: %s %d\n", me, what, which);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static int length_of(int number)
{
    return SIZES[number % (int)(sizeof SIZES / sizeof *SIZES)];
}

/* Message `number` from one rank to another. */
static void fill(unsigned char *bytes, int count, int from, int number)
{
    uint32_t seed = (uint32_t)(from * 1000003 + number);
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(seed >> 24);
    }
}

/* Each round has its tag: who is ahead sends what this one does not take. */
static void burst(int round)
{
    static MPI_Request requests[RANKS_MAX * EACH];
    static unsigned char *bodies[RANKS_MAX * EACH], in[LONGEST + 1], expected[LONGEST];
    int begun = 0;
    for (int i = 0; i < EACH; i++)
        for (int to = 0; to < all; to++) {
            if (to == me)
                continue;
            int number = sent[to]++, bytes = length_of(number);
            unsigned char *body = bodies[begun] = malloc((size_t)bytes + 1);
            fill(body, bytes, me, number);
            if ((number + round) % 7 == 0)
                MPI_Issend(body, bytes, MPI_BYTE, to, 10 + round, MPI_COMM_WORLD, &requests[begun]);
            else if ((number + round) % 5 == 0 && bytes <= 300)
                MPI_Send(body, bytes, MPI_BYTE, to, 10 + round, MPI_COMM_WORLD), requests[begun] = MPI_REQUEST_NULL;
            else
                MPI_Isend(body, bytes, MPI_BYTE, to, 10 + round, MPI_COMM_WORLD, &requests[begun]);
            begun++;
        }
    for (int left = EACH * (all - 1); left > 0; left--) {
        MPI_Status status;
        int count;
        memset(in, 0, sizeof in);
        MPI_Recv(in, sizeof in, MPI_BYTE, MPI_ANY_SOURCE, 10 + round, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        int number = came[status.MPI_SOURCE]++;
        check(count == length_of(number), "the length of message", number);
        fill(expected, count, status.MPI_SOURCE, number);
        check(memcmp(in, expected, (size_t)count) == 0, "the bytes of message", number);
    }
    MPI_Waitall(begun, requests, MPI_STATUSES_IGNORE);
    while (begun > 0)
        free(bodies[--begun]);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20, pause_ms = argc > 2 ? atoi(argv[2]) : 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    check(all <= RANKS_MAX, "too many ranks:", all);
    for (int round = 0; round < rounds; round++) {
        burst(round);
        double until = MPI_Wtime() + pause_ms / 1e3;
        while (MPI_Wtime() < until) {
            int flag;
            MPI_Iprobe(MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0)
        printf("%d ranks: all is well\n", all);
    MPI_Finalize();
}
