/* Queue pairs: what they send, and how they answer. Messages of a connection (RC) are numbered; the answering side takes them in order, and what it cannot
 * take is sent again from there on, after its "not ready" or when nothing has been acknowledged for the queue pair's time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum { NUMBERS = 1 << 24, NOW_FLUSHED = -1 };

/* Times of ibv_qp_attr.min_rnr_timer, 10 us each. */
static const uint32_t NOT_READY_TIMES[32] = {65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
                                             256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

static bool is_datagram(const struct pair *pair)
{
    return pair->qp.qp_type == IBV_QPT_UD;
}

static struct send *send_at(struct pair *pair, uint32_t at)
{
    return &pair->sends[at % pair->cap.max_send_wr];
}

/* How far number `one` is after `other`, at most half of all. */
static int32_t after(uint32_t one, uint32_t other)
{
    int32_t ahead = (int32_t)((one - other) & (NUMBERS - 1));
    return ahead < NUMBERS / 2 ? ahead : ahead - NUMBERS;
}

/* ---- scattering and gathering */

/* Whether the device may use all pieces of a request, for `access`. */
static bool allowed(struct pair *pair, const struct ibv_sge *pieces, int count, int access)
{
    for (int at = 0; at < count; at++)
        if (pieces[at].length && !memory_find(pair->qp.pd, pieces[at].lkey, false, pieces[at].addr, pieces[at].length, access))
            return false;
    return true;
}

/* Copies bytes offset..offset+bytes of a list of pieces, from them or to them. False where one of them may not be used. */
static bool copy(struct pair *pair, const struct ibv_sge *pieces, int count, uint32_t offset, unsigned char *buffer, uint32_t bytes, bool into_pieces)
{
    int access = into_pieces ? IBV_ACCESS_LOCAL_WRITE : 0;
    for (int at = 0; at < count && bytes > 0; at++) {
        const struct ibv_sge *piece = &pieces[at];
        if (offset >= piece->length) {
            offset -= piece->length;
            continue;
        }
        uint32_t part = piece->length - offset < bytes ? piece->length - offset : bytes;
        struct region *region = memory_find(pair->qp.pd, piece->lkey, false, piece->addr + offset, part, access);
        if (!region)
            return false;
        if (into_pieces)
            memory_write(region, piece->addr + offset, buffer, part);
        else
            memory_read(region, piece->addr + offset, buffer, part);
        buffer += part, bytes -= part, offset = 0;
    }
    return bytes == 0;
}

static uint64_t length_of(const struct ibv_sge *pieces, int count)
{
    uint64_t bytes = 0;
    for (int at = 0; at < count; at++)
        bytes += pieces[at].length;
    return bytes;
}

/* ---- receives */

int receives_post(struct receives *receives, const struct ibv_recv_wr *request)
{
    if (request->num_sge < 0 || (uint32_t)request->num_sge > receives->pieces_max)
        return EINVAL;
    if (receives->posted - receives->retired == receives->size)
        return ENOMEM;
    struct receive *receive = &receives->ring[receives->posted++ % receives->size];
    receive->id = request->wr_id;
    receive->count = request->num_sge;
    memcpy(receive->pieces, request->sg_list, sizeof *receive->pieces * (size_t)request->num_sge);
    return 0;
}

static bool take_receive(struct pair *pair)
{
    struct receives *receives = pair->receives;
    if (!pair->has_receive && receives->taken != receives->posted) {
        pair->receive = receives->ring[receives->taken++ % receives->size];
        pair->has_receive = true;
    }
    return pair->has_receive;
}

static void complete_receive(struct pair *pair, const struct ibv_wc *facts)
{
    struct completion done = {.wc = *facts, .receives = pair->receives};
    done.wc.wr_id = pair->receive.id;
    done.wc.qp_num = pair->qp.qp_num;
    pair->has_receive = false;
    queue_add((struct queue *)pair->qp.recv_cq, &done);
}

static void flush_receives(struct pair *pair)
{
    struct ibv_wc flushed = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};
    /* Shared ones are for others. */
    while (pair->has_receive || (pair->receives == &pair->own && take_receive(pair)))
        complete_receive(pair, &flushed);
}

