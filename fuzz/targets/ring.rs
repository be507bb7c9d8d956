//! A ring whose memory a peer may write as it likes, between ordinary sends and receives.

use fabric::Body;
use fabric::shm::ring::{Bulk, Consumer, INLINE_BYTES, Producer, Returns, Slot, WORDS_WITH_BULK};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 8;
const BULK_BYTES: usize = 512;

#[derive(Clone)]
struct Bytes(Rc<RefCell<[u8; BULK_BYTES]>>);

impl Bulk for Bytes {
    type Part = Vec<u8>;
    fn len(&self) -> usize {
        BULK_BYTES
    }
    unsafe fn write(&self, offset: usize, body: &Body, from: usize, bytes: usize) {
        let place = &mut self.0.borrow_mut()[offset..offset + bytes];
        // SAFETY: the place has that many bytes.
        unsafe { body.copy_to(from, place.as_mut_ptr(), bytes) };
    }
    fn part(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.0.borrow()[offset..offset + bytes].to_vec()
    }
}

/// The lines of a ring: eight slots and the receiver's counters.
#[repr(C, align(64))]
struct Lines([AtomicU64; 8 * (SLOTS + 1)]);

/// Each step is nine bytes: what to do, and a word.
pub fn run(data: &[u8]) {
    let lines = Lines([const { AtomicU64::new(0) }; 8 * (SLOTS + 1)]);
    let start: *const AtomicU64 = lines.0.as_ptr();
    // SAFETY: a slot and the counters are lines of eight atomics each, aligned as a line.
    let (slots, returns) = unsafe { (std::slice::from_raw_parts(start.cast::<Slot>(), SLOTS), &*start.add(8 * SLOTS).cast::<Returns>()) };
    let bytes = Bytes(Rc::new(RefCell::new([0; BULK_BYTES])));
    let mut sender = Producer::new(slots, returns, bytes.clone(), BULK_BYTES);
    let mut receiver = Consumer::new(slots, returns, bytes, BULK_BYTES);
    let body = [7u8; BULK_BYTES / 2];
    for step in data.chunks_exact(9) {
        let value = u64::from_le_bytes(step[1..].try_into().unwrap());
        match step[0] {
            place @ 0..72 => lines.0[place as usize].store(value, Ordering::Relaxed),
            72..160 => {
                let length = (value as usize) % (body.len() + 1);
                let words = &[value; WORDS_WITH_BULK][..(value >> 32) as usize % (WORDS_WITH_BULK + 1)];
                // SAFETY: the array is readable.
                let _ = unsafe { sender.push([value, !value], words, Body::new(body.as_ptr(), length)) };
            }
            160..250 => {
                if let Ok(Some(taken)) = receiver.peek() {
                    assert!(taken.inline_bytes <= INLINE_BYTES);
                    assert!(receiver.long().is_none_or(|long| long.parts.0.len() + long.parts.1.len() <= BULK_BYTES / 2));
                    receiver.release(&taken);
                }
            }
            _ => {
                receiver.give_credit(value >> 32, 100);
                sender.credit();
            }
        }
    }
}
