//! Messages over RDMA adapters, as a model: over connections (RC) and as datagrams (UD), packet by packet, in simulated nanoseconds.
//!
//! A message passes stations, each of which has one thing at a time: the sender's processor, one of its queue pairs, the wire, and the receiver's
//! processor. A [`Play`] moves messages through them, with the headers of packets, whole pages and the order of what is handed over. What the best
//! threshold between two ways is by arithmetic alone, without packets, is what the functions of [`optimum`] say.

use crate::device::{CONNECTX, INFINIHOST, Profile, TODAY};

pub mod optimum;

/// An adapter, and what the library and its processor do beside it. Times in ns, rates in bytes per ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Platform {
    pub device: Profile,
    /// Where the numbers below are from.
    pub source: &'static str,
    /// What the processor does for a message on either side, beside copies and posts.
    pub message_ns: f64,
    /// What is added for one in datagrams that are acknowledged, and the rate at which its bytes are checked.
    pub reliability_ns: f64,
    pub check_bytes_per_ns: f64,
    /// Longest datagram.
    pub datagram_bytes: usize,
    /// A queue pair begins its next request so long after the one before.
    pub request_ns: f64,
    /// What the processor does on either side to make a connection.
    pub connect_ns: f64,
}

/// Instructions of a message on one side over connections, and what datagrams that are acknowledged add: halves of what `bench/instructions_verbs`
/// counts for both sides (docs/hardware.md).
const MESSAGE_INSTRUCTIONS: f64 = 1640.0;
const RELIABILITY_INSTRUCTIONS: f64 = 4130.0;

const fn platform(device: Profile, source: &'static str, instructions_per_ns: f64) -> Platform {
    Platform {
        device,
        source,
        message_ns: MESSAGE_INSTRUCTIONS / instructions_per_ns,
        reliability_ns: RELIABILITY_INSTRUCTIONS / instructions_per_ns,
        check_bytes_per_ns: 2.0 * instructions_per_ns,
        datagram_bytes: device.packet_bytes,
        request_ns: 3.0 * device.packet_bytes as f64 / device.wire_bytes_per_ns,
        connect_ns: 200_000.0,
    }
}

/// The hosts of papers 001 and 003, and one of today.
pub const PLATFORMS: [Platform; 3] = [
    platform(INFINIHOST, "this library's instructions, one in a ns; 2 GB/s of checking, 200 µs to connect and the queue pair's pace are assumed", 1.0),
    platform(
        CONNECTX,
        "for paper 003: this library's instructions, one in a ns; a queue pair that takes three times as long for a datagram as the wire is fitted to \
         \"four near-optimal\" (§4); 2 GB/s of checking and 200 µs to connect are assumed",
        1.0,
    ),
    Platform {
        request_ns: 80.0,
        connect_ns: 100_000.0,
        ..platform(TODAY[0], "this library's instructions, three in a ns; 6 GB/s of checking, 100 µs to connect and 80 ns for a request are assumed", 3.0)
    },
];

/// Whether memory is registered for one transfer, or was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    Before,
    EachTime,
}

/// How a message moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// Over a connection, behind its header, with a copy at both ends.
    Eager,
    /// Announced, and then read by the receiver, or written by the sender.
    Read(Registered),
    Write(Registered),
    /// In datagrams over so many queue pairs, with a copy at both ends, acknowledged or not.
    Datagrams {
        queue_pairs: usize,
        acknowledged: bool,
    },
}

/// As the library sends datagrams.
pub const DATAGRAMS: Way = Way::Datagrams { queue_pairs: 1, acknowledged: true };

/// Bytes of a control message.
const CONTROL_BYTES: usize = 64;
/// Datagrams of which one is answered with an acknowledgement.
const ACKNOWLEDGED_EACH: usize = 16;

/// What a message's further datagrams take of the processor's time for its first one, beside copies and checks: assumed.
const FURTHER_SHARE: f64 = 0.1;

/// What takes one thing at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Station {
    free_ns: f64,
    /// From when and until when it deals with something else.
    away: Option<(f64, f64)>,
}

impl Station {
    /// When what comes at `at_ns` has been dealt with. What has begun is not interrupted.
    fn pass(&mut self, at_ns: f64, takes_ns: f64) -> f64 {
        let begin_ns = self.free_ns.max(at_ns);
        let begin_ns = match self.away {
            Some((from_ns, until_ns)) if (from_ns..until_ns).contains(&begin_ns) => until_ns,
            _ => begin_ns,
        };
        self.free_ns = begin_ns + takes_ns;
        self.free_ns
    }
}

