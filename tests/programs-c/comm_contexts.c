/* Communicators are worlds apart: equal tags never meet, ranks are renumbered, and wildcards stay inside.
 * ranks: 1 2 4 6
 */
#include "world.h"

static void duplicates(void)
{
    enum { COPIES = 12 };
    MPI_Comm comms[COPIES];
    int out[COPIES], in[COPIES], to = (rank + 1) % size, from = (rank + size - 1) % size, result;
    MPI_Request requests[2 * COPIES];
    for (int i = 0; i < COPIES; i++) {
        OK(MPI_Comm_dup(i % 3 ? comms[i - 1] : MPI_COMM_WORLD, &comms[i]));
        OK(MPI_Comm_compare(comms[i], MPI_COMM_WORLD, &result));
        CHECK(result == MPI_CONGRUENT);
    }
    for (int i = 0; i < COPIES; i++)
        OK(MPI_Irecv(&in[i], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : from, MPI_ANY_TAG, comms[i], &requests[i]));
    for (int i = COPIES - 1; i >= 0; i--) {
        out[i] = rank * 100 + i;
        OK(MPI_Isend(&out[i], 1, MPI_INT, to, 0, comms[i], &requests[COPIES + i]));
    }
    /* Collectives between them on the same communicators. */
    for (int i = 0; i < COPIES; i++) {
        int sum, one = 1;
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[COPIES - 1 - i]));
        CHECK(sum == size);
        OK(MPI_Barrier(comms[i]));
    }
    OK(MPI_Waitall(2 * COPIES, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < COPIES; i++) {
        CHECK(in[i] == from * 100 + i);
        OK(MPI_Comm_free(&comms[i]));
        CHECK(comms[i] == MPI_COMM_NULL);
    }
}

/* Who has this host's name shares its memory, and nobody else; with datagrams alone nobody shares anything. */
static void shared(void)
{
    const char *fabric = getenv("WHIMBREL_FABRIC");
    char names[16][MPI_MAX_PROCESSOR_NAME] = {{0}}, mine[MPI_MAX_PROCESSOR_NAME] = {0};
    MPI_Comm part;
    int length, part_rank, part_size, here = 0, before = 0;
    CHECK(size <= 16);
    OK(MPI_Get_processor_name(mine, &length));
    OK(MPI_Allgather(mine, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, MPI_COMM_WORLD));
    for (int i = 0; i < size; i++)
        if (strcmp(names[i], mine) == 0) {
            here++;
            before += i < rank;
        }
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &part));
    OK(MPI_Comm_size(part, &part_size));
    OK(MPI_Comm_rank(part, &part_rank));
    if (fabric && strcmp(fabric, "udp") == 0) {
        here = 1;
        before = 0;
    }
    CHECK(part_size == here && part_rank == before);
    OK(MPI_Comm_free(&part));
}

static void split(void)
{
    MPI_Comm part;
    int part_rank, part_size, value, colour = rank % 2;
    OK(MPI_Comm_split(MPI_COMM_WORLD, colour, -rank, &part)); /* backwards */
    OK(MPI_Comm_rank(part, &part_rank));
    OK(MPI_Comm_size(part, &part_size));
    CHECK(part_size == (size + 1 - colour) / 2);
    CHECK(part_rank == part_size - 1 - rank / 2);
    int to = (part_rank + 1) % part_size, from = (part_rank + part_size - 1) % part_size;
    MPI_Status status;
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, to, 5, &value, 1, MPI_INT, MPI_ANY_SOURCE, 5, part, &status));
    CHECK(status.MPI_SOURCE == from && value % 2 == colour && value / 2 == part_size - 1 - from);
    OK(MPI_Comm_free(&part));

    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 3, 0, &part));
    CHECK((part == MPI_COMM_NULL) == (rank == 0));
    if (part != MPI_COMM_NULL) {
        OK(MPI_Comm_rank(part, &part_rank));
        CHECK(part_rank == rank - 1);
        OK(MPI_Comm_free(&part));
    }
    shared();
}

static void create(void)
{
    MPI_Group world, upper;
    MPI_Comm part;
    int first = size / 2, range[1][3] = {{first, size - 1, 1}}, part_rank;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_range_incl(world, 1, range, &upper));
    OK(MPI_Comm_create(MPI_COMM_WORLD, upper, &part));
    CHECK((part == MPI_COMM_NULL) == (rank < first));
    if (part != MPI_COMM_NULL) {
        OK(MPI_Comm_rank(part, &part_rank));
        CHECK(part_rank == rank - first);
        OK(MPI_Barrier(part));
        OK(MPI_Comm_free(&part));
    }
    OK(MPI_Group_free(&upper));
    OK(MPI_Group_free(&world));
}

/* Communicators come and go without end. */
static void churn(void)
{
    for (int i = 0; i < 300; i++) {
        MPI_Comm comm, part;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        OK(MPI_Comm_split(comm, rank % 2, rank, &part));
        int value = rank;
        OK(MPI_Bcast(&value, 1, MPI_INT, 0, part));
        CHECK(value == rank % 2);
        OK(MPI_Comm_free(&comm));
        OK(MPI_Comm_free(&part));
    }
}

/* A communicator is freed while its messages are still under way; they arrive. */
static void freed_early(void)
{
    MPI_Comm comm;
    MPI_Request request;
    static int in[30000], out[30000];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    out[29999] = rank;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Irecv(in, 30000, MPI_INT, from, 1, comm, &request));
    MPI_Request send;
    OK(MPI_Isend(out, 30000, MPI_INT, to, 1, comm, &send));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    CHECK(in[29999] == from);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    duplicates();
    split();
    create();
    churn();
    freed_early();
    return end();
}
