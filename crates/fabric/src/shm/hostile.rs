//! What a corrupt or malicious process can write into shared memory, and what its peers make of it: an error that says what is
//! wrong, or a packet within the limits. Never a crash, a hang, or a byte outside the mapping.

use super::slots::{Room, Slots};
use super::*;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

/// Numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 7
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn config(index: u32, processes: u32) -> Config {
    Config { index, processes, memory_bytes: 1, single_copy: true, map_memory: true, answer_within: ANSWER_WITHIN }
}

/// Two processes of one host, in this one.
fn pair() -> (Shm, Shm) {
    let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
    let shm = |index| {
        let others = segments.clone();
        let resolver: Resolver = Box::new(move |peer, _| match others.lock().unwrap().get(&peer) {
            Some(fd) => fd.try_clone().map(Some).map_err(|e| e.to_string()),
            None => Err("nobody".into()),
        });
        let shm = Shm::new(config(index, 3), resolver).unwrap();
        segments.lock().unwrap().insert(index, shm.segment().try_clone_to_owned().unwrap());
        shm
    };
    (shm(0), shm(1))
}

/// A process whose peers all have the segment `fd`.
fn victim_of(fd: OwnedFd) -> Shm {
    Shm::new(config(0, 3), Box::new(move |_, _| fd.try_clone().map(Some).map_err(|e| e.to_string()))).unwrap()
}

fn send(from: &mut Shm, to: u32, bytes: usize) -> Result<(), Refused> {
    let data = vec![3; bytes];
    // SAFETY: the vector is readable.
    from.send(to, [0; 2], &[1, 2], unsafe { Body::new(data.as_ptr(), data.len()) })
}

fn word(mapping: &Mapping, at: usize) -> &'static AtomicU64 {
    // Slots are the only atomics of one word's alignment that a mapping gives out whole.
    &mapping.slice::<AtomicU64>(at * 8, 1).unwrap()[0]
}

#[test]
fn descriptors_that_are_no_segment_are_refused() {
    let file = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
    let memory = |bytes, seals: bool| {
        if seals {
            return sys::memfd(bytes).unwrap();
        }
        // SAFETY: plain system calls on a descriptor that is ours.
        unsafe {
            let fd = libc::memfd_create(c"loose".as_ptr(), libc::MFD_ALLOW_SEALING);
            assert!(fd >= 0 && libc::ftruncate(fd, bytes as libc::off_t) == 0);
            std::os::fd::FromRawFd::from_raw_fd(fd)
        }
    };
    let own = Shm::new(config(1, 4), Box::new(|_, _| Err("nobody".into()))).unwrap();
    let other_job = own.segment().try_clone_to_owned().unwrap();
    let right = Shm::new(config(1, 3), Box::new(|_, _| Err("nobody".into()))).unwrap();
    let read_only = {
        let path = format!("/proc/self/fd/{}", right.segment().as_raw_fd());
        file(&path)
    };
    for (what, fd) in [
        ("a directory", file("/")),
        ("a device", file("/dev/null")),
        ("an ordinary file", file("/proc/self/exe")),
        ("a file that may shrink", memory(32 << 20, false)),
        ("an empty file", memory(0, true)),
        ("a file of a few bytes", memory(100, true)),
        ("a file of zeroes", memory(32 << 20, true)),
        ("a segment for another number of processes", other_job),
        ("a segment that may not be written", read_only),
    ] {
        let mut victim = victim_of(fd);
        assert!(matches!(send(&mut victim, 1, 8), Err(Refused::Failed(_))), "{what}");
        assert!(!victim.reachable(1), "{what}");
        assert!(victim.wake(1).is_err() && victim.cooperative(1, 0).is_err() && victim.lines(1, 4096, 1).is_err(), "{what}");
    }
    let mut alone = pair().0;
    assert!(matches!(send(&mut alone, 2, 8), Err(Refused::Failed(Error::Peer { peer: 2, .. }))));
}

