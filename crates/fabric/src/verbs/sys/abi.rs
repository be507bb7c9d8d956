//! Types of `infiniband/verbs.h` as its libraries have them in memory, as far as they are used, and the functions of
//! `libibverbs.so.1`, found when the program runs.
//!
//! The layouts are those of the header's releases since 2005, which the library's symbol versions (`IBVERBS_1.0`,
//! `IBVERBS_1.1`) promise to keep.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

pub const LIBRARY: &CStr = c"libibverbs.so.1";

/// `enum ibv_transport_type`.
pub const TRANSPORT_IWARP: c_int = 1;
/// `enum ibv_port_state`.
pub const PORT_ACTIVE: c_int = 4;
/// Link layers of a port.
pub const LINK_ETHERNET: u8 = 2;
/// `enum ibv_gid_type` of an entry of the GID table.
pub const GID_ROCE_V1: u32 = 1;
pub const GID_ROCE_V2: u32 = 2;
/// `enum ibv_access_flags`.
pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 2;
pub const ACCESS_REMOTE_READ: c_int = 4;
/// `enum ibv_qp_type`.
pub const QPT_RC: c_int = 2;
pub const QPT_UD: c_int = 4;
/// `enum ibv_qp_state`.
pub const QPS_RESET: c_int = 0;
pub const QPS_INIT: c_int = 1;
pub const QPS_RTR: c_int = 2;
pub const QPS_RTS: c_int = 3;
pub const QPS_ERR: c_int = 6;
/// `enum ibv_qp_attr_mask`.
pub const QP_STATE: c_int = 1;
pub const QP_ACCESS_FLAGS: c_int = 8;
pub const QP_PKEY_INDEX: c_int = 16;
pub const QP_PORT: c_int = 32;
pub const QP_QKEY: c_int = 64;
pub const QP_AV: c_int = 128;
pub const QP_PATH_MTU: c_int = 256;
pub const QP_TIMEOUT: c_int = 512;
pub const QP_RETRY_CNT: c_int = 1024;
pub const QP_RNR_RETRY: c_int = 2048;
pub const QP_RQ_PSN: c_int = 4096;
pub const QP_MAX_QP_RD_ATOMIC: c_int = 8192;
pub const QP_MIN_RNR_TIMER: c_int = 32768;
pub const QP_SQ_PSN: c_int = 65536;
pub const QP_MAX_DEST_RD_ATOMIC: c_int = 131072;
pub const QP_DEST_QPN: c_int = 1048576;
/// `enum ibv_wr_opcode`, `enum ibv_send_flags`.
pub const WR_RDMA_WRITE: c_int = 0;
pub const WR_SEND: c_int = 2;
pub const WR_RDMA_READ: c_int = 4;
pub const SEND_SIGNALED: c_uint = 2;
pub const SEND_INLINE: c_uint = 8;
/// `enum ibv_wc_flags`: the first 40 bytes hold where the datagram came from.
pub const WC_GRH: c_uint = 1;
/// `enum ibv_event_type`.
pub const EVENT_DEVICE_FATAL: c_int = 8;
pub const EVENT_PORT_ACTIVE: c_int = 9;
pub const EVENT_PORT_ERR: c_int = 10;

