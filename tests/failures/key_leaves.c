/* The job's key is read once: then it is in no environment, of the rank or of what that starts.
 * ranks: 2
 */
#include "../programs-c/world.h"

/* Whether the environment of the process `of` has a key. */
static int has_key(const char *of)
{
    static char all[1 << 20];
    FILE *file = fopen(of, "r");
    CHECK(file != NULL);
    size_t bytes = fread(all, 1, sizeof all - 1, file);
    fclose(file);
    CHECK(bytes > 0);
    for (size_t at = 0; at < bytes; at += strlen(all + at) + 1)
        if (strncmp(all + at, "WHIMBREL_KEY=", 13) == 0 && all[at + 13])
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(has_key("/proc/self/environ"));
    begin(&argc, &argv);
    CHECK(!has_key("/proc/self/environ"));
    const char *key = getenv("WHIMBREL_KEY");
    CHECK(key == NULL || *key == 0);
    CHECK(system("test -z \"$WHIMBREL_KEY\"") == 0);
    int sum;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    return end();
}
