//! What does an eager message cost when it is copied, and when it leaves from its buffer? Paper 000, §3, on a model of an adapter:
//! the times are the model's, and `memory::usage` and `memory::cache` decide.

use memory::cache::{Limits, PinDownCache};
use memory::usage::{MessageCosts, Settings, Thresholds, UsageTable, Way};
use sim::device::{Adapter, CONNECTX, Profile, TODAY};

/// Longest message for which thresholds are made.
pub const BYTES_MAX: usize = 64 << 10;
/// Paper 000, Table 2: bytes and `n`.
const TABLE_2: [(usize, u64); 7] = [(128, 1280), (256, 755), (512, 432), (1024, 200), (2048, 109), (4096, 59), (8192, 33)];
/// More than any experiment registers.
const AMPLE: (usize, usize) = (1 << 30, 1 << 14);

/// An adapter and what the library does beside it. Times in ns.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    pub device: Profile,
    /// A search in the usage table, and one in the registration cache: together the `V` of paper 000.
    pub table_ns: f64,
    pub cache_ns: f64,
    /// Where these two are from.
    pub search_source: &'static str,
    /// Bytes and the messages after which a registration pays, where the paper gives them.
    pub given: &'static [(usize, u64)],
}

pub const PAPER: Platform = Platform {
    device: CONNECTX,
    table_ns: 20.0,
    cache_ns: 90.0,
    search_source: "both searches: the 1 % of the latency at 8 KiB by which 14 % seen differ from 15 % possible; how they share it is assumed",
    given: &TABLE_2,
};

/// With on-demand paging, the second of [`TODAY`], the figures are the same: nothing touches a page that is not pinned.
pub const PLATFORMS: [Platform; 2] =
    [PAPER, Platform { device: TODAY[0], table_ns: 10.0, cache_ns: 10.0, search_source: "searches of 10 ns each are assumed", given: &[] }];

impl Platform {
    /// What messages of so many bytes cost here, as the model has it.
    fn costs(&self, bytes: usize) -> MessageCosts {
        MessageCosts {
            register_ns: self.device.registering_ns(bytes) + self.device.deregistering_ns(bytes),
            copy_ns: self.device.copying_ns(bytes),
            search_ns: self.table_ns + self.cache_ns + self.device.gather_ns,
        }
    }

    /// `n` by the model; `None` where a registration never pays, or the message is written into the adapter and needs none.
    pub fn modelled_messages_to_pay(&self, bytes: usize) -> Option<u64> {
        if bytes <= self.device.inline_bytes_max { None } else { self.costs(bytes).messages_to_pay() }
    }

    /// `n` of the paper's table.
    pub fn given_messages_to_pay(&self, bytes: usize) -> Option<u64> {
        self.given.iter().find(|row| row.0 == bytes).map(|row| row.1)
    }

    /// Those of the paper's table where there is one, those of the model elsewhere.
    pub fn thresholds(&self) -> Thresholds {
        let messages = |bytes: usize| self.given_messages_to_pay(bytes).or_else(|| self.modelled_messages_to_pay(bytes));
        Thresholds::new(BYTES_MAX, Thresholds::FRACTION_PERCENT, messages)
    }

    /// One way, copied at both ends: the message of today's libraries.
    pub fn copied_ns(&self, bytes: usize) -> f64 {
        // In the order of `message_ns`, so that a message without the mechanism takes this time to the last bit.
        self.device.copying_ns(bytes) + self.device.transfer_ns(bytes, 1) + self.device.copying_ns(bytes)
    }

    /// What could be gained at most if the sender's copy cost nothing, as a share of the latency (Fig. 1).
    pub fn theoretical(&self, bytes: usize) -> f64 {
        self.device.copying_ns(bytes) / self.copied_ns(bytes)
    }

    /// Longest message that two copies bring sooner than a rendezvous out of registered memory, which has two more messages.
    pub fn eager_bytes_max(&self) -> usize {
        let spared_ns = self.device.transfer_ns(0, 1) - self.device.copy_ns;
        (spared_ns * self.device.copy_bytes_per_ns).max(0.0) as usize
    }
}

/// What the processor does before a message is handed to the adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prepared {
    pub processor_ns: f64,
    /// Pieces of memory that the adapter gathers: the header lies in a block of the library's, as a copy does.
    pub pieces: usize,
    pub is_direct: bool,
}

/// A process that sends eager messages.
pub struct Process<'a> {
    platform: &'a Platform,
    /// `None`: every message is copied, without a search.
    table: Option<UsageTable>,
    thresholds: Thresholds,
    cache: PinDownCache<Adapter>,
}

