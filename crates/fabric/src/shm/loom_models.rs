//! Every interleaving that loom can reach, and every stale value that the memory model allows a load to return.
//!
//! `WHIMBREL_TEST_SCALE` (default 1) makes rings go round more often and allows more preemptions.

use super::area::{Cooperative, LINE_WORDS, Line, Side};
use super::requests::{Answerer, Asker, DEPTH};
use super::ring::{Bulk, Consumer, Producer, Returns, Slot};
use super::sleep::{self, SleepWord, Sleepers};
use super::slots::{Lent, Readers, Slots};
use crate::Body;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

fn scale() -> usize {
    std::env::var("WHIMBREL_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// Explores `model` with at most `preemptions` switches away from a thread that could go on, more at a larger scale.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions + scale() - 1);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// The bytes of a ring. Loom reports a write to a line that is being read, or whose reading it has not seen.
#[derive(Clone)]
struct Bytes(Arc<[UnsafeCell<[u8; 64]>]>);

struct Part {
    bytes: Bytes,
    offset: usize,
    length: usize,
}

impl Bytes {
    fn new(lines: usize) -> Bytes {
        Bytes((0..lines).map(|_| UnsafeCell::new([0; 64])).collect())
    }
}

impl Bulk for Bytes {
    type Part = Part;
    fn len(&self) -> usize {
        self.0.len() * 64
    }
    unsafe fn write(&self, offset: usize, body: &Body, from: usize, bytes: usize) {
        assert!(offset + bytes <= self.len());
        let mut copy = vec![0u8; bytes];
        // SAFETY: the copy has room for all of it.
        unsafe { body.copy_to(from, copy.as_mut_ptr(), bytes) };
        let from = copy.as_ptr();
        for i in 0..bytes {
            let at = offset + i;
            // SAFETY: `from` has `bytes` readable bytes, as the caller promises.
            self.0[at / 64].with_mut(|line| unsafe { (*line)[at % 64] = *from.add(i) });
        }
    }
    fn part(&self, offset: usize, length: usize) -> Part {
        assert!(offset + length <= self.len());
        Part { bytes: self.clone(), offset, length }
    }
}

impl Part {
    fn read(&self, out: &mut Vec<u8>) {
        self.read_some(out, self.length);
    }

    /// At most the first `bytes`.
    fn read_some(&self, out: &mut Vec<u8>, bytes: usize) {
        for at in self.offset..self.offset + self.length.min(bytes) {
            // SAFETY: loom checks that nobody writes the line meanwhile.
            out.push(self.bytes.0[at / 64].with(|line| unsafe { (*line)[at % 64] }));
        }
    }
}

type Ring = (Producer<Arc<[Slot]>, Arc<Returns>, Bytes>, Consumer<Arc<[Slot]>, Arc<Returns>, Bytes>);

/// A ring that grows from `first_lines` to `bulk_lines` when it has been used so much.
fn ring(slots: usize, first_lines: usize, bulk_lines: usize) -> Ring {
    let (slots, returns): (Arc<[Slot]>, _) = ((0..slots).map(|_| Slot::default()).collect(), Arc::new(Returns::default()));
    let bulk = Bytes::new(bulk_lines);
    let first_bytes = first_lines * 64;
    (Producer::new(slots.clone(), returns.clone(), bulk.clone(), first_bytes), Consumer::new(slots, returns, bulk, first_bytes))
}

/// What message `i` says.
fn body(i: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (i * 37 + at + 1) as u8).collect()
}

/// Sends messages of these sizes through a ring and checks each.
fn passes_through(slots: usize, bulk_lines: usize, sizes: &'static [usize], preemptions: usize) {
    passes_through_growing(slots, (bulk_lines, bulk_lines), sizes, usize::MAX, preemptions);
}

/// As that, through one that grows before message `grows_at`.
fn passes_through_growing(slots: usize, lines: (usize, usize), sizes: &'static [usize], grows_at: usize, preemptions: usize) {
    explore(preemptions, move || {
        let (mut producer, mut consumer) = ring(slots, lines.0, lines.1);
        let sender = thread::spawn(move || {
            for (i, &bytes) in sizes.iter().enumerate() {
                let data = body(i, bytes);
                let word = [i as u64 + 7];
                if i == grows_at {
                    producer.grow();
                }
                // SAFETY: `data` is readable.
                while !unsafe { producer.push([(i as u64) << 8, !(i as u64)], &word, Body::new(data.as_ptr(), bytes)) }.unwrap() {
                    thread::yield_now();
                }
                assert!(producer.credit() <= (i + 1) as u64 * 10);
            }
        });
        for (i, &bytes) in sizes.iter().enumerate() {
            let taken = loop {
                match consumer.peek().unwrap() {
                    Some(taken) if consumer.is_whole() => break taken,
                    Some(_) => {
                        let (Some(long), mut data) = (consumer.long(), Vec::new()) else { panic!("a part of a line") };
                        long.parts.0.read_some(&mut data, long.present_bytes);
                        let rest = long.present_bytes - data.len();
                        long.parts.1.read_some(&mut data, rest);
                        assert_eq!(data, body(i, bytes)[..long.present_bytes]);
                        thread::yield_now();
                    }
                    None => thread::yield_now(),
                }
            };
            assert_eq!((taken.head[0] >> 8, taken.head[1], taken.words[0]), (i as u64, !(i as u64), i as u64 + 7));
            let mut data = Vec::new();
            match consumer.long() {
                Some(long) => {
                    long.parts.0.read(&mut data);
                    long.parts.1.read(&mut data);
                }
                None => {
                    let all: Vec<u8> = taken.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    data.extend(&all[8..taken.inline_bytes]);
                }
            }
            assert_eq!(data, body(i, bytes));
            consumer.release(&taken);
            consumer.give_credit(10, 20);
        }
        assert!(consumer.peek().unwrap().is_none());
        sender.join().unwrap();
    });
}

#[test]
fn ring_goes_round_with_inline_messages() {
    // Two slots, two laps and one message of the third.
    passes_through(2, 1, &[8, 0, 40, 5, 3], 3);
}

#[test]
fn ring_goes_round_with_bodies_beside_the_slots() {
    // Four lines of bytes hold at most three of these bodies; the third is split at the end, and each lap fills the slots.
    passes_through(2, 4, &[64, 100, 128, 8, 128], 2);
}

#[test]
fn ring_shows_a_body_piece_by_piece() {
    // Of four slots a body takes two; the second body is split at the end of the bytes, between its pieces.
    passes_through(4, 8, &[192, 130, 200], 2);
}

#[test]
fn ring_tells_what_it_has_read_in_quarters() {
    // Eight slots: the sender hears of every second release only, and of bytes when two lines have come together.
    passes_through(8, 8, &[100, 8, 250, 200, 8, 64, 64], 2);
}

#[test]
fn ring_grows_while_bodies_lie_in_it() {
    // Two lines and then four: the first two bodies may lie in the small ring still; the last ones are where these were.
    passes_through_growing(4, (2, 4), &[64, 64, 128, 120, 100], 2, 2);
}

#[test]
fn ring_with_more_slots_goes_round() {
    let sizes = &[8, 0, 16, 5, 8, 1, 100, 8, 3];
    passes_through(4, 4, if scale() > 1 { sizes } else { &sizes[..7] }, 2);
}

/// A process that sleeps: a kernel that compares and waits under one lock, and heavy fences that hit the sender wherever it is.
#[derive(Default)]
struct Sleeper {
    sleeping: AtomicU64,
    futex: AtomicU32,
    bucket: Mutex<()>,
    woken: Condvar,
    /// Asks the sender's core for a fence; the sender's `interruptible` answers.
    fence_wanted: AtomicU32,
    sender_over: AtomicU32,
    /// Whether heavy fences work here. Where they do not, senders fence, or the program is wrong.
    heavy: bool,
}

impl Sleeper {
    fn new(heavy: bool) -> Arc<Sleeper> {
        Arc::new(Sleeper { heavy, ..Sleeper::default() })
    }

    fn sleep(&self, seen: u32) {
        let guard = self.bucket.lock().unwrap();
        if self.futex.load(Ordering::Relaxed) == seen {
            // A wake-up that is lost leaves this thread here for ever: loom reports a deadlock.
            drop(self.woken.wait(guard).unwrap());
        }
    }

    /// A place in the sender's program where a fence from outside may hit.
    fn interruptible(&self) {
        if self.fence_wanted.load(Ordering::Acquire) == 1 {
            fence(Ordering::SeqCst);
            self.fence_wanted.store(0, Ordering::Release);
        }
    }

    fn end_of_sender(&self) {
        self.sender_over.store(1, Ordering::Release);
    }
}

impl SleepWord for Sleeper {
    fn sleeping(&self) -> &AtomicU64 {
        &self.sleeping
    }
    fn futex(&self) -> &AtomicU32 {
        &self.futex
    }
    fn heavy_fence(&self) {
        if self.heavy {
            self.fence_wanted.store(1, Ordering::Release);
            while self.fence_wanted.load(Ordering::Acquire) == 1 && self.sender_over.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            fence(Ordering::SeqCst);
        }
    }
    fn wake_all(&self) {
        let guard = self.bucket.lock().unwrap();
        self.woken.notify_all();
        drop(guard);
    }
}

/// One side sends a message through a ring, the other arms, looks once more and sleeps.
fn message_wakes(heavy: bool, fences: bool) {
    explore(4, move || {
        let sleep_word = Sleeper::new(heavy);
        let (mut producer, mut consumer) = ring(4, 1, 1);
        let (theirs, length) = (sleep_word.clone(), 1 + scale().min(2));
        let sender = thread::spawn(move || {
            for i in 0..length {
                theirs.interruptible();
                // SAFETY: no body.
                assert!(unsafe { producer.push([0, i as u64], &[], Body::EMPTY) }.unwrap());
                if fences {
                    fence(Ordering::SeqCst);
                }
                theirs.interruptible();
                sleep::wake(&*theirs);
            }
            theirs.end_of_sender();
        });
        for i in 0..length {
            let taken = loop {
                if let Some(taken) = consumer.peek().unwrap() {
                    break taken;
                }
                let seen = sleep::arm(&*sleep_word, || ());
                if let Some(taken) = consumer.peek().unwrap() {
                    sleep::disarm(&*sleep_word);
                    break taken;
                }
                sleep_word.sleep(seen);
                sleep::disarm(&*sleep_word);
            };
            assert_eq!(taken.head[1], i as u64);
            consumer.release(&taken);
        }
        sender.join().unwrap();
    });
}

#[test]
fn message_wakes_when_senders_fence() {
    message_wakes(false, true);
}

#[test]
fn message_wakes_with_heavy_fences_alone() {
    message_wakes(true, false);
}

/// A model that cannot fail proves nothing: without any fence on the sender's side the wake-up is lost.
#[test]
#[should_panic(expected = "deadlock")]
fn without_fences_a_wake_up_is_lost() {
    message_wakes(false, false);
}

/// Two threads of one process sleep on one sleep word, each for a message of its own, and share no lock.
fn two_threads_wake(counted: bool) {
    explore(3, move || {
        let (sleep_word, sleepers) = (Sleeper::new(false), Arc::new(Sleepers::default()));
        let messages: Arc<[AtomicU32; 2]> = Arc::default();
        let wait_for = |mine: usize| {
            let (sleep_word, sleepers, messages) = (sleep_word.clone(), sleepers.clone(), messages.clone());
            move || {
                while messages[mine].load(Ordering::Acquire) == 0 {
                    sleepers.begin_sleep(1);
                    let seen = sleep::arm(&*sleep_word, || ());
                    if messages[mine].load(Ordering::Acquire) == 0 {
                        sleep_word.sleep(seen);
                    }
                    match counted {
                        true => sleepers.end_sleep(|| sleep::disarm(&*sleep_word)),
                        false => sleep::disarm(&*sleep_word),
                    }
                }
            }
        };
        let other = thread::spawn(wait_for(1));
        let (theirs, sent) = (sleep_word.clone(), messages.clone());
        let sender = thread::spawn(move || {
            for message in sent.iter() {
                message.store(1, Ordering::Release);
                fence(Ordering::SeqCst);
                sleep::wake(&*theirs);
            }
        });
        wait_for(0)();
        other.join().unwrap();
        sender.join().unwrap();
        assert!(!counted || sleepers.asleep() == 0);
    });
}

#[test]
fn both_threads_of_a_process_wake() {
    two_threads_wake(true);
}

/// Whoever disarms the sleep word while another thread sleeps there loses that one's wake-up.
#[test]
#[should_panic(expected = "deadlock")]
fn a_sleep_word_disarmed_under_another_thread_loses_its_wake_up() {
    two_threads_wake(false);
}

/// When a sleeper leaves its name for writers of lines.
#[derive(Clone, Copy, PartialEq)]
enum Note {
    Armed,
    BeforeArming,
    AfterArming,
}

/// Rank 0 and rank 1 exchange lines twice, as short collectives do; rank 0 sleeps in the second one.
fn line_wakes(heavy: bool, note: Note) {
    explore(4, move || {
        let sleep_word = Sleeper::new(heavy);
        let lines: Arc<[Line]> = (0..5).map(|_| Line::default()).collect();
        let set = |now: u64| if now % 2 == 0 { 2..4 } else { 0..2 };
        let (sleep_word_1, lines_1) = (sleep_word.clone(), lines.clone());
        let other = thread::spawn(move || {
            for now in 1..=2 {
                let (mine, sleepers) = (&lines_1[set(now)], &lines_1[4]);
                sleep_word_1.interruptible();
                mine[1].write(now, &[now * 10]);
                while !mine[0].reached(now) {
                    thread::yield_now();
                }
                if !heavy {
                    fence(Ordering::SeqCst);
                }
                sleep_word_1.interruptible();
                sleepers.take_all(|member| {
                    assert_eq!(member, 0);
                    fence(Ordering::SeqCst);
                    sleep_word_1.interruptible();
                    sleep::wake(&*sleep_word_1);
                });
            }
            sleep_word_1.end_of_sender();
        });
        lines[0].write(1, &[100]);
        while !lines[1].reached(1) {
            thread::yield_now();
        }
        let (mine, sleepers) = (&lines[set(2)], &lines[4]);
        mine[0].write(2, &[200]);
        while !mine[1].reached(2) {
            if note == Note::BeforeArming {
                sleepers.add(0);
            }
            let seen = sleep::arm(&*sleep_word, || {
                if note == Note::Armed {
                    sleepers.add(0);
                }
            });
            if note == Note::AfterArming {
                sleepers.add(0);
            }
            if !mine[1].reached(2) {
                sleep_word.sleep(seen);
            }
            sleep::disarm(&*sleep_word);
            sleepers.remove(0);
        }
        let mut payload = [0];
        mine[1].read(&mut payload);
        assert_eq!(payload, [20]);
        other.join().unwrap();
    });
}

#[test]
fn line_wakes_when_writers_fence() {
    line_wakes(false, Note::Armed);
}

#[test]
fn line_wakes_with_heavy_fences_alone() {
    line_wakes(true, Note::Armed);
}

/// A late writer of the exchange before takes the name while the flag is not up yet.
#[test]
#[should_panic(expected = "deadlock")]
fn a_name_left_before_the_flag_is_lost() {
    line_wakes(false, Note::BeforeArming);
}

/// The heavy fence comes before the name is there: nothing orders the writer's line and its look for names.
#[test]
#[should_panic(expected = "deadlock")]
fn a_name_left_after_the_fence_is_lost() {
    line_wakes(true, Note::AfterArming);
}

/// Two sets of lines in turn: nobody writes a line that somebody still has to read.
#[test]
fn lines_are_not_written_before_they_are_read() {
    const RANKS: usize = 2;
    let exchanges = 3 + scale() as u64;
    explore(4, move || {
        let lines: Arc<[Line]> = (0..2 * RANKS).map(|_| Line::default()).collect();
        let value = |rank: usize, now: u64, word: usize| now * 100 + rank as u64 * 10 + word as u64;
        let take_part = move |lines: Arc<[Line]>, me: usize| {
            for now in 1..=exchanges {
                let from = if now % 2 == 0 { RANKS } else { 0 };
                let set = &lines[from..from + RANKS];
                set[me].write(now, &std::array::from_fn::<_, LINE_WORDS, _>(|word| value(me, now, word))[..2]);
                for line in set {
                    while !line.reached(now) {
                        thread::yield_now();
                    }
                }
                for (rank, line) in set.iter().enumerate() {
                    let mut payload = [0; 2];
                    line.read(&mut payload);
                    assert_eq!(payload, [value(rank, now, 0), value(rank, now, 1)]);
                }
            }
        };
        let theirs = lines.clone();
        let other = thread::spawn(move || take_part(theirs, 1));
        take_part(lines, 0);
        other.join().unwrap();
    });
}

/// Names are taken by exactly one of several takers.
#[test]
fn sleepers_are_taken_once() {
    explore(3, || {
        let line = Arc::new(Line::default());
        line.add(3);
        line.add(70);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let line = line.clone();
                thread::spawn(move || {
                    let mut taken = Vec::new();
                    line.take_all(|member| taken.push(member));
                    taken
                })
            })
            .collect();
        let mut all: Vec<usize> = takers.into_iter().flat_map(|t| t.join().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, [3, 70]);
    });
}

