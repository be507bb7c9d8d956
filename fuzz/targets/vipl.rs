//! Frames of the connection protocol of the VI Provider Library.

use ::vipl::connect::wire::Frame;

/// What parses must say again what was read.
pub fn run(data: &[u8]) {
    if let Some(frame) = Frame::parse(data) {
        assert_eq!(frame.write(), data);
    }
}
