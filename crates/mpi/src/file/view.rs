//! File views (MPI-5.0 §14.3): which bytes of the file a process sees, and in which order.
#![forbid(unsafe_code)]

use super::datarep::Datarep;
use crate::coll::aggregate::{Piece, Placement};
use crate::consts::*;
use crate::datatype::{self, Program, SharedLayout};
use crate::error::{Error, Result};
use crate::handle::Datatype;
use engine::Plan;
use std::sync::Arc;

/// Pieces of one filetype that are looked at when a view is set, at most.
const CHECKED_PIECES_MAX: usize = 1 << 20;

/// What one process sees of a file.
pub struct View {
    /// Absolute displacement, bytes.
    pub displacement: i64,
    /// As the program gave them.
    pub etype: SharedLayout,
    pub filetype: SharedLayout,
    pub datarep: Datarep,
    /// Bytes of data in one elementary datatype, as they lie in the file; at least 1.
    pub unit_bytes: u64,
    /// The filetype as it lies in the file.
    tile: SharedLayout,
    program: Arc<Program>,
    /// The data is one piece from the displacement on.
    contiguous: bool,
}

impl View {
    /// The view with which a file is opened: bytes.
    ///
    /// # Errors
    /// None; as [`View::new`].
    pub fn bytes() -> Result<View> {
        View::new(0, MPI_BYTE, MPI_BYTE, Datarep::native())
    }

    /// # Errors
    /// `MPI_ERR_ARG` for a negative displacement and for a filetype that is not made of whole etypes or goes backwards
    /// (§14.1.1); `MPI_ERR_TYPE`; `MPI_ERR_UNSUPPORTED_DATAREP` and `MPI_ERR_CONVERSION` where the representation cannot hold them.
    pub fn new(displacement: i64, etype: Datatype, filetype: Datatype, datarep: Datarep) -> Result<View> {
        if displacement < 0 {
            return Err(Error::new(MPI_ERR_ARG, format!("disp = {displacement} is negative")));
        }
        let (etype, filetype) = (datatype::committed(etype)?.layout().clone(), datatype::committed(filetype)?.layout().clone());
        if etype.size == 0 {
            return Err(Error::new(MPI_ERR_ARG, "etype has no data"));
        }
        if !filetype.size.is_multiple_of(etype.size) {
            let text = format!("filetype has {} bytes of data, which are no whole etypes of {} bytes", filetype.size, etype.size);
            return Err(Error::new(MPI_ERR_ARG, text));
        }
        let tile = datarep.in_file(&filetype)?;
        if tile.size > 0 {
            check_order(&tile)?;
        }
        let unit_bytes = datarep.in_file(&etype)?.size as u64;
        let program = tile.program().clone();
        let contiguous = tile.dense && tile.true_lb == 0 && tile.extent() as i128 == tile.size as i128;
        Ok(View { displacement, etype, filetype, datarep, unit_bytes, tile, program, contiguous })
    }

    /// A process whose filetype has no data sees nothing of the file: it takes part in collective accesses without data.
    pub fn is_empty(&self) -> bool {
        self.tile.size == 0
    }

    /// Byte of the file at which data byte `offset` of the view lies; the displacement where the view has no data.
    pub fn position(&self, offset: u64) -> u64 {
        let mut piece = Vec::new();
        self.pieces(offset, 1, &mut piece);
        piece.first().map_or(self.displacement as u64, |piece| piece.at)
    }

    /// Data bytes of the view that lie before byte `end` of the file.
    pub fn data_before(&self, end: u64) -> u64 {
        let Some(inside) = end.checked_sub(self.displacement as u64).filter(|_| !self.is_empty()) else { return 0 };
        if self.contiguous {
            return inside;
        }
        let (extent, size) = (self.tile.extent() as u64, self.tile.size as u64);
        // The last tile whose end may lie before: tiles may reach past their extent.
        let first = (inside / extent).saturating_sub(self.tile.true_ub.max(0) as u64 / extent + 1);
        let mut before = first * size;
        while before / size <= inside / extent {
            let mut pieces = Vec::new();
            self.pieces(before, size as usize, &mut pieces);
            for piece in pieces {
                if piece.at + piece.bytes > end {
                    return before + end.saturating_sub(piece.at);
                }
                before += piece.bytes;
            }
        }
        before
    }
}

