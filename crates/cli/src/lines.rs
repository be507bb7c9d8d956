//! In which order do the lines of many ranks come out? Whole lines of one rank at a time; never one inside another.

/// Longest line that is held back until it is whole, bytes. A longer one comes out in pieces, and other ranks' lines wait for
/// its end.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// The lines of all ranks on their way to one stream. Pure: bytes in, bytes out.
#[derive(Debug)]
pub struct Lines {
    /// What each rank's lines begin with; empty for nothing.
    labels: Vec<Vec<u8>>,
    /// What every line begins with before its label, such as the time.
    stamp: String,
    /// What each rank has written and is not yet out: an unfinished line, or anything while another rank's line goes on.
    held: Vec<Vec<u8>>,
    /// The rank whose unfinished line is the last thing that came out.
    open: Option<usize>,
    /// The rank whose line is too long to be held, and comes out in pieces: nobody else's do until it ends.
    owner: Option<usize>,
    /// Whether the part of a rank's line that is out already carries its label.
    begun: Vec<bool>,
    /// Ranks that have closed their output.
    closed: Vec<bool>,
}

impl Lines {
    /// For as many ranks as there are `labels`, with which their lines begin.
    pub fn new(labels: Vec<String>) -> Lines {
        let ranks = labels.len();
        let labels = labels.into_iter().map(String::into_bytes).collect();
        Lines { labels, stamp: String::new(), held: vec![Vec::new(); ranks], open: None, owner: None, begun: vec![false; ranks], closed: vec![false; ranks] }
    }

    /// What lines begin with from now on, before their label.
    pub fn stamp(&mut self, stamp: String) {
        self.stamp = stamp;
    }

