/* Registered memory, pinned by io_uring. The device reads and writes it through a pipe: a request to io_uring names the buffer and goes by the pages that
 * were pinned, whatever the program has at their addresses by then. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../pinned.h"
#include "standin.h"

enum { PAGE_BYTES = 4096 };

static struct pinned io = {.ring = -1};
static int copies[2]; /* a pipe */
static uint32_t pipe_bytes;

/* By their index in the ring's table of buffers. A key is `turn << 15 | index << 1 | remote`: it is not used again soon. */
static struct region *regions[REGIONS_MAX];
static uint32_t turns[REGIONS_MAX], next_index;
/* STANDIN_STALE: what is given up stays pinned, and is taken for a registration that lies within, whatever has happened to the memory: as a library does that
 * keeps registrations and never hears of its memory's changes. */
static bool keeps;

bool memory_begin(char *why, size_t why_bytes)
{
    if (io.ring >= 0)
        return true;
    const char *refused = pinned_begin(&io, REGIONS_MAX);
    if (!refused && pipe2(copies, O_CLOEXEC) != 0)
        refused = "pipe2";
    if (refused) {
        snprintf(why, why_bytes, "%s: %s", refused, strerror(errno));
        if (io.ring >= 0)
            close(io.ring);
        io.ring = -1;
        return false;
    }
    keeps = getenv("STANDIN_STALE") != NULL;
    pipe_bytes = (uint32_t)fcntl(copies[0], F_GETPIPE_SZ);
    return true;
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
    if (!pinned_set(&io, index, region->start, region->bytes)) {
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
    if (!pinned_set(&io, region->mr.handle, NULL, 0))
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
static void carry_out(uint8_t operation, int fd, struct region *region, uint64_t address, uint32_t bytes)
{
    int result = pinned_copy(&io, operation, fd, (uint64_t)-1, region->mr.handle, address, bytes);
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
    return bytes < pipe_bytes ? bytes : pipe_bytes;
}

void memory_read(struct region *region, uint64_t address, void *into, uint32_t bytes)
{
    for (uint32_t done = 0, part; done < bytes; done += part) {
        part = step(bytes - done);
        carry_out(IORING_OP_WRITE_FIXED, copies[1], region, address + done, part);
        whole(read(copies[0], (char *)into + done, part), part);
    }
}

void memory_write(struct region *region, uint64_t address, const void *from, uint32_t bytes)
{
    for (uint32_t done = 0, part; done < bytes; done += part) {
        part = step(bytes - done);
        whole(write(copies[1], (const char *)from + done, part), part);
        carry_out(IORING_OP_READ_FIXED, copies[0], region, address + done, part);
    }
}
