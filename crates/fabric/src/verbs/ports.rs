//! Which ports of which devices can be used, and why others cannot.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use proto::reliability::MTU_BYTES_MIN;

use super::address::{MTU_BYTES_MAX, Wire};
use super::sys::{self, Device, Gid, GidKind, Port};

/// Entries of a GID table that are looked at, at most.
const GIDS_MAX: u32 = 256;

/// What is known of a port that can be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    pub wire: Wire,
    pub lid: u16,
    pub gid: Ipv6Addr,
    pub gid_index: u8,
    /// Longest datagram, bytes.
    pub mtu_bytes: u32,
    /// The network interface of its address, where it has one.
    pub interface: Option<String>,
}

impl Facts {
    /// In words, with what it is good for where that is not all.
    pub fn with_use(&self) -> String {
        let only = if self.wire == Wire::Iwarp { ", for WHIMBREL_VERBS=rc alone: it has no datagrams" } else { "" };
        format!("{self}{only}")
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.wire {
            Wire::InfiniBand => return write!(f, "InfiniBand, LID {}, GID {}, datagrams of {} bytes", self.lid, self.gid, self.mtu_bytes),
            Wire::RoceV1 => "RoCE v1",
            Wire::RoceV2 => "RoCE v2",
            Wire::Iwarp => "iWARP",
        };
        let on = self.interface.as_ref().map_or(String::new(), |interface| format!(" on {interface}"));
        if self.wire == Wire::Iwarp {
            return write!(f, "{name}{on}, {}", self.gid.to_canonical());
        }
        write!(f, "{name}{on}, GID {} at index {}, datagrams of {} bytes", self.gid, self.gid_index, self.mtu_bytes)
    }
}

/// A port, or a device that has none to speak of, and what it is good for.
#[derive(Debug)]
pub struct Found {
    pub device: String,
    pub port: u8,
    /// Words for why it cannot be used.
    pub facts: Result<(Arc<Device>, Facts), String>,
}

impl Found {
    /// As `rxe0 port 1`.
    pub fn name(&self) -> String {
        if self.port == 0 { self.device.clone() } else { format!("{} port {}", self.device, self.port) }
    }
}

/// Whether a port may be used, by its device's name, its network interface and its address; several may be allowed.
pub type Filter<'a> = dyn Fn(&[&str], IpAddr) -> bool + 'a;

/// All ports of all devices, in the system's order.
///
/// # Errors
/// Words: the library is not there, or there are no devices.
pub fn all(filter: &Filter) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    for (name, device) in sys::devices()? {
        match device {
            Err(error) => found.push(Found { device: name, port: 0, facts: Err(error.to_string()) }),
            Ok(device) => {
                let device = Arc::new(device);
                for port in 1..=device.ports {
                    let facts = if device.is_iwarp { iwarp_facts(filter, &device, port) } else { facts(&device, port) };
                    let facts = facts.and_then(|facts| match takes(filter, &device.name, &facts) {
                        true => Ok((device.clone(), facts)),
                        false => Err(format!("{facts}, which WHIMBREL_NET leaves out")),
                    });
                    found.push(Found { device: name.clone(), port, facts });
                }
            }
        }
    }
    if found.is_empty() {
        return Err(sys::NO_DEVICE.to_owned());
    }
    Ok(found)
}

/// Of iWARP, whose addresses are those of IP: the connection manager knows which of this host's lead to the device.
fn iwarp_facts(filter: &Filter, device: &Device, number: u8) -> Result<Facts, String> {
    if !device.port(number).map_err(|error| error.to_string())?.active {
        return Err("its link is down".to_owned());
    }
    let of_host = crate::udp::named_addresses().map_err(|error| error.to_string())?;
    let ips: Vec<IpAddr> = of_host.iter().map(|&(_, ip)| ip).collect();
    let own = sys::addresses_of(&device.name, &ips)?;
    let facts = |(interface, ip): &(String, IpAddr)| {
        let gid = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => *ip,
        };
        Facts { wire: Wire::Iwarp, lid: 0, gid, gid_index: 0, mtu_bytes: MTU_BYTES_MAX, interface: Some(interface.clone()) }
    };
    let all: Vec<Facts> = of_host.iter().filter(|(_, ip)| own.contains(ip)).map(facts).collect();
    let chosen = all.iter().find(|facts| takes(filter, &device.name, facts)).or(all.first());
    chosen.cloned().ok_or_else(|| "it has no IP address".to_owned())
}

