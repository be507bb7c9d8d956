//! Groups (MPI-5.0 §7.3): ordered sets of processes.

use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle;
use crate::table::Table;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// Which processes, in order of rank.
#[derive(Debug, PartialEq, Eq)]
enum Members {
    /// Rank and process number are the same.
    Identity(u32),
    List(Box<[u32]>),
}

/// A group, seen from this process.
#[derive(Debug)]
pub struct Group {
    members: Members,
    /// This process' rank, if it is a member.
    rank: Option<u32>,
    /// The session that the group comes from, 0 for the World model: what is made of the group belongs to it, too.
    session: usize,
}

static GROUPS: Table<Group> = Table::new();
static EMPTY: OnceLock<Arc<Group>> = OnceLock::new();

impl Group {
    /// Processes `0..size`, of which this is `me`.
    pub fn identity(size: u32, me: u32) -> Arc<Group> {
        Arc::new(Group { members: Members::Identity(size), rank: (me < size).then_some(me), session: 0 })
    }

    /// `processes` in order of rank, seen from process `me`.
    pub fn new(processes: Vec<u32>, me: u32) -> Arc<Group> {
        Group::of(&processes, me, 0)
    }

    fn of(processes: &[u32], me: u32, session: usize) -> Arc<Group> {
        let rank = processes.iter().position(|p| *p == me).map(|r| r as u32);
        let identity = processes.iter().enumerate().all(|(i, p)| i as u32 == *p);
        let members = if identity { Members::Identity(processes.len() as u32) } else { Members::List(processes.into()) };
        Arc::new(Group { members, rank, session })
    }

    /// The same processes in another session.
    pub fn of_session(self: Arc<Group>, session: usize) -> Arc<Group> {
        if self.session == session || self.size() == 0 {
            return self;
        }
        let members = match &self.members {
            Members::Identity(size) => Members::Identity(*size),
            Members::List(list) => Members::List(list.clone()),
        };
        Arc::new(Group { members, rank: self.rank, session })
    }

    /// The handle of the session that the group comes from, 0 for the World model.
    pub fn session(&self) -> usize {
        self.session
    }

    pub fn empty() -> Arc<Group> {
        EMPTY.get_or_init(|| Arc::new(Group { members: Members::Identity(0), rank: None, session: 0 })).clone()
    }

    #[inline]
    pub fn size(&self) -> u32 {
        match &self.members {
            Members::Identity(size) => *size,
            Members::List(list) => list.len() as u32,
        }
    }

    #[inline]
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// The process of `rank`, which is less than the size.
    #[inline]
    pub fn process(&self, rank: u32) -> u32 {
        match &self.members {
            Members::Identity(_) => rank,
            Members::List(list) => list[rank as usize],
        }
    }

    /// The rank of `process`.
    #[inline]
    pub fn rank_of(&self, process: u32) -> Option<u32> {
        match &self.members {
            Members::Identity(size) => (process < *size).then_some(process),
            Members::List(list) => list.iter().position(|p| *p == process).map(|r| r as u32),
        }
    }

    /// Whether a process number of `size` or above is among them.
    pub fn reaches_beyond(&self, size: u32) -> bool {
        match &self.members {
            Members::Identity(own) => *own > size,
            Members::List(list) => list.iter().any(|process| *process >= size),
        }
    }

    pub fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.size()).map(|rank| self.process(rank))
    }

    /// `MPI_IDENT`, `MPI_SIMILAR` or `MPI_UNEQUAL`.
    pub fn compare(&self, other: &Group) -> i32 {
        if self.members == other.members {
            return MPI_IDENT;
        }
        let sorted = |g: &Group| {
            let mut all: Vec<u32> = g.processes().collect();
            all.sort_unstable();
            all
        };
        if sorted(self) == sorted(other) { MPI_SIMILAR } else { MPI_UNEQUAL }
    }
}

/// The group behind a handle.
///
/// # Errors
/// `MPI_ERR_GROUP`.
pub fn find(handle: handle::Group) -> Result<Arc<Group>> {
    match handle {
        MPI_GROUP_EMPTY => Ok(Group::empty()),
        _ => GROUPS.share(handle.0).ok_or_else(|| unknown(handle)),
    }
}

