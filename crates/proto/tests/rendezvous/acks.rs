//! The paper's own variant: one receiver and its senders. Whoever has found the other's request copies alone.

use crate::explore::{Model, Seen, Violation};
use crate::queue::{ANY, Posted, may_announce, oldest};
use proto::rendezvous::Rtr;
use proto::rendezvous::acks::{Receiver, Send, Sender, Verdict};
use std::collections::VecDeque;

/// A rule of the protocol that is left out, to see what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Without {
    Nothing,
    /// A sender that has found an RTR says nothing until all is written (Fig. 7).
    RtrAck,
    /// A receiver that has found an RTS says nothing until all is read.
    RtsAck,
    /// An RTS is acknowledged only if it came before its receive, as the paper has it.
    RtsAckOfPosted,
    /// Announces behind receives that are not (Fig. 9).
    MayAnnounce,
    /// An eager message leaves no flag (Fig. 10).
    EagerFlag,
    /// The first large message after an eager one drops the RTRs that have come, and the receiver is not stopped.
    Stop,
    /// Any answer ends the stop, not only that to the RTS which carried it.
    OwnAnswer,
    /// Receives that were posted before *stop-RTR* still count as announced.
    StopUnannounces,
    /// The receiver stays stopped.
    Resume,
    /// A receive is cancelled without asking.
    Forget,
    /// Receives are announced while the sender has not answered.
    Silence,
}

#[derive(Clone, Copy)]
pub struct Config {
    pub senders: u8,
    pub tags: u8,
    pub sends: (u16, u16),
    pub receives: (u16, u16),
    pub cancels: u16,
    /// Receives of any tag, and of any source.
    pub wildcards: bool,
    /// Large messages that cannot answer an RTR.
    pub scattered: bool,
    pub pieces: u8,
    /// How far the receives of an envelope may be ahead of its messages, and these of those; and cancels come only now and then.
    pub crowd: Option<isize>,
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
        wildcards: false,
        scattered: false,
        pieces: 1,
        crowd: None,
        without: Without::Nothing,
    };
}

/// When a receive's message came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrival {
    /// Before it was posted.
    Earlier,
    Now,
    /// Now, by an RTS with *stop-RTR*.
    WithStop,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Message {
    source: u8,
    number: u16,
}

#[derive(Clone, Hash, Debug)]
struct Receive {
    id: u16,
    source: u8,
    tag: u8,
    /// The peer that it was announced to.
    told: Option<u8>,
    /// Its RTR was answered: the sender writes.
    written_by: Option<Message>,
    matched: Option<Message>,
    /// The receiver reads.
    reads: bool,
    copied: u8,
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
        self.told == Some(peer)
    }
}

#[derive(Clone, Copy, Hash, Debug)]
enum Down {
    Eager { number: u16, tag: u8 },
    Rts { number: u16, tag: u8, stop: bool, resume: bool },
    RtrAck { number: u16, tag: u8, receive: u16 },
    Forgot { tag: u8 },
}

