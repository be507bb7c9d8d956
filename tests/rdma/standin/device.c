/* The functions of libibverbs.so.1, as far as they are used, and the thread that is the device.
 *
 * Environment: STANDIN_COUNTS names a file to which each process adds a line of what it has counted when it ends; STANDIN_LOSS=N loses about one of N packets
 * that come; STANDIN_BREAK=N has about one of N requests of connections break its own, before it leaves or after that, which the other end is not told of;
 * STANDIN_STALE has what is given up stay registered. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

const uint8_t OWN_GID[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
struct standin standin = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Packets that are taken in before others get the lock. */
enum { PACKETS_EACH = 64 };

struct context {
    struct ibv_context context;
    int events[2];
};

struct channel {
    struct ibv_comp_channel channel;
    int wakes;
    unsigned users;
};

struct domain {
    struct ibv_pd pd;
    unsigned users;
};

static struct ibv_device device = {.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "standin0"};
static struct queue *queues;
static uint32_t queue_numbers, pair_numbers;
static int kick = -1;
static uint64_t sleeps_until;
static char trouble[200];
static pid_t owner;

#define LOCKED __attribute__((cleanup(unlock))) struct standin *locked = lock()

static struct standin *lock(void)
{
    pthread_mutex_lock(&standin.lock);
    return &standin;
}

static void unlock(struct standin **locked)
{
    pthread_mutex_unlock(&(*locked)->lock);
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *refused(int why)
{
    errno = why;
    return NULL;
}

/* ---- the thread */

void wake_by(uint64_t when)
{
    if (when < sleeps_until) {
        sleeps_until = when;
        eventfd_write(kick, 1);
    }
}

/* Takes in what has come. Whether there may be more. */
static bool take_in(void)
{
    static unsigned char bytes[PACKET_BYTES_MAX];
    struct packet packet;
    int count = 0;
    while (count < PACKETS_EACH && wire_receive(&packet, bytes)) {
        count++;
        struct pair *pair = process_of(packet.to) == standin.process ? standin.pairs[packet.to % PAIRS_MAX] : NULL;
        if (pair && pair->qp.qp_num == packet.to)
            pair_came(pair, &packet, bytes);
        else
            standin.counts.dropped++;
    }
    return count == PACKETS_EACH;
}

static void *run(void *unused)
{
    static struct pollfd waits[2 + PROCESSES_MAX];
    static uint32_t processes[2 + PROCESSES_MAX];
    (void)unused;
    waits[0] = (struct pollfd){.fd = wire_socket(), .events = POLLIN};
    waits[1] = (struct pollfd){.fd = kick, .events = POLLIN};
    nfds_t count = 2;
    for (;;) {
        struct timespec time = {0}, *until = &time;
        {
            LOCKED;
            sleeps_until = 0;
            eventfd_t drained;
            if (waits[1].revents)
                eventfd_read(kick, &drained);
            bool more = take_in();
            uint64_t now = now_ns(), next = UINT64_MAX;
            nfds_t before = count;
            count = 2;
            for (uint32_t index = 0; index < PAIRS_MAX; index++) {
                struct pair *pair = standin.pairs[index];
                if (!pair)
                    continue;
                for (nfds_t at = 2; at < before && pair->blocked_by; at++)
                    if (processes[at] == pair->blocked_by && waits[at].revents)
                        pair_unblock(pair);
                pair_answer(pair);
                /* What makes a time run out may lie among what has come. */
                uint64_t due = more ? now : pair_due(pair, now);
                next = due < next ? due : next;
            }
            for (uint32_t index = 0; index < PAIRS_MAX; index++) {
                struct pair *pair = standin.pairs[index];
                nfds_t at = 2;
                if (pair && pair->blocked_by && wire_socket_to(pair->blocked_by) < 0)
                    pair_unblock(pair);
                if (!pair || !pair->blocked_by)
                    continue;
                while (at < count && processes[at] != pair->blocked_by)
                    at++;
                processes[at] = pair->blocked_by;
                waits[at] = (struct pollfd){.fd = wire_socket_to(pair->blocked_by), .events = POLLOUT};
                count = at == count ? count + 1 : count;
            }
            sleeps_until = more ? 0 : next;
            now = now_ns();
            if (next == UINT64_MAX && !more)
                until = NULL;
            else if (!more && next > now)
                time = (struct timespec){(time_t)((next - now) / 1000000000), (long)((next - now) % 1000000000)};
        }
        for (nfds_t at = 0; at < count; at++)
            waits[at].revents = 0;
        ppoll(waits, count, until, NULL);
    }
    return NULL;
}

/* Makes this process one that has the device, once. Else `trouble` says why it cannot be. */
static bool begin(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (standin.process)
        return true;
    if (!memory_begin(trouble, sizeof trouble))
        return false;
    standin.process = wire_begin();
    kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!standin.process || kick < 0) {
        snprintf(trouble, sizeof trouble, "no socket: %s", strerror(errno));
        return false;
    }
    owner = getpid();
    pair_numbers = (uint32_t)now_ns() / 1000 % PAIRS_MAX;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int status = pthread_create(&thread, &attributes, run, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status) {
        snprintf(trouble, sizeof trouble, "no thread: %s", strerror(status));
        standin.process = 0;
        return false;
    }
    pthread_setname_np(thread, "standin");
    return true;
}

