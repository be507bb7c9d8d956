//! How long a process that waits spins and gives its core away before it sleeps.

use crate::Config;

/// A core that is given away comes back at once, unless another process has run on it: then there are fewer cores than threads that want them, and it takes so
/// many times as long as the shortest time seen, which is not longer than this.
const TAKEN_TIMES: u64 = 4;
const GIVEN_NS_MAX: u64 = 1_000;
/// A process whose core has been taken twice within this time gives it away rather than spin until as much time has passed without that. One who spins again
/// then, for [`Config::spin_ns`] at most, loses a small part of it. What happens once is an interrupt, or a process that has just been started.
const CONTENDED_NS: u64 = 5_000_000;

/// How this process waits; learned from how its waits have ended.
pub struct Waiting {
    /// More ranks than cores: spinning would take the core from the one that is waited for.
    pub oversubscribed: bool,
    pub(crate) spin_ns: u64,
    pub(crate) yield_ns: u64,
    /// How long nothing moved in waits that did not end while spinning, a moving average, ns.
    long_ns: u64,
    /// Others have lately wanted the cores that this process waits on, which it cannot know otherwise: ranks of other hosts or jobs, in containers, may run there.
    pub(crate) contended: bool,
    taken_ns: u64,
    /// The shortest time after which a core that was given away came back, ns.
    given_ns: u64,
}

impl Waiting {
    pub(crate) fn new(config: &Config) -> Waiting {
        Waiting {
            oversubscribed: config.local_processes > config.cores,
            spin_ns: config.spin_ns,
            yield_ns: config.yield_ns,
            long_ns: 0,
            contended: false,
            taken_ns: 0,
            given_ns: GIVEN_NS_MAX,
        }
    }

    /// The core was given away at `before_ns`, and has come back at `now_ns`.
    pub(crate) fn gave_core(&mut self, before_ns: u64, now_ns: u64) {
        let took_ns = now_ns - before_ns;
        self.given_ns = self.given_ns.min(took_ns.max(1));
        if took_ns >= TAKEN_TIMES * self.given_ns {
            self.contended |= self.taken_ns > 0 && now_ns < self.taken_ns + CONTENDED_NS;
            self.taken_ns = now_ns;
        } else if self.contended {
            self.contended = now_ns < self.taken_ns + CONTENDED_NS;
        }
    }

    /// How long to spin now. A process whose waits have turned out long sleeps early.
    pub(crate) fn spin_budget_ns(&self) -> u64 {
        match (self.oversubscribed || self.contended, self.long_ns > 50 * self.spin_ns) {
            (true, _) => 0,
            (false, true) => self.spin_ns / 4,
            (false, false) => self.spin_ns,
        }
    }

    pub(crate) fn retune(&mut self, spin_ns: u64, yield_ns: u64) {
        (self.spin_ns, self.yield_ns) = (spin_ns, yield_ns);
    }

    pub(crate) fn learn(&mut self, waited_ns: u64) {
        self.long_ns = self.long_ns - self.long_ns / 8 + waited_ns / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_core_others_take_gives_it_away_for_a_while() {
        let mut waiting = Waiting::new(&Config { local_processes: 1, cores: 1, ..Config::default() });
        waiting.gave_core(1_000, 1_400);
        waiting.gave_core(1_500, 2_500);
        assert!(!waiting.contended && waiting.spin_budget_ns() > 0);
        waiting.gave_core(4_000, 5_600);
        assert!(!waiting.contended);
        waiting.gave_core(6_000, 7_600);
        assert!(waiting.contended && waiting.spin_budget_ns() == 0);
        waiting.gave_core(CONTENDED_NS, CONTENDED_NS + 400);
        assert!(waiting.contended);
        waiting.gave_core(2 * CONTENDED_NS, 2 * CONTENDED_NS + 400);
        assert!(!waiting.contended && waiting.spin_budget_ns() > 0);
        waiting.gave_core(4 * CONTENDED_NS, 4 * CONTENDED_NS + 1_600);
        assert!(!waiting.contended);
    }
}
