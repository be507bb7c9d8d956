//! What a file of costs says: which machine they are of, one line for each curve, and a checksum over all before it.
//!
//! Another machine's, another version's, a torn or a damaged file is refused as a whole, with the reason. A file is a hint
//! from outside: whatever it says, it can make transfers slower, and nothing else.

use super::{Costs, Curve, PeerKind, SIZES};
use crate::protocol::Protocol;
use std::fmt;

const FIRST_LINE: &str = "whimbrel costs 1";
/// Longest text that is parsed, bytes: five times what all curves take.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Why a text is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Longer than [`TEXT_BYTES_MAX`].
    TooLong,
    /// Another format, or an older or newer version of it.
    Version,
    /// Cut off or damaged: the checksum is missing or wrong.
    Torn,
    /// It was made on another machine, kernel, or by another version of the library.
    Foreign,
    /// Its checksum is right, but a line is not what this version writes.
    Malformed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::TooLong => "too long",
            Refused::Version => "of another version",
            Refused::Torn => "torn: its checksum is missing or wrong",
            Refused::Foreign => "of another machine, kernel or library version",
            Refused::Malformed => "malformed",
        })
    }
}

/// The text of `costs`, which were measured on `machine` (one line of what tells machines apart; line ends become spaces).
pub fn write(machine: &str, costs: &Costs) -> String {
    let mut text = format!("{FIRST_LINE}\nmachine {}\n", one_line(machine));
    for kind in PeerKind::ALL {
        for protocol in Protocol::ALL {
            if let Some(curve) = costs.curve(kind, protocol) {
                text += &format!("{} {}", kind.name(), protocol.name());
                for ps in curve.ps() {
                    text += &format!(" {ps}");
                }
                text.push('\n');
            }
        }
    }
    text += &format!("checksum {:016x}\n", checksum(text.as_bytes()));
    text
}

/// A number of `machine` for the name of its file: machines that share a home each have their own.
pub fn fingerprint(machine: &str) -> u64 {
    checksum(one_line(machine).as_bytes())
}

/// The costs that `text` holds, if it is whole and of `machine`.
///
/// Errors: why it is not taken.
pub fn parse(text: &[u8], machine: &str) -> Result<Costs, Refused> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Refused::TooLong);
    }
    let text = std::str::from_utf8(text).map_err(|_| Refused::Torn)?;
    let rest = text.strip_prefix(FIRST_LINE).and_then(|rest| rest.strip_prefix('\n')).ok_or(Refused::Version)?;
    let at = text.rfind("checksum ").ok_or(Refused::Torn)?;
    if text[at..] != format!("checksum {:016x}\n", checksum(&text.as_bytes()[..at])) {
        return Err(Refused::Torn);
    }
    let rest = &rest[..rest.len() - (text.len() - at)];
    let (first, curves) = rest.split_once('\n').ok_or(Refused::Malformed)?;
    let theirs = first.strip_prefix("machine ").ok_or(Refused::Malformed)?;
    if theirs != one_line(machine) {
        return Err(Refused::Foreign);
    }
    let mut costs = Costs::unknown();
    for line in curves.lines() {
        let (kind, protocol, curve) = parse_curve(line).ok_or(Refused::Malformed)?;
        if costs.curve(kind, protocol).is_some() {
            return Err(Refused::Malformed);
        }
        costs.set(kind, protocol, curve);
    }
    if costs.measured() { Ok(costs) } else { Err(Refused::Malformed) }
}

fn parse_curve(line: &str) -> Option<(PeerKind, Protocol, Curve)> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let kind = PeerKind::ALL.into_iter().find(|known| known.name() == kind)?;
    let protocol = words.next()?;
    let protocol = Protocol::ALL.into_iter().find(|known| known.name() == protocol)?;
    let mut ps = [0; SIZES];
    for ps in &mut ps {
        // The same number has one spelling, so that what parses is what would be written.
        let word = words.next()?;
        *ps = word.parse().ok().filter(|ps: &u64| ps.to_string() == word)?;
    }
    if words.next().is_some() {
        return None;
    }
    Some((kind, protocol, Curve::new(ps)?))
}

fn one_line(machine: &str) -> String {
    machine.replace(['\n', '\r'], " ")
}

/// The sum over everything before a text's last line. FNV-1a: against accidents, not against people.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::PS_MAX;
    use proptest::prelude::*;

    fn any_costs() -> impl Strategy<Value = Costs> {
        let curve = prop::collection::vec(1..=PS_MAX, SIZES).prop_map(|mut ps| {
            ps.sort_unstable();
            Curve::new(ps.try_into().unwrap()).unwrap()
        });
        prop::collection::vec((0..PeerKind::ALL.len(), 0..Protocol::ALL.len(), curve), 1..8).prop_map(|curves| {
            let mut costs = Costs::unknown();
            for (kind, protocol, curve) in curves {
                costs.set(PeerKind::ALL[kind], Protocol::ALL[protocol], curve);
            }
            costs
        })
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let text = write("here", &Costs::preferring(Protocol::Read));
        assert!(parse(text.as_bytes(), "here").is_ok());
        assert_eq!(parse(text.as_bytes(), "there"), Err(Refused::Foreign));
        assert_eq!(parse(text.replace("costs 1", "costs 2").as_bytes(), "here"), Err(Refused::Version));
        assert_eq!(parse(b"", "here"), Err(Refused::Version));
        assert_eq!(parse(&vec![b' '; TEXT_BYTES_MAX + 1], "here"), Err(Refused::TooLong));
        let resealed = |body: String| body.clone() + &format!("checksum {:016x}\n", checksum(body.as_bytes()));
        let body = text[..text.find("checksum").unwrap()].to_owned();
        assert_eq!(parse(resealed(body.clone()).as_bytes(), "here"), parse(text.as_bytes(), "here"));
        for wrong in [body.replace("shared-cache", "moon"), body.replace(" read ", " fly "), body.clone() + "same-core eager 1\n", body + "\n"] {
            assert_eq!(parse(resealed(wrong).as_bytes(), "here"), Err(Refused::Malformed));
        }
        let nothing = format!("{FIRST_LINE}\nmachine here\n");
        assert_eq!(parse(resealed(nothing).as_bytes(), "here"), Err(Refused::Malformed));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(costs in any_costs(), machine in ".{0,200}") {
            prop_assert_eq!(parse(write(&machine, &costs).as_bytes(), &machine), Ok(costs));
        }

        /// A file that was torn at any place, or damaged at any, is refused.
        #[test]
        fn torn_and_damaged_texts_are_refused(costs in any_costs(), cut: prop::sample::Index, at: prop::sample::Index, flip in 1..=255u8) {
            let text = write("here", &costs).into_bytes();
            prop_assert!(parse(&text[..cut.index(text.len())], "here").is_err());
            let mut damaged = text.clone();
            damaged[at.index(text.len())] ^= flip;
            prop_assert!(parse(&damaged, "here").is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes, "here");
        }
    }
}
