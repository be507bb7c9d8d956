//! How the roots of two groups that become connected find each other and speak (MPI-5.0 §11.9): a port is a TCP socket that listens, and its name says where
//! and holds a key that nobody can guess. A [`Conversation`] over it, or over a socket that the program gives (`MPI_Comm_join`), exchanges blocks of bytes,
//! each encrypted and authenticated with a key that is made of the port's and of what both ends have thrown.

use fabric::reliable::{JobKey, SEALED_MORE_BYTES};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the name of a port begins with.
const SCHEME: &str = "whimbrel-port-1";
/// Addresses in one name.
const ADDRESSES_MAX: usize = 8;
/// Longest name, bytes: shorter than `MPI_MAX_PORT_NAME`.
const NAME_BYTES_MAX: usize = 1000;
/// Longest block that is read, bytes.
const BLOCK_BYTES_MAX: usize = 64 << 20;
/// How long one who has connected may take to say who he is, while others wait.
const GREETING: Duration = Duration::from_secs(10);
/// How long one address of a port is tried.
const TRY: Duration = Duration::from_secs(5);
/// Between looks whether the wait has been given up.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why two groups have not met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missed {
    /// What was given is no port, or nobody listens there.
    NoPort(String),
    /// The other side did not answer in time.
    Late(String),
    /// The other side has gone, or says what cannot be.
    Broken(String),
    /// The system refuses something.
    System(String),
    /// Those that were to meet this side could not be started.
    NotStarted(String),
    /// The wait was given up by its own side.
    GivenUp,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missed::NoPort(why) | Missed::Late(why) | Missed::Broken(why) | Missed::System(why) | Missed::NotStarted(why) => f.write_str(why),
            Missed::GivenUp => f.write_str("the wait was given up"),
        }
    }
}

/// How long a side waits: until a moment, and until it is told to give up.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    pub until: Option<Instant>,
    pub given_up: &'a AtomicBool,
}

impl Patience<'_> {
    /// Waits until one of the descriptors is ready.
    fn poll(&self, descriptors: &mut [PollFd<'_>]) -> Result<(), Missed> {
        loop {
            if self.given_up.load(Ordering::Relaxed) {
                return Err(Missed::GivenUp);
            }
            let left = self.until.map_or(POLL_INTERVAL, |until| until.saturating_duration_since(Instant::now()).min(POLL_INTERVAL));
            if left.is_zero() {
                return Err(Missed::Late("the other side has not answered in time".into()));
            }
            match rustix::event::poll(descriptors, Some(&left.try_into().map_err(|_| Missed::GivenUp)?)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(Missed::System(format!("poll failed: {error}"))),
            }
        }
    }
}

/// A port that this process has opened.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
    key: JobKey,
    name: String,
}

/// What the name of a port says.
#[derive(Clone, Debug)]
pub struct Address {
    key: JobKey,
    /// All with the same port's number.
    places: Vec<SocketAddr>,
}

impl Address {
    /// `None` where `name` is no name that [`Address::name`] gives, past a limit, or written in no way that addresses are.
    pub fn parse(name: &str) -> Option<Address> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let (key, rest) = name.strip_prefix(SCHEME)?.strip_prefix('@')?.split_once('@')?;
        let (port, addresses) = rest.split_once('@')?;
        let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
        let places = addresses.split(',').map(|ip| Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port))).collect::<Option<Vec<_>>>()?;
        let key = JobKey::from_hex(key)?;
        (places.len() <= ADDRESSES_MAX).then_some(Address { key, places })
    }

    /// The name that says this.
    pub fn name(&self) -> String {
        let places: Vec<String> = self.places.iter().map(|place| place.ip().to_string()).collect();
        let port = self.places.first().map_or(0, SocketAddr::port);
        format!("{SCHEME}@{}@{port}@{}", self.key.to_hex(), places.join(","))
    }
}

fn refused(what: &str) -> impl Fn(std::io::Error) -> Missed + '_ {
    move |error| Missed::System(format!("{what}: {error}"))
}

