//! Which of this host's addresses are offered.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use proto::reliability::MTU_BYTES_MIN;

use super::sys::Interface;

/// What `--net` says: interfaces by name, or networks; several with commas between, any of which may fit.
/// The default takes every interface that is up, and the loopback only where there is nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetFilter(Vec<Net>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Net {
    Interface(String),
    Network { ip: IpAddr, prefix: u8 },
}

/// Why a filter is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetError {
    pub item: String,
    pub why: &'static str,
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' names no network: {}", self.item, self.why)
    }
}

impl std::error::Error for NetError {}

/// Longest name of an interface, bytes (`IFNAMSIZ` without its end).
const NAME_BYTES_MAX: usize = 15;

impl FromStr for NetFilter {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        text.split(',').map(|item| item.trim().parse()).collect::<Result<_, _>>().map(NetFilter)
    }
}

impl FromStr for Net {
    type Err = NetError;

    fn from_str(item: &str) -> Result<Self, NetError> {
        let refused = |why| Err(NetError { item: item.to_string(), why });
        if let Some((ip, prefix)) = item.split_once('/') {
            let Ok(ip) = ip.parse::<IpAddr>() else { return refused("no address before the slash") };
            let bits = if ip.is_ipv4() { 32 } else { 128 };
            return match prefix.parse() {
                Ok(prefix) if prefix <= bits && prefix_is_plain(item) => Ok(Net::Network { ip, prefix }),
                _ => refused("the length after the slash is not one of an address"),
            };
        }
        if let Ok(ip) = item.parse::<IpAddr>() {
            return Ok(Net::Network { ip, prefix: if ip.is_ipv4() { 32 } else { 128 } });
        }
        if item.is_empty() || item.len() > NAME_BYTES_MAX || item.contains(|c: char| c.is_whitespace() || c == ':') {
            return refused("neither an interface's name nor an address with /LENGTH");
        }
        Ok(Net::Interface(item.to_string()))
    }
}

/// Digits alone: `parse` would take a sign.
fn prefix_is_plain(item: &str) -> bool {
    item.rsplit('/').next().is_some_and(|prefix| prefix.bytes().all(|b| b.is_ascii_digit()))
}

impl fmt::Display for NetFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, net) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match net {
                Net::Interface(name) => write!(f, "{comma}{name}")?,
                Net::Network { ip, prefix } => write!(f, "{comma}{ip}/{prefix}")?,
            }
        }
        Ok(())
    }
}

impl Net {
    fn takes(&self, interface: &Interface) -> bool {
        match self {
            Net::Interface(name) => *name == interface.name,
            Net::Network { ip, prefix } => same_network(*ip, interface.ip, *prefix),
        }
    }
}

/// Whether two addresses agree in their first `prefix` bits.
pub fn same_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let ((a, a_bits), (b, b_bits)) = (bits(a), bits(b));
    a_bits == b_bits && (prefix == 0 || (a ^ b) >> (128 - prefix.min(a_bits) as u32) == 0)
}

impl NetFilter {
    /// How many ways of their own `chosen` addresses are: two of one interface are one, unless they were asked for.
    pub fn rails(&self, chosen: &[Interface]) -> usize {
        let first = |at: usize| chosen[..at].iter().all(|one| one.name != chosen[at].name);
        if self.0.is_empty() { (0..chosen.len()).filter(|&at| first(at)).count() } else { chosen.len() }
    }

    /// Whether something of one of these names, or of this address, may be used; the default takes all.
    pub fn allows(&self, names: &[&str], at: IpAddr) -> bool {
        let allows = |net: &Net| match net {
            Net::Interface(name) => names.contains(&name.as_str()),
            Net::Network { ip, prefix } => same_network(*ip, at, *prefix),
        };
        self.0.is_empty() || self.0.iter().any(allows)
    }

