/* One side of a connection in a process of its own: `pair DEVICE server|client`. Messages, RDMA, checks at both ends. */
#include "vi.h"

static struct side s;

struct hello {
    VIP_UINT64 address;
    VIP_UINT32 handle, pid;
};

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int server = !strcmp(argv[2], "server");
    open_side(&s, argv[1], 1 << 20, 1);
    VIP_VI_HANDLE vi = new_vi(&s, VIP_SERVICE_RELIABLE_RECEPTION, NULL, NULL);
    for (int i = 0; i < 40; i++) post_recv(&s, vi, i, (size_t)i * 16384, 16384);
    server ? serve(&s, vi, "pair") : call(&s, vi, "pair");
    struct hello *mine = (struct hello *)(s.buffer + 900000), theirs;
    *mine = (struct hello){(VIP_UINT64)(uintptr_t)s.buffer, s.handle, (VIP_UINT32)getpid()};
    post_send(&s, vi, fill(&s, 100, 900000, sizeof *mine));
    sent(vi, 0);
    memcpy(&theirs, received(vi, 0)->DS[0].Local.Data.Address, sizeof theirs);
    for (int i = 1; i < 40; i++) {
        size_t bytes = (size_t)i * 400;
        if (server) {
            memset(s.buffer + 920000, i, bytes);
            post_send(&s, vi, fill(&s, 100, 920000, bytes));
            sent(vi, 0);
        } else {
            VIP_DESCRIPTOR *d = received(vi, 0);
            CHECK(d == descriptor(&s, i) && d->CS.Length == bytes);
            for (size_t at = 0; at < bytes; at++) CHECK(((char *)d->DS[0].Local.Data.Address)[at] == i);
        }
    }
    if (!server) {
        strcpy(s.buffer + 940000, "written by the client");
        post_send(&s, vi, fill_rdma(&s, 101, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, 940000, 100, (void *)(uintptr_t)(theirs.address + 950000), theirs.handle));
        sent(vi, 0);
        wait_state(vi, VIP_STATE_ERROR); /* the server has seen it and gone */
    } else {
        received(vi, 0);
        CHECK(!strcmp(s.buffer + 950000, "written by the client"));
    }
    end_vi(vi);
    close_side(&s);
    printf("%s: own pid %u, peer's pid %u\n", argv[2], (unsigned)getpid(), theirs.pid);
    return 0;
}
