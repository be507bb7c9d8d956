//! What rank and launcher say to each other. One packet of a `SOCK_SEQPACKET` socket is one message: a kind byte,
//! then little-endian fields, then at most one run of bytes that fills the rest. Descriptors travel beside it.

use std::fmt;

/// Version of this protocol; both ends must speak the same.
pub const VERSION: u16 = 1;
/// Longest packet, bytes.
pub const PACKET_BYTES_MAX: usize = 36 * 1024;
/// Most descriptors beside one packet (the kernel allows 253).
pub const DESCRIPTORS_MAX: usize = 64;
/// Most ranks named in one [`Request::Fetch`].
pub const FETCH_RANKS_MAX: usize = 1024;
/// Longest text of an abort or a refusal, bytes. Longer text is cut.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Longest key of the key-value store, bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Longest value of the key-value store, bytes.
pub const VALUE_BYTES_MAX: usize = 32 * 1024;
/// Length of the job's secret, bytes.
pub const SECRET_BYTES: usize = 32;

/// From a rank to its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// First packet of a connection: this process is `rank`.
    Hello { version: u16, rank: u32, secret: [u8; SECRET_BYTES] },
    /// My segment; one descriptor travels beside it.
    Publish,
    /// Send me the segments of these ranks as they become known.
    Fetch { ranks: Vec<u32> },
    /// `MPI_Finalize` is done: from now on my exit is normal.
    Finalized,
    /// End the job with this exit status.
    Abort { code: i32, text: String },
    /// Store a value under a key. The first value stays.
    Put { key: Vec<u8>, value: Vec<u8> },
    /// Answer with the value of this key once it is known.
    Get { sequence: u32, key: Vec<u8> },
    /// Answer once every rank has said so.
    Fence { sequence: u32 },
    /// What are the ranks doing? Asked by whoever the user is, without a hello; [`Reply::Value`] answers with text.
    Where,
}

/// From the launcher to a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Answer to hello; the board's descriptor travels beside it.
    Welcome(Welcome),
    /// Answer to a hello that is not accepted, and why.
    Refused { text: String },
    /// Answer to the hello of a process that the rank itself has started: it is no rank, and a world of its own.
    Taken,
    /// Segments of these ranks: one descriptor for each travels beside it, in this order.
    Segments { ranks: Vec<u32> },
    /// Answer to [`Request::Get`].
    Value { sequence: u32, value: Vec<u8> },
    /// Answer to [`Request::Fence`].
    Fenced { sequence: u32 },
}

/// What a rank learns about its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// Ranks in the job.
    pub size: u32,
    /// Index of this rank's program among those of the command line (`MPI_APPNUM`).
    pub appnum: i32,
    /// `MPI_UNIVERSE_SIZE`.
    pub universe_size: u32,
    /// Processors that the job may use on this host.
    pub cores: u32,
}

/// Bytes that are no message of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    Short,
    TooLong,
    UnknownKind(u8),
    NotText,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short => f.write_str("packet ends too early"),
            Malformed::TooLong => f.write_str("packet is too long"),
            Malformed::UnknownKind(kind) => write!(f, "packet of unknown kind {kind}"),
            Malformed::NotText => f.write_str("packet's text is not UTF-8"),
        }
    }
}

mod kind {
    pub const HELLO: u8 = 1;
    pub const PUBLISH: u8 = 2;
    pub const FETCH: u8 = 3;
    pub const FINALIZED: u8 = 4;
    pub const ABORT: u8 = 5;
    pub const PUT: u8 = 6;
    pub const GET: u8 = 7;
    pub const FENCE: u8 = 8;
    pub const WHERE: u8 = 9;
    pub const WELCOME: u8 = 65;
    pub const REFUSED: u8 = 66;
    pub const SEGMENTS: u8 = 67;
    pub const VALUE: u8 = 68;
    pub const FENCED: u8 = 69;
    pub const TAKEN: u8 = 70;
}

