/* Messages from and to memory of MPI_Alloc_mem, which peers map: blocks, parts of blocks and places beside pages, blocks that were freed and given out
 * again while peers have them mapped, derived types, sends that wait, and windows over such memory. The other side's memory is of either kind.
 * ranks: 2 4
 * timeout: 180
 * env: WHIMBREL_MAP_MEMORY=on WHIMBREL_REPORT=1
 * output: were copied by load and store
 */
#include "world.h"

enum { BYTES = 3 << 20, ROUNDS = 60, BLOCKS = 6 };

static unsigned char *given(size_t bytes)
{
    void *block;
    OK(MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &block));
    CHECK(block != NULL && (uintptr_t)block % 64 == 0);
    return block;
}

/* Both ways around a ring, `bytes` from `out` to `in`. */
static void exchange(const unsigned char *out, unsigned char *in, int bytes, int round)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Status status;
    int count;
    if (round % 3 == 0)
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, round, in, bytes, MPI_BYTE, from, round, MPI_COMM_WORLD, &status));
    else {
        MPI_Request request;
        if (round % 3 == 1)
            OK(MPI_Isend(out, bytes, MPI_BYTE, to, round, MPI_COMM_WORLD, &request));
        else
            OK(MPI_Issend(out, bytes, MPI_BYTE, to, round, MPI_COMM_WORLD, &request));
        if (round % 2)
            nap_ms(rank);
        OK(MPI_Recv(in, bytes, MPI_BYTE, from, round, MPI_COMM_WORLD, &status));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == bytes);
    CHECK(holds(in, (size_t)bytes, (unsigned)(round * 8 + from)));
}

static void parts(void)
{
    uint64_t state = 7;
    unsigned char *blocks[BLOCKS] = {NULL}, *plain = memory_of(BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        /* All ranks draw the same. */
        int one = (int)(draw(&state) % BLOCKS), other = (one + 1 + (int)(draw(&state) % (BLOCKS - 1))) % BLOCKS;
        int bytes = (int)(draw(&state) % (BYTES / 2)) + 1, at = (int)(draw(&state) % (BYTES / 2)), kinds = (int)(draw(&state) % 4);
        for (int *which = (int[]){one, other, -1}; *which >= 0; which++)
            if (blocks[*which] == NULL) {
                blocks[*which] = given(BYTES);
            }
        unsigned char *out = kinds & 1 ? plain : blocks[one] + at, *in = kinds == 1 || kinds & 2 ? blocks[other] + at : memory_of((size_t)bytes);
        fill(out, (size_t)bytes, (unsigned)(round * 8 + rank));
        memset(in, 0, (size_t)bytes);
        exchange(out, in, bytes, round);
        if (!(kinds == 1 || kinds & 2))
            free(in);
        /* What is freed is given out again, and still mapped by peers. */
        if (draw(&state) % 2) {
            OK(MPI_Free_mem(blocks[one]));
            blocks[one] = NULL;
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i] != NULL)
            OK(MPI_Free_mem(blocks[i]));
    free(plain);
}

/* Pieces of `piece` doubles out of each `stride`, from mapped memory to mapped memory and to other. */
static void pieces(int piece, int stride, int packed)
{
    int count = BYTES / 8 / stride, elements = count * piece;
    MPI_Datatype type;
    OK(MPI_Type_vector(count, piece, stride, MPI_DOUBLE, &type));
    OK(MPI_Type_commit(&type));
    double *out = (double *)given(BYTES), *in = (double *)given(BYTES);
    for (int i = 0; i < BYTES / 8; i++) {
        out[i] = i + 1000000 * rank;
        in[i] = -1;
    }
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    if (packed)
        OK(MPI_Sendrecv(out, 1, type, to, 1, in, elements, MPI_DOUBLE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    else
        OK(MPI_Sendrecv(out, 1, type, to, 1, in, 1, type, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0, k = 0; i < BYTES / 8; i++) {
        int inside = i / stride < count && i % stride < piece;
        if (packed) {
            if (inside) {
                CHECK(in[k] == i + 1000000 * from);
                k++;
            }
        } else
            CHECK(in[i] == (inside ? i + 1000000 * from : -1));
    }
    OK(MPI_Free_mem(out));
    OK(MPI_Free_mem(in));
    OK(MPI_Type_free(&type));
}

static void windows(void)
{
    unsigned char *mine = given(BYTES), *got = given(BYTES);
    MPI_Win window;
    fill(mine, BYTES, (unsigned)rank);
    OK(MPI_Win_create(mine, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    for (int peer = 0; peer < size; peer++) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, window));
        OK(MPI_Get(got, BYTES / 2, MPI_BYTE, peer, 777, BYTES / 2, MPI_BYTE, window));
        OK(MPI_Win_unlock(peer, window));
        for (size_t i = 0; i < BYTES / 2; i++)
            CHECK(got[i] == pattern(i + 777, (unsigned)peer));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    fill(got, BYTES, (unsigned)(100 + rank));
    OK(MPI_Win_fence(0, window));
    OK(MPI_Put(got, BYTES, MPI_BYTE, to, 0, BYTES, MPI_BYTE, window));
    OK(MPI_Win_fence(0, window));
    CHECK(holds(mine, BYTES, (unsigned)(100 + from)));
    OK(MPI_Win_free(&window));
    OK(MPI_Free_mem(mine));
    OK(MPI_Free_mem(got));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    parts();
    pieces(1024, 2048, 0);
    pieces(1024, 1500, 1);
    pieces(100, 150, 1);
    pieces(3, 7, 0);
    windows();
#ifndef WITHOUT_BASES
    /* The address of no block. Another allocator may end the process there. */
    if (getenv("LD_PRELOAD") != NULL)
        return end();
    unsigned char *block = given(BYTES);
    FAILS(MPI_ERR_BASE, MPI_Free_mem(block + 4096));
    OK(MPI_Free_mem(block));
    FAILS(MPI_ERR_BASE, MPI_Free_mem(block));
#endif
    return end();
}
