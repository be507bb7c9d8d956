/* Random messages and collectives, checked, until a deadline; one rank may die on the way.
 *
 *   chaos SEED SECONDS [MODE VICTIM AFTER_US]
 *
 * All ranks draw the same operations from SEED, so that they agree on each without talking. MODE is how rank VICTIM dies,
 * AFTER_US microseconds after MPI_Init: `segv`, `abrt`, `exit` (status 3) and `exit0` strike in the middle of whatever it
 * does; `leave` (exit with status 5 through the exit handlers) and `mpi-abort` (code 7) between two operations.
 */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { BYTES_MAX = 300000, FAN_MESSAGES = 40 };

static int rank, size;
static unsigned char *outgoing, *incoming;
static const char *mode = "";
static volatile sig_atomic_t time_to_leave;

static uint64_t random_state;

/* splitmix64: the same on every rank. */
static uint64_t draw(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static int below(int limit)
{
    return (int)(draw() % (uint64_t)limit);
}

/* Mostly short, sometimes long: every protocol gets its turn. */
static int draw_bytes(void)
{
    int kind = below(10);
    return kind < 5 ? below(100) : kind < 8 ? below(20000) : below(BYTES_MAX);
}

static void strike(int signal_number)
{
    (void)signal_number;
    if (strcmp(mode, "segv") == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile int *)8 = 1;
    } else if (strcmp(mode, "abrt") == 0)
        abort();
    else if (strcmp(mode, "exit") == 0)
        _exit(3);
    else if (strcmp(mode, "exit0") == 0)
        _exit(0);
    time_to_leave = 1;
}

static void wrong(const char *what)
{
    fprintf(stderr, "chaos: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 99);
}

static void fill(unsigned char *buffer, int bytes, int seed)
{
    for (int i = 0; i < bytes; i += 61)
        buffer[i] = (unsigned char)(i + seed);
}

static void check(const unsigned char *buffer, int bytes, int seed)
{
    for (int i = 0; i < bytes; i += 61)
        if (buffer[i] != (unsigned char)(i + seed))
            wrong("wrong contents");
}

static void ring(int bytes)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    fill(outgoing, bytes, rank);
    MPI_Sendrecv(outgoing, bytes, MPI_BYTE, to, 1, incoming, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(incoming, bytes, from);
}

/* Every rank sends to a root that takes from anybody; unexpected messages pile up there. The tag keeps a fast rank's next
 * fan-in apart from this one. */
static void fan_in(int root, int bytes, int tag)
{
    bytes = bytes % 2000;
    if (rank != root) {
        for (int i = 0; i < FAN_MESSAGES; i++) {
            fill(outgoing, bytes, rank + i);
            MPI_Send(outgoing, bytes, MPI_BYTE, root, tag, MPI_COMM_WORLD);
        }
        return;
    }
    int seen[256] = {0};
    for (int i = 0; i < FAN_MESSAGES * (size - 1); i++) {
        MPI_Status status;
        MPI_Recv(incoming, bytes, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
        check(incoming, bytes, status.MPI_SOURCE + seen[status.MPI_SOURCE]++);
    }
}

static void windows(int bytes, int synchronous)
{
    enum { WINDOW = 16 };
    MPI_Request requests[2 * WINDOW];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    bytes /= WINDOW;
    fill(outgoing, bytes, rank);
    for (int i = 0; i < WINDOW; i++)
        MPI_Irecv(incoming + i * bytes, bytes, MPI_BYTE, from, 3, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < WINDOW; i++)
        if (synchronous)
            MPI_Issend(outgoing, bytes, MPI_BYTE, to, 3, MPI_COMM_WORLD, &requests[WINDOW + i]);
        else
            MPI_Isend(outgoing, bytes, MPI_BYTE, to, 3, MPI_COMM_WORLD, &requests[WINDOW + i]);
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < WINDOW; i++)
        check(incoming + i * bytes, bytes, from);
}

static void broadcast(int root, int bytes)
{
    if (rank == root)
        fill(outgoing, bytes, root);
    MPI_Bcast(outgoing, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    check(outgoing, bytes, root);
}

static void sum(int bytes)
{
    int count = bytes / 8;
    int64_t *in = (int64_t *)outgoing, *out = (int64_t *)incoming;
    for (int i = 0; i < count; i++)
        in[i] = i + rank;
    MPI_Allreduce(in, out, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        if (out[i] != (int64_t)i * size + size * (size - 1) / 2)
            wrong("wrong sum");
}

static void exchange_all(int bytes)
{
    bytes /= size;
    for (int peer = 0; peer < size; peer++)
        fill(outgoing + peer * bytes, bytes, rank * 16 + peer);
    MPI_Alltoall(outgoing, bytes, MPI_BYTE, incoming, bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < size; peer++)
        check(incoming + peer * bytes, bytes, peer * 16 + rank);
}

static void split(void)
{
    MPI_Comm half;
    int sum, one = 1;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
    if (sum != (size + (rank % 2 == 0)) / 2)
        wrong("wrong size of a half");
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: chaos SEED SECONDS [MODE VICTIM AFTER_US]\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    random_state = strtoull(argv[1], NULL, 10);
    double end = MPI_Wtime() + atof(argv[2]);
    outgoing = calloc(1, BYTES_MAX + 64);
    incoming = calloc(1, BYTES_MAX + 64);

    if (argc > 5 && atoi(argv[4]) == rank) {
        long after_us = atol(argv[5]) + 1;
        struct itimerval timer = {{0, 0}, {after_us / 1000000, after_us % 1000000}};
        mode = argv[3];
        signal(SIGALRM, strike);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
    for (long done = 0;; done++) {
        if (time_to_leave) {
            if (strcmp(mode, "leave") == 0)
                exit(5);
            MPI_Abort(MPI_COMM_WORLD, 7);
        }
        /* Only rank 0 looks at the clock, so that all end after the same operation. */
        if (done % 64 == 0) {
            int over = MPI_Wtime() >= end;
            MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
            if (over)
                break;
        }
        int operation = below(10), root = below(size), bytes = draw_bytes();
        switch (operation) {
        case 0: MPI_Barrier(MPI_COMM_WORLD); break;
        case 1: broadcast(root, bytes); break;
        case 2: sum(bytes); break;
        case 3: exchange_all(bytes); break;
        case 4: fan_in(root, bytes, 10 + (int)(done % 1000)); break;
        case 5: windows(bytes, 1); break;
        case 6: split(); break;
        case 7: windows(bytes, 0); break;
        default: ring(bytes);
        }
    }
    free(outgoing);
    free(incoming);
    MPI_Finalize();
    return 0;
}