fn takes(filter: &Filter, device: &str, facts: &Facts) -> bool {
    let ip = facts.gid.to_ipv4_mapped().map_or(IpAddr::V6(facts.gid), IpAddr::V4);
    filter(&[device, facts.interface.as_deref().unwrap_or(device)], ip)
}

fn facts(device: &Device, number: u8) -> Result<Facts, String> {
    let port = device.port(number).map_err(|error| error.to_string())?;
    if !port.active {
        return Err("its link is down".to_owned());
    }
    if port.mtu_bytes < MTU_BYTES_MIN {
        let hint = if port.ethernet { ": give its network interface an MTU of 2200 bytes or more, best 4200 (ip link set dev NAME mtu 4200)" } else { "" };
        return Err(format!("its longest datagram has {} bytes, and {MTU_BYTES_MIN} are needed{hint}", port.mtu_bytes));
    }
    let gids: Vec<Gid> = (0..port.gids.min(GIDS_MAX)).filter_map(|index| device.gid(number, &port, index as u8)).collect();
    let gid = best(&port, &gids).ok_or_else(|| no_gid(&device.name, number, &gids))?;
    let wire = match gid.kind {
        GidKind::InfiniBand => Wire::InfiniBand,
        GidKind::RoceV1 => Wire::RoceV1,
        GidKind::RoceV2 => Wire::RoceV2,
    };
    let lid = if port.ethernet { 0 } else { port.lid };
    Ok(Facts { wire, lid, gid: gid.gid, gid_index: gid.index, mtu_bytes: port.mtu_bytes.min(MTU_BYTES_MAX), interface: sys::interface(gid.interface) })
}

fn no_gid(device: &str, port: u8, gids: &[Gid]) -> String {
    let table: Vec<String> = gids.iter().map(|gid| format!("{} {:?} {}", gid.index, gid.kind, gid.gid)).collect();
    let table = if table.is_empty() { "empty".to_owned() } else { table.join(", ") };
    format!(
        "no entry of its GID table can be used ({table}): give its network interface an IP address (ip addr add), and look at \
         /sys/class/infiniband/{device}/ports/{port}/gids"
    )
}

/// The entry of a port's GID table that peers know it by: on an Ethernet RoCE v2 before v1, IPv4 before IPv6, and
/// addresses that are valid on one link last.
fn best(port: &Port, gids: &[Gid]) -> Option<Gid> {
    let rank = |gid: &&Gid| {
        let local = gid.gid.is_unicast_link_local();
        (gid.kind != GidKind::RoceV2, local, gid.gid.to_ipv4_mapped().is_none(), gid.index)
    };
    match port.ethernet {
        false => gids.first().copied(),
        true => gids.iter().filter(|gid| !gid.gid.is_multicast()).min_by_key(rank).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u8, kind: GidKind, text: &str) -> Gid {
        Gid { index, kind, gid: text.parse().unwrap(), interface: 0 }
    }

    /// As on `lo` with a soft RoCE device: only the second entry goes anywhere.
    #[test]
    fn the_best_gid() {
        let ethernet = Port { active: true, ethernet: true, lid: 0, mtu_bytes: 4096, message_bytes_max: 1 << 20, gids: 8 };
        let (v1, v2) = (GidKind::RoceV1, GidKind::RoceV2);
        let table = [
            gid(0, v1, "fe80::1"),
            gid(1, v2, "fe80::1"),
            gid(2, v1, "::ffff:10.0.0.1"),
            gid(3, v2, "fd00::1"),
            gid(4, v2, "::ffff:10.0.0.1"),
            gid(5, v2, "::ffff:10.0.0.2"),
        ];
        let index = |gids: &[Gid]| best(&ethernet, gids).map(|gid| gid.index);
        assert_eq!(index(&table), Some(4));
        assert_eq!(index(&table[..4]), Some(3));
        assert_eq!(index(&table[..3]), Some(1));
        assert_eq!(index(&table[..1]), Some(0));
        assert_eq!(index(&[]), None);
        let words = no_gid("rxe0", 1, &table[..1]);
        assert!(words.contains("0 RoceV1 fe80::1") && words.contains("ip addr add") && words.contains("rxe0"), "{words}");
        let infiniband = Port { ethernet: false, lid: 3, ..ethernet };
        assert_eq!(best(&infiniband, &[gid(0, GidKind::InfiniBand, "fe80::2"), gid(1, GidKind::InfiniBand, "fd00::2")]).unwrap().index, 0);
    }
}
