/* One rank calls another collective than the others, or the same with another root, count, operation or datatype: `mismatch BYTES PART OF`
 * takes every OFth cell of the matrix from number PART on, with blocks of BYTES. In each cell some rank must get an error that names both calls and
 * the rank that called the other one, no rank may wait for ever, and the next cell must find all ranks where they were. The driver is mismatch.py. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64, TEXT = MPI_MAX_ERROR_STRING + 1 };

struct call {
    int kind, root, count;
    MPI_Op op;
    MPI_Datatype type;
};

static const char *const names[] = {"MPI_Barrier", "MPI_Bcast", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter", "MPI_Scatterv", "MPI_Allgather",
    "MPI_Allgatherv", "MPI_Alltoall", "MPI_Alltoallv", "MPI_Alltoallw", "MPI_Reduce", "MPI_Allreduce", "MPI_Reduce_scatter",
    "MPI_Reduce_scatter_block", "MPI_Scan", "MPI_Exscan", "MPI_Ibarrier", "MPI_Iallreduce", "MPI_Comm_dup"};
enum { BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, REDUCE, ALLREDUCE, REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, IBARRIER, IALLREDUCE, DUP, KINDS };

static int rank, ranks, cells, bad;
static char *in, *out;

static int run(const struct call *c, MPI_Comm comm)
{
    static int counts[RANKS_MAX], places[RANKS_MAX], offsets[RANKS_MAX];
    static MPI_Datatype types[RANKS_MAX];
    int n = c->count, code;
    MPI_Datatype t = c->type;
    MPI_Request request;
    MPI_Comm made;
    for (int r = 0; r < ranks; r++) {
        counts[r] = n;
        places[r] = r * n;
        offsets[r] = r * n * 4;
        types[r] = t;
    }
    switch (c->kind) {
    case BARRIER: return MPI_Barrier(comm);
    case BCAST: return MPI_Bcast(out, n, t, c->root, comm);
    case GATHER: return MPI_Gather(in, n, t, out, n, t, c->root, comm);
    case GATHERV: return MPI_Gatherv(in, n, t, out, counts, places, t, c->root, comm);
    case SCATTER: return MPI_Scatter(in, n, t, out, n, t, c->root, comm);
    case SCATTERV: return MPI_Scatterv(in, counts, places, t, out, n, t, c->root, comm);
    case ALLGATHER: return MPI_Allgather(in, n, t, out, n, t, comm);
    case ALLGATHERV: return MPI_Allgatherv(in, n, t, out, counts, places, t, comm);
    case ALLTOALL: return MPI_Alltoall(in, n, t, out, n, t, comm);
    case ALLTOALLV: return MPI_Alltoallv(in, counts, places, t, out, counts, places, t, comm);
    case ALLTOALLW: return MPI_Alltoallw(in, counts, offsets, types, out, counts, offsets, types, comm);
    case REDUCE: return MPI_Reduce(in, out, n, t, c->op, c->root, comm);
    case ALLREDUCE: return MPI_Allreduce(in, out, n, t, c->op, comm);
    case REDUCE_SCATTER: return MPI_Reduce_scatter(in, out, counts, t, c->op, comm);
    case REDUCE_SCATTER_BLOCK: return MPI_Reduce_scatter_block(in, out, n, t, c->op, comm);
    case SCAN: return MPI_Scan(in, out, n, t, c->op, comm);
    case EXSCAN: return MPI_Exscan(in, out, n, t, c->op, comm);
    case IBARRIER:
        code = MPI_Ibarrier(comm, &request);
        return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    case IALLREDUCE:
        code = MPI_Iallreduce(in, out, n, t, c->op, comm, &request);
        return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    default:
        code = MPI_Comm_dup(comm, &made);
        return code ? code : MPI_Comm_free(&made);
    }
}

static void note(int code, char *text)
{
    int length;
    if (code != MPI_SUCCESS && !text[0])
        MPI_Error_string(code, text, &length);
}

static int nonblocking(int kind)
{
    return kind == IBARRIER || kind == IALLREDUCE;
}

/* Whether `text` names the call of `kind`. Blocking and nonblocking calls are counted apart, so that beside one of the other form a call may be over
 * and the barrier behind it be the one that waits. */
