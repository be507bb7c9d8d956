/* Short calls that the target is asked for in lines of shared memory: all of them are done, once, in their order, whether the target waits in MPI, computes, or
 * goes from one to the other; also where the origin has taken some back.
 * ranks: 2 3
 * env: WHIMBREL_REQUEST_LINES=always
 * timeout: 120
 */
#include "world.h"

enum { CELLS = 64, ROUNDS = 4000, BURST = 20, AWAY_US_MAX = 40, LONG_ROUNDS = 400, LONG_MAX = 8192 + 100 };

static long cells[CELLS + LONG_MAX];
static MPI_Win win;
static MPI_Aint begins[64], step;

static MPI_Aint at(int target, int cell) { return begins[target] + cell * step; }

/* What this process has counted since the begin: requests, and those of them that were taken back. */
static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[2];

static void count(void)
{
    static const char *const names[] = {"request_lines_posted", "request_lines_withdrawn"};
    int provided, index, count;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_pvar_session_create(&session));
    for (int i = 0; i < 2; i++) {
        OK(MPI_T_pvar_get_index(names[i], MPI_T_PVAR_CLASS_COUNTER, &index));
        OK(MPI_T_pvar_handle_alloc(session, index, NULL, &handles[i], &count));
        CHECK(count == 1);
        OK(MPI_T_pvar_start(session, handles[i]));
    }
}

static unsigned long long counted(int i)
{
    unsigned long long value;
    OK(MPI_T_pvar_read(session, handles[i], &value));
    return value;
}

/* Away from MPI for some microseconds. */
static void compute(int us)
{
    for (double end = MPI_Wtime() + us * 1e-6; MPI_Wtime() < end;) {
    }
}

/* Goes in and out of MPI until rank 0 says that it is over. */
static void be_a_target(int leaves)
{
    int over = 0;
    MPI_Request told;
    OK(MPI_Irecv(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &told));
    for (unsigned i = 0; leaves && !over; i++) {
        compute(i % AWAY_US_MAX);
        for (unsigned looks = i % 7 * 10; !over && looks > 0; looks--)
            OK(MPI_Test(&told, &over, MPI_STATUS_IGNORE));
    }
    if (!over)
        OK(MPI_Wait(&told, MPI_STATUS_IGNORE));
}

static void release(void)
{
    for (int target = 1; target < size; target++)
        OK(MPI_Send(NULL, 0, MPI_BYTE, target, 1, MPI_COMM_WORLD));
}

/* Replacements and what they find stand in the order of the calls; a put, a get and a compare and swap have a cell each. */
static void ask(void)
{
    static long values[BURST], found[BURST], put[2], got[2], sum = 0;
    long last[64] = {0};
    OK(MPI_Win_lock_all(0, win));
    for (long round = 1; round <= ROUNDS; round++) {
        int target = 1 + (int)(round % (size - 1)), calls = 1 + (int)(round % BURST);
        for (int i = 0; i < calls; i++) {
            values[i] = round * BURST + i;
            if (i % 3 == 2)
                OK(MPI_Accumulate(&values[i], 1, MPI_LONG, target, at(target, 0), 1, MPI_LONG, MPI_REPLACE, win));
            else
                OK(MPI_Fetch_and_op(&values[i], &found[i], MPI_LONG, target, at(target, 0), MPI_REPLACE, win));
        }
        put[0] = round;
        put[1] = -round;
        OK(MPI_Put(put, 2, MPI_LONG, target, at(target, 1), 2, MPI_LONG, win));
        long one = 1, before = round - 1, none = 0, now, was, other;
        OK(MPI_Accumulate(&one, 1, MPI_LONG, target, at(target, 3), 1, MPI_LONG, MPI_SUM, win));
        sum++;
        OK(MPI_Win_flush(target, win));
        for (int i = 0; i < calls; i++) {
            if (i % 3 != 2)
                CHECK(found[i] == (i == 0 ? last[target] : round * BURST + i - 1));
        }
        last[target] = round * BURST + calls - 1;
        OK(MPI_Get(got, 2, MPI_LONG, target, at(target, 1), 2, MPI_LONG, win));
        OK(MPI_Fetch_and_op(&none, &now, MPI_LONG, target, at(target, 0), MPI_NO_OP, win));
        OK(MPI_Compare_and_swap(&round, &before, &was, MPI_LONG, target, at(target, 4), win));
        OK(MPI_Compare_and_swap(&none, &before, &other, MPI_LONG, target, at(target, 5), win));
        OK(MPI_Win_flush_local(target, win));
        CHECK(got[0] == round && got[1] == -round && now == last[target]);
        CHECK(size > 2 || was == round - 1);
        CHECK(other == 0);
    }
    long total = 0, each;
    for (int target = 1; target < size; target++) {
        OK(MPI_Get(&each, 1, MPI_LONG, target, at(target, 3), 1, MPI_LONG, win));
        OK(MPI_Win_flush(target, win));
        total += each;
    }
    CHECK(total == sum);
    OK(MPI_Win_unlock_all(win));
    sum = 0;
}

