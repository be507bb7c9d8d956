/* What grids and graphs tell of themselves, and where MPI_Cart_map and MPI_Graph_map place ranks.
 * ranks: 4 6 7
 */
#include "world.h"

/* A star with a ring: node 0 joined to all, the others to the next. */
enum { NODES = 4 };
static const int ends[NODES] = {3, 6, 9, 12}, edges[12] = {1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2};

static void grid(void)
{
    int dims[2] = {2, 2}, periods[2] = {0, 1}, got_dims[2], got_periods[2], coords[2], mine[2], me, place, count;
    MPI_Comm comm;
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm));
    CHECK((comm != MPI_COMM_NULL) == (rank < 4));
    if (comm != MPI_COMM_NULL) {
        OK(MPI_Comm_rank(comm, &me));
        OK(MPI_Cart_get(comm, 2, got_dims, got_periods, coords));
        OK(MPI_Cart_coords(comm, me, 2, mine));
        CHECK(got_dims[0] == 2 && got_dims[1] == 2 && !got_periods[0] && got_periods[1]);
        CHECK(coords[0] == mine[0] && coords[1] == mine[1] && coords[0] * 2 + coords[1] == me);
        FAILS(MPI_ERR_ARG, MPI_Cart_get(comm, 1, got_dims, got_periods, coords));
        FAILS(MPI_ERR_TOPOLOGY, MPI_Graph_neighbors_count(comm, 0, &count));
        OK(MPI_Comm_free(&comm));
    }
    OK(MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &place));
    int places[64];
    OK(MPI_Allgather(&place, 1, MPI_INT, places, 1, MPI_INT, MPI_COMM_WORLD));
    int taken[4] = {0}, outside = 0;
    for (int r = 0; r < size; r++)
        if (places[r] == MPI_UNDEFINED)
            outside++;
        else {
            CHECK(places[r] >= 0 && places[r] < 4);
            taken[places[r]]++;
        }
    CHECK(taken[0] == 1 && taken[1] == 1 && taken[2] == 1 && taken[3] == 1 && outside == size - 4);
    dims[0] = size;
    FAILS(MPI_ERR_DIMS, MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &place));
}

static void graph(void)
{
    int nodes, count, place, got_ends[NODES], got_edges[12], neighbours[3];
    MPI_Comm comm;
    OK(MPI_Graph_create(MPI_COMM_WORLD, NODES, ends, edges, 0, &comm));
    CHECK((comm != MPI_COMM_NULL) == (rank < NODES));
    if (comm != MPI_COMM_NULL) {
        OK(MPI_Graphdims_get(comm, &nodes, &count));
        CHECK(nodes == NODES && count == 12);
        OK(MPI_Graph_get(comm, NODES, 12, got_ends, got_edges));
        CHECK(memcmp(got_ends, ends, sizeof ends) == 0 && memcmp(got_edges, edges, sizeof edges) == 0);
        for (int node = 0; node < NODES; node++) {
            OK(MPI_Graph_neighbors_count(comm, node, &count));
            OK(MPI_Graph_neighbors(comm, node, 3, neighbours));
            CHECK(count == 3 && memcmp(neighbours, edges + 3 * node, sizeof neighbours) == 0);
        }
        FAILS(MPI_ERR_RANK, MPI_Graph_neighbors_count(comm, NODES, &count));
        FAILS(MPI_ERR_TOPOLOGY, MPI_Cart_get(comm, 1, got_ends, got_ends, got_ends));
        OK(MPI_Comm_free(&comm));
    }
    OK(MPI_Graph_map(MPI_COMM_WORLD, NODES, ends, edges, &place));
    int places[64], taken[NODES] = {0};
    OK(MPI_Allgather(&place, 1, MPI_INT, places, 1, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        if (places[r] != MPI_UNDEFINED) {
            CHECK(places[r] >= 0 && places[r] < NODES);
            taken[places[r]]++;
        }
    for (int node = 0; node < NODES; node++)
        CHECK(taken[node] == 1);
    CHECK(MPI_Graph_map(MPI_COMM_WORLD, size + 1, ends, edges, &place) != MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    grid();
    graph();
    return end();
}
