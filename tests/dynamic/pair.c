/* Two jobs that connect (pair.py starts them): `pair accept|connect FILE [DEED]`. The name of the port goes through FILE.
 *
 * DEED: `talk` (all that two jobs may do with each other), `twice` (two accepts, one identity), `leave` (disconnected, each goes on alone),
 * `die` (one of the other side is killed, and this one gets an error).
 */
#include "../programs-c/world.h"

#include <signal.h>
#include <unistd.h>

static int accepts;
static const char *file;

static void tell(const char *name, int number)
{
    char path[4096], draft[4096 + 8];
    snprintf(path, sizeof path, "%s.%d", file, number);
    snprintf(draft, sizeof draft, "%s.new", path);
    FILE *out = fopen(draft, "w");
    CHECK(out && fputs(name, out) >= 0 && fclose(out) == 0 && rename(draft, path) == 0);
}

static void hear(char *name, int number)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", file, number);
    FILE *in;
    for (int tries = 0; !(in = fopen(path, "r")); tries++) {
        CHECK(tries < 60000);
        usleep(1000);
    }
    CHECK(fgets(name, MPI_MAX_PORT_NAME, in));
    fclose(in);
}

/* The intercommunicator of `comm`'s group with the other job's. */
static MPI_Comm meet(MPI_Comm comm, int root, int number)
{
    char name[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    int me;
    OK(MPI_Comm_rank(comm, &me));
    if (accepts) {
        if (me == root) {
            OK(MPI_Open_port(MPI_INFO_NULL, name));
            CHECK(strlen(name) < MPI_MAX_PORT_NAME);
            tell(name, number);
        }
        OK(MPI_Comm_accept(name, MPI_INFO_NULL, root, comm, &inter));
        if (me == root)
            OK(MPI_Close_port(name));
    } else {
        if (me == root)
            hear(name, number);
        OK(MPI_Comm_connect(name, MPI_INFO_NULL, root, comm, &inter));
    }
    OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    return inter;
}

/* Everyone sends everyone of the other side `bytes`, and receives as much. */
static void traffic(MPI_Comm inter, int bytes)
{
    int me, others;
    OK(MPI_Comm_rank(inter, &me));
    OK(MPI_Comm_remote_size(inter, &others));
    unsigned char *out = malloc(bytes + 1), *in = malloc(bytes + 1);
    for (int other = 0; other < others; other++) {
        MPI_Request request;
        MPI_Status status;
        int count;
        fill(out, bytes, 31 * me + other + accepts);
        memset(in, 0xee, bytes + 1);
        OK(MPI_Isend(out, bytes, MPI_BYTE, other, 5, inter, &request));
        OK(MPI_Recv(in, bytes, MPI_BYTE, other, 5, inter, &status));
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(status.MPI_SOURCE == other && status.MPI_TAG == 5 && count == bytes && in[bytes] == 0xee);
        for (int i = 0; i < bytes; i++)
            CHECK(in[i] == pattern(i, 31 * other + me + !accepts));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    free(out);
    free(in);
}

static void collectives(MPI_Comm inter)
{
    int me, own, others, value, sum, all[64];
    OK(MPI_Comm_rank(inter, &me));
    OK(MPI_Comm_size(inter, &own));
    OK(MPI_Comm_remote_size(inter, &others));
    OK(MPI_Barrier(inter));
    value = accepts ? 100 + me : 200 + me;
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter));
    CHECK(sum == others * (accepts ? 200 : 100) + others * (others - 1) / 2);
    OK(MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, inter));
    for (int r = 0; r < others; r++)
        CHECK(all[r] == (accepts ? 200 : 100) + r);
    value = accepts && me == own - 1 ? 4711 : 0;
    OK(MPI_Bcast(&value, 1, MPI_INT, accepts ? (me == own - 1 ? MPI_ROOT : MPI_PROC_NULL) : others - 1, inter));
    CHECK(accepts || value == 4711);
}

