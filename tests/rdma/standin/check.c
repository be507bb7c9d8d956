/* The stand-in itself: what it must do as an adapter does, between queue pairs of one process. Prints a line for each part, and ends at the first thing that
 * is not so.
 *
 *     check            all parts
 *     check TIME       those in which all goes well; what is not acknowledged is sent again after 4.096 us times two to the power of TIME, for STANDIN_LOSS
 *     check probe      whether the stand-in can be used here: status 77 and a line that says why not */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs.h"

const char *standin_trouble(void);
struct ibv_device **ibv_get_device_list(int *);
struct ibv_context *ibv_open_device(struct ibv_device *);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
int ibv_dealloc_pd(struct ibv_pd *);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int);
int ibv_dereg_mr(struct ibv_mr *);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
int ibv_destroy_cq(struct ibv_cq *);
int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
void ibv_ack_cq_events(struct ibv_cq *, unsigned);
struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
int ibv_destroy_srq(struct ibv_srq *);
struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int ibv_destroy_qp(struct ibv_qp *);
struct ibv_ah *ibv_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
int ibv_destroy_ah(struct ibv_ah *);

enum { BYTES = 1 << 22, LOCKED_BYTES = 64 << 20 /* of all ranks of a test */, SENDS = 64, QKEY = 0x1234, SHORT = 12 /* 17 ms */ };
enum { EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
/* 0: without end, so that a busy machine changes nothing. */
static int timeout;
/* Of both sides of a connection, or of two queue pairs for datagrams. */
static struct side {
    struct ibv_cq *sent, *received;
    struct ibv_qp *qp;
    unsigned char *bytes;
    struct ibv_mr *mr;
} sides[2], *one = &sides[0], *two = &sides[1];

#define need(what) ((what) ? (void)0 : fault(__LINE__, #what))

static void fault(int line, const char *what)
{
    fprintf(stderr, "check failed: line %d: %s (errno %d)\n", line, what, errno);
    exit(1);
}

static unsigned char *fresh(size_t bytes, int byte)
{
    unsigned char *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(made != MAP_FAILED);
    memset(made, byte, bytes);
    return made;
}

static void fill(unsigned char *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = seed >> 24;
    }
}

static struct ibv_ah_attr way(void)
{
    return (struct ibv_ah_attr){.grh = {.dgid = {[10] = 0xff, 0xff, 127, 0, 0, 1}}, .is_global = 1, .port_num = 1};
}

static int change(struct side *side, int state, int mask, struct ibv_qp_attr wanted)
{
    wanted.qp_state = state, wanted.port_num = 1;
    return ibv_modify_qp(side->qp, &wanted, IBV_QP_STATE | mask);
}

static void make(struct side *side, int type, struct ibv_srq *srq, int sends)
{
    side->sent = ibv_create_cq(context, SENDS, NULL, channel, 0);
    side->received = ibv_create_cq(context, SENDS, NULL, channel, 0);
    side->bytes = fresh(BYTES, 0);
    side->mr = ibv_reg_mr(pd, side->bytes, BYTES, EVERYTHING);
    need(side->sent && side->received && side->mr);
    struct ibv_qp_init_attr wanted = {.send_cq = side->sent, .recv_cq = side->received, .srq = srq, .qp_type = type, .sq_sig_all = 1};
    wanted.cap = (struct ibv_qp_cap){(uint32_t)sends, SENDS, 8, 8, 512};
    side->qp = ibv_create_qp(pd, &wanted);
    need(side->qp);
}

static void end(void)
{
    for (int at = 0; at < 2; at++) {
        struct side *side = &sides[at];
        if (side->qp)
            need(ibv_destroy_qp(side->qp) == 0);
        need(ibv_destroy_cq(side->sent) == 0 && ibv_destroy_cq(side->received) == 0 && ibv_dereg_mr(side->mr) == 0);
        munmap(side->bytes, BYTES);
        *side = (struct side){0};
    }
}

enum { FOR_RTR = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER };
enum { FOR_RTS = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC };

