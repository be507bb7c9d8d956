/* Messages back and forth between two processes: `pingpong [bytes [count]]`. Build: cc pingpong.c -lvipl */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vipl.h>

#define OK(call)                                                            \
    do {                                                                    \
        VIP_RETURN result = (call);                                         \
        if (result != VIP_SUCCESS) {                                        \
            fprintf(stderr, "%s gives %d\n", #call, (int)result);           \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

enum { WINDOW = 64 };

/* A network address: our host, or any process of it, and the endpoint's name. */
static VIP_NET_ADDRESS *address(void *room, const VIP_UINT8 *host, const char *name) {
    VIP_NET_ADDRESS *a = room;
    a->HostAddressLen = 6;
    a->DiscriminatorLen = (VIP_UINT16)strlen(name);
    memcpy((char *)room + 4, host, 6);
    memcpy((char *)room + 10, name, strlen(name));
    return a;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 4;
    int count = argc > 2 ? atoi(argv[2]) : 100000;
    char name[32], here[64], there[64];
    snprintf(name, sizeof name, "pingpong %d", (int)getpid());
    int client = fork() == 0;

    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
    OK(VipOpenNic("shm", &nic));
    OK(VipQueryNic(nic, &about));
    OK(VipCreatePtag(nic, &tag));

    /* memory that both sides map: descriptors, one buffer to send, the rest to receive */
    VIP_MEM_ATTRIBUTES of_memory = {tag, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE handle;
    VIP_PVOID start;
    OK(VipxAllocMem(nic, (WINDOW + 1) * (sizeof(VIP_DESCRIPTOR) + bytes), &of_memory, &start, &handle));
    VIP_DESCRIPTOR *descriptors = start;
    char *buffers = (char *)(descriptors + WINDOW + 1);
    for (int i = 0; i <= WINDOW; i++) {
        descriptors[i].CS.SegCount = 1;
        descriptors[i].CS.Length = (VIP_UINT32)bytes;
        descriptors[i].DS[0].Local.Data.Address = buffers + (size_t)i * bytes;
        descriptors[i].DS[0].Local.Handle = handle;
        descriptors[i].DS[0].Local.Length = (VIP_UINT32)bytes;
    }

    VIP_VI_HANDLE vi;
    VIP_VI_ATTRIBUTES of_vi = {VIP_SERVICE_RELIABLE_DELIVERY, about.MaxTransferSize, NULL, tag, VIP_FALSE, VIP_FALSE}, theirs;
    OK(VipCreateVi(nic, &of_vi, NULL, NULL, &vi));
    for (int i = 0; i < WINDOW; i++) OK(VipPostRecv(vi, &descriptors[i], handle));
    if (client) {
        const VIP_UINT8 any[6] = {127, 0, 0, 1, 0, 0};
        VIP_RETURN result;
        do result = VipConnectRequest(vi, address(here, about.LocalNicAddress, ""), address(there, any, name), 5000, &theirs);
        while (result == VIP_NO_MATCH); /* the server does not wait yet */
        OK(result);
    } else {
        VIP_CONN_HANDLE request;
        OK(VipConnectWait(nic, address(here, about.LocalNicAddress, name), VIP_INFINITE, (VIP_NET_ADDRESS *)there, &theirs, &request));
        OK(VipConnectAccept(request, vi));
    }

    struct timespec begin, end;
    VIP_DESCRIPTOR *done;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++) {
        if (client) {
            OK(VipPostSend(vi, &descriptors[WINDOW], handle));
            OK(VipSendWait(vi, VIP_INFINITE, &done));
        }
        OK(VipRecvWait(vi, VIP_INFINITE, &done));
        OK(VipPostRecv(vi, done, handle));
        if (!client) {
            OK(VipPostSend(vi, &descriptors[WINDOW], handle));
            OK(VipSendWait(vi, VIP_INFINITE, &done));
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (client) printf("%zu bytes: %.3f us one way\n", bytes, ((double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3) / 2 / count);

    OK(VipDisconnect(vi));
    while (VipRecvDone(vi, &done) != VIP_NOT_DONE) continue; /* what was still posted */
    OK(VipDestroyVi(vi));
    OK(VipxFreeMem(nic, start, handle));
    OK(VipDestroyPtag(nic, tag));
    OK(VipCloseNic(nic));
    if (client) return 0;
    int status;
    wait(&status);
    return status != 0;
}
