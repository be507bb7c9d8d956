//! What does a C program see? Conversion and checks of arguments; everything else is below.
//!
//! Pointers that a function must have are refused when they are null. Handles are looked up. Everything that a pointer leads to is read once.

#![allow(non_snake_case)]

use crate::connect::{self, wire::Address, wire::DISCRIMINATOR_BYTES_MAX, wire::HOST_BYTES};
use crate::descriptor::Side;
use crate::nic::{self, ErrorEvent, Nic};
use crate::queue;
use crate::region::{Attributes, REGIONS_MAX};
use crate::segment::BYTES_MAX;
use crate::status::{Refusal, Result};
use crate::sys::UserRange;
use crate::vi::{self, State, VIS_MAX, Vi, ViAttributes, ViNotify};
use crate::{handed, names, wait};
use libc::{c_char, c_int, c_ulong, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Handle = *mut c_void;

/// As in the header.
#[repr(C)]
pub struct NetAddress {
    host_bytes: u16,
    discriminator_bytes: u16,
    bytes: [u8; 1],
}

#[repr(C)]
pub struct CViAttributes {
    level: u16,
    max_transfer: c_ulong,
    qos: *mut c_void,
    ptag: Handle,
    write: c_int,
    read: c_int,
}

#[repr(C)]
pub struct CMemAttributes {
    ptag: Handle,
    write: c_int,
    read: c_int,
}

#[repr(C)]
pub struct CNicAttributes {
    name: [u8; 64],
    hardware_version: c_ulong,
    provider_version: c_ulong,
    address_bytes: u16,
    address: *const u8,
    thread_safe: c_int,
    discriminator_bytes_max: u16,
    register_bytes_max: c_ulong,
    regions_max: c_ulong,
    region_bytes_max: c_ulong,
    vis_max: c_ulong,
    descriptors_max: c_ulong,
    segments_max: c_ulong,
    cqs_max: c_ulong,
    cq_entries_max: c_ulong,
    transfer_max: c_ulong,
    native_mtu: c_ulong,
    ptags_max: c_ulong,
    levels: u16,
    read_levels: u16,
}

#[repr(C)]
pub struct CErrorDescriptor {
    nic: Handle,
    vi: Handle,
    cq: Handle,
    descriptor: *mut c_void,
    op: c_ulong,
    resource: c_int,
    code: c_int,
}

#[repr(C)]
pub struct CAutodiscovery {
    hops: c_ulong,
    addresses: *mut *mut NetAddress,
    count: c_ulong,
}

#[repr(C)]
pub struct CCounters {
    words: [u64; 5],
}

type ViCallback = unsafe extern "C" fn(*mut c_void, Handle, Handle, *mut c_void);
type CqCallback = unsafe extern "C" fn(*mut c_void, Handle, Handle, c_int);
type ErrorCallback = unsafe extern "C" fn(*mut c_void, *mut CErrorDescriptor);

fn pointer(handle: u64) -> *mut c_void {
    handle as usize as *mut c_void
}

fn word(handle: Handle) -> u64 {
    handle as usize as u64
}

/// The program's context, which only the program's handler looks into.
struct Context(*mut c_void);
// SAFETY: never dereferenced here; the program says which thread may use it by registering a handler.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

#[inline]
fn code<T>(result: Result<T>) -> c_int {
    match result {
        Ok(_) => 0,
        Err(refusal) => refusal as i32,
    }
}

/// Writes a result where the program wants it.
///
/// # Safety
/// `to` must be null or writable.
unsafe fn put<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(Refusal::InvalidParameter);
    }
    to.write(value);
    Ok(())
}

fn need<T>(pointer: *const T) -> Result<()> {
    if pointer.is_null() { Err(Refusal::InvalidParameter) } else { Ok(()) }
}

