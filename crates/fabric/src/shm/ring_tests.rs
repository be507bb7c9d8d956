//! The ring alone, on plain memory: beside a queue, between two threads, and against a peer that writes anything. Miri runs these too.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes beside the slots, as atomics: whoever writes them, no copy is a data race. And what was said of their lines: places owned, and bytes demoted.
#[derive(Clone)]
struct Bytes(Arc<[std::sync::atomic::AtomicU8]>, Arc<std::sync::Mutex<(Vec<usize>, usize)>>);

struct Part {
    bytes: Bytes,
    offset: usize,
    length: usize,
}

impl Bulk for Bytes {
    type Part = Part;
    fn len(&self) -> usize {
        self.0.len()
    }
    unsafe fn write(&self, offset: usize, body: &Body, from: usize, bytes: usize) {
        let mut copy = vec![0u8; bytes];
        // SAFETY: the copy has room for all of it.
        unsafe { body.copy_to(from, copy.as_mut_ptr(), bytes) };
        for (to, byte) in self.0[offset..offset + bytes].iter().zip(copy) {
            to.store(byte, Ordering::Relaxed);
        }
    }
    /// A tick for each byte.
    fn touch(&self, offset: usize, bytes: usize) -> u64 {
        self.part(offset, bytes).read().count() as u64
    }
    fn own(&self, offset: usize) {
        assert!(offset < self.len());
        self.1.lock().unwrap().0.push(offset);
    }
    fn demote(&self, offset: usize, bytes: usize) {
        assert!(offset <= self.len() && bytes <= self.len() - offset);
        self.1.lock().unwrap().1 += bytes;
    }
    fn part(&self, offset: usize, bytes: usize) -> Part {
        assert!(offset <= self.len() && bytes <= self.len() - offset);
        Part { bytes: self.clone(), offset, length: bytes }
    }
}

impl Part {
    fn read(&self) -> impl Iterator<Item = u8> {
        self.bytes.0[self.offset..self.offset + self.length].iter().map(|b| b.load(Ordering::Relaxed))
    }
}

/// The memory of a ring, which both sides see.
struct Shared {
    slots: Arc<[Slot]>,
    returns: Arc<Returns>,
    bulk: Bytes,
    first_bytes: usize,
}

type Sender = Producer<Arc<[Slot]>, Arc<Returns>, Bytes>;
type Receiver = Consumer<Arc<[Slot]>, Arc<Returns>, Bytes>;

impl Shared {
    fn new(slots: usize, bulk: usize) -> Shared {
        Shared {
            slots: (0..slots).map(|_| Slot { words: Default::default() }).collect(),
            returns: Arc::new(Returns {
                slots: AtomicU64::new(0),
                bulk: AtomicU64::new(0),
                credit: AtomicU64::new(0),
                readings: Default::default(),
                unused: Default::default(),
            }),
            bulk: Bytes((0..bulk).map(|_| 0.into()).collect(), Arc::default()),
            first_bytes: bulk,
        }
    }

    /// A ring of `first_bytes` that grows to `bulk`.
    fn growing(slots: usize, first_bytes: usize, bulk: usize) -> Shared {
        Shared { first_bytes, ..Shared::new(slots, bulk) }
    }

    fn sender(&self) -> Sender {
        Producer::new(self.slots.clone(), self.returns.clone(), self.bulk.clone(), self.first_bytes)
    }

    fn receiver(&self) -> Receiver {
        Consumer::new(self.slots.clone(), self.returns.clone(), self.bulk.clone(), self.first_bytes)
    }
}

fn push(sender: &mut Sender, head: [u64; 2], words: &[u64], body: &[u8]) -> Result<bool, Corrupt> {
    if sender.should_grow() {
        sender.grow();
    }
    // SAFETY: the slice is readable.
    unsafe { sender.push(head, words, Body::new(body.as_ptr(), body.len())) }
}