impl Placement for View {
    fn pieces(&self, offset: u64, bytes: usize, out: &mut Vec<Piece>) {
        if bytes == 0 || self.is_empty() {
            return;
        }
        if self.contiguous {
            out.push(Piece { at: self.displacement as u64 + offset, bytes: bytes as u64 });
            return;
        }
        let size = self.tile.size as u64;
        let (first, inside) = (offset / size, (offset % size) as usize);
        let start = self.displacement as u64 + first * self.tile.extent() as u64;
        let tiles = (inside + bytes).div_ceil(self.tile.size);
        let mut runs = Vec::new();
        // The program lists places relative to a start, which here is a byte of the file; nothing is touched.
        self.program.io_vectors(std::ptr::without_provenance_mut(start as usize), tiles, inside, bytes, usize::MAX, &mut runs);
        out.extend(runs.into_iter().map(|(at, bytes)| Piece { at: at.addr() as u64, bytes: bytes as u64 }));
    }
}

/// A filetype's displacements are not negative and do not decrease (§14.1.1), so that data is met in the order of the file.
fn check_order(tile: &SharedLayout) -> Result<()> {
    if tile.true_lb < 0 || tile.extent() <= 0 {
        return Err(Error::new(MPI_ERR_ARG, format!("filetype begins at {} and has an extent of {} bytes", tile.true_lb, tile.extent())));
    }
    let mut pieces = Vec::new();
    tile.program().io_vectors(std::ptr::null_mut(), 1, 0, tile.size, CHECKED_PIECES_MAX, &mut pieces);
    let goes_back = pieces.windows(2).find(|pair| pair[1].0.addr() < pair[0].0.addr() + pair[0].1);
    match goes_back {
        Some(pair) => {
            let text = format!("filetype goes from byte {} back to byte {}: displacements must not decrease", pair[0].0.addr() + pair[0].1, pair[1].0.addr());
            Err(Error::new(MPI_ERR_ARG, text))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::Form;

    fn strided() -> View {
        // Two ints of every five.
        let blocks = datatype::vector(Form::Small, 1, 2, 5, MPI_INT).unwrap();
        let filetype = datatype::resized(Form::Small, blocks, 0, 20).unwrap();
        datatype::commit(filetype).unwrap();
        View::new(100, MPI_INT, filetype, Datarep::native()).unwrap()
    }

    #[test]
    fn data_lies_where_the_filetype_says() {
        let view = strided();
        let mut pieces = Vec::new();
        view.pieces(4, 16, &mut pieces);
        let expected = [(104, 4), (120, 8), (140, 4)].map(|(at, bytes)| Piece { at, bytes });
        assert_eq!(pieces, expected);
        assert_eq!([0, 4, 8, 17].map(|offset| view.position(offset)), [100, 104, 120, 141]);
    }

    #[test]
    fn data_before_a_byte_is_counted() {
        let view = strided();
        for end in 0..400 {
            let naive = (0..200).filter(|&offset| view.position(offset) < end).count() as u64;
            assert_eq!(view.data_before(end), naive, "before byte {end}");
        }
        assert_eq!(View::bytes().unwrap().data_before(77), 77);
    }

    #[test]
    fn a_filetype_without_data_shows_nothing() {
        let filetype = datatype::indexed(Form::Small, &[0], &[7], MPI_INT).unwrap();
        datatype::commit(filetype).unwrap();
        let view = View::new(100, MPI_INT, filetype, Datarep::native()).unwrap();
        assert!(view.is_empty() && !strided().is_empty());
        let mut pieces = Vec::new();
        view.pieces(0, 8, &mut pieces);
        assert_eq!(pieces, []);
        assert_eq!((view.position(4), view.data_before(400)), (100, 0));
    }

    #[test]
    fn a_filetype_that_goes_back_is_refused() {
        let filetype = datatype::indexed(Form::Small, &[1, 1], &[3, 0], MPI_INT).unwrap();
        datatype::commit(filetype).unwrap();
        assert_eq!(View::new(0, MPI_INT, filetype, Datarep::native()).err().unwrap().class, MPI_ERR_ARG);
        assert_eq!(View::new(-1, MPI_INT, MPI_INT, Datarep::native()).err().unwrap().class, MPI_ERR_ARG);
        assert_eq!(View::new(0, MPI_INT, MPI_CHAR, Datarep::native()).err().unwrap().class, MPI_ERR_ARG);
    }
}
