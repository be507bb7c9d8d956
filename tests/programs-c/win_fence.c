/* Windows of every kind between fences: put, get and accumulate with every layout on both sides, and what attributes and queries say of them.
 * ranks: 1 2 3 4
 */
#include "check.h"

enum { CELLS = 3000 };
static int rank, size;

static int cell(int owner, int at) { return owner * 100000 + at; }

typedef struct {
    MPI_Win win;
    int *base;
    int flavor;
} Window;

static Window make(int flavor) {
    Window w = {.flavor = flavor};
    MPI_Aint bytes = CELLS * sizeof(int);
    switch (flavor) {
    case MPI_WIN_FLAVOR_CREATE:
        w.base = malloc(bytes);
        OK(MPI_Win_create(w.base, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &w.win));
        break;
    case MPI_WIN_FLAVOR_ALLOCATE:
        OK(MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &w.base, &w.win));
        break;
    case MPI_WIN_FLAVOR_DYNAMIC:
        w.base = malloc(bytes);
        OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w.win));
        OK(MPI_Win_attach(w.win, w.base, bytes));
        break;
    }
    return w;
}

static void end(Window *w) {
    if (w->flavor == MPI_WIN_FLAVOR_DYNAMIC) OK(MPI_Win_detach(w->win, w->base));
    OK(MPI_Win_free(&w->win));
    CHECK(w->win == MPI_WIN_NULL);
    if (w->flavor != MPI_WIN_FLAVOR_ALLOCATE) free(w->base);
}

static void attributes(const Window *w) {
    void *value;
    int flag;
    OK(MPI_Win_get_attr(w->win, MPI_WIN_BASE, &value, &flag));
    CHECK(flag && value == (w->flavor == MPI_WIN_FLAVOR_DYNAMIC ? NULL : (void *)w->base));
    OK(MPI_Win_get_attr(w->win, MPI_WIN_SIZE, &value, &flag));
    CHECK(flag && *(MPI_Aint *)value == (w->flavor == MPI_WIN_FLAVOR_DYNAMIC ? 0 : CELLS * (MPI_Aint)sizeof(int)));
    OK(MPI_Win_get_attr(w->win, MPI_WIN_DISP_UNIT, &value, &flag));
    CHECK(flag && *(int *)value == (w->flavor == MPI_WIN_FLAVOR_DYNAMIC ? 1 : (int)sizeof(int)));
    OK(MPI_Win_get_attr(w->win, MPI_WIN_CREATE_FLAVOR, &value, &flag));
    CHECK(flag && *(int *)value == w->flavor);
    OK(MPI_Win_get_attr(w->win, MPI_WIN_MODEL, &value, &flag));
    CHECK(flag && *(int *)value == MPI_WIN_UNIFIED);
}

/* Where element `at` of `target` is, in its units. */
static MPI_Aint places[64];
static MPI_Aint place(const Window *w, int target, int at) {
    return w->flavor == MPI_WIN_FLAVOR_DYNAMIC ? MPI_Aint_add(places[target], at * (MPI_Aint)sizeof(int)) : at;
}

static void fill(const Window *w) {
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, w->win));
    for (int i = 0; i < CELLS; i++) w->base[i] = cell(rank, i);
    OK(MPI_Win_fence(0, w->win));
}

