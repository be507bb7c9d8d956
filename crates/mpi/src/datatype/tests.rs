//! Random nested datatypes against type maps written out entry by entry, as the standard defines them.

use super::*;
use engine::Plan;
use proptest::prelude::*;

/// Type maps longer than this are left out.
const ENTRIES_MAX: usize = 5_000;

#[derive(Clone, Debug)]
enum Expr {
    Basic(Datatype),
    Dup(Box<Expr>),
    Contiguous(i64, Box<Expr>),
    Vector(i64, i64, i64, Box<Expr>),
    Hvector(i64, i64, i64, Box<Expr>),
    Indexed(Vec<(i64, i64)>, Box<Expr>),
    Hindexed(Vec<(i64, i64)>, Box<Expr>),
    IndexedBlock(i64, Vec<i64>, Box<Expr>),
    HindexedBlock(i64, Vec<i64>, Box<Expr>),
    Struct(Vec<(i64, i64, Expr)>),
    Resized(i64, i64, Box<Expr>),
    /// Size, length and start of each dimension.
    Subarray(Vec<(i64, i64, i64)>, i32, Box<Expr>),
    /// Size, distribution, argument and processes of each dimension; a number that chooses the rank.
    Darray(Vec<(i64, i32, i32, i32)>, u32, i32, Box<Expr>),
}

/// Displacement, size and alignment.
type Entry = (i64, usize, usize);

/// A type map of MPI-5.0 §5.1, with its markers.
#[derive(Clone, Debug, Default)]
struct Map {
    entries: Vec<Entry>,
    /// Bounds of the children, each rounded up to its alignment.
    padded: Option<(i64, i64)>,
    marks: Option<(i64, i64)>,
}

impl Map {
    fn true_bounds(&self) -> (i64, i64) {
        let low = self.entries.iter().map(|entry| entry.0).min().unwrap_or(0);
        (low, self.entries.iter().map(|entry| entry.0 + entry.1 as i64).max().unwrap_or(0))
    }

    fn bounds(&self) -> (i64, i64) {
        self.marks.unwrap_or_else(|| {
            let (low, mut high) = self.padded.unwrap_or(self.true_bounds());
            let alignment = self.entries.iter().map(|entry| entry.2).max().unwrap_or(1) as i64;
            while (high - low) % alignment != 0 {
                high += 1;
            }
            (low, high)
        })
    }

    fn extent(&self) -> i64 {
        self.bounds().1 - self.bounds().0
    }

    fn size(&self) -> usize {
        self.entries.iter().map(|entry| entry.1).sum()
    }

    fn append(&mut self, displacement: i64, child: &Map) {
        self.entries.extend(child.entries.iter().map(|entry| (entry.0 + displacement, entry.1, entry.2)));
        let widen = |bounds: &mut Option<(i64, i64)>, (low, high): (i64, i64)| {
            let (low, high) = (low + displacement, high + displacement);
            let old = bounds.unwrap_or((low, high));
            *bounds = Some((old.0.min(low), old.1.max(high)));
        };
        if !child.entries.is_empty() {
            widen(&mut self.padded, child.bounds());
        }
        if let Some(marks) = child.marks {
            widen(&mut self.marks, marks);
        }
    }

    fn blocks(&mut self, blocks: impl IntoIterator<Item = (i64, i64)>, child: &Map) {
        for (length, displacement) in blocks {
            (0..length).for_each(|i| self.append(displacement + i * child.extent(), child));
        }
    }
}

