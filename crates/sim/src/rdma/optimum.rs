//! The best thresholds by arithmetic: where two ways of a message take equally long, if it were a fluid, without packets, headers of packets and pages.

use super::{Platform, Registered};

/// Longest message that costs least behind its header, bytes, where longer ones are written, or read: two copies of it cost what the messages of the
/// rendezvous do. `None` where copies are cheaper for any length, since registering costs more for each byte.
pub fn eager_bytes_max(platform: &Platform, writes: bool, registered: Registered) -> Option<f64> {
    let Platform { device, message_ns, .. } = platform;
    // Beside the one message of both: announcement and request. The other side's processor deals with either; a read's request is answered by the adapter.
    let exchange_ns = device.post_ns + 2.0 * device.latency_ns + message_ns;
    let exchange_ns = if writes { exchange_ns + device.post_ns + message_ns } else { exchange_ns };
    let page_ns = (device.register_page_ns + device.deregister_page_ns) / device.page_bytes as f64;
    let (once_ns, byte_ns) = match registered {
        Registered::Before => (0.0, 0.0),
        Registered::EachTime => (device.register_ns + device.deregister_ns, page_ns),
    };
    let saved_ns = 2.0 / device.copy_bytes_per_ns - byte_ns;
    (saved_ns > 0.0).then(|| ((exchange_ns + once_ns - 2.0 * device.copy_ns) / saved_ns).max(0.0))
}

/// Messages of so many bytes, one datagram each, after which a connection has paid that both sides make: what it costs over what each message saves.
/// `None` where it saves nothing.
pub fn messages_until_connection_pays(platform: &Platform, bytes: usize) -> Option<f64> {
    let saved_ns = 2.0 * (platform.reliability_ns + bytes as f64 / platform.check_bytes_per_ns);
    (saved_ns > 0.0).then(|| 2.0 * platform.connect_ns / saved_ns)
}