/* One communicator of all, and what can be made of that. */
static void merged(MPI_Comm inter)
{
    MPI_Comm all, half, again, shared;
    int me, me_there, n, sum, one = 1, own, others, flag;
    OK(MPI_Comm_rank(inter, &me));
    OK(MPI_Comm_size(inter, &own));
    OK(MPI_Comm_remote_size(inter, &others));
    OK(MPI_Intercomm_merge(inter, !accepts, &all));
    OK(MPI_Comm_rank(all, &me_there));
    OK(MPI_Comm_size(all, &n));
    CHECK(n == own + others && me_there == (accepts ? me : others + me));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all));
    CHECK(sum == n);
    unsigned char *bytes = malloc(n * 3000), *mine = malloc(3000);
    fill(mine, 3000, me_there);
    OK(MPI_Allgather(mine, 3000, MPI_BYTE, bytes, 3000, MPI_BYTE, all));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 3000; i++)
            CHECK(bytes[r * 3000 + i] == pattern(i, r));
    free(bytes);
    free(mine);
    /* Ranks of both jobs in each half: contexts and numbers of both meet there. */
    OK(MPI_Comm_split(all, me_there % 2, -me_there, &half));
    OK(MPI_Comm_size(half, &flag));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half));
    CHECK(sum == flag && flag == n / 2 + (n % 2 && me_there % 2 == 0));
    OK(MPI_Comm_dup(half, &again));
    OK(MPI_Barrier(again));
    MPI_Group group, two;
    OK(MPI_Comm_group(all, &group));
    int ends[2] = {0, n - 1};
    OK(MPI_Group_incl(group, 2, ends, &two));
    MPI_Comm pair;
    if (me_there == 0 || me_there == n - 1) {
        OK(MPI_Comm_create_group(all, two, 9, &pair));
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, pair));
        CHECK(sum == 2);
        OK(MPI_Comm_free(&pair));
    }
    MPI_Comm back;
    MPI_Comm world_dup;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &world_dup));
    OK(MPI_Intercomm_create(world_dup, 0, all, accepts ? own : 0, 77, &back));
    traffic(back, 1000);
    OK(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, shared));
    CHECK(sum <= own);
    OK(MPI_Comm_free(&shared));
    OK(MPI_Comm_free(&back));
    OK(MPI_Comm_free(&world_dup));
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&two));
    OK(MPI_Comm_free(&again));
    OK(MPI_Comm_free(&half));
    OK(MPI_Comm_free(&all));
}

/* This job's own communicators are what they were. */
static void own_world(int seed)
{
    int sum, mine = rank + seed;
    unsigned char big[100000];
    OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * seed + size * (size - 1) / 2);
    if (size > 1) {
        int to = (rank + 1) % size, from = (rank + size - 1) % size;
        unsigned char other[100000];
        fill(big, sizeof big, rank + accepts);
        OK(MPI_Sendrecv(big, sizeof big, MPI_BYTE, to, 3, other, sizeof other, MPI_BYTE, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (size_t i = 0; i < sizeof other; i++)
            CHECK(other[i] == pattern(i, from + accepts));
    }
}

static void talk(void)
{
    /* Communicators of either job that have the same numbers as the other's. */
    MPI_Comm before[3], after, inter = meet(MPI_COMM_WORLD, size - 1, 1);
    for (int i = 0; i < 3; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &before[i]));
    int flag, others;
    OK(MPI_Comm_test_inter(inter, &flag));
    OK(MPI_Comm_remote_size(inter, &others));
    CHECK(flag && others > 0);
    for (int bytes = 0; bytes <= 3000000; bytes = bytes * 12 + 1)
        traffic(inter, bytes);
    /* Any source, on the job's world and on the intercommunicator at once. */
    int out = 1000 * accepts + rank, in = -1, near = -1, meets = rank < others;
    MPI_Request requests[4];
    OK(MPI_Irecv(&near, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Irecv(&in, 1, MPI_INT, meets ? MPI_ANY_SOURCE : MPI_PROC_NULL, 8, inter, &requests[1]));
    OK(MPI_Isend(&out, 1, MPI_INT, (rank + 1) % size, 8, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Isend(&out, 1, MPI_INT, meets ? rank : MPI_PROC_NULL, 8, inter, &requests[3]));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    CHECK(near == 1000 * accepts + (rank + size - 1) % size && (!meets || in == 1000 * !accepts + rank));
    collectives(inter);
    merged(inter);
    OK(MPI_Comm_dup(inter, &after));
    collectives(after);
    for (int i = 0; i < 3; i++) {
        int sum, one = 1;
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, before[i]));
        CHECK(sum == size);
        OK(MPI_Comm_free(&before[i]));
    }
    own_world(7);
    OK(MPI_Comm_disconnect(&after));
    OK(MPI_Comm_disconnect(&inter));
    CHECK(inter == MPI_COMM_NULL);
    own_world(8);
}

