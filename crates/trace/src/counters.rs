//! Counters of one process. Plain numbers: whoever drives the engine owns them.

/// How a message went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum DataPath {
    /// To this process itself.
    Own,
    /// In the cache line of its header.
    Inline,
    /// With its header, through the ring.
    Eager,
    /// Read by the receiver from the sender's memory.
    Read,
    /// Copied by both sides together.
    Cooperative,
    /// Piece by piece through the ring.
    Pipelined,
    /// In datagrams, with its header.
    Datagrams,
    /// In datagrams, pulled by the receiver.
    Pulled,
}

/// Every path and its name in reports.
pub const DATA_PATHS: [(DataPath, &str); 8] = [
    (DataPath::Own, "to self"),
    (DataPath::Inline, "eager, one cache line"),
    (DataPath::Eager, "eager, through the ring"),
    (DataPath::Read, "rendezvous, receiver reads"),
    (DataPath::Cooperative, "rendezvous, both copy"),
    (DataPath::Pipelined, "rendezvous, pipelined"),
    (DataPath::Datagrams, "eager, in datagrams"),
    (DataPath::Pulled, "rendezvous, pulled in datagrams"),
];

/// Size classes: 0 bytes, then one for each power of 16: 1–15, 16–255, …
pub const SIZE_CLASSES: usize = 9;

/// The class of a message of `bytes`.
#[inline]
pub fn class_of(bytes: u64) -> usize {
    if bytes == 0 { 0 } else { ((bytes.ilog2() / 4) as usize + 1).min(SIZE_CLASSES - 1) }
}

/// Smallest and largest size of a class, bytes.
pub fn class_range(class: usize) -> (u64, u64) {
    match class {
        0 => (0, 0),
        c if c == SIZE_CLASSES - 1 => (1 << (4 * (c - 1)), u64::MAX),
        c => (1 << (4 * (c - 1)), (1 << (4 * c)) - 1),
    }
}

/// Messages and bytes of one kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub messages: u64,
    pub bytes: u64,
}

/// Registrations of the program's memory with a device.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Registrations {
    /// Transfers whose memory was registered already, and those whose was not.
    pub hits: u64,
    pub misses: u64,
    pub made: u64,
    /// Kept ones that were given up: for room, and because their memory had changed. Those of which no second use was made.
    pub evicted: u64,
    pub invalidated: u64,
    pub unpaid: u64,
    /// Transfers that went another way, since there was no registration to be had.
    pub refused: u64,
    /// Kept at once, at most, bytes.
    pub kept_bytes_most: u64,
    /// Short messages that left from where the program has them.
    pub in_place: u64,
    pub in_place_bytes: u64,
    /// Pieces of memory that were registered while what went before them was under way.
    pub overlapped: u64,
    /// The library's own memory that is registered now, bytes, and its queue pairs.
    pub pool_bytes: u64,
    pub queue_pairs: u64,
}

impl Registrations {
    /// Words in [`Registrations::to_words`].
    pub const WORDS: usize = 13;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        let Registrations { hits, misses, made, evicted, invalidated, unpaid, refused, kept_bytes_most, in_place, in_place_bytes, overlapped, .. } = self;
        let Registrations { pool_bytes, queue_pairs, .. } = self;
        [hits, misses, made, evicted, invalidated, unpaid, refused, kept_bytes_most, in_place, in_place_bytes, overlapped, pool_bytes, queue_pairs]
    }

    pub fn from_words(words: [u64; Self::WORDS]) -> Registrations {
        let [hits, misses, made, evicted, invalidated, unpaid, refused, kept_bytes_most, in_place, in_place_bytes, overlapped, pool_bytes, queue_pairs] = words;
        let kept = Registrations { hits, misses, made, evicted, invalidated, unpaid, refused, kept_bytes_most, ..Registrations::default() };
        Registrations { in_place, in_place_bytes, overlapped, pool_bytes, queue_pairs, ..kept }
    }
}

