/* Parents and the workers that they have spawned speak with each other until one of them is killed (killed.py). */
#include "../programs-c/world.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int child = argc > 1, own, others, sum, one = 1;
    MPI_Comm inter, all;
    char *arguments[] = {"child", NULL};
    if (child)
        OK(MPI_Comm_get_parent(&inter));
    else
        OK(MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    OK(MPI_Comm_size(inter, &own));
    OK(MPI_Comm_remote_size(inter, &others));
    OK(MPI_Intercomm_merge(inter, child, &all));
    static char out[200000], in[200000];
    for (;;) {
        int me, n;
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
        CHECK(sum == others);
        OK(MPI_Comm_rank(all, &me));
        OK(MPI_Comm_size(all, &n));
        CHECK(n == own + others);
        OK(MPI_Sendrecv(out, sizeof out, MPI_BYTE, (me + 1) % n, 1, in, sizeof in, MPI_BYTE, (me + n - 1) % n, 1, all, MPI_STATUS_IGNORE));
    }
}
