//! Every collective and every algorithm against a naive reference, in simulated worlds.

use super::choose::Algorithm;
use super::sim::{Conditions, Layout, SimLink, outcomes, run};
use super::*;
use proptest::prelude::*;

/// 32-bit sums: commutative.
struct Sum;

/// Products of 2 by 2 matrices modulo 2^16: associative, not commutative.
struct Product;

impl Reducer for Sum {
    fn element_bytes(&self) -> usize {
        4
    }
    fn commutative(&self) -> bool {
        true
    }
    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()> {
        assert_eq!(input.len(), inout.len());
        assert!(!input.is_empty(), "no empty reductions");
        for (a, b) in input.as_chunks::<4>().0.iter().zip(inout.as_chunks_mut::<4>().0) {
            *b = u32::from_ne_bytes(*a).wrapping_add(u32::from_ne_bytes(*b)).to_ne_bytes();
        }
        Ok(())
    }
}

impl Reducer for Product {
    fn element_bytes(&self) -> usize {
        8
    }
    fn commutative(&self) -> bool {
        false
    }
    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()> {
        assert_eq!(input.len(), inout.len());
        assert!(!input.is_empty() && input.len().is_multiple_of(8), "whole elements");
        for (a, b) in input.chunks_exact(8).zip(inout.chunks_exact_mut(8)) {
            let read = |m: &[u8], i: usize| u16::from_ne_bytes([m[2 * i], m[2 * i + 1]]);
            let cell = |row: usize, column: usize| {
                let first = read(a, 2 * row).wrapping_mul(read(b, column));
                first.wrapping_add(read(a, 2 * row + 1).wrapping_mul(read(b, 2 + column))).to_ne_bytes()
            };
            let product = [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)];
            b.copy_from_slice(product.as_flattened());
        }
        Ok(())
    }
}

const OPERATIONS: [&dyn Reducer; 2] = [&Sum, &Product];

/// The bytes that rank `rank` brings: odd, so that matrix products do not vanish.
pub(super) fn brought(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((rank * 131 + i * 29 + i / 7) % 251) as u8 | 1).collect()
}

/// The vectors of `ranks` combined in order.
pub(super) fn combined(op: &dyn Reducer, ranks: std::ops::Range<usize>, bytes: usize) -> Vec<u8> {
    let mut values = ranks.map(|rank| brought(rank, bytes));
    let first = values.next().expect("a rank");
    values.fold(first, |sum, mut value| {
        if bytes > 0 {
            op.reduce(&sum, &mut value).expect("test operations do not fail");
        }
        value
    })
}

#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) conditions: Conditions,
    pub(super) ranks: usize,
    pub(super) root: usize,
    pub(super) in_place: bool,
    /// Elements or bytes of a block.
    pub(super) length: usize,
    pub(super) op: usize,
    pub(super) algorithm: usize,
    pub(super) segment_bytes: usize,
}

impl Setting {
    /// The algorithm under test; index 0 is the automatic choice.
    pub(super) fn tuning<A: Algorithm>(&self, collective: &str) -> Tuning {
        let mut tuning = Tuning { segment_bytes: self.segment_bytes, ..Tuning::default() };
        let names = ["auto"].into_iter().chain(A::ALL.iter().map(|algorithm| algorithm.name()));
        let name = names.cycle().nth(self.algorithm).expect("endless");
        tuning.force(collective, name).expect("a known algorithm");
        tuning
    }

    pub(super) fn op(&self) -> &'static dyn Reducer {
        OPERATIONS[self.op]
    }

    pub(super) fn vector_bytes(&self) -> usize {
        self.length * self.op().element_bytes()
    }

    /// Uneven lengths, some of them zero.
    pub(super) fn uneven(&self, i: usize) -> usize {
        (i * 7 + self.root) % (self.length + 1)
    }
}