static int names_call(const char *text, int kind, int other)
{
    return strstr(text, names[kind]) || (nonblocking(other) && !nonblocking(kind) && strstr(text, "MPI_Barrier"));
}

/* `one` is what rank `culprit` calls, `all` what all others call. */
static void cell(struct call one, struct call all, int culprit)
{
    static char texts[RANKS_MAX][TEXT], text[TEXT];
    char who[32];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    memset(text, 0, sizeof text);
    note(run(rank == culprit ? &one : &all, comm), text);
    note(MPI_Barrier(comm), text);
    note(MPI_Comm_free(&comm), text);
    /* What has raised an error is not free yet. */
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Gather(text, TEXT, MPI_CHAR, texts, TEXT, MPI_CHAR, 0, MPI_COMM_WORLD);
    cells++;
    if (rank != 0)
        return;
    int errors = 0, good = 0;
    snprintf(who, sizeof who, "rank %d", culprit);
    for (int r = 0; r < ranks; r++) {
        errors += texts[r][0] != 0;
        good += names_call(texts[r], one.kind, all.kind) && names_call(texts[r], all.kind, one.kind) && strstr(texts[r], who);
    }
    int wrong = good == 0;
    bad += wrong;
    if (wrong || getenv("MISMATCH_VERBOSE")) {
        printf("%s%s (root %d, count %d) at rank %d beside %s (root %d, count %d): %d of %d ranks have an error", wrong ? "BAD: " : "", names[one.kind],
            one.root, one.count, culprit, names[all.kind], all.root, all.count, errors, ranks);
        for (int r = 0; r < ranks; r++)
            if (texts[r][0])
                printf("\n  rank %d: %s", r, texts[r]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int bytes = atoi(argv[1]), part = atoi(argv[2]), of = atoi(argv[3]), count = bytes / 4, number = 0;
    in = calloc(2 * ranks, bytes);
    out = calloc(2 * ranks, bytes);
    struct call plain = {.root = 0, .count = count, .op = MPI_SUM, .type = MPI_INT};
#define CELL(one, all, culprit)                                                                            \
    do {                                                                                                   \
        if (number++ % of == part) {                                                                       \
            if (rank == 0) {                                                                               \
                fprintf(stderr, "cell %d\n", number - 1);                                                  \
            }                                                                                              \
            cell(one, all, culprit);                                                                       \
        }                                                                                                  \
    } while (0)
    for (int a = 0; a < KINDS; a++)
        for (int b = 0; b < KINDS; b++) {
            struct call one = plain, all = plain;
            one.kind = a;
            all.kind = b;
            if (a != b)
                CELL(one, all, (a + b) % ranks);
        }
    const int rooted[] = {BCAST, GATHER, GATHERV, SCATTER, SCATTERV, REDUCE};
    for (int k = 0; k < 6; k++)
        for (int culprit = 0; culprit < ranks; culprit += culprit == 0 || ranks < 4 ? 1 : ranks - 2) {
            struct call one = plain, all = plain;
            one.kind = all.kind = rooted[k];
            one.root = 1;
            CELL(one, all, culprit);
        }
    for (int k = BCAST; k <= IALLREDUCE; k++)
        for (int culprit = 0; culprit < ranks; culprit += ranks - 1) {
            struct call one = plain, all = plain;
            one.kind = all.kind = k;
            one.count *= 2;
            if (k != IBARRIER)
                CELL(one, all, culprit);
        }
    for (int k = REDUCE; k <= IALLREDUCE; k++) {
        struct call one = plain, all = plain, other = plain;
        one.kind = all.kind = other.kind = k;
        one.op = MPI_MAX;
        other.type = MPI_FLOAT;
        if (k != IBARRIER) {
            CELL(one, all, ranks - 1);
            CELL(other, all, ranks - 1);
        }
    }
    if (rank == 0)
        printf("%d cells, %d bad\n", cells, bad);
    MPI_Bcast(&bad, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(in);
    free(out);
    MPI_Finalize();
    return bad != 0;
}