/* Takes in all that has left for this process, so that its completions are there. */
void standin_settle(void)
{
    LOCKED;
    while (take_in())
        ;
    for (uint32_t index = 0; index < PAIRS_MAX; index++)
        if (standin.pairs[index])
            pair_answer(standin.pairs[index]);
}

/* Why the stand-in cannot be used here, or NULL. */
const char *standin_trouble(void)
{
    LOCKED;
    return begin() ? NULL : trouble;
}

__attribute__((destructor)) static void add_counts(void)
{
    const char *name = getenv("STANDIN_COUNTS");
    /* What fork has made does not use the device. */
    if (!name || !standin.process || getpid() != owner)
        return;
    LOCKED;
    const struct counts *c = &standin.counts;
    char line[500];
    int length = snprintf(line, sizeof line,
                          "registrations=%lu deregistrations=%lu registered_bytes_most=%lu sends=%lu datagrams=%lu reads=%lu writes=%lu pieces=%lu "
                          "sent_bytes=%lu not_ready=%lu again=%lu broken=%lu no_receive=%lu dropped=%lu\n",
                          c->registrations, c->deregistrations, c->registered_bytes_most, c->sends, c->datagrams, c->reads, c->writes, c->pieces, c->sent_bytes,
                          c->not_ready, c->again, c->broken, c->no_receive, c->dropped);
    int file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)length) != length)
        perror("standin: STANDIN_COUNTS");
    if (file >= 0)
        close(file);
}

/* ---- devices and their ports */

struct ibv_device **ibv_get_device_list(int *count)
{
    LOCKED;
    if (!begin()) {
        fprintf(stderr, "standin: %s\n", trouble);
        return refused(EPERM);
    }
    struct ibv_device **list = calloc(2, sizeof *list);
    if (!list)
        return refused(ENOMEM);
    list[0] = &device;
    if (count)
        *count = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

static int poll_cq(struct ibv_cq *, int, struct ibv_wc *);
static int req_notify_cq(struct ibv_cq *, int);
static int post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static int post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);

struct ibv_context *ibv_open_device(struct ibv_device *which)
{
    struct context *context = calloc(1, sizeof *context);
    if (!context)
        return refused(ENOMEM);
    if (pipe2(context->events, O_CLOEXEC) != 0) {
        free(context);
        return NULL;
    }
    fcntl(context->events[1], F_SETFL, O_NONBLOCK);
    context->context = (struct ibv_context){.device = which, .cmd_fd = -1, .async_fd = context->events[0], .num_comp_vectors = 1};
    context->context.ops.poll_cq = poll_cq;
    context->context.ops.req_notify_cq = req_notify_cq;
    context->context.ops.post_srq_recv = post_srq_recv;
    context->context.ops.post_send = post_send;
    context->context.ops.post_recv = post_recv;
    return &context->context;
}

int ibv_close_device(struct ibv_context *context)
{
    struct context *ours = (struct context *)context;
    close(ours->events[0]);
    close(ours->events[1]);
    free(ours);
    return 0;
}

