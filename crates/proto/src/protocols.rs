//! Protocols as records: each says its name, when it applies and what it would cost; the cheapest that applies is taken.

/// What a fabric can do, as far as the choice of a protocol needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Largest message that goes with its header, bytes.
    pub eager_bytes_max: u64,
    /// The receiver can read the sender's memory.
    pub remote_read: bool,
    /// Both sides can copy, and share a descriptor of what is left to do.
    pub cooperative_copy: bool,
}

/// Measured costs, ns and ns per KiB. Defaults are of one machine and are replaced by measurements.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// One packet there, seen by a waiting peer.
    pub packet_ns: f64,
    /// Copying into and out of a shared ring.
    pub ring_copy_ns_per_kib: f64,
    /// Starting a read of the peer's memory.
    pub read_start_ns: f64,
    pub read_ns_per_kib: f64,
    /// Extra cost of sharing one copy between two.
    pub cooperative_start_ns: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs { packet_ns: 200.0, ring_copy_ns_per_kib: 60.0, read_start_ns: 900.0, read_ns_per_kib: 55.0, cooperative_start_ns: 2500.0 }
    }
}

/// A message about to be transferred, after matching.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub bytes: u64,
    /// Both buffers lie in one piece, or in pieces long enough to be copied straight.
    pub contiguous: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// With the header.
    Eager,
    /// The receiver reads the sender's memory.
    Read,
    /// Both claim pieces and copy them.
    Cooperative,
    /// Piece by piece through the fabric's own buffers.
    Pipelined,
}

/// A protocol as a record.
pub struct Record {
    pub protocol: Protocol,
    pub name: &'static str,
    pub applies: fn(&Abilities, &Transfer) -> bool,
    pub cost_ns: fn(&Costs, &Transfer) -> f64,
}

fn kib(transfer: &Transfer) -> f64 {
    transfer.bytes as f64 / 1024.0
}

/// The ways in which a matched message may be fetched.
pub const RENDEZVOUS: [Record; 3] = [
    Record {
        protocol: Protocol::Read,
        name: "read",
        applies: |a, t| a.remote_read && t.contiguous,
        cost_ns: |c, t| c.read_start_ns + c.read_ns_per_kib * kib(t) + c.packet_ns,
    },
    Record {
        protocol: Protocol::Cooperative,
        name: "cooperative",
        applies: |a, t| a.remote_read && a.cooperative_copy && t.contiguous,
        cost_ns: |c, t| c.cooperative_start_ns + c.read_start_ns + c.read_ns_per_kib * kib(t) / 2.0 + 2.0 * c.packet_ns,
    },
    Record {
        protocol: Protocol::Pipelined,
        name: "pipelined",
        applies: |_, _| true,
        cost_ns: |c, t| 2.0 * c.packet_ns + c.ring_copy_ns_per_kib * kib(t) * 2.0,
    },
];

/// The cheapest record that applies. There is always one: `pipelined` needs nothing.
pub fn choose(abilities: &Abilities, costs: &Costs, transfer: &Transfer) -> &'static Record {
    let mut best = &RENDEZVOUS[2];
    let mut best_ns = (best.cost_ns)(costs, transfer);
    for record in RENDEZVOUS.iter().filter(|r| (r.applies)(abilities, transfer)) {
        let cost_ns = (record.cost_ns)(costs, transfer);
        if cost_ns < best_ns {
            (best, best_ns) = (record, cost_ns);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Abilities = Abilities { eager_bytes_max: 4096, remote_read: true, cooperative_copy: true };

    #[test]
    fn falls_back_to_what_needs_nothing() {
        let nothing = Abilities { remote_read: false, cooperative_copy: false, ..ALL };
        for bytes in [0, 1, 1 << 20, 1 << 40] {
            for contiguous in [false, true] {
                assert_eq!(choose(&nothing, &Costs::default(), &Transfer { bytes, contiguous }).protocol, Protocol::Pipelined);
            }
            assert_eq!(choose(&ALL, &Costs::default(), &Transfer { bytes, contiguous: false }).protocol, Protocol::Pipelined);
        }
    }

    #[test]
    fn large_messages_are_shared_when_both_can_copy() {
        assert_eq!(choose(&ALL, &Costs::default(), &Transfer { bytes: 4 << 20, contiguous: true }).protocol, Protocol::Cooperative);
        let alone = Abilities { cooperative_copy: false, ..ALL };
        assert_eq!(choose(&alone, &Costs::default(), &Transfer { bytes: 4 << 20, contiguous: true }).protocol, Protocol::Read);
    }
}