pub(super) fn settings() -> impl Strategy<Value = Setting> {
    let ranks = prop_oneof![8 => 1..=9usize, 2 => 10..=17usize];
    let length = prop_oneof![1 => Just(0), 4 => 1..20usize, 2 => 20..200usize];
    let layout = prop_oneof![
        3 => Just(Layout::Together),
        3 => (1..6usize).prop_map(Layout::Blocks),
        1 => (2..5usize).prop_map(Layout::Turns),
        1 => (2..5usize).prop_map(Layout::Random)
    ];
    (ranks, 0..64usize, any::<(u64, bool, bool)>(), length, 0..2usize, 0..32usize, 0..4usize, 1..100usize, layout).prop_map(
        |(ranks, root, (seed, crowded, in_place), length, op, algorithm, eager, segment_bytes, layout)| Setting {
            conditions: Conditions { seed, eager_bytes: [0, 8, 64, usize::MAX][eager], crowded, layout, failing: None },
            ranks,
            root: root % ranks,
            in_place,
            length,
            op,
            algorithm,
            segment_bytes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn barrier_holds_everyone(setting in settings()) {
        let tuning = &setting.tuning::<choose::Barrier>("barrier");
        let entered = &std::cell::Cell::new(0);
        run(setting.conditions, setting.ranks, |link| async move {
            entered.set(entered.get() + 1);
            barrier(&link, tuning).await?;
            assert_eq!(entered.get(), link.size());
            Ok(())
        });
    }

    #[test]
    fn bcast_copies(setting in settings()) {
        let tuning = &setting.tuning::<choose::Bcast>("bcast");
        let (root, length) = (setting.root, setting.length);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mut buf = if link.rank() == root { brought(root, length) } else { vec![0; length] };
            bcast(&link, tuning, &mut buf, root).await?;
            Ok(buf)
        });
        for result in results {
            prop_assert_eq!(result, brought(root, length));
        }
    }

    #[test]
    fn gather_collects(setting in settings()) {
        let tuning = &setting.tuning::<choose::Gather>("gather");
        let (root, length, in_place) = (setting.root, setting.length, setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mine = brought(link.rank(), length);
            if link.rank() != root {
                gather(&link, tuning, Some(&mine), &mut [], root).await?;
                return Ok(Vec::new());
            }
            let mut all = vec![0; length * link.size()];
            if in_place {
                all[root * length..][..length].copy_from_slice(&mine);
            }
            gather(&link, tuning, (!in_place).then_some(&mine[..]), &mut all, root).await?;
            Ok(all)
        });
        let expected: Vec<u8> = (0..setting.ranks).flat_map(|rank| brought(rank, length)).collect();
        prop_assert_eq!(&results[root], &expected);
    }

    #[test]
    fn gatherv_collects(setting in settings()) {
        let (setting, root) = (&setting, setting.root);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let rank = link.rank();
            let mine = brought(rank, setting.uneven(rank));
            if rank != root {
                gatherv(&link, Some(&mine), &mut [], root).await?;
                return Ok(Vec::new());
            }
            let mut all: Vec<Vec<u8>> = (0..link.size()).map(|i| vec![0; setting.uneven(i)]).collect();
            if setting.in_place {
                all[rank].copy_from_slice(&mine);
            }
            let mut blocks: Vec<&mut [u8]> = all.iter_mut().map(|block| &mut block[..]).collect();
            gatherv(&link, (!setting.in_place).then_some(&mine[..]), &mut blocks, root).await?;
            Ok(all)
        });
        let expected: Vec<Vec<u8>> = (0..setting.ranks).map(|rank| brought(rank, setting.uneven(rank))).collect();
        prop_assert_eq!(&results[root], &expected);
    }

    #[test]
    fn scatter_hands_out(setting in settings()) {
        let tuning = &setting.tuning::<choose::Scatter>("scatter");
        let (root, length, in_place) = (setting.root, setting.length, setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let rank = link.rank();
            let mut mine = vec![0; length];
            if rank != root {
                scatter(&link, tuning, &[], Some(&mut mine), root).await?;
                return Ok(mine);
            }
            let all = brought(root, length * link.size());
            if in_place {
                scatter(&link, tuning, &all, None, root).await?;
                return Ok(all[rank * length..][..length].to_vec());
            }
            scatter(&link, tuning, &all, Some(&mut mine), root).await?;
            Ok(mine)
        });
        let all = brought(root, length * setting.ranks);
        for (rank, result) in results.iter().enumerate() {
            prop_assert_eq!(&result[..], &all[rank * length..][..length]);
        }
    }

    #[test]
    fn scatterv_hands_out(setting in settings()) {
        let (setting, root) = (&setting, setting.root);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let rank = link.rank();
            let mut mine = vec![0; setting.uneven(rank)];
            let all: Vec<Vec<u8>> = (0..link.size()).map(|i| brought(i, setting.uneven(i))).collect();
            let blocks: Vec<&[u8]> = all.iter().map(|block| &block[..]).collect();
            if rank == root && setting.in_place {
                scatterv(&link, &blocks, None, root).await?;
                return Ok(all[rank].clone());
            }
            scatterv(&link, if rank == root { &blocks } else { &[] }, Some(&mut mine), root).await?;
            Ok(mine)
        });
        for (rank, result) in results.into_iter().enumerate() {
            prop_assert_eq!(result, brought(rank, setting.uneven(rank)));
        }
    }

    #[test]
    fn allgather_collects(setting in settings()) {
        let tuning = &setting.tuning::<choose::Allgather>("allgather");
        let (length, in_place) = (setting.length, setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mine = brought(link.rank(), length);
            let mut all = vec![0; length * link.size()];
            if in_place {
                all[link.rank() * length..][..length].copy_from_slice(&mine);
            }
            allgather(&link, tuning, (!in_place).then_some(&mine[..]), &mut all).await?;
            Ok(all)
        });
        let expected: Vec<u8> = (0..setting.ranks).flat_map(|rank| brought(rank, length)).collect();
        for result in results {
            prop_assert_eq!(&result, &expected);
        }
    }

    #[test]
    fn allgatherv_collects(setting in settings()) {
        let (setting, tuning) = (&setting, &setting.tuning::<choose::Allgatherv>("allgatherv"));
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let rank = link.rank();
            let mine = brought(rank, setting.uneven(rank));
            let mut all: Vec<Vec<u8>> = (0..link.size()).map(|i| vec![0; setting.uneven(i)]).collect();
            if setting.in_place {
                all[rank].copy_from_slice(&mine);
            }
            let mut blocks: Vec<&mut [u8]> = all.iter_mut().map(|block| &mut block[..]).collect();
            allgatherv(&link, tuning, (!setting.in_place).then_some(&mine[..]), &mut blocks).await?;
            Ok(all)
        });
        let expected: Vec<Vec<u8>> = (0..setting.ranks).map(|rank| brought(rank, setting.uneven(rank))).collect();
        for result in results {
            prop_assert_eq!(&result, &expected);
        }
    }

    #[test]
    fn alltoall_transposes(setting in settings()) {
        let tuning = &setting.tuning::<choose::Alltoall>("alltoall");
        let (length, in_place) = (setting.length, setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let given = brought(link.rank(), length * link.size());
            let mut all = if in_place { given.clone() } else { vec![0; given.len()] };
            alltoall(&link, tuning, (!in_place).then_some(&given[..]), &mut all).await?;
            Ok(all)
        });
        for (rank, result) in results.into_iter().enumerate() {
            let block = |from| brought(from, length * setting.ranks)[rank * length..][..length].to_vec();
            let expected: Vec<u8> = (0..setting.ranks).flat_map(block).collect();
            prop_assert_eq!(result, expected);
        }
    }

    #[test]
    fn alltoallv_transposes(setting in settings()) {
        let (setting, tuning) = (&setting, &setting.tuning::<choose::Alltoallv>("alltoallv"));
        // Symmetric where in place, for what comes back has the length of what went.
        let length = |from: usize, to: usize| {
            if setting.in_place { setting.uneven(from + to) } else { setting.uneven(3 * from + to) }
        };
        let sent = |from: usize, to: usize| brought(from * 17 + to, length(from, to));
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let rank = link.rank();
            let given: Vec<Vec<u8>> = (0..link.size()).map(|to| sent(rank, to)).collect();
            let mut all: Vec<Vec<u8>> = if setting.in_place {
                given.clone()
            } else {
                (0..link.size()).map(|from| vec![0; length(from, rank)]).collect()
            };
            let send: Vec<&[u8]> = given.iter().map(|block| &block[..]).collect();
            let mut recv: Vec<&mut [u8]> = all.iter_mut().map(|block| &mut block[..]).collect();
            alltoallv(&link, tuning, (!setting.in_place).then_some(&send[..]), &mut recv).await?;
            Ok(all)
        });
        for (rank, result) in results.into_iter().enumerate() {
            let expected: Vec<Vec<u8>> = (0..setting.ranks).map(|from| sent(from, rank)).collect();
            prop_assert_eq!(result, expected);
        }
    }

    #[test]
    fn reduce_combines(setting in settings()) {
        let tuning = &setting.tuning::<choose::Reduce>("reduce");
        let (root, bytes, op, in_place) = (setting.root, setting.vector_bytes(), setting.op(), setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mut mine = brought(link.rank(), bytes);
            if link.rank() != root {
                reduce(&link, tuning, op, Some(&mine), &mut [], root).await?;
            } else if in_place {
                reduce(&link, tuning, op, None, &mut mine, root).await?;
            } else {
                let mut all = vec![0; bytes];
                reduce(&link, tuning, op, Some(&mine), &mut all, root).await?;
                mine = all;
            }
            Ok(mine)
        });
        for (rank, result) in results.into_iter().enumerate() {
            let expected = if rank == root { combined(op, 0..setting.ranks, bytes) } else { brought(rank, bytes) };
            prop_assert_eq!(result, expected);
        }
    }

    #[test]
    fn allreduce_combines(setting in settings()) {
        let tuning = &setting.tuning::<choose::Allreduce>("allreduce");
        let (bytes, op, in_place) = (setting.vector_bytes(), setting.op(), setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mine = brought(link.rank(), bytes);
            let mut all = if in_place { mine.clone() } else { vec![0; bytes] };
            allreduce(&link, tuning, op, (!in_place).then_some(&mine[..]), &mut all).await?;
            Ok(all)
        });
        let expected = combined(op, 0..setting.ranks, bytes);
        for result in results {
            prop_assert_eq!(&result, &expected);
        }
    }

    #[test]
    fn reduce_scatter_combines(setting in settings()) {
        let (setting, tuning) = (&setting, &setting.tuning::<choose::ReduceScatter>("reduce_scatter"));
        let op = setting.op();
        let counts = &(0..setting.ranks).map(|i| setting.uneven(i) * op.element_bytes()).collect::<Vec<_>>();
        let total = counts.iter().sum();
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mine = brought(link.rank(), total);
            let own = counts[link.rank()];
            let mut all = if setting.in_place { mine.clone() } else { vec![0; own] };
            let given = (!setting.in_place).then_some(&mine[..]);
            reduce_scatter(&link, tuning, op, given, &mut all, counts).await?;
            all.truncate(own);
            Ok(all)
        });
        let expected = combined(op, 0..setting.ranks, total);
        prop_assert_eq!(results.concat(), expected);
    }

    #[test]
    fn reduce_scatter_block_combines(setting in settings()) {
        let (setting, tuning) = (&setting, &setting.tuning::<choose::ReduceScatter>("reduce_scatter"));
        let (op, own) = (setting.op(), setting.vector_bytes());
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mine = brought(link.rank(), own * link.size());
            let mut all = if setting.in_place { mine.clone() } else { vec![0; own] };
            let given = (!setting.in_place).then_some(&mine[..]);
            reduce_scatter_block(&link, tuning, op, given, &mut all, own).await?;
            all.truncate(own);
            Ok(all)
        });
        prop_assert_eq!(results.concat(), combined(op, 0..setting.ranks, own * setting.ranks));
    }

    #[test]
    fn scan_combines(setting in settings()) {
        let tuning = &setting.tuning::<choose::Scan>("scan");
        let (bytes, op, in_place) = (setting.vector_bytes(), setting.op(), setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mine = brought(link.rank(), bytes);
            let mut all = if in_place { mine.clone() } else { vec![0; bytes] };
            scan(&link, tuning, op, (!in_place).then_some(&mine[..]), &mut all).await?;
            Ok(all)
        });
        for (rank, result) in results.into_iter().enumerate() {
            prop_assert_eq!(result, combined(op, 0..rank + 1, bytes));
        }
    }

    #[test]
    fn exscan_combines(setting in settings()) {
        let tuning = &setting.tuning::<choose::Scan>("exscan");
        let (bytes, op, in_place) = (setting.vector_bytes(), setting.op(), setting.in_place);
        let results = run(setting.conditions, setting.ranks, |link| async move {
            let mine = brought(link.rank(), bytes);
            let mut all = if in_place { mine.clone() } else { vec![0; bytes] };
            exscan(&link, tuning, op, (!in_place).then_some(&mine[..]), &mut all).await?;
            Ok(all)
        });
        for (rank, result) in results.into_iter().enumerate() {
            let untouched = if in_place { brought(0, bytes) } else { vec![0; bytes] };
            let expected = if rank == 0 { untouched } else { combined(op, 0..rank, bytes) };
            prop_assert_eq!(result, expected);
        }
    }

    /// A failed operation ends its rank with the error, wherever it happens, and cancels the rest.
    #[test]
    fn failures_come_out(setting in settings(), failing in 0..60usize) {
        let conditions = Conditions { failing: Some(failing), ..setting.conditions };
        let tuning = &setting.tuning::<choose::Allreduce>("allreduce");
        let (bytes, op) = (setting.vector_bytes(), setting.op());
        let started = &std::cell::Cell::new(false);
        let results = outcomes(conditions, setting.ranks, |link: SimLink| async move {
            let mut all = brought(link.rank(), bytes);
            let result = allreduce(&link, tuning, op, None, &mut all).await;
            started.set(started.get() || result.is_err());
            result
        });
        let failed = results.iter().flatten().filter(|result| result.is_err()).count();
        prop_assert!(failed <= 1);
        prop_assert_eq!(failed == 1, started.get());
        if failed == 0 {
            prop_assert!(results.iter().all(|result| result.is_some()), "no failure, no end");
        }
    }
}

