//! The order rules of matching (MPI-5.0 §3.5), checked on what was seen from outside.
//!
//! A message's arrival cannot be seen, but every match says something about it. Receives are matched greedily, oldest
//! first, exactly when the arrivals of all messages of one context can be put in an order such that
//! - messages of one source arrive as they were sent;
//! - where an older receive would have accepted message `m`, what that receive took arrived before `m`;
//! - where a receive that took `m` would have accepted a message that was taken by a later receive, or never, that message
//!   arrived after `m`;
//! - each message arrives after it was sent and before its receive was seen to be complete.

/// A send, as the program saw it. Times count the program's steps.
#[derive(Clone, Debug)]
pub struct Sent {
    pub source: u32,
    pub tag: i32,
    pub sent_at: u64,
    /// When cancelling was asked for, of a message that was taken back.
    pub cancelled_at: Option<u64>,
}

/// A receive, or a matched probe, as the program saw it.
#[derive(Clone, Debug)]
pub struct Received {
    /// `None` is a wildcard.
    pub source: Option<u32>,
    pub tag: Option<i32>,
    /// When it was seen to be complete, or was taken back.
    pub done_at: u64,
    /// Place of the message that it took; `None` when it was taken back.
    pub took: Option<usize>,
}

impl Received {
    fn accepts(&self, message: &Sent) -> bool {
        self.source.is_none_or(|s| s == message.source) && self.tag.is_none_or(|t| t == message.tag)
    }
}

