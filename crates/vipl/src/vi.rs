//! A virtual interface: its two queues, its state, and how a connection begins and ends.
//!
//! Locks are taken in this order: administration, send side, receive side, completion queue. None is held while the program's code runs.

use crate::board::PeerBoard;
use crate::channel::{Channel, Kind, PeerChannel, head};
use crate::descriptor::Side;
use crate::handles::{self, Key};
use crate::nic::{ErrorEvent, Nic};
use crate::queue::Cq;
use crate::receive::RecvSide;
use crate::region::Attributes;
use crate::send::SendSide;
use crate::status::*;
use crate::sys::{Lock, push};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// VIs of a process.
pub const VIS_MAX: usize = 1024;

pub const UNRELIABLE: u16 = 1;
pub const RELIABLE_DELIVERY: u16 = 2;
pub const RELIABLE_RECEPTION: u16 = 4;

/// Values of `VIP_VI_STATE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    Idle = 0,
    Connected = 1,
    Pending = 2,
    Error = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViAttributes {
    pub level: u16,
    pub max_transfer: u64,
    pub qos: u64,
    pub ptag: Option<Key>,
    pub write: bool,
    pub read: bool,
}

/// What both queues must know of the VI.
#[derive(Clone)]
pub struct Owner {
    pub nic: Arc<Nic>,
    pub generation: u32,
    pub ptag: u32,
    pub level: u16,
    pub max_transfer: u64,
    pub write: bool,
    pub read: bool,
}

impl Owner {
    pub fn reliable(&self) -> bool {
        self.level != UNRELIABLE
    }
}

/// A handler that is called once when a descriptor completes: NIC, VI, descriptor.
pub type ViNotify = Box<dyn FnOnce(u64, u64, u64) + Send>;

/// What is seldom asked.
#[derive(Default)]
pub struct Admin {
    pub owner: Option<Owner>,
    pub attributes: Option<ViAttributes>,
    pub send_cq: Option<&'static Cq>,
    pub recv_cq: Option<&'static Cq>,
    pub socket: Option<TcpStream>,
    /// The peer's attributes, or why there is no connection.
    pub peer: Option<Arc<crate::connect::PeerAttempt>>,
}

pub struct Vi {
    pub index: u32,
    generation: AtomicU32,
    state: AtomicU8,
    /// Which connection this is, of all that this process has made.
    pub connection: AtomicU64,
    /// Receive descriptors of the peer, as told with its last message.
    pub told: AtomicU64,
    /// RDMA reads through the peer's shadow segments that are done.
    pub reads: AtomicU64,
    /// Where the next line to the peer goes: asked for when a message comes, since its answer often follows, and the peer, which polls that
    /// line, has it.
    pub next_line: AtomicUsize,
    pub send: Lock<SendSide>,
    pub recv: Lock<RecvSide>,
    admin: Mutex<Admin>,
}

static VIS: LazyLock<Box<[Vi]>> = LazyLock::new(|| {
    (0..VIS_MAX as u32)
        .map(|index| Vi {
            index,
            generation: AtomicU32::new(0),
            state: AtomicU8::new(0),
            connection: AtomicU64::new(0),
            told: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            next_line: AtomicUsize::new(0),
            send: Lock::new(SendSide::default()),
            recv: Lock::new(RecvSide::default()),
            admin: Mutex::default(),
        })
        .collect()
});
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// The VI of a handle. The caller checks the generation under the lock that it takes.
#[inline]
pub fn find(handle: u64) -> Result<(&'static Vi, u32)> {
    let key = Key::of(handle, handles::Kind::Vi).ok_or(Refusal::InvalidParameter)?;
    let vi = VIS.get(key.index as usize).ok_or(Refusal::InvalidParameter)?;
    Ok((vi, key.generation))
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    pub code: ErrorCode,
    pub resource: Resource,
    /// Address of the descriptor that is the cause, or 0.
    pub descriptor: u64,
    pub op: u32,
    /// The peer does not know yet.
    pub tell: bool,
    /// What sends that wait for the peer end with.
    pub unfinished: u32,
}

impl Ending {
    pub fn lost() -> Ending {
        Ending { code: ErrorCode::ConnectionLost, resource: Resource::Vi, descriptor: 0, op: 0, tell: false, unfinished: TRANSPORT_ERROR }
    }

    pub fn of(code: ErrorCode, descriptor: u64, op: u32, tell: bool) -> Ending {
        Ending { code, descriptor, op, tell, resource: Resource::Descriptor, ..Ending::lost() }
    }
}

/// Does the same with either queue of a VI, under its lock.
macro_rules! with_queue {
    ($vi:expr, $side:expr, $queue:ident, $what:expr) => {
        match $side {
            Side::Send => $vi.send.with(|$queue| $what),
            Side::Receive => $vi.recv.with(|$queue| $what),
        }
    };
}

fn own_queue(known: Result<()>, on_cq: bool) -> Result<()> {
    known?;
    if on_cq { Err(Refusal::Resource) } else { Ok(()) }
}