fn map(expr: &Expr) -> Map {
    let mut out = Map::default();
    match expr {
        Expr::Basic(handle) => {
            let one = lookup(*handle).unwrap();
            let layout = one.layout();
            out.entries = match *handle {
                // Value and index, as a structure in C.
                MPI_SHORT_INT => vec![(0, 2, 2), (4, 4, 4)],
                MPI_DOUBLE_INT => vec![(0, 8, 8), (8, 4, 4)],
                _ => vec![(0, one.size(), layout.alignment)],
            };
        }
        Expr::Dup(child) => out = map(child),
        Expr::Contiguous(count, child) => out.blocks([(*count, 0)], &map(child)),
        Expr::Vector(count, length, stride, child) => {
            let child = map(child);
            out.blocks((0..*count).map(|i| (*length, i * stride * child.extent())), &child);
        }
        Expr::Hvector(count, length, stride, child) => out.blocks((0..*count).map(|i| (*length, i * stride)), &map(child)),
        Expr::Indexed(blocks, child) => {
            let child = map(child);
            out.blocks(blocks.iter().map(|block| (block.0, block.1 * child.extent())), &child);
        }
        Expr::Hindexed(blocks, child) => out.blocks(blocks.iter().copied(), &map(child)),
        Expr::IndexedBlock(length, places, child) => {
            let child = map(child);
            out.blocks(places.iter().map(|place| (*length, place * child.extent())), &child);
        }
        Expr::HindexedBlock(length, places, child) => out.blocks(places.iter().map(|place| (*length, *place)), &map(child)),
        Expr::Struct(parts) => parts.iter().for_each(|part| out.blocks([(part.0, part.1)], &map(&part.2))),
        Expr::Resized(lb, extent, child) => {
            out = map(child);
            out.marks = Some((*lb, lb + extent));
        }
        Expr::Subarray(dimensions, order, child) => {
            let sizes: Vec<i64> = dimensions.iter().map(|dimension| dimension.0).collect();
            let mine = |d: usize, i: i64| (dimensions[d].2..dimensions[d].2 + dimensions[d].1).contains(&i);
            out = array_map(&sizes, *order, &map(child), mine);
        }
        Expr::Darray(dimensions, which, order, child) => {
            let sizes: Vec<i64> = dimensions.iter().map(|dimension| dimension.0).collect();
            let total: i32 = dimensions.iter().map(|dimension| dimension.3).product();
            let mut rank = (*which % total as u32) as i32;
            let mut coordinates = vec![0; dimensions.len()];
            for d in (0..dimensions.len()).rev() {
                coordinates[d] = (rank % dimensions[d].3) as i64;
                rank /= dimensions[d].3;
            }
            let mine = |d: usize, i: i64| {
                let (size, distribution, argument, processes) = dimensions[d];
                let asked = (argument != MPI_DISTRIBUTE_DFLT_DARG).then_some(argument as i64);
                let processes = processes as i64;
                match distribution {
                    MPI_DISTRIBUTE_NONE => true,
                    MPI_DISTRIBUTE_BLOCK => i / asked.unwrap_or((size + processes - 1) / processes) == coordinates[d],
                    _ => i / asked.unwrap_or(1) % processes == coordinates[d],
                }
            };
            out = array_map(&sizes, *order, &map(child), mine);
        }
    }
    out
}

/// The elements of an array whose every index is `mine`, in the order of memory.
fn array_map(sizes: &[i64], order: i32, child: &Map, mine: impl Fn(usize, i64) -> bool) -> Map {
    let (mut out, total) = (Map::default(), sizes.iter().product::<i64>());
    for place in 0..total {
        let mut rest = place;
        let mut dimensions: Vec<usize> = (0..sizes.len()).collect();
        if order == MPI_ORDER_C {
            dimensions.reverse();
        }
        let inside = dimensions.iter().all(|&d| {
            let index = rest % sizes[d];
            rest /= sizes[d];
            mine(d, index)
        });
        if inside {
            out.append(place * child.extent(), child);
        }
    }
    out.marks = Some((0, total * child.extent()));
    out
}

/// Makes the datatype; what it is made of is freed at once.
fn build(expr: &Expr, form: Form) -> Datatype {
    let on = |child: &Expr, make: &dyn Fn(Datatype) -> Result<Datatype>| {
        let child = build(child, form);
        let made = make(child).unwrap();
        release(child);
        made
    };
    let split = |blocks: &[(i64, i64)]| -> (Vec<i64>, Vec<i64>) { blocks.iter().copied().unzip() };
    match expr {
        Expr::Basic(handle) => *handle,
        Expr::Dup(child) => on(child, &dup),
        Expr::Contiguous(count, child) => on(child, &|old| contiguous(form, *count, old)),
        Expr::Vector(count, length, stride, child) => on(child, &|old| vector(form, *count, *length, *stride, old)),
        Expr::Hvector(count, length, stride, child) => on(child, &|old| hvector(form, *count, *length, *stride, old)),
        Expr::Indexed(blocks, child) => on(child, &|old| indexed(form, &split(blocks).0, &split(blocks).1, old)),
        Expr::Hindexed(blocks, child) => on(child, &|old| hindexed(form, &split(blocks).0, &split(blocks).1, old)),
        Expr::IndexedBlock(length, places, child) => on(child, &|old| indexed_block(form, *length, places, old)),
        Expr::HindexedBlock(length, places, child) => on(child, &|old| hindexed_block(form, *length, places, old)),
        Expr::Struct(parts) => {
            let (lengths, places) = split(&parts.iter().map(|part| (part.0, part.1)).collect::<Vec<_>>());
            let children: Vec<Datatype> = parts.iter().map(|part| build(&part.2, form)).collect();
            let made = structure(form, &lengths, &places, &children).unwrap();
            children.into_iter().for_each(release);
            made
        }
        Expr::Resized(lb, extent, child) => on(child, &|old| resized(form, old, *lb, *extent)),
        Expr::Subarray(dimensions, order, child) => {
            let pick = |f: fn(&(i64, i64, i64)) -> i64| dimensions.iter().map(f).collect::<Vec<i64>>();
            let (sizes, subsizes, starts) = (pick(|d| d.0), pick(|d| d.1), pick(|d| d.2));
            on(child, &|old| subarray(form, &sizes, &subsizes, &starts, *order, old))
        }
        Expr::Darray(dimensions, which, order, child) => {
            let sizes: Vec<i64> = dimensions.iter().map(|d| d.0).collect();
            let pick = |f: fn(&(i64, i32, i32, i32)) -> i32| dimensions.iter().map(f).collect::<Vec<i32>>();
            let (distributions, arguments, processes) = (pick(|d| d.1), pick(|d| d.2), pick(|d| d.3));
            let size: i32 = processes.iter().product();
            let rank = (*which % size as u32) as i32;
            let grid = Grid { size, rank, distributions: &distributions, arguments: &arguments, processes: &processes };
            on(child, &|old| darray(form, grid, &sizes, *order, old))
        }
    }
}

