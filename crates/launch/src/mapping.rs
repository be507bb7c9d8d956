//! Which ranks run on which node? The string `PMI_process_mapping` of PMI's process managers.
//!
//! `(vector,(first node, nodes, ranks on each),…)`: blocks follow each other, and start again from the first while ranks are
//! left. Newer Hydra folds repeated blocks: `(vector,[(0,2,1)]x2)`.

/// Most blocks, folded ones counted as often as they repeat; also how deep they nest.
const BLOCKS_MAX: usize = 4096;
const DEPTH_MAX: usize = 4;

/// The node of every rank of a job of `size` ranks; nodes are numbers without further meaning.
///
/// `None`: `text` is no mapping, has too many blocks, or places no rank.
pub fn nodes(text: &str, size: u32) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix("(vector")?.strip_suffix(')')?;
    let mut parser = Parser { rest: inner };
    let mut blocks = Vec::new();
    while !parser.rest.is_empty() {
        parser.skip(',')?;
        parser.item(&mut blocks, 0)?;
    }
    let mut nodes = Vec::new();
    while nodes.len() < size as usize {
        let before = nodes.len();
        for block in &blocks {
            for node in 0..block.nodes {
                for _ in 0..block.ranks {
                    if nodes.len() == size as usize {
                        return Some(nodes);
                    }
                    nodes.push(block.first.checked_add(node)?);
                }
                if block.ranks == 0 {
                    break;
                }
            }
        }
        if nodes.len() == before {
            return None;
        }
    }
    Some(nodes)
}

#[derive(Clone, Copy)]
struct Block {
    first: u32,
    nodes: u32,
    ranks: u32,
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// `(a,b,c)`, or `[items]xN`.
    fn item(&mut self, blocks: &mut Vec<Block>, depth: usize) -> Option<()> {
        if self.rest.starts_with('(') {
            self.skip('(')?;
            let first = self.number()?;
            self.skip(',')?;
            let nodes = self.number()?;
            self.skip(',')?;
            let ranks = self.number()?;
            self.skip(')')?;
            blocks.push(Block { first, nodes, ranks });
        } else {
            if depth == DEPTH_MAX {
                return None;
            }
            self.skip('[')?;
            let start = blocks.len();
            self.item(blocks, depth + 1)?;
            while self.rest.starts_with(',') {
                self.skip(',')?;
                self.item(blocks, depth + 1)?;
            }
            self.skip(']')?;
            self.skip('x')?;
            let times = self.number()? as usize;
            let items = blocks.split_off(start);
            if times == 0 || start + items.len().checked_mul(times)? > BLOCKS_MAX {
                return None;
            }
            (0..times).for_each(|_| blocks.extend(&items));
        }
        (blocks.len() <= BLOCKS_MAX).then_some(())
    }

    fn skip(&mut self, character: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(character)?;
        Some(())
    }

    fn number(&mut self) -> Option<u32> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_place_ranks() {
        for (text, size, expected) in [
            ("(vector,(0,1,4))", 4, vec![0, 0, 0, 0]),
            ("(vector,(0,2,2))", 4, vec![0, 0, 1, 1]),
            ("(vector,(0,2,1))", 5, vec![0, 1, 0, 1, 0]),
            ("(vector,(0,1,1),(1,2,2))", 5, vec![0, 1, 1, 2, 2]),
            ("(vector,[(0,2,1)]x2)", 4, vec![0, 1, 0, 1]),
            ("(vector,[(0,1,2),[(3,1,1)]x2]x2,(5,1,1))", 9, vec![0, 0, 3, 3, 0, 0, 3, 3, 5]),
        ] {
            assert_eq!(nodes(text, size), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_places_nobody_is_refused() {
        for text in [
            "",
            "(vector)",
            "(vector,)",
            "(vector,(0,0,1))",
            "(vector,(0,4294967295,0))",
            "(vector,(0,1,-1))",
            "(vector,(0,1,1)",
            "(vector,[(0,1,1)]x0)",
            "(vector,[(0,1,1)]x4294967295)",
            "(vector,[[[[[[(0,1,1)]x1]x1]x1]x1]x1]x1)",
            "(vector,(4294967295,2,1))",
        ] {
            assert_eq!(nodes(text, 2), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_rank_gets_a_node_or_nobody_does(text in r"\(vector(,\[?\([0-9]{1,9},[0-9]{1,9},[0-9]{1,9}\)(\]x[0-9]{1,6})?){0,4}\)", size in 1u32..600) {
            if let Some(nodes) = nodes(&text, size) {
                prop_assert_eq!(nodes.len(), size as usize);
            }
        }
    }
}
