//! Replays what fuzzing has found worth keeping (`fuzz/corpus/datagram`) through its target, without a fuzzer.

use std::path::PathBuf;

use proto::reliability::Endpoint;
use proto::reliability::seal::open_datagram;
use proto::reliability::wire::{DIRECT, HEADER_BYTES};

#[path = "../../../fuzz/targets/datagram.rs"]
mod datagram;

use datagram::{ME, PEER, SEAL};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/datagram")
}

/// What an honest peer says that has messages of `sizes` to send, in the fuzzer's form; it fetches what it is asked to. Where it offers, the other pushes.
fn honest(sizes: &[u64], offer: bool) -> Vec<u8> {
    const RECORDS_MAX: usize = 24;
    let mut data = Vec::new();
    for record in 0..RECORDS_MAX {
        let (mut peer, mut engine) = (Endpoint::new(datagram::config(), PEER, 4), datagram::Engine::default());
        peer.connect(ME, 3);
        let mut said = Vec::new();
        datagram::converse(&data, |now_ns, heard| {
            if said.is_empty() {
                for &bytes in sizes {
                    peer.send(now_ns, ME, b"from afar", engine.token(), bytes, false).unwrap();
                }
                if offer {
                    peer.offer(now_ns, ME, b"come", 100_000, engine.token()).unwrap();
                }
            }
            for (rail, mut bytes) in heard {
                if let Some(packet) = open_datagram(&SEAL, &mut bytes) {
                    peer.arrived(now_ns, rail, &packet, &mut engine);
                }
            }
            engine.act(&mut peer, ME, now_ns);
            peer.tick(now_ns, &mut engine);
            said.append(&mut engine.sent);
        });
        let Some((rail, bytes)) = said.get(record) else { break };
        let body = &bytes[HEADER_BYTES..];
        let direct = (bytes[1] & DIRECT != 0) as u8;
        // Each comes 16 µs after the one before.
        data.push(rail | direct << 2 | 14 << 3);
        data.extend((body.len() as u16).to_le_bytes());
        data.extend_from_slice(body);
    }
    data
}

/// Seeds of honest traffic are sound to the last frame; WHIMBREL_TEST_SEEDS=write makes them anew after a change of the wire format.
#[test]
fn seeds_are_sound() {
    let plays: [(&str, &[u64], bool); 4] =
        [("messages", &[0, 100, 1400, 16_000], false), ("transfer", &[100_000], false), ("offer", &[], true), ("all", &[3, 20_000, 70_000], true)];
    for (name, sizes, offer) in plays {
        let path = folder().join(format!("honest-{name}"));
        if std::env::var("WHIMBREL_TEST_SEEDS").is_ok() {
            std::fs::write(&path, honest(sizes, offer)).unwrap();
        }
        let counters = datagram::converse(&std::fs::read(&path).unwrap(), |_, _| ());
        println!("{name}: {counters:?}");
        assert_eq!(counters.refused_frames + counters.refused_replayed + counters.refused_foreign, 0, "{name}: {counters:?}");
        assert!(counters.packets_arrived >= 2, "{name}: {counters:?}");
    }
}

#[test]
fn corpus_of_datagram() {
    let folder = folder();
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // A failing file is the last one named.
        println!("{}", path.display());
        datagram::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{} holds only {count} files", folder.display());
}
