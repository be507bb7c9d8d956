//! What a collective call is, in four words: a [`Call`]. Ranks compare them to find out whether all have called the same
//! (MPI-5.0 §6.1, §6.13), and print them where they have not. A part of 12 bits stands in the tag of every message of the
//! collective, so that a message of another call is never taken for one of this.
#![forbid(unsafe_code)]

use crate::collective::Data;
use crate::consts::*;
use crate::datatype;
use crate::handle::Datatype;
use crate::op::Predefined;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Collective functions, and calls that are collective but move no data of the program, by the names of their blocking forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Finalize,
    Barrier,
    Bcast,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    ReduceScatter,
    Scan,
    Exscan,
    NeighborAllgather,
    NeighborAllgatherv,
    NeighborAlltoall,
    NeighborAlltoallv,
    NeighborAlltoallw,
    CommDup,
    CommIdup,
    CommSplit,
    CommSplitType,
    CommCreate,
    IntercommCreate,
    IntercommMerge,
    CartCreate,
    // From here on the summary in a tag does not tell them apart.
    GraphCreate,
    DistGraphCreate,
    DistGraphCreateAdjacent,
    CommAccept,
    CommConnect,
    CommJoin,
    CommSpawn,
    CommSpawnMultiple,
    CommDisconnect,
    Other,
}

const NAMES: [&str; Kind::Other as usize + 1] = [
    "MPI_Finalize",
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Scatter",
    "MPI_Scatterv",
    "MPI_Allgather",
    "MPI_Allgatherv",
    "MPI_Alltoall",
    "MPI_Alltoallv",
    "MPI_Alltoallw",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Reduce_scatter_block",
    "MPI_Reduce_scatter",
    "MPI_Scan",
    "MPI_Exscan",
    "MPI_Neighbor_allgather",
    "MPI_Neighbor_allgatherv",
    "MPI_Neighbor_alltoall",
    "MPI_Neighbor_alltoallv",
    "MPI_Neighbor_alltoallw",
    "MPI_Comm_dup",
    "MPI_Comm_idup",
    "MPI_Comm_split",
    "MPI_Comm_split_type",
    "MPI_Comm_create",
    "MPI_Intercomm_create",
    "MPI_Intercomm_merge",
    "MPI_Cart_create",
    "MPI_Graph_create",
    "MPI_Dist_graph_create",
    "MPI_Dist_graph_create_adjacent",
    "MPI_Comm_accept",
    "MPI_Comm_connect",
    "MPI_Comm_join",
    "MPI_Comm_spawn",
    "MPI_Comm_spawn_multiple",
    "MPI_Comm_disconnect",
    "a call that makes a communicator",
];

/// How a collective went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Way {
    /// Through slots that all members read.
    Slots,
    /// Through lines that all members write and read.
    Lines,
    Messages,
}

/// Numbers of [`Way`]s.
const WAYS: usize = 3;

/// What communicators that are gone have counted, by [`Way`].
static GONE: [AtomicU64; WAYS] = [const { AtomicU64::new(0) }; WAYS];

/// Collectives by the way that they went, on communicators that are gone and on those of `calls`.
pub fn ways<'a>(calls: impl Iterator<Item = &'a Calls>) -> [u64; WAYS] {
    let gone: [u64; WAYS] = std::array::from_fn(|way| GONE[way].load(Ordering::Relaxed));
    calls.fold(gone, |sum, calls| std::array::from_fn(|way| sum[way] + calls.ways[way].load(Ordering::Relaxed)))
}

/// How a collective is started. Calls of different forms do not match (MPI-5.0 §6.12, §6.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Form {
    Blocking,
    Nonblocking,
    Persistent,
}

/// The operation where it is the program's own: its handle differs from rank to rank.
const USER_OPERATION: u64 = 0xffff;
const NO_ROOT: u64 = u32::MAX as u64;
/// Bytes that need not agree.
const ANY_BYTES: u64 = u64::MAX;
const FORM_SHIFT: u32 = 8;
const INTER: u64 = 1 << 12;
const OP_SHIFT: u32 = 16;
const ROOT_SHIFT: u32 = 32;

