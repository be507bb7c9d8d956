//! What the ranks do, and whether all of it came right.

use std::collections::{HashMap, VecDeque};

use proto::reliability::{Begun, Delivery, Failure, PeerId};

use crate::random::{Random, mix};

/// How long messages are.
#[derive(Clone, Copy, Debug)]
pub enum Sizes {
    Fixed(u64),
    /// Mostly short, some of a few KiB, few of up to half a MiB.
    Mixed,
}

impl Sizes {
    pub fn draw(&self, random: &mut Random) -> u64 {
        match *self {
            Sizes::Fixed(bytes) => bytes,
            Sizes::Mixed => match random.below(1000) {
                0..100 => 0,
                100..850 => random.below(257),
                850..990 => random.below(8 << 10),
                990..999 => random.below(64 << 10),
                _ => random.below(512 << 10),
            },
        }
    }
}

/// What each rank does.
#[derive(Clone, Debug)]
pub struct Load {
    /// Messages sent by each rank, and to whom.
    pub messages: u64,
    pub senders: Vec<u32>,
    pub receivers: Vec<u32>,
    /// Sends of one rank that have not ended, at most.
    pub outstanding: usize,
    pub sizes: Sizes,
    /// Chance that a rank which sends also offers to receive, millionths.
    pub offer_ppm: u32,
    /// Chance that a message is asked for rather than sent at once, millionths.
    pub pull_ppm: u32,
    /// A delivered message is matched up to this much later.
    pub match_ns: u64,
}

impl Load {
    /// Messages of one size, from each of `senders` to `receivers`, matched at once.
    pub fn plain(messages: u64, senders: Vec<u32>, receivers: Vec<u32>, outstanding: usize, bytes: u64) -> Load {
        let sizes = Sizes::Fixed(bytes);
        Load { messages, senders, receivers, outstanding, sizes, offer_ppm: 0, pull_ppm: 0, match_ns: 0 }
    }
}

/// The byte at `offset` of the message with `key`: bytes of mixed words.
pub fn fill(key: u64, offset: u64, out: &mut [u8]) {
    let mut word_at = offset / 8;
    let skip = (offset % 8) as usize;
    let mut at = 0;
    if skip > 0 {
        let word = mix(key.wrapping_add(word_at)).to_le_bytes();
        at = out.len().min(8 - skip);
        out[..at].copy_from_slice(&word[skip..skip + at]);
        word_at += 1;
    }
    let (words, rest) = out[at..].as_chunks_mut();
    for chunk in words {
        *chunk = mix(key.wrapping_add(word_at)).to_le_bytes();
        word_at += 1;
    }
    let last = mix(key.wrapping_add(word_at)).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

pub fn is_filled(key: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    let word = |at: usize| mix(key.wrapping_add(at as u64));
    let last = word(words.len()).to_le_bytes();
    words.iter().enumerate().all(|(at, chunk)| u64::from_le_bytes(*chunk) == word(at)) && *rest == last[..rest.len()]
}

/// The key of the `index`-th message from one rank to another.
pub fn key(source: u32, destination: u32, index: u64) -> u64 {
    mix(mix((source as u64) << 32 | destination as u64).wrapping_add(index))
}

/// What the engine would do next, at some time.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    Release { peer: PeerId, bytes: u64 },
    Receive { peer: PeerId, transfer: u32, index: u64, bytes: u64 },
    Push { peer: PeerId, window: u32, granted_bytes: u64, capacity_bytes: u64 },
    Send,
}

/// A receive that is not complete.
#[derive(Debug)]
struct Receive {
    peer: PeerId,
    index: Option<u64>,
    bytes: u64,
    memory: Vec<u8>,
}

/// What an envelope says: index among the messages from this source, length, and a bit for offers, which are no messages.
pub const OFFER: u64 = u64::MAX;

pub fn envelope(index: u64, bytes: u64) -> [u8; 16] {
    let mut envelope = [0; 16];
    envelope[..8].copy_from_slice(&index.to_le_bytes());
    envelope[8..].copy_from_slice(&bytes.to_le_bytes());
    envelope
}

fn read(envelope: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(envelope[at..at + 8].try_into().expect("an envelope of two words"));
    assert_eq!(envelope.len(), 16, "an envelope changed its length");
    (word(0), word(8))
}

