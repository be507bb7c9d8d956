//! Measuring what each protocol costs: two engines in two threads of this process send each other messages through real rings,
//! each protocol forced in turn.
//!
//! The least of several times counts: whatever disturbs can only make them longer. Where most of these were not seen twice, the
//! cores were busy, and nothing is said. Both threads end when it has taken too long.

use crate::{Buffer, Config, Context, ContextIndex, Engine, Fault, Mode, Pattern, Rendezvous, RequestId, Speculation, Target};
use fabric::local::{self, LocalPeers};
use proto::costs::{Costs, Curve};
use proto::protocols::{PROTOCOLS, Protocol};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The curves of one kind of peer.
pub type Curves = [Option<Curve>; PROTOCOLS];

/// Longest time that one kind of peer may take, before it is given up.
const PATIENCE: Duration = Duration::from_millis(400);
/// The whole plan is gone through so many times: what disturbs for a moment does not meet one size alone.
const PASSES: usize = 3;
/// Memory of the rings, as two ranks have it by default, bytes.
const RING_BYTES: u64 = 3 << 20;
const LONGEST_BYTES: usize = 1 << 20;
const TAG: i32 = 1;

/// One entry of the plan: rounds timed together, and how often.
#[derive(Clone, Copy)]
struct Step {
    protocol: Protocol,
    bytes: usize,
    rounds: u32,
    times: u32,
}

/// What is measured, in this order. Longer messages than the longest here are expected to go on as between the last two.
fn plan(eager_bytes_max: usize) -> Vec<Step> {
    let steps = |protocol: Protocol, sizes: &'static [usize]| {
        sizes.iter().map(move |bytes| {
            let (rounds, times) = match *bytes {
                0..=4_096 => (8, 3),
                // Here the costs of the protocols cross on most machines.
                4_097..=65_536 => (1, 12),
                65_537..=131_072 => (1, 6),
                131_073..=262_144 => (1, 3),
                _ => (1, 2),
            };
            Step { protocol, bytes: *bytes, rounds, times }
        })
    };
    const K: usize = 1 << 10;
    let mut all: Vec<Step> = Vec::new();
    all.extend(steps(Protocol::Eager, &[0, 32, 64, 256, K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K]).filter(|step| step.bytes <= eager_bytes_max));
    let long: &[usize] = &[K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K, 256 * K, 1024 * K];
    for protocol in [Protocol::Announced, Protocol::Read, Protocol::Cooperative] {
        all.extend(steps(protocol, long));
    }
    all.extend(steps(Protocol::Pipelined, &[K, 16 * K, 64 * K, 256 * K, 1024 * K]));
    all
}

/// Segments of the two engines, for each other.
type Segments = Arc<Mutex<HashMap<u32, OwnedFd>>>;

/// One of the two sides.
struct Side<'a> {
    engine: Engine,
    context: ContextIndex,
    out: Vec<u8>,
    into: Vec<u8>,
    stop: &'a AtomicBool,
    until: Instant,
}

/// Why measuring ended early.
#[derive(Debug)]
struct Ended;

impl From<Fault> for Ended {
    fn from(_: Fault) -> Ended {
        Ended
    }
}

impl<'a> Side<'a> {
    fn new(index: u32, segments: &Segments, stop: &'a AtomicBool, until: Instant) -> Result<Side<'a>, Ended> {
        let others = segments.clone();
        let resolver: local::Resolver = Box::new(move |peer, _| {
            let known = others.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&peer).map(OwnedFd::try_clone).transpose().map_err(|error| error.to_string())
        });
        let config = local::Config { index, processes: 2, memory_bytes: RING_BYTES, single_copy: true, map_memory: true, answer_within: local::ANSWER_WITHIN };
        let local = LocalPeers::new(config, resolver).map_err(|_| Ended)?;
        let segment = local.segment().try_clone_to_owned().map_err(|_| Ended)?;
        segments.lock().unwrap_or_else(PoisonError::into_inner).insert(index, segment);
        let config = Config { me: index, processes: 2, local_processes: 2, cores: 2, eager_bytes_max: usize::MAX, ..Config::default() };
        let mut engine = Engine::new(config, Some(local));
        let context = engine.open(context());
        Ok(Side { engine, context, out: vec![1; LONGEST_BYTES], into: vec![2; LONGEST_BYTES], stop, until })
    }

    /// Has messages go by `protocol` from here on.
    fn force(&mut self, protocol: Protocol, eager_bytes_max: usize) {
        let speculation = if protocol == Protocol::Announced { Speculation::Always } else { Speculation::Off };
        let engine = &mut self.engine;
        let eager_bytes_max = if protocol == Protocol::Eager { eager_bytes_max } else { 0 };
        engine.worker.config.cooperative_bytes_min = 1;
        engine.config.rendezvous = Rendezvous::Sequence;
        engine.config.speculation = speculation;
        engine.worker.config.costs = Costs::preferring(protocol);
        engine.worker.costs.fix(eager_bytes_max);
        engine.speculate(speculation, 0);
        engine.limit(eager_bytes_max, eager_bytes_max);
    }