/// 64-bit floating-point sums, whose last bits depend on the order.
struct FloatSum;

impl Reducer for FloatSum {
    fn element_bytes(&self) -> usize {
        8
    }
    fn commutative(&self) -> bool {
        true
    }
    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()> {
        crate::op::apply(crate::op::Predefined::Sum, crate::op::Basic::Float64, input, inout)
    }
}

#[test]
fn allreduce_gives_all_ranks_the_same_bits_every_time() {
    for algorithm in choose::Allreduce::ALL {
        let mut tuning = Tuning::default();
        tuning.force("allreduce", algorithm.name()).expect("known");
        let tuning = &tuning;
        for ranks in 2..=13 {
            let mut first: Option<Vec<u8>> = None;
            for seed in 0..3 {
                let conditions = Conditions { seed, eager_bytes: 0, crowded: false, layout: Layout::Together, failing: None };
                let results = run(conditions, ranks, |link| async move {
                    let values = (0..23).map(|i| 1.0 / ((link.rank() * 23 + i) as f64 + 3.7) - 0.01);
                    let mut all: Vec<u8> = values.flat_map(f64::to_ne_bytes).collect();
                    allreduce(&link, tuning, &FloatSum, None, &mut all).await?;
                    Ok(all)
                });
                for result in results {
                    assert_eq!(first.get_or_insert_with(|| result.clone()), &result, "{algorithm:?} on {ranks}");
                }
            }
        }
    }
}