impl Request {
    /// The packet that says this. Texts longer than [`TEXT_BYTES_MAX`] are cut; other limits are the caller's to keep.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Request::Hello { version, rank, secret } => {
                out.push(kind::HELLO);
                out.extend(version.to_le_bytes());
                out.extend(rank.to_le_bytes());
                out.extend(secret);
            }
            Request::Publish => out.push(kind::PUBLISH),
            Request::Where => out.push(kind::WHERE),
            Request::Fetch { ranks } => encode_ranks(&mut out, kind::FETCH, ranks),
            Request::Finalized => out.push(kind::FINALIZED),
            Request::Abort { code, text } => {
                out.push(kind::ABORT);
                out.extend(code.to_le_bytes());
                out.extend(cut(text).as_bytes());
            }
            Request::Put { key, value } => {
                out.push(kind::PUT);
                out.push(key.len() as u8);
                out.extend(key);
                out.extend(value);
            }
            Request::Get { sequence, key } => {
                out.push(kind::GET);
                out.extend(sequence.to_le_bytes());
                out.extend(key);
            }
            Request::Fence { sequence } => {
                out.push(kind::FENCE);
                out.extend(sequence.to_le_bytes());
            }
        }
        out
    }

    /// Reads one whole packet; anything missing, left over or past a limit is an error.
    pub fn parse(packet: &[u8]) -> Result<Request, Malformed> {
        let mut reader = Reader::new(packet)?;
        let request = match reader.u8()? {
            kind::HELLO => Request::Hello { version: reader.u16()?, rank: reader.u32()?, secret: reader.array()? },
            kind::PUBLISH => Request::Publish,
            kind::WHERE => Request::Where,
            kind::FETCH => Request::Fetch { ranks: reader.ranks(FETCH_RANKS_MAX)? },
            kind::FINALIZED => Request::Finalized,
            kind::ABORT => Request::Abort { code: reader.u32()? as i32, text: reader.text()? },
            kind::PUT => {
                let key_bytes = usize::from(reader.u8()?);
                let key = reader.take(key_bytes)?.to_vec();
                Request::Put { key, value: reader.rest(VALUE_BYTES_MAX)?.to_vec() }
            }
            kind::GET => Request::Get { sequence: reader.u32()?, key: reader.rest(KEY_BYTES_MAX)?.to_vec() },
            kind::FENCE => Request::Fence { sequence: reader.u32()? },
            other => return Err(Malformed::UnknownKind(other)),
        };
        reader.end(request)
    }
}

impl Reply {
    /// The packet that says this. Texts longer than [`TEXT_BYTES_MAX`] are cut; other limits are the caller's to keep.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Reply::Welcome(welcome) => {
                out.push(kind::WELCOME);
                out.extend(welcome.size.to_le_bytes());
                out.extend(welcome.appnum.to_le_bytes());
                out.extend(welcome.universe_size.to_le_bytes());
                out.extend(welcome.cores.to_le_bytes());
            }
            Reply::Refused { text } => {
                out.push(kind::REFUSED);
                out.extend(cut(text).as_bytes());
            }
            Reply::Taken => out.push(kind::TAKEN),
            Reply::Segments { ranks } => encode_ranks(&mut out, kind::SEGMENTS, ranks),
            Reply::Value { sequence, value } => {
                out.push(kind::VALUE);
                out.extend(sequence.to_le_bytes());
                out.extend(value);
            }
            Reply::Fenced { sequence } => {
                out.push(kind::FENCED);
                out.extend(sequence.to_le_bytes());
            }
        }
        out
    }

    /// Reads one whole packet; anything missing, left over or past a limit is an error.
    pub fn parse(packet: &[u8]) -> Result<Reply, Malformed> {
        let mut reader = Reader::new(packet)?;
        let reply = match reader.u8()? {
            kind::WELCOME => Reply::Welcome(Welcome { size: reader.u32()?, appnum: reader.u32()? as i32, universe_size: reader.u32()?, cores: reader.u32()? }),
            kind::REFUSED => Reply::Refused { text: reader.text()? },
            kind::TAKEN => Reply::Taken,
            kind::SEGMENTS => Reply::Segments { ranks: reader.ranks(DESCRIPTORS_MAX)? },
            kind::VALUE => Reply::Value { sequence: reader.u32()?, value: reader.rest(VALUE_BYTES_MAX)?.to_vec() },
            kind::FENCED => Reply::Fenced { sequence: reader.u32()? },
            other => return Err(Malformed::UnknownKind(other)),
        };
        reader.end(reply)
    }
}

