//! A world of machines that share memory: what their programs do, what may happen next, and what must hold at the end.

use super::ports::{self, Buffer, COPIED_BYTES, COPIED_TWICE_BYTES, EAGER_BYTES, Field, Packet, READ_BYTES, RINGED_BYTES, Rank, Rings, STREAMED_BYTES, enter};
use crate::explore::{Model, Seen, Violation, fingerprint};
use proto::matching::Pattern;
use proto::p2p::{self, Machine, Mode, RequestId, Target};
use proto::rendezvous::Variant;
use proto::rendezvous::usage::Speculation;
use proto::wire::{self, Context};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// In the line of its header, or beside it.
    Inline,
    Eager,
    /// The same, and the sender waits until it is matched.
    InlineSynchronous,
    Synchronous,
    /// Long, and fetched in the way that its length stands for.
    Read,
    Streamed,
    Copied,
    CopiedTwice,
    /// As copied twice, with the sender's pieces through the ring.
    Ringed,
    /// Long, and not in one piece: it cannot answer an RTR.
    Scattered,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Kind::Inline | Kind::InlineSynchronous => 8,
            Kind::Eager | Kind::Synchronous => EAGER_BYTES,
            Kind::Read => READ_BYTES,
            Kind::Streamed => STREAMED_BYTES,
            Kind::Copied | Kind::Scattered => COPIED_BYTES,
            Kind::CopiedTwice => COPIED_TWICE_BYTES,
            Kind::Ringed => RINGED_BYTES,
        }
    }

    /// The sender's call is over at once.
    fn leaves(self) -> bool {
        matches!(self, Kind::Inline | Kind::Eager)
    }
}

/// How a receive is posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Room {
    /// For any message, and announced where that is allowed.
    Announced,
    /// For any message, and announced to nobody.
    Silent,
    /// For short messages only: of a longer one there is no more.
    Short,
}

#[derive(Clone)]
pub struct Config {
    pub ranks: u32,
    /// Who sends to whom.
    pub flows: &'static [(u32, u32)],
    pub tags: i32,
    /// Messages of each tag in each flow, and of each flow.
    pub sends: (u16, u16),
    /// Receives that name a tag, of each, and all of a rank that somebody sends to.
    pub receives: (u16, u16),
    pub kinds: &'static [Kind],
    pub rooms: &'static [Room],
    /// Receives of any tag; and of any source.
    pub any_tag: bool,
    pub any_source: bool,
    /// Receives that are to be cancelled, of all; and sends.
    pub cancels: u16,
    pub send_cancels: u16,
    /// At most so many receives of a rank and messages of a flow wait at once; and cancels come only now and then.
    pub crowd: Option<usize>,
    /// Packets that a ring holds.
    pub packets_max: usize,
    /// The senders' pieces of announced messages come through the rings.
    pub ringed: bool,
    /// Looks for which a side leaves such a copy to the other.
    pub patience: u32,
    /// The system may forbid the last rank to reach others' memory, at any time.
    pub bars: bool,
    /// A message has answered an RTR before all this.
    pub warm: bool,
    pub rendezvous: Variant,
    pub speculation: Speculation,
}

impl Config {
    /// One envelope, three messages and three receives.
    pub const SMALL: Config = Config {
        ranks: 2,
        flows: &[(0, 1)],
        tags: 1,
        sends: (3, 3),
        receives: (3, 3),
        kinds: &[Kind::Eager, Kind::Copied],
        rooms: &[Room::Announced, Room::Silent],
        any_tag: false,
        any_source: false,
        cancels: 0,
        send_cancels: 0,
        crowd: None,
        packets_max: 64,
        ringed: false,
        patience: 1,
        bars: false,
        warm: true,
        rendezvous: Variant::Sequence,
        speculation: Speculation::Always,
    };
}

#[derive(Clone, Hash)]
struct Send {
    to: u32,
    tag: i32,
    kind: Kind,
    memo: Buffer,
    /// Under way.
    id: Option<u64>,
    cancel: bool,
    cancelled: bool,
}

