//! What goes through a connection: a head of fixed length, an envelope, and a payload.

/// Bytes of a head, and of the longest envelope: two words of a header, and six.
pub const HEAD_BYTES: usize = 24;
pub const ENVELOPE_BYTES_MAX: usize = 64;
/// Where a body lies: an address and a key.
pub const PLACE_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole message.
    Eager,
    /// A message whose body waits at its sender, in memory that may be read, or that has to be asked for.
    Request,
    /// The same, of a body that is being registered: where it may be read follows.
    Announce,
    /// The next `bytes` of such a body may be read there; without a place, no more of it will be.
    Pinned,
    /// The body of a request may be written: its next `bytes` there; without a place, no more of it may be.
    Grant,
    /// The whole body has been written.
    Written,
    /// Send me the first `bytes` of a body.
    Fetch,
    /// A part of a body, from byte `bytes` on.
    Data,
    /// The body of a request is not needed any more: it has been read, or nobody wants it.
    Done,
    /// Only what each head says.
    Credit,
    /// The same, and more headers may wait here.
    Widen,
}

const KINDS: [Kind; 11] =
    [Kind::Eager, Kind::Request, Kind::Announce, Kind::Pinned, Kind::Grant, Kind::Written, Kind::Fetch, Kind::Data, Kind::Done, Kind::Credit, Kind::Widen];

/// The first bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub kind: Kind,
    pub envelope_bytes: u8,
    /// Frames that the peer may send beside those that it could.
    pub credits: u16,
    /// The sender's number of a body.
    pub transfer: u32,
    /// Of a body: its length, how much of it is wanted, or where the payload belongs.
    pub bytes: u64,
    /// Of what the peer has left unmatched here, bytes since the start that are free again.
    pub released_bytes: u64,
}

impl Head {
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let kind = KINDS.iter().position(|&kind| kind == self.kind).unwrap_or(0);
        bytes[..4].copy_from_slice(&[kind as u8, self.envelope_bytes, self.credits.to_le_bytes()[0], self.credits.to_le_bytes()[1]]);
        bytes[4..8].copy_from_slice(&self.transfer.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.released_bytes.to_le_bytes());
        bytes
    }
}

/// A frame that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub head: Head,
    pub envelope: &'a [u8],
    pub payload: &'a [u8],
    /// Of a request, or of a piece: where it may be read.
    pub place: Option<Place>,
}

/// Where a peer may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub address: u64,
    pub key: u32,
}

impl Place {
    pub fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }
}

impl<'a> Frame<'a> {
    /// `None` where `bytes` are none.
    pub fn parse(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let number = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let head = Head {
            kind: *KINDS.get(head[0] as usize)?,
            envelope_bytes: head[1],
            credits: u16::from_le_bytes([head[2], head[3]]),
            transfer: u32::from_le_bytes(*head[4..].first_chunk()?),
            bytes: number(8)?,
            released_bytes: number(16)?,
        };
        let carries = matches!(head.kind, Kind::Eager | Kind::Request | Kind::Announce);
        let envelope_bytes = head.envelope_bytes as usize;
        if envelope_bytes > ENVELOPE_BYTES_MAX || !carries && envelope_bytes > 0 {
            return None;
        }
        let (envelope, payload) = rest.split_at_checked(envelope_bytes)?;
        let (place, payload) = match (head.kind, payload) {
            (Kind::Eager, payload) if head.bytes == payload.len() as u64 => (None, payload),
            (Kind::Data, payload) if !payload.is_empty() => (None, payload),
            (Kind::Request | Kind::Announce | Kind::Pinned | Kind::Grant, []) => (None, payload),
            (Kind::Request | Kind::Pinned | Kind::Grant, place) if place.len() == PLACE_BYTES => {
                let (address, rest) = place.split_first_chunk()?;
                (Some(Place { address: u64::from_le_bytes(*address), key: u32::from_le_bytes(*rest.first_chunk()?) }), &[][..])
            }
            (Kind::Fetch | Kind::Written | Kind::Done | Kind::Credit | Kind::Widen, []) => (None, payload),
            _ => return None,
        };
        Some(Frame { head, envelope, payload, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_back(kind in 0..KINDS.len(), credits: u16, transfer: u32, bytes: u64, released_bytes: u64, words in 0usize..9, body in proptest::collection::vec(any::<u8>(), 1..200), place: Option<(u64, u32)>) {
            let kind = KINDS[kind];
            let carries = matches!(kind, Kind::Eager | Kind::Request | Kind::Announce);
            let envelope: Vec<u8> = (0..if carries { 8 * words as u8 } else { 0 }).collect();
            let place = place.filter(|_| matches!(kind, Kind::Request | Kind::Pinned | Kind::Grant)).map(|(address, key)| Place { address, key });
            let payload = if matches!(kind, Kind::Eager | Kind::Data) { &body[..] } else { &[] };
            let bytes = if kind == Kind::Eager { payload.len() as u64 } else { bytes };
            let head = Head { kind, envelope_bytes: envelope.len() as u8, credits, transfer, bytes, released_bytes };
            let end = place.map_or(vec![], |place| place.to_bytes().to_vec());
            let sent = [&head.to_bytes()[..], &envelope, payload, &end].concat();
            prop_assert_eq!(Frame::parse(&sent), Some(Frame { head, envelope: &envelope, payload, place }));
            prop_assert_eq!(Frame::parse(&sent[..HEAD_BYTES - 1]), None);
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(frame) = Frame::parse(&bytes) {
                prop_assert!(frame.envelope.len() <= ENVELOPE_BYTES_MAX);
            }
        }

        /// A message that is cut is refused, and so is one with something behind it.
        #[test]
        fn wrong_lengths(bytes in 0usize..100, wrong in 0usize..100) {
            let head = Head { kind: Kind::Eager, envelope_bytes: 16, credits: 0, transfer: 0, bytes: bytes as u64, released_bytes: 0 };
            let sent = [&head.to_bytes()[..], &[7; 16], &vec![1; wrong]].concat();
            prop_assert_eq!(Frame::parse(&sent).is_some(), bytes == wrong);
        }
    }
}
