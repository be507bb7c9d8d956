/* The constructors of derived types for large counts make what the others make, and what asks for extents and sizes agrees.
 * ranks: 1
 */
#include "world.h"

enum { ROOM = 4000, PACKED = 4000 };

/* Both types send the same bytes to the same places, and have the same bounds. */
static void same(MPI_Datatype a, MPI_Datatype b)
{
    static unsigned char from[ROOM], to[2][ROOM];
    MPI_Datatype both[2] = {a, b};
    MPI_Count bounds[2][5];
    for (int i = 0; i < 2; i++) {
        MPI_Count lb, extent, true_lb, true_extent, size_bytes, x[5];
        MPI_Aint lb_a, extent_a;
        int size_int;
        OK(MPI_Type_commit(&both[i]));
        OK(MPI_Type_get_extent_c(both[i], &lb, &extent));
        OK(MPI_Type_get_true_extent_c(both[i], &true_lb, &true_extent));
        OK(MPI_Type_size_c(both[i], &size_bytes));
        OK(MPI_Type_get_extent_x(both[i], &x[0], &x[1]));
        OK(MPI_Type_get_true_extent_x(both[i], &x[2], &x[3]));
        OK(MPI_Type_size_x(both[i], &x[4]));
        CHECK(x[0] == lb && x[1] == extent && x[2] == true_lb && x[3] == true_extent && x[4] == size_bytes);
        OK(MPI_Type_get_extent(both[i], &lb_a, &extent_a));
        CHECK(lb_a == lb && extent_a == extent);
        OK(MPI_Type_get_true_extent(both[i], &lb_a, &extent_a));
        CHECK(lb_a == true_lb && extent_a == true_extent);
        OK(MPI_Type_size(both[i], &size_int));
        CHECK(size_int == size_bytes && size_bytes > 0);
        memcpy(bounds[i], x, sizeof x);
        /* Two elements, into bytes that tell where they have come from. */
        fill(from, ROOM, 5);
        memset(to[i], 0, ROOM);
        MPI_Status status;
        MPI_Count elements;
        unsigned char packed[PACKED];
        int at = 0, bytes = 0;
        OK(MPI_Pack(from + 200, 2, both[i], packed, PACKED, &bytes, MPI_COMM_SELF));
        CHECK(bytes == 2 * size_bytes);
        OK(MPI_Unpack(packed, bytes, &at, to[i] + 200, 2, both[i], MPI_COMM_SELF));
        OK(MPI_Sendrecv(packed, bytes, MPI_PACKED, 0, 1, to[i] + 200, 2, both[i], 0, 1, MPI_COMM_SELF, &status));
        OK(MPI_Get_elements_x(&status, both[i], &elements));
        CHECK(elements == 2 * size_bytes / (MPI_Count)sizeof(int));
    }
    CHECK(memcmp(bounds[0], bounds[1], sizeof bounds[0]) == 0);
    CHECK(memcmp(to[0], to[1], ROOM) == 0 && !all_bytes(to[0], ROOM, 0));
    OK(MPI_Type_free(&both[0]));
    OK(MPI_Type_free(&both[1]));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Datatype a, b;
    int lengths[3] = {2, 1, 3}, places[3] = {7, 0, 3}, sizes[2] = {6, 7}, subsizes[2] = {3, 2}, starts[2] = {2, 4};
    MPI_Count lengths_c[3] = {2, 1, 3}, places_c[3] = {7, 0, 3}, sizes_c[2] = {6, 7}, subsizes_c[2] = {3, 2}, starts_c[2] = {2, 4};
    MPI_Aint bytes[3] = {28, 0, 12};
    MPI_Count bytes_c[3] = {28, 0, 12};

    OK(MPI_Type_vector(3, 2, 5, MPI_INT, &a));
    OK(MPI_Type_vector_c(3, 2, 5, MPI_INT, &b));
    same(a, b);
    OK(MPI_Type_create_hvector(3, 2, 20, MPI_INT, &a));
    OK(MPI_Type_create_hvector_c(3, 2, 20, MPI_INT, &b));
    same(a, b);
    OK(MPI_Type_indexed(3, lengths, places, MPI_INT, &a));
    OK(MPI_Type_indexed_c(3, lengths_c, places_c, MPI_INT, &b));
    same(a, b);
    OK(MPI_Type_create_hindexed(3, lengths, bytes, MPI_INT, &a));
    OK(MPI_Type_create_hindexed_c(3, lengths_c, bytes_c, MPI_INT, &b));
    same(a, b);
    OK(MPI_Type_create_indexed_block(3, 2, places, MPI_INT, &a));
    OK(MPI_Type_create_indexed_block_c(3, 2, places_c, MPI_INT, &b));
    same(a, b);
    OK(MPI_Type_create_hindexed_block(3, 2, bytes, MPI_INT, &a));
    OK(MPI_Type_create_hindexed_block_c(3, 2, bytes_c, MPI_INT, &b));
    same(a, b);
    MPI_Datatype parts[3] = {MPI_INT, MPI_INT, MPI_FLOAT};
    OK(MPI_Type_create_struct(3, lengths, bytes, parts, &a));
    OK(MPI_Type_create_struct_c(3, lengths_c, bytes_c, parts, &b));
    same(a, b);
    OK(MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &a));
    OK(MPI_Type_create_subarray_c(2, sizes_c, subsizes_c, starts_c, MPI_ORDER_C, MPI_INT, &b));
    same(a, b);
    OK(MPI_Type_create_resized(MPI_INT, -4, 12, &a));
    OK(MPI_Type_create_resized_c(MPI_INT, -4, 12, &b));
    same(a, b);
    int ways[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, every[2] = {MPI_DISTRIBUTE_DFLT_DARG, 2}, grid[2] = {2, 2};
    for (int one = 0; one < 4; one++) {
        OK(MPI_Type_create_darray(4, one, 2, sizes, ways, every, grid, MPI_ORDER_FORTRAN, MPI_INT, &a));
        OK(MPI_Type_create_darray_c(4, one, 2, sizes_c, ways, every, grid, MPI_ORDER_FORTRAN, MPI_INT, &b));
        same(a, b);
    }

    /* Pairs of a value and an index, whose operations are those of MPI_MINLOC (MPI-5.0 §6.9.4). */
    OK(MPI_Type_get_value_index(MPI_FLOAT, MPI_INT, &a));
    CHECK(a == MPI_FLOAT_INT);
    OK(MPI_Type_get_value_index(MPI_INT, MPI_INT, &a));
    CHECK(a == MPI_2INT);

    /* By class and length (MPI-5.0 §19.1.9). */
    int length;
    OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &a));
    OK(MPI_Type_size(a, &length));
    CHECK(length == 8);
    OK(MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 4, &a));
    OK(MPI_Type_size(a, &length));
    CHECK(length == 4);
    OK(MPI_Type_match_size(MPI_TYPECLASS_COMPLEX, 16, &a));
    OK(MPI_Type_size(a, &length));
    CHECK(length == 16);
    FAILS(MPI_ERR_ARG, MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 3, &a));

    /* By precision and range; the same request gives the same type, which nobody frees (MPI-5.0 §19.1.9). */
    OK(MPI_Type_create_f90_real(15, 300, &a));
    OK(MPI_Type_create_f90_real(15, 300, &b));
    OK(MPI_Type_size(a, &length));
    CHECK(a == b && length == 8);
    OK(MPI_Type_create_f90_complex(6, 30, &a));
    OK(MPI_Type_size(a, &length));
    CHECK(length == 8);
    OK(MPI_Type_create_f90_integer(9, &a));
    OK(MPI_Type_size(a, &length));
    CHECK(length == 4);
    int integers, addresses, datatypes, combiner, range;
    OK(MPI_Type_get_envelope(a, &integers, &addresses, &datatypes, &combiner));
    CHECK(combiner == MPI_COMBINER_F90_INTEGER && integers == 1 && addresses == 0 && datatypes == 0);
    OK(MPI_Type_get_contents(a, 1, 0, 0, &range, NULL, NULL));
    CHECK(range == 9);
    return end();
}
