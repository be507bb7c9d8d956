//! The event manager: one thread of a NIC that calls the program's handlers, copies for peers that use RDMA on shadow segments, goes on with
//! sends that had to wait, and reports errors. It sleeps on shared memory and is woken by peers; no signals are used (paper 001 §1.4.4).

use crate::nic::Nic;
use crate::vi::Vi;
use fabric::shm::parts;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the manager goes on looking while handlers wait, before it sleeps.
const LOOKING: Duration = Duration::from_micros(50);
/// Longest sleep, and the longest while sends wait for room in a ring.
const NAP: Duration = Duration::from_millis(100);
const NAP_UNFINISHED: Duration = Duration::from_millis(1);

pub fn run(nic: &Arc<Nic>) {
    while !nic.closing() {
        if pass(nic) {
            continue;
        }
        if nic.notifies.load(Ordering::Relaxed) > 0 && look(nic) {
            continue;
        }
        sleep(nic);
    }
}

/// Looks for a while; true: there was something.
fn look(nic: &Arc<Nic>) -> bool {
    let start = Instant::now();
    while start.elapsed() < LOOKING {
        if pass(nic) {
            return true;
        }
        fabric::shm::yield_core();
    }
    false
}

fn sleep(nic: &Arc<Nic>) {
    let (manager, watcher) = (nic.board.manager(), nic.board.watcher());
    let watching = nic.notifies.load(Ordering::Relaxed) > 0;
    let seen = parts::arm(&manager, || {
        if watching {
            parts::Waiting::sleeping(&watcher).swap(1, Ordering::SeqCst);
        }
    });
    // What was registered meanwhile has changed the word, or is seen here.
    let changed = (nic.notifies.load(Ordering::SeqCst) > 0) != watching;
    if !pass(nic) && !changed && !nic.closing() {
        let unfinished = nic.vis().iter().any(|vi| vi.send.with(|side| side.unfinished()));
        parts::futex_wait(parts::Waiting::futex(&manager), seen, if unfinished { NAP_UNFINISHED } else { NAP });
    }
    parts::disarm(&manager);
    parts::disarm(&watcher);
}

/// Does all there is to do now. True: there was something.
fn pass(nic: &Arc<Nic>) -> bool {
    let mut any = false;
    for vi in nic.vis() {
        let served = vi.serve();
        any |= served | deliver(nic, vi);
    }
    let cqs = nic.cqs.lock().map(|cqs| cqs.clone()).unwrap_or_default();
    for cq in cqs {
        any |= cq.deliver();
    }
    if any {
        // Calls that wait may wait for what has just been completed here.
        nic.board.wake_own(false);
    }
    any | nic.deliver_errors()
}

/// Calls handlers of a VI for descriptors that are complete.
fn deliver(nic: &Arc<Nic>, vi: &'static Vi) -> bool {
    let mut any = false;
    let sent = vi.send.with(|side| !side.notifies.is_empty());
    if sent && let Ok((descriptor, _)) = vi.send_done(vi.generation()) {
        any = true;
        if let Some(handler) = vi.send.with(|side| side.notifies.pop_front()) {
            nic.notifies.fetch_sub(1, Ordering::Relaxed);
            handler(nic.handle(), vi.handle(), descriptor);
        }
    }
    let received = vi.recv.with(|side| !side.notifies.is_empty());
    if received && let Ok((descriptor, _)) = vi.recv_done(vi.generation()) {
        any = true;
        if let Some(handler) = vi.recv.with(|side| side.notifies.pop_front()) {
            nic.notifies.fetch_sub(1, Ordering::Relaxed);
            handler(nic.handle(), vi.handle(), descriptor);
        }
    }
    any
}
