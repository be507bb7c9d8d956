//! Which rank gets whose segment, and when? The launcher's memory of what ranks have said, without sockets.

use launch::wire::{Reply, Request};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Most bytes of keys and values that a job may store.
pub const STORE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a rank is to be told.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The segment of rank `of`.
    Segment { to: u32, of: u32, descriptor: Rc<OwnedFd> },
    /// Anything else.
    Reply { to: u32, reply: Reply },
}

/// What a request means to the job as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    Finalized,
    Abort { code: i32, text: String },
}

/// Segments, keys and fences of a job.
#[derive(Debug)]
pub struct Exchange {
    segments: Vec<Option<Rc<OwnedFd>>>,
    /// For each rank: who waits for its segment.
    wanted: Vec<BTreeSet<u32>>,
    values: HashMap<Vec<u8>, Vec<u8>>,
    stored_bytes: usize,
    /// For each rank: the key that it waits for.
    gets: Vec<Option<(u32, Vec<u8>)>>,
    /// For each rank: the fence that it waits at.
    fences: Vec<Option<u32>>,
}

impl Exchange {
    /// For a job of `size` ranks.
    pub fn new(size: u32) -> Exchange {
        let size = size as usize;
        Exchange {
            segments: vec![None; size],
            wanted: vec![BTreeSet::new(); size],
            values: HashMap::new(),
            stored_bytes: 0,
            gets: vec![None; size],
            fences: vec![None; size],
        }
    }

    /// Takes a request of `from` with its descriptors; appends what ranks are to be told now.
    ///
    /// Errors: what no sound library sends, in words that follow "rank 3".
    pub fn handle(&mut self, from: u32, request: Request, descriptors: Vec<OwnedFd>, answers: &mut Vec<Answer>) -> Result<Effect, String> {
        match request {
            Request::Hello { .. } => return Err("said hello twice".to_owned()),
            Request::Publish => {
                let Ok([segment]) = <[OwnedFd; 1]>::try_from(descriptors) else {
                    return Err("published no segment".to_owned());
                };
                let slot = &mut self.segments[from as usize];
                if slot.is_some() {
                    return Err("published two segments".to_owned());
                }
                let segment = Rc::new(segment);
                *slot = Some(segment.clone());
                for to in std::mem::take(&mut self.wanted[from as usize]) {
                    answers.push(Answer::Segment { to, of: from, descriptor: segment.clone() });
                }
            }
            Request::Fetch { ranks } => {
                for of in ranks {
                    match self.segments.get(of as usize) {
                        None => return Err(format!("asked for the segment of rank {of}, which is none")),
                        Some(Some(descriptor)) => {
                            answers.push(Answer::Segment { to: from, of, descriptor: descriptor.clone() });
                        }
                        Some(None) => {
                            self.wanted[of as usize].insert(from);
                        }
                    }
                }
            }
            Request::Where => return Err("asked as a rank what only others ask".to_owned()),
            Request::Finalized => return Ok(Effect::Finalized),
            Request::Abort { code, text } => return Ok(Effect::Abort { code, text }),
            Request::Put { key, value } => {
                if !self.values.contains_key(&key) {
                    self.stored_bytes += key.len() + value.len();
                    if self.stored_bytes > STORE_BYTES_MAX {
                        return Err(format!("stored more than {STORE_BYTES_MAX} bytes under keys"));
                    }
                    for (to, get) in self.gets.iter_mut().enumerate() {
                        if let Some((sequence, _)) = get.take_if(|(_, wanted)| *wanted == key) {
                            let reply = Reply::Value { sequence, value: value.clone() };
                            answers.push(Answer::Reply { to: to as u32, reply });
                        }
                    }
                    self.values.insert(key, value);
                }
            }
            Request::Get { sequence, key } => match self.values.get(&key) {
                Some(value) => {
                    let reply = Reply::Value { sequence, value: value.clone() };
                    answers.push(Answer::Reply { to: from, reply });
                }
                None => self.gets[from as usize] = Some((sequence, key)),
            },
            Request::Fence { sequence } => {
                self.fences[from as usize] = Some(sequence);
                if self.fences.iter().all(Option::is_some) {
                    for (to, fence) in self.fences.iter_mut().enumerate() {
                        if let Some(sequence) = fence.take() {
                            answers.push(Answer::Reply { to: to as u32, reply: Reply::Fenced { sequence } });
                        }
                    }
                }
            }
        }
        Ok(Effect::Nothing)
    }