/// Makes the datatype again from what its contents tell.
fn rebuild(handle: Datatype, form: Form) -> Datatype {
    let told = envelope(form, handle).unwrap();
    if told.combiner == MPI_COMBINER_NAMED {
        assert_eq!(contents(form, handle).err().unwrap().class, MPI_ERR_TYPE);
        return handle;
    }
    let recipe = contents(form, handle).unwrap();
    assert_eq!(told.integers, recipe.integers.len());
    assert_eq!(told.large_counts, recipe.counts.len());
    let olds: Vec<Datatype> = recipe.types.iter().map(|layout| reveal(layout).unwrap()).collect();
    let children: Vec<Datatype> = olds.iter().map(|&old| rebuild(old, form)).collect();
    let integers: Vec<i64> = recipe.integers.iter().map(|&i| i as i64).collect();
    let addresses: Vec<i64> = recipe.addresses.iter().map(|&a| a as i64).collect();
    let large = form == Form::Large;
    // Every argument that may be a large count, in order.
    let all = if large { recipe.counts.clone() } else { [integers.clone(), addresses].concat() };
    let old = children.first().copied().unwrap_or(MPI_DATATYPE_NULL);
    let n = all.first().copied().unwrap_or(0) as usize;
    let made = match told.combiner {
        MPI_COMBINER_DUP => dup(old),
        MPI_COMBINER_CONTIGUOUS => contiguous(form, all[0], old),
        MPI_COMBINER_VECTOR => vector(form, all[0], all[1], all[2], old),
        MPI_COMBINER_HVECTOR => hvector(form, all[0], all[1], all[2], old),
        MPI_COMBINER_INDEXED => indexed(form, &all[1..=n], &all[1 + n..], old),
        MPI_COMBINER_HINDEXED => hindexed(form, &all[1..=n], &all[1 + n..], old),
        MPI_COMBINER_INDEXED_BLOCK => indexed_block(form, all[1], &all[2..], old),
        MPI_COMBINER_HINDEXED_BLOCK => hindexed_block(form, all[1], &all[2..], old),
        MPI_COMBINER_STRUCT => structure(form, &all[1..=n], &all[1 + n..], &children),
        MPI_COMBINER_RESIZED => resized(form, old, all[0], all[1]),
        MPI_COMBINER_SUBARRAY => {
            let d = integers[0] as usize;
            let all = if large { &all[..] } else { &integers[1..] };
            subarray(form, &all[..d], &all[d..2 * d], &all[2 * d..3 * d], *recipe.integers.last().unwrap(), old)
        }
        MPI_COMBINER_DARRAY => {
            let d = integers[2] as usize;
            let (sizes, rest) = if large { (&all[..], &recipe.integers[3..]) } else { (&integers[3..3 + d], &recipe.integers[3 + d..]) };
            let (distributions, arguments, processes) = (&rest[..d], &rest[d..2 * d], &rest[2 * d..3 * d]);
            let grid = Grid { size: recipe.integers[0], rank: recipe.integers[1], distributions, arguments, processes };
            darray(form, grid, sizes, rest[3 * d], old)
        }
        other => panic!("combiner {other}"),
    };
    olds.into_iter().for_each(release);
    children.into_iter().for_each(release);
    made.unwrap()
}

fn release(handle: Datatype) {
    // A predefined one is its own child, again and again.
    if lookup(handle).is_ok_and(|datatype| !datatype.predefined()) {
        free(handle).unwrap();
    }
}