/// Sender and receiver copy two messages through one descriptor; the sender's claims for the first may come late, and it cannot
/// copy the last piece of the second: the receiver hears of that before it takes the message for whole.
#[test]
fn cooperative_copies_every_piece_once() {
    const PIECES: u32 = 2;
    explore(3, || {
        let cooperative = Arc::new(Cooperative::default());
        let copied: Arc<Vec<Vec<UnsafeCell<u32>>>> = Arc::new((0..2).map(|_| (0..PIECES).map(|_| UnsafeCell::new(0)).collect()).collect());
        let copy = |copied: &Vec<Vec<UnsafeCell<u32>>>, generation: u32, piece: u32| {
            // SAFETY: loom reports a piece that two copy at once, or that is read before it is copied.
            copied[generation as usize - 1][piece as usize].with_mut(|p| unsafe { *p += 1 });
        };
        let (offered, cooperative_1, copied_1) = (Arc::new(AtomicU32::new(0)), cooperative.clone(), copied.clone());
        let offers = offered.clone();
        let sender = thread::spawn(move || {
            for generation in 1..=2 {
                while offers.load(Ordering::Acquire) < generation {
                    thread::yield_now();
                }
                while let Some(piece) = cooperative_1.claim(generation, PIECES, Side::Sender) {
                    if generation == 2 && piece == PIECES - 1 {
                        cooperative_1.fail();
                    } else {
                        copy(&copied_1, generation, piece);
                    }
                    cooperative_1.finish();
                }
                assert_eq!(cooperative_1.claim(generation, PIECES, Side::Sender), None);
            }
        });
        for generation in 1..=2 {
            cooperative.begin(generation);
            offered.store(generation, Ordering::Release);
            if let Some(piece) = cooperative.claim(generation, PIECES, Side::Receiver) {
                copy(&copied, generation, piece);
                cooperative.finish();
            }
            while cooperative.finished() < PIECES {
                match cooperative.claim(generation, PIECES, Side::Receiver) {
                    Some(piece) => {
                        copy(&copied, generation, piece);
                        cooperative.finish();
                    }
                    None => thread::yield_now(),
                }
            }
            for (i, piece) in copied[generation as usize - 1].iter().enumerate() {
                // SAFETY: as above.
                let copies = piece.with(|p| unsafe { *p });
                let missing = generation == 2 && i as u32 == PIECES - 1 && cooperative.failed();
                assert_eq!(copies, !missing as u32);
            }
        }
        sender.join().unwrap();
    });
}

