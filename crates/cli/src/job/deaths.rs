//! What does the end of a process mean for the job?

use super::{INTERRUPTED_GRACE, LOOK_EVERY, Launcher, Phase, Rank, TOLD_RANKS_MAX, WRAPPER_GRACE};
use crate::sys;
use crate::verdict::{self, Exit, Stage};
use launch::board::{Call, Doing, State};
use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::time::Instant;

impl Launcher {
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let exit = Exit::of(status.as_raw());
            if self.guardian.as_ref().is_some_and(|guardian| guardian.pid() == pid.as_raw_nonzero().get()) {
                // One that has ended by itself would do so again.
                let killed = matches!(exit, Exit::Signal(..));
                self.guardian = self.guardian.take().filter(|_| killed).and_then(|guardian| guardian.again().ok());
                if self.guardian.is_none() {
                    let code = exit.code();
                    self.output.say(&format!("its guardian ended with {code}; kill -9 of mpiexec may leave ranks behind"));
                }
            } else if let Some(rank) = self.ranks.iter().position(|rank| rank.pid == pid && rank.exit.is_none()) {
                self.ranks[rank].exit = Some(exit);
                self.hear_out(rank as u32);
                self.some_absent |= self.ranks[rank].claim.is_none();
                self.judge(rank as u32);
                self.judge_absence();
            } else {
                let of_claim = |rank: &Rank| rank.claim.as_ref().is_some_and(|c| c.pid == pid.as_raw_nonzero().get());
                if let Some(rank) = self.ranks.iter().position(of_claim) {
                    // A wrapper has ended before its program, which thus became a child of the launcher.
                    self.program_ended(rank as u32, Some(exit));
                }
            }
        }
        for rank in self.ranks.iter_mut().filter(|rank| rank.exit.is_some() && !rank.group_gone) {
            if rustix::process::test_kill_process_group(rank.pid) == Err(Errno::SRCH) {
                rank.group_gone = true;
                if let Some(guardian) = &mut self.guardian {
                    guardian.remove(rank.pid.as_raw_nonzero().get());
                }
            }
        }
    }

    /// The process that was `rank`, but not its leader, has ended.
    pub(super) fn program_ended(&mut self, rank: u32, exit: Option<Exit>) {
        self.hear_out(rank);
        if let Some(claim) = &mut self.ranks[rank as usize].claim {
            claim.ended = true;
            claim.exit = claim.exit.or(exit);
        }
        self.judge(rank);
    }

    /// Reads what a rank that has ended said before.
    pub(super) fn hear_out(&mut self, rank: u32) {
        self.accept();
        if let Some(id) = self.ranks[rank as usize].claim.as_ref().and_then(|claim| claim.connection) {
            self.receive(id);
        }
    }

    pub(super) fn stage(&self, rank: u32) -> Stage {
        let of = &self.ranks[rank as usize];
        if of.claim.is_none() {
            return Stage::Outside;
        }
        let doing = self.board.read(rank);
        if of.finalized || doing.state == State::Finalized { Stage::Finalized } else { Stage::Inside(doing) }
    }

    /// Settles whether `rank` has ended, and what that means for the job.
    pub(super) fn judge(&mut self, number: u32) {
        let stage = self.stage(number);
        let rank = &mut self.ranks[number as usize];
        if rank.over {
            return;
        }
        let leader = rank.pid.as_raw_nonzero().get();
        let exit = match &mut rank.claim {
            Some(claim) if claim.pid != leader => match (claim.ended, &stage) {
                (false, _) => return,
                (true, Stage::Inside(_)) => {
                    let told = claim.pidfd.as_ref().and_then(sys::exit_status).map(Exit::of);
                    let exit = claim.exit.or(told).or(rank.exit.and_then(Exit::unwrap_shell));
                    if exit.is_none() {
                        let at = *claim.verdict_at.get_or_insert_with(|| Instant::now() + WRAPPER_GRACE);
                        if at > Instant::now() {
                            self.verdict_at = Some(self.verdict_at.map_or(at, |other| other.min(at)));
                            return;
                        }
                    }
                    exit
                }
                (true, _) if rank.exit.is_none() => return,
                (true, _) => rank.exit,
            },
            _ if rank.exit.is_none() => return,
            _ => rank.exit,
        };
        rank.over = true;
        let code = exit.map_or(1, Exit::code);
        if let (Stage::Inside(_), Some(Exit::Status(0)), Phase::Running) = (&stage, exit, self.phase) {
            // Others may go on without it, and their words must not be cut off.
            self.left_early.push(number);
            self.look_at.get_or_insert_with(|| Instant::now() + LOOK_EVERY);
            return;
        }
        let (failed, ends_job) = match stage {
            Stage::Inside(_) => (true, true),
            Stage::Outside => (code != 0, code != 0),
            Stage::Finalized => (code != 0, false),
        };
        if !failed {
            return;
        }
        let status = if code == 0 { 1 } else { code };
        match self.phase {
            Phase::Running => {
                let line = format!("{} {}", self.who(number), verdict::sentence(exit, &stage));
                self.output.say(&line);
                self.status.get_or_insert(status);
                if ends_job {
                    self.end_soon(status);
                } else {
                    self.left_early.push(number);
                    self.look_at.get_or_insert_with(|| Instant::now() + LOOK_EVERY);
                }
            }
            Phase::Interrupted(_) => {
                self.status.get_or_insert(status);
                if ends_job {
                    let at = Instant::now() + INTERRUPTED_GRACE;
                    self.kill_at = Some(self.kill_at.map_or(at, |other| other.min(at)));
                }
            }
            Phase::Ending => {}
        }
    }

    /// Ends the job if a rank waits for one that has ended without ever calling `MPI_Init`.
    pub(super) fn judge_absence(&mut self) {
        if self.phase != Phase::Running || !self.some_absent {
            return;
        }
        let absent = |rank: &Rank| rank.exit.is_some() && rank.claim.is_none();
        let found = (0..self.ranks.len() as u32)
            .filter(|rank| absent(&self.ranks[*rank as usize]))
            .find_map(|rank| self.exchange.waits_for(rank).map(|waiter| (rank, waiter)));
        if let Some((absent, waiter)) = found {
            let line = format!("{} exited with status 0 without calling MPI_Init, but rank {waiter} waits for it", self.who(absent));
            self.output.say(&line);
            self.end(1);
        }
    }

    /// Ends the job if ranks wait, at two looks in the same calls, for one that has ended early: in a call that names that rank, or any, or all of
    /// them, or where nobody is left who does not wait.
    pub(super) fn look_for_stuck(&mut self) {
        if self.phase != Phase::Running || self.left_early.is_empty() {
            return;
        }
        let mut all_wait = true;
        let mut waiting = Vec::new();
        for rank in (0..self.ranks.len() as u32).filter(|rank| !self.ranks[*rank as usize].over) {
            match self.stage(rank) {
                Stage::Inside(Doing { call: Some(call), .. }) => waiting.push((rank, call)),
                Stage::Inside(_) => all_wait = false,
                Stage::Outside | Stage::Finalized => {}
            }
        }
        let unfinalized = |rank: &u32| !matches!(self.stage(*rank), Stage::Finalized);
        let open = self.left_early.iter().any(unfinalized);
        let concerns = |call: &Call| all_wait || self.left_early.iter().any(|rank| *rank as i32 == call.peer) || open && call.peer < 0;
        let stuck = waiting.iter().find(|waits| self.waited.contains(waits) && concerns(&waits.1)).cloned();
        let Some((rank, call)) = stuck else {
            self.waited = waiting;
            self.look_at = Some(Instant::now() + LOOK_EVERY);
            return;
        };
        let gone = self.left_early.iter().copied().find(|gone| *gone as i32 == call.peer).unwrap_or(self.left_early[0]);
        let line = match self.stage(gone) {
            Stage::Finalized => format!("rank {rank} still waits {call}, and the job ends"),
            stage => format!("{} {}, but rank {rank} waits {call}", self.who(gone), verdict::sentence(self.ranks[gone as usize].exit, &stage)),
        };
        self.output.say(&line);
        self.left_early.clear();
        self.end(1);
    }

    /// At the job's end, says which ranks have exited with status 0 without `MPI_Finalize`.
    pub(super) fn warn_of_unfinalized(&mut self) {
        self.left_early.sort_unstable();
        let names = |rank: &u32| rank.to_string();
        let all: Vec<String> = self.left_early.iter().filter(|rank| !matches!(self.stage(**rank), Stage::Finalized)).map(names).collect();
        if all.is_empty() || self.phase != Phase::Running {
            return;
        }
        let more = if all.len() > TOLD_RANKS_MAX as usize { format!(" and {} more", all.len() - TOLD_RANKS_MAX as usize) } else { String::new() };
        let told = &all[..all.len().min(TOLD_RANKS_MAX as usize)];
        let plural = if all.len() > 1 { "s" } else { "" };
        let line = format!("warning: rank{plural} {}{more} exited with status 0 without calling MPI_Finalize", told.join(", "));
        self.output.say(&line);
    }

    /// `rank 3 (host, pid 1234)`
    pub(super) fn who(&self, rank: u32) -> String {
        let of = &self.ranks[rank as usize];
        let pid = of.claim.as_ref().map(|claim| claim.pid).filter(|pid| *pid > 0);
        format!("rank {rank} ({}, pid {})", self.host, pid.unwrap_or(of.pid.as_raw_nonzero().get()))
    }
}