fn expr() -> impl Strategy<Value = Expr> {
    let basics =
        [MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_FLOAT, MPI_LONG_LONG, MPI_C_DOUBLE_COMPLEX, MPI_INT8_T, MPI_SHORT_INT, MPI_DOUBLE_INT, MPI_LONG_DOUBLE];
    let leaf = proptest::sample::select(basics.to_vec()).prop_map(Expr::Basic);
    leaf.prop_recursive(4, 40, 4, |inner| {
        let child = inner.clone().prop_map(Box::new);
        let order = prop_oneof![Just(MPI_ORDER_C), Just(MPI_ORDER_FORTRAN)];
        let length = 0..4i64;
        let blocks = proptest::collection::vec((length.clone(), -20..40i64), 0..7);
        let dimension = (1..5i64).prop_flat_map(|size| (1..=size).prop_flat_map(move |part| (Just(size), Just(part), 0..=size - part)));
        let share = (1..9i64, 1..4i32).prop_flat_map(|(size, processes)| {
            let cyclic = prop_oneof![Just(MPI_DISTRIBUTE_DFLT_DARG), 1..4i32];
            let least = ((size as i32) + processes - 1) / processes;
            let block = prop_oneof![Just(MPI_DISTRIBUTE_DFLT_DARG), least..least + 3];
            prop_oneof![
                (Just(size), Just(MPI_DISTRIBUTE_CYCLIC), cyclic, Just(processes)),
                (Just(size), Just(MPI_DISTRIBUTE_BLOCK), block, Just(processes)),
                (Just(size), Just(MPI_DISTRIBUTE_NONE), Just(MPI_DISTRIBUTE_DFLT_DARG), Just(1)),
            ]
        });
        prop_oneof![
            child.clone().prop_map(Expr::Dup),
            (0..6i64, child.clone()).prop_map(|(count, child)| Expr::Contiguous(count, child)),
            (0..6i64, length.clone(), -5..8i64, child.clone()).prop_map(|(c, l, s, child)| Expr::Vector(c, l, s, child)),
            (0..30i64, length.clone(), -40..80i64, child.clone()).prop_map(|(c, l, s, child)| Expr::Hvector(c, l, s, child)),
            (blocks.clone(), child.clone()).prop_map(|(blocks, child)| Expr::Indexed(blocks, child)),
            (blocks, child.clone()).prop_map(|(blocks, child)| Expr::Hindexed(blocks, child)),
            (0..4i64, proptest::collection::vec(-9..20i64, 0..8), child.clone()).prop_map(|(length, places, child)| Expr::IndexedBlock(length, places, child)),
            (0..4i64, proptest::collection::vec(-99..200i64, 0..30), child.clone())
                .prop_map(|(length, places, child)| Expr::HindexedBlock(length, places, child)),
            proptest::collection::vec((length, -60..90i64, inner), 0..5).prop_map(Expr::Struct),
            (-30..30i64, -60..90i64, child.clone()).prop_map(|(lb, extent, child)| Expr::Resized(lb, extent, child)),
            (proptest::collection::vec(dimension, 1..4), order.clone(), child.clone())
                .prop_map(|(dimensions, order, child)| Expr::Subarray(dimensions, order, child)),
            (proptest::collection::vec(share, 1..4), any::<u32>(), order, child)
                .prop_map(|(dimensions, which, order, child)| Expr::Darray(dimensions, which, order, child)),
        ]
    })
}

/// Memory for all entries, and where address 0 of the type maps is in it.
struct Memory {
    bytes: Vec<u8>,
    origin: usize,
}

impl Memory {
    fn new(places: &[(i64, usize)]) -> Memory {
        let low = places.iter().map(|place| place.0).min().unwrap_or(0).min(0);
        let high = places.iter().map(|place| place.0 + place.1 as i64).max().unwrap_or(0).max(0);
        Memory { bytes: vec![0; (high - low) as usize], origin: low.unsigned_abs() as usize }
    }

    fn start(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().wrapping_add(self.origin)
    }
}