/// An announced copy is begun by its sender, begun by its receiver who has found the sender's offer, or taken back: one of these, and all
/// pieces are copied once unless it was taken back; then none is.
#[test]
fn an_open_copy_is_begun_or_taken_back_once() {
    for takes_back in [false, true] {
        const PIECES: u32 = 2;
        explore(3, move || {
            let cooperative = Arc::new(Cooperative::default());
            let copied: Arc<Vec<UnsafeCell<u32>>> = Arc::new((0..PIECES).map(|_| UnsafeCell::new(0)).collect());
            cooperative.open(1);
            let share = |cooperative: &Cooperative, copied: &Vec<UnsafeCell<u32>>, side: Side| {
                let mut last = false;
                while let Some(piece) = cooperative.claim(1, PIECES, side) {
                    // SAFETY: loom reports a piece that two copy at once.
                    copied[piece as usize].with_mut(|p| unsafe { *p += 1 });
                    last |= cooperative.finish() >= PIECES;
                }
                last
            };
            let (cooperative_1, copied_1) = (cooperative.clone(), copied.clone());
            let sender = thread::spawn(move || {
                let began = cooperative_1.begin_open(1);
                (began, cooperative_1.begun(1) && share(&cooperative_1, &copied_1, Side::Sender))
            });
            let (withdrawn, last) = match takes_back {
                true => (cooperative.withdraw(1), false),
                false => {
                    cooperative.begin_open(1);
                    assert!(cooperative.begun(1));
                    (false, share(&cooperative, &copied, Side::Receiver))
                }
            };
            let (began, sender_last) = sender.join().unwrap();
            if takes_back {
                assert_ne!(withdrawn, began);
                assert_eq!(sender_last, began);
            } else {
                assert!(last != sender_last, "one side copies the last piece");
            }
            let expected = if withdrawn { 0 } else { 1 };
            // SAFETY: as above.
            assert!(copied.iter().all(|piece| piece.with(|p| unsafe { *p }) == expected));
            assert_eq!(cooperative.finished_under(1), Some(if withdrawn { 0 } else { PIECES }));
        });
    }
}

