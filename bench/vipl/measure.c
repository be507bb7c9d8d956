/* Two processes on two cores: what the VI Provider Library costs, beside what the machine gives in the same run.
 * Arguments: rounds, and how often each thing is done is divided by the second. Lines: `name x value`. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vipl.h>

#define OK(call)                                                        \
    do {                                                                \
        VIP_RETURN got = (call);                                        \
        if (got) {                                                      \
            fprintf(stderr, "%s gives %d at %d\n", #call, got, __LINE__); \
            _exit(1);                                                   \
        }                                                               \
    } while (0)

/* What is measured beside each other is so in turn, in BATCHES short parts: another program's turn on a core spoils a part, not the median. */
enum { WINDOW = 256, DESCRIPTOR_BYTES = 64, DEPTH = 4, BATCHES = 40 };
#define BUFFER_BYTES ((size_t)DEPTH << 20)

struct common {
    _Alignas(64) atomic_long line;
    _Alignas(64) atomic_long lines[2][8];
    _Alignas(64) atomic_int stage;
    _Alignas(64) atomic_int arrived[2];
    VIP_UINT64 address;
    VIP_UINT32 handle;
};

static struct common *common;
static int me;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Both processes are here. */
static void meet(void) {
    static int stage;
    stage++;
    atomic_store(&common->arrived[me], stage);
    while (atomic_load(&common->arrived[!me]) < stage) sched_yield();
}

static void pin(int which) {
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may)) return;
    int seen = 0;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && seen++ == which) CPU_SET(cpu, &one);
    if (CPU_COUNT(&one)) sched_setaffinity(0, sizeof one, &one);
}

/* One way of a cache line between the two cores, ns. */
static double line_ns(long count) {
    if (!me) atomic_store(&common->line, 0);
    meet();
    double start = now_ns();
    for (long i = 1; i <= count; i++) {
        if (!me) atomic_store_explicit(&common->line, 2 * i - 1, memory_order_release);
        while (atomic_load_explicit(&common->line, memory_order_acquire) < 2 * i - me) {
        }
        if (me) atomic_store_explicit(&common->line, 2 * i, memory_order_release);
    }
    return (now_ns() - start) / 2 / (double)count;
}

/* The same with a line for each way, as in a channel that carries both ways at once: who writes has to get the line back from the other's
 * cache first. */
static double lines_ns(long count) {
    if (!me) memset((void *)common->lines, 0, sizeof common->lines);
    meet();
    atomic_long *out = common->lines[me], *in = common->lines[!me];
    double start = now_ns();
    for (long i = 1; i <= count; i++) {
        if (!me) atomic_store_explicit(out, i, memory_order_release);
        while (atomic_load_explicit(in, memory_order_acquire) < i) {
        }
        if (me) atomic_store_explicit(out, i, memory_order_release);
    }
    return (now_ns() - start) / 2 / (double)count;
}

struct vi {
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_HANDLE vi;
    char *descriptors, *buffer;
    VIP_MEM_HANDLE descriptor_handle, handle;
    int allocated;
};

static void address(unsigned char *at, const unsigned char *host, const char *name) {
    VIP_NET_ADDRESS *a = (VIP_NET_ADDRESS *)at;
    static const unsigned char any[6] = {127, 0, 0, 1, 0, 0};
    a->HostAddressLen = 6;
    a->DiscriminatorLen = (VIP_UINT16)strlen(name);
    memcpy(at + 4, host ? host : any, 6);
    memcpy(at + 10, name, strlen(name));
}