#[derive(Clone, Hash)]
struct Receive {
    source: u32,
    tag: i32,
    room: usize,
    memo: Buffer,
    id: Option<u64>,
    cancel: bool,
    /// Once it is over: sender and number of its message; `None`: it was cancelled.
    got: Option<Option<(u32, u16)>>,
}

impl Receive {
    /// It is over, and its message came from `source`.
    fn is_of(&self, source: u32) -> bool {
        self.got.flatten().is_some_and(|(from, _)| from == source)
    }

    fn accepts(&self, source: u32, send: &Send) -> bool {
        [Pattern::ANY_SOURCE, source].contains(&self.source) && [Pattern::ANY_TAG, send.tag].contains(&self.tag)
    }
}

#[derive(Clone, Hash, Default)]
struct Program {
    sends: Vec<Send>,
    receives: Vec<Receive>,
}

#[derive(Clone)]
pub struct World {
    field: Field,
    ranks: Vec<Rc<Rank>>,
    programs: Vec<Program>,
    cancels: (u16, u16),
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.field.hash(hasher);
        for rank in &self.ranks {
            rank.hash_state(hasher);
            rank.memory.as_ref().expect("it has rings").out_of_reach.hash(hasher);
        }
        self.programs.hash(hasher);
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The rank takes in a packet.
    Deliver {
        from: u32,
        to: u32,
    },
    /// The rank does what was put off, and a piece of its copies.
    GoOn {
        rank: u32,
    },
    Send {
        from: u32,
        to: u32,
        tag: i32,
        kind: Kind,
    },
    Post {
        rank: u32,
        source: u32,
        tag: i32,
        room: Room,
    },
    Cancel {
        rank: u32,
        receive: usize,
    },
    CancelSend {
        rank: u32,
        send: usize,
    },
    /// The system forbids a rank to reach others' memory.
    Bar {
        rank: u32,
    },
}

/// Number that stands for message `number` of a rank in memory; no message has 0.
fn name(rank: u32, number: usize) -> u16 {
    ((rank + 1) << 8) as u16 | number as u16
}

fn region(rank: u32, receives: bool, number: usize) -> u64 {
    (rank as u64 + 1) << 32 | (receives as u64) << 16 | number as u64
}

fn context() -> Context {
    Context::new(0, 1).expect("a small number")
}

fn is_over(rank: &Rank, id: RequestId) -> bool {
    let (index, generation) = id.parts();
    rank.age_of(index, generation, u32::MAX).is_some_and(|age| age.is_some())
}

impl World {
    pub fn new(config: &Config) -> World {
        let rank = |me| {
            let machine = p2p::Config {
                me,
                processes: config.ranks,
                eager_bytes_max: EAGER_BYTES,
                quick_bytes_max: EAGER_BYTES,
                longer_while_both_wait: false,
                shared_cores: false,
                unexpected_bytes_max: 1 << 40,
                headers_bytes_max: 1 << 40,
                speculation: config.speculation,
                rtr_usage_min_percent: 50,
                rendezvous: config.rendezvous,
                descriptors: 16,
                patience: config.patience,
            };
            Rc::new(Machine::new(machine, 0, Some(Rings { me, out_of_reach: Vec::new() }), ports::One))
        };
        let ranks = (0..config.ranks).map(rank).collect();
        let mut field = Field::default();
        field.packets_max = config.packets_max;
        field.ringed = config.ringed;
        let mut world = World { field, ranks, programs: vec![Program::default(); config.ranks as usize], cancels: (0, 0) };
        if config.warm {
            for &(from, to) in config.flows {
                let first = [Step::Post { rank: to, source: from, tag: 0, room: Room::Announced }, Step::Deliver { from: to, to: from }];
                let steps = [Step::Send { from, to, tag: 0, kind: Kind::Copied }, Step::Deliver { from, to }];
                first.into_iter().chain(steps).for_each(|step| world.take(config, step, &mut Seen::default()).expect("an announced message"));
                world.settle(config);
            }
            world.programs.iter_mut().for_each(|program| *program = Program::default());
        }
        world
    }

