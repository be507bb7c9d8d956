//! A world of ranks in one thread: ranks are polled and messages delivered in an order drawn from a seed.
//! It fails where nothing can move any more, where a message is left over, where lengths differ or where an
//! operation is dropped unfinished.

use super::inter::InterLink;
use super::{Hosts, IN_FLIGHT, Link, Place};
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// How a world behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) seed: u64,
    /// Longer sends complete only when they have met their receive.
    pub(super) eager_bytes: usize,
    pub(super) crowded: bool,
    /// How ranks are spread over hosts.
    pub(super) layout: Layout,
    /// The operation that fails, counted over the whole world; `None`: none.
    pub(super) failing: Option<usize>,
}

/// Which host each rank of a world runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// All share one.
    Together,
    /// So many ranks after each other; fewer on the last.
    Blocks(usize),
    /// By turns on so many hosts.
    Turns(usize),
    /// Drawn from the seed, of so many.
    Random(usize),
}

impl Layout {
    fn hosts(self, ranks: usize, crowded: bool, seed: u64) -> Option<Hosts> {
        let host = |rank: usize| match self {
            Layout::Together => 0,
            Layout::Blocks(each) => rank / each,
            Layout::Turns(hosts) => rank % hosts,
            Layout::Random(hosts) => (seed.rotate_left(7 * rank as u32) ^ seed.wrapping_mul(rank as u64 | 1)) as usize % hosts,
        };
        Hosts::new(&(0..ranks).map(|rank| host(rank) as u32).collect::<Vec<_>>(), crowded)
    }
}

#[derive(Default)]
struct Operation {
    rank: usize,
    bytes: usize,
    done: bool,
    failed: bool,
    arrived: Option<Vec<u8>>,
}

#[derive(Default)]
struct Channel {
    sends: VecDeque<(usize, Vec<u8>)>,
    receives: VecDeque<usize>,
}

struct State {
    random: u64,
    conditions: Conditions,
    ranks: usize,
    operations: Vec<Operation>,
    channels: Vec<Channel>,
    runnable: Vec<bool>,
    live: Vec<usize>,
    dropped: usize,
}

impl State {
    /// SplitMix64.
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }

    fn start(&mut self, rank: usize, peer: usize, bytes: usize, done: bool) -> usize {
        assert!(peer < self.ranks && peer != rank, "rank {rank} talks to {peer} of {}", self.ranks);
        let id = self.operations.len();
        let failed = self.conditions.failing == Some(id);
        self.operations.push(Operation { rank, bytes, done: done || failed, failed, arrived: None });
        self.live[rank] += 1;
        assert!(self.live[rank] <= IN_FLIGHT, "rank {rank} has {} operations under way", self.live[rank]);
        id
    }

    fn complete(&mut self, id: usize) {
        let operation = &mut self.operations[id];
        operation.done = true;
        self.runnable[operation.rank] = true;
    }

    /// Delivers the first message of a channel to its first receive.
    fn deliver(&mut self, channel: usize) {
        let (sent, data) = self.channels[channel].sends.pop_front().expect("a message");
        let received = self.channels[channel].receives.pop_front().expect("a receive");
        assert_eq!(self.operations[received].bytes, data.len(), "lengths of a message and its receive");
        self.operations[received].arrived = Some(data);
        self.complete(received);
        self.complete(sent);
    }
}

/// One rank's end of a group that is a range of the world's ranks.
pub(super) struct SimLink {
    state: Rc<RefCell<State>>,
    group: Range<usize>,
    rank: usize,
    hosts: Option<Rc<Hosts>>,
    /// Those of the group that take part, where not all do, this rank's number among them, and where they are.
    part: Option<(Vec<usize>, usize, Place)>,
}

impl SimLink {
    fn member(&self, rank: usize) -> usize {
        self.group.start + self.part.as_ref().map_or(rank, |(ranks, ..)| ranks[rank])
    }

    fn start_send<'a>(&'a self, to: usize, data: &'a [u8]) -> SimOp<'a> {
        let mut state = self.state.borrow_mut();
        let rank = self.group.start + self.rank;
        let eager = data.len() <= state.conditions.eager_bytes;
        let id = state.start(rank, to, data.len(), eager);
        if !state.operations[id].failed {
            let channel = rank * state.ranks + to;
            state.channels[channel].sends.push_back((id, data.to_vec()));
        }
        SimOp { state: &self.state, id, into: None }
    }