/// All payload bytes of a packet, words first.
fn payload(receiver: &Receiver, taken: &Taken, words: usize) -> Vec<u8> {
    let all: Vec<u8> = taken.words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    if !taken.is_long {
        return all[..taken.inline_bytes].to_vec();
    }
    let long = receiver.long().unwrap();
    all[..words * 8].iter().copied().chain(long.parts.0.read()).chain(long.parts.1.read()).take(words * 8 + long.present_bytes).collect()
}

fn said(words: &[u64], body: &[u8]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).chain(body.iter().copied()).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Push { words: usize, bytes: usize },
    Take,
    Grow,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![0..60usize, Just(48), Just(40), 60..128usize, Just(128)];
    let step = prop_oneof![
        90 => (0..=WORDS_WITH_BULK, bytes).prop_map(|(words, bytes)| Step::Push { words, bytes }),
        60 => Just(Step::Take),
        1 => Just(Step::Grow),
    ];
    proptest::collection::vec(step, 0..if cfg!(miri) { 60 } else { 400 })
}

/// As many cases as the time allows.
fn cases(many: u32) -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 5 } else { many }, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(300))]

    /// A ring is a queue that is full at times; never empty for the receiver while something is in it.
    #[test]
    fn is_a_bounded_queue(steps in steps(), slots in prop_oneof![Just(2usize), Just(4), Just(8)], bulk in prop_oneof![Just(256usize), Just(512), Just(2048)]) {
        let shared = Shared::growing(slots, 256, bulk);
        let (mut sender, mut receiver, mut queue) = (shared.sender(), shared.receiver(), VecDeque::new());
        let mut count = 0u64;
        for step in steps {
            match step {
                Step::Push { words, bytes } => {
                    count += 1;
                    let words: Vec<u64> = (0..words as u64).map(|w| count * 1000 + w).collect();
                    let body: Vec<u8> = (0..bytes).map(|i| (i as u64 * 7 + count) as u8).collect();
                    let head = [count << 8, !count];
                    let in_it: usize = queue.len();
                    if push(&mut sender, head, &words, &body).unwrap() {
                        queue.push_back((head, words, body));
                        prop_assert!(queue.len() <= slots);
                    } else {
                        prop_assert!(in_it > 0, "an empty ring refuses");
                    }
                }
                Step::Take => match receiver.peek().unwrap() {
                    Some(taken) => {
                        prop_assert!(receiver.is_whole(), "its sender has returned");
                        let (head, words, body) = queue.pop_front().expect("a packet that nobody sent");
                        prop_assert_eq!((taken.head[0] & !0xff, taken.head[1]), (head[0], head[1]));
                        prop_assert_eq!(payload(&receiver, &taken, words.len()), said(&words, &body));
                        receiver.release(&taken);
                    }
                    None => prop_assert!(queue.is_empty(), "a packet is late"),
                },
                Step::Grow => sender.grow(),
            }
        }
    }

    /// Whatever a peer writes into slots, counters and bytes: an error or a packet inside the limits.
    #[test]
    fn any_memory_is_read_within_bounds(
        writes in proptest::collection::vec((0..11usize, 0..8usize, hostile_word(), any::<bool>()), 1..if cfg!(miri) { 40 } else { 300 }),
    ) {
        let shared = Shared::growing(8, 256, 512);
        let (mut sender, mut receiver) = (shared.sender(), shared.receiver());
        for (line, word, value, legal) in writes {
            match line {
                0..8 => shared.slots[line].words[word].store(value, Ordering::Relaxed),
                8 => shared.returns.slots.store(value, Ordering::Relaxed),
                9 => shared.returns.bulk.store(value, Ordering::Relaxed),
                _ => shared.returns.credit.store(value, Ordering::Relaxed),
            }
            if word == 7 && value == 0 {
                sender.grow();
            }
            if legal {
                let _ = push(&mut sender, [value, value], &[value], &[7; 100][..value as usize % 100]);
            }
            if let Ok(Some(taken)) = receiver.peek() {
                prop_assert!(taken.inline_bytes <= INLINE_BYTES);
                if let Some(long) = receiver.long() {
                    let bytes = long.parts.0.length + long.parts.1.length;
                    prop_assert!(bytes <= 256 && long.present_bytes <= bytes);
                }
                payload(&receiver, &taken, 4);
                receiver.release(&taken);
                receiver.give_credit(value % 1000, 100);
            }
            let _ = sender.credit();
        }
    }
}

