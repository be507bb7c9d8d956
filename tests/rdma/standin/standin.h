/* A verbs device that needs none: the inside of our own libibverbs.so.1, for tests between processes of one host.
 *
 * - `memory.c`: registered memory. The device touches it only as buffers that io_uring has pinned, so it keeps the pages that were there when they were
 *   registered, as an adapter does.
 * - `wire.c`: packets between processes, over Unix datagram sockets.
 * - `pair.c`: queue pairs. What a queue pair sends and how it answers.
 * - `device.c`: the functions of the library, completion queues, and the thread that is the device.
 *
 * One lock guards all of it. Nothing waits under it: a packet that finds the wire full stays in its queue pair until the wire has room.
 *
 * What differs from an adapter: packets leave in the thread that posts, if they can; a process that is stopped, or gets no processor, answers nothing, and
 * as long as it does not even take packets in no time runs out against it; a datagram (UD) that finds the wire full for longer than WIRE_WAIT_NS is dropped; errors of datagrams lead to the error state, where an adapter has SQE between; memory that the
 * process may only read cannot be registered, since io_uring pins it to be written; nothing is said when a limit of a shared receive queue is reached;
 * SOLICITED, atomics and memory windows are missing. */
#ifndef STANDIN_H
#define STANDIN_H

#include <pthread.h>
#include <stdbool.h>

#include "verbs.h"

enum {
    PROCESSES_MAX = 4096,
    PAIRS_MAX = 4096, /* of a process */
    REGIONS_MAX = 16384,
    REGION_BYTES_MAX = 1 << 30,
    REQUESTS_MAX = 16384, /* of a queue */
    COMPLETIONS_MAX = 65536,
    PIECES_MAX = 8,
    INLINE_BYTES_MAX = 512,
    READS_MAX = 16, /* of a queue pair at once, out and in */
    MTU_BYTES = 4096,
    MESSAGE_BYTES_MAX = 1 << 30,
    GRH_BYTES = 40,
    PACKET_BYTES_MAX = 32 << 10,
    WIRE_WAIT_NS = 1000000000,
};

enum kind { DATAGRAM, SEND, WRITE, READ, ACK, NAK, NOT_READY, ANSWER };

/* What goes before the bytes of a packet. Messages of more than PACKET_BYTES_MAX go in several. */
struct packet {
    enum kind kind;
    uint32_t to, from; /* numbers of queue pairs */
    uint32_t number;   /* of the message, 24 bits, counted up by its sender; of an ACK the first that has not come */
    uint32_t code;     /* NAK: the status of the completion; NOT_READY: ibv_qp_attr.min_rnr_timer */
    uint32_t qkey, has_immediate, immediate, rkey;
    uint64_t address;              /* of a remote read or write */
    uint32_t length, offset, bytes; /* of the whole message; of this packet in it */
};

/* ---- memory.c */

struct region {
    struct ibv_mr mr;
    int access;
    char *start; /* of what is pinned */
    size_t bytes;
    bool is_kept; /* it has been given up */
};

/* Whether memory can be registered here at all; else `why` says what is missing. */
bool memory_begin(char *why, size_t why_bytes);
struct region *memory_register(struct ibv_pd *pd, void *start, size_t bytes, int access);
void memory_forget(struct region *region);
/* The region of a key that allows `access` to all of address..address+bytes, or NULL. */
struct region *memory_find(struct ibv_pd *pd, uint32_t key, bool remote, uint64_t address, uint64_t bytes, int access);
/* Copies between registered memory, which memory_find has found, and `into` or `from`. */
void memory_read(struct region *region, uint64_t address, void *into, uint32_t bytes);
void memory_write(struct region *region, uint64_t address, const void *from, uint32_t bytes);

/* ---- wire.c */

enum left { LEFT, GONE, FULL };

/* The number of this process, from 1, or 0 where there is none left. */
uint32_t wire_begin(void);
int wire_socket(void);
/* A socket to a process, to wait for room on; -1 if there is none. */
int wire_socket_to(uint32_t process);
enum left wire_send(const struct packet *packet, const void *bytes);
/* Since when nothing has left for a process, ns; 0 where the wire has room. */
uint64_t wire_full_since(uint32_t process);
/* Whether a process has not taken in yet what has left for it. */
bool wire_unread(uint32_t process);
/* Whether the request that is being posted breaks its connection (STANDIN_BREAK). */
bool wire_breaks(void);
/* The next packet that has come, if one has. */
bool wire_receive(struct packet *packet, void *bytes);

