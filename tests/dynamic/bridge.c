/* MPI_Intercomm_create among processes of which only the leaders have met: one rank spawns two processes, and then all of both jobs are connected. They merge,
 * and the merged group spawns one more.
 * ranks: 1 2 3
 * timeout: 120
 */
#include "../programs-c/world.h"

/* Everyone tells everyone of the other group a number, and all agree on a sum. */
static void talk(MPI_Comm inter)
{
    int me, others, own, sum, one = 1;
    OK(MPI_Comm_rank(inter, &me));
    OK(MPI_Comm_size(inter, &own));
    OK(MPI_Comm_remote_size(inter, &others));
    for (int other = 0; other < others; other++) {
        int out = 100 * me + other, in = -1;
        OK(MPI_Sendrecv(&out, 1, MPI_INT, other, 4, &in, 1, MPI_INT, other, 4, inter, MPI_STATUS_IGNORE));
        CHECK(in == 100 * other + me);
    }
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    CHECK(sum == others);
}

/* The last process, which all of the merged group have spawned. */
static int last(MPI_Comm parents)
{
    talk(parents);
    OK(MPI_Comm_disconnect(&parents));
    return end();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int child = argc > 1 && strcmp(argv[1], "child") == 0, own, others, n, me;
    MPI_Comm first = MPI_COMM_NULL, inter, all, further;
    char *children[] = {"child", NULL}, *lasts[] = {"last", NULL};
    if (argc > 1)
        OK(MPI_Comm_get_parent(&first));
    if (argc > 1 && !child)
        return last(first);
    if (!child && rank == size - 1)
        OK(MPI_Comm_spawn(argv[0], children, 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &first, MPI_ERRCODES_IGNORE));
    OK(MPI_Intercomm_create(MPI_COMM_WORLD, child ? 0 : size - 1, first, 0, 17, &inter));
    OK(MPI_Comm_size(inter, &own));
    OK(MPI_Comm_remote_size(inter, &others));
    CHECK(own == size && (!child || own == 2) && (child || others == 2));
    talk(inter);
    OK(MPI_Intercomm_merge(inter, child, &all));
    OK(MPI_Comm_size(all, &n));
    OK(MPI_Comm_rank(all, &me));
    CHECK(n == own + others && me == (child ? others + rank : rank));
    OK(MPI_Comm_spawn(argv[0], lasts, 1, MPI_INFO_NULL, n - 1, all, &further, MPI_ERRCODES_IGNORE));
    talk(further);
    OK(MPI_Comm_disconnect(&further));
    OK(MPI_Comm_free(&all));
    OK(MPI_Comm_disconnect(&inter));
    if (first != MPI_COMM_NULL)
        OK(MPI_Comm_disconnect(&first));
    return end();
}
