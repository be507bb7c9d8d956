//! What an engine has besides its protocol machine.

use crate::helper::{Absences, Helper};
use crate::{Config, Service, Vcis, Waiting, costs};
use fabric::local::Line;
use proto::costs::placing::Placing;
use proto::p2p;
use proto::rendezvous::usage::{self, Speculation, Usage};
use trace::Counters;

/// The machine of an engine.
pub(crate) type Machine = p2p::Machine<Worker>;

/// Where it is counted whether asking the helper pays.
pub(crate) const HELP: usage::Envelope = (0, 0, 0);

/// Whether a process of this host has ended.
pub(crate) type HasEnded = Box<dyn Fn(u32) -> bool + Send>;

/// What an engine has besides its machine.
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) costs: costs::State,
    pub(crate) placing: Placing,
    pub(crate) waiting: Waiting,
    /// The program is in a call that waits.
    pub(crate) blocked: bool,
    /// Started when it is first wanted, and whether that pays.
    pub(crate) helper: Option<Helper>,
    pub(crate) helping: Usage,
    pub(crate) absences: Absences,
    /// Places of shared areas where this process is marked as asleep while it sleeps, and the process that it waits for there, where it is one.
    pub(crate) armed: Vec<(&'static Line, usize, Option<u32>)>,
    /// Threads of this process that sleep while they wait in this engine, or are about to.
    pub(crate) asleep: u32,
    /// Which of the process' engines it is, and the others, once there are several.
    pub(crate) vci: u8,
    pub(crate) siblings: Option<&'static Vcis>,
    /// A segment has been asked for that has not come. Nobody wakes this process when it does: it must ask again.
    pub(crate) unanswered: bool,
    /// When it was last looked whether processes of this host have ended; which had; and how to tell, where a launcher does not see to it.
    pub(crate) local_checked_ns: u64,
    pub(crate) local_ended: Vec<u32>,
    pub(crate) has_ended: Option<HasEnded>,
    /// How often in a row the program has asked for what had not come, and since when.
    pub(crate) asked: u32,
    pub(crate) asking_since_ns: Option<u64>,
    /// Whether it therefore matters who lives, and since when it has last been said who.
    pub(crate) asking_watches: bool,
    pub(crate) asking_checked_ns: u64,
    /// Answers what other processes ask of this one's windows, once there are some.
    pub(crate) service: Option<&'static dyn Service>,
}

impl Worker {
    pub(crate) fn new(config: Config, costs: costs::State, vci: u8) -> Worker {
        Worker {
            counters: Counters::default(),
            costs,
            placing: Placing::default(),
            waiting: Waiting::new(&config),
            blocked: false,
            helper: None,
            helping: Usage::new(Speculation::Adaptive, 50),
            absences: Absences::default(),
            armed: Vec::new(),
            asleep: 0,
            vci,
            siblings: None,
            unanswered: false,
            local_checked_ns: 0,
            local_ended: Vec::new(),
            has_ended: None,
            asked: 0,
            asking_since_ns: None,
            asking_watches: false,
            asking_checked_ns: 0,
            service: None,
            config,
        }
    }
}
