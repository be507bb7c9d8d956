//! Connections whose owner makes them: it tells each side of the other's pair, by whatever way it has to a peer, and ends them when it wants. What is sent
//! through them it has until it is known to be there, and so a connection that breaks is one that it is told of ([`Connections::take_lost`]), and no more.

use proto::reliability::{Config, PeerId};

use super::contact::Way;
use super::maker::{Chosen, Maker};
use super::meeting::Own;
use super::peer::Peer;
use super::{Connections, HEAD_BYTES, INLINE_BYTES, Keeps, Tie, Unusable, Verbs, end_link};
use crate::reliable::{DatagramDevice, JobKey, Program};
use crate::verbs::Offer;
use crate::verbs::address;

impl Connections {
    /// Of process `me`, incarnation `epoch`, at most `connections_max`, on the first port of `exchange`, whose sleepers they wake.
    ///
    /// # Errors
    /// As [`Connections::open`].
    pub fn beside(
        exchange: &Verbs,
        connections_max: u32,
        me: (PeerId, u32),
        key: &JobKey,
        keeps: Keeps,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<Connections, Unusable> {
        let (device, channel, port, facts) = exchange.first_port();
        let maker = Maker::Owner(exchange.offers()[0]);
        Connections::made_by(maker, Chosen { device, channel, port, facts }, connections_max, me, key, keeps, adjust)
    }

    /// A pair for a connection to `peer`, which has none; `None` where there can be no more.
    pub fn begin(&mut self, peer: PeerId) -> Option<Own> {
        let unmatched = self.unmatched();
        let mut found = Peer::new(0, Way::Told, unmatched);
        found.confirms = true;
        self.peers.insert(peer, found);
        if !self.open_link(peer) {
            self.close(peer);
            return None;
        }
        let link = self.peers.get(&peer)?.link.as_ref()?;
        Some(Own { number: self.hub.number(link.pair), psn: link.psn, mtu_bytes: self.facts.mtu_bytes, reads: self.reads_in })
    }

    /// Ties the pair for `peer` to the peer's own, at its port `offer`: what comes from there is taken in. The peer has widened the allowance of this process
    /// `widened` times. False where that is not possible.
    pub fn tie(&mut self, peer: PeerId, theirs: &Own, offer: &Offer, widened: u32) -> bool {
        let Some(there) = address::candidate(0, &self.own_offer(), offer) else { return false };
        let Some(found) = self.peers.get_mut(&peer) else { return false };
        found.way = Way::Path(there.path);
        (0..widened).for_each(|_| found.unmatched.widen());
        let Some(pair) = found.link.as_ref().map(|link| link.pair) else { return false };
        let Some(ends) = self.ends(peer, theirs) else { return false };
        self.hub.receive_from(pair, &ends).and_then(|()| self.hub.send_to(pair, &ends)).is_ok()
    }

    /// The port of the connections, as peers are told of it.
    pub fn own_offer(&self) -> Offer {
        match self.maker {
            Maker::Owner(offer) => offer,
            _ => unreachable!("nobody owns them"),
        }
    }

    /// The peer's pair is tied to this one: messages may leave.
    pub fn opened(&mut self, peer: PeerId) {
        if let Some(link) = self.peers.get_mut(&peer).and_then(|found| found.link.as_mut()) {
            link.tie = Tie::Told(true);
        }
        self.wake(peer);
    }

    /// Ends the connection to `peer`. Nothing of it is told of any more, and nothing that was sent through it, or was to come, is touched.
    pub fn close(&mut self, peer: PeerId) {
        if let Some(found) = self.peers.get_mut(&peer) {
            end_link(found, &mut self.maker, &mut self.hub, &mut self.owners, &mut self.spare);
            self.let_go(peer);
            self.peers.remove(&peer);
        }
    }

    /// Connections that have ended by themselves, and why, each told once.
    pub fn take_lost(&mut self) -> Vec<(PeerId, String)> {
        std::mem::take(&mut self.lost)
    }

    /// Lets leave what waits for `peer`, as far as there is room.
    pub fn hurry(&mut self, peer: PeerId, program: &mut impl Program) {
        self.pump(peer, program);
    }

    /// Whether a message may go by value now ([`Connections::send_now`]), if its credit allows it.
    pub fn may_send_by_value(&self, peer: PeerId, envelope_bytes: usize, bytes: usize) -> bool {
        let length = HEAD_BYTES + envelope_bytes + bytes;
        let Some(found) = self.peers.get(&peer) else { return false };
        let Some(link) = &found.link else { return false };
        length <= INLINE_BYTES && found.is_idle() && link.allowance.has_room() && self.hub.may_send_by_value(link.pair, length)
    }

    /// As if the device had given all pairs up.
    #[cfg(test)]
    pub fn fail_all(&mut self) {
        let pairs: Vec<_> = self.owners.keys().copied().collect();
        for pair in pairs {
            self.hub.fail(pair);
            // So that it says so.
            if self.hub.has_room(pair, 1) {
                self.hub.ping(pair);
            }
        }
    }
}
