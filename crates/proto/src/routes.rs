//! Several transports to one peer, and one order of its messages over all of them.
//!
//! Each message to a peer has a number, whatever it is: a header, a copy, a body that waits, a put, an offered window. One route at a time, the
//! current one, carries new messages; the receiver takes them in the order of their numbers. What has been sent is retained until the receiver has said that it has
//! it, and, where it has a body, until that is there. So routes may change while messages are under way ([`Routes::switch`]), and one that breaks loses nothing
//! ([`Routes::broken`]): what was on it leaves again on the current one, and what comes twice is dropped.
//!
//! A number travels in the eight bits of a header that belong to the transport ([`crate::wire`]): its receiver lacks no more than [`LACKING_MAX`] messages, and each route keeps
//! its own order, so that eight bits tell which one it is. A body that is offered again may be much older, and says its whole number.

use crate::credits::OVERHEAD_BYTES;
use crate::p2p::{Header, Window};
use crate::reliability::Refused;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Messages to one peer that it has not said it has; further ones wait.
pub const LACKING_MAX: u64 = 96;
/// Messages to one peer whose bodies it has not got; further ones wait.
pub const RETAINED_MAX: usize = 1 << 16;
/// Words of a header that says its whole number: the sender's request; the length of a put, or how many words there were; the receive that a put is for or
/// this; and the number.
const WHOLE_WORDS: usize = 4;
const NO_RECEIVE: u64 = u64::MAX;
/// Windows of one peer that are remembered; those that were offered before are void.
const WINDOWS_MAX: usize = 1024;
/// Messages after which a receiver says what it has, unasked.
const TELL_EACH: u64 = 24;
/// The kind of a header that says what a receiver has; no message has it.
const SEEN: u64 = 0xff;
/// The route of messages that came before their peer had routes ([`Routes::hold`]), and what stands for those that are broken.
const FIRST: u8 = 0;
const GONE: u8 = u8::MAX;

/// Transports to the same peers. `route` says which of them.
pub trait Transports {
    fn send_header(&mut self, route: u8, peer: u32, header: Header) -> Result<(), Refused>;
    /// As [`Transports::send_header`], with a body that is copied and goes with it. One that cannot break may keep the copy until it is asked for.
    fn send_copy(&mut self, route: u8, peer: u32, header: Header, body: &[u8]) -> Result<(), Refused>;
    /// With a body that belongs to the transport until [`Routes::sent`], or until the route breaks.
    fn send(&mut self, route: u8, peer: u32, header: Header, token: u64, bytes: u64, waits: bool) -> Result<(), Refused>;
    fn put(&mut self, route: u8, peer: u32, header: Header, window: Window, token: u64, bytes: u64) -> Result<(), Refused>;
    /// Offers a window for the receive `token`; 0 where that is not possible now.
    fn offer(&mut self, route: u8, peer: u32, header: Header, capacity_bytes: u64, token: u64) -> u32;
    fn withdraw(&mut self, route: u8, peer: u32, window: u32);
    fn fill(&mut self, route: u8, peer: u32, token: u64, window: Window);
    /// Fetches the body of a transfer into the receive `token`, through an offered window if that is not 0.
    fn get(&mut self, route: u8, peer: u32, transfer: u32, bytes: u64, token: u64, window: u32) -> Result<(), Refused>;
    fn decline(&mut self, route: u8, peer: u32, transfer: u32) -> Result<(), Refused>;
    /// The memory of a message is free: `bytes` of its body.
    fn release(&mut self, route: u8, peer: u32, bytes: u64);
}

/// A message, as a transport brings it or as it is taken in its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived {
    Message { header: Header, body: Vec<u8> },
    Waiting { header: Header, transfer: u32, bytes: u64 },
    Offer { header: Header, window: Window },
    Put { header: Header, receive: u64, bytes: u64 },
}

/// What is done with a message whose turn it is. A put is for a receive that is announced.
pub trait Taker {
    fn take(&mut self, peer: u32, arrived: Arrived);
    /// The put that has just been taken has brought all of its body already.
    fn filled(&mut self, receive: u64);
}

/// What has been sent.
#[derive(Clone, Debug)]
enum What {
    Header,
    Copy(Vec<u8>),
    Body {
        token: u64,
        bytes: u64,
        waits: bool,
    },
    /// `receive` is the peer's.
    Put {
        token: u64,
        bytes: u64,
        receive: u64,
    },
    Offer {
        window: u32,
        capacity_bytes: u64,
        token: u64,
    },
}

