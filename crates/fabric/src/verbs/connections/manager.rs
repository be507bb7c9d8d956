//! What this process has of the system's connection manager: where it listens, and its calls, from their beginning until nothing of them has to
//! be waited for.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use proto::reliability::PeerId;
use rustc_hash::FxHashMap;

use super::proof::Proof;
use crate::Error;
use crate::reliable::Doorbell;
use crate::verbs::Unusable;
use crate::verbs::sys::{Channel, Conversation, ConversationId, Device, Event, Happenings, Hub, PairId, Terms, What};

/// Times that completions are taken in for each look at the manager, which is a system call.
const TAKES_PER_LOOK: u32 = 64;

/// How far a call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The way to the peer is looked up.
    LookUp,
    /// The peer has been asked: the call of the system is under way, and the outcome is not known.
    Asked { busy: bool, open: bool },
    /// It has been answered, or the peer's request has.
    Answered,
}

#[derive(Debug)]
pub struct Call {
    pub conversation: Arc<Conversation>,
    pub peer: PeerId,
    pub pair: PairId,
    /// What this process has asked with, where it has called.
    pub request: Option<Proof>,
    pub step: Step,
    /// False: nobody wants it any more, and it ends with its pair once its outcome is known.
    pub wanted: bool,
}

impl Call {
    /// Its end would have to be waited for.
    pub fn is_under_way(&self) -> bool {
        matches!(self.step, Step::Asked { .. })
    }
}

/// What came of the system's call to connect.
type Asked = (ConversationId, Result<(), Error>);

/// Something to see to.
pub enum News {
    /// The system's call to connect has returned.
    Asked(ConversationId, Result<(), Error>),
    Happened(ConversationId, What, i32, Vec<u8>),
}

#[derive(Debug)]
pub struct Manager {
    pub calls: FxHashMap<ConversationId, Call>,
    pub attempts: u32,
    /// Of each peer the last attempt that was heard of.
    pub heard_of: FxHashMap<PeerId, u32>,
    /// Connections that have ended, and of which there may still be messages to be taken in.
    pub closed: Vec<ConversationId>,
    answers: (mpsc::Sender<Asked>, mpsc::Receiver<Asked>),
    /// An answer that was found before a sleep.
    early: Option<Asked>,
    /// Rings for an answer.
    bell: Doorbell,
    takes: u32,
    /// Somebody wants to know whether all that was sent has arrived.
    confirms: AtomicBool,
    /// The device is gone.
    pub dead: bool,
    _listener: Conversation,
    pub listens: SocketAddr,
    pub happenings: Arc<Happenings>,
    pub device: Arc<Device>,
    channel: Arc<Channel>,
}

impl Manager {
    /// Listens on `ip`, which is the device's.
    ///
    /// # Errors
    /// There is no connection manager, or it cannot listen.
    pub fn open(device: &Arc<Device>, channel: &Arc<Channel>, ip: IpAddr) -> Result<Manager, Unusable> {
        let happenings = Happenings::new().map_err(|why| Unusable::Words(format!("{}: {why}", device.name)))?;
        let (listener, listens) = Conversation::listen(&happenings, ip)?;
        Ok(Manager {
            calls: FxHashMap::default(),
            attempts: 0,
            heard_of: FxHashMap::default(),
            closed: Vec::new(),
            answers: mpsc::channel(),
            early: None,
            bell: Doorbell::new()?,
            takes: 0,
            confirms: AtomicBool::new(false),
            dead: false,
            _listener: listener,
            listens,
            happenings,
            device: device.clone(),
            channel: channel.clone(),
        })
    }

    pub fn sources(&self) -> [BorrowedFd<'_>; 4] {
        [self.channel.source(), self.device.event_source(), self.happenings.source(), self.bell.source()]
    }

    /// Before a sleep: false where there is something to see to. What the manager tells wakes a sleeper as long as it has not been taken.
    pub fn arm(&mut self) -> bool {
        self.channel.drain();
        let was_dead = self.dead;
        while let Some(event) = self.device.event() {
            self.dead |= event == Event::Fatal;
        }
        self.bell.silence();
        if self.early.is_none() {
            self.early = self.answers.1.try_recv().ok();
        }
        self.early.is_none() && self.dead == was_dead
    }

    /// Ends a pair and the call that it is of, at once or when the outcome of that is known.
    pub fn let_go(&mut self, hub: &mut Hub, pair: PairId, call: Option<ConversationId>) {
        let Some(id) = call else { return hub.close(pair) };
        match self.calls.get_mut(&id) {
            Some(call) if call.is_under_way() => call.wanted = false,
            _ => self.end(hub, pair, id),
        }
    }

    /// Ends a call, and its pair, of which nothing has to be waited for.
    pub fn end(&mut self, hub: &mut Hub, pair: PairId, id: ConversationId) {
        let call = self.calls.remove(&id);
        if let Some(call) = call.as_ref().filter(|call| call.step == Step::Answered) {
            call.conversation.disconnect();
        }
        hub.close(pair);
    }

    /// Ends all, and leaves to the end of the process what would have to be waited for.
    pub fn leave(&mut self, hub: &mut Hub) {
        for (id, call) in std::mem::take(&mut self.calls) {
            if call.is_under_way() {
                hub.leave(call.pair);
                std::mem::forget(call.conversation);
            } else {
                let pair = call.pair;
                self.calls.insert(id, call);
                self.end(hub, pair, id);
            }
        }
    }

    /// The next thing to see to, if there is one.
    pub fn news(&mut self) -> Option<News> {
        if let Some((id, asked)) = self.early.take().or_else(|| self.answers.1.try_recv().ok()) {
            return Some(News::Asked(id, asked));
        }
        let happening = self.happenings.next()?;
        Some(News::Happened(happening.id, happening.what, happening.errno, happening.private_data))
    }

    /// Whether it is time for a look, which is a system call.
    pub fn is_time(&mut self) -> bool {
        self.takes = self.takes.wrapping_add(1);
        self.takes.is_multiple_of(TAKES_PER_LOOK)
    }

    /// Peers are to be asked whether all has arrived.
    pub fn confirm(&self) {
        self.confirms.store(true, Ordering::Relaxed);
    }

    pub fn is_confirming(&self) -> bool {
        self.confirms.load(Ordering::Relaxed)
    }

    /// Peers are being asked. Whether they had to be.
    pub fn confirms(&mut self) -> bool {
        std::mem::take(self.confirms.get_mut())
    }

    /// Asks the peer of a call, whose way is known, for a connection.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn ask(&mut self, id: ConversationId, terms: Terms) -> Result<(), Error> {
        let Some(call) = self.calls.get_mut(&id) else { return Ok(()) };
        let (answers, bell) = (self.answers.0.clone(), self.bell.clone());
        let done = move |asked| {
            // Nobody may want to know any more.
            let _ = answers.send((id, asked));
            bell.ring();
        };
        call.conversation.connect(terms, done)?;
        call.step = Step::Asked { busy: true, open: true };
        Ok(())
    }
}
