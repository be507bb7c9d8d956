//! How long a process that waits spins and gives its core away before it sleeps.

use crate::Config;
use crate::owner::this_thread;

/// A core that is given away comes back at once, unless another process has run on it: then there are fewer cores than threads that want them, and it takes so
/// many times as long as the shortest time seen, which is not longer than this. An interrupt takes as long, so the kernel's count of switches has the last word.
const TAKEN_TIMES: u64 = 4;
const GIVEN_NS_MAX: u64 = 1_000;
/// A process whose core has been taken twice within this time gives it away rather than spin until as much time has passed without that. One who spins again
/// then, for [`Config::spin_ns`] at most, loses a small part of it. What happens once is a process that has just been started.
const CONTENDED_NS: u64 = 5_000_000;

/// How often a thread had left its core to another, as the kernel had counted at that time.
#[derive(Clone, Copy)]
struct Counted {
    thread: usize,
    at_ns: u64,
    switches: u64,
}

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
    counted: Option<Counted>,
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
            counted: None,
            given_ns: GIVEN_NS_MAX,
        }
    }

    /// This thread gave the core away at `before_ns`, and has it back at `now_ns`. `switches` is how often it has left its core to another since it began.
    pub(crate) fn gave_core(&mut self, before_ns: u64, now_ns: u64, switches: impl FnOnce() -> u64) {
        let took_ns = now_ns - before_ns;
        self.given_ns = self.given_ns.min(took_ns.max(1));
        if took_ns >= TAKEN_TIMES * self.given_ns && self.was_switched(now_ns, switches()) {
            self.contended |= self.taken_ns > 0 && now_ns < self.taken_ns + CONTENDED_NS;
            self.taken_ns = now_ns;
        } else if self.contended {
            self.contended = now_ns < self.taken_ns + CONTENDED_NS;
        }
    }

    /// Whether this thread has left its core to another since it was last asked, if that was lately.
    fn was_switched(&mut self, now_ns: u64, switches: u64) -> bool {
        let counted = Counted { thread: this_thread(), at_ns: now_ns, switches };
        self.counted.replace(counted).is_some_and(|last| last.thread == counted.thread && last.switches != switches && now_ns < last.at_ns + CONTENDED_NS)
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

    fn waiting() -> Waiting {
        Waiting::new(&Config { local_processes: 1, cores: 1, ..Config::default() })
    }

    #[test]
    fn a_process_whose_core_others_take_gives_it_away_for_a_while() {
        let mut waiting = waiting();
        waiting.gave_core(1_000, 1_400, || panic!("nothing has happened"));
        waiting.gave_core(1_500, 2_500, || panic!("that may be"));
        assert!(!waiting.contended && waiting.spin_budget_ns() > 0);
        // What was counted before that is not known.
        waiting.gave_core(3_000, 4_600, || 7);
        waiting.gave_core(5_000, 6_600, || 8);
        assert!(!waiting.contended);
        waiting.gave_core(7_000, 8_600, || 9);
        assert!(waiting.contended && waiting.spin_budget_ns() == 0);
        waiting.gave_core(CONTENDED_NS, CONTENDED_NS + 400, || panic!("it came back at once"));
        assert!(waiting.contended);
        waiting.gave_core(2 * CONTENDED_NS, 2 * CONTENDED_NS + 400, || panic!("it came back at once"));
        assert!(!waiting.contended && waiting.spin_budget_ns() > 0);
        waiting.gave_core(4 * CONTENDED_NS, 4 * CONTENDED_NS + 1_600, || 20);
        assert!(!waiting.contended);
    }

    /// A core comes back late again and again, in every few milliseconds at least, for interrupts.
    #[test]
    fn interrupts_are_no_other_process() {
        let mut waiting = waiting();
        waiting.gave_core(0, 200, || 0);
        for tick in 1..1000 {
            let at_ns = tick * CONTENDED_NS / 50;
            // One switch in so many milliseconds is one of the kernel's own threads.
            waiting.gave_core(at_ns, at_ns + 3_000, || tick / 100);
            assert!(!waiting.contended);
        }
    }

    /// Counts of two threads are not compared.
    #[test]
    fn each_thread_has_a_count_of_its_own() {
        let mut waiting = waiting();
        for round in 1..20 {
            let at_ns = round * 10_000;
            waiting.gave_core(at_ns, at_ns + 3_000, || 5);
            std::thread::scope(|s| s.spawn(|| waiting.gave_core(at_ns + 5_000, at_ns + 8_000, || 50)).join().unwrap());
            assert!(!waiting.contended);
        }
    }
}