#[derive(Clone, Debug)]
struct Retained {
    number: u64,
    route: u8,
    header: Header,
    what: What,
    /// Its body is there, or it has none.
    done: bool,
    /// It has left again, since its route broke: its receiver may have had it before.
    resent: bool,
}

impl Retained {
    /// Its receiver has had it, since it has its body.
    fn is_there(&self) -> bool {
        self.done && matches!(self.what, What::Body { .. } | What::Put { .. })
    }
}

/// A transfer of the peer that has not ended.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    /// That of its message, where it has one.
    number: Option<u64>,
    /// Where it waits: the route, and its name there. `None` once that route is broken.
    at: Option<(u8, u32)>,
    /// The receive that it goes to, and how much of it.
    into: Option<(u64, u64)>,
    /// It has been asked for.
    asked: bool,
}

/// A window of either side.
#[derive(Clone, Copy, Debug)]
struct OfferedWindow {
    /// `None`: its route is broken, or it has been used.
    at: Option<(u8, u32)>,
    granted_bytes: u64,
    capacity_bytes: u64,
    receive: u64,
}

#[derive(Debug, Default)]
struct Peer {
    current: u8,
    next_out: u64,
    /// Messages that the peer has said it has; those from there on, in order; and earlier ones whose bodies are not there.
    seen_there: u64,
    recent: VecDeque<Retained>,
    bodies: BTreeMap<u64, Retained>,
    next_in: u64,
    told: u64,
    /// It must be told what has come, since some of it came twice, or a route is gone.
    tell: bool,
    early: BTreeMap<u64, (u8, Arrived)>,
    transfers: FxHashMap<u32, Transfer>,
    next_transfer: u32,
    /// Transfers that nobody wants, and whose transport had no room to say so.
    unwanted: Vec<(u8, u32)>,
    /// Offered by the peer, by this side's numbers; and by this side.
    theirs: BTreeMap<u32, (u64, OfferedWindow)>,
    next_theirs: u32,
    ours: FxHashMap<u32, OfferedWindow>,
    next_ours: u32,
    /// Messages by route and bytes of their bodies whose memory is not free.
    unreleased: FxHashMap<(u8, u64), u32>,
    /// Resent messages that found no room.
    again: bool,
    /// A transfer that is wanted has not been asked for where it waits.
    asks: bool,
    /// It stands in [`Routes::listed`].
    listed: bool,
}

/// Whether a header is none of a message, but says what a receiver has.
pub fn is_word(header: &Header) -> bool {
    header.head[0] >> 8 == SEEN
}

/// The routes to all peers.
#[derive(Debug, Default)]
pub struct Routes {
    peers: FxHashMap<u32, Peer>,
    /// Peers with which something may be to be done, or told.
    listed: Vec<u32>,
    /// Sends whose bodies are not there: to whom, and which message.
    tokens: FxHashMap<u64, (u32, u64)>,
    /// Receives that are being filled: from whom, and which transfer.
    receives: FxHashMap<u64, (u32, u32)>,
    /// Receives whose put is whole before its turn.
    finished: FxHashSet<u64>,
    pub switches: u64,
    pub breaks: u64,
    pub resent: u64,
    pub doubled: u64,
}

fn numbered(header: Header, number: u64) -> Header {
    let mut header = header;
    header.head[0] = header.head[0] & !0xff | number & 0xff;
    header
}

impl Routes {
    fn peer(&mut self, peer: u32) -> &mut Peer {
        self.peers.entry(peer).or_default()
    }

    /// New messages to `peer` take `route` from now on.
    pub fn switch(&mut self, peer: u32, route: u8) {
        let known = self.peer(peer);
        if std::mem::replace(&mut known.current, route) != route {
            self.switches += 1;
        }
    }

    /// Whether anything of `peer` has been seen to here.
    pub fn knows(&self, peer: u32) -> bool {
        self.peers.contains_key(&peer)
    }

    /// [`Routes::flush`] has something to do with `peer`.
    fn list(&mut self, peer: u32) {
        if !std::mem::replace(&mut self.peer(peer).listed, true) {
            self.listed.push(peer);
        }
    }

