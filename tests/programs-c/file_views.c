// Views and every kind of data access on a file that all ranks share, checked byte by byte.
// ranks: 1 2 3 4
#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 3, BLOCKS = 50 };
static int rank, size;

static int value(int owner, int i) { return owner * 100000 + i; }

static MPI_File open_all(const char *name, int amode) {
    MPI_File file;
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    return file;
}

/* Rank r sees blocks r, r + size, r + 2 size, ... of BLOCK ints. */
static void set_interleaved(MPI_File file, const char *datarep) {
    MPI_Datatype block, tile;
    MPI_Type_contiguous(BLOCK, MPI_INT, &block);
    MPI_Type_create_resized(block, 0, BLOCK * size * (int)sizeof(int), &tile);
    MPI_Type_commit(&tile);
    CHECK(MPI_File_set_view(file, rank * BLOCK * (int)sizeof(int), MPI_INT, tile, datarep, MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_Type_free(&block);
    MPI_Type_free(&tile);
}

static void check_interleaved(MPI_File file) {
    int all = BLOCK * BLOCKS * size;
    int *content = malloc(all * sizeof(int));
    MPI_Status status;
    int count;
    CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, 0, content, all, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == all);
    for (int i = 0; i < all; i++) {
        int block = i / BLOCK;
        CHECK(content[i] == value(block % size, block / size * BLOCK + i % BLOCK));
    }
    free(content);
}

static void interleaved(const char *name) {
    int mine[BLOCK * BLOCKS], back[BLOCK * BLOCKS + 5];
    for (int i = 0; i < BLOCK * BLOCKS; i++)
        mine[i] = value(rank, i);
    for (int way = 0; way < 6; way++) {
        MPI_File file = open_all(name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
        MPI_Status status;
        MPI_Request request;
        int count;
        set_interleaved(file, "native");
        switch (way) {
        case 0: CHECK(MPI_File_write(file, mine, BLOCK * BLOCKS, MPI_INT, &status) == MPI_SUCCESS); break;
        case 1: CHECK(MPI_File_write_all(file, mine, BLOCK * BLOCKS, MPI_INT, &status) == MPI_SUCCESS); break;
        case 2: CHECK(MPI_File_write_at_all(file, 0, mine, BLOCK * BLOCKS, MPI_INT, &status) == MPI_SUCCESS); break;
        case 3:
            CHECK(MPI_File_iwrite_all(file, mine, BLOCK * BLOCKS, MPI_INT, &request) == MPI_SUCCESS);
            CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
            break;
        case 4:
            CHECK(MPI_File_write_all_begin(file, mine, BLOCK * BLOCKS, MPI_INT) == MPI_SUCCESS);
            CHECK(MPI_File_write_all_end(file, mine, &status) == MPI_SUCCESS);
            break;
        case 5:
            CHECK(MPI_File_iwrite_at(file, 0, mine, BLOCK * BLOCKS, MPI_INT, &request) == MPI_SUCCESS);
            CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
            break;
        }
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == BLOCK * BLOCKS);
        MPI_Offset position;
        MPI_File_get_position(file, &position);
        CHECK(position == (way == 2 || way == 5 ? 0 : BLOCK * BLOCKS));
        CHECK(MPI_File_sync(file) == MPI_SUCCESS);
        /* Reading past the end gives what there is. */
        memset(back, 0xff, sizeof back);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_seek(file, 0, MPI_SEEK_SET);
        if (way % 2)
            CHECK(MPI_File_read_all(file, back, BLOCK * BLOCKS + 5, MPI_INT, &status) == MPI_SUCCESS);
        else
            CHECK(MPI_File_read(file, back, BLOCK * BLOCKS + 5, MPI_INT, &status) == MPI_SUCCESS);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == BLOCK * BLOCKS);
        CHECK(memcmp(back, mine, sizeof mine) == 0);
        CHECK(back[BLOCK * BLOCKS] == -1);
        MPI_File_get_position(file, &position);
        CHECK(position == BLOCK * BLOCKS);
        MPI_File_seek(file, -1, MPI_SEEK_END);
        MPI_File_get_position(file, &position);
        CHECK(position >= BLOCK * BLOCKS - 1);
        check_interleaved(file);
        CHECK(MPI_File_close(&file) == MPI_SUCCESS);
        CHECK(file == MPI_FILE_NULL);
    }
    CHECK(access(name, F_OK) != 0);
}

