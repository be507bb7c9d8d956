/* Topologies that may be reordered: ranks that are dealt out to two processors, or to two hosts, in turn are put together, and every rank has
 * the neighbours of the place that it got.
 * ranks: 2 4 7 8
 */
#define _GNU_SOURCE
#include "world.h"

#include <sched.h>

/* The world, its ranks dealt out in turn; and the processor or host of this one. */
static MPI_Comm dealt;
static int where;

/* Neighbouring ranks of `comm` on different processors or hosts, in a line or a ring. */
static int crossings(MPI_Comm comm, int ring)
{
    int n, sum = 0, places[64];
    OK(MPI_Comm_size(comm, &n));
    OK(MPI_Allgather(&where, 1, MPI_INT, places, 1, MPI_INT, comm));
    for (int i = 0; i + 1 < n + ring; i++) {
        sum += places[i] != places[(i + 1) % n];
    }
    return sum;
}

static int rank_in(MPI_Comm comm)
{
    int me;
    OK(MPI_Comm_rank(comm, &me));
    return me;
}

static void lines(void)
{
    for (int reorder = 0; reorder < 2; reorder++) {
        MPI_Comm comm;
        int periods[1] = {0}, dims[1] = {size}, below, above, from = -1, me, coords[1];
        OK(MPI_Cart_create(dealt, 1, dims, periods, reorder, &comm));
        me = rank_in(comm);
        CHECK(reorder ? crossings(comm, 0) == 1 : me == rank);
        OK(MPI_Cart_shift(comm, 0, 1, &below, &above));
        OK(MPI_Cart_coords(comm, me, 1, coords));
        CHECK(coords[0] == me && below == (me ? me - 1 : MPI_PROC_NULL));
        OK(MPI_Sendrecv(&me, 1, MPI_INT, above, 0, &from, 1, MPI_INT, below, 0, comm, MPI_STATUS_IGNORE));
        CHECK(from == me - 1);
        OK(MPI_Comm_free(&comm));
    }
}

static void rings(void)
{
    int index[64], edges[128], list[2];
    MPI_Comm comm;
    for (int i = 0; i < size; i++) {
        index[i] = 2 * i + 2;
        edges[2 * i] = (i + size - 1) % size;
        edges[2 * i + 1] = (i + 1) % size;
    }
    OK(MPI_Graph_create(dealt, size, index, edges, 1, &comm));
    CHECK(crossings(comm, 1) == 2);
    OK(MPI_Graph_neighbors(comm, rank_in(comm), 2, list));
    CHECK(list[0] == edges[2 * rank_in(comm)] && list[1] == edges[2 * rank_in(comm) + 1]);
    OK(MPI_Comm_free(&comm));
}

/* Node i has an edge to i + 1 of weight 10 + i. */
static void check_dist(MPI_Comm comm)
{
    int me = rank_in(comm), before = (me + size - 1) % size, source, from_weight, destination, to_weight, mine = 1000 + me, got = -1;
    CHECK(crossings(comm, 1) == 2);
    OK(MPI_Dist_graph_neighbors(comm, 1, &source, &from_weight, 1, &destination, &to_weight));
    CHECK(source == before && from_weight == 10 + before && destination == (me + 1) % size && to_weight == 10 + me);
    OK(MPI_Neighbor_allgather(&mine, 1, MPI_INT, &got, 1, MPI_INT, comm));
    CHECK(got == 1000 + before);
    OK(MPI_Comm_free(&comm));
}

static void dists(void)
{
    int before = (rank + size - 1) % size, after = (rank + 1) % size, from_weight = 10 + before, to_weight = 10 + rank;
    int sources[64], degrees[64], destinations[64], weights[64];
    MPI_Comm comm;
    OK(MPI_Dist_graph_create_adjacent(dealt, 1, &before, &from_weight, 1, &after, &to_weight, MPI_INFO_NULL, 1, &comm));
    check_dist(comm);
    for (int i = 0; i < size; i++) {
        sources[i] = i;
        degrees[i] = 1;
        destinations[i] = (i + 1) % size;
        weights[i] = 10 + i;
    }
    OK(MPI_Dist_graph_create(dealt, rank == 0 ? size : 0, sources, degrees, destinations, weights, MPI_INFO_NULL, 1, &comm));
    check_dist(comm);
}

/* Deals out the ranks of two hosts in turn. The number of hosts, one or two. */
static int deal_hosts(void)
{
    MPI_Comm here;
    MPI_Info machine;
    int first = rank, place;
    OK(MPI_Info_create(&machine));
    OK(MPI_Info_set(machine, "mpi_hw_resource_type", "hwloc://Machine"));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, machine, &here));
    OK(MPI_Info_free(&machine));
    OK(MPI_Bcast(&first, 1, MPI_INT, 0, here));
    OK(MPI_Comm_rank(here, &place));
    OK(MPI_Comm_free(&here));
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, place, &dealt));
    rank = rank_in(dealt);
    int firsts[64], hosts = 1;
    OK(MPI_Allgather(&first, 1, MPI_INT, firsts, 1, MPI_INT, dealt));
    for (int i = 0; i < size; i++)
        if (firsts[i] != firsts[0])
            hosts = 2;
    where = first != firsts[0];
    return hosts;
}

int main(int argc, char **argv)
{
    cpu_set_t allowed, one;
    int cpus[2], found = 0;
    begin(&argc, &argv);
    int hosts = deal_hosts();
    /* The launcher may have given each rank a processor of its own: any that the job may use will do here. */
    CPU_ZERO(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        CPU_SET(cpu, &allowed);
    }
    CHECK(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            cpus[found++] = cpu;
        }
    }
    int apart = hosts == 2 || found == 2;
    if (hosts == 1 && found == 2) {
        where = rank % 2;
        CPU_ZERO(&one);
        CPU_SET(cpus[where], &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    }
    if (apart) {
        lines();
        rings();
        dists();
    }
    OK(MPI_Comm_free(&dealt));
    OK(MPI_Finalize());
    if (!apart) {
        printf("there is one processor only\n");
        return 77;
    }
    return 0;
}