    fn start_recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> SimOp<'a> {
        let mut state = self.state.borrow_mut();
        let rank = self.group.start + self.rank;
        let id = state.start(rank, from, into.len(), false);
        if !state.operations[id].failed {
            let channel = from * state.ranks + rank;
            state.channels[channel].receives.push_back(id);
        }
        SimOp { state: &self.state, id, into: Some(into) }
    }
}

/// One rank's end of two groups: the world's first ranks and the rest.
pub(super) struct SimInterLink {
    local: SimLink,
    remote: Range<usize>,
}

impl SimInterLink {
    /// 0 or 1.
    pub(super) fn group(&self) -> usize {
        usize::from(self.remote.start == 0)
    }
}

impl InterLink for SimInterLink {
    type Local = SimLink;
    type Op<'a> = SimOp<'a>;

    fn local(&self) -> &SimLink {
        &self.local
    }

    fn remote_size(&self) -> usize {
        self.remote.len()
    }

    fn send<'a>(&'a self, to: usize, data: &'a [u8]) -> SimOp<'a> {
        assert!(to < self.remote.len(), "rank {to} of the other group");
        self.local.start_send(self.remote.start + to, data)
    }

    fn recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> SimOp<'a> {
        assert!(from < self.remote.len(), "rank {from} of the other group");
        self.local.start_recv(self.remote.start + from, into)
    }
}

pub(super) struct SimOp<'a> {
    state: &'a RefCell<State>,
    id: usize,
    into: Option<&'a mut [u8]>,
}

impl Link for SimLink {
    type Op<'a> = SimOp<'a>;

    fn rank(&self) -> usize {
        self.part.as_ref().map_or(self.rank, |(_, me, _)| *me)
    }

    fn size(&self) -> usize {
        self.part.as_ref().map_or(self.group.len(), |(ranks, ..)| ranks.len())
    }

    fn send<'a>(&'a self, to: usize, data: &'a [u8]) -> SimOp<'a> {
        assert!(to < self.size(), "rank {to} of the group");
        self.start_send(self.member(to), data)
    }

    fn recv<'a>(&'a self, from: usize, into: &'a mut [u8]) -> SimOp<'a> {
        assert!(from < self.size(), "rank {from} of the group");
        self.start_recv(self.member(from), into)
    }

    fn crowded(&self) -> bool {
        self.part.as_ref().map_or(self.state.borrow().conditions.crowded, |(_, _, place)| *place == Place::Crowded)
    }

    fn remote(&self) -> bool {
        self.part.as_ref().map_or(self.state.borrow().conditions.layout != Layout::Together, |(_, _, place)| *place == Place::Hosts)
    }

    fn part(&self, ranks: &[u32], me: usize, place: Place) -> SimLink {
        let ranks: Vec<usize> = ranks.iter().map(|rank| self.part.as_ref().map_or(*rank as usize, |(ranks, ..)| ranks[*rank as usize])).collect();
        assert_eq!(ranks[me], self.rank, "the number of this rank");
        SimLink { state: self.state.clone(), group: self.group.clone(), rank: self.rank, hosts: None, part: Some((ranks, me, place)) }
    }

    fn hosts(&self) -> Option<&Hosts> {
        self.hosts.as_deref()
    }
}

impl Future for SimOp<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        let id = self.id;
        let mut state = self.state.borrow_mut();
        let operation = &mut state.operations[id];
        if !operation.done {
            return Poll::Pending;
        }
        if operation.failed {
            return Poll::Ready(Err(Error::new(16, "the simulated network failed this operation")));
        }
        let arrived = operation.arrived.take();
        drop(state);
        if let (Some(into), Some(data)) = (self.into.take(), arrived) {
            into.copy_from_slice(&data);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimOp<'_> {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        let rank = state.operations[self.id].rank;
        state.live[rank] -= 1;
        if state.operations[self.id].done && self.into.is_none() {
            return;
        }
        state.dropped += 1;
        for channel in &mut state.channels {
            channel.sends.retain(|(id, _)| *id != self.id);
            channel.receives.retain(|id| *id != self.id);
        }
    }
}

