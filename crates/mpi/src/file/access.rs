//! Moving data between memory and files (MPI-5.0 §14.4): at an offset, at either pointer; alone, together, or in order of rank.

use super::datarep::Content;
use super::view::View;
use super::{OpenFile, find, lock};
use crate::call::{Call, Form};
use crate::coll::{
    self,
    aggregate::{self, Extent, Part, Rooms, Storage},
};
use crate::collective::{self, Data};
use crate::consts::*;
use crate::datatype;
use crate::error::{Error, Result};
use crate::handle::{self, File, Status};
use crate::link::{Channel, block};
use crate::request;
use engine::MappedFile;
use rustix::fs::{FlockOperation, flock};
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Data that lies in pieces in memory is gathered this many bytes at a time.
const CHUNK_BYTES: usize = 8 << 20;

/// Where an access begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Elementary datatypes from the begin of the view.
    Offset(i64),
    /// At the individual pointer.
    Pointer,
    /// At the shared pointer.
    Shared,
}

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub place: Place,
    pub write: bool,
    /// All ranks take part; at the shared pointer, in order of rank.
    pub together: bool,
}

/// A split collective that has begun.
pub struct Split {
    pub function: &'static str,
    start: usize,
    moved: Status,
}

impl Storage for OpenFile {
    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.dirty.store(true, Ordering::SeqCst);
        self.os.write_all_at(data, at).map_err(|e| self.trouble(&format!("{} bytes at byte {at} cannot be written", data.len()), &e))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize> {
        self.read_fully(at, into)
    }

    fn rooms(&self) -> &Mutex<Rooms> {
        &self.rooms
    }

    fn pages(&self, of: &Extent, write: bool) -> Option<Arc<MappedFile>> {
        self.pages_for(of, write)
    }

    fn took(&self, of: &Extent, write: bool, ns: u64) {
        self.pages_took(of, write, ns);
    }
}

/// The operating system's lock on a file, for accesses that must not be seen half done.
struct Locked<'a> {
    file: &'a OpenFile,
    _threads: std::sync::MutexGuard<'a, ()>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // A lock that cannot be given back goes with the descriptor.
        let _ = flock(&self.file.os, FlockOperation::Unlock);
    }
}

impl OpenFile {
    /// Reads until the end of the file or of `into`.
    pub(super) fn read_fully(&self, at: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.os.read_at(&mut into[done..], at + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.trouble(&format!("{} bytes at byte {at} cannot be read", into.len()), &e)),
            }
        }
        Ok(done)
    }

    /// In atomic mode, the lock for one access (§14.6.1).
    fn lock_if_atomic(&self, write: bool) -> Result<Option<Locked<'_>>> {
        if !self.atomic.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let threads = lock(&self.locking);
        let kind = if write { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        flock(&self.os, kind).map_err(|e| self.trouble("it cannot be locked, as its atomic mode needs", &e.into()))?;
        Ok(Some(Locked { file: self, _threads: threads }))
    }

    fn check(&self, access: Access, data: &Data) -> Result<()> {
        if access.write {
            self.must_write()?;
        } else if !self.readable() {
            return Err(Error::new(MPI_ERR_ACCESS, "the file was opened with MPI_MODE_WRONLY"));
        }
        if access.place != Place::Shared {
            self.not_sequential()?;
        }
        if let Place::Offset(offset) = access.place
            && offset < 0
        {
            return Err(Error::new(MPI_ERR_ARG, format!("offset = {offset} is negative")));
        }
        if collective::in_place(data.start) {
            return Err(Error::new(MPI_ERR_BUFFER, "buf is MPI_IN_PLACE"));
        }
        Ok(())
    }

    /// Elementary datatypes that an access moves.
    fn units(&self, view: &View, data: &Data) -> Result<i64> {
        let bytes = if view.datarep.is_memory() {
            collective::buffer(data)?.len() as u64
        } else {
            collective::buffer(data)?;
            view.datarep.in_file(datatype::committed(data.datatype)?.layout())?.size as u64 * data.count as u64
        };
        if bytes > 0 && view.is_empty() {
            return Err(Error::new(MPI_ERR_ARG, format!("the view has no data, as its filetype has none, and the access {bytes} bytes")));
        }
        if !bytes.is_multiple_of(view.unit_bytes) {
            let text = format!("{bytes} bytes are no whole etypes of {} bytes", view.unit_bytes);
            return Err(Error::new(MPI_ERR_ARG, text));
        }
        Ok((bytes / view.unit_bytes) as i64)
    }

    /// Takes the place of an access of `units`, and moves the pointer that it uses past it.
    fn claim(&self, place: Place, units: i64) -> Result<i64> {
        match place {
            Place::Offset(offset) => Ok(offset),
            Place::Pointer => {
                let mut position = lock(&self.position);
                let old = *position;
                *position += units;
                Ok(old)
            }
            Place::Shared => self.shared.add(units),
        }
    }

    /// After a read that met the end of the file the individual pointer stands behind what was read.
    fn settle(&self, view: &View, place: Place, offset: i64, asked: i64, moved_bytes: u64) {
        let moved = (moved_bytes / view.unit_bytes) as i64;
        if place == Place::Pointer && moved < asked {
            let mut position = lock(&self.position);
            if *position == offset + asked {
                *position = offset + moved;
            }
        }
    }

    /// Moves the data of this process alone; gives the bytes in the file.
    fn transfer(&self, view: &View, offset: u64, data: &Data, write: bool) -> Result<Status> {
        let _locked = self.lock_if_atomic(write)?;
        let buffer = collective::buffer(data)?;
        if !view.datarep.is_memory() || buffer.address().is_some() {
            let mut content = view.datarep.content(data, write)?;
            if write {
                aggregate::write_one(self, view, offset, content.read())?;
                return Ok(status(buffer.len() as u64));
            }
            let moved = aggregate::read_one(self, view, offset, content.write())?;
            return Ok(status(content.received(moved)?));
        }
        let mut room = Vec::new();
        let mut done = 0;
        while done < buffer.len() {
            let bytes = CHUNK_BYTES.min(buffer.len() - done);
            let part = buffer.part(done, bytes);
            if write {
                let packed = part.try_to_vec().ok_or_else(|| coll::no_memory(bytes))?;
                aggregate::write_one(self, view, offset + done as u64, &packed)?;
                done += bytes;
                continue;
            }
            if room.is_empty() {
                room = coll::zeros(bytes)?;
            }
            let moved = aggregate::read_one(self, view, offset + done as u64, &mut room[..bytes])?;
            part.part(0, moved).fill(&room[..moved]);
            done += moved;
            if moved < bytes {
                break;
            }
        }
        Ok(status(done as u64))
    }
}

