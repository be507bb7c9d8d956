/* Long rows of short nonblocking collectives, many under way at once, through the slots that ranks of one host share: completed in
 * an order that each rank draws for itself, by waits, tests and while a blocking collective goes on; more of them than a rank has lines, and more
 * bytes than it has room, before another rank begins; in slices; in blocks of all lengths, also of those that no room holds; in place, with gaps,
 * with an operation that does not commute; on communicators that are freed meanwhile; and with calls that do not match in the middle of it.
 * ranks: 2 3 4 7
 * processors: 16
 * timeout: 240
 * env: WHIMBREL_COLLECTIVE_CHECK=20
 */
#include "coll_later.h"

enum { MOST = 8, LONGEST = 2500, WAYS = 40, ROUNDS = 60, KINDS = 12, MANY = 600 };

static struct one {
    MPI_Request request;
    int kind, count, root, place;
    int sent[MOST], received[MOST], places[MOST];
    long from[MOST * LONGEST], into[MOST * LONGEST];
} ones[WAYS];

static MPI_Op second;
static MPI_Datatype gaps;

static long value(int r, int number, int i)
{
    return r * 100003L + number * 101L + i;
}

/* Elements that rank `a` sends to rank `b` of at most `most`; in place as many as the other way. */
static int between(int number, int a, int b, int most, int place)
{
    int low = a < b ? a : b, high = a < b ? b : a;
    return ((place ? low * 7 + high * 3 : a * 7 + b * 3) + number) % (most + 1);
}

/* Starts the one with `number` of a row; all ranks draw the same. */
static void begin_one(struct one *o, MPI_Comm comm, int number, uint64_t *seed)
{
    static const int upper[] = {1, 6, 7, 32, 500, 1000, LONGEST};
    o->kind = (int)(draw(seed) % KINDS);
    o->count = 1 + (int)(draw(seed) % (uint64_t)upper[draw(seed) % 7]);
    o->root = (int)(draw(seed) % (uint64_t)size);
    o->place = (int)(draw(seed) % 2);
    int n = o->count, blocks = o->kind == 5 || o->kind == 6 || o->kind == 8 || o->kind == 11 ? size : 1;
    for (int i = 0; i < n * blocks; i++)
        o->from[i] = value(rank, number, i);
    memset(o->into, 0xff, sizeof *o->into * (size_t)(n * size));
    void *give = o->place ? MPI_IN_PLACE : o->from;
    switch (o->kind) {
    case 0:
        OK(MPI_Ibarrier(comm, &o->request));
        break;
    case 1:
        OK(MPI_Ibcast(rank == o->root ? o->from : o->into, n, MPI_LONG, o->root, comm, &o->request));
        break;
    case 2:
        memcpy(o->into, o->from, sizeof *o->into * (size_t)n);
        OK(MPI_Ireduce(rank == o->root ? give : o->from, o->into, n, MPI_LONG, MPI_SUM, o->root, comm, &o->request));
        break;
    case 3:
        memcpy(o->into, o->from, sizeof *o->into * (size_t)n);
        OK(MPI_Iallreduce(give, o->into, n, MPI_LONG, MPI_SUM, comm, &o->request));
        break;
    case 4:
        memcpy(o->into + rank * n, o->from, sizeof *o->into * (size_t)n);
        OK(MPI_Iallgather(give, n, MPI_LONG, o->into, n, MPI_LONG, comm, &o->request));
        break;
    case 5:
        memcpy(o->into, o->from, sizeof *o->into * (size_t)(n * size));
        OK(MPI_Ialltoall(give, n, MPI_LONG, o->into, n, MPI_LONG, comm, &o->request));
        break;
    case 6:
        memcpy(o->into, o->from, sizeof *o->into * (size_t)(n * size));
        OK(MPI_Ireduce_scatter_block(give, o->into, n, MPI_LONG, MPI_SUM, comm, &o->request));
        break;
    case 7:
        memcpy(o->into, o->from, sizeof *o->into * (size_t)n);
        OK(MPI_Iscan(give, o->into, n, MPI_LONG, MPI_SUM, comm, &o->request));
        break;
    case 8:
        OK(MPI_Iscatter(o->from, n, MPI_LONG, o->place && rank == o->root ? MPI_IN_PLACE : o->into, n, MPI_LONG, o->root, comm, &o->request));
        break;
    case 9:
        memcpy(o->into + rank * n, o->from, sizeof *o->into * (size_t)n);
        OK(MPI_Igather(rank == o->root ? give : o->from, n, MPI_LONG, o->into, n, MPI_LONG, o->root, comm, &o->request));
        break;
    case 11:
        for (int r = 0; r < size; r++) {
            o->sent[r] = between(number, rank, r, n, o->place);
            o->received[r] = between(number, r, rank, n, o->place);
            o->places[r] = r * n;
        }
        memcpy(o->into, o->from, sizeof *o->into * (size_t)(n * size));
        OK(MPI_Ialltoallv(give, o->sent, o->places, MPI_LONG, o->into, o->received, o->places, MPI_LONG, comm, &o->request));
        break;
    default:
        /* The even elements of the last two ranks are left to those before. */
        for (int i = 0; i < n; i++)
            o->from[i] = rank + 2 < size || rank == 0 || i % 2 ? value(rank, number, i) : -1;
        memcpy(o->into, o->from, sizeof *o->into * (size_t)n);
        OK(MPI_Iallreduce(give, o->into, n, MPI_LONG, second, comm, &o->request));
    }
}

