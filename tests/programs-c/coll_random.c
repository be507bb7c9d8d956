/* Collectives of every kind at random: kinds, forms, sizes, roots, types, operations, groups. What each rank brings follows from its
 * number, so every rank knows what must come, without the library. Whole buffers are compared, gaps and ends included.
 * ranks: 1 2 3 4 5 7 9
 * timeout: 240
 */
#include "world.h"

enum { BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, REDUCE, ALLREDUCE,
       REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, KINDS };
enum { NOW, LATER, AGAIN, FORMS };
enum { ROUNDS = 90, BATCH = 6, PEERS_MAX = 9, PRIME = 10007 };

/* With LARGE defined, by the functions for large counts. */
#ifdef LARGE
typedef MPI_Count count_t;
typedef MPI_Aint displ_t;
#define NOW_OF(Name) MPI_##Name##_c
#define LATER_OF(name) MPI_I##name##_c
#define AGAIN_OF(Name) MPI_##Name##_init_c
#define OP_CREATE MPI_Op_create_c
#else
typedef int count_t, displ_t;
#define NOW_OF(Name) MPI_##Name
#define LATER_OF(name) MPI_I##name
#define AGAIN_OF(Name) MPI_##Name##_init
#define OP_CREATE MPI_Op_create
#endif

/* How one element lies in memory: `n` integers or doubles at offsets. */
struct layout {
    MPI_Datatype type;
    size_t extent, offset[2];
    int n, real;
};
static struct layout layouts[7];
static MPI_Op compose, compose_gapped, compose_reaching;

/* A communicator as this rank sees it: ids of the own group and of the one that messages come from. */
struct group {
    MPI_Comm comm;
    int inter, me, side, own_n, peer_n, own[PEERS_MAX], peer[PEERS_MAX];
};

struct job {
    const struct group *g;
    uint64_t seed;
    int kind, form, in_place, count, root, root_side, here;
    const struct layout *t;
    MPI_Op op;
    void *send, *recv, *expected, *sent;
    size_t send_bytes, recv_bytes;
    count_t scounts[PEERS_MAX], rcounts[PEERS_MAX];
    displ_t sdispls[PEERS_MAX], rdispls[PEERS_MAX];
    MPI_Datatype types[PEERS_MAX];
    MPI_Request request;
};

static long value(uint64_t seed, int from, int to, int element, int part)
{
    uint64_t state = seed ^ ((uint64_t)from << 48) ^ ((uint64_t)(to + 1) << 32) ^ ((uint64_t)element << 4) ^ (uint64_t)part;
    return (long)(draw(&state) % 1000);
}

static void put(const struct layout *t, void *memory, int element, int part, long number)
{
    char *place = (char *)memory + element * t->extent + t->offset[part];
    if (t->real)
        *(double *)place = (double)number;
    else
        *(int *)place = (int)number;
}

/* `count` elements that `from` brings for `to`, from element `first` of its data on, at element `at` of memory. */
static void put_block(const struct job *j, void *memory, int at, int from, int to, int first, int count)
{
    for (int i = 0; i < count; i++)
        for (int part = 0; part < j->t->n; part++)
            put(j->t, memory, at + i, part, value(j->seed, from, to, first + i, part));
}

/* The pairs (a, b) stand for x -> a x + b: composition is associative and not commutative. */
static void composed(long a[2], const long b[2])
{
    long first = a[0] * b[0] % PRIME, second = (a[1] * b[0] + b[1]) % PRIME;
    a[0] = first;
    a[1] = second;
}

static void compose_at(void *in, void *inout, count_t count, size_t extent, const size_t offset[2])
{
    for (size_t i = 0; i < (size_t)count; i++) {
        int *a[2], *b[2];
        for (int part = 0; part < 2; part++) {
            a[part] = (int *)((char *)in + i * extent + offset[part]);
            b[part] = (int *)((char *)inout + i * extent + offset[part]);
        }
        long x[2] = {*a[0], *a[1]}, y[2] = {*b[0], *b[1]};
        composed(x, y);
        *b[0] = (int)x[0];
        *b[1] = (int)x[1];
    }
}

