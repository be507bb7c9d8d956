//! The file that keeps a machine's costs: whatever lies there.

use proto::costs::{PeerKind, text};
use proto::protocols::Protocol;

/// The first byte says whether the rest is taken as it is, or sealed first, so that what is behind the checksum is reached, too.
pub fn run(data: &[u8]) {
    let [choice, data @ ..] = data else { return };
    let mut file = data.to_vec();
    if choice % 2 == 1 {
        file.extend(format!("checksum {:016x}\n", text::checksum(data)).bytes());
    }
    let Ok(costs) = text::parse(&file, "here") else { return };
    for protocol in Protocol::ALL {
        for kind in PeerKind::ALL {
            if let Some(curve) = costs.curve(kind, protocol) {
                assert!(curve.ps().is_sorted() && curve.at(0) > 0 && curve.at(u64::MAX) >= curve.at(4 << 20));
            }
        }
    }
    assert_eq!(text::parse(text::write("here", &costs).as_bytes(), "here"), Ok(costs));
}
