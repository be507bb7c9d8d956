/* A random storm: every rank sends to every rank, itself included, in random modes, sizes and order; receivers use random
 * means. The seed is the argument; all draws can be replayed.
 * ranks: 1 2 3 7
 * processors: 16
 * args: 12345
 * timeout: 120
 */
#include "world.h"

enum { ROUNDS = 30, EACH = 12, RANKS_MAX = 16, SMALL = 200, LARGE = 150000 };

struct message {
    int bytes, mode;
    unsigned char *out, *in;
    MPI_Request send, receive;
};

/* Size and mode of message `i` from one rank to another; both ends compute the same. */
static uint64_t about(uint64_t seed, int round, int from, int to, int i)
{
    uint64_t state = seed + (uint64_t)(((round * 64 + from) * 64 + to) * 64 + i);
    draw(&state);
    return draw(&state);
}

static int bytes_of(uint64_t what)
{
    return what % 8 == 0 ? (int)(what / 8 % LARGE) : what % 8 < 3 ? (int)(what / 8 % 8000) : (int)(what / 8 % SMALL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, own = seed * 1000 + (uint64_t)rank;
    static struct message sent[RANKS_MAX][EACH], got[RANKS_MAX][EACH];
    CHECK(size <= RANKS_MAX);

    for (int round = 0; round < ROUNDS; round++) {
        /* The receives of half of the peers are posted early, and the others take what has come. */
        for (int peer = 0; peer < size; peer++)
            for (int i = 0; i < EACH; i++) {
                struct message *in = &got[peer][i], *out = &sent[peer][i];
                uint64_t coming = about(seed, round, peer, rank, i), going = about(seed, round, rank, peer, i);
                *in = (struct message){.bytes = bytes_of(coming), .receive = MPI_REQUEST_NULL};
                in->in = memory_of((size_t)in->bytes + 1);
                *out = (struct message){.bytes = bytes_of(going), .mode = (int)(going >> 40) % 3};
                out->out = memory_of((size_t)out->bytes);
                fill(out->out, (size_t)out->bytes, (unsigned)going);
                if ((peer + round) % 2)
                    OK(MPI_Irecv(in->in, in->bytes + 1, MPI_BYTE, peer, i, MPI_COMM_WORLD, &in->receive));
            }
        int offset = (int)(draw(&own) % (uint64_t)size), stride = draw(&own) % 2 ? 1 : size - 1;
        for (int i = 0; i < EACH; i++)
            for (int step = 0; step < size; step++) {
                int peer = (offset + step * (stride ? stride : 1)) % size;
                struct message *out = &sent[peer][i];
                if (out->mode == 0)
                    OK(MPI_Issend(out->out, out->bytes, MPI_BYTE, peer, i, MPI_COMM_WORLD, &out->send));
                else
                    OK(MPI_Isend(out->out, out->bytes, MPI_BYTE, peer, i, MPI_COMM_WORLD, &out->send));
            }
        for (int peer = 0; peer < size; peer++)
            for (int step = 0; step < EACH; step++) {
                int i = (step * 5 + round) % EACH;
                struct message *in = &got[peer][i];
                MPI_Status status;
                MPI_Message message;
                int count, means = (int)(draw(&own) % 4);
                if ((peer + round) % 2) {
                    OK(MPI_Wait(&in->receive, &status));
                } else if (means == 0) {
                    OK(MPI_Mprobe(peer, i, MPI_COMM_WORLD, &message, &status));
                    OK(MPI_Mrecv(in->in, in->bytes + 1, MPI_BYTE, &message, &status));
                } else if (means == 1) {
                    int flag;
                    do
                        OK(MPI_Iprobe(peer, i, MPI_COMM_WORLD, &flag, &status));
                    while (!flag);
                    OK(MPI_Recv(in->in, in->bytes + 1, MPI_BYTE, peer, i, MPI_COMM_WORLD, &status));
                } else if (means == 2) {
                    int flag;
                    OK(MPI_Irecv(in->in, in->bytes + 1, MPI_BYTE, peer, i, MPI_COMM_WORLD, &in->receive));
                    do
                        OK(MPI_Test(&in->receive, &flag, &status));
                    while (!flag);
                } else
                    OK(MPI_Recv(in->in, in->bytes + 1, MPI_BYTE, peer, i, MPI_COMM_WORLD, &status));
                OK(MPI_Get_count(&status, MPI_BYTE, &count));
                CHECK(count == in->bytes && status.MPI_SOURCE == peer && status.MPI_TAG == i);
                CHECK(holds(in->in, (size_t)count, (unsigned)about(seed, round, peer, rank, i)));
            }
        for (int peer = 0; peer < size; peer++)
            for (int i = 0; i < EACH; i++) {
                OK(MPI_Wait(&sent[peer][i].send, MPI_STATUS_IGNORE));
                free(sent[peer][i].out);
                free(got[peer][i].in);
            }
    }
    return end();
}