int pair_post_receive(struct pair *pair, const struct ibv_recv_wr *request)
{
    if (pair->qp.state == IBV_QPS_RESET || pair->receives != &pair->own)
        return EINVAL;
    int status = receives_post(&pair->own, request);
    if (pair->qp.state == IBV_QPS_ERR)
        flush_receives(pair);
    return status;
}

/* ---- the sending side */

static void complete(struct pair *pair, int status)
{
    static const int OPCODES[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_READ};
    struct send *send = send_at(pair, pair->done++);
    if (status == IBV_WC_SUCCESS && !pair->signals_all && !(send->flags & IBV_SEND_SIGNALED))
        return;
    struct completion done = {.pair = pair, .retires = pair->done};
    done.wc = (struct ibv_wc){.wr_id = send->id, .status = status, .opcode = OPCODES[send->operation], .byte_len = send->length, .qp_num = pair->qp.qp_num};
    queue_add((struct queue *)pair->qp.send_cq, &done);
}

/* The queue pair is in error: the oldest send has this status, unless there is none, and all else is flushed. */
static void fail(struct pair *pair, int status)
{
    pair->qp.state = IBV_QPS_ERR;
    while (pair->done != pair->posted) {
        complete(pair, status == NOW_FLUSHED ? IBV_WC_WR_FLUSH_ERR : status);
        status = NOW_FLUSHED;
    }
    pair->sent = pair->posted;
    pair->sent_bytes = 0;
    pair->deadline = pair->ready_at = 0;
    flush_receives(pair);
}

static uint32_t reads_out(struct pair *pair)
{
    uint32_t count = 0;
    for (uint32_t at = pair->done; at != pair->sent; at++)
        count += send_at(pair, at)->operation == IBV_WR_RDMA_READ;
    return count;
}

/* Sends the rest of a message. A negative answer is the negative status of a failed completion. */
static int send_message(struct pair *pair, struct send *send)
{
    static unsigned char bytes[PACKET_BYTES_MAX];
    static const enum kind KINDS[] = {WRITE, WRITE, SEND, SEND, READ};
    struct packet packet = {.kind = is_datagram(pair) ? DATAGRAM : KINDS[send->operation], .from = pair->qp.qp_num, .number = send->number, .length = send->length};
    packet.to = is_datagram(pair) ? send->to : pair->destination;
    packet.qkey = send->qkey, packet.address = send->address, packet.rkey = send->rkey;
    packet.has_immediate = send->operation == IBV_WR_SEND_WITH_IMM || send->operation == IBV_WR_RDMA_WRITE_WITH_IMM;
    packet.immediate = send->immediate;
    if (packet.kind == READ)
        return (int)wire_send(&packet, bytes);
    bool by_value = send->flags & IBV_SEND_INLINE;
    if (!by_value && !allowed(pair, send->pieces, send->count, 0))
        return -IBV_WC_LOC_PROT_ERR;
    do {
        packet.offset = pair->sent_bytes;
        packet.bytes = send->length - packet.offset < PACKET_BYTES_MAX ? send->length - packet.offset : PACKET_BYTES_MAX;
        if (!by_value && !copy(pair, send->pieces, send->count, packet.offset, bytes, packet.bytes, false))
            return -IBV_WC_LOC_PROT_ERR;
        enum left left = wire_send(&packet, by_value ? send->value : bytes);
        if (left == FULL)
            return FULL;
        pair->sent_bytes += packet.bytes;
    } while (pair->sent_bytes < send->length);
    pair->sent_bytes = 0;
    return LEFT;
}

void pair_send(struct pair *pair)
{
    if (pair->qp.state != IBV_QPS_RTS)
        return;
    uint64_t now = now_ns();
    while (pair->sent != pair->posted && !pair->blocked_by && !pair->ready_at) {
        struct send *send = send_at(pair, pair->sent);
        bool is_read = send->operation == IBV_WR_RDMA_READ;
        if ((is_read && reads_out(pair) >= pair->reads_out) || ((send->flags & IBV_SEND_FENCE) && reads_out(pair) > 0))
            break;
        int left = is_datagram(pair) && send->length > MTU_BYTES ? -IBV_WC_LOC_LEN_ERR : send_message(pair, send);
        if (left < 0) {
            /* It fails when all before it are complete. */
            if (pair->sent == pair->done)
                fail(pair, -left);
            return;
        }
        uint32_t process = process_of(is_datagram(pair) ? send->to : pair->destination);
        if (left == FULL && !(is_datagram(pair) && now_ns() - wire_full_since(process) > WIRE_WAIT_NS)) {
            pair->blocked_by = process;
            pair->deadline = is_datagram(pair) ? now + WIRE_WAIT_NS : pair->deadline;
            wake_by(0);
            break;
        }
        pair->sent++;
        if (is_datagram(pair)) {
            standin.counts.dropped += left != LEFT;
            complete(pair, IBV_WC_SUCCESS);
        }
    }
    if (is_datagram(pair) || !pair->timeout_ns)
        pair->deadline = pair->blocked_by ? pair->deadline : 0;
    else if (pair->done == pair->posted)
        pair->deadline = 0;
    else if (!pair->deadline)
        pair->deadline = now + pair->timeout_ns;
    if (pair->deadline)
        wake_by(pair->deadline);
}