static void open_vi(struct vi *v, int allocated, VIP_ULONG batch) {
    _Alignas(8) unsigned char here[80], there[80];
    char name[32];
    VIP_NIC_ATTRIBUTES about;
    snprintf(name, sizeof name, "bench%d", getppid() > 1 && me ? (int)getppid() : (int)getpid());
    memset(v, 0, sizeof *v);
    v->allocated = allocated;
    OK(VipOpenNic("shm", &v->nic));
    OK(VipQueryNic(v->nic, &about));
    OK(VipCreatePtag(v->nic, &v->tag));
    VIP_MEM_ATTRIBUTES all = {v->tag, VIP_TRUE, VIP_TRUE};
    VIP_PVOID start;
    OK(VipxAllocMem(v->nic, 2 * WINDOW * DESCRIPTOR_BYTES, &all, &start, &v->descriptor_handle));
    v->descriptors = start;
    if (allocated) {
        OK(VipxAllocMem(v->nic, BUFFER_BYTES, &all, &start, &v->handle));
        v->buffer = start;
    } else {
        v->buffer = aligned_alloc(4096, BUFFER_BYTES);
        OK(VipRegisterMem(v->nic, v->buffer, BUFFER_BYTES, &all, &v->handle));
    }
    memset(v->buffer, 1, BUFFER_BYTES);
    VIP_VI_ATTRIBUTES of = {VIP_SERVICE_RELIABLE_DELIVERY, 1 << 26, NULL, v->tag, VIP_TRUE, VIP_TRUE}, theirs;
    OK(VipCreateVi(v->nic, &of, NULL, NULL, &v->vi));
    if (batch) OK(VipxSetBatch(v->vi, batch));
    address(here, about.LocalNicAddress, me ? "" : name);
    if (!me) {
        VIP_CONN_HANDLE request;
        OK(VipConnectWait(v->nic, (VIP_NET_ADDRESS *)here, VIP_INFINITE, (VIP_NET_ADDRESS *)there, &theirs, &request));
        OK(VipConnectAccept(request, v->vi));
    } else {
        address(there, NULL, name);
        VIP_RETURN result;
        while ((result = VipConnectRequest(v->vi, (VIP_NET_ADDRESS *)here, (VIP_NET_ADDRESS *)there, 10000, &theirs)) == VIP_NO_MATCH) sched_yield();
        OK(result);
    }
}

static void close_vi(struct vi *v) {
    VIP_DESCRIPTOR *d;
    meet();
    OK(VipDisconnect(v->vi));
    while (VipSendDone(v->vi, &d) != VIP_NOT_DONE && d) {
    }
    while (VipRecvDone(v->vi, &d) != VIP_NOT_DONE && d) {
    }
    OK(VipDestroyVi(v->vi));
    if (v->allocated) {
        OK(VipxFreeMem(v->nic, v->buffer, v->handle));
    } else {
        OK(VipDeregisterMem(v->nic, v->buffer, v->handle));
        free(v->buffer);
    }
    OK(VipxFreeMem(v->nic, v->descriptors, v->descriptor_handle));
    OK(VipDestroyPtag(v->nic, v->tag));
    OK(VipCloseNic(v->nic));
    meet();
}

static VIP_DESCRIPTOR *describe(struct vi *v, int at, size_t offset, size_t bytes) {
    VIP_DESCRIPTOR *d = (VIP_DESCRIPTOR *)(v->descriptors + (size_t)at * DESCRIPTOR_BYTES);
    d->CS.SegCount = 1;
    d->CS.Control = 0;
    d->CS.Reserved = 0;
    d->CS.Length = (VIP_UINT32)bytes;
    d->DS[0].Local.Data.Address = v->buffer + offset;
    d->DS[0].Local.Handle = v->handle;
    d->DS[0].Local.Length = (VIP_UINT32)bytes;
    return d;
}

static VIP_DESCRIPTOR *take(struct vi *v) {
    VIP_DESCRIPTOR *d;
    VIP_RETURN result;
    while ((result = VipRecvDone(v->vi, &d)) == VIP_NOT_DONE) {
    }
    OK(result);
    return d;
}

