//! Connections of iWARP devices, which have no datagrams: the system's connection manager makes them. Each process listens on its
//! device's IP address, and calls a peer when it is first spoken to; requests and answers prove that they are the job's ([`proof`](super::proof)),
//! and of calls that cross one stands ([`crossing`](super::crossing)).
//!
//! There a send is complete when TCP has it, and TCP waits for a peer longer than anybody here does. So a peer is asked for a sign of life
//! while anything is expected of it, and this process ends only after one has come that was asked for after all sends.

use std::sync::Arc;

use proto::reliability::{PEERS_MAX, PeerId};

use super::Connections;
use super::allowance::Allowance;
use super::contact::Way;
use super::crossing::Answer;
use super::maker::Maker;
use super::manager::{Call, Manager, News, Step};
use super::peer::{Link, Peer};
use super::proof::{Proof, Says};
use super::tie::{Line, Tie};
use crate::Error;
use crate::reliable::Program;
use crate::verbs::sys::{Conversation, ConversationId, PairId, Terms, What};

/// Remote reads of one connection at once: those of bodies, and signs of life.
const READS: u8 = 8;
/// To look up an address, ms.
const LOOK_UP_MS: u64 = 2_000;

/// What becomes of a call that has failed.
enum Then {
    Again,
    Never,
}

impl Connections {
    fn manager(&mut self) -> Option<&mut Manager> {
        match &mut self.maker {
            Maker::Manager(manager) => Some(manager),
            Maker::Greetings(_) | Maker::Owner(_) => None,
        }
    }

    fn line(&mut self, peer: PeerId) -> Option<&mut Line> {
        match &mut self.peers.get_mut(&peer)?.link.as_mut()?.tie {
            Tie::Line(line) => Some(line),
            Tie::Meeting(_) | Tie::Told(_) => None,
        }
    }

    fn terms(&self, pair: PairId, private_data: Vec<u8>) -> Terms {
        Terms { number: self.hub.number(pair), reads_in: self.reads_in.min(READS), reads_out: self.reads_out.min(READS), private_data }
    }

    /// To look up an address, ms: never longer than a peer has for all of it.
    fn look_up_ms(&self) -> u32 {
        (self.config.peer_timeout_ns / 1_000_000).clamp(1, LOOK_UP_MS) as u32
    }

    /// Calls a peer, unless that is under way, or is not due.
    pub(super) fn call(&mut self, peer: PeerId) {
        let (now_ns, me, timeout_ms, pulse) = (self.now_ns(), (self.me, self.epoch), self.look_up_ms(), self.hub.pulse());
        let Maker::Manager(manager) = &mut self.maker else { return };
        let Some(Peer { epoch, way: Way::Listener(to), link: Some(Link { pair, tie: Tie::Line(line), .. }), .. }) = self.peers.get_mut(&peer) else { return };
        if line.crossing.due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        line.crossing.called();
        manager.attempts += 1;
        let request = Proof { from: me, to: (peer, *epoch), attempt: manager.attempts, says: Says::Request(manager.listens, pulse) };
        self.counters.probes_sent += 1;
        match Conversation::resolve(&manager.happenings, manager.listens.ip(), *to, timeout_ms) {
            Ok(conversation) => {
                let (id, conversation) = (conversation.id(), Arc::new(conversation));
                line.call = Some(id);
                manager.calls.insert(id, Call { conversation, peer, pair: *pair, request: Some(request), step: Step::LookUp, wanted: true });
            }
            Err(error) => self.ended(peer, error.to_string(), Then::Again),
        }
    }

    /// Takes in what the manager tells.
    pub(super) fn take_calls(&mut self) {
        while let Some(news) = self.manager().and_then(Manager::news) {
            match news {
                News::Asked(id, asked) => self.has_asked(id, asked),
                News::Happened(_, What::Request(conversation), _, private_data) => self.asked(conversation, &private_data),
                News::Happened(_, What::Removed, ..) => self.manager().into_iter().for_each(|manager| manager.dead = true),
                News::Happened(id, what, errno, private_data) => self.happened(id, what, errno, &private_data),
            }
        }
        if self.manager().is_some_and(|manager| manager.dead) {
            self.broken.extend(self.owners.values().map(|&peer| (peer, "this host's RDMA device has failed, or was taken away".to_owned())));
        }
    }