/// One collective call.
///
/// | word | meaning |
/// | --- | --- |
/// | 0 | [`Kind`] (8 bits), [`Form`] (4), whether between two groups (4), operation (16), root (32) |
/// | 1 | bytes that must be the same on every rank (48 bits) and a mix of their parts (16 bits), or all ones |
/// | 2 | what the elements of a predefined reduction are (handle of the datatype's kind), or 0 |
/// | 3 | for printing: datatype's handle (16 bits; 0: not predefined), count (48 bits; all ones: none) |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call([u64; 4]);

impl Call {
    pub const WORDS: usize = 4;

    #[inline]
    pub const fn new(kind: Kind) -> Call {
        Call([kind as u64 | NO_ROOT << ROOT_SHIFT, ANY_BYTES, 0, u64::MAX << 16])
    }

    /// A call that makes a communicator, by the name of its function.
    pub fn named(function: &str) -> Call {
        let name = function.strip_suffix("_c").unwrap_or(function);
        let name = if name == "MPI_Comm_idup_with_info" { "MPI_Comm_idup" } else { name };
        let at = NAMES.iter().position(|known| *known == name).unwrap_or(Kind::Other as usize);
        Call([at as u64 | NO_ROOT << ROOT_SHIFT, ANY_BYTES, 0, u64::MAX << 16])
    }

    /// Rooted at this rank of one group.
    #[inline]
    pub fn root(mut self, root: u32) -> Call {
        self.0[0] = self.0[0] & u32::MAX as u64 | (root as u64) << ROOT_SHIFT;
        self
    }

    /// Every rank gives this many bytes, or gets them, or both.
    #[inline]
    pub fn bytes(mut self, bytes: usize) -> Call {
        self.0[1] = bytes as u64;
        self
    }