int pair_post(struct pair *pair, const struct ibv_send_wr *request)
{
    int operation = request->opcode, state = pair->qp.state;
    bool by_value = request->send_flags & IBV_SEND_INLINE, is_read = operation == IBV_WR_RDMA_READ;
    if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
        return EINVAL;
    if (operation < IBV_WR_RDMA_WRITE || operation > IBV_WR_RDMA_READ || (is_read && by_value))
        return EINVAL;
    if (is_datagram(pair) && ((operation != IBV_WR_SEND && operation != IBV_WR_SEND_WITH_IMM) || !request->wr.ud.ah || request->wr.ud.ah->pd != pair->qp.pd))
        return EINVAL;
    if (request->num_sge < 0 || (uint32_t)request->num_sge > pair->cap.max_send_sge)
        return EINVAL;
    uint64_t length = length_of(request->sg_list, request->num_sge);
    if (length > MESSAGE_BYTES_MAX || (by_value && length > pair->cap.max_inline_data))
        return EINVAL;
    if (pair->posted - pair->retired == pair->cap.max_send_wr)
        return ENOMEM;
    struct send *send = send_at(pair, pair->posted++);
    send->id = request->wr_id;
    send->operation = operation;
    send->count = request->num_sge;
    send->flags = request->send_flags;
    send->immediate = request->imm_data;
    send->length = (uint32_t)length;
    send->number = pair->next_number++ & (NUMBERS - 1);
    send->answered_bytes = 0;
    if (is_datagram(pair)) {
        send->to = request->wr.ud.remote_qpn, send->qkey = request->wr.ud.remote_qkey;
        standin.counts.datagrams++;
    } else {
        send->address = request->wr.rdma.remote_addr, send->rkey = request->wr.rdma.rkey;
        *(is_read ? &standin.counts.reads : operation <= IBV_WR_RDMA_WRITE_WITH_IMM ? &standin.counts.writes : &standin.counts.sends) += 1;
    }
    standin.counts.sent_bytes += is_read ? 0 : length;
    unsigned char *value = send->value;
    for (int at = 0; at < request->num_sge; at++) {
        struct ibv_sge piece = send->pieces[at] = request->sg_list[at];
        if (by_value) {
            memcpy(value, (void *)(uintptr_t)piece.addr, piece.length);
            value += piece.length;
        }
    }
    standin.counts.pieces += by_value ? 0 : (uint64_t)request->num_sge;
    if (state == IBV_QPS_ERR)
        complete(pair, IBV_WC_WR_FLUSH_ERR), pair->sent = pair->done;
    else if (!is_datagram(pair) && wire_breaks()) {
        if (pair->posted % 2)
            pair_send(pair);
        standin.counts.broken++;
        if (pair->qp.state == IBV_QPS_RTS)
            fail(pair, IBV_WC_RETRY_EXC_ERR);
    }
    return 0;
}

/* Sends all again that is not complete, after `wait_ns`. */
static void send_again(struct pair *pair, uint64_t wait_ns)
{
    uint64_t now = now_ns();
    pair->sent = pair->done;
    pair->sent_bytes = 0;
    pair->ready_at = wait_ns ? now + wait_ns : 0;
    pair->deadline = pair->timeout_ns ? now + wait_ns + pair->timeout_ns : 0;
    if (pair->ready_at)
        wake_by(pair->ready_at);
}