/// Doubles that rank `rank` brings, whose sums depend on their order.
fn doubles(rank: usize, count: usize) -> Vec<f64> {
    (0..count).map(|i| ((rank * 37 + i * 11 + 5) as f64).sin() * 10f64.powi((rank as i32 * 5 + i as i32) % 17 - 8)).collect()
}

/// The order of [`Tuning::reproducible`], written down once more.
fn by_halves(ranks: std::ops::Range<usize>, i: usize, count: usize) -> f64 {
    let mut lower = 1;
    while 2 * lower < ranks.len() {
        lower *= 2;
    }
    match ranks.len() {
        1 => doubles(ranks.start, count)[i],
        _ => by_halves(ranks.start..ranks.start + lower, i, count) + by_halves(ranks.start + lower..ranks.end, i, count),
    }
}

#[test]
fn reproducible_reductions_keep_one_order_whatever_the_root_the_length_and_the_conditions() {
    for ranks in 2..=11 {
        for (seed, count) in [(1, 1), (2, 4), (3, 33), (4, 700)] {
            let conditions = Conditions { seed, eager_bytes: 64, crowded: seed % 2 == 0, layout: Layout::Together, failing: None };
            let (root, tuning) = (seed as usize % ranks, &Tuning { segment_bytes: 1000, ..Tuning::of(true) });
            let results = run(conditions, ranks, |link| async move {
                let mine: Vec<u8> = doubles(link.rank(), count).into_iter().flat_map(f64::to_ne_bytes).collect();
                let (mut reduced, mut all, mut scattered, mut scanned) = (vec![0; mine.len()], vec![0; mine.len()], vec![0; mine.len()], vec![0; mine.len()]);
                reduce(&link, tuning, &FloatSum, Some(&mine), &mut reduced, root).await?;
                allreduce(&link, tuning, &FloatSum, Some(&mine), &mut all).await?;
                let counts: Vec<usize> = (0..ranks).map(|rank| if rank == root { mine.len() } else { 0 }).collect();
                reduce_scatter(&link, tuning, &FloatSum, Some(&mine), &mut scattered[..counts[link.rank()]], &counts).await?;
                scan(&link, tuning, &FloatSum, Some(&mine), &mut scanned).await?;
                Ok((reduced, all, scattered, scanned))
            });
            let sums: Vec<u8> = (0..count).flat_map(|i| by_halves(0..ranks, i, count).to_ne_bytes()).collect();
            let scans: Vec<u8> =
                (0..count).flat_map(|i| (1..ranks).fold(doubles(0, count)[i], |sum, rank| sum + doubles(rank, count)[i]).to_ne_bytes()).collect();
            assert!(results.iter().all(|result| result.1 == sums), "allreduce on {ranks}, {count}");
            assert!(results[root].0 == sums && results[root].2 == sums, "reduce or reduce_scatter on {ranks}, {count}");
            assert!(results[ranks - 1].3 == scans, "scan on {ranks}, {count}");
        }
    }
}