void tell(struct ibv_context *context, struct ibv_qp *qp, int event)
{
    struct ibv_async_event what = {.element.qp = qp, .event_type = event};
    /* A full pipe has woken whoever listens. */
    if (write(((struct context *)context)->events[1], &what, sizeof what) < 0 && errno != EAGAIN)
        perror("standin: an event is lost");
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    return read(context->async_fd, event, sizeof *event) == sizeof *event ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
    (void)context;
    *attributes = (struct ibv_device_attr){.fw_ver = "standin", .max_mr_size = REGION_BYTES_MAX, .page_size_cap = 4096, .max_qp = PAIRS_MAX, .max_qp_wr = REQUESTS_MAX};
    attributes->max_sge = attributes->max_sge_rd = attributes->max_srq_sge = PIECES_MAX;
    attributes->max_cq = attributes->max_pd = attributes->max_ah = attributes->max_srq = 1 << 16;
    attributes->max_cqe = COMPLETIONS_MAX;
    attributes->max_mr = REGIONS_MAX;
    attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = READS_MAX;
    attributes->max_srq_wr = REQUESTS_MAX;
    /* Nobody's, as that of a software device, unless one is named. */
    const char *vendor = getenv("STANDIN_VENDOR");
    attributes->vendor_id = vendor ? (uint32_t)strtoul(vendor, NULL, 0) : 0;
    attributes->max_pkeys = attributes->phys_port_cnt = 1;
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes)
{
    (void)context;
    if (port != 1)
        return EINVAL;
    *attributes = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = 1};
    attributes->max_msg_sz = MESSAGE_BYTES_MAX;
    attributes->pkey_tbl_len = 1;
    attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, uint8_t gid[16])
{
    (void)context;
    if (port != 1 || index != 0)
        return EINVAL;
    memcpy(gid, OWN_GID, sizeof OWN_GID);
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t entry_bytes)
{
    (void)context;
    if (port != 1 || index != 0)
        return ENODATA;
    if (flags != 0 || entry_bytes != sizeof *entry)
        return EINVAL;
    *entry = (struct ibv_gid_entry){.gid_index = 0, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2, .ndev_ifindex = if_nametoindex("lo")};
    memcpy(entry->gid, OWN_GID, sizeof OWN_GID);
    return 0;
}

/* ---- what belongs to a protection domain */

static unsigned *users(struct ibv_pd *pd)
{
    return &((struct domain *)pd)->users;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct domain *domain = calloc(1, sizeof *domain);
    if (!domain)
        return refused(ENOMEM);
    domain->pd.context = context;
    return &domain->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    LOCKED;
    if (*users(pd))
        return EBUSY;
    free(pd);
    return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *start, size_t bytes, int access)
{
    LOCKED;
    struct region *region = memory_register(pd, start, bytes, access);
    *users(pd) += region != NULL;
    return region ? &region->mr : NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    LOCKED;
    --*users(mr->pd);
    memory_forget((struct region *)mr);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *to)
{
    if (!to->is_global || to->port_num != 1 || to->grh.sgid_index != 0)
        return refused(EINVAL);
    if (memcmp(to->grh.dgid, OWN_GID, sizeof OWN_GID) != 0)
        return refused(ENETUNREACH);
    struct ibv_ah *ah = calloc(1, sizeof *ah);
    if (!ah)
        return refused(ENOMEM);
    LOCKED;
    ++*users(pd);
    *ah = (struct ibv_ah){.context = pd->context, .pd = pd};
    return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    LOCKED;
    --*users(ah->pd);
    free(ah);
    return 0;
}

