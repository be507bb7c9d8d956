/* Registered memory, pinned by io_uring. The device reads and writes it through a pipe: a request to io_uring names the buffer and goes by the pages that
 * were pinned, whatever the program has at their addresses by then. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "standin.h"

enum { PAGE_BYTES = 4096 };

static struct {
    int ring, pipe[2];
    uint32_t pipe_bytes;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} io = {.ring = -1};

/* By their index in the ring's table of buffers. A key is `turn << 15 | index << 1 | remote`: it is not used again soon. */
static struct region *regions[REGIONS_MAX];
static uint32_t turns[REGIONS_MAX], next_index;
/* STANDIN_STALE: what is given up stays pinned, and is taken for a registration that lies within, whatever has happened to the memory: as a library does that
 * keeps registrations and never hears of its memory's changes. */
static bool keeps;

static bool missing(char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "%s: %s", what, strerror(errno));
    if (io.ring >= 0)
        close(io.ring);
    io.ring = -1;
    return false;
}

bool memory_begin(char *why, size_t why_bytes)
{
    struct io_uring_params p = {0};
    if (io.ring >= 0)
        return true;
    io.ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (io.ring < 0)
        return missing(why, why_bytes, "io_uring_setup");
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, io.ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, io.ring, IORING_OFF_CQ_RING);
    io.sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED, io.ring, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || io.sqes == MAP_FAILED)
        return missing(why, why_bytes, "the rings of io_uring");
    io.sq_tail = (unsigned *)(sq + p.sq_off.tail);
    io.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    io.sq_array = (unsigned *)(sq + p.sq_off.array);
    io.cq_head = (unsigned *)(cq + p.cq_off.head);
    io.cq_tail = (unsigned *)(cq + p.cq_off.tail);
    io.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    io.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    struct io_uring_rsrc_register table = {.nr = REGIONS_MAX, .flags = IORING_RSRC_REGISTER_SPARSE};
    if (syscall(SYS_io_uring_register, io.ring, IORING_REGISTER_BUFFERS2, &table, sizeof table) < 0)
        return missing(why, why_bytes, "IORING_REGISTER_BUFFERS2");
    if (pipe2(io.pipe, O_CLOEXEC) != 0)
        return missing(why, why_bytes, "pipe2");
    keeps = getenv("STANDIN_STALE") != NULL;
    io.pipe_bytes = (uint32_t)fcntl(io.pipe[0], F_GETPIPE_SZ);
    return true;
}

/* Fills a place of the table, or empties it. */
static bool update(uint32_t index, void *start, size_t bytes)
{
    struct iovec range = {start, bytes};
    struct io_uring_rsrc_update2 update = {.offset = index, .data = (uintptr_t)&range, .nr = 1};
    return syscall(SYS_io_uring_register, io.ring, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update) == 1;
}

/* A place of the table for start..start+bytes: one that has been kept, or an empty one, which is filled. NULL with errno. */
static struct region *pinned(struct ibv_pd *pd, char *start, size_t bytes, int access)
{
    for (uint32_t index = 0; index < REGIONS_MAX && keeps; index++) {
        struct region *had = regions[index];
        if (had && had->is_kept && had->mr.pd == pd && had->access == access && had->start <= start && start + bytes <= had->start + had->bytes)
            return had;
    }
    uint32_t tried = 0;
    while (tried < REGIONS_MAX && regions[next_index])
        tried++, next_index = (next_index + 1) % REGIONS_MAX;
    struct region *region = tried < REGIONS_MAX ? calloc(1, sizeof *region) : NULL;
    if (!region) {
        errno = ENOMEM;
        return NULL;
    }
    uint32_t index = next_index;
    next_index = (next_index + 1) % REGIONS_MAX;
    /* Whole pages are found again more often. */
    size_t before = keeps ? (uintptr_t)start % PAGE_BYTES : 0;
    region->start = start - before;
    region->bytes = keeps ? (before + bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES : bytes;
    region->access = access;
    region->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .handle = index};
    if (!update(index, region->start, region->bytes)) {
        free(region);
        return NULL;
    }
    return regions[index] = region;
}