#define COMPOSER(name, place)                                                                              \
    static void name(void *in, void *inout, count_t *count, MPI_Datatype *type)                            \
    {                                                                                                      \
        (void)type;                                                                                        \
        compose_at(in, inout, *count, layouts[place].extent, layouts[place].offset);                       \
    }
COMPOSER(compose_dense, 4)
COMPOSER(compose_with_gaps, 5)
COMPOSER(compose_past_ends, 6)

static void combine(const struct job *j, long a[2], const long b[2])
{
    if (j->op == compose || j->op == compose_gapped || j->op == compose_reaching) {
        composed(a, b);
        return;
    }
    for (int part = 0; part < j->t->n; part++) {
        if (j->op == MPI_SUM)
            a[part] += b[part];
        else if (j->op == MPI_MAX)
            a[part] = a[part] > b[part] ? a[part] : b[part];
        else if (j->op == MPI_MIN)
            a[part] = a[part] < b[part] ? a[part] : b[part];
        else
            a[part] ^= b[part];
    }
}

/* Elements `first`... of the vectors of `ids[0..n]`, combined in order, at element 0 of memory. */
static void put_combined(const struct job *j, void *memory, const int *ids, int n, int first, int count)
{
    for (int i = 0; i < count; i++) {
        long sum[2] = {0, 0};
        for (int r = 0; r < n; r++) {
            long one[2] = {value(j->seed, ids[r], -1, first + i, 0), value(j->seed, ids[r], -1, first + i, 1)};
            if (r == 0)
                memcpy(sum, one, sizeof sum);
            else
                combine(j, sum, one);
        }
        for (int part = 0; part < j->t->n; part++)
            put(j->t, memory, i, part, sum[part]);
    }
}

static int count_between(const struct job *j, int from, int to)
{
    uint64_t state = j->seed * 31 + (uint64_t)(from * 64 + to + 1);
    return (int)(draw(&state) % (uint64_t)(2 * j->count + 1));
}

/* Fills counts and displacements with a gap between blocks; gives the elements spanned. */
static int spread(const count_t *counts, displ_t *displs, int n)
{
    int at = 0;
    for (int i = 0; i < n; i++) {
        displs[i] = at;
        at += (int)counts[i] + i % 2;
    }
    return at;
}

static void rooms(struct job *j, int send_elements, int recv_elements)
{
    j->send_bytes = ((size_t)send_elements + 1) * j->t->extent;
    j->recv_bytes = ((size_t)recv_elements + 1) * j->t->extent;
    j->send = memory_of(j->send_bytes);
    j->recv = memory_of(j->recv_bytes);
    j->expected = memory_of(j->recv_bytes);
    memset(j->send, 0x5a, j->send_bytes);
    memset(j->recv, 0x5a, j->recv_bytes);
    memset(j->expected, 0x5a, j->recv_bytes);
}

static int rooted(int kind)
{
    return kind == BCAST || kind == GATHER || kind == GATHERV || kind == SCATTER || kind == SCATTERV || kind == REDUCE;
}

/* Whether this rank has data that the root gets, or gets data that the root has. */
static int brings(const struct job *j)
{
    return !j->g->inter || j->g->side != j->root_side;
}

static int root_id(const struct job *j)
{
    return j->g->inter && j->g->side != j->root_side ? j->g->peer[j->root] : j->g->own[j->root];
}

