/* ABINIT: plane waves on several processes, as paper 003 (§5.3.1, Fig. 7) ran it: transposes between the two halves of a three-dimensional FFT, for each
 * band one way and back, and sums over all processes for the scalar products of bands.
 *
 * 48^3 points of 16 bytes, spread over the processes: with four, a process sends 110,592 bytes to each other in a transpose. An FFT of 48^3 points
 * takes 5 n log2 n flop, 9 Mflop, a quarter of it a process. A block of eight bands has 64 scalar products.
 */
#include "pattern.h"

enum { POINTS = 48 * 48 * 48, POINT_BYTES = 16, PRODUCTS = 64 };
static const double FFT_US = 9e3;
static char *outgoing, *incoming;
static int part_bytes;

static void transpose(struct pattern *p, int number_of_message)
{
    for (int rank = 0; rank < p->size; rank++)
        mark(outgoing + (size_t)rank * (size_t)part_bytes, part_bytes, number_of_message + rank);
    double start = now_us();
    MPI_Alltoall(outgoing, part_bytes, MPI_BYTE, incoming, part_bytes, MPI_BYTE, MPI_COMM_WORLD);
    p->mpi_us += now_us() - start;
    for (int rank = 0; rank < p->size; rank++)
        expect(incoming + (size_t)rank * (size_t)part_bytes, part_bytes, number_of_message + p->rank);
}

static void iterate(struct pattern *p, int iteration)
{
    double mine[PRODUCTS], sums[PRODUCTS];
    produce(p, FFT_US / p->size / 2);
    transpose(p, 2 * iteration);
    produce(p, FFT_US / p->size);
    transpose(p, 2 * iteration + 1);
    produce(p, FFT_US / p->size / 2);
    for (int i = 0; i < PRODUCTS; i++)
        mine[i] = i;
    double start = now_us();
    MPI_Allreduce(mine, sums, PRODUCTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    p->mpi_us += now_us() - start;
    for (int i = 0; i < PRODUCTS; i++)
        if (sums[i] != (double)i * p->size)
            fail("a sum is wrong");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    part_bytes = POINTS / world_size() / world_size() * POINT_BYTES;
    outgoing = buffer_of((size_t)part_bytes * (size_t)world_size());
    incoming = buffer_of((size_t)part_bytes * (size_t)world_size());
    run_pattern(argc, argv, "ABINIT", 20, iterate, NULL);
    MPI_Finalize();
    return 0;
}
