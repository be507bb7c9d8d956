//! The variant that counts messages, as the engine uses it: one receiver and its senders.

use crate::explore::{Model, Seen, Violation};
use crate::queue::{ANY, Posted, may_announce};
use proto::matching::Pattern;
use proto::rendezvous::Rtr;
use proto::rendezvous::sequence::{Sender, Verdict};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Eager,
    /// Eager, and the sender waits until it is matched.
    Synchronous,
    Large,
    /// Large, and not contiguous: it cannot answer an RTR.
    Scattered,
}

/// Whether receives from any source are announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnySource {
    /// There are none.
    None,
    /// There are, and they are not announced.
    Silent,
    /// Announced to all; the first who claims the word has it, and what arrives for a claimed receive goes on to the next.
    FirstClaims,
    /// As before, and whoever would have a message for it claims it for that message: also the sender of a short one, and the
    /// sender of one that crossed the RTR. One that can no longer tell who had the receive resets.
    AllClaim,
}

/// A rule of the protocol that is left out, to see what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Without {
    Nothing,
    /// Announces behind receives that are not.
    MayAnnounce,
    /// An RTR does not say what its receiver had seen: it may be for any message that is remembered.
    Counting,
    /// The sender remembers no messages: an RTR is always for one still to come.
    History,
    /// What is not remembered is taken not to matter.
    Reset,
    /// An RTR from before a reset counts.
    Epochs,
    /// A cancelled receive's descriptor is taken back, nobody else's, and the sender is told nothing.
    Forget,
    /// Newer receives stay announced while an older is cancelled; the sender is told.
    NewestFirst,
    /// A receive is announced while the sender has not answered about a cancelled one.
    Silence,
    /// A cancel has no effect if a newer receive has begun that takes the same messages, and ignores those that take others.
    PatientCancel,
}

#[derive(Clone, Copy)]
pub struct Config {
    pub senders: u8,
    pub tags: u8,
    /// Messages of each tag from each sender, and of all.
    pub sends: (u16, u16),
    /// Receives that name a tag, of each, and all.
    pub receives: (u16, u16),
    pub cancels: u16,
    pub kinds: &'static [Kind],
    /// How far the receives of an envelope may be ahead of its messages, and these of those; and cancels come only now and then.
    pub crowd: Option<isize>,
    /// What the receiver may predict of a receive: large or not.
    pub predicts: &'static [bool],
    pub any_tag: bool,
    pub any_source: AnySource,
    /// Pieces of a large message; one side's claim and its copy are two steps if `torn`. With none, copies and their
    /// completion take no steps.
    pub pieces: u8,
    pub torn: bool,
    /// Descriptors of the receiver.
    pub slots: usize,
    /// A receive that could not be announced when it was posted may be announced later, and so may one whose announcement was forgotten.
    pub late: bool,
    /// An answer is two steps, and may find no room.
    pub narrow: bool,
    /// The senders have heard of an RTR before all this.
    pub warm: bool,
    /// No memory is shared, as between hosts: an announced receive is a window that its sender fills unasked, and nobody can look whether it has begun.
    /// Only the sender's answer ends an announcement.
    pub apart: bool,
    pub without: Without,
}

impl Config {
    /// One envelope, three messages and three receives.
    pub const SMALL: Config = Config {
        senders: 1,
        tags: 1,
        sends: (3, 3),
        receives: (3, 3),
        cancels: 0,
        kinds: &[Kind::Eager, Kind::Large],
        crowd: None,
        predicts: &[true, false],
        any_tag: false,
        any_source: AnySource::None,
        pieces: 1,
        torn: false,
        slots: 8,
        late: false,
        narrow: false,
        warm: true,
        apart: false,
        without: Without::Nothing,
    };
}

/// Message `number` of `source`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Message {
    source: u8,
    number: u16,
}

/// The shared word of an announced receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Slot {
    /// Not announced, or taken back: a claim fails.
    None,
    Open,
    /// Claimed. The word itself says only by whom; for which message is what the model checks.
    Begun(Message),
}

#[derive(Clone, Hash, Debug)]
struct Receive {
    id: u16,
    source: u8,
    tag: u8,
    /// Predicted large.
    large: bool,
    /// Peers that were told of it, a bit each.
    told: u8,
    slot: Slot,
    matched: Option<Message>,
    /// The message was offered (RTS), so its sender must be told that it has been fetched.
    offered: bool,
    /// Pieces claimed and copied, and who is in between.
    claimed: u8,
    copied: u8,
    copying: [bool; 2],
    /// It is to be cancelled as soon as that can be decided.
    cancel: bool,
}

impl Posted for Receive {
    fn source(&self) -> u8 {
        self.source
    }
    fn tag(&self) -> u8 {
        self.tag
    }
    fn waits(&self) -> bool {
        self.matched.is_none()
    }
    fn announced_to(&self, peer: u8) -> bool {
        self.told >> peer & 1 == 1
    }
}

