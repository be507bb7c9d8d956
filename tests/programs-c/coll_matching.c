/* Collectives that match though their arguments differ: other datatypes of the same data, MPI_IN_PLACE at some ranks only, arguments that do not
 * matter at some ranks, operations of the program, no elements at all, and nonblocking and persistent ones between blocking ones. More than a tag counts
 * numbers of collectives are used. With short pauses, so that ranks that wait ask each other.
 * ranks: 1 2 3 5
 * env: WHIMBREL_COLLECTIVE_CHECK=1
 */
#include "world.h"

static void add(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
    (void)datatype;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int a[8] = {0}, b[8 * 8] = {0}, odd = rank % 2, sum = size * (size - 1) / 2;
    MPI_Datatype four;
    OK(MPI_Type_contiguous(4, MPI_INT, &four));
    OK(MPI_Type_commit(&four));
    MPI_Op op;
    OK(MPI_Op_create(add, 1, &op));
    /* A late rank, for which all others wait and ask. */
    if (rank == size - 1)
        nap_ms(30);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int root = 0; root < size; root++) {
        for (int i = 0; i < 4; i++)
            a[i] = rank == root ? 10 * root + i : -1;
        if (rank == root && root % 2)
            nap_ms(10);
        OK(MPI_Bcast(a, odd ? 1 : 4, odd ? four : MPI_INT, root, MPI_COMM_WORLD));
        CHECK(a[3] == 10 * root + 3);
        OK(MPI_Bcast(a, odd ? 16 : 4, odd ? MPI_BYTE : MPI_INT, root, MPI_COMM_WORLD));
        a[0] = rank;
        OK(MPI_Gather(a, 1, MPI_INT, rank == root ? b : NULL, rank == root ? 1 : 77, rank == root ? MPI_INT : MPI_DOUBLE, root, MPI_COMM_WORLD));
        OK(MPI_Scatter(rank == root ? b : NULL, rank == root ? 1 : -7, rank == root ? MPI_INT : MPI_CHAR, a, 1, MPI_INT, root, MPI_COMM_WORLD));
        CHECK(a[0] == rank);
        OK(MPI_Reduce(rank == root ? MPI_IN_PLACE : a, rank == root ? a : NULL, 1, MPI_INT, op, root, MPI_COMM_WORLD));
        CHECK(rank != root || a[0] == sum);
    }
    a[0] = rank;
    OK(MPI_Allreduce(odd ? MPI_IN_PLACE : a, odd ? a : b, 1, odd ? MPI_INT : MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD));
    CHECK((odd ? a : b)[0] == sum);
    b[rank] = rank;
    a[0] = rank;
    OK(MPI_Allgather(odd ? MPI_IN_PLACE : a, odd ? 0 : 1, odd ? MPI_DATATYPE_NULL : MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD));
    CHECK(b[size - 1] == size - 1);
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Bcast(NULL, 0, odd ? MPI_INT : MPI_DOUBLE, 0, MPI_COMM_WORLD));
    MPI_Request persistent, later[3];
    int c = 0, d = 0, e = rank == 0 ? 42 : 0;
    OK(MPI_Bcast_init(&e, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &persistent));
    for (int round = 0; round < 300000; round += round < 100 ? 1 : 1000) {
        a[0] = rank;
        OK(MPI_Iallreduce(a, &c, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &later[0]));
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &later[1]));
        OK(MPI_Iallreduce(a, &d, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &later[2]));
        OK(MPI_Start(&persistent));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Waitall(3, later, MPI_STATUSES_IGNORE));
        OK(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
        CHECK(c == sum && d == size - 1 && e == 42);
        e = rank == 0 ? 42 : 0;
    }
    OK(MPI_Request_free(&persistent));
    /* The numbers in tags go round after 262,144 collectives. */
    if (size == 2)
        for (int i = 0; i < 270000; i++) {
            e = rank == 0 ? i : -1;
            OK(MPI_Bcast(&e, 1, MPI_INT, 0, MPI_COMM_WORLD));
            CHECK(e == i);
        }
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&four));
    return end();
}
