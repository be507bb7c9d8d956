/* The rules of rules.md, one function each: two NICs of one process, so that both ends can be asked. Every function of vipl.h is called. */
#include "vi.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static struct side A, B;
static int allocated;

struct half {
    struct side *side;
    VIP_VI_HANDLE vi;
};

static void *server(void *of) {
    struct half *h = of;
    serve(h->side, h->vi, "pair");
    return NULL;
}

/* Connects two VIs: `b` serves. */
static void join(VIP_VI_HANDLE a, VIP_VI_HANDLE b) {
    struct half h = {&B, b};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, server, &h));
    call(&A, a, "pair");
    CHECK(!pthread_join(thread, NULL));
    CHECK(state_of(a) == VIP_STATE_CONNECTED && state_of(b) == VIP_STATE_CONNECTED);
}

static void pair(VIP_RELIABILITY_LEVEL level, VIP_VI_HANDLE *a, VIP_VI_HANDLE *b) {
    *a = new_vi(&A, level, NULL, NULL);
    *b = new_vi(&B, level, NULL, NULL);
    join(*a, *b);
}

static const VIP_RELIABILITY_LEVEL LEVELS[] = {VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION};

/* ---- objects */

static void nic(void) {
    VIP_NIC_HANDLE n;
    VIP_NIC_ATTRIBUTES about;
    IS(VipOpenNic(NULL, &n), VIP_INVALID_PARAMETER);
    IS(VipOpenNic("no such device", &n), VIP_INVALID_PARAMETER);
    OK(VipOpenNic("shm", &n));
    OK(VipQueryNic(n, &about));
    CHECK(!strcmp(about.Name, "shm") && about.NicAddressLen == 6 && about.MaxDiscriminatorLen >= 16);
    CHECK(about.ReliabilityLevelSupport == 7 && about.RDMAReadSupport == 6 && about.ThreadSafe);
    CHECK(about.MaxVI > 0 && about.MaxDescriptorsPerQueue > 0 && about.MaxSegmentsPerDesc > 0 && about.MaxTransferSize >= 32768);
    VIP_PROTECTION_HANDLE tag;
    OK(VipCreatePtag(n, &tag));
    IS(VipCloseNic(n), VIP_ERROR_RESOURCE);
    OK(VipDestroyPtag(n, tag));
    OK(VipCloseNic(n));
    IS(VipCloseNic(n), VIP_INVALID_PARAMETER);
    IS(VipQueryNic(n, &about), VIP_INVALID_PARAMETER);
    IS(VipQueryNic((VIP_NIC_HANDLE)1, &about), VIP_INVALID_PARAMETER);
}

static void tags(void) {
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE h;
    static char memory[100];
    OK(VipCreatePtag(A.nic, &tag));
    VIP_MEM_ATTRIBUTES attributes = {tag, VIP_FALSE, VIP_FALSE};
    OK(VipRegisterMem(A.nic, memory, sizeof memory, &attributes, &h));
    IS(VipDestroyPtag(A.nic, tag), VIP_ERROR_RESOURCE);
    OK(VipDeregisterMem(A.nic, memory, h));
    VIP_VI_HANDLE vi;
    VIP_VI_ATTRIBUTES of = {VIP_SERVICE_RELIABLE_DELIVERY, 100, NULL, tag, VIP_FALSE, VIP_FALSE};
    OK(VipCreateVi(A.nic, &of, NULL, NULL, &vi));
    IS(VipDestroyPtag(A.nic, tag), VIP_ERROR_RESOURCE);
    OK(VipDestroyVi(vi));
    OK(VipDestroyPtag(A.nic, tag));
    IS(VipDestroyPtag(A.nic, tag), VIP_INVALID_PARAMETER);
    IS(VipCreateVi(A.nic, &of, NULL, NULL, &vi), VIP_INVALID_PTAG);
    IS(VipRegisterMem(A.nic, memory, sizeof memory, &attributes, &h), VIP_INVALID_PTAG);
}

static void vi_attributes(void) {
    VIP_VI_HANDLE vi;
    VIP_VI_STATE state;
    VIP_BOOLEAN sends, receives;
    VIP_VI_ATTRIBUTES good = {VIP_SERVICE_RELIABLE_DELIVERY, 4096, NULL, A.tag, VIP_TRUE, VIP_TRUE}, bad = good, read;
    bad.ReliabilityLevel = 3;
    IS(VipCreateVi(A.nic, &bad, NULL, NULL, &vi), VIP_INVALID_RELIABILITY_LEVEL);
    bad = good;
    bad.MaxTransferSize = A.about.MaxTransferSize + 1;
    IS(VipCreateVi(A.nic, &bad, NULL, NULL, &vi), VIP_INVALID_MTU);
    bad = good;
    bad.QoS = (VIP_QOS)1;
    IS(VipCreateVi(A.nic, &bad, NULL, NULL, &vi), VIP_INVALID_QOS);
    bad = good;
    bad.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
    IS(VipCreateVi(A.nic, &bad, NULL, NULL, &vi), VIP_INVALID_RDMAREAD);
    IS(VipCreateVi(A.nic, NULL, NULL, NULL, &vi), VIP_INVALID_PARAMETER);
    OK(VipCreateVi(A.nic, &good, NULL, NULL, &vi));
    OK(VipQueryVi(vi, &state, &read, &sends, &receives));
    CHECK(state == VIP_STATE_IDLE && sends && receives && !memcmp(&read.MaxTransferSize, &good.MaxTransferSize, sizeof read.MaxTransferSize));
    CHECK(read.Ptag == A.tag && read.EnableRdmaRead == VIP_TRUE);
    good.MaxTransferSize = 8192;
    OK(VipSetViAttributes(vi, &good));
    OK(VipQueryVi(vi, &state, &read, &sends, &receives));
    CHECK(read.MaxTransferSize == 8192);
    IS(VipSetViAttributes(vi, &bad), VIP_INVALID_RDMAREAD);
    post_recv(&A, vi, 0, 0, 10);
    OK(VipQueryVi(vi, &state, &read, &sends, &receives));
    CHECK(sends && !receives);
    IS(VipDestroyVi(vi), VIP_ERROR_RESOURCE);
    end_vi(vi);
    IS(VipDestroyVi(vi), VIP_INVALID_PARAMETER);
    IS(VipDisconnect(vi), VIP_INVALID_PARAMETER);
}

