//! A job that processes of another one spawn (MPI-5.0 §11.8): what its launcher has to do with those, and what theirs has to do with it.

use super::{Launcher, Token};
use crate::args::{Job, Program, Stdin};
use crate::placement::{Bind, Placement};
use crate::processes;
use launch::spawn::{self, Lifeline, Spawned};
use rustix::event::epoll;
use std::ffi::OsString;

/// The spawning process, as the spawned job's launcher sees it.
pub(super) struct Parent {
    lifeline: Lifeline,
    /// The port at which the spawning processes wait.
    pub port: OsString,
    /// Its end is the end of this job.
    bound: bool,
}

/// The job that is described over `descriptor`.
///
/// Errors: one line.
pub(super) fn receive(descriptor: i32) -> Result<(Job, Parent), String> {
    let (lifeline, spawned) = Lifeline::receive(descriptor).map_err(|error| error.to_string())?;
    let Spawned { programs, parent, universe_size } = spawned;
    let program = |one: spawn::Program| {
        let errhandler = one.errhandler.map(|name| ("WHIMBREL_INITIAL_ERRHANDLER".into(), name));
        Program {
            count: one.count,
            program: one.program,
            args: one.arguments,
            env: errhandler.into_iter().collect(),
            wdir: one.wdir.map(Into::into),
            path: one.path,
            ..Program::default()
        }
    };
    let job = Job {
        programs: programs.into_iter().map(program).collect(),
        stdin: Stdin::None,
        universe_size: Some(universe_size),
        quiet: true,
        // The processors are shared with the job that spawns this one.
        placement: Placement { bind: Bind::None, ..Placement::default() },
        ..Job::default()
    };
    match job.programs.iter().map(|program| u64::from(program.count)).sum::<u64>() {
        size if size <= u64::from(launch::RANKS_MAX) => Ok((job, Parent { lifeline, port: parent, bound: true })),
        size => Err(format!("{size} processes are asked for, and {} are the most", launch::RANKS_MAX)),
    }
}

impl Launcher {
    /// Tells the spawning process whether all have been started; whether there is one.
    pub(super) fn tell_parent(&mut self, wrong: Option<&str>) -> bool {
        let Some(parent) = &mut self.parent else { return false };
        parent.lifeline.tell(wrong);
        let token = epoll::EventData::new_u64(Token::Lifeline.encode());
        let _ = epoll::add(&self.epoll, parent.lifeline.socket(), token, epoll::EventFlags::IN);
        true
    }

    /// The spawning process has released this job, or has died.
    pub(super) fn hear_parent(&mut self) {
        let Some(parent) = &mut self.parent else { return };
        match parent.lifeline.read() {
            None => {}
            Some(true) => parent.bound = false,
            Some(false) => {
                let bound = std::mem::take(&mut parent.bound);
                let _ = epoll::delete(&self.epoll, parent.lifeline.socket());
                if bound {
                    self.output.say("the process that has spawned this job has died");
                    self.end(1);
                }
            }
        }
    }

    /// Whether a launcher of a spawned job is still there, among the processes that descend from the ranks.
    pub(super) fn has_spawned(&self) -> bool {
        self.leftovers().into_iter().any(|pid| processes::first_argument(pid).is_some_and(|word| word == spawn::OPTION.as_bytes()))
    }
}