/* ---- completions */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct channel *channel = calloc(1, sizeof *channel);
    int ends[2];
    if (!channel)
        return refused(ENOMEM);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        free(channel);
        return NULL;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    channel->channel = (struct ibv_comp_channel){.context = context, .fd = ends[0]};
    channel->wakes = ends[1];
    return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    LOCKED;
    struct channel *ours = (struct channel *)channel;
    if (ours->users)
        return EBUSY;
    close(channel->fd);
    close(ours->wakes);
    free(ours);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int size, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
    if (size < 1 || size > COMPLETIONS_MAX || vector != 0)
        return refused(EINVAL);
    struct queue *queue = calloc(1, sizeof *queue);
    struct completion *ring = calloc((size_t)size, sizeof *ring);
    if (!queue || !ring) {
        free(queue);
        free(ring);
        return refused(ENOMEM);
    }
    LOCKED;
    queue->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .handle = ++queue_numbers, .cqe = size};
    queue->ring = ring;
    queue->size = (uint32_t)size;
    queue->next = queues;
    queues = queue;
    if (channel)
        ((struct channel *)channel)->users++;
    return &queue->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    LOCKED;
    struct queue *queue = (struct queue *)cq, **link = &queues;
    /* The library waits for events to be acknowledged, without end. */
    if (queue->users || queue->events != queue->acknowledged) {
        fprintf(stderr, "standin: a completion queue goes that %u queue pairs use, with %u of %u events acknowledged\n", queue->users, queue->acknowledged, queue->events);
        return EBUSY;
    }
    while (*link != queue)
        link = &(*link)->next;
    *link = queue->next;
    if (cq->channel)
        ((struct channel *)cq->channel)->users--;
    free(queue->ring);
    free(queue);
    return 0;
}

void queue_add(struct queue *queue, const struct completion *completion)
{
    if (queue->in - queue->out == queue->size) {
        fprintf(stderr, "standin: a completion queue of %u overflows\n", queue->size);
        abort();
    }
    queue->ring[queue->in % queue->size] = *completion;
    __atomic_store_n(&queue->in, queue->in + 1, __ATOMIC_RELEASE);
    if (queue->armed && queue->cq.channel) {
        queue->armed = false;
        /* By its number: it may be gone when that is read. A full pipe has woken whoever listens. */
        if (write(((struct channel *)queue->cq.channel)->wakes, &queue->cq.handle, sizeof queue->cq.handle) < 0 && errno != EAGAIN)
            perror("standin: a wake-up is lost");
    }
}

void forget(const struct pair *pair, const struct receives *receives)
{
    for (struct queue *queue = queues; queue; queue = queue->next)
        for (uint32_t at = queue->out; at != queue->in; at++) {
            struct completion *completion = &queue->ring[at % queue->size];
            completion->pair = completion->pair == pair ? NULL : completion->pair;
            completion->receives = completion->receives == receives ? NULL : completion->receives;
        }
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *into)
{
    struct queue *queue = (struct queue *)cq;
    if (__atomic_load_n(&queue->in, __ATOMIC_ACQUIRE) == __atomic_load_n(&queue->out, __ATOMIC_RELAXED))
        return 0;
    LOCKED;
    int count = 0;
    for (; count < most && queue->out != queue->in; count++) {
        struct completion *completion = &queue->ring[queue->out % queue->size];
        into[count] = completion->wc;
        if (completion->pair)
            completion->pair->retired = completion->retires;
        if (completion->receives)
            completion->receives->retired++;
        __atomic_store_n(&queue->out, queue->out + 1, __ATOMIC_RELAXED);
    }
    return count;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    if (solicited_only || !cq->channel)
        return EINVAL;
    LOCKED;
    ((struct queue *)cq)->armed = true;
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    uint32_t number;
    while (read(channel->fd, &number, sizeof number) == sizeof number) {
        LOCKED;
        for (struct queue *queue = queues; queue; queue = queue->next)
            if (queue->cq.handle == number) {
                queue->events++;
                *cq = &queue->cq;
                *cq_context = queue->cq.cq_context;
                return 0;
            }
    }
    return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    LOCKED;
    ((struct queue *)cq)->acknowledged += count;
}

/* ---- queue pairs */

