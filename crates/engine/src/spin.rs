//! How long a process that waits spins and gives its core away before it sleeps.

use crate::Config;

/// How this process waits; learned from how its waits have ended.
pub struct Waiting {
    /// More ranks than cores: spinning would take the core from the one that is waited for.
    pub oversubscribed: bool,
    pub(crate) spin_ns: u64,
    pub(crate) yield_ns: u64,
    /// How long nothing moved in waits that did not end while spinning, a moving average, ns.
    long_ns: u64,
}

impl Waiting {
    pub(crate) fn new(config: &Config) -> Waiting {
        Waiting { oversubscribed: config.local_processes > config.cores, spin_ns: config.spin_ns, yield_ns: config.yield_ns, long_ns: 0 }
    }

    /// How long to spin now. A process whose waits have turned out long sleeps early.
    pub(crate) fn spin_budget_ns(&self) -> u64 {
        match (self.oversubscribed, self.long_ns > 50 * self.spin_ns) {
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