/* Draws a job, the same on all ranks of the group, and fills the buffers of this one. */
static void make(struct job *j, const struct group *g, uint64_t *state)
{
    memset(j, 0, sizeof *j);
    j->g = g;
    j->seed = draw(state);
    j->kind = (int)(draw(state) % KINDS);
    j->form = (int)(draw(state) % FORMS);
    if (g->inter && (j->kind == SCAN || j->kind == EXSCAN))
        j->kind = ALLREDUCE;
    j->in_place = !g->inter && draw(state) % 3 == 0;
    int size_class = (int)(draw(state) % 8), long_count = (int)(draw(state) % 30000), short_count = (int)(draw(state) % 20);
    j->count = size_class == 0 ? 0 : size_class == 1 && j->kind != ALLTOALLW ? long_count / (g->own_n + g->peer_n) : short_count;
    j->root_side = (int)(draw(state) % 2);
    uint64_t at = draw(state);
    j->root = (int)(at % (uint64_t)(g->inter && j->root_side != g->side ? g->peer_n : g->own_n));
    j->here = rooted(j->kind) && (!g->inter || g->side == j->root_side) && g->me == j->root;
    j->request = MPI_REQUEST_NULL;
    int which = (int)(draw(state) % 5), op = (int)(draw(state) % 4);
    j->t = &layouts[which == 4 ? 6 : which];
    int id = g->own[g->me];
    if (j->kind >= REDUCE) {
        MPI_Op plain[4] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_BXOR};
        j->op = which == 0 ? plain[op] : which == 1 ? plain[op % 3] : which == 2 ? compose : which == 3 ? compose_gapped : compose_reaching;
        j->t = &layouts[which >= 2 ? which + 2 : which];
    }
    int n = j->count, peers = g->peer_n;
    switch (j->kind) {
    case BARRIER:
        rooms(j, 0, 0);
        break;
    case BCAST:
        rooms(j, 0, n);
        if (j->here)
            put_block(j, j->recv, 0, id, -1, 0, n);
        if (j->here || brings(j))
            put_block(j, j->expected, 0, root_id(j), -1, 0, n);
        break;
    case GATHER:
    case ALLGATHER: {
        rooms(j, n, n * peers);
        put_block(j, j->send, 0, id, -1, 0, n);
        if (j->kind == ALLGATHER || j->here) {
            for (int r = 0; r < peers; r++)
                put_block(j, j->expected, r * n, g->peer[r], -1, 0, n);
            if (j->in_place)
                put_block(j, j->recv, g->me * n, id, -1, 0, n);
        }
        break;
    }
    case GATHERV:
    case ALLGATHERV: {
        for (int r = 0; r < peers; r++)
            j->rcounts[r] = count_between(j, g->peer[r], -1);
        int all = spread(j->rcounts, j->rdispls, peers), own = count_between(j, id, -1);
        j->scounts[0] = own;
        rooms(j, own, all);
        put_block(j, j->send, 0, id, -1, 0, own);
        if (j->kind == ALLGATHERV || j->here) {
            for (int r = 0; r < peers; r++)
                put_block(j, j->expected, j->rdispls[r], g->peer[r], -1, 0, j->rcounts[r]);
            if (j->in_place)
                put_block(j, j->recv, j->rdispls[g->me], id, -1, 0, own);
        }
        break;
    }
    case SCATTER:
        rooms(j, n * peers, n);
        for (int r = 0; r < peers; r++)
            put_block(j, j->send, r * n, id, g->peer[r], 0, n);
        if (brings(j) && !(j->in_place && j->here))
            put_block(j, j->expected, 0, root_id(j), id, 0, n);
        break;
    case SCATTERV: {
        for (int r = 0; r < peers; r++)
            j->scounts[r] = count_between(j, root_id(j), g->peer[r]);
        int all = spread(j->scounts, j->sdispls, peers), own = brings(j) ? count_between(j, root_id(j), id) : 0;
        j->rcounts[0] = own;
        rooms(j, all, own);
        for (int r = 0; r < peers; r++)
            put_block(j, j->send, j->sdispls[r], id, g->peer[r], 0, j->scounts[r]);
        if (brings(j) && !(j->in_place && j->here))
            put_block(j, j->expected, 0, root_id(j), id, 0, own);
        break;
    }
    case ALLTOALL:
        rooms(j, n * peers, n * peers);
        for (int r = 0; r < peers; r++) {
            put_block(j, j->in_place ? j->recv : j->send, r * n, id, g->peer[r], 0, n);
            put_block(j, j->expected, r * n, g->peer[r], id, 0, n);
        }
        break;
    case ALLTOALLV:
    case ALLTOALLW: {
        for (int r = 0; r < peers; r++) {
            /* In place, what goes and what comes have the same length. */
            int low = id < g->peer[r] ? id : g->peer[r], high = id < g->peer[r] ? g->peer[r] : id;
            j->scounts[r] = j->in_place ? count_between(j, low, high) : count_between(j, id, g->peer[r]);
            j->rcounts[r] = j->in_place ? j->scounts[r] : count_between(j, g->peer[r], id);
        }
        rooms(j, spread(j->scounts, j->sdispls, peers), spread(j->rcounts, j->rdispls, peers));
        for (int r = 0; r < peers; r++) {
            put_block(j, j->in_place ? j->recv : j->send, j->in_place ? j->rdispls[r] : j->sdispls[r], id, g->peer[r], 0, j->scounts[r]);
            put_block(j, j->expected, j->rdispls[r], g->peer[r], id, 0, j->rcounts[r]);
            j->types[r] = j->t->type;
            if (j->kind == ALLTOALLW) {
                j->sdispls[r] *= (int)j->t->extent;
                j->rdispls[r] *= (int)j->t->extent;
            }
        }
        break;
    }
    case REDUCE:
    case ALLREDUCE:
        rooms(j, n, n);
        put_block(j, j->in_place && (j->kind == ALLREDUCE || j->here) ? j->recv : j->send, 0, id, -1, 0, n);
        if (j->kind == ALLREDUCE || j->here)
            put_combined(j, j->expected, g->peer, peers, 0, n);
        break;
    case SCAN:
        rooms(j, n, n);
        put_block(j, j->in_place ? j->recv : j->send, 0, id, -1, 0, n);
        put_combined(j, j->expected, g->own, g->me + 1, 0, n);
        break;
    case EXSCAN:
        rooms(j, n, n);
        put_block(j, j->in_place ? j->recv : j->send, 0, id, -1, 0, n);
        if (g->me > 0)
            put_combined(j, j->expected, g->own, g->me, 0, n);
        else if (j->in_place)
            put_block(j, j->expected, 0, id, -1, 0, n);
        break;
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_BLOCK: {
        int all = 0, before = 0;
        for (int r = 0; r < g->own_n; r++) {
            /* Two groups share out vectors of the same length. */
            int even = g->inter ? n / 4 * g->peer_n : n;
            j->rcounts[r] = j->kind == REDUCE_SCATTER && !g->inter ? count_between(j, g->own[r], -1) : even;
            all += j->rcounts[r];
            if (r < g->me)
                before += j->rcounts[r];
        }
        rooms(j, all, j->in_place ? all : j->rcounts[g->me]);
        put_block(j, j->in_place ? j->recv : j->send, 0, id, -1, 0, all);
        if (j->in_place)
            memcpy(j->expected, j->recv, j->recv_bytes);
        put_combined(j, j->expected, g->peer, peers, before, j->rcounts[g->me]);
        break;
    }
    }
    j->sent = memory_of(j->send_bytes);
    memcpy(j->sent, j->send, j->send_bytes);
}

