//! Doubly linked lists through a pool of nodes, by index: no allocation per element, removal in O(1).

/// Index that stands for "none".
pub const NIL: u32 = u32::MAX;

/// Neighbours of a node in one list.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub prev: u32,
    pub next: u32,
}

impl Link {
    pub const LOOSE: Link = Link { prev: NIL, next: NIL };
}

/// Ends of one list.
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub const EMPTY: List = List { head: NIL, tail: NIL };

    /// Appends node `at`; `link` finds a node's neighbours in this list.
    #[inline]
    pub fn push<N>(&mut self, nodes: &mut [N], at: u32, link: impl Fn(&mut N) -> &mut Link) {
        *link(&mut nodes[at as usize]) = Link { prev: self.tail, next: NIL };
        if self.tail == NIL {
            self.head = at;
        } else {
            link(&mut nodes[self.tail as usize]).next = at;
        }
        self.tail = at;
    }

    /// Takes node `at`, which is in this list, out of it.
    #[inline]
    pub fn remove<N>(&mut self, nodes: &mut [N], at: u32, link: impl Fn(&mut N) -> &mut Link) {
        let Link { prev, next } = *link(&mut nodes[at as usize]);
        if prev == NIL {
            self.head = next;
        } else {
            link(&mut nodes[prev as usize]).next = next;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            link(&mut nodes[next as usize]).prev = prev;
        }
    }
}

/// Nodes with a list of free ones. Grows by need and keeps what it has.
#[derive(Clone, Debug)]
pub struct Pool<N> {
    nodes: Vec<N>,
    free: Vec<u32>,
}

impl<N> Default for Pool<N> {
    fn default() -> Self {
        Pool { nodes: Vec::new(), free: Vec::new() }
    }
}

impl<N> Pool<N> {
    #[inline]
    pub fn insert(&mut self, node: N) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                assert!(self.nodes.len() < NIL as usize, "more than 2^32 - 1 nodes");
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub fn release(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Most nodes that were in use at once: places are used again before new ones are made.
    pub fn most(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// The nodes of a list, from its head on.
    pub fn walk(&self, list: List, link: impl Fn(&N) -> Link) -> impl Iterator<Item = &N> {
        let mut next = list.head;
        std::iter::from_fn(move || {
            let node = (next != NIL).then(|| &self.nodes[next as usize])?;
            next = link(node).next;
            Some(node)
        })
    }

    #[inline]
    pub fn nodes(&mut self) -> &mut [N] {
        &mut self.nodes
    }
}

impl<N> std::ops::Index<u32> for Pool<N> {
    type Output = N;
    #[inline]
    fn index(&self, at: u32) -> &N {
        &self.nodes[at as usize]
    }
}

impl<N> std::ops::IndexMut<u32> for Pool<N> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut N {
        &mut self.nodes[at as usize]
    }
}