    /// The outcome of a call is known. The peer whose it is, where that still wants it; else it ends.
    fn is_known(&mut self, id: ConversationId) -> Option<PeerId> {
        let call = self.manager()?.calls.get_mut(&id)?;
        call.step = match call.step {
            // It may come before the system's call has returned.
            Step::Asked { busy: true, .. } => Step::Asked { busy: true, open: false },
            _ => Step::Answered,
        };
        self.wants(id)
    }

    /// The peer of a call, where that still wants it; else it ends, if nothing of it has to be waited for.
    fn wants(&mut self, id: ConversationId) -> Option<PeerId> {
        let Maker::Manager(manager) = &mut self.maker else { return None };
        let call = manager.calls.get(&id)?;
        if !call.wanted && !call.is_under_way() {
            let pair = call.pair;
            manager.end(&mut self.hub, pair, id);
            return None;
        }
        call.wanted.then_some(call.peer)
    }

    /// The system's call to connect has returned.
    fn has_asked(&mut self, id: ConversationId, asked: Result<(), Error>) {
        let Some(call) = self.manager().and_then(|manager| manager.calls.get_mut(&id)) else { return };
        call.step = match call.step {
            Step::Asked { open: true, .. } if asked.is_ok() => Step::Asked { busy: false, open: true },
            // The outcome had been told before.
            _ => Step::Answered,
        };
        if let (Some(peer), Err(error)) = (self.wants(id), asked) {
            let (why, then) = match error {
                Error::System { errno: libc::ECONNREFUSED, .. } => ("it listens no more: has it ended?".to_owned(), Then::Never),
                error => (error.to_string(), Then::Again),
            };
            self.ended(peer, why, then);
        }
    }

    fn happened(&mut self, id: ConversationId, what: What, errno: i32, private_data: &[u8]) {
        let timeout_ms = self.look_up_ms();
        let Some(manager) = self.manager() else { return };
        let own_device = manager.device.name.clone();
        let Some(call) = manager.calls.get_mut(&id) else { return };
        let (peer, conversation, request) = (call.peer, call.conversation.clone(), call.request);
        match what {
            What::Address => {
                let device = conversation.device();
                if device.as_ref() != Some(&own_device) {
                    let device = device.unwrap_or_else(|| "no device".to_owned());
                    return self.ended(peer, format!("the system has {device} for its address"), Then::Never);
                }
                if let Err(error) = conversation.resolve_route(timeout_ms) {
                    self.ended(peer, error.to_string(), Then::Again);
                }
            }
            What::Route => self.ask(id),
            What::Established => {
                let Some(peer) = self.is_known(id) else { return };
                let Some(request) = request else { return };
                match Proof::open(private_data, &self.key).filter(|proof| proof.answers(&request)) {
                    Some(Proof { says: Says::Taken(pulse), .. }) => {
                        let now_ns = self.now_ns();
                        if let Some(Link { pair, tie: Tie::Line(line), .. }) = self.peers.get_mut(&peer).and_then(|found| found.link.as_mut()) {
                            line.crossing.answered();
                            line.heard_ns = now_ns;
                            self.hub.set_pulse(*pair, pulse);
                        }
                        self.wake(peer);
                    }
                    _ => self.stranger(peer),
                }
            }
            What::Rejected => {
                let Some(peer) = self.is_known(id) else { return };
                let says = request.and_then(|request| Proof::open(private_data, &self.key).filter(|proof| proof.answers(&request)));
                match says.map(|proof| proof.says) {
                    Some(Says::Gone) => self.ended(peer, "it counts this process as failed".to_owned(), Then::Never),
                    Some(_) => self.ended(peer, "it has a connection to this process under way, which does not come".to_owned(), Then::Again),
                    None if private_data.is_empty() => {
                        let why = match errno {
                            0 => "the request was refused".to_owned(),
                            errno => format!("the request was refused ({})", std::io::Error::from_raw_os_error(errno)),
                        };
                        self.ended(peer, why, Then::Again);
                    }
                    None => self.stranger(peer),
                }
            }
            What::Failed(why) => {
                if let Some(peer) = self.is_known(id) {
                    self.ended(peer, why.to_owned(), Then::Again);
                }
            }
            What::Disconnected => match call.wanted {
                true => manager.closed.push(id),
                false => _ = self.is_known(id),
            },
            What::Request(_) | What::Removed | What::Other => {}
        }
    }

    /// Somebody answers where a peer should.
    fn stranger(&mut self, peer: PeerId) {
        self.counters.refused += 1;
        self.ended(peer, "who answers at its address has not the job's key".to_owned(), Then::Again);
    }