/* Starts the job, or does it. */
static void start(struct job *j)
{
    MPI_Comm comm = j->g->comm;
    int n = j->count, root = j->root;
    if (j->g->inter && j->g->side == j->root_side)
        root = j->here ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Datatype t = j->t->type;
    int everywhere = j->in_place && j->kind != SCATTER && j->kind != SCATTERV && (j->here || !rooted(j->kind));
    const void *send = everywhere ? MPI_IN_PLACE : j->send;
    void *recv = j->in_place && j->here && (j->kind == SCATTER || j->kind == SCATTERV) ? MPI_IN_PLACE : j->recv;
    MPI_Request *request = &j->request;
    int now = j->form == NOW, later = j->form == LATER;
#define CALL(Name, name, ...)                                                                              \
    OK(now ? NOW_OF(Name)(__VA_ARGS__, comm)                                                               \
       : later ? LATER_OF(name)(__VA_ARGS__, comm, request)                                                \
               : AGAIN_OF(Name)(__VA_ARGS__, comm, MPI_INFO_NULL, request))
    switch (j->kind) {
    case BARRIER:
        OK(now ? MPI_Barrier(comm) : later ? MPI_Ibarrier(comm, request) : MPI_Barrier_init(comm, MPI_INFO_NULL, request));
        break;
    case BCAST: CALL(Bcast, bcast, j->recv, n, t, root); break;
    case GATHER: CALL(Gather, gather, send, n, t, recv, n, t, root); break;
    case GATHERV: CALL(Gatherv, gatherv, send, j->scounts[0], t, recv, j->rcounts, j->rdispls, t, root); break;
    case SCATTER: CALL(Scatter, scatter, send, n, t, recv, n, t, root); break;
    case SCATTERV: CALL(Scatterv, scatterv, send, j->scounts, j->sdispls, t, recv, j->rcounts[0], t, root); break;
    case ALLGATHER: CALL(Allgather, allgather, send, n, t, recv, n, t); break;
    case ALLGATHERV: CALL(Allgatherv, allgatherv, send, j->scounts[0], t, recv, j->rcounts, j->rdispls, t); break;
    case ALLTOALL: CALL(Alltoall, alltoall, send, n, t, recv, n, t); break;
    case ALLTOALLV: CALL(Alltoallv, alltoallv, send, j->scounts, j->sdispls, t, recv, j->rcounts, j->rdispls, t); break;
    case ALLTOALLW: CALL(Alltoallw, alltoallw, send, j->scounts, j->sdispls, j->types, recv, j->rcounts, j->rdispls, j->types); break;
    case REDUCE: CALL(Reduce, reduce, send, recv, n, t, j->op, root); break;
    case ALLREDUCE: CALL(Allreduce, allreduce, send, recv, n, t, j->op); break;
    case REDUCE_SCATTER: CALL(Reduce_scatter, reduce_scatter, send, recv, j->rcounts, t, j->op); break;
    case REDUCE_SCATTER_BLOCK: CALL(Reduce_scatter_block, reduce_scatter_block, send, recv, j->rcounts[0], t, j->op); break;
    case SCAN: CALL(Scan, scan, send, recv, n, t, j->op); break;
    case EXSCAN: CALL(Exscan, exscan, send, recv, n, t, j->op); break;
    }
    if (j->form == AGAIN)
        OK(MPI_Start(request));
}