/// Bytes of a part that is longer than a line has room for, and of each member's room: for one such part and for half of a second one.
const LONG: usize = 64;
const ROOM: usize = 96;

/// Waits as a member of [`Slots`] does.
fn wait(_: usize, ready: &dyn Fn() -> bool) -> Result<(), ()> {
    while !ready() {
        thread::yield_now();
    }
    Ok(())
}

/// A member of a group that shares slots; its room is cells, so that loom reports who writes where somebody still reads.
struct Member<'a> {
    slots: Slots<'a>,
    rooms: &'a [Vec<UnsafeCell<u64>>],
    me: usize,
}

impl Member<'_> {
    fn value(number: u32, rank: usize) -> u64 {
        number as u64 * 100 + rank as u64
    }

    fn mark(number: u32) -> u64 {
        number as u64 | 7 << 32
    }

    fn bring(&self, number: u32, bytes: usize, readers: Readers) {
        let offset = self.slots.take(number, bytes, ROOM, readers, wait).unwrap();
        self.publish(number, bytes, offset);
    }

    fn publish(&self, number: u32, bytes: usize, offset: usize) {
        let (value, mark) = (Self::value(number, self.me), Self::mark(number));
        if bytes == LONG {
            for word in 0..bytes / 8 {
                // SAFETY: loom reports a word that another member reads.
                self.rooms[self.me][offset / 8 + word].with_mut(|p| unsafe { *p = value });
            }
            self.slots.publish(number, mark, offset, bytes, bytes);
        } else {
            self.slots.publish_short(number, mark, &value.to_ne_bytes()[..bytes]);
        }
    }

    fn take(&self, number: u32, rank: usize, bytes: usize) {
        while !self.slots.brought(rank, number, Self::mark(number)) {
            thread::yield_now();
        }
        let part = self.slots.read(rank, number, ROOM).unwrap();
        assert_eq!((part.len(), part.ready()), (bytes, bytes));
        let expected = Self::value(number, rank);
        if bytes == LONG {
            for word in 0..bytes / 8 {
                // SAFETY: loom reports a word that its member writes.
                self.rooms[rank][part.offset() / 8 + word].with(|p| assert_eq!(unsafe { *p }, expected));
            }
        } else {
            assert_eq!(part.words(), [expected]);
        }
    }
}

