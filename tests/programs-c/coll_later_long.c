/* Long nonblocking collectives: lengths around those that fit a rank's room, several under way at once beside short ones and blocking ones, completed in an
 * order that each rank draws for itself; in place, with gaps, pairs, blocks of different lengths, an operation that does not commute, ranks that come late; on a
 * communicator that is freed meanwhile; and with operations and lengths that disagree, after which later ones go on.
 * ranks: 2 3 4 7
 * processors: 16
 * timeout: 300
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "coll_later.h"

enum { MOST = 8, AT_ONCE = 3, KINDS = 9, ROUNDS = 14, LONGS = 160000 };

static struct one {
    MPI_Request request;
    int kind, count, root, place, number, counts[MOST], places[MOST];
    long *from, *into;
} ones[AT_ONCE];

static MPI_Op second;
static MPI_Datatype apart_type;

static long value(int r, int number, int i)
{
    return r * 1000003L + number * 10007L + i;
}

static void begin_one(struct one *o, MPI_Comm comm, int number, uint64_t *seed)
{
    /* Elements of 8 bytes: a rank's room has 64 KiB to 1 MiB for a part, or a share of that for each of the other ranks. */
    static const int near[] = {8192, 10922, 16384, 21845, 32768, 65536, 131072};
    int base = near[draw(seed) % 7] * (1 + (int)(draw(seed) % 2));
    o->kind = (int)(draw(seed) % KINDS);
    o->count = base + (int)(draw(seed) % 5) - 2;
    if (o->count > LONGS)
        o->count = LONGS - (int)(draw(seed) % 3);
    if (o->kind >= 4 && o->kind <= 6)
        o->count /= 2;
    o->root = (int)(draw(seed) % (uint64_t)size);
    o->place = (int)(draw(seed) % 2);
    o->number = number;
    int n = o->count, blocks = o->kind == 6 ? size : o->kind == 3 ? 2 : 1;
    o->from = malloc(sizeof(long) * (size_t)n * (size_t)blocks);
    o->into = malloc(sizeof(long) * (size_t)n * (size_t)size * 2);
    CHECK(o->from != NULL && o->into != NULL);
    for (int i = 0; i < n * blocks; i++)
        o->from[i] = value(rank, number, i);
    memset(o->into, 0xff, sizeof(long) * (size_t)n * (size_t)size * 2);
    void *give = o->place ? MPI_IN_PLACE : o->from;
    switch (o->kind) {
    case 0:
        OK(MPI_Ibcast(rank == o->root ? o->from : o->into, n, MPI_LONG, o->root, comm, &o->request));
        break;
    case 1:
        memcpy(o->into, o->from, sizeof(long) * (size_t)n);
        OK(MPI_Ireduce(rank == o->root ? give : o->from, o->into, n, MPI_LONG, MPI_SUM, o->root, comm, &o->request));
        break;
    case 2:
        memcpy(o->into, o->from, sizeof(long) * (size_t)n);
        OK(MPI_Iallreduce(give, o->into, n, MPI_LONG, MPI_SUM, comm, &o->request));
        break;
    case 3:
        /* One long of two, of a root with gaps; the others have none. */
        OK(rank == o->root ? MPI_Ibcast(o->from, n, apart_type, o->root, comm, &o->request) : MPI_Ibcast(o->into, n, MPI_LONG, o->root, comm, &o->request));
        break;
    case 4:
        memcpy(o->into + (long)rank * n, o->from, sizeof(long) * (size_t)n);
        OK(MPI_Iallgather(give, n, MPI_LONG, o->into, n, MPI_LONG, comm, &o->request));
        break;
    case 5:
        for (int r = 0; r < size; r++) {
            o->counts[r] = r == o->root ? n : r % 3 == 1 ? 0 : n / (r + 2);
            o->places[r] = r * n;
        }
        memcpy(o->into + (long)rank * n, o->from, sizeof(long) * (size_t)n);
        OK(MPI_Iallgatherv(give, o->counts[rank], MPI_LONG, o->into, o->counts, o->places, MPI_LONG, comm, &o->request));
        break;
    case 6:
        memcpy(o->into, o->from, sizeof(long) * (size_t)n * (size_t)size);
        OK(MPI_Ialltoall(give, n, MPI_LONG, o->into, n, MPI_LONG, comm, &o->request));
        break;
    case 7:
        /* The even elements of the last two ranks are left to those before. */
        for (int i = 0; i < n; i++)
            o->from[i] = rank + 2 < size || rank == 0 || i % 2 ? value(rank, number, i) : -1;
        memcpy(o->into, o->from, sizeof(long) * (size_t)n);
        OK(MPI_Iallreduce(give, o->into, n, MPI_LONG, second, comm, &o->request));
        break;
    default:
        /* Blocks with gaps where they go. */
        OK(MPI_Iallgather(o->from, n, MPI_LONG, o->into, n, apart_type, comm, &o->request));
    }
}

