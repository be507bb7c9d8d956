/* Predefined operations on the types they are for, and operations of the program: commutative or not.
 * ranks: 1 2 3 4 7
 */
#include "world.h"

#include <complex.h>
#include <stdbool.h>

enum { COUNT = 37 };

#define REDUCE(ctype, type, op, value, combine)                                                  \
    do {                                                                                         \
        ctype give[COUNT], got[COUNT];                                                           \
        for (int i = 0; i < COUNT; i++) {                                                        \
            int r = rank;                                                                        \
            give[i] = (ctype)(value);                                                            \
        }                                                                                        \
        OK(MPI_Allreduce(give, got, COUNT, type, op, MPI_COMM_WORLD));                           \
        for (int i = 0; i < COUNT; i++) {                                                        \
            int r = 0;                                                                           \
            ctype a = (ctype)(value);                                                            \
            for (r = 1; r < size; r++) {                                                         \
                ctype b = (ctype)(value);                                                        \
                a = (ctype)(combine);                                                            \
            }                                                                                    \
            CHECK(got[i] == a);                                                                  \
        }                                                                                        \
    } while (0)

#define ARITHMETIC(ctype, type)                                             \
    do {                                                                    \
        REDUCE(ctype, type, MPI_SUM, (r + i) % 11, a + b);                  \
        REDUCE(ctype, type, MPI_PROD, (r + i) % 3 + 1, a * b);              \
        REDUCE(ctype, type, MPI_MAX, (r * 7 + i * 3) % 13, a > b ? a : b);  \
        REDUCE(ctype, type, MPI_MIN, (r * 7 + i * 3) % 13, a < b ? a : b);  \
    } while (0)

#define LOGIC(ctype, type)                                       \
    do {                                                         \
        REDUCE(ctype, type, MPI_LAND, (r + i) % 3, a && b);      \
        REDUCE(ctype, type, MPI_LOR, (r + i) % 2, a || b);       \
        REDUCE(ctype, type, MPI_LXOR, (r + i) % 2, !a != !b);    \
        REDUCE(ctype, type, MPI_BAND, r * 5 + i * 3, a & b);     \
        REDUCE(ctype, type, MPI_BOR, r * 5 + i * 3, a | b);      \
        REDUCE(ctype, type, MPI_BXOR, r * 5 + i * 3, a ^ b);     \
    } while (0)

static void predefined(void)
{
    ARITHMETIC(signed char, MPI_SIGNED_CHAR);
    ARITHMETIC(short, MPI_SHORT);
    ARITHMETIC(int, MPI_INT);
    ARITHMETIC(long, MPI_LONG);
    ARITHMETIC(long long, MPI_LONG_LONG);
    ARITHMETIC(unsigned char, MPI_UNSIGNED_CHAR);
    ARITHMETIC(unsigned short, MPI_UNSIGNED_SHORT);
    ARITHMETIC(unsigned, MPI_UNSIGNED);
    ARITHMETIC(unsigned long, MPI_UNSIGNED_LONG);
    ARITHMETIC(int8_t, MPI_INT8_T);
    ARITHMETIC(int16_t, MPI_INT16_T);
    ARITHMETIC(int32_t, MPI_INT32_T);
    ARITHMETIC(int64_t, MPI_INT64_T);
    ARITHMETIC(uint8_t, MPI_UINT8_T);
    ARITHMETIC(uint64_t, MPI_UINT64_T);
    ARITHMETIC(float, MPI_FLOAT);
    ARITHMETIC(double, MPI_DOUBLE);
    ARITHMETIC(MPI_Aint, MPI_AINT);
    ARITHMETIC(MPI_Count, MPI_COUNT);
    LOGIC(int, MPI_INT);
    LOGIC(unsigned char, MPI_UNSIGNED_CHAR);
    LOGIC(long, MPI_LONG);
    LOGIC(uint16_t, MPI_UINT16_T);
    REDUCE(bool, MPI_C_BOOL, MPI_LAND, (r + i) % 3 != 0, a && b);
    REDUCE(bool, MPI_C_BOOL, MPI_LOR, (r + i) % 3 == 0, a || b);
    REDUCE(unsigned char, MPI_BYTE, MPI_BOR, r * 5 + i, a | b);
    REDUCE(double complex, MPI_C_DOUBLE_COMPLEX, MPI_SUM, r + i * I, a + b);
    REDUCE(float complex, MPI_C_FLOAT_COMPLEX, MPI_PROD, (r % 2 ? 1 : I) * (i % 2 + 1), a * b);
}

