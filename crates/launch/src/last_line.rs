//! What does a process say before it ends?

use std::io::Write;

/// Prints `message` as a line of the standard error by one call, since other ranks that end may print theirs at the same time, through the same pipe.
pub fn print(message: &str) {
    print_to(&mut std::io::stderr(), message);
}

fn print_to(out: &mut impl Write, message: &str) {
    // Nobody is left to be told where it cannot be written.
    let _ = out.write_all(format!("{message}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what each call writes apart.
    struct Calls(Vec<Vec<u8>>);

    impl Write for Calls {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_written_at_once() {
        let mut calls = Calls(Vec::new());
        print_to(&mut calls, "whimbrel: rank 0: no");
        assert_eq!(calls.0, [b"whimbrel: rank 0: no\n"]);
    }
}
