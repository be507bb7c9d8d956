//! What a peer costs, and what happens when many send to one.

use sim::{Link, Load, Setup, World};

#[test]
fn a_quiet_peer_costs_little() {
    for ranks in [64, 256, 512] {
        let load = Load::plain(8 * ranks as u64, vec![0], (0..ranks).collect(), 4, 8);
        let outcome = World::new(Setup::new(ranks, vec![Link::default()], load), 3).run();
        let most = outcome.peer_bytes[0] / (ranks as usize - 1);
        println!("{ranks} ranks: {most} bytes per peer");
        assert!(most < 512);
    }
}

#[test]
fn many_to_one() {
    for (sizes, outstanding) in [(1 << 20, 2), (4096, 32)] {
        let load = Load::plain((64 << 20) / sizes / 16, (1..17).collect(), vec![0], outstanding, sizes);
        let mut setup = Setup::new(17, vec![Link::default()], load);
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
