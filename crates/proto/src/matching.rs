//! Matching of receives and messages (MPI-5.0 §3.5): posted and unexpected queues of every context.
//!
//! Exact receives and unexpected messages lie in bins by (source, tag), so that long queues cost as little as
//! short ones; receives with a wildcard lie in one list of their own, and sequence numbers decide
//! who came first. Messages arrive in the order in which their source sent them; that is the fabric's promise.

pub use crate::envelope::Pattern;
use crate::envelope::{Context, Envelope};
use crate::list::{Link, List, NIL, Pool};
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};

/// Number of a context in the table: cheap to look up.
pub type ContextIndex = u32;
/// A posted receive's place, for taking it back.
pub type Posted = u32;
/// An unexpected message's place.
type Unexpected = u32;

/// An unexpected message that is out of its queues: nobody else finds it. It lies where it lay until [`Matcher::take`] takes it.
#[derive(Debug)]
#[must_use]
pub struct Aside {
    at: Unexpected,
    pub envelope: Envelope,
}

#[derive(Clone)]
struct PostedNode<R> {
    link: Link,
    sequence: u64,
    pattern: Pattern,
    receive: R,
    /// The sender has been told of it.
    announced: bool,
}

#[derive(Clone)]
struct UnexpectedNode<U> {
    bin_link: Link,
    all_link: Link,
    source: u32,
    tag: i32,
    message: Option<U>,
}

#[derive(Clone, Copy)]
struct Bin {
    posted: List,
    unexpected: List,
}

#[derive(Clone)]
struct ContextState {
    key: u64,
    bins: Vec<Bin>,
    /// Receives with a wildcard, oldest first.
    wild: List,
    /// All unexpected messages, oldest first.
    arrivals: List,
    posted_count: u32,
    unexpected_count: u32,
}

impl ContextState {
    fn new(key: u64) -> Self {
        ContextState { key, bins: vec![EMPTY_BIN; BINS_MIN], wild: List::EMPTY, arrivals: List::EMPTY, posted_count: 0, unexpected_count: 0 }
    }

    #[inline]
    fn bin(&self, source: u32, tag: i32) -> usize {
        let mixed = (((source as u64) << 32) | tag as u32 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (self.bins.len() - 1)
    }
}

const BINS_MIN: usize = 8;
/// Past this many bins the lists in them grow longer.
const BINS_MAX: usize = 1 << 16;
/// Receives that are looked at before announcing one.
const ANNOUNCE_LOOKS_MAX: usize = 16;
const EMPTY_BIN: Bin = Bin { posted: List::EMPTY, unexpected: List::EMPTY };

/// The queues of one process. `R` names a posted receive, `U` is what is kept of an unexpected message.
#[derive(Clone)]
pub struct Matcher<R, U> {
    contexts: Vec<ContextState>,
    free: Vec<ContextIndex>,
    by_key: FxHashMap<u64, ContextIndex>,
    last: (u64, ContextIndex),
    posted: Pool<PostedNode<R>>,
    unexpected: Pool<UnexpectedNode<U>>,
    sequence: u64,
}

impl<R: Copy, U> Default for Matcher<R, U> {
    fn default() -> Self {
        Matcher {
            contexts: Vec::new(),
            free: Vec::new(),
            by_key: FxHashMap::default(),
            last: (u64::MAX, 0),
            posted: Pool::default(),
            unexpected: Pool::default(),
            sequence: 0,
        }
    }
}

impl<R: Copy, U> Matcher<R, U> {
    /// The index of `context`, made if it is new. A message may come before this process has made the communicator.
    #[inline(always)]
    pub fn open(&mut self, context: Context) -> ContextIndex {
        let key = context.raw();
        if self.last.0 == key { self.last.1 } else { self.open_another(context) }
    }

    /// As [`Matcher::open`], of another context than the last.
    #[inline(never)]
    fn open_another(&mut self, context: Context) -> ContextIndex {
        let key = context.raw();
        let index = match self.by_key.get(&key) {
            Some(&index) => index,
            None => {
                let index = match self.free.pop() {
                    Some(index) => {
                        self.contexts[index as usize] = ContextState::new(key);
                        index
                    }
                    None => {
                        self.contexts.push(ContextState::new(key));
                        (self.contexts.len() - 1) as u32
                    }
                };
                self.by_key.insert(key, index);
                index
            }
        };
        self.last = (key, index);
        index
    }