    /// Whether everything that was sent is there, its receivers have said so, and everything that has come is taken, and told of.
    pub fn is_quiet(&self) -> bool {
        let fetches = |peer: &Peer| peer.transfers.values().any(|one| one.into.is_some());
        let quiet = |peer: &Peer| {
            peer.recent.is_empty() && peer.bodies.is_empty() && peer.early.is_empty() && !fetches(peer) && !peer.is_waiting() && peer.told == peer.next_in
        };
        self.tokens.is_empty() && self.peers.values().all(quiet)
    }

    /// Whether something waits for room to be sent again, to be asked for again, or to be told.
    pub fn is_waiting(&self) -> bool {
        self.listed.iter().filter_map(|peer| self.peers.get(peer)).any(Peer::is_waiting)
    }

    /// Whether something has come that its sender has not been told of.
    pub fn is_untold(&self) -> bool {
        self.listed.iter().filter_map(|peer| self.peers.get(peer)).any(|peer| peer.told < peer.next_in)
    }

    /// Something of a broken route to `peer` has not left again.
    pub fn is_resending(&self, peer: u32) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.again)
    }

    /// Something that was sent to `peer`, or that it has sent, is under way.
    pub fn is_open(&self, peer: u32) -> bool {
        let fetches = |one: &Transfer| one.into.is_some();
        self.peers
            .get(&peer)
            .is_some_and(|peer| !peer.recent.is_empty() || !peer.bodies.is_empty() || !peer.early.is_empty() || peer.transfers.values().any(fetches))
    }

    /// Memory of messages is not free that came over a route that lives.
    pub fn unreleased(&self) -> u32 {
        self.peers.values().flat_map(|peer| &peer.unreleased).filter(|((route, _), _)| *route != GONE).map(|(_, count)| count).sum()
    }

    /// The same, bytes, of messages of `peer` that came over routes that are broken, with what each costs beside its body.
    pub fn stale_bytes(&self, peer: u32) -> u64 {
        let unreleased = self.peers.get(&peer).into_iter().flat_map(|peer| &peer.unreleased);
        unreleased.filter(|((route, _), _)| *route == GONE).map(|((_, bytes), &count)| u64::from(count) * (bytes + OVERHEAD_BYTES)).sum()
    }

    fn post(&mut self, peer: u32, header: Header, what: What, transports: &mut impl Transports) -> Result<(), Refused> {
        let known = self.peers.entry(peer).or_default();
        if !known.has_room() {
            return Err(Refused::Full);
        }
        let done = matches!(what, What::Header | What::Copy(_) | What::Offer { .. });
        let retained = Retained { number: known.next_out, route: known.current, header, what, done, resent: false };
        known.leave(peer, &retained, false, transports)?;
        known.next_out += 1;
        if let What::Body { token, .. } | What::Put { token, .. } = retained.what {
            self.tokens.insert(token, (peer, retained.number));
        }
        known.recent.push_back(retained);
        Ok(())
    }

    /// Sends a header without a body.
    ///
    /// # Errors
    /// [`Refused::Full`]: later there will be room. So for all others.
    pub fn send_header(&mut self, peer: u32, header: Header, transports: &mut impl Transports) -> Result<(), Refused> {
        self.post(peer, header, What::Header, transports)
    }

    pub fn send_copy(&mut self, peer: u32, header: Header, body: Vec<u8>, transports: &mut impl Transports) -> Result<(), Refused> {
        self.post(peer, header, What::Copy(body), transports)
    }

    pub fn send(&mut self, peer: u32, header: Header, (token, bytes, waits): (u64, u64, bool), transports: &mut impl Transports) -> Result<(), Refused> {
        self.post(peer, header, What::Body { token, bytes, waits }, transports)
    }

    /// Puts into a window that the peer has offered. Where the window's route is not the one that new messages take, the message waits for its receiver
    /// instead, which knows whom it is for.
    pub fn put(&mut self, peer: u32, header: Header, window: u32, (token, bytes): (u64, u64), transports: &mut impl Transports) -> Result<(), Refused> {
        let receive = self.peer(peer).theirs.get(&window).ok_or(Refused::Argument)?.1.receive;
        self.post(peer, header, What::Put { token, bytes, receive }, transports)
    }

    /// Offers a window for the receive `token`: its number here, 0 where that is not possible now.
    pub fn offer(&mut self, peer: u32, header: Header, capacity_bytes: u64, token: u64, transports: &mut impl Transports) -> u32 {
        let known = self.peer(peer);
        known.next_ours += 1;
        let window = known.next_ours;
        known.ours.insert(window, OfferedWindow { at: None, granted_bytes: capacity_bytes, capacity_bytes, receive: token });
        match self.post(peer, header, What::Offer { window, capacity_bytes, token }, transports) {
            Ok(()) => window,
            Err(_) => {
                self.peer(peer).ours.remove(&window);
                0
            }
        }
    }

    /// Nothing comes to an offered window any more.
    pub fn withdraw(&mut self, peer: u32, window: u32, transports: &mut impl Transports) {
        if let Some(OfferedWindow { at: Some((route, number)), .. }) = self.peer(peer).ours.remove(&window) {
            transports.withdraw(route, peer, number);
        }
    }

    /// A window has been offered for a message that has left already. One that has left again is asked for: its receiver may have had it over the route that is
    /// broken, have taken the window back since, and count on what it asks for.
    pub fn fill(&mut self, peer: u32, token: u64, window: u32, transports: &mut impl Transports) {
        let sent = self.tokens.get(&token).map(|&(_, number)| number);
        let known = self.peer(peer);
        let sent = sent.and_then(|number| known.retained_mut(number)).filter(|one| matches!(one.what, What::Body { .. }) && !one.resent).map(|one| one.route);
        if let Some((_, OfferedWindow { at: Some((route, number)), granted_bytes, capacity_bytes, .. })) = known.theirs.get(&window).copied()
            && sent == Some(route)
        {
            transports.fill(route, peer, token, Window { number, granted_bytes, capacity_bytes });
        }
    }

    /// Fetches the body of a transfer into the receive `token`; through an offered window where it waits on the window's route.
    ///
    /// # Errors
    /// [`Refused::Full`]: later there will be room.
    pub fn get(&mut self, peer: u32, transfer: u32, bytes: u64, token: u64, window: u32, transports: &mut impl Transports) -> Result<(), Refused> {
        let known = self.peers.entry(peer).or_default();
        let one = known.transfers.get_mut(&transfer).ok_or(Refused::Argument)?;
        let through = known.ours.get(&window).and_then(|window| window.at);
        let serves = through.filter(|(on, _)| one.at.is_some_and(|(route, _)| *on == route));
        if let Some((route, name)) = one.at {
            transports.get(route, peer, name, bytes, token, serves.map_or(0, |(_, number)| number))?;
            one.asked = true;
        }
        if let (Some((on, number)), None) = (through, serves) {
            transports.withdraw(on, peer, number);
        }
        one.into = Some((token, bytes));
        known.ours.remove(&window);
        self.receives.insert(token, (peer, transfer));
        Ok(())
    }

    /// Nobody will get the message: its sender may go on.
    ///
    /// # Errors
    /// As [`Routes::get`].
    pub fn decline(&mut self, peer: u32, transfer: u32, transports: &mut impl Transports) -> Result<(), Refused> {
        let known = self.peer(peer);
        if let Some(Transfer { at: Some((route, name)), .. }) = known.transfers.get(&transfer) {
            transports.decline(*route, peer, *name)?;
        }
        known.transfers.remove(&transfer);
        Ok(())
    }

    /// The memory of a message is free.
    pub fn release(&mut self, peer: u32, bytes: u64, transports: &mut impl Transports) {
        let known = self.peers.entry(peer).or_default();
        // Which of those that are as long it was makes no difference. One of a route that is broken is charged to nobody, and one that is not known came
        // before there were routes.
        let found = [known.current, FIRST, GONE].into_iter().find(|&route| known.unreleased.contains_key(&(route, bytes)));
        let found = found.or_else(|| known.unreleased.keys().find(|(_, other)| *other == bytes).map(|&(route, _)| route));
        let Some(route) = found else { return transports.release(FIRST, peer, bytes) };
        if let Entry::Occupied(mut count) = known.unreleased.entry((route, bytes)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if route != GONE {
            transports.release(route, peer, bytes);
        }
    }

    /// The body of a send is there. True where that ends it: it had not ended before.
    pub fn sent(&mut self, token: u64) -> bool {
        let Some((peer, number)) = self.tokens.remove(&token) else { return false };
        self.peer(peer).done(number);
        true
    }

    /// The body of a send is the sender's again, before anybody has said that it is there: `copy` is kept in its place. False where it is none that is under way.
    pub fn copied(&mut self, token: u64, copy: Vec<u8>) -> bool {
        let Some((peer, number)) = self.tokens.remove(&token) else { return false };
        let known = self.peer(peer);
        if let Some(one) = known.retained_mut(number) {
            one.what = What::Copy(copy);
        }
        known.done(number);
        true
    }

    /// Nothing is expected of `peer` any more, which is forgotten: the sends and receives that had not ended.
    pub fn lost(&mut self, peer: u32) -> (Vec<u64>, Vec<u64>) {
        self.peers.remove(&peer);
        self.listed.retain(|&other| other != peer);
        let sends: Vec<u64> = self.tokens.iter().filter(|(_, (of, _))| *of == peer).map(|(&token, _)| token).collect();
        let receives: Vec<u64> = self.receives.iter().filter(|(_, (of, _))| *of == peer).map(|(&token, _)| token).collect();
        self.tokens.retain(|_, (of, _)| *of != peer);
        self.receives.retain(|_, (of, _)| *of != peer);
        (sends, receives)
    }

    /// A receive has got its body. False where it is that of a put whose turn has not come: [`Taker::filled`] says it again.
    pub fn got(&mut self, token: u64) -> bool {
        if let Some((peer, transfer)) = self.receives.remove(&token) {
            self.peer(peer).transfers.remove(&transfer);
            return true;
        }
        let early = |peer: &Peer| peer.early.values().any(|(_, one)| matches!(one, Arrived::Put { receive, .. } if *receive == token));
        let waits = self.peers.values().any(early);
        if waits {
            self.finished.insert(token);
        }
        !waits
    }

    /// A message has come over `route`; it and those that follow are taken in their turn.
    pub fn arrived(&mut self, peer: u32, route: u8, arrived: Arrived, transports: &mut impl Transports, taker: &mut impl Taker) {
        let (Arrived::Message { header, .. } | Arrived::Waiting { header, .. } | Arrived::Offer { header, .. } | Arrived::Put { header, .. }) = &arrived;
        let known = self.peers.entry(peer).or_default();
        if is_word(header) {
            transports.release(route, peer, 0);
            return known.seen(header.head[1]);
        }
        let number = match (&arrived, header.words()) {
            (Arrived::Waiting { .. }, &[_, _, _, number]) => number,
            _ => known.next_in.wrapping_add_signed((header.head[0] as u8).wrapping_sub(known.next_in as u8) as i8 as i64),
        };
        if number < known.next_in {
            self.doubled += 1;
            self.again(peer, route, number, arrived, transports);
            return self.list(peer);
        }
        // One that is here already came over a route that is broken.
        known.early.insert(number, (route, arrived));
        self.list(peer);
        loop {
            let known = self.peer(peer);
            let Some((route, arrived)) = known.early.remove(&known.next_in) else { break };
            known.next_in += 1;
            let put = if let Arrived::Put { receive, .. } = arrived { Some(receive) } else { None };
            self.take(peer, route, arrived, transports, taker);
            if let Some(receive) = put.filter(|receive| self.finished.remove(receive)) {
                taker.filled(receive);
            }
        }
    }

    /// A message whose body is with it has come over `route`, and it is its turn: whoever has it deals with it, `charged` bytes of body. Otherwise
    /// [`Routes::arrived`] is to be told of it.
    #[inline]
    pub fn turn(&mut self, peer: u32, route: u8, header: &Header, charged: u64) -> bool {
        let Some(known) = self.peers.get_mut(&peer) else { return false };
        if header.head[0] as u8 != known.next_in as u8 || is_word(header) || !known.early.is_empty() {
            return false;
        }
        known.next_in += 1;
        *known.unreleased.entry((route, charged)).or_default() += 1;
        self.list(peer);
        true
    }

    /// Gives a name to a transfer of a peer that has no routes yet, which waits on the first: [`Routes::get`] and [`Routes::decline`] are told of it by that.
    pub fn hold(&mut self, peer: u32, transfer: u32) -> u32 {
        let known = self.peer(peer);
        known.next_transfer += 1;
        known.transfers.insert(known.next_transfer, Transfer { number: None, at: Some((FIRST, transfer)), into: None, asked: false });
        known.next_transfer
    }

    fn take(&mut self, peer: u32, route: u8, arrived: Arrived, transports: &mut impl Transports, taker: &mut impl Taker) {
        let known = self.peer(peer);
        let number = known.next_in - 1;
        let charged = if let Arrived::Message { body, .. } = &arrived { body.len() as u64 } else { 0 };
        *known.unreleased.entry((route, charged)).or_default() += 1;
        let arrived = match arrived {
            Arrived::Waiting { header, transfer, bytes } => {
                known.next_transfer += 1;
                let name = known.next_transfer;
                let mut one = Transfer { number: Some(number), at: Some((route, transfer)), into: None, asked: false };
                let header = match *header.words() {
                    [first, words, NO_RECEIVE, _] => Header::new(header.head, if words == 0 { &[] } else { std::slice::from_ref(&first) }),
                    _ => header,
                };
                if let &[first, whole_bytes, receive, _] = header.words() {
                    // A put that had no window.
                    one.into = Some((receive, bytes));
                    known.asks = true;
                    known.transfers.insert(name, one);
                    known.ours.retain(|_, window| {
                        let its = window.receive == receive;
                        if let (true, Some((on, number))) = (its, window.at) {
                            transports.withdraw(on, peer, number);
                        }
                        !its
                    });
                    self.receives.insert(receive, (peer, name));
                    let header = Header::new(header.head, &[first, whole_bytes]);
                    taker.take(peer, Arrived::Put { header, receive, bytes });
                    return self.fetch_again(peer, transports);
                }
                known.transfers.insert(name, one);
                Arrived::Waiting { header, transfer: name, bytes }
            }
            Arrived::Offer { header, window } => {
                known.next_theirs += 1;
                let Window { number: on_route, granted_bytes, capacity_bytes } = window;
                let receive = header.words().first().copied().unwrap_or(0);
                let offered = OfferedWindow { at: Some((route, on_route)), granted_bytes, capacity_bytes, receive };
                let name = known.next_theirs;
                known.theirs.insert(name, (number, offered));
                if known.theirs.len() > WINDOWS_MAX {
                    known.theirs.pop_first();
                }
                Arrived::Offer { header, window: Window { number: name, ..window } }
            }
            Arrived::Put { header, receive, bytes } => {
                known.ours.retain(|_, window| window.receive != receive);
                Arrived::Put { header, receive, bytes }
            }
            message => message,
        };
        taker.take(peer, arrived);
    }

    /// Something that had come before: on a route that is broken now, or its receiver's word was lost.
    fn again(&mut self, peer: u32, route: u8, number: u64, arrived: Arrived, transports: &mut impl Transports) {
        let known = self.peer(peer);
        known.tell = true;
        match arrived {
            Arrived::Message { body, .. } => transports.release(route, peer, body.len() as u64),
            Arrived::Waiting { transfer, .. } => {
                transports.release(route, peer, 0);
                match known.transfers.values_mut().find(|one| one.number == Some(number)) {
                    Some(one) => {
                        (one.at, one.asked) = (Some((route, transfer)), false);
                        known.asks = true;
                    }
                    // It has all of it.
                    None => known.unwanted.push((route, transfer)),
                }
                self.fetch_again(peer, transports);
            }
            Arrived::Offer { window, .. } => {
                transports.release(route, peer, 0);
                if let Some((_, offered)) = known.theirs.values_mut().find(|(other, _)| *other == number) {
                    (offered.at, offered.granted_bytes) = (Some((route, window.number)), window.granted_bytes);
                }
            }
            Arrived::Put { .. } => transports.release(route, peer, 0),
        }
    }

    /// Transfers whose route has changed since they were asked for.
    fn fetch_again(&mut self, peer: u32, transports: &mut impl Transports) {
        let known = self.peer(peer);
        known.unwanted.retain(|(route, transfer)| transports.decline(*route, peer, *transfer).is_err());
        if std::mem::take(&mut known.asks) {
            for one in known.transfers.values_mut() {
                if let (Some((route, name)), Some((token, bytes)), false) = (one.at, one.into, one.asked) {
                    one.asked = transports.get(route, peer, name, bytes, token, 0).is_ok();
                    known.asks |= !one.asked;
                }
            }
        }
    }

    /// `route` to `peer` is broken: nothing that it had comes any more, and nothing there uses this side's memory. What was on it takes the current route, which
    /// is another one.
    pub fn broken(&mut self, peer: u32, route: u8, transports: &mut impl Transports) {
        self.breaks += 1;
        let known = self.peer(peer);
        debug_assert!(known.current != route);
        for one in known.transfers.values_mut().filter(|one| one.at.is_some_and(|(on, _)| on == route)) {
            (one.at, one.asked) = (None, false);
        }
        for (_, window) in known.theirs.values_mut().filter(|(_, window)| window.at.is_some_and(|(on, _)| on == route)) {
            window.at = None;
        }
        for window in known.ours.values_mut().filter(|window| window.at.is_some_and(|(on, _)| on == route)) {
            window.at = None;
        }
        for ((_, bytes), count) in known.unreleased.extract_if(|(on, _), _| *on == route).collect::<Vec<_>>() {
            *known.unreleased.entry((GONE, bytes)).or_default() += count;
        }
        // Those whose turn has not come are sent again.
        known.early.retain(|_, (on, _)| *on != route);
        known.unwanted.retain(|(on, _)| *on != route);
        known.tell = true;
        known.again = true;
        self.list(peer);
        self.go_on(peer, route, transports);
    }

    /// Sends again what was on routes that are broken, as far as there is room, and tells what has come.
    fn go_on(&mut self, peer: u32, broken: u8, transports: &mut impl Transports) {
        let known = self.peers.entry(peer).or_default();
        if !known.again {
            return;
        }
        let mut resent = 0;
        let current = known.current;
        let (mut bodies, mut recent) = (std::mem::take(&mut known.bodies), std::mem::take(&mut known.recent));
        let all = bodies.values_mut().chain(&mut recent).filter(|one| one.route == broken && !one.is_there()).all(|one| {
            one.route = current;
            let left = known.leave(peer, one, true, transports).is_ok();
            match left {
                true => one.resent = true,
                false => one.route = broken,
            }
            resent += left as u64;
            left
        });
        (known.bodies, known.recent) = (bodies, recent);
        known.again = !all;
        self.resent += resent;
    }

    /// What waits goes on: messages that are sent again, transfers that are asked for again, and words of what has come where `idle` or many are due. `broken` is the
    /// route that may have broken.
    pub fn flush(&mut self, broken: u8, idle: bool, transports: &mut impl Transports) {
        for peer in std::mem::take(&mut self.listed) {
            self.peer(peer).listed = false;
            self.go_on(peer, broken, transports);
            self.fetch_again(peer, transports);
            let known = self.peer(peer);
            if (known.tells() || idle && known.told < known.next_in)
                && transports.send_header(known.current, peer, Header::new([SEEN << 8, known.next_in], &[])).is_ok()
            {
                (known.told, known.tell) = (known.next_in, false);
            }
            if known.is_waiting() || known.told < known.next_in {
                self.list(peer);
            }
        }
    }
}

