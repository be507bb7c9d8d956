//! What foreign process managers, and ranks through them, leave to be read: messages, maps of ranks, cards, values.

use launch::fields::{Fields, length};
use launch::host::{CARD_BYTES_MAX, Card};
use launch::wire::VALUE_BYTES_MAX;
use launch::{mapping, pmi, pmix};

/// The first byte chooses the reader, the second a size.
pub fn run(data: &[u8]) {
    let [choice, size, data @ ..] = data else { return };
    let size = u32::from(*size) + 1;
    match choice % 6 {
        0 | 1 => {
            let fields = if choice % 6 == 0 { Fields::of_line(data) } else { Fields::of_message(data) };
            if let Ok(fields) = fields {
                assert!(!fields.command().is_empty());
                let _ = (fields.number("rc"), fields.text("value"));
            }
            if let Some(head) = data.first_chunk() {
                let _ = length(head);
            }
        }
        2 => {
            if let Some(nodes) = std::str::from_utf8(data).ok().and_then(|text| mapping::nodes(text, size)) {
                assert_eq!(nodes.len(), size as usize);
            }
        }
        3 => {
            if let Ok(card) = Card::parse(data) {
                let again = card.encode();
                assert!(again.len() <= CARD_BYTES_MAX);
                assert_eq!(Card::parse(&again), Ok(card));
            }
        }
        4 => {
            if let Some(ranks) = pmix::ranks(data, 0, size) {
                assert!(ranks.is_sorted() && ranks[0] == 0 && ranks.len() <= size as usize);
            }
        }
        _ => {
            let mut value = Vec::new();
            for piece in data.split(|byte| *byte == b' ') {
                let more = std::str::from_utf8(piece).ok().and_then(|piece| pmi::append(piece, &mut value));
                assert!(value.len() <= VALUE_BYTES_MAX);
                if more != Some(true) {
                    break;
                }
            }
        }
    }
}
