//! In which order do the lines of many ranks come out? Whole lines of one rank at a time; never one inside another.

/// Longest line that is kept together, bytes; a longer one comes out in pieces.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// The lines of all ranks on their way to one stream. Pure: bytes in, bytes out.
#[derive(Debug)]
pub struct Lines {
    label: bool,
    /// Unfinished line of each rank that is not yet out.
    held: Vec<Vec<u8>>,
    /// The rank whose unfinished line is the last thing that came out.
    open: Option<usize>,
    /// Whether the part of a rank's line that is out already carries its label.
    begun: Vec<bool>,
}

impl Lines {
    /// For `ranks` ranks; with `label`, each line begins with `[rank] `.
    pub fn new(ranks: usize, label: bool) -> Lines {
        Lines { label, held: vec![Vec::new(); ranks], open: None, begun: vec![false; ranks] }
    }

    /// `rank` has written `bytes`: appends to `out` what may come out now. True if part of a line is held back.
    pub fn push(&mut self, rank: usize, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.held[rank].extend_from_slice(bytes);
            if self.held[rank].len() >= LINE_BYTES_MAX {
                self.flush(rank, out);
            }
            return !self.held[rank].is_empty();
        };
        let (whole, rest) = bytes.split_at(end + 1);
        let held = std::mem::take(&mut self.held[rank]);
        if self.label {
            let mut first = true;
            for line in whole.split_inclusive(|byte| *byte == b'\n') {
                self.begin(rank, out);
                if std::mem::take(&mut first) {
                    out.extend_from_slice(&held);
                }
                out.extend_from_slice(line);
                self.end(rank);
            }
        } else {
            self.begin(rank, out);
            out.extend_from_slice(&held);
            out.extend_from_slice(whole);
            self.end(rank);
        }
        self.held[rank] = held;
        self.held[rank].clear();
        self.held[rank].extend_from_slice(rest);
        !rest.is_empty()
    }

    /// Lets the unfinished line of `rank` out, such as a prompt.
    pub fn flush(&mut self, rank: usize, out: &mut Vec<u8>) {
        if self.held[rank].is_empty() {
            return;
        }
        self.begin(rank, out);
        out.append(&mut self.held[rank]);
        self.open = Some(rank);
    }

    /// `rank` has closed its output: its last line comes out, finished or not.
    pub fn close(&mut self, rank: usize, out: &mut Vec<u8>) {
        self.flush(rank, out);
        self.begun[rank] = false;
    }

    /// Whether `rank` has an unfinished line that is not out.
    pub fn holds(&self, rank: usize) -> bool {
        !self.held[rank].is_empty()
    }

    /// What must come out before a line of somebody else, such as `mpiexec` itself.
    pub fn interrupt(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            out.push(b'\n');
        }
    }

    fn begin(&mut self, rank: usize, out: &mut Vec<u8>) {
        if self.open != Some(rank) {
            self.interrupt(out);
            self.begun[rank] = false;
        }
        if self.label && !self.begun[rank] {
            out.extend_from_slice(format!("[{rank}] ").as_bytes());
        }
        self.begun[rank] = true;
    }

    fn end(&mut self, rank: usize) {
        self.open = None;
        self.begun[rank] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_come_out_whole() {
        let mut lines = Lines::new(2, false);
        let mut out = Vec::new();
        assert!(lines.push(0, b"one ", &mut out));
        assert!(!lines.push(1, b"two\n", &mut out));
        assert!(lines.push(0, b"more\nand", &mut out));
        assert_eq!(out, b"two\none more\n");
        lines.close(0, &mut out);
        assert_eq!(out, b"two\none more\nand");
    }

    #[test]
    fn labels_stand_at_the_beginning_of_lines_only() {
        let mut lines = Lines::new(2, true);
        let mut out = Vec::new();
        lines.push(1, b"a\nb\nc", &mut out);
        lines.flush(1, &mut out);
        lines.push(1, b"d\n", &mut out);
        lines.push(0, b"\n", &mut out);
        assert_eq!(out, b"[1] a\n[1] b\n[1] cd\n[0] \n");
    }

    #[test]
    fn a_prompt_that_is_out_gets_its_own_line() {
        let mut lines = Lines::new(2, true);
        let mut out = Vec::new();
        lines.push(0, b"name? ", &mut out);
        assert!(lines.holds(0) && !lines.holds(1));
        lines.flush(0, &mut out);
        lines.push(1, b"x\n", &mut out);
        lines.push(0, b"y\n", &mut out);
        assert_eq!(out, b"[0] name? \n[1] x\n[0] y\n");
    }

    #[test]
    fn an_endless_line_is_not_kept_forever() {
        let mut lines = Lines::new(1, false);
        let mut out = Vec::new();
        for _ in 0..LINE_BYTES_MAX / 1024 {
            lines.push(0, &[b'x'; 1024], &mut out);
        }
        assert_eq!(out.len(), LINE_BYTES_MAX);
    }

    proptest! {
        /// However the bytes arrive, every line comes out once, whole and in its rank's order.
        #[test]
        fn nothing_is_lost_or_mixed(
            pieces in prop::collection::vec((0usize..3, "[ab\n]{0,5}", any::<bool>()), 0..40),
            label in any::<bool>(),
        ) {
            let mut lines = Lines::new(3, label);
            let mut out = Vec::new();
            let mut sent = vec![Vec::new(); 3];
            for (rank, text, flush) in pieces {
                // The letters tell the ranks apart.
                let bytes: Vec<u8> = text.bytes().map(|b| if b == b'\n' { b } else { b + 2 * rank as u8 }).collect();
                sent[rank].extend_from_slice(&bytes);
                lines.push(rank, &bytes, &mut out);
                if flush {
                    lines.flush(rank, &mut out);
                }
            }
            (0..3).for_each(|rank| lines.close(rank, &mut out));
            for line in out.split(|byte| *byte == b'\n') {
                let text: &[u8] = if label && line.starts_with(b"[") { &line[4..] } else { line };
                let ranks: Vec<u8> = text.iter().map(|byte| (byte - b'a') / 2).collect();
                prop_assert!(ranks.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", line);
                if let (true, Some(rank)) = (label, ranks.first()) {
                    prop_assert_eq!(line[1] - b'0', *rank);
                }
            }
            for (rank, sent) in sent.iter().enumerate() {
                let of_rank = |byte: &&u8| byte.is_ascii_lowercase() && usize::from((**byte - b'a') / 2) == rank;
                let got: Vec<u8> = out.iter().filter(of_rank).copied().collect();
                let want: Vec<u8> = sent.iter().filter(of_rank).copied().collect();
                prop_assert_eq!(got, want);
            }
        }
    }
}