#[repr(C)]
pub struct Device {
    ops: [usize; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    /// With a 0 at its end. More follows.
    pub name: [c_char; 64],
}

/// What the inline functions of the header call. The whole has 32 pointers.
#[repr(C)]
pub struct Operations {
    before: [usize; 11],
    pub poll_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    between: [usize; 7],
    pub post_srq_recv: unsafe extern "C" fn(*mut SharedReceives, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    after_shared: [usize; 4],
    pub post_send: unsafe extern "C" fn(*mut Pair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut Pair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    after: [usize; 5],
}

#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: Operations,
    cmd_fd: c_int,
    /// More follows.
    pub async_fd: c_int,
}

/// Those of which nothing is read.
#[repr(C)]
pub struct Domain(c_void);

#[repr(C)]
pub struct Channel {
    context: *mut Context,
    /// More follows.
    pub fd: c_int,
}

#[repr(C)]
pub struct CompletionQueue {
    /// More follows.
    pub context: *mut Context,
}

#[repr(C)]
pub struct AddressHandle(c_void);

#[repr(C)]
pub struct SharedReceives {
    /// More follows.
    pub context: *mut Context,
}

#[repr(C)]
pub struct SharedReceivesRequest {
    pub context: *mut c_void,
    pub receives: u32,
    pub pieces: u32,
    pub limit: u32,
}

#[repr(C)]
pub struct MemoryRegion {
    context: usize,
    domain: usize,
    address: usize,
    length: usize,
    handle: u32,
    pub lkey: u32,
    /// More follows.
    pub rkey: u32,
}

#[repr(C)]
pub struct Pair {
    /// More follows before the number.
    pub context: *mut Context,
    between: [usize; 5],
    handle: u32,
    /// More follows.
    pub number: u32,
}

#[repr(C)]
pub struct PortAttributes {
    pub state: c_int,
    pub max_mtu: c_int,
    /// 1 to 5 for 256 to 4096 bytes.
    pub active_mtu: c_int,
    pub gids: c_int,
    flags: u32,
    pub message_bytes_max: u32,
    bad_pkeys: u32,
    qkey_violations: u32,
    pkeys: u16,
    pub lid: u16,
    sm_lid: u16,
    lmc: u8,
    max_vl: u8,
    sm_sl: u8,
    subnet_timeout: u8,
    init_type_reply: u8,
    active_width: u8,
    active_speed: u8,
    phys_state: u8,
    pub link_layer: u8,
    /// Room for what later releases add.
    rest: [u8; 81],
}

/// 232 bytes, of which these are used.
#[repr(C)]
pub struct DeviceAttributes {
    before: [u32; 24],
    pub vendor_id: u32,
    before_limits: [u32; 3],
    pub max_qp_wr: c_int,
    flags: u32,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    /// Remote reads that a queue pair answers, and that it may ask for, at once.
    pub max_qp_rd_atom: c_int,
    between_reads: [c_int; 2],
    pub max_qp_init_rd_atom: c_int,
    between: [c_int; 13],
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    max_srq_sge: c_int,
    max_pkeys: u16,
    local_ack_delay: u8,
    pub ports: u8,
    /// Room for what later releases add.
    rest: [u8; 28],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GidEntry {
    pub gid: [u8; 16],
    pub index: u32,
    pub port: u32,
    pub kind: u32,
    pub interface: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GlobalRoute {
    pub gid: [u8; 16],
    pub flow_label: u32,
    pub own_gid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct HandleAttributes {
    pub route: GlobalRoute,
    pub lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
    pub rate: u8,
    pub is_global: u8,
    pub port: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PairLimits {
    pub sends: u32,
    pub receives: u32,
    pub send_pieces: u32,
    pub receive_pieces: u32,
    pub inline_bytes: u32,
}

#[repr(C)]
pub struct PairRequest {
    pub context: *mut c_void,
    pub send_queue: *mut CompletionQueue,
    pub receive_queue: *mut CompletionQueue,
    pub shared_receives: *mut SharedReceives,
    pub limits: PairLimits,
    pub kind: c_int,
    pub signals_all: c_int,
}

/// 144 bytes, of which these are used.
#[repr(C, align(8))]
pub struct PairAttributes {
    pub state: c_int,
    current_state: c_int,
    /// 1 to 5 for 256 to 4096 bytes.
    pub path_mtu: c_int,
    migration: c_int,
    pub qkey: u32,
    pub receive_psn: u32,
    pub send_psn: u32,
    pub destination: u32,
    pub access: c_int,
    limits: PairLimits,
    pub to: HandleAttributes,
    other_to: HandleAttributes,
    pub pkey_index: u16,
    other_pkey_index: u16,
    drained: [u8; 2],
    /// Remote reads that are asked for, and answered, at once.
    pub reads_out: u8,
    pub reads_in: u8,
    pub min_rnr_timer: u8,
    pub port: u8,
    /// 4.096 µs times two to the power of this.
    pub timeout: u8,
    pub retries: u8,
    /// 7: without end.
    pub rnr_retries: u8,
    other_port: u8,
    other_timeout: u8,
    rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    pub address: u64,
    pub bytes: u32,
    pub lkey: u32,
}

#[repr(C)]
pub struct ReceiveRequest {
    pub id: u64,
    pub next: *mut ReceiveRequest,
    pub pieces: *mut Piece,
    pub count: c_int,
}

/// A send. The other members of the header's unions are as long or shorter than those of a datagram; remote reads and
/// writes have the address where `handle` is, and the key where `number` is.
#[repr(C)]
pub struct SendRequest {
    pub id: u64,
    pub next: *mut SendRequest,
    pub pieces: *mut Piece,
    pub count: c_int,
    pub operation: c_int,
    pub flags: c_uint,
    pub immediate: u32,
    pub handle: *mut AddressHandle,
    pub number: u32,
    pub qkey: u32,
    pub rest: [u64; 9],
}

impl SendRequest {
    pub const EMPTY: SendRequest = SendRequest {
        id: 0,
        next: std::ptr::null_mut(),
        pieces: std::ptr::null_mut(),
        count: 0,
        operation: WR_SEND,
        flags: 0,
        immediate: 0,
        handle: std::ptr::null_mut(),
        number: 0,
        qkey: 0,
        rest: [0; 9],
    };

    /// Of a remote read or write: the peer's address and key.
    pub fn set_remote(&mut self, address: u64, key: u32) {
        self.handle = std::ptr::without_provenance_mut(address as usize);
        self.number = key;
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct WorkCompletion {
    pub id: u64,
    /// 0: all is well.
    pub status: c_int,
    pub operation: c_int,
    pub vendor_error: u32,
    pub bytes: u32,
    pub immediate: u32,
    pub number: u32,
    pub from: u32,
    pub flags: c_uint,
    pub pkey_index: u16,
    pub lid: u16,
    pub service_level: u8,
    pub path_bits: u8,
}

#[repr(C)]
pub struct AsyncEvent {
    /// Of a port: its number.
    pub element: u64,
    pub kind: c_int,
}

// As a C compiler prints them from the header.
const _: () = {
    assert!(offset_of!(Device, name) == 24);
    assert!(size_of::<Operations>() == 256 && offset_of!(Operations, poll_cq) == 88 && offset_of!(Operations, post_send) == 200);
    assert!(offset_of!(Context, ops) == 8 && offset_of!(Context, async_fd) == 268);
    assert!(offset_of!(Channel, fd) == 8 && offset_of!(MemoryRegion, lkey) == 36 && offset_of!(Pair, number) == 52);
    assert!(offset_of!(PortAttributes, lid) == 34 && offset_of!(PortAttributes, link_layer) == 46 && size_of::<PortAttributes>() >= 52);
    assert!(offset_of!(DeviceAttributes, max_qp_wr) == 112 && offset_of!(DeviceAttributes, max_cqe) == 132);
    assert!(offset_of!(Operations, post_srq_recv) == 160 && offset_of!(MemoryRegion, rkey) == 40);
    assert!(offset_of!(PortAttributes, message_bytes_max) == 20 && offset_of!(DeviceAttributes, max_qp_rd_atom) == 144);
    assert!(offset_of!(DeviceAttributes, max_qp_init_rd_atom) == 156 && offset_of!(DeviceAttributes, max_srq_wr) == 216);
    assert!(offset_of!(PairAttributes, path_mtu) == 8 && offset_of!(PairAttributes, destination) == 28 && offset_of!(PairAttributes, to) == 56);
    assert!(offset_of!(PairAttributes, reads_out) == 126 && offset_of!(PairAttributes, timeout) == 130 && offset_of!(PairAttributes, rnr_retries) == 132);
    assert!(size_of::<SharedReceivesRequest>() == 24);
    assert!(offset_of!(DeviceAttributes, ports) == 227 && size_of::<DeviceAttributes>() >= 232);
    assert!(size_of::<GlobalRoute>() == 24 && size_of::<HandleAttributes>() == 32 && offset_of!(HandleAttributes, port) == 30);
    assert!(size_of::<GidEntry>() == 32);
    assert!(size_of::<PairRequest>() == 64 && offset_of!(PairRequest, kind) == 52);
    assert!(size_of::<PairAttributes>() == 144 && offset_of!(PairAttributes, qkey) == 16 && offset_of!(PairAttributes, send_psn) == 24);
    assert!(offset_of!(PairAttributes, pkey_index) == 120 && offset_of!(PairAttributes, port) == 129);
    assert!(size_of::<ReceiveRequest>() == 32 && size_of::<SendRequest>() == 128 && offset_of!(SendRequest, handle) == 40);
    assert!(size_of::<WorkCompletion>() == 48 && offset_of!(WorkCompletion, from) == 32 && offset_of!(WorkCompletion, lid) == 42);
    assert!(size_of::<AsyncEvent>() == 16);
};

macro_rules! functions {
    ($($name:ident $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, which stays loaded.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            pub query_gid_ex: Option<QueryGidEx>,
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Functions, String> {
                Ok(Functions {
                    $($name: {
                        let symbol = symbol(library, $symbol, &[c"IBVERBS_1.1", c"IBVERBS_1.0"])?;
                        // SAFETY: the function of this name and version has this type in verbs.h.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(symbol) }
                    },)*
                    query_gid_ex: symbol(library, c"_ibv_query_gid_ex", &[c"IBVERBS_1.11"])
                        .ok()
                        // SAFETY: as above.
                        .map(|symbol| unsafe { std::mem::transmute::<*mut c_void, QueryGidEx>(symbol) }),
                })
            }
        }
    };
}

type QueryGidEx = unsafe extern "C" fn(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int;

functions! {
    get_device_list c"ibv_get_device_list" (*mut c_int) -> *mut *mut Device;
    free_device_list c"ibv_free_device_list" (*mut *mut Device);
    open_device c"ibv_open_device" (*mut Device) -> *mut Context;
    close_device c"ibv_close_device" (*mut Context) -> c_int;
    query_device c"ibv_query_device" (*mut Context, *mut DeviceAttributes) -> c_int;
    query_port c"ibv_query_port" (*mut Context, u8, *mut PortAttributes) -> c_int;
    query_gid c"ibv_query_gid" (*mut Context, u8, c_int, *mut [u8; 16]) -> c_int;
    alloc_pd c"ibv_alloc_pd" (*mut Context) -> *mut Domain;
    dealloc_pd c"ibv_dealloc_pd" (*mut Domain) -> c_int;
    reg_mr c"ibv_reg_mr" (*mut Domain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    dereg_mr c"ibv_dereg_mr" (*mut MemoryRegion) -> c_int;
    create_comp_channel c"ibv_create_comp_channel" (*mut Context) -> *mut Channel;
    destroy_comp_channel c"ibv_destroy_comp_channel" (*mut Channel) -> c_int;
    create_cq c"ibv_create_cq" (*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut CompletionQueue;
    destroy_cq c"ibv_destroy_cq" (*mut CompletionQueue) -> c_int;
    get_cq_event c"ibv_get_cq_event" (*mut Channel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    ack_cq_events c"ibv_ack_cq_events" (*mut CompletionQueue, c_uint);
    create_srq c"ibv_create_srq" (*mut Domain, *mut SharedReceivesRequest) -> *mut SharedReceives;
    destroy_srq c"ibv_destroy_srq" (*mut SharedReceives) -> c_int;
    create_qp c"ibv_create_qp" (*mut Domain, *mut PairRequest) -> *mut Pair;
    modify_qp c"ibv_modify_qp" (*mut Pair, *mut PairAttributes, c_int) -> c_int;
    destroy_qp c"ibv_destroy_qp" (*mut Pair) -> c_int;
    create_ah c"ibv_create_ah" (*mut Domain, *mut HandleAttributes) -> *mut AddressHandle;
    destroy_ah c"ibv_destroy_ah" (*mut AddressHandle) -> c_int;
    get_async_event c"ibv_get_async_event" (*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event c"ibv_ack_async_event" (*mut AsyncEvent);
}

fn symbol(library: *mut c_void, name: &CStr, versions: &[&CStr]) -> Result<*mut c_void, String> {
    // SAFETY: the library is loaded; names and versions end with 0.
    let found = versions.iter().map(|version| unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) }).find(|symbol| !symbol.is_null());
    found.ok_or_else(|| format!("{} has no {}", LIBRARY.to_string_lossy(), name.to_string_lossy()))
}

/// The library, loaded at the first call; it stays loaded. Its name is fixed, so that the environment names no code.
///
/// # Errors
/// Words that say what is missing.
pub fn functions() -> Result<&'static Functions, String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        // SAFETY: loading a library runs its constructors, which is what was asked for.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: dlerror gives a string or nothing; it is copied at once.
            let why = unsafe { libc::dlerror().as_ref().map(|why| CStr::from_ptr(why).to_string_lossy().into_owned()) };
            return Err(why.unwrap_or_else(|| format!("{} cannot be loaded", LIBRARY.to_string_lossy())));
        }
        Functions::find(library)
    });
    loaded.as_ref().map_err(Clone::clone)
}
