//! The two models of connection: client and server, and peer to peer.

use super::wire::{Address, Card, Frame, Offer};
use super::{Connector, PATIENCE, PORT_FIRST, PORTS, Request, Waiter, hear, limit, say};
use crate::channel::{Channel, PeerChannel};
use crate::handles::{self, Key};
use crate::nic::Nic;
use crate::status::{Refusal, Result};
use crate::vi::{Vi, ViAttributes};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two tries to reach a peer that has asked, too.
const LATER: Duration = Duration::from_millis(3);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn offer(attributes: &ViAttributes) -> Offer {
    Offer { level: attributes.level, max_transfer: attributes.max_transfer, qos: attributes.qos, write: attributes.write, read: attributes.read }
}

/// Attributes of the remote VI as the program is told; its tag is the remote's own.
fn remote(offer: &Offer) -> ViAttributes {
    ViAttributes { level: offer.level, max_transfer: offer.max_transfer, qos: offer.qos, ptag: None, write: offer.write, read: offer.read }
}

/// Whether two VIs can be connected: reliability level, longest transfer and quality of service must be the same.
fn agree(own: &ViAttributes, other: &Offer) -> Result<()> {
    match () {
        _ if own.level != other.level => Err(Refusal::InvalidReliabilityLevel),
        _ if own.max_transfer != other.max_transfer => Err(Refusal::InvalidMtu),
        _ if own.qos != other.qos => Err(Refusal::InvalidQos),
        _ => Ok(()),
    }
}

fn card(nic: &Nic, channel: &Channel) -> Card {
    Card { channel: channel.segment.locator, channel_nonce: channel.nonce, ..nic.card() }
}

/// Joins the VI with the peer of `card` and watches the socket.
fn join(nic: &Arc<Nic>, vi: &'static Vi, generation: u32, channel: Channel, card: &Card, socket: TcpStream) -> Result<()> {
    let board = nic.peer(card)?;
    let peer = PeerChannel::attach(&*nic.provider, card.pid, card.channel, card.channel_nonce)?;
    let watched = socket.try_clone().map_err(|_| Refusal::Resource)?;
    let connection = vi.connect(generation, channel, peer, board, socket)?;
    nic.connector.watch(watched, vi, connection);
    Ok(())
}

// ---- client and server

