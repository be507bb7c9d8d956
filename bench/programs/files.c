/* Collective access to a file by 2 ranks whose data is interleaved in it: IOR's strided pattern with blocks of several lengths, and BTIO's (a cube of points of
 * five doubles, in two slabs, of which each rank has one half and then the other).
 *
 * files BUDGET_MS [ROW...] prints a JSON line a row; with ROW, only of those whose names have one of the words. The file is made in the directory
 * FILES_DIRECTORY, by default the one in which the program runs. Every row's file is compared byte by byte, and so is all that is read.
 */
#include "measure.h"

#include <fcntl.h>

enum { FILE_BYTES = 16 << 20, SIDE = 64, POINT_BYTES = 40, HALF = SIDE / 2 };

#define WORLD MPI_COMM_WORLD

static int rank;
static char path[4096];
static MPI_File file;
/* This rank's data, and bytes of it. */
static char *mine;
static int bytes;
static long total;

static char at(long place) { return (char)(place * 31 + (place >> 8) * 7 + (place >> 16) * 13 + 5); }

/* Goes through the pieces of this rank in the order of the file. */
typedef void each_piece(long place, int length, void *state);

static void ior(int block, each_piece *each, void *state)
{
    for (long place = (long)rank * block; place < FILE_BYTES; place += 2l * block)
        each(place, block, state);
}

static void bt(int unused, each_piece *each, void *state)
{
    (void)unused;
    for (int z = 0; z < SIDE; z++)
        for (int y = 0; y < SIDE; y++)
            each((((long)z * SIDE + y) * SIDE + (rank + z / HALF) % 2 * HALF) * POINT_BYTES, HALF * POINT_BYTES, state);
}

static void fill_piece(long place, int length, void *state)
{
    char **next = state;
    for (int i = 0; i < length; i++)
        *(*next)++ = at(place + i);
}

static void check_piece(long place, int length, void *state)
{
    char **next = state;
    for (int i = 0; i < length; i++)
        if (*(*next)++ != at(place + i))
            fail("a byte was read wrong");
}

static MPI_Datatype ior_type(int block)
{
    MPI_Datatype one, type;
    MPI_Type_contiguous(block, MPI_BYTE, &one);
    MPI_Type_create_resized(one, 0, 2l * block, &type);
    MPI_Type_free(&one);
    MPI_Type_commit(&type);
    return type;
}

static MPI_Datatype bt_type(void)
{
    MPI_Datatype point, cells[2], type;
    MPI_Type_contiguous(POINT_BYTES, MPI_BYTE, &point);
    for (int slab = 0; slab < 2; slab++) {
        int sizes[] = {SIDE, SIDE, SIDE}, parts[] = {HALF, SIDE, HALF}, starts[] = {slab * HALF, 0, (rank + slab) % 2 * HALF};
        MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, point, &cells[slab]);
    }
    int ones[] = {1, 1};
    MPI_Aint places[] = {0, 0};
    MPI_Type_create_struct(2, ones, places, cells, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&point);
    MPI_Type_free(&cells[0]);
    MPI_Type_free(&cells[1]);
    return type;
}

static double moved(int count, int write)
{
    MPI_Barrier(WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        MPI_Status status;
        int code = write ? MPI_File_write_at_all(file, 0, mine, bytes, MPI_BYTE, &status) : MPI_File_read_at_all(file, 0, mine, bytes, MPI_BYTE, &status);
        if (code != MPI_SUCCESS)
            fail("the file cannot be accessed");
    }
    MPI_Barrier(WORLD);
    return MPI_Wtime() - start;
}

static double written(int count) { return moved(count, 1); }
static double read_back(int count) { return moved(count, 0); }

static const struct pattern {
    const char *name;
    void (*walk)(int block, each_piece *each, void *state);
    int block;
    long total;
} patterns[] = {
    {"BTIO, 64 x 64 x 64 points", bt, 0, (long)SIDE * SIDE * SIDE * POINT_BYTES},
    {"IOR, blocks of 1 KiB", ior, 1 << 10, FILE_BYTES},
    {"IOR, blocks of 16 KiB", ior, 16 << 10, FILE_BYTES},
    {"IOR, blocks of 256 KiB", ior, 256 << 10, FILE_BYTES},
    {"IOR, blocks of 4 MiB", ior, 4 << 20, FILE_BYTES},
};

/* What stands in the file, read by one rank without MPI. */
static void check_file(void)
{
    char *all = buffer_of(total);
    int descriptor = open(path, O_RDONLY);
    long got = 0, now;
    while (got < total && (now = read(descriptor, all + got, total - got)) > 0)
        got += now;
    if (got != total)
        fail("the file is too short");
    for (long i = 0; i < total; i++)
        if (all[i] != at(i))
            fail("a byte of the file is wrong");
    close(descriptor);
    free(all);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    need_two_ranks();
    rank = world_rank();
    double budget_s = budget_argument(argc, argv);
    const char *directory = getenv("FILES_DIRECTORY");
    snprintf(path, sizeof path, "%s/files-%d.data", directory ? directory : ".", rank == 0 ? (int)getpid() : 0);
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, WORLD);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        const struct pattern *p = &patterns[i];
        char name[2][80];
        snprintf(name[0], sizeof name[0], "write: %s", p->name);
        snprintf(name[1], sizeof name[1], "read: %s", p->name);
        if (!wanted(name[0], argc, argv) && !wanted(name[1], argc, argv))
            continue;
        total = p->total;
        bytes = (int)(total / 2);
        mine = buffer_of(bytes);
        MPI_Datatype type = p->walk == bt ? bt_type() : ior_type(p->block);
        if (MPI_File_open(WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file) != MPI_SUCCESS)
            fail("the file cannot be opened");
        MPI_File_set_view(file, p->walk == bt ? 0 : (MPI_Offset)rank * p->block, MPI_BYTE, type, "native", MPI_INFO_NULL);
        char *next = mine;
        p->walk(p->block, fill_piece, &next);
        struct row row = {name[0], written, 1, 0};
        measure_row(name[0], &row, budget_s);
        MPI_File_sync(file);
        MPI_Barrier(WORLD);
        if (rank == 0)
            check_file();
        row.run = read_back;
        memset(mine, 0, bytes);
        measure_row(name[1], &row, budget_s);
        next = mine;
        p->walk(p->block, check_piece, &next);
        MPI_File_close(&file);
        MPI_Type_free(&type);
        free(mine);
    }
    MPI_Finalize();
    return 0;
}
