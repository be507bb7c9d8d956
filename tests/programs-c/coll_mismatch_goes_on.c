/* Collectives that do not match fail alone, with an error that names both calls, where that is possible: later ones on the same communicator give right
 * results.
 * ranks: 2 3 4 5
 * timeout: 240
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "world.h"
#include <string.h>

enum { LONG = 1 << 18, TEXT = MPI_MAX_ERROR_STRING + 1 };

static int *in, *out;

/* Everything that needs all ranks in step. */
static void in_step(MPI_Comm comm, int count)
{
    for (int root = 0; root < size; root++) {
        for (int i = 0; i < count; i++)
            out[i] = rank == root ? root + i : -1;
        OK(MPI_Bcast(out, count, MPI_INT, root, comm));
        CHECK(out[0] == root && out[count - 1] == root + count - 1);
        for (int i = 0; i < count; i++)
            in[i] = rank + 1;
        OK(MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, root, comm));
        CHECK(rank != root || (out[0] == size * (size + 1) / 2 && out[count - 1] == out[0]));
    }
    OK(MPI_Barrier(comm));
    OK(MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm));
    CHECK(out[0] == size * (size + 1) / 2);
    OK(MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm));
    CHECK(out[0] == size * (size + 1) / 2 && out[count - 1] == out[0]);
    OK(MPI_Allgather(&rank, 1, MPI_INT, out, 1, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        CHECK(out[r] == r);
}

/* Some rank has had an error that names both calls. */
static void named(int code, const char *one, const char *all)
{
    char text[TEXT] = "";
    int length, good = 0, any;
    if (code != MPI_SUCCESS) {
        OK(MPI_Error_string(code, text, &length));
        good = strstr(text, one) && strstr(text, all);
        if (!good)
            printf("rank %d: %s\n", rank, text);
        CHECK(good);
    }
    OK(MPI_Allreduce(&good, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    CHECK(any);
}

static int nonblocking(int code, MPI_Request *request)
{
    return code ? code : MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void cells(MPI_Comm comm, int count)
{
    MPI_Request request;
    int *block = in + LONG;
    for (int culprit = 0; culprit < size; culprit++) {
        int other = rank == culprit, twice = other ? 2 * count : count, code;
        named(MPI_Bcast(out, twice, MPI_INT, 0, comm), "MPI_Bcast", "MPI_Bcast");
        in_step(comm, count);
        named(MPI_Allreduce(in, out, twice, MPI_INT, MPI_SUM, comm), "MPI_Allreduce", "MPI_Allreduce");
        in_step(comm, count);
        code = other ? MPI_Barrier(comm) : MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, comm);
        named(code, "MPI_Barrier", "MPI_Allreduce");
        in_step(comm, count);
        code = other ? MPI_Bcast(out, count, MPI_INT, culprit, comm) : MPI_Barrier(comm);
        named(code, "MPI_Bcast", "MPI_Barrier");
        in_step(comm, count);
        code = other ? MPI_Alltoall(in, 1, MPI_INT, block, 1, MPI_INT, comm) : MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, culprit, comm);
        named(code, "MPI_Alltoall", "MPI_Reduce");
        in_step(comm, count);
        code = nonblocking(MPI_Ibcast(out, twice, MPI_INT, 0, comm, &request), &request);
        named(code, "MPI_Ibcast", "MPI_Ibcast");
        in_step(comm, count);
        code = other ? nonblocking(MPI_Ibarrier(comm, &request), &request)
                     : nonblocking(MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request), &request);
        named(code, "MPI_Ibarrier", "MPI_Iallreduce");
        in_step(comm, count);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    in = calloc(4 * LONG, sizeof(int));
    out = calloc(4 * LONG, sizeof(int));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int first = 0; first < 2; first++) {
        MPI_Comm comm;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
        /* Before and after the communicator has done short collectives. */
        if (first)
            in_step(comm, 1);
        else
            named(rank == size - 1 ? MPI_Bcast(out, 1, MPI_INT, rank, comm) : MPI_Barrier(comm), "MPI_Bcast", "MPI_Barrier");
        cells(comm, 1);
        cells(comm, LONG);
        /* A rank that has ended its part well may find what was left for it. */
        if (MPI_Comm_free(&comm) != MPI_SUCCESS)
            OK(MPI_Comm_free(&comm));
    }
    free(in);
    free(out);
    return end();
}
