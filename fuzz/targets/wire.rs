//! Headers and words of packets between processes.

use proto::wire::{Cooperative, Cts, Kind, Rts, header, parse};

/// What parses must say again what was read.
pub fn run(data: &[u8]) {
    let words: Vec<u64> = data.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
    let [first, second, rest @ ..] = words.as_slice() else { return };
    if let Some((kind, envelope)) = parse([*first, *second]) {
        assert_eq!(Kind::from_raw(kind as u8), Some(kind));
        let again = header(kind, envelope);
        assert_eq!((again[0], again[1]), (first & !0xff, *second));
    }
    for length in 0..=rest.len().min(7) {
        let rest = &rest[..length];
        if let Some(rts) = Rts::parse(rest) {
            assert_eq!(rts.to_words(), rest);
        }
        if let Some(cts) = Cts::parse(rest) {
            assert_eq!(cts.to_words(), rest);
        }
        if let Some(cooperative) = Cooperative::parse(rest) {
            assert_eq!(cooperative.to_words(), rest);
        }
    }
}
