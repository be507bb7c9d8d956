//! Pinning a buffer while its transfer is already under way (paper 004 §3.3, §4.3).
//!
//! The message that starts a transfer (RTS, RTR, or a request to pull) leaves when the first pages are pinned; the others are
//! pinned piece by piece, ahead of the transfer. A page that the transfer reaches before it is pinned is an overlap-miss: the
//! peer is told "not yet" and comes again. Where a device cannot say so, keys are handed out behind the pinning
//! ([`Transfer::pinned`]), and there are no misses.
//!
//! A processor that has too much to do pins slowly, and then misses cost more than pinning first (§4.3: 1 GB/s came down to 50
//! MB/s). So [`Overlap`] watches the share of misses, and turns itself off for a number of transfers that doubles each time, up
//! to a limit.
//!
//! No clock, no memory: pages are numbers, and whoever drives this pins them.

#![forbid(unsafe_code)]

use std::ops::Range;

/// How transfers are overlapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Pages that are pinned before the first message leaves. At least 1.
    pub first_pages: usize,
    /// Pages that are pinned at once after that. At least 1.
    pub piece_pages: usize,
    /// Accesses after which the share of misses is judged, and the most misses in a million. The paper's normal load: under 1 in
    /// 10^4; where misses are as rare as 1 in 100, a transfer of a thousand packets still gains more than it loses.
    pub judged_accesses: u32,
    pub misses_ppm_max: u32,
    /// Transfers without overlap after too many misses: at first, and at most.
    pub pause_min: u32,
    pub pause_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { first_pages: 4, piece_pages: 16, judged_accesses: 1024, misses_ppm_max: 10_000, pause_min: 16, pause_max: 4096 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transfers whose pinning was overlapped, those that were pinned first because of a pause, and pauses.
    pub overlapped: u64,
    pub suppressed: u64,
    pub pauses: u64,
    /// Accesses of overlapped transfers, and those that came before their page was pinned.
    pub accesses: u64,
    pub misses: u64,
}

/// A page may be touched, or is not pinned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Ready,
    NotYet,
}

/// The pages of one buffer in one transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pages: usize,
    pinned: usize,
    first: usize,
    piece: usize,
    is_overlapped: bool,
}

impl Transfer {
    /// Whether the message that starts the transfer may leave.
    pub fn may_start(&self) -> bool {
        self.pinned >= self.first
    }

    /// The pages to pin next; `None` when all are.
    pub fn next_piece(&self) -> Option<Range<usize>> {
        let pages = if self.may_start() { self.piece } else { self.first - self.pinned };
        (self.pinned < self.pages).then(|| self.pinned..self.pages.min(self.pinned + pages))
    }

    /// The pages of [`Transfer::next_piece`] are pinned.
    pub fn piece_pinned(&mut self) {
        self.pinned = self.next_piece().map_or(self.pinned, |piece| piece.end);
    }

    /// Pages that are pinned, from the first on.
    pub fn pinned(&self) -> Range<usize> {
        0..self.pinned
    }
}

/// What all transfers of a process have in common.
#[derive(Clone, Debug)]
pub struct Overlap {
    settings: Settings,
    /// Transfers still to go without overlap.
    pause: u32,
    next_pause: u32,
    /// Since it was last judged.
    accesses: u32,
    misses: u32,
    counters: Counters,
}

