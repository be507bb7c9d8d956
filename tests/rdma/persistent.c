/* Messages of 4 KiB from rank 0 to rank 1, each from a buffer of its own that is sent from once: by persistent requests, by nonblocking sends, and as the
 * partitions of a partitioned request. What left without a copy is in the report. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 10, BYTES = 4096 };

static int me;
static unsigned char *out, *in;

/* What was sent from before is not given back: its addresses would come again. */
static void fresh(int from) {
    in = malloc(BUFFERS * BYTES);
    out = malloc(BUFFERS * BYTES);
    for (int i = 0; i < BUFFERS * BYTES; i++)
        out[i] = (unsigned char)(from + i / BYTES * 3 + i * 7);
    memset(in, 0, BUFFERS * BYTES);
}

static void came(void) {
    if (me == 1 && memcmp(in, out, BUFFERS * BYTES) != 0) {
        fprintf(stderr, "check failed: a message differs\n");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void one_by_one(int from, int persistent) {
    fresh(from);
    for (int i = 0; i < BUFFERS; i++) {
        MPI_Request request;
        if (me == 1) {
            MPI_Recv(in + i * BYTES, BYTES, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (persistent) {
            MPI_Send_init(out + i * BYTES, BYTES, MPI_BYTE, 1, i, MPI_COMM_WORLD, &request);
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Request_free(&request);
        } else {
            MPI_Isend(out + i * BYTES, BYTES, MPI_BYTE, 1, i, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    came();
}

static void partitioned(int from) {
    MPI_Request request;
    fresh(from);
    if (me == 0)
        MPI_Psend_init(out, BUFFERS, BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else
        MPI_Precv_init(in, BUFFERS, BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    for (int i = 0; i < BUFFERS && me == 0; i++)
        MPI_Pready(i, request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    came();
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    one_by_one(1, 1);
    one_by_one(2, 0);
    partitioned(3);
    if (me == 0)
        printf("all is well\n");
    MPI_Finalize();
}
