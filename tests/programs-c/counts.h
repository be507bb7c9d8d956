/* With LARGE defined, the programs of point-to-point messages by the functions for large counts. */
#ifndef COUNTS_H
#define COUNTS_H

#include "world.h"

#ifdef LARGE
typedef MPI_Count count_t;
#define MPI_Bsend MPI_Bsend_c
#define MPI_Bsend_init MPI_Bsend_init_c
#define MPI_Buffer_attach MPI_Buffer_attach_c
#define MPI_Buffer_detach MPI_Buffer_detach_c
#define MPI_Comm_attach_buffer MPI_Comm_attach_buffer_c
#define MPI_Comm_detach_buffer MPI_Comm_detach_buffer_c
#define MPI_Get_count MPI_Get_count_c
#define MPI_Ibsend MPI_Ibsend_c
#define MPI_Imrecv MPI_Imrecv_c
#define MPI_Irecv MPI_Irecv_c
#define MPI_Irsend MPI_Irsend_c
#define MPI_Isend MPI_Isend_c
#define MPI_Isendrecv MPI_Isendrecv_c
#define MPI_Isendrecv_replace MPI_Isendrecv_replace_c
#define MPI_Issend MPI_Issend_c
#define MPI_Mrecv MPI_Mrecv_c
#define MPI_Psend_init MPI_Psend_init_c
#define MPI_Recv MPI_Recv_c
#define MPI_Recv_init MPI_Recv_init_c
#define MPI_Rsend MPI_Rsend_c
#define MPI_Rsend_init MPI_Rsend_init_c
#define MPI_Send MPI_Send_c
#define MPI_Send_init MPI_Send_init_c
#define MPI_Sendrecv MPI_Sendrecv_c
#define MPI_Sendrecv_replace MPI_Sendrecv_replace_c
#define MPI_Session_attach_buffer MPI_Session_attach_buffer_c
#define MPI_Session_detach_buffer MPI_Session_detach_buffer_c
#define MPI_Ssend MPI_Ssend_c
#define MPI_Ssend_init MPI_Ssend_init_c
#else
typedef int count_t;
#endif

#endif
