//! On which host does this process run, and who shares its memory?

use crate::Error;
use crate::environment::JOB_BYTES_MAX;

/// Longest card, bytes: as text it fits into one value of every process manager.
pub const CARD_BYTES_MAX: usize = 500;
const VERSION: &str = "1";

/// What tells one host from another. Processes of one machine in different network namespaces are on different hosts:
/// sockets of the abstract namespace, by which memory is handed over, do not pass between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The running kernel: `boot_id`.
    pub boot: String,
    /// Device and inode of the network namespace.
    pub network: (u64, u64),
    /// `hostname`, for messages only.
    pub name: String,
}

/// What a rank says of itself to ranks of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    pub host: Host,
    /// Socket of the abstract namespace where its segment is handed out; letters, digits and hyphens.
    pub socket: String,
    /// Processors that it may use: bit `n % 64` of word `n / 64` for processor `n`.
    pub processors: Vec<u64>,
    /// Processors that its control group lets it use at once.
    pub quota: u32,
    /// The scheduler's group of its session; 0 where sessions are no groups.
    pub group: u64,
}

impl Host {
    /// The host of this process.
    pub fn here() -> Host {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).take(64).collect();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot: String = boot.trim().chars().filter(|c| c.is_ascii_hexdigit() || *c == '-').take(36).collect();
        // Without /proc only the name tells hosts apart.
        let boot = if boot.is_empty() { format!("on-{name}") } else { boot };
        let network = rustix::fs::stat("/proc/self/ns/net").map_or((0, 0), |stat| (stat.st_dev, stat.st_ino));
        Host { boot, network, name }
    }

    /// Whether memory can be shared with a process of `other`.
    pub fn shares_memory_with(&self, other: &Host) -> bool {
        self.boot == other.boot && self.network == other.network
    }
}

/// For messages: the name, and the network namespace, since hosts of one machine may share the name.
impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host {} (network namespace {})", self.name, self.network.1)
    }
}

impl Card {
    /// The card of this process, which hands out its segment at the socket `socket`.
    pub fn here(socket: String) -> Card {
        let mut processors = Vec::new();
        if let Ok(allowed) = rustix::thread::sched_getaffinity(None) {
            for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
                processors.resize(processors.len().max(cpu / 64 + 1), 0);
                processors[cpu / 64] |= 1u64 << (cpu % 64);
            }
        }
        let quota = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
        // `/autogroup-123 nice 0`
        let group = std::fs::read_to_string("/proc/self/autogroup").unwrap_or_default();
        let group = group.split(['-', ' ']).nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
        let on = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text.trim() == "1");
        Card { host: Host::here(), socket, processors, quota, group: if on { group } else { 0 } }
    }

    /// Lines of text.
    pub fn encode(&self) -> Vec<u8> {
        let Host { boot, network, name } = &self.host;
        let words: Vec<String> = self.processors.iter().map(|word| format!("{word:x}")).collect();
        let text =
            format!("{VERSION}\n{boot}\n{:x}:{:x}\n{name}\n{}\n{}\n{}\n{:x}", network.0, network.1, self.socket, words.join(","), self.quota, self.group);
        text.into_bytes()
    }

    /// Reads the card of another rank.
    ///
    /// Errors: it is none of this version.
    pub fn parse(bytes: &[u8]) -> Result<Card, Error> {
        Card::read(bytes).ok_or_else(|| Error::new("another rank's card cannot be read: are all ranks of one version?"))
    }

    fn read(bytes: &[u8]) -> Option<Card> {
        if bytes.len() > CARD_BYTES_MAX {
            return None;
        }
        let mut lines = std::str::from_utf8(bytes).ok()?.split('\n');
        if lines.next()? != VERSION {
            return None;
        }
        let word = |text: &str| text.bytes().all(|b| b.is_ascii_graphic()).then(|| text.to_owned());
        let boot = word(lines.next()?)?;
        let (device, inode) = lines.next()?.split_once(':')?;
        let network = (u64::from_str_radix(device, 16).ok()?, u64::from_str_radix(inode, 16).ok()?);
        let name = word(lines.next()?)?;
        let socket = lines.next()?.to_owned();
        if socket.is_empty() || socket.len() > JOB_BYTES_MAX || !socket.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return None;
        }
        let words = lines.next()?;
        let processors: Option<Vec<u64>> =
            if words.is_empty() { Some(Vec::new()) } else { words.split(',').map(|word| u64::from_str_radix(word, 16).ok()).collect() };
        let quota = lines.next()?.parse().ok()?;
        let group = u64::from_str_radix(lines.next()?, 16).ok()?;
        let card = Card { host: Host { boot, network, name }, socket, processors: processors?, quota, group };
        lines.next().is_none().then_some(card)
    }
}

