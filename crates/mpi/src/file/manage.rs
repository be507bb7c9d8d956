//! Sizes, views, pointers and consistency of an open file (MPI-5.0 §14.2, §14.3, §14.6).

use super::datarep::Datarep;
use super::view::View;
use super::{OpenFile, find, lock};
use crate::collective;
use crate::consts::*;
use crate::datatype;
use crate::error::{Error, Result};
use crate::exchange::{agree, same};
use crate::group::{self};
use crate::handle::{self, Datatype, File};
use crate::info;
use crate::session;
use rustix::fs::{FallocateFlags, fallocate};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is written at once where the file system cannot reserve space, bytes.
const FILL_BYTES: usize = 1 << 20;

fn negative(name: &str, value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| Error::new(MPI_ERR_ARG, format!("{name} = {value} is negative")))
}

fn barrier(function: &'static str, file: &OpenFile) -> Result<()> {
    let comm = file.comm()?;
    collective::now(function, comm, collective::barrier_plan(comm))
}

/// Does `action` on rank 0, and gives its outcome on all.
fn on_first(function: &'static str, file: &OpenFile, action: impl FnOnce() -> Result<()>) -> Result<()> {
    let comm = file.comm()?;
    let done = if comm.rank == 0 { action() } else { Ok(()) };
    agree(function, comm, done)
}

/// `MPI_File_get_size`, bytes.
pub fn size(handle: File) -> Result<i64> {
    Ok(find(handle)?.size_bytes()? as i64)
}

/// `MPI_File_set_size`.
///
/// # Errors
/// `MPI_ERR_ARG`, `MPI_ERR_NOT_SAME`, `MPI_ERR_READ_ONLY`, what the operating system says.
pub fn set_size(handle: File, size: i64) -> Result<()> {
    let (function, file) = ("MPI_File_set_size", find(handle)?);
    let wanted = agree(function, file.comm()?, file.must_write().and_then(|()| negative("size", size)))?;
    same(function, file.comm()?, "size", &size.to_ne_bytes())?;
    on_first(function, &file, || file.os.set_len(wanted).map_err(|e| file.trouble("its size cannot be set", &e)))
}

/// `MPI_File_preallocate`: space for the first `size` bytes, whose content stays.
///
/// # Errors
/// As [`set_size`].
pub fn preallocate(handle: File, size: i64) -> Result<()> {
    let (function, file) = ("MPI_File_preallocate", find(handle)?);
    let wanted = agree(function, file.comm()?, file.must_write().and_then(|()| negative("size", size)))?;
    same(function, file.comm()?, "size", &size.to_ne_bytes())?;
    on_first(function, &file, || match wanted {
        0 => Ok(()),
        _ => file.reserve(wanted),
    })
}

impl OpenFile {
    pub(super) fn must_write(&self) -> Result<()> {
        if self.writable() { Ok(()) } else { Err(Error::new(MPI_ERR_READ_ONLY, "the file was opened with MPI_MODE_RDONLY")) }
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        use rustix::io::Errno;
        match fallocate(&self.os, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(e) => return Err(self.trouble("space cannot be reserved", &e.into())),
        }
        // What is there is written again, and zeros behind it.
        let failed = |e: std::io::Error| self.trouble("space cannot be reserved", &e);
        let mut block = vec![0; FILL_BYTES];
        let mut at = 0;
        while at < bytes {
            let wanted = FILL_BYTES.min((bytes - at) as usize);
            block[..wanted].fill(0);
            if self.readable() {
                self.read_fully(at, &mut block[..wanted])?;
            } else if at < self.size_bytes()? {
                return Err(Error::new(
                    MPI_ERR_UNSUPPORTED_OPERATION,
                    "the file system cannot reserve space, and a file that is only written cannot be read for it",
                ));
            }
            self.os.write_all_at(&block[..wanted], at).map_err(failed)?;
            at += wanted as u64;
        }
        Ok(())
    }

    /// Brings what this process has written to the disk.
    pub(super) fn flush(&self) -> Result<()> {
        if !self.dirty.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.tell_last_change();
        self.os.sync_all().map_err(|e| self.trouble("it cannot be brought to the disk", &e))
    }

