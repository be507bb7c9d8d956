//! What both transports tell: passed on at once where its turn is now, else kept until they can be asked for things again.

use proto::p2p::Header;
use proto::reliability::wire::Run;
use proto::reliability::{Begun, Delivery, Failure, PeerId, Slice};
use proto::routes::{Arrived, Routes, Taker, is_word};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

use super::bond::Bonds;
use super::words;
use crate::reliable::{NOBODY, Program, Sink};

/// How a peer is reached.
pub const DATAGRAMS: u8 = 0;
pub const CONNECTION: u8 = 1;

/// Marks what is sent again in datagrams, of a copy, among the tokens of sends.
const COPY: u64 = 3 << 62;

/// Copies of messages that are sent again in datagrams.
#[derive(Debug, Default)]
pub struct Copies {
    all: FxHashMap<u64, Box<[u8]>>,
    next: u64,
}

impl Copies {
    pub fn keep(&mut self, copy: &[u8]) -> u64 {
        self.next += 1;
        self.all.insert(COPY | self.next, copy.into());
        COPY | self.next
    }

    /// Whether it was one.
    pub fn forget(&mut self, token: u64) -> bool {
        self.all.remove(&token).is_some()
    }

    fn part(&self, slice: &Slice) -> Option<&[u8]> {
        let from = slice.offset_bytes as usize;
        self.all.get(&slice.send)?.get(from..from + slice.length_bytes as usize)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// What is to be dealt with.
pub enum Told {
    Arrived(PeerId, u8, Arrived),
    Said(PeerId, Header),
    Failed(PeerId, Box<[u64]>),
}

/// One transport's program.
pub struct Edge<'a, P> {
    pub route: u8,
    pub program: &'a mut P,
    pub routes: &'a mut Routes,
    pub bonds: &'a mut Bonds,
    pub copies: &'a mut Copies,
    pub told: &'a mut VecDeque<Told>,
    /// Something of the program has ended without success.
    pub hurt: &'a mut bool,
}

impl<P: Program> Edge<'_, P> {
    /// A header that is for the routes themselves.
    fn arrived(&mut self, peer: PeerId, header: Header) {
        self.told.push_back(Told::Arrived(peer, self.route, Arrived::Message { header, body: Vec::new() }));
    }

    /// A message or offer of a peer whose messages are numbered.
    fn deliver_in_turn(&mut self, peer: PeerId, envelope: &[u8], delivery: Delivery) {
        let Some(header) = Header::parse(envelope) else {
            // No peer sends such a thing: it is refused as any other.
            return self.program.deliver(peer, delivery);
        };
        let arrived = match delivery {
            Delivery::Eager { payload, .. } => {
                if self.routes.turn(peer, self.route, &header, payload.len() as u64) {
                    return self.program.deliver(peer, delivery);
                }
                Arrived::Message { header, body: payload.to_vec() }
            }
            Delivery::Request { transfer, bytes, .. } => Arrived::Waiting { header, transfer, bytes },
            // Windows are not offered, and messages get no place before their turn.
            Delivery::Placed { .. } | Delivery::Offer { .. } | Delivery::Push { .. } => return self.program.deliver(peer, delivery),
        };
        self.told.push_back(Told::Arrived(peer, self.route, arrived));
    }
}

