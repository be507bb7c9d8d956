//! So many messages of 8 bytes between two engines of one process, half of them posted first, half sent first: for counting instructions
//! (`bench/instructions`).

use engine::{Config, Context, ContextIndex, Engine, Pattern, RequestId, Target};
use fabric::local::{self, LocalPeers};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

fn pair() -> [Engine; 2] {
    let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
    [0, 1].map(|index| {
        let others = segments.clone();
        let resolver: local::Resolver = Box::new(move |peer| others.lock().unwrap()[&peer].try_clone().map(Some).map_err(|e| e.to_string()));
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
fn send(engine: &mut Engine, from: &[u8; 8]) -> bool {
    // SAFETY: eight readable bytes.
    unsafe { engine.send_quickly(Target { process: 1, context: context(), source: 0, tag: 1 }, from.as_ptr(), 8) }
}

#[inline(never)]
fn receive(engine: &mut Engine, context: ContextIndex, into: &mut [u8; 8]) -> RequestId {
    // SAFETY: eight writable bytes, which nobody touches until the receive is complete.
    unsafe { engine.receive_quickly(context, Pattern { source: 0, tag: 1 }, into.as_mut_ptr(), 8, 0) }.unwrap()
}

#[inline(never)]
fn finish(engine: &mut Engine, id: RequestId) {
    engine.progress().unwrap();
    assert!(engine.own_request_is_complete(id));
    assert_eq!(engine.take_own_request(id).bytes, 8);
}

fn main() {
    let messages: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("how many messages");
    let [mut sender, mut receiver] = pair();
    let index = receiver.open(context());
    let (from, mut into) = ([1; 8], [0; 8]);
    // The first goes the slow way, which makes the ring.
    // SAFETY: eight readable bytes; the send is complete when the receive is.
    let first = unsafe { engine::Buffer::contiguous(from.as_ptr().cast_mut(), 8) };
    sender.send(&Target { process: 1, context: context(), source: 0, tag: 1 }, &first, engine::Mode::Standard).unwrap();
    let id = receive(&mut receiver, index, &mut into);
    while !receiver.own_request_is_complete(id) {
        sender.progress().unwrap();
        receiver.progress().unwrap();
    }
    finish(&mut receiver, id);
    for number in 0..messages {
        if number % 2 == 0 {
            let id = receive(&mut receiver, index, &mut into);
            assert!(send(&mut sender, &from));
            finish(&mut receiver, id);
        } else {
            assert!(send(&mut sender, &from));
            receiver.progress().unwrap();
            let id = receive(&mut receiver, index, &mut into);
            finish(&mut receiver, id);
        }
    }
}
