/* Kinds of memory (MPI-5.0 12.4.3): the launcher's request reaches the World model, and promises are told again where all kinds are supported.
 * ranks: 1 2
 * launcher: -memory-alloc-kinds mpi:win_allocate,cuda:device,mpi:nonsense
 */
#include "world.h"

#include <stdlib.h>

static const char *asserted = "mpi_assert_memory_alloc_kinds", *supported = "mpi_memory_alloc_kinds", *all = "mpi,system,mpi:win_allocate";

/* Frees `used`. `wanted` of null: the key is not there. */
static void expect(MPI_Info used, const char *key, const char *wanted)
{
    char value[MPI_MAX_INFO_VAL];
    int length = sizeof value, found;
    OK(MPI_Info_get_string(used, key, &length, value, &found));
    if (found != (wanted != NULL) || (found && strcmp(value, wanted)))
        fprintf(stderr, "%s is %s\n", key, found ? value : "not there");
    CHECK(found == (wanted != NULL) && (!found || strcmp(value, wanted) == 0));
    if (used != MPI_INFO_ENV)
        OK(MPI_Info_free(&used));
}

static MPI_Info of_comm(MPI_Comm comm)
{
    MPI_Info used;
    OK(MPI_Comm_get_info(comm, &used));
    return used;
}

static MPI_Info of_file(MPI_File file)
{
    MPI_Info used;
    OK(MPI_File_get_info(file, &used));
    return used;
}

int main(int argc, char **argv)
{
    MPI_Info info, used;
    MPI_Comm comm, again;
    MPI_Request request;
    MPI_File file;
    MPI_Session session;
    expect(MPI_INFO_ENV, supported, all);
    begin(&argc, &argv);
    expect(MPI_INFO_ENV, supported, all);
    expect(of_comm(MPI_COMM_WORLD), supported, all);
    expect(of_comm(MPI_COMM_WORLD), asserted, NULL);
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, asserted, "system,mpi:alloc_mem"));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
    expect(of_comm(comm), asserted, "system,mpi:alloc_mem");
    expect(of_comm(comm), supported, all);
    /* What is not supported makes the whole promise nothing. */
    const char *wrong[] = {"system,cuda", "mpi:nonsense", "system:x", ","};
    for (int i = 0; i < 4; i++) {
        OK(MPI_Info_set(info, asserted, wrong[i]));
        OK(MPI_Comm_set_info(comm, info));
        expect(of_comm(comm), asserted, "system,mpi:alloc_mem");
    }
    /* A duplicate has the hints that it is given alone. */
    OK(MPI_Comm_dup(comm, &again));
    expect(of_comm(again), asserted, NULL);
    OK(MPI_Comm_free(&again));
    OK(MPI_Info_set(info, asserted, "mpi"));
    OK(MPI_Comm_idup_with_info(comm, info, &again, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    expect(of_comm(again), asserted, "mpi");
    OK(MPI_Comm_free(&again));
    char path[300];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/whimbrel-memory-kinds-%d", folder ? folder : "/tmp", size);
    OK(MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file));
    expect(of_file(file), asserted, "mpi");
    expect(of_file(file), supported, all);
    OK(MPI_File_close(&file));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Info_free(&info));
    /* A session that asks for nothing has what the launcher was asked for. */
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_get_info(session, &used));
    expect(used, supported, all);
    OK(MPI_Session_finalize(&session));
    return end();
}