impl Vi {
    #[inline]
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Idle,
            1 => State::Connected,
            2 => State::Pending,
            _ => State::Error,
        }
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub fn handle(&self) -> u64 {
        Key { index: self.index, generation: self.generation.load(Ordering::Relaxed) }.handle(handles::Kind::Vi)
    }

    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The administration, if the VI is still the one that is meant.
    pub fn admin(&self, generation: u32) -> Result<MutexGuard<'_, Admin>> {
        let admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        match &admin.owner {
            Some(owner) if owner.generation == generation => Ok(admin),
            _ => Err(Refusal::InvalidParameter),
        }
    }

    /// Takes a VI out of the pool.
    pub fn create(nic: &Arc<Nic>, attributes: ViAttributes, send_cq: Option<&'static Cq>, recv_cq: Option<&'static Cq>) -> Result<&'static Vi> {
        let ptag = nic.check_vi(&attributes)?;
        for vi in VIS.iter() {
            let mut admin = vi.admin.lock().unwrap_or_else(PoisonError::into_inner);
            if admin.owner.is_some() {
                continue;
            }
            let generation = vi.generation.load(Ordering::Relaxed).wrapping_add(1).max(1);
            let owner = Owner {
                nic: nic.clone(),
                generation,
                ptag,
                level: attributes.level,
                max_transfer: attributes.max_transfer,
                write: attributes.write,
                read: attributes.read,
            };
            vi.generation.store(generation, Ordering::Relaxed);
            vi.set_state(State::Idle);
            vi.send.with(|side| *side = SendSide::new(owner.clone(), send_cq));
            vi.recv.with(|side| *side = RecvSide::new(owner.clone(), recv_cq));
            *admin = Admin { owner: Some(owner), attributes: Some(attributes), send_cq, recv_cq, ..Admin::default() };
            drop(admin);
            nic.add_vi(vi);
            for (cq, receive) in [(send_cq, false), (recv_cq, true)] {
                if let Some(cq) = cq {
                    cq.join(vi, generation, receive);
                }
            }
            return Ok(vi);
        }
        Err(Refusal::Resource)
    }

    /// Gives the VI back: it must be idle, and its queues empty.
    pub fn destroy(&'static self, generation: u32) -> Result<()> {
        let mut admin = self.admin(generation)?;
        let empty = self.send.with(|side| side.is_empty()) && self.recv.with(|side| side.is_empty());
        if self.state() != State::Idle || !empty {
            return Err(Refusal::Resource);
        }
        let gone = std::mem::take(&mut *admin);
        let sides = (self.send.with(std::mem::take), self.recv.with(std::mem::take));
        drop(admin);
        drop(sides);
        for cq in [gone.send_cq, gone.recv_cq].into_iter().flatten() {
            cq.leave(self, generation);
        }
        if let Some(owner) = gone.owner {
            owner.nic.remove_vi(self);
        }
        Ok(())
    }

    /// Changes the attributes of an idle VI.
    pub fn set_attributes(&self, generation: u32, attributes: ViAttributes) -> Result<()> {
        let nic = self.admin(generation)?.owner.as_ref().expect("checked by admin").nic.clone();
        // Not under the lock: tags are looked up under one that comes before it.
        let ptag = nic.check_vi(&attributes)?;
        let mut admin = self.admin(generation)?;
        if self.state() != State::Idle {
            return Err(Refusal::InvalidState);
        }
        let owner = admin.owner.as_mut().expect("checked by admin");
        owner.ptag = ptag;
        (owner.level, owner.max_transfer) = (attributes.level, attributes.max_transfer);
        (owner.write, owner.read) = (attributes.write, attributes.read);
        let owner = owner.clone();
        self.send.with(|side| side.set_owner(owner.clone()));
        self.recv.with(|side| side.set_owner(owner));
        admin.attributes = Some(attributes);
        Ok(())
    }

    /// Refuses a queue whose completions go to a completion queue.
    pub fn check_own_queue(&self, generation: u32, side: Side) -> Result<()> {
        with_queue!(self, side, queue, own_queue(queue.check(generation), queue.on_cq()))
    }

    /// Has a handler called when the next descriptor of a queue completes; `counted` is called if it will be.
    pub fn notify(&self, generation: u32, side: Side, handler: ViNotify, counted: impl FnOnce()) -> Result<()> {
        with_queue!(self, side, queue, {
            own_queue(queue.check(generation), queue.on_cq())?;
            counted();
            queue.notifies.push_back(handler);
            Ok(())
        })
    }

    /// Begins a connection: the VI's own segment is there, with the receive descriptors that have been posted.
    pub fn prepare(&self, generation: u32) -> Result<(Channel, ViAttributes)> {
        let admin = self.admin(generation)?;
        if self.state() != State::Idle {
            return Err(Refusal::InvalidState);
        }
        let (owner, attributes) = (admin.owner.as_ref().expect("checked by admin"), admin.attributes.expect("set with the owner"));
        let rights = Attributes { ptag: owner.ptag, write: owner.write, read: owner.read };
        let channel = Channel::new(&*owner.nic.provider, rights)?;
        self.told.store(0, Ordering::Relaxed);
        self.reads.store(0, Ordering::Relaxed);
        self.recv.with(|side| side.link(&channel))?;
        self.set_state(State::Pending);
        Ok((channel, attributes))
    }

    /// Undoes [`Vi::prepare`].
    pub fn cancel(&self, generation: u32) {
        if let Ok(_admin) = self.admin(generation)
            && self.state() == State::Pending
        {
            self.set_state(State::Idle);
            drop(self.recv.with(|side| side.unlink()));
        }
    }

    /// Completes a connection. From here on messages pass.
    pub fn connect(&'static self, generation: u32, channel: Channel, peer: PeerChannel, board: Arc<PeerBoard>, socket: TcpStream) -> Result<u64> {
        let mut admin = self.admin(generation)?;
        if self.state() != State::Pending {
            return Err(Refusal::InvalidState);
        }
        let posted = channel.posted()?;
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        self.connection.store(connection, Ordering::Relaxed);
        self.send.with(|side| side.link(channel, peer, board.clone(), posted));
        self.recv.with(|side| side.set_peer(board));
        admin.socket = Some(socket);
        self.set_state(State::Connected);
        Ok(connection)
    }

    /// Ends the connection with that number, if it is still there: flushes the queues and goes to `to`.
    pub fn end(&'static self, connection: u64, to: State, why: Ending) -> bool {
        // Held to the end, so that no new connection begins before the old one is gone.
        let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        let link = self.send.with(|side| {
            if self.state() != State::Connected || self.connection.load(Ordering::Relaxed) != connection {
                return None;
            }
            self.set_state(to);
            let mut link = side.unlink();
            if let (true, Some(link)) = (why.tell, &mut link) {
                // With a ring that is full the peer learns it from the socket.
                let _ = push(&mut link.peer.ring, [head(Kind::Over, false, 0), why.code as u64], &[]);
            }
            side.flush(self, why.unfinished);
            link
        });
        let Some(link) = link else { return false };
        link.board.signal(true, true);
        let (receiver, nic) = self.recv.with(|side| {
            side.flush(self);
            (side.unlink(), side.nic())
        });
        drop((link, receiver));
        if let Some(socket) = admin.socket.take() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        drop(admin);
        if let Some(nic) = nic {
            if to == State::Error {
                let (vi, cq) = (self.handle(), 0);
                nic.report(ErrorEvent { vi, cq, descriptor: why.descriptor, op: why.op, resource: why.resource, code: why.code });
            }
            nic.board.wake_own(true);
        }
        true
    }

    /// Ends any connection or attempt, and flushes what is queued.
    pub fn disconnect(&'static self, generation: u32) -> Result<()> {
        let attempt = self.admin(generation)?.peer.take();
        if let Some(attempt) = attempt {
            attempt.abandon();
        }
        let connection = self.connection.load(Ordering::Relaxed);
        let told = Ending { tell: true, ..Ending::lost() };
        if !self.end(connection, State::Idle, told) {
            let _admin = self.admin(generation)?;
            if self.state() == State::Pending && self.send.with(|side| side.linked()) {
                return Err(Refusal::InvalidState);
            }
            self.set_state(State::Idle);
            self.send.with(|side| side.flush(self, FLUSHED_ERROR));
            drop(self.recv.with(|side| {
                side.flush(self);
                side.unlink()
            }));
        }
        Ok(())
    }

    /// Does what there is to do without the program: takes what has come, goes on with sends. True: something was done.
    pub fn serve(&'static self) -> bool {
        let received = self.receive(usize::MAX);
        let sent = self.go_on();
        received | sent
    }
}