static void verify(const struct one *o, int number)
{
    long ranks = (long)size * (size - 1) / 2, below = (long)rank * (rank + 1) / 2;
    for (int i = 0; i < o->count; i++) {
        int n = o->count, last = size - 1, before = size > 2 ? size - 3 : 0;
        switch (o->kind) {
        case 1:
            CHECK((rank == o->root ? o->from : o->into)[i] == value(o->root, number, i));
            break;
        case 2:
        case 3:
            CHECK((o->kind == 2 && rank != o->root) || o->into[i] == ranks * 100003L + size * (number * 101L + i));
            break;
        case 4:
        case 9:
            for (int r = 0; (o->kind == 4 || rank == o->root) && r < size; r++)
                CHECK(o->into[r * n + i] == value(r, number, i));
            break;
        case 5:
            for (int r = 0; r < size; r++)
                CHECK(o->into[r * n + i] == value(r, number, rank * n + i));
            break;
        case 6:
            CHECK(o->into[i] == ranks * 100003L + size * (number * 101L + rank * n + i));
            break;
        case 7:
            CHECK(o->into[i] == below * 100003L + (rank + 1) * (number * 101L + i));
            break;
        case 8:
            CHECK((o->place && rank == o->root) || o->into[i] == value(o->root, number, rank * n + i));
            break;
        case 11:
            for (int r = 0; r < size; r++)
                CHECK(i >= o->received[r] || o->into[r * n + i] == value(r, number, rank * n + i));
            break;
        case 10:
            CHECK(o->into[i] == value(i % 2 ? last : before, number, i));
        }
    }
}

static void rows(MPI_Comm comm, int rounds, uint64_t seed)
{
    uint64_t own = seed * 31 + (uint64_t)rank;
    for (int round = 0; round < rounds; round++) {
        int ways = 1 + (int)(draw(&seed) % WAYS), blocking = (int)(draw(&seed) % 4);
        if (draw(&own) % 8 == 0)
            nap_ms(1);
        for (int i = 0; i < ways; i++)
            begin_one(&ones[i], comm, round * WAYS + i, &seed);
        if (blocking == 0) {
            long one = 1, all = 0;
            OK(MPI_Allreduce(&one, &all, 1, MPI_LONG, MPI_SUM, comm));
            CHECK(all == size);
        } else if (blocking == 1) {
            OK(MPI_Bcast(&ways, 1, MPI_INT, round % size, comm));
        }
        /* Some are waited for out of order, some tested until they are complete, the others all waited for. */
        for (int some = (int)(draw(&own) % 4); some > 0; some--)
            OK(MPI_Wait(&ones[draw(&own) % (uint64_t)ways].request, MPI_STATUS_IGNORE));
        int tested = (int)(draw(&own) % (uint64_t)ways);
        for (int done = draw(&own) % 2 ? 0 : 1; !done;)
            OK(MPI_Test(&ones[tested].request, &done, MPI_STATUS_IGNORE));
        MPI_Request rest[WAYS];
        for (int i = 0; i < ways; i++)
            rest[i] = ones[i].request;
        OK(MPI_Waitall(ways, rest, MPI_STATUSES_IGNORE));
        for (int i = 0; i < ways; i++)
            verify(&ones[i], round * WAYS + i);
    }
}