/* One way of a message, ns: a window of receive descriptors, posted before the first part, each again when the answer is under way. */
static double latency_ns(struct vi *v, size_t bytes, long count, int first) {
    VIP_DESCRIPTOR *done, *in = NULL;
    VIP_DESCRIPTOR *out = describe(v, WINDOW, 0, bytes);
    for (int i = 0; first && i < WINDOW; i++) OK(VipPostRecv(v->vi, describe(v, i, BUFFER_BYTES / 2, bytes), v->descriptor_handle));
    meet();
    double start = 0;
    for (long i = -count / 10; i < count; i++) {
        if (i == 0) start = now_ns();
        if (me) in = take(v);
        OK(VipPostSend(v->vi, out, v->descriptor_handle));
        if (in) OK(VipPostRecv(v->vi, in, v->descriptor_handle));
        OK(VipSendDone(v->vi, &done));
        if (!me) in = take(v);
    }
    double ns = (now_ns() - start) / 2 / (double)count;
    if (!me) OK(VipPostRecv(v->vi, in, v->descriptor_handle));
    meet();
    return ns;
}

/* Bytes per ns from one to the other. DEPTH messages are under way; the receiver says of each that it has taken it, which lets another go. */
static double bandwidth(struct vi *v, size_t bytes, long count, int first) {
    VIP_DESCRIPTOR *done;
    static const int SMALL = WINDOW + 64;
    /* the receiver's stay posted from part to part */
    for (int i = 0; (first || !me) && i < DEPTH; i++)
        OK(VipPostRecv(v->vi, describe(v, i, (size_t)i << 20, me ? bytes : 8), v->descriptor_handle));
    meet();
    double start = 0;
    /* the first DEPTH are not counted: the kernel maps the pages then */
    for (long i = -DEPTH; i < count; i++) {
        int at = (int)((i + DEPTH) % DEPTH);
        if (i == 0) start = now_ns();
        if (!me) {
            if (i >= 0) OK(VipPostRecv(v->vi, take(v), v->descriptor_handle));
            OK(VipPostSend(v->vi, describe(v, WINDOW + at, (size_t)at << 20, bytes), v->descriptor_handle));
            OK(VipSendDone(v->vi, &done));
        } else {
            OK(VipPostRecv(v->vi, take(v), v->descriptor_handle));
            OK(VipPostSend(v->vi, describe(v, SMALL, 0, 4), v->descriptor_handle));
            OK(VipSendDone(v->vi, &done));
        }
    }
    if (!me)
        for (int i = 0; i < DEPTH; i++) take(v);
    double ns = now_ns() - start;
    meet();
    return (double)bytes * (double)count / ns;
}

/* One core's memcpy over buffers of the same count and size. */
static double copy_rate(size_t bytes, long count) {
    static char *from, *to;
    if (!from) {
        from = aligned_alloc(4096, BUFFER_BYTES);
        to = aligned_alloc(4096, BUFFER_BYTES);
        memset(from, 1, BUFFER_BYTES);
        memset(to, 2, BUFFER_BYTES);
    }
    double best = 0;
    if (!me) {
        double start = now_ns();
        for (long i = 0; i < count; i++) {
            memcpy(to + ((size_t)(i % DEPTH) << 20), from + ((size_t)(i % DEPTH) << 20), bytes);
            __asm__ volatile("" ::: "memory");
        }
        best = (double)bytes * (double)count / (now_ns() - start);
    }
    meet();
    return best;
}

static volatile double called_at;

static void on_receive(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d) {
    (void)context, (void)nic, (void)vi, (void)d;
    called_at = now_ns();
    atomic_store(&common->line, 1);
}

/* From posting a message to the call of the receiver's handler, ns. */
static double callback_ns(struct vi *v) {
    atomic_store(&common->line, 0);
    meet();
    double ns = 0;
    VIP_DESCRIPTOR *d;
    if (me) {
        OK(VipPostRecv(v->vi, describe(v, 0, 0, 8), v->descriptor_handle));
        OK(VipRecvNotify(v->vi, NULL, on_receive));
    }
    meet();
    if (!me) {
        double start = now_ns();
        OK(VipPostSend(v->vi, describe(v, WINDOW, 0, 4), v->descriptor_handle));
        while (!atomic_load(&common->line)) sched_yield();
        ns = now_ns() - start;
        while (VipSendDone(v->vi, &d) == VIP_NOT_DONE) {
        }
    }
    meet();
    return ns;
}