impl Port {
    /// Opens a port of this host, which is reached at `addresses`.
    pub fn open(addresses: &[IpAddr]) -> Result<Port, Missed> {
        let listen = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
        let listener = listen.map_err(refused("cannot listen for other jobs"))?;
        listener.set_nonblocking(true).map_err(refused("cannot listen for other jobs"))?;
        let port = listener.local_addr().map_err(refused("cannot listen for other jobs"))?.port();
        let key = JobKey::random().map_err(refused("cannot get random bytes"))?;
        let places = addresses.iter().take(ADDRESSES_MAX).map(|ip| SocketAddr::new(*ip, port)).collect();
        let name = Address { key: key.clone(), places }.name();
        match Address::parse(&name) {
            Some(_) => Ok(Port { listener, key, name }),
            None => Err(Missed::System("this host has no address that other jobs could reach".into())),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for one who knows the name. Who does not, or leaves at once, is not noticed. Who has come before `patience` ends is given all of [`GREETING`],
    /// however late that was: he would not come again.
    pub fn accept(&self, patience: Patience) -> Result<Conversation, Missed> {
        loop {
            patience.poll(&mut [PollFd::new(&self.listener, PollFlags::IN)])?;
            let Ok((visitor, _)) = self.listener.accept() else { continue };
            match Conversation::begin(visitor.into(), &self.key, Patience { until: Some(Instant::now() + GREETING), ..patience }) {
                Err(Missed::GivenUp) => return Err(Missed::GivenUp),
                Err(_) => {}
                done => return done,
            }
        }
    }
}

/// Goes to the port `name`, at most until `patience` ends.
pub fn connect(name: &str, patience: Patience) -> Result<Conversation, Missed> {
    let Some(address) = Address::parse(name) else { return Err(Missed::NoPort(format!("{name:?} is no name that MPI_Open_port gave"))) };
    let mut why = String::new();
    for place in &address.places {
        let left = patience.until.map_or(TRY, |until| until.saturating_duration_since(Instant::now()).min(TRY));
        let met = match TcpStream::connect_timeout(place, left.max(Duration::from_millis(1))) {
            Ok(stream) => Conversation::begin(stream.into(), &address.key, patience),
            Err(error) => Err(Missed::NoPort(format!("nobody listens at {place}: {error}"))),
        };
        match met {
            Err(Missed::GivenUp) => return Err(Missed::GivenUp),
            Err(missed @ Missed::Late(_)) => return Err(missed),
            Err(missed) => why = missed.to_string(),
            done => return done,
        }
    }
    Err(Missed::NoPort(why))
}

/// Two roots that speak with each other. Both say as many blocks as they hear.
#[derive(Debug)]
pub struct Conversation {
    socket: OwnedFd,
    /// For what is said and for what is heard.
    out: JobKey,
    heard: JobKey,
    blocks: u64,
    first: bool,
}

impl Conversation {
    /// Over a connected stream socket, between ends that both know `key`.
    pub fn begin(socket: OwnedFd, key: &JobKey, patience: Patience) -> Result<Conversation, Missed> {
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| Missed::System(format!("cannot use the socket: {error}")))?;
        let own = JobKey::random().map_err(refused("cannot get random bytes"))?;
        let mut conversation = Conversation { socket, out: own.clone(), heard: own.clone(), blocks: 0, first: false };
        let theirs = conversation.exchange(own.bytes(), Expected::Bytes(32), patience)?;
        let theirs = JobKey::new(theirs.try_into().map_err(|_| Missed::Broken("the other side speaks another protocol".into()))?);
        if theirs.bytes() == own.bytes() {
            return Err(Missed::Broken("the other side repeats what it hears".into()));
        }
        conversation.first = own.bytes() > theirs.bytes();
        // Each direction has a key that only those can make who know the port's, and that no other conversation has.
        (conversation.out, conversation.heard) = (key.mixed(&own).mixed(&theirs), key.mixed(&theirs).mixed(&own));
        Ok(conversation)
    }

    /// As [`Conversation::begin`] over a socket that the program goes on to use, and that is known to nobody else.
    pub fn over(socket: OwnedFd, patience: Patience) -> Result<Conversation, Missed> {
        Conversation::begin(socket, &JobKey::new([0; 32]), patience)
    }

    /// Whether this end is the first of the two: exactly one is.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// Says `bytes` and hears what the other end says meanwhile.
    pub fn swap(&mut self, bytes: &[u8], patience: Patience) -> Result<Vec<u8>, Missed> {
        let numbered = [&self.blocks.to_le_bytes(), bytes].concat();
        let sealed = self.out.seal(&numbered).map_err(refused("cannot get random bytes"))?;
        if sealed.len() > BLOCK_BYTES_MAX {
            return Err(Missed::Broken(format!("{} bytes are too much for one exchange", sealed.len())));
        }
        let block = [&(sealed.len() as u32).to_le_bytes()[..], &sealed].concat();
        let heard = self.exchange(&block, Expected::Block, patience)?;
        let strange = || Missed::Broken("the other side does not know this port's key, or speaks another protocol".into());
        let opened = self.heard.open(&heard[4..]).ok_or_else(strange)?;
        match opened.split_first_chunk() {
            Some((number, rest)) if u64::from_le_bytes(*number) == self.blocks => {
                self.blocks += 1;
                Ok(rest.to_vec())
            }
            _ => Err(strange()),
        }
    }

    /// Sends `bytes` while it receives what is expected, and not a byte more: what follows is the next block's, or the program's.
    fn exchange(&mut self, mut bytes: &[u8], expected: Expected, patience: Patience) -> Result<Vec<u8>, Missed> {
        let gone = |error: Errno| Missed::Broken(format!("lost the connection to the other side: {error}"));
        let mut heard: Vec<u8> = Vec::new();
        let mut missing = expected.missing(&heard)?;
        while !bytes.is_empty() || missing > 0 {
            let mut wants = if missing > 0 { PollFlags::IN } else { PollFlags::empty() };
            wants.set(PollFlags::OUT, !bytes.is_empty());
            patience.poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), wants)])?;
            if !bytes.is_empty() {
                match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(sent) => bytes = &bytes[sent..],
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(error) => return Err(gone(error)),
                }
            }
            while missing > 0 {
                let mut piece = [0; 1 << 14];
                let most = missing.min(piece.len());
                match rustix::net::recv(&self.socket, &mut piece[..most], RecvFlags::empty()) {
                    Ok((0, _)) => return Err(Missed::Broken("the other side has closed the connection".into())),
                    Ok((count, _)) => heard.extend(&piece[..count]),
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(gone(error)),
                }
                missing = expected.missing(&heard)?;
            }
        }
        Ok(heard)
    }
}