struct region *memory_register(struct ibv_pd *pd, void *start, size_t bytes, int access)
{
    bool writes = access & IBV_ACCESS_REMOTE_WRITE;
    if (bytes == 0 || bytes > REGION_BYTES_MAX || (writes && !(access & IBV_ACCESS_LOCAL_WRITE))) {
        errno = EINVAL;
        return NULL;
    }
    struct region *region = pinned(pd, start, bytes, access);
    if (!region)
        return NULL;
    uint32_t index = region->mr.handle;
    turns[index] = turns[index] % 0x1ffff + 1;
    region->mr.addr = start;
    region->mr.length = bytes;
    region->mr.lkey = turns[index] << 15 | index << 1;
    region->mr.rkey = region->mr.lkey | 1;
    region->is_kept = false;
    struct counts *counts = &standin.counts;
    counts->registrations++;
    counts->registered_bytes += bytes;
    if (counts->registered_bytes > counts->registered_bytes_most)
        counts->registered_bytes_most = counts->registered_bytes;
    return region;
}

void memory_forget(struct region *region)
{
    standin.counts.deregistrations++;
    standin.counts.registered_bytes -= region->mr.length;
    region->is_kept = keeps;
    if (keeps)
        return;
    regions[region->mr.handle] = NULL;
    if (!update(region->mr.handle, NULL, 0))
        perror("standin: a registered buffer cannot be given up");
    free(region);
}

struct region *memory_find(struct ibv_pd *pd, uint32_t key, bool remote, uint64_t address, uint64_t bytes, int access)
{
    struct region *region = regions[key >> 1 & (REGIONS_MAX - 1)];
    if (!region || region->is_kept || key != (remote ? region->mr.rkey : region->mr.lkey) || region->mr.pd != pd || (access & ~region->access))
        return NULL;
    uint64_t start = (uintptr_t)region->mr.addr;
    bool within = address >= start && bytes <= region->mr.length && address - start <= region->mr.length - bytes;
    return within ? region : NULL;
}

/* One request, which the pipe has room or bytes for: it does not wait. */
static void carry_out(uint8_t opcode, int fd, struct region *region, uint64_t address, uint32_t bytes)
{
    unsigned tail = *io.sq_tail, slot = tail & *io.sq_mask;
    io.sqes[slot] = (struct io_uring_sqe){.opcode = opcode, .fd = fd, .off = (uint64_t)-1, .addr = address, .len = bytes, .buf_index = (uint16_t)region->mr.handle};
    io.sq_array[slot] = slot;
    __atomic_store_n(io.sq_tail, tail + 1, __ATOMIC_RELEASE);
    long entered;
    unsigned submit = 1;
    do {
        entered = syscall(SYS_io_uring_enter, io.ring, submit, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        submit = entered > 0 ? 0 : submit;
    } while ((entered < 0 && errno == EINTR) || (entered >= 0 && *io.cq_head == __atomic_load_n(io.cq_tail, __ATOMIC_ACQUIRE)));
    unsigned head = *io.cq_head;
    int result = entered < 0 ? -errno : io.cqes[head & *io.cq_mask].res;
    __atomic_store_n(io.cq_head, head + 1, __ATOMIC_RELEASE);
    if (result != (int)bytes) {
        fprintf(stderr, "standin: io_uring copied %d of %u bytes\n", result, bytes);
        abort();
    }
}

static void whole(ssize_t done, uint32_t bytes)
{
    if (done != (ssize_t)bytes) {
        perror("standin: its pipe");
        abort();
    }
}

static uint32_t step(uint32_t bytes)
{
    return bytes < io.pipe_bytes ? bytes : io.pipe_bytes;
}

void memory_read(struct region *region, uint64_t address, void *into, uint32_t bytes)
{
    for (uint32_t done = 0, part; done < bytes; done += part) {
        part = step(bytes - done);
        carry_out(IORING_OP_WRITE_FIXED, io.pipe[1], region, address + done, part);
        whole(read(io.pipe[0], (char *)into + done, part), part);
    }
}

void memory_write(struct region *region, uint64_t address, const void *from, uint32_t bytes)
{
    for (uint32_t done = 0, part; done < bytes; done += part) {
        part = step(bytes - done);
        whole(write(io.pipe[1], (const char *)from + done, part), part);
        carry_out(IORING_OP_READ_FIXED, io.pipe[0], region, address + done, part);
    }
}
