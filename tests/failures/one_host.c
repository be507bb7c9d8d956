/* One rank of a host ends: `one_host WHERE HOW`. The others find that out wherever they are, go on among themselves, and finalize. */
#include "../programs-c/world.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { VICTIM = 1, LONG = 1 << 20 };

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

/* The system ends this process in the middle of MPI_Init. */
static void end_within_init(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
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
        end_within_init();
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
        /* It ends with the lock of rank 0. */
        if (rank == VICTIM)
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* Rank 0 tells it that all have left what they did together; the others may be strangers to it when it ends. */
    OK(MPI_Barrier(pair));
    if (rank == 0)
        OK(MPI_Send(&word, 1, MPI_INT, VICTIM, 2, MPI_COMM_WORLD));
    if (rank == VICTIM) {
        OK(MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        end_now(how);
    }
    MPI_Request request;
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
