/* Ports and names: those of one job that meet, what is no port, a port at which nobody accepts, and names that come and go.
 * ranks: 2 3
 */
#include "../programs-c/world.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME], service[64];
    MPI_Comm half, inter, none;
    MPI_Info info;
    int low = rank < size / 2, sum, one = 1, others;

    /* Names. */
    snprintf(service, sizeof service, "whimbrel test %d", (int)getppid());
    if (rank == 0) {
        OK(MPI_Open_port(MPI_INFO_NULL, port));
        FAILS(MPI_ERR_NAME, MPI_Lookup_name(service, MPI_INFO_NULL, found));
        FAILS(MPI_ERR_SERVICE, MPI_Unpublish_name(service, MPI_INFO_NULL, port));
        OK(MPI_Publish_name(service, MPI_INFO_NULL, port));
        FAILS(MPI_ERR_SERVICE, MPI_Publish_name(service, MPI_INFO_NULL, port));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Lookup_name(service, MPI_INFO_NULL, found));
    if (rank == 0)
        CHECK(strcmp(found, port) == 0);

    /* Two halves of one world: their processes are the same as before. */
    OK(MPI_Comm_split(MPI_COMM_WORLD, low, 0, &half));
    if (low)
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter));
    else
        OK(MPI_Comm_connect(found, MPI_INFO_NULL, 0, half, &inter));
    OK(MPI_Comm_remote_size(inter, &others));
    CHECK(others == (low ? size - size / 2 : size / 2));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    CHECK(sum == others);
    MPI_Group world, theirs;
    int first = 0, there;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Comm_remote_group(inter, &theirs));
    OK(MPI_Group_translate_ranks(theirs, 1, &first, world, &there));
    CHECK(there == (low ? size / 2 : 0));
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&theirs));
    OK(MPI_Comm_disconnect(&inter));

    /* What is no port, on all ranks the same; and a port that has gone. */
    OK(MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_PORT, MPI_Comm_connect("no port", MPI_INFO_NULL, 0, half, &none));
    FAILS(MPI_ERR_PORT, MPI_Comm_accept("no port", MPI_INFO_NULL, 0, half, &none));
    FAILS(MPI_ERR_ROOT, MPI_Comm_accept(port, MPI_INFO_NULL, size, half, &none));
    FAILS(MPI_ERR_PORT, MPI_Close_port("no port"));

    /* Nobody accepts: in time. */
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "timeout", "1"));
    if (!low)
        FAILS(MPI_ERR_PORT, MPI_Comm_connect(found, info, 0, half, &none));
    OK(MPI_Info_set(info, "timeout", "soon"));
    FAILS(MPI_ERR_INFO_VALUE, MPI_Comm_connect(found, info, 0, half, &none));
    OK(MPI_Info_free(&info));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        OK(MPI_Unpublish_name(service, MPI_INFO_NULL, port));
        OK(MPI_Close_port(port));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    FAILS(MPI_ERR_PORT, MPI_Comm_connect(found, MPI_INFO_NULL, 0, half, &none));
    OK(MPI_Comm_free(&half));
    return end();
}