    /// The end of the file, in elementary datatypes of the view: of the first that does not lie wholly before it.
    fn end_units(&self, view: &View) -> Result<i64> {
        Ok(view.data_before(self.size_bytes()?).div_ceil(view.unit_bytes) as i64)
    }

    fn target(&self, view: &View, offset: i64, whence: i32, current: impl FnOnce() -> Result<i64>) -> Result<i64> {
        let base = match whence {
            MPI_SEEK_SET => 0,
            MPI_SEEK_CUR => current()?,
            MPI_SEEK_END => self.end_units(view)?,
            _ => return Err(Error::new(MPI_ERR_ARG, format!("whence = {whence} is none of MPI_SEEK_SET, MPI_SEEK_CUR, MPI_SEEK_END"))),
        };
        let target = base.checked_add(offset).filter(|target| *target >= 0);
        target.ok_or_else(|| Error::new(MPI_ERR_ARG, format!("offset = {offset} from {base} lies before the view")))
    }

    pub(super) fn not_sequential(&self) -> Result<()> {
        if self.sequential() { Err(Error::new(MPI_ERR_UNSUPPORTED_OPERATION, "the file was opened with MPI_MODE_SEQUENTIAL")) } else { Ok(()) }
    }
}

/// `MPI_File_sync`: what any process has written is on the disk, and seen by all.
///
/// # Errors
/// What the operating system says.
pub fn sync(handle: File) -> Result<()> {
    let file = find(handle)?;
    agree("MPI_File_sync", file.comm()?, file.flush())
}

/// `MPI_File_set_atomicity`.
///
/// # Errors
/// `MPI_ERR_NOT_SAME`.
pub fn set_atomicity(handle: File, atomic: bool) -> Result<()> {
    let file = find(handle)?;
    same("MPI_File_set_atomicity", file.comm()?, "flag", &[u8::from(atomic)])?;
    file.atomic.store(atomic, Ordering::SeqCst);
    barrier("MPI_File_set_atomicity", &file)
}

/// `MPI_File_get_atomicity`.
pub fn atomicity(handle: File) -> Result<bool> {
    Ok(find(handle)?.atomic.load(Ordering::SeqCst))
}

/// `MPI_File_get_group`.
pub fn group(handle: File) -> Result<handle::Group> {
    group::publish(find(handle)?.comm()?.group.clone())
}

/// `MPI_File_get_amode`.
pub fn amode(handle: File) -> Result<i32> {
    Ok(find(handle)?.amode)
}

/// `MPI_File_set_info`.
pub fn set_info(handle: File, given: handle::Info) -> Result<()> {
    let file = find(handle)?;
    let mut hints = file.hints();
    let taken = info::hints(given).and_then(|pairs| hints.update(&pairs));
    agree("MPI_File_set_info", file.comm()?, taken)?;
    *lock(&file.hints) = hints;
    Ok(())
}

/// `MPI_File_get_info`: the hints in use, in a new object.
pub fn info(handle: File) -> Result<handle::Info> {
    let file = find(handle)?;
    info::create(file.hints().pairs(&session::memory_kinds_of(&file.comm()?.group))?)
}

