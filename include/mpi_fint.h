/*
 * mpi_fint.h: handles as Fortran integers, for C programs that expect MPI_Fint, MPI_*_c2f and MPI_*_f2c of mpi.h.
 * MPI-5.0's ABI has none of them, since a Fortran compiler decides how long its INTEGER is (20.3): this header takes it for an
 * int, which is right unless Fortran is compiled with options such as -fdefault-integer-8.
 * Include it, or compile with `mpicc -include mpi_fint.h`.
 */
#ifndef MPI_FINT_H
#define MPI_FINT_H

#include <mpi.h>
#include <string.h>

typedef int MPI_Fint;

#define MPI_Comm_c2f(comm)             ((MPI_Fint) MPI_Comm_toint(comm))
#define MPI_Comm_f2c(comm)             MPI_Comm_fromint((int) (comm))
#define MPI_Errhandler_c2f(errhandler) ((MPI_Fint) MPI_Errhandler_toint(errhandler))
#define MPI_Errhandler_f2c(errhandler) MPI_Errhandler_fromint((int) (errhandler))
#define MPI_File_c2f(file)             ((MPI_Fint) MPI_File_toint(file))
#define MPI_File_f2c(file)             MPI_File_fromint((int) (file))
#define MPI_Group_c2f(group)           ((MPI_Fint) MPI_Group_toint(group))
#define MPI_Group_f2c(group)           MPI_Group_fromint((int) (group))
#define MPI_Info_c2f(info)             ((MPI_Fint) MPI_Info_toint(info))
#define MPI_Info_f2c(info)             MPI_Info_fromint((int) (info))
#define MPI_Message_c2f(message)       ((MPI_Fint) MPI_Message_toint(message))
#define MPI_Message_f2c(message)       MPI_Message_fromint((int) (message))
#define MPI_Op_c2f(op)                 ((MPI_Fint) MPI_Op_toint(op))
#define MPI_Op_f2c(op)                 MPI_Op_fromint((int) (op))
#define MPI_Request_c2f(request)       ((MPI_Fint) MPI_Request_toint(request))
#define MPI_Request_f2c(request)       MPI_Request_fromint((int) (request))
#define MPI_Session_c2f(session)       ((MPI_Fint) MPI_Session_toint(session))
#define MPI_Session_f2c(session)       MPI_Session_fromint((int) (session))
#define MPI_Type_c2f(datatype)         ((MPI_Fint) MPI_Type_toint(datatype))
#define MPI_Type_f2c(datatype)         MPI_Type_fromint((int) (datatype))
#define MPI_Win_c2f(win)               ((MPI_Fint) MPI_Win_toint(win))
#define MPI_Win_f2c(win)               MPI_Win_fromint((int) (win))

/* A Fortran status is an array of MPI_F_STATUS_SIZE integers, laid out as MPI_Status. */
static __inline int MPI_Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status)
{
    memcpy(f_status, c_status, sizeof(MPI_Status));
    return MPI_SUCCESS;
}

static __inline int MPI_Status_f2c(const MPI_Fint *f_status, MPI_Status *c_status)
{
    memcpy(c_status, f_status, sizeof(MPI_Status));
    return MPI_SUCCESS;
}

#endif