/// Connections to peers that are reached in datagrams, too.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Connections {
    /// Made, given back since they were little used, and broken.
    pub made: u64,
    pub given_back: u64,
    pub broken: u64,
    /// Messages that were sent again after that.
    pub resent: u64,
}

impl Connections {
    pub const WORDS: usize = 4;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        let Connections { made, given_back, broken, resent } = self;
        [made, given_back, broken, resent]
    }

    pub fn from_words([made, given_back, broken, resent]: [u64; Self::WORDS]) -> Connections {
        Connections { made, given_back, broken, resent }
    }
}

/// What one process has counted since it started.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Messages received, by path and size class.
    pub received: [[Tally; SIZE_CLASSES]; DATA_PATHS.len()],
    /// Messages whose receive was not posted when they came.
    pub unexpected: u64,
    /// Messages that went as a header because the receiver's credit was used up.
    pub held_to_header: u64,
    /// Messages that had to wait for room or credit.
    pub held_back: u64,
    /// Packets that were refused because they made no sense.
    pub refused: u64,
    /// Requests to receive (RTR): sent, used by their sender, crossed by the sender's offer, and sent for a message that needed none; what those
    /// for nothing took on the way; and, as a sender, messages that answered one.
    pub rtr_sent: u64,
    pub rtr_used: u64,
    pub rtr_crossed: u64,
    pub rtr_mispredicted: u64,
    pub rtr_wasted_bytes: u64,
    pub rtr_answered: u64,
    /// RTRs that their sender had dropped, or that were taken back. Receives that sent none since their envelope paused, and pauses that began.
    pub rtr_voided: u64,
    pub rtr_suppressed: u64,
    pub rtr_pauses: u64,
    /// Pieces that the helping thread copied.
    pub pieces_helped: u64,
    /// Bytes copied by load and store from or to memory of peers that is mapped here.
    pub mapped_bytes: u64,
    /// Short one-sided calls that their target was asked for in a line of shared memory, and those of them that were taken back.
    pub request_lines_posted: u64,
    pub request_lines_withdrawn: u64,
    /// Time inside blocking calls with nothing to do, ns.
    pub waiting_ns: u64,
    /// Blocking calls that had to wait.
    pub waits: u64,
    /// Times that the core was given away, and times slept in the kernel.
    pub yields: u64,
    pub sleeps: u64,
    /// Collectives that this process has ended through slots, and through the lines of barriers and the shortest allreduces;
    /// and those that it has begun by messages.
    pub collectives_by_slots: u64,
    pub collectives_by_lines: u64,
    pub collectives_by_messages: u64,
    /// Nothing where the network's device needs none.
    pub registrations: Registrations,
    /// Nothing where each peer is reached in one way.
    pub connections: Connections,
}

impl Counters {
    #[inline]
    pub fn received(&mut self, path: DataPath, bytes: u64) {
        let tally = &mut self.received[path as usize][class_of(bytes)];
        tally.messages += 1;
        tally.bytes += bytes;
    }

    /// Adds what another part of the process has counted.
    pub fn add(&mut self, other: &Counters) {
        let sum: Vec<u64> = self.to_words().iter().zip(other.to_words()).map(|(one, two)| one + two).collect();
        *self = Counters::from_words(&sum).expect("as many words");
    }