/// One rank's program and its view of what has happened.
#[derive(Debug)]
pub struct Rank {
    pub me: u32,
    pub sent: u64,
    pub outstanding: usize,
    /// By peer: messages sent to it and delivered from it.
    pub next_out: Vec<u64>,
    pub next_in: Vec<u64>,
    pub delivered: u64,
    pub delivered_bytes: u64,
    /// Messages whose segments were placed as they came.
    pub placed: u64,
    pub last_ns: u64,
    /// The longest time without a byte arriving, and when one last did.
    pub pause_ns: u64,
    pub heard_ns: u64,
    sends: HashMap<u64, (PeerId, u64, u64)>,
    receives: HashMap<u64, Receive>,
    next_token: u64,
    pub failed_sends: u64,
    pub failed_receives: u64,
    pub failed_peers: Vec<PeerId>,
    pub rail_changes: Vec<(u64, PeerId, u8, bool)>,
    /// Things to do, with the delay after which they are done.
    pub tasks: VecDeque<(u64, Task)>,
}

impl Rank {
    pub fn new(me: u32, ranks: u32) -> Rank {
        Rank {
            me,
            sent: 0,
            outstanding: 0,
            next_out: vec![0; ranks as usize],
            next_in: vec![0; ranks as usize],
            delivered: 0,
            delivered_bytes: 0,
            placed: 0,
            last_ns: 0,
            pause_ns: 0,
            heard_ns: 0,
            sends: HashMap::new(),
            receives: HashMap::new(),
            next_token: 1,
            failed_sends: 0,
            failed_receives: 0,
            failed_peers: Vec::new(),
            rail_changes: Vec::new(),
            tasks: VecDeque::new(),
        }
    }

    /// Sends, and receives; those that were offered and that nobody has taken count where `offers` says so.
    pub fn pending(&self, offers: bool) -> (usize, usize) {
        (self.sends.len(), self.receives.values().filter(|one| offers || one.index.is_some()).count())
    }

    /// A new send; its token and its index.
    pub fn begin_send(&mut self, peer: PeerId, bytes: u64) -> (u64, u64) {
        let token = self.next_token;
        self.next_token += 1;
        let index = self.next_out[peer as usize];
        self.next_out[peer as usize] += 1;
        self.sends.insert(token, (peer, index, bytes));
        self.outstanding += 1;
        (token, index)
    }

