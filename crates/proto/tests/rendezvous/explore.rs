//! Explores a model: every state that any interleaving reaches, or one random run after the other.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem::discriminant;

/// What is wrong in a state.
pub type Violation = String;

/// A small world whose every step is one atomic action of one rank, or the delivery of one packet.
pub trait Model: Clone + Hash {
    type Config;
    type Step: Copy + Debug;

    /// The steps that may be taken now: first those of the library, whose number it returns, then those of the programs.
    fn steps(&self, config: &Self::Config, steps: &mut Vec<Self::Step>) -> usize;
    /// Takes a step. What happened is counted in `seen`.
    fn take(&mut self, config: &Self::Config, step: Self::Step, seen: &mut Seen) -> Result<(), Violation>;
    /// Checks a state in which the library has nothing left to do.
    fn settled(&self, config: &Self::Config) -> Result<(), Violation>;
}

/// How often each event happened.
#[derive(Clone, Default)]
pub struct Seen(pub std::collections::BTreeMap<&'static str, u64>);

impl Seen {
    pub fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Fails if some event never happened: a model that does not reach what it is about proves nothing.
    pub fn must_have(&self, what: &[&str]) {
        for event in what {
            assert!(self.0.contains_key(event), "the model never reached: {event}; it reached {:?}", self.0);
        }
    }
}

/// A violation and the steps to it, fewest first.
#[derive(Debug)]
pub struct Counterexample {
    pub why: Violation,
    pub steps: Vec<String>,
}

pub struct Report {
    pub states: usize,
    pub transitions: u64,
    /// Steps of the longest of the shortest ways to a state.
    pub depth: usize,
    /// States in which the library has nothing left to do, all checked.
    pub settled: u64,
    pub seen: Seen,
    pub found: Option<Counterexample>,
}

/// Two lanes of multiply and fold, 64 bits of the result: two of 10^8 states share one with a chance of 3 in 10^4.
#[derive(Clone, Copy)]
struct Fingerprint(u64, u64);

impl Fingerprint {
    const NEW: Fingerprint = Fingerprint(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);

    #[inline]
    fn fold(a: u64, b: u64) -> u64 {
        let wide = a as u128 * b as u128;
        wide as u64 ^ (wide >> 64) as u64
    }
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = Self::fold(self.0 ^ word, 0xa409_3822_299f_31d1);
        self.1 = Self::fold(self.1.rotate_left(23) ^ word, 0x082e_fa98_ec4e_6c89) ^ self.0;
    }
    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n as u64);
    }
    #[inline]
    fn write_u16(&mut self, n: u16) {
        self.write_u64(n as u64);
    }
    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n as u64);
    }
    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn finish(&self) -> u64 {
        Self::fold(self.0 ^ 0x4528_21e6_38d0_1377, self.1 ^ 0xbe54_66cf_34e9_0c6c)
    }
}

/// A fingerprint is a hash already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are kept");
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// 64 bits of a state.
pub fn fingerprint<M: Hash>(state: &M) -> u64 {
    let mut hasher = Fingerprint::NEW;
    state.hash(&mut hasher);
    hasher.finish()
}

/// Every state that `start` leads to, breadth first, until a violation is found: its way is then a shortest one.
/// Panics past `states_max` states.
pub fn explore<M: Model>(start: M, config: &M::Config, states_max: usize) -> Report {
    let mut known: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    // The way to a state: its parent, and which of its steps led here.
    let mut ways: Vec<(u32, u16)> = vec![(0, 0)];
    let mut report = Report { states: 1, transitions: 0, depth: 0, settled: 0, seen: Seen::default(), found: None };
    known.insert(fingerprint(&start));
    let mut layer = vec![(start.clone(), 0u32)];
    let mut next = Vec::new();
    let mut steps = Vec::new();
    while !layer.is_empty() {
        for (state, number) in layer.drain(..) {
            steps.clear();
            if state.steps(config, &mut steps) == 0 {
                report.settled += 1;
                if let Err(why) = state.settled(config) {
                    report.found = Some(Counterexample { why, steps: replay(start, config, &ways, number, None) });
                    return report;
                }
            }
            for (at, &step) in steps.iter().enumerate() {
                let mut child = state.clone();
                report.transitions += 1;
                if let Err(why) = child.take(config, step, &mut report.seen) {
                    report.found = Some(Counterexample { why, steps: replay(start, config, &ways, number, Some(at)) });
                    return report;
                }
                if known.insert(fingerprint(&child)) {
                    assert!(report.states < states_max, "more than {states_max} states");
                    next.push((child, report.states as u32));
                    ways.push((number, at as u16));
                    report.states += 1;
                }
            }
        }
        if !next.is_empty() {
            report.depth += 1;
        }
        std::mem::swap(&mut layer, &mut next);
    }
    report
}

