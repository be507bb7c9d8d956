/* Datatypes: what is said of them, and messages between layouts that differ.
 * ranks: 1 2 3
 */
#include "world.h"

static void queries(void)
{
    MPI_Datatype type, other, types[3];
    MPI_Aint lb, extent, addresses[4];
    MPI_Count large, large_lb, counts[8];
    int integers[16], ni, na, nd, combiner, length, number;
    char name[MPI_MAX_OBJECT_NAME], longer[2 * MPI_MAX_OBJECT_NAME];

    /* struct { double; char; }: padded to the alignment of its largest member */
    OK(MPI_Type_create_struct(2, (int[]) {1, 1}, (MPI_Aint[]) {0, 8}, (MPI_Datatype[]) {MPI_DOUBLE, MPI_CHAR}, &type));
    OK(MPI_Type_get_extent(type, &lb, &extent));
    CHECK(lb == 0 && extent == 16);
    OK(MPI_Type_get_true_extent(type, &lb, &extent));
    CHECK(lb == 0 && extent == 9);
    OK(MPI_Type_size(type, &number));
    CHECK(number == 9);
    OK(MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner));
    CHECK(ni == 3 && na == 2 && nd == 2 && combiner == MPI_COMBINER_STRUCT);
    OK(MPI_Type_get_contents(type, 3, 2, 2, integers, addresses, types));
    CHECK(integers[0] == 2 && integers[2] == 1 && addresses[1] == 8 && types[0] == MPI_DOUBLE && types[1] == MPI_CHAR);
    FAILS(MPI_ERR_ARG, MPI_Type_get_contents(type, 2, 2, 2, integers, addresses, types));
    OK(MPI_Type_free(&type));
    CHECK(type == MPI_DATATYPE_NULL);

    /* a part is handed out again, though its own handle is gone */
    OK(MPI_Type_vector(2, 3, 5, MPI_INT, &type));
    OK(MPI_Type_create_resized(type, -4, 64, &other));
    OK(MPI_Type_free(&type));
    OK(MPI_Type_get_contents(other, 0, 2, 1, NULL, addresses, types));
    CHECK(addresses[0] == -4 && addresses[1] == 64);
    OK(MPI_Type_get_envelope(types[0], &ni, &na, &nd, &combiner));
    CHECK(combiner == MPI_COMBINER_VECTOR && ni == 3);
    OK(MPI_Type_get_contents(types[0], 3, 0, 1, integers, NULL, &types[1]));
    CHECK(integers[0] == 2 && integers[1] == 3 && integers[2] == 5 && types[1] == MPI_INT);
    OK(MPI_Type_free(&types[0]));
    /* bounds set by hand hold in what is made of it */
    OK(MPI_Type_contiguous(2, other, &type));
    OK(MPI_Type_get_extent(type, &lb, &extent));
    CHECK(lb == -4 && extent == 128);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free(&other));

    /* large counts */
    OK(MPI_Type_contiguous_c((MPI_Count) 3 << 32, MPI_INT, &type));
    OK(MPI_Type_size(type, &number));
    CHECK(number == MPI_UNDEFINED);
    OK(MPI_Type_size_c(type, &large));
    CHECK(large == (MPI_Count) 12 << 32);
    OK(MPI_Type_get_extent_c(type, &large_lb, &large));
    CHECK(large_lb == 0 && large == (MPI_Count) 12 << 32);
    FAILS(MPI_ERR_TYPE, MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner));
    MPI_Count lni, lna, lnc, lnd;
    OK(MPI_Type_get_envelope_c(type, &lni, &lna, &lnc, &lnd, &combiner));
    CHECK(lni == 0 && lna == 0 && lnc == 1 && lnd == 1 && combiner == MPI_COMBINER_CONTIGUOUS);
    OK(MPI_Type_get_contents_c(type, 0, 0, 1, 1, NULL, NULL, counts, types));
    CHECK(counts[0] == (MPI_Count) 3 << 32 && types[0] == MPI_INT);
    OK(MPI_Type_commit(&type));
    OK(MPI_Pack_size(1, type, MPI_COMM_SELF, &number));
    CHECK(number == MPI_UNDEFINED);
    FAILS(MPI_ERR_COUNT, MPI_Type_contiguous_c((MPI_Count) 1 << 30, type, &other));
    MPI_Status status;
    OK(MPI_Status_set_elements_c(&status, type, (MPI_Count) 5 << 32));
    OK(MPI_Get_elements(&status, MPI_INT, &number));
    CHECK(number == MPI_UNDEFINED);
    OK(MPI_Get_elements_c(&status, type, &large));
    CHECK(large == (MPI_Count) 5 << 32);
    OK(MPI_Get_count_c(&status, type, &large));
    CHECK(large == MPI_UNDEFINED);
    OK(MPI_Get_count_c(&status, MPI_INT, &large));
    CHECK(large == (MPI_Count) 5 << 32);
    OK(MPI_Type_free(&type));

    /* names */
    OK(MPI_Type_get_name(MPI_DOUBLE, name, &length));
    CHECK(strcmp(name, "MPI_DOUBLE") == 0 && length == 10);
    OK(MPI_Type_get_name(MPI_DATATYPE_NULL, name, &length));
    CHECK(strcmp(name, "MPI_DATATYPE_NULL") == 0);
    OK(MPI_Type_dup(MPI_DOUBLE, &type));
    OK(MPI_Type_get_name(type, name, &length));
    CHECK(length == 0 && name[0] == 0);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    OK(MPI_Type_set_name(type, longer));
    OK(MPI_Type_get_name(type, name, &length));
    CHECK(length == MPI_MAX_OBJECT_NAME - 1 && strlen(name) == MPI_MAX_OBJECT_NAME - 1);
    OK(MPI_Type_free(&type));

    /* what is refused */
    MPI_Datatype none = MPI_DATATYPE_NULL, fixed = MPI_INT;
    FAILS(MPI_ERR_TYPE, MPI_Type_free(&none));
    FAILS(MPI_ERR_TYPE, MPI_Type_free(&fixed));
    FAILS(MPI_ERR_TYPE, MPI_Type_commit(&none));
    FAILS(MPI_ERR_TYPE, MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &type));
    FAILS(MPI_ERR_COUNT, MPI_Type_contiguous(-1, MPI_INT, &type));
    FAILS(MPI_ERR_ARG, MPI_Type_vector(1, -1, 1, MPI_INT, &type));
    FAILS(MPI_ERR_ARG, MPI_Type_indexed(1, NULL, NULL, MPI_INT, &type));
    FAILS(MPI_ERR_ARG, MPI_Type_create_subarray(0, NULL, NULL, NULL, MPI_ORDER_C, MPI_INT, &type));
    FAILS(MPI_ERR_ARG, MPI_Type_contiguous(1, MPI_INT, NULL));
    OK(MPI_Type_contiguous(1, MPI_INT, &type));
    FAILS(MPI_ERR_TYPE, MPI_Send(integers, 1, type, 0, 0, MPI_COMM_SELF));
    OK(MPI_Type_free(&type));
}

