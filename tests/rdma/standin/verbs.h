/* What is used of infiniband/verbs.h, with the layouts and numbers that its releases since 2005 share, so that the stand-in builds where that header is
 * missing. */
#ifndef VERBS_H
#define VERBS_H

#include <stddef.h>
#include <stdint.h>

enum { IBV_NODE_CA = 1, IBV_TRANSPORT_IB = 0, IBV_PORT_ACTIVE = 4, IBV_MTU_256 = 1, IBV_MTU_4096 = 5, IBV_LINK_LAYER_ETHERNET = 2, IBV_GID_TYPE_ROCE_V2 = 2 };
enum { IBV_ACCESS_LOCAL_WRITE = 1, IBV_ACCESS_REMOTE_WRITE = 2, IBV_ACCESS_REMOTE_READ = 4 };
enum { IBV_QPT_RC = 2, IBV_QPT_UD = 4 };
enum { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR = 6 };
enum { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ };
enum { IBV_SEND_FENCE = 1, IBV_SEND_SIGNALED = 2, IBV_SEND_SOLICITED = 4, IBV_SEND_INLINE = 8 };
enum { IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_RECV = 128, IBV_WC_RECV_RDMA_WITH_IMM };
enum { IBV_WC_GRH = 1, IBV_WC_WITH_IMM = 2 };
enum { IBV_EVENT_QP_REQ_ERR = 2, IBV_EVENT_QP_ACCESS_ERR = 3 };

enum {
    IBV_QP_STATE = 1,
    IBV_QP_CUR_STATE = 2,
    IBV_QP_ACCESS_FLAGS = 8,
    IBV_QP_PKEY_INDEX = 16,
    IBV_QP_PORT = 32,
    IBV_QP_QKEY = 64,
    IBV_QP_AV = 128,
    IBV_QP_PATH_MTU = 256,
    IBV_QP_TIMEOUT = 512,
    IBV_QP_RETRY_CNT = 1024,
    IBV_QP_RNR_RETRY = 2048,
    IBV_QP_RQ_PSN = 4096,
    IBV_QP_MAX_QP_RD_ATOMIC = 8192,
    IBV_QP_MIN_RNR_TIMER = 32768,
    IBV_QP_SQ_PSN = 65536,
    IBV_QP_MAX_DEST_RD_ATOMIC = 131072,
    IBV_QP_DEST_QPN = 1048576,
};

enum {
    IBV_WC_SUCCESS = 0,
    IBV_WC_LOC_LEN_ERR = 1,
    IBV_WC_LOC_PROT_ERR = 4,
    IBV_WC_WR_FLUSH_ERR = 5,
    IBV_WC_REM_INV_REQ_ERR = 9,
    IBV_WC_REM_ACCESS_ERR = 10,
    IBV_WC_REM_OP_ERR = 11,
    IBV_WC_RETRY_EXC_ERR = 12,
    IBV_WC_RNR_RETRY_EXC_ERR = 13,
};

struct ibv_device {
    void *unused[2];
    int node_type, transport_type;
    char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};

struct ibv_cq;
struct ibv_qp;
struct ibv_srq;
struct ibv_wc;
struct ibv_send_wr;
struct ibv_recv_wr;

struct ibv_context_ops {
    void *before[11];
    int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
    int (*req_notify_cq)(struct ibv_cq *, int);
    void *between[7];
    int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
    void *after_shared[4];
    int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
    int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
    void *after[5];
};

struct ibv_context {
    struct ibv_device *device;
    struct ibv_context_ops ops;
    int cmd_fd, async_fd, num_comp_vectors;
    uint64_t mutex[5];
    void *abi_compat;
};

struct ibv_pd {
    struct ibv_context *context;
    uint32_t handle;
};

struct ibv_mr {
    struct ibv_context *context;
    struct ibv_pd *pd;
    void *addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};

struct ibv_comp_channel {
    struct ibv_context *context;
    int fd, refcnt;
};

/* The header's queues, shared receives and queue pairs end with a mutex and counts, which only the library touches. */
struct ibv_cq {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    void *cq_context;
    uint32_t handle;
    int cqe;
};

struct ibv_srq {
    struct ibv_context *context;
    void *srq_context;
    struct ibv_pd *pd;
    uint32_t handle;
};

