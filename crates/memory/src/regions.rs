//! Buffers that a program communicates from and to: declared once, pinned when a transfer needs them.
//!
//! After paper 004 (§3.1, §3.2). Declaring a buffer, in one piece or several, gives an integer, costs a look into a table, and
//! touches no memory: a wrong address declares fine, and fails when it is pinned, for that request alone. Unpinning, invalidation
//! and pinning again leave the declaration as it is. Declarations are kept, so that a buffer that is used again has its integer;
//! past [`Limits::regions_max`] the one used the longest ago goes, unless it is pinned. Which pages are pinned for how long is
//! the business of the [pin-down cache](crate::cache).

#![forbid(unsafe_code)]

use crate::cache::{Lease, PinDownCache, Refused, Registrar};
use crate::lru::Lru;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A declared buffer. An integer: how often its place in the table has been used before, and that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region(u64);

impl Region {
    fn new(place: u32, generation: u32) -> Region {
        Region(u64::from(generation) << 32 | u64::from(place))
    }

    fn place(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub regions_max: usize,
    /// Pieces of one region.
    pub segments_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { regions_max: 1024, segments_max: 256 }
    }
}

/// Why a buffer has no region, or a region no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No piece, or more than a region may have.
    Segments,
    /// As many regions are pinned as may be declared.
    AllPinned,
    /// The region went to make room for others: declare its buffer again.
    Undeclared,
    /// The memory cannot be pinned.
    Refused(Refused),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Segments => f.write_str("no piece, or too many pieces"),
            Error::AllPinned => f.write_str("as many regions are pinned as can be declared"),
            Error::Undeclared => f.write_str("the region is no longer declared"),
            Error::Refused(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Declarations that found their buffer declared, and others.
    pub found: u64,
    pub declared: u64,
    /// Regions that went to make room.
    pub undeclared: u64,
    /// Pinnings that succeeded, those that did not, and their ends.
    pub pinned: u64,
    pub refused: u64,
    pub unpinned: u64,
}

/// The keys of a pinned region, one for each of its pieces. Give them back with [`Regions::unpin`].
#[derive(Debug)]
#[must_use = "a region that is not unpinned stays pinned"]
pub struct Pinned<K> {
    region: Region,
    leases: SmallVec<[Lease<K>; 1]>,
}

impl<K: Copy> Pinned<K> {
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.leases.iter().map(Lease::key)
    }

    /// False once a part of the memory has been invalidated.
    pub fn is_valid<R: Registrar<Key = K>>(&self, cache: &PinDownCache<R>) -> bool {
        self.leases.iter().all(|lease| cache.is_valid(lease))
    }
}

struct Declared {
    generation: u32,
    /// Empty in a place that is free.
    segments: Arc<[Range<usize>]>,
    /// Pinnings that have not ended.
    pins: u32,
}

/// The declared buffers of one process.
pub struct Regions {
    limits: Limits,
    places: Vec<Declared>,
    by_segments: HashMap<Arc<[Range<usize>]>, u32>,
    /// Regions that are not pinned.
    unpinned: Lru,
    counters: Counters,
}

