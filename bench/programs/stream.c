/* Windows of nonblocking messages, each window closed by an empty acknowledgement.
 *
 * Three shapes of the same program, chosen by its name's first argument: `rate` and `bandwidth` send one way,
 * `bidirectional` sends both ways at once. Times are per message (per pair of messages when bidirectional).
 * Each message of a window has a buffer of its own, so a window is made smaller where WINDOW of them would not fit
 * BUFFERS_BYTES; the window used is printed with the result.
 */
#include "measure.h"

enum { WINDOW = 64, BUFFERS_BYTES = 64 << 20, TAG = 3, TAG_ACK = 4 };

struct state {
    char *outgoing, *incoming;
    int bytes, window, both_ways;
};

static void post_sends(struct state *state, int peer, MPI_Request *requests)
{
    for (int i = 0; i < state->window; i++)
        MPI_Isend(state->outgoing + (size_t)i * state->bytes, state->bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                  &requests[i]);
}

static void post_receives(struct state *state, int peer, MPI_Request *requests)
{
    for (int i = 0; i < state->window; i++)
        MPI_Irecv(state->incoming + (size_t)i * state->bytes, state->bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                  &requests[i]);
}

static void windows(void *opaque, int count)
{
    struct state *state = opaque;
    MPI_Request requests[2 * WINDOW];
    int rank = world_rank(), peer = 1 - rank;

    for (int i = 0; i < count; i++) {
        int posted = 0;
        if (rank == 1 || state->both_ways) {
            post_receives(state, peer, requests);
            posted += state->window;
        }
        if (rank == 0 || state->both_ways) {
            post_sends(state, peer, requests + posted);
            posted += state->window;
        }
        MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    if (argc < 3)
        fail("usage: stream rate|bandwidth|bidirectional BUDGET_MS BYTES...");
    const char *name = argv[1];
    double budget_s = budget_argument(argc - 1, argv + 1);

    for (int arg = 3; arg < argc; arg++) {
        int bytes = atoi(argv[arg]);
        int fitting = bytes > 0 ? BUFFERS_BYTES / bytes : WINDOW;
        int window = fitting < WINDOW ? (fitting < 1 ? 1 : fitting) : WINDOW;
        size_t total = (size_t)window * (size_t)bytes;
        struct state state = {buffer_of(total), buffer_of(total), bytes, window,
                              strcmp(name, "bidirectional") == 0};

        struct timing timing = measure(windows, &state, budget_s);
        fill(state.outgoing, total, (unsigned)world_rank());
        memset(state.incoming, 0, total);
        windows(&state, 1);
        if (world_rank() == 1 || state.both_ways)
            check(state.incoming, total, 1u - (unsigned)world_rank());
        report(name, bytes, window, timing, window);
        free(state.outgoing);
        free(state.incoming);
    }
    MPI_Finalize();
    return 0;
}