/// Cuts of `0..size`, sorted, with both ends: anywhere, and as often where an entry starts.
fn cuts(size: usize, starts: &[usize], seeds: &[usize]) -> Vec<usize> {
    let cut = |seed: &usize| match seed % 2 {
        0 => seed / 2 % (size + 1),
        _ => starts[seed / 2 % starts.len()],
    };
    let mut cuts: Vec<usize> = seeds.iter().map(cut).chain([0, size]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Entries of a type map written out without building it, or more than is wanted.
fn entries(expr: &Expr) -> usize {
    let blocks = |lengths: &mut dyn Iterator<Item = i64>, child: &Expr| lengths.sum::<i64>() as usize * entries(child);
    match expr {
        Expr::Basic(_) => 2,
        Expr::Dup(child) | Expr::Resized(_, _, child) => entries(child),
        Expr::Contiguous(count, child) => *count as usize * entries(child),
        Expr::Vector(count, length, _, child) | Expr::Hvector(count, length, _, child) => (count * length) as usize * entries(child),
        Expr::Indexed(list, child) | Expr::Hindexed(list, child) => blocks(&mut list.iter().map(|block| block.0), child),
        Expr::IndexedBlock(length, places, child) | Expr::HindexedBlock(length, places, child) => *length as usize * places.len() * entries(child),
        Expr::Struct(parts) => parts.iter().map(|part| part.0 as usize * entries(&part.2)).sum(),
        Expr::Subarray(dimensions, _, child) => dimensions.iter().map(|d| d.0 as usize).product::<usize>() * entries(child),
        Expr::Darray(dimensions, _, _, child) => dimensions.iter().map(|d| d.0 as usize).product::<usize>() * entries(child),
    }
}

fn scale() -> u32 {
    std::env::var("WHIMBREL_TEST_SCALE").map_or(1, |scale| scale.parse().expect("WHIMBREL_TEST_SCALE is a number"))
}

/// Compares one datatype with its type map in every respect.
fn compare(handle: Datatype, map: &Map, count: usize, seeds: &[usize]) {
    let datatype = lookup(handle).unwrap();
    let (bounds, true_bounds) = (map.bounds(), map.true_bounds());
    assert_eq!(datatype.size(), map.size());
    assert_eq!((datatype.lb() as i64, datatype.extent() as i64), (bounds.0, map.extent()));
    assert_eq!((datatype.true_lb() as i64, datatype.true_extent() as i64), (true_bounds.0, true_bounds.1 - true_bounds.0));

    let places: Vec<(i64, usize)> = (0..count as i64).flat_map(|i| map.entries.iter().map(move |entry| (entry.0 + i * map.extent(), entry.1))).collect();
    let mut memory = Memory::new(&places);
    memory.bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 167 + i / 251) as u8);
    let at = |memory: &Memory, place: i64| (memory.origin as i64 + place) as usize;
    let expected: Vec<u8> = places.iter().flat_map(|&(place, bytes)| memory.bytes[at(&memory, place)..][..bytes].iter().copied()).collect();
    let size = expected.len();
    let start = memory.start();

    if datatype.contiguous() && size > 0 {
        assert_eq!(memory.bytes[memory.origin..][..size], expected[..], "not one piece");
    }
    if size > 0 {
        let program = datatype.layout().program();
        let starts: Vec<usize> = places.iter().scan(0, |sum, place| Some(std::mem::replace(sum, *sum + place.1))).collect();
        let fragments = cuts(size, &starts, seeds);
        let mut packed = vec![0u8; size];
        for pair in fragments.windows(2) {
            // SAFETY: `memory` has every entry, and `packed` the bytes of all.
            unsafe { program.pack(start, count, pair[0], packed[pair[0]..].as_mut_ptr(), pair[1] - pair[0]) };
        }
        assert_eq!(packed, expected, "packed in fragments {fragments:?}");

        let mut fresh = Memory::new(&places);
        for pair in fragments.windows(2).rev() {
            // SAFETY: `fresh` has every entry, and `expected` the bytes of all.
            unsafe { program.unpack(fresh.start(), count, pair[0], expected[pair[0]..].as_ptr(), pair[1] - pair[0]) };
        }
        let mut users = vec![0u8; fresh.bytes.len()];
        let mut wanted = vec![0u8; fresh.bytes.len()];
        let mut packed_at = 0;
        for &(place, bytes) in &places {
            let range = at(&fresh, place)..at(&fresh, place) + bytes;
            users[range.clone()].iter_mut().for_each(|users| *users = users.saturating_add(1));
            wanted[range].copy_from_slice(&expected[packed_at..packed_at + bytes]);
            packed_at += bytes;
        }
        // Where entries overlap, either may stay.
        for (i, &used) in users.iter().enumerate().filter(|(_, used)| **used <= 1) {
            assert_eq!(fresh.bytes[i], wanted[i], "byte {i}, used {used} times, unpacked in {fragments:?}");
        }

        let mut pieces = Vec::new();
        let (low, high) = (fragments[fragments.len() / 2 - 1], fragments[fragments.len() / 2]);
        let limit = 1 + seeds.len();
        let covered = program.io_vectors(start, count, low, high - low, limit, &mut pieces);
        assert!(pieces.len() <= limit && (covered == high - low || pieces.len() == limit));
        // SAFETY: pieces of `memory`, as the next line but one finds out.
        let bytes_at = |address: *mut u8, bytes| unsafe { std::slice::from_raw_parts(address, bytes) };
        let gathered: Vec<u8> = pieces.iter().flat_map(|&(address, bytes)| bytes_at(address, bytes).to_vec()).collect();
        assert_eq!(gathered, expected[low..low + covered]);

        // SAFETY: `memory` has every entry.
        let buffer = unsafe { datatype.buffer(start, count) }.unwrap();
        assert_eq!(buffer.to_vec(), expected);
    }

    let mut elements = 0;
    let mut bytes = 0;
    assert_eq!(datatype.elements(0), Some(0));
    for &(_, entry) in &places {
        if entry > 1 {
            assert_eq!(datatype.elements(bytes + 1), None);
        }
        (elements, bytes) = (elements + 1, bytes + entry);
        assert_eq!(datatype.elements(bytes), Some(elements), "elements in {bytes} bytes");
        assert_eq!(datatype.bytes_of(elements).unwrap(), bytes);
        assert_eq!(datatype.count_in(bytes), (bytes % map.size() == 0).then(|| bytes / map.size()));
    }

    // Only entries that are a single number: turned around, as external32 says.
    assert_eq!(size_external(datatype, count).unwrap(), size);
    if !places.iter().any(|place| place.1 == 16) {
        let turned: Vec<u8> =
            places.iter().flat_map(|&(place, bytes)| memory.bytes[at(&memory, place)..][..bytes].iter().rev().copied().collect::<Vec<u8>>()).collect();
        let mut external = vec![0; size];
        // SAFETY: `memory` has every entry, and `external` as many bytes as was just asked for.
        unsafe { pack_external(datatype, start, count, external.as_mut_ptr()) }.unwrap();
        assert_eq!(external, turned);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000 * scale(), max_global_rejects: 1_000_000, ..ProptestConfig::default() })]

    #[test]
    fn a_datatype_is_its_type_map(
        expr in expr(),
        count in 0..4usize,
        large in any::<bool>(),
        seeds in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assume!(entries(&expr) * count.max(1) <= ENTRIES_MAX);
        let form = if large { Form::Large } else { Form::Small };
        let map = map(&expr);
        let made = build(&expr, form);
        compare(made, &map, count, &seeds);
        let again = rebuild(made, form);
        release(made);
        compare(again, &map, count, &seeds);
        release(again);
    }
}

