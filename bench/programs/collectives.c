/* Blocking and nonblocking collectives on any number of ranks: loops of one call without barriers between.
 *
 * collectives BUDGET_MS NAME[,NAME...]|all BYTES... prints a JSON line for each collective and size. BYTES is what
 * one rank brings: the whole vector of bcast and the reductions, one block of gather, allgather, scatter, alltoall
 * and the like.
 */
#include "measure.h"

#define WORLD MPI_COMM_WORLD

static char *in, *out;
static int bytes, doubles, ranks, *counts, *places, *elements;
static MPI_Comm ring;

#define EACH(body)                                                                                                     \
    do {                                                                                                               \
        (void)opaque;                                                                                                  \
        for (int i = 0; i < count; i++) {                                                                              \
            body;                                                                                                      \
        }                                                                                                              \
    } while (0)
#define WAITED(call)                                                                                                   \
    do {                                                                                                               \
        MPI_Request request;                                                                                           \
        call;                                                                                                          \
        MPI_Wait(&request, MPI_STATUS_IGNORE);                                                                         \
    } while (0)

static void barrier(void *opaque, int count) { EACH(MPI_Barrier(WORLD)); }
static void bcast(void *opaque, int count) { EACH(MPI_Bcast(out, bytes, MPI_BYTE, 0, WORLD)); }
static void reduce(void *opaque, int count) { EACH(MPI_Reduce(in, out, doubles, MPI_DOUBLE, MPI_SUM, 0, WORLD)); }
static void allreduce(void *opaque, int count) { EACH(MPI_Allreduce(in, out, doubles, MPI_DOUBLE, MPI_SUM, WORLD)); }
static void gather(void *opaque, int count) { EACH(MPI_Gather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, WORLD)); }
static void allgather(void *opaque, int count) { EACH(MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, WORLD)); }
static void scatter(void *opaque, int count) { EACH(MPI_Scatter(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, WORLD)); }
static void alltoall(void *opaque, int count) { EACH(MPI_Alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, WORLD)); }
static void reduce_scatter_block(void *opaque, int count) { EACH(MPI_Reduce_scatter_block(in, out, doubles, MPI_DOUBLE, MPI_SUM, WORLD)); }
static void scan(void *opaque, int count) { EACH(MPI_Scan(in, out, doubles, MPI_DOUBLE, MPI_SUM, WORLD)); }
static void alltoallv(void *opaque, int count)
{
    EACH(MPI_Alltoallv(in, counts, places, MPI_BYTE, out, counts, places, MPI_BYTE, WORLD));
}
static void neighbor_alltoall(void *opaque, int count) { EACH(MPI_Neighbor_alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, ring)); }
static void ibarrier(void *opaque, int count) { EACH(WAITED(MPI_Ibarrier(WORLD, &request))); }
static void ireduce(void *opaque, int count) { EACH(WAITED(MPI_Ireduce(in, out, doubles, MPI_DOUBLE, MPI_SUM, 0, WORLD, &request))); }
static void iallreduce(void *opaque, int count) { EACH(WAITED(MPI_Iallreduce(in, out, doubles, MPI_DOUBLE, MPI_SUM, WORLD, &request))); }

/* The others, which are measured when they are asked for. */
static void gatherv(void *opaque, int count) { EACH(MPI_Gatherv(in, bytes, MPI_BYTE, out, counts, places, MPI_BYTE, 0, WORLD)); }
static void scatterv(void *opaque, int count) { EACH(MPI_Scatterv(in, counts, places, MPI_BYTE, out, bytes, MPI_BYTE, 0, WORLD)); }
static void allgatherv(void *opaque, int count) { EACH(MPI_Allgatherv(in, bytes, MPI_BYTE, out, counts, places, MPI_BYTE, WORLD)); }
static void reduce_scatter(void *opaque, int count) { EACH(MPI_Reduce_scatter(in, out, elements, MPI_DOUBLE, MPI_SUM, WORLD)); }
static void exscan(void *opaque, int count) { EACH(MPI_Exscan(in, out, doubles, MPI_DOUBLE, MPI_SUM, WORLD)); }
static void neighbor_allgather(void *opaque, int count) { EACH(MPI_Neighbor_allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, ring)); }
static void ibcast(void *opaque, int count) { EACH(WAITED(MPI_Ibcast(out, bytes, MPI_BYTE, 0, WORLD, &request))); }
static void igather(void *opaque, int count) { EACH(WAITED(MPI_Igather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, WORLD, &request))); }
static void iallgather(void *opaque, int count) { EACH(WAITED(MPI_Iallgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, WORLD, &request))); }
static void iscatter(void *opaque, int count) { EACH(WAITED(MPI_Iscatter(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, WORLD, &request))); }
static void ialltoall(void *opaque, int count) { EACH(WAITED(MPI_Ialltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, WORLD, &request))); }
static void ialltoallv(void *opaque, int count)
{
    EACH(WAITED(MPI_Ialltoallv(in, counts, places, MPI_BYTE, out, counts, places, MPI_BYTE, WORLD, &request)));
}
static void iscan(void *opaque, int count) { EACH(WAITED(MPI_Iscan(in, out, doubles, MPI_DOUBLE, MPI_SUM, WORLD, &request))); }
static void ineighbor_alltoall(void *opaque, int count)
{
    EACH(WAITED(MPI_Ineighbor_alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, ring, &request)));
}

