//! The system's connection manager (`librdmacm.so.1`), which alone connects queue pairs of iWARP devices. Opened when the
//! program runs, as libibverbs is; the layouts are those of `rdma/rdma_cma.h`, which the symbols' version `RDMACM_1.0` promises.
//!
//! A queue pair is named to it by its number. What it tells comes as [`Happening`]s; no call here waits for a peer but
//! [`Conversation::connect`], which a thread makes.

use std::ffi::{CStr, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};

use super::{STACK_BYTES, abi, failed, set_nonblocking};
use crate::Error;

const LIBRARY: &CStr = c"librdmacm.so.1";
/// `enum rdma_port_space`.
const SPACE_TCP: c_int = 0x0106;
/// Requests that wait for an answer, at most.
const BACKLOG: c_int = 512;
/// The manager chooses a port that it has free itself; a socket of the system may have it.
const PORT_TRIALS: usize = 16;

/// `struct rdma_event_channel`.
#[repr(C)]
struct RawChannel {
    fd: c_int,
}

/// `struct rdma_cm_id`, 408 bytes, of which these are read.
#[repr(C)]
struct RawId {
    verbs: *mut abi::Context,
    channel: *mut RawChannel,
    context: *mut c_void,
    pair: *mut abi::Pair,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawTerms {
    private_data: *const u8,
    private_bytes: u8,
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: u8,
    retries: u8,
    rnr_retries: u8,
    shared_receives: u8,
    number: u32,
}

/// `struct rdma_cm_event`.
#[repr(C)]
struct RawEvent {
    id: *mut RawId,
    listener: *mut RawId,
    kind: c_int,
    status: c_int,
    terms: RawTerms,
    /// The union's other member is longer.
    rest: [u64; 4],
}

// As a C compiler prints them from the header.
const _: () = {
    assert!(offset_of!(RawId, context) == 16 && offset_of!(RawId, pair) == 24);
    assert!(size_of::<RawTerms>() == 24 && offset_of!(RawTerms, shared_receives) == 14 && offset_of!(RawTerms, number) == 16);
    assert!(size_of::<RawEvent>() == 80 && offset_of!(RawEvent, kind) == 16 && offset_of!(RawEvent, status) == 20 && offset_of!(RawEvent, terms) == 24);
};

macro_rules! functions {
    ($($name:ident $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library, which stays loaded.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Functions, String> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: the library is loaded; name and version end with 0.
                        let symbol = unsafe { libc::dlvsym(library, $symbol.as_ptr(), c"RDMACM_1.0".as_ptr()) };
                        if symbol.is_null() {
                            return Err(format!("{} has no {}", LIBRARY.to_string_lossy(), $symbol.to_string_lossy()));
                        }
                        // SAFETY: the function of this name and version has this type in rdma_cma.h.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(symbol) }
                    },)*
                })
            }
        }
    };
}

functions! {
    create_event_channel c"rdma_create_event_channel" () -> *mut RawChannel;
    destroy_event_channel c"rdma_destroy_event_channel" (*mut RawChannel);
    create_id c"rdma_create_id" (*mut RawChannel, *mut *mut RawId, *mut c_void, c_int) -> c_int;
    destroy_id c"rdma_destroy_id" (*mut RawId) -> c_int;
    bind_addr c"rdma_bind_addr" (*mut RawId, *const libc::sockaddr) -> c_int;
    get_src_port c"rdma_get_src_port" (*mut RawId) -> u16;
    listen c"rdma_listen" (*mut RawId, c_int) -> c_int;
    resolve_addr c"rdma_resolve_addr" (*mut RawId, *const libc::sockaddr, *const libc::sockaddr, c_int) -> c_int;
    resolve_route c"rdma_resolve_route" (*mut RawId, c_int) -> c_int;
    connect c"rdma_connect" (*mut RawId, *mut RawTerms) -> c_int;
    accept c"rdma_accept" (*mut RawId, *mut RawTerms) -> c_int;
    reject c"rdma_reject" (*mut RawId, *const c_void, u8) -> c_int;
    disconnect c"rdma_disconnect" (*mut RawId) -> c_int;
    get_cm_event c"rdma_get_cm_event" (*mut RawChannel, *mut *mut RawEvent) -> c_int;
    ack_cm_event c"rdma_ack_cm_event" (*mut RawEvent) -> c_int;
}