fn status(bytes: u64) -> Status {
    let mut status = Status { source: MPI_ANY_SOURCE, tag: MPI_ANY_TAG, ..Status::EMPTY };
    status.set_count_bytes(bytes);
    status
}

/// A blocking access of this process, or of all together.
///
/// # Errors
/// `MPI_ERR_FILE`, `MPI_ERR_ARG`, `MPI_ERR_READ_ONLY`, `MPI_ERR_ACCESS`, those of datatypes, and what the operating system says.
pub fn run(function: &'static str, handle: File, access: Access, data: Data) -> Result<Status> {
    let file = find(handle)?;
    if access.together {
        let comm = file.comm()?;
        let channel = Channel::new(comm, Call::named(function))?;
        return block(comm.cell, function, together(channel, file, access, data));
    }
    alone(&file, access, data)
}

/// A nonblocking access. What this process does alone is done when the call returns.
///
/// # Errors
/// As [`run`]; those that come later are the request's.
pub fn start(function: &'static str, handle: File, access: Access, data: Data) -> Result<handle::Request> {
    let file = find(handle)?;
    let comm = file.comm;
    if access.together {
        let shared = file.comm()?;
        let channel = Channel::lasting(shared, shared.calls.begin(Call::named(function).form(Form::Nonblocking)))?;
        let checked = file.check(access, &data).and_then(|()| file.units(&file.view(), &data));
        let mut request = request::start_task(Some(comm), together(channel, file, access, data))?;
        if let Err(error) = checked {
            // The others go on: this rank takes part without data.
            request::free(&mut request)?;
            return Err(error);
        }
        return Ok(request);
    }
    let moved = alone(&file, access, data)?;
    request::start_task(Some(comm), async move { Ok(moved) })
}

/// The first half of a split collective (§14.4.5), in which all is done. One that fails has not begun.
///
/// # Errors
/// `MPI_ERR_OTHER` where another one has begun; else as [`run`].
pub fn begin(function: &'static str, handle: File, access: Access, data: Data) -> Result<()> {
    let file = find(handle)?;
    if let Some(split) = lock(&file.split).as_ref() {
        return Err(Error::new(MPI_ERR_OTHER, format!("{} has not been ended", split.function)));
    }
    let moved = run(function, handle, access, data)?;
    *lock(&file.split) = Some(Split { function, start: data.start as usize, moved });
    Ok(())
}