/// Runs `run` as each of so many members, with the lines and room for each of them.
fn members(ranks: usize, lines: Vec<Line>, run: impl Fn(Arc<Vec<Line>>, Arc<Vec<Vec<UnsafeCell<u64>>>>, usize) + Copy + Send + 'static) {
    let (lines, rooms) = (Arc::new(lines), Arc::new((0..ranks).map(|_| (0..ROOM / 8).map(|_| UnsafeCell::new(0)).collect()).collect::<Vec<_>>()));
    let others: Vec<_> = (1..ranks)
        .map(|me| {
            let (lines, rooms) = (lines.clone(), rooms.clone());
            thread::spawn(move || run(lines, rooms, me))
        })
        .collect();
    run(lines, rooms, 0);
    others.into_iter().for_each(|t| t.join().unwrap());
}

/// Members with `depth` lines each take part in a broadcast by the first, one by the last, a gather to the first and an allgather, one after the other.
/// `ends`: they say truly what they have ended.
fn slots(ranks: usize, depth: usize, rounds: u32, long: bool, ends: bool) {
    explore(2, move || {
        let bytes = if long { LONG } else { 8 };
        let lines = (0..ranks + ranks * depth).map(|_| Line::default()).collect();
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            let member = Member { slots: Slots::new(&lines, ranks, me), rooms: &rooms, me };
            let last = ranks - 1;
            for number in 1..=rounds {
                if !ends {
                    member.slots.end(number);
                }
                let roots = match number % 4 {
                    1 => 0..1,
                    2 => last..ranks,
                    3 => 1..ranks,
                    _ => 0..ranks,
                };
                let gathers = number % 4 == 3;
                if roots.contains(&me) {
                    member.bring(number, bytes, if gathers { Readers::One(0) } else { Readers::All });
                }
                for root in roots.filter(|root| *root != me && (!gathers || me == 0)) {
                    member.take(number, root, bytes);
                }
                member.slots.end(number);
            }
        };
        members(ranks, lines, run);
    });
}

#[test]
fn slots_of_two_are_not_written_before_they_are_read() {
    slots(2, 1, 4 + scale() as u32, false, true);
}

#[test]
fn room_of_two_is_not_written_before_it_is_read() {
    slots(2, 2, 4, true, true);
}

/// A member that says it has ended a collective while it still reads.
#[test]
#[should_panic]
fn room_that_is_ended_too_early_is_written_while_it_is_read() {
    slots(2, 1, 5, true, false);
}

/// Two members start `rounds` collectives at once, of which each brings a part to all of them, as far as there are lines and room; they take the parts in the
/// opposite order. `ends`: a member says that it has ended what it has, with all before; else it does so with the latest that it has.
fn slots_of_several_at_once(rounds: u32, ends: bool) {
    explore(2, move || {
        const DEPTH: usize = 2;
        let lines = (0..2 + 2 * DEPTH).map(|_| Line::default()).collect();
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            let member = Member { slots: Slots::new(&lines, 2, me), rooms: &rooms, me };
            let (mut under_way, mut next): (Vec<u32>, u32) = (Vec::new(), 1);
            while next <= rounds || !under_way.is_empty() {
                if next <= rounds
                    && let Ok(offset) = member.slots.try_take(next, LONG, ROOM, Readers::All)
                {
                    member.publish(next, LONG, offset);
                    under_way.push(next);
                    next += 1;
                    continue;
                }
                let here = |number: &u32| member.slots.brought_whole(1 - me, *number, Member::mark(*number));
                let Some(at) = under_way.iter().rposition(here) else {
                    thread::yield_now();
                    continue;
                };
                let number = under_way.remove(at);
                if !ends {
                    member.slots.end(number);
                }
                member.take(number, 1 - me, LONG);
                if ends && at == 0 {
                    member.slots.end(under_way.first().map_or(next - 1, |first| first - 1));
                }
            }
        };
        members(2, lines, run);
    });
}