/// Every state that `start` leads to, depth first: in little memory, 9 bytes for each state, and without the way to a violation.
pub fn sweep<M: Model>(start: M, config: &M::Config) -> Report {
    let mut known: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    let mut report = Report { states: 1, transitions: 0, depth: 0, settled: 0, seen: Seen::default(), found: None };
    known.insert(fingerprint(&start));
    let mut left = vec![start];
    let mut steps = Vec::new();
    while let Some(state) = left.pop() {
        steps.clear();
        let settled = state.steps(config, &mut steps) == 0;
        report.settled += settled as u64;
        let mut found = if settled { state.settled(config).err() } else { None };
        for &step in &steps {
            let mut child = state.clone();
            report.transitions += 1;
            match child.take(config, step, &mut report.seen) {
                Err(why) => found = Some(why),
                Ok(()) if known.insert(fingerprint(&child)) => {
                    report.states += 1;
                    left.push(child);
                }
                Ok(()) => {}
            }
        }
        report.depth = report.depth.max(left.len());
        if let Some(why) = found {
            report.found = Some(Counterexample { why, steps: Vec::new() });
            break;
        }
    }
    report
}

/// The steps to state `number`, and the step number `last` from there.
fn replay<M: Model>(start: M, config: &M::Config, ways: &[(u32, u16)], mut number: u32, last: Option<usize>) -> Vec<String> {
    let mut way: Vec<usize> = last.into_iter().collect();
    while number != 0 {
        let (parent, at) = ways[number as usize];
        way.push(at as usize);
        number = parent;
    }
    let mut state = start;
    let mut named = Vec::new();
    for at in way.into_iter().rev() {
        let mut steps = Vec::new();
        state.steps(config, &mut steps);
        named.push(format!("{:?}", steps[at]));
        let _ = state.take(config, steps[at], &mut Seen::default());
    }
    named
}

/// Random numbers that a seed replays (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// One random run to its end. For a while each, the library does nothing or everything, or a program takes steps of one sort.
/// Returns the steps taken.
pub fn walk<M: Model>(mut state: M, config: &M::Config, seed: u64, seen: &mut Seen) -> Result<u64, Violation> {
    let mut random = Random(seed);
    let mut steps = Vec::new();
    let (mut taken, mut mood, mut favoured) = (0, 0, 0);
    loop {
        steps.clear();
        let library = state.steps(config, &mut steps);
        if library == 0 {
            state.settled(config)?;
        }
        if steps.is_empty() {
            return Ok(taken);
        }
        if random.below(24) == 0 {
            (mood, favoured) = (random.below(4), random.below(4));
        }
        let (first, last) = match mood {
            0 if library > 0 => (0, library),
            1 | 2 if steps.len() > library => {
                // Steps of one sort lie together.
                let sorts: Vec<_> = steps[library..].chunk_by(|a, b| discriminant(a) == discriminant(b)).map(<[_]>::len).collect();
                let sort = if random.below(8) == 0 { random.below(sorts.len()) } else { favoured % sorts.len() };
                let before: usize = sorts[..sort].iter().sum();
                (library + before, library + before + sorts[sort])
            }
            _ => (0, steps.len()),
        };
        let at = first + random.below(last - first);
        state.take(config, steps[at], seen).map_err(|why| format!("step {taken}, {:?}: {why}", steps[at]))?;
        taken += 1;
    }
}