    pub fn begin_receive(&mut self, peer: PeerId, index: Option<u64>, bytes: u64, capacity_bytes: u64) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.receives.insert(token, Receive { peer, index, bytes, memory: vec![0; capacity_bytes as usize] });
        token
    }

    pub fn abandon(&mut self, token: u64) {
        if self.sends.remove(&token).is_some() {
            self.outstanding -= 1;
        }
        self.receives.remove(&token);
    }

    /// Bytes of a payload, as a fabric would gather them.
    pub fn gather(&self, send: u64, offset: u64, out: &mut [u8]) {
        let &(peer, index, bytes) = self.sends.get(&send).expect("payload of a send that has ended");
        assert!(offset + out.len() as u64 <= bytes, "payload past its end");
        fill(key(self.me, peer, index), offset, out);
    }

    pub fn memory(&mut self, receive: u64) -> &mut [u8] {
        &mut self.receives.get_mut(&receive).expect("bytes for a receive that has ended").memory
    }

    fn in_order(&mut self, peer: PeerId, index: u64) {
        let expected = self.next_in[peer as usize];
        assert_eq!(index, expected, "rank {} from {peer}: a message was lost, doubled or overtaken", self.me);
        self.next_in[peer as usize] += 1;
    }

    /// Every other message has a receive when its first segment comes, and some of those have room for a part of it.
    pub fn begin(&mut self, peer: PeerId, envelope: &[u8], bytes: u64) -> Option<Begun> {
        let (index, length) = read(envelope);
        assert_eq!(length, bytes);
        let room_bytes = if index % 8 == 1 { bytes / 2 } else { bytes };
        (index % 2 == 1).then(|| Begun { receive: self.begin_receive(peer, Some(index), room_bytes, room_bytes), room_bytes })
    }

    pub fn deliver(&mut self, peer: PeerId, delivery: Delivery, now_ns: u64, match_ns: u64) {
        match delivery {
            Delivery::Placed { envelope, receive, bytes } => {
                let (index, length) = read(envelope);
                self.in_order(peer, index);
                let receive = self.receives.remove(&receive).expect("a message ends once");
                assert_eq!((receive.peer, receive.index, length), (peer, Some(index), bytes));
                assert!(is_filled(key(peer, self.me, index), &receive.memory), "content of message {index} of {peer}");
                self.placed += 1;
                self.arrived(bytes, now_ns);
                self.tasks.push_back((match_ns, Task::Release { peer, bytes }));
            }
            Delivery::Eager { envelope, payload } => {
                let (index, bytes) = read(envelope);
                self.in_order(peer, index);
                assert_eq!(payload.len() as u64, bytes, "length of message {index} of {peer}");
                assert!(is_filled(key(peer, self.me, index), payload), "content of message {index} of {peer}");
                self.arrived(bytes, now_ns);
                self.tasks.push_back((match_ns, Task::Release { peer, bytes }));
            }
            Delivery::Request { envelope, transfer, bytes } => {
                let (index, length) = read(envelope);
                self.in_order(peer, index);
                assert_eq!(length, bytes);
                self.tasks.push_back((match_ns, Task::Receive { peer, transfer, index, bytes }));
            }
            Delivery::Offer { envelope, window, granted_bytes, capacity_bytes } => {
                assert_eq!(read(envelope), (OFFER, capacity_bytes));
                self.tasks.push_back((match_ns, Task::Push { peer, window, granted_bytes, capacity_bytes }));
                self.tasks.push_back((0, Task::Release { peer, bytes: 0 }));
            }
            Delivery::Push { envelope, receive, bytes } => {
                let (index, length) = read(envelope);
                self.in_order(peer, index);
                assert_eq!(length, bytes);
                let receive = self.receives.get_mut(&receive).expect("an offer that is open");
                assert_eq!((receive.peer, receive.index), (peer, None));
                (receive.index, receive.bytes) = (Some(index), bytes);
                self.tasks.push_back((0, Task::Release { peer, bytes: 0 }));
            }
        }
    }

    /// Payload has come.
    pub fn hear(&mut self, now_ns: u64) {
        self.pause_ns = self.pause_ns.max(now_ns - self.heard_ns);
        self.heard_ns = now_ns;
    }

    fn arrived(&mut self, bytes: u64, now_ns: u64) {
        self.hear(now_ns);
        self.delivered += 1;
        self.delivered_bytes += bytes;
        self.last_ns = now_ns;
    }

    /// A datagram that carried payload of `sends` has only now left: none of them may have ended.
    pub fn assert_open(&self, sends: &[u64]) {
        for send in sends {
            assert!(self.sends.contains_key(send), "rank {}: send {send} ended while a datagram read its payload", self.me);
        }
    }

    pub fn complete(&mut self, send: u64, result: Result<(), Failure>) {
        self.sends.remove(&send).expect("a send ends once");
        self.outstanding -= 1;
        self.tasks.push_back((0, Task::Send));
        self.failed_sends += result.is_err() as u64;
    }

    pub fn received(&mut self, receive: u64, result: Result<(), Failure>, now_ns: u64) {
        let receive = self.receives.remove(&receive).expect("a receive ends once");
        if result.is_err() {
            self.failed_receives += 1;
            return;
        }
        let index = receive.index.expect("an offer that was taken");
        let memory = &receive.memory[..receive.bytes as usize];
        assert!(is_filled(key(receive.peer, self.me, index), memory), "content of message {index} of {}", receive.peer);
        self.arrived(receive.bytes, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_whole() {
        let mut whole = [0; 100];
        fill(7, 0, &mut whole);
        assert!(is_filled(7, &whole) && is_filled(7, &whole[..37]) && !is_filled(8, &whole));
        for start in 0..100 {
            let mut piece = vec![0; 100 - start];
            fill(7, start as u64, &mut piece);
            assert_eq!(piece, whole[start..]);
        }
        whole[99] ^= 1;
        assert!(!is_filled(7, &whole));
    }
}
