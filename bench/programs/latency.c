/* One-way latency: half of a blocking ping-pong between two ranks. */
#include "measure.h"

struct state {
    char *buffer;
    int bytes;
};

static void ping_pong(void *opaque, int count)
{
    struct state *state = opaque;
    char *buffer = state->buffer;
    int bytes = state->bytes;

    if (world_rank() == 0) {
        for (int i = 0; i < count; i++) {
            MPI_Send(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    } else {
        for (int i = 0; i < count; i++) {
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    double budget_s = budget_argument(argc, argv);

    for (int arg = 2; arg < argc; arg++) {
        struct state state = {NULL, atoi(argv[arg])};
        size_t bytes = (size_t)state.bytes;
        state.buffer = buffer_of(bytes);

        struct timing timing = measure(ping_pong, &state, budget_s);
        if (world_rank() == 0)
            fill(state.buffer, bytes, 5);
        else
            memset(state.buffer, 0, bytes);
        ping_pong(&state, 1);
        check(state.buffer, bytes, 5);
        report("latency", state.bytes, 1, timing, 2);
        free(state.buffer);
    }
    MPI_Finalize();
    return 0;
}
