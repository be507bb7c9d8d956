//! What the library answers: results of calls, status of descriptors, codes of asynchronous errors. Values as in public headers.

/// What a call returns when it does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Refusal {
    NotDone = 1,
    InvalidParameter = 2,
    Resource = 3,
    Timeout = 4,
    Reject = 5,
    InvalidReliabilityLevel = 6,
    InvalidMtu = 7,
    InvalidQos = 8,
    InvalidPtag = 9,
    InvalidRdmaRead = 10,
    DescriptorError = 11,
    InvalidState = 12,
    NameService = 13,
    NoMatch = 14,
    NotReachable = 15,
}

impl Refusal {
    /// The refusal whose value is `code`, as it comes from a peer.
    pub fn of(code: u8) -> Option<Refusal> {
        use Refusal::*;
        [InvalidReliabilityLevel, InvalidMtu, InvalidQos, Reject, Resource].into_iter().find(|it| *it as i32 == code as i32)
    }
}

pub type Result<T, E = Refusal> = std::result::Result<T, E>;

pub const CONTROL_OP_MASK: u16 = 3;
pub const CONTROL_IMMEDIATE: u16 = 4;
pub const CONTROL_QFENCE: u16 = 8;
pub const CONTROL_RESERVED: u16 = 0xfff0;

pub const DONE: u32 = 1;
pub const FORMAT_ERROR: u32 = 2;
pub const PROTECTION_ERROR: u32 = 4;
pub const LENGTH_ERROR: u32 = 8;
pub const FLUSHED_ERROR: u32 = 0x20;
pub const TRANSPORT_ERROR: u32 = 0x40;
pub const RDMA_PROT_ERROR: u32 = 0x80;
pub const REMOTE_DESC_ERROR: u32 = 0x100;
pub const ERROR_MASK: u32 = 0x1fe;

pub const OP_SEND: u32 = 0;
pub const OP_RECEIVE: u32 = 0x1_0000;
pub const OP_RDMA_WRITE: u32 = 0x2_0000;
pub const OP_REMOTE_RDMA_WRITE: u32 = 0x3_0000;
pub const OP_RDMA_READ: u32 = 0x4_0000;
pub const IMMEDIATE: u32 = 0x8_0000;

/// Codes of asynchronous errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum ErrorCode {
    PostDescriptor = 0,
    ConnectionLost = 1,
    ReceiveQueueEmpty = 2,
    Overrun = 3,
    RdmaWriteProtection = 4,
    RdmaReadProtection = 7,
    CompletionProtection = 8,
}

impl ErrorCode {
    pub fn text(self) -> &'static str {
        match self {
            ErrorCode::PostDescriptor => "bad descriptor",
            ErrorCode::ConnectionLost => "connection lost",
            ErrorCode::ReceiveQueueEmpty => "no receive descriptor",
            ErrorCode::Overrun => "queue overrun",
            ErrorCode::RdmaWriteProtection => "RDMA write not permitted",
            ErrorCode::RdmaReadProtection => "RDMA read not permitted",
            ErrorCode::CompletionProtection => "memory of a descriptor no longer permitted",
        }
    }
}

/// What an asynchronous error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Resource {
    Vi = 1,
    Cq = 2,
    Descriptor = 3,
}