    /// Takes a step, which is no violation.
    pub fn play(&mut self, config: &Config, step: Step) {
        self.take(config, step, &mut Seen::default()).expect("nothing is wrong");
    }

    /// Delivers all packets that there are from one rank to another, and those that this makes.
    pub fn deliver(&mut self, config: &Config, from: u32, to: u32) {
        while self.field.rings.get(&(from, to)).is_some_and(|ring| !ring.is_empty()) {
            self.play(config, Step::Deliver { from, to });
        }
    }

    /// Receives of a rank that have their message.
    pub fn received(&self, rank: u32) -> usize {
        self.programs[rank as usize].receives.iter().filter(|receive| matches!(receive.got, Some(Some(_)))).count()
    }

    /// Lets the library do all that it can.
    fn settle(&mut self, config: &Config) {
        loop {
            let mut steps = Vec::new();
            if self.steps(config, &mut steps) == 0 {
                return;
            }
            self.take(config, steps[0], &mut Seen::default()).expect("a step of the library");
        }
    }

    fn machine(&mut self, rank: u32) -> &mut Rank {
        Rc::make_mut(&mut self.ranks[rank as usize])
    }

    fn act(&mut self, step: Step) -> Result<(), ports::Error> {
        match step {
            Step::Deliver { from, to } => {
                let packet = ports::next(from, to);
                self.arrive(to, from, packet)?;
            }
            Step::GoOn { rank } => {
                let machine = self.machine(rank);
                if machine.postponed {
                    machine.try_postponed()?;
                }
                if !machine.settled() && !machine.advance()? && machine.quiet() {
                    // It may sleep now, until another one wakes it.
                    let moves = machine.clone().advance()?;
                    assert!(!moves, "rank {rank} sleeps with something left to do");
                }
            }
            Step::Send { from, to, tag, kind } => {
                let number = self.programs[from as usize].sends.len();
                let memo = Buffer::new(region(from, false, number), kind.bytes(), kind != Kind::Scattered, name(from, number));
                let mode = if matches!(kind, Kind::Synchronous | Kind::InlineSynchronous) { Mode::Synchronous } else { Mode::Standard };
                let target = Target { process: to, context: context(), source: from, tag };
                let id = self.machine(from).send(&target, &memo, mode)?.map(RequestId::to_raw);
                if id.is_none() {
                    memo.end();
                }
                self.programs[from as usize].sends.push(Send { to, tag, kind, memo, id, cancel: false, cancelled: false });
            }
            Step::Post { rank, source, tag, room } => {
                let number = self.programs[rank as usize].receives.len();
                let bytes = if room == Room::Short { EAGER_BYTES } else { COPIED_TWICE_BYTES };
                let memo = Buffer::new(region(rank, true, number), bytes, true, 0);
                let machine = self.machine(rank);
                let index = machine.open(context());
                let id = machine.receive(index, Pattern { source, tag }, &memo)?;
                let only = if source == Pattern::ANY_SOURCE { (machine.config.processes == 2).then(|| 1 - rank) } else { Some(source) };
                if let Some(process) = only.filter(|_| room == Room::Announced) {
                    machine.announce(id, process);
                }
                let id = Some(id.to_raw());
                self.programs[rank as usize].receives.push(Receive { source, tag, room: bytes, memo, id, cancel: false, got: None });
            }
            Step::Cancel { rank, receive } => {
                let receive = &mut self.programs[rank as usize].receives[receive];
                receive.cancel = true;
                let id = receive.id.expect("it is under way");
                self.machine(rank).cancel(RequestId::from_raw(id))?;
            }
            Step::CancelSend { rank, send } => {
                let send = &mut self.programs[rank as usize].sends[send];
                send.cancel = true;
                let id = send.id.expect("it is under way");
                self.machine(rank).cancel(RequestId::from_raw(id))?;
            }
            Step::Bar { rank } => ports::bar(rank),
        }
        Ok(())
    }

