// Opening, sizes, hints, error classes, registered representations.
// ranks: 1 2 4
#include "check.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static int class_of(int code) {
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static int try_open(const char *name, int amode) {
    MPI_File file = MPI_FILE_NULL;
    int code = MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &file);
    if (code == MPI_SUCCESS)
        MPI_File_close(&file);
    return class_of(code);
}

/* A representation that adds one to every byte. */
static int extent_of(MPI_Datatype datatype, MPI_Aint *extent, void *state) {
    MPI_Aint lb;
    (void)state;
    return MPI_Type_get_extent(datatype, &lb, extent);
}
static int shifted(void *memory, MPI_Datatype datatype, int count, void *file, MPI_Offset position, int by) {
    int bytes;
    MPI_Type_size(datatype, &bytes);
    (void)position;
    unsigned char *from = by > 0 ? memory : file, *to = by > 0 ? file : memory;
    for (int i = 0; i < bytes * count; i++)
        to[i] = from[i] + by;
    return MPI_SUCCESS;
}
static int reading(void *memory, MPI_Datatype datatype, int count, void *file, MPI_Offset position, void *state) {
    ++*(int *)state;
    return shifted(memory, datatype, count, file, position, -1);
}
static int writing(void *memory, MPI_Datatype datatype, int count, void *file, MPI_Offset position, void *state) {
    ++*(int *)state;
    return shifted(memory, datatype, count, file, position, 1);
}

static int handled, handled_code;
static void handler(MPI_File *file, int *code, ...) {
    (void)file;
    handled++;
    handled_code = *code;
}

