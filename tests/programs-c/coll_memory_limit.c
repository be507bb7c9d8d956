/* No memory is left for packed copies of what a collective moves: the call gives MPI_ERR_NO_MEM, which names it and the bytes, and later ones go on.
 * ranks: 1 2
 * env: WHIMBREL_COSTS=off
 * timeout: 60
 */
#include "world.h"
#include "limit.h"

/* Each element is BLOCK bytes, and as many between it and the next. */
enum { BLOCK = 4096, ELEMENTS = 1 << 13, LONG = BLOCK * ELEMENTS, SPARE = 12 << 20 };

static unsigned char out[2 * LONG], in[4 * LONG];

static void take_first(void *a, void *b, int *count, MPI_Datatype *type)
{
    (void)a, (void)b, (void)count, (void)type;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Datatype block, gap;
    MPI_Op op;
    MPI_Request request;
    int counts[2] = {LONG / 4, LONG / 4}, each[2] = {ELEMENTS, ELEMENTS}, places[2] = {0, 0}, value = rank, sum;
    OK(MPI_Type_contiguous(BLOCK, MPI_BYTE, &block));
    OK(MPI_Type_create_resized(block, 0, 2 * BLOCK, &gap));
    OK(MPI_Type_commit(&gap));
    OK(MPI_Op_create(take_first, 1, &op));
    /* All that MPI wants for itself is there. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Bcast(out, LONG, MPI_BYTE, 0, MPI_COMM_WORLD));
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    limit(SPARE);
    no_memory(MPI_Bcast(out, ELEMENTS, gap, 0, MPI_COMM_WORLD), "MPI_Bcast", "bytes");
    no_memory(MPI_Gather(out, ELEMENTS, gap, in, ELEMENTS, gap, 0, MPI_COMM_WORLD), "MPI_Gather", "bytes");
    no_memory(MPI_Scatter(in, ELEMENTS, gap, out, ELEMENTS, gap, 0, MPI_COMM_WORLD), "MPI_Scatter", "bytes");
    no_memory(MPI_Allgather(out, ELEMENTS, gap, in, ELEMENTS, gap, MPI_COMM_WORLD), "MPI_Allgather", "bytes");
    no_memory(MPI_Allgatherv(out, ELEMENTS, gap, in, each, places, gap, MPI_COMM_WORLD), "MPI_Allgatherv", "bytes");
    no_memory(MPI_Alltoallv(out, each, places, gap, in, each, places, gap, MPI_COMM_WORLD), "MPI_Alltoallv", "bytes");
    no_memory(MPI_Reduce(out, in, ELEMENTS, gap, op, 0, MPI_COMM_WORLD), "MPI_Reduce", "bytes");
    no_memory(MPI_Allreduce(out, in, ELEMENTS, gap, op, MPI_COMM_WORLD), "MPI_Allreduce", "bytes");
    no_memory(MPI_Scan(out, in, ELEMENTS, gap, op, MPI_COMM_WORLD), "MPI_Scan", "bytes");
    no_memory(MPI_Reduce_local(out, in, ELEMENTS, gap, op), "MPI_Reduce_local", "bytes");
    no_memory(MPI_Reduce_scatter(MPI_IN_PLACE, in, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "MPI_Reduce_scatter", "bytes");
    OK(MPI_Ibcast(out, ELEMENTS, gap, 0, MPI_COMM_WORLD, &request));
    no_memory(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait", "bytes");
    /* All are in step, and what needs little goes on. */
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    limit(-1);
    if (rank == 0)
        fill(out, 2 * LONG, 3);
    OK(MPI_Bcast(out, ELEMENTS, gap, 0, MPI_COMM_WORLD));
    for (int i = 0; i < ELEMENTS; i += 1000)
        CHECK(out[(size_t)i * 2 * BLOCK] == pattern((size_t)i * 2 * BLOCK, 3));
    OK(MPI_Allreduce(MPI_IN_PLACE, out, ELEMENTS, gap, op, MPI_COMM_WORLD));
    for (int i = 0; i < ELEMENTS; i += 1000)
        CHECK(out[(size_t)i * 2 * BLOCK] == pattern((size_t)i * 2 * BLOCK, 3));
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&gap));
    OK(MPI_Type_free(&block));
    return end();
}
