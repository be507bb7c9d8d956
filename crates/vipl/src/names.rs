//! Which address has a name? The host's resolver answers; a name may carry the port of one process, as in `host:24800`.

use crate::status::{Refusal, Result};
use std::net::{SocketAddr, ToSocketAddrs};

/// The address number `index` of `name`. Port 0: any process of the host.
pub fn resolve(name: &str, index: u64) -> Result<[u8; 6]> {
    let (host, port) = match name.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| Refusal::NameService)?),
        None => (name, 0u16),
    };
    let found = (host, port).to_socket_addrs().map_err(|_| Refusal::NameService)?;
    let mut addresses: Vec<[u8; 4]> = found
        .filter_map(|address| match address {
            SocketAddr::V4(address) => Some(address.ip().octets()),
            SocketAddr::V6(_) => None,
        })
        .collect();
    addresses.dedup();
    let ip = addresses.get(usize::try_from(index).map_err(|_| Refusal::NameService)?).ok_or(Refusal::NameService)?;
    let mut address = [0; 6];
    address[..4].copy_from_slice(ip);
    address[4..].copy_from_slice(&port.to_be_bytes());
    Ok(address)
}

/// The name that [`resolve`] gives this address for.
pub fn name_of(address: &[u8; 6]) -> String {
    let ip = std::net::Ipv4Addr::new(address[0], address[1], address[2], address[3]);
    match u16::from_be_bytes([address[4], address[5]]) {
        0 => ip.to_string(),
        port => format!("{ip}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_answer_each_other() {
        for name in ["127.0.0.1", "127.0.0.1:24801"] {
            assert_eq!(name_of(&resolve(name, 0).unwrap()), name);
        }
        for bad in ["127.0.0.1:x", "no such name.invalid"] {
            assert_eq!(resolve(bad, 0), Err(Refusal::NameService));
        }
        assert_eq!(resolve("127.0.0.1", 7), Err(Refusal::NameService));
    }
}