/* A message from one layout to another, through MPI_Sendrecv around the ring. */
static MPI_Status ring(const void *out, int out_count, MPI_Datatype sent, void *in, int in_count, MPI_Datatype received)
{
    MPI_Status status;
    OK(MPI_Sendrecv(out, out_count, sent, (rank + 1) % size, 5, in, in_count, received, (rank + size - 1) % size, 5,
                    MPI_COMM_WORLD, &status));
    return status;
}

/* A column of a matrix becomes a row, at sizes that go every way that messages go. */
static void columns(void)
{
    for (int rows = 1; rows <= 1 << 18; rows *= 8) {
        double *matrix = malloc(sizeof(double) * 4 * rows), *row = malloc(sizeof(double) * rows);
        double *back = calloc(4 * (size_t) rows, sizeof(double));
        for (int i = 0; i < 4 * rows; i++)
            matrix[i] = i + rank * 0.5;
        MPI_Datatype column;
        MPI_Status status;
        int count;
        OK(MPI_Type_vector(rows, 1, 4, MPI_DOUBLE, &column));
        OK(MPI_Type_commit(&column));
        int from = (rank + size - 1) % size;
        status = ring(matrix + 2, 1, column, row, rows, MPI_DOUBLE);
        OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
        CHECK(count == rows);
        OK(MPI_Get_elements(&status, column, &count));
        CHECK(count == rows);
        for (int i = 0; i < rows; i++)
            CHECK(row[i] == 4 * i + 2 + from * 0.5);
        /* the same way back, between two columns */
        ring(matrix + 1, 1, column, back + 3, 1, column);
        for (int i = 0; i < 4 * rows; i++)
            CHECK(back[i] == (i % 4 == 3 ? i - 2 + from * 0.5 : 0));
        OK(MPI_Type_free(&column));
        free(matrix);
        free(row);
        free(back);
    }
}

struct particle {
    double place[3];
    int kind;
    char mark;
};

