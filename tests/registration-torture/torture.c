/* Messages from and to memory that changes under its addresses: unmapped and mapped again, moved, dropped, truncated, attached, protected, split, forked,
 * freed and given out again, by this thread between messages and by another one while they fly. A library that keeps something of a buffer, such as its
 * registration with a device or with another process, and does not learn of the change, sends old bytes, or receives where nobody looks.
 *
 * A plain program of MPI and Linux, of no one library: torture [operations [seed [kind ...]]]. Rank 2k exchanges with rank 2k + 1. Operations are messages and
 * changes of memory, all ranks together. Prints how many there were and how many bytes were wrong; status 1 where any was. Kinds are those of the table
 * below; without any, all. */
#define _GNU_SOURCE
#include <mpi.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    PART_BYTES = 1 << 20,
    PARTS = 12,
    GUARD = 16,
    MESSAGE_MAX = 300 << 10,
    CHILDREN_MAX = 4,
    STACK_BYTES = 40 << 10
};

#define NEED(condition)                                                                                                              \
    do {                                                                                                                             \
        if (!(condition)) {                                                                                                          \
            fprintf(stderr, "torture: rank %d, line %d: %s: %s\n", rank, __LINE__, #condition, strerror(errno));                     \
            MPI_Abort(MPI_COMM_WORLD, 2);                                                                                            \
        }                                                                                                                            \
    } while (0)

static int rank, size;
static atomic_ulong messages, changes, wrong, forks;

/* A part of memory, of which one thread at a time has the lock; it is readable and writable whenever it is not locked. */
struct part {
    atomic_flag busy;
    unsigned char *start;
    /* What is mapped there from its first byte on, if that is a file; else -1. */
    int file;
    /* A child would see what is done there: written, or dropped by shortening a file, private mappings of which lose their pages, too. */
    int shared;
    /* Where it came from, which is how it is given back. */
    enum { MAPPED, ALLOCATED, OF_MPI } from;
};

static struct part parts[PARTS];

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 27;
    x *= 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static uint64_t draw(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15);
}

static unsigned long below(uint64_t *state, unsigned long n)
{
    return draw(state) % n;
}

/* --- what changes memory; each is given a part that nobody else has, and leaves it readable and writable */