/* The peer has taken all messages before `number`. False where that cannot be, or a read among them has not been answered. */
static bool acknowledge(struct pair *pair, uint32_t number)
{
    if (pair->done == pair->posted)
        return false;
    int32_t count = after(number, send_at(pair, pair->done)->number);
    if (count < 0 || (uint32_t)count > pair->posted - pair->done)
        return false;
    for (; count > 0; count--) {
        if (send_at(pair, pair->done)->operation == IBV_WR_RDMA_READ)
            return false;
        complete(pair, IBV_WC_SUCCESS);
        pair->tries = pair->rnr_tries = 0;
        pair->deadline = 0;
    }
    if ((int32_t)(pair->sent - pair->done) < 0) {
        pair->sent = pair->done;
        pair->sent_bytes = 0;
    }
    return pair->done != pair->posted;
}

/* Bytes of the oldest read. */
static void answered(struct pair *pair, const struct packet *packet, const unsigned char *bytes)
{
    struct send *send = send_at(pair, pair->done);
    if (send->operation != IBV_WR_RDMA_READ || send->number != packet->number || packet->offset != send->answered_bytes)
        return;
    if (packet->bytes > send->length - send->answered_bytes || (packet->bytes == 0 && send->length > 0))
        return;
    if (!copy(pair, send->pieces, send->count, packet->offset, (unsigned char *)bytes, packet->bytes, true)) {
        fail(pair, IBV_WC_LOC_PROT_ERR);
        return;
    }
    send->answered_bytes += packet->bytes;
    pair->tries = pair->rnr_tries = 0;
    pair->deadline = 0;
    if (send->answered_bytes == send->length)
        complete(pair, IBV_WC_SUCCESS);
    if ((int32_t)(pair->sent - pair->done) < 0)
        pair->sent = pair->done;
}

static void response(struct pair *pair, const struct packet *packet, const unsigned char *bytes)
{
    bool is_oldest = acknowledge(pair, packet->number) && send_at(pair, pair->done)->number == packet->number;
    if (is_oldest && packet->kind == ANSWER)
        answered(pair, packet, bytes);
    if (is_oldest && packet->kind == NAK)
        fail(pair, (int)packet->code);
    if (is_oldest && packet->kind == NOT_READY) {
        if (pair->rnr_retries < 7 && ++pair->rnr_tries > pair->rnr_retries)
            fail(pair, IBV_WC_RNR_RETRY_EXC_ERR);
        else
            send_again(pair, NOT_READY_TIMES[packet->code % 32] * 10000ull);
    }
    pair_send(pair);
}

uint64_t pair_due(struct pair *pair, uint64_t now)
{
    if (pair->ready_at && now >= pair->ready_at) {
        pair->ready_at = 0;
        pair_send(pair);
    }
    if (pair->deadline && now >= pair->deadline) {
        pair->deadline = 0;
        if (is_datagram(pair)) {
            pair->blocked_by = 0;
        } else if (wire_unread(process_of(pair->destination))) {
            /* An adapter would have answered: it does not wait for a processor. */
            pair->deadline = now + pair->timeout_ns;
        } else if (++pair->tries > pair->retries) {
            fail(pair, IBV_WC_RETRY_EXC_ERR);
        } else {
            standin.counts.again++;
            send_again(pair, 0);
        }
        pair_send(pair);
    }
    uint64_t next = pair->deadline ? pair->deadline : UINT64_MAX;
    return pair->ready_at && pair->ready_at < next ? pair->ready_at : next;
}

void pair_unblock(struct pair *pair)
{
    pair->blocked_by = 0;
    pair_answer(pair);
    pair_send(pair);
}

/* ---- the answering side */

static struct answer *answer_at(struct pair *pair, uint32_t at)
{
    return &pair->answers[at % ANSWERS_MAX];
}

static void add_answer(struct pair *pair, struct answer answer)
{
    struct answer *last = answer_at(pair, pair->answers_in - 1);
    if (answer.kind == ACK && pair->answers_in != pair->answers_out && last->kind == ACK)
        *last = answer;
    else if (pair->answers_in - pair->answers_out < ANSWERS_MAX)
        *answer_at(pair, pair->answers_in++) = answer;
}

static void refuse(struct pair *pair, const struct packet *packet, int status, int event)
{
    add_answer(pair, (struct answer){.kind = NAK, .number = packet->number, .code = (uint32_t)status});
    fail(pair, NOW_FLUSHED);
    tell(pair->qp.context, &pair->qp, event);
}