struct ibv_qp {
    struct ibv_context *context;
    void *qp_context;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    uint32_t handle, qp_num;
    int state, qp_type;
};

struct ibv_ah {
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t handle;
};

struct ibv_device_attr {
    char fw_ver[64];
    uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
    uint32_t vendor_id, vendor_part_id, hw_ver;
    int max_qp, max_qp_wr;
    unsigned device_cap_flags;
    int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom;
    int unused[10], max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct ibv_port_attr {
    int state, max_mtu, active_mtu, gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags;
};

struct ibv_gid_entry {
    uint8_t gid[16];
    uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

struct ibv_ah_attr {
    struct {
        _Alignas(8) uint8_t dgid[16];
        uint32_t flow_label;
        uint8_t sgid_index, hop_limit, traffic_class;
    } grh;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_srq_init_attr {
    void *srq_context;
    struct {
        uint32_t max_wr, max_sge, srq_limit;
    } attr;
};

struct ibv_qp_cap {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
    void *qp_context;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp_cap cap;
    int qp_type, sq_sig_all;
};

struct ibv_qp_attr {
    int qp_state, cur_qp_state, path_mtu, path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
    unsigned qp_access_flags;
    struct ibv_qp_cap cap;
    struct ibv_ah_attr ah_attr, alt_ah_attr;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num,
        alt_timeout;
    uint32_t rate_limit;
};

struct ibv_sge {
    uint64_t addr;
    uint32_t length, lkey;
};

struct ibv_recv_wr {
    uint64_t wr_id;
    struct ibv_recv_wr *next;
    struct ibv_sge *sg_list;
    int num_sge;
};

struct ibv_send_wr {
    uint64_t wr_id;
    struct ibv_send_wr *next;
    struct ibv_sge *sg_list;
    int num_sge, opcode;
    unsigned send_flags;
    uint32_t imm_data;
    union {
        struct {
            uint64_t remote_addr;
            uint32_t rkey;
        } rdma;
        struct {
            struct ibv_ah *ah;
            uint32_t remote_qpn, remote_qkey;
        } ud;
        uint64_t room[11];
    } wr;
};

struct ibv_wc {
    uint64_t wr_id;
    int status, opcode;
    uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
    unsigned wc_flags;
    uint16_t pkey_index, slid;
    uint8_t sl, dlid_path_bits;
};

struct ibv_async_event {
    union {
        struct ibv_qp *qp;
        int port_num;
    } element;
    int event_type;
};

_Static_assert(offsetof(struct ibv_context_ops, poll_cq) == 88 && offsetof(struct ibv_context_ops, post_srq_recv) == 160, "ibv_context_ops");
_Static_assert(offsetof(struct ibv_context_ops, post_send) == 200 && sizeof(struct ibv_context_ops) == 256, "ibv_context_ops");
_Static_assert(offsetof(struct ibv_context, async_fd) == 268 && offsetof(struct ibv_context, abi_compat) == 320, "ibv_context");
_Static_assert(offsetof(struct ibv_mr, lkey) == 36 && offsetof(struct ibv_qp, qp_num) == 52, "ibv_mr, ibv_qp");
_Static_assert(offsetof(struct ibv_device_attr, max_qp_rd_atom) == 144 && offsetof(struct ibv_device_attr, max_srq_wr) == 216, "ibv_device_attr");
_Static_assert(offsetof(struct ibv_device_attr, phys_port_cnt) == 227 && sizeof(struct ibv_device_attr) == 232, "ibv_device_attr");
_Static_assert(offsetof(struct ibv_port_attr, link_layer) == 46 && sizeof(struct ibv_port_attr) == 48, "ibv_port_attr");
_Static_assert(sizeof(struct ibv_ah_attr) == 32 && sizeof(struct ibv_qp_init_attr) == 64, "ibv_ah_attr, ibv_qp_init_attr");
_Static_assert(sizeof(struct ibv_qp_attr) == 144 && offsetof(struct ibv_qp_attr, max_rd_atomic) == 126, "ibv_qp_attr");
_Static_assert(sizeof(struct ibv_send_wr) == 128 && sizeof(struct ibv_wc) == 48 && sizeof(struct ibv_async_event) == 16, "ibv_send_wr, ibv_wc");

#endif
