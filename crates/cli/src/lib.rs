//! The commands: `mpiexec`, `whimbrel`. Their parts stand here, so that tests can reach them.
//!
//! | module | question |
//! | --- | --- |
//! | [`args`] | What does the command line ask for? |
//! | [`job`] | What happens to the ranks of a job, from start to end? |
//! | [`handover`] | Who starts ranks on other machines? |
//! | [`exchange`] | Which rank gets whose segment, and when? |
//! | [`lines`] | In which order do the lines of many ranks come out? |
//! | [`output`], [`input`] | How do bytes get from and to the ranks? |
//! | [`placement`] | Which processors does a rank get? |
//! | [`topology`] | What is this machine made of? |
//! | [`guardian`] | Who cleans up when the launcher is killed? |
//! | [`processes`] | Which processes are there? |
//! | [`verdict`] | How did a rank end, in words? |
//! | [`jobs`] | Which jobs run here, and where are their ranks? |
//! | [`collectives`] | Which way does each collective go? |
//! | [`info`] | What are this build and this machine? |
//! | [`bench`] | What does the program gain when nobody waits for a large message? |

pub mod args;
pub mod bench;
pub mod collectives;
pub mod costs;
pub mod exchange;
pub mod guardian;
pub mod handover;
pub mod info;
pub mod input;
pub mod job;
pub mod jobs;
pub mod lines;
pub mod output;
pub mod placement;
pub mod processes;
mod sys;
pub mod topology;
pub mod verdict;