/// `MPI_File_set_view`: both pointers go to the begin.
///
/// # Errors
/// As [`View::new`]; `MPI_ERR_NOT_SAME` where the representation or the etype's length differs among ranks; `MPI_ERR_ARG` for
/// `MPI_DISPLACEMENT_CURRENT` without, and another displacement with, `MPI_MODE_SEQUENTIAL`.
pub fn set_view(handle: File, displacement: i64, etype: Datatype, filetype: Datatype, datarep: &[u8], given: handle::Info) -> Result<()> {
    let (function, file) = ("MPI_File_set_view", find(handle)?);
    let comm = file.comm()?;
    let mut hints = file.hints();
    let made = (|| {
        hints.update(&info::hints(given)?)?;
        let displacement = match displacement {
            MPI_DISPLACEMENT_CURRENT if file.sequential() => file.view().position(file.shared.read()? as u64 * file.view().unit_bytes) as i64,
            MPI_DISPLACEMENT_CURRENT => return Err(Error::new(MPI_ERR_ARG, "disp = MPI_DISPLACEMENT_CURRENT is possible with MPI_MODE_SEQUENTIAL only")),
            _ if file.sequential() => {
                return Err(Error::new(MPI_ERR_ARG, format!("disp = {displacement}: with MPI_MODE_SEQUENTIAL it must be MPI_DISPLACEMENT_CURRENT")));
            }
            _ => displacement,
        };
        View::new(displacement, etype, filetype, Datarep::find(datarep)?)
    })();
    let view = agree(function, comm, made)?;
    let mut mine = [0; 8 + MPI_MAX_DATAREP_STRING];
    mine[..8].copy_from_slice(&view.unit_bytes.to_ne_bytes());
    mine[8..8 + datarep.len()].copy_from_slice(datarep);
    same(function, comm, "datarep or the etype's extent", &mine)?;
    *file.view.write().unwrap_or_else(|e| e.into_inner()) = Arc::new(view);
    *lock(&file.hints) = hints;
    *lock(&file.position) = 0;
    if comm.rank == 0 {
        file.shared.set(0)?;
    }
    barrier(function, &file)
}

/// `MPI_File_get_view`: displacement, etype, filetype, representation. Datatypes that are not predefined are the caller's to free.
pub fn view(handle: File) -> Result<(i64, Datatype, Datatype, Vec<u8>)> {
    let view = find(handle)?.view();
    let shown = |layout| -> Result<Datatype> {
        let shown = datatype::reveal(layout)?;
        datatype::commit(shown)?;
        Ok(shown)
    };
    Ok((view.displacement, shown(&view.etype)?, shown(&view.filetype)?, view.datarep.name().to_vec()))
}

/// `MPI_File_seek`.
///
/// # Errors
/// `MPI_ERR_ARG` for a place before the view, `MPI_ERR_UNSUPPORTED_OPERATION` with `MPI_MODE_SEQUENTIAL`.
pub fn seek(handle: File, offset: i64, whence: i32) -> Result<()> {
    let file = find(handle)?;
    file.not_sequential()?;
    let view = file.view();
    let mut position = lock(&file.position);
    let current = *position;
    *position = file.target(&view, offset, whence, || Ok(current))?;
    Ok(())
}

/// `MPI_File_get_position`, in elementary datatypes.
pub fn position(handle: File) -> Result<i64> {
    let file = find(handle)?;
    file.not_sequential()?;
    let position = *lock(&file.position);
    Ok(position)
}

/// `MPI_File_get_byte_offset`.
pub fn byte_offset(handle: File, offset: i64) -> Result<i64> {
    let file = find(handle)?;
    file.not_sequential()?;
    let view = file.view();
    Ok(view.position(negative("offset", offset)? * view.unit_bytes) as i64)
}

/// `MPI_File_seek_shared`.
///
/// # Errors
/// As [`seek`]; `MPI_ERR_NOT_SAME`.
pub fn seek_shared(handle: File, offset: i64, whence: i32) -> Result<()> {
    let (function, file) = ("MPI_File_seek_shared", find(handle)?);
    let mut mine = [0; 12];
    mine[..8].copy_from_slice(&offset.to_ne_bytes());
    mine[8..].copy_from_slice(&whence.to_ne_bytes());
    same(function, file.comm()?, "offset or whence", &mine)?;
    agree(function, file.comm()?, file.not_sequential())?;
    on_first(function, &file, || {
        let target = file.target(&file.view(), offset, whence, || file.shared.read())?;
        file.shared.set(target)
    })
}

/// `MPI_File_get_position_shared`.
pub fn position_shared(handle: File) -> Result<i64> {
    let file = find(handle)?;
    file.not_sequential()?;
    file.shared.read()
}

/// `MPI_File_get_type_extent`, bytes in the file.
pub fn type_extent(handle: File, datatype: Datatype) -> Result<i64> {
    let file = find(handle)?;
    let layout = datatype::lookup(datatype)?.layout();
    Ok(file.view().datarep.in_file(layout)?.extent() as i64)
}