    /// The index of `context`, if it is open.
    pub fn known(&self, context: Context) -> Option<ContextIndex> {
        self.by_key.get(&context.raw()).copied()
    }

    /// Forgets a context, if nothing is queued in it any more. Returns whether it did.
    pub fn close(&mut self, index: ContextIndex) -> bool {
        let context = &self.contexts[index as usize];
        if context.posted_count + context.unexpected_count > 0 {
            return false;
        }
        self.by_key.remove(&context.key);
        if self.by_key.is_empty() {
            // After MPI_Finalize nothing is left of it that a leak checker could point at.
            self.by_key = FxHashMap::default();
        }
        self.last = (u64::MAX, 0);
        self.free.push(index);
        true
    }

    /// A receive is posted: sets the oldest unexpected message aside that it accepts, else queues the receive.
    #[inline]
    pub fn post(&mut self, index: ContextIndex, pattern: Pattern, receive: R) -> Result<Aside, Posted> {
        if self.contexts[index as usize].unexpected_count > 0
            && let Some(aside) = self.set_aside(index, pattern)
        {
            return Ok(aside);
        }
        self.sequence += 1;
        let at = self.posted.insert(PostedNode { link: Link::LOOSE, sequence: self.sequence, pattern, receive, announced: false });
        let context = &mut self.contexts[index as usize];
        context.posted_count += 1;
        if pattern.exact() {
            let bin = context.bin(pattern.source, pattern.tag);
            context.bins[bin].posted.push(self.posted.nodes(), at, |n| &mut n.link);
            if context.posted_count as usize > 4 * context.bins.len() {
                self.grow(index);
            }
        } else {
            context.wild.push(self.posted.nodes(), at, |n| &mut n.link);
        }
        Err(at)
    }

    /// Whether a posted receive may be announced to its only possible sender: no earlier one that could take the same messages is
    /// posted unannounced (Fig. 9 of the paper on [speculation](crate::rendezvous)). Says no where looking would take long.
    pub fn may_announce(&self, index: ContextIndex, at: Posted) -> bool {
        let context = &self.contexts[index as usize];
        let (pattern, sequence) = (self.posted[at].pattern, self.posted[at].sequence);
        let silent = |start: u32| {
            let (mut next, mut looks) = (start, 0);
            while next != NIL {
                let node = &self.posted[next];
                if node.sequence >= sequence {
                    return false;
                }
                looks += 1;
                let tags_meet = node.pattern.tag == pattern.tag || node.pattern.tag == Pattern::ANY_TAG || pattern.tag == Pattern::ANY_TAG;
                let any_source = [node.pattern.source, pattern.source].contains(&Pattern::ANY_SOURCE);
                let sources_meet = any_source || node.pattern.source == pattern.source;
                if looks > ANNOUNCE_LOOKS_MAX || !node.announced && tags_meet && sources_meet {
                    return true;
                }
                next = node.link.next;
            }
            false
        };
        if silent(context.wild.head) {
            return false;
        }
        if pattern.exact() {
            return !silent(context.bins[context.bin(pattern.source, pattern.tag)].posted.head);
        }
        // With a wildcard, every exact receive may take the same messages.
        context.bins.len() <= ANNOUNCE_LOOKS_MAX && !context.bins.iter().any(|bin| silent(bin.posted.head))
    }

    /// Notes whether the sender of a posted receive has been told of it.
    pub fn announce(&mut self, at: Posted, announced: bool) {
        self.posted[at].announced = announced;
    }

    /// The context of an index.
    #[inline]
    pub fn key(&self, index: ContextIndex) -> Context {
        Context::from_raw(self.contexts[index as usize].key)
    }

    /// What a posted receive accepts, and in which context.
    pub fn posted(&self, index: ContextIndex, at: Posted) -> (Context, Pattern) {
        (Context::from_raw(self.contexts[index as usize].key), self.posted[at].pattern)
    }