/// The library, loaded at the first call; it stays loaded. Its name is fixed, so that the environment names no code.
fn functions() -> Result<&'static Functions, String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        // SAFETY: loading a library runs its constructors, which is what was asked for.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("{} cannot be loaded, without which nothing connects iWARP devices (Debian: librdmacm1)", LIBRARY.to_string_lossy()));
        }
        Functions::find(library)
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// An address as the system's calls take it.
#[repr(C)]
union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    fn new(at: SocketAddr) -> RawAddress {
        let port = at.port().to_be();
        match at.ip() {
            IpAddr::V4(ip) => {
                let sin_addr = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
                RawAddress { v4: libc::sockaddr_in { sin_family: libc::AF_INET as u16, sin_port: port, sin_addr, sin_zero: [0; 8] } }
            }
            IpAddr::V6(ip) => {
                let sin6_addr = libc::in6_addr { s6_addr: ip.octets() };
                RawAddress { v6: libc::sockaddr_in6 { sin6_family: libc::AF_INET6 as u16, sin6_port: port, sin6_flowinfo: 0, sin6_addr, sin6_scope_id: 0 } }
            }
        }
    }

    fn as_ptr(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(self).cast()
    }
}

/// Where the manager tells what has happened.
pub struct Happenings {
    raw: NonNull<RawChannel>,
    functions: &'static Functions,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Happenings {}
// SAFETY: as above.
unsafe impl Sync for Happenings {}

impl std::fmt::Debug for Happenings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Happenings")
    }
}

/// What a conversation is known by as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConversationId(usize);

/// What happens to a conversation.
#[derive(Debug)]
pub enum What {
    /// The peer's address has been looked up, and the way to it.
    Address,
    Route,
    /// A peer asks for a connection: a new conversation.
    Request(Conversation),
    /// Both ends are connected.
    Established,
    /// The peer refuses.
    Rejected,
    /// No connection came of it: words.
    Failed(&'static str),
    Disconnected,
    /// The device is gone.
    Removed,
    Other,
}

#[derive(Debug)]
pub struct Happening {
    pub id: ConversationId,
    pub what: What,
    /// An error number, 0 where there is none.
    pub errno: i32,
    /// What the peer says with it.
    pub private_data: Vec<u8>,
}

impl Happenings {
    /// # Errors
    /// Words: the library is not there, or the kernel's side of it.
    pub fn new() -> Result<Arc<Happenings>, String> {
        let functions = functions()?;
        // SAFETY: a plain call.
        let raw = NonNull::new(unsafe { (functions.create_event_channel)() });
        let refused = || format!("the kernel's connection manager is not there (modprobe rdma_ucm): {}", std::io::Error::last_os_error());
        let channel = Happenings { raw: raw.ok_or_else(refused)?, functions };
        // SAFETY: the channel is open.
        set_nonblocking(unsafe { (*channel.raw.as_ptr()).fd }).map_err(|error| error.to_string())?;
        Ok(Arc::new(channel))
    }

    /// Readable as long as something has happened that nobody has taken.
    pub fn source(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }

