/* Topologies: random directed graphs whose edges are told by anybody, grids of all shapes, and collectives among neighbours, in every
 * form. Which blocks must come follows from the edges.
 * ranks: 1 2 4 5 8
 * timeout: 120
 */
#include "world.h"

/* Not a constant, lest the compiler take it for an array. */
static int *unweighted = MPI_UNWEIGHTED;

enum { EDGES_MAX = 40, NOW = 0, LATER = 1, AGAIN = 2, ROUNDS = 40 };

/* With LARGE defined, by the functions for large counts. */
#ifdef LARGE
typedef MPI_Count count_t;
typedef MPI_Aint displ_t;
#define NOW_OF(name) MPI_Neighbor_##name##_c
#define LATER_OF(name) MPI_Ineighbor_##name##_c
#define AGAIN_OF(name) MPI_Neighbor_##name##_init_c
#else
typedef int count_t, displ_t;
#define NOW_OF(name) MPI_Neighbor_##name
#define LATER_OF(name) MPI_Ineighbor_##name
#define AGAIN_OF(name) MPI_Neighbor_##name##_init
#endif

/* One edge: `copy` tells equal ones apart. */
struct edge {
    int from, to, weight, teller;
};

static int value_of(int from, int copy, int i)
{
    return from * 10000 + copy * 100 + i;
}

/* Completes a started or persistent operation; a persistent one runs twice. */
static void complete(int form, MPI_Request *request)
{
    if (form == LATER)
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
    for (int i = 0; form == AGAIN && i < 2; i++) {
        OK(MPI_Start(request));
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
    }
    if (form == AGAIN)
        OK(MPI_Request_free(request));
}

static int sorts(const void *a, const void *b)
{
    return memcmp(a, b, 2 * sizeof(int)) == 0 ? 0 : ((const int *)a)[0] != ((const int *)b)[0] ? ((const int *)a)[0] - ((const int *)b)[0] : ((const int *)a)[1] - ((const int *)b)[1];
}

/* The neighbours that the library tells are those of the edges, weights included, in some order. */
static void check_neighbours(MPI_Comm graph, const struct edge *edges, int n, int weighted)
{
    int in, out, has_weights, known[2][EDGES_MAX], weights[2][EDGES_MAX];
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &has_weights));
    CHECK(!has_weights == !weighted);
    OK(MPI_Dist_graph_neighbors(graph, EDGES_MAX, known[0], weighted ? weights[0] : unweighted, EDGES_MAX, known[1], weighted ? weights[1] : unweighted));
    for (int side = 0; side < 2; side++) {
        int expected[EDGES_MAX][2], got[EDGES_MAX][2], degree = 0;
        for (int i = 0; i < n; i++)
            if ((side == 0 ? edges[i].to : edges[i].from) == rank) {
                expected[degree][0] = side == 0 ? edges[i].from : edges[i].to;
                expected[degree++][1] = weighted ? edges[i].weight : 0;
            }
        CHECK(degree == (side == 0 ? in : out));
        for (int i = 0; i < degree; i++) {
            got[i][0] = known[side][i];
            got[i][1] = weighted ? weights[side][i] : 0;
        }
        qsort(expected, (size_t)degree, sizeof expected[0], sorts);
        qsort(got, (size_t)degree, sizeof got[0], sorts);
        CHECK(memcmp(expected, got, (size_t)degree * sizeof got[0]) == 0);
    }
}

/* How many of the first `n` ranks are `rank_`: equal neighbours match in order. */
static int earlier(const int *ranks, int n, int rank_)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += ranks[i] == rank_;
    return count;
}

