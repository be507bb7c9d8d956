//! So many messages of 8 bytes, or as many as the second argument says, between two engines of one process, half of them posted first, half sent first:
//! for counting instructions (`bench/instructions`).

use engine::{Config, Context, ContextIndex, Engine, Pattern, RequestId, Target};
use fabric::local::{self, LocalPeers};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

fn pair() -> [Engine; 2] {
    let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
    [0, 1].map(|index| {
        let others = segments.clone();
        let resolver: local::Resolver = Box::new(move |peer, _| others.lock().unwrap()[&peer].try_clone().map(Some).map_err(|e| e.to_string()));
        let config = local::Config { index, processes: 2, memory_bytes: 3 << 20, single_copy: true, map_memory: true, answer_within: local::ANSWER_WITHIN };
        let local = LocalPeers::new(config, resolver).unwrap();
        segments.lock().unwrap().insert(index, local.segment().try_clone_to_owned().unwrap());
        Engine::new(Config { me: index, processes: 2, cores: 2, ..Config::default() }, Some(local))
    })
}

fn context() -> Context {
    Context::new(0, 1).unwrap()
}

#[inline(never)]
fn send(engine: &mut Engine, from: &[u8]) {
    let to = Target { process: 1, context: context(), source: 0, tag: 1 };
    // SAFETY: readable bytes.
    if !unsafe { engine.send_quickly(to, from.as_ptr(), from.len()) } {
        send_otherwise(engine, to, from);
    }
}

/// The first message makes the ring, and some later one has it grow.
#[inline(never)]
fn send_otherwise(engine: &mut Engine, to: Target, from: &[u8]) {
    // SAFETY: readable bytes; the send is complete when the receive is.
    let buffer = unsafe { engine::Buffer::contiguous(from.as_ptr().cast_mut(), from.len()) };
    engine.send(&to, &buffer, engine::Mode::Standard).unwrap();
    engine.progress().unwrap();
}

#[inline(never)]
fn receive(engine: &mut Engine, context: ContextIndex, into: &mut [u8]) -> RequestId {
    // SAFETY: writable bytes, which nobody touches until the receive is complete.
    unsafe { engine.receive_quickly(context, Pattern { source: 0, tag: 1 }, into.as_mut_ptr(), into.len(), 0) }.unwrap()
}

#[inline(never)]
fn finish(engine: &mut Engine, id: RequestId, bytes: usize) {
    engine.progress().unwrap();
    assert!(engine.own_request_is_complete(id));
    assert_eq!(engine.take_own_request(id).bytes, bytes as u64);
}

fn main() {
    let number = |at| std::env::args().nth(at).and_then(|text| text.parse::<usize>().ok());
    let (messages, bytes) = (number(1).expect("how many messages"), number(2).unwrap_or(8));
    let [mut sender, mut receiver] = pair();
    let index = receiver.open(context());
    let (from, mut into) = (vec![1; bytes], vec![0; bytes]);
    send_otherwise(&mut sender, Target { process: 1, context: context(), source: 0, tag: 1 }, &from);
    let id = receive(&mut receiver, index, &mut into);
    while !receiver.own_request_is_complete(id) {
        sender.progress().unwrap();
        receiver.progress().unwrap();
    }
    finish(&mut receiver, id, bytes);
    for number in 0..messages {
        if number % 2 == 0 {
            let id = receive(&mut receiver, index, &mut into);
            send(&mut sender, &from);
            finish(&mut receiver, id, bytes);
        } else {
            send(&mut sender, &from);
            receiver.progress().unwrap();
            let id = receive(&mut receiver, index, &mut into);
            finish(&mut receiver, id, bytes);
        }
    }
}
