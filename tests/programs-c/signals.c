/* Signals of the program go to the program's threads: those that the library starts block all of them, also a signal to the process that the program's own
 * threads have blocked and wait for.
 * ranks: 1 2
 * cflags: -pthread
 * timeout: 60
 */
#define _GNU_SOURCE
#include "world.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int handled, by_others, waited;

static pid_t self(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void note(int signal)
{
    (void)signal;
    atomic_fetch_add(self() == getpid() ? &handled : &by_others, 1);
}

enum { SIGNALS = 200 };

/* What programs with a thread for their signals do. */
static void *wait_for_them(void *set)
{
    while (atomic_load(&waited) < SIGNALS) {
        int got = 0;
        CHECK(sigwait(set, &got) == 0 && got == SIGUSR1);
        atomic_fetch_add(&waited, 1);
    }
    return NULL;
}

/* The threads of this process that do not block `signal`, but for the caller. */
static int open_threads(int signal, char *names, size_t bytes)
{
    DIR *tasks = opendir("/proc/self/task");
    int open = 0;
    CHECK(tasks != NULL);
    names[0] = 0;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], line[300], name[100] = "";
        unsigned long long blocked = 0;
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == self())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        while (fgets(line, sizeof line, file)) {
            sscanf(line, "Name: %99s", name);
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        fclose(file);
        if (!(blocked >> (signal - 1) & 1)) {
            open++;
            snprintf(names + strlen(names), bytes - strlen(names), " %s", name);
        }
    }
    closedir(tasks);
    return open;
}

int main(int argc, char **argv)
{
    char names[1000];
    static unsigned char out[4 << 20], in[4 << 20];
    begin_threaded(&argc, &argv, MPI_THREAD_MULTIPLE);
    /* Long messages start the thread that helps with copies, where there is one. */
    int other = (rank + 1) % size;
    MPI_Request requests[2];
    for (int i = 0; i < 5; i++) {
        OK(MPI_Irecv(in, sizeof in, MPI_BYTE, other, 1, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(out, sizeof out, MPI_BYTE, other, 1, MPI_COMM_WORLD, &requests[1]));
        nap_ms(2);
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    }
    if (open_threads(SIGUSR1, names, sizeof names) > 0) {
        fprintf(stderr, "threads that take signals:%s\n", names);
        exit(99);
    }
    /* A handler runs in the program's only thread. */
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    for (int i = 0; i < SIGNALS; i++) {
        int before = handled + by_others;
        kill(getpid(), SIGUSR2);
        while (handled + by_others == before)
            nap_ms(0);
    }
    CHECK(by_others == 0 && handled == SIGNALS);
    /* Blocked everywhere in the program, a signal is for whoever waits for it; its default would end the process. */
    sigset_t set;
    pthread_t thread;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    pthread_create(&thread, NULL, wait_for_them, &set);
    for (int i = 0; i < SIGNALS; i++) {
        kill(getpid(), SIGUSR1);
        while (waited <= i)
            nap_ms(0);
    }
    pthread_join(thread, NULL);
    return end();
}