static void connect_pairs(int rnr_retries, unsigned access)
{
    for (int at = 0; at < 2; at++) {
        struct side *side = &sides[at];
        struct ibv_qp_attr wanted = {.qp_access_flags = access, .path_mtu = 5, .dest_qp_num = sides[1 - at].qp->qp_num, .ah_attr = way(), .min_rnr_timer = 1};
        /* Close to the end, so that the numbers of messages begin anew. */
        wanted.rq_psn = 0xfffff0u + (uint32_t)(1 - at), wanted.sq_psn = 0xfffff0u + (uint32_t)at;
        wanted.timeout = (uint8_t)timeout, wanted.retry_cnt = timeout == SHORT ? 2 : 7, wanted.rnr_retry = (uint8_t)rnr_retries, wanted.max_rd_atomic = 4, wanted.max_dest_rd_atomic = 4;
        need(change(side, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, wanted) == 0);
        need(change(side, IBV_QPS_RTR, FOR_RTR, wanted) == 0 && change(side, IBV_QPS_RTS, FOR_RTS, wanted) == 0);
    }
}

static void begin(int rnr_retries)
{
    make(one, IBV_QPT_RC, NULL, SENDS), make(two, IBV_QPT_RC, NULL, SENDS);
    connect_pairs(rnr_retries, EVERYTHING);
}

static int post(struct side *side, struct ibv_send_wr request)
{
    struct ibv_send_wr *refused;
    request.send_flags |= IBV_SEND_SIGNALED;
    return context->ops.post_send(side->qp, &request, &refused);
}

static int post_receive(struct side *side, uint64_t id, uint32_t offset, uint32_t bytes)
{
    struct ibv_sge piece = {(uintptr_t)side->bytes + offset, bytes, side->mr->lkey};
    struct ibv_recv_wr request = {.wr_id = id, .sg_list = &piece, .num_sge = 1}, *refused;
    return context->ops.post_recv(side->qp, &request, &refused);
}

static struct ibv_sge piece_of(struct side *side, uint32_t offset, uint32_t bytes)
{
    return (struct ibv_sge){(uintptr_t)side->bytes + offset, bytes, side->mr->lkey};
}

static int send_piece(struct side *side, uint64_t id, struct ibv_sge piece)
{
    return post(side, (struct ibv_send_wr){.wr_id = id, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND});
}

static int remote(struct side *side, int opcode, struct ibv_sge piece, uint64_t address, uint32_t key)
{
    struct ibv_send_wr request = {.wr_id = 7, .sg_list = &piece, .num_sge = 1, .opcode = opcode, .imm_data = 99};
    request.wr.rdma.remote_addr = address, request.wr.rdma.rkey = key;
    return post(side, request);
}

/* The next completion, which must come. */
static struct ibv_wc next(struct ibv_cq *cq)
{
    struct ibv_wc done;
    while (context->ops.poll_cq(cq, 1, &done) == 0)
        ;
    return done;
}

static bool is_empty(struct ibv_cq *cq)
{
    struct ibv_wc done;
    return context->ops.poll_cq(cq, 1, &done) == 0;
}

static void messages(void)
{
    begin(7);
    fill(one->bytes, BYTES, 1);
    struct ibv_sge pieces[8];
    uint32_t total = 0;
    for (uint32_t at = 0; at < 8; at++) {
        pieces[at] = piece_of(one, 100000 * at + at, 5000 * at + 1);
        total += pieces[at].length;
    }
    need(post_receive(two, 5, 0, BYTES) == 0 && post_receive(two, 6, 0, BYTES) == 0);
    need(post(one, (struct ibv_send_wr){.wr_id = 3, .sg_list = pieces, .num_sge = 8, .opcode = IBV_WR_SEND}) == 0);
    struct ibv_wc came = next(two->received), left = next(one->sent);
    need(came.status == 0 && came.wr_id == 5 && came.opcode == IBV_WC_RECV && came.byte_len == total && came.qp_num == two->qp->qp_num && left.wr_id == 3);
    for (uint32_t at = 0, offset = 0; at < 8; offset += pieces[at++].length)
        need(memcmp(two->bytes + offset, (void *)(uintptr_t)pieces[at].addr, pieces[at].length) == 0);
    /* By value: the bytes may change at once, and need not be registered. */
    char word[] = "by value";
    struct ibv_sge piece = {(uintptr_t)word, sizeof word, 0};
    need(post(one, (struct ibv_send_wr){.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 17, .send_flags = IBV_SEND_INLINE}) == 0);
    memset(word, 0, sizeof word);
    came = next(two->received);
    need(came.wr_id == 6 && came.wc_flags == IBV_WC_WITH_IMM && came.imm_data == 17 && strcmp((char *)two->bytes, "by value") == 0 && next(one->sent).status == 0);
    /* As many as there may be, and no more before completions have been looked at. */
    for (uint64_t id = 0; id < SENDS; id++)
        need(post_receive(two, id, 0, 64) == 0 && send_piece(one, id, piece_of(one, 0, 64)) == 0);
    need(send_piece(one, 0, piece_of(one, 0, 64)) == ENOMEM && post_receive(two, 0, 0, 64) == ENOMEM);
    for (uint64_t id = 0; id < SENDS; id++)
        need(next(two->received).wr_id == id && next(one->sent).wr_id == id);
    end();
}

