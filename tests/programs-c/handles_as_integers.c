/* Every kind of handle as an integer and back, predefined and made ones (MPI-5.0 §20.4), and what Fortran's side is told.
 * ranks: 1
 */
#include "world.h"

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)count, (void)type;
}

#define BACK(Kind, handle) CHECK(MPI_##Kind##_fromint(MPI_##Kind##_toint(handle)) == (handle))
#define APART(Kind, one, other) CHECK(MPI_##Kind##_toint(one) != MPI_##Kind##_toint(other))

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Errhandler handler;
    MPI_Group group;
    MPI_Info info;
    MPI_Message message;
    MPI_Op op;
    MPI_Request request;
    MPI_Session session;
    int value = 7, got = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Comm_group(comm, &group));
    OK(MPI_Info_create(&info));
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Comm_get_errhandler(comm, &handler));
    OK(MPI_Irecv(&got, 1, MPI_INT, 0, 1, comm, &request));
    OK(MPI_Send(&value, 1, MPI_INT, 0, 2, comm));
    OK(MPI_Mprobe(0, 2, comm, &message, MPI_STATUS_IGNORE));

    BACK(Comm, MPI_COMM_WORLD); BACK(Comm, MPI_COMM_NULL); BACK(Comm, comm);
    BACK(Type, MPI_INT); BACK(Type, MPI_DATATYPE_NULL); BACK(Type, type);
    BACK(Errhandler, MPI_ERRORS_RETURN); BACK(Errhandler, MPI_ERRHANDLER_NULL); BACK(Errhandler, handler);
    BACK(Group, MPI_GROUP_EMPTY); BACK(Group, MPI_GROUP_NULL); BACK(Group, group);
    BACK(Info, MPI_INFO_ENV); BACK(Info, MPI_INFO_NULL); BACK(Info, info);
    BACK(Message, MPI_MESSAGE_NO_PROC); BACK(Message, MPI_MESSAGE_NULL); BACK(Message, message);
    BACK(Op, MPI_SUM); BACK(Op, MPI_OP_NULL); BACK(Op, op);
    BACK(Request, MPI_REQUEST_NULL); BACK(Request, request);
    BACK(Session, MPI_SESSION_NULL); BACK(Session, session);
    BACK(File, MPI_FILE_NULL); BACK(Win, MPI_WIN_NULL);
    APART(Comm, MPI_COMM_WORLD, comm); APART(Type, MPI_INT, type); APART(Op, MPI_SUM, op); APART(Group, MPI_GROUP_EMPTY, group);
    APART(Info, MPI_INFO_NULL, info); APART(Request, MPI_REQUEST_NULL, request); APART(Session, MPI_SESSION_NULL, session);
    APART(Message, MPI_MESSAGE_NULL, message); APART(Errhandler, MPI_ERRORS_RETURN, MPI_ERRORS_ARE_FATAL);

    /* A handle that has been an integer does what it did. */
    message = MPI_Message_fromint(MPI_Message_toint(message));
    OK(MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    CHECK(got == 7 && message == MPI_MESSAGE_NULL);
    value = 8;
    OK(MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_Comm_fromint(MPI_Comm_toint(comm))));
    request = MPI_Request_fromint(MPI_Request_toint(request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(got == 8);

    /* What Fortran's side has told is told again, and cannot be told twice (MPI-5.0 §20.3). */
    MPI_Info fortran;
    char text[16] = "";
    int length = sizeof text, flag, bytes = (int)sizeof(int);
    char digits[16];
    snprintf(digits, sizeof digits, "%d", bytes);
    OK(MPI_Info_set(info, "mpi_integer_size", digits));
    int code = MPI_Abi_set_fortran_info(info);
    OK(MPI_Abi_get_fortran_info(&fortran));
    if (code == MPI_SUCCESS) {
        CHECK(fortran != MPI_INFO_NULL);
        OK(MPI_Info_get_string(fortran, "mpi_integer_size", &length, text, &flag));
        CHECK(flag && !strcmp(text, digits));
        CHECK(MPI_Abi_set_fortran_info(info) != MPI_SUCCESS);
    } else
        FAILS(MPI_ERR_ABI, code);
    if (fortran != MPI_INFO_NULL)
        OK(MPI_Info_free(&fortran));

    OK(MPI_Comm_free(&comm));
    OK(MPI_Type_free(&type));
    OK(MPI_Group_free(&group));
    OK(MPI_Info_free(&info));
    OK(MPI_Op_free(&op));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Session_finalize(&session));
    return end();
}
