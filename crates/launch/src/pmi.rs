//! The client of process managers that speak PMI over a socket: Hydra (MPICH's and Intel's `mpiexec`) and Slurm.
//!
//! | | PMI-1 | PMI-2 |
//! | --- | --- | --- |
//! | message | a line, `cmd=put key=a value=b` | six characters of length, then `cmd=kvs-put;key=a;value=b;` |
//! | who speaks it | Hydra, also Slurm | Slurm's `--mpi=pmi2`, Hydra |
//!
//! Both are request and answer, one at a time. PMI-1's wire is written down in Flux RFC 13; PMI-2's in MPICH's design notes.

use crate::fields::Fields;
use crate::store::{Job, Store, late};
use crate::stream::{ANSWER_WITHIN, Stream};
use crate::wire::VALUE_BYTES_MAX;
use crate::{Error, JOB_RANKS_MAX, mapping};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Longest key that all process managers take, bytes.
const KEY_BYTES_MAX: usize = 64;
/// Length of a value that is used where the process manager does not name its own limit: PMI-2 does not tell its 1024.
const VALUE_CHARACTERS: usize = 1000;
/// Largest piece that a value is cut into, characters.
const PIECE_CHARACTERS_MAX: usize = 16 * 1024;
/// The smallest limit on values that is worked with, characters.
const PIECE_CHARACTERS_MIN: usize = 64;
const MAPPING: &str = "PMI_process_mapping";

/// Which of the two is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// A connection that has said its greeting.
pub(crate) struct Pmi {
    stream: Stream,
    version: Version,
    rank: u32,
    /// PMI-1's name of the job's store.
    store: String,
    /// Characters of a value that one put carries.
    piece_characters: usize,
}

impl Pmi {
    /// Greets the process manager behind `socket`, and learns what it knows of the job. `rank` and `size` are those of the
    /// environment where it has them; `job` is PMI-2's name of the job there, or nothing.
    ///
    /// Errors: it is gone, silent, refuses, or says what cannot be.
    pub(crate) fn hello(socket: OwnedFd, version: Version, job: Option<&str>, place: Option<(u32, u32)>) -> Result<(Pmi, Job), Error> {
        let stream = Stream::new(socket);
        let pmi = Pmi { stream, version, rank: 0, store: String::new(), piece_characters: VALUE_CHARACTERS };
        match version {
            Version::One => pmi.hello_1(place),
            Version::Two => pmi.hello_2(job, place),
        }
    }

    /// Greets over a connection that was made to a port, where `id` names this process: the answer tells rank and size.
    pub(crate) fn hello_to_port(socket: OwnedFd, id: &str) -> Result<(Pmi, Job), Error> {
        let stream = Stream::new(socket);
        let mut pmi = Pmi { stream, version: Version::One, rank: 0, store: String::new(), piece_characters: VALUE_CHARACTERS };
        pmi.send(&format!("cmd=initack pmiid={id}"))?;
        pmi.expect("initack")?;
        let (mut rank, mut size) = (None, None);
        // Each is a line of its own, in any order; `debug` comes last.
        for _ in 0..16 {
            let line = pmi.expect("set")?;
            rank = rank.or(number(&line, "rank"));
            size = size.or(number(&line, "size"));
            if line.text("debug").is_some() {
                break;
            }
        }
        let (Some(rank), Some(size)) = (rank, size) else {
            return Err(Error::new("the process manager did not say which rank this process is"));
        };
        pmi.hello_1(Some((rank, size)))
    }

    fn hello_1(mut self, place: Option<(u32, u32)>) -> Result<(Pmi, Job), Error> {
        self.send("cmd=init pmi_version=1 pmi_subversion=1")?;
        let answer = self.expect("response_to_init")?;
        if answer.number("pmi_version") != Some(1) {
            let version = answer.text("pmi_version").unwrap_or("?");
            return Err(Error::new(format!("the process manager speaks PMI {version} where PMI 1 was asked for")));
        }
        let (rank, size) = checked(place)?;
        self.rank = rank;
        let limits = self.ask("cmd=get_maxes", "maxes")?;
        // The limit counts a byte at the end.
        let value = limits.number("vallen_max").unwrap_or(0).clamp(0, PIECE_CHARACTERS_MAX as i64) as usize;
        self.piece_characters = value.saturating_sub(1);
        if self.piece_characters < PIECE_CHARACTERS_MIN || limits.number("keylen_max").unwrap_or(0) < KEY_BYTES_MAX as i64 {
            return Err(Error::new("the process manager's store takes no values that this library can use"));
        }
        self.store = self.ask("cmd=get_my_kvsname", "my_kvsname")?.text("kvsname").unwrap_or_default().to_owned();
        let appnum = number(&self.ask("cmd=get_appnum", "appnum")?, "appnum").unwrap_or(-1);
        let universe_size = number(&self.ask("cmd=get_universe_size", "universe_size")?, "size").unwrap_or(0);
        let local_ranks = self.raw(MAPPING)?.and_then(|text| local(&text, rank, size));
        Ok((self, Job { rank, size, appnum, universe_size, local_ranks }))
    }