/* What rank 0 has at the end, in doubles: at least one value is wrong if a collective did not move or combine it; all sums are looked at. */
enum result { NOTHING, OWN, SUM, SHARED };

static const struct collective {
    const char *name;
    operation *run;
    enum result result;
    int sized;
} rows[] = {
    {"barrier", barrier, NOTHING, 0},
    {"bcast", bcast, NOTHING, 1},
    {"reduce", reduce, SUM, 1},
    {"allreduce", allreduce, SUM, 1},
    {"gather", gather, OWN, 1},
    {"allgather", allgather, SHARED, 1},
    {"scatter", scatter, OWN, 1},
    {"alltoall", alltoall, SHARED, 1},
    {"reduce_scatter_block", reduce_scatter_block, SUM, 1},
    {"scan", scan, OWN, 1},
    {"alltoallv", alltoallv, SHARED, 1},
    {"neighbor_alltoall", neighbor_alltoall, NOTHING, 1},
    {"ibarrier", ibarrier, NOTHING, 0},
    {"ireduce", ireduce, SUM, 1},
    {"iallreduce", iallreduce, SUM, 1},
    {"gatherv", gatherv, OWN, 1},
    {"scatterv", scatterv, OWN, 1},
    {"allgatherv", allgatherv, SHARED, 1},
    {"reduce_scatter", reduce_scatter, SUM, 1},
    {"exscan", exscan, NOTHING, 1},
    {"neighbor_allgather", neighbor_allgather, NOTHING, 1},
    {"ibcast", ibcast, NOTHING, 1},
    {"igather", igather, OWN, 1},
    {"iallgather", iallgather, SHARED, 1},
    {"iscatter", iscatter, OWN, 1},
    {"ialltoall", ialltoall, SHARED, 1},
    {"ialltoallv", ialltoallv, SHARED, 1},
    {"iscan", iscan, OWN, 1},
    {"ineighbor_alltoall", ineighbor_alltoall, NOTHING, 1},
};

/* Every rank brings its number plus one, in all places. */
static void prepare(void)
{
    for (int i = 0; i < doubles * ranks; i++)
        ((double *)in)[i] = world_rank() + 1;
    memset(out, 0, (size_t)bytes * (size_t)ranks);
}

static void verify(const struct collective *row)
{
    double sum = ranks * (ranks + 1) / 2.0, *got = (double *)out;
    if (world_rank() != 0 || doubles == 0)
        return;
    int wrong = (row->result == OWN && got[0] != 1) || (row->result == SHARED && got[ranks * doubles - 1] != ranks);
    for (int i = 0; row->result == SUM && i < doubles; i++)
        wrong |= got[i] != sum;
    if (wrong)
        fail("a collective gave a wrong result");
}

static int chosen(const char *names, const char *name)
{
    size_t length = strlen(name);
    if (strcmp(names, "all") == 0)
        return 1;
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ',') && (at[length] == ',' || at[length] == 0))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 4)
        fail("usage: collectives BUDGET_MS NAME[,NAME...]|all BYTES...");
    double budget_s = budget_argument(argc, argv);
    int periodic = 1;
    ranks = world_size();
    MPI_Cart_create(WORLD, 1, &ranks, &periodic, 0, &ring);
    counts = malloc(sizeof(int) * (size_t)ranks);
    places = malloc(sizeof(int) * (size_t)ranks);
    elements = malloc(sizeof(int) * (size_t)ranks);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!chosen(argv[2], rows[i].name))
            continue;
        for (int arg = 3; arg < argc; arg++) {
            bytes = rows[i].sized ? atoi(argv[arg]) : 0;
            doubles = bytes / (int)sizeof(double);
            for (int rank = 0; rank < ranks; rank++) {
                counts[rank] = bytes;
                places[rank] = rank * bytes;
                elements[rank] = doubles;
            }
            size_t blocks = (size_t)(ranks > 2 ? ranks : 2);
            in = buffer_of((size_t)bytes * blocks);
            out = buffer_of((size_t)bytes * blocks);
            prepare();
            report(rows[i].name, bytes, ranks, measure(rows[i].run, NULL, budget_s), 1);
            verify(&rows[i]);
            MPI_Barrier(WORLD);
            free(in);
            free(out);
            if (!rows[i].sized)
                break;
        }
    }
    free(counts);
    free(places);
    free(elements);
    MPI_Comm_free(&ring);
    MPI_Finalize();
    return 0;
}