#[test]
fn predefined_datatypes_have_their_names_and_sizes() {
    for &(handle, name) in DATATYPE_NAMES.iter().filter(|(handle, _)| *handle != MPI_DATATYPE_NULL) {
        let datatype = lookup(handle).unwrap_or_else(|error| panic!("{name}: {error}"));
        let name = match name {
            "MPI_LONG_LONG" => "MPI_LONG_LONG_INT",
            "MPI_C_FLOAT_COMPLEX" => "MPI_C_COMPLEX",
            _ => name,
        };
        assert_eq!(datatype.name(), name.as_bytes());
        assert!(datatype.committed() && datatype.predefined() && datatype.size() > 0);
        let kind = datatype.basic().unwrap();
        assert_eq!((datatype.size(), datatype.extent()), (kind.size_bytes(), kind.bytes() as isize), "{name}");
        assert_eq!(free(handle).unwrap_err().class, MPI_ERR_TYPE);
        assert_eq!(envelope(Form::Small, handle).unwrap().combiner, MPI_COMBINER_NAMED);
    }
    assert_eq!(lookup(MPI_LONG_DOUBLE_INT).unwrap().layout().elements, 2);
    for wrong in [0, 1, 0x200, 0x204, 0x2ff, 0x300, 0x1000, usize::MAX, 1 << 30] {
        assert_eq!(lookup(Datatype(wrong)).err().unwrap().class, MPI_ERR_TYPE, "{wrong:#x}");
    }
}

#[test]
fn commit_dup_and_free() {
    let made = vector(Form::Small, 3, 1, 2, MPI_DOUBLE).unwrap();
    assert_eq!(committed(made).err().unwrap().class, MPI_ERR_TYPE);
    commit(made).unwrap();
    lookup(made).unwrap().set_name(b"columns");
    let twin = dup(made).unwrap();
    assert!(lookup(twin).unwrap().committed());
    assert!(lookup(twin).unwrap().name().is_empty());
    let memory: Vec<f64> = (0..6).map(f64::from).collect();
    // SAFETY: six numbers, of which every other is used.
    let pending = unsafe { lookup(made).unwrap().buffer(memory.as_ptr().cast_mut().cast(), 1) }.unwrap();
    free(made).unwrap();
    free(twin).unwrap();
    assert!(lookup(made).is_err() && lookup(twin).is_err() && free(made).is_err());
    let expected: Vec<u8> = [0.0f64, 2.0, 4.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
    assert_eq!(pending.to_vec(), expected);
}

#[test]
fn a_duplicate_of_a_predefined_type_reduces_like_it() {
    let twin = dup(MPI_FLOAT_INT).unwrap();
    assert_eq!(lookup(twin).unwrap().basic(), Some(Basic::FloatInt));
    let pair = contiguous(Form::Small, 1, MPI_FLOAT).unwrap();
    assert_eq!(lookup(pair).unwrap().basic(), None);
    release(twin);
    release(pair);
}

#[test]
fn sizes_past_63_bits_are_refused() {
    let half = contiguous(Form::Large, 1 << 62, MPI_CHAR).unwrap();
    assert_eq!(lookup(half).unwrap().size(), 1 << 62);
    for (made, class) in [
        (contiguous(Form::Large, 2, half), MPI_ERR_COUNT),
        (contiguous(Form::Large, i64::MAX, half), MPI_ERR_COUNT),
        (vector(Form::Large, 2, 1, 2, half), MPI_ERR_ARG),
        (hvector(Form::Large, 3, 1, i64::MAX, MPI_CHAR), MPI_ERR_COUNT),
        // 2^128 bytes.
        (hvector(Form::Large, 1 << 62, 1 << 62, 0, MPI_C_DOUBLE_COMPLEX), MPI_ERR_COUNT),
        (hindexed(Form::Large, &[1, 1], &[i64::MIN, i64::MAX], MPI_CHAR), MPI_ERR_COUNT),
        (resized(Form::Large, MPI_CHAR, i64::MAX, i64::MAX), MPI_ERR_COUNT),
        (subarray(Form::Large, &[1 << 40, 1 << 40], &[1, 1], &[0, 0], MPI_ORDER_C, MPI_CHAR), MPI_ERR_COUNT),
        (contiguous(Form::Large, -1, MPI_CHAR), MPI_ERR_COUNT),
        (vector(Form::Large, 1, -1, 1, MPI_CHAR), MPI_ERR_ARG),
        (contiguous(Form::Large, 1, MPI_DATATYPE_NULL), MPI_ERR_TYPE),
    ] {
        let error = made.err().unwrap();
        assert_eq!(error.class, class, "{error}");
    }
    assert_eq!(lookup(half).unwrap().bytes(2).unwrap_err().class, MPI_ERR_COUNT);
    // SAFETY: it is refused.
    let buffer = unsafe { lookup(half).unwrap().buffer(std::ptr::null_mut(), usize::MAX) };
    assert_eq!(buffer.err().unwrap().class, MPI_ERR_COUNT);
    release(half);
}

#[test]
fn nesting_has_a_limit() {
    let mut top = dup(MPI_INT).unwrap();
    for _ in 1..NESTING_MAX {
        let next = resized(Form::Small, top, 0, 8).unwrap();
        free(top).unwrap();
        top = next;
    }
    assert_eq!(dup(top).unwrap_err().class, MPI_ERR_TYPE);
    commit(top).unwrap();
    let memory = [1i32, 2, 3, 4];
    // SAFETY: two elements of 8 bytes.
    let buffer = unsafe { lookup(top).unwrap().buffer(memory.as_ptr().cast_mut().cast(), 2) }.unwrap();
    assert_eq!(buffer.to_vec(), [1i32, 3].iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>());
    free(top).unwrap();
}

#[test]
fn shared_parts_are_compiled_once() {
    // Every level has its child twice: 2^40 entries, in 40 steps.
    let mut top = hindexed(Form::Small, &[1, 1], &[0, 3], MPI_CHAR).unwrap();
    for level in 1..40 {
        let next = structure(Form::Small, &[1, 1], &[0, (5 << level) + 1], &[top, top]).unwrap();
        free(top).unwrap();
        top = next;
    }
    commit(top).unwrap();
    let datatype = lookup(top).unwrap();
    assert_eq!(datatype.size(), 1 << 40);
    let mut pieces = Vec::new();
    let program = datatype.layout().program();
    assert_eq!(program.io_vectors(std::ptr::null_mut(), 1, (1 << 40) - 3, 3, 8, &mut pieces), 3);
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[2].0 as usize, datatype.true_extent() as usize - 1);
    assert_eq!(datatype.elements((1 << 39) + 1), Some((1 << 39) + 1));
    free(top).unwrap();
}

