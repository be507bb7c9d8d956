/* What the programs of this folder share: short ways to set up NICs, VIs, memory and descriptors, and checks that say where they failed. */
#ifndef VI_H
#define VI_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vipl.h>

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                             \
        }                                                                         \
    } while (0)
#define OK(call) IS(call, VIP_SUCCESS)
#define IS(call, wanted)                                                                                        \
    do {                                                                                                        \
        VIP_RETURN got_ = (call);                                                                               \
        if (got_ != (wanted)) {                                                                                 \
            fprintf(stderr, "%s:%d: %s gives %d, not %d\n", __FILE__, __LINE__, #call, (int)got_, (int)(wanted)); \
            _exit(1);                                                                                           \
        }                                                                                                       \
    } while (0)

/* Generous: a busy machine must not make a test fail. */
#define LONG_MS 60000

struct address {
    VIP_UINT16 host, discriminator;
    VIP_UINT8 bytes[6 + 64 + 2];
};

static VIP_NET_ADDRESS *address_of(struct address *a, const VIP_UINT8 *host, const char *name) {
    memset(a, 0, sizeof *a);
    a->host = 6;
    a->discriminator = (VIP_UINT16)strlen(name);
    memcpy(a->bytes, host, 6);
    memcpy(a->bytes + 6, name, strlen(name));
    return (VIP_NET_ADDRESS *)a;
}

__attribute__((unused)) static VIP_NET_ADDRESS *any_process(struct address *a, const char *name) {
    const VIP_UINT8 host[6] = {127, 0, 0, 1, 0, 0};
    return address_of(a, host, name);
}

/* A NIC with a tag, a descriptor area and a buffer, allocated by the library or registered. */
struct side {
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
    char *descriptors, *buffer;
    VIP_MEM_HANDLE descriptor_handle, handle;
    size_t bytes;
    int allocated;
};

#define DESCRIPTORS 1024
#define DESCRIPTOR_BYTES 576

__attribute__((unused)) static void open_side(struct side *s, const char *device, size_t bytes, int allocated) {
    memset(s, 0, sizeof *s);
    OK(VipOpenNic(device, &s->nic));
    OK(VipQueryNic(s->nic, &s->about));
    OK(VipCreatePtag(s->nic, &s->tag));
    VIP_MEM_ATTRIBUTES all = {s->tag, VIP_TRUE, VIP_TRUE};
    s->descriptors = aligned_alloc(64, DESCRIPTORS * DESCRIPTOR_BYTES);
    memset(s->descriptors, 0, DESCRIPTORS * DESCRIPTOR_BYTES);
    OK(VipRegisterMem(s->nic, s->descriptors, DESCRIPTORS * DESCRIPTOR_BYTES, &all, &s->descriptor_handle));
    s->bytes = bytes;
    s->allocated = allocated;
    if (allocated) {
        VIP_PVOID start;
        OK(VipxAllocMem(s->nic, bytes, &all, &start, &s->handle));
        s->buffer = start;
    } else {
        s->buffer = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        OK(VipRegisterMem(s->nic, s->buffer, bytes, &all, &s->handle));
    }
    memset(s->buffer, 0, bytes);
}

__attribute__((unused)) static void close_side(struct side *s) {
    if (s->allocated) {
        OK(VipxFreeMem(s->nic, s->buffer, s->handle));
    } else {
        OK(VipDeregisterMem(s->nic, s->buffer, s->handle));
        free(s->buffer);
    }
    OK(VipDeregisterMem(s->nic, s->descriptors, s->descriptor_handle));
    free(s->descriptors);
    OK(VipDestroyPtag(s->nic, s->tag));
    OK(VipCloseNic(s->nic));
}

__attribute__((unused)) static VIP_VI_HANDLE new_vi(struct side *s, VIP_RELIABILITY_LEVEL level, VIP_CQ_HANDLE sends, VIP_CQ_HANDLE receives) {
    VIP_VI_ATTRIBUTES attributes = {level, 1 << 26, NULL, s->tag, VIP_TRUE, level != VIP_SERVICE_UNRELIABLE};
    VIP_VI_HANDLE vi;
    OK(VipCreateVi(s->nic, &attributes, sends, receives, &vi));
    return vi;
}

__attribute__((unused)) static VIP_DESCRIPTOR *descriptor(struct side *s, int number) {
    return (VIP_DESCRIPTOR *)(s->descriptors + (size_t)number * DESCRIPTOR_BYTES);
}

/* A descriptor with one data segment; without a length it has none. */
__attribute__((unused)) static VIP_DESCRIPTOR *fill(struct side *s, int number, size_t offset, size_t bytes) {
    VIP_DESCRIPTOR *d = descriptor(s, number);
    memset(d, 0, DESCRIPTOR_BYTES);
    d->CS.SegCount = bytes ? 1 : 0;
    d->CS.Length = (VIP_UINT32)bytes;
    d->DS[0].Local.Data.Address = s->buffer + offset;
    d->DS[0].Local.Handle = s->handle;
    d->DS[0].Local.Length = (VIP_UINT32)bytes;
    return d;
}

/* An RDMA descriptor: from or to `offset` here, `address` there. */
__attribute__((unused)) static VIP_DESCRIPTOR *fill_rdma(struct side *s, int number, int operation, size_t offset, size_t bytes, void *address,
                                                         VIP_MEM_HANDLE remote) {
    VIP_DESCRIPTOR *d = fill(s, number, offset, bytes);
    d->CS.Control = (VIP_UINT16)operation;
    d->CS.SegCount = 2;
    d->DS[1] = d->DS[0];
    d->DS[0].Remote.Data.Address = address;
    d->DS[0].Remote.Handle = remote;
    d->DS[0].Remote.Reserved = 0;
    return d;
}

__attribute__((unused)) static void post_recv(struct side *s, VIP_VI_HANDLE vi, int number, size_t offset, size_t bytes) {
    OK(VipPostRecv(vi, fill(s, number, offset, bytes), s->descriptor_handle));
}

__attribute__((unused)) static void post_send(struct side *s, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) { OK(VipPostSend(vi, d, s->descriptor_handle)); }

/* The next completed descriptor; its error bits must be `errors`. */
__attribute__((unused)) static VIP_DESCRIPTOR *sent(VIP_VI_HANDLE vi, VIP_UINT32 errors) {
    VIP_DESCRIPTOR *d = NULL;
    IS(VipSendWait(vi, LONG_MS, &d), errors ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS);
    CHECK(d->CS.Status & VIP_STATUS_DONE);
    if ((d->CS.Status & VIP_STATUS_ERROR_MASK) != errors) fprintf(stderr, "status %#x\n", d->CS.Status);
    CHECK((d->CS.Status & VIP_STATUS_ERROR_MASK) == errors);
    return d;
}

__attribute__((unused)) static VIP_DESCRIPTOR *received(VIP_VI_HANDLE vi, VIP_UINT32 errors) {
    VIP_DESCRIPTOR *d = NULL;
    IS(VipRecvWait(vi, LONG_MS, &d), errors ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS);
    CHECK(d->CS.Status & VIP_STATUS_DONE);
    if ((d->CS.Status & VIP_STATUS_ERROR_MASK) != errors) fprintf(stderr, "status %#x\n", d->CS.Status);
    CHECK((d->CS.Status & VIP_STATUS_ERROR_MASK) == errors);
    return d;
}

__attribute__((unused)) static VIP_VI_STATE state_of(VIP_VI_HANDLE vi) {
    VIP_VI_STATE state;
    VIP_VI_ATTRIBUTES attributes;
    VIP_BOOLEAN a, b;
    OK(VipQueryVi(vi, &state, &attributes, &a, &b));
    return state;
}

__attribute__((unused)) static void short_sleep(void) {
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

__attribute__((unused)) static void wait_state(VIP_VI_HANDLE vi, VIP_VI_STATE state) {
    for (int i = 0; i < LONG_MS && state_of(vi) != state; i++) short_sleep();
    CHECK(state_of(vi) == state);
}

/* Disconnects, takes what was flushed, destroys. */
__attribute__((unused)) static void end_vi(VIP_VI_HANDLE vi) {
    VIP_DESCRIPTOR *d;
    OK(VipDisconnect(vi));
    while (VipSendDone(vi, &d) != VIP_NOT_DONE && d) {
    }
    while (VipRecvDone(vi, &d) != VIP_NOT_DONE && d) {
    }
    OK(VipDestroyVi(vi));
}

__attribute__((unused)) static void serve(struct side *s, VIP_VI_HANDLE vi, const char *name) {
    struct address here, from;
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE request;
    OK(VipConnectWait(s->nic, address_of(&here, s->about.LocalNicAddress, name), LONG_MS, (VIP_NET_ADDRESS *)&from, &theirs, &request));
    OK(VipConnectAccept(request, vi));
}

__attribute__((unused)) static void call(struct side *s, VIP_VI_HANDLE vi, const char *name) {
    struct address here, there;
    VIP_VI_ATTRIBUTES theirs;
    VIP_RETURN result;
    for (int i = 0; i < LONG_MS; i++) {
        result = VipConnectRequest(vi, address_of(&here, s->about.LocalNicAddress, ""), any_process(&there, name), LONG_MS, &theirs);
        if (result != VIP_NO_MATCH) break;
        short_sleep();
    }
    OK(result);
}
#endif