static void reads_and_writes(void)
{
    begin(7);
    fill(two->bytes, BYTES, 2);
    uint64_t theirs = (uintptr_t)two->bytes;
    struct ibv_wc left;
    need(remote(one, IBV_WR_RDMA_READ, piece_of(one, 0, BYTES), theirs, two->mr->rkey) == 0);
    need(next(one->sent).status == 0 && memcmp(one->bytes, two->bytes, BYTES) == 0);
    /* More than may be under way at once, in order with messages. */
    memset(one->bytes, 0, BYTES);
    for (uint32_t at = 0; at < 20; at++)
        need(remote(one, IBV_WR_RDMA_READ, piece_of(one, at * 50000, 50000), theirs + at * 50000, two->mr->rkey) == 0);
    need(post_receive(two, 1, BYTES - 64, 64) == 0 && send_piece(one, 8, piece_of(one, 0, 8)) == 0);
    for (uint32_t at = 0; at < 20; at++)
        need((left = next(one->sent)).status == 0 && left.opcode == IBV_WC_RDMA_READ);
    need(next(one->sent).wr_id == 8 && next(two->received).wr_id == 1 && memcmp(one->bytes, two->bytes, 1000000) == 0);
    /* Of nothing, as a sign of life. */
    need(post(one, (struct ibv_send_wr){.opcode = IBV_WR_RDMA_READ}) == 0 && next(one->sent).status == 0);
    fill(one->bytes, BYTES, 3);
    need(remote(one, IBV_WR_RDMA_WRITE, piece_of(one, 5, 70000), theirs + 9, two->mr->rkey) == 0 && next(one->sent).status == 0);
    need(memcmp(two->bytes + 9, one->bytes + 5, 70000) == 0 && is_empty(two->received));
    need(post_receive(two, 2, 0, 0) == 0 && remote(one, IBV_WR_RDMA_WRITE_WITH_IMM, piece_of(one, 0, BYTES), theirs, two->mr->rkey) == 0);
    struct ibv_wc came = next(two->received);
    need(came.opcode == IBV_WC_RECV_RDMA_WITH_IMM && came.imm_data == 99 && came.byte_len == BYTES && next(one->sent).status == 0);
    need(memcmp(one->bytes, two->bytes, BYTES) == 0);
    end();
}