#[test]
fn a_cut_off_segment_is_refused() {
    let right = Shm::new(config(1, 3), Box::new(|_, _| Err("nobody".into()))).unwrap();
    let whole = right.mapping.len() as u64;
    for bytes in [192, 4096, whole - 4096] {
        let fd = sys::memfd(bytes).unwrap();
        let mapping = Mapping::new(fd.as_fd()).unwrap();
        for at in 0..24 {
            word(&mapping, at).store(word(&right.mapping, at).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut victim = victim_of(fd);
        match send(&mut victim, 1, 8) {
            Err(Refused::Failed(Error::Corrupt { peer: 1, what, value })) => {
                assert_eq!((what, value), ("the size of the segment", bytes));
            }
            other => panic!("{bytes}: {other:?}"),
        }
    }
}

/// Who looks once more before it sleeps has seen all of what came before: nobody wakes it for that.
#[test]
fn what_comes_with_a_connection_is_there_at_the_first_look() {
    for bytes in [8, 1000] {
        let (mut one, mut two) = pair();
        send(&mut one, 1, bytes).unwrap();
        let packet = two.receive().unwrap().expect("the first packet of a peer");
        assert_eq!(packet.peer, 0);
        two.release(&packet);
        assert!(two.receive().unwrap().is_none());
    }
}

/// Collective areas may take what is there for them, and no more: who comes after that still gets its ring.
#[test]
fn collective_areas_leave_the_rings_their_memory() {
    let (mut owner, mut sender) = pair();
    let mut shared = 0;
    while owner.share(4 << 20).is_ok() {
        shared += 4 << 20;
    }
    assert_eq!(shared, segment::SHARED_BYTES_MAX);
    assert!(owner.share(1).is_err());
    send(&mut sender, 0, 1000).unwrap();
    assert!(owner.receive().unwrap().is_some());
}

#[test]
fn a_peer_sees_whether_a_process_has_its_core() {
    let (owner, mut sender) = pair();
    assert!(!sender.has_core(0), "nothing is known of one that has not been spoken to");
    send(&mut sender, 0, 8).unwrap();
    assert!(sender.has_core(0) && !sender.has_core(1) && !sender.has_core(9));
    owner.say_away(true);
    assert!(!sender.has_core(0));
    owner.say_away(false);
    assert!(sender.has_core(0));
    owner.arm(|| ());
    assert!(!sender.has_core(0), "it sleeps");
    owner.disarm();
    assert!(sender.has_core(0));
}

#[test]
fn places_of_rings_are_checked() {
    let end = Shm::new(config(1, 3), Box::new(|_, _| Err("nobody".into()))).unwrap().mapping.len() as u64;
    for place in [1, 64, 4095, 4097, end - 4096, end, end + 4096, u64::MAX - 4095, u64::MAX - 1, 1 << 63] {
        let (mut victim, _) = pair();
        victim.connections.rings[1].store(place, Ordering::Release);
        victim.header.connects.fetch_add(1, Ordering::SeqCst);
        match victim.receive() {
            Err(Error::Corrupt { peer: 1, what: "the place of its ring", value }) => assert_eq!(value, place),
            other => panic!("{place}: {:?}", other.map(|p| p.is_some())),
        }
    }
}

#[test]
fn places_of_vcis_directories_are_checked() {
    let end = Shm::new(config(1, 3), Box::new(|_, _| Err("nobody".into()))).unwrap().mapping.len() as u64;
    let alone = || -> Resolver { Box::new(|_, _| Err("nobody".into())) };
    for place in [1, 64, 4095, 4097, end - 64, end, end + 4096, u64::MAX - 4095, u64::MAX, 1 << 63] {
        let (victim, mut attacker) = pair();
        // In the victim's own segment, and in the one that it maps.
        victim.header.directories[0].store(place, Ordering::Release);
        let what = "the place of a VCI's connections";
        assert_eq!(victim.vci(1, alone()).err(), Some(Error::Corrupt { peer: 0, what, value: place }));
        assert!(victim.vci(2, alone()).is_ok());
        let theirs = attacker.segment().try_clone_to_owned().unwrap();
        attacker.header.directories[2].store(place, Ordering::Release);
        let resolver: Resolver = Box::new(move |_, _| theirs.try_clone().map(Some).map_err(|e| e.to_string()));
        let mut third = victim.vci(3, resolver).unwrap();
        assert!(matches!(send(&mut third, 1, 8), Err(Refused::Failed(Error::Corrupt { peer: 1, value, .. })) if value == place));
        send(&mut attacker, 0, 8).unwrap();
    }
}

#[test]
fn vcis_of_a_process_have_rings_of_their_own() {
    let (mut victim, mut sender) = pair();
    let fd = |shm: &Shm| shm.segment().try_clone_to_owned().unwrap();
    let (to_victim, to_sender) = (fd(&victim), fd(&sender));
    let mut further = sender.vci(1, Box::new(move |_, _| to_victim.try_clone().map(Some).map_err(|e| e.to_string()))).unwrap();
    send(&mut further, 0, 8).unwrap();
    send(&mut sender, 0, 8).unwrap();
    let take = |shm: &mut Shm| (0..4).filter_map(|_| shm.receive().unwrap().map(|packet| shm.release(&packet))).count();
    assert_eq!(take(&mut victim), 1, "one message is for the first");
    let mut connections = victim.vci(1, Box::new(move |_, _| to_sender.try_clone().map(Some).map_err(|e| e.to_string()))).unwrap();
    assert_eq!((take(&mut connections), take(&mut victim)), (1, 0), "and one for the other, which came before it was opened");
    send(&mut connections, 1, 8).unwrap();
    assert_eq!((take(&mut further), take(&mut sender)), (1, 0));
}

#[test]
fn nobody_connects_as_the_process_itself() {
    let (mut victim, mut attacker) = pair();
    send(&mut attacker, 0, 8).unwrap();
    let rings = victim.connections.rings;
    rings[0].store(rings[1].load(Ordering::Relaxed), Ordering::Release);
    victim.header.connects.fetch_add(1, Ordering::SeqCst);
    let mut from = Vec::new();
    let failed = loop {
        match victim.receive() {
            Ok(Some(packet)) => {
                from.push(packet.peer);
                victim.release(&packet);
            }
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(failed && !from.contains(&0), "a packet came from the process itself");
}

#[test]
fn cursors_are_checked_before_anything_is_written() {
    let end = pair().0.mapping.len() as u64;
    for cursor in [0, 64, 4097, end - 4096, end, u64::MAX - 100, u64::MAX, 1 << 63] {
        let (mut victim, attacker) = pair();
        attacker.header.cursor.store(cursor, Ordering::Relaxed);
        assert!(matches!(send(&mut victim, 1, 8), Err(Refused::Failed(_))), "{cursor}");
    }
}

#[test]
fn numbers_of_shared_areas_are_checked() {
    let (mut victim, _attacker) = pair();
    for slot in [COOPERATIVES as u64, u64::MAX] {
        assert!(matches!(victim.cooperative(1, slot), Err(Error::Corrupt { peer: 1, .. })));
    }
    let end = victim.mapping.len() as u64;
    for place in [1, 7, end, end - 64, u64::MAX, u64::MAX - 63] {
        assert!(matches!(victim.lines(1, place, 2), Err(Error::Corrupt { peer: 1, .. })), "{place}");
    }
    assert!(victim.lines(1, end - 64, usize::MAX).is_err());
}

/// A stranger's process number and nonce do not open it.
#[test]
fn a_false_nonce_is_not_reachable() {
    for field in 0..3 {
        let (mut victim, attacker) = pair();
        match field {
            0 => attacker.header.nonce[1].store(7, Ordering::Relaxed),
            1 => attacker.header.nonce_address.store(16, Ordering::Relaxed),
            _ => attacker.header.pid.store(1 << 30, Ordering::Relaxed),
        }
        assert!(!victim.reachable(1));
    }
    let (mut victim, _attacker) = pair();
    assert!(victim.reachable(1));
}

/// Words anywhere in both segments change between ordinary calls.
#[test]
fn scribbled_segments_give_errors_and_no_crash() {
    let scale: u64 = std::env::var("WHIMBREL_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (mut errors, mut packets) = (0, 0);
    for seed in 0..60 * scale {
        let mut random = Random(seed * 0x1234_5677);
        let (mut victim, mut attacker) = pair();
        let mappings = [victim.mapping, attacker.mapping];
        let used = victim.geometry.head_bytes() + victim.geometry.ring_bytes() + 4096;
        for _ in 0..400 {
            match random.below(8) {
                0..3 => {
                    let mapping = &mappings[random.below(2) as usize];
                    // Headers, counters and the first slots more often than the rest.
                    let head = victim.geometry.head_bytes();
                    let at = match random.below(4) {
                        0 => random.below(192),
                        1 => random.below(head),
                        2 => head + random.below(1024),
                        _ => random.below(used),
                    } as usize
                        / 8;
                    let old = word(mapping, at).load(Ordering::Relaxed);
                    let value = match random.below(6) {
                        0 => random.next() << 7,
                        1 => old ^ 1 << random.below(64),
                        2 => old.wrapping_add(random.below(3)).wrapping_sub(1),
                        3 => random.below(1 << 17),
                        4 => u64::MAX,
                        _ => random.below(64) * 4096,
                    };
                    word(mapping, at).store(value, Ordering::Relaxed);
                }
                3 => errors += send(&mut victim, 1, random.below(4097) as usize).is_err() as u64,
                4 => errors += send(&mut attacker, 0, random.below(4097) as usize).is_err() as u64,
                5 => {
                    let _ = (victim.credit(1), victim.reachable(1), victim.wake(1), victim.share(64), victim.lines(1, 4096, 3));
                    victim.give_credit(1, random.below(1000), 100);
                }
                _ => match victim.receive() {
                    Ok(Some(packet)) => {
                        packets += 1;
                        assert!(packet.taken.inline_bytes <= ring::INLINE_BYTES);
                        let mut copy = vec![0u8; victim.capabilities.body_bytes_max];
                        if let Some((Long { parts: (a, b), .. }, _)) = victim.long(&packet) {
                            assert!(a.len() + b.len() <= copy.len());
                            // SAFETY: the copy has room for both, just checked.
                            unsafe {
                                a.read_to(copy.as_mut_ptr());
                                b.read_to(copy.as_mut_ptr().add(a.len()));
                            }
                        }
                        victim.release(&packet);
                    }
                    Ok(None) => {}
                    Err(Error::Corrupt { .. }) => errors += 1,
                    Err(other) => panic!("{other}"),
                },
            }
        }
    }
    assert!(errors > 100 && packets > 100, "{errors} errors, {packets} packets");
}

/// Without memory for pages, calls fail with the system's number; nothing is touched that is not there.
mod shortage {
    use super::*;

    /// Calls of this thread fail with `errno`, by a filter that only this thread gets; where `fourth` is given, those whose fourth
    /// argument it is.
    fn forbid(call: libc::c_long, fourth: Option<u32>, errno: i32) {
        // Places in `struct seccomp_data`: the number of the call, and the low half of the fourth argument.
        const NUMBER: u32 = 0;
        const FOURTH: u32 = 16 + 3 * 8;
        let load = |k| libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k };
        let otherwise = |k, jf| libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf, k };
        let end = |k| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
        let mut program = vec![load(NUMBER)];
        match fourth {
            Some(value) => program.extend([otherwise(call as u32, 3), load(FOURTH), otherwise(value, 1)]),
            None => program.push(otherwise(call as u32, 1)),
        }
        program.extend([end(libc::SECCOMP_RET_ERRNO | errno as u32), end(libc::SECCOMP_RET_ALLOW)]);
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: plain system calls; the program lives until they return.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter), 0);
        }
    }

    fn in_own_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn no_pages_at_the_start() {
        in_own_thread(|| {
            forbid(libc::SYS_fallocate, None, libc::ENOSPC);
            match Shm::new(config(0, 3), Box::new(|_, _| Err("nobody".into()))) {
                Err(Error::Memory { errno: libc::ENOSPC, bytes, what }) => {
                    assert_eq!((bytes, what), (4096, "the head of a shared-memory segment"));
                }
                other => panic!("{:?}", other.err()),
            }
        });
    }

    #[test]
    fn no_pages_for_a_ring_or_a_shared_area() {
        in_own_thread(|| {
            let (mut victim, mut peer) = pair();
            forbid(libc::SYS_fallocate, None, libc::ENOMEM);
            let text = match send(&mut victim, 1, 8) {
                Err(Refused::Failed(error @ Error::Memory { errno: libc::ENOMEM, .. })) => error.to_string(),
                other => panic!("{other:?}"),
            };
            assert!(text.starts_with("no memory for a ring in a peer's segment: 16384 bytes refused (Cannot allocate"), "{text}");
            assert!(matches!(victim.share(64), Err(Error::Memory { errno: libc::ENOMEM, .. })));
            // The peer sees nothing of it.
            assert!(matches!(peer.receive(), Ok(None)));
        });
    }

    #[test]
    fn no_pages_for_room_that_is_going_to_be_used() {
        in_own_thread(|| {
            let (mut owner, _) = pair();
            let (slots, room, ..) = with_room(&mut owner);
            if !sys::can_populate() {
                return eprintln!("skipped: this system cannot populate pages");
            }
            slots.prepare(&room, 4096).unwrap();
            forbid(libc::SYS_madvise, None, libc::ENOMEM);
            // What has its pages is used all the same.
            slots.prepare(&room, 128 << 10).unwrap();
            assert!(matches!(slots.prepare(&room, (128 << 10) + 1), Err(Error::Memory { errno: libc::ENOMEM, bytes: 0x20000, .. })));
        });
    }

    #[test]
    fn no_descriptors_and_no_address_space() {
        in_own_thread(|| {
            forbid(libc::SYS_memfd_create, None, libc::EMFILE);
            let made = Shm::new(config(0, 3), Box::new(|_, _| Err("nobody".into())));
            assert!(matches!(made, Err(Error::Memory { errno: libc::EMFILE, .. })));
        });
        in_own_thread(|| {
            let (mut victim, _peer) = pair();
            forbid(libc::SYS_mmap, Some(libc::MAP_SHARED as u32), libc::ENOMEM);
            let sent = send(&mut victim, 1, 8);
            assert!(matches!(sent, Err(Refused::Failed(Error::Memory { errno: libc::ENOMEM, .. }))), "{sent:?}");
        });
    }

    /// A limit on the size of files holds for memory files too; without a handler the system's signal would end the process.
    #[test]
    fn a_limit_on_files() {
        if std::env::var_os("WHIMBREL_TEST_LIMITED").is_none() {
            let me = std::env::current_exe().unwrap();
            let child = std::process::Command::new(me)
                .args(["--exact", "shm::hostile::shortage::a_limit_on_files"])
                .env("WHIMBREL_TEST_LIMITED", "1")
                .status()
                .unwrap();
            assert!(child.success(), "{child}");
            return;
        }
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: a plain system call, in a process of its own.
        unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0) };
        match Shm::new(config(0, 3), Box::new(|_, _| Err("nobody".into()))) {
            Err(Error::Segment { errno: libc::EFBIG, why, .. }) => assert!(why.contains("ulimit -f"), "{why}"),
            other => panic!("{:?}", other.err()),
        }
    }
}

