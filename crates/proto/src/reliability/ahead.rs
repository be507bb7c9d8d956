//! What becomes of an offered window ([`Endpoint::offer`]) other than that it is filled by a push.

use super::endpoint::Endpoint;
use super::{Outside, PeerId, Refused};

impl Endpoint {
    /// An offer has crossed a request: what [`Delivery::Request`](super::Delivery::Request) named goes to the offered window, at most
    /// `bytes`, at most the window's capacity. Its sender is told, and may have begun ([`Endpoint::fill`]).
    pub fn adopt(&mut self, now_ns: u64, peer: PeerId, window: u32, transfer: u32, bytes: u64) -> Result<(), Refused> {
        let p = self.find(peer)?;
        let one = self.windows.get_mut(window).filter(|one| one.is_offered_to(p)).ok_or(Refused::Argument)?;
        if !one.adopt(transfer, bytes, now_ns) {
            return Err(Refused::Argument);
        }
        self.peers[p].activate(&self.config, now_ns).windows.push(window);
        self.recount(window);
        self.enqueue_window(window);
        self.tell_window(p, window, now_ns);
        // All of it may be here already.
        self.adopted.push((p as u32, window));
        self.grant(now_ns);
        self.wake(p);
        Ok(())
    }

    /// The receive of an offer was matched by something else, of which both sides know: nothing comes to its window.
    pub fn withdraw(&mut self, peer: PeerId, window: u32) {
        let Ok(p) = self.find(peer) else { return };
        if self.windows.get(window).is_some_and(|one| one.is_offered_to(p)) {
            self.remove_window(window);
        }
    }

    /// An offer of `capacity_bytes` has crossed the request of `send`: its window is filled without waiting to be asked, `granted_bytes` at once.
    /// Nothing happens where the request has not left, or has been answered.
    #[allow(clippy::too_many_arguments)]
    pub fn fill(&mut self, peer: PeerId, send: u64, window: u32, granted_bytes: u64, capacity_bytes: u64) {
        let Ok(p) = self.find(peer) else { return };
        let Some(active) = self.peers[p].active.as_deref() else { return };
        let mut all = active.transfers.iter().copied();
        let Some(id) = all.find(|&id| self.transfers.get(id).is_some_and(|one| one.send == send)) else { return };
        if window != 0 && self.transfers.get_mut(id).is_some_and(|one| one.fill(window, granted_bytes, capacity_bytes)) {
            self.schedule_transfer(p, id);
            self.wake(p);
        }
    }

    /// Ends adopted windows that are whole.
    pub(super) fn end_adopted(&mut self, now_ns: u64, outside: &mut impl Outside) {
        while let Some((p, window)) = self.adopted.pop() {
            self.finish_window(p as usize, window, now_ns, outside);
        }
    }
}