static bool make_receives(struct receives *receives, uint32_t size, uint32_t pieces_max)
{
    *receives = (struct receives){.ring = calloc(size ? size : 1, sizeof *receives->ring), .size = size, .pieces_max = pieces_max};
    return receives->ring;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *wanted)
{
    struct shared_receives *shared = calloc(1, sizeof *shared);
    bool fits = wanted->attr.max_wr >= 1 && wanted->attr.max_wr <= REQUESTS_MAX && wanted->attr.max_sge <= PIECES_MAX;
    if (!shared || !fits || !make_receives(&shared->receives, wanted->attr.max_wr, wanted->attr.max_sge)) {
        free(shared);
        return refused(fits ? ENOMEM : EINVAL);
    }
    LOCKED;
    ++*users(pd);
    shared->srq = (struct ibv_srq){.context = pd->context, .srq_context = wanted->srq_context, .pd = pd};
    return &shared->srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    LOCKED;
    struct shared_receives *shared = (struct shared_receives *)srq;
    if (shared->users)
        return EBUSY;
    forget(NULL, &shared->receives);
    --*users(srq->pd);
    free(shared->receives.ring);
    free(shared);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    const struct ibv_qp_cap *cap = &wanted->cap;
    bool fits = cap->max_send_wr <= REQUESTS_MAX && cap->max_recv_wr <= REQUESTS_MAX && cap->max_send_sge <= PIECES_MAX && cap->max_recv_sge <= PIECES_MAX;
    fits = fits && cap->max_inline_data <= INLINE_BYTES_MAX && (wanted->qp_type == IBV_QPT_RC || wanted->qp_type == IBV_QPT_UD);
    if (!fits || !wanted->send_cq || !wanted->recv_cq)
        return refused(EINVAL);
    struct pair *pair = calloc(1, sizeof *pair);
    struct send *sends = calloc(cap->max_send_wr ? cap->max_send_wr : 1, sizeof *sends);
    if (!pair || !sends || !make_receives(&pair->own, cap->max_recv_wr, cap->max_recv_sge)) {
        free(pair);
        free(sends);
        return refused(ENOMEM);
    }
    LOCKED;
    uint32_t tried = 0;
    while (tried < PAIRS_MAX && standin.pairs[pair_numbers % PAIRS_MAX])
        tried++, pair_numbers++;
    if (tried == PAIRS_MAX) {
        free(pair->own.ring);
        free(pair);
        free(sends);
        return refused(ENOMEM);
    }
    uint32_t index = pair_numbers++ % PAIRS_MAX;
    struct ibv_qp qp = {.context = pd->context, .qp_context = wanted->qp_context, .pd = pd, .send_cq = wanted->send_cq, .recv_cq = wanted->recv_cq, .srq = wanted->srq};
    qp.handle = index;
    qp.qp_num = standin.process * PAIRS_MAX + index;
    qp.state = IBV_QPS_RESET;
    qp.qp_type = wanted->qp_type;
    pair->qp = qp;
    pair->cap = *cap;
    pair->signals_all = wanted->sq_sig_all;
    pair->sends = sends;
    pair->receives = wanted->srq ? &((struct shared_receives *)wanted->srq)->receives : &pair->own;
    ++*users(pd);
    ((struct queue *)qp.send_cq)->users++;
    ((struct queue *)qp.recv_cq)->users++;
    if (qp.srq)
        ((struct shared_receives *)qp.srq)->users++;
    standin.pairs[index] = pair;
    return &pair->qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *wanted, int mask)
{
    LOCKED;
    int status = pair_modify((struct pair *)qp, wanted, mask);
    return status;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    LOCKED;
    struct pair *pair = (struct pair *)qp;
    pair_reset(pair);
    standin.pairs[qp->handle] = NULL;
    --*users(qp->pd);
    ((struct queue *)qp->send_cq)->users--;
    ((struct queue *)qp->recv_cq)->users--;
    if (qp->srq)
        ((struct shared_receives *)qp->srq)->users--;
    free(pair->own.ring);
    free(pair->sends);
    free(pair);
    return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **refused_one)
{
    LOCKED;
    int status = 0;
    for (; request && !status; request = status ? request : request->next)
        status = pair_post((struct pair *)qp, request);
    if (status)
        *refused_one = request;
    pair_send((struct pair *)qp);
    return status;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *request, struct ibv_recv_wr **refused_one)
{
    LOCKED;
    int status = 0;
    for (; request && !status; request = status ? request : request->next)
        status = pair_post_receive((struct pair *)qp, request);
    if (status)
        *refused_one = request;
    return status;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *request, struct ibv_recv_wr **refused_one)
{
    LOCKED;
    int status = 0;
    for (; request && !status; request = status ? request : request->next)
        status = receives_post(&((struct shared_receives *)srq)->receives, request);
    if (status)
        *refused_one = request;
    return status;
}