impl Down {
    fn tag(self) -> Option<u8> {
        match self {
            Down::Eager { tag, .. } | Down::Rts { tag, .. } | Down::RtrAck { tag, .. } => Some(tag),
            Down::Forgot { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Hash, Debug)]
enum Up {
    Rtr(Rtr),
    RtsAck { number: u16, tag: u8 },
    Done { number: u16 },
    Forget { tag: u8 },
}

#[derive(Clone, Hash, Debug)]
struct Sending {
    number: u16,
    tag: u8,
    /// Writes into this receive; otherwise waits to be read.
    receive: Option<u16>,
    copied: u8,
}

#[derive(Clone, Hash, Debug)]
struct Peer<const R: usize, const E: usize> {
    sender: Sender<R, E>,
    receiver: Receiver,
    sends: [u16; 4],
    sent: u16,
    sending: Vec<Sending>,
    /// The request that carried *stop-RTR* last.
    stop: Option<u16>,
    /// A short message has left.
    eager: bool,
    down: VecDeque<Down>,
    up: VecDeque<Up>,
}

#[derive(Clone, Hash, Debug)]
pub struct World<const R: usize, const E: usize> {
    receives: Vec<Receive>,
    unexpected: Vec<(Message, u8, bool)>,
    peers: Vec<Peer<R, E>>,
    named: [u16; 4],
    posted: u16,
    cancels: u16,
    tags: u8,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Eager {
        peer: u8,
        tag: u8,
    },
    Large {
        peer: u8,
        tag: u8,
    },
    /// A large message that cannot answer an RTR.
    Scattered {
        peer: u8,
        tag: u8,
    },
    Post {
        source: u8,
        tag: u8,
        large: bool,
    },
    Cancel {
        receive: u16,
    },
    /// The receiver handles a packet.
    Down {
        peer: u8,
    },
    /// A sender handles a packet.
    Up {
        peer: u8,
    },
    /// The sender writes a piece.
    Write {
        peer: u8,
        number: u16,
    },
    /// The receiver reads a piece.
    Read {
        receive: u16,
    },
}

const CONTEXT: u64 = 7;

macro_rules! ensure {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

impl<const R: usize, const E: usize> World<R, E> {
    pub fn new(config: &Config) -> Self {
        let peer = Peer {
            sender: Sender::default(),
            receiver: Receiver::default(),
            sends: [0; 4],
            sent: 0,
            sending: Vec::new(),
            stop: None,
            eager: false,
            down: VecDeque::new(),
            up: VecDeque::new(),
        };
        World { receives: Vec::new(), unexpected: Vec::new(), peers: vec![peer; config.senders as usize], named: [0; 4], posted: 0, cancels: 0, tags: 0 }
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

    // ---- the receiver

    fn post(&mut self, config: &Config, source: u8, tag: u8, large: bool, seen: &mut Seen) {
        let id = self.posted;
        self.posted += 1;
        if tag != ANY {
            self.named[tag as usize] += 1;
            self.tags = self.tags.max(tag + 1);
        }
        let new = Receive { id, source, tag, told: None, written_by: None, matched: None, reads: false, copied: 0, cancel: false };
        let found = self.unexpected.iter().position(|&(message, tag, _)| new.accepts(message.source, tag));
        self.receives.push(new);
        let at = self.receives.len() - 1;
        if let Some(found) = found {
            let (message, tag, offered) = self.unexpected.remove(found);
            self.matched(config, at, message, tag, offered, Arrival::Earlier, seen);
            return;
        }
        if !large || source == ANY || tag == ANY {
            return;
        }
        let may = config.without == Without::MayAnnounce || may_announce(&self.receives, at, source);
        let p = &mut self.peers[source as usize];
        let silent = !p.receiver.may_announce(CONTEXT, tag as i32);
        if !may || silent && config.without != Without::Silence {
            return;
        }
        seen.note("RTR");
        self.receives[at].told = Some(source);
        let rtr =
            Rtr { request: id as u64, slot: 0, generation: 0, address: 0, room_bytes: 0, pieces: 0, seen: 0, epoch: 0, context: CONTEXT, tag: tag as i32 };
        p.up.push_back(Up::Rtr(rtr));
    }

    /// A receive has its message, eager or offered.
    #[allow(clippy::too_many_arguments)]
    fn matched(&mut self, config: &Config, at: usize, message: Message, tag: u8, offered: bool, arrival: Arrival, seen: &mut Seen) {
        let receive = &mut self.receives[at];
        receive.matched = Some(message);
        receive.cancel = false;
        if !offered {
            if receive.told.is_some() {
                seen.note("mispredicted");
            }
            self.receives.remove(at);
            return;
        }
        receive.reads = true;
        if receive.told.is_some() {
            seen.note("crossed");
            // The RTR is the answer, unless it is dropped.
            if arrival != Arrival::WithStop {
                return;
            }
        }
        let late = arrival == Arrival::Earlier;
        let left_out = config.without == Without::RtsAck || config.without == Without::RtsAckOfPosted && !late;
        if !left_out {
            seen.note("RTS-ACK");
            self.peers[message.source as usize].up.push_back(Up::RtsAck { number: message.number, tag });
        }
    }

    fn arrive(&mut self, config: &Config, message: Message, tag: u8, offered: bool, arrival: Arrival, seen: &mut Seen) -> Result<(), Violation> {
        match oldest(&self.receives, message.source, tag) {
            None => self.unexpected.push((message, tag, offered)),
            Some(at) => {
                let receive = &self.receives[at];
                ensure!(
                    receive.written_by.is_none(),
                    "wrong match: {:?} is written into receive {}, which {message:?} matches",
                    receive.written_by,
                    receive.id
                );
                self.matched(config, at, message, tag, offered, arrival, seen);
            }
        }
        Ok(())
    }

    // ---- the senders

    fn large(&mut self, config: &Config, peer: u8, tag: u8, scattered: bool, seen: &mut Seen) -> Result<(), Violation> {
        self.tags = self.tags.max(tag + 1);
        let p = &mut self.peers[peer as usize];
        p.sends[tag as usize] += 1;
        let number = p.sent;
        p.sent += 1;
        let request = number as u64;
        let how = if scattered { p.sender.offer(CONTEXT, tag as i32, request) } else { p.sender.send(CONTEXT, tag as i32, request) };
        match how {
            Send::Answer(rtr) => {
                seen.note("answered");
                if p.eager {
                    seen.note("answered after an eager message");
                }
                let id = rtr.request as u16;
                p.sending.push(Sending { number, tag, receive: Some(id), copied: 0 });
                if config.without != Without::RtrAck {
                    p.down.push_back(Down::RtrAck { number, tag, receive: id });
                }
                // What a write would do to a receive that is not this message's, the first write shows.
                if let Some(at) = self.at(id) {
                    self.receives[at].written_by = Some(Message { source: peer, number });
                }
            }
            Send::Offer { mut stop, mut resume } => {
                if stop {
                    seen.note("stop");
                    p.stop = Some(number);
                }
                if resume {
                    seen.note("resume");
                }
                if config.without == Without::Stop && stop {
                    p.sender.acknowledged(CONTEXT, tag as i32, request);
                    stop = false;
                }
                resume &= config.without != Without::Resume;
                p.down.push_back(Down::Rts { number, tag, stop, resume });
                p.sending.push(Sending { number, tag, receive: None, copied: 0 });
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, config: &Config, peer: u8, number: u16, tag: u8) {
        let p = &mut self.peers[peer as usize];
        p.sender.acknowledged(CONTEXT, tag as i32, number as u64);
        if let (Without::OwnAnswer, Some(stop)) = (config.without, p.stop) {
            p.sender.acknowledged(CONTEXT, tag as i32, stop as u64);
        }
    }
}

impl<const R: usize, const E: usize> Model for World<R, E> {
    type Config = Config;
    type Step = Step;

    fn steps(&self, config: &Config, steps: &mut Vec<Step>) -> usize {
        for (peer, p) in self.peers.iter().enumerate() {
            let peer = peer as u8;
            if !p.down.is_empty() {
                steps.push(Step::Down { peer });
            }
            if !p.up.is_empty() {
                steps.push(Step::Up { peer });
            }
            steps.extend(p.sending.iter().filter(|s| s.receive.is_some()).map(|s| Step::Write { peer, number: s.number }));
        }
        steps.extend(self.receives.iter().filter(|r| r.reads).map(|r| Step::Read { receive: r.id }));
        let library = steps.len();
        let tags = config.tags.min(self.tags + 1);
        for (peer, p) in self.peers.iter().enumerate() {
            let peer = peer as u8;
            if p.sends.iter().sum::<u16>() < config.sends.1 {
                for tag in (0..tags).filter(|&tag| p.sends[tag as usize] < config.sends.0) {
                    if config.crowd.is_some_and(|crowd| -self.ahead(peer, tag) >= crowd) {
                        continue;
                    }
                    steps.extend([Step::Eager { peer, tag }, Step::Large { peer, tag }]);
                    steps.extend(config.scattered.then_some(Step::Scattered { peer, tag }));
                }
            }
        }
        if self.posted < config.receives.1 {
            let any = config.wildcards.then_some(ANY);
            for tag in (0..tags).filter(|&tag| self.named[tag as usize] < config.receives.0).chain(any) {
                for source in (0..config.senders).chain(any.filter(|_| config.senders > 1)) {
                    if config.crowd.is_some_and(|crowd| self.ahead(source, tag) >= crowd) {
                        continue;
                    }
                    steps.extend([true, false].map(|large| Step::Post { source, tag, large }));
                }
            }
        }
        let cancels = if config.crowd.is_none() { config.cancels } else { config.cancels.min(self.posted / 12) };
        if self.cancels < cancels {
            steps.extend(self.receives.iter().filter(|r| r.waits() && !r.cancel).map(|r| Step::Cancel { receive: r.id }));
        }
        library
    }

    fn take(&mut self, config: &Config, step: Step, seen: &mut Seen) -> Result<(), Violation> {
        match step {
            Step::Eager { peer, tag } => {
                self.tags = self.tags.max(tag + 1);
                let p = &mut self.peers[peer as usize];
                p.sends[tag as usize] += 1;
                p.eager = true;
                p.down.push_back(Down::Eager { number: p.sent, tag });
                p.sent += 1;
                if config.without != Without::EagerFlag {
                    p.sender.eager(CONTEXT, tag as i32);
                }
            }
            Step::Large { peer, tag } => self.large(config, peer, tag, false, seen)?,
            Step::Scattered { peer, tag } => self.large(config, peer, tag, true, seen)?,
            Step::Post { source, tag, large } => self.post(config, source, tag, large, seen),
            Step::Cancel { receive } => {
                self.cancels += 1;
                let at = self.at(receive).ok_or("no such receive")?;
                match self.receives[at].told {
                    Some(peer) if config.without != Without::Forget => {
                        self.receives[at].cancel = true;
                        let tag = self.receives[at].tag;
                        let p = &mut self.peers[peer as usize];
                        if p.receiver.forget(CONTEXT, tag as i32) {
                            p.up.push_back(Up::Forget { tag });
                        }
                    }
                    _ => {
                        seen.note("cancelled");
                        self.receives.remove(at);
                    }
                }
            }
            Step::Down { peer } => {
                let packet = self.peers[peer as usize].down.pop_front().ok_or("no packet")?;
                let of = |number| Message { source: peer, number };
                match packet {
                    Down::Eager { number, tag } => self.arrive(config, of(number), tag, false, Arrival::Now, seen)?,
                    Down::Rts { number, tag, stop, resume } => {
                        let arrival = if stop { Arrival::WithStop } else { Arrival::Now };
                        self.arrive(config, of(number), tag, true, arrival, seen)?;
                        self.peers[peer as usize].receiver.offered(CONTEXT, tag as i32, stop, resume);
                        if stop && config.without != Without::StopUnannounces {
                            self.receives.iter_mut().filter(|r| r.waits() && r.tag == tag && r.told == Some(peer)).for_each(|r| r.told = None);
                            let freed: Vec<u16> = self.receives.iter().filter(|r| r.cancel && r.told.is_none()).map(|r| r.id).collect();
                            if !freed.is_empty() {
                                seen.note("a stop lets go of a cancelled receive");
                            }
                        }
                    }
                    Down::RtrAck { number, tag, receive } => {
                        let at = oldest(&self.receives, peer, tag).ok_or("an RTR-ACK finds no receive")?;
                        let found = &mut self.receives[at];
                        ensure!(found.id == receive, "wrong match: {:?} answers receive {receive}, it belongs to {}", of(number), found.id);
                        found.matched = Some(of(number));
                        found.cancel = false;
                        if found.copied == config.pieces {
                            self.receives.remove(at);
                        }
                    }
                    Down::Forgot { tag } => {
                        self.peers[peer as usize].receiver.forgotten(CONTEXT, tag as i32);
                        for receive in self.receives.iter_mut().filter(|r| r.waits() && r.tag == tag && r.source == peer) {
                            ensure!(receive.written_by.is_none(), "receive {} is written after its RTR was forgotten", receive.id);
                            receive.told = None;
                        }
                        if self.receives.iter().any(|r| r.cancel && r.tag == tag && r.source == peer) {
                            seen.note("cancelled");
                        }
                        self.receives.retain(|r| !(r.cancel && r.tag == tag && r.source == peer));
                    }
                }
            }
            Step::Up { peer } => {
                let p = &mut self.peers[peer as usize];
                match p.up.pop_front().ok_or("no packet")? {
                    Up::Rtr(rtr) => match p.sender.arrived(rtr) {
                        Verdict::Stored => seen.note("stored"),
                        Verdict::Crossed { .. } => seen.note("dropped: crossed"),
                        Verdict::Void => seen.note("dropped: ambiguous"),
                    },
                    Up::RtsAck { number, tag } => self.acknowledged(config, peer, number, tag),
                    Up::Done { number } => {
                        let at = p.sending.iter().position(|s| s.number == number).ok_or("a message finished twice")?;
                        p.sending.remove(at);
                    }
                    Up::Forget { tag } => {
                        p.sender.forget(CONTEXT, tag as i32);
                        p.down.push_back(Down::Forgot { tag });
                    }
                }
                let waiting = self.peers[peer as usize].sender.waiting();
                ensure!(waiting <= R * E, "{waiting} RTRs wait");
            }
            Step::Write { peer, number } => {
                let p = &mut self.peers[peer as usize];
                let at = p.sending.iter().position(|s| s.number == number).ok_or("no such message")?;
                let (id, tag) = (p.sending[at].receive.ok_or("nothing to write to")?, p.sending[at].tag);
                p.sending[at].copied += 1;
                if p.sending[at].copied == config.pieces {
                    p.sending.remove(at);
                    if config.without == Without::RtrAck {
                        p.down.push_back(Down::RtrAck { number, tag, receive: id });
                    }
                }
                let message = Message { source: peer, number };
                let at = self.at(id).ok_or(format!("a write into receive {id}, which is over"))?;
                let receive = &mut self.receives[at];
                ensure!(receive.matched.is_none_or(|m| m == message), "a write into receive {id}, which another message has matched");
                receive.copied += 1;
                ensure!(receive.copied <= config.pieces, "a piece written twice");
                if receive.copied == config.pieces && receive.matched.is_some() {
                    self.receives.remove(at);
                }
            }
            Step::Read { receive } => {
                let at = self.at(receive).ok_or("no such receive")?;
                let receive = &mut self.receives[at];
                receive.copied += 1;
                if receive.copied == config.pieces {
                    let message = receive.matched.ok_or("a read without a message")?;
                    self.peers[message.source as usize].up.push_back(Up::Done { number: message.number });
                    self.receives.remove(at);
                }
            }
        }
        Ok(())
    }

    fn settled(&self, _: &Config) -> Result<(), Violation> {
        for receive in &self.receives {
            ensure!(receive.matched.is_none() && receive.written_by.is_none(), "receive {} is never complete", receive.id);
            ensure!(!receive.cancel, "receive {} waits for ever, although it was cancelled", receive.id);
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
        }
        Ok(())
    }
}