/// # Safety
/// `address` must be null or a network address with as many bytes as it says.
unsafe fn address(address: *const NetAddress) -> Result<Address> {
    need(address)?;
    let (host, rest) = ((*address).host_bytes as usize, (*address).discriminator_bytes as usize);
    if host != HOST_BYTES || rest > DISCRIMINATOR_BYTES_MAX {
        return Err(Refusal::InvalidParameter);
    }
    let bytes = std::slice::from_raw_parts(std::ptr::addr_of!((*address).bytes).cast::<u8>(), host + rest);
    Ok(Address { host: bytes[..host].try_into().expect("six bytes"), discriminator: bytes[host..].to_vec() })
}

/// # Safety
/// `to` must be null or a network address with room for as many bytes as it says, and for six more.
unsafe fn put_address(to: *mut NetAddress, from: &Address) -> Result<()> {
    need(to)?;
    let bytes = std::ptr::addr_of_mut!((*to).bytes).cast::<u8>();
    std::ptr::copy_nonoverlapping(from.host.as_ptr(), bytes, HOST_BYTES);
    std::ptr::copy_nonoverlapping(from.discriminator.as_ptr(), bytes.add(HOST_BYTES), from.discriminator.len());
    ((*to).host_bytes, (*to).discriminator_bytes) = (HOST_BYTES as u16, from.discriminator.len() as u16);
    Ok(())
}

/// # Safety
/// `attributes` must be null or readable.
unsafe fn vi_attributes(nic: &Nic, attributes: *const CViAttributes) -> Result<ViAttributes> {
    need(attributes)?;
    let it = &*attributes;
    let (level, max_transfer, qos) = (it.level, it.max_transfer, it.qos as u64);
    let ptag = nic.ptag(word(it.ptag)).ok().map(|it| it.0);
    Ok(ViAttributes { level, max_transfer, qos, ptag, write: it.write != 0, read: it.read != 0 })
}

fn c_vi_attributes(it: &ViAttributes) -> CViAttributes {
    let ptag = it.ptag.map_or(std::ptr::null_mut(), |key| pointer(key.handle(crate::handles::Kind::Ptag)));
    CViAttributes { level: it.level, max_transfer: it.max_transfer, qos: it.qos as *mut c_void, ptag, write: it.write as c_int, read: it.read as c_int }
}

/// # Safety
/// `attributes` must be null or readable.
unsafe fn mem_attributes(nic: &Nic, attributes: *const CMemAttributes) -> Result<Attributes> {
    need(attributes)?;
    let it = &*attributes;
    Ok(Attributes { ptag: nic.ptag(word(it.ptag))?.1, write: it.write != 0, read: it.read != 0 })
}

/// The NIC of a VI.
fn nic_of(vi: &Vi, generation: u32) -> Result<Arc<Nic>> {
    Ok(vi.admin(generation)?.owner.as_ref().ok_or(Refusal::InvalidParameter)?.nic.clone())
}

/// Defines an entry point whose body gives a result.
macro_rules! entry {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers must be null, or lead to what the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            #[inline(always)]
            unsafe fn body($($argument: $type),*) -> Result<()> $body
            code(body($($argument),*))
        }
    )*};
}

