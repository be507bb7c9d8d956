/* LU, class A: the faces of a process' block go to its neighbours, who receive from any source.
 *
 * 64^3 points, 32 x 32 x 64 on four processes: a face with two layers of five variables is 163,840 bytes. 119,280 Mflop in 250
 * steps are 119 Mflop a process and step, a third of them around the exchange of faces with two neighbours: 20 Mflop a neighbour.
 */
#include "pattern.h"

enum { BYTES = 32 * 64 * 2 * 5 * 8, NEIGHBOURS = 2 };
static const double FACE_US = 20e6 / 1e3;
static char *outgoing, *incoming;

static void iterate(struct pattern *p, int iteration)
{
    for (int i = 0; i < NEIGHBOURS; i++) {
        MPI_Request request;
        int number_of_message = iteration * NEIGHBOURS + i;
        timed_irecv(p, incoming, BYTES, MPI_ANY_SOURCE, &request);
        produce(p, FACE_US / 2);
        mark(outgoing, BYTES, number_of_message);
        timed_send(p, outgoing, BYTES, (p->rank + 1) % p->size);
        timed_wait(p, &request, 1);
        expect(incoming, BYTES, number_of_message);
        produce(p, FACE_US / 2);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    outgoing = buffer_of(BYTES);
    incoming = buffer_of(BYTES);
    run_pattern(argc, argv, "LU.A", 50, iterate, NULL);
    MPI_Finalize();
    return 0;
}
