//! What a peer costs, and what happens when many send to one.

use proto::reliability::{Config, RailConfig};
use sim::{Link, Load, Network, Setup, Sizes, World};

const MS: u64 = 1_000_000;

fn setup(ranks: u32, load: Load) -> Setup {
    let rail = RailConfig { mtu_bytes: 1472, endpoints: 1, queue_packets_max: 256 };
    Setup {
        ranks,
        config: Config { rails: vec![rail], ..Config::default() },
        network: Network { links: vec![Link::default()], cuts: vec![] },
        load,
        zero_copy: false,
        memory_ppm: 0,
        death: None,
        may_fail: false,
        replay_ppm: 0,
        forge_ppm: 0,
        limit_ns: 1_000_000 * MS,
    }
}

#[test]
fn a_quiet_peer_costs_little() {
    for ranks in [64, 256, 512] {
        let load = Load {
            messages: 8 * ranks as u64,
            senders: vec![0],
            receivers: (0..ranks).collect(),
            outstanding: 4,
            sizes: Sizes::Fixed(8),
            offer_ppm: 0,
            pull_ppm: 0,
            match_ns: 0,
        };
        let outcome = World::new(setup(ranks, load), 3).run();
        let most = outcome.peer_bytes[0] / (ranks as usize - 1);
        println!("{ranks} ranks: {most} bytes per peer");
        assert!(most < 512);
    }
}

#[test]
fn many_to_one() {
    for (sizes, outstanding) in [(1 << 20, 2), (4096, 32)] {
        let load = Load {
            messages: (64 << 20) / sizes / 16,
            senders: (1..17).collect(),
            receivers: vec![0],
            outstanding,
            sizes: Sizes::Fixed(sizes),
            offer_ppm: 0,
            pull_ppm: 0,
            match_ns: 0,
        };
        let mut setup = setup(17, load);
        setup.network.links[0].backpressure = false;
        setup.network.links[0].queue_bytes = 256 << 10;
        let outcome = World::new(setup, 5).run();
        println!(
            "{sizes} bytes: {:.1} MB/s of 1250, {} dropped, {} again",
            outcome.goodput_bytes_per_second() / 1e6,
            outcome.dropped,
            outcome.sum(|c| c.segments_again)
        );
        assert!(outcome.goodput_bytes_per_second() > 0.7 * 1.25e9);
    }
}