impl Peer {
    /// One more message may be sent.
    fn has_room(&self) -> bool {
        self.next_out - self.seen_there < LACKING_MAX && self.recent.len() + self.bodies.len() < RETAINED_MAX && !self.again
    }

    /// The peer is to be told what has come, whatever else there is to do.
    fn tells(&self) -> bool {
        self.tell || self.next_in - self.told >= TELL_EACH
    }

    /// Something is to be done as soon as there is room.
    fn is_waiting(&self) -> bool {
        self.again || self.asks || self.tells() || !self.unwanted.is_empty()
    }

    fn retained_mut(&mut self, number: u64) -> Option<&mut Retained> {
        match number.checked_sub(self.seen_there) {
            Some(after) => self.recent.get_mut(after as usize),
            None => self.bodies.get_mut(&number),
        }
    }

    /// The body of a message is there.
    fn done(&mut self, number: u64) {
        if let Some(one) = self.retained_mut(number) {
            one.done = true;
        }
        if number < self.seen_there {
            self.bodies.remove(&number);
        }
    }

    /// The peer has all messages before `number`.
    fn seen(&mut self, number: u64) {
        while self.seen_there < number
            && let Some(one) = self.recent.pop_front()
        {
            self.seen_there += 1;
            if !one.done {
                self.bodies.insert(one.number, one);
            }
        }
    }

