/* What the overlap programs share: a clock that both ranks read, computing of a chosen length, and the library's counters.
 *
 * Computing is arithmetic in registers, counted in iterations, never a loop that watches the clock: whoever takes the core
 * for a copy makes it longer, and that is seen. With compute=device it is sleep until a deadline instead, as a program
 * sleeps that waits for an accelerator: the core is free.
 */
#ifndef WORK_H
#define WORK_H

#define _GNU_SOURCE
#include "../programs/measure.h"
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

enum { TAG_DATA = 1, TAG_GO = 2, TAG_DONE = 3, LIST_MAX = 64 };

/* Microseconds on the clock that all processes of a machine share. */
static inline double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static inline void spin_until(double deadline_us)
{
    while (now_us() < deadline_us)
        ;
}

/* ---- arguments: name=value, in any order */

static inline const char *argument(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
            return argv[i] + length + 1;
    return otherwise;
}

static inline double number(int argc, char **argv, const char *name, double otherwise)
{
    const char *text = argument(argc, argv, name, NULL);
    return text ? atof(text) : otherwise;
}

/* Numbers between commas; how many. */
static inline int numbers(int argc, char **argv, const char *name, const char *otherwise, double *list)
{
    const char *text = argument(argc, argv, name, otherwise);
    int count = 0;
    while (*text && count < LIST_MAX) {
        char *end;
        list[count] = strtod(text, &end);
        if (end == text)
            break;
        count++;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* ---- computing */

struct computing {
    int device;     /* sleeps until a deadline instead of computing */
    double work_ns; /* length of one iteration */
};

static volatile uint64_t work_result;

static inline void work(uint64_t iterations)
{
    uint64_t state = work_result;
    for (uint64_t i = 0; i < iterations; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(state));
    }
    work_result = state;
}

/* Computes as long as `length_us` microseconds on a core that is left alone. */
static inline void compute(const struct computing *how, double length_us)
{
    if (length_us <= 0)
        return;
    if (!how->device) {
        work((uint64_t)(length_us * 1e3 / how->work_ns));
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(length_us * 1e3) % 1000000000;
    until.tv_sec += (time_t)(length_us * 1e-6) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

/* The length of an iteration while every rank computes: median of the tries, mean of the ranks; 0 in the arguments asks for
 * it. Called by all ranks. */
static inline struct computing computing_argument(int argc, char **argv)
{
    enum { TRIES = 31, ITERATIONS = 200000 };
    struct computing how = {strcmp(argument(argc, argv, "compute", "cpu"), "device") == 0,
                            number(argc, argv, "work_ns", 0)};
    double samples[TRIES], sum;
    prctl(PR_SET_TIMERSLACK, 1L); /* nanoseconds; 0 would mean the default of 50 microseconds */
    if (how.work_ns > 0)
        return how;
    for (int try = 0; try < TRIES; try++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now_us();
        work(ITERATIONS);
        samples[try] = (now_us() - start) * 1e3 / ITERATIONS;
    }
    qsort(samples, TRIES, sizeof *samples, compare_doubles);
    MPI_Allreduce(&samples[TRIES / 2], &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    how.work_ns = sum / world_size();
    return how;
}

static inline double median(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof *samples, compare_doubles);
    return samples[count / 2];
}

/* The lower quartile: what takes long because other programs wanted the cores stays out of it. */
static inline double quartile(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof *samples, compare_doubles);
    return samples[count / 4];
}

/* ---- the library's counters, where it has them */

enum { COUNTERS = 6 };
static const char *const COUNTER_NAMES[COUNTERS] = {"rtr_sent",         "rtr_used",      "rtr_crossed",
                                                    "rtr_mispredicted", "rtr_wasted_bytes", "bytes_received"};
static MPI_T_pvar_session counter_session;
static MPI_T_pvar_handle counter_handles[COUNTERS];
static int counter_bytes[COUNTERS]; /* 0 where the library has no such counter */

struct counters {
    double values[COUNTERS];
};

/* Opens the session once; whether there is one. Called after MPI_Init. */
static inline int counter_session_open(void)
{
    static int is_open;
    int provided;
    if (!is_open)
        is_open = MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS && MPI_T_pvar_session_create(&counter_session) == MPI_SUCCESS;
    return is_open;
}

/* Finds a variable of whole numbers by its name and starts it; the bytes of its number, 0 where the library has no such variable. */
static inline int counter_open(const char *wanted, MPI_T_pvar_handle *handle)
{
    int total = 0;
    if (!counter_session_open() || MPI_T_pvar_get_num(&total) != MPI_SUCCESS)
        return 0;
    for (int index = 0; index < total; index++) {
        char name[128], text[4];
        int name_length = sizeof name, text_length = sizeof text, verbosity, class, bind, readonly, continuous, atomic, bytes, count;
        MPI_Datatype type;
        MPI_T_enum names;
        if (MPI_T_pvar_get_info(index, name, &name_length, &verbosity, &class, &type, &names, text, &text_length, &bind,
                                &readonly, &continuous, &atomic) != MPI_SUCCESS ||
            strcmp(name, wanted) != 0 || bind != MPI_T_BIND_NO_OBJECT || type == MPI_DOUBLE)
            continue;
        MPI_Type_size(type, &bytes);
        if ((bytes == 4 || bytes == 8) && MPI_T_pvar_handle_alloc(counter_session, index, NULL, handle, &count) == MPI_SUCCESS &&
            count == 1 && (continuous || MPI_T_pvar_start(counter_session, *handle) == MPI_SUCCESS))
            return bytes;
    }
    return 0;
}

static inline double counter_value(MPI_T_pvar_handle handle, int bytes)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    if (bytes == 8 && MPI_T_pvar_read(counter_session, handle, &wide) == MPI_SUCCESS)
        return (double)wide;
    if (bytes == 4 && MPI_T_pvar_read(counter_session, handle, &narrow) == MPI_SUCCESS)
        return narrow;
    return 0;
}

/* Finds the counters by their names and starts them. Called after MPI_Init. */
static inline void counters_start(void)
{
    for (int i = 0; i < COUNTERS; i++)
        counter_bytes[i] = counter_open(COUNTER_NAMES[i], &counter_handles[i]);
}

static inline struct counters counters_read(void)
{
    struct counters now;
    for (int i = 0; i < COUNTERS; i++)
        now.values[i] = counter_value(counter_handles[i], counter_bytes[i]);
    return now;
}

/* Ends a JSON object that rank 0 has begun, with what all ranks counted since `before` as its last members. Called by all ranks. */
static inline void record_end(struct counters before)
{
    struct counters now = counters_read(), sum;
    for (int i = 0; i < COUNTERS; i++)
        now.values[i] -= before.values[i];
    MPI_Reduce(now.values, sum.values, COUNTERS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    for (int i = 0; i < COUNTERS && world_rank() == 0; i++)
        if (counter_bytes[i])
            printf(", \"%s\": %.0f", COUNTER_NAMES[i], sum.values[i]);
    if (world_rank() == 0) {
        printf("}\n");
        fflush(stdout);
    }
}

#endif