    /// A message arrives: takes the oldest posted receive that accepts it, if there is one.
    /// Otherwise the caller keeps what it needs of it and hands that to [`Matcher::keep`].
    #[inline(always)]
    pub fn arrive(&mut self, index: ContextIndex, source: u32, tag: i32) -> Option<R> {
        let (use_wild, at) = self.oldest(index, source, tag)?;
        let context = &mut self.contexts[index as usize];
        if use_wild {
            context.wild.remove(self.posted.nodes(), at, |n| &mut n.link);
        } else {
            let bin = context.bin(source, tag);
            context.bins[bin].posted.remove(self.posted.nodes(), at, |n| &mut n.link);
        }
        context.posted_count -= 1;
        self.posted.release(at);
        Some(self.posted[at].receive)
    }

    /// The receive that [`Matcher::arrive`] would take.
    pub fn awaiting(&self, index: ContextIndex, source: u32, tag: i32) -> Option<R> {
        self.oldest(index, source, tag).map(|(_, at)| self.posted[at].receive)
    }

    /// The oldest posted receive that accepts a message, and whether it lies in the list of those with wildcards.
    #[inline(always)]
    fn oldest(&self, index: ContextIndex, source: u32, tag: i32) -> Option<(bool, Posted)> {
        let context = &self.contexts[index as usize];
        if context.posted_count == 0 {
            return None;
        }
        let bin = context.bin(source, tag);
        let mut exact = context.bins[bin].posted.head;
        while exact != NIL {
            let node = &self.posted[exact];
            if node.pattern.source == source && node.pattern.tag == tag {
                break;
            }
            exact = node.link.next;
        }
        let mut wild = context.wild.head;
        while wild != NIL {
            let node = &self.posted[wild];
            if node.pattern.accepts(source, tag) {
                break;
            }
            wild = node.link.next;
        }
        match (exact, wild) {
            (NIL, NIL) => None,
            (_, NIL) => Some((false, exact)),
            (NIL, _) => Some((true, wild)),
            (e, w) => Some(if self.posted[w].sequence < self.posted[e].sequence { (true, w) } else { (false, e) }),
        }
    }

    /// Queues a message that [`Matcher::arrive`] found no receive for.
    #[inline(always)]
    pub fn keep(&mut self, index: ContextIndex, source: u32, tag: i32, message: U) {
        let at = self.unexpected.insert(UnexpectedNode { bin_link: Link::LOOSE, all_link: Link::LOOSE, source, tag, message: Some(message) });
        let context = &mut self.contexts[index as usize];
        context.unexpected_count += 1;
        let bin = context.bin(source, tag);
        context.bins[bin].unexpected.push(self.unexpected.nodes(), at, |n| &mut n.bin_link);
        context.arrivals.push(self.unexpected.nodes(), at, |n| &mut n.all_link);
        if context.unexpected_count as usize > 4 * context.bins.len() {
            self.grow(index);
        }
    }

    /// The oldest unexpected message that `pattern` accepts, left where it is (`MPI_Probe`).
    pub fn peek(&self, index: ContextIndex, pattern: Pattern) -> Option<(Envelope, &U)> {
        let at = self.find_unexpected(index, pattern)?;
        let node = &self.unexpected[at];
        let envelope = Envelope { context: Context::from_raw(self.contexts[index as usize].key), source: node.source, tag: node.tag };
        node.message.as_ref().map(|message| (envelope, message))
    }

    /// The oldest unexpected message that `pattern` accepts, out of its queues (`MPI_Mprobe`).
    #[inline]
    pub fn set_aside(&mut self, index: ContextIndex, pattern: Pattern) -> Option<Aside> {
        let at = self.find_unexpected(index, pattern)?;
        Some(self.unlink(index, at))
    }

    /// A message that was set aside, left where it is.
    #[inline]
    pub fn at(&self, aside: &Aside) -> &U {
        self.unexpected[aside.at].message.as_ref().expect("what is set aside is there until it is taken")
    }

    /// A message that was set aside.
    #[inline]
    pub fn take(&mut self, aside: Aside) -> U {
        let message = self.unexpected[aside.at].message.take().expect("what is set aside is there until it is taken");
        self.unexpected.release(aside.at);
        message
    }

