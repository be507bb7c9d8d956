//! Packets between ranks and their launcher.

use launch::wire::{Reply, Request};

/// What parses must say again what was read.
pub fn run(data: &[u8]) {
    if let Ok(request) = Request::parse(data) {
        assert_eq!(request.encode(), data);
    }
    if let Ok(reply) = Reply::parse(data) {
        assert_eq!(reply.encode(), data);
    }
}