/// Bytes of `fd` that have pages.
fn with_pages(fd: BorrowedFd) -> u64 {
    // SAFETY: a plain system call on a descriptor that is open.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(fd.as_raw_fd(), &mut stat), 0);
        stat.st_blocks as u64 * 512
    }
}

#[test]
fn what_others_place_has_pages_before_it_is_touched() {
    let (mut victim, _) = pair();
    let (place, before) = (victim.geometry.head_bytes() + 64 * 4096, with_pages(victim.segment()));
    victim.connections.rings[1].store(place, Ordering::Release);
    victim.header.connects.fetch_add(1, Ordering::SeqCst);
    assert!(victim.receive().unwrap().is_none());
    let ring = victim.geometry.ring_bytes();
    assert!(with_pages(victim.segment()) >= before + ring, "a ring");
    let before = with_pages(victim.segment());
    victim.lines(0, place + 128 * 4096, 64).unwrap().unwrap();
    assert!(with_pages(victim.segment()) >= before + 4096, "lines");
    let before = with_pages(victim.segment());
    victim.header.directories[0].store(place + 256 * 4096, Ordering::Release);
    victim.vci(1, Box::new(|_, _| Err("nobody".into()))).unwrap();
    assert!(with_pages(victim.segment()) >= before + victim.geometry.connections_bytes(), "a connection directory");
}

