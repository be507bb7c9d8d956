// Every call that moves data, in both sizes of counts: what one writes, all others read.
// ranks: 1 3
#include "world.h"

enum { COUNT = 40 };
static MPI_File file;
static int out[COUNT], in[COUNT];
static MPI_Offset mine;

static void fill_out(int seed)
{
    for (int i = 0; i < COUNT; i++) {
        out[i] = seed * 10000 + rank * 1000 + i;
        in[i] = -1;
    }
}

static void moved(MPI_Status *status)
{
    int count = -1;
    OK(MPI_Get_count(status, MPI_INT, &count));
    CHECK(count == COUNT);
}

/* Both pointers at this rank's stretch, or at the begin for accesses in order of rank. */
static void rewind_all(void)
{
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_seek(file, mine, MPI_SEEK_SET));
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
}

static void check_file(int seed)
{
    int seen[COUNT];
    MPI_Status status;
    OK(MPI_File_sync(file));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_read_at(file, mine, seen, COUNT, MPI_INT, &status));
    moved(&status);
    for (int i = 0; i < COUNT; i++)
        CHECK(seen[i] == seed * 10000 + rank * 1000 + i);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void check_in(void)
{
    for (int i = 0; i < COUNT; i++)
        CHECK(in[i] == out[i]);
}

#define WRITES(seed, call) \
    do { \
        MPI_Status status; \
        fill_out(seed); \
        rewind_all(); \
        OK(call); \
        moved(&status); \
        check_file(seed); \
    } while (0)

#define READS(call) \
    do { \
        MPI_Status status; \
        for (int i = 0; i < COUNT; i++) \
            in[i] = -1; \
        rewind_all(); \
        OK(call); \
        moved(&status); \
        check_in(); \
    } while (0)

#define ISTARTS(check, call) \
    do { \
        MPI_Status status; \
        MPI_Request request; \
        rewind_all(); \
        OK(call); \
        OK(MPI_Wait(&request, &status)); \
        moved(&status); \
        check; \
    } while (0)

#define SPLITS(check, begin, end) \
    do { \
        MPI_Status status; \
        rewind_all(); \
        OK(begin); \
        OK(end); \
        moved(&status); \
        check; \
    } while (0)

static void pointer_and_offset(void)
{
    WRITES(1, MPI_File_write(file, out, COUNT, MPI_INT, &status));
    WRITES(2, MPI_File_write_c(file, out, COUNT, MPI_INT, &status));
    READS(MPI_File_read(file, in, COUNT, MPI_INT, &status));
    READS(MPI_File_read_c(file, in, COUNT, MPI_INT, &status));
    WRITES(3, MPI_File_write_all(file, out, COUNT, MPI_INT, &status));
    WRITES(4, MPI_File_write_all_c(file, out, COUNT, MPI_INT, &status));
    READS(MPI_File_read_all(file, in, COUNT, MPI_INT, &status));
    READS(MPI_File_read_all_c(file, in, COUNT, MPI_INT, &status));
    WRITES(5, MPI_File_write_at(file, mine, out, COUNT, MPI_INT, &status));
    WRITES(6, MPI_File_write_at_c(file, mine, out, COUNT, MPI_INT, &status));
    READS(MPI_File_read_at(file, mine, in, COUNT, MPI_INT, &status));
    READS(MPI_File_read_at_c(file, mine, in, COUNT, MPI_INT, &status));
    WRITES(7, MPI_File_write_at_all(file, mine, out, COUNT, MPI_INT, &status));
    WRITES(8, MPI_File_write_at_all_c(file, mine, out, COUNT, MPI_INT, &status));
    READS(MPI_File_read_at_all(file, mine, in, COUNT, MPI_INT, &status));
    READS(MPI_File_read_at_all_c(file, mine, in, COUNT, MPI_INT, &status));
}