/// As [`find`], for no longer than the call lasts that was given the handle: no lock and no count.
///
/// # Errors
/// `MPI_ERR_GROUP`.
#[inline]
pub fn here(handle: handle::Group) -> Result<&'static Group> {
    // SAFETY: a program that frees a group in one thread while another thread's call uses it is erroneous (MPI-5.0 §11.6.2).
    match unsafe { GROUPS.get(handle.0) } {
        Some(group) => Ok(group),
        None if handle == MPI_GROUP_EMPTY => {
            Group::empty();
            EMPTY.get().map(|group| &**group).ok_or_else(|| unknown(handle))
        }
        None => Err(unknown(handle)),
    }
}

#[cold]
fn unknown(handle: handle::Group) -> Box<Error> {
    match handle {
        MPI_GROUP_NULL => Error::new(MPI_ERR_GROUP, "the group is MPI_GROUP_NULL"),
        _ => Error::new(MPI_ERR_GROUP, format!("{:#x} is no group", handle.0)),
    }
}

/// A new handle for `group`. The empty group has one handle only.
pub fn publish(group: Arc<Group>) -> Result<handle::Group> {
    if group.size() == 0 {
        return Ok(MPI_GROUP_EMPTY);
    }
    GROUPS.insert_shared(group).map(handle::Group).ok_or_else(too_many)
}

/// A new handle for a group that others keep.
#[inline]
pub fn publish_shared(group: &Arc<Group>) -> Result<handle::Group> {
    if group.size() == 0 {
        return Ok(MPI_GROUP_EMPTY);
    }
    GROUPS.insert_share_of(group).map(handle::Group).ok_or_else(too_many)
}

#[cold]
fn too_many() -> Box<Error> {
    Error::new(MPI_ERR_OTHER, "too many groups exist")
}

#[inline]
pub fn free(handle: handle::Group) -> Result<()> {
    if handle == MPI_GROUP_EMPTY || GROUPS.release(handle.0) { Ok(()) } else { Err(unknown(handle)) }
}

/// Processes of a list that need no memory of their own, and ranks that are compared each with each.
const FEW: usize = 16;

/// Processes of a list that needs no memory of its own while it is short.
type List = SmallVec<[u32; FEW]>;

fn from_list(list: List, of: &Group) -> Arc<Group> {
    if list.is_empty() { Group::empty() } else { Group::of(&list, crate::world::me(), of.session) }
}

pub fn union(a: &Group, b: &Group) -> Arc<Group> {
    let mut list: List = a.processes().collect();
    list.extend(b.processes().filter(|p| a.rank_of(*p).is_none()));
    from_list(list, if a.size() > 0 { a } else { b })
}

pub fn intersection(a: &Group, b: &Group) -> Arc<Group> {
    from_list(a.processes().filter(|p| b.rank_of(*p).is_some()).collect(), a)
}

pub fn difference(a: &Group, b: &Group) -> Arc<Group> {
    from_list(a.processes().filter(|p| b.rank_of(*p).is_none()).collect(), a)
}

/// Checks that all `ranks` are ranks of the group, each given once.
fn check_ranks(group: &Group, ranks: &[i32]) -> Result<()> {
    let size = group.size();
    if let Some(rank) = ranks.iter().find(|rank| **rank < 0 || **rank as u32 >= size) {
        return Err(outside(*rank, size));
    }
    let twice = if ranks.len() <= FEW {
        ranks.iter().enumerate().find(|(at, rank)| ranks[..*at].contains(rank)).map(|(_, rank)| *rank)
    } else {
        let mut seen = vec![false; size as usize];
        ranks.iter().copied().find(|rank| std::mem::replace(&mut seen[*rank as usize], true))
    };
    twice.map_or(Ok(()), |rank| Err(Error::new(MPI_ERR_RANK, format!("rank {rank} is given twice"))))
}

#[cold]
fn outside(rank: i32, size: u32) -> Box<Error> {
    Error::new(MPI_ERR_RANK, format!("rank {rank} is not in a group of {size} processes"))
}

pub fn incl(group: &Group, ranks: &[i32]) -> Result<Arc<Group>> {
    check_ranks(group, ranks)?;
    Ok(from_list(ranks.iter().map(|rank| group.process(*rank as u32)).collect(), group))
}

pub fn excl(group: &Group, ranks: &[i32]) -> Result<Arc<Group>> {
    check_ranks(group, ranks)?;
    let mut stays = vec![true; group.size() as usize];
    ranks.iter().for_each(|rank| stays[*rank as usize] = false);
    Ok(from_list((0..group.size()).filter(|rank| stays[*rank as usize]).map(|rank| group.process(rank)).collect(), group))
}

