//! What is in an Ethernet frame, and how is it damaged so that no checksum of the network tells?

/// Where a datagram or segment lies in its frame: offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transport {
    pub protocol: u8,
    pub header: usize,
    pub payload: usize,
    pub end: usize,
}

pub const ETHERNET_BYTES: usize = 14;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
const UDP_BYTES: usize = 8;

/// UDP or TCP straight over IPv4 or IPv6, whole; anything else is `None`.
pub fn transport(frame: &[u8]) -> Option<Transport> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?])));
    let ip = ETHERNET_BYTES;
    let (protocol, header, end) = match word(12)? {
        0x0800 if word(ip + 6)? & 0x3fff == 0 => (*frame.get(ip + 9)?, ip + usize::from(frame[ip] & 15) * 4, ip + word(ip + 2)?),
        0x86dd => (*frame.get(ip + 6)?, ip + 40, ip + 40 + word(ip + 4)?),
        _ => return None,
    };
    let payload = match protocol {
        UDP => header + UDP_BYTES,
        TCP => header + usize::from(frame.get(header + 12)? >> 4) * 4,
        _ => return None,
    };
    (payload <= end && end <= frame.len()).then_some(Transport { protocol, header, payload, end })
}

/// Flips one bit of the payload, chosen by `choice`, and mends the checksum, so that the damage reaches the socket.
/// Whether there was a payload.
pub fn damage(frame: &mut [u8], choice: u64) -> bool {
    let Some(Transport { protocol, header, payload, end }) = transport(frame).filter(|found| found.payload < found.end) else {
        return false;
    };
    let at = payload + (choice >> 3) as usize % (end - payload);
    let first = header + ((at - header) & !1);
    let pair = |frame: &[u8]| u16::from_be_bytes([frame[first], if first + 1 < end { frame[first + 1] } else { 0 }]);
    let before = pair(frame);
    frame[at] ^= 1 << (choice & 7);
    let after = pair(frame);
    let field = header + if protocol == UDP { 6 } else { 16 };
    let sum = u16::from_be_bytes([frame[field], frame[field + 1]]);
    if protocol == UDP && sum == 0 {
        return true;
    }
    // RFC 1624, equation 3.
    let mended = !fold(u32::from(!sum) + u32::from(!before) + u32::from(after));
    let mended = if protocol == UDP && mended == 0 { 0xffff } else { mended };
    frame[field..field + 2].copy_from_slice(&mended.to_be_bytes());
    true
}

/// Makes lengths and checksums of a changed IPv4 UDP frame without options fit. Whether it is one that can be.
pub fn reseal(frame: &mut [u8]) -> bool {
    const HEADER: usize = ETHERNET_BYTES + 20;
    if frame.len() < HEADER + UDP_BYTES || frame[12..15] != [0x08, 0x00, 0x45] || frame[23] != UDP {
        return false;
    }
    let ip_bytes = (frame.len() - ETHERNET_BYTES) as u16;
    frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    frame[24..26].fill(0);
    let sum = !fold(words(&frame[ETHERNET_BYTES..HEADER]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[HEADER + 4..HEADER + 6].copy_from_slice(&(ip_bytes - 20).to_be_bytes());
    // RFC 768: no checksum.
    frame[HEADER + 6..HEADER + 8].fill(0);
    true
}

fn words(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))).sum()
}

fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A whole IPv4 frame with right checksums.
    pub fn frame_of(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header = if protocol == UDP { UDP_BYTES } else { 20 };
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        frame.extend(((20 + header + payload.len()) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
        let at = frame.len();
        frame.extend([0x12, 0x34, 0x56, 0x78]);
        frame.resize(at + header, 0);
        frame.extend(payload);
        if protocol == UDP {
            frame[at + 4..at + 6].copy_from_slice(&((header + payload.len()) as u16).to_be_bytes());
        } else {
            frame[at + 12] = 5 << 4;
        }
        let sum = !fold(words(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        let field = at + if protocol == UDP { 6 } else { 16 };
        let sum = !total(&frame);
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    /// The sum that the receiver's kernel forms: all ones where the checksum is right.
    pub fn total(frame: &[u8]) -> u16 {
        let found = transport(frame).unwrap();
        let pseudo = words(&frame[26..34]) + u32::from(found.protocol) + (found.end - found.header) as u32;
        fold(pseudo + words(&frame[found.header..found.end]))
    }

    #[test]
    fn one_bit_is_damaged_and_no_checksum_tells() {
        for protocol in [UDP, TCP] {
            for length in [1, 2, 7, 64, 1001] {
                let payload: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
                let clean = frame_of(protocol, &payload);
                assert_eq!(total(&clean), 0xffff);
                for choice in 0..2000 {
                    let mut frame = clean.clone();
                    assert!(damage(&mut frame, choice));
                    assert_eq!(total(&frame), 0xffff);
                    let start = transport(&clean).unwrap().payload;
                    let flipped: u32 = clean[start..].iter().zip(&frame[start..]).map(|(a, b)| (a ^ b).count_ones()).sum();
                    assert_eq!(flipped, 1);
                    let sum = if protocol == UDP { 40 } else { 50 };
                    frame[sum..sum + 2].copy_from_slice(&clean[sum..sum + 2]);
                    assert_eq!(frame[..start], clean[..start], "headers stay as they are, but for the checksum");
                }
            }
        }
    }

    #[test]
    fn what_has_no_payload_is_left_alone() {
        let mut empty = frame_of(UDP, &[]);
        assert!(!damage(&mut empty, 1));
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(!damage(&mut arp, 1));
        assert_eq!(transport(&arp), None);
    }

    #[test]
    fn frames_that_are_cut_short_are_no_datagrams() {
        let frame = frame_of(UDP, &[9; 40]);
        for end in 0..frame.len() {
            assert_eq!(transport(&frame[..end]), None);
        }
        assert!(transport(&frame).is_some());
    }

    #[test]
    fn a_changed_frame_is_made_whole() {
        let mut frame = frame_of(UDP, &[5; 100]);
        frame.truncate(90);
        assert!(reseal(&mut frame));
        assert_eq!(fold(words(&frame[14..34])), 0xffff);
        assert_eq!(transport(&frame).unwrap().end, 90);
        assert!(!reseal(&mut frame_of(TCP, &[1; 100])));
    }
}