/// From a sender to the receiver. A message's number is not on the wire; it counts them.
#[derive(Clone, Copy, Hash, Debug)]
enum Down {
    Eager { number: u16, tag: u8, synchronous: bool },
    Rts { number: u16, tag: u8 },
    Start { number: u16, tag: u8, receive: u16 },
    Reset { epoch: u32 },
}

impl Down {
    fn tag(self) -> Option<u8> {
        match self {
            Down::Eager { tag, .. } | Down::Rts { tag, .. } | Down::Start { tag, .. } => Some(tag),
            Down::Reset { .. } => None,
        }
    }
}

/// From the receiver to a sender.
#[derive(Clone, Copy, Hash, Debug)]
enum Up {
    Rtr(Rtr),
    Fin { number: u16 },
    Forget,
}

/// A message that its sender has not finished.
#[derive(Clone, Hash, Debug)]
struct Sending {
    number: u16,
    kind: Kind,
    /// The receive whose descriptor it has begun.
    receive: Option<u16>,
    /// It answered an RTR: complete when all is copied. Otherwise the receiver says so.
    started: bool,
}

#[derive(Clone, Hash, Debug)]
struct Peer<const H: usize, const R: usize> {
    // The sender's side.
    sender: Option<Sender<H, R>>,
    sends: [u16; 4],
    sent: u16,
    sending: Vec<Sending>,
    /// Short messages, where those have names.
    short: Vec<u16>,
    /// Tag of a large message and the receive that it has just begun: it answers, or there is no room in the ring now, so that
    /// the receive is opened again.
    attempt: Option<(u8, u16)>,
    // The receiver's.
    seen: u16,
    epoch: u32,
    forgetting: bool,
    // Between them.
    down: VecDeque<Down>,
    up: VecDeque<Up>,
}

#[derive(Clone, Debug)]
pub struct World<const H: usize, const R: usize> {
    /// States that differ only in names and in what cannot matter any more count as different.
    pub exact: bool,
    receives: Vec<Receive>,
    unexpected: Vec<(Message, u8, Option<Kind>)>,
    peers: Vec<Peer<H, R>>,
    named: [u16; 4],
    posted: u16,
    cancels: u16,
    /// Tags that have been used: those to come are interchangeable.
    tags: u8,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Send {
        peer: u8,
        tag: u8,
        kind: Kind,
    },
    Post {
        source: u8,
        tag: u8,
        large: bool,
    },
    Cancel {
        receive: u16,
    },
    /// A receive is announced that was not when it was posted.
    Announce {
        receive: u16,
    },
    /// A cancel that waits is tried again.
    Retry {
        receive: u16,
    },
    /// The message that has begun a receive leaves, or finds no room.
    Answer {
        peer: u8,
        room: bool,
    },
    /// The receiver handles a packet.
    Down {
        peer: u8,
    },
    /// A sender handles a packet.
    Up {
        peer: u8,
    },
    /// The sender (0) or the receiver (1) claims or copies a piece.
    Copy {
        receive: u16,
        side: u8,
    },
}

/// Where the count of messages begins: it passes its end on the way.
const BASE: u32 = u32::MAX - 1;
const CONTEXT: u64 = 7;