// SAFETY: copies keep their place until their send is complete; all else is as the program's promise says.
unsafe impl<P: Program> Program for Edge<'_, P> {
    fn gather(&self, slice: &Slice, out: &mut Sink) {
        match self.copies.part(slice) {
            // SAFETY: it keeps its place until its send is complete.
            Some(part) => unsafe { out.push(part.as_ptr(), part.len()) },
            None => self.program.gather(slice, out),
        }
    }

    fn place(&mut self, receive: u64, offset_bytes: u64, payload: &[u8], check: &dyn Fn(&[u8]) -> bool) -> bool {
        self.program.place(receive, offset_bytes, payload, check)
    }

    fn place_run(&mut self, receive: u64, offset_bytes: u64, run: &Run) -> bool {
        self.program.place_run(receive, offset_bytes, run)
    }

    fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        // What comes by a connection may have its turn first.
        if self.bonds.is_numbered(peer) || words::is_one(envelope) { None } else { self.program.begin(peer, envelope, bytes) }
    }

    fn deliver(&mut self, peer: PeerId, delivery: Delivery) {
        let (Delivery::Eager { envelope, .. }
        | Delivery::Placed { envelope, .. }
        | Delivery::Request { envelope, .. }
        | Delivery::Offer { envelope, .. }
        | Delivery::Push { envelope, .. }) = delivery;
        let bytes = match delivery {
            Delivery::Eager { payload, .. } => payload.len() as u64,
            Delivery::Placed { bytes, .. } | Delivery::Request { bytes, .. } | Delivery::Push { bytes, .. } => bytes,
            Delivery::Offer { .. } => 0,
        };
        if words::is_one(envelope)
            && matches!(delivery, Delivery::Eager { payload: [], .. })
            && let Some(header) = Header::parse(envelope)
        {
            return match self.route {
                _ if is_word(&header) => self.arrived(peer, header),
                DATAGRAMS if words::is_routed(&header) => {
                    self.bonds.number(peer);
                    self.arrived(peer, header);
                }
                DATAGRAMS => self.told.push_back(Told::Said(peer, header)),
                // No peer says that there: it is refused as any other.
                _ => self.deliver_in_turn(peer, envelope, delivery),
            };
        }
        self.bonds.came(peer, bytes);
        if self.route == CONNECTION || self.bonds.is_numbered(peer) {
            return self.deliver_in_turn(peer, envelope, delivery);
        }
        match delivery {
            Delivery::Request { envelope, transfer, bytes } => {
                let transfer = self.routes.hold(peer, transfer);
                self.program.deliver(peer, Delivery::Request { envelope, transfer, bytes });
            }
            delivery => self.program.deliver(peer, delivery),
        }
    }

    fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        if self.copies.forget(send) || send == NOBODY {
            return;
        }
        self.routes.sent(send);
        *self.hurt |= result.is_err();
        self.program.complete(send, result);
    }

    fn left(&mut self, send: u64, bytes: u32) {
        if send == NOBODY {
            return;
        }
        let (mut sink, mut copy) = (Sink::default(), vec![0; bytes as usize]);
        if bytes > 0 {
            self.program.gather(&Slice { send, offset_bytes: 0, length_bytes: bytes }, &mut sink);
            sink.empty_into(&mut copy);
        }
        self.routes.copied(send, copy);
        self.program.complete(send, Ok(()));
    }

    fn received(&mut self, receive: u64, result: Result<(), Failure>) {
        self.routes.got(receive);
        *self.hurt |= result.is_err();
        self.program.received(receive, result);
    }

    fn peer_failed(&mut self, peer: PeerId, in_use: &[u64]) {
        self.told.push_back(Told::Failed(peer, in_use.into()));
    }

    fn rail_changed(&mut self, peer: PeerId, rail: u8, alive: bool) {
        self.program.rail_changed(peer, rail, alive);
    }

    fn body(&self, send: u64) -> Option<*const u8> {
        self.program.body(send)
    }

    fn room(&mut self, receive: u64, bytes: u64) -> Option<*mut u8> {
        self.program.room(receive, bytes)
    }

    fn card(&mut self, peer: PeerId) -> Option<String> {
        self.program.card(peer)
    }
}

/// The program takes messages whose turn has come.
pub struct InTurn<'a, P> {
    pub program: &'a mut P,
    /// Whose messages are numbered from here on.
    pub numbered: bool,
}

impl<P: Program> Taker for InTurn<'_, P> {
    fn take(&mut self, peer: PeerId, arrived: Arrived) {
        match arrived {
            Arrived::Message { header, .. } if words::is_routed(&header) => self.numbered = true,
            Arrived::Message { header, body } => {
                let (bytes, length) = header.to_bytes();
                self.program.deliver(peer, Delivery::Eager { envelope: &bytes[..length], payload: &body });
            }
            Arrived::Waiting { header, transfer, bytes } => {
                let (envelope, length) = header.to_bytes();
                self.program.deliver(peer, Delivery::Request { envelope: &envelope[..length], transfer, bytes });
            }
            // Nobody offers windows.
            Arrived::Offer { .. } | Arrived::Put { .. } => {}
        }
    }

    fn filled(&mut self, _: u64) {}
}