    /// As words, for sending to the rank that prints.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words: Vec<u64> = self.received.iter().flatten().flat_map(|t| [t.messages, t.bytes]).collect();
        words.extend([self.unexpected, self.held_to_header, self.held_back, self.refused, self.waiting_ns, self.waits, self.yields, self.sleeps]);
        words.extend([self.rtr_sent, self.rtr_used, self.rtr_crossed, self.rtr_mispredicted, self.rtr_wasted_bytes, self.rtr_answered, self.pieces_helped]);
        words.extend([self.rtr_voided, self.rtr_suppressed, self.rtr_pauses, self.mapped_bytes]);
        words.extend([self.request_lines_posted, self.request_lines_withdrawn]);
        words.extend([self.collectives_by_slots, self.collectives_by_lines, self.collectives_by_messages]);
        words.extend(self.registrations.to_words());
        words.extend(self.connections.to_words());
        words
    }

    /// Words in [`Counters::to_words`].
    pub const WORDS: usize = 2 * SIZE_CLASSES * DATA_PATHS.len() + 24 + Registrations::WORDS + Connections::WORDS;

    /// The other way round. `None` when the number of words is wrong.
    pub fn from_words(words: &[u64]) -> Option<Counters> {
        if words.len() != Self::WORDS {
            return None;
        }
        let mut counters = Counters::default();
        let (tallies, rest) = words.split_at(2 * SIZE_CLASSES * DATA_PATHS.len());
        for (tally, pair) in counters.received.iter_mut().flatten().zip(tallies.chunks_exact(2)) {
            *tally = Tally { messages: pair[0], bytes: pair[1] };
        }
        let (&[unexpected, held_to_header, held_back, refused, waiting_ns, waits, yields, sleeps], rest) = rest.split_first_chunk()?;
        let (&[rtr_sent, rtr_used, rtr_crossed, rtr_mispredicted, rtr_wasted_bytes, rtr_answered, pieces_helped], rest) = rest.split_first_chunk()?;
        let (&[rtr_voided, rtr_suppressed, rtr_pauses, mapped_bytes], rest) = rest.split_first_chunk()?;
        let (&[request_lines_posted, request_lines_withdrawn], rest) = rest.split_first_chunk()?;
        let (&[collectives_by_slots, collectives_by_lines, collectives_by_messages], rest) = rest.split_first_chunk()?;
        let (&registrations, rest) = rest.split_first_chunk()?;
        let (registrations, connections) = (Registrations::from_words(registrations), Connections::from_words(rest.try_into().ok()?));
        let counters = Counters { unexpected, held_to_header, held_back, refused, waiting_ns, waits, yields, sleeps, ..counters };
        let counters = Counters { rtr_voided, rtr_suppressed, rtr_pauses, mapped_bytes, ..counters };
        let counters = Counters { request_lines_posted, request_lines_withdrawn, ..counters };
        let counters = Counters { collectives_by_slots, collectives_by_lines, collectives_by_messages, registrations, connections, ..counters };
        Some(Counters { rtr_sent, rtr_used, rtr_crossed, rtr_mispredicted, rtr_wasted_bytes, rtr_answered, pieces_helped, ..counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_all_sizes_without_gaps() {
        for class in 0..SIZE_CLASSES {
            let (low, high) = class_range(class);
            assert_eq!((class_of(low), class_of(high)), (class, class));
            if class + 1 < SIZE_CLASSES {
                assert_eq!(class_range(class + 1).0, high + 1);
            }
        }
    }

    #[test]
    fn parts_add_up() {
        let mut sum = Counters { unexpected: 3, pieces_helped: 1, ..Default::default() };
        sum.received(DataPath::Own, 8);
        let mut other = Counters { unexpected: 4, sleeps: 2, ..Default::default() };
        other.received(DataPath::Own, 9);
        sum.add(&other);
        assert_eq!((sum.unexpected, sum.pieces_helped, sum.sleeps), (7, 1, 2));
        assert_eq!(sum.received[DataPath::Own as usize][class_of(8)], Tally { messages: 2, bytes: 17 });
    }

    #[test]
    fn words_and_back() {
        let mut c = Counters {
            unexpected: 3,
            sleeps: 9,
            waiting_ns: 77,
            mapped_bytes: 5,
            request_lines_withdrawn: 2,
            collectives_by_slots: 4,
            collectives_by_messages: 6,
            ..Default::default()
        };
        c.received(DataPath::Cooperative, 5000);
        c.registrations = Registrations { hits: 8, in_place_bytes: 300, pool_bytes: 7, queue_pairs: 2, ..Default::default() };
        c.connections = Connections { made: 3, given_back: 1, broken: 2, resent: 70 };
        c.received(DataPath::Own, 0);
        let words = c.to_words();
        assert_eq!(words.len(), Counters::WORDS);
        assert_eq!(Counters::from_words(&words), Some(c));
        assert_eq!(Counters::from_words(&words[1..]), None);
    }
}
