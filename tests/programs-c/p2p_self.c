/* Messages of a process to itself, at every size and in every mode.
 * ranks: 1 2
 */
#include "world.h"

static unsigned char *out, *in;

static void at_size(int bytes, MPI_Comm comm, int self)
{
    MPI_Request requests[2];
    MPI_Status status;
    int count;
    fill(out, (size_t)bytes, 4);

    memset(in, 0, (size_t)bytes); /* receive first */
    OK(MPI_Irecv(in, bytes, MPI_BYTE, self, 1, comm, &requests[0]));
    OK(MPI_Send(out, bytes, MPI_BYTE, self, 1, comm));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == bytes && status.MPI_SOURCE == self && holds(in, (size_t)bytes, 4));

    memset(in, 0, (size_t)bytes); /* send first */
    OK(MPI_Isend(out, bytes, MPI_BYTE, self, 2, comm, &requests[0]));
    OK(MPI_Recv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    CHECK(status.MPI_TAG == 2 && holds(in, (size_t)bytes, 4));

    memset(in, 0, (size_t)bytes); /* synchronous */
    int flag;
    OK(MPI_Issend(out, bytes, MPI_BYTE, self, 3, comm, &requests[0]));
    OK(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    OK(MPI_Probe(self, 3, comm, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == bytes);
    OK(MPI_Irecv(in, bytes, MPI_BYTE, self, 3, comm, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(holds(in, (size_t)bytes, 4));

    memset(in, 0, (size_t)bytes);
    OK(MPI_Sendrecv(out, bytes, MPI_BYTE, self, 4, in, bytes, MPI_BYTE, self, 4, comm, MPI_STATUS_IGNORE));
    CHECK(holds(in, (size_t)bytes, 4));
    OK(MPI_Sendrecv_replace(in, bytes, MPI_BYTE, self, 5, self, 5, comm, MPI_STATUS_IGNORE));
    CHECK(holds(in, (size_t)bytes, 4));
}

/* An exchange with oneself keeps the order of what is under way: earlier messages are received first, and earlier receives filled first. */
static void exchange_in_order(MPI_Comm comm, int self)
{
    long a = 1, b = 2, got = 0, first = 0;
    MPI_Request request;
    MPI_Status status;
    int count, class;

    OK(MPI_Sendrecv(&a, 1, MPI_LONG, self, 9, &got, 1, MPI_LONG, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    CHECK(got == 1 && status.MPI_SOURCE == self && status.MPI_TAG == 9 && count == 1);

    OK(MPI_Isend(&a, 1, MPI_LONG, self, 9, comm, &request)); /* a message waits */
    OK(MPI_Sendrecv(&b, 1, MPI_LONG, self, 9, &got, 1, MPI_LONG, self, 9, comm, MPI_STATUS_IGNORE));
    CHECK(got == 1);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Recv(&got, 1, MPI_LONG, self, 9, comm, MPI_STATUS_IGNORE));
    CHECK(got == 2);

    OK(MPI_Irecv(&first, 1, MPI_LONG, self, MPI_ANY_TAG, comm, &request)); /* a receive waits */
    OK(MPI_Sendrecv(&b, 1, MPI_LONG, self, 8, &got, 1, MPI_LONG, MPI_PROC_NULL, 8, comm, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, &status));
    CHECK(first == 2 && status.MPI_TAG == 8);
    OK(MPI_Isend(&a, 1, MPI_LONG, self, 6, comm, &request));
    MPI_Request posted;
    OK(MPI_Irecv(&first, 1, MPI_LONG, self, 8, comm, &posted));
    OK(MPI_Sendrecv(&b, 1, MPI_LONG, self, 8, &got, 1, MPI_LONG, self, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&posted, MPI_STATUS_IGNORE));
    CHECK(first == 2 && got == 1);

    long two[2] = {3, 4};
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    int code = MPI_Sendrecv(two, 2, MPI_LONG, self, 5, &got, 1, MPI_LONG, self, 5, comm, &status);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_TRUNCATE && got == 3);
    code = MPI_Sendrecv(two, 2, MPI_LONG, self, -5, &got, 1, MPI_LONG, self, -5, comm, &status);
    OK(MPI_Error_class(code, &class));
    CHECK(class == MPI_ERR_TAG);
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    exchange_in_order(MPI_COMM_SELF, 0);
    exchange_in_order(MPI_COMM_WORLD, rank);
    enum { LIMIT = 2 << 20, MANY = 500 };
    out = memory_of(LIMIT + 1);
    in = memory_of(LIMIT + 1);
    EACH_SIZE (bytes, LIMIT) {
        at_size(bytes, MPI_COMM_SELF, 0);
        at_size(bytes, MPI_COMM_WORLD, rank);
    }
    /* Many at once, unexpected, taken backwards by tag. */
    static MPI_Request requests[MANY];
    static int numbers[MANY];
    for (int i = 0; i < MANY; i++) {
        numbers[i] = i;
        OK(MPI_Isend(&numbers[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        int number;
        OK(MPI_Recv(&number, 1, MPI_INT, 0, i, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        CHECK(number == i);
    }
    OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
    free(in);
    free(out);
    return end();
}