static void verify(struct one *o)
{
    long ranks = (long)size * (size - 1) / 2;
    int n = o->count, last = size - 1, before = size > 2 ? size - 3 : 0;
    for (int i = 0; i < n; i++) {
        switch (o->kind) {
        case 0:
            CHECK((rank == o->root ? o->from : o->into)[i] == value(o->root, o->number, i));
            break;
        case 1:
        case 2:
            CHECK((o->kind == 1 && rank != o->root) || o->into[i] == ranks * 1000003L + size * (o->number * 10007L + i));
            break;
        case 3:
            CHECK(rank == o->root || o->into[i] == value(o->root, o->number, 2 * i));
            break;
        case 4:
        case 5:
        case 8:
            for (int r = 0; r < size; r++)
                if (o->kind == 8)
                    CHECK(o->into[2 * ((long)r * n + i)] == value(r, o->number, i) && o->into[2 * ((long)r * n + i) + 1] == -1);
                else
                    CHECK(o->kind == 5 && i >= o->counts[r] ? r == rank || o->into[(long)r * n + i] == -1 : o->into[(long)r * n + i] == value(r, o->number, i));
            break;
        case 6:
            for (int r = 0; r < size; r++)
                CHECK(o->into[(long)r * n + i] == value(r, o->number, rank * n + i));
            break;
        default:
            CHECK(o->into[i] == value(i % 2 ? last : before, o->number, i));
        }
    }
    free(o->from);
    free(o->into);
}

static void rows(MPI_Comm comm, int rounds, uint64_t seed)
{
    uint64_t own = seed * 31 + (uint64_t)rank;
    for (int round = 0; round < rounds; round++) {
        int ways = 1 + (int)(draw(&seed) % AT_ONCE), beside = (int)(draw(&seed) % 4);
        MPI_Request requests[AT_ONCE + 1];
        long one = rank + 1, sum = 0;
        if (draw(&own) % 3 == 0)
            nap_ms(3);
        for (int i = 0; i < ways; i++) {
            begin_one(&ones[i], comm, round * AT_ONCE + i, &seed);
            requests[i] = ones[i].request;
        }
        OK(MPI_Iallreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, comm, &requests[ways]));
        if (beside == 0) {
            long all = 0;
            OK(MPI_Allreduce(&one, &all, 1, MPI_LONG, MPI_SUM, comm));
            CHECK(all == (long)size * (size + 1) / 2);
        }
        for (int some = (int)(draw(&own) % 3); some > 0; some--)
            OK(MPI_Wait(&requests[draw(&own) % (uint64_t)(ways + 1)], MPI_STATUS_IGNORE));
        int tested = (int)(draw(&own) % (uint64_t)ways);
        for (int done = draw(&own) % 2 ? 0 : 1; !done;)
            OK(MPI_Test(&requests[tested], &done, MPI_STATUS_IGNORE));
        OK(MPI_Waitall(ways + 1, requests, MPI_STATUSES_IGNORE));
        CHECK(sum == (long)size * (size + 1) / 2);
        for (int i = 0; i < ways; i++)
            verify(&ones[i]);
    }
}

/* Pairs are combined whole. */
static void pairs(MPI_Comm comm)
{
    enum { PAIRS = 70001 };
    struct pair { double value; int place; } *own = malloc(sizeof *own * PAIRS), *best = malloc(sizeof *best * PAIRS);
    for (int round = 0; round < 3; round++) {
        MPI_Request request;
        for (int i = 0; i < PAIRS; i++)
            own[i] = (struct pair){(rank + i + round) % size, rank};
        memcpy(best, own, sizeof *own * PAIRS);
        OK(MPI_Iallreduce(round % 2 ? MPI_IN_PLACE : (void *)own, best, PAIRS, MPI_DOUBLE_INT, MPI_MAXLOC, comm, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < PAIRS; i++)
            CHECK(best[i].value == size - 1 && (best[i].place + i + round) % size == size - 1);
    }
    free(best);
    free(own);
}

/* Other operations on one rank, then another length: an error for each, and later ones go on. */
static void disagreeing(void)
{
    enum { LONG = 150000 };
    static long from[2 * LONG], into[2 * LONG];
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    rows(comm, 6, 90);
    for (int lengths = 0; lengths < 2; lengths++) {
        MPI_Request request;
        int n = lengths && rank == 0 ? 20 : LONG;
        CHECK(MPI_Iallreduce(from, into, n, MPI_LONG, !lengths && rank == 0 ? MPI_MIN : MPI_SUM, comm, &request) == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS);
        rows(comm, 3, 91);
    }
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    OK(MPI_Op_create(last_one, 0, &second));
    OK(MPI_Type_create_resized(MPI_LONG, 0, 2 * sizeof(long), &apart_type));
    OK(MPI_Type_commit(&apart_type));
    /* As many short ones as a communicator has before there are slots. */
    for (int i = 0; i < 8; i++) {
        long one = 1, all = 0;
        MPI_Request request;
        OK(MPI_Iallreduce(&one, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(all == size);
    }
    rows(MPI_COMM_WORLD, ROUNDS, 1);
    pairs(MPI_COMM_WORLD);

    /* Long ones from the first on, and freed while they are under way. */
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    rows(comm, 6, 2);
    long *all = malloc(sizeof(long) * LONGS), *sums = malloc(sizeof(long) * LONGS);
    for (int i = 0; i < LONGS; i++)
        all[i] = value(rank, 3, i);
    MPI_Request request;
    OK(MPI_Iallreduce(all, sums, LONGS, MPI_LONG, MPI_SUM, comm, &request));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < LONGS; i++)
        CHECK(sums[i] == (long)size * (size - 1) / 2 * 1000003L + size * (3 * 10007L + i));
    free(all);
    free(sums);

    disagreeing();
    OK(MPI_Op_free(&second));
    OK(MPI_Type_free(&apart_type));
    return end();
}