static void places(void)
{
    struct {
        double value;
        int place;
    } give[2], most[2], least[2];
    for (int i = 0; i < 2; i++) {
        give[i].value = i ? rank / 2 : (rank * 5) % 7; /* the second has ties: the lowest place wins */
        give[i].place = rank;
    }
    OK(MPI_Allreduce(give, most, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    OK(MPI_Allreduce(give, least, 2, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
    int high = 0, low = 0;
    for (int r = 1; r < size; r++) {
        high = (r * 5) % 7 > (high * 5) % 7 ? r : high;
        low = (r * 5) % 7 < (low * 5) % 7 ? r : low;
    }
    CHECK(most[0].place == high && least[0].place == low && least[1].place == 0);
    CHECK(most[1].place == (size - 1) / 2 * 2 && most[1].value == (size - 1) / 2);
    struct {
        int value, place;
    } pair = {-rank, rank}, result;
    OK(MPI_Allreduce(&pair, &result, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD));
    CHECK(result.value == 0 && result.place == 0);
}

/* Composition of x -> ax + b modulo a prime: associative, and order matters. */
struct affine {
    int64_t a, b;
};

static const int64_t PRIME = 1000003;

static struct affine after(struct affine left, struct affine right)
{
    return (struct affine){left.a * right.a % PRIME, (left.a * right.b + left.b) % PRIME};
}

static void compose(void *in, void *inout, int *length, MPI_Datatype *type)
{
    CHECK(*type == MPI_INT64_T && *length % 2 == 0);
    struct affine *left = in, *right = inout;
    for (int i = 0; i < *length / 2; i++)
        right[i] = after(left[i], right[i]);
}

static struct affine step(int r, int i)
{
    return (struct affine){r * 31 + i + 2, r * 17 + i * 5 + 1};
}

static void program(int elements)
{
    MPI_Op op;
    int commutes;
    struct affine *give = memory_of((size_t)elements * sizeof *give), *got = memory_of((size_t)elements * sizeof *got);
    OK(MPI_Op_create(compose, 0, &op));
    OK(MPI_Op_commutative(op, &commutes));
    CHECK(!commutes);
    for (int i = 0; i < elements; i++)
        give[i] = step(rank, i);
    for (int root = -1; root < size; root++) { /* -1: everybody */
        if (root < 0)
            OK(MPI_Allreduce(give, got, 2 * elements, MPI_INT64_T, op, MPI_COMM_WORLD));
        else
            OK(MPI_Reduce(give, got, 2 * elements, MPI_INT64_T, op, root, MPI_COMM_WORLD));
        for (int i = 0; (root < 0 || rank == root) && i < elements; i++) {
            struct affine expected = step(0, i);
            for (int r = 1; r < size; r++)
                expected = after(expected, step(r, i));
            CHECK(got[i].a == expected.a && got[i].b == expected.b);
        }
    }
    OK(MPI_Scan(give, got, 2 * elements, MPI_INT64_T, op, MPI_COMM_WORLD));
    for (int i = 0; i < elements; i++) {
        struct affine expected = step(0, i);
        for (int r = 1; r <= rank; r++)
            expected = after(expected, step(r, i));
        CHECK(got[i].a == expected.a && got[i].b == expected.b);
    }
    OK(MPI_Exscan(give, got, 2 * elements, MPI_INT64_T, op, MPI_COMM_WORLD));
    for (int i = 0; rank > 0 && i < elements; i++) {
        struct affine expected = step(0, i);
        for (int r = 1; r < rank; r++)
            expected = after(expected, step(r, i));
        CHECK(got[i].a == expected.a && got[i].b == expected.b);
    }
    OK(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL);

    /* Locally. */
    int left[3] = {1, 2, 3}, right[3] = {10, 20, 30};
    OK(MPI_Reduce_local(left, right, 3, MPI_INT, MPI_SUM));
    CHECK(right[0] == 11 && right[2] == 33);
    free(give);
    free(got);
}

/* Input that lies where the result goes is refused, whatever the way of the call; nothing is, where there is nothing. */
static void overlapping(void)
{
    static int all[5000];
    MPI_Request request;
    int counts[size];
    for (int r = 0; r < size; r++)
        counts[r] = 1;
    for (int count = 1; count <= 5000; count += 4999) {
        FAILS(MPI_ERR_BUFFER, MPI_Allreduce(all, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Iallreduce(all, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
        FAILS(MPI_ERR_BUFFER, MPI_Scan(all, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        FAILS(MPI_ERR_BUFFER, MPI_Reduce(all, all, count, MPI_INT, MPI_SUM, 0, MPI_COMM_SELF));
        FAILS(MPI_ERR_BUFFER, MPI_Reduce_local(all, all, count, MPI_INT, MPI_SUM));
    }
    FAILS(MPI_ERR_BUFFER, MPI_Reduce_scatter(all, all, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    FAILS(MPI_ERR_BUFFER, MPI_Reduce_scatter_block(all, all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Allreduce(all, all, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Reduce_local(all, all, 0, MPI_INT, MPI_SUM));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    overlapping();
    predefined();
    places();
    program(1);
    program(5);
    program(3000);
    return end();
}
