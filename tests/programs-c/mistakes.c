/* What programs get wrong in small ways is an error of the class that the standard names; and what is no mistake is none.
 * ranks: 1 2
 */
#include "world.h"

/* A range of ranks whose stride leads away from its end (7.3.2). */
static void ranges(void)
{
    MPI_Group world, part;
    int away[1][3] = {{0, size - 1, -1}}, back[1][3] = {{size - 1, 0, 1}}, one[1][3] = {{0, 0, -5}}, still[1][3] = {{0, 0, 0}};
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    if (size > 1) {
        FAILS(MPI_ERR_ARG, MPI_Group_range_incl(world, 1, away, &part));
        FAILS(MPI_ERR_ARG, MPI_Group_range_excl(world, 1, away, &part));
        FAILS(MPI_ERR_ARG, MPI_Group_range_incl(world, 1, back, &part));
        FAILS(MPI_ERR_ARG, MPI_Group_range_excl(world, 1, back, &part));
    }
    FAILS(MPI_ERR_ARG, MPI_Group_range_incl(world, 1, still, &part));
    OK(MPI_Group_range_incl(world, 1, one, &part));
    int members;
    OK(MPI_Group_size(part, &members));
    CHECK(members == 1);
    OK(MPI_Group_free(&part));
    OK(MPI_Group_free(&world));
}

/* Nothing is buffered for MPI_PROC_NULL (3.10). */
static void buffered_to_nobody(void)
{
    int value = 1;
    MPI_Request request;
    OK(MPI_Bsend(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    OK(MPI_Ibsend(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Bsend_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    FAILS(MPI_ERR_BUFFER, MPI_Bsend(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD));
    FAILS(MPI_ERR_BUFFER, MPI_Buffer_attach(NULL, 1000));
}

static void expect_info(MPI_Info info, const char *key, const char *wanted)
{
    char value[MPI_MAX_INFO_VAL];
    int length = sizeof value, found;
    OK(MPI_Info_get_string(info, key, &length, value, &found));
    if (!found || strcmp(value, wanted))
        fprintf(stderr, "%s is %s\n", key, found ? value : "not there");
    CHECK(found && strcmp(value, wanted) == 0);
}

static void kinds(const char *wanted, const char *given)
{
    MPI_Info info, used;
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    OK(MPI_Info_create(&info));
    if (wanted)
        OK(MPI_Info_set(info, "mpi_memory_alloc_kinds", wanted));
    OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_get_info(session, &used));
    expect_info(used, "mpi_memory_alloc_kinds", given);
    OK(MPI_Info_free(&used));
    /* What is made of the session has the same kinds. */
    OK(MPI_Group_from_session_pset(session, "mpi://SELF", &group));
    OK(MPI_Comm_create_from_group(group, "kinds", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Comm_get_info(comm, &used));
    expect_info(used, "mpi_memory_alloc_kinds", given);
    OK(MPI_Info_free(&used));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&group));
    OK(MPI_Session_finalize(&session));
    OK(MPI_Info_free(&info));
}

/* The info that a session is made with (11.3.1, 11.4.3). */
static void sessions(void)
{
    MPI_Info info, used;
    MPI_Session session;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_FUNNELED"));
    OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_get_info(session, &used));
    expect_info(used, "thread_level", "MPI_THREAD_FUNNELED");
    OK(MPI_Info_free(&used));
    OK(MPI_Session_finalize(&session));
    OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_ALL"));
    FAILS(MPI_ERR_INFO_VALUE, MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
    OK(MPI_Info_free(&info));
    kinds(NULL, "mpi,system");
    kinds("system", "mpi,system");
    kinds("mpi,system", "mpi,system");
    kinds("mpi:alloc_mem,system", "mpi,system,mpi:alloc_mem");
    kinds("cuda:device,mpi:win_allocate:alloc_mem,system:far,mpi:nonsense", "mpi,system,mpi:win_allocate:alloc_mem");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    ranges();
    buffered_to_nobody();
    sessions();
    return end();
}