/// What an end expects to hear.
#[derive(Clone, Copy)]
enum Expected {
    Bytes(usize),
    /// Four bytes of length, and so many more.
    Block,
}

impl Expected {
    /// How many bytes surely follow those that have come.
    fn missing(self, heard: &[u8]) -> Result<usize, Missed> {
        match (self, heard.first_chunk()) {
            (Expected::Bytes(all), _) => Ok(all - heard.len()),
            (Expected::Block, None) => Ok(4 - heard.len()),
            (Expected::Block, Some(length)) => match u32::from_le_bytes(*length) as usize {
                length if (SEALED_MORE_BYTES + 8..=BLOCK_BYTES_MAX).contains(&length) => Ok(4 + length - heard.len()),
                _ => Err(Missed::Broken("the other side speaks another protocol".into())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn soon() -> Patience<'static> {
        Patience { until: Some(Instant::now() + Duration::from_secs(30)), given_up: &GO_ON }
    }

    fn here() -> Port {
        Port::open(&["127.0.0.1".parse().unwrap()]).unwrap()
    }

    #[test]
    fn two_roots_swap_blocks_of_any_length() {
        let port = here();
        let name = port.name().to_owned();
        let other = std::thread::spawn(move || {
            let mut there = connect(&name, soon()).unwrap();
            let heard = [there.swap(&[1; 3], soon()).unwrap(), there.swap(&vec![2; 3_000_000], soon()).unwrap()];
            (there.is_first(), heard)
        });
        let mut here = port.accept(soon()).unwrap();
        let heard = [here.swap(&[], soon()).unwrap(), here.swap(&vec![4; 5_000_000], soon()).unwrap()];
        let (first, theirs) = other.join().unwrap();
        assert!(heard == [vec![1; 3], vec![2; 3_000_000]] && theirs == [vec![], vec![4; 5_000_000]]);
        assert_ne!(first, here.is_first());
    }

    #[test]
    fn who_comes_in_the_last_moment_and_is_slow_is_heard_all_the_same() {
        let port = here();
        let place = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port.listener.local_addr().unwrap().port());
        let key = port.key.clone();
        let other = std::thread::spawn(move || {
            let stream = TcpStream::connect(place).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            Conversation::begin(stream.into(), &key, soon()).map(drop)
        });
        // As one waits who looks after something else now and then.
        let met = (0..200).find_map(|_| port.accept(Patience { until: Some(Instant::now() + Duration::from_millis(50)), ..soon() }).ok());
        assert!(met.is_some());
        assert_eq!(other.join().unwrap().map_err(|missed| missed.to_string()), Ok(()));
    }

    #[test]
    fn who_does_not_know_the_key_is_sent_away() {
        let port = here();
        let stranger = JobKey::random().unwrap().to_hex();
        let forged = port.name().replace(&port.key.to_hex(), &stranger);
        assert_ne!(forged, port.name());
        let other = std::thread::spawn(move || connect(&forged, soon()).unwrap().swap(b"let me in", soon()));
        let heard = port.accept(soon()).unwrap().swap(b"who is there?", soon());
        assert!(matches!(heard, Err(Missed::Broken(_))), "{heard:?}");
        assert!(matches!(other.join().unwrap(), Err(Missed::Broken(_))));
    }

    #[test]
    fn a_dead_port_and_no_port_are_told() {
        let name = here().name().to_owned();
        assert!(matches!(connect(&name, soon()), Err(Missed::NoPort(_))));
        for wrong in ["", "tcp://h:1", &name.replace("@127", "@x127"), &name[..40], &name.replace(SCHEME, "whimbrel-port-9"), &"x".repeat(5000)] {
            assert!(matches!(connect(wrong, soon()), Err(Missed::NoPort(_))), "{wrong}");
        }
    }

    #[test]
    fn nobody_waits_longer_than_asked_or_once_given_up() {
        let port = here();
        let short = Patience { until: Some(Instant::now() + Duration::from_millis(50)), given_up: &GO_ON };
        // It is let into the system's queue, and nobody accepts.
        assert!(matches!(connect(port.name(), short), Err(Missed::Late(_))));
        let given_up = AtomicBool::new(true);
        assert_eq!(port.accept(Patience { until: None, given_up: &given_up }).unwrap_err(), Missed::GivenUp);
    }

    #[test]
    fn a_conversation_leaves_what_follows_in_the_socket() {
        let (one, other) = UnixStream::pair().unwrap();
        let kept = one.try_clone().unwrap();
        let there = std::thread::spawn(move || {
            let mut kept = other.try_clone().unwrap();
            Conversation::over(other.into(), soon()).unwrap().swap(b"a", soon()).unwrap();
            kept.write_all(b"the program's").unwrap();
            kept
        });
        assert_eq!(Conversation::over(one.into(), soon()).unwrap().swap(b"b", soon()).unwrap(), b"a");
        let _there = there.join().unwrap();
        let mut rest = [0; 13];
        kept.set_nonblocking(false).unwrap();
        std::io::Read::read_exact(&mut &kept, &mut rest).unwrap();
        assert_eq!(&rest, b"the program's");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever an end hears, it ends in an error and in time.
        #[test]
        fn no_bytes_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), length: u32) {
            let (one, mut other) = UnixStream::pair().unwrap();
            let mut said = vec![7; 32];
            said.extend(length.to_le_bytes());
            said.extend(bytes);
            other.write_all(&said).unwrap();
            other.shutdown(std::net::Shutdown::Write).unwrap();
            let met = Conversation::over(one.into(), soon()).and_then(|mut met| met.swap(b"x", soon()));
            prop_assert!(matches!(met, Err(Missed::Broken(_))));
        }

        #[test]
        fn no_name_panics(name in "\\PC*") {
            prop_assert!(Address::parse(&name).is_none());
            let _ = Address::parse(&format!("{SCHEME}@{name}"));
        }
    }
}