#[test]
fn slots_of_several_at_once_are_not_written_before_they_are_read() {
    slots_of_several_at_once(3, true);
}

/// A member that says it has ended a collective and all before while it still reads.
#[test]
#[should_panic]
fn slots_of_several_at_once_that_are_ended_too_early_are_written_while_they_are_read() {
    slots_of_several_at_once(3, false);
}

/// Two members stream `words` words each to the other, `rounds` times, through a window of two, beside what has been brought before. `reads`: a member says
/// that it has read a word when it has; else it does so before.
fn streams(rounds: u32, words: usize, reads: bool) {
    const WINDOW: usize = 16;
    explore(2, move || {
        let lines = (0..2 + 2).map(|_| Line::default()).collect();
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            let (member, other) = (Member { slots: Slots::new(&lines, 2, me), rooms: &rooms, me }, 1 - me);
            let slots = &member.slots;
            for number in 1..=rounds {
                let mark = Member::mark(number);
                // What is taken as longer bytes, since loom's window is shorter than a line.
                let offset = slots.take(number, LONG, ROOM, Readers::One(other), wait).unwrap();
                let (mut sent, mut received, mut theirs) = (0, 0, None);
                while sent < words || received < words {
                    if received < words && theirs.is_none() && slots.brought(other, number, mark) {
                        theirs = Some(slots.read_stream(other, number, WINDOW, ROOM).unwrap());
                    }
                    if let Some(theirs) = theirs.as_ref().filter(|theirs| theirs.streamed() > 8 * received) {
                        assert_eq!(theirs.len(), 8 * words);
                        if !reads {
                            slots.say_streamed(number, 8 * (received + 1));
                        }
                        let expected = Member::value(number, other) + received as u64;
                        // SAFETY: loom reports a word that its member writes.
                        rooms[other][theirs.offset() / 8 + received % 2].with(|p| assert_eq!(unsafe { *p }, expected));
                        received += 1;
                        slots.say_streamed(number, 8 * received);
                    } else if sent < words && 8 * sent < WINDOW + slots.streamed(other, number) {
                        // SAFETY: loom reports a word that the other member reads.
                        rooms[me][offset / 8 + sent % 2].with_mut(|p| unsafe { *p = Member::value(number, me) + sent as u64 });
                        sent += 1;
                        if sent == 1 { slots.publish(number, mark, offset, 8 * words, 8) } else { slots.publish_more(number, 8 * sent) }
                    } else {
                        thread::yield_now();
                    }
                }
                slots.end(number);
            }
        };
        members(2, lines, run);
    });
}

#[test]
fn windows_of_streams_are_not_written_before_they_are_read() {
    streams(1, 3, true);
}

/// A member that says it has read a word before it has.
#[test]
#[should_panic]
fn windows_of_streams_that_are_read_late_are_written_while_they_are_read() {
    streams(1, 3, false);
}

/// The first of three members streams `words` words to both others through a window of two, and writes a word again once the first `waits_for` of these have
/// read it. One thread is both readers, one after the other: three have too many orders.
fn stream_to_all(words: usize, waits_for: usize) {
    const WINDOW: usize = 16;
    explore(2, move || {
        let lines = (0..3 + 3).map(|_| Line::default()).collect();
        let (number, mark) = (1, Member::mark(1));
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            if me == 0 {
                let slots = Slots::new(&lines, 3, me);
                let offset = slots.take(number, LONG, ROOM, Readers::All, wait).unwrap();
                for at in 0..words {
                    while (1..=waits_for).any(|rank| slots.streamed(rank, number) + WINDOW < 8 * (at + 1)) {
                        thread::yield_now();
                    }
                    // SAFETY: loom reports a word that another member reads.
                    rooms[0][offset / 8 + at % 2].with_mut(|p| unsafe { *p = Member::value(number, 0) + at as u64 });
                    if at == 0 { slots.publish(number, mark, offset, 8 * words, 8) } else { slots.publish_more(number, 8 * (at + 1)) }
                }
                return slots.end(number);
            }
            let readers = [1, 2].map(|reader| Slots::new(&lines, 3, reader));
            while !readers[0].brought(0, number, mark) {
                thread::yield_now();
            }
            let theirs = readers[0].read_stream(0, number, WINDOW, ROOM).unwrap();
            for at in 0..words {
                while theirs.streamed() < 8 * (at + 1) {
                    thread::yield_now();
                }
                for slots in &readers {
                    // SAFETY: loom reports a word that its member writes.
                    rooms[0][theirs.offset() / 8 + at % 2].with(|p| assert_eq!(unsafe { *p }, Member::value(number, 0) + at as u64));
                    slots.say_streamed(number, 8 * (at + 1));
                }
            }
        };
        members(2, lines, run);
    });
}

#[test]
fn the_window_of_a_stream_to_all_is_not_written_before_all_have_read() {
    stream_to_all(3, 2);
}

/// A member that waits for one of its two readers.
#[test]
#[should_panic]
fn the_window_of_a_stream_to_all_is_written_while_one_reads_that_nobody_waits_for() {
    stream_to_all(3, 1);
}