/// Waits for a request to `local`; gives the handle of the request, where it comes from, and what it offers.
pub fn wait(nic: &Arc<Nic>, local: Address, timeout_ms: u64) -> Result<(u64, Address, ViAttributes)> {
    if !local.means(&nic.address) {
        return Err(Refusal::InvalidParameter);
    }
    let until = limit(timeout_ms);
    let mut meeting = locked(&nic.connector.meeting);
    let number = Connector::number(&mut meeting);
    meeting.waiters.push(Waiter { number, discriminator: local.discriminator, request: None });
    loop {
        let at = meeting.waiters.iter().position(|it| it.number == number).ok_or(Refusal::Resource)?;
        if let Some(request) = meeting.waiters[at].request.take() {
            meeting.waiters.remove(at);
            let (from, attributes) = (request.from.clone(), remote(&request.offer));
            let key = locked(&nic.connector.requests).add((nic.clone(), request)).ok_or(Refusal::Resource)?;
            register(nic, key)?;
            return Ok((key.handle(handles::Kind::Connection), from, attributes));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || nic.closing() {
            meeting.waiters.remove(at);
            return Err(Refusal::Timeout);
        }
        meeting = nic.connector.changed.wait_timeout(meeting, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Handles of requests say nothing of their NIC: which one has it is looked up here.
static REQUESTS: Mutex<Vec<(Key, std::sync::Weak<Nic>)>> = Mutex::new(Vec::new());

fn register(nic: &Arc<Nic>, key: Key) -> Result<()> {
    let mut requests = locked(&REQUESTS);
    requests.retain(|(_, nic)| nic.strong_count() > 0);
    requests.push((key, Arc::downgrade(nic)));
    Ok(())
}

fn taken(handle: u64) -> Result<(Key, Arc<Nic>)> {
    let key = Key::of(handle, handles::Kind::Connection).ok_or(Refusal::InvalidParameter)?;
    let known = locked(&REQUESTS).iter().find(|it| it.0 == key).and_then(|it| it.1.upgrade());
    Ok((key, known.ok_or(Refusal::InvalidParameter)?))
}

fn finish(nic: &Nic, key: Key) -> Option<Request> {
    locked(&REQUESTS).retain(|it| it.0 != key);
    locked(&nic.connector.requests).remove(key).map(|it| it.1)
}

/// Connects a request to a VI. When attributes differ, the request stays, for another try.
pub fn accept(handle: u64, vi: &'static Vi, generation: u32) -> Result<()> {
    let (key, nic) = taken(handle)?;
    let attributes = vi.admin(generation)?.attributes.ok_or(Refusal::InvalidParameter)?;
    agree(&attributes, &locked(&nic.connector.requests).find(key).ok_or(Refusal::InvalidParameter)?.1.offer)?;
    if !Arc::ptr_eq(&nic, &vi.admin(generation)?.owner.as_ref().ok_or(Refusal::InvalidParameter)?.nic) {
        return Err(Refusal::InvalidParameter);
    }
    let (channel, attributes) = vi.prepare(generation)?;
    let Some(request) = finish(&nic, key) else {
        vi.cancel(generation);
        return Err(Refusal::InvalidParameter);
    };
    let done = establish(&nic, vi, generation, channel, &attributes, request);
    if done.is_err() {
        vi.cancel(generation);
    }
    done
}

/// Says yes to a request and waits until its sender has heard.
fn establish(nic: &Arc<Nic>, vi: &'static Vi, generation: u32, channel: Channel, attributes: &ViAttributes, mut request: Request) -> Result<()> {
    let answer = Frame::Accept { offer: offer(attributes), card: card(nic, &channel) };
    // A requester that has gone, or whose time was over, is a connection that came too late.
    say(&mut request.socket, &answer).map_err(|_| Refusal::Timeout)?;
    match hear(&mut request.socket, Instant::now() + PATIENCE) {
        Ok(Frame::Confirm) => join(nic, vi, generation, channel, &request.card, request.socket),
        _ => Err(Refusal::Timeout),
    }
}

pub fn reject(handle: u64) -> Result<()> {
    let (key, nic) = taken(handle)?;
    let mut request = finish(&nic, key).ok_or(Refusal::InvalidParameter)?;
    let _ = say(&mut request.socket, &Frame::Refuse { code: Refusal::Reject as i32 as u8 });
    Ok(())
}

/// The processes that an address may mean.
fn candidates(to: &Address) -> impl Iterator<Item = SocketAddrV4> + use<> {
    let ip = Ipv4Addr::new(to.host[0], to.host[1], to.host[2], to.host[3]);
    let port = u16::from_be_bytes([to.host[4], to.host[5]]);
    let ports = if port == 0 { PORT_FIRST..PORT_FIRST + PORTS } else { port..port + 1 };
    ports.map(move |port| SocketAddrV4::new(ip, port))
}

/// Asks all processes that `to` may mean; gives the first answer that is not "no match".
fn ask(to: &Address, frame: &Frame, until: Instant) -> Result<(TcpStream, Frame)> {
    let mut reached = false;
    for candidate in candidates(to) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Timeout);
        }
        let Ok(mut socket) = TcpStream::connect_timeout(&candidate.into(), left) else { continue };
        let _ = socket.set_nodelay(true);
        if say(&mut socket, frame).is_err() {
            continue;
        }
        match hear(&mut socket, until) {
            Ok(Frame::NoMatch) => reached = true,
            Ok(answer) => return Ok((socket, answer)),
            Err(Refusal::Timeout) => return Err(Refusal::Timeout),
            Err(_) => {}
        }
    }
    let _ = reached;
    Err(Refusal::NoMatch)
}

/// A client's request: returns when it is answered, or the time is over.
pub fn request(vi: &'static Vi, generation: u32, local: Address, to: Address, timeout_ms: u64) -> Result<ViAttributes> {
    if timeout_ms == 0 {
        return Err(Refusal::InvalidParameter);
    }
    let nic = vi.admin(generation)?.owner.as_ref().ok_or(Refusal::InvalidParameter)?.nic.clone();
    if !local.means(&nic.address) {
        return Err(Refusal::InvalidParameter);
    }
    let until = limit(timeout_ms);
    let (channel, attributes) = vi.prepare(generation)?;
    let from = Address { host: nic.address, ..local };
    let frame = Frame::Request { peer: false, offer: offer(&attributes), card: card(&nic, &channel), from, to: to.clone() };
    let done = ask(&to, &frame, until).and_then(|(socket, answer)| conclude(&nic, vi, generation, channel, socket, answer));
    if done.is_err() {
        vi.cancel(generation);
    }
    done
}

/// What an answer means to the requester.
fn conclude(nic: &Arc<Nic>, vi: &'static Vi, generation: u32, channel: Channel, mut socket: TcpStream, answer: Frame) -> Result<ViAttributes> {
    match answer {
        Frame::Accept { offer, card } => {
            // The peer counts the connection as made once it hears of it: everything that can fail comes before.
            nic.peer(&card)?;
            say(&mut socket, &Frame::Confirm)?;
            join(nic, vi, generation, channel, &card, socket)?;
            Ok(remote(&offer))
        }
        Frame::Refuse { code } => Err(Refusal::of(code).unwrap_or(Refusal::Reject)),
        _ => Err(Refusal::NotReachable),
    }
}

// ---- peer to peer

/// A peer's request that waits for its match.
pub struct Attempt {
    nic: Arc<Nic>,
    vi: &'static Vi,
    generation: u32,
    local: Address,
    to: Address,
    until: Instant,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// There while nobody deals with the request.
    waiting: Option<(Channel, ViAttributes)>,
    /// This process asks, and has no answer yet.
    asking: bool,
    result: Option<Result<ViAttributes>>,
}

impl Attempt {
    /// Takes the request away from all others that could answer it.
    fn claim(&self) -> Option<(Channel, ViAttributes)> {
        locked(&self.progress).waiting.take()
    }

    fn finish(&self, result: Result<ViAttributes>) {
        if result.is_err() {
            self.vi.cancel(self.generation);
        }
        locked(&self.progress).result = Some(result);
        locked(&self.nic.connector.meeting).attempts.retain(|it| !std::ptr::eq(&**it, self));
        self.nic.board.wake_own(false);
    }

    /// The program does not want it any more.
    pub fn abandon(self: Arc<Attempt>) {
        if self.claim().is_some() {
            self.finish(Err(Refusal::Reject));
        }
    }

    /// Whether this is what a request from `from` to `to` is looking for.
    fn matches(&self, from: &Address, to: &Address) -> bool {
        self.to.means(&from.host) && self.to.discriminator == from.discriminator && self.local.discriminator == to.discriminator
    }
}

/// Begins a peer's request; it is answered in the background.
pub fn peer_request(vi: &'static Vi, generation: u32, local: Address, to: Address, timeout_ms: u64) -> Result<()> {
    if timeout_ms == 0 {
        return Err(Refusal::InvalidParameter);
    }
    let nic = vi.admin(generation)?.owner.as_ref().ok_or(Refusal::InvalidParameter)?.nic.clone();
    if !local.means(&nic.address) {
        return Err(Refusal::InvalidParameter);
    }
    let prepared = vi.prepare(generation)?;
    let progress = Mutex::new(Progress { waiting: Some(prepared), asking: true, result: None });
    let local = Address { host: nic.address, ..local };
    let attempt = Arc::new(Attempt { nic: nic.clone(), vi, generation, local, to, until: limit(timeout_ms), progress });
    vi.admin(generation)?.peer = Some(attempt.clone());
    locked(&nic.connector.meeting).attempts.push(attempt.clone());
    let thread = std::thread::Builder::new().name("vipl-peer".into()).spawn({
        let attempt = attempt.clone();
        move || call(&attempt)
    });
    if thread.is_err() {
        attempt.abandon();
        vi.admin(generation)?.peer = None;
        return Err(Refusal::Resource);
    }
    Ok(())
}

/// Asks the peer. If it has no matching request yet, this one is kept, and the peer will ask.
fn call(attempt: &Arc<Attempt>) {
    loop {
        let frame = {
            let progress = locked(&attempt.progress);
            let Some((channel, attributes)) = &progress.waiting else { return };
            let (from, to) = (attempt.local.clone(), attempt.to.clone());
            Frame::Request { peer: true, offer: offer(attributes), card: card(&attempt.nic, channel), from, to }
        };
        match ask(&attempt.to, &frame, attempt.until) {
            Ok((_, Frame::Later)) => {
                std::thread::sleep(LATER);
                continue;
            }
            Ok((socket, answer)) => {
                if let Some((channel, _)) = attempt.claim() {
                    attempt.finish(conclude(&attempt.nic, attempt.vi, attempt.generation, channel, socket, answer));
                }
                return;
            }
            Err(_) => {
                locked(&attempt.progress).asking = false;
                return;
            }
        }
    }
}

fn attempt_of(vi: &'static Vi, generation: u32) -> Result<Arc<Attempt>> {
    vi.admin(generation)?.peer.clone().ok_or(Refusal::InvalidState)
}

/// Whether a peer's request has been answered.
pub fn peer_done(vi: &'static Vi, generation: u32) -> Result<ViAttributes> {
    let attempt = attempt_of(vi, generation)?;
    if Instant::now() >= attempt.until && attempt.claim().is_some() {
        attempt.finish(Err(Refusal::Timeout));
    }
    let result = locked(&attempt.progress).result.ok_or(Refusal::NotDone)?;
    vi.admin(generation)?.peer = None;
    result
}

pub fn peer_wait(vi: &'static Vi, generation: u32) -> Result<ViAttributes> {
    let attempt = attempt_of(vi, generation)?;
    crate::wait::until(&attempt.nic, u64::MAX, || peer_done(vi, generation))
}

// ---- requests of others

/// Answers what comes through a new socket.
pub fn answer(nic: &Arc<Nic>, mut socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let Ok(Frame::Request { peer, offer, card, from, to }) = hear(&mut socket, Instant::now() + PATIENCE) else { return };
    let request = Request { socket, offer, card, from };
    let left = if peer { meet_peer(nic, request, &to) } else { meet_server(nic, request, &to) };
    if let Some((mut request, frame)) = left {
        let _ = say(&mut request.socket, &frame);
        let _ = request.socket.shutdown(Shutdown::Write);
    }
}

/// Gives the request to a server that waits; else back, with what to answer.
fn meet_server(nic: &Arc<Nic>, request: Request, to: &Address) -> Option<(Request, Frame)> {
    let mut meeting = locked(&nic.connector.meeting);
    let waiter = meeting.waiters.iter_mut().find(|it| it.request.is_none() && it.discriminator == to.discriminator);
    match waiter {
        Some(waiter) => {
            waiter.request = Some(request);
            nic.connector.changed.notify_all();
            None
        }
        None => Some((request, Frame::NoMatch)),
    }
}

fn meet_peer(nic: &Arc<Nic>, request: Request, to: &Address) -> Option<(Request, Frame)> {
    let found = locked(&nic.connector.meeting).attempts.iter().find(|it| it.matches(&request.from, to)).cloned();
    let Some(attempt) = found else { return Some((request, Frame::NoMatch)) };
    // Of two that ask each other at the same time, the one with the greater address answers; within one NIC, the greater discriminator does.
    let (own, other) = ((nic.address, &attempt.local.discriminator), (request.card.address, &request.from.discriminator));
    let claimed = {
        let mut progress = locked(&attempt.progress);
        if progress.asking && own < other && progress.waiting.is_some() {
            return Some((request, Frame::Later));
        }
        progress.waiting.take()
    };
    let Some((channel, attributes)) = claimed else { return Some((request, Frame::NoMatch)) };
    if let Err(refusal) = agree(&attributes, &request.offer) {
        attempt.finish(Err(refusal));
        return Some((request, Frame::Refuse { code: refusal as i32 as u8 }));
    }
    let theirs = remote(&request.offer);
    let done = establish(nic, attempt.vi, attempt.generation, channel, &attributes, request);
    attempt.finish(done.map(|()| theirs));
    None
}