    fn arrive(&mut self, to: u32, from: u32, packet: Packet) -> Result<(), ports::Error> {
        let Packet { head, words, body } = packet;
        let machine = self.machine(to);
        let inline = 8 * words.len() + body.bytes;
        if words.len() <= 1 && inline <= 48 {
            let block = body.blocks.first().map_or(0, |block| *block as u64);
            let line = match words.first() {
                None => [block, 0, 0, 0, 0, 0],
                Some(word) => [*word, block, 0, 0, 0, 0],
            };
            let quickly = words.is_empty() && body.bytes > 0 && machine.arrive_quickly(from, head, &line, inline)?;
            if quickly || machine.arrive_synchronous(from, head, &line, inline)? {
                return Ok(());
            }
        }
        let (kind, envelope) = wire::parse(head).expect("a packet of a rank");
        let good = machine.arrive(from, kind, envelope, &words, &body, p2p::DataPath::Eager)?;
        assert!(good, "rank {to} refuses a packet of {from}: {kind:?} {words:?}");
        Ok(())
    }

    /// The programs take what is complete.
    fn harvest(&mut self) -> Result<(), Violation> {
        for (me, (rank, program)) in (0..).zip(self.ranks.iter_mut().zip(&mut self.programs)) {
            for send in &mut program.sends {
                let Some(id) = send.id.map(RequestId::from_raw).filter(|id| is_over(rank, *id)) else { continue };
                let outcome = Rc::make_mut(rank).take(id).expect("it is complete");
                send.id = None;
                send.cancelled = outcome.cancelled;
                send.memo.end();
                if outcome.failed || outcome.cancelled && !send.cancel {
                    return Err(format!("rank {me}: a send ends with {outcome:?}"));
                }
            }
            for (number, receive) in program.receives.iter_mut().enumerate() {
                let Some(id) = receive.id.map(RequestId::from_raw) else { continue };
                if !is_over(rank, id) {
                    continue;
                }
                let outcome = Rc::make_mut(rank).take(id).expect("it is complete");
                receive.id = None;
                let held = receive.memo.end();
                if outcome.failed || outcome.cancelled && !receive.cancel {
                    return Err(format!("rank {me}: receive {number} ends with {outcome:?}"));
                }
                if outcome.cancelled {
                    receive.got = Some(None);
                    continue;
                }
                let first = held[0];
                let (source, message) = ((first >> 8).wrapping_sub(1) as u32, first & 0xff);
                let full = held.iter().take((outcome.bytes as usize).div_ceil(ports::BLOCK_BYTES)).all(|block| *block == first);
                if first == 0 || !full || source != outcome.source {
                    return Err(format!("rank {me}: receive {number} ends with {outcome:?} and holds {held:x?}"));
                }
                receive.got = Some(Some((source, message)));
                if outcome.bytes + outcome.cut_bytes > COPIED_TWICE_BYTES as u64 || outcome.bytes > receive.room as u64 {
                    return Err(format!("rank {me}: receive {number} ends with {outcome:?}"));
                }
            }
        }
        Ok(())
    }

    /// Which receive of `rank` has message `number` of `source`.
    fn taker(&self, rank: u32, source: u32, number: usize) -> Vec<usize> {
        let receives = self.programs[rank as usize].receives.iter().enumerate();
        receives.filter(|(_, receive)| receive.got == Some(Some((source, number as u16)))).map(|(at, _)| at).collect()
    }