/// Two members bring a word each in every one of `rounds`, through windows of two; the first combines both in its own word, and publishes that for the second
/// time, and the other reads it. Both are a round ahead of what they read. `waits`: before a word is written again, the other member has said that it
/// has ended the round of that word.
fn in_rounds(rounds: usize, waits: bool) {
    const WINDOW: usize = 16;
    explore(2, move || {
        let lines = (0..2 + 2).map(|_| Line::default()).collect();
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            let (slots, other, number, mark) = (Slots::new(&lines, 2, me), 1 - me, 1, Member::mark(1));
            let offset = slots.take(number, LONG, ROOM, Readers::All, wait).unwrap();
            let bring = |round: usize| {
                while waits && round >= 2 && slots.streamed(other, number) < 8 * (round - 1) {
                    thread::yield_now();
                }
                // SAFETY: loom reports a word that the other member reads.
                rooms[me][offset / 8 + round % 2].with_mut(|p| unsafe { *p = Member::value(number, me) + round as u64 });
                if round == 0 { slots.publish(number, mark, offset, 8 * rounds, 8) } else { slots.publish_more(number, 8 * (round + 1)) }
            };
            bring(0);
            while !slots.brought(other, number, mark) {
                thread::yield_now();
            }
            let theirs = slots.read_stream(other, number, WINDOW, ROOM).unwrap();
            for round in 0..rounds {
                if round + 1 < rounds {
                    bring(round + 1);
                }
                while theirs.streamed() < 8 * (round + 1) {
                    thread::yield_now();
                }
                let word = theirs.offset() / 8 + round % 2;
                // The first member combines, and the other one reads the result.
                if me == 0 {
                    // SAFETY: loom reports a word that its member writes.
                    let brought = rooms[other][word].with(|p| unsafe { *p });
                    assert_eq!(brought, Member::value(number, other) + round as u64);
                    // SAFETY: as above.
                    rooms[me][offset / 8 + round % 2].with_mut(|p| unsafe { *p += brought });
                    slots.publish_second_of(number, round);
                } else {
                    while !slots.brought_second_of(other, number, round) {
                        thread::yield_now();
                    }
                    let sum = Member::value(number, 0) + Member::value(number, 1) + 2 * round as u64;
                    // SAFETY: as above.
                    rooms[other][word].with(|p| assert_eq!(unsafe { *p }, sum));
                }
                slots.say_streamed(number, 8 * (round + 1));
            }
            slots.end(number);
        };
        members(2, lines, run);
    });
}

#[test]
fn what_is_brought_in_rounds_is_not_written_before_it_is_read() {
    in_rounds(3, true);
}

/// Members that do not wait for the end of the round whose memory they write again.
#[test]
#[should_panic]
fn what_is_brought_in_rounds_that_nobody_waits_for_is_written_while_it_is_read() {
    in_rounds(3, false);
}

/// Where a member lends its memory, of so many bytes; models know it without an address.
fn lent(bytes: usize) -> Lent {
    Lent { bytes, address: 0, second_address: 0 }
}

/// Two members lend each other a word, `rounds` times, and write it again once the other has ended the collective. `waits`: they wait for that.
fn loans(rounds: u32, waits: bool) {
    explore(2, move || {
        let lines = (0..2 + 2).map(|_| Line::default()).collect();
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            let (slots, other) = (Slots::new(&lines, 2, me), 1 - me);
            for number in 1..=rounds {
                let mark = Member::mark(number);
                // SAFETY: loom reports a word that the other member reads.
                rooms[me][0].with_mut(|p| unsafe { *p = Member::value(number, me) });
                slots.take(number, 0, 0, Readers::All, wait).unwrap();
                slots.lend(number, mark, lent(8));
                wait(other, &|| slots.brought(other, number, mark)).unwrap();
                assert_eq!(slots.lent(other, number), Ok(lent(8)));
                // SAFETY: loom reports a word that its member writes.
                rooms[other][0].with(|p| assert_eq!(unsafe { *p }, Member::value(number, other)));
                assert!(!slots.withdrawn(other, number, mark));
                slots.end(number);
                if waits {
                    wait(other, &|| slots.has_ended(other, number)).unwrap();
                }
            }
        };
        members(2, lines, run);
    });
}

#[test]
fn lent_memory_is_not_written_before_it_is_read() {
    loans(3, true);
}

/// A member that leaves the collective while the other one reads its memory.
#[test]
#[should_panic]
fn lent_memory_that_is_not_waited_for_is_written_while_it_is_read() {
    loans(3, false);
}

/// Two members reduce two words in place: each combines one of them, and reads the other one where that has been combined. `second`: it waits until it has.
fn loans_in_place(second: bool) {
    explore(2, move || {
        let lines = (0..2 + 2).map(|_| Line::default()).collect();
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            let (slots, other, number) = (Slots::new(&lines, 2, me), 1 - me, 1);
            let mark = Member::mark(number);
            for (at, word) in rooms[me].iter().enumerate().take(2) {
                // SAFETY: loom reports a word that the other member reads.
                word.with_mut(|p| unsafe { *p = 10 * me as u64 + at as u64 + 1 });
            }
            slots.take(number, 0, 0, Readers::All, wait).unwrap();
            slots.lend(number, mark, lent(16));
            wait(other, &|| slots.brought(other, number, mark)).unwrap();
            // SAFETY: as above.
            let theirs = rooms[other][me].with(|p| unsafe { *p });
            // SAFETY: as above.
            rooms[me][me].with_mut(|p| unsafe { *p += theirs });
            slots.publish_second(number, mark);
            if second {
                wait(other, &|| slots.brought_second(other, number, mark)).unwrap();
            }
            // SAFETY: as above.
            let combined = rooms[other][other].with(|p| unsafe { *p });
            // SAFETY: as above.
            rooms[me][other].with_mut(|p| unsafe { *p = combined });
            slots.end(number);
            wait(other, &|| slots.has_ended(other, number)).unwrap();
            for (at, word) in rooms[me].iter().enumerate().take(2) {
                // SAFETY: as above.
                word.with(|p| assert_eq!(unsafe { *p }, 10 + 2 * (at as u64 + 1)));
            }
        };
        members(2, lines, run);
    });
}