    fn hello_2(mut self, job: Option<&str>, place: Option<(u32, u32)>) -> Result<(Pmi, Job), Error> {
        // The greeting itself is a PMI-1 line, both ways.
        self.stream.send(b"cmd=init pmi_version=2 pmi_subversion=0\n")?;
        let answer = self.stream.line(Some(Instant::now() + ANSWER_WITHIN))?;
        succeeded(&answer, "response_to_init")?;
        if answer.number("pmi_version") != Some(2) {
            let version = answer.text("pmi_version").unwrap_or("?");
            return Err(Error::new(format!("the process manager speaks PMI {version} where PMI 2 was asked for")));
        }
        let named = job.map(|job| format!("pmijobid={job};")).unwrap_or_default();
        let named = format!("{named}{}", place.map(|(rank, _)| format!("pmirank={rank};")).unwrap_or_default());
        let answer = self.ask(&format!("cmd=fullinit;{named}threaded=FALSE;"), "fullinit-response")?;
        let told = number(&answer, "rank").zip(number(&answer, "size"));
        let (rank, size) = checked(told.or(place))?;
        self.rank = rank;
        let appnum = number(&answer, "appnum").unwrap_or(-1);
        let universe_size = self.attribute("universeSize")?.and_then(|text| text.parse().ok()).unwrap_or(0);
        let local_ranks = self.attribute(MAPPING)?.and_then(|text| local(&text, rank, size));
        Ok((self, Job { rank, size, appnum, universe_size, local_ranks }))
    }

    /// What the process manager knows of the job under `key`.
    fn attribute(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.send(&format!("cmd=info-getjobattr;key={key};"))?;
        let answer = self.answer("info-getjobattr-response", Some(Instant::now() + ANSWER_WITHIN))?;
        Ok(found(&answer))
    }

    /// The text under `key`, as one put left it.
    fn raw(&mut self, key: &str) -> Result<Option<String>, Error> {
        let (question, command) = match self.version {
            Version::One => (format!("cmd=get kvsname={} key={key}", self.store), "get_result"),
            Version::Two => (format!("cmd=kvs-get;jobid=;srcid=-1;key={key};"), "kvs-get-response"),
        };
        self.send(&question)?;
        let answer = self.answer(command, Some(Instant::now() + ANSWER_WITHIN))?;
        Ok(found(&answer))
    }

    fn ask(&mut self, question: &str, command: &str) -> Result<Fields, Error> {
        self.send(question)?;
        self.expect(command)
    }

    fn send(&mut self, text: &str) -> Result<(), Error> {
        match self.version {
            Version::One => self.stream.send(format!("{text}\n").as_bytes()),
            Version::Two => self.stream.send(format!("{:6}{text}", text.len()).as_bytes()),
        }
    }

    /// The next message, which must be a good answer of the kind `command`.
    fn expect(&mut self, command: &str) -> Result<Fields, Error> {
        let answer = self.answer(command, Some(Instant::now() + ANSWER_WITHIN))?;
        succeeded(&answer, command)?;
        Ok(answer)
    }

    fn answer(&mut self, command: &str, deadline: Option<Instant>) -> Result<Fields, Error> {
        let answer = match self.version {
            Version::One => self.stream.line(deadline)?,
            Version::Two => self.stream.message(deadline)?,
        };
        if answer.command() == command {
            Ok(answer)
        } else {
            Err(Error::new(format!("the process manager said {:?} where {command:?} was due", answer.command())))
        }
    }

    fn key(rank: u32, name: &str, piece: usize) -> Result<String, Error> {
        let key = format!("whimbrel-{name}-{rank}-{piece}");
        if key.len() >= KEY_BYTES_MAX { Err(Error::new(format!("the name {name:?} is too long for PMI"))) } else { Ok(key) }
    }
}

impl Store for Pmi {
    fn put(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        for (piece, text) in pieces(value, self.piece_characters).enumerate() {
            let key = Pmi::key(self.rank, name, piece)?;
            match self.version {
                Version::One => {
                    let store = self.store.clone();
                    self.ask(&format!("cmd=put kvsname={store} key={key} value={text}"), "put_result")?;
                }
                Version::Two => {
                    self.ask(&format!("cmd=kvs-put;key={key};value={text};"), "kvs-put-response")?;
                }
            }
        }
        Ok(())
    }