/* Memory with gaps, and a file view with gaps. */
static void memory_with_gaps(const char *name) {
    MPI_File file = open_all(name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Datatype every_other;
    int from[2 * BLOCK * BLOCKS], to[2 * BLOCK * BLOCKS];
    MPI_Type_vector(BLOCK * BLOCKS, 1, 2, MPI_INT, &every_other);
    MPI_Type_commit(&every_other);
    for (int i = 0; i < 2 * BLOCK * BLOCKS; i++) {
        from[i] = i % 2 ? -7 : value(rank, i / 2);
        to[i] = -3;
    }
    set_interleaved(file, "native");
    CHECK(MPI_File_write_all(file, from, 1, every_other, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    CHECK(MPI_File_read(file, to, 1, every_other, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < 2 * BLOCK * BLOCKS; i++)
        CHECK(to[i] == (i % 2 ? -3 : value(rank, i / 2)));
    MPI_Barrier(MPI_COMM_WORLD);
    check_interleaved(file);
    MPI_Type_free(&every_other);
    MPI_File_close(&file);
}

static void shared_pointer(const char *name) {
    MPI_File file = open_all(name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Offset at;
    int turns = 20, *seen = calloc(size * turns, sizeof(int));
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    for (int i = 0; i < turns; i++) {
        int mine = value(rank, i);
        CHECK(MPI_File_write_shared(file, &mine, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_get_position_shared(file, &at) == MPI_SUCCESS && at == (MPI_Offset)size * turns);
    CHECK(MPI_File_read_at(file, 0, seen, size * turns, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    /* Everyone's values are there, each in its own order. */
    int *next = calloc(size, sizeof(int));
    for (int i = 0; i < size * turns; i++) {
        int owner = seen[i] / 100000;
        CHECK(owner >= 0 && owner < size && seen[i] == value(owner, next[owner]));
        next[owner]++;
    }
    /* In order of rank, of unequal length. */
    CHECK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET) == MPI_SUCCESS);
    int mine[8];
    for (int i = 0; i <= rank && i < 8; i++)
        mine[i] = value(rank, i);
    CHECK(MPI_File_write_ordered(file, mine, rank + 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET) == MPI_SUCCESS);
    int back[8] = {0};
    CHECK(MPI_File_read_ordered_begin(file, back, rank + 1, MPI_INT) == MPI_SUCCESS);
    CHECK(MPI_File_read_ordered_end(file, back, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i <= rank; i++)
        CHECK(back[i] == value(rank, i));
    int first;
    CHECK(MPI_File_read_at(file, rank * (rank + 1) / 2, &first, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(first == value(rank, 0));
    free(seen);
    free(next);
    MPI_File_close(&file);
}

/* "external32" is big endian, and a view of it is in its own units. */
static void external(const char *name) {
    MPI_File file = open_all(name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    int mine[BLOCK * BLOCKS], back[BLOCK * BLOCKS];
    unsigned char raw[4];
    MPI_Aint extent;
    for (int i = 0; i < BLOCK * BLOCKS; i++)
        mine[i] = value(rank, i);
    set_interleaved(file, "external32");
    CHECK(MPI_File_get_type_extent(file, MPI_INT, &extent) == MPI_SUCCESS && extent == 4);
    CHECK(MPI_File_get_type_extent(file, MPI_LONG, &extent) == MPI_SUCCESS && (extent == 4 || extent == 8));
    CHECK(MPI_File_write_all(file, mine, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    CHECK(MPI_File_read_all(file, back, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(memcmp(back, mine, sizeof mine) == 0);
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, 4, raw, 4, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK((raw[0] << 24 | raw[1] << 16 | raw[2] << 8 | raw[3]) == value(0, 1));
    MPI_File_close(&file);
}

static void atomic(const char *name) {
    /* Every rank writes the same stretch again and again: whoever reads sees one rank's data, whole. */
    enum { LENGTH = 3000 };
    MPI_File file = open_all(name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Datatype gaps;
    int flag, mine[LENGTH], seen[LENGTH];
    CHECK(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
    CHECK(MPI_File_get_atomicity(file, &flag) == MPI_SUCCESS && flag == 1);
    MPI_Type_create_resized(MPI_INT, 0, 8, &gaps);
    MPI_Type_commit(&gaps);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, gaps, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    for (int i = 0; i < LENGTH; i++)
        mine[i] = rank;
    CHECK(MPI_File_write_at(file, 0, mine, LENGTH, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int turn = 0; turn < 10; turn++) {
        CHECK(MPI_File_write_at(file, 0, mine, LENGTH, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(MPI_File_read_at(file, 0, seen, LENGTH, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        for (int i = 1; i < LENGTH; i++)
            CHECK(seen[i] == seen[0]);
    }
    MPI_Type_free(&gaps);
    MPI_File_close(&file);
}

/* All ranks but the last have a filetype without data, as where rows are fewer than ranks; they take part in what is collective. */
static void without_data(const char *name) {
    MPI_File file = open_all(name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    int last = rank == size - 1, here = last ? 77 : 0, length = last, back[3] = {0}, count;
    MPI_Aint place = 168;
    MPI_Datatype tile;
    MPI_Status status;
    MPI_Offset at;
    if (rank == 0)
        CHECK(MPI_File_write_at(file, 0, back, 2, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Type_create_hindexed(1, &length, &place, MPI_INT, &tile);
    MPI_Type_commit(&tile);
    CHECK(MPI_File_set_view(file, 4, MPI_INT, tile, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_Type_free(&tile);
    CHECK(MPI_File_write_at_all(file, 0, &here, last, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == last);
    CHECK(MPI_File_write_all(file, &here, 0, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    CHECK(MPI_File_read_at_all(file, 0, back, last, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(back[0] == here);
    CHECK(MPI_File_get_byte_offset(file, 0, &at) == MPI_SUCCESS && at == (last ? 172 : 4));
    CHECK(MPI_File_seek(file, 0, MPI_SEEK_END) == MPI_SUCCESS);
    CHECK(MPI_File_get_position(file, &at) == MPI_SUCCESS && at == last);
    if (!last) {
        /* There is no place for data. */
        int error_class;
        MPI_Error_class(MPI_File_write_at(file, 0, &here, 1, MPI_INT, &status), &error_class);
        CHECK(error_class == MPI_ERR_ARG);
        MPI_Error_class(MPI_File_read_at(file, 0, &here, 1, MPI_INT, &status), &error_class);
        CHECK(error_class == MPI_ERR_ARG);
    }
    CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, 0, back, 2, MPI_INT, &status) == MPI_SUCCESS && back[0] == 0 && back[1] == 0);
    CHECK(MPI_File_read_at(file, 43, back, 1, MPI_INT, &status) == MPI_SUCCESS && back[0] == 77);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    interleaved("views.data");
    memory_with_gaps("gaps.data");
    shared_pointer("shared.data");
    external("external.data");
    atomic("atomic.data");
    without_data("without.data");
    MPI_Finalize();
    return 0;
}