#[derive(Clone, Debug, Default)]
struct Host {
    processor: Station,
    queue_pairs: Vec<Station>,
    /// Out of this host.
    wire: Station,
    /// The queue pair of the next request.
    next_pair: usize,
}

/// Two hosts, and what they have to do.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    platform: &'a Platform,
    hosts: [Host; 2],
}

impl<'a> Play<'a> {
    pub fn new(platform: &'a Platform) -> Play<'a> {
        Play { platform, hosts: Default::default() }
    }

    /// A message that is sent at `at_ns` by host `from`: when its receive is complete.
    pub fn send(&mut self, from: usize, way: Way, bytes: usize, at_ns: f64) -> f64 {
        let Platform { device, message_ns, .. } = *self.platform;
        let to = 1 - from;
        match way {
            Way::Eager => {
                let copied_ns = self.hosts[from].processor.pass(at_ns, message_ns + device.copying_ns(bytes));
                let there_ns = self.post(from, bytes, copied_ns);
                self.hosts[to].processor.pass(there_ns, message_ns + device.copying_ns(bytes))
            }
            Way::Datagrams { queue_pairs, acknowledged } => self.send_datagrams(from, queue_pairs, acknowledged, bytes, at_ns),
            Way::Write(registered) => {
                let (registering_ns, deregistering_ns) = self.registration_ns(registered, bytes);
                let told_ns = self.announce(from, registering_ns, at_ns);
                let ready_ns = self.hosts[to].processor.pass(told_ns, message_ns + registering_ns);
                let asked_ns = self.post(to, CONTROL_BYTES, ready_ns);
                let asked_ns = self.hosts[from].processor.pass(asked_ns, message_ns);
                let there_ns = self.post(from, bytes, asked_ns);
                self.hosts[to].processor.pass(there_ns, message_ns + deregistering_ns)
            }
            Way::Read(registered) => {
                let (registering_ns, deregistering_ns) = self.registration_ns(registered, bytes);
                let told_ns = self.announce(from, registering_ns, at_ns);
                let ready_ns = self.hosts[to].processor.pass(told_ns, message_ns + registering_ns);
                // The sender's adapter answers, without its processor, once its memory is registered.
                let asked_ns = self.post(to, CONTROL_BYTES, ready_ns);
                let registered_ns = self.hosts[from].processor.free_ns;
                let there_ns = self.carry(from, bytes, asked_ns.max(registered_ns));
                self.hosts[to].processor.pass(there_ns, message_ns + deregistering_ns)
            }
        }
    }

    /// A message from host 0 to host 1 beside which host `computes` computes for so long after its call, until it has ended and the computing too. The side
    /// that does not call `first` does so when the other's message is there, or the receive is posted.
    pub fn send_beside(&mut self, way: Way, bytes: usize, computes: usize, first: usize, compute_ns: f64) -> f64 {
        let Platform { device, message_ns, .. } = *self.platform;
        // A call of the sender: the message is made and announced. Of a receiver that finds an announcement: it is looked at and answered.
        let call_ns = message_ns + device.post_ns;
        let told_ns = Play::new(self.platform).announce(0, 0.0, 0.0);
        let called_ns = match (computes, first) {
            (1, 0) => told_ns + call_ns,
            (1, _) => message_ns,
            _ => call_ns,
        };
        self.hosts[computes].processor.away = Some((called_ns, called_ns + compute_ns));
        let end_ns = self.send(0, way, bytes, 0.0);
        end_ns.max(called_ns + compute_ns)
    }

    /// The first message to a peer, which waits for its connection: when its receive is complete.
    pub fn first_over_connection(&mut self, bytes: usize) -> f64 {
        let open_ns = self.connect();
        self.send(0, Way::Eager, bytes, open_ns)
    }

    /// Half round trips of `count` messages that go back and forth, each after the one before, ns of all of them. `connects`: from the first
    /// message on a connection is being made, and once it is open all go by `way` that went as datagrams before.
    pub fn back_and_forth(&mut self, count: usize, bytes: usize, way: Way, connects: bool) -> f64 {
        let mut now_ns = 0.0;
        let open_ns = if connects { self.connect() } else { 0.0 };
        for message in 0..count {
            let by = if connects && now_ns < open_ns { DATAGRAMS } else { way };
            now_ns = self.send(message % 2, by, bytes, now_ns);
        }
        now_ns
    }

    /// Bytes per ns of a long row of messages of which the next is sent when the processor has handed the last one over.
    pub fn stream(&mut self, count: usize, bytes: usize, way: Way) -> f64 {
        let mut end_ns = 0.0f64;
        for _ in 0..count {
            let at_ns = self.hosts[0].processor.free_ns;
            end_ns = end_ns.max(self.send(0, way, bytes, at_ns));
        }
        (count * bytes) as f64 / end_ns
    }

    /// A greeting there and one back. When the connection is open.
    fn connect(&mut self) -> f64 {
        let connect_ns = self.platform.connect_ns;
        let greets_ns = self.hosts[0].processor.pass(0.0, connect_ns);
        let met_ns = self.post(0, CONTROL_BYTES, greets_ns);
        let greets_ns = self.hosts[1].processor.pass(met_ns, connect_ns);
        self.post(1, CONTROL_BYTES, greets_ns)
    }

    /// The sender tells of a message, and registers its memory meanwhile.
    fn announce(&mut self, from: usize, registering_ns: f64, at_ns: f64) -> f64 {
        let made_ns = self.hosts[from].processor.pass(at_ns, self.platform.message_ns);
        let told_ns = self.post(from, CONTROL_BYTES, made_ns);
        if registering_ns > 0.0 {
            self.hosts[from].processor.pass(made_ns, registering_ns);
        }
        told_ns
    }

    fn registration_ns(&self, registered: Registered, bytes: usize) -> (f64, f64) {
        match registered {
            Registered::Before => (0.0, 0.0),
            Registered::EachTime => (self.platform.device.registering_ns(bytes), self.platform.device.deregistering_ns(bytes)),
        }
    }

    /// The processor hands a request over. When all of it lies in the other host's memory.
    fn post(&mut self, from: usize, bytes: usize, at_ns: f64) -> f64 {
        let posted_ns = self.hosts[from].processor.pass(at_ns, self.platform.device.post_ns);
        self.carry(from, bytes, posted_ns)
    }

    /// The adapter cuts a request into packets.
    fn carry(&mut self, from: usize, bytes: usize, at_ns: f64) -> f64 {
        let device = &self.platform.device;
        let mut left_ns = at_ns;
        for packet in 0..bytes.div_ceil(device.packet_bytes).max(1) {
            let data = device.packet_bytes.min(bytes - packet * device.packet_bytes);
            left_ns = self.hosts[from].wire.pass(at_ns, (data + device.packet_header_bytes) as f64 / device.wire_bytes_per_ns);
        }
        left_ns + device.latency_ns
    }

    fn send_datagrams(&mut self, from: usize, queue_pairs: usize, acknowledged: bool, bytes: usize, at_ns: f64) -> f64 {
        let Platform { device, message_ns, datagram_bytes, request_ns, .. } = *self.platform;
        let mut end_ns = at_ns;
        self.hosts[from].queue_pairs.resize(queue_pairs, Station::default());
        for datagram in 0..bytes.div_ceil(datagram_bytes).max(1) {
            let data = datagram_bytes.min(bytes - datagram * datagram_bytes);
            let share = if datagram == 0 { 1.0 } else { FURTHER_SHARE };
            let each_ns = share * message_ns + device.copying_ns(data) + self.assuring_ns(acknowledged, share, data);
            let sender = &mut self.hosts[from];
            let posted_ns = sender.processor.pass(at_ns, each_ns + device.post_ns);
            let pair = sender.next_pair % queue_pairs;
            sender.next_pair += 1;
            let begun_ns = sender.queue_pairs[pair].pass(posted_ns, request_ns) - request_ns;
            let there_ns = self.carry(from, data, begun_ns);
            end_ns = self.hosts[1 - from].processor.pass(there_ns, each_ns);
            if acknowledged && datagram % ACKNOWLEDGED_EACH == ACKNOWLEDGED_EACH - 1 {
                let answered_ns = self.post(1 - from, CONTROL_BYTES, end_ns);
                self.hosts[from].processor.pass(answered_ns, message_ns);
            }
        }
        end_ns
    }

    fn assuring_ns(&self, acknowledged: bool, share: f64, bytes: usize) -> f64 {
        if acknowledged { share * self.platform.reliability_ns + bytes as f64 / self.platform.check_bytes_per_ns } else { 0.0 }
    }
}

/// One way of one message between hosts that do nothing else, ns.
pub fn one_way_ns(platform: &Platform, way: Way, bytes: usize) -> f64 {
    Play::new(platform).send(0, way, bytes, 0.0)
}

/// The fewest messages of so many bytes, back and forth, after which a connection that is made with the first one has paid: found by playing them.
/// `None` where it has not after `most`.
pub fn messages_until_connection_pays(platform: &Platform, bytes: usize, way: Way, most: usize) -> Option<usize> {
    let pays = |count: usize| {
        let [with, without] = [(way, true), (DATAGRAMS, false)].map(|(way, connects)| Play::new(platform).back_and_forth(count, bytes, way, connects));
        with <= without
    };
    if !pays(most) {
        return None;
    }
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if pays(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATLAS: Platform = PLATFORMS[1];

    #[test]
    fn a_message_takes_what_its_stations_take() {
        let device = &ATLAS.device;
        let bytes = 2 * device.packet_bytes;
        let wire_ns = (bytes + 2 * device.packet_header_bytes) as f64 / device.wire_bytes_per_ns;
        let expected = 2.0 * (ATLAS.message_ns + device.copying_ns(bytes)) + device.post_ns + wire_ns + device.latency_ns;
        assert!((one_way_ns(&ATLAS, Way::Eager, bytes) - expected).abs() < 1e-6);
        // Two further messages for a write, of which one is the adapter's alone for a read.
        let [eager, read, write] = [Way::Eager, Way::Read(Registered::Before), Way::Write(Registered::Before)].map(|way| one_way_ns(&ATLAS, way, 8));
        assert!(eager < read && read < write);
        assert!((write - read - ATLAS.message_ns - device.post_ns).abs() < 1e-6, "{read} {write}");
    }

    #[test]
    fn registering_each_time_costs_the_receiver_both_ends_of_it() {
        for (before, each) in
            [(Way::Read(Registered::Before), Way::Read(Registered::EachTime)), (Way::Write(Registered::Before), Way::Write(Registered::EachTime))]
        {
            let more = one_way_ns(&ATLAS, each, 1 << 20) - one_way_ns(&ATLAS, before, 1 << 20);
            let once = ATLAS.device.registering_ns(1 << 20) + ATLAS.device.deregistering_ns(1 << 20);
            // The sender's own is done while the receiver is told of the message and does the same.
            assert!(more >= once - 1e-6 && more < once * 1.001, "{more} {once}");
        }
    }

    #[test]
    fn four_queue_pairs_carry_nearly_what_the_wire_does() {
        let rate = |queue_pairs: usize| Play::new(&ATLAS).stream(16, 1 << 20, Way::Datagrams { queue_pairs, acknowledged: false });
        let rates = [1, 2, 3, 4, 8].map(rate);
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1] * 1.001), "{rates:?}");
        // Paper 003, §4: "near-optimal bandwidth".
        assert!(rates[3] > 0.97 * rates[4] && rates[0] < 0.5 * rates[4], "{rates:?}");
        assert!(rates[4] < ATLAS.device.wire_bytes_per_ns);
    }

    #[test]
    fn short_datagrams_without_acknowledgements_are_nearly_as_fast_as_connections() {
        // Paper 003, §5.2.1: "For messages smaller than 2 Kib, UD with OB1 is nearly equivalent to RC"; with DR it is worse.
        for bytes in [8, 256, 1024] {
            let rc = one_way_ns(&ATLAS, Way::Eager, bytes);
            let [bare, acknowledged] = [false, true].map(|acknowledged| one_way_ns(&ATLAS, Way::Datagrams { queue_pairs: 4, acknowledged }, bytes));
            assert!((bare / rc - 1.0).abs() < 0.01 && acknowledged > 1.2 * rc, "{bytes}: {rc} {bare} {acknowledged}");
        }
    }

    #[test]
    fn what_a_connection_saves_pays_for_it() {
        let count = messages_until_connection_pays(&ATLAS, 8, Way::Eager, 1 << 16).unwrap();
        let total = |count: usize, way: Way, connects: bool| Play::new(&ATLAS).back_and_forth(count, 8, way, connects);
        assert!(total(count, Way::Eager, true) <= total(count, DATAGRAMS, false));
        assert!(total(count - 1, Way::Eager, true) > total(count - 1, DATAGRAMS, false));
        let bare = Platform { reliability_ns: 0.0, check_bytes_per_ns: f64::INFINITY, ..ATLAS };
        assert_eq!(messages_until_connection_pays(&bare, 8, Way::Eager, 1 << 16), None, "nothing is saved");
    }
}
