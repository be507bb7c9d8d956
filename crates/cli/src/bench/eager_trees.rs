//! Broadcast and scatter over binomial trees, by eager messages and rendezvous on the model of an adapter (paper 000, §5.1.3).

use super::eager_model::{Platform, Process};
use memory::usage::Settings;

/// Processes that share a tree: a power of two.
pub const PROCESSES: usize = 4;
/// Where a process has the buffer that the program gives, and memory that the library takes for a while.
const BUFFER: usize = 1 << 30;
const TEMPORARY: usize = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    Broadcast,
    /// Inner nodes of the tree have what they pass on in temporary memory, which is other memory in each call (as the paper takes it)
    /// or the same.
    Scatter {
        temporary_moves: bool,
    },
}

/// A process during one call: when its processor and its wire are free.
#[derive(Clone, Copy, Default)]
struct Clock {
    processor_ns: f64,
    wire_ns: f64,
}

impl Clock {
    fn waits_until(&mut self, ns: f64) {
        self.processor_ns = self.processor_ns.max(ns);
    }
}

/// The processes of a tree, over many calls.
pub struct Tree<'a> {
    platform: &'a Platform,
    processes: Vec<Process<'a>>,
    clocks: Vec<Clock>,
    calls: usize,
    pub direct: u64,
    pub copied: u64,
    pub rendezvous: u64,
}

impl<'a> Tree<'a> {
    /// `adapts`: whether frequent buffers are sent from.
    pub fn new(platform: &'a Platform, adapts: bool) -> Tree<'a> {
        let settings = adapts.then(Settings::default);
        let processes = (0..PROCESSES).map(|_| Process::new(platform, settings)).collect();
        Tree { platform, processes, clocks: Vec::new(), calls: 0, direct: 0, copied: 0, rendezvous: 0 }
    }

    /// One call of all processes at the same moment, `bytes` for each of them: the mean of the times until they return.
    pub fn call_ns(&mut self, collective: Collective, bytes: usize) -> f64 {
        self.clocks = vec![Clock::default(); PROCESSES];
        self.calls += 1;
        // Whoever sends to a process has a lower rank.
        for rank in 0..PROCESSES {
            let subtree = subtree(rank);
            let mut half = subtree / 2;
            while half > 0 {
                let (to, length) = match collective {
                    Collective::Broadcast => (BUFFER, bytes),
                    Collective::Scatter { temporary_moves } => (if half == 1 { BUFFER } else { self.temporary(temporary_moves) }, half * bytes),
                };
                let from = match collective {
                    Collective::Broadcast => BUFFER,
                    // The root has the blocks of all in the program's buffer.
                    Collective::Scatter { .. } if rank == 0 => BUFFER + half * bytes,
                    Collective::Scatter { temporary_moves } => self.temporary(temporary_moves) + half * bytes,
                };
                self.send(rank, from, rank + half, to, length);
                half /= 2;
            }
            if subtree > 1 && collective != Collective::Broadcast {
                // Its own block.
                self.clocks[rank].processor_ns += self.platform.device.copying_ns(bytes);
            }
        }
        self.clocks.iter().map(|clock| clock.processor_ns).sum::<f64>() / PROCESSES as f64
    }

    /// Apart from that of other calls by more than a page, so that no registration covers two.
    fn temporary(&self, moves: bool) -> usize {
        TEMPORARY + if moves { self.calls << 24 } else { 0 }
    }

    fn send(&mut self, sender: usize, from: usize, receiver: usize, to: usize, bytes: usize) {
        let device = &self.platform.device;
        let is_eager = bytes <= self.platform.eager_bytes_max();
        let mut pieces = 1;
        if is_eager {
            let prepared = self.processes[sender].prepare(from, bytes);
            self.clocks[sender].processor_ns += prepared.processor_ns;
            pieces = prepared.pieces;
            *(if prepared.is_direct { &mut self.direct } else { &mut self.copied }) += 1;
        } else {
            self.rendezvous += 1;
            let message_ns = device.transfer_ns(0, 1);
            self.clocks[sender].processor_ns += self.processes[sender].register_ns(from, bytes);
            let rts_ns = self.clocks[sender].processor_ns + message_ns;
            let cts_ns = rts_ns.max(self.clocks[receiver].processor_ns) + self.processes[receiver].register_ns(to, bytes) + message_ns;
            self.clocks[sender].processor_ns = cts_ns;
        }
        let clock = &mut self.clocks[sender];
        clock.processor_ns += device.post_ns;
        let begin_ns = clock.processor_ns.max(clock.wire_ns);
        // Without its post, and of the rest all but the latency is the wire's.
        let flight_ns = device.transfer_ns(bytes, pieces) - device.post_ns;
        clock.wire_ns = begin_ns + flight_ns - device.latency_ns;
        if is_eager {
            self.clocks[receiver].waits_until(begin_ns + flight_ns);
            self.clocks[receiver].processor_ns += device.copying_ns(bytes);
        } else {
            // The buffer is the program's again when the data have left it.
            clock.processor_ns = clock.wire_ns;
            self.clocks[receiver].waits_until(begin_ns + flight_ns);
        }
    }
}

/// How many processes get their data through this one, itself included.
fn subtree(rank: usize) -> usize {
    if rank == 0 { PROCESSES } else { 1 << rank.trailing_zeros() }
}

/// Share of the time that `calls` calls spare when frequent buffers are sent from.
pub fn improvement(platform: &Platform, collective: Collective, bytes: usize, calls: usize) -> f64 {
    let [before, after] = [false, true].map(|adapts| {
        let mut tree = Tree::new(platform, adapts);
        (0..calls).map(|_| tree.call_ns(collective, bytes)).sum::<f64>()
    });
    (before - after) / before
}

#[cfg(test)]
mod tests {
    use super::super::eager_model::PAPER;
    use super::*;

