/* Sets of processes: comparisons, differences, intersections, ranges; names and hints of communicators, attributes of types, and the
 * callbacks of windows, of which there are none yet.
 * ranks: 1 4 6
 */
#include "world.h"

static int deleted;

static int forget(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)value, (void)extra;
    deleted++;
    return MPI_SUCCESS;
}

static void window_error(MPI_Win *win, int *code, ...)
{
    (void)win, (void)code;
}

static int compared(MPI_Group a, MPI_Group b)
{
    int result;
    OK(MPI_Group_compare(a, b, &result));
    return result;
}

static void groups(void)
{
    MPI_Group world, even, front, both, rest, reversed, outside;
    int me, count;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_rank(world, &me));
    CHECK(me == rank);
    int every_second[1][3] = {{0, size - 1, 2}}, first_half[1][3] = {{0, (size - 1) / 2, 1}}, backwards[1][3] = {{size - 1, 0, -1}};
    OK(MPI_Group_range_incl(world, 1, every_second, &even));
    OK(MPI_Group_range_incl(world, 1, first_half, &front));
    OK(MPI_Group_range_incl(world, 1, backwards, &reversed));
    OK(MPI_Group_rank(even, &me));
    CHECK(me == (rank % 2 ? MPI_UNDEFINED : rank / 2));
    CHECK(compared(world, world) == MPI_IDENT && compared(world, reversed) == (size == 1 ? MPI_IDENT : MPI_SIMILAR));
    CHECK(size == 1 || compared(world, even) == MPI_UNEQUAL);

    OK(MPI_Group_intersection(even, front, &both));
    OK(MPI_Group_difference(even, front, &rest));
    OK(MPI_Group_range_excl(world, 1, every_second, &outside));
    int in_both = rank % 2 == 0 && rank <= (size - 1) / 2, in_rest = rank % 2 == 0 && !in_both;
    OK(MPI_Group_rank(both, &me));
    CHECK(me == (in_both ? rank / 2 : MPI_UNDEFINED));
    OK(MPI_Group_rank(rest, &me));
    CHECK((me != MPI_UNDEFINED) == in_rest);
    OK(MPI_Group_size(both, &count));
    OK(MPI_Group_size(rest, &me));
    CHECK(count + me == (size + 1) / 2);
    OK(MPI_Group_size(outside, &count));
    CHECK(count == size / 2);
    OK(MPI_Group_rank(outside, &me));
    CHECK(me == (rank % 2 ? rank / 2 : MPI_UNDEFINED));
    /* Every member of the one is a member of the other, in the order of the first. */
    MPI_Group again;
    OK(MPI_Group_intersection(reversed, world, &again));
    CHECK(compared(again, reversed) == MPI_IDENT);
    MPI_Group none;
    OK(MPI_Group_difference(world, reversed, &none));
    CHECK(compared(none, MPI_GROUP_EMPTY) == MPI_IDENT);
    MPI_Group *all[] = {&world, &even, &front, &both, &rest, &reversed, &outside, &again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        OK(MPI_Group_free(all[i]));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    groups();

    MPI_Comm comm;
    MPI_Info info;
    char name[MPI_MAX_OBJECT_NAME], value[16] = "";
    int length = sizeof value, flag, key;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_name(comm, "of the test"));
    OK(MPI_Comm_get_name(comm, name, &key));
    CHECK(!strcmp(name, "of the test") && key == (int)strlen(name));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
    OK(MPI_Comm_set_info(comm, info));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_get_info(comm, &info));
    OK(MPI_Info_get_string(info, "mpi_assert_no_any_tag", &length, value, &flag));
    CHECK(!flag || !strcmp(value, "true"));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_free(&comm));

    MPI_Datatype type;
    void *got;
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget, &key, NULL));
    OK(MPI_Type_set_attr(type, key, &key));
    OK(MPI_Type_get_attr(type, key, &got, &flag));
    CHECK(flag && got == &key);
    OK(MPI_Type_delete_attr(type, key));
    CHECK(deleted == 1);
    OK(MPI_Type_get_attr(type, key, &got, &flag));
    CHECK(!flag);
    OK(MPI_Type_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Type_free(&type));

    MPI_Errhandler handler;
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &key, NULL));
    CHECK(key != MPI_KEYVAL_INVALID);
    OK(MPI_Win_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Win_create_errhandler(window_error, &handler));
    CHECK(handler != MPI_ERRHANDLER_NULL);
    OK(MPI_Errhandler_free(&handler));
    CHECK(handler == MPI_ERRHANDLER_NULL);

    /* The names of MPI-1. */
    OK(MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Attr_put(MPI_COMM_SELF, key, &key));
    OK(MPI_Attr_get(MPI_COMM_SELF, key, &got, &flag));
    CHECK(flag && got == &key);
    OK(MPI_Attr_delete(MPI_COMM_SELF, key));
    OK(MPI_Attr_get(MPI_COMM_SELF, key, &got, &flag));
    CHECK(!flag);
    OK(MPI_Keyval_free(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    return end();
}