static void *map_at(void *hint, size_t bytes, int flags, int file)
{
    void *at = mmap(hint, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    NEED(at != MAP_FAILED);
    return at;
}

static void forget_file(struct part *p)
{
    if (p->file >= 0)
        close(p->file);
    p->file = -1;
}

/* What is there goes. */
static void give_back(struct part *p)
{
    forget_file(p);
    if (p->from == ALLOCATED)
        free(p->start);
    else if (p->from == OF_MPI)
        MPI_Free_mem(p->start);
    else if (p->from == MAPPED)
        NEED(munmap(p->start, PART_BYTES) == 0);
    p->start = NULL;
    p->shared = 0;
}

/* Pages of this program's own again, at the same address where that is still free. */
static void take(struct part *p, void *hint)
{
    p->start = map_at(hint, PART_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    p->from = MAPPED;
}

static void be_mapped(struct part *p)
{
    if (p->from != MAPPED) {
        give_back(p);
        take(p, NULL);
    }
}

/* A few pages in the middle. */
static unsigned char *some(struct part *p, uint64_t *state, size_t *bytes)
{
    size_t pages = PART_BYTES / PAGE, first = below(state, pages), count = 1 + below(state, pages - first);
    *bytes = count * PAGE;
    return p->start + first * PAGE;
}

static void unmap(struct part *p, uint64_t *state)
{
    void *hint = p->from == MAPPED ? p->start : NULL;
    give_back(p);
    (void)state;
    take(p, hint);
}

static void map_over(struct part *p, uint64_t *state)
{
    size_t bytes;
    be_mapped(p);
    unsigned char *at = some(p, state, &bytes);
    map_at(at, bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
}

static void move(struct part *p, uint64_t *state)
{
    be_mapped(p);
    forget_file(p);
    p->shared = 0;
    /* One mapping, so that it can be moved. */
    map_at(p->start, PART_BYTES, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
    memset(p->start, 0x5a, PART_BYTES);
    unsigned char *old = p->start, *moved = mremap(old, PART_BYTES, 2 * PART_BYTES, MREMAP_MAYMOVE);
    NEED(moved != MAP_FAILED);
    if (moved != old && below(state, 2)) {
        /* The pages live on elsewhere for a while; at the old address there are others. */
        take(p, old);
        memset(moved, 0xa5, PART_BYTES);
        NEED(munmap(moved, 2 * PART_BYTES) == 0);
        return;
    }
    NEED(mremap(moved, 2 * PART_BYTES, PART_BYTES, 0) == moved);
    p->start = moved;
}

static void drop(struct part *p, uint64_t *state)
{
    size_t bytes;
    be_mapped(p);
    unsigned char *at = some(p, state, &bytes);
    NEED(madvise(at, bytes, MADV_DONTNEED) == 0);
}

static void lend(struct part *p, uint64_t *state)
{
    size_t bytes;
    be_mapped(p);
    unsigned char *at = some(p, state, &bytes);
    /* Not of pages of files. */
    if (madvise(at, bytes, MADV_FREE) != 0)
        NEED(errno == EINVAL);
}

static void map_file(struct part *p, uint64_t *state)
{
    give_back(p);
    int file = memfd_create("torture", 0);
    NEED(file >= 0 && ftruncate(file, PART_BYTES) == 0);
    p->shared = 1;
    p->start = map_at(NULL, PART_BYTES, below(state, 4) ? MAP_SHARED : MAP_PRIVATE, file);
    p->from = MAPPED;
    p->file = file;
}

static void truncate_file(struct part *p, uint64_t *state)
{
    if (p->file < 0)
        map_file(p, state);
    NEED(ftruncate(p->file, (off_t)below(state, PART_BYTES)) == 0 && ftruncate(p->file, PART_BYTES) == 0);
}

static void punch(struct part *p, uint64_t *state)
{
    size_t bytes;
    if (p->file < 0)
        map_file(p, state);
    unsigned char *at = some(p, state, &bytes);
    NEED(fallocate(p->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at - p->start, (off_t)bytes) == 0);
}

static void attach(struct part *p, uint64_t *state)
{
    size_t bytes = PART_BYTES / 2;
    be_mapped(p);
    int segment = shmget(IPC_PRIVATE, bytes, 0600);
    if (segment < 0 && (errno == ENOSPC || errno == ENOSYS))
        return;
    NEED(segment >= 0);
    unsigned char *at = p->start + (below(state, 2) ? bytes : 0);
    void *there = shmat(segment, at, SHM_REMAP);
    NEED(shmctl(segment, IPC_RMID, NULL) == 0 && there == at);
    p->shared = 1;
    memset(at, 0x33, bytes);
    if (below(state, 2)) {
        /* Over it, not after it: where it was, another thread could map something in between. */
        map_at(at, bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
    }
}

static void huge(struct part *p, uint64_t *state)
{
    size_t bytes;
    give_back(p);
    /* 2 MiB that begin at a multiple of that; the part is one half. */
    unsigned char *room = map_at(NULL, 4 << 20, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    unsigned char *at = (unsigned char *)(((uintptr_t)room + (2 << 20) - 1) & -(uintptr_t)(2 << 20));
    madvise(at, 2 << 20, MADV_HUGEPAGE);
    memset(at, 0x77, 2 << 20);
    /* The page is split, since the other half goes. */
    if (at > room)
        NEED(munmap(room, at - room) == 0);
    NEED(munmap(at + PART_BYTES, room + (4 << 20) - (at + PART_BYTES)) == 0);
    p->start = at;
    p->from = MAPPED;
    at = some(p, state, &bytes);
    NEED(madvise(at, bytes, MADV_DONTNEED) == 0);
}

static void protect(struct part *p, uint64_t *state)
{
    size_t bytes;
    be_mapped(p);
    unsigned char *at = some(p, state, &bytes);
    NEED(mprotect(at, bytes, below(state, 2) ? PROT_NONE : PROT_READ) == 0);
    NEED(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
}

static void allocate(struct part *p, uint64_t *state)
{
    give_back(p);
    /* Blocks of the allocator's different kinds come and go beside it. */
    void *beside = malloc(1 + below(state, 200 << 10));
    p->start = malloc(PART_BYTES);
    free(beside);
    NEED(p->start != NULL);
    if (below(state, 2)) {
        unsigned char *longer = realloc(p->start, 3 * PART_BYTES);
        NEED(longer != NULL);
        p->start = realloc(longer, PART_BYTES);
        NEED(p->start != NULL);
    }
    p->from = ALLOCATED;
}

static int threads_may_call;

static void of_mpi(struct part *p, uint64_t *state)
{
    (void)state;
    if (!threads_may_call)
        return;
    give_back(p);
    void *start;
    NEED(MPI_Alloc_mem(PART_BYTES, MPI_INFO_NULL, &start) == MPI_SUCCESS);
    p->start = start;
    p->from = OF_MPI;
    p->shared = 1;
}

/* --- children, which have the memory as it was and keep it so, whatever comes here */

static pid_t children[CHILDREN_MAX];

static int reap(int wait_for)
{
    int free_place = -1;
    for (int i = 0; i < CHILDREN_MAX; i++) {
        int status;
        if (children[i] > 0 && waitpid(children[i], &status, wait_for ? 0 : WNOHANG) == children[i]) {
            children[i] = 0;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fprintf(stderr, "torture: rank %d: a child ended with status %#x\n", rank, status);
                atomic_fetch_add(&wrong, 1);
            }
        }
        if (children[i] <= 0)
            free_place = i;
    }
    return free_place;
}

/* A child that writes where this process sends from and receives to, and sees its own bytes and no others. */
static void fork_off(unsigned char *at, size_t bytes, uint64_t *state)
{
    int place = reap(0);
    if (place < 0 || bytes == 0)
        return;
    unsigned char seen = at[bytes / 2], mark = (unsigned char)draw(state);
    useconds_t nap = (useconds_t)below(state, 2000);
    pid_t child = fork();
    if (child < 0)
        return;
    if (child == 0) {
        if (at[bytes / 2] != seen)
            _exit(1);
        for (size_t i = 0; i < bytes; i += i + PAGE < bytes ? PAGE : 1)
            at[i] = mark;
        usleep(nap);
        for (size_t i = 0; i < bytes; i += i + PAGE < bytes ? PAGE : 1)
            if (at[i] != mark)
                _exit(2);
        _exit(0);
    }
    children[place] = child;
    atomic_fetch_add(&forks, 1);
}

/* --- kinds of changes */

static const struct kind {
    const char *name;
    void (*change)(struct part *, uint64_t *);
} kinds[] = {
    {"munmap", unmap},     {"mmap", map_over},       {"mremap", move},          {"dontneed", drop}, {"free", lend},
    {"file", map_file},    {"ftruncate", truncate_file}, {"punch", punch},      {"shmat", attach},  {"huge", huge},
    {"mprotect", protect}, {"malloc", allocate},     {"MPI_Alloc_mem", of_mpi},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int wanted[KINDS], wanted_count, with_fork = 1, with_stacks = 1, with_heap = 1;

/* The allocator does not expect that another thread moves the heap's end while it does. */
static pthread_mutex_t heap_end = PTHREAD_MUTEX_INITIALIZER;

static void change(struct part *p, uint64_t *state)
{
    if (wanted_count == 0)
        return;
    pthread_mutex_lock(&heap_end);
    kinds[wanted[below(state, wanted_count)]].change(p, state);
    pthread_mutex_unlock(&heap_end);
    atomic_fetch_add(&changes, 1);
}

static int try_lock(struct part *p)
{
    return !atomic_flag_test_and_set_explicit(&p->busy, memory_order_acquire);
}

static void unlock(struct part *p)
{
    atomic_flag_clear_explicit(&p->busy, memory_order_release);
}

/* A part that nobody has. */
static struct part *any(uint64_t *state)
{
    for (;;) {
        struct part *p = &parts[below(state, PARTS)];
        if (try_lock(p))
            return p;
        sched_yield();
    }
}

static atomic_int stop;

/* Changes what does not fly, while other memory flies. */
static void *meddle(void *seed)
{
    uint64_t state = mix((uintptr_t)seed);
    while (!atomic_load(&stop)) {
        struct part *p = any(&state);
        change(p, &state);
        memset(p->start + below(&state, PART_BYTES / 2), (int)draw(&state), MESSAGE_MAX);
        unlock(p);
        do
            usleep(100);
        while (atomic_load(&changes) > 2 * atomic_load(&messages) && !atomic_load(&stop));
    }
    return NULL;
}

/* --- messages */

static unsigned char expected(uint64_t key, size_t i)
{
    return (unsigned char)((key + i * 0x9e3779b97f4a7c15) >> 56);
}

static void fill(unsigned char *at, size_t bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = expected(key, i);
}

static void count_wrong(const unsigned char *at, size_t bytes, uint64_t key)
{
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != expected(key, i) && bad++ == 0)
            first = i;
    if (bad > 0 && atomic_fetch_add(&wrong, bad) == 0)
        fprintf(stderr, "torture: rank %d, message %lu: %zu of %zu bytes are wrong, from %zu on\n", rank, atomic_load(&messages), bad, bytes, first);
}

/* One message each way between this rank and `peer`: what both must agree on comes from `common`, the rest from `own`. */
static void exchange(unsigned char *out, unsigned char *in, size_t bytes, int private, int peer, uint64_t key, uint64_t *common, uint64_t *own)
{
    int how = (int)below(common, 5), tag = (int)below(common, 100);
    uint64_t mine = key + (uint64_t)rank * 977, theirs = key + (uint64_t)peer * 977;
    fill(out, bytes, mine);
    memset(in - GUARD, 0xee, GUARD);
    memset(in, 0, bytes < 64 ? bytes : 64);
    memset(in + bytes, 0xee, GUARD);
    if (with_fork && private && below(own, 60) == 0)
        fork_off(below(own, 2) ? in : out, bytes, own);
    MPI_Request requests[2];
    int count = (int)bytes;
    switch (how) {
    case 0:
        MPI_Sendrecv(out, count, MPI_BYTE, peer, tag, in, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    case 1:
        if (rank < peer) {
            MPI_Send(out, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
            MPI_Recv(in, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
        }
        break;
    case 2:
        /* A send whose buffer is written as soon as it may be. */
        MPI_Irecv(in, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[1]);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        memset(out, 0xdd, bytes);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        break;
    case 3:
        MPI_Issend(out, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[1]);
        if (below(own, 8) == 0)
            usleep((useconds_t)below(own, 200));
        MPI_Irecv(in, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[0]);
        if (below(own, 2)) {
            /* Other memory changes while these fly. */
            struct part *p = any(own);
            change(p, own);
            unlock(p);
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        break;
    default:
        MPI_Send_init(out, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[1]);
        MPI_Recv_init(in, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[0]);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
    }
    count_wrong(in, bytes, theirs);
    for (size_t i = 0; i < GUARD; i++)
        if (in[-1 - (ptrdiff_t)i] != 0xee || in[bytes + i] != 0xee)
            atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&messages, 1);
}

static __attribute__((noinline)) void from_stack(int peer, uint64_t key, uint64_t *common, uint64_t *own)
{
    unsigned char out[STACK_BYTES + 2 * GUARD], in[STACK_BYTES + 2 * GUARD];
    exchange(out + GUARD, in + GUARD, 1 + below(common, STACK_BYTES - 1), 1, peer, key, common, own);
}

struct on_stack {
    int peer;
    uint64_t key, *common, *own;
};

static void *in_thread(void *given)
{
    struct on_stack *at = given;
    from_stack(at->peer, at->key, at->common, at->own);
    return NULL;
}

/* At the end of the heap, which grows for it, and shrinks where nobody else has grown it since. Only the main thread does so. */
static void from_heap(int peer, uint64_t key, uint64_t *common, uint64_t *own)
{
    size_t bytes = 1 + below(common, MESSAGE_MAX - 1), each = (bytes + 2 * GUARD + PAGE - 1) & -(size_t)PAGE;
    pthread_mutex_lock(&heap_end);
    unsigned char *start = sbrk((intptr_t)(2 * each));
    pthread_mutex_unlock(&heap_end);
    NEED(start != (void *)-1);
    exchange(start + GUARD, start + each + GUARD, bytes, 1, peer, key, common, own);
    pthread_mutex_lock(&heap_end);
    if (sbrk(0) == start + 2 * each)
        NEED(sbrk(-(intptr_t)(2 * each)) != (void *)-1);
    pthread_mutex_unlock(&heap_end);
    atomic_fetch_add(&changes, 1);
}

static size_t any_length(uint64_t *common)
{
    size_t most = (size_t)1 << (3 + below(common, 16));
    size_t bytes = 1 + below(common, most);
    return bytes < MESSAGE_MAX ? bytes : MESSAGE_MAX;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    threads_may_call = provided == MPI_THREAD_MULTIPLE;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned long operations = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (argc > 3)
        with_fork = with_stacks = with_heap = 0;
    for (int i = 3; i < argc; i++) {
        int known = 0;
        if (strcmp(argv[i], "fork") == 0)
            known = with_fork = 1;
        if (strcmp(argv[i], "stack") == 0)
            known = with_stacks = 1;
        if (strcmp(argv[i], "brk") == 0)
            known = with_heap = 1;
        for (int k = 0; k < KINDS; k++)
            if (strcmp(argv[i], kinds[k].name) == 0)
                wanted[wanted_count++] = k, known = 1;
        NEED(known);
    }
    for (int k = 0; argc <= 3 && k < KINDS; k++)
        wanted[wanted_count++] = k;
    NEED(size % 2 == 0);
    int peer = rank ^ 1;
    uint64_t common = mix(seed * 4099 + (uint64_t)(rank / 2)), own = mix(seed * 65537 + (uint64_t)rank + 1);
    for (int i = 0; i < PARTS; i++) {
        atomic_flag_clear(&parts[i].busy);
        parts[i].file = -1;
        take(&parts[i], NULL);
    }
    pthread_t meddler;
    NEED(pthread_create(&meddler, NULL, meddle, (void *)(uintptr_t)(own | 1)) == 0);
    for (unsigned long step = 0;; step++) {
        uint64_t key = draw(&common);
        unsigned long where = below(&common, 16);
        if (with_heap && where == 1)
            from_heap(peer, key, &common, &own);
        else if (with_stacks && where == 0) {
            struct on_stack at = {peer, key, &common, &own};
            pthread_t thread;
            if (threads_may_call && below(&own, 4) == 0) {
                NEED(pthread_create(&thread, NULL, in_thread, &at) == 0);
                pthread_join(thread, NULL);
            } else
                from_stack(peer, key, &common, &own);
        } else {
            size_t bytes = any_length(&common);
            struct part *from = any(&own), *to = any(&own);
            if (below(&own, 3) == 0)
                change(from, &own);
            if (below(&own, 3) == 0)
                change(to, &own);
            /* Mostly the same places, which is what a library may come to know. */
            size_t place = below(&own, 4) ? GUARD : GUARD + below(&own, PART_BYTES - MESSAGE_MAX - 2 * GUARD);
            exchange(from->start + place, to->start + place, bytes, !from->shared && !to->shared, peer, key, &common, &own);
            unlock(from);
            unlock(to);
        }
        if (step % 256 == 255) {
            /* All have had about as many. */
            unsigned long done = atomic_load(&messages) + atomic_load(&changes), all;
            MPI_Allreduce(&done, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
            if (all >= operations)
                break;
        }
    }
    atomic_store(&stop, 1);
    pthread_join(meddler, NULL);
    reap(1);
    unsigned long mine[4] = {atomic_load(&messages), atomic_load(&changes), atomic_load(&forks), atomic_load(&wrong)}, all[4];
    MPI_Allreduce(mine, all, 4, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%lu operations: %lu messages, %lu changes of memory, %lu forks; %lu wrong bytes\n", all[0] + all[1], all[0], all[1], all[2], all[3]);
    for (int i = 0; i < PARTS; i++)
        give_back(&parts[i]);
    MPI_Finalize();
    return all[3] > 0;
}
