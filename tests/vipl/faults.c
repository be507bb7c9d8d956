/* Random faults between two processes: kills, bad descriptors, bad tags, disconnects. Each must end with the right status, and leave nothing.
 * Arguments: rounds, seed. */
#include "vi.h"
#include <dirent.h>
#include <signal.h>

static struct side S;
static VIP_VI_HANDLE bystander;

static int count(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    CHECK(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static int mappings(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    int n = 0;
    CHECK(f);
    for (int c; (c = fgetc(f)) != EOF;) n += c == '\n';
    fclose(f);
    return n;
}

enum fault { KILL_IDLE, KILL_SENDING, KILL_RECEIVING, BAD_ADDRESS, BAD_TAG, BAD_LENGTH, BAD_RDMA, NO_DESCRIPTOR, DISCONNECT, EXIT, FAULTS };
static const char *NAMES[] = {"kill idle", "kill sending", "kill receiving", "bad address", "bad tag", "bad length",
                              "bad rdma",  "no descriptor", "disconnect", "exit"};

/* The child: connects, does some honest work, then what its fault says. */
static void child(int fault, int allocated, int ready) {
    struct side s;
    open_side(&s, "shm", 1 << 18, allocated);
    VIP_VI_HANDLE vi = new_vi(&s, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    for (int i = 0; i < 8; i++) post_recv(&s, vi, i, (size_t)i * 4096, 4096);
    call(&s, vi, "faults");
    for (int i = 0; i < 4; i++) {
        post_send(&s, vi, fill(&s, 20 + i, 0, i % 2 ? 4 : 2000));
        sent(vi, 0);
        received(vi, 0);
    }
    CHECK(write(ready, "r", 1) == 1);
    VIP_DESCRIPTOR *d = fill(&s, 30, 0, 100);
    VIP_UINT32 wanted = VIP_STATUS_PROTECTION_ERROR;
    switch (fault) {
    case KILL_SENDING:
        for (;;) {
            VIP_DESCRIPTOR *out;
            VIP_RETURN r = VipPostSend(vi, fill(&s, 31, 0, 4000), s.descriptor_handle);
            if (r == VIP_SUCCESS && VipSendWait(vi, LONG_MS, &out) != VIP_SUCCESS) pause();
        }
    case KILL_IDLE:
    case KILL_RECEIVING: pause(); break;
    case BAD_ADDRESS: d->DS[0].Local.Data.AddressBits += 1ull << 40; break;
    case BAD_TAG: {
        VIP_PROTECTION_HANDLE tag;
        OK(VipCreatePtag(s.nic, &tag));
        VIP_MEM_ATTRIBUTES other = {tag, VIP_TRUE, VIP_TRUE};
        OK(VipSetMemAttributes(s.nic, s.buffer, s.handle, &other));
        break;
    }
    case BAD_LENGTH:
        d = fill(&s, 30, 0, 60000); /* longer than any descriptor of the parent */
        wanted = VIP_STATUS_TRANSPORT_ERROR;
        break;
    case BAD_RDMA:
        d = fill_rdma(&s, 30, VIP_CONTROL_OP_RDMAWRITE, 0, 64, (void *)0x1000, 1 << 10 | 5);
        wanted = VIP_STATUS_RDMA_PROT_ERROR;
        break;
    case NO_DESCRIPTOR:
        for (int i = 0; i < 4; i++) {
            post_send(&s, vi, fill(&s, 31, 0, 4));
            sent(vi, 0);
        }
        wanted = VIP_STATUS_TRANSPORT_ERROR;
        break;
    case DISCONNECT:
        end_vi(vi);
        close_side(&s);
        _exit(0);
    case EXIT: _exit(0);
    }
    post_send(&s, vi, d);
    sent(vi, wanted);
    CHECK(state_of(vi) == VIP_STATE_ERROR);
    end_vi(vi);
    _exit(0);
}

static void round_of(int fault, int allocated, unsigned delay) {
    int ready[2], status;
    char byte;
    CHECK(!pipe(ready));
    VIP_VI_HANDLE vi = new_vi(&S, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    for (int i = 0; i < 8; i++) post_recv(&S, vi, i, (size_t)i * 4096, 4096);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) child(fault, allocated, ready[1]);
    close(ready[1]);
    serve(&S, vi, "faults");
    for (int i = 0; i < 4; i++) {
        received(vi, 0);
        post_send(&S, vi, fill(&S, 20 + i, 0, i % 2 ? 3000 : 8));
        sent(vi, 0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    struct timespec start, end;
    if (fault <= KILL_RECEIVING) {
        for (unsigned i = 0; i < delay && fault == KILL_RECEIVING; i++) {
            VIP_DESCRIPTOR *d;
            if (i < 4 && VipPostSend(vi, fill(&S, 25, 0, 4096), S.descriptor_handle) == VIP_SUCCESS) VipSendDone(vi, &d);
        }
        usleep(delay * 50);
        clock_gettime(CLOCK_MONOTONIC, &start);
        CHECK(!kill(pid, SIGKILL));
        wait_state(vi, VIP_STATE_ERROR);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.1f ", (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(fault <= KILL_RECEIVING ? WIFSIGNALED(status) : WIFEXITED(status) && !WEXITSTATUS(status));
    wait_state(vi, VIP_STATE_ERROR);
    /* what had arrived is whole, one may be too short for what came, the rest is flushed */
    VIP_DESCRIPTOR *d;
    int flushed = 0, errors = 0;
    while (VipRecvDone(vi, &d) != VIP_NOT_DONE && d) {
        VIP_UINT32 bits = d->CS.Status & VIP_STATUS_ERROR_MASK;
        CHECK(d->CS.Status & VIP_STATUS_DONE);
        CHECK(!bits ? !flushed : bits == VIP_STATUS_DESC_FLUSHED_ERROR || (bits == VIP_STATUS_LENGTH_ERROR && fault == BAD_LENGTH));
        flushed |= bits == VIP_STATUS_DESC_FLUSHED_ERROR;
        errors += bits == VIP_STATUS_LENGTH_ERROR;
    }
    CHECK(errors == (fault == BAD_LENGTH));
    end_vi(vi);
    CHECK(state_of(bystander) == VIP_STATE_CONNECTED);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
    open_side(&S, "shm", 1 << 18, 1);
    /* another connection, of which nothing of all this must be felt */
    bystander = new_vi(&S, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    for (int i = 0; i < 500; i++) post_recv(&S, bystander, 100 + i, 200000, 100);
    int go[2], back[2];
    CHECK(!pipe(go) && !pipe(back));
    pid_t other = fork();
    CHECK(other >= 0);
    if (!other) {
        struct side s;
        char c;
        close(go[1]);
        open_side(&s, "shm", 4096, 1);
        VIP_VI_HANDLE vi = new_vi(&s, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        call(&s, vi, "bystander");
        while (read(go[0], &c, 1) == 1) {
            post_send(&s, vi, fill(&s, 0, 0, 60));
            sent(vi, 0);
            CHECK(write(back[1], &c, 1) == 1);
        }
        end_vi(vi);
        close_side(&s);
        _exit(0);
    }
    close(go[0]);
    serve(&S, bystander, "bystander");
    int kinds[FAULTS] = {0}, files = 0, maps = 0;
    for (int i = 0; i < rounds; i++) {
        int fault = rand() % FAULTS;
        kinds[fault]++;
        round_of(fault, rand() % 2, (unsigned)rand() % 60);
        if (i % 20 == 19) {
            char c = 'x';
            CHECK(write(go[1], &c, 1) == 1 && read(back[0], &c, 1) == 1);
            VIP_DESCRIPTOR *d = received(bystander, 0);
            CHECK(!VipPostRecv(bystander, fill(&S, (int)((char *)d - S.descriptors) / DESCRIPTOR_BYTES, 200000, 100), S.descriptor_handle));
        }
        if (i == 19) {
            files = count("/proc/self/fd");
            maps = mappings();
        }
    }
    if (rounds > 20) {
        for (int i = 0; i < LONG_MS / 10 && count("/proc/self/fd") > files + 2; i++) usleep(10000);
        printf("\nopen files %d, then %d; mappings %d, then %d\n", files, count("/proc/self/fd"), maps, mappings());
        CHECK(count("/proc/self/fd") <= files + 2 && mappings() <= maps + 16);
    }
    close(go[1]);
    int status;
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && !WEXITSTATUS(status));
    wait_state(bystander, VIP_STATE_ERROR);
    end_vi(bystander);
    close_side(&S);
    for (int i = 0; i < FAULTS; i++) printf("%s: %d\n", NAMES[i], kinds[i]);
    printf("%d faults, all as they should be\n", rounds);
    return 0;
}