/// Checks one context of one process: `sent` in the order in which each source sent, `received` as they were posted.
/// `Err` says what cannot be.
pub fn check(sent: &[Sent], received: &[Received]) -> Result<(), String> {
    let mut taker: Vec<Option<usize>> = vec![None; sent.len()];
    for (r, receive) in received.iter().enumerate() {
        let Some(m) = receive.took else { continue };
        if !receive.accepts(&sent[m]) {
            return Err(format!("receive {r} took message {m}, which it does not accept"));
        }
        if sent[m].cancelled_at.is_some() {
            return Err(format!("receive {r} took message {m}, which was taken back"));
        }
        if let Some(other) = taker[m].replace(r) {
            return Err(format!("message {m} was taken by receives {other} and {r}"));
        }
    }
    // Edges from what arrives earlier to what arrives later.
    let mut later: Vec<Vec<usize>> = vec![Vec::new(); sent.len()];
    let mut earliest: Vec<u64> = sent.iter().map(|m| m.sent_at).collect();
    let mut last_of_source = std::collections::HashMap::new();
    for (m, message) in sent.iter().enumerate() {
        // A message that was taken back may never have arrived.
        if message.cancelled_at.is_none()
            && let Some(before) = last_of_source.insert(message.source, m)
        {
            later[before].push(m);
        }
    }
    for (r, receive) in received.iter().enumerate() {
        let Some(m) = receive.took else { continue };
        for older in received[..r].iter().filter(|older| older.accepts(&sent[m])) {
            match older.took {
                Some(before) => later[before].push(m),
                None => earliest[m] = earliest[m].max(older.done_at),
            }
        }
        for (other, message) in sent.iter().enumerate().filter(|(other, message)| *other != m && receive.accepts(message)) {
            let after = match (taker[other], message.cancelled_at) {
                (Some(by), _) => by > r,
                (None, Some(cancelled_at)) => receive.done_at < cancelled_at,
                (None, None) => true,
            };
            if after {
                later[m].push(other);
            }
        }
    }
    // The earliest arrivals, in an order that keeps all edges.
    let mut missing: Vec<usize> = vec![0; sent.len()];
    later.iter().flatten().for_each(|m| missing[*m] += 1);
    let mut ready: Vec<usize> = (0..sent.len()).filter(|m| missing[*m] == 0).collect();
    let mut seen = 0;
    while let Some(m) = ready.pop() {
        seen += 1;
        if let Some(r) = taker[m]
            && earliest[m] > received[r].done_at
        {
            let (at, done_at) = (earliest[m], received[r].done_at);
            return Err(format!("receive {r} had message {m} at {done_at}, which cannot have come before {at}"));
        }
        for &next in &later[m] {
            earliest[next] = earliest[next].max(earliest[m]);
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(next);
            }
        }
    }
    if seen < sent.len() {
        let circle: Vec<_> = (0..sent.len()).filter(|m| missing[*m] > 0).map(|m| (m, taker[m])).collect();
        return Err(format!("no order of arrivals explains these matches (message, receive): {circle:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A history as the standard wants it, made by the plainest matcher.
    fn history(random: &mut Random) -> (Vec<Sent>, Vec<Received>) {
        let (mut sent, mut received): (Vec<Sent>, Vec<Received>) = (Vec::new(), Vec::new());
        let (mut wire, mut posted, mut unexpected): (Vec<usize>, Vec<usize>, Vec<usize>) = Default::default();
        for now in 0..random.below(80) {
            match random.below(3) {
                0 => {
                    let (source, tag) = (random.below(3) as u32, random.below(2) as i32);
                    wire.push(sent.len());
                    sent.push(Sent { source, tag, sent_at: now, cancelled_at: None });
                }
                1 if !wire.is_empty() => {
                    // The oldest of some source arrives.
                    let source = sent[wire[random.below(wire.len() as u64) as usize]].source;
                    let at = wire.iter().position(|m| sent[*m].source == source).unwrap();
                    let m = wire.remove(at);
                    match posted.iter().position(|r| received[*r].accepts(&sent[m])) {
                        Some(at) => {
                            let r = posted.remove(at);
                            (received[r].took, received[r].done_at) = (Some(m), now);
                        }
                        None => unexpected.push(m),
                    }
                }
                _ => {
                    let source = random.chance(60).then(|| random.below(3) as u32);
                    let tag = random.chance(60).then(|| random.below(2) as i32);
                    let mut r = Received { source, tag, done_at: now, took: None };
                    match unexpected.iter().position(|m| r.accepts(&sent[*m])) {
                        Some(at) => r.took = Some(unexpected.remove(at)),
                        None => {
                            r.done_at = u64::MAX;
                            posted.push(received.len());
                        }
                    }
                    received.push(r);
                }
            }
        }
        (sent, received)
    }

    #[test]
    fn right_histories_pass_and_overtaking_does_not() {
        let mut refused = 0;
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let (sent, mut received) = history(&mut random);
            assert_eq!(check(&sent, &received), Ok(()), "seed {seed}: {sent:?} {received:?}");
            // Two receives exchange messages of one source and tag: the later message has overtaken.
            let done: Vec<usize> = (0..received.len()).filter(|r| received[*r].took.is_some()).collect();
            let pair = done.iter().enumerate().find_map(|(i, a)| {
                let same = |b: &&usize| {
                    let (x, y) = (&sent[received[*a].took.unwrap()], &sent[received[**b].took.unwrap()]);
                    (x.source, x.tag) == (y.source, y.tag)
                };
                done[i + 1..].iter().find(same).map(|b| (*a, *b))
            });
            let Some((a, b)) = pair else { continue };
            (received[a].took, received[b].took) = (received[b].took, received[a].took);
            received[a].done_at = u64::MAX;
            assert!(check(&sent, &received).is_err(), "seed {seed}: {sent:?} {received:?}");
            refused += 1;
        }
        assert!(refused > 500);
    }

    fn sent(source: u32, tag: i32, sent_at: u64) -> Sent {
        Sent { source, tag, sent_at, cancelled_at: None }
    }

    fn received(source: Option<u32>, tag: Option<i32>, done_at: u64, took: Option<usize>) -> Received {
        Received { source, tag, done_at, took }
    }

    #[test]
    fn wildcards_do_not_excuse_overtaking() {
        // The older receive takes anything, so it takes the first message of the source.
        let messages = [sent(0, 1, 0), sent(0, 2, 1)];
        let right = [received(None, None, 5, Some(0)), received(None, None, 5, Some(1))];
        assert_eq!(check(&messages, &right), Ok(()));
        let wrong = [received(None, None, 5, Some(1)), received(None, None, 5, Some(0))];
        assert!(check(&messages, &wrong).is_err());
        // Two sources may come in either order, but in one only.
        let messages = [sent(0, 1, 0), sent(1, 1, 0)];
        for (a, b) in [(0, 1), (1, 0)] {
            let both = [received(None, Some(1), 5, Some(a)), received(None, Some(1), 5, Some(b))];
            assert_eq!(check(&messages, &both), Ok(()));
        }
        // An older receive that is still waiting would have taken it.
        let waiting = [received(None, None, 9, None), received(Some(0), None, 5, Some(0))];
        assert!(check(&messages[..1], &waiting).is_err());
        // Three receives that cannot all have been the first.
        let messages = [sent(0, 1, 0), sent(1, 1, 0), sent(0, 2, 1)];
        let circle = [received(None, Some(2), 8, Some(2)), received(None, None, 8, Some(1)), received(Some(0), None, 8, Some(0))];
        assert_eq!(check(&messages, &circle), Ok(()));
        let circle = [received(Some(1), None, 8, Some(1)), received(None, None, 3, Some(2)), received(None, Some(1), 8, Some(0))];
        assert!(check(&messages, &circle).is_err());
    }

    #[test]
    fn nothing_comes_before_it_was_sent() {
        assert!(check(&[sent(0, 0, 7)], &[received(None, None, 6, Some(0))]).is_err());
        let taken_back = [Sent { cancelled_at: Some(3), ..sent(0, 0, 1) }];
        assert!(check(&taken_back, &[received(None, None, 6, Some(0))]).is_err());
        let twice = [received(None, None, 6, Some(0)), received(None, None, 6, Some(0))];
        assert!(check(&[sent(0, 0, 1)], &twice).is_err());
    }
}