int main(int argc, char **argv) {
    MPI_File file;
    MPI_Offset bytes, at;
    MPI_Info info;
    MPI_Group group, world;
    char name[] = "manage.data", text[MPI_MAX_DATAREP_STRING];
    int amode, flag, result, calls = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    CHECK(try_open("there/is/none", MPI_MODE_RDONLY) == MPI_ERR_NO_SUCH_FILE);
    CHECK(try_open("none.data", MPI_MODE_RDONLY) == MPI_ERR_NO_SUCH_FILE);
    CHECK(try_open(name, MPI_MODE_RDONLY | MPI_MODE_WRONLY) == MPI_ERR_AMODE);
    CHECK(try_open(name, MPI_MODE_RDONLY | MPI_MODE_CREATE) == MPI_ERR_AMODE);
    if (size > 1)
        CHECK(try_open(name, MPI_MODE_CREATE | (rank ? MPI_MODE_RDWR : MPI_MODE_WRONLY)) == MPI_ERR_NOT_SAME);
    CHECK(access(name, F_OK) != 0);
    CHECK(try_open(name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(try_open(name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR) == MPI_ERR_FILE_EXISTS);

    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_buffer_size", "8192");
    MPI_Info_set(info, "no_such_hint", "1");
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR, info, &file) == MPI_SUCCESS);
    MPI_Info_free(&info);
    CHECK(MPI_File_get_amode(file, &amode) == MPI_SUCCESS && amode == MPI_MODE_RDWR);
    CHECK(MPI_File_get_info(file, &info) == MPI_SUCCESS);
    MPI_Info_get(info, "cb_buffer_size", sizeof text - 1, text, &flag);
    CHECK(flag && strcmp(text, "8192") == 0);
    MPI_Info_get(info, "no_such_hint", sizeof text - 1, text, &flag);
    CHECK(!flag);
    MPI_Info_free(&info);
    MPI_File_get_group(file, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &result);
    CHECK(result == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);

    CHECK(MPI_File_set_size(file, 1000) == MPI_SUCCESS);
    CHECK(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == 1000);
    CHECK(MPI_File_preallocate(file, 5000) == MPI_SUCCESS);
    CHECK(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == 5000);
    CHECK(MPI_File_preallocate(file, 10) == MPI_SUCCESS);
    CHECK(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == 5000);
    CHECK(class_of(MPI_File_set_size(file, -1)) == MPI_ERR_ARG);
    if (size > 1)
        CHECK(class_of(MPI_File_set_size(file, rank)) == MPI_ERR_NOT_SAME);
    CHECK(class_of(MPI_File_seek(file, -1, MPI_SEEK_SET)) == MPI_ERR_ARG);
    CHECK(MPI_File_seek(file, -10, MPI_SEEK_END) == MPI_SUCCESS);
    CHECK(MPI_File_get_position(file, &at) == MPI_SUCCESS && at == 4990);

    MPI_Datatype etype, filetype;
    CHECK(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "no such", MPI_INFO_NULL)) == MPI_ERR_UNSUPPORTED_DATAREP);
    CHECK(class_of(MPI_File_set_view(file, -4, MPI_INT, MPI_INT, "native", MPI_INFO_NULL)) == MPI_ERR_ARG);
    CHECK(MPI_File_set_view(file, 12, MPI_INT, MPI_INT, "internal", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_get_view(file, &at, &etype, &filetype, text) == MPI_SUCCESS);
    CHECK(at == 12 && etype == MPI_INT && filetype == MPI_INT && strcmp(text, "internal") == 0);
    CHECK(MPI_File_get_byte_offset(file, 5, &at) == MPI_SUCCESS && at == 32);

    /* Errors go to the file's handler. */
    MPI_Errhandler errhandler;
    MPI_File_create_errhandler(handler, &errhandler);
    CHECK(MPI_File_set_errhandler(file, errhandler) == MPI_SUCCESS);
    int value = 7;
    MPI_File_write_at(file, -1, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    CHECK(handled == 1 && class_of(handled_code) == MPI_ERR_ARG);
    MPI_File_write_at(file, 0, &value, 1, MPI_SHORT, MPI_STATUS_IGNORE);
    CHECK(handled == 2 && class_of(handled_code) == MPI_ERR_ARG);
    MPI_Errhandler_free(&errhandler);
    CHECK(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_read_all_end(file, &value, MPI_STATUS_IGNORE)) == MPI_ERR_OTHER);
    CHECK(MPI_File_write_all_begin(file, &value, 1, MPI_INT) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_write_all_begin(file, &value, 1, MPI_INT)) == MPI_ERR_OTHER);
    CHECK(class_of(MPI_File_read_all_end(file, &value, MPI_STATUS_IGNORE)) == MPI_ERR_OTHER);
    CHECK(MPI_File_write_all_end(file, &value, MPI_STATUS_IGNORE) == MPI_SUCCESS);

    /* A representation of the program's own. */
    CHECK(MPI_Register_datarep("shifted", reading, writing, extent_of, &calls) == MPI_SUCCESS);
    CHECK(class_of(MPI_Register_datarep("shifted", reading, writing, extent_of, &calls)) == MPI_ERR_DUP_DATAREP);
    CHECK(class_of(MPI_Register_datarep("native", reading, writing, extent_of, &calls)) == MPI_ERR_DUP_DATAREP);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "shifted", MPI_INFO_NULL) == MPI_SUCCESS);
    value = 0x01020304 + rank;
    CHECK(MPI_File_write_at_all(file, rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    int back = 0;
    CHECK(MPI_File_read_at_all(file, rank, &back, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(back == value && calls >= 2);
    CHECK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, rank, &back, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(back == value + 0x01010101);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_sync(file)) == MPI_ERR_FILE);

    /* What is only read is not written, and what is only written not read. */
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_write(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_READ_ONLY);
    CHECK(class_of(MPI_File_set_size(file, 1)) == MPI_ERR_READ_ONLY);
    MPI_File_close(&file);
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_read(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_ACCESS);
    CHECK(MPI_File_get_position(file, &at) == MPI_SUCCESS && at == 5000);
    CHECK(MPI_File_get_position_shared(file, &at) == MPI_SUCCESS && at == 5000);
    MPI_File_close(&file);
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    CHECK(class_of(MPI_File_read_at(file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_UNSUPPORTED_OPERATION);
    CHECK(MPI_File_read_shared(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        CHECK(MPI_File_delete(name, MPI_INFO_NULL) == MPI_SUCCESS);
        CHECK(class_of(MPI_File_delete(name, MPI_INFO_NULL)) == MPI_ERR_NO_SUCH_FILE);
    }
    MPI_Finalize();
    return 0;
}