#[test]
fn the_last_algorithm_applies_to_every_case() {
    fn check<A: Algorithm + std::fmt::Debug>() {
        let last = A::ALL.last().expect("an algorithm");
        for ranks in [1, 2, 3, 1 << 20, (1 << 20) - 1] {
            for commutative in [false, true] {
                let bytes = usize::MAX >> 1;
                let case = choose::Case { ranks, bytes, elements: bytes, commutative, crowded: true, remote: true, hosts: None };
                assert!(last.applies(&case), "{last:?} on {case:?}");
            }
        }
    }
    check::<choose::Barrier>();
    check::<choose::Bcast>();
    check::<choose::Gather>();
    check::<choose::Scatter>();
    check::<choose::Allgather>();
    check::<choose::Allgatherv>();
    check::<choose::Alltoall>();
    check::<choose::Alltoallv>();
    check::<choose::Reduce>();
    check::<choose::Allreduce>();
    check::<choose::ReduceScatter>();
    check::<choose::Scan>();
}

#[test]
fn algorithms_are_forced_by_name_where_they_apply() {
    let mut tuning = Tuning::default();
    let case = choose::Case { ranks: 6, bytes: 1 << 20, elements: 1 << 18, commutative: false, crowded: false, remote: true, hosts: None };
    let automatic = tuning.allreduce.pick(&case);
    tuning.force("allreduce", "ring").expect("known");
    assert_eq!(tuning.allreduce.pick(&choose::Case { commutative: true, ..case }), choose::Allreduce::Ring);
    assert_eq!(tuning.allreduce.pick(&case), automatic, "a ring mixes up the order of operands");
    tuning.force("allreduce", "auto").expect("known");
    assert_eq!(tuning.allreduce.pick(&case), automatic);
    let unknown = tuning.force("allreduce", "magic").expect_err("unknown");
    assert!(unknown.contains("rabenseifner"), "{unknown}");
    let unknown = tuning.force("allreduced", "ring").expect_err("unknown");
    assert!(unknown.contains("allreduce"), "{unknown}");
    for (collective, algorithms) in Tuning::list() {
        for (name, meaning) in algorithms {
            assert!(!meaning.is_empty());
            tuning.force(collective, name).expect("listed");
        }
    }
}