static void exchange(MPI_Comm graph, int form, int length)
{
    int in, out, weighted, from[EDGES_MAX], to[EDGES_MAX];
    MPI_Request r = MPI_REQUEST_NULL;
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
    OK(MPI_Dist_graph_neighbors(graph, EDGES_MAX, from, unweighted, EDGES_MAX, to, unweighted));
    int send[EDGES_MAX * 8], recv[EDGES_MAX * 8], own[8];
    count_t counts[EDGES_MAX], rcounts[EDGES_MAX];
    displ_t displs[EDGES_MAX], rdispls[EDGES_MAX];
    MPI_Aint sbytes[EDGES_MAX], rbytes[EDGES_MAX];
    MPI_Datatype types[EDGES_MAX];
    memset(recv, -1, sizeof recv);
    for (int i = 0; i < length; i++)
        own[i] = value_of(rank, 0, i);
#define RUN(name, ...)                                                                               \
    OK(form == NOW ? NOW_OF(name)(__VA_ARGS__, graph)                                                      \
       : form == LATER ? LATER_OF(name)(__VA_ARGS__, graph, &r)                                            \
                       : AGAIN_OF(name)(__VA_ARGS__, graph, MPI_INFO_NULL, &r));                           \
    complete(form, &r)
    RUN(allgather, own, length, MPI_INT, recv, length, MPI_INT);
    for (int i = 0; i < in; i++)
        for (int k = 0; k < length; k++)
            CHECK(recv[i * length + k] == value_of(from[i], 0, k));
    for (int i = 0; i < out; i++)
        for (int k = 0; k < length; k++)
            send[i * length + k] = value_of(rank, earlier(to, i, to[i]), k);
    RUN(alltoall, send, length, MPI_INT, recv, length, MPI_INT);
    for (int i = 0; i < in; i++)
        for (int k = 0; k < length; k++)
            CHECK(recv[i * length + k] == value_of(from[i], earlier(from, i, from[i]), k));
    /* Lengths that differ by the pair of ranks, with gaps. */
    for (int i = 0; i < out; i++) {
        counts[i] = (rank + to[i]) % 5;
        displs[i] = i * 8 + 1;
        sbytes[i] = displs[i] * (MPI_Aint)sizeof(int);
        types[i] = MPI_INT;
        for (int k = 0; k < counts[i]; k++)
            send[displs[i] + k] = value_of(rank, earlier(to, i, to[i]), k);
    }
    for (int i = 0; i < in; i++) {
        rcounts[i] = (rank + from[i]) % 5;
        rdispls[i] = i * 8 + 2;
        rbytes[i] = rdispls[i] * (MPI_Aint)sizeof(int);
    }
    MPI_Datatype rtypes[EDGES_MAX];
    for (int i = 0; i < in; i++)
        rtypes[i] = MPI_INT;
    for (int w = 0; w < 2; w++) {
        memset(recv, -1, sizeof recv);
        if (w) {
            RUN(alltoallw, send, counts, sbytes, types, recv, rcounts, rbytes, rtypes);
        } else {
            RUN(alltoallv, send, counts, displs, MPI_INT, recv, rcounts, rdispls, MPI_INT);
        }
        for (int i = 0; i < in; i++)
            for (int k = 0; k < 6; k++)
                CHECK(recv[i * 8 + 2 + k] == (k < rcounts[i] ? value_of(from[i], earlier(from, i, from[i]), k) : -1));
    }
    memset(recv, -1, sizeof recv);
    for (int i = 0; i < in; i++)
        rcounts[i] = from[i] % 4;
    int mine = rank % 4;
    RUN(allgatherv, own, mine, MPI_INT, recv, rcounts, rdispls, MPI_INT);
    for (int i = 0; i < in; i++)
        for (int k = 0; k < 6; k++)
            CHECK(recv[i * 8 + 2 + k] == (k < rcounts[i] ? value_of(from[i], 0, k) : -1));
}

static void graphs(void)
{
    uint64_t state = 99;
    for (int round = 0; round < ROUNDS; round++) {
        struct edge edges[EDGES_MAX];
        int n = (int)(draw(&state) % EDGES_MAX), weighted = round % 2, own = 0;
        int sources[EDGES_MAX], degrees[EDGES_MAX], destinations[EDGES_MAX], weights[EDGES_MAX];
        for (int i = 0; i < n; i++) {
            edges[i].from = (int)(draw(&state) % (uint64_t)size);
            edges[i].to = (int)(draw(&state) % (uint64_t)size);
            edges[i].weight = (int)(draw(&state) % 50);
            edges[i].teller = (int)(draw(&state) % (uint64_t)size);
            if (edges[i].teller == rank) {
                sources[own] = edges[i].from;
                degrees[own] = 1;
                destinations[own] = edges[i].to;
                weights[own++] = edges[i].weight;
            }
        }
        MPI_Comm graph, copy;
        int kind;
        OK(MPI_Dist_graph_create(MPI_COMM_WORLD, own, sources, degrees, destinations, weighted ? weights : unweighted, MPI_INFO_NULL, 0, &graph));
        OK(MPI_Topo_test(graph, &kind));
        CHECK(kind == MPI_DIST_GRAPH);
        check_neighbours(graph, edges, n, weighted);
        /* A duplicate has the same neighbours. */
        OK(MPI_Comm_dup(graph, &copy));
        OK(MPI_Comm_free(&graph));
        check_neighbours(copy, edges, n, weighted);
        exchange(copy, round % 3, 4);
        OK(MPI_Comm_free(&copy));
    }
}