    fn wait(&mut self, id: RequestId) -> Result<(), Ended> {
        for looks in 1u32.. {
            self.engine.progress()?;
            if self.engine.take(id).is_some() {
                break;
            }
            std::hint::spin_loop();
            if looks.is_multiple_of(256) && (self.stop.load(Ordering::Relaxed) || Instant::now() > self.until) {
                self.stop.store(true, Ordering::Relaxed);
                return Err(Ended);
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: usize) -> Result<(), Ended> {
        let me = self.engine.config.me;
        // SAFETY: the memory stays where it is, and is used by nobody else, until both engines are gone.
        let buffer = unsafe { Buffer::contiguous(self.out.as_mut_ptr(), bytes) };
        let target = Target { process: 1 - me, context: context(), source: me, tag: TAG };
        // SAFETY: as above.
        if unsafe { self.engine.send_quickly(target, self.out.as_ptr(), bytes) } {
            return Ok(());
        }
        match self.engine.send(&target, &buffer, Mode::Standard)? {
            Some(id) => self.wait(id),
            None => Ok(()),
        }
    }

    fn receive(&mut self, bytes: usize) -> Result<(), Ended> {
        let peer = 1 - self.engine.config.me;
        // SAFETY: the memory stays where it is, and is used by nobody else, until both engines are gone.
        let id = unsafe { self.engine.receive_quickly(self.context, Pattern { source: peer, tag: TAG }, self.into.as_mut_ptr(), bytes, u32::MAX) }?;
        self.engine.announce(id, peer);
        self.wait(id)
    }

    /// Answers all messages of the plan.
    fn answer(&mut self, steps: &[Step], eager_bytes_max: usize) -> Result<(), Ended> {
        for step in (0..PASSES).flat_map(|_| steps) {
            self.force(step.protocol, eager_bytes_max);
            for _ in 0..step.rounds * step.times {
                self.receive(step.bytes)?;
                self.send(step.bytes)?;
            }
        }
        Ok(())
    }

    /// The two least times one way of each step, ps. Where time ran out, as far as each step had its turn.
    fn ask(&mut self, steps: &[Step], eager_bytes_max: usize) -> Result<Vec<[u64; 2]>, Ended> {
        let mut least = vec![[u64::MAX; 2]; steps.len()];
        for _ in 0..PASSES {
            for (step, least) in steps.iter().zip(&mut least).filter(|_| !self.stop.load(Ordering::Relaxed)) {
                self.force(step.protocol, eager_bytes_max);
                if self.time(step, least).is_err() {
                    // The other side would wait for messages that do not come.
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
        if least.iter().all(|[_, second]| *second < u64::MAX) { Ok(least) } else { Err(Ended) }
    }

    /// Sends and receives what a step says.
    fn time(&mut self, step: &Step, least: &mut [u64; 2]) -> Result<(), Ended> {
        for _ in 0..step.times {
            let start = Instant::now();
            for _ in 0..step.rounds {
                self.send(step.bytes)?;
                self.receive(step.bytes)?;
            }
            let ps = (start.elapsed().as_nanos() as u64 * 1000 / u64::from(2 * step.rounds)).max(1);
            if ps < least[0] {
                *least = [ps, least[0]];
            } else {
                least[1] = least[1].min(ps);
            }
        }
        Ok(())
    }
}

/// Measures the curves of peers of which one runs within `ours` and the other within `theirs`. For a thread of its own: it stays within `ours`.
/// `None` where that could not be done, or where the two did not have a core each.
pub fn measure(ours: &CpuSet, theirs: &CpuSet) -> Option<Curves> {
    let (segments, stop) = (Segments::default(), AtomicBool::new(false));
    let until = Instant::now() + PATIENCE;
    sched_setaffinity(None, ours).ok()?;
    let mut here = Side::new(0, &segments, &stop, until).ok()?;
    let eager_bytes_max = here.engine.config.eager_bytes_max;
    let steps = plan(eager_bytes_max);
    let least = std::thread::scope(|scope| {
        let run = || {
            let side = || {
                sched_setaffinity(None, theirs).map_err(|_| Ended)?;
                Side::new(1, &segments, &stop, until)
            };
            match side() {
                Ok(mut side) => {
                    let _ = side.answer(&steps, eager_bytes_max);
                    // Its memory may still be read from here.
                    return Some(side);
                }
                Err(Ended) => stop.store(true, Ordering::Relaxed),
            }
            None
        };
        let builder = std::thread::Builder::new().name("mpi-costs-peer".into()).stack_size(256 << 10);
        let thread = launch::without_signals(|| builder.spawn_scoped(scope, run)).ok()?;
        let least = here.ask(&steps, eager_bytes_max);
        let there = thread.join().ok()?;
        least.ok().filter(|_| there.is_some())
    });
    release(&segments);
    let least = least?;
    curves(&steps, &least)
}

/// The curves through the times that were seen again. `None` where most were not, or too few of a protocol: then the cores were busy with something else, and
/// nobody knows what they would have been.
fn curves(steps: &[Step], least: &[[u64; 2]]) -> Option<Curves> {
    let again = |[first, second]: &[u64; 2]| second - first <= first / 4;
    if 4 * least.iter().filter(|least| again(least)).count() < 3 * least.len() {
        return None;
    }
    let mut curves = [None; PROTOCOLS];
    for protocol in Protocol::ALL {
        let known = steps.iter().zip(least).filter(|(step, least)| step.protocol == protocol && again(least));
        let points: Vec<(u64, u64)> = known.map(|(step, least)| (step.bytes as u64, least[0])).collect();
        if points.len() < 3 {
            return None;
        }
        curves[protocol as usize] = Curve::through(&points);
    }
    Some(curves)
}

/// Gives the pages of the segments back: what is mapped stays mapped.
fn release(segments: &Segments) {
    use rustix::fs::{FallocateFlags, fallocate, fstat};
    for segment in segments.lock().unwrap_or_else(PoisonError::into_inner).values() {
        if let Ok(facts) = fstat(segment) {
            let _ = fallocate(segment, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, facts.st_size as u64);
        }
    }
}

fn context() -> Context {
    Context::new(0, 1).expect("the first context")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_that_were_seen_again() {
        let steps = plan(128 << 10);
        let steady: Vec<[u64; 2]> = steps.iter().map(|step| [1000 + step.bytes as u64, 1000 + step.bytes as u64]).collect();
        let known = curves(&steps, &steady).unwrap();
        // The longest messages were disturbed each time: they are expected to go on as the shorter ones.
        let disturbed = |step: &Step| step.bytes == LONGEST_BYTES;
        let shaken: Vec<[u64; 2]> = steps.iter().zip(&steady).map(|(step, least)| if disturbed(step) { [1 << 40, 1 << 41] } else { *least }).collect();
        for protocol in Protocol::ALL {
            let (calm, shaken) = (known[protocol as usize].unwrap(), curves(&steps, &shaken).unwrap()[protocol as usize].unwrap());
            assert!(shaken.at(4 << 20).abs_diff(calm.at(4 << 20)) <= 1, "{}", protocol.name());
        }
        // Most were: nothing is known.
        let lost: Vec<[u64; 2]> = steady.iter().enumerate().map(|(at, [first, _])| [*first, if at % 3 == 0 { 2 * first } else { *first }]).collect();
        assert_eq!(curves(&steps, &lost), None);
    }

    /// Though those before it went the quick way.
    #[test]
    fn what_is_forced_is_taken() {
        let step = |protocol| Step { protocol, bytes: 64 << 10, rounds: 40, times: 2 };
        let steps = [step(Protocol::Eager), step(Protocol::Pipelined)];
        let (segments, stop, until) = (Segments::default(), AtomicBool::new(false), Instant::now() + Duration::from_secs(60));
        let mut here = Side::new(0, &segments, &stop, until).unwrap();
        let most = here.engine.config.eager_bytes_max;
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                let mut side = Side::new(1, &segments, &stop, until).unwrap();
                assert!(side.answer(&steps, most).is_ok());
                side
            });
            assert!(here.ask(&steps, most).is_ok());
            drop(there.join().unwrap());
        });
        let came = |path: trace::DataPath| here.engine.counters().received[path as usize].iter().map(|tally| tally.messages).sum::<u64>();
        let each = PASSES as u64 * 40 * 2;
        assert_eq!([came(trace::DataPath::Eager), came(trace::DataPath::Pipelined)], [each, each], "{:?}", here.engine.counters().received);
    }

    /// Of a machine with other work nothing can be said but that this ends, and that what it gives is whole.
    #[test]
    fn measuring_ends_and_gives_all_protocols_or_nothing() {
        let run = || {
            let topology = super::super::machine::Topology::of_this_machine();
            for (kind, ours, theirs) in topology.pairs() {
                let start = Instant::now();
                let curves = measure(&ours, &theirs);
                println!("{} in {:?}", kind.name(), start.elapsed());
                if let Some(curves) = curves {
                    assert!(curves.iter().all(Option::is_some));
                    for protocol in Protocol::ALL {
                        let us = curves[protocol as usize].map(|curve| curve.ps().map(|ps| ps as f64 / 1e6));
                        println!("{:12} {:.2?}", protocol.name(), us.unwrap_or_default());
                    }
                }
            }
        };
        std::thread::spawn(run).join().unwrap();
    }
}