    /// MPI-5.0 §3.5: messages of one sender are taken in their order, by receives in the order of posting.
    fn judge(&self, rank: u32) -> Result<(), Violation> {
        let receives = &self.programs[rank as usize].receives;
        for (source, program) in (0..).zip(&self.programs) {
            let mut before: Vec<(usize, &Send, Option<usize>)> = Vec::new();
            for (number, send) in program.sends.iter().enumerate().filter(|(_, send)| send.to == rank) {
                let takers = self.taker(rank, source, number);
                if takers.len() > 1 {
                    return Err(format!("message {number} of {source} is received by {takers:?}"));
                }
                let taker = takers.first().copied();
                if send.cancelled && taker.is_some() || taker.is_some() && send.id.is_some() {
                    return Err(format!("message {number} of {source} is received, and its send is cancelled or has not ended"));
                }
                let leaves = send.kind.leaves() || taker.is_some() || send.cancelled;
                if leaves == send.id.is_some() {
                    return Err(format!("message {number} of {source}, {:?}: received {taker:?}, and its send is under way: {}", send.kind, send.id.is_some()));
                }
                if send.cancelled {
                    continue;
                }
                if let Some(at) = taker {
                    let receive = &receives[at];
                    if !receive.accepts(source, send) {
                        return Err(format!("receive {at} of {rank} takes message {number} of {source}"));
                    }
                    let overtaken = before.iter().find(|(_, earlier, taker)| receive.accepts(source, earlier) && taker.is_none_or(|taker| taker > at));
                    if let Some((earlier, ..)) = overtaken {
                        return Err(format!("message {number} of {source} overtakes message {earlier}: receive {at} of {rank} takes it"));
                    }
                }
                let waits = receives.iter().take(taker.unwrap_or(receives.len())).position(|receive| receive.id.is_some() && receive.accepts(source, send));
                if let Some(waits) = waits {
                    return Err(format!("message {number} of {source} is there, received by {taker:?}, and receive {waits} of {rank} waits for it"));
                }
                before.push((number, send, taker));
            }
        }
        Ok(())
    }
}

impl Model for World {
    type Config = Config;
    type Step = Step;

    fn steps(&self, config: &Config, steps: &mut Vec<Step>) -> usize {
        let filled = self.field.rings.iter().filter(|(_, ring)| !ring.is_empty());
        steps.extend(filled.map(|(&(from, to), _)| Step::Deliver { from, to }));
        let packets = !steps.is_empty();
        for (rank, machine) in (0..).zip(&self.ranks) {
            let step = Step::GoOn { rank };
            let may = machine.postponed || !machine.settled();
            // What only waits for others is at rest.
            let does = || {
                let mut child = self.clone();
                child.take(config, step, &mut Seen::default()).is_err() || fingerprint(&child) != fingerprint(self)
            };
            if may && (packets || does()) {
                steps.push(step);
            }
        }
        let library = steps.len();
        for &(from, to) in config.flows {
            let sends = || self.programs[from as usize].sends.iter().filter(|send| send.to == to);
            let unmatched = || sends().count() - self.programs[to as usize].receives.iter().filter(|receive| receive.is_of(from)).count();
            if sends().count() >= config.sends.1 as usize || config.crowd.is_some_and(|most| unmatched() >= most) {
                continue;
            }
            for tag in (0..config.tags).filter(|tag| sends().filter(|send| send.tag == *tag).count() < config.sends.0 as usize) {
                steps.extend(config.kinds.iter().map(|&kind| Step::Send { from, to, tag, kind }));
            }
        }
        for rank in 0..config.ranks {
            let receives = &self.programs[rank as usize].receives;
            let mut sources: Vec<u32> = config.flows.iter().filter(|flow| flow.1 == rank).map(|flow| flow.0).collect();
            let waiting = || receives.iter().filter(|receive| receive.id.is_some()).count();
            if sources.is_empty() || receives.len() >= config.receives.1 as usize || config.crowd.is_some_and(|most| waiting() >= most) {
                continue;
            }
            sources.extend(config.any_source.then_some(Pattern::ANY_SOURCE));
            for source in sources {
                let of_tag = |tag| receives.iter().filter(|receive| receive.tag == tag).count();
                let tags = (0..config.tags).filter(|tag| of_tag(*tag) < config.receives.0 as usize).chain(config.any_tag.then_some(Pattern::ANY_TAG));
                for tag in tags {
                    steps.extend(config.rooms.iter().map(|&room| Step::Post { rank, source, tag, room }));
                }
            }
        }
        let over = self.programs.iter().flat_map(|program| &program.receives).filter(|receive| receive.id.is_none()).count();
        let now_and_then = |cancels: u16| config.crowd.is_none() || over > 16 * (cancels as usize + 1);
        for (rank, program) in (0..).zip(&self.programs) {
            if self.cancels.0 < config.cancels && now_and_then(self.cancels.0) {
                let under_way = program.receives.iter().enumerate().filter(|(_, receive)| receive.id.is_some() && !receive.cancel);
                steps.extend(under_way.map(|(receive, _)| Step::Cancel { rank, receive }));
            }
            if self.cancels.1 < config.send_cancels && now_and_then(self.cancels.1) {
                let under_way = program.sends.iter().enumerate().filter(|(_, send)| send.id.is_some() && !send.cancel);
                steps.extend(under_way.map(|(send, _)| Step::CancelSend { rank, send }));
            }
        }
        if config.bars && self.field.barred.is_empty() {
            steps.push(Step::Bar { rank: config.ranks - 1 });
        }
        library
    }

