/* PingPong, SendRecv and Allreduce as the Pallas MPI Benchmarks have them, with which paper 001 measured (§2.5, Figs. 5 to 9): the same
 * buffers again and again. Times are those of PMB: half a round trip between ranks 0 and 1; a step of a ring in which everybody sends and receives;
 * an allreduce of doubles. Each is run once more with contents that are checked.
 *
 * Arguments: operations=LIST of pingpong, sendrecv, allreduce; bytes=LIST; budget_ms (of each operation and length).
 */
#include "../overlap/work.h"

enum { ALIGNMENT_BYTES = 8 };

struct job {
    char *outgoing, *incoming;
    int bytes, rank, size;
};

static void ping_pong(void *state, int count)
{
    const struct job *job = state;
    for (int i = 0; i < count; i++) {
        if (job->rank == 0)
            MPI_Send(job->outgoing, job->bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD);
        if (job->rank < 2)
            MPI_Recv(job->incoming, job->bytes, MPI_BYTE, 1 - job->rank, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (job->rank == 1)
            MPI_Send(job->outgoing, job->bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD);
    }
}

static void send_receive(void *state, int count)
{
    const struct job *job = state;
    int right = (job->rank + 1) % job->size, left = (job->rank + job->size - 1) % job->size;
    for (int i = 0; i < count; i++)
        MPI_Sendrecv(job->outgoing, job->bytes, MPI_BYTE, right, TAG_DATA, job->incoming, job->bytes, MPI_BYTE, left, TAG_DATA, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
}

static void all_reduce(void *state, int count)
{
    const struct job *job = state;
    for (int i = 0; i < count; i++)
        MPI_Allreduce(job->outgoing, job->incoming, job->bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    operation *run;
    double share; /* of one run that is told as its time */
} OPERATIONS[] = {{"pingpong", ping_pong, 2}, {"sendrecv", send_receive, 1}, {"allreduce", all_reduce, 1}};

/* Every rank sends what its number makes of each place; sums of small whole numbers are exact. */
static void verify(struct job *job, operation *run)
{
    int from = run == ping_pong ? 1 - job->rank : (job->rank + job->size - 1) % job->size;
    if (run != all_reduce) {
        fill(job->outgoing, (size_t)job->bytes, (unsigned)job->rank);
        memset(job->incoming, 0, (size_t)job->bytes);
        run(job, 1);
        if (run == send_receive || job->rank < 2)
            check(job->incoming, (size_t)job->bytes, (unsigned)from);
        return;
    }
    double *outgoing = (double *)job->outgoing, *incoming = (double *)job->incoming;
    int count = job->bytes / (int)sizeof(double);
    for (int i = 0; i < count; i++)
        outgoing[i] = (job->rank + 1) * (i % 100);
    run(job, 1);
    for (int i = 0; i < count; i++)
        if (incoming[i] != job->size * (job->size + 1) / 2 * (i % 100))
            fail("a sum is wrong");
}

int main(int argc, char **argv)
{
    double sizes[LIST_MAX];
    MPI_Init(&argc, &argv);
    double budget_s = number(argc, argv, "budget_ms", 100) / 1e3;
    int count = numbers(argc, argv, "bytes", "65536", sizes);
    const char *wanted = argument(argc, argv, "operations", "pingpong,sendrecv,allreduce");
    if (world_size() < 2)
        fail("this program wants at least 2 ranks");
    for (int at = 0; at < (int)(sizeof OPERATIONS / sizeof *OPERATIONS); at++) {
        for (int i = 0; i < count && strstr(wanted, OPERATIONS[at].name); i++) {
            int bytes = ((int)sizes[i] + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
            struct job job = {buffer_of((size_t)bytes), buffer_of((size_t)bytes), bytes, world_rank(), world_size()};
            report(OPERATIONS[at].name, bytes, 1, measure(OPERATIONS[at].run, &job, budget_s), OPERATIONS[at].share);
            verify(&job, OPERATIONS[at].run);
            free(job.outgoing);
            free(job.incoming);
        }
    }
    MPI_Finalize();
    return 0;
}