    /// The way to a peer is known: it is asked for a connection.
    fn ask(&mut self, id: ConversationId) {
        let Some((pair, Some(request))) = self.manager().and_then(|manager| manager.calls.get(&id)).map(|call| (call.pair, call.request)) else { return };
        let peer = request.to.0;
        let Some(sealed) = request.sealed(&self.key) else { return self.ended(peer, "the system has no random numbers".to_owned(), Then::Again) };
        let terms = self.terms(pair, sealed);
        if let Some(Err(error)) = self.manager().map(|manager| manager.ask(id, terms)) {
            self.ended(peer, error.to_string(), Then::Again);
        }
    }

    /// A peer, or somebody else, asks for a connection.
    fn asked(&mut self, conversation: Conversation, private_data: &[u8]) {
        let me = (self.me, self.epoch);
        let proof = Proof::open(private_data, &self.key).filter(|proof| proof.to == me && proof.from.0 < PEERS_MAX && proof.from.0 != me.0);
        let Some((Proof { from, attempt, .. }, Says::Request(listens, pulse))) = proof.map(|proof| (proof, proof.says)) else {
            self.counters.refused += 1;
            return conversation.reject(&[]);
        };
        let (peer, epoch) = from;
        let Some(manager) = self.manager() else { return };
        let heard_of = manager.heard_of.entry(peer).or_insert(0);
        if attempt <= *heard_of {
            // Recorded, and said again.
            self.counters.refused += 1;
            return conversation.reject(&[]);
        }
        *heard_of = attempt;
        let key = self.key.clone();
        let says = |says| Proof { from: me, to: from, attempt, says }.sealed(&key).unwrap_or_default();
        let unmatched = self.unmatched();
        let found = self.peers.entry(peer).or_insert_with(|| Peer::new(epoch, Way::Listener(listens), unmatched));
        if found.failed || found.epoch != epoch {
            self.counters.refused += 1;
            return conversation.reject(&says(Says::Gone));
        }
        if found.link.is_none() && !self.open_link(peer) {
            return conversation.reject(&says(Says::Gone));
        }
        let Some(line) = self.line(peer) else { return };
        match line.crossing.asked() {
            Answer::Refuse => return conversation.reject(&says(Says::Crossed)),
            Answer::TakeInstead if !self.renew(peer) => return conversation.reject(&says(Says::Gone)),
            Answer::Take | Answer::TakeInstead => {}
        }
        let Some(pair) = self.peers.get(&peer).and_then(|found| Some(found.link.as_ref()?.pair)) else { return };
        self.hub.set_pulse(pair, pulse);
        match conversation.accept(&self.terms(pair, says(Says::Taken(self.hub.pulse())))) {
            Ok(()) => {
                let (id, conversation) = (conversation.id(), Arc::new(conversation));
                if let Some(line) = self.line(peer) {
                    line.call = Some(id);
                }
                if let Some(manager) = self.manager() {
                    manager.calls.insert(id, Call { conversation, peer, pair, request: None, step: Step::Answered, wanted: true });
                }
            }
            Err(error) => self.ended(peer, error.to_string(), Then::Again),
        }
    }

    /// A call, or a connection, has ended.
    fn ended(&mut self, peer: PeerId, why: String, then: Then) {
        let now_ns = self.now_ns();
        self.wake_ns = 0;
        let (hint, words) = (self.line_hint(), self.own_words());
        let Some(line) = self.line(peer) else { return };
        let was_open = !line.crossing.ended(now_ns);
        if was_open || matches!(then, Then::Never) {
            let why = if was_open { why } else { format!("no connection from {words}: {why}; {hint}") };
            self.broken.push((peer, why));
            return;
        }
        line.why = Some(why);
        self.renew(peer);
    }

    /// Gives a peer another queue pair, since the one that it has cannot be connected any more. False where there is none: the peer fails.
    fn renew(&mut self, peer: PeerId) -> bool {
        let Some(found) = self.peers.get_mut(&peer) else { return false };
        let Some(Link { pair, tie: Tie::Line(line), .. }) = &mut found.link else { return false };
        let (old, call) = (*pair, line.call.take());
        self.owners.remove(&old);
        let Maker::Manager(manager) = &mut self.maker else { return false };
        manager.let_go(&mut self.hub, old, call);
        match self.hub.open() {
            Ok(new) => {
                *pair = new;
                self.owners.insert(new, peer);
                if let Some(link) = &mut found.link {
                    self.spare += link.allowance.extra();
                    link.allowance = Allowance::new();
                }
                true
            }
            Err(error) => {
                found.link = None;
                self.broken.push((peer, error.to_string()));
                false
            }
        }
    }