entry! {
    /// Opens the NIC of a device: `shm`, `shm:ADDRESS` or `file:PATH`.
    VipOpenNic(device: *const c_char, handle: *mut Handle) {
        need(device)?;
        need(handle)?;
        let name = std::ffi::CStr::from_ptr(device).to_str().map_err(|_| Refusal::InvalidParameter)?;
        put(handle, pointer(Nic::open(name)?))
    }

    /// Closes a NIC of which nothing is left.
    VipCloseNic(handle: Handle) { Nic::close(word(handle)) }

    /// Limits and address of a NIC.
    VipQueryNic(handle: Handle, attributes: *mut CNicAttributes) {
        let nic = nic::find(word(handle))?;
        let mut name = [0; 64];
        let text = nic.name.as_bytes();
        let length = text.len().min(63);
        name[..length].copy_from_slice(&text[..length]);
        put(attributes, CNicAttributes {
            name,
            hardware_version: 1,
            provider_version: 1,
            address_bytes: HOST_BYTES as u16,
            address: nic.address.as_ptr(),
            thread_safe: 1,
            discriminator_bytes_max: DISCRIMINATOR_BYTES_MAX as u16,
            register_bytes_max: REGIONS_MAX as u64 * BYTES_MAX,
            regions_max: REGIONS_MAX as u64,
            region_bytes_max: BYTES_MAX,
            vis_max: VIS_MAX as u64,
            descriptors_max: handed::ENTRIES as u64,
            segments_max: handed::PIECES_MAX as u64,
            cqs_max: nic::CQS_MAX as u64,
            cq_entries_max: queue::ENTRIES_MAX,
            transfer_max: nic::TRANSFER_BYTES_MAX,
            native_mtu: nic::TRANSFER_BYTES_MAX,
            ptags_max: nic::PTAGS_MAX as u64,
            levels: vi::UNRELIABLE | vi::RELIABLE_DELIVERY | vi::RELIABLE_RECEPTION,
            read_levels: vi::RELIABLE_DELIVERY | vi::RELIABLE_RECEPTION,
        })
    }

    /// Creates an idle VI.
    VipCreateVi(nic: Handle, attributes: *const CViAttributes, send_cq: Handle, recv_cq: Handle, handle: *mut Handle) {
        need(handle)?;
        let nic = nic::find(word(nic))?;
        let attributes = vi_attributes(&nic, attributes)?;
        let cq = |handle: Handle| -> Result<Option<&'static queue::Cq>> {
            if handle.is_null() {
                return Ok(None);
            }
            let (cq, generation) = queue::find(word(handle))?;
            if !Arc::ptr_eq(&cq.nic(generation)?, &nic) {
                return Err(Refusal::InvalidParameter);
            }
            Ok(Some(cq))
        };
        let vi = Vi::create(&nic, attributes, cq(send_cq)?, cq(recv_cq)?)?;
        put(handle, pointer(vi.handle()))
    }

    /// Destroys an idle VI with empty queues.
    VipDestroyVi(handle: Handle) {
        let (vi, generation) = vi::find(word(handle))?;
        vi.destroy(generation)
    }

    /// Changes the attributes of an idle VI.
    VipSetViAttributes(handle: Handle, attributes: *const CViAttributes) {
        let (vi, generation) = vi::find(word(handle))?;
        let attributes = vi_attributes(&*nic_of(vi, generation)?, attributes)?;
        vi.set_attributes(generation, attributes)
    }

    /// State and attributes of a VI, and whether its queues are empty.
    VipQueryVi(handle: Handle, state: *mut c_int, attributes: *mut CViAttributes, send_empty: *mut c_int, recv_empty: *mut c_int) {
        let (vi, generation) = vi::find(word(handle))?;
        let it = vi.admin(generation)?.attributes.ok_or(Refusal::InvalidParameter)?;
        for pointer in [state, send_empty, recv_empty] {
            need(pointer)?;
        }
        put(attributes, c_vi_attributes(&it))?;
        put(state, vi.state() as c_int)?;
        put(send_empty, vi.send.with(|side| side.is_empty()) as c_int)?;
        put(recv_empty, vi.recv.with(|side| side.is_empty()) as c_int)
    }

    /// Makes a protection tag.
    VipCreatePtag(nic: Handle, ptag: *mut Handle) {
        need(ptag)?;
        put(ptag, pointer(nic::find(word(nic))?.create_ptag()?))
    }

    /// Destroys a protection tag that nothing has.
    VipDestroyPtag(nic: Handle, ptag: Handle) { nic::find(word(nic))?.destroy_ptag(word(ptag)) }

    /// Registers memory of the program.
    VipRegisterMem(nic: Handle, start: *mut c_void, bytes: c_ulong, attributes: *const CMemAttributes, handle: *mut u32) {
        need(handle)?;
        let nic = nic::find(word(nic))?;
        let attributes = mem_attributes(&nic, attributes)?;
        if (start as u64).checked_add(bytes).is_none() {
            return Err(Refusal::InvalidParameter);
        }
        put(handle, nic.register(UserRange::promised(start as u64, bytes), attributes)?)
    }

    /// Ends a registration.
    VipDeregisterMem(nic: Handle, start: *mut c_void, handle: u32) { nic::find(word(nic))?.deregister(start as u64, handle, false) }

    /// Changes tag and RDMA attributes of registered memory.
    VipSetMemAttributes(nic: Handle, start: *mut c_void, handle: u32, attributes: *const CMemAttributes) {
        let nic = nic::find(word(nic))?;
        let attributes = mem_attributes(&nic, attributes)?;
        nic.set_region(start as u64, handle, attributes)
    }

    /// Tag and RDMA attributes of registered memory.
    VipQueryMem(nic: Handle, start: *mut c_void, handle: u32, attributes: *mut CMemAttributes) {
        let (it, ptag, _) = nic::find(word(nic))?.query_region(start as u64, handle)?;
        put(attributes, CMemAttributes { ptag: pointer(ptag), write: it.write as c_int, read: it.read as c_int })
    }

    /// Allocates memory that peers map, and registers it.
    VipxAllocMem(nic: Handle, bytes: c_ulong, attributes: *const CMemAttributes, start: *mut *mut c_void, handle: *mut u32) {
        need(start)?;
        need(handle)?;
        let nic = nic::find(word(nic))?;
        let attributes = mem_attributes(&nic, attributes)?;
        let (at, region) = nic.allocate(bytes, attributes)?;
        put(start, at as usize as *mut c_void)?;
        put(handle, region)
    }

    /// Gives memory of [`VipxAllocMem`] back.
    VipxFreeMem(nic: Handle, start: *mut c_void, handle: u32) { nic::find(word(nic))?.deregister(start as u64, handle, true) }

    /// How peers reach registered memory.
    VipxQueryMemKind(nic: Handle, start: *mut c_void, handle: u32, kind: *mut c_int) {
        let (_, _, it) = nic::find(word(nic))?.query_region(start as u64, handle)?;
        put(kind, it)
    }

    /// Posts a descriptor to the send queue.
    VipPostSend(handle: Handle, descriptor: *mut c_void, memory: u32) {
        let (vi, generation) = vi::find(word(handle))?;
        vi.post_send(generation, descriptor as u64, memory)
    }

    /// Posts a descriptor to the receive queue.
    VipPostRecv(handle: Handle, descriptor: *mut c_void, memory: u32) {
        let (vi, generation) = vi::find(word(handle))?;
        vi.post_recv(generation, descriptor as u64, memory)
    }

    /// Takes a completed descriptor from the send queue.
    VipSendDone(handle: Handle, descriptor: *mut *mut c_void) { done(handle, descriptor, Vi::send_done) }

    /// Takes a completed descriptor from the receive queue.
    VipRecvDone(handle: Handle, descriptor: *mut *mut c_void) { done(handle, descriptor, Vi::recv_done) }

    /// As [`VipSendDone`], and waits.
    VipSendWait(handle: Handle, timeout_ms: c_ulong, descriptor: *mut *mut c_void) {
        done_in_time(handle, timeout_ms, descriptor, Side::Send, Vi::send_done)
    }

    /// As [`VipRecvDone`], and waits.
    VipRecvWait(handle: Handle, timeout_ms: c_ulong, descriptor: *mut *mut c_void) {
        done_in_time(handle, timeout_ms, descriptor, Side::Receive, Vi::recv_done)
    }

    /// Has a handler called when the next send descriptor completes.
    VipSendNotify(handle: Handle, context: *mut c_void, handler: Option<ViCallback>) { notify(handle, context, handler, Side::Send) }

    /// Has a handler called when the next receive descriptor completes.
    VipRecvNotify(handle: Handle, context: *mut c_void, handler: Option<ViCallback>) { notify(handle, context, handler, Side::Receive) }

    /// Creates a completion queue.
    VipCreateCQ(nic: Handle, entries: c_ulong, handle: *mut Handle) {
        need(handle)?;
        put(handle, pointer(queue::Cq::create(&nic::find(word(nic))?, entries)?))
    }

    /// Destroys a completion queue that no VI has.
    VipDestroyCQ(handle: Handle) {
        let (cq, generation) = queue::find(word(handle))?;
        cq.destroy(generation)
    }

    /// Changes how many entries a completion queue holds.
    VipResizeCQ(handle: Handle, entries: c_ulong) {
        let (cq, generation) = queue::find(word(handle))?;
        cq.resize(generation, entries)
    }

    /// Takes the oldest entry of a completion queue.
    VipCQDone(handle: Handle, vi: *mut Handle, receive: *mut c_int) {
        let (cq, generation) = queue::find(word(handle))?;
        need(vi)?;
        need(receive)?;
        put_entry(cq.done(generation)?, vi, receive)
    }

    /// As [`VipCQDone`], and waits.
    VipCQWait(handle: Handle, timeout_ms: c_ulong, vi: *mut Handle, receive: *mut c_int) {
        let (cq, generation) = queue::find(word(handle))?;
        need(vi)?;
        need(receive)?;
        let nic = cq.nic(generation)?;
        put_entry(wait::until(&nic, timeout_ms, || cq.done(generation))?, vi, receive)
    }

    /// Has a handler called for the next entry of a completion queue.
    VipCQNotify(handle: Handle, context: *mut c_void, handler: Option<CqCallback>) {
        let (cq, generation) = queue::find(word(handle))?;
        let handler = handler.ok_or(Refusal::InvalidParameter)?;
        let context = Context(context);
        cq.notify(generation, Box::new(move |nic, vi, receive| {
            // SAFETY: the program's handler, called as it asked for.
            unsafe { handler(context.get(), pointer(nic), pointer(vi), receive as c_int) }
        }))
    }

    /// Waits for a client's request.
    VipConnectWait(nic: Handle, local: *const NetAddress, timeout_ms: c_ulong, remote: *mut NetAddress, attributes: *mut CViAttributes, handle: *mut Handle) {
        for pointer in [remote.cast::<u8>(), attributes.cast(), handle.cast()] {
            need(pointer)?;
        }
        let nic = nic::find(word(nic))?;
        let (request, from, offered) = connect::wait(&nic, address(local)?, timeout_ms)?;
        put_address(remote, &from)?;
        put(attributes, c_vi_attributes(&offered))?;
        put(handle, pointer(request))
    }

    /// Connects a request to a VI.
    VipConnectAccept(handle: Handle, vi: Handle) {
        let (vi, generation) = vi::find(word(vi))?;
        connect::accept(word(handle), vi, generation)
    }

    /// Refuses a request.
    VipConnectReject(handle: Handle) { connect::reject(word(handle)) }

    /// A client's request.
    VipConnectRequest(vi: Handle, local: *const NetAddress, remote: *const NetAddress, timeout_ms: c_ulong, attributes: *mut CViAttributes) {
        let (vi, generation) = vi::find(word(vi))?;
        need(attributes)?;
        put(attributes, c_vi_attributes(&connect::request(vi, generation, address(local)?, address(remote)?, timeout_ms)?))
    }

    /// Ends a connection or an attempt; what is queued is flushed.
    VipDisconnect(vi: Handle) {
        let (vi, generation) = vi::find(word(vi))?;
        vi.disconnect(generation)
    }

    /// A peer's request; it is answered in the background.
    VipConnectPeerRequest(vi: Handle, local: *const NetAddress, remote: *const NetAddress, timeout_ms: c_ulong) {
        let (vi, generation) = vi::find(word(vi))?;
        connect::peer_request(vi, generation, address(local)?, address(remote)?, timeout_ms)
    }

    /// Whether a peer's request has been answered.
    VipConnectPeerDone(vi: Handle, attributes: *mut CViAttributes) {
        let (vi, generation) = vi::find(word(vi))?;
        need(attributes)?;
        put(attributes, c_vi_attributes(&connect::peer_done(vi, generation)?))
    }

    /// Waits until a peer's request has been answered.
    VipConnectPeerWait(vi: Handle, attributes: *mut CViAttributes) {
        let (vi, generation) = vi::find(word(vi))?;
        need(attributes)?;
        put(attributes, c_vi_attributes(&connect::peer_wait(vi, generation)?))
    }

    /// Begins name service.
    VipNSInit(nic: Handle, _info: *mut c_void) {
        nic::find(word(nic))?.names.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The address of a name.
    VipNSGetHostByName(nic: Handle, name: *const c_char, to: *mut NetAddress, index: c_ulong) {
        serves_names(&*nic::find(word(nic))?)?;
        need(name)?;
        let name = std::ffi::CStr::from_ptr(name).to_str().map_err(|_| Refusal::NameService)?;
        put_host(to, names::resolve(name, index)?)
    }

    /// The name of an address; `length` is the room, then the name's length with its end.
    VipNSGetHostByAddr(nic: Handle, from: *const NetAddress, name: *mut c_char, length: *mut c_ulong) {
        serves_names(&*nic::find(word(nic))?)?;
        need(name)?;
        need(length)?;
        let text = names::name_of(&address(from)?.host);
        let room = *length;
        put(length, text.len() as u64 + 1)?;
        if room <= text.len() as u64 {
            return Err(Refusal::Resource);
        }
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len());
        name.add(text.len()).write(0);
        Ok(())
    }

    /// Ends name service.
    VipNSShutdown(nic: Handle) {
        let nic = nic::find(word(nic))?;
        serves_names(&nic)?;
        nic.names.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Has a handler called for asynchronous errors; null: none.
    VipErrorCallback(nic: Handle, context: *mut c_void, handler: Option<ErrorCallback>) {
        let nic = nic::find(word(nic))?;
        let context = Context(context);
        nic.set_handler(handler.map(|handler| -> nic::ErrorHandler {
            Arc::new(move |nic, event: &ErrorEvent| {
                let mut error = CErrorDescriptor {
                    nic: pointer(nic),
                    vi: pointer(event.vi),
                    cq: pointer(event.cq),
                    descriptor: pointer(event.descriptor),
                    op: event.op as c_ulong,
                    resource: event.resource as c_int,
                    code: event.code as c_int,
                };
                // SAFETY: the program's handler, called as it asked for.
                unsafe { handler(context.get(), &mut error) }
            })
        }));
        Ok(())
    }

    /// Addresses that can be reached: this NIC's own.
    VipQuerySystemManagementInfo(nic: Handle, kind: c_ulong, info: *mut c_void) {
        let nic = nic::find(word(nic))?;
        need(info)?;
        if kind != 1 {
            return Err(Refusal::InvalidParameter);
        }
        let list = &mut *info.cast::<CAutodiscovery>();
        let room = list.count;
        (list.hops, list.count) = (0, 1);
        if room == 0 {
            return Err(Refusal::Resource);
        }
        need(list.addresses)?;
        put_host(*list.addresses, nic.address)
    }

    /// How many receive descriptors a sender takes over at a time.
    VipxSetBatch(vi: Handle, count: c_ulong) {
        let (vi, generation) = vi::find(word(vi))?;
        if count == 0 || count > handed::BATCH_MAX as u64 {
            return Err(Refusal::InvalidParameter);
        }
        vi.send.with(|side| side.check(generation).map(|()| side.set_batch(count as u32)))
    }

    /// What a VI has done.
    VipxQueryCounters(vi: Handle, counters: *mut CCounters) {
        let (vi, generation) = vi::find(word(vi))?;
        let (counts, placed) = vi.send.with(|side| side.check(generation).map(|()| side.counters()))?;
        let copied = vi.recv.with(|side| side.copied_bytes());
        put(counters, CCounters { words: [counts.uses, counts.found, counts.batches, placed, copied] })
    }
}

