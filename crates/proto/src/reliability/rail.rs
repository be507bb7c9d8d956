//! One rail to one peer: how much may be in flight, how fast, and whether it is alive.

use super::Config;
use super::replay::Replay;
use super::rtt::Rtt;

/// What outlasts quiet times.
#[derive(Clone, Copy, Debug, Default)]
pub struct RailMemory {
    /// Number of the last datagram sent, and the highest that has arrived.
    pub sent: u64,
    pub arrived: u64,
    pub rtt: Rtt,
    /// Measured, bytes per ms; 0 before.
    pub goodput: u32,
    pub dead: bool,
}

/// What exists while something is under way.
#[derive(Clone, Debug)]
pub struct Rail {
    pub in_flight_bytes: u64,
    pub window_bytes: u64,
    growing_fast: bool,
    /// When the newest datagram that is known to have arrived was sent.
    pub arrived_sent_ns: u64,
    /// When the last sign of life came.
    pub answered_ns: u64,
    /// When something last left that wants an answer.
    pub last_sent_ns: u64,
    /// Silences in a row.
    pub strikes: u8,
    /// When they began.
    pub silent_ns: u64,
    /// Pacing: what has left is paid for by then, and more may leave not before that.
    next_ns: u64,
    pub resume_ns: u64,
    /// Something waits for the pace: time in which this process does not run counts for it.
    pub waits: bool,
    round_started_ns: u64,
    /// The shortest one-way times to the peer of late and of the time before, µs with the unknown difference of the clocks in it.
    forward_us: Option<[u32; 2]>,
    /// How much longer the way is now: what waits in queues on it, ns, smoothed.
    queue_ns: u64,
    /// It was measured in this round.
    measured: bool,
    /// When the shortest times began to be forgotten.
    aged_ns: u64,
    round_acked_bytes: u64,
    round_lost_bytes: u64,
    meter_started_ns: u64,
    meter_bytes: u64,
    /// The window held something back since the meter started.
    pub held_back: bool,
    /// When what is overtaken counts as lost; `u64::MAX` for never.
    pub loss_ns: u64,
    /// While dead: when it is probed next.
    pub probe_ns: u64,
    probe_wait_ns: u64,
    pub replay: Replay,
    /// The newest datagram that came: its time of sending by the peer's clock and of coming by ours, µs, and whether it had waited for us.
    pub echo: Option<(u32, u32, bool)>,
}

/// Loss up to one in eight is the network's noise; above, the window shrinks.
const LOSS_TOLERATED: u64 = 8;
/// Shortest times are forgotten after once to twice this time, in which two clocks drift apart by less than their resolution matters.
const AGE_NS: u64 = 1_000_000_000;
/// Datagrams that may leave at once before pacing holds back: so many bytes, or what the pace makes in this time if that is more.
const BURST_BYTES: u64 = 32 << 10;
const BURST_NS: u64 = 50_000;
/// The same where the process that paces was away, as where it shares its core, while something waited.
const CATCH_UP_BYTES: u64 = 256 << 10;
/// What pacing holds back leaves together, so many bytes or what comes together in this time: datagrams one by one cost much more.
const PAUSE_BYTES: u64 = 64 << 10;
const PAUSE_NS: u64 = 25_000;

impl Rail {
    pub fn new(config: &Config, memory: &RailMemory, now_ns: u64) -> Rail {
        Rail {
            in_flight_bytes: 0,
            window_bytes: config.window_initial_bytes,
            growing_fast: true,
            arrived_sent_ns: 0,
            answered_ns: 0,
            last_sent_ns: 0,
            strikes: 0,
            silent_ns: 0,
            next_ns: 0,
            resume_ns: 0,
            waits: false,
            round_started_ns: now_ns,
            forward_us: None,
            queue_ns: 0,
            measured: false,
            aged_ns: now_ns,
            round_acked_bytes: 0,
            round_lost_bytes: 0,
            meter_started_ns: now_ns,
            meter_bytes: 0,
            held_back: false,
            loss_ns: u64::MAX,
            probe_ns: if memory.dead { now_ns } else { u64::MAX },
            probe_wait_ns: config.probe_min_ns,
            replay: Replay::closed(),
            echo: None,
        }
    }