/* Structures by absolute addresses from MPI_BOTTOM, a part received, a datatype freed while its receive is pending. */
static void structures(void)
{
    struct particle out[40], in[40];
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    for (int i = 0; i < 40; i++)
        out[i] = (struct particle) {{i, i + 0.25, rank}, i * i, (char) i};
    MPI_Datatype packed, particle, absolute;
    MPI_Aint places[3], base;
    OK(MPI_Get_address(&out[0], &base));
    OK(MPI_Get_address(&out[0].place, &places[0]));
    OK(MPI_Get_address(&out[0].kind, &places[1]));
    OK(MPI_Get_address(&out[0].mark, &places[2]));
    MPI_Datatype types[3] = {MPI_DOUBLE, MPI_INT, MPI_CHAR};
    int lengths[3] = {3, 1, 1};
    OK(MPI_Type_create_struct(3, lengths, places, types, &packed));
    OK(MPI_Type_create_resized(packed, places[0], sizeof(struct particle), &absolute));
    OK(MPI_Type_commit(&absolute));
    for (int i = 0; i < 3; i++)
        places[i] = MPI_Aint_diff(places[i], base);
    OK(MPI_Type_free(&packed));
    OK(MPI_Type_create_struct(3, lengths, places, types, &particle));
    OK(MPI_Type_commit(&particle));

    int from = (rank + size - 1) % size, count;
    MPI_Request request;
    MPI_Status status;
    OK(MPI_Irecv(in, 40, particle, from, 6, MPI_COMM_WORLD, &request));
    MPI_Datatype again = particle;
    OK(MPI_Type_dup(particle, &again));
    OK(MPI_Type_free(&particle));
    OK(MPI_Send(MPI_BOTTOM, 33, absolute, (rank + 1) % size, 6, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, again, &count));
    CHECK(count == 33);
    OK(MPI_Get_elements(&status, again, &count));
    CHECK(count == 33 * 5);
    for (int i = 0; i < 40; i++) {
        int there = i < 33;
        CHECK(in[i].place[0] == (there ? i : 0) && in[i].place[1] == (there ? i + 0.25 : 0));
        CHECK(in[i].place[2] == (there ? from : 0) && in[i].kind == (there ? i * i : 0) && in[i].mark == (there ? i : 0));
    }

    /* two elements and three numbers of the third */
    OK(MPI_Type_free(&absolute));
    char bytes[2 * 29 + 24];
    memset(bytes, 0, sizeof bytes);
    status = ring(bytes, sizeof bytes, MPI_BYTE, in, 40, again);
    OK(MPI_Get_count(&status, again, &count));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Get_elements(&status, again, &count));
    CHECK(count == 13);
    OK(MPI_Type_free(&again));
}

/* A block out of an array of three dimensions, in either order, against loops. */
static void arrays(void)
{
    enum { A = 12, B = 10, C = 9 };
    static int whole[A][B][C], part[5 * 4 * 3];
    for (int i = 0; i < A * B * C; i++)
        (&whole[0][0][0])[i] = i + 10000 * rank;
    for (int fortran = 0; fortran < 2; fortran++) {
        int sizes[3] = {A, B, C}, subsizes[3] = {5, 4, 3}, starts[3] = {7, 2, 6};
        if (fortran) {
            sizes[0] = C, sizes[2] = A;
            subsizes[0] = 3, subsizes[2] = 5;
            starts[0] = 6, starts[2] = 7;
        }
        MPI_Datatype block;
        OK(MPI_Type_create_subarray(3, sizes, subsizes, starts, fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, MPI_INT, &block));
        OK(MPI_Type_commit(&block));
        ring(whole, 1, block, part, 60, MPI_INT);
        int n = 0;
        for (int i = 7; i < 12; i++)
            for (int j = 2; j < 6; j++)
                for (int k = 6; k < 9; k++)
                    CHECK(part[n++] == (i * B + j) * C + k + 10000 * ((rank + size - 1) % size));
        OK(MPI_Type_free(&block));
    }

    /* every process's share of a matrix, dealt cyclically: together they are all of it, once */
    int seen[7 * 11] = {0}, all[7 * 11] = {0};
    int ones[7 * 11];
    for (int i = 0; i < 77; i++)
        ones[i] = 1;
    MPI_Datatype share;
    OK(MPI_Type_create_darray(size, rank, 2, (int[]) {7, 11}, (int[]) {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_CYCLIC},
                              (int[]) {MPI_DISTRIBUTE_DFLT_DARG, 2}, (int[]) {1, size}, MPI_ORDER_C, MPI_INT, &share));
    OK(MPI_Type_commit(&share));
    int bytes;
    OK(MPI_Type_size(share, &bytes));
    OK(MPI_Sendrecv(ones, bytes / 4, MPI_INT, rank, 8, seen, 1, share, rank, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Allreduce(seen, all, 77, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < 77; i++) {
        CHECK(all[i] == 1);
        CHECK(seen[i] == (i % 11 / 2 % size == rank));
    }
    OK(MPI_Type_free(&share));
}

static int copies, deletes;

static int copy_attribute(MPI_Datatype type, int key, void *extra, void *in, void *out, int *flag)
{
    (void) type, (void) key, (void) extra;
    copies++;
    *(void **) out = (char *) in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Datatype type, int key, void *value, void *extra)
{
    (void) type, (void) key, (void) value;
    deletes++;
    return extra == NULL ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static void attributes(void)
{
    int key, flag;
    char *value;
    MPI_Datatype type, twin;
    OK(MPI_Type_create_keyval(copy_attribute, delete_attribute, &key, NULL));
    OK(MPI_Type_dup(MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, (char *) 41));
    OK(MPI_Type_dup(type, &twin));
    OK(MPI_Type_get_attr(twin, key, &value, &flag));
    CHECK(flag && value == (char *) 42 && copies == 1);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free(&twin));
    CHECK(deletes == 2);
    OK(MPI_Type_free_keyval(&key));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    queries();
    columns();
    structures();
    arrays();
    attributes();
    return end();
}