#[test]
fn fortran_parameters() {
    let real = f90(Parameters::Real(6, MPI_UNDEFINED)).unwrap();
    assert_eq!(f90(Parameters::Real(6, MPI_UNDEFINED)).unwrap(), real);
    assert_eq!(lookup(real).unwrap().basic(), Some(Basic::Float32));
    assert!(lookup(real).unwrap().committed() && free(real).is_err());
    let told = envelope(Form::Small, real).unwrap();
    assert_eq!((told.combiner, told.integers, told.datatypes), (MPI_COMBINER_F90_REAL, 2, 0));
    assert_eq!(contents(Form::Small, real).unwrap().integers[..], [6, MPI_UNDEFINED]);
    let twin = dup(real).unwrap();
    assert_eq!(reveal(&contents(Form::Small, twin).unwrap().types[0]).unwrap(), real);
    release(twin);
    for (parameters, bytes) in [
        (Parameters::Real(7, 37), 8),
        (Parameters::Real(MPI_UNDEFINED, 308), 16),
        (Parameters::Complex(15, 307), 16),
        (Parameters::Integer(4), 2),
        (Parameters::Integer(38), 16),
    ] {
        assert_eq!(lookup(f90(parameters).unwrap()).unwrap().size(), bytes, "{parameters:?}");
    }
    for parameters in
        [Parameters::Real(34, 1), Parameters::Real(MPI_UNDEFINED, MPI_UNDEFINED), Parameters::Complex(-1, 5), Parameters::Integer(39), Parameters::Integer(-1)]
    {
        assert_eq!(f90(parameters).unwrap_err().class, MPI_ERR_ARG, "{parameters:?}");
    }
    assert_eq!(match_size(MPI_TYPECLASS_REAL, 8).unwrap(), MPI_REAL8);
    assert_eq!(match_size(MPI_TYPECLASS_COMPLEX, 8).unwrap(), MPI_COMPLEX8);
    assert_eq!(match_size(MPI_TYPECLASS_INTEGER, 3).unwrap_err().class, MPI_ERR_ARG);
    assert_eq!(match_size(77, 4).unwrap_err().class, MPI_ERR_ARG);
}

#[test]
fn pairs_of_value_and_index() {
    assert_eq!(value_index(MPI_DOUBLE, MPI_INT).unwrap(), MPI_DOUBLE_INT);
    assert_eq!(value_index(MPI_INT, MPI_INT).unwrap(), MPI_2INT);
    assert_eq!(value_index(MPI_LONG_DOUBLE, MPI_INT).unwrap(), MPI_LONG_DOUBLE_INT);
    assert_eq!(value_index(MPI_CHAR, MPI_CHAR).unwrap(), MPI_DATATYPE_NULL);
    let made = contiguous(Form::Small, 1, MPI_INT).unwrap();
    assert_eq!(value_index(MPI_INT, made).unwrap_err().class, MPI_ERR_TYPE);
    release(made);
}

