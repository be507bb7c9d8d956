/* One rank of a host ends: `one_host WHERE HOW`. The others find that out wherever they are, go on among themselves, and finalize. */
#include "../programs-c/world.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of a file: ints of a rank's block, its blocks, and the bytes of a stripe that one aggregator handles in a round. */
enum { VICTIM = 1, LONG = 1 << 20, BLOCK = 64, BLOCKS = 384, STRIPE = 16384 };

static void gone(int code)
{
    int class, length;
    char text[MPI_MAX_ERROR_STRING];
    CHECK(code != MPI_SUCCESS);
    OK(MPI_Error_class(code, &class));
    OK(MPI_Error_string(code, text, &length));
    if (class != MPI_ERR_PROC_ABORTED || strstr(text, "rank 1 of MPI_COMM_WORLD cannot be reached: it ran on this host and has ended") == NULL) {
        fprintf(stderr, "%s\n", text);
        CHECK(!"this error is the one that names the rank that has ended");
    }
}

/* The system ends this process when it makes this call with a fourth argument, an offset in a file, of `least` or more. */
static void end_at(unsigned call, unsigned least)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, least, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* A file in which the ranks' blocks alternate, and of whose stripes each rank handles one in a round. */
static MPI_File open_file(void)
{
    MPI_File file;
    MPI_Datatype filetype;
    MPI_Info info;
    char stripe[16];
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "cb_nodes", "3"));
    /* Else ranks of one host would read without each other. */
    OK(MPI_Info_set(info, "collective_buffering", "true"));
    snprintf(stripe, sizeof stripe, "%d", STRIPE);
    OK(MPI_Info_set(info, "cb_buffer_size", stripe));
    OK(MPI_File_open(MPI_COMM_WORLD, "one_host.data", MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    OK(MPI_Info_free(&info));
    if (rank == 0)
        CHECK(unlink("one_host.data") == 0);
    OK(MPI_Type_vector(1, BLOCK, 1, MPI_INT, &filetype));
    OK(MPI_Type_create_resized(filetype, 0, (MPI_Aint)(BLOCK * size * sizeof(int)), &filetype));
    OK(MPI_Type_commit(&filetype));
    OK(MPI_File_set_view(file, (MPI_Offset)(rank * BLOCK * sizeof(int)), MPI_INT, filetype, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&filetype));
    return file;
}

/* The collective access in which the victim ends: as an aggregator, in the third of several rounds. */
static int access_file(MPI_File file, const char *where, int *data)
{
    MPI_Request request;
    if (rank == VICTIM)
        end_at(strcmp(where, "file read") == 0 ? SYS_pread64 : SYS_pwrite64, 2 * 3 * STRIPE);
    if (strcmp(where, "file read") == 0)
        return MPI_File_read_at_all(file, 0, data, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE);
    if (strcmp(where, "file write") == 0)
        return MPI_File_write_at_all(file, 0, data, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE);
    OK(MPI_File_iwrite_at_all(file, 0, data, BLOCK * BLOCKS, MPI_INT, &request));
    return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A collective whose members read or write each other's memory: what it moves is longer than their room. */
static int lend(const char *what, char *from, char *into)
{
    int third = LONG / 3;
    if (strcmp(what, "allgather") == 0)
        return MPI_Allgather(from, third, MPI_BYTE, into, third, MPI_BYTE, MPI_COMM_WORLD);
    if (strcmp(what, "alltoall") == 0)
        return MPI_Alltoall(from, third, MPI_BYTE, into, third, MPI_BYTE, MPI_COMM_WORLD);
    if (strcmp(what, "scatter") == 0)
        return MPI_Scatter(from, third, MPI_BYTE, into, third, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (strcmp(what, "gather") == 0)
        return MPI_Gather(from, third, MPI_BYTE, into, third, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (strcmp(what, "reduce_scatter") == 0) {
        int counts[3] = {third + 1, third, third - 1};
        return MPI_Reduce_scatter(from, into, counts, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    }
    return MPI_Allreduce(from, into, LONG, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
}

static void end_now(const char *how)
{
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    _exit(strcmp(how, "well") != 0);
}

int main(int argc, char **argv)
{
    CHECK(argc > 2);
    const char *where = argv[1], *how = argv[2], *mine = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("PMIX_RANK");
    CHECK(mine != NULL);
    signal(SIGUSR1, SIG_IGN);
    if (atoi(mine) == VICTIM && strcmp(where, "before") == 0)
        end_now(how);
    if (atoi(mine) == VICTIM && strcmp(where, "within") == 0)
        end_at(SYS_memfd_create, 0);
    begin(&argc, &argv);
    char *buffer = memory_of(LONG);
    int word = rank, sum, flag = 0, code = MPI_SUCCESS, others = 0;
    MPI_Comm pair;
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == VICTIM, rank, &pair));
    OK(MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    MPI_Request kept, again;
    OK(MPI_Recv_init(buffer, LONG, MPI_BYTE, VICTIM, 9, MPI_COMM_WORLD, &kept));
    OK(MPI_Send_init(buffer, LONG, MPI_BYTE, VICTIM, 9, MPI_COMM_WORLD, &again));
    MPI_Win shared = MPI_WIN_NULL, own = MPI_WIN_NULL;
    if (strncmp(where, "window", 6) == 0) {
        int *memory;
        OK(MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &shared));
        OK(MPI_Win_create(&word, sizeof word, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own));
        OK(MPI_Win_set_errhandler(shared, MPI_ERRORS_RETURN));
        OK(MPI_Win_set_errhandler(own, MPI_ERRORS_RETURN));
        /* It ends with the lock of rank 0, or while all share all locks. */
        int all = strcmp(where, "window flush") == 0 || strcmp(where, "window sync") == 0;
        if (rank == VICTIM && !all)
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared));
        if (all)
            OK(MPI_Win_lock_all(0, shared));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    MPI_File file = MPI_FILE_NULL;
    int *blocks = NULL;
    if (strncmp(where, "file", 4) == 0) {
        file = open_file();
        blocks = memory_of(BLOCK * BLOCKS * sizeof(int));
        OK(MPI_File_write_at_all(file, 0, blocks, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE));
    }
    /* The victim ends when it copies, while others copy from and to its memory. */
    const char *lent = strncmp(where, "lent ", 5) == 0 ? where + 5 : NULL;
    char *into = memory_of(LONG);
    for (int i = 0; lent && i < 12; i++)
        OK(lend(lent, buffer, into));
    MPI_Request request;
    /* A communicator gets slots for nonblocking collectives with one of the first. */
    for (int i = 0; i < 10 && (strcmp(where, "iallreduce") == 0 || strcmp(where, "ibcast") == 0); i++) {
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    /* Rank 0 tells it that all have left what they did together; the others may be strangers to it when it ends. */
    OK(MPI_Barrier(pair));
    if (rank == 0)
        OK(MPI_Send(&word, 1, MPI_INT, VICTIM, 2, MPI_COMM_WORLD));
    if (rank == VICTIM) {
        OK(MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (file != MPI_FILE_NULL)
            access_file(file, where, blocks);
        if (lent) {
            end_at(strcmp(lent, "gather") == 0 ? SYS_process_vm_writev : SYS_process_vm_readv, 1);
            lend(lent, buffer, into);
        }
        end_now(how);
    }
    if (strcmp(where, "receive") == 0) {
        gone(MPI_Recv(&word, 1, MPI_INT, VICTIM, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else if (strcmp(where, "any") == 0) {
        gone(MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else if (strcmp(where, "send") == 0) {
        gone(MPI_Send(buffer, LONG, MPI_BYTE, VICTIM, 1, MPI_COMM_WORLD));
    } else if (strcmp(where, "test") == 0) {
        OK(MPI_Irecv(buffer, LONG, MPI_BYTE, VICTIM, 1, MPI_COMM_WORLD, &request));
        while (!flag)
            code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        gone(code);
    } else if (strcmp(where, "probe") == 0) {
        gone(MPI_Probe(VICTIM, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else if (strcmp(where, "allreduce") == 0) {
        gone(MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    } else if (strcmp(where, "gather") == 0) {
        /* Who waits for its part; the others have given theirs and find out at the next. */
        do
            code = MPI_Gather(&word, 1, MPI_INT, buffer, 1, MPI_INT, 0, MPI_COMM_WORLD);
        while (code == MPI_SUCCESS);
        gone(code);
    } else if (strcmp(where, "bcast") == 0) {
        /* The root goes ahead of it as far as it can. */
        do
            code = MPI_Bcast(buffer, 64 << 10, MPI_BYTE, 0, MPI_COMM_WORLD);
        while (code == MPI_SUCCESS);
        gone(code);
    } else if (strcmp(where, "iallreduce") == 0) {
        MPI_Request several[3];
        for (int i = 0; i < 3; i++)
            OK(MPI_Iallreduce(&word, &((int *)buffer)[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &several[i]));
        gone(MPI_Wait(&several[1], MPI_STATUS_IGNORE));
        while (!flag)
            code = MPI_Test(&several[0], &flag, MPI_STATUS_IGNORE);
        gone(code);
        gone(MPI_Wait(&several[2], MPI_STATUS_IGNORE));
    } else if (strcmp(where, "ibcast") == 0) {
        /* As bcast. */
        do {
            OK(MPI_Ibcast(buffer, 4 << 10, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        } while (code == MPI_SUCCESS);
        gone(code);
    } else if (strcmp(where, "barrier") == 0) {
        gone(MPI_Barrier(MPI_COMM_WORLD));
    } else if (strcmp(where, "window lock") == 0) {
        gone(MPI_Win_lock(rank == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, 0, 0, shared));
        gone(MPI_Win_lock_all(0, shared));
    } else if (strcmp(where, "window ask") == 0) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, VICTIM, MPI_MODE_NOCHECK, own));
        /* Before it ends, it answers. */
        do {
            code = MPI_Fetch_and_op(&rank, &sum, MPI_INT, VICTIM, 0, MPI_SUM, own);
            if (code == MPI_SUCCESS)
                code = MPI_Win_flush(VICTIM, own);
        } while (code == MPI_SUCCESS);
        gone(code);
    } else if (strcmp(where, "window put") == 0) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, VICTIM, MPI_MODE_NOCHECK, own));
        do {
            code = MPI_Put(&rank, 1, MPI_INT, VICTIM, 0, 1, MPI_INT, own);
            if (code == MPI_SUCCESS)
                code = MPI_Win_flush(VICTIM, own);
        } while (code == MPI_SUCCESS);
        gone(code);
    } else if (strcmp(where, "window flush") == 0) {
        /* What it was to bring never comes; memory of ranks that live is there as before. */
        do {
            OK(MPI_Fetch_and_op(NULL, &sum, MPI_INT, 0, 0, MPI_NO_OP, shared));
            code = MPI_Win_flush(0, shared);
        } while (code == MPI_SUCCESS && sum == 0);
        gone(code);
    } else if (strcmp(where, "window sync") == 0) {
        do
            code = MPI_Win_sync(shared);
        while (code == MPI_SUCCESS);
        gone(code);
    } else if (lent) {
        do
            code = lend(lent, buffer, into);
        while (code == MPI_SUCCESS);
        gone(code);
    } else if (strncmp(where, "file", 4) == 0) {
        gone(access_file(file, where, blocks));
        gone(MPI_File_sync(file));
    } else if (strcmp(where, "window fence") == 0) {
        gone(MPI_Win_fence(0, shared));
        gone(MPI_Win_fence(0, own));
    } else if (strcmp(where, "persistent") == 0) {
        OK(MPI_Start(&kept));
        gone(MPI_Wait(&kept, MPI_STATUS_IGNORE));
        /* From now on a start says so at once, or its completion does. */
        for (int i = 0; i < 2; i++) {
            MPI_Request *one = i ? &again : &kept;
            code = MPI_Start(one);
            if (code == MPI_SUCCESS)
                code = MPI_Wait(one, MPI_STATUS_IGNORE);
            gone(code);
        }
    }
    if (strcmp(where, "finalize") != 0) {
        for (int i = 0; i < 100; i++) {
            OK(MPI_Allreduce(&(int){1}, &others, 1, MPI_INT, MPI_SUM, pair));
            CHECK(others == size - 1);
        }
        OK(MPI_Request_free(&kept));
        OK(MPI_Request_free(&again));
    }
    code = end();
    printf("rank %d has finalized\n", rank);
    return code;
}
