/* CG, class B: a sparse matrix-vector product, then its parts are summed along a row of processes and transposed.
 *
 * 75,000 unknowns, 13.7 million nonzeros. On four processes (2 x 2) each exchange is half of the vector, 300,000 bytes: one partner to
 * sum with, one to transpose with. A product is 2 x 13.7 / 4 = 6.9 Mflop a process. Nothing is computed between the nonblocking
 * call and the wait.
 */
#include "pattern.h"

enum { BYTES = 75000 / 2 * 8, NEIGHBOURS = 2 };
static const double PRODUCT_US = 6.9e6 / 1e3;
static char *outgoing, *incoming;

static void iterate(struct pattern *p, int iteration)
{
    produce(p, PRODUCT_US * 0.8);
    for (int i = 0; i < NEIGHBOURS; i++) {
        MPI_Request request;
        int distance = i + 1 < p->size ? i + 1 : 1, partner = p->rank ^ distance;
        if (partner >= p->size)
            continue;
        timed_irecv(p, incoming, BYTES, partner, &request);
        mark(outgoing, BYTES, iteration);
        timed_send(p, outgoing, BYTES, partner);
        timed_wait(p, &request, 1);
        expect(incoming, BYTES, iteration);
    }
    produce(p, PRODUCT_US * 0.2);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    outgoing = buffer_of(BYTES);
    incoming = buffer_of(BYTES);
    run_pattern(argc, argv, "CG.B", 100, iterate, NULL);
    MPI_Finalize();
    return 0;
}
