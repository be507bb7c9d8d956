/* MPI_Pack and MPI_Unpack, native and in "external32".
 * ranks: 1 2
 */
#include "world.h"

static void native(void)
{
    char buffer[100];
    int position = 0, count, bytes, numbers[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
    double real = 2.5;
    MPI_Datatype every_other;
    OK(MPI_Type_vector(3, 1, 2, MPI_INT, &every_other));
    FAILS(MPI_ERR_TYPE, MPI_Pack(numbers, 1, every_other, buffer, 100, &position, MPI_COMM_WORLD));
    OK(MPI_Type_commit(&every_other));
    OK(MPI_Pack_size(1, every_other, MPI_COMM_WORLD, &bytes));
    CHECK(bytes >= 12);
    OK(MPI_Pack(numbers, 1, every_other, buffer, 100, &position, MPI_COMM_WORLD));
    OK(MPI_Pack(&real, 1, MPI_DOUBLE, buffer, 100, &position, MPI_COMM_WORLD));
    CHECK(position == 20);
    FAILS(MPI_ERR_TRUNCATE, MPI_Pack(numbers, 6, MPI_INT, buffer, 43, &position, MPI_COMM_WORLD));
    FAILS(MPI_ERR_COUNT, MPI_Pack(numbers, -1, MPI_INT, buffer, 100, &position, MPI_COMM_WORLD));
    FAILS(MPI_ERR_COMM, MPI_Pack(numbers, 1, MPI_INT, buffer, 100, &position, MPI_COMM_NULL));
    CHECK(position == 20);
    int outside = 101;
    FAILS(MPI_ERR_ARG, MPI_Pack(numbers, 1, MPI_INT, buffer, 100, &outside, MPI_COMM_WORLD));

    /* MPI_PACKED travels as it is, and is received as what it was made of */
    MPI_Status status;
    char copy[100];
    OK(MPI_Sendrecv(buffer, position, MPI_PACKED, (rank + 1) % size, 1, copy, 100, MPI_PACKED, (rank + size - 1) % size, 1,
                    MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, MPI_PACKED, &count));
    CHECK(count == 20);
    position = 0;
    OK(MPI_Unpack(copy, 20, &position, back, 1, every_other, MPI_COMM_WORLD));
    real = 0;
    OK(MPI_Unpack(copy, 20, &position, &real, 1, MPI_DOUBLE, MPI_COMM_WORLD));
    CHECK(position == 20 && real == 2.5);
    for (int i = 0; i < 6; i++)
        CHECK(back[i] == (i % 2 == 0 && i < 5 ? i + 1 : 0));
    FAILS(MPI_ERR_TRUNCATE, MPI_Unpack(copy, 20, &position, &real, 1, MPI_DOUBLE, MPI_COMM_WORLD));

    MPI_Count large_position = 12, large_bytes;
    OK(MPI_Pack_size_c(3, MPI_DOUBLE, MPI_COMM_WORLD, &large_bytes));
    CHECK(large_bytes == 24);
    real = 0;
    OK(MPI_Unpack_c(copy, 20, &large_position, &real, 1, MPI_DOUBLE, MPI_COMM_WORLD));
    CHECK(large_position == 20 && real == 2.5);
    OK(MPI_Type_free(&every_other));
}

static void external(void)
{
    struct {
        int number;
        double real;
        short small[2];
    } out = {0x01020304, -2.0, {0x0506, -2}}, in = {0};
    MPI_Datatype type;
    MPI_Aint places[3] = {(char *) &out.number - (char *) &out, (char *) &out.real - (char *) &out,
                          (char *) out.small - (char *) &out};
    MPI_Datatype types[3] = {MPI_INT, MPI_DOUBLE, MPI_SHORT};
    OK(MPI_Type_create_struct(3, (int[]) {1, 1, 2}, places, types, &type));
    OK(MPI_Type_commit(&type));
    MPI_Aint bytes, position = 0;
    OK(MPI_Pack_external_size("external32", 1, type, &bytes));
    CHECK(bytes == 16);
    unsigned char buffer[16], expected[16] = {1, 2, 3, 4, 0xc0, 0, 0, 0, 0, 0, 0, 0, 5, 6, 0xff, 0xfe};
    OK(MPI_Pack_external("external32", &out, 1, type, buffer, 16, &position));
    CHECK(position == 16 && memcmp(buffer, expected, 16) == 0);
    FAILS(MPI_ERR_TRUNCATE, MPI_Pack_external("external32", &out, 1, type, buffer, 16, &position));
    FAILS(MPI_ERR_ARG, MPI_Pack_external("external64", &out, 1, type, buffer, 16, &position));
    position = 0;
    OK(MPI_Unpack_external("external32", buffer, 16, &position, &in, 1, type));
    CHECK(position == 16 && in.number == out.number && in.real == out.real && in.small[0] == 0x0506 && in.small[1] == -2);
    OK(MPI_Type_free(&type));

    long number = -3, back = 0;
    MPI_Count large_bytes, large_position = 0;
    OK(MPI_Pack_external_size_c("external32", 1, MPI_LONG, &large_bytes));
    CHECK(large_bytes == 4);
    OK(MPI_Pack_external_c("external32", &number, 1, MPI_LONG, buffer, 16, &large_position));
    large_position = 0;
    OK(MPI_Unpack_external_c("external32", buffer, 16, &large_position, &back, 1, MPI_LONG));
    CHECK(back == -3 && large_position == 4);
    long double exact = -0.1L, again = 0;
    large_position = 0;
    OK(MPI_Pack_external_c("external32", &exact, 1, MPI_LONG_DOUBLE, buffer, 16, &large_position));
    CHECK(large_position == 16 && buffer[0] == 0xbf && buffer[1] == 0xfb);
    large_position = 0;
    OK(MPI_Unpack_external_c("external32", buffer, 16, &large_position, &again, 1, MPI_LONG_DOUBLE));
    CHECK(again == exact);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    native();
    external();
    return end();
}
