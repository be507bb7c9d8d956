//! What messages are matched by, and what receives accept (MPI-5.0 §3.2.3, §3.5).

/// A matching context: 48 bits. Every communicator has two, one for point-to-point, one for collectives.
///
/// The identifier is given out by one member (its process number and a counter that never repeats), so
/// that no agreement between the members is needed and concurrent creations cannot collide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Context(pub(crate) u64);

impl Context {
    /// Most processes of one job. Contexts of numbers from there up to 2^20 are [drawn](Context::drawn).
    pub const PROCESSES_MAX: u32 = 1_000_000;
    /// Most communicators that one process may give an identifier to: 2^25 - 1.
    pub const COUNTER_MAX: u32 = (1 << 25) - 1;
    /// Engines of one process among which contexts may be spread.
    pub const VCIS: u8 = 4;

    /// The point-to-point context number `counter` given out by `process`, matched in the first engine of every member. `None` past the limits.
    pub fn new(process: u32, counter: u32) -> Option<Context> {
        Context::by_vci(process, 0, counter)
    }

    /// The same, matched in every member's engine number `vci`.
    pub fn by_vci(process: u32, vci: u8, counter: u32) -> Option<Context> {
        (process < Self::PROCESSES_MAX && vci < Self::VCIS && counter <= Self::COUNTER_MAX)
            .then_some(Context(((process as u64) << 28) | ((vci as u64) << 26) | ((counter as u64) << 1)))
    }

    /// A context for members of several jobs, in which process numbers mean different things: one of 48,576 × 2^24 that `random` chooses, in a range that no
    /// process gives out.
    pub fn drawn(random: u64, vci: u8) -> Context {
        let process = Self::PROCESSES_MAX + (random >> 32) as u32 % ((1 << 20) - Self::PROCESSES_MAX);
        // Each has a companion, two higher.
        let counter = random as u32 & Self::COUNTER_MAX & !1;
        Context(((process as u64) << 28) | (((vci % Self::VCIS) as u64) << 26) | ((counter as u64) << 1))
    }

    /// The engine of each member that matches its messages.
    #[inline]
    pub fn vci(self) -> u8 {
        (self.0 >> 26) as u8 % Self::VCIS
    }

    /// The same context, matched in the first engine.
    pub fn of_first_vci(self) -> Context {
        Context(self.0 & !((Self::VCIS as u64 - 1) << 26))
    }

    /// The context of the same communicator's collectives.
    pub fn collective(self) -> Context {
        Context(self.0 | 1)
    }

    pub fn raw(self) -> u64 {
        self.0
    }

    /// Any 48-bit value is a context; whether somebody listens on it is found out by matching.
    pub fn from_raw(raw: u64) -> Context {
        Context(raw & ((1 << 48) - 1))
    }
}

/// What a message is matched by (MPI-5.0 §3.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub context: Context,
    pub source: u32,
    pub tag: i32,
}

/// What a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Rank in the communicator, or [`Pattern::ANY_SOURCE`].
    pub source: u32,
    /// Tag, or [`Pattern::ANY_TAG`].
    pub tag: i32,
}

impl Pattern {
    pub const ANY_SOURCE: u32 = u32::MAX;
    pub const ANY_TAG: i32 = i32::MIN;

    #[inline]
    pub fn accepts(self, source: u32, tag: i32) -> bool {
        (self.source == source || self.source == Self::ANY_SOURCE) && (self.tag == tag || self.tag == Self::ANY_TAG)
    }

    #[inline]
    pub fn exact(self) -> bool {
        self.source != Self::ANY_SOURCE && self.tag != Self::ANY_TAG
    }
}
