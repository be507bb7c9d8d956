/* An RDMA ring: each process writes straight into its right neighbour's memory, with immediate data that says so. `ring [processes [laps]]` */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vipl.h>

#define OK(call)                                                  \
    do {                                                          \
        VIP_RETURN result = (call);                               \
        if (result != VIP_SUCCESS) {                              \
            fprintf(stderr, "%s gives %d\n", #call, (int)result); \
            exit(1);                                              \
        }                                                         \
    } while (0)

/* What a process tells the others: where its token lies. */
struct place {
    VIP_UINT64 address;
    VIP_UINT32 handle;
};

/* The ends of link `link`, which leads from process `link` to the next one: 't' and 'h'. */
static VIP_NET_ADDRESS *address(void *room, const VIP_UINT8 *host, int link, char end) {
    VIP_NET_ADDRESS *a = room;
    char name[40];
    a->HostAddressLen = 6;
    a->DiscriminatorLen = (VIP_UINT16)snprintf(name, sizeof name, "ring %d %d %c", (int)getpgrp(), link, end);
    memcpy((char *)room + 4, host, 6);
    memcpy((char *)room + 10, name, a->DiscriminatorLen);
    return a;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 4, laps = argc > 2 ? atoi(argv[2]) : 1000, me = 0;
    if (count < 2 || count > 32) return 2;
    struct place *places = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* process 0 is the first one */
    for (int i = 1; i < count && !me; i++)
        if (!fork()) me = i;

    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
    OK(VipOpenNic("shm", &nic));
    OK(VipQueryNic(nic, &about));
    OK(VipCreatePtag(nic, &tag));
    VIP_MEM_ATTRIBUTES of_memory = {tag, VIP_TRUE, VIP_FALSE};
    VIP_MEM_HANDLE handle;
    VIP_PVOID start;
    OK(VipxAllocMem(nic, 4096, &of_memory, &start, &handle));
    VIP_DESCRIPTOR *descriptors = start;
    long *token = (long *)(descriptors + 8);
    places[me] = (struct place){(VIP_UINT64)(size_t)token, handle};

    /* two VIs, to the left and to the right; of each pair both ask, in any order */
    VIP_VI_HANDLE left, right;
    VIP_VI_ATTRIBUTES of_vi = {VIP_SERVICE_RELIABLE_DELIVERY, 4096, NULL, tag, VIP_TRUE, VIP_FALSE}, theirs;
    OK(VipCreateVi(nic, &of_vi, NULL, NULL, &left));
    OK(VipCreateVi(nic, &of_vi, NULL, NULL, &right));
    OK(VipPostRecv(left, &descriptors[0], handle)); /* no segments: it takes immediate data alone */
    int next = (me + 1) % count, before = (me + count - 1) % count;
    const VIP_UINT8 any[6] = {127, 0, 0, 1, 0, 0};
    char a[64], b[64], c[64], d[64];
    OK(VipConnectPeerRequest(right, address(a, about.LocalNicAddress, me, 't'), address(b, any, me, 'h'), VIP_INFINITE));
    OK(VipConnectPeerRequest(left, address(c, about.LocalNicAddress, before, 'h'), address(d, any, before, 't'), VIP_INFINITE));
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
        OK(VipPostSend(right, write, handle));
        OK(VipSendWait(right, VIP_INFINITE, &done));
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
        OK(VipDisconnect(both[i]));
        while (VipRecvDone(both[i], &done) != VIP_NOT_DONE) continue;
        OK(VipDestroyVi(both[i]));
    }
    OK(VipxFreeMem(nic, start, handle));
    OK(VipDestroyPtag(nic, tag));
    OK(VipCloseNic(nic));
    int status;
    while (wait(&status) > 0) good = good && !status;
    return !good;
}