    #[test]
    fn a_tree_reaches_each_process_once() {
        assert_eq!((0..4).map(subtree).collect::<Vec<_>>(), [4, 1, 2, 1]);
        let mut tree = Tree::new(&PAPER, false);
        tree.call_ns(Collective::Broadcast, 1024);
        assert_eq!((tree.copied, tree.direct, tree.rendezvous), (PROCESSES as u64 - 1, 0, 0));
    }

    #[test]
    fn a_broadcast_takes_what_its_messages_take() {
        let device = &PAPER.device;
        // The root's second message waits for its processor, and of the longer ones for the wire.
        for (bytes, waits_for_wire) in [(1024, false), (8192, true)] {
            let (copy, message) = (device.copying_ns(bytes), PAPER.copied_ns(bytes));
            let root = 2.0 * (copy + device.post_ns);
            let first_has_left = copy + device.post_ns + bytes as f64 / device.wire_bytes_per_ns;
            assert_eq!(first_has_left > root, waits_for_wire);
            let leaf = root.max(first_has_left) + message - copy - device.post_ns;
            let inner = message + copy + device.post_ns;
            let expected = (root + leaf + inner + 2.0 * message) / 4.0;
            let here = Tree::new(&PAPER, false).call_ns(Collective::Broadcast, bytes);
            assert!((here - expected).abs() < 1e-6, "{bytes} bytes: {here}, by hand {expected}");
        }
    }

    #[test]
    fn scatter_stops_gaining_where_half_of_the_data_is_no_longer_eager() {
        let moving = Collective::Scatter { temporary_moves: true };
        let half = PAPER.eager_bytes_max() / 2;
        let [below, above] = [half, half + 1].map(|bytes| improvement(&PAPER, moving, bytes, 1000));
        assert!(below > 0.05 && above.abs() < 0.01, "{below}, {above}");
        let mut tree = Tree::new(&PAPER, true);
        tree.call_ns(moving, half + 1);
        assert_eq!(tree.rendezvous, 1, "the root's first message alone");
    }

    #[test]
    fn a_broadcast_gains_more_than_a_message() {
        let improvement = improvement(&PAPER, Collective::Broadcast, 8192, 1000);
        assert!(improvement > PAPER.theoretical(8192), "{improvement}");
    }
}