    fn take(&mut self, _: &Config, step: Step, seen: &mut Seen) -> Result<(), Violation> {
        match step {
            Step::Cancel { .. } => self.cancels.0 += 1,
            Step::CancelSend { .. } => self.cancels.1 += 1,
            _ => {}
        }
        let mut field = std::mem::take(&mut self.field);
        let act = || {
            let done = catch_unwind(AssertUnwindSafe(|| self.act(step)));
            match done {
                Ok(Ok(())) => self.harvest(),
                Ok(Err(error)) => Err(format!("a fault: {}", error.0)),
                Err(panic) => Err(format!("a panic: {}", panic.downcast_ref::<String>().cloned().unwrap_or_default())),
            }
        };
        let done = enter(&mut field, act, |what| seen.note(what));
        self.field = field;
        if let Some(wrong) = self.field.wrong.take() {
            return Err(wrong);
        }
        for program in &self.programs {
            if program.receives.iter().any(|receive| receive.got == Some(None)) {
                seen.note("cancelled");
            }
            if program.sends.iter().any(|send| send.cancelled) {
                seen.note("a send was cancelled");
            }
        }
        done
    }

    fn settled(&self, config: &Config) -> Result<(), Violation> {
        for (rank, machine) in (0..config.ranks).zip(&self.ranks) {
            let program = &self.programs[rank as usize];
            if !machine.settled() || machine.postponed || !machine.actions.is_empty() {
                return Err(format!("rank {rank} has something left to do, and does nothing"));
            }
            if let Some(receive) = program.receives.iter().position(|receive| receive.id.is_some() && receive.cancel) {
                return Err(format!("receive {receive} of rank {rank} is to be cancelled, and nothing happens"));
            }
            if let Some(send) = program.sends.iter().position(|send| send.id.is_some() && send.cancel) {
                return Err(format!("send {send} of rank {rank} is to be cancelled, and nothing happens"));
            }
            let waiting = program.receives.iter().filter(|receive| receive.id.is_some()).count();
            let sent = || self.programs.iter().flat_map(|program| &program.sends).filter(|send| send.to == rank && !send.cancelled).count();
            let taken = program.receives.iter().filter(|receive| matches!(receive.got, Some(Some(_)))).count();
            if machine.queued() != (waiting as u64, (sent() - taken) as u64) {
                return Err(format!("rank {rank} has {:?} receives and messages, and should have {waiting} and {}", machine.queued(), sent() - taken));
            }
            self.judge(rank)?;
        }
        Ok(())
    }
}