static inline uint32_t process_of(uint32_t pair_number)
{
    return pair_number / PAIRS_MAX;
}

/* ---- device.c */

struct pair;
struct receives;

struct completion {
    struct ibv_wc wc;
    struct pair *pair; /* whose sends before `retires` may be posted anew */
    uint32_t retires;
    struct receives *receives; /* to which one more may be posted */
};

struct queue {
    struct ibv_cq cq;
    struct queue *next;
    struct completion *ring;
    uint32_t size, in, out;
    bool armed;
    unsigned users, events, acknowledged;
};

struct counts {
    uint64_t registrations, deregistrations, registered_bytes, registered_bytes_most;
    uint64_t sends, datagrams, reads, writes, pieces, sent_bytes;
    uint64_t not_ready, again, broken; /* of connections */
    uint64_t no_receive, dropped; /* datagrams: without a receive, and for other reasons */
};

struct standin {
    pthread_mutex_t lock;
    uint32_t process;
    struct counts counts;
    struct pair *pairs[PAIRS_MAX]; /* by the lower half of their numbers */
};
extern struct standin standin;

uint64_t now_ns(void);
void queue_add(struct queue *queue, const struct completion *completion);
/* What completions that have not been looked at yet would give back to a queue pair or to shared receives is lost; NULL for none. */
void forget(const struct pair *pair, const struct receives *receives);
void tell(struct ibv_context *context, struct ibv_qp *qp, int event);
/* Has the device's thread look at its queue pairs again, at `when` at the latest. */
void wake_by(uint64_t when);

/* ---- pair.c */

struct receive {
    uint64_t id;
    int count;
    struct ibv_sge pieces[PIECES_MAX];
};

/* Receives that are posted: of a queue pair, or shared. */
struct receives {
    struct receive *ring;
    uint32_t size, pieces_max, posted, taken, retired;
};

struct shared_receives {
    struct ibv_srq srq;
    struct receives receives;
    unsigned users;
};

struct send {
    uint64_t id, address;
    int operation, count;
    unsigned flags;
    uint32_t immediate, rkey, to, qkey, length, number, answered_bytes;
    struct ibv_sge pieces[PIECES_MAX];
    unsigned char value[INLINE_BYTES_MAX];
};

/* What a queue pair still has to answer. */
struct answer {
    enum kind kind;
    uint32_t number, code, rkey, length, offset;
    uint64_t address;
    bool again;
};
enum { ANSWERS_MAX = 4 * READS_MAX + 8 };

struct pair {
    struct ibv_qp qp;
    struct ibv_qp_cap cap;
    bool signals_all;
    struct receives own, *receives;
    /* Numbers of sends, counted up: those before `done` are complete, those before `sent` have left, and `sent_bytes` of the next. */
    struct send *sends;
    uint32_t posted, sent, done, retired, sent_bytes, next_number;
    uint32_t blocked_by; /* the process whose wire is full, or 0 */
    uint32_t qkey, destination, access, retries, rnr_retries, rnr_timer, reads_out, reads_in;
    uint64_t timeout_ns, deadline, ready_at; /* 0: none */
    uint32_t tries, rnr_tries;
    /* As the answering side. */
    uint32_t expected, came_bytes;
    bool has_receive;
    struct receive receive;
    struct answer answers[ANSWERS_MAX];
    uint32_t answers_in, answers_out;
};

void pair_reset(struct pair *pair);
int pair_modify(struct pair *pair, const struct ibv_qp_attr *wanted, int mask);
int pair_post(struct pair *pair, const struct ibv_send_wr *request);
int pair_post_receive(struct pair *pair, const struct ibv_recv_wr *request);
int receives_post(struct receives *receives, const struct ibv_recv_wr *request);
void pair_came(struct pair *pair, const struct packet *packet, const unsigned char *bytes);
void pair_send(struct pair *pair);
void pair_answer(struct pair *pair);
/* The wire to `blocked_by` has room again. */
void pair_unblock(struct pair *pair);
/* Does what is due; when something is due next, UINT64_MAX for never. */
uint64_t pair_due(struct pair *pair, uint64_t now);

/* ::ffff:127.0.0.1 */
extern const uint8_t OWN_GID[16];

#endif