/// Words that hit limits, and any others.
fn hostile_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        0..8u64,
        0..256u64,
        (0..1024u64).prop_map(|v| v * 64),
        (0..600u64).prop_map(|v| u64::MAX - v),
        any::<u64>(),
        (0..64u64, any::<u64>()).prop_map(|(low, high)| (high & !0xff) | low << 2),
    ]
}

#[test]
fn what_cannot_be_is_named() {
    let shared = Shared::new(8, 512);
    let (mut sender, mut receiver) = (shared.sender(), shared.receiver());
    let word = |i: usize, value| shared.slots[0].words[i].store(value, Ordering::Relaxed);
    let what = |r: Result<Option<Taken>, Corrupt>| r.err().map(|c| (c.what, c.value));
    word(0, PHASE | 49 << 2);
    assert_eq!(what(receiver.peek()), Some(("the inline length of a packet", 49)));
    word(0, PHASE | BULK | 8 << FURTHER_SHIFT);
    assert_eq!(what(receiver.peek()), Some(("the number of pieces of a packet", 9)));
    word(0, PHASE | BULK);
    word(2, 257);
    assert_eq!(what(receiver.peek()), Some(("the length of a packet", 257)));
    word(2, 256);
    word(3, 64);
    assert_eq!(what(receiver.peek()), Some(("the position of a packet", 64)));
    for _ in 0..8 {
        assert!(push(&mut sender, [0; 2], &[], &[1]).unwrap());
    }
    shared.returns.slots.store(9, Ordering::Relaxed);
    let full = push(&mut sender, [0; 2], &[], &[1]);
    assert_eq!(full, Err(Corrupt { what: "the count of slots read", value: 9 }));
    shared.returns.slots.store(8, Ordering::Relaxed);
    assert!(push(&mut sender, [0; 2], &[], &[1; 256]).unwrap());
    assert!(push(&mut sender, [0; 2], &[], &[1; 256]).unwrap());
    shared.returns.bulk.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(push(&mut sender, [0; 2], &[], &[1; 100]), Err(Corrupt { what: "the count of bytes read", value: u64::MAX }));
}

#[test]
fn a_ring_that_grows_uses_no_byte_that_was_not_read() {
    let shared = Shared::growing(32, 256, 1024);
    let (mut sender, mut receiver) = (shared.sender(), shared.receiver());
    assert_eq!((sender.body_bytes_max(), receiver.bulk_bytes()), (128, 256));
    // Both lie in the small ring when it grows.
    assert!(push(&mut sender, [0; 2], &[], &[1; 128]).unwrap() && push(&mut sender, [0; 2], &[], &[2; 128]).unwrap());
    assert!(!push(&mut sender, [0; 2], &[], &[3; 128]).unwrap());
    sender.grow();
    assert_eq!(sender.body_bytes_max(), 256);
    sender.grow();
    assert_eq!(sender.body_bytes_max(), 256, "nothing has gone since");
    // What lies behind them, and nothing before they are read.
    assert!(push(&mut sender, [0; 2], &[], &[3; 128]).unwrap() && push(&mut sender, [0; 2], &[], &[4; 128]).unwrap());
    assert!(!push(&mut sender, [0; 2], &[], &[5; 64]).unwrap());
    // Nor before those are, when it grows once more.
    sender.grow();
    assert_eq!(sender.body_bytes_max(), 512);
    assert!(push(&mut sender, [0; 2], &[], &[5; 512]).unwrap() && !push(&mut sender, [0; 2], &[], &[6; 64]).unwrap());
    let mut take = |value, bytes| {
        let taken = receiver.peek().unwrap().unwrap();
        assert_eq!(payload(&receiver, &taken, 0), vec![value; bytes]);
        receiver.release(&taken);
        receiver.bulk_bytes()
    };
    assert_eq!([(1, 128), (2, 128), (3, 128), (4, 128)].map(|(value, bytes)| take(value, bytes)), [256, 256, 512, 512]);
    assert!(!push(&mut sender, [0; 2], &[], &[6; 64]).unwrap(), "it has not been seen to have grown");
    assert_eq!(take(5, 512), 1024);
    assert!(push(&mut sender, [0; 2], &[], &[6; 512]).unwrap());
    assert_eq!(take(6, 512), 1024);
}

