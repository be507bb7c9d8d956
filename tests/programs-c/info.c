/* Info objects before MPI_Init: set, read, order, truncation, copies; MPI_INFO_ENV, the same before MPI_Init and after it.
 * ranks: 1
 * launcher: none
 * args: one "two three"
 */
#include "check.h"

int main(int argc, char **argv) {
    MPI_Info info, copy;
    char value[MPI_MAX_INFO_VAL], key[MPI_MAX_INFO_KEY];
    int flag, count, length;

    OK(MPI_Info_create(&info));
    CHECK(info != MPI_INFO_NULL);
    CHECK(MPI_Info_fromint(MPI_Info_toint(info)) == info);
    OK(MPI_Info_set(info, "color", "blue"));
    OK(MPI_Info_set(info, "shape", "round"));
    OK(MPI_Info_set(info, "color", "green"));
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 2);
    OK(MPI_Info_get_nthkey(info, 1, key));
    CHECK(strcmp(key, "shape") == 0);

    length = sizeof value;
    OK(MPI_Info_get_string(info, "color", &length, value, &flag));
    CHECK(flag && length == 6 && strcmp(value, "green") == 0);
    length = 3;
    memset(value, '#', sizeof value);
    OK(MPI_Info_get_string(info, "color", &length, value, &flag));
    CHECK(flag && length == 6 && memcmp(value, "gr\0#", 4) == 0);
    length = 0;
    OK(MPI_Info_get_string(info, "color", &length, NULL, &flag));
    CHECK(flag && length == 6);
    length = 77;
    OK(MPI_Info_get_string(info, "size", &length, value, &flag));
    CHECK(!flag && length == 77);

    OK(MPI_Info_get_valuelen(info, "shape", &length, &flag));
    CHECK(flag && length == 5);
    memset(value, '#', sizeof value);
    OK(MPI_Info_get(info, "shape", 2, value, &flag));
    CHECK(flag && memcmp(value, "ro\0#", 4) == 0);

    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_delete(info, "color"));
    OK(MPI_Info_get_nkeys(copy, &count));
    CHECK(count == 2);
    OK(MPI_Info_free(&info));
    CHECK(info == MPI_INFO_NULL);
    OK(MPI_Info_free(&copy));

    length = sizeof value;
    OK(MPI_Info_get_string(MPI_INFO_ENV, "command", &length, value, &flag));
    CHECK(flag && strcmp(value, argv[0]) == 0);
    CHECK(MPI_Info_toint(MPI_INFO_ENV) == 0x131);
    length = sizeof value;
    OK(MPI_Info_create_env(argc, argv, &info));
    OK(MPI_Info_get_string(info, "argv", &length, value, &flag));
    CHECK(flag && strcmp(value, "one two three") == 0);
    OK(MPI_Info_free(&info));

    OK(MPI_Info_get_nkeys(MPI_INFO_ENV, &count));
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Info_get_nkeys(MPI_INFO_ENV, &length));
    CHECK(length == count);
    OK(MPI_Finalize());
    OK(MPI_Info_get_nkeys(MPI_INFO_ENV, &length));
    CHECK(length == count);
    return 0;
}
