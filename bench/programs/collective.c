/* Barrier, and allreduce of doubles by addition, on any number of ranks. */
#include "measure.h"

struct state {
    double *input, *output;
    int elements;
};

static void barriers(void *opaque, int count)
{
    (void)opaque;
    for (int i = 0; i < count; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduces(void *opaque, int count)
{
    struct state *state = opaque;
    for (int i = 0; i < count; i++)
        MPI_Allreduce(state->input, state->output, state->elements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 3)
        fail("usage: collective barrier|allreduce BUDGET_MS [BYTES...]");
    const char *name = argv[1];
    double budget_s = budget_argument(argc - 1, argv + 1);

    if (strcmp(name, "barrier") == 0)
        report(name, 0, 1, measure(barriers, NULL, budget_s), 1);
    for (int arg = 3; strcmp(name, "allreduce") == 0 && arg < argc; arg++) {
        int elements = atoi(argv[arg]) / (int)sizeof(double), ranks = world_size();
        size_t bytes = (size_t)elements * sizeof(double);
        struct state state = {(double *)buffer_of(bytes), (double *)buffer_of(bytes), elements};

        for (int i = 0; i < elements; i++)
            state.input[i] = i + world_rank();
        struct timing timing = measure(allreduces, &state, budget_s);
        for (int i = 0; i < elements; i++)
            if (state.output[i] != (double)i * ranks + ranks * (ranks - 1) / 2.0)
                fail("an allreduce gave a wrong sum");
        report(name, (long)bytes, 1, timing, 1);
        free(state.input);
        free(state.output);
    }
    MPI_Finalize();
    return 0;
}