    fn fence(&mut self, within: Option<Duration>) -> Result<(), Error> {
        let (question, command) = match self.version {
            Version::One => ("cmd=barrier_in", "barrier_out"),
            Version::Two => ("cmd=kvs-fence;", "kvs-fence-response"),
        };
        self.send(question)?;
        let deadline = within.map(|within| Instant::now() + within);
        let answer = self.answer(command, deadline).map_err(|error| match (deadline, within) {
            (Some(deadline), Some(within)) if Instant::now() >= deadline => late(within),
            _ => error,
        })?;
        succeeded(&answer, command)
    }

    fn get(&mut self, rank: u32, name: &str, _timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        for piece in 0.. {
            let Some(text) = self.raw(&Pmi::key(rank, name, piece)?)? else {
                return if piece == 0 { Ok(None) } else { Err(Error::new(format!("a piece of rank {rank}'s {name} is missing"))) };
            };
            let more = append(&text, &mut value).ok_or_else(|| Error::new(format!("rank {rank}'s {name} in the process manager's store is damaged")))?;
            if !more {
                break;
            }
        }
        Ok(Some(value))
    }

    fn finalize(&mut self) -> Result<(), Error> {
        match self.version {
            Version::One => self.ask("cmd=finalize", "finalize_ack").map(|_| ()),
            Version::Two => self.ask("cmd=finalize;", "finalize-response").map(|_| ()),
        }
    }

    fn abort(&mut self, code: i32, message: &str) {
        let _ = match self.version {
            Version::One => self.send(&format!("cmd=abort exitcode={code}")),
            Version::Two => {
                let message: String = message.chars().map(|c| if c.is_ascii_graphic() && c != ';' && c != '=' { c } else { '_' }).take(200).collect();
                self.send(&format!("cmd=abort;isworld=TRUE;msg={message};"))
            }
        };
    }
}

/// Cuts `value` into texts of at most `characters`: `m` where more follows, `e` at the end, then hexadecimal digits.
fn pieces(value: &[u8], characters: usize) -> impl Iterator<Item = String> {
    let each = (characters.min(PIECE_CHARACTERS_MAX) - 1) / 2;
    let count = value.len().div_ceil(each).max(1);
    (0..count).map(move |piece| {
        let bytes = &value[piece * each..value.len().min((piece + 1) * each)];
        let mark = if piece + 1 < count { 'm' } else { 'e' };
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{mark}{digits}")
    })
}

/// Appends what a piece holds; whether another follows. `None`: it is no piece, or the value grows past
/// [`VALUE_BYTES_MAX`].
pub fn append(piece: &str, value: &mut Vec<u8>) -> Option<bool> {
    let (mark, digits) = piece.as_bytes().split_first()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    // An empty piece that promises more would never end.
    if value.len() + pairs.len() > VALUE_BYTES_MAX || (*mark == b'm' && pairs.is_empty()) {
        return None;
    }
    for [high, low] in pairs {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        value.push((digit(*high)? * 16 + digit(*low)?) as u8);
    }
    match mark {
        b'm' => Some(true),
        b'e' => Some(false),
        _ => None,
    }
}

fn local(mapping: &str, rank: u32, size: u32) -> Option<Vec<u32>> {
    let nodes = mapping::nodes(mapping, size)?;
    let own = nodes[rank as usize];
    Some((0..size).filter(|other| nodes[*other as usize] == own).collect())
}

fn checked(place: Option<(u32, u32)>) -> Result<(u32, u32), Error> {
    match place {
        Some((rank, size)) if size > JOB_RANKS_MAX => Err(Error::new(format!("rank {rank} of {size} is out of range (most ranks: {JOB_RANKS_MAX})"))),
        Some((rank, size)) if rank < size => Ok((rank, size)),
        Some((rank, size)) => Err(Error::new(format!("the process manager calls this process rank {rank} of {size}"))),
        None => Err(Error::new("the process manager did not say which rank this process is")),
    }
}

fn number<T: TryFrom<i64>>(fields: &Fields, key: &str) -> Option<T> {
    fields.number(key)?.try_into().ok()
}

/// The value that an answer carries, if the key was known.
fn found(answer: &Fields) -> Option<String> {
    let known = answer.number("rc").unwrap_or(0) == 0 && answer.text("found") != Some("FALSE");
    answer.text("value").filter(|_| known).map(str::to_owned)
}

fn succeeded(answer: &Fields, command: &str) -> Result<(), Error> {
    if answer.command() == command && answer.number("rc").unwrap_or(0) == 0 {
        return Ok(());
    }
    let why = answer.text("msg").or(answer.text("errmsg")).unwrap_or("no reason given");
    let code = answer.text("rc").unwrap_or("?");
    Err(Error::new(format!("the process manager failed ({} rc={code}): {why}", answer.command())))
}

#[cfg(test)]
#[path = "pmi_tests.rs"]
mod tests;
