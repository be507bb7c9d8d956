//! How long a process that waits spins and gives its core away before it sleeps.

use crate::Config;
use crate::owner::this_thread;

/// A core that is given away comes back at once, unless another process has run on it: then there are fewer cores than threads that want them, and it takes so
/// many times as long as the shortest time seen, which is not longer than this. An interrupt takes as long, so the kernel's count of switches has the last word.
const TAKEN_TIMES: u64 = 4;
const GIVEN_NS_MAX: u64 = 1_000;
/// Whoever waits for one that has a core looks on for as long as a core takes to be given away and had back from another thread, about: so many times the time
/// that it takes where no other wants it. It then loses no more than as much again.
const BESIDE_TIMES: u64 = 10;
/// Times in a row that a core comes back at once before its process sleeps, where it may have given it to nobody although another waited: about what sleeping
/// and being woken costs.
const IN_VAIN_MAX: u32 = 10;
/// Times that a core which ranks share is given away before its process sleeps, however long that takes: others may have it for long, and a sleeper that is woken
/// costs more than a core that is given away again.
const GIVEN_MIN: u64 = 100;
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
    yield_ns: u64,
    /// [`Config::yields_reach`].
    yields_reach: bool,
    /// How often in a row a core that was given away has come back at once, and how often it was given away, since the wait began or something moved.
    in_vain: u32,
    pub(crate) given: u64,
    /// How long nothing moved in waits that did not end while spinning, a moving average, ns.
    long_ns: u64,
    /// Others have lately wanted the cores that this process waits on, which it cannot know otherwise: ranks of other hosts or jobs, in containers, may run there.
    pub(crate) contended: bool,
    taken_ns: u64,
    counted: Option<Counted>,
    /// The shortest time after which a core that was given away came back, ns.
    given_ns: u64,
    /// Waits are long for most processes.
    long: bool,
}

impl Waiting {
    pub(crate) fn new(config: &Config) -> Waiting {
        Waiting {
            oversubscribed: config.shares_cores(),
            spin_ns: config.spin_ns,
            yield_ns: config.yield_ns,
            yields_reach: config.yields_reach,
            in_vain: 0,
            given: 0,
            long_ns: 0,
            contended: false,
            taken_ns: 0,
            counted: None,
            given_ns: GIVEN_NS_MAX,
            long: false,
        }
    }

    /// The waits from here on are long for most processes, or no longer: whoever waits sleeps early, so that those that are waited for have the cores.
    pub(crate) fn expect_long(&mut self, long: bool) {
        self.long = long;
    }

    /// How long to give a core away that comes back before this process sleeps, ns: not where ranks share cores, and wait for those that have not come so far.
    pub(crate) fn yield_budget_ns(&self) -> u64 {
        if self.long && self.oversubscribed { 0 } else { self.yield_ns }
    }

    /// This thread gave the core away at `before_ns`, and has it back at `now_ns`. `switches` is how often it has left its core to another since it began.
    pub(crate) fn gave_core(&mut self, before_ns: u64, now_ns: u64, switches: impl FnOnce() -> u64) {
        let took_ns = now_ns - before_ns;
        self.given_ns = self.given_ns.min(took_ns.max(1));
        self.given += 1;
        let late = took_ns >= TAKEN_TIMES * self.given_ns;
        self.in_vain = if late { 0 } else { self.in_vain + 1 };
        if self.oversubscribed {
            // Who wants these cores is known.
            return;
        }
        if late && self.was_switched(now_ns, switches()) {
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

    /// A wait begins, or something has moved.
    pub(crate) fn begins(&mut self) {
        (self.in_vain, self.given) = (0, 0);
    }

    /// Whether the core has been given away so few times since that all who share it may not have had it yet.
    pub(crate) fn yields_more(&self) -> bool {
        self.oversubscribed && !self.long && self.given < GIVEN_MIN
    }

    /// Whether giving the core away again would be in vain: where the scheduler shares a core among groups first, a process that is alone in its own may get
    /// the core back at once, again and again, though another waits for it. Sleeping lets that run.
    pub(crate) fn yields_in_vain(&self) -> bool {
        !self.yields_reach && self.in_vain >= IN_VAIN_MAX
    }

    /// How long to look on beside others that have cores, before a shared core is given away: some times what that takes at least, ns. 0 most of the times
    /// after it has been given away in vain, `given` times by now: what is waited for takes long then.
    pub(crate) fn beside_ns(&self, given: u64) -> u64 {
        if given == 0 || given.is_power_of_two() { BESIDE_TIMES * self.given_ns } else { 0 }
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

    #[test]
    fn a_process_that_shares_its_core_looks_on_ever_more_seldom() {
        let mut waiting = waiting();
        waiting.gave_core(1_000, 1_300, || 0);
        let looks: Vec<u64> = (0..10).filter(|given| waiting.beside_ns(*given) > 0).collect();
        assert_eq!(looks, [0, 1, 2, 4, 8]);
        assert_eq!(waiting.beside_ns(0), BESIDE_TIMES * 300);
    }

    #[test]
    fn ranks_that_share_cores_give_them_away_often_before_they_sleep() {
        let mut waiting = Waiting::new(&Config { local_processes: 3, cores: 2, ..Config::default() });
        for _ in 0..GIVEN_MIN {
            assert!(waiting.yields_more());
            waiting.gave_core(0, 900_000, || 0);
        }
        assert!(!waiting.yields_more());
        waiting.begins();
        assert!(waiting.yields_more());
        waiting.expect_long(true);
        assert!(!waiting.yields_more());
        waiting.expect_long(false);
        assert!(waiting.yields_more());
        let alone = Waiting::new(&Config { local_processes: 2, cores: 2, ..Config::default() });
        assert!(!alone.yields_more());
    }

    #[test]
    fn a_core_that_nobody_of_the_group_takes_is_soon_slept_without() {
        for reach in [false, true] {
            let mut waiting = Waiting::new(&Config { local_processes: 3, cores: 2, yields_reach: reach, ..Config::default() });
            let mut given = |took_ns| {
                waiting.gave_core(0, took_ns, || 0);
                waiting.yields_in_vain()
            };
            (1..IN_VAIN_MAX).for_each(|_| assert!(!given(300)));
            assert!(!given(5_000), "another has had it");
            (1..IN_VAIN_MAX).for_each(|_| assert!(!given(300)));
            assert_eq!(given(300), !reach);
        }
    }
}