/* One rank comes late to more of them than the others have lines, or room, for. */
static void ahead(MPI_Comm comm)
{
    static MPI_Request requests[MANY];
    static long sent[MANY], got[MANY], bulk[MANY][5000];
    for (int bulky = 0; bulky < 2; bulky++) {
        for (int i = 0; i < MANY; i++) {
            sent[i] = i;
            memset(bulk[i], 0, sizeof bulk[i]);
            bulk[i][0] = bulk[i][4999] = rank == 0 ? i : -1;
        }
        if (rank == size - 1)
            nap_ms(20);
        for (int i = 0; i < MANY; i++)
            OK(bulky ? MPI_Ibcast(bulk[i], 5000, MPI_LONG, 0, comm, &requests[i])
                     : MPI_Iallreduce(&sent[i], &got[i], 1, MPI_LONG, MPI_MAX, comm, &requests[i]));
        OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MANY; i++)
            CHECK(bulky ? bulk[i][0] == i && bulk[i][4999] == i : got[i] == i);
    }
}

/* Vectors that ranks combine in slices: a few under way at once that fill a rank's room, in place and not, and pairs, which have gaps. */
static void in_slices(MPI_Comm comm)
{
    enum { LONGS = 30000, PAIRS = 3001, AT_ONCE = 5 };
    static long from[AT_ONCE][LONGS], into[AT_ONCE][LONGS];
    static struct { double value; int place; } pairs[PAIRS], best[PAIRS];
    uint64_t seed = 7, own = 70 + (uint64_t)rank;
    for (int round = 0; round < 12; round++) {
        MPI_Request requests[AT_ONCE + 1];
        int counts[AT_ONCE], at_once = 1 + (int)(draw(&seed) % AT_ONCE);
        if (draw(&own) % 3 == 0)
            nap_ms(2);
        for (int k = 0; k < at_once; k++) {
            counts[k] = 600 + (int)(draw(&seed) % (LONGS - 600));
            int place = (int)(draw(&seed) % 2);
            for (int i = 0; i < counts[k]; i++)
                (place ? into : from)[k][i] = value(rank, round + k, i);
            OK(MPI_Iallreduce(place ? MPI_IN_PLACE : from[k], into[k], counts[k], MPI_LONG, MPI_SUM, comm, &requests[k]));
        }
        for (int i = 0; i < PAIRS; i++) {
            pairs[i].value = (rank + i + round) % size;
            pairs[i].place = rank;
            best[i] = pairs[i];
        }
        OK(MPI_Iallreduce(round % 2 ? MPI_IN_PLACE : (void *)pairs, best, PAIRS, MPI_DOUBLE_INT, MPI_MAXLOC, comm, &requests[at_once]));
        for (int some = (int)(draw(&own) % 3); some > 0; some--)
            OK(MPI_Wait(&requests[draw(&own) % (uint64_t)(at_once + 1)], MPI_STATUS_IGNORE));
        OK(MPI_Waitall(at_once + 1, requests, MPI_STATUSES_IGNORE));
        for (int k = 0; k < at_once; k++)
            for (int i = 0; i < counts[k]; i++)
                CHECK(into[k][i] == (long)size * (size - 1) / 2 * 100003L + size * ((round + k) * 101L + i));
        for (int i = 0; i < PAIRS; i++)
            CHECK(best[i].value == size - 1 && (best[i].place + i + round) % size == size - 1);
    }
}