/* Calls whose data has no place in a line: it goes through rooms, some of it through many of them, and the rooms begin anew. Rank 0 is the only origin: every element of a target is the sum of what it has been given, and found as it was before. */
static void ask_for_much(void)
{
    static long given[LONG_MAX], found[LONG_MAX], sums[64][LONG_MAX];
    static const int lengths[] = {5, 100, 512, 4096, 8192, LONG_MAX};
    memset(sums, 0, sizeof sums);
    OK(MPI_Win_lock_all(0, win));
    for (long round = 1; round <= LONG_ROUNDS; round++) {
        int target = 1 + (int)(round % (size - 1)), count = lengths[round % 6], first = (int)(round % 7);
        if (first + count > LONG_MAX)
            first = 0;
        for (int i = 0; i < count; i++)
            given[i] = round * 10000 + i;
        memset(found, 0xff, sizeof found);
        OK(MPI_Get_accumulate(given, count, MPI_LONG, found, count, MPI_LONG, target, at(target, CELLS + first), count, MPI_LONG, MPI_SUM, win));
        OK(MPI_Accumulate(given, count, MPI_LONG, target, at(target, CELLS + first), count, MPI_LONG, MPI_SUM, win));
        long one = 1, was;
        OK(MPI_Fetch_and_op(&one, &was, MPI_LONG, target, at(target, CELLS + first), MPI_SUM, win));
        OK(MPI_Win_flush(target, win));
        for (int i = 0; i < count; i++) {
            CHECK(found[i] == sums[target][first + i]);
            sums[target][first + i] += 2 * given[i];
        }
        CHECK(was == sums[target][first]);
        sums[target][first]++;
        if (round % 3 == 0) {
            OK(MPI_Put(given, count, MPI_LONG, target, at(target, CELLS + first), count, MPI_LONG, win));
            OK(MPI_Win_flush(target, win));
            memcpy(sums[target] + first, given, count * sizeof *given);
        }
        memset(found, 0xff, sizeof found);
        if (round % 2)
            OK(MPI_Get(found, count, MPI_LONG, target, at(target, CELLS + first), count, MPI_LONG, win));
        else
            OK(MPI_Get_accumulate(NULL, 0, MPI_LONG, found, count, MPI_LONG, target, at(target, CELLS + first), count, MPI_LONG, MPI_NO_OP, win));
        OK(MPI_Win_flush_local(target, win));
        for (int i = 0; i < count; i++)
            CHECK(found[i] == sums[target][first + i]);
    }
    OK(MPI_Win_unlock_all(win));
}

/* All ask all at once: who asks answers meanwhile. */
static void ask_each_other(void)
{
    long one = 1, found, last = -1;
    OK(MPI_Win_lock_all(0, win));
    for (int round = 0; round < ROUNDS; round++) {
        int target = (rank + 1) % size;
        OK(MPI_Fetch_and_op(&one, &found, MPI_LONG, target, at(target, 6), MPI_SUM, win));
        OK(MPI_Win_flush(target, win));
        CHECK(found == last + 1);
        last = found;
    }
    OK(MPI_Win_unlock_all(win));
}

/* What lies outside of what a target has attached is an error of the flush. */
static void ask_in_vain(void)
{
    long value = 1;
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
    OK(MPI_Accumulate(&value, 1, MPI_LONG, 1, at(1, CELLS + LONG_MAX), 1, MPI_LONG, MPI_SUM, win));
    OK(MPI_Accumulate(&value, 1, MPI_LONG, 1, at(1, 7), 1, MPI_LONG, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Win_flush(1, win));
    OK(MPI_Win_flush(1, win));
    OK(MPI_Win_unlock(1, win));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    count();
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        MPI_Aint address = 0;
        memset(cells, 0, sizeof cells);
        if (dynamic) {
            OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
            /* Two regions that follow each other: calls reach over both. */
            OK(MPI_Win_attach(win, cells, (CELLS + 50) * sizeof *cells));
            OK(MPI_Win_attach(win, cells + CELLS + 50, (LONG_MAX - 50) * sizeof *cells));
            OK(MPI_Get_address(cells, &address));
        } else {
            OK(MPI_Win_create(cells, sizeof cells, sizeof *cells, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        }
        step = dynamic ? sizeof *cells : 1;
        OK(MPI_Allgather(&address, 1, MPI_AINT, begins, 1, MPI_AINT, MPI_COMM_WORLD));
        for (int leaves = 0; leaves < 2; leaves++) {
            memset(cells, 0, sizeof cells);
            OK(MPI_Barrier(MPI_COMM_WORLD));
            if (rank == 0) {
                ask();
                ask_for_much();
                release();
            } else {
                be_a_target(leaves);
            }
            OK(MPI_Barrier(MPI_COMM_WORLD));
        }
        ask_each_other();
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (dynamic && rank == 0) {
            ask_in_vain();
            release();
        } else if (dynamic) {
            be_a_target(0);
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
        CHECK(!dynamic || rank != 1 || cells[7] == 1);
        if (dynamic) {
            OK(MPI_Win_detach(win, cells));
            OK(MPI_Win_detach(win, cells + CELLS + 50));
        }
        OK(MPI_Win_free(&win));
    }
    if (rank == 0) {
        printf("%llu requests, %llu taken back\n", counted(0), counted(1));
        CHECK(counted(0) > 0);
    }
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
    return end();
}