static void verify(const struct job *j, int round)
{
    if (memcmp(j->recv, j->expected, j->recv_bytes) != 0 || memcmp(j->send, j->sent, j->send_bytes) != 0) {
        size_t at = 0;
        while (at < j->recv_bytes && ((char *)j->recv)[at] == ((char *)j->expected)[at])
            at++;
        fprintf(stderr, "rank %d round %d: kind %d form %d in place %d count %d type %d root %d side %d inter %d of %d + %d: wrong at byte %zu of %zu\n",
                rank, round, j->kind, j->form, j->in_place, j->count, (int)(j->t - layouts), j->root, j->root_side, j->g->inter,
                j->g->own_n, j->g->peer_n, at, j->recv_bytes);
        exit(99);
    }
}

static void end_job(struct job *j)
{
    if (j->request != MPI_REQUEST_NULL)
        OK(MPI_Request_free(&j->request));
    free(j->send);
    free(j->recv);
    free(j->expected);
    free(j->sent);
}

static void make_layouts(void)
{
    MPI_Datatype vector, pair_gapped;
    layouts[0] = (struct layout){MPI_INT, 4, {0}, 1, 0};
    layouts[1] = (struct layout){MPI_DOUBLE, 8, {0}, 1, 1};
    layouts[2] = (struct layout){MPI_2INT, 8, {0, 4}, 2, 0};
    OK(MPI_Type_vector(2, 1, 3, MPI_INT, &vector));
    OK(MPI_Type_create_resized(vector, 0, 20, &layouts[3].type));
    OK(MPI_Type_commit(&layouts[3].type));
    layouts[3] = (struct layout){layouts[3].type, 20, {0, 12}, 2, 0};
    OK(MPI_Type_contiguous(2, MPI_INT, &layouts[4].type));
    OK(MPI_Type_commit(&layouts[4].type));
    layouts[4] = (struct layout){layouts[4].type, 8, {0, 4}, 2, 0};
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &pair_gapped));
    OK(MPI_Type_create_resized(pair_gapped, 0, 20, &layouts[5].type));
    OK(MPI_Type_commit(&layouts[5].type));
    layouts[5] = (struct layout){layouts[5].type, 20, {0, 8}, 2, 0};
    /* Elements that reach into the next ones' gaps. */
    int ones[2] = {1, 1};
    MPI_Aint places[2] = {12, 28};
    MPI_Datatype far_apart;
    OK(MPI_Type_create_hindexed(2, ones, places, MPI_INT, &far_apart));
    OK(MPI_Type_create_resized(far_apart, 0, 20, &layouts[6].type));
    OK(MPI_Type_commit(&layouts[6].type));
    layouts[6] = (struct layout){layouts[6].type, 20, {12, 28}, 2, 0};
    OK(MPI_Type_free(&far_apart));
    OK(MPI_Type_free(&vector));
    OK(MPI_Type_free(&pair_gapped));
    OK(OP_CREATE(compose_dense, 0, &compose));
    OK(OP_CREATE(compose_with_gaps, 0, &compose_gapped));
    OK(OP_CREATE(compose_past_ends, 0, &compose_reaching));
}