/// What has to be done after a queue's lock has been released. Nothing, nearly always: then this is a null pointer that stays in a register.
#[derive(Default)]
pub struct After(Option<Box<Aftermath>>);

#[derive(Default)]
struct Aftermath {
    ending: Option<Ending>,
    /// Numbers of RDMA reads to answer.
    replies: Vec<u64>,
}

impl After {
    /// The connection ends; the first reason counts.
    #[cold]
    pub fn end(&mut self, ending: Ending) {
        self.0.get_or_insert_default().ending.get_or_insert(ending);
    }

    /// An RDMA read is to be answered.
    #[cold]
    pub fn reply(&mut self, number: u64) {
        self.0.get_or_insert_default().replies.push(number);
    }

    #[inline]
    pub fn ending(&self) -> Option<Ending> {
        self.0.as_ref().and_then(|it| it.ending)
    }

    #[inline]
    pub fn settle(self, vi: &'static Vi, connection: u64) {
        if let Some(it) = self.0 {
            (*it).settle(vi, connection);
        }
    }
}

impl Aftermath {
    #[cold]
    fn settle(self, vi: &'static Vi, connection: u64) {
        if !self.replies.is_empty() {
            vi.reply(self.replies);
        }
        if let Some(ending) = self.ending {
            vi.end(connection, State::Error, ending);
        }
    }
}