/* What goes one way along a dimension arrives from the other side, also where both neighbours are the same rank. */
static void grids(void)
{
    for (int shape = 0; shape < 6; shape++) {
        int dims[3] = {0, shape % 2 ? 1 : 0, shape == 4 ? 2 : 0}, n = 1 + shape % 3, periods[3] = {shape & 1, shape & 2, 1};
        if (n == 3 && dims[2] == 2 && size % 2)
            continue;
        OK(MPI_Dims_create(size, n, dims));
        MPI_Comm grid;
        OK(MPI_Cart_create(MPI_COMM_WORLD, n, dims, periods, 0, &grid));
        int coords[3], send[6], recv[6], me, back;
        OK(MPI_Comm_rank(grid, &me));
        OK(MPI_Cart_coords(grid, me, n, coords));
        OK(MPI_Cart_rank(grid, coords, &back));
        CHECK(back == me);
        for (int i = 0; i < 2 * n; i++) {
            send[i] = me * 100 + i;
            recv[i] = -1;
        }
        OK(MPI_Neighbor_alltoall(send, 1, MPI_INT, recv, 1, MPI_INT, grid));
        for (int d = 0; d < n; d++) {
            int low, high;
            OK(MPI_Cart_shift(grid, d, 1, &low, &high));
            CHECK(recv[2 * d] == (low == MPI_PROC_NULL ? -1 : low * 100 + 2 * d + 1));
            CHECK(recv[2 * d + 1] == (high == MPI_PROC_NULL ? -1 : high * 100 + 2 * d));
        }
        int remain[3] = {0, 1, 1}, sub_dims, line_size, expected = 1;
        MPI_Comm line;
        OK(MPI_Cart_sub(grid, remain, &line));
        OK(MPI_Cartdim_get(line, &sub_dims));
        OK(MPI_Comm_size(line, &line_size));
        for (int d = 1; d < n; d++)
            expected *= dims[d];
        CHECK(sub_dims == n - 1 && line_size == expected);
        FAILS(MPI_ERR_ARG, MPI_Cart_shift(grid, n, 1, &back, &back));
        FAILS(MPI_ERR_RANK, MPI_Cart_coords(grid, size, n, coords));
        FAILS(MPI_ERR_TOPOLOGY, MPI_Graphdims_get(grid, &back, &back));
        OK(MPI_Comm_free(&line));
        OK(MPI_Comm_free(&grid));
    }
    int too_large = size + 1, zero = 0, out;
    MPI_Comm none;
    FAILS(MPI_ERR_DIMS, MPI_Cart_create(MPI_COMM_WORLD, 1, &too_large, &zero, 0, &none));
    FAILS(MPI_ERR_DIMS, MPI_Cart_create(MPI_COMM_WORLD, 1, &zero, &zero, 0, &none));
    FAILS(MPI_ERR_TOPOLOGY, MPI_Cartdim_get(MPI_COMM_WORLD, &out));
    FAILS(MPI_ERR_TOPOLOGY, MPI_Neighbor_allgather(&zero, 1, MPI_INT, &out, 1, MPI_INT, MPI_COMM_WORLD));
    /* A grid smaller than the world leaves the others out. */
    int one = 1;
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, &one, &zero, 1, &none));
    CHECK((none != MPI_COMM_NULL) == (rank == 0));
    if (rank == 0)
        OK(MPI_Comm_free(&none));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unweighted = argc > 99 ? NULL : MPI_UNWEIGHTED;
    graphs();
    grids();
    return end();
}
