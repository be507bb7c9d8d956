//! Where processes are reached to make a connection, as they tell each other in the job's key-value store.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::reliable::NoCard;
use crate::verbs::address::{self, Offer, Path};

/// Of this process, or as read from a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contact {
    /// A queue pair for greetings.
    Port(Offer),
    /// Where a connection manager listens, as text `iwarp/192.0.2.2:4711`.
    Listener(SocketAddr),
}

const LISTENER: &str = "iwarp/";

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contact::Port(offer) => offer.fmt(f),
            Contact::Listener(at) => write!(f, "{LISTENER}{at}"),
        }
    }
}

impl crate::reliable::Offer for Contact {}

impl FromStr for Contact {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Contact, NoCard> {
        let Some(at) = text.strip_prefix(LISTENER) else { return Ok(Contact::Port(text.parse()?)) };
        let at: SocketAddr = at.parse().map_err(|_| NoCard)?;
        // What is valid on one link only means nothing to others.
        let is_scoped = matches!(at, SocketAddr::V6(at) if at.scope_id() != 0);
        if at.port() == 0 || at.ip().is_unspecified() || at.ip().is_multicast() || is_scoped { Err(NoCard) } else { Ok(Contact::Listener(at)) }
    }
}

/// The way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Path(Path),
    Listener(SocketAddr),
    /// The peer says so when the connection is made.
    Told,
}

impl Way {
    /// From `ours` to `theirs`, where both speak the same.
    pub fn between(ours: &Contact, theirs: &Contact) -> Option<Way> {
        match (ours, theirs) {
            (Contact::Port(ours), Contact::Port(theirs)) => Some(Way::Path(address::candidate(0, ours, theirs)?.path)),
            (Contact::Listener(ours), Contact::Listener(theirs)) => (ours.is_ipv4() == theirs.is_ipv4()).then_some(Way::Listener(*theirs)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contact(text: &str) -> Contact {
        text.parse().unwrap()
    }

    #[test]
    fn contacts() {
        for good in ["iwarp/10.0.0.1:4711", "iwarp/[fd00::1]:1", "roce2/0/::ffff:10.0.0.1/17/7/4096"] {
            assert_eq!(contact(good).to_string(), good);
        }
        for bad in
            ["", "iwarp", "iwarp/", "iwarp/10.0.0.1", "iwarp/10.0.0.1:0", "iwarp/0.0.0.0:80", "iwarp/[ff02::1]:80", "iwarp/[fe80::1%2]:80", "siw/10.0.0.1:80"]
        {
            assert_eq!(bad.parse::<Contact>(), Err(NoCard), "{bad:?}");
        }
    }

    #[test]
    fn ways() {
        let own = contact("iwarp/10.0.0.1:4711");
        assert_eq!(Way::between(&own, &contact("iwarp/10.0.0.2:80")), Some(Way::Listener("10.0.0.2:80".parse().unwrap())));
        for other in ["iwarp/[fd00::1]:80", "roce2/0/::ffff:10.0.0.1/17/7/4096"] {
            assert_eq!(Way::between(&own, &contact(other)), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text(text in "(iwarp/)?[0-9a-f:.%/\\[\\]]{0,30}") {
            if let Ok(one) = text.parse::<Contact>() {
                prop_assert_eq!(one.to_string().parse(), Ok(one));
            }
        }
    }
}
