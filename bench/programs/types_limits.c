/* What the machine allows for an exchange of every second block of BLOCK bytes, without MPI. Two processes, each on its core:
 *
 * - `exchange_own_BLOCK`: each packs its outgoing data into a buffer that stays in its own cache, and unpacks its incoming data from
 *   there. Nothing goes from one to the other: what is left to a library that packs is how it packs;
 * - `exchange_ring_BLOCK`: what is packed goes to the other through 256 KiB of shared memory for each way, with two counters, and nothing else.
 *
 * Sizes are bytes of data each way; times are per exchange, as in `types.c`.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 15, PIECE = 32 << 10, RING = 256 << 10, BYTES_MAX = 4 << 20, BATCH_BYTES = 8 << 20 };

static const size_t SIZES[] = {65536, 1 << 20, BYTES_MAX};
static const size_t BLOCKS[] = {8, 64, 512, 2048, 8192};

struct counter {
    _Alignas(128) _Atomic unsigned long value;
};

/* One side's: how far it has come in all, what it has put into its ring, and what it has taken from the other's. */
struct side {
    struct counter step, put, taken;
    _Alignas(4096) char ring[RING];
};

static struct side *own, *other;
static char *outgoing, *incoming, *scratch;

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static unsigned long look(struct counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_acquire);
}

static void advance(struct counter *counter, unsigned long by)
{
    atomic_store_explicit(&counter->value, atomic_load_explicit(&counter->value, memory_order_relaxed) + by, memory_order_release);
}

static void meet(void)
{
    advance(&own->step, 1);
    while (look(&other->step) < look(&own->step))
        ;
}

/* The length of a block is a constant in each of the loops. */
static inline __attribute__((always_inline)) void blocks(char *to, size_t to_step, const char *from, size_t from_step, size_t block, size_t count)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * to_step, from + i * from_step, block);
}

static void pack(size_t block, size_t at, char *to)
{
    const char *from = outgoing + 2 * at;
    switch (block) {
    case 8: blocks(to, 8, from, 16, 8, PIECE / 8); break;
    case 64: blocks(to, 64, from, 128, 64, PIECE / 64); break;
    default: blocks(to, block, from, 2 * block, block, PIECE / block);
    }
}

static void unpack(size_t block, size_t at, const char *from)
{
    char *to = incoming + 2 * at;
    switch (block) {
    case 8: blocks(to, 16, from, 8, 8, PIECE / 8); break;
    case 64: blocks(to, 128, from, 64, 64, PIECE / 64); break;
    default: blocks(to, 2 * block, from, block, block, PIECE / block);
    }
}

static void exchange_own(size_t block, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        pack(block, at, scratch);
        unpack(block, at, scratch);
    }
}

static void exchange_ring(size_t block, size_t bytes)
{
    size_t put = 0, taken = 0;
    while (put < bytes || taken < bytes) {
        if (put < bytes && look(&own->put) + PIECE - look(&other->taken) <= RING) {
            pack(block, put, own->ring + look(&own->put) % RING);
            put += PIECE;
            advance(&own->put, PIECE);
        }
        if (taken < bytes && look(&other->put) > look(&own->taken)) {
            unpack(block, taken, other->ring + look(&own->taken) % RING);
            taken += PIECE;
            advance(&own->taken, PIECE);
        }
    }
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void measure(const char *name, void (*exchange)(size_t, size_t), size_t block, size_t bytes, int reports)
{
    double samples_us[BATCHES];
    int count = (int)(BATCH_BYTES / bytes);

    exchange(block, bytes);
    for (int batch = 0; batch < BATCHES; batch++) {
        meet();
        double start = now_us();
        for (int i = 0; i < count; i++)
            exchange(block, bytes);
        meet();
        samples_us[batch] = (now_us() - start) / count;
    }
    qsort(samples_us, BATCHES, sizeof *samples_us, compare_doubles);
    if (reports)
        printf("{\"bench\": \"%s_%zu\", \"bytes\": %zu, \"median_us\": %.4f, \"best_us\": %.4f}\n", name, block, bytes,
               samples_us[BATCHES / 2], samples_us[0]);
}

static char *buffer_of(size_t bytes)
{
    char *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        exit(1);
    memset(buffer, 1, bytes);
    return buffer;
}

int main(void)
{
    cpu_set_t allowed, mine;
    int cores[2], found = 0;

    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed))
            cores[found++] = core;
    if (found < 2)
        return 0;
    struct side *sides = mmap(NULL, 2 * sizeof *sides, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sides == MAP_FAILED)
        return 1;
    memset(sides, 0, 2 * sizeof *sides);
    pid_t child = fork();
    if (child < 0)
        return 1;
    int me = child == 0;
    if (me)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    own = &sides[me];
    other = &sides[!me];
    CPU_ZERO(&mine);
    CPU_SET(cores[me], &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    outgoing = buffer_of(2 * (size_t)BYTES_MAX);
    incoming = buffer_of(2 * (size_t)BYTES_MAX);
    scratch = buffer_of(PIECE);
    for (size_t block = 0; block < sizeof BLOCKS / sizeof *BLOCKS; block++)
        for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; size++) {
            measure("exchange_own", exchange_own, BLOCKS[block], SIZES[size], !me);
            measure("exchange_ring", exchange_ring, BLOCKS[block], SIZES[size], !me);
        }
    if (me)
        _exit(0);
    waitpid(child, NULL, 0);
    return 0;
}