/// Slots and room of 1 MiB each for two members, of which this one is the second; where the room lies, and how many lines that are.
fn with_room(owner: &mut Shm) -> (Slots<'static>, Room, u64, usize) {
    const EACH: usize = 1 << 20;
    let page = segment::PAGE as usize / size_of::<area::Line>();
    let lines = page + 2 * EACH / size_of::<area::Line>();
    let at = owner.share(slots::lines_of(2) as u64 * 64).unwrap();
    let slots = Slots::new(owner.lines(0, at, slots::lines_of(2)).unwrap().unwrap(), 2, 1);
    let place = owner.share_in_parts(lines as u64 * 64, segment::PAGE).unwrap();
    let own = page + EACH / 64..page + (EACH + slots::reserved_bytes(EACH)) / 64;
    let room = owner.lines_in_parts(0, place, lines, own).unwrap().unwrap();
    (slots, Room::of(&room[page..], 2), place, lines)
}

#[test]
fn room_gets_its_pages_as_it_is_used_and_all_of_it_counts() {
    let (mut owner, _) = pair();
    let (before, reserved) = (with_pages(owner.segment()), owner.reserved_bytes());
    let (slots, room, place, lines) = with_room(&mut owner);
    assert!(owner.reserved_bytes() >= reserved + lines as u64 * 64);
    let mut had = with_pages(owner.segment());
    if sys::can_populate() {
        assert!(had < before + (64 << 10), "{had} of {before}");
        for (end, more) in [(1, 128 << 10), (128 << 10, 0), (130 << 10, 128 << 10), (600 << 10, (600 << 10) - (256 << 10)), (1 << 20, (1 << 20) - (600 << 10))]
        {
            slots.prepare(&room, end).unwrap();
            let has = with_pages(owner.segment());
            assert_eq!(has, had + more, "{end}");
            had = has;
        }
    }
    // The other one's part is none of this member's.
    assert!(with_pages(owner.segment()) < before + (1 << 20) + (64 << 10));
    owner.lines_in_parts(0, place, lines, 0..lines).unwrap().unwrap();
    assert!(with_pages(owner.segment()) >= before + (2 << 20));
}

