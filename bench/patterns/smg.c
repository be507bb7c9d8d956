/* SMG: a semicoarsening multigrid solver's exchanges: short messages to many distinct peers, as paper 003 (§5.3.2, Fig. 8) has SMG2000 run.
 *
 * A grid of 40^3 points a process, coarsened in one dimension. On the finest level a process exchanges a plane of one layer with its neighbours, 12,800
 * bytes; each coarser level has planes of half the size, and a neighbour that is twice as far away, until all processes are reached. Down the levels and
 * up again, then the norm of the residual. A point takes about 50 flop on each visit, 3.2 Mflop on the finest level.
 */
#include "pattern.h"

enum { BYTES = 40 * 40 * 8, BYTES_MIN = 64, DIRECTIONS = 2 };
static const double LEVEL_US = 3.2e3;
static char *outgoing[DIRECTIONS], *incoming[DIRECTIONS];

static void visit(struct pattern *p, int distance, int bytes, double class_us, int number_of_message)
{
    MPI_Request requests[2 * DIRECTIONS];
    int peers[DIRECTIONS] = {(p->rank + distance) % p->size, (p->rank + p->size - distance) % p->size};
    for (int i = 0; i < DIRECTIONS; i++)
        timed_irecv(p, incoming[i], bytes, peers[i], &requests[i]);
    for (int i = 0; i < DIRECTIONS; i++) {
        mark(outgoing[i], bytes, number_of_message);
        timed_isend(p, outgoing[i], bytes, peers[1 - i], &requests[DIRECTIONS + i]);
    }
    produce(p, class_us);
    timed_wait(p, requests, 2 * DIRECTIONS);
    for (int i = 0; i < DIRECTIONS; i++)
        expect(incoming[i], bytes, number_of_message);
}

static void iterate(struct pattern *p, int iteration)
{
    int levels = 0, bytes = BYTES;
    double class_us = LEVEL_US, mine = 1, sum;
    for (int distance = 1; distance < p->size; distance *= 2, levels++) {
        visit(p, distance, bytes, class_us, 2 * iteration);
        bytes = bytes / 2 > BYTES_MIN ? bytes / 2 : BYTES_MIN;
        class_us /= 2;
    }
    for (int level = levels - 1; level >= 0; level--) {
        bytes = BYTES >> level > BYTES_MIN ? BYTES >> level : BYTES_MIN;
        visit(p, 1 << level, bytes, LEVEL_US / (1 << level), 2 * iteration + 1);
    }
    double start = now_us();
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    p->mpi_us += now_us() - start;
    if (sum != p->size)
        fail("a sum is wrong");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int i = 0; i < DIRECTIONS; i++) {
        outgoing[i] = buffer_of(BYTES);
        incoming[i] = buffer_of(BYTES);
    }
    run_pattern(argc, argv, "SMG", 50, iterate, NULL);
    MPI_Finalize();
    return 0;
}