static void memory(void) {
    VIP_MEM_HANDLE h, again;
    VIP_MEM_ATTRIBUTES attributes = {A.tag, VIP_TRUE, VIP_FALSE}, read;
    VIPX_MEMORY_KIND kind;
    VIP_PVOID start;
    static char bytes[10000];
    IS(VipRegisterMem(A.nic, bytes, 0, &attributes, &h), VIP_INVALID_PARAMETER);
    IS(VipRegisterMem(A.nic, NULL, 10, &attributes, &h), VIP_INVALID_PARAMETER);
    IS(VipRegisterMem(A.nic, bytes, ~0ul, &attributes, &h), VIP_INVALID_PARAMETER);
    OK(VipRegisterMem(A.nic, bytes + 1, 9000, &attributes, &h));
    OK(VipRegisterMem(A.nic, bytes + 1, 9000, &attributes, &again));
    CHECK(h != again && h != 0);
    OK(VipQueryMem(A.nic, bytes + 1, h, &read));
    CHECK(read.Ptag == A.tag && read.EnableRdmaWrite && !read.EnableRdmaRead);
    attributes.EnableRdmaRead = VIP_TRUE;
    OK(VipSetMemAttributes(A.nic, bytes + 1, h, &attributes));
    OK(VipQueryMem(A.nic, bytes + 1, h, &read));
    CHECK(read.EnableRdmaRead);
    OK(VipxQueryMemKind(A.nic, bytes + 1, h, &kind));
    CHECK(kind == VIPX_MEMORY_SHADOW);
    IS(VipQueryMem(A.nic, bytes, h, &read), VIP_INVALID_PARAMETER);
    IS(VipxFreeMem(A.nic, bytes + 1, h), VIP_INVALID_PARAMETER);
    OK(VipDeregisterMem(A.nic, bytes + 1, h));
    IS(VipDeregisterMem(A.nic, bytes + 1, h), VIP_INVALID_PARAMETER);
    OK(VipDeregisterMem(A.nic, bytes + 1, again));
    OK(VipxAllocMem(A.nic, 5000, &attributes, &start, &h));
    OK(VipxQueryMemKind(A.nic, start, h, &kind));
    CHECK(kind == VIPX_MEMORY_ALLOCATED && ((char *)start)[4999] == 0);
    IS(VipDeregisterMem(A.nic, start, h), VIP_INVALID_PARAMETER);
    OK(VipxFreeMem(A.nic, start, h));
}

/* ---- connections */

static void nothing_posted(VIP_VI_HANDLE vi) {
    VIP_RETURN (*const done[])(VIP_VI_HANDLE, VIP_DESCRIPTOR **) = {VipSendDone, VipRecvDone};
    VIP_RETURN (*const wait[])(VIP_VI_HANDLE, VIP_ULONG, VIP_DESCRIPTOR **) = {VipSendWait, VipRecvWait};
    for (int i = 0; i < 2; i++) {
        VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)A.descriptors;
        IS(done[i](vi, &d), VIP_DESCRIPTOR_ERROR);
        CHECK(!d);
        d = (VIP_DESCRIPTOR *)A.descriptors;
        IS(wait[i](vi, VIP_INFINITE, &d), VIP_DESCRIPTOR_ERROR);
        CHECK(!d);
    }
}

static void empty_queues(void) {
    VIP_VI_HANDLE a, b;
    VIP_DESCRIPTOR *d;
    pair(VIP_SERVICE_RELIABLE_DELIVERY, &a, &b);
    nothing_posted(a);
    post_recv(&B, b, 1, 0, 10);
    IS(VipRecvDone(b, &d), VIP_NOT_DONE);
    IS(VipRecvWait(b, 1, &d), VIP_TIMEOUT);
    post_send(&A, a, fill(&A, 0, 0, 4));
    sent(a, 0);
    received(b, 0);
    nothing_posted(a);
    nothing_posted(b);
    OK(VipDisconnect(a));
    wait_state(b, VIP_STATE_ERROR);
    nothing_posted(a);
    nothing_posted(b);
    end_vi(a);
    end_vi(b);
}

static int error_count;
static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *e);

/* What is written to the standard error output while a connection is lost must name that, if nobody handles errors. */
static void default_errors(void) {
    VIP_VI_HANDLE a, b;
    FILE *log = tmpfile();
    int before = dup(2);
    CHECK(log && before >= 0);
    OK(VipErrorCallback(B.nic, NULL, NULL));
    pair(VIP_SERVICE_RELIABLE_DELIVERY, &a, &b);
    fflush(stderr);
    CHECK(dup2(fileno(log), 2) == 2);
    OK(VipDisconnect(a));
    char text[512] = "";
    for (int i = 0; i < LONG_MS && !strstr(text, "connection lost"); i++) {
        short_sleep();
        ssize_t bytes = pread(fileno(log), text, sizeof text - 1, 0);
        text[bytes > 0 ? bytes : 0] = 0;
    }
    CHECK(dup2(before, 2) == 2);
    CHECK(strstr(text, "connection lost"));
    close(before);
    fclose(log);
    OK(VipErrorCallback(B.nic, &error_count, on_error));
    end_vi(a);
    end_vi(b);
}

