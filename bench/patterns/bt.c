/* BT, class A: block-tridiagonal systems solved line by line, the boundary of one cell sent on to the next process.
 *
 * 64^3 points, cells of 32^3 on four processes: a boundary is 32 x 32 points of a 5 x 5 block and a vector, 245,760 bytes. 168,300
 * Mflop in 200 steps of three directions are 70 Mflop a process and direction, in two cells: 35 Mflop a message. The next boundary is
 * received while the program computes.
 */
#include "pattern.h"

enum { BYTES = 32 * 32 * (25 + 5) * 8 };
static const double CELL_US = 35e6 / 1e3;
static char *outgoing[2], *incoming;
static MPI_Request sent = MPI_REQUEST_NULL;

static void send_on(struct pattern *p, int number_of_message)
{
    char *buffer = outgoing[number_of_message % 2];
    mark(buffer, BYTES, number_of_message);
    timed_isend(p, buffer, BYTES, (p->rank + 1) % p->size, &sent);
}

static void iterate(struct pattern *p, int iteration)
{
    MPI_Request request;
    if (iteration == 0) {
        produce(p, CELL_US / 2);
        send_on(p, 0);
    }
    timed_irecv(p, incoming, BYTES, (p->rank + p->size - 1) % p->size, &request);
    produce(p, CELL_US / 2);
    timed_wait(p, &sent, 1);
    timed_wait(p, &request, 1);
    expect(incoming, BYTES, iteration);
    produce(p, CELL_US / 2);
    send_on(p, iteration + 1);
}

/* Takes the last boundary, which no step receives. */
static void end(struct pattern *p)
{
    MPI_Request request;
    timed_irecv(p, incoming, BYTES, (p->rank + p->size - 1) % p->size, &request);
    timed_wait(p, &sent, 1);
    timed_wait(p, &request, 1);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    outgoing[0] = buffer_of(BYTES);
    outgoing[1] = buffer_of(BYTES);
    incoming = buffer_of(BYTES);
    run_pattern(argc, argv, "BT.A", 60, iterate, end);
    MPI_Finalize();
    return 0;
}