    /// The interfaces to offer, each address once, IPv4 first on each interface; at most `max`.
    pub fn choose(&self, mut found: Vec<Interface>, max: usize) -> Vec<Interface> {
        found.retain(|one| one.datagram_bytes() >= MTU_BYTES_MIN);
        // An address that is valid on one link only means nothing to others.
        found.retain(|one| match one.ip {
            IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_unspecified(),
            IpAddr::V6(v6) => !v6.is_unicast_link_local() && !v6.is_unspecified(),
        });
        if self.0.is_empty() {
            if found.iter().any(|one| !one.loopback) {
                found.retain(|one| !one.loopback);
            }
        } else {
            found.retain(|one| self.0.iter().any(|net| net.takes(one)));
        }
        found.sort_by(|a, b| (&a.name, a.ip.is_ipv6(), a.ip).cmp(&(&b.name, b.ip.is_ipv6(), b.ip)));
        found.dedup_by(|a, b| a.ip == b.ip);
        // A second address of an interface is no second way: other interfaces come first.
        let mut chosen: Vec<Interface> = Vec::new();
        for first in [true, false] {
            for one in &found {
                let known = chosen.iter().any(|taken| taken.name == one.name);
                if chosen.len() < max && known != first && !chosen.contains(one) {
                    chosen.push(one.clone());
                }
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, ip: &str, prefix: u8) -> Interface {
        let ip = ip.parse().unwrap();
        Interface { name: name.into(), ip, prefix, loopback: name == "lo", mtu_bytes: 1500 }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface("lo", "127.0.0.1", 8),
            interface("lo", "::1", 128),
            interface("eth1", "10.1.2.3", 16),
            interface("eth0", "fd00::2", 64),
            interface("eth0", "192.0.2.2", 24),
            interface("eth0", "fe80::1", 64),
        ]
    }

    fn chosen(filter: &str, max: usize) -> Vec<String> {
        let filter = if filter.is_empty() { NetFilter::default() } else { filter.parse().unwrap() };
        filter.choose(host(), max).iter().map(|one| one.ip.to_string()).collect()
    }

    #[test]
    fn offers() {
        assert_eq!(chosen("", 8), ["192.0.2.2", "10.1.2.3", "fd00::2"]);
        assert_eq!(chosen("", 2), ["192.0.2.2", "10.1.2.3"]);
        assert_eq!(chosen("eth0", 8), ["192.0.2.2", "fd00::2"]);
        assert_eq!(chosen("lo", 8), ["127.0.0.1", "::1"]);
        assert_eq!(chosen("10.1.0.0/16", 8), ["10.1.2.3"]);
        assert_eq!(chosen("10.1.2.4", 8), Vec::<String>::new());
        assert_eq!(chosen("0.0.0.0/0", 8), ["192.0.2.2", "10.1.2.3", "127.0.0.1"]);
        assert_eq!(chosen("fd00::/8, eth1", 8), ["fd00::2", "10.1.2.3"]);
        assert_eq!(NetFilter::default().rails(&NetFilter::default().choose(host(), 8)), 2);
        let both: NetFilter = "eth0".parse().unwrap();
        assert_eq!(both.rails(&both.choose(host(), 8)), 2);
        let lone = NetFilter::default().choose(vec![interface("lo", "127.0.0.1", 8)], 4);
        assert_eq!(lone.len(), 1, "nothing but the loopback");
        let short = Interface { mtu_bytes: 1000, ..interface("tun0", "10.0.0.1", 8) };
        assert_eq!(NetFilter::default().choose(vec![short], 4), []);
    }

    #[test]
    fn allowed_by_name_or_address() {
        let allows = |filter: &str, names: &[&str], ip: &str| filter.parse::<NetFilter>().unwrap().allows(names, ip.parse().unwrap());
        assert!(NetFilter::default().allows(&["rxe0"], IpAddr::from([10, 0, 0, 1])));
        assert!(allows("eth0", &["rxe0", "eth0"], "10.0.0.1") && allows("rxe0,10.1.0.0/16", &["rxe1", "eth1"], "10.1.0.1"));
        assert!(!allows("eth0", &["rxe1", "eth1"], "10.0.0.1") && !allows("10.1.0.0/16", &["rxe1"], "fd00::1"));
    }

    #[test]
    fn refused() {
        for bad in ["", ",", "eth0,", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "x/8", "::/129", "a b", "a:b", "sixteen_letters_"] {
            assert!(bad.parse::<NetFilter>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn shown_as_read() {
        for text in ["eth0", "10.0.0.0/8", "eth0,fd00::/64"] {
            assert_eq!(text.parse::<NetFilter>().unwrap().to_string(), text);
        }
    }
}
