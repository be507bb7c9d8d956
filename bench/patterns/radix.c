/* RADIX: the integer sort's permutation, keys sent to whoever owns their digit, in chunks that meet the rendezvous.
 *
 * 8 Mi keys of 4 bytes; on four processes a process sends a quarter of its keys to each other: 2 MiB, in chunks of 256 KiB. Each four
 * receives are waited for together; every second process sends before it receives. Sorting a process' keys by one digit before the
 * exchange takes about 2 ns a key, 4 ms; there is much communication for little computing, whatever the size.
 */
#include "pattern.h"

enum { BYTES = 256 << 10, GROUP = 4, GROUPS = 2 };
static const double DIGIT_US = 4e3;
static char *outgoing, *incoming[GROUP];

static void receive_all(struct pattern *p, int from, int iteration)
{
    for (int group = 0; group < GROUPS; group++) {
        MPI_Request requests[GROUP];
        for (int i = 0; i < GROUP; i++)
            timed_irecv(p, incoming[i], BYTES, from, &requests[i]);
        timed_wait(p, requests, GROUP);
        for (int i = 0; i < GROUP; i++)
            expect(incoming[i], BYTES, (iteration * GROUPS + group) * GROUP + i);
    }
}

static void send_all(struct pattern *p, int to, int iteration)
{
    for (int i = 0; i < GROUPS * GROUP; i++) {
        mark(outgoing, BYTES, iteration * GROUPS * GROUP + i);
        timed_send(p, outgoing, BYTES, to);
    }
}

static void iterate(struct pattern *p, int iteration)
{
    produce(p, DIGIT_US);
    for (int distance = 1; distance < p->size; distance++) {
        int to = p->rank ^ distance;
        if (to >= p->size)
            continue;
        if ((p->rank & distance & -distance) == 0) { /* of two partners, one has this bit */
            receive_all(p, to, iteration);
            send_all(p, to, iteration);
        } else {
            send_all(p, to, iteration);
            receive_all(p, to, iteration);
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    outgoing = buffer_of(BYTES);
    for (int i = 0; i < GROUP; i++)
        incoming[i] = buffer_of(BYTES);
    run_pattern(argc, argv, "RADIX", 30, iterate, NULL);
    MPI_Finalize();
    return 0;
}
