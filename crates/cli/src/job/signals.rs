//! What do signals to `mpiexec` do to the job, and how does it end?

use super::{KILL_ROUNDS_MAX, Launcher, Phase, Token};
use crate::{sys, verdict};
use rustix::process::Signal;
use std::time::{Duration, Instant};

impl Launcher {
    pub(super) fn read_signals(&mut self) {
        while let Some(signal) = sys::next_signal(&self.signals) {
            match signal {
                Signal::CHILD => self.reap(),
                Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT => self.interrupt(signal),
                Signal::TSTP => {
                    self.signal_ranks(Signal::TSTP);
                    self.write();
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                }
                // A read of the terminal from its background, which then fails instead of stopping the job.
                Signal::TTIN => {}
                Signal::CONT => {
                    self.signal_ranks(Signal::CONT);
                    if let Some(input) = &mut self.input {
                        input.arm(&self.epoll, Token::Stdin.encode());
                    }
                }
                other => self.signal_ranks(other),
            }
        }
    }

    pub(super) fn interrupt(&mut self, signal: Signal) {
        if self.phase == Phase::Running {
            if [Signal::INT, Signal::QUIT].contains(&signal) && self.knows_doings() {
                // Said before the ranks hear of it: whoever types this asks where a job hangs.
                let line = format!("{}{}", verdict::signal_name(signal.as_raw()).unwrap_or_default(), self.doings());
                self.output.say(&line);
            }
            self.phase = Phase::Interrupted(signal);
            self.signal_ranks(signal);
            // A stopped rank could not hear it.
            self.signal_ranks(Signal::CONT);
            self.kill_at = Some(Instant::now() + self.interrupt_grace);
        } else {
            self.status.get_or_insert(128 + signal.as_raw());
            self.kill();
        }
    }

    pub(super) fn signal_ranks(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| !rank.group_gone) {
            let _ = rustix::process::kill_process_group(rank.pid, signal);
        }
    }

    /// Ends the job with `status`, unless a rank has failed before: asks the ranks to end, and kills them soon.
    pub(super) fn end(&mut self, status: i32) {
        self.status.get_or_insert(status);
        if self.phase == Phase::Ending {
            return;
        }
        self.phase = Phase::Ending;
        self.terminate();
    }

    /// As [`Launcher::end`], since a rank has failed: the others, which often meet the same trouble, get a moment to say so.
    pub(super) fn end_soon(&mut self, status: i32) {
        self.status.get_or_insert(status);
        if self.phase == Phase::Ending {
            return;
        }
        self.phase = Phase::Ending;
        self.term_at = Some(Instant::now() + self.failure_grace);
    }

    /// Asks the ranks to end, and kills them soon.
    pub(super) fn terminate(&mut self) {
        self.term_at = None;
        self.signal_ranks(Signal::TERM);
        self.signal_ranks(Signal::CONT);
        self.kill_at = Some(Instant::now() + self.abort_grace);
    }

    pub(super) fn kill(&mut self) {
        self.phase = Phase::Ending;
        self.term_at = None;
        self.signal_ranks(Signal::KILL);
        self.kill_rounds += 1;
        self.kill_at = Some(Instant::now() + Duration::from_secs(1));
        if self.kill_rounds > KILL_ROUNDS_MAX {
            let left = self.ranks.iter().filter(|rank| rank.exit.is_none()).count();
            self.output.say(&format!("{left} ranks cannot be killed, and are left alone"));
        }
    }
}