    /// The next thing that has happened, if anything has.
    pub fn next(self: &Arc<Happenings>) -> Option<Happening> {
        let mut event = null_mut();
        // SAFETY: the descriptor does not block. An event lives until it is acknowledged, which is done before anybody could end its conversation.
        unsafe {
            if (self.functions.get_cm_event)(self.raw.as_ptr(), &mut event) != 0 || event.is_null() {
                return None;
            }
            let RawEvent { id, kind, status, terms, .. } = &*event;
            let private_data = match terms.private_data.is_null() || !matches!(*kind, 4..=9) {
                true => Vec::new(),
                false => std::slice::from_raw_parts(terms.private_data, terms.private_bytes.into()).to_vec(),
            };
            let what = match *kind {
                0 => What::Address,
                1 => What::Failed("its address is not found: nobody answers there"),
                2 => What::Route,
                3 => What::Failed("there is no way to its address"),
                4 => NonNull::new(*id).map_or(What::Other, |raw| What::Request(Conversation { raw, happenings: self.clone() })),
                6 => What::Failed("the connection was broken while it was made"),
                7 => What::Failed("it does not answer"),
                8 => What::Rejected,
                9 => What::Established,
                10 => What::Disconnected,
                11 => What::Removed,
                _ => What::Other,
            };
            let happening = Happening { id: ConversationId(id.addr()), what, errno: status.unsigned_abs() as i32, private_data };
            (self.functions.ack_cm_event)(event);
            Some(happening)
        }
    }
}

impl Drop for Happenings {
    fn drop(&mut self) {
        // SAFETY: no conversation uses it any more: each holds it.
        unsafe { (self.functions.destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// On what terms a queue pair is connected.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The queue pair.
    pub number: u32,
    /// Remote reads that it answers, and that it asks for, at once.
    pub reads_in: u8,
    pub reads_out: u8,
    /// What the peer is told: at most 196 bytes pass everywhere.
    pub private_data: Vec<u8>,
}

impl Terms {
    fn raw(&self) -> RawTerms {
        RawTerms {
            private_data: self.private_data.as_ptr(),
            private_bytes: u8::try_from(self.private_data.len()).expect("private data of at most 255 bytes"),
            responder_resources: self.reads_in,
            initiator_depth: self.reads_out,
            flow_control: 0,
            retries: 7,
            rnr_retries: 7,
            shared_receives: 1,
            number: self.number,
        }
    }
}

/// One connection as the manager has it (`rdma_cm_id`), from its beginning to its end; or the listening for such. Its end, which is
/// its drop, waits where a connect is under way whose outcome has not been told.
#[derive(Debug)]
pub struct Conversation {
    raw: NonNull<RawId>,
    happenings: Arc<Happenings>,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Conversation {}
// SAFETY: as above.
unsafe impl Sync for Conversation {}

fn checked(call: &'static str, status: c_int) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(failed(call)) }
}

impl Conversation {
    fn new(happenings: &Arc<Happenings>) -> Result<Conversation, Error> {
        let mut raw = null_mut();
        // SAFETY: the channel is open, and stays so.
        checked("rdma_create_id", unsafe { (happenings.functions.create_id)(happenings.raw.as_ptr(), &mut raw, null_mut(), SPACE_TCP) })?;
        Ok(Conversation { raw: NonNull::new(raw).ok_or_else(|| failed("rdma_create_id"))?, happenings: happenings.clone() })
    }

    fn functions(&self) -> &'static Functions {
        self.happenings.functions
    }

    pub fn id(&self) -> ConversationId {
        ConversationId(self.raw.addr().get())
    }

    /// The name of the device that it goes through, once that is settled.
    pub fn device(&self) -> Option<String> {
        // SAFETY: both live as long as the conversation; the name ends with 0.
        unsafe {
            let verbs = (*self.raw.as_ptr()).verbs.as_ref()?;
            Some(CStr::from_ptr((*verbs.device).name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// One that is tied to an address of this host, and so to the device that the system has for that.
    ///
    /// # Errors
    /// It is no address of this host.
    pub fn at(happenings: &Arc<Happenings>, ip: IpAddr) -> Result<Conversation, Error> {
        let conversation = Conversation::new(happenings)?;
        let address = RawAddress::new(SocketAddr::new(ip, 0));
        // SAFETY: the address is read during the call.
        checked("rdma_bind_addr", unsafe { (conversation.functions().bind_addr)(conversation.raw.as_ptr(), address.as_ptr()) })?;
        Ok(conversation)
    }

    /// Listens at `ip`, on a port that it finds.
    ///
    /// # Errors
    /// It is no address of this host, or the device takes no requests.
    pub fn listen(happenings: &Arc<Happenings>, ip: IpAddr) -> Result<(Conversation, SocketAddr), Error> {
        let mut trial = 1;
        loop {
            let conversation = Conversation::at(happenings, ip)?;
            // SAFETY: it is bound.
            let (status, port) = unsafe {
                let raw = conversation.raw.as_ptr();
                let status = (conversation.functions().listen)(raw, BACKLOG);
                (checked("rdma_listen", status), u16::from_be((conversation.functions().get_src_port)(raw)))
            };
            match status {
                Ok(()) => return Ok((conversation, SocketAddr::new(ip, port))),
                Err(Error::System { errno: libc::EADDRINUSE, .. }) if trial < PORT_TRIALS => trial += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins to look up the way from `from` to `to`: [`What::Address`] follows within `timeout_ms`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn resolve(happenings: &Arc<Happenings>, from: IpAddr, to: SocketAddr, timeout_ms: u32) -> Result<Conversation, Error> {
        let conversation = Conversation::new(happenings)?;
        let (from, to) = (RawAddress::new(SocketAddr::new(from, 0)), RawAddress::new(to));
        // SAFETY: the addresses are read during the call.
        let status = unsafe { (conversation.functions().resolve_addr)(conversation.raw.as_ptr(), from.as_ptr(), to.as_ptr(), timeout_ms as c_int) };
        checked("rdma_resolve_addr", status)?;
        Ok(conversation)
    }

    /// After [`What::Address`]: [`What::Route`] follows.
    ///
    /// # Errors
    /// The system refuses.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result<(), Error> {
        // SAFETY: the conversation lives.
        checked("rdma_resolve_route", unsafe { (self.functions().resolve_route)(self.raw.as_ptr(), timeout_ms as c_int) })
    }

    /// After [`What::Route`]: asks the peer for a connection. [`What::Established`], [`What::Rejected`] or [`What::Failed`] follow where this
    /// went well. Some drivers wait here until the peer's host has answered, so a thread does it, and calls `done` at its end.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn connect(self: &Arc<Conversation>, terms: Terms, done: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<(), Error> {
        let conversation = self.clone();
        let ask = move || {
            let mut raw = terms.raw();
            // SAFETY: the terms and their private data are read during the call.
            let asked = checked("rdma_connect", unsafe { (conversation.functions().connect)(conversation.raw.as_ptr(), &mut raw) });
            // Whoever hears of it may end the conversation.
            drop(conversation);
            done(asked);
        };
        let builder = std::thread::Builder::new().name("mpi-connect".into()).stack_size(STACK_BYTES);
        match memory::without_signals(|| builder.spawn(ask)) {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::System { call: "making a thread", errno: error.raw_os_error().unwrap_or(0) }),
        }
    }

    /// Takes a request.
    ///
    /// # Errors
    /// The peer has given up, or the device refuses.
    pub fn accept(&self, terms: &Terms) -> Result<(), Error> {
        let mut raw = terms.raw();
        // SAFETY: the terms and their private data are read during the call.
        checked("rdma_accept", unsafe { (self.functions().accept)(self.raw.as_ptr(), &mut raw) })
    }

    /// Refuses a request. That the peer may have given up meanwhile is no failure.
    pub fn reject(self, private_data: &[u8]) {
        let bytes = u8::try_from(private_data.len()).expect("private data of at most 255 bytes");
        // SAFETY: the private data are read during the call.
        unsafe { (self.functions().reject)(self.raw.as_ptr(), private_data.as_ptr().cast(), bytes) };
    }

    /// Ends a connection: the peer hears of it after all that was sent.
    pub fn disconnect(&self) {
        // SAFETY: the conversation lives. A connection that has ended already refuses, which is as good.
        unsafe { (self.functions().disconnect)(self.raw.as_ptr()) };
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; every event of it has been acknowledged.
        unsafe { (self.functions().destroy_id)(self.raw.as_ptr()) };
    }
}

/// Of the addresses of this host those that the system has `device` for.
///
/// # Errors
/// Words: why none, and which device has them instead.
pub fn addresses_of(device: &str, of_host: &[IpAddr]) -> Result<Vec<IpAddr>, String> {
    let happenings = Happenings::new()?;
    let tied = |&ip: &IpAddr| Conversation::at(&happenings, ip).ok().and_then(|conversation| Some((ip, conversation.device()?)));
    let all: Vec<(IpAddr, String)> = of_host.iter().filter_map(tied).collect();
    let own: Vec<IpAddr> = all.iter().filter(|(_, name)| name == device).map(|&(ip, _)| ip).collect();
    if !own.is_empty() {
        return Ok(own);
    }
    let others: Vec<String> = all.iter().map(|(ip, name)| format!("{ip} belongs to {name}")).collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    Err(format!("no IP address of this host leads to it{others}: give its network interface one that no other device has (ip addr add)"))
}