/// What became of each rank: its result, or `None` where it waits for ever.
pub(super) fn outcomes<T, F: Future<Output = Result<T>>>(conditions: Conditions, ranks: usize, program: impl Fn(SimLink) -> F) -> Vec<Option<Result<T>>> {
    let state = Rc::new(RefCell::new(State {
        random: conditions.seed,
        conditions,
        ranks,
        operations: Vec::new(),
        channels: (0..ranks * ranks).map(|_| Channel::default()).collect(),
        runnable: vec![true; ranks],
        live: vec![0; ranks],
        dropped: 0,
    }));
    let hosts = conditions.layout.hosts(ranks, conditions.crowded, conditions.seed).map(Rc::new);
    let mut futures: Vec<Option<Pin<Box<F>>>> =
        (0..ranks).map(|rank| Some(Box::pin(program(SimLink { state: state.clone(), group: 0..ranks, rank, hosts: hosts.clone(), part: None })))).collect();
    let mut results: Vec<Option<Result<T>>> = (0..ranks).map(|_| None).collect();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let mut world = state.borrow_mut();
        let polls = (0..ranks).filter(|&rank| futures[rank].is_some() && world.runnable[rank]);
        let mut moves: Vec<(bool, usize)> = polls.map(|rank| (true, rank)).collect();
        let ready = |channel: &Channel| !channel.sends.is_empty() && !channel.receives.is_empty();
        let deliveries = world.channels.iter().enumerate().filter(|(_, channel)| ready(channel));
        moves.extend(deliveries.map(|(i, _)| (false, i)));
        if moves.is_empty() {
            break;
        }
        let choice = world.random(moves.len());
        match moves[choice] {
            (false, channel) => world.deliver(channel),
            (true, rank) => {
                world.runnable[rank] = false;
                drop(world);
                let future = futures[rank].as_mut().expect("unfinished");
                if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                    results[rank] = Some(result);
                    futures[rank] = None;
                }
            }
        }
    }
    drop(futures);
    if conditions.failing.is_none() {
        let world = state.borrow();
        let stuck: Vec<usize> = (0..ranks).filter(|&rank| results[rank].is_none()).collect();
        assert!(stuck.is_empty(), "ranks {stuck:?} of {ranks} wait for ever: {conditions:?}");
        for (i, channel) in world.channels.iter().enumerate() {
            let (from, to) = (i / ranks, i % ranks);
            assert!(channel.sends.is_empty(), "messages from {from} to {to} left over: {conditions:?}");
        }
        assert_eq!(world.dropped, 0, "operations dropped unfinished: {conditions:?}");
    }
    assert!(state.borrow().live.iter().all(|&live| live == 0), "operations outlive their future");
    results
}

/// The results of all ranks; panics where [`outcomes`] does and where a rank fails.
pub(super) fn run<T, F: Future<Output = Result<T>>>(conditions: Conditions, ranks: usize, program: impl Fn(SimLink) -> F) -> Vec<T> {
    outcomes(conditions, ranks, program).into_iter().map(|result| result.expect("checked").expect("no operation fails")).collect()
}

/// As [`run`] for two groups; the results of each.
pub(super) fn run_two_groups<T, F: Future<Output = Result<T>>>(conditions: Conditions, sizes: [usize; 2], program: impl Fn(SimInterLink) -> F) -> [Vec<T>; 2] {
    let (first, second) = (0..sizes[0], sizes[0]..sizes[0] + sizes[1]);
    let mut results = run(conditions, second.end, |SimLink { state, rank, .. }| {
        let (group, remote) = if rank < first.end { (first.clone(), second.clone()) } else { (second.clone(), first.clone()) };
        program(SimInterLink { local: SimLink { state, rank: rank - group.start, group, hosts: None, part: None }, remote })
    });
    let rest = results.split_off(sizes[0]);
    [results, rest]
}

mod tests {
    use super::*;

    const CALM: Conditions = Conditions { seed: 1, eager_bytes: 0, crowded: false, layout: Layout::Together, failing: None };

    #[test]
    #[should_panic(expected = "wait for ever")]
    fn sees_a_deadlock() {
        run(CALM, 2, |link| async move {
            let peer = 1 - link.rank();
            link.send(peer, &[1]).await?;
            link.recv(peer, &mut [0]).await
        });
    }

    #[test]
    fn lets_eager_sends_pass() {
        let got = run(Conditions { eager_bytes: 1, ..CALM }, 2, |link| async move {
            let (mut into, peer) = ([0], 1 - link.rank());
            link.send(peer, &[link.rank() as u8]).await?;
            link.recv(peer, &mut into).await?;
            Ok(into[0])
        });
        assert_eq!(got, [1, 0]);
    }

    #[test]
    #[should_panic(expected = "left over")]
    fn sees_a_message_left_over() {
        run(Conditions { eager_bytes: 1, ..CALM }, 2, |link| async move { if link.rank() == 0 { link.send(1, &[1]).await } else { Ok(()) } });
    }

    #[test]
    #[should_panic(expected = "dropped unfinished")]
    fn sees_a_dropped_operation() {
        run(CALM, 2, |link| async move {
            drop(link.recv(1 - link.rank(), &mut [0]));
            Ok(())
        });
    }
}