/// The second half: of the call `begun`, with the same buffer.
///
/// # Errors
/// `MPI_ERR_OTHER` where that has not begun, `MPI_ERR_BUFFER` for another buffer, and what went wrong.
pub fn end(handle: File, begun: &'static str, start: usize) -> Result<Status> {
    let file = find(handle)?;
    let mut split = lock(&file.split);
    match split.as_ref() {
        Some(split) if split.function.trim_end_matches("_c") == begun && split.start == start => {}
        Some(split) if split.function.trim_end_matches("_c") == begun => {
            return Err(Error::new(MPI_ERR_BUFFER, format!("buf is {start:#x}, and {:#x} in {}", split.start, split.function)));
        }
        Some(split) => return Err(Error::new(MPI_ERR_OTHER, format!("{} has begun, not {begun}", split.function))),
        None => return Err(Error::new(MPI_ERR_OTHER, format!("{begun} has not begun"))),
    }
    Ok(split.take().map_or(Status::EMPTY, |split| split.moved))
}

fn alone(file: &OpenFile, access: Access, data: Data) -> Result<Status> {
    file.check(access, &data)?;
    let view = file.view();
    let units = file.units(&view, &data)?;
    let offset = file.claim(access.place, units)?;
    let moved = file.transfer(&view, offset as u64 * view.unit_bytes, &data, access.write)?;
    file.settle(&view, access.place, offset, units, moved.count_bytes());
    Ok(moved)
}

/// What a rank does of a collective access. A rank whose arguments are wrong takes part without data, so that the others go on.
fn together(channel: Channel, file: Arc<OpenFile>, access: Access, data: Data) -> impl Future<Output = Result<Status>> + Send {
    let view = file.view();
    // The individual pointer moves when the operation starts, so that a later one begins behind it (§14.4.3).
    let prepared = file.check(access, &data).and_then(|()| {
        let units = file.units(&view, &data)?;
        let content = view.datarep.content(&data, access.write)?;
        let offset = if access.place == Place::Shared { 0 } else { file.claim(access.place, units)? };
        Ok((units, content, offset))
    });
    async move {
        let (prepared, failed) = match prepared {
            Ok(prepared) => (Some(prepared), None),
            Err(error) => (None, Some(error)),
        };
        let units = prepared.as_ref().map_or(0, |(units, ..)| *units);
        let ordered = if access.place == Place::Shared { Some(in_order(&channel, &file, units).await?) } else { None };
        let (mut content, offset) = match prepared {
            Some((_, content, offset)) => (Some(content), ordered.unwrap_or(offset)),
            None => (None, 0),
        };
        let (part_of, tuning) = (offset as u64 * view.unit_bytes, channel.tuning());
        if file.atomic.load(Ordering::SeqCst) {
            // An aggregator would touch the file for several ranks, each of whose accesses must be seen whole or not at all.
            if let Some(error) = failed {
                return Err(error);
            }
            let moved = file.transfer(&view, part_of, &data, access.write)?;
            file.settle(&view, access.place, offset, units, moved.count_bytes());
            return Ok(moved);
        }
        let part = Part { storage: &*file, view: &*view, offset: part_of, buffering: file.hints().buffering, near: file.near };
        let moved = if access.write {
            let bytes = content.as_ref().map_or(&[][..], Content::read);
            aggregate::write_all(&channel, tuning, part, bytes).await?;
            bytes.len()
        } else {
            aggregate::read_all(&channel, tuning, part, content.as_mut().map_or(&mut [][..], Content::write)).await?
        };
        if let Some(error) = failed {
            return Err(error);
        }
        let Some(content) = content else { return Ok(Status::EMPTY) };
        if access.write {
            return Ok(status(collective::buffer(&data)?.len() as u64));
        }
        let received = content.received(moved)?;
        file.settle(&view, access.place, offset, units, moved as u64);
        Ok(status(received))
    }
}

/// Takes the places of all ranks at the shared pointer, in order of rank; gives this rank's.
async fn in_order(channel: &Channel, file: &OpenFile, units: i64) -> Result<i64> {
    use crate::coll::{Link, allgather, bcast};
    let mut all = vec![0; 8 * channel.size()];
    allgather(channel, channel.tuning(), Some(&units.to_ne_bytes()), &mut all).await?;
    let each: Vec<i64> = all.chunks_exact(8).map(|bytes| i64::from_ne_bytes(bytes.try_into().expect("eight bytes"))).collect();
    // The base, and the class of what went wrong.
    let mut base = [0; 12];
    if channel.rank() == 0 {
        match file.shared.add(each.iter().sum()) {
            Ok(old) => base[..8].copy_from_slice(&old.to_ne_bytes()),
            Err(error) => base[8..].copy_from_slice(&error.class.to_ne_bytes()),
        }
    }
    bcast(channel, channel.tuning(), &mut base, 0).await?;
    let class = i32::from_ne_bytes(base[8..].try_into().expect("four bytes"));
    if class != 0 {
        return Err(Error::new(class, "the shared file pointer cannot be moved"));
    }
    Ok(i64::from_ne_bytes(base[..8].try_into().expect("eight bytes")) + each[..channel.rank()].iter().sum::<i64>())
}
