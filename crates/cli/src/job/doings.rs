//! What is each rank doing, in words?

use super::{Launcher, TOLD_RANKS_MAX};
use crate::verdict::Stage;
use launch::wire::VALUE_BYTES_MAX;

impl Launcher {
    /// `: rank 0 in MPI_Recv from rank 2, tag 5; rank 1 in MPI_Barrier` of the ranks that still run; empty if none does.
    pub(super) fn doings(&self) -> String {
        let left: Vec<u32> = self.running().collect();
        let mut line = String::new();
        for (at, rank) in left.iter().take(TOLD_RANKS_MAX as usize).enumerate() {
            line.push_str(&format!("{} rank {rank} {}", if at == 0 { ":" } else { ";" }, self.doing(*rank)));
        }
        if left.len() > TOLD_RANKS_MAX as usize {
            line.push_str(&format!("; and {} more", left.len() - TOLD_RANKS_MAX as usize));
        }
        line
    }

    /// Whether a rank that still runs has called `MPI_Init`, so that there is something to tell.
    pub(super) fn knows_doings(&self) -> bool {
        self.running().any(|rank| matches!(self.stage(rank), Stage::Inside(_)))
    }

    /// The answer to `whimbrel where`: a line of the job, then one of each rank, at most [`VALUE_BYTES_MAX`] bytes.
    pub(super) fn account(&self) -> String {
        let programs: Vec<String> = self.job.programs.iter().take(4).map(|program| program.program.to_string_lossy().into_owned()).collect();
        let more = if self.job.programs.len() > programs.len() { ", …" } else { "" };
        let clean = |text: String| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let mut text = format!(
            "{}  mpiexec {}  {} ranks  {} s  {}\n",
            self.name,
            std::process::id(),
            self.size,
            self.started.elapsed().as_secs(),
            clean(programs.join(", ") + more)
        );
        for rank in 0..self.ranks.len() as u32 {
            let of = &self.ranks[rank as usize];
            let doing = if of.over { "has ended".to_owned() } else { self.doing(rank) };
            let line = format!("{} {}\n", self.who(rank), clean(doing));
            if text.len() + line.len() + 64 > VALUE_BYTES_MAX {
                text.push_str(&format!("and {} more\n", self.ranks.len() as u32 - rank));
                break;
            }
            text.push_str(&line);
        }
        text
    }

    fn running(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.ranks.len() as u32).filter(|rank| !self.ranks[*rank as usize].over)
    }

    fn doing(&self, rank: u32) -> String {
        match self.stage(rank) {
            Stage::Outside => "has not called MPI_Init".to_owned(),
            Stage::Inside(doing) => doing.to_string(),
            Stage::Finalized => "is past MPI_Finalize".to_owned(),
        }
    }
}