static void nonblocking(void)
{
    fill_out(11);
    ISTARTS(check_file(11), MPI_File_iwrite(file, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread(file, in, COUNT, MPI_INT, &request));
    fill_out(12);
    ISTARTS(check_file(12), MPI_File_iwrite_c(file, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread_c(file, in, COUNT, MPI_INT, &request));
    fill_out(13);
    ISTARTS(check_file(13), MPI_File_iwrite_all(file, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread_all(file, in, COUNT, MPI_INT, &request));
    fill_out(14);
    ISTARTS(check_file(14), MPI_File_iwrite_all_c(file, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread_all_c(file, in, COUNT, MPI_INT, &request));
    fill_out(15);
    ISTARTS(check_file(15), MPI_File_iwrite_at(file, mine, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread_at(file, mine, in, COUNT, MPI_INT, &request));
    fill_out(16);
    ISTARTS(check_file(16), MPI_File_iwrite_at_c(file, mine, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread_at_c(file, mine, in, COUNT, MPI_INT, &request));
    fill_out(17);
    ISTARTS(check_file(17), MPI_File_iwrite_at_all(file, mine, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread_at_all(file, mine, in, COUNT, MPI_INT, &request));
    fill_out(18);
    ISTARTS(check_file(18), MPI_File_iwrite_at_all_c(file, mine, out, COUNT, MPI_INT, &request));
    ISTARTS(check_in(), MPI_File_iread_at_all_c(file, mine, in, COUNT, MPI_INT, &request));
}

static void split(void)
{
    fill_out(21);
    SPLITS(check_file(21), MPI_File_write_all_begin(file, out, COUNT, MPI_INT), MPI_File_write_all_end(file, out, &status));
    SPLITS(check_in(), MPI_File_read_all_begin(file, in, COUNT, MPI_INT), MPI_File_read_all_end(file, in, &status));
    fill_out(22);
    SPLITS(check_file(22), MPI_File_write_all_begin_c(file, out, COUNT, MPI_INT), MPI_File_write_all_end(file, out, &status));
    SPLITS(check_in(), MPI_File_read_all_begin_c(file, in, COUNT, MPI_INT), MPI_File_read_all_end(file, in, &status));
    fill_out(23);
    SPLITS(check_file(23), MPI_File_write_at_all_begin(file, mine, out, COUNT, MPI_INT), MPI_File_write_at_all_end(file, out, &status));
    SPLITS(check_in(), MPI_File_read_at_all_begin(file, mine, in, COUNT, MPI_INT), MPI_File_read_at_all_end(file, in, &status));
    fill_out(24);
    SPLITS(check_file(24), MPI_File_write_at_all_begin_c(file, mine, out, COUNT, MPI_INT), MPI_File_write_at_all_end(file, out, &status));
    SPLITS(check_in(), MPI_File_read_at_all_begin_c(file, mine, in, COUNT, MPI_INT), MPI_File_read_at_all_end(file, in, &status));
    /* In order of rank every rank's stretch is the one that it has anyway. */
    fill_out(25);
    SPLITS(check_file(25), MPI_File_write_ordered_begin(file, out, COUNT, MPI_INT), MPI_File_write_ordered_end(file, out, &status));
    SPLITS(check_in(), MPI_File_read_ordered_begin(file, in, COUNT, MPI_INT), MPI_File_read_ordered_end(file, in, &status));
    fill_out(26);
    SPLITS(check_file(26), MPI_File_write_ordered_begin_c(file, out, COUNT, MPI_INT), MPI_File_write_ordered_end(file, out, &status));
    SPLITS(check_in(), MPI_File_read_ordered_begin_c(file, in, COUNT, MPI_INT), MPI_File_read_ordered_end(file, in, &status));
    WRITES(27, MPI_File_write_ordered(file, out, COUNT, MPI_INT, &status));
    READS(MPI_File_read_ordered(file, in, COUNT, MPI_INT, &status));
    WRITES(28, MPI_File_write_ordered_c(file, out, COUNT, MPI_INT, &status));
    READS(MPI_File_read_ordered_c(file, in, COUNT, MPI_INT, &status));
}

/* At the shared pointer the ranks take turns, so that each finds its own stretch. */
#define IN_TURN(call) \
    do { \
        rewind_all(); \
        for (int turn = 0; turn < size; turn++) { \
            if (turn == rank) { \
                MPI_Status status; \
                MPI_Request request = MPI_REQUEST_NULL; \
                OK(call); \
                if (request != MPI_REQUEST_NULL) \
                    OK(MPI_Wait(&request, &status)); \
                moved(&status); \
            } \
            OK(MPI_Barrier(MPI_COMM_WORLD)); \
        } \
    } while (0)

static void shared(void)
{
    fill_out(31);
    IN_TURN(MPI_File_write_shared(file, out, COUNT, MPI_INT, &status));
    check_file(31);
    IN_TURN(MPI_File_read_shared(file, in, COUNT, MPI_INT, &status));
    check_in();
    fill_out(32);
    IN_TURN(MPI_File_write_shared_c(file, out, COUNT, MPI_INT, &status));
    check_file(32);
    IN_TURN(MPI_File_read_shared_c(file, in, COUNT, MPI_INT, &status));
    check_in();
    fill_out(33);
    IN_TURN(MPI_File_iwrite_shared(file, out, COUNT, MPI_INT, &request));
    check_file(33);
    IN_TURN(MPI_File_iread_shared(file, in, COUNT, MPI_INT, &request));
    check_in();
    fill_out(34);
    IN_TURN(MPI_File_iwrite_shared_c(file, out, COUNT, MPI_INT, &request));
    check_file(34);
    IN_TURN(MPI_File_iread_shared_c(file, in, COUNT, MPI_INT, &request));
    check_in();
}

static int extent_of(MPI_Datatype datatype, MPI_Aint *extent, void *state)
{
    MPI_Aint lb;
    (void)state;
    return MPI_Type_get_extent(datatype, &lb, extent);
}

int main(int argc, char **argv)
{
    MPI_Info info;
    MPI_Count wide;
    char value[16];
    int flag;
    begin(&argc, &argv);
    mine = (MPI_Offset)rank * COUNT;
    OK(MPI_File_open(MPI_COMM_WORLD, "calls.data", MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    pointer_and_offset();
    nonblocking();
    split();
    shared();
    OK(MPI_File_get_type_extent_c(file, MPI_DOUBLE, &wide));
    CHECK(wide == 8);
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "cb_nodes", "2"));
    OK(MPI_File_set_info(file, info));
    OK(MPI_Info_free(&info));
    OK(MPI_File_get_info(file, &info));
    OK(MPI_Info_get(info, "cb_nodes", sizeof value - 1, value, &flag));
    CHECK(flag && strcmp(value, "2") == 0);
    OK(MPI_Info_free(&info));
    /* Without conversion functions a registered representation is as memory. */
    OK(MPI_Register_datarep_c("plain", MPI_CONVERSION_FN_NULL_C, MPI_CONVERSION_FN_NULL_C, extent_of, NULL));
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "plain", MPI_INFO_NULL));
    WRITES(41, MPI_File_write_all(file, out, COUNT, MPI_INT, &status));
    READS(MPI_File_read_all(file, in, COUNT, MPI_INT, &status));
    OK(MPI_File_close(&file));
    return end();
}