    /// As [`Call::bytes`], of blocks whose lengths are the same numbers on every rank.
    pub fn blocks(mut self, bytes: impl Iterator<Item = usize>) -> Call {
        let (mut total, mut mixed) = (0usize, 0u64);
        for block in bytes {
            total += block;
            mixed = (mixed.rotate_left(5) ^ block as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.0[1] = total as u64 & ((1 << 48) - 1) | (mixed >> 48) << 48;
        self
    }

    /// The arguments as they are printed.
    #[inline]
    pub fn of(mut self, data: &Data) -> Call {
        let handle = if data.datatype.0 < 1 << 16 { data.datatype.0 as u64 } else { 0 };
        self.0[3] = (data.count as u64) << 16 | handle;
        self
    }

    /// `op` by handle; `element` is the kind of the elements of a predefined operation.
    #[inline]
    pub fn operation(mut self, op: usize, element: Option<u8>) -> Call {
        let (op, element) = element.map_or((USER_OPERATION, 0), |element| (op as u64, 1 + element as u64));
        self.0[0] |= op << OP_SHIFT;
        self.0[2] = element;
        self
    }

    /// Between two groups: what a rank gives depends on where it is.
    #[inline]
    pub fn inter(mut self, inter: bool) -> Call {
        if inter {
            self.0[0] = self.0[0] & 0xffff | INTER | NO_ROOT << ROOT_SHIFT;
            (self.0[1], self.0[2]) = (ANY_BYTES, 0);
        }
        self
    }

    #[inline]
    pub fn form(mut self, form: Form) -> Call {
        self.0[0] |= (form as u64) << FORM_SHIFT;
        self
    }

    /// Whether its function moves data or waits, and takes one number: not one that makes a communicator, or ends.
    fn plain(self) -> bool {
        (Kind::Barrier as u64..=Kind::NeighborAlltoallw as u64).contains(&(self.0[0] & 0xff))
    }

    /// Whether ranks that have called this and `other` under the same number are in step again behind the two, and no
    /// message or shared line of the one can be taken for a later one's. A persistent collective has the same number at
    /// each start.
    pub fn parts_alone(self, other: Call) -> bool {
        let form = self.form_index();
        self.plain() && other.plain() && form == other.form_index() && form != Form::Persistent as usize
    }

    /// The place of its [`Form`].
    #[inline]
    fn form_index(self) -> usize {
        (self.0[0] >> FORM_SHIFT & 0xf) as usize % SERIES
    }

    /// Bits that differ between calls that do not match, as far as so few bits can. Kinds that move data always differ.
    #[inline]
    pub fn summary(self) -> u32 {
        let [what, bytes, element, _] = self.0;
        let mixed = (what ^ (what >> 29) ^ bytes.rotate_left(23) ^ element.rotate_left(50)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((what & 0xff).min(31) as u32) << 7 | (mixed >> 57) as u32
    }

    /// The name that a [`Call::summary`] tells.
    pub fn name_of_summary(summary: u32) -> &'static str {
        match (summary >> 7) as usize {
            31.. => NAMES[Kind::Other as usize],
            kind => NAMES[kind],
        }
    }

    pub fn to_words(self) -> [u64; Call::WORDS] {
        self.0
    }

    /// Words of another process: any value can be compared and printed.
    pub fn from_words(words: [u64; Call::WORDS]) -> Call {
        Call(words)
    }

    /// The class of the error, where the calls do not match.
    pub fn mismatch(self, other: Call) -> Option<i32> {
        let [mine, theirs] = [self.0, other.0];
        let differ = mine[0] ^ theirs[0];
        match () {
            () if differ & 0xffff != 0 => Some(MPI_ERR_OTHER),
            () if differ >> ROOT_SHIFT != 0 => Some(MPI_ERR_ROOT),
            () if differ != 0 => Some(MPI_ERR_OP),
            () if mine[1] != theirs[1] => Some(MPI_ERR_COUNT),
            () if mine[2] != theirs[2] => Some(MPI_ERR_TYPE),
            () => None,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, bytes, _, shown] = self.0;
        let name = NAMES.get((what & 0xff) as usize).copied().unwrap_or("an unknown call");
        match (what >> FORM_SHIFT & 0xf, name.strip_prefix("MPI_")) {
            (1, Some(rest)) if !rest.starts_with("Comm_") => write!(f, "MPI_I{}", rest.to_lowercase())?,
            (2, Some(_)) => write!(f, "{name}_init")?,
            _ => f.write_str(name)?,
        }
        let mut arguments = Vec::new();
        if shown >> 16 != u64::MAX >> 16 {
            arguments.push(format!("count={}", shown >> 16));
            let handle = Datatype((shown & 0xffff) as usize);
            match datatype::predefined_name(handle) {
                Some(name) => arguments.push(name.into()),
                None if bytes >> 48 == 0 => arguments.push(format!("a derived datatype, {bytes} bytes")),
                None => arguments.push("a derived datatype".into()),
            }
        } else if bytes != ANY_BYTES {
            arguments.push(format!("{} bytes in all", bytes & ((1 << 48) - 1)));
        }
        match what >> OP_SHIFT & 0xffff {
            0 => {}
            USER_OPERATION => arguments.push("an operation of the program".into()),
            op => arguments.push(Predefined::of(op as usize).map_or("an unknown operation", Predefined::name).into()),
        }
        if what >> ROOT_SHIFT != NO_ROOT {
            arguments.push(format!("root={}", what >> ROOT_SHIFT));
        }
        if arguments.is_empty() { Ok(()) } else { write!(f, "({})", arguments.join(", ")) }
    }
}

/// A collective that has begun: its call and the tag of its messages.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    pub call: Call,
    pub tag: i32,
}

/// Of the messages by which the members of a communicator learn [where they run](crate::spread), as a part of the first collective of whichever form; no
/// collective has it.
pub const ASKING_TAG: i32 = (SERIES as i32) << (SUMMARY_BITS + NUMBER_BITS);

const SUMMARY_BITS: u32 = 12;
const NUMBER_BITS: u32 = 17;
const NUMBERS: u32 = 1 << NUMBER_BITS;

/// A collective that has not matched may have left messages behind. So many of its form later the communicator fails,
/// before a number comes again and one of these messages is taken for another collective's.
pub const AFTER_MISMATCH_MAX: i32 = NUMBERS as i32 / 2;

/// Nonblocking collectives under way on one communicator, at most: numbers go round, and tags must tell them apart.
pub const UNDER_WAY_MAX: usize = NUMBERS as usize / 2;

/// The number that a tag carries.
pub fn number_of(tag: i32) -> u32 {
    tag as u32 >> SUMMARY_BITS & (NUMBERS - 1)
}

/// The number and form that a tag carries, as a tag without a summary.
pub fn place_of(tag: i32) -> i32 {
    tag & !((1 << SUMMARY_BITS) - 1)
}

/// The [`Form`] of the calls among which a tag's number counts.
pub fn series_of(tag: i32) -> usize {
    (tag as u32 >> (SUMMARY_BITS + NUMBER_BITS)) as usize % SERIES
}

/// The summary that a tag carries.
pub fn summary_of(tag: i32) -> u32 {
    tag as u32 & ((1 << SUMMARY_BITS) - 1)
}

/// Latest calls that are remembered, of each form.
const LATEST: usize = 16;
/// Forms of calls: each has numbers of its own.
pub const SERIES: usize = 3;

/// The collectives of one communicator, in the order in which this process has called them. All members call them in the same
/// order, from one thread at a time (MPI-5.0 §6.1, §11.6.2). Blocking, nonblocking and persistent ones are counted apart: programs call
/// a nonblocking one before a blocking one on some ranks and after it on others, and no library makes them wait for ever.
#[derive(Default)]
pub struct Calls {
    blocking: Series,
    /// Of the other forms, once one has been called: most communicators have none.
    others: [OnceLock<Box<Series>>; SERIES - 1],
    /// Nonblocking and persistent ones that have begun.
    not_blocking: AtomicU32,
    /// How many have gone which way.
    ways: [AtomicU64; WAYS],
}

impl Drop for Calls {
    fn drop(&mut self) {
        for (gone, here) in GONE.iter().zip(&self.ways) {
            gone.fetch_add(here.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// The calls of one form.
#[derive(Default)]
struct Series {
    begun: AtomicU32,
    latest: [[AtomicU64; Call::WORDS]; LATEST],
    /// With each of them, how many calls of the other kind had begun: blocking ones, or those that are not.
    others: [AtomicU32; LATEST],
}

/// A call that is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remembered {
    pub call: Call,
    /// How many blocking calls had begun before one that is not, or the other way round, modulo 2^32. Where ranks
    /// differ in it, their calls are not in step whatever their numbers say.
    pub others: u32,
}

impl Calls {
    /// The calls of a form, if there have been any.
    #[inline]
    fn series(&self, form: usize) -> Option<&Series> {
        if form == Form::Blocking as usize { Some(&self.blocking) } else { self.others[form - 1].get().map(|series| &**series) }
    }

    /// How many calls of a form have begun, modulo 2^32.
    fn begun(&self, form: usize) -> u32 {
        self.series(form).map_or(0, |series| series.begun.load(Ordering::Relaxed))
    }

    /// Gives the next collective of its form its number.
    // Inlined, so that the call stays in registers.
    #[inline(always)]
    pub fn begin(&self, call: Call) -> Begun {
        let form = call.form_index();
        let series = if form == Form::Blocking as usize { &self.blocking } else { self.others[form - 1].get_or_init(Box::default) };
        let number = series.begun.load(Ordering::Relaxed);
        series.begun.store(number.wrapping_add(1), Ordering::Relaxed);
        let place = &series.latest[number as usize % LATEST];
        for (to, word) in place.iter().zip(call.0) {
            to.store(word, Ordering::Relaxed);
        }
        let others = if form == Form::Blocking as usize {
            self.not_blocking.load(Ordering::Relaxed)
        } else {
            self.not_blocking.store(self.not_blocking.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            self.blocking.begun.load(Ordering::Relaxed)
        };
        series.others[number as usize % LATEST].store(others, Ordering::Relaxed);
        let series = (form as u32) << (SUMMARY_BITS + NUMBER_BITS);
        Begun { call, tag: (series | (number & (NUMBERS - 1)) << SUMMARY_BITS | call.summary()) as i32 }
    }

    /// Counts a collective that goes so. As with [`Calls::begin`], one thread at a time calls.
    #[inline]
    pub fn went(&self, way: Way) {
        let count = &self.ways[way as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// How many calls of each form have begun, modulo 2^32.
    pub fn counts(&self) -> [u32; SERIES] {
        std::array::from_fn(|form| self.begun(form))
    }

    /// The `most` collectives of its form before the one with `tag`, latest first, as far as they are remembered: their tags without
    /// summaries, and calls.
    pub fn before(&self, tag: i32, most: u32) -> impl Iterator<Item = (i32, Remembered)> {
        let number = number_of(tag);
        let series = (series_of(tag) as u32) << (SUMMARY_BITS + NUMBER_BITS);
        let tag_of = move |back: u32| (series | (number.wrapping_sub(back) & (NUMBERS - 1)) << SUMMARY_BITS) as i32;
        (1..=most.min(number)).map_while(move |back| Some((tag_of(back), self.at(tag_of(back))?)))
    }

    /// The number of the call with `tag`, modulo 2^32 instead of what a tag carries: the nearest to those that have
    /// begun.
    pub fn full_number(&self, tag: i32) -> u32 {
        nearest_number(tag, self.begun(series_of(tag)))
    }

    /// Whether this process has begun the call with `tag`, as far as a number can tell.
    pub fn has_begun(&self, tag: i32) -> bool {
        let begun = self.begun(series_of(tag));
        (1..=begun.min(NUMBERS / 2)).contains(&(begun.wrapping_sub(number_of(tag)) & (NUMBERS - 1)))
    }

    /// What this process has called where another one has called what `tag` belongs to; `None` where it has not come to that, or
    /// has forgotten it.
    pub fn at(&self, tag: i32) -> Option<Remembered> {
        let series = self.series(series_of(tag))?;
        let begun = series.begun.load(Ordering::Relaxed);
        let back = begun.wrapping_sub(number_of(tag)) & (NUMBERS - 1);
        // Numbers that have never been given out look old at first.
        if back == 0 || back as usize > LATEST || back > begun {
            return None;
        }
        let at = begun.wrapping_sub(back) as usize % LATEST;
        let call = Call(std::array::from_fn(|word| series.latest[at][word].load(Ordering::Relaxed)));
        Some(Remembered { call, others: series.others[at].load(Ordering::Relaxed) })
    }
}

/// The number of a call with `tag` that is nearest to `begun`, modulo 2^32.
pub fn nearest_number(tag: i32, begun: u32) -> u32 {
    let back = begun.wrapping_sub(number_of(tag)) & (NUMBERS - 1);
    if back <= NUMBERS / 2 { begun.wrapping_sub(back) } else { begun.wrapping_add(NUMBERS - back) }
}

/// Whether two ranks wait for ever: one in the call of `mine`, which the other, having begun as many calls as `their_counts`, has not come to, and the
/// other in the call of `theirs`, which this one has not come to either. Only calls of different forms can be so.
pub fn wait_for_each_other(mine: i32, theirs: i32, their_counts: [u32; SERIES]) -> bool {
    let ahead = number_of(mine).wrapping_sub(their_counts[series_of(mine)]) & (NUMBERS - 1);
    series_of(mine) != series_of(theirs) && ahead < NUMBERS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(count: i64, datatype: Datatype) -> Data {
        Data { start: std::ptr::null_mut(), count, datatype }
    }

    #[test]
    fn calls_print_as_a_program_writes_them() {
        let sum = Call::new(Kind::Allreduce).bytes(4).of(&data(1, MPI_INT)).operation(MPI_SUM.0, Some(3));
        assert_eq!(sum.to_string(), "MPI_Allreduce(count=1, MPI_INT, MPI_SUM)");
        assert_eq!(Call::new(Kind::Barrier).form(Form::Nonblocking).to_string(), "MPI_Ibarrier");
        assert_eq!(
            Call::new(Kind::Bcast).root(2).bytes(8).of(&data(2, MPI_INT)).form(Form::Persistent).to_string(),
            "MPI_Bcast_init(count=2, MPI_INT, root=2)"
        );
        assert_eq!(Call::named("MPI_Comm_dup").to_string(), "MPI_Comm_dup");
        assert_eq!(Call::named("MPI_Nothing").to_string(), "a call that makes a communicator");
        assert_eq!(Call::from_words([u64::MAX; 4]).to_string(), "an unknown call(an operation of the program)");
    }

    #[test]
    fn what_must_agree_is_compared_and_nothing_else() {
        let bcast = |root: u32, count: i64| Call::new(Kind::Bcast).root(root).bytes(4 * count as usize).of(&data(count, MPI_INT));
        assert_eq!(bcast(0, 1).mismatch(bcast(0, 1)), None);
        assert_eq!(bcast(0, 1).mismatch(Call::new(Kind::Bcast).root(0).bytes(4).of(&data(4, MPI_BYTE))), None);
        assert_eq!(bcast(0, 1).mismatch(bcast(1, 1)), Some(MPI_ERR_ROOT));
        assert_eq!(bcast(0, 1).mismatch(bcast(0, 2)), Some(MPI_ERR_COUNT));
        assert_eq!(bcast(0, 1).mismatch(Call::new(Kind::Barrier)), Some(MPI_ERR_OTHER));
        assert_eq!(Call::new(Kind::Barrier).mismatch(Call::new(Kind::Barrier).form(Form::Nonblocking)), Some(MPI_ERR_OTHER));
        assert_eq!(bcast(0, 1).inter(true).mismatch(bcast(1, 7).inter(true)), None);
        let reduce = |op, element| Call::new(Kind::Allreduce).bytes(4).operation(op, element);
        assert_eq!(reduce(MPI_SUM.0, Some(1)).mismatch(reduce(MPI_MAX.0, Some(1))), Some(MPI_ERR_OP));
        assert_eq!(reduce(MPI_SUM.0, Some(1)).mismatch(reduce(MPI_SUM.0, Some(2))), Some(MPI_ERR_TYPE));
        assert_eq!(reduce(0x4711, None).mismatch(reduce(0x4712, None)), None);
    }

    #[test]
    fn summaries_tell_what_is_likely_to_be_mistaken() {
        let kinds = (0..=Kind::CartCreate as u64).map(|kind| Call([kind, 0, 0, 0]).summary() >> 7);
        assert!(kinds.enumerate().all(|(at, kind)| at as u32 == kind));
        let bcast = |root: u32, bytes: usize| Call::new(Kind::Bcast).root(root).bytes(bytes).summary();
        let roots: std::collections::HashSet<u32> = (0..8).map(|root| bcast(root, 4)).collect();
        assert_eq!(roots.len(), 8);
        for bytes in [4, 8, 1 << 20] {
            assert_ne!(bcast(0, bytes), bcast(0, 2 * bytes));
            assert_ne!(bcast(0, bytes), bcast(0, bytes + 4));
            let reduce = |op: usize, element| Call::new(Kind::Allreduce).bytes(bytes).operation(op, Some(element)).summary();
            let ops: std::collections::HashSet<u32> = [MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR].map(|op| reduce(op.0, 4)).into();
            assert_eq!(ops.len(), 6);
            assert_ne!(reduce(MPI_SUM.0, 4), reduce(MPI_SUM.0, 16));
        }
        assert_ne!(Call::new(Kind::Barrier).summary(), Call::new(Kind::Barrier).form(Form::Nonblocking).summary());
    }

    #[test]
    fn what_went_which_way_is_counted_beyond_the_communicator() {
        let (before, calls) = (ways(std::iter::empty()), Calls::default());
        for way in [Way::Slots, Way::Messages, Way::Messages] {
            calls.went(way);
        }
        let least = [before[0] + 1, before[1], before[2] + 2];
        assert!(ways(std::iter::once(&calls)).iter().zip(least).all(|(now, least)| *now >= least));
        drop(calls);
        assert!(ways(std::iter::empty()).iter().zip(least).all(|(now, least)| *now >= least));
    }

    #[test]
    fn the_latest_calls_are_remembered() {
        let calls = Calls::default();
        assert_eq!(calls.at(0), None);
        let mut tags = Vec::new();
        for count in 0..40 {
            tags.push(calls.begin(Call::new(Kind::Bcast).bytes(count)).tag);
        }
        assert_eq!(calls.at(tags[40 - LATEST - 1]), None);
        for (count, tag) in tags.iter().enumerate().skip(40 - LATEST) {
            assert_eq!(calls.at(*tag), Some(Remembered { call: Call::new(Kind::Bcast).bytes(count), others: 0 }));
        }
        assert_eq!(calls.at(40 << SUMMARY_BITS), None);
        for form in [Form::Nonblocking, Form::Persistent] {
            let begun = calls.begin(Call::new(Kind::Barrier).form(form));
            let remembered = Remembered { call: begun.call, others: 40 };
            assert!(begun.tag >= 0 && calls.at(begun.tag) == Some(remembered) && number_of(begun.tag) == 0);
        }
        calls.blocking.begun.store(u32::MAX, Ordering::Relaxed);
        let before = calls.begin(Call::new(Kind::Scan));
        let after = calls.begin(Call::new(Kind::Exscan));
        assert_eq!((number_of(before.tag), number_of(after.tag)), (NUMBERS - 1, 0));
        assert_eq!(calls.at(before.tag), None);
    }
}
