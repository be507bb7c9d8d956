/* Random one-sided programs against a model of all memories: every rank draws the same operations, does its own, and reckons all.
 * The seed is the first argument, or 1; a failure prints it.
 * ranks: 1 2 3 4 6
 * processors: 16
 */
#include "check.h"
#include <stdint.h>

enum { CELLS = 400, EPOCHS = 60, CALLS = 60, FRESH = 0, WRITTEN = 1, SUMMED = 2, READ = 4 };
static int rank, size;
static uint64_t state;

static unsigned draw(unsigned below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 20) % below);
}

static long (*model)[CELLS];
static unsigned char (*touched)[CELLS];

/* `blocks` blocks of `length` cells, `stride` apart, from `first` on. */
typedef struct {
    int first, blocks, length, stride;
} Shape;

static Shape shape(void) {
    Shape s = {.blocks = 1 + draw(6), .length = 1 + draw(8)};
    s.stride = s.length + draw(8);
    s.first = draw(CELLS - (s.blocks - 1) * s.stride - s.length + 1);
    if (!draw(3)) {
        s.blocks = 1;
        s.length = 1 + draw(CELLS - s.first);
    }
    return s;
}

static int nth(const Shape *s, int i) { return s->first + i / s->length * s->stride + i % s->length; }

static int may(int target, const Shape *s, int kind) {
    for (int i = 0; i < s->blocks * s->length; i++) {
        int now = touched[target][nth(s, i)];
        if (now != FRESH && !(now == kind && kind != WRITTEN)) return 0;
    }
    for (int i = 0; i < s->blocks * s->length; i++) touched[target][nth(s, i)] = kind;
    return 1;
}

static MPI_Datatype type_of(const Shape *s) {
    MPI_Datatype type;
    OK(MPI_Type_vector(s->blocks, s->length, s->stride, MPI_LONG, &type));
    OK(MPI_Type_commit(&type));
    return type;
}

static void epoch(MPI_Win win, long *base, int number) {
    int mode = draw(3), gets = 0;
    static long mine[CALLS][CELLS], got[CALLS][CELLS], expected[CALLS][CELLS];
    int counts[CALLS];
    MPI_Group all;
    memset(touched, FRESH, (size_t)size * CELLS);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    if (mode == 0) OK(MPI_Win_fence(0, win));
    if (mode == 1) {
        OK(MPI_Win_lock_all(0, win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (mode == 2) {
        OK(MPI_Win_post(all, 0, win));
        OK(MPI_Win_start(all, 0, win));
    }
    static long (*next)[CELLS];
    next = malloc(size * sizeof *next);
    memcpy(next, model, size * sizeof *next);
    for (int call = 0; call < CALLS; call++) {
        int origin = draw(size), target = draw(size), kind = draw(4);
        Shape s = shape();
        int n = s.blocks * s.length;
        long seed = draw(1000000);
        if (!may(target, &s, kind == 0 ? READ : kind == 1 ? WRITTEN : SUMMED)) continue;
        MPI_Datatype type = type_of(&s);
        for (int i = 0; i < n; i++) {
            if (kind == 1) next[target][nth(&s, i)] = seed + i;
            if (kind >= 2) next[target][nth(&s, i)] += seed + i;
        }
        if (origin == rank) {
            for (int i = 0; i < n; i++) mine[call][i] = seed + i;
            if (kind == 0) {
                OK(MPI_Get(got[gets], n, MPI_LONG, target, s.first, 1, type, win));
                for (int i = 0; i < n; i++) expected[gets][i] = model[target][nth(&s, i)];
                counts[gets++] = n;
            } else if (kind == 1) {
                OK(MPI_Put(mine[call], n, MPI_LONG, target, s.first, 1, type, win));
            } else if (kind == 2) {
                OK(MPI_Accumulate(mine[call], n, MPI_LONG, target, s.first, 1, type, MPI_SUM, win));
            } else {
                /* What is got here depends on the others; the sum does not. */
                static long any[CELLS];
                OK(MPI_Get_accumulate(mine[call], n, MPI_LONG, any, n, MPI_LONG, target, s.first, 1, type, MPI_SUM, win));
            }
        }
        OK(MPI_Type_free(&type));
    }
    if (mode == 0) OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    if (mode == 1) {
        OK(MPI_Win_unlock_all(win));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (mode == 2) {
        OK(MPI_Win_complete(win));
        OK(MPI_Win_wait(win));
    }
    memcpy(model, next, size * sizeof *next);
    free(next);
    for (int g = 0; g < gets; g++)
        for (int i = 0; i < counts[g]; i++)
            if (got[g][i] != expected[g][i]) {
                fprintf(stderr, "failed: epoch %d, mode %d, get %d, element %d: %ld, not %ld\n", number, mode, g, i, got[g][i], expected[g][i]);
                exit(99);
            }
    for (int i = 0; i < CELLS; i++)
        if (base[i] != model[rank][i]) {
            fprintf(stderr, "failed: epoch %d, mode %d, cell %d: %ld, not %ld\n", number, mode, i, base[i], model[rank][i]);
            exit(99);
        }
    OK(MPI_Group_free(&all));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv) {
    MPI_Win win;
    long *base;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    model = calloc(size, sizeof *model);
    touched = calloc(size, sizeof *touched);
    for (int kind = 0; kind < 2; kind++) {
        state = seed * 2654435761u + 88172645463325252u + kind;
        if (kind) {
            base = malloc(CELLS * sizeof(long));
            OK(MPI_Win_create(base, CELLS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        } else {
            OK(MPI_Win_allocate(CELLS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
        }
        for (int i = 0; i < CELLS; i++) base[i] = 1000 * rank + i;
        for (int r = 0; r < size; r++)
            for (int i = 0; i < CELLS; i++) model[r][i] = 1000 * r + i;
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (rank == 0) printf("seed %llu, window %d\n", (unsigned long long)seed, kind);
        for (int e = 0; e < EPOCHS; e++) epoch(win, base, e);
        OK(MPI_Win_free(&win));
        if (kind) free(base);
    }
    free(model);
    free(touched);
    OK(MPI_Finalize());
    return 0;
}