#[test]
fn a_ring_that_is_used_grows_and_its_pages_are_counted() {
    let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
    let shm = |index, memory_bytes| {
        let others = segments.clone();
        let resolver: Resolver = Box::new(move |peer, _| others.lock().unwrap()[&peer].try_clone().map(Some).map_err(|e| e.to_string()));
        let mut shm = Shm::new(Config { memory_bytes, ..config(index, 2) }, resolver).unwrap();
        shm.grows = true;
        segments.lock().unwrap().insert(index, shm.segment().try_clone_to_owned().unwrap());
        shm
    };
    for (memory_bytes, grown) in [(3 << 20, 1 << 20), (1 << 20, 512 << 10), (10 << 10, 8 << 10)] {
        let (mut owner, mut sender) = (shm(0, memory_bytes), shm(1, memory_bytes));
        send(&mut sender, 0, 100).unwrap();
        let packet = owner.receive().unwrap().unwrap();
        owner.release(&packet);
        let (first, before, pages) = (sender.body_bytes_max_to(0), owner.reserved_bytes(), with_pages(owner.segment()));
        for turn in 0..80 * grown / first {
            let longest = sender.body_bytes_max_to(0);
            send(&mut sender, 0, if turn % 2 == 0 { first.min(4096) } else { longest }).unwrap();
            while let Some(packet) = owner.receive().unwrap() {
                assert!(owner.long(&packet).unwrap().0.is_whole());
                owner.release(&packet);
            }
        }
        assert_eq!(sender.body_bytes_max_to(0), grown);
        assert_eq!(owner.reserved_bytes() - before, 2 * (grown - first) as u64);
        assert!(with_pages(owner.segment()) - pages >= 2 * (grown - first) as u64);
        assert!(owner.reserved_bytes() <= memory_bytes.max(64 << 10) + (64 << 10));
    }
}