    /// A rank that waits for rank `absent`, which will never come.
    pub fn waits_for(&self, absent: u32) -> Option<u32> {
        let wanted = self.wanted[absent as usize].first().copied();
        wanted.or_else(|| self.fences.iter().position(Option::is_some).map(|rank| rank as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn told(answers: &[Answer]) -> Vec<(u32, u32)> {
        answers.iter().filter_map(|a| if let Answer::Segment { to, of, .. } = a { Some((*to, *of)) } else { None }).collect()
    }

    #[test]
    fn segments_reach_who_asked_before_and_after() {
        let mut exchange = Exchange::new(3);
        let mut answers = Vec::new();
        exchange.handle(0, Request::Fetch { ranks: vec![1, 2] }, vec![], &mut answers).unwrap();
        exchange.handle(2, Request::Fetch { ranks: vec![1] }, vec![], &mut answers).unwrap();
        assert!(answers.is_empty());
        assert_eq!(exchange.waits_for(1), Some(0));
        exchange.handle(1, Request::Publish, vec![descriptor()], &mut answers).unwrap();
        assert_eq!(told(&answers), [(0, 1), (2, 1)]);
        assert_eq!(exchange.waits_for(1), None);
        answers.clear();
        exchange.handle(1, Request::Fetch { ranks: vec![1] }, vec![], &mut answers).unwrap();
        assert_eq!(told(&answers), [(1, 1)]);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut exchange = Exchange::new(2);
        let mut answers = Vec::new();
        assert!(exchange.handle(0, Request::Publish, vec![], &mut answers).is_err());
        exchange.handle(0, Request::Publish, vec![descriptor()], &mut answers).unwrap();
        assert!(exchange.handle(0, Request::Publish, vec![descriptor()], &mut answers).is_err());
        assert!(exchange.handle(0, Request::Fetch { ranks: vec![2] }, vec![], &mut answers).is_err());
        let hello = Request::Hello { version: 1, rank: 0, secret: [0; 32] };
        assert!(exchange.handle(0, hello, vec![], &mut answers).is_err());
    }

    #[test]
    fn the_store_has_a_limit() {
        let mut exchange = Exchange::new(1);
        let put = |key: usize| Request::Put { key: key.to_le_bytes().to_vec(), value: vec![0; 32 * 1024] };
        let puts = STORE_BYTES_MAX / (32 * 1024 + 8);
        for key in 0..puts {
            exchange.handle(0, put(key), vec![], &mut Vec::new()).unwrap();
        }
        assert!(exchange.handle(0, put(puts), vec![], &mut Vec::new()).is_err());
    }

    #[test]
    fn values_reach_who_waits_and_the_first_stays() {
        let mut exchange = Exchange::new(2);
        let mut answers = Vec::new();
        let get = |sequence| Request::Get { sequence, key: b"k".to_vec() };
        let put = |value: &[u8]| Request::Put { key: b"k".to_vec(), value: value.to_vec() };
        exchange.handle(0, get(7), vec![], &mut answers).unwrap();
        exchange.handle(0, get(8), vec![], &mut answers).unwrap();
        assert!(answers.is_empty());
        exchange.handle(1, put(b"a"), vec![], &mut answers).unwrap();
        exchange.handle(1, put(b"b"), vec![], &mut answers).unwrap();
        exchange.handle(1, get(1), vec![], &mut answers).unwrap();
        let values: Vec<_> = answers
            .iter()
            .map(|answer| match answer {
                Answer::Reply { to, reply: Reply::Value { sequence, value } } => (*to, *sequence, value.clone()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(values, [(0, 8, b"a".to_vec()), (1, 1, b"a".to_vec())]);
    }

    proptest! {
        /// In whatever order ranks come, a fence opens once for all, when the last has come.
        #[test]
        fn a_fence_opens_for_all_at_once(order in Just((0u32..6).collect::<Vec<_>>()).prop_shuffle(), rounds in 1u32..4) {
            let mut exchange = Exchange::new(6);
            for round in 0..rounds {
                for (at, rank) in order.iter().enumerate() {
                    let mut answers = Vec::new();
                    exchange.handle(*rank, Request::Fence { sequence: round + rank }, vec![], &mut answers).unwrap();
                    if at < 5 {
                        prop_assert!(answers.is_empty());
                        continue;
                    }
                    prop_assert_eq!(answers.len(), 6);
                    for answer in answers {
                        let Answer::Reply { to, reply } = answer else { panic!("a segment") };
                        prop_assert_eq!(reply, Reply::Fenced { sequence: round + to });
                    }
                }
            }
        }
    }
}
