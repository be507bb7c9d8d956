/* Under the shared heap: malloc and its kin beside a model, in threads too; messages from and to what they give, which peers map; forks while messages fly,
 * in whose children blocks are their own; and the memory that is left when all is freed.
 * ranks: 2
 * launcher: --shared-heap
 * env: WHIMBREL_REPORT=1
 * cflags: -pthread
 * timeout: 600
 * output: were copied by load and store
 */
#include "../programs-c/world.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 40, STEPS = 1500, BYTES = 1 << 20, FORKS = 20 };

struct block {
    unsigned char *start;
    size_t bytes;
    unsigned seed;
};

/* Ends and places between tell of blocks that overlap. */
static void mark(struct block *b)
{
    for (size_t i = 0; i < b->bytes; i += i < 64 || i + 64 > b->bytes ? 1 : 997)
        b->start[i] = pattern(i, b->seed);
}

static void check(const struct block *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += i < 64 || i + 64 > b->bytes ? 1 : 997)
        CHECK(b->start[i] == pattern(i, b->seed));
}

static void *calls(void *seed)
{
    uint64_t state = (uint64_t)(uintptr_t)seed;
    struct block blocks[BLOCKS] = {{NULL, 0, 0}};
    for (int step = 0; step < STEPS; step++) {
        struct block *b = &blocks[draw(&state) % BLOCKS];
        size_t bytes = draw(&state) % (draw(&state) % 4 ? 200000 : 1000000) + 1, align = (size_t)64 << draw(&state) % 8;
        void *start = NULL;
        if (b->start != NULL) {
            check(b, b->bytes);
            CHECK(malloc_usable_size(b->start) >= b->bytes);
            if (draw(&state) % 2) {
                errno = 77;
                free(b->start);
                CHECK(errno == 77);
                b->start = NULL;
                continue;
            }
            unsigned char *moved = realloc(b->start, bytes);
            CHECK(moved != NULL);
            b->start = moved;
            /* What is before the end has come along. */
            size_t kept = bytes < b->bytes ? bytes : b->bytes;
            for (size_t i = 0; i < kept && i < 64; i++)
                CHECK(moved[i] == pattern(i, b->seed));
        } else {
            switch (draw(&state) % 5) {
            case 0: start = malloc(bytes); break;
            case 1: CHECK(posix_memalign(&start, align, bytes) == 0 && (uintptr_t)start % align == 0); break;
            case 2: start = aligned_alloc(align, (bytes + align - 1) / align * align); CHECK((uintptr_t)start % align == 0); break;
            case 3: start = memalign(align, bytes); CHECK((uintptr_t)start % align == 0); break;
            default:
                start = calloc(bytes / 8 + 1, 8);
                CHECK(start != NULL && all_bytes(start, bytes, 0));
            }
            CHECK(start != NULL && (uintptr_t)start % 16 == 0);
            b->start = start;
        }
        b->bytes = bytes;
        b->seed = (unsigned)draw(&state);
        mark(b);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i].start);
    return NULL;
}

/* Resident memory of this process, KiB. */
static long resident(void)
{
    char line[256];
    long all = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %ld", &all) == 1)
            break;
    fclose(status);
    return all;
}

static void freed(void)
{
    enum { MANY = 200 };
    unsigned char *blocks[MANY];
    long before = resident();
    for (int i = 0; i < MANY; i++) {
        blocks[i] = malloc((size_t)(100000 + 3000 * i));
        memset(blocks[i], 1, (size_t)(100000 + 3000 * i));
    }
    CHECK(resident() > before + 50000);
    for (int i = 0; i < MANY; i++)
        free(blocks[i * 7 % MANY]);
    CHECK(resident() <= before + 1024);
}

static void forks(void)
{
    const char *scale = getenv("WHIMBREL_TEST_SCALE");
    int rounds = (int)(FORKS * (scale ? atof(scale) : 1)), peer = 1 - rank;
    if (rounds < FORKS)
        rounds = FORKS;
    unsigned char *out = malloc(BYTES), *in = malloc(BYTES);
    fflush(NULL);
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[2];
        fill(out, BYTES, (unsigned)(2 * round + rank));
        OK(MPI_Irecv(in, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(out, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[1]));
        pid_t child = fork();
        if (child == 0) {
            if (!holds(out, BYTES, (unsigned)(2 * round + rank)))
                _exit(1);
            memset(out, 0xee, BYTES);
            memset(in, 0xee, BYTES);
            unsigned char *more = calloc(1, 300000);
            if (more == NULL || !all_bytes(more, 300000, 0))
                _exit(2);
            memset(more, 0xdd, 300000);
            free(more);
            _exit(all_bytes(out, BYTES, 0xee) && all_bytes(in, BYTES, 0xee) ? 0 : 3);
        }
        CHECK(child > 0);
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(holds(in, BYTES, (unsigned)(2 * round + peer)));
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(holds(in, BYTES, (unsigned)(2 * round + peer)) && holds(out, BYTES, (unsigned)(2 * round + rank)));
    }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    freed();
    calls((void *)(uintptr_t)(rank + 1));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, calls, (void *)(uintptr_t)(10 * rank + i + 5)) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    /* What a program tells the system of its memory keeps its meaning. */
    unsigned char *block = malloc(BYTES);
    memset(block, 5, BYTES);
    unsigned char *page = (unsigned char *)(((uintptr_t)block + 8191) / 4096 * 4096);
    CHECK(madvise(page, 8192, MADV_DONTNEED) == 0 && all_bytes(page, 8192, 0) && page[8192] == 5);
    free(block);
    forks();
    return end();
}