impl<'a> Process<'a> {
    /// With these settings of its usage table, or without one, and with ample room for registrations.
    pub fn new(platform: &'a Platform, settings: Option<Settings>) -> Process<'a> {
        Process::with_limits(platform, settings, AMPLE.0, AMPLE.1)
    }

    /// Registering at most so many bytes and entries.
    pub fn with_limits(platform: &'a Platform, settings: Option<Settings>, bytes_max: usize, entries_max: usize) -> Process<'a> {
        let limits = Limits { bytes_max, entries_max, page_bytes: platform.device.page_bytes };
        let thresholds = platform.thresholds();
        let table = settings.map(|settings| UsageTable::new(thresholds.clone(), settings));
        Process { platform, table, thresholds, cache: PinDownCache::new(Adapter::new(platform.device), limits) }
    }

    /// A message is about to leave from `address`.
    pub fn prepare(&mut self, address: usize, bytes: usize) -> Prepared {
        let copying_ns = self.platform.device.copying_ns(bytes);
        let copied = |search_ns: f64| Prepared { processor_ns: search_ns + copying_ns, pieces: 1, is_direct: false };
        let Some(table) = &mut self.table else { return copied(0.0) };
        let way = table.used(address, bytes);
        if self.thresholds.of(bytes).is_none() {
            // For such sizes the mechanism is off, and nothing is searched.
            return copied(0.0);
        }
        match way {
            Way::Copy => copied(self.platform.table_ns),
            Way::Direct => {
                let processor_ns = self.platform.table_ns + self.register_ns(address, bytes);
                Prepared { processor_ns, pieces: 2, is_direct: true }
            }
        }
    }

    /// Searches the cache for memory of which the device is to read or write, and registers what is not there.
    pub fn register_ns(&mut self, address: usize, bytes: usize) -> f64 {
        let range = address..address + bytes;
        let before_ns = self.cache.registrar().spent_ns;
        let lease = self.cache.acquire(range.clone()).expect("one message at a time, and less than the cache may hold");
        assert!(self.cache.registrar().may_touch(lease.key(), &range), "a key that does not open its buffer");
        self.cache.release(lease);
        self.platform.cache_ns + self.cache.registrar().spent_ns - before_ns
    }

    /// A message, one way, into the receiver's blocks and out of them; and whether it left from its buffer.
    pub fn message_ns(&mut self, address: usize, bytes: usize) -> (f64, bool) {
        let prepared = self.prepare(address, bytes);
        let device = &self.platform.device;
        (prepared.processor_ns + device.transfer_ns(bytes, prepared.pieces) + device.copying_ns(bytes), prepared.is_direct)
    }

    pub fn table(&self) -> Option<&UsageTable> {
        self.table.as_ref()
    }

    pub fn cache(&self) -> &PinDownCache<Adapter> {
        &self.cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_has_what_paper_000_says_of_its_platform() {
        for (bytes, n) in TABLE_2 {
            let here = PAPER.modelled_messages_to_pay(bytes).unwrap() as f64;
            assert!((here / n as f64 - 1.0).abs() < 0.10, "{bytes} bytes: {here}, in the paper {n}");
        }
        assert!((PAPER.theoretical(8192) - 0.15).abs() < 0.001, "{}", PAPER.theoretical(8192));
        assert!((9 << 10..10 << 10).contains(&PAPER.eager_bytes_max()), "{}", PAPER.eager_bytes_max());
        assert_eq!((PAPER.thresholds().of(4096), PAPER.thresholds().of(64)), (Some(14), None));
    }

    #[test]
    fn what_is_inline_or_never_pays_is_not_searched_for() {
        let today = &PLATFORMS[1];
        assert_eq!(today.modelled_messages_to_pay(today.device.inline_bytes_max), None);
        let mut process = Process::new(today, Some(Settings::default()));
        for _ in 0..100 {
            assert_eq!(process.message_ns(1 << 30, 128), (today.copied_ns(128), false));
        }
        assert_eq!(process.cache().counters().registrations, 0);
    }

    #[test]
    fn a_message_is_copied_until_it_pays_and_then_spares_the_copy() {
        let mut process = Process::new(&PAPER, Some(Settings::default()));
        let copied = PAPER.copied_ns(4096);
        let registering_ns = CONNECTX.registering_ns(4096);
        let direct = copied - CONNECTX.copying_ns(4096) + PAPER.table_ns + PAPER.cache_ns;
        for message in 0..20 {
            let expected = match message {
                0..14 => (copied + PAPER.table_ns, false),
                14 => (direct + registering_ns, true),
                _ => (direct, true),
            };
            let (ns, is_direct) = process.message_ns(1 << 30, 4096);
            assert!((ns - expected.0).abs() < 1e-6 && is_direct == expected.1, "message {message}: {ns}, {is_direct}; {expected:?}");
        }
    }
}
