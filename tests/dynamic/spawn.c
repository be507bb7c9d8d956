/* MPI_Comm_spawn and MPI_Comm_spawn_multiple: 1 to 4 processes, their arguments, errors of a failed start, and processes that live on by themselves.
 * ranks: 1 2 3
 * timeout: 120
 */
#include "../programs-c/world.h"

#include <unistd.h>

/* What parents and children say to each other. */
static void talk(MPI_Comm inter, int child)
{
    int own, others, sum, one = 1, me, flag;
    OK(MPI_Comm_test_inter(inter, &flag));
    OK(MPI_Comm_size(inter, &own));
    OK(MPI_Comm_rank(inter, &me));
    OK(MPI_Comm_remote_size(inter, &others));
    CHECK(flag);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    CHECK(sum == others);
    unsigned char out[50000], in[50000];
    if (me < others) {
        fill(out, sizeof out, me + child);
        OK(MPI_Sendrecv(out, sizeof out, MPI_BYTE, me, 3, in, sizeof in, MPI_BYTE, me, 3, inter, MPI_STATUS_IGNORE));
        for (size_t i = 0; i < sizeof in; i++)
            CHECK(in[i] == pattern(i, me + !child));
    }
    MPI_Comm all;
    OK(MPI_Intercomm_merge(inter, child, &all));
    OK(MPI_Comm_rank(all, &flag));
    CHECK(flag == (child ? others + me : me));
    OK(MPI_Barrier(all));
    OK(MPI_Comm_free(&all));
}

static int be_child(int argc, char **argv)
{
    MPI_Comm parent, none;
    int *appnum, flag;
    OK(MPI_Comm_get_parent(&parent));
    CHECK(parent != MPI_COMM_NULL && argc >= 4);
    char name[MPI_MAX_OBJECT_NAME];
    OK(MPI_Comm_get_name(parent, name, &flag));
    CHECK(strcmp(name, "MPI_COMM_PARENT") == 0);
    CHECK(atoi(argv[2]) == size);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &flag));
    if (strcmp(argv[3], "several") == 0)
        CHECK(flag && *appnum == (rank > 0) && strcmp(argv[4], rank > 0 ? "two words" : "") == 0 && argc == 5);
    else
        CHECK(flag && *appnum == 0);
    talk(parent, 1);
    OK(MPI_Comm_disconnect(&parent));
    OK(MPI_Comm_get_parent(&none));
    CHECK(none == MPI_COMM_NULL);
    if (strcmp(argv[3], "lives") == 0)
        usleep(300000);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return end();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return be_child(argc, argv);
    MPI_Comm inter, parent;
    int codes[8];
    OK(MPI_Comm_get_parent(&parent));
    CHECK(parent == MPI_COMM_NULL);
    for (int n = 1; n <= 4; n++) {
        char number[8];
        snprintf(number, sizeof number, "%d", n);
        char *words[] = {"child", number, n == 4 ? "lives" : "plain", NULL};
        memset(codes, 0x11, sizeof codes);
        OK(MPI_Comm_spawn(argv[0], words, n, MPI_INFO_NULL, size - 1, MPI_COMM_WORLD, &inter, codes));
        for (int i = 0; i < n; i++)
            CHECK(codes[i] == MPI_SUCCESS);
        talk(inter, 0);
        OK(MPI_Comm_disconnect(&inter));
    }
    char *commands[] = {argv[0], argv[0]}, *first[] = {"child", "3", "several", "", NULL}, *second[] = {"child", "3", "several", "two words", NULL};
    char **both[] = {first, second};
    int counts[] = {1, 2};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    OK(MPI_Comm_spawn_multiple(2, commands, both, counts, infos, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    talk(inter, 0);
    OK(MPI_Comm_disconnect(&inter));
    /* From one process alone. */
    char *alone[] = {"child", "1", "plain", NULL};
    OK(MPI_Comm_spawn(argv[0], alone, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE));
    talk(inter, 0);
    OK(MPI_Comm_disconnect(&inter));
    /* What cannot be started; and what ends before MPI_Init. */
    memset(codes, 0, sizeof codes);
    FAILS(MPI_ERR_SPAWN, MPI_Comm_spawn("./no such program", MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes));
    CHECK(rank != 0 || (codes[0] == MPI_ERR_SPAWN && codes[1] == MPI_ERR_SPAWN));
    FAILS(MPI_ERR_SPAWN, MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 0, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "host", "no.such.host.invalid"));
    FAILS(MPI_ERR_SPAWN, MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, info, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    OK(MPI_Info_delete(info, "host"));
    OK(MPI_Info_set(info, "wdir", "/no/such/folder"));
    FAILS(MPI_ERR_SPAWN, MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, info, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    OK(MPI_Info_free(&info));
    return end();
}