impl Regions {
    pub fn new(limits: Limits) -> Regions {
        Regions { limits, places: Vec::new(), by_segments: HashMap::new(), unpinned: Lru::new(), counters: Counters::default() }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The region of a buffer of these pieces; the same one as before, if it is still declared.
    ///
    /// Errors: no piece, or too many; no room, since all regions are pinned.
    pub fn declare(&mut self, segments: &[Range<usize>]) -> Result<Region, Error> {
        if let Some(&place) = self.by_segments.get(segments) {
            self.counters.found += 1;
            let declared = &self.places[place as usize];
            if declared.pins == 0 {
                self.unpinned.touch(place);
            }
            return Ok(Region::new(place, declared.generation));
        }
        if segments.is_empty() || segments.len() > self.limits.segments_max {
            return Err(Error::Segments);
        }
        let segments: Arc<[Range<usize>]> = segments.into();
        let place = if self.places.len() < self.limits.regions_max {
            self.places.push(Declared { generation: 0, segments: segments.clone(), pins: 0 });
            self.places.len() as u32 - 1
        } else {
            let place = self.unpinned.oldest().ok_or(Error::AllPinned)?;
            self.counters.undeclared += 1;
            let declared = &mut self.places[place as usize];
            let old = std::mem::replace(&mut declared.segments, segments.clone());
            declared.generation = declared.generation.wrapping_add(1);
            self.by_segments.remove(&old);
            place
        };
        self.counters.declared += 1;
        self.by_segments.insert(segments, place);
        self.unpinned.touch(place);
        Ok(Region::new(place, self.places[place as usize].generation))
    }

    /// The pieces of a region; `None` once it is no longer declared.
    pub fn segments(&self, region: Region) -> Option<&[Range<usize>]> {
        self.places.get(region.place()).filter(|declared| declared.generation == region.generation()).map(|declared| &*declared.segments)
    }

    /// Pins all pieces of a region, as often as is wanted.
    ///
    /// Errors: the region is no longer declared; a piece cannot be pinned, and then none is.
    pub fn pin<R: Registrar>(&mut self, region: Region, cache: &mut PinDownCache<R>) -> Result<Pinned<R::Key>, Error> {
        let Some(segments) = self.segments(region) else {
            self.counters.refused += 1;
            return Err(Error::Undeclared);
        };
        let mut leases = SmallVec::with_capacity(segments.len());
        for segment in segments {
            match cache.acquire(segment.clone()) {
                Ok(lease) => leases.push(lease),
                Err(refused) => {
                    leases.into_iter().for_each(|lease| cache.release(lease));
                    self.counters.refused += 1;
                    return Err(Error::Refused(refused));
                }
            }
        }
        self.counters.pinned += 1;
        self.places[region.place()].pins += 1;
        self.unpinned.remove(region.place() as u32);
        Ok(Pinned { region, leases })
    }

    /// The transfer is over. The region stays declared, and its memory registered as long as the cache keeps it.
    pub fn unpin<R: Registrar>(&mut self, pinned: Pinned<R::Key>, cache: &mut PinDownCache<R>) {
        pinned.leases.into_iter().for_each(|lease| cache.release(lease));
        self.counters.unpinned += 1;
        let place = pinned.region.place();
        let declared = &mut self.places[place];
        declared.pins -= 1;
        if declared.pins == 0 {
            self.unpinned.touch(place as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::{Device, PAGE, cache};
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn a_wrong_address_declares_fine_and_fails_alone() {
        let (device, mut cache) = cache(16, 16 * PAGE, 16);
        let mut regions = Regions::new(Limits::default());
        let good = regions.declare(&[0..PAGE, 4 * PAGE..5 * PAGE]).unwrap();
        let wrong = regions.declare(&[0..PAGE, 8 * PAGE..9 * PAGE, 100 * PAGE..101 * PAGE]).unwrap();
        let pinned = regions.pin(good, &mut cache).unwrap();
        assert_eq!(pinned.keys().count(), 2);
        assert_eq!(regions.pin(wrong, &mut cache).unwrap_err(), Error::Refused(Refused::BadMemory));
        assert!(pinned.is_valid(&cache) && regions.segments(wrong).is_some());
        regions.unpin(pinned, &mut cache);
        assert_eq!((cache.counters().bytes_in_use, device.borrow().keys.len()), (0, 3), "what had been pinned of it was released");
        assert_eq!(regions.declare(&[]), Err(Error::Segments));
    }

    #[test]
    fn invalidation_and_pinning_again_leave_the_declaration() {
        let (_, mut cache) = cache(16, 16 * PAGE, 16);
        let mut regions = Regions::new(Limits::default());
        let buffer = 0..2 * PAGE;
        let region = regions.declare(std::slice::from_ref(&buffer)).unwrap();
        let first = regions.pin(region, &mut cache).unwrap();
        cache.invalidate(PAGE..PAGE + 1);
        assert!(!first.is_valid(&cache));
        let second = regions.pin(region, &mut cache).unwrap();
        assert!(second.is_valid(&cache) && first.keys().ne(second.keys()));
        regions.unpin(first, &mut cache);
        regions.unpin(second, &mut cache);
        cache.shrink(usize::MAX);
        let third = regions.pin(region, &mut cache).unwrap();
        regions.unpin(third, &mut cache);
        assert_eq!(regions.declare(std::slice::from_ref(&buffer)), Ok(region));
        assert_eq!((regions.counters().declared, regions.counters().found, regions.counters().pinned), (1, 1, 3));
    }

    proptest! {
        #[test]
        fn regions_are_those_of_a_plain_list(
            program in prop::collection::vec((0usize..8, 0usize..4), 1..300),
            regions_max in 1usize..6,
        ) {
            let (device, mut cache): (Rc<RefCell<Device>>, _) = cache(64, 64 * PAGE, 64);
            let mut regions = Regions::new(Limits { regions_max, segments_max: 2 });
            // Buffers that are declared, the one used the longest ago first, and pinnings that have not ended.
            let mut model: Vec<(usize, Region)> = Vec::new();
            let mut known: Vec<(usize, Region)> = Vec::new();
            let mut pins: Vec<(usize, Pinned<u64>)> = Vec::new();
            for (buffer, what) in program {
                let segments = [buffer * 4 * PAGE..buffer * 4 * PAGE + 10, (buffer * 4 + 2) * PAGE..(buffer * 4 + 3) * PAGE];
                let is_pinned = |pins: &[(usize, Pinned<u64>)], buffer: usize| pins.iter().any(|pin| pin.0 == buffer);
                match what {
                    0 | 1 => match regions.declare(&segments) {
                        Ok(region) => {
                            if let Some(at) = model.iter().position(|it| it.0 == buffer) {
                                let (_, before) = model.remove(at);
                                prop_assert_eq!(before, region);
                            } else {
                                prop_assert!(known.iter().all(|it| it.1 != region), "a region that meant another buffer");
                                if model.len() == regions_max {
                                    let at = model.iter().position(|it| !is_pinned(&pins, it.0)).expect("one that is not pinned");
                                    model.remove(at);
                                }
                            }
                            model.push((buffer, region));
                            known.push((buffer, region));
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Error::AllPinned);
                            prop_assert!(model.len() == regions_max && model.iter().all(|it| is_pinned(&pins, it.0)));
                        }
                    },
                    2 => {
                        let Some(&(_, region)) = known.iter().rev().find(|it| it.0 == buffer) else { continue };
                        let is_declared = model.iter().any(|it| it.1 == region);
                        match regions.pin(region, &mut cache) {
                            Ok(pinned) => {
                                prop_assert!(is_declared);
                                let keys: Vec<u64> = pinned.keys().collect();
                                for (key, segment) in keys.iter().zip(&segments) {
                                    prop_assert!(device.borrow().is_current(*key, segment));
                                }
                                pins.push((buffer, pinned));
                            }
                            Err(error) => prop_assert!(!is_declared && error == Error::Undeclared),
                        }
                    }
                    _ => {
                        if let Some(at) = pins.iter().position(|pin| pin.0 == buffer) {
                            let (_, pinned) = pins.swap_remove(at);
                            regions.unpin(pinned, &mut cache);
                            if !is_pinned(&pins, buffer) {
                                let at = model.iter().position(|it| it.0 == buffer).expect("what is pinned is declared");
                                let it = model.remove(at);
                                model.push(it);
                            }
                        }
                    }
                }
                for &(_, region) in &known {
                    prop_assert_eq!(regions.segments(region).is_some(), model.iter().any(|it| it.1 == region));
                }
                let counters = regions.counters();
                prop_assert_eq!(counters.declared - counters.undeclared, model.len() as u64);
                prop_assert_eq!(counters.pinned - counters.unpinned, pins.len() as u64);
            }
            pins.into_iter().for_each(|(_, pinned)| regions.unpin(pinned, &mut cache));
            prop_assert_eq!(cache.counters().bytes_in_use, 0);
        }
    }
}