/// Takes a completed descriptor with `take`; there is none where the queue is empty.
///
/// # Safety
/// `descriptor` must be null or writable.
#[inline(always)]
unsafe fn done(handle: Handle, descriptor: *mut *mut c_void, take: impl Fn(&'static Vi, u32) -> Result<(u64, bool)>) -> Result<()> {
    let (vi, generation) = vi::find(word(handle))?;
    need(descriptor)?;
    completed(take(vi, generation), descriptor)
}

/// As [`done`], and waits.
///
/// # Safety
/// As there.
unsafe fn done_in_time(
    handle: Handle,
    timeout_ms: c_ulong,
    descriptor: *mut *mut c_void,
    side: Side,
    take: impl Fn(&'static Vi, u32) -> Result<(u64, bool)>,
) -> Result<()> {
    let (vi, generation) = vi::find(word(handle))?;
    need(descriptor)?;
    vi.check_own_queue(generation, side)?;
    let nic = nic_of(vi, generation)?;
    completed(wait::until(&nic, timeout_ms, || take(vi, generation)), descriptor)
}

/// # Safety
/// `descriptor` must be writable.
#[inline(always)]
unsafe fn completed(found: Result<(u64, bool)>, descriptor: *mut *mut c_void) -> Result<()> {
    match found {
        Ok((address, failed)) => {
            descriptor.write(address as usize as *mut c_void);
            if failed { Err(Refusal::DescriptorError) } else { Ok(()) }
        }
        Err(refusal) => {
            if refusal == Refusal::DescriptorError {
                descriptor.write(std::ptr::null_mut());
            }
            Err(refusal)
        }
    }
}

/// Writes an entry of a completion queue: the VI, and whether it is the receive queue.
///
/// # Safety
/// `vi` and `receive` must be writable.
unsafe fn put_entry((which, of_receives): (u64, bool), vi: *mut Handle, receive: *mut c_int) -> Result<()> {
    put(vi, pointer(which))?;
    put(receive, of_receives as c_int)
}

/// Has a handler called when the next descriptor of a queue completes.
fn notify(handle: Handle, context: *mut c_void, handler: Option<ViCallback>, side: Side) -> Result<()> {
    let (vi, generation) = vi::find(word(handle))?;
    let nic = nic_of(vi, generation)?;
    vi.notify(generation, side, vi_handler(context, handler)?, || {
        nic.notifies.fetch_add(1, Ordering::SeqCst);
    })?;
    nic.board.wake_own(true);
    Ok(())
}

fn vi_handler(context: *mut c_void, handler: Option<ViCallback>) -> Result<ViNotify> {
    let handler = handler.ok_or(Refusal::InvalidParameter)?;
    let context = Context(context);
    Ok(Box::new(move |nic, vi, descriptor| {
        // SAFETY: the program's handler, called as it asked for.
        unsafe { handler(context.get(), pointer(nic), pointer(vi), pointer(descriptor)) }
    }))
}

fn serves_names(nic: &Nic) -> Result<()> {
    if nic.names.load(Ordering::Relaxed) { Ok(()) } else { Err(Refusal::NameService) }
}

/// Writes a host's address; a discriminator behind it stays if the address has one.
///
/// # Safety
/// `to` must be null or a network address with room for six bytes.
unsafe fn put_host(to: *mut NetAddress, host: [u8; HOST_BYTES]) -> Result<()> {
    need(to)?;
    let bytes = std::ptr::addr_of_mut!((*to).bytes).cast::<u8>();
    std::ptr::copy_nonoverlapping(host.as_ptr(), bytes, HOST_BYTES);
    (*to).host_bytes = HOST_BYTES as u16;
    Ok(())
}

/// The state values are the header's.
const _: () = assert!(State::Idle as u8 == 0 && State::Connected as u8 == 1 && State::Pending as u8 == 2 && State::Error as u8 == 3);