static void contiguous(const Window *w) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int *mine = malloc(CELLS * sizeof(int)), *theirs = malloc(CELLS * sizeof(int));
    for (int i = 0; i < CELLS; i++) mine[i] = cell(rank + 50, i);
    fill(w);
    OK(MPI_Get(theirs, CELLS, MPI_INT, right, place(w, right, 0), CELLS, MPI_INT, w->win));
    OK(MPI_Win_fence(0, w->win));
    for (int i = 0; i < CELLS; i++) CHECK(theirs[i] == cell(right, i));
    OK(MPI_Put(mine, CELLS - 7, MPI_INT, right, place(w, right, 7), CELLS - 7, MPI_INT, w->win));
    OK(MPI_Win_fence(0, w->win));
    for (int i = 0; i < CELLS; i++) CHECK(w->base[i] == (i < 7 ? cell(rank, i) : cell(left + 50, i - 7)));
    OK(MPI_Win_fence(0, w->win));
    /* All add to rank 0. */
    if (rank == 0)
        for (int i = 0; i < 100; i++) w->base[i] = i;
    OK(MPI_Win_fence(0, w->win));
    OK(MPI_Accumulate(mine, 100, MPI_INT, 0, place(w, 0, 0), 100, MPI_INT, MPI_SUM, w->win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    if (rank == 0)
        for (int i = 0; i < 100; i++) {
            int expected = i;
            for (int r = 0; r < size; r++) expected += cell(r + 50, i);
            CHECK(w->base[i] == expected);
        }
    free(mine);
    free(theirs);
}

/* Every third element here, and a list of blocks there. */
static void derived(const Window *w) {
    enum { BLOCKS = 40, EACH = 3 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int lengths[BLOCKS], displacements[BLOCKS], *mine = malloc(3 * BLOCKS * EACH * sizeof(int));
    MPI_Datatype third, list;
    for (int i = 0; i < BLOCKS; i++) {
        lengths[i] = EACH;
        displacements[i] = (i * 37) % BLOCKS * 11 + (i & 1);
    }
    OK(MPI_Type_vector(BLOCKS * EACH, 1, 3, MPI_INT, &third));
    OK(MPI_Type_indexed(BLOCKS, lengths, displacements, MPI_INT, &list));
    OK(MPI_Type_commit(&third));
    OK(MPI_Type_commit(&list));
    for (int i = 0; i < 3 * BLOCKS * EACH; i++) mine[i] = cell(rank + 70, i);
    fill(w);
    OK(MPI_Put(mine, 1, third, right, place(w, right, 20), 1, list, w->win));
    OK(MPI_Win_fence(0, w->win));
    int *expected = malloc(CELLS * sizeof(int));
    for (int i = 0; i < CELLS; i++) expected[i] = cell(rank, i);
    for (int b = 0; b < BLOCKS; b++)
        for (int k = 0; k < EACH; k++) expected[20 + displacements[b] + k] = cell(left + 70, 3 * (b * EACH + k));
    for (int i = 0; i < CELLS; i++) CHECK(w->base[i] == expected[i]);
    OK(MPI_Win_fence(0, w->win));
    /* Back again, and once more on top. */
    int *back = calloc(3 * BLOCKS * EACH, sizeof(int));
    OK(MPI_Get(back, 1, third, right, place(w, right, 20), 1, list, w->win));
    OK(MPI_Win_fence(0, w->win));
    for (int i = 0; i < 3 * BLOCKS * EACH; i++) CHECK(back[i] == (i % 3 == 0 ? mine[i] : 0));
    OK(MPI_Accumulate(mine, 1, third, right, place(w, right, 20), 1, list, MPI_SUM, w->win));
    OK(MPI_Win_fence(0, w->win));
    for (int b = 0; b < BLOCKS; b++)
        for (int k = 0; k < EACH; k++) expected[20 + displacements[b] + k] *= 2;
    for (int i = 0; i < CELLS; i++) CHECK(w->base[i] == expected[i]);
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    OK(MPI_Type_free(&third));
    OK(MPI_Type_free(&list));
    free(mine);
    free(expected);
    free(back);
}

/* Nothing, and to nobody. */
static void nothing(const Window *w) {
    int value = 5;
    OK(MPI_Win_fence(0, w->win));
    OK(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w->win));
    OK(MPI_Get(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w->win));
    OK(MPI_Accumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w->win));
    OK(MPI_Put(NULL, 0, MPI_INT, 0, place(w, 0, 0), 0, MPI_INT, w->win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
    CHECK(value == 5);
}

static void empty(void) {
    MPI_Win win;
    int *base, value = rank;
    /* Only the last rank has memory. */
    OK(MPI_Win_allocate(rank == size - 1 ? size * (MPI_Aint)sizeof(int) : 0, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_INT, size - 1, rank, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    if (rank == size - 1)
        for (int i = 0; i < size; i++) CHECK(base[i] == i);
    OK(MPI_Win_free(&win));
    OK(MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_free(&win));
}

/* Units that differ by rank, set by the form with large counts. */
static void units(void) {
    MPI_Win win;
    double *base, value = rank + 0.5;
    OK(MPI_Win_allocate_c(100 * sizeof(double), rank % 2 ? 1 : 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put_c(&value, 1, MPI_DOUBLE, right, right % 2 ? 24 : 3, 1, MPI_DOUBLE, win));
    OK(MPI_Win_fence(0, win));
    CHECK(base[3] == left + 0.5);
    OK(MPI_Win_free(&win));
}

int main(int argc, char **argv) {
    const int flavors[] = {MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_DYNAMIC};
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    for (int f = 0; f < 3; f++) {
        Window w = make(flavors[f]);
        MPI_Aint address;
        OK(MPI_Get_address(w.base, &address));
        OK(MPI_Allgather(&address, 1, MPI_AINT, places, 1, MPI_AINT, MPI_COMM_WORLD));
        attributes(&w);
        contiguous(&w);
        derived(&w);
        nothing(&w);
        end(&w);
    }
    empty();
    units();
    OK(MPI_Finalize());
    return 0;
}
