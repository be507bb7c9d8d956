/* What a library does that registers memory and never hears of its changes: MPI_Send and the sending half of MPI_Sendrecv take their bytes from pages that
 * were pinned when the same addresses were first sent from (registered buffers of io_uring). Preloaded beneath torture.c it shows that the test finds
 * this: without it a run that finds nothing would say nothing. */
#define _GNU_SOURCE
#include <mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../pinned.h"

enum { PAGE = 4096, ENTRIES = 512, FILE_BYTES = 4 << 20 };

static struct pinned io = {.ring = -1};
static int file = -1;
static unsigned char *seen; /* what the file has */
static struct iovec ranges[ENTRIES];

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* Status 77: this machine does not let io_uring register memory. */
static void give_up(const char *what)
{
    perror(what);
    _exit(77);
}

static void begin(void)
{
    const char *refused = pinned_begin(&io, ENTRIES);
    if (refused)
        give_up(refused);
    file = memfd_create("stale", 0);
    if (file < 0 || ftruncate(file, FILE_BYTES) != 0)
        give_up("memfd_create");
    seen = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);
}

/* The pinned pages of `at`: those of the first time. */
static int entry_of(const unsigned char *at, size_t bytes)
{
    uintptr_t first = (uintptr_t)at & -(uintptr_t)PAGE, end = ((uintptr_t)at + bytes + PAGE - 1) & -(uintptr_t)PAGE;
    int entry = (int)(first / PAGE * 0x9e3779b1u >> 7) & (ENTRIES - 1);
    struct iovec *had = &ranges[entry];
    if ((uintptr_t)had->iov_base <= first && end <= (uintptr_t)had->iov_base + had->iov_len)
        return entry;
    *had = (struct iovec){(void *)first, end - first};
    if (!pinned_set(&io, (unsigned)entry, had->iov_base, had->iov_len)) {
        *had = (struct iovec){0};
        return -1;
    }
    return entry;
}

/* A copy of what the pinned pages hold. */
static void *copy_of(const void *at, size_t bytes)
{
    unsigned char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, at, bytes);
    if (bytes == 0 || bytes > FILE_BYTES)
        return copy;
    pthread_mutex_lock(&one_at_a_time);
    if (io.ring < 0)
        begin();
    int entry = entry_of(at, bytes);
    if (entry >= 0 && pinned_copy(&io, IORING_OP_WRITE_FIXED, file, 0, (unsigned)entry, (uintptr_t)at, (uint32_t)bytes) == (int)bytes)
        memcpy(copy, seen, bytes);
    pthread_mutex_unlock(&one_at_a_time);
    return copy;
}

int MPI_Send(const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm)
{
    int each;
    PMPI_Type_size(datatype, &each);
    void *copy = copy_of(buffer, (size_t)count * (size_t)each);
    int code = PMPI_Send(copy, count, datatype, to, tag, comm);
    free(copy);
    return code;
}

int MPI_Sendrecv(const void *out, int sent, MPI_Datatype sent_type, int to, int sent_tag, void *in, int received, MPI_Datatype received_type, int from,
                 int received_tag, MPI_Comm comm, MPI_Status *status)
{
    int each;
    PMPI_Type_size(sent_type, &each);
    void *copy = copy_of(out, (size_t)sent * (size_t)each);
    int code = PMPI_Sendrecv(copy, sent, sent_type, to, sent_tag, in, received, received_type, from, received_tag, comm, status);
    free(copy);
    return code;
}
