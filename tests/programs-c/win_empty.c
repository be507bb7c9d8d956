/* Calls without data, parts without bytes, and hints that are told again.
 * ranks: 1 2 3
 */
#include "check.h"

static int rank, size;

/* Where there is no data, neither kinds of elements nor their absence matter. */
static void nothing_to_do(MPI_Win win, int target) {
    MPI_Datatype none, hollow, types[4];
    int one = 1, old = 7;
    OK(MPI_Type_contiguous(0, MPI_INT, &none));
    OK(MPI_Type_commit(&none));
    OK(MPI_Type_create_struct(0, NULL, NULL, NULL, &hollow));
    OK(MPI_Type_commit(&hollow));
    types[0] = none;
    types[1] = hollow;
    types[2] = MPI_INT;
    types[3] = MPI_DOUBLE;
    for (int here = 0; here < 4; here++)
        for (int there = 0; there < 4; there++)
            for (int result = 0; result < 4; result++) {
                /* Elements of the first two have no bytes, however many there are. */
                int counts[3] = {here < 2 ? 2 : 0, result < 2 ? 3 : 0, there < 2 ? 1 : 0};
                OK(MPI_Put(&one, counts[0], types[here], target, 0, counts[2], types[there], win));
                OK(MPI_Get(&old, counts[0], types[here], target, 0, counts[2], types[there], win));
                OK(MPI_Accumulate(&one, counts[0], types[here], target, 0, counts[2], types[there], MPI_SUM, win));
                OK(MPI_Get_accumulate(&one, counts[0], types[here], &old, counts[1], types[result], target, 0, counts[2], types[there], MPI_SUM, win));
                OK(MPI_Get_accumulate(NULL, 0, types[here], NULL, 0, types[result], target, 0, 0, types[there], MPI_BAND, win));
            }
    CHECK(old == 7);
    OK(MPI_Type_free(&none));
    OK(MPI_Type_free(&hollow));
}

static void told(MPI_Win win, const char *key, const char *expected) {
    MPI_Info info;
    char value[64];
    int flag, length = sizeof value;
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get_string(info, key, &length, value, &flag));
    CHECK(flag && !strcmp(value, expected));
    OK(MPI_Info_free(&info));
}

/* Every other rank of those that share memory has no bytes: they begin nowhere. */
static void parts(void) {
    MPI_Comm near;
    MPI_Info info;
    MPI_Win win;
    MPI_Aint bytes;
    int *base, *theirs, unit, me, all;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near));
    OK(MPI_Comm_rank(near, &me));
    OK(MPI_Comm_size(near, &all));
    OK(MPI_Info_create(&info));
    for (int apart = 0; apart < 2; apart++) {
        OK(MPI_Info_set(info, "alloc_shared_noncontig", apart ? "true" : "false"));
        OK(MPI_Win_allocate_shared(me % 2 ? 0 : 3 * sizeof(int), sizeof(int), info, near, &base, &win));
        for (int r = 0; r < all; r++) {
            OK(MPI_Win_shared_query(win, r, &bytes, &unit, &theirs));
            CHECK(unit == sizeof(int) && bytes == (r % 2 ? 0 : 3 * (MPI_Aint)sizeof(int)) && (theirs == NULL) == (r % 2));
        }
        told(win, "alloc_shared_noncontig", apart ? "true" : "false");
        OK(MPI_Info_set(info, "alloc_shared_noncontig", apart ? "false" : "true"));
        OK(MPI_Win_set_info(win, info));
        told(win, "alloc_shared_noncontig", apart ? "false" : "true");
        OK(MPI_Win_free(&win));
    }
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_free(&near));
}

int main(int argc, char **argv) {
    int memory[4] = {1, 2, 3, 4}, *given;
    MPI_Win wins[2];
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &wins[0]));
    OK(MPI_Win_allocate(sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &given, &wins[1]));
    memcpy(given, memory, sizeof memory);
    for (int w = 0; w < 2; w++) {
        OK(MPI_Win_fence(0, wins[w]));
        for (int target = 0; target < size; target++) nothing_to_do(wins[w], target);
        OK(MPI_Win_fence(0, wins[w]));
    }
    for (int i = 0; i < 4; i++) CHECK(memory[i] == i + 1 && given[i] == i + 1);
    for (int w = 0; w < 2; w++) OK(MPI_Win_free(&wins[w]));
    parts();
    OK(MPI_Finalize());
    return 0;
}
