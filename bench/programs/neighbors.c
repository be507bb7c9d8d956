/* All ranks at once: `pairs` are ping-pongs of each even rank with the next, one way; in `ring` each rank sends to the next and
 * receives from the one before, by MPI_Sendrecv. Times are of the whole, as rank 0 sees it: a barrier closes each batch.
 */
#include "measure.h"

enum { TAG = 5 };

struct state {
    char *outgoing, *incoming;
    int bytes;
};

static void pairs(void *opaque, int count)
{
    struct state *state = opaque;
    int peer = world_rank() ^ 1;

    for (int i = 0; i < count; i++) {
        if (world_rank() % 2 == 0)
            MPI_Send(state->outgoing, state->bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        MPI_Recv(state->incoming, state->bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (world_rank() % 2 == 1)
            MPI_Send(state->outgoing, state->bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void ring(void *opaque, int count)
{
    struct state *state = opaque;
    int next = (world_rank() + 1) % world_size(), before = (world_rank() + world_size() - 1) % world_size();

    for (int i = 0; i < count; i++)
        MPI_Sendrecv(state->outgoing, state->bytes, MPI_BYTE, next, TAG, state->incoming, state->bytes, MPI_BYTE, before, TAG,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 3 || world_size() % 2 != 0)
        fail("usage: neighbors pairs|ring BUDGET_MS BYTES..., on an even number of ranks");
    int in_pairs = strcmp(argv[1], "pairs") == 0;
    double budget_s = budget_argument(argc - 1, argv + 1);

    for (int arg = 3; arg < argc; arg++) {
        int bytes = atoi(argv[arg]);
        struct state state = {buffer_of((size_t)bytes), buffer_of((size_t)bytes), bytes};
        int from = in_pairs ? world_rank() ^ 1 : (world_rank() + world_size() - 1) % world_size();

        struct timing timing = measure(in_pairs ? pairs : ring, &state, budget_s);
        fill(state.outgoing, (size_t)bytes, (unsigned)world_rank());
        memset(state.incoming, 0, (size_t)bytes);
        (in_pairs ? pairs : ring)(&state, 1);
        check(state.incoming, (size_t)bytes, (unsigned)from);
        report(argv[1], bytes, 1, timing, in_pairs ? 2 : 1);
        free(state.outgoing);
        free(state.incoming);
    }
    MPI_Finalize();
    return 0;
}