macro_rules! ensure {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

impl<const H: usize, const R: usize> World<H, R> {
    pub fn new(config: &Config) -> Self {
        let peer = Peer {
            sender: config.warm.then(|| Sender::bounded(BASE)),
            sends: [0; 4],
            sent: 0,
            sending: Vec::new(),
            short: Vec::new(),
            attempt: None,
            seen: 0,
            epoch: 0,
            forgetting: false,
            down: VecDeque::new(),
            up: VecDeque::new(),
        };
        World {
            exact: config.without != Without::Nothing,
            receives: Vec::new(),
            unexpected: Vec::new(),
            peers: vec![peer; config.senders as usize],
            named: [0; 4],
            posted: 0,
            cancels: 0,
            tags: 0,
        }
    }

    /// Receives of an envelope that wait, less messages of it that are on their way or unexpected.
    fn ahead(&self, source: u8, tag: u8) -> isize {
        let posted = self.receives.iter().filter(|r| r.waits() && r.source == source && r.tag == tag).count();
        let unexpected = self.unexpected.iter().filter(|(m, t, _)| m.source == source && *t == tag).count();
        let coming = self.peers.get(source as usize).map_or(0, |p| p.down.iter().filter(|d| d.tag() == Some(tag)).count());
        posted as isize - (unexpected + coming) as isize
    }

    fn at(&self, id: u16) -> Option<usize> {
        self.receives.iter().position(|r| r.id == id)
    }

    /// Messages that the receiver has seen and that are not over, by number.
    fn lasting(&self, peer: usize) -> Vec<u16> {
        let of = |message: Message| (message.source as usize == peer).then_some(message.number);
        let begun = |slot| if let Slot::Begun(message) = slot { of(message) } else { None };
        let mut numbers: Vec<u16> = self.unexpected.iter().filter_map(|&(message, ..)| of(message)).collect();
        numbers.extend(self.receives.iter().filter_map(|r| r.matched.and_then(of)));
        numbers.extend(self.receives.iter().filter_map(|r| begun(r.slot)));
        numbers.extend(self.peers[peer].sending.iter().map(|s| s.number));
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    // ---- the receiver

    fn post(&mut self, config: &Config, source: u8, tag: u8, large: bool, seen: &mut Seen) -> Result<(), Violation> {
        let id = self.posted;
        self.posted += 1;
        if tag != ANY {
            self.named[tag as usize] += 1;
            self.tags = self.tags.max(tag + 1);
        }
        let new = Receive {
            id,
            source,
            tag,
            large: large && config.late,
            told: 0,
            slot: Slot::None,
            matched: None,
            offered: false,
            claimed: 0,
            copied: 0,
            copying: [false; 2],
            cancel: false,
        };
        let found = self.unexpected.iter().position(|&(message, tag, _)| new.accepts(message.source, tag));
        self.receives.push(new);
        let at = self.receives.len() - 1;
        if let Some(found) = found {
            let (message, _, kind) = self.unexpected.remove(found);
            self.matched(config, at, message, kind);
            return Ok(());
        }
        if large {
            self.announce(config, at, seen);
        }
        Ok(())
    }

    /// Tells those of a posted receive that may send to it, where that is allowed.
    fn announce(&mut self, config: &Config, at: usize, seen: &mut Seen) {
        for peer in 0..config.senders {
            if !self.may_tell(config, at, peer) {
                continue;
            }
            let (p, receive) = (&mut self.peers[peer as usize], &mut self.receives[at]);
            receive.told |= 1 << peer;
            receive.slot = Slot::Open;
            seen.note("RTR");
            p.up.push_back(Up::Rtr(Rtr {
                request: receive.id as u64,
                // Whether others were told of it too.
                slot: (receive.source == ANY) as u32,
                generation: 0,
                address: 0,
                room_bytes: 0,
                pieces: 0,
                seen: BASE.wrapping_add(p.seen as u32),
                epoch: p.epoch,
                context: CONTEXT,
                tag: if receive.tag == ANY { Pattern::ANY_TAG } else { receive.tag as i32 },
            }));
        }
    }

    fn may_tell(&self, config: &Config, at: usize, peer: u8) -> bool {
        let receive = &self.receives[at];
        let others = self.receives.iter().enumerate().filter(|&(other, r)| other != at && r.slot != Slot::None).count();
        let any = receive.source == ANY && matches!(config.any_source, AnySource::FirstClaims | AnySource::AllClaim);
        (receive.source == peer || any)
            && others < config.slots
            && (!self.peers[peer as usize].forgetting || config.without == Without::Silence)
            && (config.without == Without::MayAnnounce || may_announce(&self.receives, at, peer))
    }

    /// A receive has its message. `kind`: none for one that answered an RTR, otherwise how it came.
    fn matched(&mut self, config: &Config, at: usize, message: Message, kind: Option<Kind>) {
        let receive = &mut self.receives[at];
        receive.matched = Some(message);
        receive.cancel = false;
        match kind {
            Some(Kind::Eager) => {
                self.receives.remove(at);
            }
            Some(Kind::Synchronous) => {
                self.receives.remove(at);
                self.peers[message.source as usize].up.push_back(Up::Fin { number: message.number });
            }
            Some(Kind::Large | Kind::Scattered) => {
                receive.offered = true;
                self.complete(config, at);
            }
            None => self.complete(config, at),
        }
    }

    /// Ends a receive that is matched and copied.
    fn complete(&mut self, config: &Config, at: usize) {
        let receive = &self.receives[at];
        if receive.copied < config.pieces {
            return;
        }
        let Some(message) = receive.matched else { return };
        if config.pieces == 0 {
            self.peers[message.source as usize].sending.retain(|s| s.number != message.number);
        } else if receive.offered {
            self.peers[message.source as usize].up.push_back(Up::Fin { number: message.number });
        }
        self.receives.remove(at);
    }

    /// A message has come. `named`: the receive that it answers.
    fn arrive(&mut self, config: &Config, message: Message, tag: u8, kind: Option<Kind>, named: Option<u16>, seen: &mut Seen) -> Result<(), Violation> {
        let peer = &mut self.peers[message.source as usize];
        ensure!(peer.seen == message.number, "{message:?} came as number {}", peer.seen);
        peer.seen += 1;
        let mut found = None;
        for (at, receive) in self.receives.iter().enumerate() {
            if !receive.waits() || !receive.accepts(message.source, tag) {
                continue;
            }
            if let Slot::Begun(other) = receive.slot
                && other.source != message.source
            {
                seen.note("goes on to the next receive");
                continue;
            }
            found = Some(at);
            break;
        }
        let Some(at) = found else {
            ensure!(named.is_none(), "{message:?} answers a receive that is not posted");
            self.unexpected.push((message, tag, kind));
            return Ok(());
        };
        let receive = &mut self.receives[at];
        ensure!(named.is_none_or(|id| id == receive.id), "wrong match: {message:?} answers {named:?}, it belongs to {}", receive.id);
        match (receive.slot, kind) {
            (Slot::Begun(other), _) if other != message => {
                return Err(format!("wrong match: {other:?} is copied into receive {}, which {message:?} matches", receive.id));
            }
            (Slot::None, _) => ensure!(named.is_none(), "{message:?} began a receive that was not announced"),
            (Slot::Open, Some(Kind::Eager | Kind::Synchronous)) => {
                seen.note("mispredicted");
                receive.slot = Slot::None;
            }
            (Slot::Open, Some(_)) => {
                seen.note("crossed, the receiver begins");
                receive.slot = Slot::Begun(message);
            }
            (Slot::Open, None) => return Err(format!("{message:?} did not begin receive {}", receive.id)),
            (Slot::Begun(_), Some(Kind::Eager | Kind::Synchronous)) => {
                let shared = receive.source == ANY && config.any_source == AnySource::AllClaim;
                ensure!(shared, "a short message meets a receive that has begun");
                seen.note("a short message had claimed");
            }
            (Slot::Begun(_), Some(_)) => seen.note("crossed, the sender began"),
            (Slot::Begun(_), None) => seen.note("answered"),
        }
        self.matched(config, at, message, kind);
        Ok(())
    }

    fn reset(&mut self, config: &Config, peer: u8, epoch: u32, seen: &mut Seen) -> Result<(), Violation> {
        let p = &mut self.peers[peer as usize];
        p.epoch = epoch;
        p.forgetting = false;
        seen.note("reset");
        for receive in self.receives.iter_mut().filter(|r| r.waits() && r.announced_to(peer)) {
            receive.told &= !(1 << peer);
            if let Slot::Begun(message) = receive.slot {
                ensure!(message.source != peer, "a reset meets receive {}, which its sender has begun", receive.id);
            } else if receive.told == 0 || config.any_source != AnySource::AllClaim {
                receive.slot = Slot::None;
            }
        }
        Ok(())
    }

    /// Takes announcements back so that a receive can be cancelled, if that can be decided now.
    fn try_cancel(&mut self, config: &Config, id: u16, seen: &mut Seen) {
        let Some(at) = self.at(id) else { return };
        if self.receives[at].matched.is_some() {
            return;
        }
        let peers = self.receives[at].told;
        let tag = self.receives[at].tag;
        if peers != 0 && config.apart && config.without != Without::Forget {
            for (bit, peer) in self.peers.iter_mut().enumerate() {
                if peers >> bit & 1 == 1 && !std::mem::replace(&mut peer.forgetting, true) {
                    peer.up.push_back(Up::Forget);
                }
            }
            seen.note("a cancel waits");
            return;
        }
        if peers != 0 {
            let meets = |r: &Receive| r.tag == tag || r.tag == ANY || tag == ANY;
            let only = matches!(config.without, Without::Forget | Without::NewestFirst);
            let hasty = config.without == Without::PatientCancel;
            let (mut taken_back, mut stuck) = (false, false);
            for other in (at..self.receives.len()).rev() {
                let receive = &mut self.receives[other];
                if !receive.waits() || receive.told & peers == 0 || only && other != at {
                    continue;
                }
                match receive.slot {
                    Slot::Begun(_) if hasty && !meets(receive) => {}
                    Slot::Begun(_) => {
                        stuck = true;
                        break;
                    }
                    _ => {
                        receive.slot = Slot::None;
                        receive.told = 0;
                        taken_back = true;
                    }
                }
            }
            if taken_back && config.without != Without::Forget {
                for (bit, peer) in self.peers.iter_mut().enumerate() {
                    if peers >> bit & 1 == 1 && !peer.forgetting {
                        peer.forgetting = true;
                        peer.up.push_back(Up::Forget);
                    }
                }
            }
            if stuck {
                seen.note("a cancel waits");
                return;
            }
        }
        seen.note("cancelled");
        self.receives.remove(at);
    }

    /// Whether a cancel that waits gets on if it is tried again, as every progress does.
    fn cancel_gets_on(&self, config: &Config, at: usize) -> bool {
        let told = self.receives[at].told;
        if config.apart {
            return self.receives[at].cancel && told == 0;
        }
        let newest = self.receives[at..].iter().rev().find(|r| r.waits() && r.told & told != 0);
        let stuck = newest.is_some_and(|r| matches!(r.slot, Slot::Begun(_)));
        self.receives[at].cancel && !stuck && config.without != Without::PatientCancel
    }

    // ---- the senders

    /// Claims the word of receive `id` for `message`. `None`: it cannot be told whose it was.
    fn claim(&mut self, id: u16, message: Message) -> Option<bool> {
        let at = self.at(id)?;
        match self.receives[at].slot {
            Slot::Open => {
                self.receives[at].slot = Slot::Begun(message);
                Some(true)
            }
            Slot::None => None,
            Slot::Begun(other) => Some(other == message),
        }
    }

    /// Begins the receive that a large message answers, if there is one.
    fn attempt(&mut self, config: &Config, peer: u8, tag: u8, seen: &mut Seen) -> Result<(), Violation> {
        let p = &self.peers[peer as usize];
        let message = Message { source: peer, number: p.sent };
        let rtrs: Vec<u16> = p.sender.iter().flat_map(|s| s.rtrs()).filter(|r| r.accepts(CONTEXT, tag as i32)).map(|r| r.request as u16).collect();
        for id in rtrs {
            if let Some(at) = self.at(id)
                && self.receives[at].slot == Slot::Open
            {
                self.receives[at].slot = Slot::Begun(message);
                self.peers[peer as usize].attempt = Some((tag, id));
                return Ok(());
            }
            seen.note("withdrawn");
            self.peers[peer as usize].sender.as_mut().expect("it has an RTR").withdrawn(CONTEXT, tag as i32);
        }
        self.send(config, peer, tag, Kind::Large, seen)
    }

    fn answer(&mut self, config: &Config, peer: u8, room: bool, seen: &mut Seen) -> Result<(), Violation> {
        let (tag, id) = self.peers[peer as usize].attempt.take().ok_or("nothing to answer")?;
        let at = self.at(id).ok_or("a begun receive is over")?;
        self.receives[at].slot = Slot::Open;
        if room {
            return self.send(config, peer, tag, Kind::Large, seen);
        }
        seen.note("opened again");
        Ok(())
    }

    fn send(&mut self, config: &Config, peer: u8, tag: u8, kind: Kind, seen: &mut Seen) -> Result<(), Violation> {
        self.tags = self.tags.max(tag + 1);
        let p = &mut self.peers[peer as usize];
        p.sends[tag as usize] += 1;
        let number = p.sent;
        p.sent += 1;
        let message = Message { source: peer, number };
        let mut answers = None;
        let claims = config.any_source == AnySource::AllClaim;
        // The RTR that this message answers or, where short messages claim as well, would.
        while let Some(rtr) = self.peers[peer as usize].sender.as_ref().and_then(|s| s.find(CONTEXT, tag as i32).copied()) {
            let id = rtr.request as u16;
            let shared = claims && rtr.slot == 1;
            if kind != Kind::Large && !shared {
                break;
            }
            if self.at(id).is_some_and(|at| self.receives[at].slot == Slot::Open) && self.claim(id, message) == Some(true) {
                answers = Some(id);
                break;
            }
            ensure!(!config.apart, "wrong match: {message:?} fills the window of receive {id}, which is closed");
            seen.note("withdrawn");
            self.peers[peer as usize].sender.as_mut().expect("it has an RTR").withdrawn(CONTEXT, tag as i32);
        }
        let p = &mut self.peers[peer as usize];
        let started = kind == Kind::Large && answers.is_some();
        // Where short messages claim, they have a name too.
        let name = (claims || matches!(kind, Kind::Large | Kind::Scattered) && !started).then_some(number as u64);
        if let Some(sender) = &mut p.sender {
            let used = sender.sent(BASE.wrapping_add(number as u32), CONTEXT, tag as i32, name);
            if used.is_some() && answers.is_none() {
                seen.note("used up by another protocol");
            }
        }
        match kind {
            Kind::Eager | Kind::Synchronous => {
                if claims {
                    p.short.push(number);
                }
                let synchronous = kind == Kind::Synchronous;
                p.down.push_back(Down::Eager { number, tag, synchronous });
                if synchronous {
                    p.sending.push(Sending { number, kind, receive: None, started: false });
                }
            }
            Kind::Large | Kind::Scattered => {
                p.down.push_back(match answers {
                    Some(receive) if started => Down::Start { number, tag, receive },
                    _ => Down::Rts { number, tag },
                });
                p.sending.push(Sending { number, kind, receive: answers.filter(|_| started), started });
            }
        }
        Ok(())
    }

    fn arrive_rtr(&mut self, config: &Config, peer: u8, mut rtr: Rtr, seen: &mut Seen) -> Result<(), Violation> {
        let id = rtr.request as u16;
        let p = &mut self.peers[peer as usize];
        let sent = BASE.wrapping_add(p.sent as u32);
        let first = p.sender.is_none();
        let sender = p.sender.get_or_insert_with(|| Sender::bounded(sent));
        match config.without {
            Without::Counting if !first => rtr.seen = sent.wrapping_sub((p.sent as u32).min(H as u32)),
            Without::History => rtr.seen = sent,
            Without::Reset => {
                let remembered = if first { 0 } else { H as u32 };
                if sent.wrapping_sub(rtr.seen) > remembered {
                    rtr.seen = sent.wrapping_sub(remembered);
                }
            }
            Without::Epochs => rtr.epoch = sender.epoch(),
            _ => {}
        }
        let verdict = sender.arrived(rtr, sent);
        ensure!(sender.waiting() <= R, "{} RTRs wait", sender.waiting());
        match verdict {
            Verdict::Stored => seen.note("stored"),
            Verdict::Void => seen.note("void"),
            Verdict::Reset { epoch } => p.down.push_back(Down::Reset { epoch }),
            Verdict::Crossed { request: None } => seen.note("crossed a short message"),
            Verdict::Crossed { request: Some(name) } => {
                let message = Message { source: peer, number: name as u16 };
                let sending = p.sending.iter().position(|s| s.number == message.number);
                let kind = sending.map(|s| p.sending[s].kind);
                let shared = config.any_source == AnySource::AllClaim && rtr.slot == 1;
                if matches!(kind, Some(Kind::Scattered)) && !shared {
                    seen.note("crossed a scattered message");
                    return Ok(());
                }
                if p.short.contains(&message.number) && !shared {
                    seen.note("crossed a short message");
                    return Ok(());
                }
                let claimed = self.claim(id, message);
                // Of one that is over already nothing is left to fill.
                let closed = claimed.is_none() && self.at(id).is_some();
                ensure!(!(config.apart && closed), "wrong match: {message:?} fills the window of receive {id}, which is closed");
                let p = &mut self.peers[peer as usize];
                match claimed {
                    Some(true) => {
                        seen.note("crossed a large message");
                        if let Some(at) = sending
                            && kind == Some(Kind::Large)
                        {
                            p.sending[at].receive = Some(id);
                        }
                    }
                    // Its word is another's, or is gone.
                    Some(false) if shared => {
                        seen.note("crossed, but another has it");
                        let sender = p.sender.as_mut().expect("it has just answered");
                        sender.release(BASE.wrapping_add(message.number as u32));
                    }
                    None if shared => {
                        let sender = p.sender.as_mut().expect("it has just answered");
                        let epoch = sender.forget(sent);
                        p.down.push_back(Down::Reset { epoch });
                        seen.note("crossed, but who had it?");
                    }
                    Some(false) if rtr.slot == 0 => {
                        return Err(format!("wrong match: {message:?} joins the copy of another message into receive {id}"));
                    }
                    _ => seen.note("crossed, but taken back"),
                }
            }
        }
        Ok(())
    }

    /// Claims or copies a piece.
    fn copy(&mut self, config: &Config, id: u16, side: usize) -> Result<(), Violation> {
        let at = self.at(id).ok_or("a copy into a receive that is over")?;
        let receive = &mut self.receives[at];
        if !receive.copying[side] {
            receive.claimed += 1;
            receive.copying[side] = true;
            if config.torn {
                return Ok(());
            }
        }
        receive.copying[side] = false;
        receive.copied += 1;
        ensure!(receive.copied <= receive.claimed && receive.claimed <= config.pieces, "a piece copied twice");
        if side == 0 {
            let Slot::Begun(message) = receive.slot else {
                return Err(format!("a write into receive {id}, which has not begun"));
            };
            ensure!(receive.matched.is_none_or(|m| m == message), "a write into receive {id}, which another message has matched");
        }
        if receive.copied == config.pieces {
            for peer in &mut self.peers {
                peer.sending.retain(|s| !(s.started && s.receive == Some(id)));
            }
            self.complete(config, at);
        }
        Ok(())
    }
}

impl<const H: usize, const R: usize> Hash for World<H, R> {
    /// Unless `exact`, receives go by their place in the queue, and a message by its place among those that some state still
    /// speaks of; epochs and counts are taken relative to the sender's, and what no RTR can ask for is left out.
    fn hash<S: Hasher>(&self, state: &mut S) {
        (self.posted, self.named, self.cancels, self.tags).hash(state);
        if self.exact {
            return (&self.receives, &self.unexpected, &self.peers).hash(state);
        }
        let place = |id: u64| self.receives.iter().position(|r| r.id as u64 == id).unwrap_or(255) as u8;
        let lasting: Vec<Vec<u16>> = (0..self.peers.len()).map(|peer| self.lasting(peer)).collect();
        let name = |message: Message| match message.number.checked_sub(self.peers[message.source as usize].seen) {
            Some(ahead) => 64 + ahead,
            None => lasting[message.source as usize].iter().position(|&n| n == message.number).unwrap_or(63) as u16,
        };
        for r in &self.receives {
            (r.source, r.tag, r.large && r.waits(), r.told, r.offered, r.claimed, r.copied, r.copying, r.cancel).hash(state);
            r.matched.map(|message| (message.source, name(message))).hash(state);
            match r.slot {
                Slot::None => 0u8.hash(state),
                Slot::Open => 1u8.hash(state),
                Slot::Begun(message) => (2u8, message.source, name(message)).hash(state),
            }
        }
        for &(message, tag, kind) in &self.unexpected {
            (message.source, name(message), tag, kind).hash(state);
        }
        for (source, p) in self.peers.iter().enumerate() {
            let source = source as u8;
            let named = |number| name(Message { source, number });
            let epoch = p.sender.as_ref().map_or(0, Sender::epoch);
            let sent = BASE.wrapping_add(p.sent as u32);
            (p.sends, p.sent - p.seen, epoch.wrapping_sub(p.epoch), p.forgetting, p.attempt.map(|(tag, id)| (tag, place(id as u64)))).hash(state);
            for s in &p.sending {
                (named(s.number), s.kind, s.receive.map(|id| place(id as u64)), s.started).hash(state);
            }
            for packet in &p.down {
                match *packet {
                    Down::Eager { tag, synchronous, .. } => (10u8, tag, synchronous).hash(state),
                    Down::Rts { tag, .. } => (11u8, tag).hash(state),
                    Down::Start { tag, receive, .. } => (12u8, tag, place(receive as u64)).hash(state),
                    Down::Reset { epoch: other } => (13u8, epoch.wrapping_sub(other)).hash(state),
                }
            }
            let mut oldest = BASE.wrapping_add(p.seen as u32);
            for packet in &p.up {
                match packet {
                    Up::Rtr(rtr) if rtr.epoch != epoch => 20u8.hash(state),
                    Up::Rtr(rtr) => {
                        (21u8, place(rtr.request), rtr.tag, rtr.slot, sent.wrapping_sub(rtr.seen)).hash(state);
                        if sent.wrapping_sub(rtr.seen) > sent.wrapping_sub(oldest) {
                            oldest = rtr.seen;
                        }
                    }
                    Up::Fin { number } => (22u8, named(*number)).hash(state),
                    Up::Forget => 23u8.hash(state),
                }
            }
            let Some(sender) = &p.sender else { continue };
            30u8.hash(state);
            for rtr in sender.rtrs() {
                (31u8, place(rtr.request), rtr.tag, rtr.slot).hash(state);
            }
            let (asked, known) = (sent.wrapping_sub(oldest), sent.wrapping_sub(sender.first()));
            (32u8, if known >= asked { 255 } else { known }).hash(state);
            for back in 1..=asked.min(known).min(H as u32) {
                let (tag, request, assigned) = sender.remembered(sent.wrapping_sub(back));
                let short = request.is_some_and(|number| p.short.contains(&(number as u16)));
                (tag, request.map(|number| named(number as u16)), assigned, short).hash(state);
            }
        }
    }
}

impl<const H: usize, const R: usize> Model for World<H, R> {
    type Config = Config;
    type Step = Step;

    fn steps(&self, config: &Config, steps: &mut Vec<Step>) -> usize {
        for (peer, p) in self.peers.iter().enumerate() {
            if !p.down.is_empty() {
                steps.push(Step::Down { peer: peer as u8 });
            }
            if p.attempt.is_some() {
                steps.extend([true, false].map(|room| Step::Answer { peer: peer as u8, room }));
            } else if !p.up.is_empty() {
                steps.push(Step::Up { peer: peer as u8 });
            }
        }
        for receive in &self.receives {
            let left = receive.claimed < config.pieces;
            let knows = self.peers.iter().any(|p| p.sending.iter().any(|s| s.receive == Some(receive.id)));
            if receive.copying[0] || knows && left {
                steps.push(Step::Copy { receive: receive.id, side: 0 });
            }
            if receive.copying[1] || receive.matched.is_some() && left {
                steps.push(Step::Copy { receive: receive.id, side: 1 });
            }
        }
        let waiting = (0..self.receives.len()).filter(|&at| self.cancel_gets_on(config, at));
        steps.extend(waiting.map(|at| Step::Retry { receive: self.receives[at].id }));
        let library = steps.len();
        let tags = config.tags.min(self.tags + 1);
        for (peer, p) in self.peers.iter().enumerate() {
            if p.attempt.is_none() && p.sends.iter().sum::<u16>() < config.sends.1 {
                for tag in (0..tags).filter(|&tag| p.sends[tag as usize] < config.sends.0) {
                    if config.crowd.is_some_and(|crowd| -self.ahead(peer as u8, tag) >= crowd) {
                        continue;
                    }
                    steps.extend(config.kinds.iter().map(|&kind| Step::Send { peer: peer as u8, tag, kind }));
                }
            }
        }
        if self.posted < config.receives.1 {
            let any_tag = config.any_tag.then_some(ANY);
            for tag in (0..tags).filter(|&tag| self.named[tag as usize] < config.receives.0).chain(any_tag) {
                let any_source = (config.any_source != AnySource::None).then_some(ANY);
                for source in (0..config.senders).chain(any_source) {
                    if config.crowd.is_some_and(|crowd| self.ahead(source, tag) >= crowd) {
                        continue;
                    }
                    steps.extend(config.predicts.iter().map(|&large| Step::Post { source, tag, large }));
                }
            }
        }
        let cancels = if config.crowd.is_none() { config.cancels } else { config.cancels.min(self.posted / 12) };
        if self.cancels < cancels {
            steps.extend(self.receives.iter().filter(|r| r.waits() && !r.cancel).map(|r| Step::Cancel { receive: r.id }));
        }
        if config.late {
            for (at, r) in self.receives.iter().enumerate() {
                if r.large && r.waits() && !r.cancel && r.slot == Slot::None && r.source != ANY && self.may_tell(config, at, r.source) {
                    steps.push(Step::Announce { receive: r.id });
                }
            }
        }
        library
    }

    fn take(&mut self, config: &Config, step: Step, seen: &mut Seen) -> Result<(), Violation> {
        match step {
            Step::Send { peer, tag, kind: Kind::Large } if config.narrow => self.attempt(config, peer, tag, seen),
            Step::Send { peer, tag, kind } => self.send(config, peer, tag, kind, seen),
            Step::Answer { peer, room } => self.answer(config, peer, room, seen),
            Step::Post { source, tag, large } => self.post(config, source, tag, large, seen),
            Step::Cancel { receive } => {
                self.cancels += 1;
                let at = self.at(receive).ok_or("no such receive")?;
                self.receives[at].cancel = true;
                self.try_cancel(config, receive, seen);
                Ok(())
            }
            Step::Announce { receive } => {
                let at = self.at(receive).ok_or("no such receive")?;
                seen.note("announced later");
                self.announce(config, at, seen);
                Ok(())
            }
            Step::Retry { receive } => {
                self.try_cancel(config, receive, seen);
                Ok(())
            }
            Step::Down { peer } => {
                let packet = self.peers[peer as usize].down.pop_front().ok_or("no packet")?;
                let of = |number| Message { source: peer, number };
                match packet {
                    Down::Eager { number, tag, synchronous } => {
                        let kind = if synchronous { Kind::Synchronous } else { Kind::Eager };
                        self.arrive(config, of(number), tag, Some(kind), None, seen)?;
                    }
                    Down::Rts { number, tag } => self.arrive(config, of(number), tag, Some(Kind::Large), None, seen)?,
                    Down::Start { number, tag, receive } => self.arrive(config, of(number), tag, None, Some(receive), seen)?,
                    Down::Reset { epoch } => self.reset(config, peer, epoch, seen)?,
                }
                Ok(())
            }
            Step::Up { peer } => {
                let p = &mut self.peers[peer as usize];
                match p.up.pop_front().ok_or("no packet")? {
                    Up::Rtr(rtr) => self.arrive_rtr(config, peer, rtr, seen),
                    Up::Fin { number } => {
                        let at = p.sending.iter().position(|s| s.number == number).ok_or("a message finished twice")?;
                        p.sending.remove(at);
                        Ok(())
                    }
                    Up::Forget => {
                        let sent = BASE.wrapping_add(p.sent as u32);
                        let epoch = p.sender.as_mut().ok_or("nothing was announced")?.forget(sent);
                        p.down.push_back(Down::Reset { epoch });
                        Ok(())
                    }
                }
            }
            Step::Copy { receive, side } => self.copy(config, receive, side as usize),
        }
    }

    fn settled(&self, config: &Config) -> Result<(), Violation> {
        for receive in &self.receives {
            ensure!(receive.matched.is_none(), "receive {} is never complete", receive.id);
            ensure!(!receive.cancel, "receive {} waits for ever, although it was cancelled", receive.id);
            ensure!(!matches!(receive.slot, Slot::Begun(_)), "receive {} has begun, and no message comes", receive.id);
            ensure!(
                !self.unexpected.iter().any(|&(message, tag, _)| receive.accepts(message.source, tag)),
                "receive {} and its message miss each other",
                receive.id
            );
        }
        for (number, p) in self.peers.iter().enumerate() {
            for sending in &p.sending {
                let waits = self.unexpected.iter().any(|(m, _, _)| m.source == number as u8 && m.number == sending.number);
                ensure!(waits, "message {} of {number} is never complete", sending.number);
            }
            ensure!(!p.forgetting, "the receiver waits for an answer");
            let told = self.receives.iter().filter(|r| r.announced_to(number as u8)).count();
            let known = p.sender.as_ref().map_or(0, Sender::waiting);
            // A sender learns only by trying that another has had a receive from any source.
            let agree = match config.any_source {
                _ if config.without != Without::Nothing => true,
                AnySource::None | AnySource::Silent => known == told,
                AnySource::FirstClaims => true,
                AnySource::AllClaim => known >= told,
            };
            ensure!(agree, "{told} receives are announced to {number}, which knows of {known}");
        }
        Ok(())
    }
}