/* Share of sends that found their receive descriptor taken over. */
static double found(VIP_ULONG batch, long count) {
    struct vi v;
    VIPX_COUNTERS counters;
    VIP_DESCRIPTOR *done;
    open_vi(&v, 1, batch);
    if (me)
        for (int i = 0; i < WINDOW; i++) OK(VipPostRecv(v.vi, describe(&v, i, 4096 * (size_t)(i % 64), 4096), v.descriptor_handle));
    meet();
    for (long i = 0; i < count; i++) {
        if (me) {
            OK(VipPostRecv(v.vi, take(&v), v.descriptor_handle));
            atomic_store_explicit(&common->line, i + 1, memory_order_release);
        } else {
            while (i - atomic_load_explicit(&common->line, memory_order_acquire) > WINDOW - 64) {
            }
            OK(VipPostSend(v.vi, describe(&v, WINDOW + (int)(i % 64), 0, 256), v.descriptor_handle));
            OK(VipSendDone(v.vi, &done));
        }
    }
    meet();
    if (!me) atomic_store(&common->line, 0);
    OK(VipxQueryCounters(v.vi, &counters));
    close_vi(&v);
    return counters.Sends ? (double)counters.SendsFound / (double)counters.Sends : 0;
}

#define SAY(...)                             \
    do {                                     \
        if (!me) printf(__VA_ARGS__), fflush(stdout); \
    } while (0)

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    long divide = argc > 2 ? atol(argv[2]) : 1;
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    me = !child;
    /* whoever ends the parent ends both */
    if (me && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() == 1)) return 1;
    /* before the NIC's threads exist, so that they may run elsewhere only where there is more than this core */
    pin(me);
    for (int round = 0; round < rounds; round++) {
        struct vi v[2];
        for (int allocated = 0; allocated < 2; allocated++) open_vi(&v[allocated], allocated, 0);
        static const char *NAMES[] = {"shadow", "allocated"};
        for (size_t bytes = 4; bytes <= 1 << 20; bytes *= bytes < 64 ? 4 : 8) {
            for (int allocated = 0; allocated < 2; allocated++) {
                /* each beside the bare limit: which cores the machine lends changes from one second to the next */
                long count = (long)(40000000 / (200 + bytes)) / divide / BATCHES + 20;
                for (int batch = 0; batch < BATCHES; batch++) {
                    if (bytes == 4) {
                        double line = line_ns(100000 / divide / BATCHES);
                        SAY("line %d %.3f\n", allocated, line);
                        line = lines_ns(100000 / divide / BATCHES);
                        SAY("lines %d %.3f\n", allocated, line);
                    }
                    double ns = latency_ns(&v[allocated], bytes, count, !batch);
                    SAY("latency-%s %zu %.3f\n", NAMES[allocated], bytes, ns);
                }
                /* a new connection, for the window is still posted */
                close_vi(&v[allocated]);
                open_vi(&v[allocated], allocated, 0);
            }
        }
        for (size_t bytes = 1 << 12; bytes <= 1 << 20; bytes *= 4) {
            long count = (long)((400u << 20) / bytes) / divide / BATCHES + 16;
            for (int batch = 0; batch < BATCHES; batch++) {
                double rate = copy_rate(bytes, count);
                SAY("memcpy %zu %.4f\n", bytes, rate);
                for (int allocated = 0; allocated < 2; allocated++) {
                    rate = bandwidth(&v[allocated], bytes, count, !batch);
                    SAY("bandwidth-%s %zu %.4f\n", NAMES[allocated], bytes, rate);
                }
            }
            for (int allocated = 0; allocated < 2; allocated++) {
                close_vi(&v[allocated]);
                open_vi(&v[allocated], allocated, 0);
            }
        }
        for (int i = 0; i < 20; i++) {
            double ns = callback_ns(&v[1]);
            SAY("callback 0 %.1f\n", ns);
        }
        for (int allocated = 0; allocated < 2; allocated++) close_vi(&v[allocated]);
        for (VIP_ULONG batch = 1; !round && batch <= 64; batch *= 2) {
            double share = found(batch, 20000 / divide);
            SAY("found %lu %.5f\n", batch, share);
        }
    }
    if (me) _exit(0);
    int status;
    return waitpid(child, &status, 0) != child || status;
}
