/* Sessions: before, beside and after the World model, several at once, again and again; their groups, errors and buffers.
 * ranks: 1 2 4
 */
#include "counts.h"

static int raised;

static void note(MPI_Session *session, int *code, ...)
{
    (void)session;
    raised = *code;
}

/* Opens a session, talks in it, closes it. */
static void visit(const char *tag)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int count, me, all, one = 1, sum;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    CHECK(count >= 2);
    int found = 0;
    for (int i = 0; i < count; i++) {
        int length = 0;
        char name[MPI_MAX_PSET_NAME_LEN];
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, NULL));
        CHECK(length > 0 && length <= MPI_MAX_PSET_NAME_LEN);
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        CHECK((int)strlen(name) == length - 1);
        found += !strcmp(name, "mpi://WORLD") || !strcmp(name, "mpi://SELF");
    }
    CHECK(found == 2);
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_rank(comm, &me));
    OK(MPI_Comm_size(comm, &all));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == all && me < all);

    /* A buffer of the session serves its communicators. */
    size_t bytes = 4096 + MPI_BSEND_OVERHEAD;
    void *buffer = memory_of(bytes), *back;
    count_t size_back;
    int out[16] = {me}, in[16];
    FAILS(MPI_ERR_BUFFER, MPI_Bsend(out, 16, MPI_INT, (me + 1) % all, 1, comm));
    OK(MPI_Session_attach_buffer(session, buffer, (int)bytes));
    OK(MPI_Bsend(out, 16, MPI_INT, (me + 1) % all, 1, comm));
    OK(MPI_Recv(in, 16, MPI_INT, (me + all - 1) % all, 1, comm, MPI_STATUS_IGNORE));
    CHECK(in[0] == (me + all - 1) % all);
    OK(MPI_Session_flush_buffer(session));
    OK(MPI_Session_detach_buffer(session, &back, &size_back));
    CHECK(back == buffer && size_back == (count_t)bytes);
    free(buffer);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL);
}

static void errors(void)
{
    MPI_Session session;
    MPI_Errhandler handler, got;
    MPI_Group group;
    MPI_Info info;
    int found, length = 16;
    char value[16];
    OK(MPI_Session_create_errhandler(note, &handler));
    OK(MPI_Session_init(MPI_INFO_NULL, handler, &session));
    OK(MPI_Session_get_errhandler(session, &got));
    CHECK(got == handler);
    OK(MPI_Errhandler_free(&got));
    OK(MPI_Errhandler_free(&handler));
    raised = 0;
    FAILS(MPI_ERR_ARG, MPI_Group_from_session_pset(session, "mpi://NOWHERE", &group));
    CHECK(raised == MPI_ERR_ARG);
    OK(MPI_Session_call_errhandler(session, MPI_ERR_OTHER));
    CHECK(raised == MPI_ERR_OTHER);
    OK(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN));
    raised = 0;
    FAILS(MPI_ERR_ARG, MPI_Session_get_pset_info(session, "mpi://NOWHERE", &info));
    CHECK(raised == 0);
    OK(MPI_Session_get_pset_info(session, "mpi://SELF", &info));
    OK(MPI_Info_get_string(info, "mpi_size", &length, value, &found));
    CHECK(found && !strcmp(value, "1"));
    OK(MPI_Info_free(&info));
    OK(MPI_Session_finalize(&session));
    /* The handler that a communicator is to have hears of what keeps it from being made. */
    MPI_Comm comm;
    FAILS(MPI_ERR_GROUP, MPI_Comm_create_from_group(MPI_GROUP_NULL, "nobody", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    FAILS(MPI_ERR_INFO, MPI_Session_init((MPI_Info)(size_t)12345678, MPI_ERRORS_RETURN, &session));
    FAILS(MPI_ERR_SESSION, MPI_Session_get_info(MPI_SESSION_NULL, &info));
}

int main(int argc, char **argv)
{
    MPI_Session outer;
    int flag;
    for (int i = 0; i < 3; i++)
        visit("before");
    OK(MPI_Initialized(&flag));
    CHECK(!flag);
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &outer));
    visit("beside another");
    begin(&argc, &argv);
    visit("beside the world");
    errors();
    int sum, one = 1;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size);
    OK(MPI_Finalize());
    OK(MPI_Finalized(&flag));
    CHECK(flag);
    visit("after the world");
    OK(MPI_Session_finalize(&outer));
    for (int i = 0; i < 3; i++)
        visit("at the end");
    return 0;
}
