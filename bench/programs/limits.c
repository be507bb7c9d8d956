/* What the machine allows, without MPI: no library can move a message faster than these.
 *
 * - one-way cache-line transfer: two threads pinned to two cores hand 8 bytes and a counter in one line to and fro; half of
 *   a round trip. Once in one line for both ways, where a core gets the line to read and to answer in it in a single move;
 *   and once in a line for each way, as in queues, where the writer must first take the line away from the polling reader.
 *   Each is the better of polling with and without `pause`;
 * - memcpy between two private buffers on one core;
 * - process_vm_readv from another process that holds still, on one core.
 *
 * With the argument `line`, only these: it is cheap, and the driver repeats it beside each latency run, because a
 * hypervisor may move the two cores between rounds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 31, ROUND_TRIPS = 5000, BYTES_MAX = 4 << 20 };

static const size_t SIZES[] = {4096, 65536, 262144, 1 << 20, BYTES_MAX};
enum { SIZES_COUNT = sizeof SIZES / sizeof *SIZES };

struct line {
    _Alignas(128) _Atomic unsigned long turn;
    volatile unsigned long payload;
};

static struct {
    struct line there, back;
    int each_way, pausing;
} shared;

static int cores[2];

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report(const char *name, size_t bytes, double *samples_us, int count)
{
    qsort(samples_us, (size_t)count, sizeof *samples_us, compare_doubles);
    printf("{\"bench\": \"%s\", \"bytes\": %zu, \"median_us\": %.4f, \"best_us\": %.4f}\n", name, bytes,
           samples_us[count / 2], samples_us[0]);
}

static inline __attribute__((always_inline)) void hand_over(struct line *line, unsigned long turn)
{
    line->payload = turn;
    atomic_store_explicit(&line->turn, turn, memory_order_release);
}

static inline __attribute__((always_inline)) void take(struct line *line, unsigned long turn, int pausing)
{
    while (atomic_load_explicit(&line->turn, memory_order_acquire) != turn)
        if (pausing)
            relax();
    if (line->payload != turn)
        abort();
}

static inline __attribute__((always_inline)) void answer_all(int each_way, int pausing)
{
    struct line *back = each_way ? &shared.back : &shared.there;
    for (unsigned long i = 0; i < (unsigned long)BATCHES * ROUND_TRIPS; i++) {
        take(&shared.there, 2 * i + 1, pausing);
        hand_over(back, 2 * i + 2);
    }
}

static inline __attribute__((always_inline)) void ask_all(double *samples_us, int each_way, int pausing)
{
    struct line *back = each_way ? &shared.back : &shared.there;
    unsigned long turn = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_us();
        for (int i = 0; i < ROUND_TRIPS; i++) {
            hand_over(&shared.there, ++turn);
            take(back, ++turn, pausing);
        }
        samples_us[batch] = (now_us() - start) / ROUND_TRIPS / 2;
    }
}

/* The flags are constants in the four loops, so that nothing but the transfer is in them. */
static void *answer(void *unused)
{
    (void)unused;
    pin(cores[1]);
    if (shared.each_way)
        shared.pausing ? answer_all(1, 1) : answer_all(1, 0);
    else
        shared.pausing ? answer_all(0, 1) : answer_all(0, 0);
    return NULL;
}

static void cache_line(const char *name, int each_way)
{
    double samples_us[2][BATCHES];
    for (int pausing = 0; pausing < 2; pausing++) {
        pthread_t thread;
        shared.there.turn = shared.back.turn = 0;
        shared.each_way = each_way;
        shared.pausing = pausing;
        pthread_create(&thread, NULL, answer, NULL);
        if (each_way)
            pausing ? ask_all(samples_us[1], 1, 1) : ask_all(samples_us[0], 1, 0);
        else
            pausing ? ask_all(samples_us[1], 0, 1) : ask_all(samples_us[0], 0, 0);
        pthread_join(thread, NULL);
        qsort(samples_us[pausing], BATCHES, sizeof **samples_us, compare_doubles);
    }
    report(name, 64, samples_us[samples_us[1][BATCHES / 2] < samples_us[0][BATCHES / 2]], BATCHES);
}

static int repetitions(size_t bytes)
{
    return (int)((16u << 20) / bytes) + 1;
}

static void copies(char *destination, const char *source)
{
    for (int size = 0; size < SIZES_COUNT; size++) {
        double samples_us[BATCHES];
        int repeat = repetitions(SIZES[size]);
        for (int batch = 0; batch < BATCHES; batch++) {
            double start = now_us();
            for (int i = 0; i < repeat; i++) {
                memcpy(destination, source, SIZES[size]);
                __asm__ volatile("" : : "r"(destination) : "memory");
            }
            samples_us[batch] = (now_us() - start) / repeat;
        }
        report("memcpy", SIZES[size], samples_us, BATCHES);
    }
}

static void remote_reads(char *destination, char *source)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(source, 2, BYTES_MAX); /* pages of its own, so that the parent reads another process's memory */
        pause();
        _exit(0);
    }
    struct timespec settle = {0, 50000000};
    nanosleep(&settle, NULL);
    for (int size = 0; size < SIZES_COUNT; size++) {
        double samples_us[BATCHES];
        int repeat = repetitions(SIZES[size]);
        for (int batch = 0; batch < BATCHES; batch++) {
            struct iovec local = {destination, SIZES[size]}, remote = {source, SIZES[size]};
            double start = now_us();
            for (int i = 0; i < repeat; i++)
                if (process_vm_readv(child, &local, 1, &remote, 1, 0) != (ssize_t)SIZES[size]) {
                    fprintf(stderr, "process_vm_readv: %s\n", strerror(errno));
                    goto out;
                }
            samples_us[batch] = (now_us() - start) / repeat;
        }
        report("process_vm_readv", SIZES[size], samples_us, BATCHES);
    }
out:
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    cpu_set_t allowed;
    int found = 0;

    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed))
            cores[found++] = core;
    pin(cores[0]);
    if (found == 2) {
        cache_line("cache_line", 0);
        cache_line("cache_line_each_way", 1);
    }
    if (argc > 1 && strcmp(argv[1], "line") == 0)
        return 0;
    char *source = mmap(NULL, BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *destination = mmap(NULL, BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (source == MAP_FAILED || destination == MAP_FAILED)
        return 1;
    memset(source, 1, BYTES_MAX);
    memset(destination, 1, BYTES_MAX);
    copies(destination, source);
    remote_reads(destination, source);
    return 0;
}