    /// Sends a message over its route, for the first time or `again`.
    fn leave(&mut self, peer: u32, retained: &Retained, again: bool, transports: &mut impl Transports) -> Result<(), Refused> {
        let (route, header) = (retained.route, numbered(retained.header, retained.number));
        match &retained.what {
            What::Header => transports.send_header(route, peer, header),
            What::Copy(body) => transports.send_copy(route, peer, header, body),
            What::Body { token, bytes, waits } if !again => transports.send(route, peer, header, *token, *bytes, *waits),
            What::Body { token, bytes, .. } => {
                debug_assert!(header.words().len() <= 1);
                let (first, words) = (header.words().first().copied().unwrap_or(0), header.words().len() as u64);
                let header = Header::new(header.head, &[first, words, NO_RECEIVE, retained.number]);
                transports.send(route, peer, header, *token, *bytes, true)
            }
            What::Put { token, bytes, receive } => {
                let window = self.theirs.values().find(|(_, window)| window.receive == *receive).and_then(|(_, window)| Some((window.at?, window)));
                // What the receiver may have has no window there any more: it is asked for, or not wanted.
                if let Some(((on, number), window)) = window
                    && on == route
                    && !again
                {
                    let window = Window { number, granted_bytes: window.granted_bytes, capacity_bytes: window.capacity_bytes };
                    return transports.put(route, peer, header, window, *token, *bytes);
                }
                let words = [header.words(), &[*receive, retained.number]].concat();
                debug_assert_eq!(words.len(), WHOLE_WORDS);
                transports.send(route, peer, Header::new(header.head, &words), *token, *bytes, true)
            }
            What::Offer { window, capacity_bytes, token } => {
                let number = transports.offer(route, peer, header, *capacity_bytes, *token);
                if number == 0 {
                    return Err(Refused::Full);
                }
                match self.ours.get_mut(window) {
                    Some(offered) => offered.at = Some((route, number)),
                    // Taken back meanwhile; the peer is to see the offer in its turn all the same.
                    None => transports.withdraw(route, peer, number),
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: u32 = 3;

    /// Transports that take everything, and what was asked of them.
    #[derive(Default)]
    struct Told {
        sent: Vec<(u8, u64)>,
        filled: Vec<(u8, u64)>,
    }

    impl Transports for Told {
        fn send_header(&mut self, _: u8, _: u32, _: Header) -> Result<(), Refused> {
            Ok(())
        }
        fn send_copy(&mut self, _: u8, _: u32, _: Header, _: &[u8]) -> Result<(), Refused> {
            Ok(())
        }
        fn send(&mut self, route: u8, _: u32, _: Header, token: u64, _: u64, _: bool) -> Result<(), Refused> {
            self.sent.push((route, token));
            Ok(())
        }
        fn put(&mut self, _: u8, _: u32, _: Header, _: Window, _: u64, _: u64) -> Result<(), Refused> {
            Ok(())
        }
        fn offer(&mut self, _: u8, _: u32, _: Header, _: u64, _: u64) -> u32 {
            1
        }
        fn withdraw(&mut self, _: u8, _: u32, _: u32) {}
        fn fill(&mut self, route: u8, _: u32, token: u64, _: Window) {
            self.filled.push((route, token));
        }
        fn get(&mut self, _: u8, _: u32, _: u32, _: u64, _: u64, _: u32) -> Result<(), Refused> {
            Ok(())
        }
        fn decline(&mut self, _: u8, _: u32, _: u32) -> Result<(), Refused> {
            Ok(())
        }
        fn release(&mut self, _: u8, _: u32, _: u64) {}
    }

    struct Anyone;

    impl Taker for Anyone {
        fn take(&mut self, _: u32, _: Arrived) {}
        fn filled(&mut self, _: u64) {}
    }

    /// What is filled of a window on route 0 that crosses message 7, sent over `route`, which breaks before the window comes or not.
    fn filled(route: u8, breaks: bool) -> Told {
        let (mut routes, mut told) = (Routes::default(), Told::default());
        routes.switch(PEER, route);
        routes.send(PEER, Header::new([0, 0], &[1]), (7, 100, false), &mut told).unwrap();
        routes.switch(PEER, FIRST);
        if breaks {
            routes.broken(PEER, route, &mut told);
        }
        let offer = Arrived::Offer { header: Header::new([0, 0], &[9]), window: Window { number: 4, granted_bytes: 100, capacity_bytes: 100 } };
        routes.arrived(PEER, FIRST, offer, &mut told, &mut Anyone);
        routes.fill(PEER, 7, 1, &mut told);
        told
    }

    #[test]
    fn windows_are_filled_by_messages_that_have_left_once_over_their_route() {
        assert_eq!(filled(FIRST, false).filled, [(FIRST, 7)]);
        assert_eq!(filled(1, false).filled, []);
    }

    /// Its receiver may have had it over the route that is broken, and have taken the window back: what goes there would be nobody's, and its sender through.
    #[test]
    fn a_message_that_has_left_again_fills_no_window() {
        let told = filled(1, true);
        assert_eq!(told.sent, [(1, 7), (FIRST, 7)]);
        assert_eq!(told.filled, []);
    }
}
