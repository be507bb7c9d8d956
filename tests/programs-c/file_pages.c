// A file is accessed in short pieces by its own pages: what was written is what the system reads, also where the file grows, is shortened by others, or has
// holes, and the file says when it was changed.
// ranks: 1 2 3
#include "check.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PIECE = 100, PIECES = 3000, BYTES = PIECE * PIECES };

static const char name[] = "pages.data";
static int rank, size;
static MPI_File file;
static unsigned char mine[BYTES], there[BYTES];

static unsigned char at(int round, long place) { return (unsigned char)(place * 37 + (place >> 9) + round * 101 + 1); }

static long place_of(int index) { return ((long)(index / PIECE) * size + rank) * PIECE + index % PIECE; }

static void fill(int round) {
    for (int i = 0; i < BYTES; i++) mine[i] = at(round, place_of(i));
}

/* What the system reads. */
static void check_file(int round, long from, long to) {
    unsigned char *all = malloc((size_t)(to - from));
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && pread(fd, all, (size_t)(to - from), from) == to - from);
    for (long i = from; i < to; i++) CHECK(all[i - from] == at(round, i));
    close(fd);
    free(all);
}

static void write_all(int round) {
    fill(round);
    OK(MPI_File_write_at_all(file, 0, mine, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Bytes that a read gives, which are those of `round`. */
static int read_all(int round) {
    MPI_Status status;
    int count;
    memset(there, 0xee, sizeof there);
    OK(MPI_File_read_at_all(file, 0, there, BYTES, MPI_BYTE, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    for (int i = 0; i < count; i++) CHECK(there[i] == at(round, place_of(i)));
    for (int i = count; i < BYTES; i++) CHECK(there[i] == 0xee);
    return count;
}

static int is_mapped(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

/* Ranks of one host use pages together, on file systems of this machine alone. */
static int may_map(void) {
    struct statfs system;
    MPI_Comm host;
    int here;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    OK(MPI_Comm_size(host, &here));
    OK(MPI_Comm_free(&host));
    CHECK(statfs(name, &system) == 0);
    unsigned long type = (unsigned int)system.f_type;
    return here == size && (type == 0xef53 || type == 0x58465342 || type == 0x01021994 || type == 0x9123683e || type == 0x794c7630);
}

int main(int argc, char **argv) {
    MPI_Datatype type;
    struct stat before, after;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    long whole = (long)BYTES * size;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    OK(MPI_Type_contiguous(PIECE, MPI_BYTE, &type));
    MPI_Datatype strided;
    OK(MPI_Type_create_resized(type, 0, (MPI_Aint)size * PIECE, &strided));
    OK(MPI_Type_commit(&strided));
    OK(MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_BYTE, strided, "native", MPI_INFO_NULL));

    /* The file grows: there are no pages yet. */
    write_all(1);
    CHECK(!is_mapped());
    check_file(1, 0, whole);
    for (int round = 2; round < 5; round++) {
        write_all(round);
        check_file(round, 0, whole);
        CHECK(read_all(round) == BYTES);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* Of one rank alone the pieces follow each other without a gap: a single long one. */
    if (size > 1) CHECK(is_mapped() == may_map());

    /* The file was changed later than it says, unless it says so. */
    OK(MPI_File_sync(file));
    CHECK(stat(name, &before) == 0);
    usleep(20000);
    write_all(5);
    usleep(20000);
    write_all(6);
    OK(MPI_File_sync(file));
    CHECK(stat(name, &after) == 0);
    double passed = (double)(after.st_mtim.tv_sec - before.st_mtim.tv_sec) + 1e-9 * (double)(after.st_mtim.tv_nsec - before.st_mtim.tv_nsec);
    CHECK(passed > 0.015);
    OK(MPI_Barrier(MPI_COMM_WORLD));

    /* Somebody else shortens the file: to the middle of a page. */
    long half = whole / 2 + 7;
    if (rank == 0) CHECK(truncate(name, half) == 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    long left = 0, total, got = read_all(6);
    for (int i = 0; i < BYTES; i++) left += place_of(i) < half;
    CHECK(got == left);
    OK(MPI_Allreduce(&got, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(total == half);
    write_all(7);
    check_file(7, 0, whole);
    CHECK(read_all(7) == BYTES);
    OK(MPI_Barrier(MPI_COMM_WORLD));

    /* A hole in the file. */
    if (rank == 0) CHECK(truncate(name, 5000) == 0 && truncate(name, whole) == 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    check_file(7, 0, 5000);
    write_all(8);
    write_all(9);
    check_file(9, 0, whole);
    CHECK(read_all(9) == BYTES);

    /* One rank alone. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    fill(10);
    OK(MPI_File_write_at(file, 0, mine, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    check_file(10, 0, whole);
    OK(MPI_File_read_at(file, 0, there, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(memcmp(mine, there, BYTES) == 0);

    OK(MPI_File_close(&file));
    CHECK(!is_mapped());
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free(&strided));
    OK(MPI_Finalize());
    return 0;
}