static void states(void) {
    VIP_VI_HANDLE a, b;
    VIP_VI_ATTRIBUTES attributes;
    VIP_VI_STATE state;
    VIP_BOOLEAN x, y;
    a = new_vi(&A, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    b = new_vi(&B, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    IS(VipPostSend(a, fill(&A, 0, 0, 4), A.descriptor_handle), VIP_INVALID_STATE);
    join(a, b);
    OK(VipQueryVi(a, &state, &attributes, &x, &y));
    IS(VipSetViAttributes(a, &attributes), VIP_INVALID_STATE);
    IS(VipDestroyVi(a), VIP_ERROR_RESOURCE);
    post_recv(&A, a, 1, 0, 10);
    post_recv(&B, b, 1, 0, 10);
    OK(VipDisconnect(a));
    CHECK(state_of(a) == VIP_STATE_IDLE);
    received(a, VIP_STATUS_DESC_FLUSHED_ERROR);
    wait_state(b, VIP_STATE_ERROR);
    received(b, VIP_STATUS_DESC_FLUSHED_ERROR);
    post_recv(&B, b, 2, 0, 10);
    received(b, VIP_STATUS_DESC_FLUSHED_ERROR);
    post_send(&B, b, fill(&B, 3, 0, 4));
    sent(b, VIP_STATUS_DESC_FLUSHED_ERROR);
    OK(VipDisconnect(b));
    CHECK(state_of(b) == VIP_STATE_IDLE);
    join(a, b); /* and once more */
    end_vi(a);
    end_vi(b);
}

static void *waiter(void *result) {
    struct address here, from;
    VIP_VI_ATTRIBUTES theirs;
    VIP_CONN_HANDLE request;
    OK(VipConnectWait(B.nic, address_of(&here, B.about.LocalNicAddress, "asked"), LONG_MS, (VIP_NET_ADDRESS *)&from, &theirs, &request));
    CHECK(theirs.MaxTransferSize == 4096 && from.host == 6 && !memcmp(from.bytes, A.about.LocalNicAddress, 6));
    *(VIP_CONN_HANDLE *)result = request;
    return NULL;
}

static VIP_RETURN asked(VIP_VI_HANDLE vi, VIP_ULONG timeout) {
    struct address here, there;
    VIP_VI_ATTRIBUTES theirs;
    VIP_RETURN result = VIP_NO_MATCH;
    for (int i = 0; i < LONG_MS && result == VIP_NO_MATCH; i++) {
        result = VipConnectRequest(vi, address_of(&here, A.about.LocalNicAddress, "me"), address_of(&there, B.about.LocalNicAddress, "asked"), timeout, &theirs);
        short_sleep();
    }
    return result;
}

struct asking {
    VIP_VI_HANDLE vi;
    VIP_RETURN result;
};

static void *asker(void *of) {
    struct asking *a = of;
    a->result = asked(a->vi, LONG_MS);
    return NULL;
}

static void client_and_server(void) {
    VIP_VI_ATTRIBUTES small = {VIP_SERVICE_RELIABLE_DELIVERY, 4096, NULL, A.tag, VIP_FALSE, VIP_FALSE}, other = small, theirs;
    struct address here, from, there;
    VIP_CONN_HANDLE request;
    VIP_VI_HANDLE a, b;
    pthread_t w, r;
    other.Ptag = B.tag;
    OK(VipCreateVi(A.nic, &small, NULL, NULL, &a));
    IS(VipConnectWait(B.nic, address_of(&here, B.about.LocalNicAddress, "x"), 1, (VIP_NET_ADDRESS *)&from, &theirs, &request), VIP_TIMEOUT);
    IS(VipConnectRequest(a, address_of(&here, A.about.LocalNicAddress, ""), address_of(&there, B.about.LocalNicAddress, "nobody"), LONG_MS, &theirs), VIP_NO_MATCH);
    IS(VipConnectRequest(a, (VIP_NET_ADDRESS *)&here, (VIP_NET_ADDRESS *)&there, 0, &theirs), VIP_INVALID_PARAMETER);
    CHECK(state_of(a) == VIP_STATE_IDLE);
    /* rejected */
    struct asking asking = {a, VIP_SUCCESS};
    CHECK(!pthread_create(&w, NULL, waiter, &request) && !pthread_create(&r, NULL, asker, &asking));
    pthread_join(w, NULL);
    CHECK(state_of(a) == VIP_STATE_CONNECT_PENDING);
    OK(VipConnectReject(request));
    pthread_join(r, NULL);
    CHECK(asking.result == VIP_REJECT && state_of(a) == VIP_STATE_IDLE);
    IS(VipConnectReject(request), VIP_INVALID_PARAMETER);
    /* attributes that differ: the server may change its VI and try again */
    CHECK(!pthread_create(&w, NULL, waiter, &request) && !pthread_create(&r, NULL, asker, &asking));
    pthread_join(w, NULL);
    other.MaxTransferSize = 100;
    OK(VipCreateVi(B.nic, &other, NULL, NULL, &b));
    IS(VipConnectAccept(request, b), VIP_INVALID_MTU);
    other.MaxTransferSize = 4096;
    other.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
    OK(VipSetViAttributes(b, &other));
    IS(VipConnectAccept(request, b), VIP_INVALID_RELIABILITY_LEVEL);
    other.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
    OK(VipSetViAttributes(b, &other));
    OK(VipConnectAccept(request, b));
    pthread_join(r, NULL);
    CHECK(asking.result == VIP_SUCCESS && state_of(a) == VIP_STATE_CONNECTED);
    IS(VipConnectAccept(request, b), VIP_INVALID_PARAMETER);
    OK(VipDisconnect(a));
    OK(VipDisconnect(b));
    /* a client that has given up */
    CHECK(!pthread_create(&w, NULL, waiter, &request));
    VIP_RETURN gave_up = asked(a, 300);
    CHECK(gave_up == VIP_TIMEOUT && state_of(a) == VIP_STATE_IDLE);
    pthread_join(w, NULL);
    IS(VipConnectAccept(request, b), VIP_TIMEOUT);
    CHECK(state_of(b) == VIP_STATE_IDLE);
    end_vi(a);
    end_vi(b);
}

static void peers(void) {
    struct address ha, hb, ta, tb;
    VIP_VI_ATTRIBUTES theirs;
    for (int round = 0; round < 20; round++) {
        VIP_VI_HANDLE a = new_vi(&A, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL), b = new_vi(&B, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        IS(VipConnectPeerDone(a, &theirs), VIP_INVALID_STATE);
        address_of(&ha, A.about.LocalNicAddress, "left");
        address_of(&hb, B.about.LocalNicAddress, "right");
        round % 2 ? (void)address_of(&tb, B.about.LocalNicAddress, "right") : (void)any_process(&tb, "right");
        address_of(&ta, A.about.LocalNicAddress, "left");
        /* the first request is kept until the other comes */
        OK(VipConnectPeerRequest(a, (VIP_NET_ADDRESS *)&ha, (VIP_NET_ADDRESS *)&tb, LONG_MS));
        if (round % 4 < 2) {
            for (int i = 0; i < 20; i++) short_sleep();
            IS(VipConnectPeerDone(a, &theirs), VIP_NOT_DONE);
            CHECK(state_of(a) == VIP_STATE_CONNECT_PENDING);
        }
        OK(VipConnectPeerRequest(b, (VIP_NET_ADDRESS *)&hb, (VIP_NET_ADDRESS *)&ta, LONG_MS));
        OK(VipConnectPeerWait(b, &theirs));
        OK(VipConnectPeerWait(a, &theirs));
        CHECK(theirs.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY && state_of(a) == VIP_STATE_CONNECTED);
        post_recv(&B, b, 0, 0, 10);
        post_send(&A, a, fill(&A, 0, 0, 4));
        sent(a, 0);
        received(b, 0);
        end_vi(a);
        end_vi(b);
    }
    VIP_VI_HANDLE a = new_vi(&A, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL), b = new_vi(&B, VIP_SERVICE_UNRELIABLE, NULL, NULL);
    OK(VipConnectPeerRequest(a, (VIP_NET_ADDRESS *)&ha, (VIP_NET_ADDRESS *)&tb, 20));
    IS(VipConnectPeerWait(a, &theirs), VIP_TIMEOUT);
    CHECK(state_of(a) == VIP_STATE_IDLE);
    OK(VipConnectPeerRequest(a, (VIP_NET_ADDRESS *)&ha, (VIP_NET_ADDRESS *)&tb, LONG_MS));
    OK(VipConnectPeerRequest(b, (VIP_NET_ADDRESS *)&hb, (VIP_NET_ADDRESS *)&ta, LONG_MS));
    IS(VipConnectPeerWait(a, &theirs), VIP_INVALID_RELIABILITY_LEVEL);
    IS(VipConnectPeerWait(b, &theirs), VIP_INVALID_RELIABILITY_LEVEL);
    OK(VipConnectPeerRequest(a, (VIP_NET_ADDRESS *)&ha, (VIP_NET_ADDRESS *)&tb, LONG_MS));
    OK(VipDisconnect(a));
    CHECK(state_of(a) == VIP_STATE_IDLE);
    end_vi(a);
    end_vi(b);
}

static void names(void) {
    struct address at;
    char name[64];
    VIP_ULONG length = sizeof name;
    memset(&at, 0, sizeof at);
    IS(VipNSGetHostByName(A.nic, "127.0.0.1", (VIP_NET_ADDRESS *)&at, 0), VIP_ERROR_NAMESERVICE);
    OK(VipNSInit(A.nic, NULL));
    OK(VipNSGetHostByName(A.nic, "127.0.0.1:24801", (VIP_NET_ADDRESS *)&at, 0));
    const VIP_UINT8 wanted[6] = {127, 0, 0, 1, 24801 >> 8, 24801 & 255};
    CHECK(at.host == 6 && !memcmp(at.bytes, wanted, 6));
    OK(VipNSGetHostByAddr(A.nic, (VIP_NET_ADDRESS *)&at, name, &length));
    CHECK(!strcmp(name, "127.0.0.1:24801") && length == strlen(name) + 1);
    length = 3;
    IS(VipNSGetHostByAddr(A.nic, (VIP_NET_ADDRESS *)&at, name, &length), VIP_ERROR_RESOURCE);
    IS(VipNSGetHostByName(A.nic, "127.0.0.1", (VIP_NET_ADDRESS *)&at, 5), VIP_ERROR_NAMESERVICE);
    OK(VipNSShutdown(A.nic));
    IS(VipNSShutdown(A.nic), VIP_ERROR_NAMESERVICE);
    VIP_NET_ADDRESS *list[1] = {(VIP_NET_ADDRESS *)&at};
    VIP_AUTODISCOVERY_LIST found = {9, list, 1};
    OK(VipQuerySystemManagementInfo(A.nic, VIP_SMI_AUTODISCOVERY, &found));
    CHECK(found.NumAdAddrs == 1 && !memcmp(at.bytes, A.about.LocalNicAddress, 6));
    IS(VipQuerySystemManagementInfo(A.nic, 7, &found), VIP_INVALID_PARAMETER);
}

/* ---- transfers */

static void pattern(char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) at[i] = (char)(seed * 131 + i * 7 + (i >> 8));
}

static void messages(VIP_RELIABILITY_LEVEL level) {
    static const size_t SIZES[] = {0, 1, 4, 47, 48, 49, 100, 4095, 4096, 4097, 70000, 300000};
    VIP_VI_HANDLE a, b;
    pair(level, &a, &b);
    for (unsigned i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        size_t bytes = SIZES[i];
        memset(B.buffer, 0x55, 400000);
        pattern(A.buffer + 3, bytes, i);
        post_recv(&B, b, 0, 5, bytes + 100);
        VIP_DESCRIPTOR *d = fill(&A, 0, 3, bytes);
        if (i % 2) {
            d->CS.Control |= VIP_CONTROL_IMMEDIATE;
            d->CS.ImmediateData = 1000 + i;
        }
        post_send(&A, a, d);
        VIP_DESCRIPTOR *s = sent(a, 0), *r = received(b, 0);
        CHECK(s == d && r == descriptor(&B, 0));
        CHECK((s->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_SEND && (r->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_RECEIVE);
        CHECK(r->CS.Length == bytes && !memcmp(A.buffer + 3, B.buffer + 5, bytes) && B.buffer[5 + bytes] == 0x55 && B.buffer[4] == 0x55);
        CHECK(!(r->CS.Status & VIP_STATUS_IMMEDIATE) == !(i % 2) && (!(i % 2) || r->CS.ImmediateData == 1000 + i));
    }
    end_vi(a);
    end_vi(b);
}

/* Lists of odd lengths on both sides, and order among many messages. */
static void lists_and_order(VIP_RELIABILITY_LEVEL level) {
    VIP_VI_HANDLE a, b;
    pair(level, &a, &b);
    for (unsigned bytes = 30; bytes < 20000; bytes = bytes * 3 + 1) {
        VIP_DESCRIPTOR *s = fill(&A, 0, 0, 1), *r = fill(&B, 0, 0, 1);
        size_t left = bytes, at = 0, n = 0;
        pattern(A.buffer, bytes * 2, bytes);
        for (n = 0; left; n++) {
            size_t part = n == 6 ? left : left / (n + 2) + 1;
            s->DS[n].Local = (VIP_DATA_SEGMENT){{.Address = A.buffer + at}, A.handle, (VIP_UINT32)part};
            at += part + 1;
            left -= part;
        }
        s->CS.SegCount = (VIP_UINT16)n;
        s->CS.Length = bytes;
        left = bytes + 9;
        at = 7;
        for (n = 0; left; n++) {
            size_t part = n == 10 ? left : n == 2 ? 0 : left / (n + 3) + 1;
            r->DS[n].Local = (VIP_DATA_SEGMENT){{.Address = B.buffer + at}, B.handle, (VIP_UINT32)part};
            at += part + 3;
            left -= part;
        }
        r->CS.SegCount = (VIP_UINT16)n;
        OK(VipPostRecv(b, r, B.descriptor_handle));
        post_send(&A, a, s);
        sent(a, 0);
        CHECK(received(b, 0)->CS.Length == bytes);
        char *flat = malloc(bytes + 9);
        size_t done = 0;
        for (unsigned i = 0; i < r->CS.SegCount; i++) {
            size_t part = r->DS[i].Local.Length;
            memcpy(flat + done, r->DS[i].Local.Data.Address, part);
            done += part;
        }
        done = 0;
        for (unsigned i = 0; i < s->CS.SegCount; i++) {
            CHECK(!memcmp(flat + done, s->DS[i].Local.Data.Address, s->DS[i].Local.Length));
            done += s->DS[i].Local.Length;
        }
        free(flat);
    }
    for (int i = 0; i < 300; i++) post_recv(&B, b, i, (size_t)i * 200, 200);
    for (int i = 0; i < 300; i++) {
        size_t bytes = i % 3 == 0 ? 8 : 120;
        memcpy(A.buffer + i * 200, &i, sizeof i);
        post_send(&A, a, fill(&A, i, (size_t)i * 200, bytes));
    }
    for (int i = 0; i < 300; i++) {
        CHECK(sent(a, 0) == descriptor(&A, i));
        CHECK(received(b, 0) == descriptor(&B, i) && !memcmp(B.buffer + i * 200, &i, sizeof i));
    }
    VIPX_COUNTERS counters;
    OK(VipxQueryCounters(a, &counters));
    CHECK(counters.Sends >= 300 && counters.SendsFound <= counters.Sends);
    end_vi(a);
    end_vi(b);
}

static void rdma(VIP_RELIABILITY_LEVEL level) {
    VIP_VI_HANDLE a, b;
    pair(level, &a, &b);
    for (size_t bytes = 1; bytes < 200000; bytes *= 7) {
        memset(B.buffer, 0, 300000);
        pattern(A.buffer, bytes, (unsigned)bytes);
        post_send(&A, a, fill_rdma(&A, 0, VIP_CONTROL_OP_RDMAWRITE, 0, bytes, B.buffer + 11, B.handle));
        CHECK((sent(a, 0)->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_RDMA_WRITE);
        /* no descriptor is used; the bytes come without a call of the program */
        for (int i = 0; i < LONG_MS && ((volatile char *)B.buffer)[11] != A.buffer[0]; i++) short_sleep();
        post_recv(&B, b, 1, 250000, 10);
        VIP_DESCRIPTOR *d = fill_rdma(&A, 1, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, 0, bytes, B.buffer + 11, B.handle);
        d->CS.ImmediateData = 77;
        post_send(&A, a, d);
        sent(a, 0);
        d = received(b, 0);
        CHECK((d->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_REMOTE_RDMA_WRITE && (d->CS.Status & VIP_STATUS_IMMEDIATE));
        CHECK(d->CS.ImmediateData == 77 && d->CS.Length == bytes && !memcmp(A.buffer, B.buffer + 11, bytes));
        if (level != VIP_SERVICE_UNRELIABLE) {
            pattern(B.buffer, bytes, (unsigned)bytes + 5);
            d = fill_rdma(&A, 2, VIP_CONTROL_OP_RDMAREAD, 3, bytes, B.buffer, B.handle);
            post_send(&A, a, d);
            /* a send behind a fence comes after the read */
            post_recv(&B, b, 3, 250000, 10);
            VIP_DESCRIPTOR *behind = fill(&A, 3, 3, bytes < 10 ? bytes : 10);
            behind->CS.Control |= VIP_CONTROL_QFENCE;
            post_send(&A, a, behind);
            CHECK((sent(a, 0)->CS.Status & VIP_STATUS_OP_MASK) == VIP_STATUS_OP_RDMA_READ);
            CHECK(!memcmp(A.buffer + 3, B.buffer, bytes));
            sent(a, 0);
            received(b, 0);
            CHECK(!memcmp(B.buffer + 250000, B.buffer, bytes < 10 ? bytes : 10));
        }
    }
    end_vi(a);
    end_vi(b);
}

/* ---- errors */

static VIP_ERROR_DESCRIPTOR errors[64];
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *e) {
    pthread_mutex_lock(&error_lock);
    CHECK(context == &error_count);
    errors[error_count++ % 64] = *e;
    pthread_mutex_unlock(&error_lock);
}

static void wait_error(VIP_VI_HANDLE vi, VIP_ERROR_CODE code) {
    for (int i = 0; i < LONG_MS; i++) {
        int found = 0;
        pthread_mutex_lock(&error_lock);
        for (int at = 0; at < error_count && at < 64; at++) found |= errors[at].ViHandle == vi && errors[at].ErrorCode == code;
        if (found) error_count = 0;
        pthread_mutex_unlock(&error_lock);
        if (found) return;
        short_sleep();
    }
    CHECK(!"an error that was to be reported");
}

/* Descriptors that are wrong in themselves. */
static void local_errors(VIP_RELIABILITY_LEVEL level) {
    for (int kind = 0; kind < 9; kind++) {
        VIP_VI_HANDLE a, b;
        VIP_PROTECTION_HANDLE tag;
        VIP_MEM_HANDLE other;
        pair(level, &a, &b);
        OK(VipCreatePtag(A.nic, &tag));
        VIP_MEM_ATTRIBUTES attributes = {tag, VIP_TRUE, VIP_TRUE};
        OK(VipRegisterMem(A.nic, A.buffer, 100, &attributes, &other));
        post_recv(&B, b, 0, 0, 100);
        VIP_DESCRIPTOR *d = fill(&A, 0, 0, 60);
        VIP_UINT32 wanted = kind < 5 ? VIP_STATUS_PROTECTION_ERROR : VIP_STATUS_FORMAT_ERROR;
        VIP_RETURN result = VIP_SUCCESS;
        switch (kind) {
        case 0: d->DS[0].Local.Handle = other; break;                 /* another tag */
        case 1: d->DS[0].Local.Handle = 0; break;                     /* no handle */
        case 2: d->DS[0].Local.Handle = A.handle + (1 << 10); break;  /* of something else */
        case 3: d->DS[0].Local.Data.Address = A.buffer + A.bytes; break;
        case 4: d->DS[0].Local.Data.AddressBits = ~0ull - 5; break;
        case 5: d->CS.Control = VIP_CONTROL_OP_RESERVED; break;
        case 6: d->CS.Control = 0x10; break;
        case 7: d->CS.Length = 61; break;
        case 8:
            d->CS.Length = 60;
            d->CS.Reserved = 1;
            break;
        }
        result = VipPostSend(a, d, A.descriptor_handle);
        CHECK(result == VIP_SUCCESS);
        CHECK(sent(a, wanted) == d);
        CHECK(state_of(a) == VIP_STATE_ERROR);
        wait_error(a, VIP_ERROR_POST_DESC);
        wait_state(b, VIP_STATE_ERROR);
        received(b, VIP_STATUS_DESC_FLUSHED_ERROR);
        end_vi(a);
        end_vi(b);
        OK(VipDeregisterMem(A.nic, A.buffer, other));
        OK(VipDestroyPtag(A.nic, tag));
    }
    VIP_VI_HANDLE a, b;
    pair(level, &a, &b);
    IS(VipPostSend(a, (VIP_DESCRIPTOR *)(A.descriptors + 8), A.descriptor_handle), VIP_INVALID_PARAMETER);
    IS(VipPostSend(a, NULL, A.descriptor_handle), VIP_INVALID_PARAMETER);
    IS(VipPostSend(a, descriptor(&A, 0), 12345), VIP_INVALID_PARAMETER);
    IS(VipPostSend(a, (VIP_DESCRIPTOR *)(A.descriptors + DESCRIPTORS * DESCRIPTOR_BYTES), A.descriptor_handle), VIP_INVALID_PARAMETER);
    VIP_DESCRIPTOR *d = fill(&B, 0, 0, 60);
    d->DS[0].Local.Length = 1u << 31;
    OK(VipPostRecv(b, d, B.descriptor_handle));
    CHECK(received(b, VIP_STATUS_PROTECTION_ERROR) == d);
    CHECK(state_of(b) == VIP_STATE_ERROR);
    wait_state(a, VIP_STATE_ERROR);
    end_vi(a);
    end_vi(b);
    pair(level, &a, &b);
    d = fill(&B, 0, 0, 60);
    d->CS.Control = VIP_CONTROL_OP_RDMAWRITE;
    OK(VipPostRecv(b, d, B.descriptor_handle));
    CHECK(received(b, VIP_STATUS_FORMAT_ERROR) == d);
    end_vi(a);
    end_vi(b);
}

/* No receive descriptor, and one that is too short. */
static void receiver_errors(VIP_RELIABILITY_LEVEL level) {
    for (int placed = 0; placed < 2; placed++) {
        VIP_VI_HANDLE a, b;
        size_t bytes = placed ? 1000 : 40;
        VIP_UINT32 status = level == VIP_SERVICE_RELIABLE_RECEPTION ? VIP_STATUS_REMOTE_DESC_ERROR : VIP_STATUS_TRANSPORT_ERROR;
        pair(level, &a, &b);
        post_send(&A, a, fill(&A, 0, 0, bytes));
        if (level == VIP_SERVICE_UNRELIABLE) {
            sent(a, 0); /* lost without a word; the connection stays */
            post_recv(&B, b, 0, 0, bytes - 1);
            post_recv(&B, b, 1, 0, bytes);
            post_send(&A, a, fill(&A, 0, 0, bytes));
            post_send(&A, a, fill(&A, 1, 0, bytes));
            sent(a, 0);
            sent(a, 0);
            received(b, VIP_STATUS_LENGTH_ERROR);
            received(b, 0);
            CHECK(state_of(a) == VIP_STATE_CONNECTED && state_of(b) == VIP_STATE_CONNECTED);
        } else {
            sent(a, status);
            CHECK(state_of(a) == VIP_STATE_ERROR);
            wait_state(b, VIP_STATE_ERROR);
            wait_error(b, VIP_ERROR_RECVQ_EMPTY);
            end_vi(a);
            end_vi(b);
            pair(level, &a, &b);
            post_recv(&B, b, 0, 0, bytes - 1);
            post_send(&A, a, fill(&A, 0, 0, bytes));
            received(b, VIP_STATUS_LENGTH_ERROR);
            CHECK(state_of(b) == VIP_STATE_ERROR);
            wait_state(a, VIP_STATE_ERROR);
            /* reliable delivery may have told of success before the receiver looked */
            VIP_DESCRIPTOR *d;
            VIP_RETURN result = VipSendDone(a, &d);
            if (level == VIP_SERVICE_RELIABLE_RECEPTION || placed) {
                CHECK(result == VIP_DESCRIPTOR_ERROR && (d->CS.Status & VIP_STATUS_ERROR_MASK) == status);
            } else {
                CHECK(result == VIP_SUCCESS);
            }
        }
        end_vi(a);
        end_vi(b);
    }
    VIP_VI_HANDLE a, b;
    VIP_VI_ATTRIBUTES small = {level, 1000, NULL, A.tag, VIP_FALSE, VIP_FALSE}, other = small;
    other.Ptag = B.tag;
    OK(VipCreateVi(A.nic, &small, NULL, NULL, &a));
    OK(VipCreateVi(B.nic, &other, NULL, NULL, &b));
    join(a, b);
    post_recv(&B, b, 0, 0, 2000);
    post_send(&A, a, fill(&A, 0, 0, 1001));
    sent(a, VIP_STATUS_LENGTH_ERROR);
    end_vi(a);
    end_vi(b);
}

static void rdma_protection(VIP_RELIABILITY_LEVEL level) {
    for (int read = 0; read < (level == VIP_SERVICE_UNRELIABLE ? 1 : 2); read++) {
        for (int kind = 0; kind < 6; kind++) {
            VIP_VI_HANDLE a = new_vi(&A, level, NULL, NULL), b;
            VIP_PROTECTION_HANDLE tag;
            VIP_VI_ATTRIBUTES attributes = {level, 1 << 26, NULL, B.tag, VIP_TRUE, level != VIP_SERVICE_UNRELIABLE};
            VIP_MEM_ATTRIBUTES region = {B.tag, VIP_TRUE, VIP_TRUE};
            char *address = B.buffer;
            VIP_MEM_HANDLE handle = B.handle;
            if (kind == 0) attributes.EnableRdmaWrite = attributes.EnableRdmaRead = VIP_FALSE;
            OK(VipCreateVi(B.nic, &attributes, NULL, NULL, &b));
            OK(VipCreatePtag(B.nic, &tag));
            join(a, b);
            switch (kind) {
            case 1: region.EnableRdmaWrite = region.EnableRdmaRead = VIP_FALSE; break;
            case 2: region.Ptag = tag; break;
            case 3: address = B.buffer + B.bytes - 10; break;
            case 4: handle += 1 << 10; break;
            case 5: address = B.buffer - 1; break;
            }
            OK(VipSetMemAttributes(B.nic, B.buffer, B.handle, &region));
            memset(B.buffer, 1, 200);
            memset(A.buffer, 2, 200);
            post_send(&A, a, fill_rdma(&A, 0, read ? VIP_CONTROL_OP_RDMAREAD : VIP_CONTROL_OP_RDMAWRITE, 0, 100, address, handle));
            if (level == VIP_SERVICE_UNRELIABLE) {
                sent(a, 0);
            } else {
                sent(a, VIP_STATUS_RDMA_PROT_ERROR);
                CHECK(state_of(a) == VIP_STATE_ERROR);
                wait_state(b, VIP_STATE_ERROR);
                wait_error(b, read ? VIP_ERROR_RDMAR_PROT : VIP_ERROR_RDMAW_PROT);
            }
            for (int i = 0; i < 200; i++) CHECK(A.buffer[i] == 2 && B.buffer[i] == 1);
            end_vi(a);
            end_vi(b);
            region = (VIP_MEM_ATTRIBUTES){B.tag, VIP_TRUE, VIP_TRUE};
            OK(VipSetMemAttributes(B.nic, B.buffer, B.handle, &region));
            OK(VipDestroyPtag(B.nic, tag));
        }
    }
    if (level == VIP_SERVICE_UNRELIABLE) {
        VIP_VI_HANDLE a, b;
        pair(level, &a, &b);
        post_send(&A, a, fill_rdma(&A, 0, VIP_CONTROL_OP_RDMAREAD, 0, 100, B.buffer, B.handle));
        sent(a, VIP_STATUS_FORMAT_ERROR);
        end_vi(a);
        end_vi(b);
    }
}

/* Memory that is deregistered while a receive descriptor names it. */
static void deregistered(void) {
    VIP_VI_HANDLE a, b;
    VIP_MEM_HANDLE h;
    static char memory[1000];
    VIP_MEM_ATTRIBUTES all = {B.tag, VIP_TRUE, VIP_TRUE};
    pair(VIP_SERVICE_RELIABLE_DELIVERY, &a, &b);
    OK(VipRegisterMem(B.nic, memory, sizeof memory, &all, &h));
    VIP_DESCRIPTOR *d = fill(&B, 0, 0, 40);
    d->DS[0].Local.Data.Address = memory;
    d->DS[0].Local.Handle = h;
    OK(VipPostRecv(b, d, B.descriptor_handle));
    OK(VipDeregisterMem(B.nic, memory, h));
    memset(A.buffer, 3, 40);
    post_send(&A, a, fill(&A, 0, 0, 40));
    received(b, VIP_STATUS_PROTECTION_ERROR);
    for (int i = 0; i < 40; i++) CHECK(memory[i] == 0);
    wait_state(a, VIP_STATE_ERROR);
    end_vi(a);
    end_vi(b);
}

static void limits(void) {
    VIP_VI_HANDLE a, b;
    VIP_ULONG most = A.about.MaxDescriptorsPerQueue;
    pair(VIP_SERVICE_RELIABLE_DELIVERY, &a, &b);
    for (VIP_ULONG i = 0; i < most; i++) post_recv(&B, b, (int)i, i * 8, 8);
    IS(VipPostRecv(b, fill(&B, (int)most, 0, 8), B.descriptor_handle), VIP_ERROR_RESOURCE);
    for (VIP_ULONG i = 0; i < most; i++) post_send(&A, a, fill(&A, (int)i, i * 8, 8));
    IS(VipPostSend(a, fill(&A, (int)most, 0, 8), A.descriptor_handle), VIP_ERROR_RESOURCE);
    for (VIP_ULONG i = 0; i < most; i++) {
        sent(a, 0);
        received(b, 0);
    }
    VIP_DESCRIPTOR *d = fill(&A, 0, 0, 8);
    d->CS.SegCount = (VIP_UINT16)(A.about.MaxSegmentsPerDesc + 2);
    post_send(&A, a, d);
    sent(a, VIP_STATUS_FORMAT_ERROR);
    end_vi(a);
    end_vi(b);
}

/* ---- completion */

static void on_vi(VIP_PVOID context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d);

static void completion_queues(void) {
    VIP_CQ_HANDLE cq, small;
    VIP_VI_HANDLE a, b, c, d, which;
    VIP_BOOLEAN receive;
    VIP_DESCRIPTOR *out;
    IS(VipCreateCQ(B.nic, 0, &cq), VIP_INVALID_PARAMETER);
    OK(VipCreateCQ(B.nic, 16, &cq));
    OK(VipCreateCQ(A.nic, 1, &small));
    IS(VipResizeCQ(cq, 0), VIP_INVALID_PARAMETER);
    OK(VipResizeCQ(cq, 64));
    b = new_vi(&B, VIP_SERVICE_RELIABLE_DELIVERY, cq, cq);
    d = new_vi(&B, VIP_SERVICE_RELIABLE_DELIVERY, NULL, cq);
    a = new_vi(&A, VIP_SERVICE_RELIABLE_DELIVERY, small, NULL);
    c = new_vi(&A, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    VIP_VI_ATTRIBUTES of = {VIP_SERVICE_RELIABLE_DELIVERY, 1, NULL, A.tag, 0, 0};
    VIP_VI_HANDLE never;
    IS(VipCreateVi(A.nic, &of, cq, NULL, &never), VIP_INVALID_PARAMETER);
    join(a, b);
    join(c, d);
    IS(VipDestroyCQ(cq), VIP_ERROR_RESOURCE);
    IS(VipCQDone(cq, &which, &receive), VIP_NOT_DONE);
    IS(VipCQWait(cq, 1, &which, &receive), VIP_TIMEOUT);
    IS(VipRecvWait(b, 1, &out), VIP_ERROR_RESOURCE);
    IS(VipSendWait(a, 1, &out), VIP_ERROR_RESOURCE);
    IS(VipRecvNotify(b, NULL, on_vi), VIP_ERROR_RESOURCE);
    post_recv(&B, b, 0, 0, 10);
    post_recv(&B, d, 1, 100, 10);
    post_send(&A, c, fill(&A, 1, 0, 4));
    sent(c, 0);
    OK(VipCQWait(cq, LONG_MS, &which, &receive));
    CHECK(which == d && receive);
    OK(VipRecvDone(d, &out));
    CHECK(out == descriptor(&B, 1));
    post_send(&A, a, fill(&A, 2, 0, 4));
    OK(VipCQWait(cq, LONG_MS, &which, &receive));
    CHECK(which == b && receive);
    OK(VipRecvDone(b, &out));
    OK(VipCQDone(small, &which, &receive));
    CHECK(which == a && !receive);
    OK(VipSendDone(a, &out));
    /* an overrun loses the entry, not the descriptor */
    post_recv(&B, b, 3, 0, 10);
    post_recv(&B, b, 4, 0, 10);
    post_send(&A, a, fill(&A, 3, 0, 4));
    post_send(&A, a, fill(&A, 4, 0, 4));
    wait_error(a, VIP_ERROR_VI_OVERRUN);
    OK(VipSendDone(a, &out));
    OK(VipSendDone(a, &out));
    end_vi(a);
    end_vi(b);
    end_vi(c);
    end_vi(d);
    OK(VipDestroyCQ(cq));
    OK(VipDestroyCQ(small));
    IS(VipCQDone(cq, &which, &receive), VIP_INVALID_PARAMETER);
}

static int called;

static void on_vi(VIP_PVOID context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    CHECK((n == A.nic || n == B.nic) && vi && (d->CS.Status & VIP_STATUS_DONE));
    __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST);
}

static void on_cq(VIP_PVOID context, VIP_NIC_HANDLE n, VIP_VI_HANDLE vi, VIP_BOOLEAN receive) {
    VIP_DESCRIPTOR *d;
    CHECK(n == B.nic && receive);
    OK(VipRecvDone(vi, &d));
    __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST);
}

static void wait_called(int count) {
    for (int i = 0; i < LONG_MS && __atomic_load_n(&called, __ATOMIC_SEQ_CST) != count; i++) short_sleep();
    CHECK(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == count);
    __atomic_store_n(&called, 0, __ATOMIC_SEQ_CST);
}

static void callbacks(void) {
    VIP_VI_HANDLE a, b, c;
    VIP_CQ_HANDLE cq;
    pair(VIP_SERVICE_RELIABLE_DELIVERY, &a, &b);
    IS(VipRecvNotify(b, &called, NULL), VIP_INVALID_PARAMETER);
    for (int i = 0; i < 20; i++) post_recv(&B, b, i, 0, 100);
    OK(VipRecvNotify(b, &called, on_vi));
    OK(VipSendNotify(a, &called, on_vi));
    post_send(&A, a, fill(&A, 0, 0, 4));
    wait_called(2);
    /* one call for each time that was asked for */
    post_send(&A, a, fill(&A, 1, 0, 4));
    sent(a, 0);
    received(b, 0);
    for (int i = 0; i < 5; i++) OK(VipRecvNotify(b, &called, on_vi));
    for (int i = 2; i < 7; i++) post_send(&A, a, fill(&A, i, 0, 60));
    wait_called(5);
    end_vi(a);
    end_vi(b);
    OK(VipCreateCQ(B.nic, 8, &cq));
    a = new_vi(&A, VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    c = new_vi(&B, VIP_SERVICE_RELIABLE_DELIVERY, NULL, cq);
    join(a, c);
    post_recv(&B, c, 0, 0, 100);
    OK(VipCQNotify(cq, &called, on_cq));
    post_send(&A, a, fill(&A, 0, 0, 4));
    wait_called(1);
    end_vi(a);
    end_vi(c);
    OK(VipDestroyCQ(cq));
}

/* Descriptors handed over in batches of each size. */
static void batches(void) {
    for (VIP_ULONG batch = 1; batch <= 64; batch *= 2) {
        VIP_VI_HANDLE a, b;
        VIPX_COUNTERS before;
        pair(VIP_SERVICE_RELIABLE_DELIVERY, &a, &b);
        IS(VipxSetBatch(a, 0), VIP_INVALID_PARAMETER);
        IS(VipxSetBatch(a, 65), VIP_INVALID_PARAMETER);
        OK(VipxSetBatch(a, batch));
        for (int i = 0; i < 128; i++) post_recv(&B, b, i, 0, 100);
        for (int i = 0; i < 128; i++) post_send(&A, a, fill(&A, i, 0, 100));
        for (int i = 0; i < 128; i++) sent(a, 0);
        OK(VipxQueryCounters(a, &before));
        CHECK(before.Sends == 128 && before.SendsFound == 128 - 128 / batch);
        end_vi(a);
        end_vi(b);
    }
}

/* Memory that peers can map anyway is used where it lies. */
static void shared_memory(void) {
    int fd = (int)syscall(SYS_memfd_create, "program", 2u);
    VIP_MEM_HANDLE h;
    VIPX_MEMORY_KIND kind;
    VIP_MEM_ATTRIBUTES all = {B.tag, VIP_TRUE, VIP_TRUE};
    CHECK(fd >= 0 && !ftruncate(fd, 1 << 20));
    char *at = mmap(NULL, 1 << 19, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    CHECK(at != MAP_FAILED);
    OK(VipRegisterMem(B.nic, at + 100, 300000, &all, &h));
    OK(VipxQueryMemKind(B.nic, at + 100, h, &kind));
    CHECK(kind == VIPX_MEMORY_SHADOW); /* the file could shrink under the peer */
    OK(VipDeregisterMem(B.nic, at + 100, h));
    CHECK(!fcntl(fd, 1033, 2 | 4)); /* seals: no shrinking, no growing */
    OK(VipRegisterMem(B.nic, at + 100, 300000, &all, &h));
    OK(VipxQueryMemKind(B.nic, at + 100, h, &kind));
    CHECK(kind == VIPX_MEMORY_SHARED);
    VIP_VI_HANDLE a, b;
    pair(VIP_SERVICE_RELIABLE_DELIVERY, &a, &b);
    pattern(A.buffer, 250000, 9);
    post_send(&A, a, fill_rdma(&A, 0, VIP_CONTROL_OP_RDMAWRITE, 0, 250000, at + 1000, h));
    sent(a, 0);
    CHECK(!memcmp(at + 1000, A.buffer, 250000));
    VIP_DESCRIPTOR *d = fill(&B, 0, 0, 200000);
    d->DS[0].Local.Data.Address = at + 100;
    d->DS[0].Local.Handle = h;
    OK(VipPostRecv(b, d, B.descriptor_handle));
    post_send(&A, a, fill(&A, 1, 5, 200000));
    received(b, 0);
    CHECK(!memcmp(at + 100, A.buffer + 5, 200000));
    VIPX_COUNTERS counters;
    OK(VipxQueryCounters(b, &counters));
    CHECK(counters.BytesCopied == 0);
    sent(a, 0);
    end_vi(a);
    end_vi(b);
    OK(VipDeregisterMem(B.nic, at + 100, h));
    munmap(at, 1 << 19);
    close(fd);
}

#define RULE(call)                                                    \
    do {                                                              \
        call;                                                         \
        printf("ok %s%s\n", #call, allocated ? " (allocated)" : ""); \
        fflush(stdout);                                               \
    } while (0)

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "shm";
    if (argc <= 1) RULE(nic());
    for (allocated = 0; allocated < 2; allocated++) {
        open_side(&A, device, 1 << 19, allocated);
        open_side(&B, device, 1 << 19, allocated);
        OK(VipErrorCallback(A.nic, &error_count, on_error));
        OK(VipErrorCallback(B.nic, &error_count, on_error));
        if (!allocated) {
            RULE(tags());
            RULE(vi_attributes());
            RULE(memory());
            RULE(empty_queues());
            RULE(default_errors());
            RULE(states());
            RULE(client_and_server());
            RULE(peers());
            RULE(names());
            RULE(completion_queues());
            RULE(callbacks());
            RULE(batches());
            RULE(deregistered());
            if (argc <= 1) RULE(shared_memory());
        }
        for (int i = 0; i < 3; i++) {
            VIP_RELIABILITY_LEVEL level = LEVELS[i];
            RULE(messages(level));
            RULE(lists_and_order(level));
            RULE(rdma(level));
            RULE(local_errors(level));
            RULE(receiver_errors(level));
            RULE(rdma_protection(level));
        }
        RULE(limits());
        OK(VipErrorCallback(A.nic, NULL, NULL));
        close_side(&A);
        close_side(&B);
    }
    printf("all rules hold\n");
    return 0;
}
