/* own_session PROGRAM ARGUMENT...: runs the program in a session of its own, and so, where the kernel groups processes by session
 * (sched_autogroup), with a share of the cores of its own. Hydra starts ranks so, other launchers do not; through this all libraries' ranks
 * get the same share on a machine that does other things beside. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status;
    if (argc < 2) {
        fprintf(stderr, "usage: own_session PROGRAM ARGUMENT...\n");
        return 2;
    }
    /* The leader of a group of processes cannot leave it, so that its child has to. */
    if (getsid(0) != getpid() && setsid() < 0) {
        pid_t child = fork();
        if (child < 0) {
            perror("own_session: fork");
            return 1;
        }
        if (child > 0) {
            if (waitpid(child, &status, 0) < 0)
                return 1;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        setsid();
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
