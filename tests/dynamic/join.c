/* MPI_Comm_join of two processes without a launcher, over a pair of Unix sockets and over TCP, which both go on to use.
 * ranks: 1
 * launcher: none
 */
#include "../programs-c/world.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void talk(int fd, int first)
{
    MPI_Comm inter, all;
    int n, me, in = -1, out = 100 + first, sum;
    OK(MPI_Comm_join(fd, &inter));
    OK(MPI_Comm_remote_size(inter, &n));
    CHECK(n == 1);
    OK(MPI_Sendrecv(&out, 1, MPI_INT, 0, 1, &in, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE));
    CHECK(in == 100 + !first);
    OK(MPI_Intercomm_merge(inter, !first, &all));
    OK(MPI_Comm_rank(all, &me));
    OK(MPI_Comm_size(all, &n));
    CHECK(n == 2 && me == !first);
    OK(MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_SUM, all));
    CHECK(sum == 201);
    OK(MPI_Comm_free(&all));
    /* The socket is the program's again. */
    char word[8] = {0};
    CHECK(write(fd, first ? "first.." : "second.", 8) == 8 && read(fd, word, 8) == 8);
    CHECK(strcmp(word, first ? "second." : "first..") == 0);
    OK(MPI_Comm_disconnect(&inter));
}

int main(int argc, char **argv)
{
    int pair[2], tcp[2], listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    tcp[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(tcp[1], (struct sockaddr *)&address, sizeof address) == 0 && (tcp[0] = accept(listener, NULL, NULL)) >= 0);
    pid_t child = fork();
    CHECK(child >= 0);
    int first = child > 0;
    close(pair[first]);
    close(tcp[first]);
    begin(&argc, &argv);
    CHECK(size == 1);
    MPI_Comm none;
    FAILS(MPI_ERR_ARG, MPI_Comm_join(-1, &none));
    FAILS(MPI_ERR_ARG, MPI_Comm_join(12345, &none));
    talk(pair[!first], first);
    talk(tcp[!first], first);
    end();
    if (first) {
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}