    /// As [`Matcher::take`], where the message is not needed any more.
    #[inline]
    pub fn drop(&mut self, aside: Aside) {
        self.unexpected[aside.at].message = None;
        self.unexpected.release(aside.at);
    }

    /// The oldest unexpected message that `pattern` accepts, taken out.
    pub fn extract(&mut self, index: ContextIndex, pattern: Pattern) -> Option<(Envelope, U)> {
        let aside = self.set_aside(index, pattern)?;
        Some((aside.envelope, self.take(aside)))
    }

    /// Takes out the oldest unexpected message of a context for which `wanted` holds.
    pub fn extract_where(&mut self, index: ContextIndex, wanted: impl Fn(u32, &U) -> bool) -> Option<(Envelope, U)> {
        let mut at = self.contexts[index as usize].arrivals.head;
        while at != NIL {
            let node = &self.unexpected[at];
            if node.message.as_ref().is_some_and(|message| wanted(node.source, message)) {
                let aside = self.unlink(index, at);
                return Some((aside.envelope, self.take(aside)));
            }
            at = node.all_link.next;
        }
        None
    }

    /// Source and tag of the unexpected messages of a context, oldest first.
    pub fn unexpected_in(&self, index: ContextIndex) -> impl Iterator<Item = (u32, i32)> {
        let mut at = self.contexts[index as usize].arrivals.head;
        std::iter::from_fn(move || {
            let node = (at != NIL).then(|| &self.unexpected[at])?;
            at = node.all_link.next;
            Some((node.source, node.tag))
        })
    }

    /// Takes a posted receive back. The caller knows that it is still posted.
    pub fn withdraw(&mut self, index: ContextIndex, at: Posted) {
        let pattern = self.posted[at].pattern;
        let context = &mut self.contexts[index as usize];
        if pattern.exact() {
            let bin = context.bin(pattern.source, pattern.tag);
            context.bins[bin].posted.remove(self.posted.nodes(), at, |n| &mut n.link);
        } else {
            context.wild.remove(self.posted.nodes(), at, |n| &mut n.link);
        }
        context.posted_count -= 1;
        self.posted.release(at);
    }

    /// Feeds `hasher` with what decides what the queues give from here on: their contents and order.
    pub fn hash_state(&self, hasher: &mut impl Hasher)
    where
        R: Hash,
        U: Hash,
    {
        for context in &self.contexts {
            context.key.hash(hasher);
            let lists = context.bins.iter().map(|bin| bin.posted).chain([context.wild]);
            let mut posted: Vec<&PostedNode<R>> = lists.flat_map(|list| self.posted.walk(list, |node| node.link)).collect();
            posted.sort_unstable_by_key(|node| node.sequence);
            posted.len().hash(hasher);
            posted.into_iter().for_each(|node| (node.pattern, &node.receive, node.announced).hash(hasher));
            self.unexpected.walk(context.arrivals, |node| node.all_link).for_each(|node| (node.source, node.tag, &node.message).hash(hasher));
        }
        self.free.hash(hasher);
    }

    /// Posted receives and unexpected messages of all contexts.
    pub fn queued(&self) -> (u64, u64) {
        self.contexts.iter().fold((0, 0), |(p, u), c| (p + c.posted_count as u64, u + c.unexpected_count as u64))
    }

    /// The same of one context.
    pub fn queued_in(&self, index: ContextIndex) -> (u64, u64) {
        let context = &self.contexts[index as usize];
        (context.posted_count as u64, context.unexpected_count as u64)
    }

    /// Most posted receives and unexpected messages that there were at once.
    pub fn most_queued(&self) -> (u64, u64) {
        (self.posted.most(), self.unexpected.most())
    }

    /// Whether some receive posted in `index` would accept a message from `source` (any source of its own if wild).
    pub fn awaits(&self, index: ContextIndex) -> bool {
        self.contexts[index as usize].posted_count > 0
    }

    fn find_unexpected(&self, index: ContextIndex, pattern: Pattern) -> Option<Unexpected> {
        let context = &self.contexts[index as usize];
        if pattern.exact() {
            let mut at = context.bins[context.bin(pattern.source, pattern.tag)].unexpected.head;
            while at != NIL {
                let node = &self.unexpected[at];
                if node.source == pattern.source && node.tag == pattern.tag {
                    return Some(at);
                }
                at = node.bin_link.next;
            }
        } else {
            let mut at = context.arrivals.head;
            while at != NIL {
                let node = &self.unexpected[at];
                if pattern.accepts(node.source, node.tag) {
                    return Some(at);
                }
                at = node.all_link.next;
            }
        }
        None
    }