#[test]
fn two_threads_pass_everything_on() {
    let messages = if cfg!(miri) { 40 } else { 20_000 };
    let shared = Shared::growing(8, 512, 2048);
    let (mut sender, mut receiver) = (shared.sender(), shared.receiver());
    let bytes_of = |i: u64| (i * 37 % 257) as usize;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..messages {
                let body = vec![i as u8; bytes_of(i)];
                while !push(&mut sender, [i << 8, i], &[i], &body).unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        let mut parts = 0;
        for i in 0..messages {
            let (all, mut present) = (said(&[i], &vec![i as u8; bytes_of(i)]), 0);
            let taken = loop {
                match receiver.peek().unwrap() {
                    Some(taken) if receiver.is_whole() => break taken,
                    Some(taken) => {
                        let there = receiver.long().unwrap().present_bytes;
                        assert!(there >= present && there > 0);
                        present = there;
                        assert_eq!(payload(&receiver, &taken, 1), all[..8 + present], "what is said to be there is");
                        parts += 1;
                    }
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(taken.head[1], i);
            assert_eq!(payload(&receiver, &taken, 1), all);
            receiver.release(&taken);
        }
        println!("{parts} looks at packets of which not all was there");
    });
}

/// Bodies that begin with a trial come as they are, and the receiver tells once for each what it takes to read that part, also where the ring wraps in it.
#[test]
fn what_a_trial_wrote_is_timed_once_where_it_is_read() {
    // Few slots make long pieces.
    let shared = Shared::new(4, 8192);
    let (mut sender, mut receiver) = (shared.sender(), shared.receiver());
    let class = stores::class_of(2560);
    let told = || Reading::from_word(shared.returns.readings[class].load(Ordering::Relaxed));
    for number in 0..40u64 {
        let body: Vec<u8> = (0..2560).map(|at| (at as u64 * 7 + number) as u8).collect();
        shared.returns.readings[class].store(0, Ordering::Relaxed);
        assert!(push(&mut sender, [0, number], &[number], &body).unwrap());
        let taken = receiver.peek().unwrap().unwrap();
        let first = told();
        let ordinary = Reading { ordinary: 4096, streaming: 0 };
        assert_eq!(
            first,
            match number {
                0 | 32 => ordinary,
                1 | 33 => Reading { ordinary: 0, streaming: 4096 },
                _ => Reading::default(),
            }
        );
        shared.returns.readings[class].store(0, Ordering::Relaxed);
        receiver.peek().unwrap().unwrap();
        assert_eq!(told(), Reading::default(), "it has been looked at already");
        assert_eq!(payload(&receiver, &taken, 1), said(&[number], &body));
        receiver.release(&taken);
    }
}

/// A body is read from its end while nothing lies behind it, unless it is short or has gone past the caches.
#[test]
fn what_nothing_follows_is_read_from_its_end() {
    let shared = Shared::new(16, 64 << 10);
    let (mut sender, mut receiver) = (shared.sender(), shared.receiver());
    let from_end = |receiver: &mut Receiver| {
        let taken = receiver.peek().unwrap().unwrap();
        (taken, receiver.long().unwrap().is_read_from_end())
    };
    for bytes in [FROM_END_BYTES_MIN as usize - 1, FROM_END_BYTES_MIN as usize, 8000] {
        assert!(push(&mut sender, [0; 2], &[], &vec![1; bytes]).unwrap());
        let is_long = bytes >= FROM_END_BYTES_MIN as usize;
        assert_eq!(from_end(&mut receiver).1, is_long, "{bytes} bytes alone");
        assert!(push(&mut sender, [0; 2], &[], &[2; 8]).unwrap());
        let (taken, ends) = from_end(&mut receiver);
        assert!(!ends, "{bytes} bytes and another packet");
        receiver.release(&taken);
        let taken = receiver.peek().unwrap().unwrap();
        receiver.release(&taken);
    }
    assert!(push(&mut sender, [0; 2], &[], &[1; 1000]).unwrap());
    let at = shared.slots.iter().rposition(|slot| slot.words[2].load(Ordering::Relaxed) == 1000).unwrap();
    shared.slots[at].words[2].store(1000 | STREAMED, Ordering::Relaxed);
    assert!(!from_end(&mut receiver).1 && receiver.long().unwrap().present_bytes == 1000, "past the caches");
}

/// Who waits asks for the lines of what it has written four times over, once in a wait; not for those that have not been read, nor for more than half of the ring.
#[test]
fn lines_are_asked_for_while_their_writer_waits() {
    let shared = Shared::new(1024, 16 << 10);
    let (mut sender, mut receiver) = (shared.sender(), shared.receiver());
    let owned_in_wait = |sender: &mut Sender| {
        while sender.own_ahead() {}
        std::mem::take(&mut shared.bulk.1.lock().unwrap().0)
    };
    let mut pass = |sender: &mut Sender, bytes: usize| {
        assert!(push(sender, [0, 0], &[], &vec![1; bytes]).unwrap());
        let mut at = 0;
        while let Some(taken) = receiver.peek().unwrap() {
            if receiver.is_whole() {
                receiver.release(&taken);
            }
            at += 1;
            assert!(at < 100);
        }
    };
    assert!(owned_in_wait(&mut sender).is_empty(), "nothing was written");
    pass(&mut sender, 48);
    assert!(owned_in_wait(&mut sender).is_empty(), "in the slot alone");
    pass(&mut sender, 200);
    pass(&mut sender, 64);
    let lines = |from: usize, to: usize| (from..to).step_by(64).collect::<Vec<_>>();
    assert_eq!(owned_in_wait(&mut sender), lines(320, 320 + 4 * 320), "both bodies take five lines, and twenty are asked for");
    assert!(owned_in_wait(&mut sender).is_empty(), "once in a wait");
    pass(&mut sender, 64);
    assert_eq!(owned_in_wait(&mut sender), lines(384, 384 + 4 * 64));
    for _ in 0..4 {
        pass(&mut sender, 4000);
    }
    assert_eq!(owned_in_wait(&mut sender).len(), (8 << 10) / 64, "half of the ring");
    // Nobody reads these.
    let mut bodies = 0;
    while push(&mut sender, [0, 0], &[], &[1; 1000]).unwrap() {
        bodies += 1;
    }
    assert!(bodies > 2 && owned_in_wait(&mut sender).is_empty(), "{bodies}");
}

/// A short body is demoted where its writer has waited since the last one.
#[test]
fn the_first_body_after_a_wait_is_demoted() {
    let shared = Shared::new(64, 16 << 10);
    let mut sender = shared.sender();
    let demoted = |sender: &mut Sender, bytes: usize| {
        assert!(push(sender, [0, 0], &[], &vec![1; bytes]).unwrap());
        std::mem::take(&mut shared.bulk.1.lock().unwrap().1)
    };
    assert_eq!(demoted(&mut sender, 100), 100, "the very first");
    assert_eq!(demoted(&mut sender, 100), 0, "its reader is busy with the one before");
    sender.own_ahead();
    assert_eq!(demoted(&mut sender, DEMOTED_BYTES_MAX + 1), 0, "too long");
    sender.own_ahead();
    assert_eq!([demoted(&mut sender, 60), demoted(&mut sender, 60)], [60, 0]);
}