#[test]
fn external32_of_numbers_that_change_their_size() {
    let round = |handle: Datatype, bytes: &[u8], external: &[u8]| {
        let datatype = lookup(handle).unwrap();
        let count = bytes.len() / datatype.size();
        let mut out = vec![0; size_external(datatype, count).unwrap()];
        // SAFETY: `count` elements, and as many bytes as they have outside.
        unsafe { pack_external(datatype, bytes.as_ptr(), count, out.as_mut_ptr()) }.unwrap();
        assert_eq!(out, external);
        let mut back = vec![0; bytes.len()];
        // SAFETY: the same sizes again.
        unsafe { unpack_external(datatype, back.as_mut_ptr(), count, out.as_ptr()) }.unwrap();
        assert_eq!(back, bytes);
    };
    let longs: Vec<u8> = [-2i64, 0x1234_5678].iter().flat_map(|value| value.to_le_bytes()).collect();
    round(MPI_LONG, &longs, &[0xff, 0xff, 0xff, 0xfe, 0x12, 0x34, 0x56, 0x78]);
    round(MPI_UNSIGNED_LONG, &0xfedc_ba98u64.to_le_bytes(), &[0xfe, 0xdc, 0xba, 0x98]);
    round(MPI_WCHAR, &0xfeff_u32.to_le_bytes(), &[0xfe, 0xff]);
    // -1.5: x87 has an explicit leading bit, binary128 has not.
    let x87: u128 = 0xbfff << 64 | 0xc000_0000_0000_0000;
    let binary128: u128 = 0xbfff_8000 << 96;
    if lookup(MPI_LONG_DOUBLE).unwrap().basic() == Some(Basic::Float80) {
        round(MPI_LONG_DOUBLE, &x87.to_le_bytes(), &binary128.to_be_bytes());
        let both = [x87.to_le_bytes(), 0u128.to_le_bytes()].concat();
        round(MPI_C_LONG_DOUBLE_COMPLEX, &both, &[binary128.to_be_bytes(), [0; 16]].concat());
    }
    let datatype = lookup(MPI_LONG).unwrap();
    let (value, mut out) = (1i64 << 31, [0; 4]);
    // SAFETY: one number and the bytes that it has outside.
    let failed = unsafe { pack_external(datatype, std::ptr::from_ref(&value).cast(), 1, out.as_mut_ptr()) };
    assert_eq!(failed.unwrap_err().class, MPI_ERR_CONVERSION);
}

#[test]
fn large_counts_move_through_programs() {
    // Blocks of 5 bytes, 8 apart, 2^40 of them: only addresses are looked at.
    let made = hvector(Form::Large, 1 << 40, 5, 8, MPI_CHAR).unwrap();
    let datatype = lookup(made).unwrap();
    let mut pieces = Vec::new();
    let offset = 5 * ((1 << 39) + 7) + 3;
    datatype.layout().program().io_vectors(std::ptr::null_mut(), 1, offset, 4, 9, &mut pieces);
    let at = 8 * ((1usize << 39) + 7);
    assert_eq!(pieces, [((at + 3) as *mut u8, 2), ((at + 8) as *mut u8, 2)]);
    assert_eq!(envelope(Form::Small, made).unwrap_err().class, MPI_ERR_TYPE);
    assert_eq!(envelope(Form::Large, made).unwrap().large_counts, 3);
    release(made);
}

#[test]
fn arrays_refuse_what_does_not_fit() {
    let sub = |sizes: &[i64], subsizes: &[i64], starts: &[i64], order| subarray(Form::Small, sizes, subsizes, starts, order, MPI_INT);
    for made in [
        sub(&[], &[], &[], MPI_ORDER_C),
        sub(&[4], &[5], &[0], MPI_ORDER_C),
        sub(&[4], &[0], &[0], MPI_ORDER_C),
        sub(&[4], &[2], &[3], MPI_ORDER_C),
        sub(&[4], &[2], &[-1], MPI_ORDER_C),
        sub(&[4], &[2], &[1], 5),
    ] {
        assert_eq!(made.unwrap_err().class, MPI_ERR_ARG);
    }
    let spread = |size, rank, distribution, argument, processes| {
        let grid = Grid { size, rank, distributions: &[distribution], arguments: &[argument], processes: &[processes] };
        darray(Form::Small, grid, &[10], MPI_ORDER_C, MPI_INT)
    };
    for made in [
        spread(2, 0, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_DFLT_DARG, 3),
        spread(2, 2, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_DFLT_DARG, 2),
        spread(2, 0, MPI_DISTRIBUTE_BLOCK, 4, 2),
        spread(2, 0, MPI_DISTRIBUTE_CYCLIC, 0, 2),
        spread(2, 0, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_DFLT_DARG, 2),
        spread(2, 0, 5, MPI_DISTRIBUTE_DFLT_DARG, 2),
    ] {
        assert_eq!(made.unwrap_err().class, MPI_ERR_ARG);
    }
}