/// All rings in a segment grow by so much together; what comes after that stays, and passes bodies on all the same.
#[test]
fn rings_share_what_they_may_grow_by() {
    const MEMORY: u64 = 512 << 10;
    let segments: Arc<Mutex<HashMap<u32, OwnedFd>>> = Arc::default();
    let mut ranks: Vec<Shm> = (0..4)
        .map(|index| {
            let others = segments.clone();
            let resolver: Resolver = Box::new(move |peer, _| others.lock().unwrap()[&peer].try_clone().map(Some).map_err(|e| e.to_string()));
            let mut shm = Shm::new(Config { memory_bytes: MEMORY, ..config(index, 4) }, resolver).unwrap();
            shm.grows = true;
            segments.lock().unwrap().insert(index, shm.segment().try_clone_to_owned().unwrap());
            shm
        })
        .collect();
    let (owner, senders) = ranks.split_at_mut(1);
    let first = owner[0].geometry.bulk_bytes as usize;
    for turn in 0..4_000 {
        for sender in &mut *senders {
            send(sender, 0, sender.body_bytes_max_to(0).max(first / 2) - turn % 64).unwrap();
        }
        while let Some(packet) = owner[0].receive().unwrap() {
            owner[0].release(&packet);
        }
    }
    let sizes: Vec<usize> = senders.iter().map(|sender| 2 * sender.body_bytes_max_to(0)).collect();
    let grown: usize = sizes.iter().map(|size| size - first).sum();
    assert!(grown as u64 <= MEMORY && grown as u64 > MEMORY / 2, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size > first), "each has grown while there was something left: {sizes:?}");
    assert_eq!(owner[0].header.grown.load(Ordering::Relaxed), grown as u64);
}

