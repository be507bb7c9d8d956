//! Datagrams of one who sees the network and knows no key: noise, damaged, cut, spliced, repeated and foreign ones.

use crate::frame::{UDP, reseal, transport};
use crate::impair::Random;

/// Frames that are remembered to make others of.
const SEEN_MAX: usize = 256;
/// One of so many is taken up once the memory is full.
const SEEN_EVERY: u64 = 64;
const FRAME_BYTES_MAX: usize = 1400;

/// Where a frame goes: rail and host.
pub type Place = (u8, u8);

pub struct Forger {
    random: Random,
    seen: Vec<(Place, Vec<u8>)>,
    looked_at: u64,
    per_s: u64,
    /// All go to this port, and to nobody's if it is none of a job's.
    port: Option<u16>,
    started_ns: u64,
    wanted: u64,
    pub sent: u64,
}

impl Forger {
    pub fn new(seed: u64) -> Self {
        Forger { random: Random::new(seed), seen: Vec::new(), looked_at: 0, per_s: 0, port: None, started_ns: 0, wanted: 0, sent: 0 }
    }

    /// Remembers a datagram that passes.
    pub fn see(&mut self, to: Place, frame: &[u8]) {
        self.looked_at += 1;
        let full = self.seen.len() == SEEN_MAX;
        if full && !self.looked_at.is_multiple_of(SEEN_EVERY) || transport(frame).is_none_or(|found| found.protocol != UDP) {
            return;
        }
        let kept = (to, frame.to_vec());
        if full {
            let index = self.random.below(SEEN_MAX as u64) as usize;
            self.seen[index] = kept;
        } else {
            self.seen.push(kept);
        }
    }

    /// From now on, `count` in all, `per_s` in a second, to `port` instead of where they would go.
    pub fn begin(&mut self, now_ns: u64, count: u64, per_s: u64, port: Option<u16>) {
        (self.wanted, self.per_s, self.port, self.started_ns, self.sent) = (count, per_s.max(1), port, now_ns, 0);
    }

    pub fn busy(&self) -> bool {
        self.sent < self.wanted
    }

    /// How many are due, at most `most`.
    pub fn due(&self, now_ns: u64, most: u64) -> u64 {
        if self.seen.is_empty() {
            return 0;
        }
        let by_now = (now_ns - self.started_ns) as u128 * self.per_s as u128 / 1_000_000_000;
        (by_now.min(self.wanted as u128) as u64).saturating_sub(self.sent).min(most)
    }

    /// Makes one, none if nothing has been seen that it could look like.
    pub fn forge(&mut self) -> Option<(Place, Vec<u8>)> {
        let (to, mut frame) = self.any()?;
        let start = transport(&frame)?.payload;
        let payload_bytes = (frame.len() - start) as u64;
        match self.random.below(7) {
            0 => {
                let length = start + self.random.below((FRAME_BYTES_MAX - start) as u64) as usize;
                frame.resize(length, 0);
                for byte in &mut frame[start..] {
                    *byte = self.random.draw() as u8;
                }
            }
            1 => {
                for _ in 0..1 + self.random.below(8) {
                    let at = start + self.random.below(payload_bytes) as usize;
                    if let Some(byte) = frame.get_mut(at) {
                        *byte ^= 1 << self.random.below(8);
                    }
                }
            }
            2 => frame.truncate(start + self.random.below(payload_bytes) as usize),
            3 => {
                let longer = frame.len() + self.random.below(64) as usize;
                frame.resize(longer, self.random.draw() as u8);
            }
            4 => {
                let (_, other) = self.any()?;
                let at = start + self.random.below(payload_bytes) as usize;
                let tail = other.get(at..).unwrap_or(&[]);
                frame.truncate(at);
                frame.extend_from_slice(tail);
            }
            // Words that a parser may take for lengths, counts and numbers.
            5 => {
                for _ in 0..1 + self.random.below(4) {
                    let at = start + self.random.below(payload_bytes) as usize;
                    let value = [0, 1, u32::MAX, 0x7fff_ffff, 0x8000_0000, 0xffff][self.random.below(6) as usize];
                    let bytes = if self.random.chance(0.5) { value.to_le_bytes() } else { value.to_be_bytes() };
                    for (to, from) in frame[at..].iter_mut().zip(bytes) {
                        *to = from;
                    }
                }
            }
            // As it was: a repeat, often an old one.
            _ => {}
        }
        // Another sender's address or port, now and then.
        if self.random.chance(0.25) {
            frame[29] = self.random.draw() as u8;
        }
        if self.random.chance(0.25) {
            frame[start - 7] = self.random.draw() as u8;
        }
        if let Some(port) = self.port {
            frame[start - 6..start - 4].copy_from_slice(&port.to_be_bytes());
        }
        let fits = frame.len() <= FRAME_BYTES_MAX.max(start + payload_bytes as usize);
        (fits && reseal(&mut frame)).then_some((to, frame))
    }

    fn any(&mut self) -> Option<(Place, Vec<u8>)> {
        let index = self.random.below(self.seen.len() as u64) as usize;
        self.seen.get(index).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::TCP;
    use crate::frame::tests::frame_of;

    #[test]
    fn forged_frames_are_datagrams_and_few_are_what_was_sent() {
        let mut forger = Forger::new(1);
        let real: Vec<Vec<u8>> = (0..50u8).map(|i| frame_of(UDP, &vec![i; 20 * usize::from(i)])).collect();
        for frame in &real {
            forger.see((0, 2), frame);
        }
        let mut repeats = 0;
        let mut made = 0;
        for _ in 0..20_000 {
            if let Some((to, frame)) = forger.forge() {
                made += 1;
                assert_eq!(to, (0, 2));
                assert_eq!(transport(&frame).map(|found| found.end), Some(frame.len()));
                repeats += u32::from(real.iter().any(|one| one[42..] == frame[42..]));
            }
        }
        assert!(made > 18_000 && (made / 10..made / 2).contains(&repeats), "{repeats} of {made}");
    }

    #[test]
    fn as_many_are_due_as_the_rate_says() {
        let mut forger = Forger::new(1);
        forger.begin(0, 1000, 100, None);
        assert_eq!(forger.due(1_000_000_000, 1000), 0, "nothing seen yet");
        forger.see((0, 1), &frame_of(TCP, &[1; 8]));
        assert_eq!(forger.due(1_000_000_000, 1000), 0, "no datagram");
        forger.see((0, 1), &frame_of(UDP, &[1; 8]));
        assert_eq!(forger.due(1_000_000_000, 1000), 100);
        assert_eq!(forger.due(1_000_000_000, 64), 64);
        forger.sent = 100;
        assert_eq!(forger.due(1_000_000_000, 1000), 0);
        assert_eq!(forger.due(60_000_000_000, 5000), 900);
    }
}
