/* An RDMA ring: each process writes straight into its right neighbour's memory, with immediate data that says so. `ring [processes [laps]]` */
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process tells the others: where its token lies. */
struct place {
    VIP_UINT64 address;
    VIP_UINT32 handle;
};

/* The ends of link `link`, which leads from process `link` to the next one: 't' and 'h'. */
static VIP_NET_ADDRESS *link_end(void *room, const VIP_UINT8 *host, int link, char end) {
    char name[40];
    snprintf(name, sizeof name, "ring %d %d %c", (int)getpgrp(), link, end);
    return address(room, host, name);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 4, laps = argc > 2 ? atoi(argv[2]) : 1000, me = 0;
    if (count < 2 || count > 32) return 2;
    struct place *places = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* process 0 is the first one */
    for (int i = 1; i < count && !me; i++)
        if (!fork()) me = i;

    struct nic nic;
    open_nic(&nic);
    VIP_MEM_ATTRIBUTES of_memory = {nic.tag, VIP_TRUE, VIP_FALSE};
    VIP_MEM_HANDLE handle;
    VIP_PVOID start;
    OK(VipxAllocMem(nic.handle, 4096, &of_memory, &start, &handle));
    VIP_DESCRIPTOR *descriptors = start;
    long *token = (long *)(descriptors + 8);
    places[me] = (struct place){(VIP_UINT64)(size_t)token, handle};

    /* two VIs, to the left and to the right; of each pair both ask, in any order */
    VIP_VI_HANDLE left, right;
    VIP_VI_ATTRIBUTES of_vi = {VIP_SERVICE_RELIABLE_DELIVERY, 4096, NULL, nic.tag, VIP_TRUE, VIP_FALSE}, theirs;
    OK(VipCreateVi(nic.handle, &of_vi, NULL, NULL, &left));
    OK(VipCreateVi(nic.handle, &of_vi, NULL, NULL, &right));
    OK(VipPostRecv(left, &descriptors[0], handle)); /* no segments: it takes immediate data alone */
    int next = (me + 1) % count, before = (me + count - 1) % count;
    char a[64], b[64], c[64], d[64];
    OK(VipConnectPeerRequest(right, link_end(a, nic.about.LocalNicAddress, me, 't'), link_end(b, ANY, me, 'h'), VIP_INFINITE));
    OK(VipConnectPeerRequest(left, link_end(c, nic.about.LocalNicAddress, before, 'h'), link_end(d, ANY, before, 't'), VIP_INFINITE));
    OK(VipConnectPeerWait(right, &theirs));
    OK(VipConnectPeerWait(left, &theirs));

    /* the neighbour has said where its token lies before it asked */
    VIP_DESCRIPTOR *write = &descriptors[1], *done;
    write->CS.Control = VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE;
    write->CS.SegCount = 2;
    write->CS.Length = sizeof *token;
    write->DS[0].Remote.Data.AddressBits = places[next].address;
    write->DS[0].Remote.Handle = places[next].handle;
    write->DS[1].Local.Data.Address = token;
    write->DS[1].Local.Handle = handle;
    write->DS[1].Local.Length = sizeof *token;
    for (int lap = 0; lap < laps; lap++) {
        if (me) {
            OK(VipRecvWait(left, VIP_INFINITE, &done));
            OK(VipPostRecv(left, done, handle));
        }
        ++*token;
        write->CS.ImmediateData = (VIP_UINT32)lap;
        send_and_wait(right, write, handle);
        if (!me) {
            OK(VipRecvWait(left, VIP_INFINITE, &done));
            if (done->CS.ImmediateData != (VIP_UINT32)lap) return 1;
            OK(VipPostRecv(left, done, handle));
        }
    }
    int good = me || *token == (long)laps * count;
    if (!me) printf("%d processes, %d laps: the token is %ld\n", count, laps, *token);

    VIP_VI_HANDLE both[2] = {left, right};
    for (int i = 0; i < 2; i++) {
        end_vi(both[i]);
    }
    OK(VipxFreeMem(nic.handle, start, handle));
    close_nic(&nic);
    int status;
    while (wait(&status) > 0) good = good && !status;
    return !good;
}