    /// All that came has been taken in: connections that have ended before are no more.
    pub(super) fn end_closed(&mut self) {
        for id in self.manager().map(|manager| std::mem::take(&mut manager.closed)).unwrap_or_default() {
            if let Some(peer) = self.is_known(id) {
                self.ended(peer, "it has closed the connection".to_owned(), Then::Again);
            }
        }
    }

    fn line_hint(&self) -> String {
        let on = self.facts.interface.as_ref().map_or(String::new(), |name| format!(" -I {name}"));
        format!("see whether its address answers there (ping{on}), and whether a firewall lets TCP pass; WHIMBREL_NET chooses other ports")
    }

    /// Whether all that was sent through `pair` has arrived; else that is asked for.
    pub(super) fn is_confirmed(&self, pair: PairId) -> bool {
        let Maker::Manager(manager) = &self.maker else { return true };
        let is_confirmed = self.hub.is_confirmed(pair);
        if !is_confirmed {
            manager.confirm();
        }
        is_confirmed
    }

    /// Asks peers whether all that was sent has arrived, where somebody wants to know; and sees to it that peers are asked for signs of life where
    /// something may be expected of them by now (`pumped`).
    pub(super) fn flush_calls(&mut self, pumped: bool, now_ns: u64) {
        let Maker::Manager(manager) = &mut self.maker else { return };
        if pumped {
            self.wake_ns = self.wake_ns.min(now_ns + self.config.keepalive_ns);
        }
        if manager.confirms() {
            for (&pair, &peer) in &self.owners {
                if !self.hub.is_confirmed(pair) && !self.hub.is_pinging(pair) && self.hub.has_room(pair, 1) && !self.hub.ping(pair) {
                    self.broken.push((peer, "its device takes no requests".to_owned()));
                }
            }
        }
    }

    /// As [`Connections::tick`], of calls.
    pub(super) fn tick_calls(&mut self, now_ns: u64, program: &mut impl Program) {
        let (mut due, mut silent, mut wake_ns) = (Vec::new(), Vec::new(), u64::MAX);
        let (timeout_ns, keepalive_ns) = (self.config.peer_timeout_ns, self.config.keepalive_ns);
        for (&peer, found) in &mut self.peers {
            let matters = found.matters() || !found.controls.is_empty();
            let Some(Link { pair, tie: Tie::Line(line), .. }) = &mut found.link else { continue };
            if !line.crossing.is_open() {
                let end_ns = line.crossing.since_ns + timeout_ns;
                match line.crossing.due_ns() {
                    _ if now_ns >= end_ns => silent.push((peer, Some(line.why.take().unwrap_or("a request for a connection is not answered".to_owned())))),
                    // Whoever wanted it may call again.
                    Some(due_ns) if due_ns <= now_ns && !matters => silent.push((peer, None)),
                    Some(due_ns) if due_ns <= now_ns => due.push(peer),
                    Some(due_ns) => wake_ns = wake_ns.min(due_ns),
                    None => {}
                }
                wake_ns = wake_ns.min(end_ns);
                continue;
            }
            let heard = self.hub.heard(*pair);
            if heard != line.heard || !matters {
                (line.heard, line.heard_ns) = (heard, now_ns);
            }
            if !matters {
                continue;
            }
            wake_ns = wake_ns.min(now_ns + keepalive_ns);
            if now_ns >= line.heard_ns + timeout_ns {
                silent.push((peer, Some("nothing comes from it".to_owned())));
            } else if !self.hub.is_pinging(*pair) && self.hub.has_room(*pair, 1) && !self.hub.ping(*pair) {
                self.broken.push((peer, "its device takes no requests".to_owned()));
            }
        }
        for (peer, why) in silent {
            let why = why.map_or(String::new(), |why| format!(" ({why})"));
            let why = format!("it does not answer {} for {} ms{why}; {}", self.own_words(), timeout_ns / 1_000_000, self.line_hint());
            self.fail(peer, &why, program);
        }
        for peer in due {
            self.call(peer);
            wake_ns = wake_ns.min(now_ns + keepalive_ns);
        }
        self.wake_ns = wake_ns;
    }
}