/* Blocks of all lengths, those among them that fit no room, with gaps at every second sender; several at once. */
static void of_all_lengths(MPI_Comm comm)
{
    enum { AT_ONCE = 3, MOST_LONGS = 140000 };
    static const int lengths[] = {0, 1, 5, 700, 9000, 20000, 0, 33000};
    int most = size == 2 ? MOST_LONGS : 33000;
    long *from[AT_ONCE], *into[AT_ONCE];
    int sent[AT_ONCE][MOST], received[AT_ONCE][MOST], sent_at[MOST], received_at[MOST];
    MPI_Datatype wide, types[2][MOST];
    OK(MPI_Type_create_resized(MPI_LONG, 0, 2 * sizeof(long), &wide));
    OK(MPI_Type_commit(&wide));
    for (int k = 0; k < AT_ONCE; k++) {
        from[k] = malloc(sizeof(long) * 2 * (size_t)(most * size));
        into[k] = malloc(sizeof(long) * (size_t)(most * size));
    }
    for (int r = 0; r < size; r++) {
        types[0][r] = (rank + r) % 2 ? wide : MPI_LONG;
        types[1][r] = MPI_LONG;
        sent_at[r] = r * most * 2 * (int)sizeof(long);
        received_at[r] = r * most * (int)sizeof(long);
    }
    for (int round = 0; round < 10; round++) {
        MPI_Request requests[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) {
            for (int r = 0; r < size; r++) {
                int there = lengths[(round + k + rank * 3 + r * 5) % 8], back = lengths[(round + k + r * 3 + rank * 5) % 8];
                sent[k][r] = there == 33000 ? most : there;
                received[k][r] = back == 33000 ? most : back;
                for (int i = 0; i < sent[k][r]; i++)
                    from[k][r * most * 2 + i * ((rank + r) % 2 ? 2 : 1)] = value(rank, round + k, i + r);
                memset(into[k] + r * most, 0xff, sizeof(long) * (size_t)received[k][r]);
            }
            OK(MPI_Ialltoallw(from[k], sent[k], sent_at, types[0], into[k], received[k], received_at, types[1], comm, &requests[k]));
        }
        if ((rank + round) % 3 == 0)
            OK(MPI_Wait(&requests[(rank + round) % AT_ONCE], MPI_STATUS_IGNORE));
        OK(MPI_Waitall(AT_ONCE, requests, MPI_STATUSES_IGNORE));
        for (int k = 0; k < AT_ONCE; k++)
            for (int r = 0; r < size; r++)
                for (int i = 0; i < received[k][r]; i++)
                    CHECK(into[k][r * most + i] == value(r, round + k, i + rank));
    }
    for (int k = 0; k < AT_ONCE; k++) {
        free(from[k]);
        free(into[k]);
    }
    OK(MPI_Type_free(&wide));
}

/* One rank calls another collective, or has another length: an error for each that waits, and later ones go on. */
static void disagreeing(MPI_Comm comm)
{
    for (int round = 0; round < 3; round++) {
        MPI_Request request;
        int code = rank == 0 ? MPI_Ireduce(ones[0].from, ones[0].into, 8, MPI_LONG, MPI_SUM, 0, comm, &request)
                             : MPI_Iallreduce(ones[0].from, ones[0].into, 8, MPI_LONG, MPI_SUM, comm, &request);
        CHECK(code == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS);
        rows(comm, 3, 50 + (uint64_t)round);
        /* The others' vectors are twice as long as the root's, which is over before. */
        OK(MPI_Ibcast(ones[0].from, rank == 0 ? 8 : 16, MPI_LONG, 0, comm, &request));
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(rank == 0 || code != MPI_SUCCESS);
        /* The root remembers its latest calls only: it waits before it starts many more. */
        OK(MPI_Barrier(comm));
        rows(comm, 3, 60 + (uint64_t)round);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    OK(MPI_Op_create(last_one, 0, &second));
    rows(MPI_COMM_WORLD, ROUNDS, 1);
    ahead(MPI_COMM_WORLD);
    in_slices(MPI_COMM_WORLD);
    of_all_lengths(MPI_COMM_WORLD);

    /* Without a column of gaps the same bytes. */
    OK(MPI_Type_vector(16, 1, 2, MPI_LONG, &gaps));
    OK(MPI_Type_commit(&gaps));
    for (int round = 0; round < 20; round++) {
        MPI_Request requests[2];
        long *spread = ones[0].from, *all = ones[0].into, *sum = ones[1].into;
        for (int i = 0; i < 32; i++)
            spread[i] = i % 2 ? -1 : value(rank, round, i / 2);
        OK(MPI_Iallgather(spread, 1, gaps, all, 16, MPI_LONG, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Ialltoall(all + 16 * MOST, 16, MPI_LONG, sum, 1, gaps, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int r = 0; r < size; r++)
            for (int i = 0; i < 16; i++)
                CHECK(all[16 * r + i] == value(r, round, i));
    }
    OK(MPI_Type_free(&gaps));

    /* A handle that is freed while they are under way, and communicators without end. */
    for (int i = 0; i < 30; i++) {
        MPI_Comm brief;
        MPI_Request request;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &brief));
        rows(brief, 2, 200 + (uint64_t)i);
        OK(MPI_Iallreduce(MPI_IN_PLACE, ones[0].into, 4, MPI_LONG, MPI_SUM, brief, &request));
        OK(MPI_Comm_free(&brief));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }

    MPI_Comm apart;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &apart));
    OK(MPI_Comm_set_errhandler(apart, MPI_ERRORS_RETURN));
    rows(apart, 4, 2);
    disagreeing(apart);
    OK(MPI_Comm_free(&apart));
    OK(MPI_Op_free(&second));
    return end();
}