/* Messages between neighbours of the world beside the collectives. */
static void chatter(int round)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size, out[3] = {rank, round, 7}, in[3];
    OK(MPI_Sendrecv(out, 3, MPI_INT, to, round, in, 3, MPI_INT, from, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(in[0] == from && in[1] == round);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    make_layouts();
    struct group groups[3] = {{.comm = MPI_COMM_NULL}, {.comm = MPI_COMM_NULL}, {.comm = MPI_COMM_NULL}};
    int kinds = 1;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &groups[0].comm));
    groups[0].me = rank;
    groups[0].own_n = groups[0].peer_n = size;
    for (int r = 0; r < size; r++)
        groups[0].own[r] = groups[0].peer[r] = r;
    if (size > 1) {
        /* Odd and even ranks, in reverse order: by themselves, and as two groups. */
        struct group *part = &groups[1], *both = &groups[2];
        OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part->comm));
        OK(MPI_Comm_rank(part->comm, &part->me));
        for (int r = size - 1; r >= 0; r--) {
            if (r % 2 == rank % 2)
                part->own[part->own_n] = part->peer[part->own_n] = r, part->own_n++;
            else
                both->peer[both->peer_n++] = r;
        }
        part->peer_n = both->own_n = part->own_n;
        memcpy(both->own, part->own, sizeof both->own);
        both->me = part->me;
        both->side = rank % 2;
        both->inter = 1;
        int leader = (size - 1) % 2 == rank % 2 ? size - 2 : size - 1;
        OK(MPI_Intercomm_create(part->comm, 0, MPI_COMM_WORLD, leader, 3, &both->comm));
        OK(MPI_Comm_set_errhandler(both->comm, MPI_ERRORS_RETURN));
        kinds = 3;
    }
    uint64_t state = 20250607u + (uint64_t)size;
    struct job jobs[BATCH];
    for (int round = 0; round < ROUNDS; round++) {
        const struct group *g = &groups[draw(&state) % (uint64_t)kinds];
        int n = 1 + (int)(draw(&state) % BATCH), waiting = (int)(draw(&state) % 3);
        for (int i = 0; i < n; i++) {
            /* Both halves draw alike; only the root's number depends on the side. */
            make(&jobs[i], g, &state);
            start(&jobs[i]);
        }
        if (round % 2)
            chatter(round);
        for (int left = n; waiting == 0 && left > 0;) {
            left = 0;
            for (int i = 0; i < n; i++) {
                int done;
                OK(MPI_Request_get_status(jobs[i].request, &done, MPI_STATUS_IGNORE));
                left += !done;
            }
        }
        for (int i = 0; i < n; i++)
            OK(MPI_Wait(&jobs[waiting == 1 ? n - 1 - i : i].request, MPI_STATUS_IGNORE));
        for (int i = 0; i < n; i++) {
            verify(&jobs[i], round);
            /* Once more, into the same place, where that gives the same. */
            if (jobs[i].form == AGAIN && !jobs[i].in_place) {
                OK(MPI_Start(&jobs[i].request));
                OK(MPI_Wait(&jobs[i].request, MPI_STATUS_IGNORE));
                verify(&jobs[i], round);
            }
            end_job(&jobs[i]);
        }
    }
    for (int i = 0; i < 3; i++)
        if (groups[i].comm != MPI_COMM_NULL)
            OK(MPI_Comm_free(&groups[i].comm));
    OK(MPI_Op_free(&compose));
    OK(MPI_Op_free(&compose_gapped));
    OK(MPI_Op_free(&compose_reaching));
    for (int i = 3; i < 7; i++)
        OK(MPI_Type_free(&layouts[i].type));
    return end();
}