#[test]
fn words_that_are_combined_in_place_are_read_once_they_are_combined() {
    loans_in_place(true);
}

/// A member that reads what the other one has not combined yet.
#[test]
#[should_panic]
fn words_that_are_combined_in_place_are_read_too_early() {
    loans_in_place(false);
}

/// A member that ends a collective with an error withdraws what it has lent, and its program writes there: who has read what is written then learns of that.
#[test]
fn what_was_read_of_withdrawn_memory_is_refused() {
    explore(2, || {
        let lines: Arc<Vec<Line>> = Arc::new((0..2 + 2).map(|_| Line::default()).collect());
        let memory = Arc::new(AtomicU64::new(1));
        let (theirs, written) = (lines.clone(), memory.clone());
        let lender = thread::spawn(move || {
            let slots = Slots::new(&theirs, 2, 1);
            slots.take(1, 0, 0, Readers::All, wait).unwrap();
            slots.lend(1, Member::mark(1), lent(8));
            slots.withdraw(1, Member::mark(1), false);
            written.store(2, Ordering::Relaxed);
        });
        let slots = Slots::new(&lines, 2, 0);
        wait(1, &|| slots.brought(1, 1, Member::mark(1))).unwrap();
        let read = memory.load(Ordering::Relaxed);
        assert!(read == 1 || slots.withdrawn(1, 1, Member::mark(1)));
        lender.join().unwrap();
    });
}

/// A member lends memory that the other one writes to, and withdraws it: `looks` whether the other one may be writing, and waits for it, before it writes
/// there itself.
fn written_loans(looks: bool) {
    explore(3, move || {
        let lines = (0..2 + 2).map(|_| Line::default()).collect();
        let run = move |lines: Arc<Vec<Line>>, rooms: Arc<Vec<Vec<UnsafeCell<u64>>>>, me: usize| {
            let (slots, other, number) = (Slots::new(&lines, 2, me), 1 - me, 1);
            let mark = Member::mark(number);
            slots.take(number, 0, 0, Readers::All, wait).unwrap();
            if me == 1 {
                wait(other, &|| slots.brought(other, number, mark)).unwrap();
                slots.lend(number, mark, lent(0));
                if slots.may_write(other, number, mark) {
                    // SAFETY: loom reports that the other member writes there, too.
                    rooms[other][0].with_mut(|p| unsafe { *p = 1 });
                    slots.publish_second(number, mark);
                }
                return slots.end(number);
            }
            slots.lend(number, mark, lent(8));
            slots.withdraw(number, mark, true);
            if looks && slots.brought(other, number, mark) {
                wait(other, &|| slots.brought_second(other, number, mark) || slots.has_ended(other, number)).unwrap();
            }
            // SAFETY: as above.
            rooms[me][0].with_mut(|p| unsafe { *p = 2 });
        };
        members(2, lines, run);
    });
}

#[test]
fn memory_is_withdrawn_from_who_writes_there_once_that_is_written() {
    written_loans(true);
}

/// A member that does not look whether the other one is writing.
#[test]
#[should_panic]
fn memory_that_is_withdrawn_at_once_is_written_by_both() {
    written_loans(false);
}

/// Each request is done once, by who was asked or by the asker, which has taken it back; what was done by the other came before what was taken back; and
/// nobody sees words of two requests.
#[test]
fn requests_are_answered_or_taken_back() {
    let request = |number: u64| [number, number, 2 * number, 0, 0, 0, 3 * number];
    let is_whole = |words: &[u64; LINE_WORDS]| (words[1], words[2], words[6]) == (words[0], 2 * words[0], 3 * words[0]);
    explore(3, move || {
        let lines: Arc<Vec<Line>> = Arc::new((0..DEPTH).map(|_| Line::default()).collect());
        let theirs = lines.clone();
        let other = thread::spawn(move || {
            let (mut answerer, mut done) = (Answerer::new(&theirs), Vec::new());
            for _ in 0..3 {
                let Some(words) = answerer.take() else {
                    thread::yield_now();
                    continue;
                };
                assert!(is_whole(&words), "{words:?}");
                done.push(words[0]);
                answerer.answer(&request(words[0] + 10));
            }
            done
        });
        let (mut asker, mut posted, mut back) = (Asker::new(&lines), vec![1, 2], Vec::new());
        asker.post(&request(1));
        asker.post(&request(2));
        // The next one has the number of the one that was taken back.
        if let Some(words) = asker.withdraw() {
            assert_eq!(words, request(2));
            posted[1] = 3;
            asker.post(&request(3));
        }
        while let Some(words) = asker.withdraw() {
            back.insert(0, words[0]);
        }
        let mut answered = Vec::new();
        while asker.pending() > 0 {
            match asker.answer() {
                Some(words) => {
                    assert!(is_whole(&words), "{words:?}");
                    answered.push(words[0] - 10);
                }
                None => thread::yield_now(),
            }
        }
        let done = other.join().unwrap();
        assert_eq!(done, answered);
        answered.extend(back);
        assert_eq!(answered, posted);
    });
}
