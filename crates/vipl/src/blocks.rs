//! How are gather and scatter lists walked? Both as one sequence of blocks that are contiguous on either side (paper 001 §1.4.3).

/// Bytes that lie in one piece on both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Piece of the source list, and where in it.
    pub source: usize,
    pub source_offset: u64,
    pub target: usize,
    pub target_offset: u64,
    pub bytes: u64,
}

/// The blocks of two lists of lengths, as far as both reach.
pub fn blocks<'a>(sources: impl Iterator<Item = u64> + 'a, targets: impl Iterator<Item = u64> + 'a) -> impl Iterator<Item = Block> + 'a {
    let (mut sources, mut targets) = (sources.enumerate(), targets.enumerate());
    let (mut source, mut target) = (sources.next(), targets.next());
    let (mut source_offset, mut target_offset) = (0, 0);
    std::iter::from_fn(move || {
        loop {
            let ((from, from_bytes), (to, to_bytes)) = (source?, target?);
            let bytes = (from_bytes - source_offset).min(to_bytes - target_offset);
            let block = Block { source: from, source_offset, target: to, target_offset, bytes };
            source_offset += bytes;
            target_offset += bytes;
            if source_offset == from_bytes {
                (source, source_offset) = (sources.next(), 0);
            }
            if target_offset == to_bytes {
                (target, target_offset) = (targets.next(), 0);
            }
            if bytes > 0 {
                return Some(block);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "too many cases for an interpreter")]
        fn every_byte_is_in_one_block(a in prop::collection::vec(0u64..50, 0..8), b in prop::collection::vec(0u64..50, 0..8)) {
            let all: Vec<Block> = blocks(a.iter().copied(), b.iter().copied()).collect();
            let (mut from, mut to) = (Vec::new(), Vec::new());
            for block in &all {
                prop_assert!(block.bytes > 0);
                (0..block.bytes).for_each(|at| from.push((block.source, block.source_offset + at)));
                (0..block.bytes).for_each(|at| to.push((block.target, block.target_offset + at)));
            }
            let list = |lengths: &[u64]| -> Vec<(usize, u64)> {
                lengths.iter().enumerate().flat_map(|(piece, bytes)| (0..*bytes).map(move |at| (piece, at))).collect()
            };
            let (want_from, want_to) = (list(&a), list(&b));
            let bytes = want_from.len().min(want_to.len());
            prop_assert_eq!(&from[..], &want_from[..bytes]);
            prop_assert_eq!(&to[..], &want_to[..bytes]);
            // No two blocks could have been one.
            prop_assert!(all.len() <= a.len() + b.len());
        }
    }
}