/* What is registered stays, whatever the program does with its addresses. */
static void stale(void)
{
    for (int way_gone = 0; way_gone < 2; way_gone++) {
        begin(7);
        memset(two->bytes, 'o', BYTES);
        if (way_gone == 0)
            need(mmap(two->bytes, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == two->bytes);
        else
            need(madvise(two->bytes, BYTES, MADV_DONTNEED) == 0);
        memset(two->bytes, 'n', BYTES);
        need(remote(one, IBV_WR_RDMA_READ, piece_of(one, 0, BYTES), (uintptr_t)two->bytes, two->mr->rkey) == 0 && next(one->sent).status == 0);
        for (int at = 0; at < BYTES; at++)
            need(one->bytes[at] == 'o');
        /* What comes goes to the pages that are gone, too. */
        need(post_receive(two, 1, 0, 100) == 0 && send_piece(one, 1, piece_of(one, 0, 100)) == 0 && next(two->received).status == 0 && two->bytes[0] == 'n');
        need(next(one->sent).status == 0);
        ibv_dereg_mr(two->mr);
        two->mr = ibv_reg_mr(pd, two->bytes, BYTES, EVERYTHING);
        need(remote(one, IBV_WR_RDMA_READ, piece_of(one, 0, BYTES), (uintptr_t)two->bytes, two->mr->rkey) == 0 && next(one->sent).status == 0);
        need(one->bytes[0] == 'n' && one->bytes[BYTES - 1] == 'n');
        end();
    }
}

/* A request that fails with `status`, after which the queue pair is in error and flushes what is posted. */
static void fails(int status, int flushed_by_peer)
{
    need(next(one->sent).status == status);
    need(send_piece(one, 77, piece_of(one, 0, 8)) == 0);
    struct ibv_wc done = next(one->sent);
    need(done.status == IBV_WC_WR_FLUSH_ERR && done.wr_id == 77);
    if (flushed_by_peer)
        need(post_receive(two, 4, 0, 8) == 0 && next(two->received).status == IBV_WC_WR_FLUSH_ERR);
    end();
}

static void refusals(void)
{
    enum { READ = IBV_WR_RDMA_READ, WRITE = IBV_WR_RDMA_WRITE };
    for (int opcode = 0; opcode < 2; opcode++) {
        int what = opcode ? READ : WRITE;
        begin(7); /* one byte too far */
        need(remote(one, what, piece_of(one, 0, 100), (uintptr_t)two->bytes + BYTES - 99, two->mr->rkey) == 0);
        fails(IBV_WC_REM_ACCESS_ERR, 1);
        begin(7); /* one byte too early */
        need(remote(one, what, piece_of(one, 0, 100), (uintptr_t)two->bytes - 1, two->mr->rkey) == 0);
        fails(IBV_WC_REM_ACCESS_ERR, 1);
        begin(7); /* the local key, for the remote one */
        need(remote(one, what, piece_of(one, 0, 100), (uintptr_t)two->bytes, two->mr->lkey) == 0);
        fails(IBV_WC_REM_ACCESS_ERR, 1);
        begin(7); /* a key of before */
        uint32_t before = two->mr->rkey;
        ibv_dereg_mr(two->mr);
        two->mr = ibv_reg_mr(pd, two->bytes, BYTES, EVERYTHING);
        need(remote(one, what, piece_of(one, 0, 100), (uintptr_t)two->bytes, before) == 0);
        fails(IBV_WC_REM_ACCESS_ERR, 1);
        begin(7); /* memory that is not for peers */
        ibv_dereg_mr(two->mr);
        two->mr = ibv_reg_mr(pd, two->bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
        need(remote(one, what, piece_of(one, 0, 100), (uintptr_t)two->bytes, two->mr->rkey) == 0);
        fails(IBV_WC_REM_ACCESS_ERR, 1);
        make(one, IBV_QPT_RC, NULL, SENDS), make(two, IBV_QPT_RC, NULL, SENDS); /* a queue pair that is not for this */
        connect_pairs(7, IBV_ACCESS_LOCAL_WRITE);
        need(remote(one, what, piece_of(one, 0, 100), (uintptr_t)two->bytes, two->mr->rkey) == 0);
        fails(IBV_WC_REM_ACCESS_ERR, 1);
    }
    begin(7); /* own memory that the device may not write */
    ibv_dereg_mr(one->mr);
    one->mr = ibv_reg_mr(pd, one->bytes, BYTES, 0);
    need(remote(one, READ, piece_of(one, 0, 100), (uintptr_t)two->bytes, two->mr->rkey) == 0);
    fails(IBV_WC_LOC_PROT_ERR, 0);
    begin(7); /* own memory that is not registered, in the last of three pieces; what was before it arrives */
    struct ibv_sge pieces[3] = {piece_of(one, 0, 10), piece_of(one, 0, 10), {(uintptr_t)two->bytes, 10, one->mr->lkey}};
    need(post_receive(two, 1, 0, 100) == 0 && send_piece(one, 1, piece_of(one, 0, 100)) == 0);
    need(post(one, (struct ibv_send_wr){.wr_id = 2, .sg_list = pieces, .num_sge = 3, .opcode = IBV_WR_SEND}) == 0);
    need(next(one->sent).status == 0 && next(two->received).status == 0);
    fails(IBV_WC_LOC_PROT_ERR, 0);
    begin(7); /* longer than its receive */
    need(post_receive(two, 1, 0, 99) == 0 && send_piece(one, 1, piece_of(one, 0, 100)) == 0 && next(two->received).status == IBV_WC_LOC_LEN_ERR);
    fails(IBV_WC_REM_INV_REQ_ERR, 1);
    begin(7); /* a receive that does not lie in registered memory */
    need(post_receive(two, 1, BYTES - 50, 100) == 0 && send_piece(one, 1, piece_of(one, 0, 100)) == 0 && next(two->received).status == IBV_WC_LOC_PROT_ERR);
    fails(IBV_WC_REM_OP_ERR, 1);
    begin(1); /* no receive, and no patience */
    need(send_piece(one, 1, piece_of(one, 0, 100)) == 0);
    fails(IBV_WC_RNR_RETRY_EXC_ERR, 0);
    int before = timeout;
    timeout = SHORT;
    begin(7); /* a peer that is gone */
    timeout = before;
    need(ibv_destroy_qp(two->qp) == 0);
    two->qp = NULL;
    need(send_piece(one, 1, piece_of(one, 0, 100)) == 0);
    fails(IBV_WC_RETRY_EXC_ERR, 0);
    need(ibv_reg_mr(pd, one, 0, 0) == NULL && errno == EINVAL && ibv_reg_mr(pd, &pieces, sizeof pieces, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
    void *gone = fresh(4096, 0);
    munmap(gone, 4096);
    need(ibv_reg_mr(pd, gone, 4096, 0) == NULL && errno == EFAULT);
}

static void not_ready(void)
{
    struct ibv_srq_init_attr wanted = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &wanted);
    make(one, IBV_QPT_RC, NULL, SENDS), make(two, IBV_QPT_RC, srq, SENDS);
    connect_pairs(7, EVERYTHING);
    for (uint32_t at = 0; at < 8; at++) {
        one->bytes[at] = (unsigned char)at;
        need(send_piece(one, at, piece_of(one, at, 1)) == 0);
    }
    /* Longer than the retries that are not without end. */
    poll(NULL, 0, 200);
    need(is_empty(one->sent) && is_empty(two->received));
    for (uint32_t at = 0; at < 8; at++) {
        struct ibv_sge piece = piece_of(two, at, 1);
        struct ibv_recv_wr request = {.wr_id = at, .sg_list = &piece, .num_sge = 1}, *refused;
        need(context->ops.post_srq_recv(srq, &request, &refused) == 0);
        need(next(two->received).wr_id == at && next(one->sent).wr_id == at);
    }
    need(memcmp(one->bytes, two->bytes, 8) == 0);
    end();
    need(ibv_destroy_srq(srq) == 0);
}

static void datagrams(void)
{
    for (int at = 0; at < 2; at++) {
        struct side *side = &sides[at];
        make(side, IBV_QPT_UD, NULL, SENDS);
        struct ibv_qp_attr wanted = {.qkey = QKEY};
        need(post_receive(side, 0, 0, 100) == EINVAL && change(side, IBV_QPS_RTS, IBV_QP_SQ_PSN, wanted) == EINVAL);
        need(change(side, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, wanted) == EINVAL);
        need(change(side, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, wanted) == 0);
        need(change(side, IBV_QPS_RTR, 0, wanted) == 0 && change(side, IBV_QPS_RTS, IBV_QP_SQ_PSN, wanted) == 0);
    }
    struct ibv_ah_attr to = way();
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    to.grh.dgid[15] = 2;
    need(ah && ibv_create_ah(pd, &to) == NULL && errno == ENETUNREACH);
    fill(one->bytes, 4096, 5);
    struct ibv_sge piece = piece_of(one, 0, 4096);
    struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND};
    request.wr.ud.ah = ah;
    /* None of these arrives: no receive, another key, a number that nobody has, of this process and of none. */
    static const struct {
        uint32_t number, qkey;
    } LOST[] = {{0, QKEY}, {0, QKEY + 1}, {1, QKEY}, {4096, QKEY}};
    for (int at = 0; at < 4; at++) {
        request.wr.ud.remote_qpn = two->qp->qp_num + LOST[at].number, request.wr.ud.remote_qkey = LOST[at].qkey;
        need(post(one, request) == 0 && next(one->sent).status == 0);
        if (at == 0) {
            /* What the device has had time to look at. */
            poll(NULL, 0, 100);
            need(post_receive(two, 9, 0, 40 + 4095) == 0);
        }
    }
    request.wr.ud.remote_qpn = two->qp->qp_num, request.wr.ud.remote_qkey = QKEY;
    need(post(one, request) == 0 && next(one->sent).status == 0); /* one byte too long for its receive */
    request.sg_list->length = 4095;
    need(post(one, request) == 0 && next(one->sent).status == 0);
    struct ibv_wc came = next(two->received);
    need(came.status == 0 && came.wr_id == 9 && came.byte_len == 4135 && came.src_qp == one->qp->qp_num && came.wc_flags == IBV_WC_GRH);
    need(two->bytes[20] == 0x45 && two->bytes[32] == 127 && two->bytes[35] == 1 && memcmp(two->bytes + 40, one->bytes, 4095) == 0 && is_empty(two->received));
    request.sg_list->length = 4097;
    need(post(one, request) == 0 && next(one->sent).status == IBV_WC_LOC_LEN_ERR);
    need(ibv_destroy_ah(ah) == 0);
    end();
}

static void wake_ups(void)
{
    begin(7);
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    need(post_receive(two, 1, 0, 8) == 0 && post_receive(two, 2, 0, 8) == 0 && post_receive(two, 3, 0, 8) == 0);
    need(send_piece(one, 1, piece_of(one, 0, 8)) == 0 && next(two->received).wr_id == 1 && poll(&wait, 1, 0) == 0);
    need(context->ops.req_notify_cq(two->received, 0) == 0 && poll(&wait, 1, 0) == 0);
    need(send_piece(one, 2, piece_of(one, 0, 8)) == 0 && poll(&wait, 1, -1) == 1);
    struct ibv_cq *woken;
    void *unused;
    need(ibv_get_cq_event(channel, &woken, &unused) == 0 && woken == two->received && next(woken).wr_id == 2);
    need(ibv_destroy_cq(two->received) == EBUSY);
    ibv_ack_cq_events(woken, 1);
    need(send_piece(one, 3, piece_of(one, 0, 8)) == 0 && next(two->received).wr_id == 3 && poll(&wait, 1, 0) == 0);
    need(ibv_dealloc_pd(pd) == EBUSY);
    end();
}

int main(int argc, char **argv)
{
    int count;
    bool probes = argc > 1 && strcmp(argv[1], "probe") == 0;
    timeout = argc > 1 ? atoi(argv[1]) : 0;
    const char *trouble = standin_trouble();
    if (trouble) {
        printf("skipped: io_uring registers no memory here: %s\n", trouble);
        return 77;
    }
    context = ibv_open_device(ibv_get_device_list(&count)[0]);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    need(count == 1 && context && pd && channel);
    if (probes) {
        /* What io_uring locks counts for the user, not for the process. */
        if (!ibv_reg_mr(pd, fresh(LOCKED_BYTES, 0), LOCKED_BYTES, EVERYTHING)) {
            printf("skipped: io_uring registers no memory here: %d MB: %s (ulimit -l)\n", LOCKED_BYTES >> 20, strerror(errno));
            return 77;
        }
        return 0;
    }
    static const struct {
        const char *name;
        void (*run)(void);
    } PARTS[] = {{"messages", messages}, {"reads and writes", reads_and_writes}, {"not ready", not_ready}, {"stale", stale},
                 {"refusals", refusals}, {"wake-ups", wake_ups},                 {"datagrams", datagrams}};
    /* Datagrams, and refusals by a queue pair that is in error since, are not sent again. */
    for (size_t at = 0; at < (timeout ? 4 : sizeof PARTS / sizeof *PARTS); at++) {
        PARTS[at].run();
        printf("%s: ok\n", PARTS[at].name);
        fflush(stdout);
    }
    need(ibv_dealloc_pd(pd) == 0);
}