static void twice(void)
{
    MPI_Comm one = meet(MPI_COMM_WORLD, 0, 1), other = meet(MPI_COMM_WORLD, 0, 2), third;
    MPI_Group first, second, all;
    MPI_Comm merged_comm;
    int result, others, flag;
    OK(MPI_Comm_remote_group(one, &first));
    OK(MPI_Comm_remote_group(other, &second));
    OK(MPI_Group_compare(first, second, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Comm_compare(one, other, &flag));
    CHECK(flag == MPI_CONGRUENT);
    OK(MPI_Comm_remote_size(one, &others));
    OK(MPI_Intercomm_merge(other, !accepts, &merged_comm));
    OK(MPI_Comm_group(merged_comm, &all));
    for (int r = 0; r < others; r++) {
        int there;
        OK(MPI_Group_translate_ranks(first, 1, &r, all, &there));
        CHECK(there == (accepts ? size + r : r));
    }
    traffic(one, 70000);
    traffic(other, 70000);
    OK(MPI_Comm_disconnect(&one));
    OK(MPI_Comm_free(&merged_comm));
    OK(MPI_Comm_disconnect(&other));
    /* Once more, after all have parted. */
    third = meet(MPI_COMM_WORLD, 0, 3);
    OK(MPI_Comm_remote_group(third, &second));
    OK(MPI_Group_compare(first, second, &result));
    CHECK(result == MPI_IDENT);
    traffic(third, 100);
    OK(MPI_Comm_disconnect(&third));
    OK(MPI_Group_free(&first));
    OK(MPI_Group_free(&second));
    OK(MPI_Group_free(&all));
}

/* The side that connects ends; the other one goes on, and neither waits for the other. */
static void leave(void)
{
    MPI_Comm inter = meet(MPI_COMM_WORLD, 0, 1);
    traffic(inter, 10);
    OK(MPI_Comm_disconnect(&inter));
    if (accepts) {
        usleep(1500000);
        for (int i = 0; i < 20; i++)
            own_world(i);
    } else if (rank == 0) {
        printf("left\n");
        fflush(stdout);
    }
}

/* A rank of the side that connects is killed when nothing is under way any more; all of the side that accepts get the error of a process that has failed.
 */
static void die(void)
{
    MPI_Comm inter = meet(MPI_COMM_WORLD, 0, 1);
    int value = 0, code, class;
    traffic(inter, 10);
    if (!accepts) {
        int others;
        OK(MPI_Comm_remote_size(inter, &others));
        for (int r = 0; r < others && rank == 0; r++)
            OK(MPI_Recv(&value, 1, MPI_INT, r, 98, inter, MPI_STATUS_IGNORE));
        usleep(1500000);
        if (rank == 0)
            raise(SIGKILL);
        pause();
    }
    OK(MPI_Send(&value, 1, MPI_INT, 0, 98, inter));
    code = MPI_Recv(&value, 1, MPI_INT, 0, 99, inter, MPI_STATUS_IGNORE);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_PROC_ABORTED);
    own_world(3);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    CHECK(argc > 3);
    accepts = strcmp(argv[1], "accept") == 0;
    file = argv[2];
    void (*deeds[])(void) = {talk, twice, leave, die};
    const char *names[] = {"talk", "twice", "leave", "die"};
    for (int i = 0; i < 4; i++)
        if (strcmp(argv[3], names[i]) == 0)
            deeds[i]();
    return end();
}