    #[inline(always)]
    fn unlink(&mut self, index: ContextIndex, at: Unexpected) -> Aside {
        let (source, tag) = (self.unexpected[at].source, self.unexpected[at].tag);
        let context = &mut self.contexts[index as usize];
        let bin = context.bin(source, tag);
        context.bins[bin].unexpected.remove(self.unexpected.nodes(), at, |n| &mut n.bin_link);
        context.arrivals.remove(self.unexpected.nodes(), at, |n| &mut n.all_link);
        context.unexpected_count -= 1;
        Aside { at, envelope: Envelope { context: Context::from_raw(context.key), source, tag } }
    }

    /// Doubles the bins and deals the nodes out again, keeping their order.
    #[cold]
    fn grow(&mut self, index: ContextIndex) {
        let context = &mut self.contexts[index as usize];
        if context.bins.len() >= BINS_MAX {
            return;
        }
        let old = std::mem::take(&mut context.bins);
        context.bins = vec![EMPTY_BIN; old.len() * 4];
        for bin in old {
            let mut at = bin.posted.head;
            while at != NIL {
                let (next, pattern) = (self.posted[at].link.next, self.posted[at].pattern);
                let to = context.bin(pattern.source, pattern.tag);
                context.bins[to].posted.push(self.posted.nodes(), at, |n| &mut n.link);
                at = next;
            }
            let mut at = bin.unexpected.head;
            while at != NIL {
                let node = &self.unexpected[at];
                let (next, to) = (node.bin_link.next, context.bin(node.source, node.tag));
                context.bins[to].unexpected.push(self.unexpected.nodes(), at, |n| &mut n.bin_link);
                at = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_context_is_closed_once_nothing_is_queued_in_it_and_none_takes_memory() {
        let mut matcher = Matcher::<u32, u32>::default();
        let (context, any) = (Context::new(0, 4).unwrap(), Pattern { source: Pattern::ANY_SOURCE, tag: Pattern::ANY_TAG });
        let index = matcher.open(context);
        matcher.keep(index, 1, 2, 3);
        assert!(!matcher.close(index));
        assert_eq!(matcher.known(context), Some(index));
        assert!(matcher.extract(index, any).is_some());
        assert!(matcher.close(index));
        assert_eq!((matcher.known(context), matcher.by_key.capacity()), (None, 0));
    }

    /// The standard's rule, as plainly as possible: two lists searched from their oldest end.
    #[derive(Default)]
    struct Naive {
        posted: Vec<(u64, Pattern, u32)>,
        unexpected: Vec<(u64, u32, i32, u32)>,
    }

    impl Naive {
        fn post(&mut self, key: u64, pattern: Pattern, id: u32) -> Option<u32> {
            match self.unexpected.iter().position(|u| u.0 == key && pattern.accepts(u.1, u.2)) {
                Some(at) => Some(self.unexpected.remove(at).3),
                None => {
                    self.posted.push((key, pattern, id));
                    None
                }
            }
        }
        fn arrive(&mut self, key: u64, source: u32, tag: i32, id: u32) -> Option<u32> {
            match self.posted.iter().position(|p| p.0 == key && p.1.accepts(source, tag)) {
                Some(at) => Some(self.posted.remove(at).2),
                None => {
                    self.unexpected.push((key, source, tag, id));
                    None
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Post { context: u32, source: u32, tag: i32 },
        Arrive { context: u32, source: u32, tag: i32 },
        Probe { context: u32, source: u32, tag: i32 },
        Extract { context: u32, source: u32, tag: i32 },
        Withdraw { which: usize },
    }

    fn step(sources: u32, tags: i32) -> impl Strategy<Value = Step> {
        let any_source = prop_oneof![4 => 0..sources, 1 => Just(Pattern::ANY_SOURCE)];
        let any_tag = prop_oneof![4 => 0..tags, 1 => Just(Pattern::ANY_TAG)];
        prop_oneof![
            4 => (0..2u32, any_source.clone(), any_tag.clone()).prop_map(|(context, source, tag)| Step::Post { context, source, tag }),
            4 => (0..2u32, 0..sources, 0..tags).prop_map(|(context, source, tag)| Step::Arrive { context, source, tag }),
            1 => (0..2u32, any_source.clone(), any_tag.clone()).prop_map(|(context, source, tag)| Step::Probe { context, source, tag }),
            1 => (0..2u32, any_source, any_tag).prop_map(|(context, source, tag)| Step::Extract { context, source, tag }),
            1 => any::<usize>().prop_map(|which| Step::Withdraw { which }),
        ]
    }

    fn run(steps: Vec<Step>) {
        let mut real: Matcher<u32, u32> = Matcher::default();
        let mut naive = Naive::default();
        let contexts: Vec<_> = (0..2).map(|c| real.open(Context::new(0, c).unwrap())).collect();
        let mut places: Vec<(u32, u32, Posted)> = Vec::new(); // id, context, place
        for (id, step) in steps.into_iter().enumerate() {
            let id = id as u32;
            match step {
                Step::Post { context, source, tag } => {
                    let pattern = Pattern { source, tag };
                    match real.post(contexts[context as usize], pattern, id) {
                        Ok(aside) => assert_eq!(naive.post(context as u64, pattern, id), Some(real.take(aside))),
                        Err(place) => {
                            assert_eq!(naive.post(context as u64, pattern, id), None);
                            places.push((id, context, place));
                        }
                    }
                }
                Step::Arrive { context, source, tag } => {
                    let index = contexts[context as usize];
                    let got = real.arrive(index, source, tag);
                    assert_eq!(got, naive.arrive(context as u64, source, tag, id));
                    match got {
                        Some(receive) => places.retain(|p| p.0 != receive),
                        None => real.keep(index, source, tag, id),
                    }
                }
                Step::Probe { context, source, tag } => {
                    let pattern = Pattern { source, tag };
                    let want = naive.unexpected.iter().find(|u| u.0 == context as u64 && pattern.accepts(u.1, u.2));
                    let got = real.peek(contexts[context as usize], pattern);
                    assert_eq!(got.map(|(e, m)| (e.source, e.tag, *m)), want.map(|u| (u.1, u.2, u.3)));
                }
                Step::Extract { context, source, tag } => {
                    let pattern = Pattern { source, tag };
                    let want = naive.unexpected.iter().position(|u| u.0 == context as u64 && pattern.accepts(u.1, u.2));
                    let want = want.map(|at| naive.unexpected.remove(at));
                    let got = real.extract(contexts[context as usize], pattern);
                    assert_eq!(got.map(|(e, m)| (e.source, e.tag, m)), want.map(|u| (u.1, u.2, u.3)));
                }
                Step::Withdraw { which } => {
                    if !places.is_empty() {
                        let (id, context, place) = places.swap_remove(which % places.len());
                        real.withdraw(contexts[context as usize], place);
                        naive.posted.retain(|p| p.2 != id);
                    }
                }
            }
            assert_eq!(real.queued(), (naive.posted.len() as u64, naive.unexpected.len() as u64));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        #[test]
        fn matches_as_the_standard_says(steps in proptest::collection::vec(step(3, 3), 0..200)) {
            run(steps);
        }
        #[test]
        fn matches_with_many_bins(steps in proptest::collection::vec(step(40, 40), 0..600)) {
            run(steps);
        }
    }

    #[test]
    fn closes_only_empty_contexts() {
        let mut m: Matcher<u32, u32> = Matcher::default();
        let c = Context::new(3, 4).unwrap();
        let index = m.open(c);
        m.keep(index, 0, 0, 1);
        assert!(!m.close(index));
        assert!(m.extract(index, Pattern { source: Pattern::ANY_SOURCE, tag: Pattern::ANY_TAG }).is_some());
        assert!(m.close(index));
        let again = m.open(Context::new(3, 5).unwrap());
        assert_eq!(again, index);
        assert!(m.peek(again, Pattern { source: 0, tag: 0 }).is_none());
    }
}