static bool may_access(struct pair *pair, const struct packet *packet, int access)
{
    if (packet->length == 0)
        return true;
    return (pair->access & (unsigned)access) && memory_find(pair->qp.pd, packet->rkey, true, packet->address, packet->length, access);
}

/* A read, which the peer may ask for again while it waits to be answered, or after that. */
static void add_read(struct pair *pair, const struct packet *packet, bool again)
{
    uint32_t pending = 0;
    for (uint32_t at = pair->answers_out; at != pair->answers_in; at++) {
        struct answer *answer = answer_at(pair, at);
        if (answer->kind == ANSWER && answer->number == packet->number)
            return;
        pending += answer->kind == ANSWER && answer->again == again;
    }
    if (!may_access(pair, packet, IBV_ACCESS_REMOTE_READ)) {
        refuse(pair, packet, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    } else if (pending < pair->reads_in) {
        struct answer answer = {.kind = ANSWER, .number = packet->number, .rkey = packet->rkey, .length = packet->length, .again = again};
        answer.address = packet->address;
        add_answer(pair, answer);
    } else if (!again) {
        refuse(pair, packet, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
}

/* A request of the connection's other end. */
static void request(struct pair *pair, const struct packet *packet, const unsigned char *bytes)
{
    int32_t ahead = after(packet->number, pair->expected);
    bool is_last = packet->offset + packet->bytes == packet->length;
    if (ahead > 0)
        return; /* What lies between comes again, and this after it. */
    if (packet->kind == READ) {
        add_read(pair, packet, ahead < 0);
        if (ahead == 0 && pair->qp.state != IBV_QPS_ERR)
            pair->expected = (pair->expected + 1) & (NUMBERS - 1);
        return;
    }
    if (ahead < 0) {
        if (is_last)
            add_answer(pair, (struct answer){.kind = ACK, .number = pair->expected});
        return;
    }
    if (packet->offset != pair->came_bytes)
        return;
    if (packet->kind == WRITE && !may_access(pair, packet, IBV_ACCESS_REMOTE_WRITE)) {
        refuse(pair, packet, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    bool receives = packet->kind == SEND || (packet->has_immediate && is_last);
    if (receives && !take_receive(pair)) {
        standin.counts.not_ready++;
        add_answer(pair, (struct answer){.kind = NOT_READY, .number = packet->number, .code = pair->rnr_timer});
        return;
    }
    struct ibv_wc done = {.opcode = packet->kind == SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = packet->length};
    if (packet->kind == SEND) {
        struct receive *into = &pair->receive;
        if (packet->length > length_of(into->pieces, into->count))
            done.status = IBV_WC_LOC_LEN_ERR;
        else if (!copy(pair, into->pieces, into->count, packet->offset, (unsigned char *)bytes, packet->bytes, true))
            done.status = IBV_WC_LOC_PROT_ERR;
        if (done.status) {
            complete_receive(pair, &done);
            refuse(pair, packet, done.status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR, IBV_EVENT_QP_REQ_ERR);
            return;
        }
    } else if (packet->bytes > 0) {
        struct region *region = memory_find(pair->qp.pd, packet->rkey, true, packet->address, packet->length, IBV_ACCESS_REMOTE_WRITE);
        memory_write(region, packet->address + packet->offset, bytes, packet->bytes);
    }
    pair->came_bytes += packet->bytes;
    if (!is_last)
        return;
    pair->came_bytes = 0;
    if (receives) {
        done.imm_data = packet->immediate;
        done.wc_flags = packet->has_immediate ? IBV_WC_WITH_IMM : 0;
        complete_receive(pair, &done);
    }
    pair->expected = (pair->expected + 1) & (NUMBERS - 1);
    add_answer(pair, (struct answer){.kind = ACK, .number = pair->expected});
}

static void datagram(struct pair *pair, const struct packet *packet, const unsigned char *bytes)
{
    /* As RoCE v2 over IPv4: 20 bytes that nobody fills, and the header of IPv4. */
    unsigned char header[GRH_BYTES] = {0};
    header[20] = 0x45;
    memcpy(header + 32, OWN_GID + 12, 4);
    memcpy(header + 36, OWN_GID + 12, 4);
    struct receive *into = &pair->receive;
    if (packet->qkey == pair->qkey && !take_receive(pair)) {
        standin.counts.no_receive++;
        return;
    }
    if (packet->qkey != pair->qkey || packet->length + GRH_BYTES > length_of(into->pieces, into->count)) {
        standin.counts.dropped++;
        return;
    }
    struct ibv_wc done = {.opcode = IBV_WC_RECV, .byte_len = packet->length + GRH_BYTES, .src_qp = packet->from, .wc_flags = IBV_WC_GRH};
    done.imm_data = packet->immediate;
    done.wc_flags |= packet->has_immediate ? IBV_WC_WITH_IMM : 0;
    bool well = copy(pair, into->pieces, into->count, 0, header, GRH_BYTES, true) &&
                copy(pair, into->pieces, into->count, GRH_BYTES, (unsigned char *)bytes, packet->bytes, true);
    done.status = well ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
    complete_receive(pair, &done);
    if (!well)
        fail(pair, NOW_FLUSHED);
}

void pair_came(struct pair *pair, const struct packet *packet, const unsigned char *bytes)
{
    int state = pair->qp.state;
    bool is_tied = !is_datagram(pair) && packet->from == pair->destination;
    if (state != IBV_QPS_RTR && state != IBV_QPS_RTS)
        return;
    if (packet->kind == DATAGRAM && is_datagram(pair))
        datagram(pair, packet, bytes);
    else if (is_tied && (packet->kind == SEND || packet->kind == WRITE || packet->kind == READ))
        request(pair, packet, bytes);
    else if (is_tied && packet->kind != DATAGRAM && state == IBV_QPS_RTS)
        response(pair, packet, bytes);
}

void pair_answer(struct pair *pair)
{
    static unsigned char bytes[PACKET_BYTES_MAX];
    while (pair->answers_out != pair->answers_in && !pair->blocked_by) {
        struct answer *answer = answer_at(pair, pair->answers_out);
        struct packet packet = {.kind = answer->kind, .to = pair->destination, .from = pair->qp.qp_num, .number = answer->number, .code = answer->code};
        bool is_last = true;
        if (answer->kind == ANSWER) {
            packet.offset = answer->offset;
            packet.length = answer->length;
            packet.bytes = answer->length - answer->offset < PACKET_BYTES_MAX ? answer->length - answer->offset : PACKET_BYTES_MAX;
            is_last = packet.offset + packet.bytes == packet.length;
            struct region *region = memory_find(pair->qp.pd, answer->rkey, true, answer->address + packet.offset, packet.bytes, IBV_ACCESS_REMOTE_READ);
            if (packet.bytes > 0 && !region) {
                /* It has been given up since it was asked for. */
                *answer = (struct answer){.kind = NAK, .number = answer->number, .code = IBV_WC_REM_ACCESS_ERR};
                fail(pair, NOW_FLUSHED);
                tell(pair->qp.context, &pair->qp, IBV_EVENT_QP_ACCESS_ERR);
                continue;
            }
            if (packet.bytes > 0)
                memory_read(region, answer->address + packet.offset, bytes, packet.bytes);
        }
        if (wire_send(&packet, bytes) == FULL) {
            pair->blocked_by = process_of(pair->destination);
            wake_by(0);
            return;
        }
        answer->offset += packet.bytes;
        pair->answers_out += is_last;
    }
}

/* ---- states */

void pair_reset(struct pair *pair)
{
    struct receives *shared = pair->receives == &pair->own ? NULL : pair->receives;
    if (pair->has_receive && shared) {
        /* A message that was not whole yet: another one may come there. */
        shared->retired++;
        shared->ring[shared->posted++ % shared->size] = pair->receive;
    }
    forget(pair, &pair->own);
    pair->posted = pair->sent = pair->done = pair->retired = pair->sent_bytes = 0;
    pair->own.posted = pair->own.taken = pair->own.retired = 0;
    pair->blocked_by = pair->tries = pair->rnr_tries = pair->came_bytes = 0;
    pair->deadline = pair->ready_at = 0;
    pair->has_receive = false;
    pair->answers_in = pair->answers_out = 0;
    pair->qp.state = IBV_QPS_RESET;
}

static bool same_port(const struct ibv_ah_attr *to)
{
    return to->is_global && to->port_num == 1 && to->grh.sgid_index == 0;
}

int pair_modify(struct pair *pair, const struct ibv_qp_attr *wanted, int mask)
{
    enum { RC = IBV_QPT_RC, UD = IBV_QPT_UD };
    static const struct {
        int from, to, type, required, optional;
    } CHANGES[] = {
        {IBV_QPS_RESET, IBV_QPS_INIT, RC, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
        {IBV_QPS_RESET, IBV_QPS_INIT, UD, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
        {IBV_QPS_INIT, IBV_QPS_RTR, RC, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
        {IBV_QPS_INIT, IBV_QPS_RTR, UD, 0, IBV_QP_QKEY | IBV_QP_PKEY_INDEX},
        {IBV_QPS_RTR, IBV_QPS_RTS, RC, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
         IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
        {IBV_QPS_RTR, IBV_QPS_RTS, UD, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
        {IBV_QPS_RTS, IBV_QPS_RTS, RC, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
        {IBV_QPS_RTS, IBV_QPS_RTS, UD, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    };
    if (!(mask & IBV_QP_STATE))
        return EINVAL;
    int others = mask & ~IBV_QP_STATE;
    if (wanted->qp_state == IBV_QPS_RESET || wanted->qp_state == IBV_QPS_ERR) {
        if (others)
            return EINVAL;
        if (wanted->qp_state == IBV_QPS_RESET)
            pair_reset(pair);
        else
            fail(pair, NOW_FLUSHED);
        return 0;
    }
    size_t count = sizeof CHANGES / sizeof *CHANGES, at = 0;
    while (at < count && (CHANGES[at].from != pair->qp.state || CHANGES[at].to != wanted->qp_state || CHANGES[at].type != pair->qp.qp_type))
        at++;
    if (at == count || (CHANGES[at].required & ~others) || (others & ~(CHANGES[at].required | CHANGES[at].optional)))
        return EINVAL;
    if (((mask & IBV_QP_PORT) && wanted->port_num != 1) || ((mask & IBV_QP_PKEY_INDEX) && wanted->pkey_index != 0))
        return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) && (wanted->path_mtu < IBV_MTU_256 || wanted->path_mtu > IBV_MTU_4096))
        return EINVAL;
    if (wanted->max_rd_atomic > READS_MAX || wanted->max_dest_rd_atomic > READS_MAX || wanted->timeout > 31 || wanted->retry_cnt > 7 || wanted->rnr_retry > 7)
        return EINVAL;
    if (wanted->min_rnr_timer > 31 || ((mask & IBV_QP_AV) && !same_port(&wanted->ah_attr)))
        return EINVAL;
    if ((mask & IBV_QP_AV) && memcmp(wanted->ah_attr.grh.dgid, OWN_GID, sizeof OWN_GID) != 0)
        return ENETUNREACH;
    pair->qkey = mask & IBV_QP_QKEY ? wanted->qkey : pair->qkey;
    pair->access = mask & IBV_QP_ACCESS_FLAGS ? wanted->qp_access_flags : pair->access;
    pair->destination = mask & IBV_QP_DEST_QPN ? wanted->dest_qp_num : pair->destination;
    pair->expected = mask & IBV_QP_RQ_PSN ? wanted->rq_psn & (NUMBERS - 1) : pair->expected;
    pair->next_number = mask & IBV_QP_SQ_PSN ? wanted->sq_psn & (NUMBERS - 1) : pair->next_number;
    pair->reads_in = mask & IBV_QP_MAX_DEST_RD_ATOMIC ? wanted->max_dest_rd_atomic : pair->reads_in;
    pair->reads_out = mask & IBV_QP_MAX_QP_RD_ATOMIC ? wanted->max_rd_atomic : pair->reads_out;
    pair->rnr_timer = mask & IBV_QP_MIN_RNR_TIMER ? wanted->min_rnr_timer : pair->rnr_timer;
    pair->retries = mask & IBV_QP_RETRY_CNT ? wanted->retry_cnt : pair->retries;
    pair->rnr_retries = mask & IBV_QP_RNR_RETRY ? wanted->rnr_retry : pair->rnr_retries;
    if (mask & IBV_QP_TIMEOUT)
        pair->timeout_ns = wanted->timeout ? 4096ull << wanted->timeout : 0;
    pair->qp.state = wanted->qp_state;
    return 0;
}