    /// Something of `weight` arrived.
    pub fn acked(&mut self, weight: u64, config: &Config) {
        debug_assert!(weight <= self.in_flight_bytes);
        self.in_flight_bytes -= weight;
        self.round_acked_bytes += weight;
        self.meter_bytes += weight;
        // A window that was not used says nothing about a larger one.
        if self.held_back {
            let step = if self.growing_fast { weight } else { weight / 8 };
            self.window_bytes = (self.window_bytes + step).min(config.window_bytes_max);
        }
    }

    /// Something of `weight` is given up.
    pub fn lost(&mut self, weight: u64) {
        debug_assert!(weight <= self.in_flight_bytes);
        self.in_flight_bytes -= weight;
        self.round_lost_bytes += weight;
    }

    /// A datagram sent at `sent_ns` is known to have arrived, after `rtt_ns`.
    pub fn answered(&mut self, memory: &mut RailMemory, sent_ns: u64, rtt_ns: u64, now_ns: u64, config: &Config) {
        memory.rtt.sample(rtt_ns);
        self.strikes = 0;
        self.answered_ns = now_ns;
        self.arrived_sent_ns = self.arrived_sent_ns.max(sent_ns);
        if sent_ns >= self.round_started_ns {
            self.round(memory, now_ns, config);
        }
        self.measure(memory, now_ns);
    }

    /// A datagram took so long to the peer, µs with the difference of the clocks in it. Only this way counts: acknowledgements wait
    /// in the queues that the peer makes.
    pub fn forward_took(&mut self, took_us: u32) {
        let shorter = |than: u32| took_us.wrapping_sub(than) as i32 <= 0;
        let [now, before] = self.forward_us.get_or_insert([took_us; 2]);
        if shorter(*now) {
            *now = took_us;
        }
        let least = if (now.wrapping_sub(*before) as i32) < 0 { *now } else { *before };
        let queue_ns = took_us.wrapping_sub(least).cast_signed().max(0) as u64 * 1000;
        self.queue_ns = self.queue_ns - self.queue_ns / 8 + queue_ns / 8;
        self.measured = true;
    }

    fn round(&mut self, memory: &mut RailMemory, now_ns: u64, config: &Config) {
        let all = self.round_acked_bytes + self.round_lost_bytes;
        let queue_ns_max = memory.rtt.least_ns() / 2 + config.queueing_ns;
        if all >= 32 << 10 && self.round_lost_bytes * LOSS_TOLERATED > all {
            self.growing_fast = false;
            self.window_bytes -= self.window_bytes / 4;
        } else if self.measured && self.queue_ns > queue_ns_max {
            self.growing_fast = false;
            self.window_bytes -= self.window_bytes / 8;
        }
        if now_ns - self.aged_ns >= AGE_NS {
            // For a round less is sent, so that the queue that we make ourselves is not taken for the path.
            self.window_bytes -= self.window_bytes / 2;
            self.aged_ns = now_ns;
            memory.rtt.age();
            self.forward_us = self.forward_us.map(|[now, _]| [now.wrapping_add((self.queue_ns / 1000) as u32), now]);
        }
        self.window_bytes = self.window_bytes.max(config.window_initial_bytes / 8);
        self.round_started_ns = now_ns;
        self.measured = false;
        (self.round_acked_bytes, self.round_lost_bytes) = (0, 0);
    }

    fn measure(&mut self, memory: &mut RailMemory, now_ns: u64) {
        let elapsed_ns = now_ns - self.meter_started_ns;
        if elapsed_ns < (2 * memory.rtt.smoothed_ns(1)).max(500_000) {
            return;
        }
        let per_ms = (self.meter_bytes * 1_000_000 / elapsed_ns).min(u32::MAX as u64) as u32;
        if self.held_back && memory.goodput != 0 {
            memory.goodput = memory.goodput - memory.goodput / 4 + per_ms / 4;
        } else {
            // The rail had nothing to do: it can do at least this.
            memory.goodput = memory.goodput.max(per_ms);
        }
        self.meter_started_ns = now_ns;
        self.meter_bytes = 0;
        self.held_back = self.in_flight_bytes * 2 > self.window_bytes;
    }

