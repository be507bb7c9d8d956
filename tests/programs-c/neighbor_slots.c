/* Long rows of blocking collectives among neighbours, through the slots that ranks of one host share: random graphs with loops, equal edges and ranks without
 * any, and rings; blocks of no bytes, of a few, of several pieces, and some that find no room and go by messages in the same call, in one piece or with gaps.
 * ranks: 2 3 4 7
 * processors: 16
 * timeout: 240
 * env: WHIMBREL_COLLECTIVE_CHECK=50
 */
#include "world.h"

enum { EDGES = 12, LONGEST = 80000, GRAPHS = 6, ROUNDS = 60 };

static int from[EDGES], to[EDGES], in, out, counts[EDGES], rcounts[EDGES], displs[EDGES], rdispls[EDGES];
static int given[2 * EDGES * (LONGEST + 1)], got[2 * EDGES * (LONGEST + 1)];
static MPI_Datatype gaps;

static const int lengths[] = {0, 1, 2, 3, 5, 12, 100, 3000, 9000, 20000, 40000, LONGEST};

static int value(int r, int copy, int round, int i)
{
    return r * 40000000 + copy * 3000000 + round * 90000 + i;
}

/* How many of the neighbours before this one are the same rank: equal ones match in order. */
static int earlier(const int *ranks, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += ranks[i] == ranks[n];
    return count;
}

/* Up to `longest` of the lengths, the same for both ends of an edge. */
static int between(int source, int destination, int round, int longest)
{
    uint64_t seed = (uint64_t)(source * 64 + destination) * 1000 + (uint64_t)round;
    draw(&seed);
    return lengths[draw(&seed) % (uint64_t)longest];
}

static int *place(int *buffer, int spread, int at) { return &buffer[spread ? 2 * at : at]; }

static void give(int spread, int block, int copy, int round)
{
    for (int i = 0; i < counts[block]; i++)
        *place(given, spread, displs[block] + i) = value(rank, copy, round, i);
}

/* What has come; behind it nothing was written. */
static void check(int spread, int alltoall, int round)
{
    for (int block = 0, end = 0; block < in; block++) {
        int copy = alltoall ? earlier(from, block) : 0;
        for (int i = 0; i < rcounts[block]; i++)
            CHECK(*place(got, spread, rdispls[block] + i) == value(from[block], copy, round, i));
        end = rdispls[block] + rcounts[block];
        CHECK(*place(got, spread, end) == -1 || (block + 1 < in && rdispls[block + 1] == end));
    }
}

static void rounds(MPI_Comm graph, int seed)
{
    int weighted;
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
    int ignored[EDGES];
    OK(MPI_Dist_graph_neighbors(graph, EDGES, from, ignored, EDGES, to, ignored));
    for (int number = 0; number < ROUNDS; number++) {
        uint64_t common = (uint64_t)(seed * ROUNDS + number);
        draw(&common);
        int kind = (int)(draw(&common) % 4), longest = number % 3 ? 8 : 12, round = number % 20;
        int spread = (int)(draw(&common) >> rank) & 1, equal = lengths[draw(&common) % (uint64_t)longest];
        MPI_Datatype type = spread ? gaps : MPI_INT;
        memset(got, 0xff, sizeof *got * (size_t)(longest == 8 ? 2 * EDGES * 3001 : 2 * EDGES * (LONGEST + 1)));
        if (draw(&common) % 16 == (uint64_t)rank)
            nap_ms(1);
        for (int i = 0, next = 0; i < out; i++, next += counts[i - 1]) {
            counts[i] = kind == 0 || kind == 2 ? equal : kind == 1 ? between(rank, rank, round, longest) : between(rank, to[i], round, longest);
            displs[i] = kind < 2 ? 0 : next;
            give(spread, i, kind < 2 ? 0 : earlier(to, i), round);
        }
        for (int i = 0, next = 0; i < in; i++, next += rcounts[i - 1] + (kind & 1)) {
            rcounts[i] = kind == 0 || kind == 2 ? equal : kind == 1 ? between(from[i], from[i], round, longest) : between(from[i], rank, round, longest);
            rdispls[i] = next;
        }
        if (kind == 0)
            OK(MPI_Neighbor_allgather(given, equal, type, got, equal, type, graph));
        else if (kind == 1)
            OK(MPI_Neighbor_allgatherv(given, between(rank, rank, round, longest), type, got, rcounts, rdispls, type, graph));
        else if (kind == 2)
            OK(MPI_Neighbor_alltoall(given, equal, type, got, equal, type, graph));
        else
            OK(MPI_Neighbor_alltoallv(given, counts, displs, type, got, rcounts, rdispls, type, graph));
        check(spread, kind >= 2, round);
    }
}

/* A rank whose block has another length than its neighbour expects: an error there, and later ones go on. */
static void disagreeing(void)
{
    MPI_Comm ring;
    int periodic = 1, four[4] = {1, 2, 3, 4}, back[4];
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring));
    OK(MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN));
    for (int round = 0; round < 20; round++) {
        OK(MPI_Neighbor_alltoall(four, 2, MPI_INT, back, 2, MPI_INT, ring));
        CHECK(back[0] == 3 && back[1] == 4 && back[2] == 1 && back[3] == 2);
    }
    int code = MPI_Neighbor_alltoall(four, rank == 0 ? 1 : 2, MPI_INT, back, rank == 0 ? 1 : 2, MPI_INT, ring);
    CHECK(code != MPI_SUCCESS || (rank != 0 && rank != 1 && rank != size - 1));
    OK(MPI_Comm_free(&ring));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &gaps));
    OK(MPI_Type_commit(&gaps));
    uint64_t seed = 5;
    for (int number = 0; number < GRAPHS; number++) {
        int n = 1 + (int)(draw(&seed) % EDGES), own = 0, source[EDGES], degree[EDGES], destination[EDGES];
        for (int i = 0; i < n; i++) {
            int ends[2] = {(int)(draw(&seed) % (uint64_t)size), (int)(draw(&seed) % (uint64_t)size)};
            if (ends[0] != rank)
                continue;
            source[own] = rank;
            degree[own] = 1;
            destination[own++] = ends[1];
        }
        MPI_Comm graph;
        OK(MPI_Dist_graph_create(MPI_COMM_WORLD, own, source, degree, destination, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph));
        rounds(graph, number);
        OK(MPI_Comm_free(&graph));
    }
    disagreeing();
    OK(MPI_Type_free(&gaps));
    return end();
}