/// A pending nonblocking collective holds its future: it should not weigh more than a few cache lines.
#[test]
fn futures_stay_small() {
    const FUTURE_BYTES_MAX: usize = 1024;
    let conditions = Conditions { seed: 1, eager_bytes: 0, crowded: false, layout: Layout::Together, failing: None };
    run(conditions, 1, |link| async move {
        let (tuning, op) = (Tuning::default(), OPERATIONS[0]);
        let sizes = [
            size_of_val(&barrier(&link, &tuning)),
            size_of_val(&bcast(&link, &tuning, &mut [], 0)),
            size_of_val(&gather(&link, &tuning, None, &mut [], 0)),
            size_of_val(&scatter(&link, &tuning, &[], None, 0)),
            size_of_val(&allgather(&link, &tuning, None, &mut [])),
            size_of_val(&allgatherv(&link, &tuning, None, &mut [])),
            size_of_val(&alltoall(&link, &tuning, None, &mut [])),
            size_of_val(&alltoallv(&link, &tuning, None, &mut [])),
            size_of_val(&reduce(&link, &tuning, op, None, &mut [], 0)),
            size_of_val(&allreduce(&link, &tuning, op, None, &mut [])),
            size_of_val(&reduce_scatter(&link, &tuning, op, None, &mut [], &[])),
            size_of_val(&scan(&link, &tuning, op, None, &mut [])),
            size_of_val(&exscan(&link, &tuning, op, None, &mut [])),
        ];
        assert!(sizes.iter().all(|&size| size <= FUTURE_BYTES_MAX), "{sizes:?}");
        Ok(())
    });
}
