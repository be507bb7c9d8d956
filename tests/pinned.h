/* Memory that io_uring has pinned, as an adapter pins what is registered with it: a request names a registered buffer, and goes by the pages that were there
 * when it was registered, whatever the program has at their addresses by then. */
#ifndef PINNED_H
#define PINNED_H

#include <errno.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* A ring, and its table of registered buffers. */
struct pinned {
    int ring; /* -1: there is none */
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
};

/* Makes a ring with an empty table of `entries`. NULL, or which call is refused here, with errno. */
static const char *pinned_begin(struct pinned *io, unsigned entries)
{
    const char *refused = NULL;
    struct io_uring_params p = {0};
    io->ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (io->ring < 0)
        return "io_uring_setup";
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, io->ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, io->ring, IORING_OFF_CQ_RING);
    io->sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED, io->ring, IORING_OFF_SQES);
    struct io_uring_rsrc_register table = {.nr = entries, .flags = IORING_RSRC_REGISTER_SPARSE};
    if (sq == MAP_FAILED || cq == MAP_FAILED || io->sqes == MAP_FAILED)
        refused = "io_uring_mmap";
    else if (syscall(SYS_io_uring_register, io->ring, IORING_REGISTER_BUFFERS2, &table, sizeof table) < 0)
        refused = "io_uring_register";
    if (refused) {
        int why = errno;
        close(io->ring);
        io->ring = -1;
        errno = why;
        return refused;
    }
    io->sq_tail = (unsigned *)(sq + p.sq_off.tail);
    io->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    io->sq_array = (unsigned *)(sq + p.sq_off.array);
    io->cq_head = (unsigned *)(cq + p.cq_off.head);
    io->cq_tail = (unsigned *)(cq + p.cq_off.tail);
    io->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    io->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    return NULL;
}

/* Pins start..start+bytes for a place of the table, or empties it. */
static bool pinned_set(struct pinned *io, unsigned index, void *start, size_t bytes)
{
    struct iovec range = {start, bytes};
    struct io_uring_rsrc_update2 update = {.offset = index, .data = (uintptr_t)&range, .nr = 1};
    return syscall(SYS_io_uring_register, io->ring, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update) == 1;
}

/* Carries out one IORING_OP_WRITE_FIXED or IORING_OP_READ_FIXED between `fd` and a registered buffer, and waits for its end: bytes, or minus errno. */
static int pinned_copy(struct pinned *io, uint8_t operation, int fd, uint64_t offset, unsigned index, uint64_t address, uint32_t bytes)
{
    unsigned tail = *io->sq_tail, slot = tail & *io->sq_mask;
    io->sqes[slot] = (struct io_uring_sqe){.opcode = operation, .fd = fd, .off = offset, .addr = address, .len = bytes, .buf_index = (uint16_t)index};
    io->sq_array[slot] = slot;
    __atomic_store_n(io->sq_tail, tail + 1, __ATOMIC_RELEASE);
    long entered;
    unsigned submit = 1;
    do {
        entered = syscall(SYS_io_uring_enter, io->ring, submit, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        submit = entered > 0 ? 0 : submit;
    } while ((entered < 0 && errno == EINTR) || (entered >= 0 && *io->cq_head == __atomic_load_n(io->cq_tail, __ATOMIC_ACQUIRE)));
    unsigned head = *io->cq_head;
    int result = entered < 0 ? -errno : io->cqes[head & *io->cq_mask].res;
    __atomic_store_n(io->cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

#endif