#[test]
fn a_process_is_found_by_its_secret_again() {
    let (owner, mut reader) = pair();
    assert!(reader.reachable(0));
    let (word, mut read) = (7u64, 0u64);
    let address = (&raw const word) as u64;
    // SAFETY: `read` is writable, and `word` readable.
    unsafe { reader.read(0, address, (&raw mut read).cast(), 8) }.unwrap();
    assert_eq!(read, 7);
    // The process of that number is another one from now on: it has something else where the secret was.
    owner.header.nonce_address.store(address, Ordering::Relaxed);
    std::thread::sleep(2 * VERIFIED_FOR);
    // SAFETY: as above.
    let again = unsafe { reader.read(0, address, (&raw mut read).cast(), 8) };
    assert!(matches!(again, Err(Error::Peer { peer: 0, .. })), "{again:?}");
    assert!(!reader.reachable(0));
    // SAFETY: as above.
    assert!(unsafe { reader.write(0, address, (&raw const read).cast(), 8) }.is_err());
}

#[test]
fn who_gets_no_answer_hears_of_it() {
    let (mut owner, mut sender) = pair();
    send(&mut sender, 0, 8).unwrap();
    assert!(!sender.is_refused(0));
    owner.refuse(1);
    assert!(sender.is_refused(0));
    let (mut owner, mut sender) = pair();
    owner.refuse(1);
    assert!(matches!(send(&mut sender, 0, 8), Err(Refused::Failed(Error::Peer { peer: 0, .. }))));
    assert!(matches!(send(&mut sender, 0, 8), Err(Refused::Failed(Error::Peer { peer: 0, .. }))));
    assert!(owner.receive().unwrap().is_none());
}