    /// `rank` has written `bytes`: appends to `out` what may come out now. True if something is held back.
    pub fn push(&mut self, rank: usize, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        if self.owner.is_some_and(|owner| owner != rank) {
            self.held[rank].extend_from_slice(bytes);
            return true;
        }
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.held[rank].extend_from_slice(bytes);
            if self.held[rank].len() >= LINE_BYTES_MAX {
                self.flush(rank, out);
                self.owner = Some(rank);
            }
            return self.holds(rank) || self.owner == Some(rank);
        };
        let (whole, rest) = bytes.split_at(end + 1);
        let held = std::mem::take(&mut self.held[rank]);
        let mut first = true;
        // Where nothing stands in front of lines, they need not be looked at one by one.
        let plain = self.stamp.is_empty() && self.labels[rank].is_empty();
        for line in whole.split_inclusive(|byte| *byte == b'\n' && !plain) {
            self.begin(rank, out);
            if std::mem::take(&mut first) {
                out.extend_from_slice(&held);
            }
            out.extend_from_slice(line);
            self.open = None;
            self.begun[rank] = false;
        }
        self.held[rank] = held;
        self.held[rank].clear();
        self.release(out);
        if rest.is_empty() { false } else { self.push(rank, rest, out) }
    }

    /// `rank` has written nothing for a while: lets its unfinished line out, such as a prompt, and no longer makes others wait for
    /// its end. True if something is still held back.
    pub fn quiet(&mut self, rank: usize, out: &mut Vec<u8>) -> bool {
        if self.owner.is_none_or(|owner| owner == rank) {
            self.flush(rank, out);
            self.release(out);
        }
        self.holds(rank)
    }

    /// `rank` has closed its output: its last line comes out, finished or not, as soon as it may.
    pub fn close(&mut self, rank: usize, out: &mut Vec<u8>) {
        self.closed[rank] = true;
        if !self.quiet(rank, out) {
            self.begun[rank] = false;
        }
    }

    /// Whether `rank` has written what is not out.
    pub fn holds(&self, rank: usize) -> bool {
        !self.held[rank].is_empty()
    }

    /// Whether nothing more of `rank` should be read, while another rank's line goes on.
    pub fn is_full(&self, rank: usize) -> bool {
        self.owner.is_some_and(|owner| owner != rank) && self.held[rank].len() >= LINE_BYTES_MAX
    }

    /// The rank for the end of whose line others wait.
    pub fn owner(&self) -> Option<usize> {
        self.owner
    }

    /// What must come out before a line of somebody else, such as `mpiexec` itself.
    pub fn interrupt(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            out.push(b'\n');
        }
    }

    /// Lets the unfinished line of `rank` out.
    fn flush(&mut self, rank: usize, out: &mut Vec<u8>) {
        if self.held[rank].is_empty() {
            return;
        }
        self.begin(rank, out);
        out.append(&mut self.held[rank]);
        self.open = Some(rank);
    }

    /// Lets out what waited for the end of a long line.
    fn release(&mut self, out: &mut Vec<u8>) {
        if self.owner.take().is_none() {
            return;
        }
        for rank in 0..self.held.len() {
            // The line of one of these may be long too, and the others then wait for that.
            if self.owner.is_none() && self.holds(rank) {
                let held = std::mem::take(&mut self.held[rank]);
                self.push(rank, &held, out);
                if self.closed[rank] {
                    self.owner = self.owner.filter(|owner| *owner != rank);
                    self.flush(rank, out);
                }
            }
        }
    }

    fn begin(&mut self, rank: usize, out: &mut Vec<u8>) {
        if self.open != Some(rank) {
            self.interrupt(out);
            self.begun[rank] = false;
        }
        if !std::mem::replace(&mut self.begun[rank], true) {
            out.extend_from_slice(self.stamp.as_bytes());
            out.extend_from_slice(&self.labels[rank]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(ranks: usize) -> Vec<String> {
        (0..ranks).map(|rank| format!("[{rank}] ")).collect()
    }

    #[test]
    fn others_wait_for_the_end_of_a_long_line() {
        let mut lines = Lines::new(labels(3));
        let mut out = Vec::new();
        let piece = vec![b'x'; LINE_BYTES_MAX];
        lines.push(0, &piece, &mut out);
        assert_eq!((lines.owner(), out.len()), (Some(0), 4 + LINE_BYTES_MAX));
        assert!(lines.push(1, b"one\ntwo", &mut out) && !lines.is_full(1));
        lines.push(2, &piece, &mut out);
        assert!(lines.is_full(2) && !lines.is_full(0));
        lines.push(2, b"\n", &mut out);
        lines.close(2, &mut out);
        lines.close(1, &mut out);
        assert_eq!(out.len(), 4 + LINE_BYTES_MAX);
        lines.push(0, b"end\n", &mut out);
        let text = String::from_utf8(out).unwrap();
        let ends: Vec<(&str, usize)> = text.lines().map(|line| (&line[..7], line.len())).collect();
        assert_eq!(ends, [("[0] xxx", 4 + LINE_BYTES_MAX + 3), ("[1] one", 7), ("[1] two", 7), ("[2] xxx", 4 + LINE_BYTES_MAX)]);
        assert_eq!(lines.owner(), None);
    }

    #[test]
    fn a_long_line_that_does_not_go_on_makes_nobody_wait() {
        let mut lines = Lines::new(labels(2));
        let mut out = Vec::new();
        lines.push(0, &vec![b'x'; LINE_BYTES_MAX], &mut out);
        lines.push(1, b"y\n", &mut out);
        lines.quiet(1, &mut out);
        assert!(!out.ends_with(b"y\n"));
        lines.quiet(0, &mut out);
        assert!(out.ends_with(b"x\n[1] y\n"));
    }

    #[test]
    fn a_stamp_stands_before_the_label() {
        let mut lines = Lines::new(labels(1));
        let mut out = Vec::new();
        lines.stamp("now ".to_owned());
        lines.push(0, b"a\nb\n", &mut out);
        assert_eq!(out, b"now [0] a\nnow [0] b\n");
    }

    #[test]
    fn lines_come_out_whole() {
        let mut lines = Lines::new(vec![String::new(); 2]);
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
        let mut lines = Lines::new(labels(2));
        let mut out = Vec::new();
        lines.push(1, b"a\nb\nc", &mut out);
        lines.quiet(1, &mut out);
        lines.push(1, b"d\n", &mut out);
        lines.push(0, b"\n", &mut out);
        assert_eq!(out, b"[1] a\n[1] b\n[1] cd\n[0] \n");
    }

    #[test]
    fn a_prompt_that_is_out_gets_its_own_line() {
        let mut lines = Lines::new(labels(2));
        let mut out = Vec::new();
        lines.push(0, b"name? ", &mut out);
        assert!(lines.holds(0) && !lines.holds(1));
        lines.quiet(0, &mut out);
        lines.push(1, b"x\n", &mut out);
        lines.push(0, b"y\n", &mut out);
        assert_eq!(out, b"[0] name? \n[1] x\n[0] y\n");
    }

    #[test]
    fn an_endless_line_is_not_kept_forever() {
        let mut lines = Lines::new(vec![String::new(); 1]);
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
            let mut lines = Lines::new(if label { labels(3) } else { vec![String::new(); 3] });
            let mut out = Vec::new();
            let mut sent = vec![Vec::new(); 3];
            for (rank, text, flush) in pieces {
                // The letters tell the ranks apart.
                let bytes: Vec<u8> = text.bytes().map(|b| if b == b'\n' { b } else { b + 2 * rank as u8 }).collect();
                sent[rank].extend_from_slice(&bytes);
                lines.push(rank, &bytes, &mut out);
                if flush {
                    lines.quiet(rank, &mut out);
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
