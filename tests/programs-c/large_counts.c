/* Counts, sizes and displacements past 2^31 in `_c` functions: a message of 3 GiB, collectives, strided types, and completion by count.
 * ranks: 2
 * timeout: 300
 */
#include "world.h"

#include <unistd.h>

enum { STEP = 1 << 20 };

static const MPI_Count three_gib = (MPI_Count)3 << 30, past_int = ((MPI_Count)1 << 31) + 12345;

static unsigned char *buffer;

static void mark(MPI_Count bytes, unsigned seed)
{
    for (MPI_Count i = 0; i < bytes; i += STEP) {
        buffer[i] = pattern((size_t)i, seed);
    }
    buffer[bytes - 1] = (unsigned char)seed;
}

static int marked(MPI_Count bytes, unsigned seed)
{
    for (MPI_Count i = 0; i < bytes - 1; i += STEP) {
        if (buffer[i] != pattern((size_t)i, seed)) {
            return 0;
        }
    }
    return buffer[bytes - 1] == (unsigned char)seed;
}

static void message(void)
{
    MPI_Request request;
    MPI_Status status;
    MPI_Count count;
    if (rank == 0) {
        mark(three_gib, 1);
        OK(MPI_Isend_c(buffer, three_gib, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Probe(0, 0, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count_c(&status, MPI_BYTE, &count));
        CHECK(count == three_gib);
        OK(MPI_Irecv_c(buffer, three_gib, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, &status));
        OK(MPI_Get_count_c(&status, MPI_INT, &count));
        CHECK(count == three_gib / 4 && marked(three_gib, 1));
    }
}

static void collectives(void)
{
    MPI_Request request;
    MPI_Count counts[2] = {1, past_int};
    MPI_Aint places[2] = {past_int, 0};
    if (rank == 1) {
        mark(past_int, 2);
    }
    OK(MPI_Bcast_c(buffer, past_int, MPI_BYTE, 1, MPI_COMM_WORLD));
    CHECK(marked(past_int, 2));
    /* One byte of rank 0 goes past all that rank 1 has. */
    if (rank == 1) {
        mark(past_int, 3);
        OK(MPI_Igatherv_c(buffer, past_int, MPI_BYTE, NULL, NULL, NULL, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
    } else {
        unsigned char one = 77;
        OK(MPI_Igatherv_c(&one, 1, MPI_BYTE, buffer, counts, places, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(marked(past_int, 3) && (rank == 1 || buffer[past_int] == 77));
    /* More elements than an int holds, reduced. */
    memset(buffer, rank + 1, (size_t)past_int);
    OK(MPI_Allreduce_c(MPI_IN_PLACE, buffer, past_int, MPI_UINT8_T, MPI_SUM, MPI_COMM_WORLD));
    CHECK(buffer[0] == 3 && buffer[past_int / 2] == 3 && buffer[past_int - 1] == 3);
}

/* Three blocks a GiB apart, so that the last begins past 2^31. */
static void strided(void)
{
    MPI_Datatype type;
    MPI_Count size_bytes, lb, extent, place = 0;
    char packed[48];
    OK(MPI_Type_create_hvector_c(3, 16, (MPI_Count)5 << 28, MPI_BYTE, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Type_size_c(type, &size_bytes));
    OK(MPI_Type_get_extent_c(type, &lb, &extent));
    CHECK(size_bytes == 48 && lb == 0 && extent == ((MPI_Count)10 << 28) + 16);
    if (rank == 0) {
        for (int i = 0; i < 3; i++) {
            memset(buffer + ((size_t)i * 5 << 28), 'a' + i, 16);
        }
        OK(MPI_Send_c(buffer, 1, type, 1, 0, MPI_COMM_WORLD));
        OK(MPI_Pack_c(buffer, 1, type, packed, sizeof packed, &place, MPI_COMM_WORLD));
        CHECK(place == 48 && packed[0] == 'a' && packed[16] == 'b' && packed[47] == 'c');
    } else {
        OK(MPI_Recv_c(buffer, 1, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(buffer[15] == 'a' && buffer[(size_t)5 << 28] == 'b' && buffer[((size_t)10 << 28) + 15] == 'c');
    }
    OK(MPI_Type_free(&type));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int room = sysconf(_SC_PHYS_PAGES) / 256 > 12 << 10; /* MiB of pages of 4 KiB */
    OK(MPI_Bcast(&room, 1, MPI_INT, 0, MPI_COMM_WORLD));
    if (room) {
        buffer = malloc((size_t)three_gib);
        CHECK(buffer != NULL);
        message();
        collectives();
        strided();
        free(buffer);
    }
    OK(MPI_Finalize());
    if (!room) {
        printf("there is less than 12 GiB of memory\n");
        return 77;
    }
    return 0;
}