fn encode_ranks(out: &mut Vec<u8>, kind: u8, ranks: &[u32]) {
    out.push(kind);
    out.extend(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
}

/// `text` cut to [`TEXT_BYTES_MAX`] at a character's border.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>, Malformed> {
        if bytes.len() > PACKET_BYTES_MAX { Err(Malformed::TooLong) } else { Ok(Reader { bytes }) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.bytes.split_at_checked(length).ok_or(Malformed::Short)?;
        self.bytes = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.bytes.split_first_chunk().ok_or(Malformed::Short)?;
        self.bytes = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn rest(&mut self, length_max: usize) -> Result<&'a [u8], Malformed> {
        if self.bytes.len() > length_max { Err(Malformed::TooLong) } else { self.take(self.bytes.len()) }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.rest(TEXT_BYTES_MAX)?.to_vec()).map_err(|_| Malformed::NotText)
    }

    fn ranks(&mut self, count_max: usize) -> Result<Vec<u32>, Malformed> {
        let (words, []) = self.rest(count_max * 4)?.as_chunks::<4>() else { return Err(Malformed::Short) };
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn end<T>(self, value: T) -> Result<T, Malformed> {
        if self.bytes.is_empty() { Ok(value) } else { Err(Malformed::TooLong) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(length_max: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..=length_max)
    }

    fn ranks() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(any::<u32>(), 0..=DESCRIPTORS_MAX)
    }

    fn request() -> impl Strategy<Value = Request> {
        prop_oneof![
            any::<(u16, u32, [u8; SECRET_BYTES])>().prop_map(|(version, rank, secret)| Request::Hello { version, rank, secret }),
            Just(Request::Publish),
            Just(Request::Where),
            ranks().prop_map(|ranks| Request::Fetch { ranks }),
            Just(Request::Finalized),
            (any::<i32>(), ".{0,50}").prop_map(|(code, text)| Request::Abort { code, text }),
            (bytes(KEY_BYTES_MAX), bytes(100)).prop_map(|(key, value)| Request::Put { key, value }),
            (any::<u32>(), bytes(KEY_BYTES_MAX)).prop_map(|(sequence, key)| Request::Get { sequence, key }),
            any::<u32>().prop_map(|sequence| Request::Fence { sequence }),
        ]
    }

    fn reply() -> impl Strategy<Value = Reply> {
        prop_oneof![
            any::<(u32, i32, u32, u32)>().prop_map(|(size, appnum, universe_size, cores)| Reply::Welcome(Welcome { size, appnum, universe_size, cores })),
            ".{0,50}".prop_map(|text| Reply::Refused { text }),
            ranks().prop_map(|ranks| Reply::Segments { ranks }),
            (any::<u32>(), bytes(100)).prop_map(|(sequence, value)| Reply::Value { sequence, value }),
            any::<u32>().prop_map(|sequence| Reply::Fenced { sequence }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_survives_the_wire(request in request()) {
            prop_assert_eq!(Request::parse(&request.encode()), Ok(request));
        }

        #[test]
        fn a_reply_survives_the_wire(reply in reply()) {
            prop_assert_eq!(Reply::parse(&reply.encode()), Ok(reply));
        }

        #[test]
        fn any_bytes_parse_to_what_they_encode_or_not_at_all(packet in bytes(300)) {
            if let Ok(request) = Request::parse(&packet) {
                prop_assert_eq!(request.encode(), packet.clone());
            }
            if let Ok(reply) = Reply::parse(&packet) {
                prop_assert_eq!(reply.encode(), packet);
            }
        }
    }

    #[test]
    fn limits_are_kept() {
        assert_eq!(Request::parse(&[]), Err(Malformed::Short));
        assert_eq!(Request::parse(&[200]), Err(Malformed::UnknownKind(200)));
        assert_eq!(Request::parse(&[kind::PUBLISH, 0]), Err(Malformed::TooLong));
        assert_eq!(Request::parse(&vec![kind::PUT; PACKET_BYTES_MAX + 1]), Err(Malformed::TooLong));
        assert_eq!(Request::parse(&[kind::FETCH, 1, 0, 0]), Err(Malformed::Short));
        let many = Request::Fetch { ranks: vec![0; FETCH_RANKS_MAX + 1] };
        assert_eq!(Request::parse(&many.encode()), Err(Malformed::TooLong));
        let long = "é".repeat(TEXT_BYTES_MAX);
        let Ok(Request::Abort { text, .. }) = Request::parse(&Request::Abort { code: 1, text: long }.encode()) else {
            panic!("a long text is cut, not refused")
        };
        assert_eq!(text.len(), TEXT_BYTES_MAX);
        assert!(Request::parse(&[&[kind::ABORT, 0, 0, 0, 0][..], &[0xff]].concat()) == Err(Malformed::NotText));
    }
}
