//! The two ways in which connections are made.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::contact::Contact;
use super::crossing::Crossing;
use super::manager::Manager;
use super::meeting::Meeting;
use super::tie::{Line, Tie};
use crate::Error;
use crate::reliable::{DatagramDevice, Watch, watch_of, watch_over};
use crate::verbs::Offer;
use crate::verbs::address::Wire;
use crate::verbs::ports::{self, Facts, Filter};
use crate::verbs::sys::{Channel, Device, Hub, PairId};
use crate::verbs::{Unusable, Verbs};

#[derive(Debug)]
pub enum Maker {
    /// By greetings, which go as datagrams.
    Greetings(Verbs),
    /// By the connection manager, where a device has no datagrams.
    Manager(Box<Manager>),
    /// By whoever owns them, who also has what was sent until it is known to be there ([`super::told`]).
    Owner(Offer),
}

impl Maker {
    /// Memory that is registered for making connections, bytes, and the queue pairs of that.
    pub fn footprint(&self) -> (usize, usize) {
        match self {
            Maker::Greetings(datagrams) => datagrams.footprint(),
            // An owner has its datagrams for itself.
            Maker::Manager(_) | Maker::Owner(_) => (0, 0),
        }
    }
}

/// The port of the connections, and its device.
pub struct Chosen {
    pub device: Arc<Device>,
    pub channel: Arc<Channel>,
    pub port: u8,
    pub facts: Facts,
}

impl Maker {
    /// On the first port that `filter` allows and that has datagrams, else on the first one of iWARP.
    ///
    /// # Errors
    /// There is none: why.
    pub fn open(filter: &Filter) -> Result<(Maker, Chosen), Unusable> {
        let why = match Verbs::for_greetings(filter) {
            Ok(exchange) => {
                let (device, channel, port, facts) = exchange.first_port();
                return Ok((Maker::Greetings(exchange), Chosen { device, channel, port, facts }));
            }
            Err(Unusable::Words(why)) => why,
            Err(error) => return Err(error),
        };
        for found in ports::all(filter).map_err(Unusable::Words)? {
            if let Ok((device, facts)) = found.facts
                && facts.wire == Wire::Iwarp
            {
                let channel = Arc::new(Channel::new(device.clone())?);
                let manager = Box::new(Manager::open(&device, &channel, facts.gid.to_canonical())?);
                return Ok((Maker::Manager(manager), Chosen { device, channel, port: found.port, facts }));
            }
        }
        Err(Unusable::Words(why))
    }

    /// Where others reach it.
    pub fn contact(&self) -> Contact {
        match self {
            Maker::Greetings(exchange) => Contact::Port(exchange.offers()[0]),
            Maker::Manager(manager) => Contact::Listener(manager.listens),
            Maker::Owner(offer) => Contact::Port(*offer),
        }
    }

    /// A connection that is to be made over the pair `number`. `first`: this process has the lower number.
    pub fn tie(&self, number: u32, first: bool, now_ns: u64) -> Tie {
        match self {
            Maker::Greetings(_) => Tie::Meeting(Meeting::new(number, now_ns)),
            Maker::Owner(_) => Tie::Told(false),
            Maker::Manager(_) => Tie::Line(Line { crossing: Crossing::new(first, now_ns), call: None, why: None, heard: 0, heard_ns: now_ns }),
        }
    }

    /// Ends a pair, and what it is connected by.
    pub fn end(&mut self, hub: &mut Hub, pair: PairId, tie: &Tie) {
        match (self, tie) {
            (Maker::Manager(manager), Tie::Line(line)) => manager.let_go(hub, pair, line.call),
            _ => hub.close(pair),
        }
    }

    /// There is something to do for it although nothing comes.
    pub fn is_pressing(&self) -> bool {
        matches!(self, Maker::Manager(manager) if manager.is_confirming())
    }

    /// Before a sleep: false where something has come since the last look.
    pub fn arm(&mut self) -> bool {
        match self {
            Maker::Greetings(exchange) => exchange.arm(),
            Maker::Manager(manager) => manager.arm(),
            Maker::Owner(_) => true,
        }
    }

    /// # Errors
    /// The system has no descriptor left.
    pub fn watch(&self) -> Result<Watch, Error> {
        match self {
            Maker::Greetings(exchange) => watch_of(exchange),
            Maker::Manager(manager) => {
                let sources: [BorrowedFd; 4] = manager.sources();
                watch_over(&sources)
            }
            // It has the port's own datagrams to sleep on.
            Maker::Owner(_) => watch_over(&[]),
        }
    }
}