/// Processors that ranks with these cards may use together, at least 1: those that any of them may use, within the
/// narrowest quota that binds.
pub fn processors<'a>(cards: impl Iterator<Item = &'a Card>) -> u32 {
    let mut all: Vec<u64> = Vec::new();
    let mut quota = u32::MAX;
    for card in cards {
        all.resize(all.len().max(card.processors.len()), 0);
        all.iter_mut().zip(&card.processors).for_each(|(all, own)| *all |= own);
        let own: u32 = card.processors.iter().map(|word| word.count_ones()).sum();
        if card.quota < own || own == 0 {
            quota = quota.min(card.quota);
        }
    }
    let all: u32 = all.iter().map(|word| word.count_ones()).sum();
    (if all == 0 { quota } else { all.min(quota) }).clamp(1, 1 << 20)
}

/// Whether a process that gives its core away gives it to the others of these cards: the scheduler shares a core among
/// groups first, and whoever is alone in its group may get the core back at once.
pub fn yielding_reaches<'a>(cards: impl Iterator<Item = &'a Card>) -> bool {
    let mut groups = cards.map(|card| card.group);
    groups.next().is_none_or(|first| groups.all(|group| group == first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn card(processors: &[u64], quota: u32) -> Card {
        let host = Host { boot: "b".into(), network: (4, 0xf000_0081), name: "n".into() };
        Card { host, socket: "whimbrel-1".into(), processors: processors.to_vec(), quota, group: 0xa }
    }

    #[test]
    fn a_card_survives_the_wire_and_is_short() {
        let here = Card::here("whimbrel-0123456789abcdef0123456789abcdef-1023".into());
        assert_eq!(Card::parse(&here.encode()), Ok(here.clone()));
        assert!(here.host.shares_memory_with(&Host::here()));
        assert!(here.quota >= 1 && !here.processors.is_empty());
        let long = Card { processors: vec![u64::MAX; 16], host: Host { boot: "b".repeat(36), network: (u64::MAX, u64::MAX), name: "n".repeat(64) }, ..here };
        assert!(long.encode().len() <= CARD_BYTES_MAX, "{}", long.encode().len());
        assert_eq!(Card::parse(&long.encode()), Ok(long));
    }

    #[test]
    fn another_namespace_is_another_host() {
        let here = card(&[], 1).host;
        assert!(!here.shares_memory_with(&Host { network: (4, 0xf000_0082), ..here.clone() }));
        assert!(!here.shares_memory_with(&Host { boot: "c".into(), ..here.clone() }));
        assert!(here.shares_memory_with(&Host { name: "other".into(), ..here.clone() }));
    }

    #[test]
    fn processors_are_counted_once_and_within_quotas() {
        assert_eq!(processors([card(&[0b0001], 1), card(&[0b0010], 1), card(&[0b0010], 1)].iter()), 2);
        assert_eq!(processors([card(&[0xff], 2), card(&[0xff], 2)].iter()), 2);
        assert_eq!(processors([card(&[0, 1], 1)].iter()), 1);
        assert_eq!(processors([card(&[], 3)].iter()), 3);
        assert_eq!(processors(std::iter::empty()), 1 << 20);
    }

    #[test]
    fn yielding_stays_within_a_session() {
        let of = |group| Card { group, ..card(&[1], 1) };
        assert!(yielding_reaches([of(5), of(5)].iter()) && yielding_reaches([of(0), of(0)].iter()));
        assert!(!yielding_reaches([of(5), of(5), of(6)].iter()));
    }

    #[test]
    fn foreign_cards_are_refused() {
        let good = card(&[1], 1).encode();
        let good = String::from_utf8(good).unwrap();
        assert!(Card::parse(good.as_bytes()).is_ok());
        for (from, to) in [
            ("1\n", "2\n"),
            ("whimbrel-1", "a b"),
            ("whimbrel-1", ""),
            (":f000", ":g"),
            ("\n1\n1\na", "\nx\n1\na"),
            ("\n1\n1\na", "\n1\n\na"),
            ("\n1\n1\na", "\n1\n1\n"),
            ("\n1\n1\na", "\n1\n1"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            assert!(Card::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Card::parse(format!("{good}\n").as_bytes()).is_err());
        assert!(Card::parse(&vec![b'1'; CARD_BYTES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Card::parse(&bytes);
        }
    }
}
