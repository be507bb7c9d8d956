/* What the whole-program tests share: the world, errors returned, and contents that tell where they came from. */
#ifndef WORLD_H
#define WORLD_H

#include "check.h"

#include <stdint.h>
#include <time.h>

static int rank, size;

static inline void begin_threaded(int *argc, char ***argv, int required)
{
    int provided;
    OK(MPI_Init_thread(argc, argv, required, &provided));
    CHECK(provided >= required);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
}

static inline void begin(int *argc, char ***argv)
{
    begin_threaded(argc, argv, MPI_THREAD_SINGLE);
}

static inline int end(void)
{
    OK(MPI_Finalize());
    return 0;
}

static inline unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)(i * 7 + (i >> 8) * 13 + (i >> 16) * 17 + seed * 29 + 1);
}

static inline void fill(void *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)buffer)[i] = pattern(i, seed);
}

static inline int holds(const void *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)buffer)[i] != pattern(i, seed))
            return 0;
    return 1;
}

static inline int all_bytes(const void *buffer, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)buffer)[i] != (unsigned char)value)
            return 0;
    return 1;
}

static inline void *memory_of(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    CHECK(memory != NULL);
    return memory;
}

static inline void nap_ms(int milliseconds)
{
    struct timespec pause = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

static inline uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Around every size where a protocol may change: 0, and each power of two with its neighbours, up to `limit`. */
static inline int next_size(int bytes, int limit)
{
    if (bytes < 3)
        return bytes + 1;
    int power = 1;
    while (power * 2 <= bytes + 1)
        power *= 2;
    int next = bytes == power - 1 ? power : bytes == power ? power + 1 : power * 2 - 1;
    return next > limit ? -1 : next;
}

#define EACH_SIZE(bytes, limit) for (int bytes = 0; bytes >= 0; bytes = next_size(bytes, limit))

#endif
