/* Communicators are spread over several engines: one call waits for requests of several, whoever waits in one lets the others go on, and threads on
 * different communicators work side by side. Other ranks' messages and the process' own.
 * ranks: 1 2 3 4
 * cflags: -pthread
 * timeout: 120
 */
#include "world.h"

#include <pthread.h>
#include <stdlib.h>

enum { COMMS = 6, ROUNDS = 60, LARGE = 300000, WINDOW = 8 };

/* Every other one has the ranks of one host only. */
static MPI_Comm comms[COMMS];
static int next_rank[COMMS], last_rank[COMMS], ranks[COMMS];

static int own_rank(int i)
{
    int own;
    OK(MPI_Comm_rank(comms[i], &own));
    return own;
}

static unsigned seed_of(int i)
{
    return (unsigned)(last_rank[i] * COMMS + i);
}

/* One request on each communicator, and a send for each; `how` they are waited for. Long messages need their sender's progress where there is no copying between processes. */
static void mixed(int how, int bytes)
{
    MPI_Request requests[2 * COMMS];
    static unsigned char out[COMMS][LARGE], in[COMMS][LARGE];
    int done = 0;
    for (int i = 0; i < COMMS; i++) {
        fill(out[i], (size_t)bytes, (unsigned)(own_rank(i) * COMMS + i));
        memset(in[i], 0, (size_t)bytes);
        OK(MPI_Irecv(in[i], bytes, MPI_BYTE, last_rank[i], i, comms[i], &requests[i]));
    }
    for (int i = COMMS - 1; i >= 0; i--)
        OK(MPI_Isend(out[i], bytes, MPI_BYTE, next_rank[i], i, comms[i], &requests[COMMS + i]));
    while (done < 2 * COMMS) {
        int index, count, indices[2 * COMMS], flag = 1;
        MPI_Status statuses[2 * COMMS];
        switch (how) {
        case 0:
            OK(MPI_Waitall(2 * COMMS, requests, MPI_STATUSES_IGNORE));
            done = 2 * COMMS;
            break;
        case 1:
            OK(MPI_Waitany(2 * COMMS, requests, &index, statuses));
            CHECK(index != MPI_UNDEFINED && requests[index] == MPI_REQUEST_NULL);
            CHECK(index >= COMMS || (statuses[0].MPI_TAG == index && holds(in[index], (size_t)bytes, seed_of(index))));
            done++;
            break;
        case 2:
            OK(MPI_Waitsome(2 * COMMS, requests, &count, indices, statuses));
            CHECK(count > 0);
            done += count;
            break;
        case 3:
            OK(MPI_Testall(2 * COMMS, requests, &flag, MPI_STATUSES_IGNORE));
            done = flag ? 2 * COMMS : 0;
            break;
        case 4:
            OK(MPI_Testany(2 * COMMS, requests, &index, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag || index != MPI_UNDEFINED);
            done += flag;
            break;
        case 5:
            OK(MPI_Testsome(2 * COMMS, requests, &count, indices, statuses));
            done += count;
            break;
        default: /* one after the other, from the last */
            OK(MPI_Wait(&requests[2 * COMMS - 1 - done], MPI_STATUS_IGNORE));
            done++;
        }
    }
    for (int i = 0; i < COMMS; i++)
        CHECK(holds(in[i], (size_t)bytes, seed_of(i)));
}

/* A rank waits on one communicator for what another rank sends only after it has received everything on the others. */
static void others_go_on(int napping)
{
    static unsigned char long_one[COMMS][LARGE];
    MPI_Request requests[COMMS];
    int value = -1;
    if (size < 2 || rank > 1)
        return;
    for (int i = 0; i < COMMS; i++)
        requests[i] = MPI_REQUEST_NULL;
    if (rank == 0) {
        for (int i = 1; i < COMMS; i++) {
            if (ranks[i] < size)
                continue;
            fill(long_one[i], LARGE, (unsigned)i);
            OK(MPI_Isend(long_one[i], LARGE, MPI_BYTE, 1, i, comms[i], &requests[i]));
        }
        OK(MPI_Recv(&value, 1, MPI_INT, 1, 0, comms[0], MPI_STATUS_IGNORE));
        CHECK(value == 17);
        OK(MPI_Waitall(COMMS - 1, requests + 1, MPI_STATUSES_IGNORE));
    } else {
        if (napping)
            nap_ms(3);
        for (int i = COMMS - 1; i > 0; i--) {
            if (ranks[i] < size)
                continue;
            OK(MPI_Recv(long_one[i], LARGE, MPI_BYTE, 0, i, comms[i], MPI_STATUS_IGNORE));
            CHECK(holds(long_one[i], LARGE, (unsigned)i));
        }
        value = 17;
        OK(MPI_Send(&value, 1, MPI_INT, 0, 0, comms[0]));
    }
}

/* Nonblocking collectives go on whatever communicator their rank waits on. */
static void collectives_go_on(void)
{
    int one = 1, sums[COMMS], value = rank, got = -1;
    MPI_Request requests[COMMS];
    for (int i = 1; i < COMMS; i++)
        OK(MPI_Iallreduce(&one, &sums[i], 1, MPI_INT, MPI_SUM, comms[i], &requests[i]));
    OK(MPI_Sendrecv(&value, 1, MPI_INT, next_rank[0], 1, &got, 1, MPI_INT, last_rank[0], 1, comms[0], MPI_STATUS_IGNORE));
    CHECK(got == last_rank[0]);
    if (rank == 0)
        nap_ms(2); /* the others wait, or sleep, in the engine of the last communicator */
    OK(MPI_Wait(&requests[COMMS - 1], MPI_STATUS_IGNORE));
    OK(MPI_Waitall(COMMS - 2, requests + 1, MPI_STATUSES_IGNORE));
    for (int i = 1; i < COMMS; i++)
        CHECK(sums[i] == ranks[i]);
}

static void buffered(void)
{
    static char memory[COMMS * (64 + MPI_BSEND_OVERHEAD) * 4];
    void *back;
    int bytes, values[COMMS];
    OK(MPI_Buffer_attach(memory, sizeof memory));
    for (int i = 0; i < COMMS; i++) {
        int out = own_rank(i) + i;
        OK(MPI_Bsend(&out, 1, MPI_INT, next_rank[i], 5, comms[i]));
    }
    for (int i = 0; i < COMMS; i++) {
        OK(MPI_Recv(&values[i], 1, MPI_INT, last_rank[i], 5, comms[i], MPI_STATUS_IGNORE));
        CHECK(values[i] == last_rank[i] + i);
    }
    OK(MPI_Buffer_detach(&back, &bytes));
    CHECK(back == memory && bytes == sizeof memory);
}

/* Each thread on a communicator of its own, and all of them on the last one by tags. */
static void *work(void *argument)
{
    int number = *(int *)argument;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[2 * WINDOW + 2];
        int out[WINDOW + 1], in[WINDOW + 1];
        for (int i = 0; i <= WINDOW; i++) {
            int at = i < WINDOW ? number : COMMS - 1;
            out[i] = round * 1000 + i;
            OK(MPI_Irecv(&in[i], 1, MPI_INT, last_rank[at], number, comms[at], &requests[2 * i]));
            OK(MPI_Isend(&out[i], 1, MPI_INT, next_rank[at], number, comms[at], &requests[2 * i + 1]));
        }
        if (round % 8 == number && round % 3 == 0)
            nap_ms(1);
        OK(MPI_Waitall(2 * WINDOW + 2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i <= WINDOW; i++)
            CHECK(in[i] == out[i]);
        int sum = 0;
        OK(MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, comms[number]));
        CHECK(sum == round * ranks[number]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    MPI_Comm host;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    for (int i = 0; i < COMMS; i++) {
        OK(MPI_Comm_dup(i % 2 ? host : MPI_COMM_WORLD, &comms[i]));
        OK(MPI_Comm_size(comms[i], &ranks[i]));
        next_rank[i] = (own_rank(i) + 1) % ranks[i];
        last_rank[i] = (own_rank(i) + ranks[i] - 1) % ranks[i];
    }
    OK(MPI_Comm_free(&host));
    for (int how = 0; how < 7; how++)
        for (int round = 0; round < 3; round++) {
            mixed(how, 40);
            mixed(how, 20000);
            mixed(how, LARGE);
        }
    for (int round = 0; round < 20; round++) {
        others_go_on(round % 2);
        collectives_go_on();
        buffered();
    }
    pthread_t threads[COMMS - 1];
    int numbers[COMMS - 1];
    for (int i = 0; i < COMMS - 1; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < COMMS - 1; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < COMMS; i++)
        OK(MPI_Comm_free(&comms[i]));
    return end();
}