    /// Silence: everything in flight has been given up already.
    pub fn collapse(&mut self, config: &Config) {
        self.window_bytes = config.window_initial_bytes / 2;
        self.growing_fast = true;
        (self.round_acked_bytes, self.round_lost_bytes) = (0, 0);
        self.loss_ns = u64::MAX;
    }

    /// When silence on this rail is answered next. `unheard_ns`: how long a peer may take of whom nothing has been heard.
    pub fn timeout_ns(&self, memory: &RailMemory, unheard_ns: u64, config: &Config) -> u64 {
        if self.in_flight_bytes == 0 && self.strikes == 0 || memory.dead {
            return u64::MAX;
        }
        let patience = memory.rtt.timeout_ns(unheard_ns / 2) + config.ack_delay_ns;
        let patience = patience.max(config.timeout_min_ns) << self.strikes.min(16);
        self.last_sent_ns + patience.min(config.timeout_max_ns)
    }

    /// Time that `bytes` take at the pace of this rail.
    fn pace_ns(&self, memory: &RailMemory, bytes: u64, config: &Config) -> u64 {
        let rtt_ns = memory.rtt.smoothed_ns(config.rtt_initial_ns);
        // A quarter faster than the window says, so that the window stays the limit; twice while it grows fast.
        let over = if self.growing_fast { 8 } else { 5 };
        bytes * rtt_ns * 4 / (self.window_bytes * over)
    }

    /// How much may leave at once, bytes: what window and pace leave room for, of which the last datagram may go past either.
    pub fn room_bytes(&self, memory: &RailMemory, now_ns: u64, config: &Config) -> u64 {
        let window_bytes = self.window_bytes.saturating_sub(self.in_flight_bytes);
        let unit_ns = self.pace_ns(memory, BURST_BYTES, config).max(1);
        let since_ns = now_ns - self.next_ns.max(now_ns.saturating_sub(self.burst_ns(memory, config))).min(now_ns);
        window_bytes.min(since_ns * BURST_BYTES / unit_ns)
    }

    /// For how much time without sending the pace makes up.
    fn burst_ns(&self, memory: &RailMemory, config: &Config) -> u64 {
        self.pace_ns(memory, if self.waits { CATCH_UP_BYTES } else { BURST_BYTES }, config).max(BURST_NS)
    }

    /// Datagrams of `weight` together leave.
    pub fn left(&mut self, memory: &RailMemory, weight: u64, now_ns: u64, config: &Config) {
        self.in_flight_bytes += weight;
        self.last_sent_ns = now_ns;
        self.next_ns = self.next_ns.max(now_ns.saturating_sub(self.burst_ns(memory, config))) + self.pace_ns(memory, weight, config);
        if self.next_ns > now_ns {
            self.waits = false;
            self.resume_ns = self.next_ns + self.pace_ns(memory, PAUSE_BYTES, config).min(PAUSE_NS);
        }
    }

    /// Expected time until `weight` more bytes would have arrived.
    pub fn cost_ns(&self, memory: &RailMemory, weight: u64, config: &Config) -> u64 {
        let rtt_ns = memory.rtt.smoothed_ns(config.rtt_initial_ns);
        let queue_ns = match memory.goodput {
            0 => self.pace_ns(memory, self.in_flight_bytes + weight, config),
            goodput => (self.in_flight_bytes + weight) * 1_000_000 / goodput as u64,
        };
        rtt_ns / 2 + queue_ns
    }

    /// It is dead, or still dead after a probe.
    pub fn probe_later(&mut self, now_ns: u64, config: &Config) {
        self.probe_ns = now_ns + self.probe_wait_ns;
        self.probe_wait_ns = (self.probe_wait_ns * 2).min(config.probe_max_ns);
    }

    /// It has answered a probe.
    pub fn revive(&mut self, now_ns: u64, config: &Config) {
        self.probe_ns = u64::MAX;
        self.probe_wait_ns = config.probe_min_ns;
        self.strikes = 0;
        self.answered_ns = now_ns;
        (self.next_ns, self.resume_ns) = (0, 0);
        self.collapse(config);
    }
}