impl Overlap {
    pub fn new(settings: Settings) -> Overlap {
        Overlap { settings, pause: 0, next_pause: settings.pause_min.max(1), accesses: 0, misses: 0, counters: Counters::default() }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A transfer of so many pages of which `pinned` ones, from the first on, are pinned already. Without `wanted` (§5: calls
    /// that do not block gain less), or in a pause, all pages come first.
    pub fn begin(&mut self, pages: usize, pinned: usize, wanted: bool) -> Transfer {
        let whole = Transfer { pages, pinned: pinned.min(pages), first: pages, piece: pages.max(1), is_overlapped: false };
        if !wanted || pinned + self.settings.first_pages >= pages {
            return whole;
        }
        if self.pause > 0 {
            self.pause -= 1;
            self.counters.suppressed += 1;
            return whole;
        }
        self.counters.overlapped += 1;
        let first = (whole.pinned + self.settings.first_pages.max(1)).min(pages);
        Transfer { first, piece: self.settings.piece_pages.max(1), is_overlapped: true, ..whole }
    }

    /// The transfer has come to these pages.
    pub fn access(&mut self, transfer: &Transfer, pages: Range<usize>) -> Access {
        let is_ready = pages.end <= transfer.pinned;
        if transfer.is_overlapped {
            self.counters.accesses += 1;
            self.counters.misses += u64::from(!is_ready);
            self.accesses += 1;
            self.misses += u32::from(!is_ready);
            self.judge();
        }
        if is_ready { Access::Ready } else { Access::NotYet }
    }

    fn judge(&mut self) {
        let allowed = |accesses: u32| u64::from(accesses) * u64::from(self.settings.misses_ppm_max) / 1_000_000;
        // So many misses are too many, whatever comes until the others have been counted.
        if u64::from(self.misses) > allowed(self.settings.judged_accesses) {
            if self.pause == 0 {
                self.pause = self.next_pause;
                self.next_pause = self.next_pause.saturating_mul(2).min(self.settings.pause_max.max(1));
                self.counters.pauses += 1;
            }
        } else if self.accesses < self.settings.judged_accesses {
            return;
        } else {
            self.next_pause = (self.next_pause / 2).max(self.settings.pause_min.max(1));
        }
        (self.accesses, self.misses) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drive(transfer: &mut Transfer) -> Vec<Range<usize>> {
        std::iter::from_fn(|| {
            let piece = transfer.next_piece()?;
            transfer.piece_pinned();
            Some(piece)
        })
        .collect()
    }

    #[test]
    fn a_few_pages_come_first_and_the_others_piece_by_piece() {
        let mut overlap = Overlap::new(Settings::default());
        let mut transfer = overlap.begin(40, 0, true);
        assert!(!transfer.may_start());
        assert_eq!(transfer.next_piece(), Some(0..4));
        transfer.piece_pinned();
        assert!(transfer.may_start());
        assert_eq!((overlap.access(&transfer, 3..4), overlap.access(&transfer, 3..5)), (Access::Ready, Access::NotYet));
        assert_eq!(drive(&mut transfer), [4..20, 20..36, 36..40]);
        assert_eq!(overlap.access(&transfer, 39..40), Access::Ready);
        assert_eq!((overlap.counters().accesses, overlap.counters().misses), (3, 1));
    }

    #[test]
    fn short_and_nonblocking_transfers_and_what_is_pinned_are_not_overlapped() {
        let mut overlap = Overlap::new(Settings::default());
        for (pages, pinned, wanted) in [(4, 0, true), (100, 0, false), (100, 97, true), (100, 100, true)] {
            let mut transfer = overlap.begin(pages, pinned, wanted);
            assert_eq!(transfer.may_start(), pages == pinned);
            drive(&mut transfer);
            assert!(transfer.may_start());
        }
        assert_eq!(overlap.counters().overlapped, 0);
    }

    #[test]
    fn too_many_misses_turn_it_off_for_longer_each_time_and_it_comes_back() {
        let mut overlap = Overlap::new(Settings::default());
        let mut paused = Vec::new();
        for _ in 0..4 {
            let late = overlap.begin(100, 0, true);
            // 1 % of 1024.
            (0..11).for_each(|_| assert_eq!(overlap.access(&late, 50..51), Access::NotYet));
            let before = overlap.counters().suppressed;
            while !overlap.begin(100, 0, true).is_overlapped {}
            paused.push(overlap.counters().suppressed - before);
        }
        assert_eq!(paused, [16, 32, 64, 128]);
        // Thousands of accesses in time make the next pause short again.
        let mut transfer = overlap.begin(100, 0, true);
        drive(&mut transfer);
        for _ in 0..5 * 1024 {
            overlap.access(&transfer, 99..100);
        }
        assert_eq!(overlap.next_pause, 16);
        assert_eq!(overlap.counters().pauses, 4);
    }

    proptest! {
        #[test]
        fn each_page_is_pinned_once_and_in_order(
            pages in 0usize..500, pinned in 0usize..500, first_pages in 0usize..20, piece_pages in 0usize..40, wanted: bool,
        ) {
            let mut overlap = Overlap::new(Settings { first_pages, piece_pages, ..Settings::default() });
            let mut transfer = overlap.begin(pages, pinned, wanted);
            let mut at = pinned.min(pages);
            let pieces = drive(&mut transfer);
            for piece in pieces {
                prop_assert!(piece.start == at && piece.end > at);
                at = piece.end;
            }
            prop_assert_eq!(at, pages);
            prop_assert!(transfer.may_start() && transfer.pinned() == (0..pages));
        }
    }
}
