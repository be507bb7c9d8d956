/* What the examples share: a NIC with its tag, network addresses, both sides of a connection, a send that waits. */
#ifndef COMMON_H
#define COMMON_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vipl.h>

#define OK(call)                                                  \
    do {                                                          \
        VIP_RETURN result = (call);                               \
        if (result != VIP_SUCCESS) {                              \
            fprintf(stderr, "%s gives %d\n", #call, (int)result); \
            exit(1);                                              \
        }                                                         \
    } while (0)

struct nic {
    VIP_NIC_HANDLE handle;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
};

/* Any process of this host that waits for the name. */
static const VIP_UINT8 ANY[6] = {127, 0, 0, 1, 0, 0};

/* Whoever disconnects first ends the connection of the other, which is no error here. */
static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error) {
    (void)context;
    if (error->ErrorCode != VIP_ERROR_CONN_LOST) fprintf(stderr, "asynchronous error %d\n", (int)error->ErrorCode);
}

static inline void open_nic(struct nic *nic) {
    OK(VipOpenNic("shm", &nic->handle));
    OK(VipQueryNic(nic->handle, &nic->about));
    OK(VipErrorCallback(nic->handle, NULL, on_error));
    OK(VipCreatePtag(nic->handle, &nic->tag));
}

static inline void close_nic(struct nic *nic) {
    OK(VipDestroyPtag(nic->handle, nic->tag));
    OK(VipCloseNic(nic->handle));
}

/* A network address: a host, or one process of it, and the endpoint's name, of at most 54 bytes. `room` has 64. */
static inline VIP_NET_ADDRESS *address(void *room, const VIP_UINT8 *host, const char *name) {
    VIP_NET_ADDRESS *a = room;
    a->HostAddressLen = 6;
    a->DiscriminatorLen = (VIP_UINT16)strlen(name);
    memcpy((char *)room + 4, host, 6);
    memcpy((char *)room + 10, name, strlen(name));
    return a;
}

/* Waits for one client that asks for `name`. */
static inline void serve(struct nic *nic, VIP_VI_HANDLE vi, const char *name) {
    char here[64], there[64];
    VIP_CONN_HANDLE request;
    VIP_VI_ATTRIBUTES theirs;
    OK(VipConnectWait(nic->handle, address(here, nic->about.LocalNicAddress, name), VIP_INFINITE, (VIP_NET_ADDRESS *)there, &theirs, &request));
    OK(VipConnectAccept(request, vi));
}

/* Asks for `name` until a server waits for it. */
static inline void request(struct nic *nic, VIP_VI_HANDLE vi, const char *name) {
    char here[64], there[64];
    VIP_RETURN result;
    VIP_VI_ATTRIBUTES theirs;
    do result = VipConnectRequest(vi, address(here, nic->about.LocalNicAddress, ""), address(there, ANY, name), 60000, &theirs);
    while (result == VIP_NO_MATCH);
    OK(result);
}

static inline void send_and_wait(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *descriptor, VIP_MEM_HANDLE handle) {
    VIP_DESCRIPTOR *done;
    OK(VipPostSend(vi, descriptor, handle));
    OK(VipSendWait(vi, VIP_INFINITE, &done));
}

/* Disconnects, and takes back what was still posted. */
static inline void end_vi(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *done;
    OK(VipDisconnect(vi));
    while (VipRecvDone(vi, &done) != VIP_NOT_DONE && done) continue;
    OK(VipDestroyVi(vi));
}
#endif