/// The ranks that triplets (first, last, stride) name (MPI-5.0 §7.3.2).
pub fn expand(group: &Group, ranges: &[[i32; 3]]) -> Result<Vec<i32>> {
    let mut ranks = Vec::new();
    for &[first, last, stride] in ranges {
        if stride == 0 {
            return Err(Error::new(MPI_ERR_ARG, "the stride of a range is 0"));
        }
        if (last > first && stride < 0) || (last < first && stride > 0) {
            let (from, to) = (first, last);
            return Err(Error::new(MPI_ERR_ARG, format!("the stride {stride} of a range does not lead from rank {from} to rank {to}")));
        }
        let steps = (last as i64 - first as i64) / stride as i64;
        for step in 0..=steps {
            ranks.push((first as i64 + step * stride as i64) as i32);
            if ranks.len() > group.size() as usize {
                break;
            }
        }
    }
    check_ranks(group, &ranks)?;
    Ok(ranks)
}

/// Gives `put` the place of each of `ranks` in `a` among them, and its rank in `b`, or `MPI_UNDEFINED`.
///
/// # Errors
/// `MPI_ERR_RANK` at the first rank that `a` has not.
#[inline]
pub fn translate(a: &Group, ranks: &[i32], b: &Group, mut put: impl FnMut(usize, i32)) -> Result<()> {
    let size = a.size();
    for (at, rank) in ranks.iter().enumerate() {
        let there = match *rank {
            MPI_PROC_NULL => MPI_PROC_NULL,
            rank if rank >= 0 && (rank as u32) < size => b.rank_of(a.process(rank as u32)).map_or(MPI_UNDEFINED, |rank| rank as i32),
            rank => return Err(outside(rank, size)),
        };
        put(at, there);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(list: &[u32]) -> Arc<Group> {
        Group::new(list.to_vec(), 0)
    }

    fn list(g: &Group) -> Vec<u32> {
        g.processes().collect()
    }

    #[test]
    fn set_operations_keep_the_standards_order() {
        let (a, b) = (group(&[3, 1, 2]), group(&[2, 5, 3]));
        assert_eq!(list(&union(&a, &b)), [3, 1, 2, 5]);
        assert_eq!(list(&intersection(&a, &b)), [3, 2]);
        assert_eq!(list(&difference(&a, &b)), [1]);
        assert_eq!(a.compare(&b), MPI_UNEQUAL);
        assert_eq!(a.compare(&group(&[1, 2, 3])), MPI_SIMILAR);
        assert_eq!(a.compare(&group(&[3, 1, 2])), MPI_IDENT);
        let mut there = [0; 3];
        translate(&a, &[0, 1, MPI_PROC_NULL], &b, |at, rank| there[at] = rank).unwrap();
        assert_eq!(there, [2, MPI_UNDEFINED, MPI_PROC_NULL]);
        assert_eq!(translate(&a, &[3], &b, |_, _| ()).unwrap_err().class, MPI_ERR_RANK);
    }

    #[test]
    fn ranges_expand_in_both_directions() {
        let g = Group::identity(10, 0);
        assert_eq!(expand(&g, &[[1, 7, 3], [9, 8, -1]]).unwrap(), [1, 4, 7, 9, 8]);
        assert_eq!(expand(&g, &[[5, 5, -3]]).unwrap(), [5]);
        for wrong in [[5, 3, 1], [3, 5, -1], [0, 9, -9]] {
            assert_eq!(expand(&g, &[wrong]).unwrap_err().class, MPI_ERR_ARG);
        }
        assert_eq!(expand(&g, &[[0, 3, 0]]).unwrap_err().class, MPI_ERR_ARG);
        assert_eq!(expand(&g, &[[0, 12, 1]]).unwrap_err().class, MPI_ERR_RANK);
        let many: Vec<i32> = (0..40).collect();
        let big = Group::identity(40, 0);
        for (group, ranks) in [(&g, &[1, 1][..]), (&g, &[10]), (&g, &[-1]), (&big, &[&many[..], &[7]].concat()), (&big, &[&many[..], &[40]].concat())] {
            assert_eq!(incl(group, ranks).unwrap_err().class, MPI_ERR_RANK, "{ranks:?}");
            assert_eq!(excl(group, ranks).unwrap_err().class, MPI_ERR_RANK, "{ranks:?}");
        }
        assert_eq!(list(&incl(&big, &many[20..]).unwrap()), (20..40).collect::<Vec<u32>>());
        assert_eq!(list(&excl(&g, &[0, 2, 4, 6, 8]).unwrap()), [1, 3, 5, 7, 9]);
    }
}
