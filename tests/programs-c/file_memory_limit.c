/* No memory is left for the stripes of a collective access to a file: every rank gets MPI_ERR_NO_MEM, and later accesses go on.
 * ranks: 1 2 3
 * env: WHIMBREL_COSTS=off
 * timeout: 60
 */
#include "world.h"
#include "limit.h"
#include <string.h>
#include <unistd.h>

/* Of each rank BLOCKS blocks; the ranks' blocks lie in turn, so that stripes hold data of all. */
enum { BLOCK = 4096, BLOCKS = 1 << 13, LONG = BLOCK * BLOCKS, SPARE = 8 << 20 };

static unsigned char data[LONG];

/* Which ranks have too little memory: all, the first, the last. */
static int is_short(int which)
{
    return which == 0 || rank == (which == 1 ? 0 : size - 1);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    char path[4096];
    MPI_File file;
    MPI_Info info;
    MPI_Datatype block, tile;
    int id = (int)getpid();
    OK(MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD));
    snprintf(path, sizeof path, "%s/file_memory_limit.%d", folder, id);
    OK(MPI_Info_create(&info));
    /* One stripe for all, though ranks of one host would read and write such blocks themselves. */
    OK(MPI_Info_set(info, "collective_buffering", "true"));
    OK(MPI_Info_set(info, "cb_buffer_size", "1073741824"));
    OK(MPI_Info_set(info, "cb_nodes", "1"));
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file));
    OK(MPI_Type_contiguous(BLOCK, MPI_BYTE, &block));
    OK(MPI_Type_create_resized(block, 0, BLOCK * size, &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(file, rank * BLOCK, MPI_BYTE, tile, "native", info));
    fill(data, LONG, 1 + rank);
    OK(MPI_File_write_at_all(file, 0, data, LONG, MPI_BYTE, MPI_STATUS_IGNORE));
    for (int which = 0; size > 1 && which < 3; which++) {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (is_short(which))
            limit(SPARE);
        no_memory(MPI_File_read_at_all(file, 0, data, LONG, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at_all", "memory");
        no_memory(MPI_File_write_at_all(file, 0, data, LONG, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at_all", "memory");
        /* All are in step, and what needs little goes on. */
        OK(MPI_File_read_at_all(file, 0, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
        CHECK(holds(data, BLOCK, 1 + rank));
        limit(-1);
    }
    memset(data, 0, LONG);
    OK(MPI_File_read_at_all(file, 0, data, LONG, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(holds(data, LONG, 1 + rank));
    OK(MPI_File_close(&file));
    OK(MPI_Type_free(&tile));
    OK(MPI_Type_free(&block));
    OK(MPI_Info_free(&info));
    return end();
}
