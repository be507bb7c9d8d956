//! Data representations (MPI-5.0 §14.5): "native", "internal", "external32", and those that a program registers.

use crate::collective::{self, Data, Packed};
use crate::consts::*;
use crate::datatype::{self, Representation, SharedLayout};
use crate::error::{Error, Result};
use crate::handle::{DatarepConversionFunction, DatarepConversionFunctionC, DatarepExtentFunction, Datatype};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// Representations that a program may register.
pub const REGISTERED_MAX: usize = 1024;

static REGISTERED: Mutex<Vec<Arc<Registered>>> = Mutex::new(Vec::new());

/// A conversion function of either count; `None` where the data is as in memory.
#[derive(Clone, Copy)]
pub enum Conversion {
    Small(Option<DatarepConversionFunction>),
    Large(Option<DatarepConversionFunctionC>),
}

/// A representation that the program has registered.
pub struct Registered {
    name: Vec<u8>,
    read: Conversion,
    write: Conversion,
    extent: DatarepExtentFunction,
    extra_state: *mut c_void,
}

// SAFETY: the program gave the callbacks and their state to the library for any thread to use (MPI-5.0 §14.5.3).
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// How data lies in a file.
#[derive(Clone)]
pub enum Datarep {
    /// As in memory: "native", and "internal", which is the same here.
    Memory(&'static str),
    External,
    Registered(Arc<Registered>),
}

/// `MPI_Register_datarep`.
///
/// # Errors
/// `MPI_ERR_DUP_DATAREP`; `MPI_ERR_ARG` for a name that is empty or too long and where no extent function is given; `MPI_ERR_OTHER`
/// past [`REGISTERED_MAX`].
pub fn register(name: &[u8], read: Conversion, write: Conversion, extent: Option<DatarepExtentFunction>, extra_state: *mut c_void) -> Result<()> {
    if name.is_empty() || name.len() >= MPI_MAX_DATAREP_STRING {
        return Err(Error::new(MPI_ERR_ARG, format!("datarep has {} bytes: 1 to {} are possible", name.len(), MPI_MAX_DATAREP_STRING - 1)));
    }
    let extent = extent.ok_or_else(|| Error::new(MPI_ERR_ARG, "dtype_file_extent_fn is null"))?;
    if Datarep::find(name).is_ok() {
        return Err(Error::new(MPI_ERR_DUP_DATAREP, format!("datarep {:?} is defined already", String::from_utf8_lossy(name))));
    }
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.len() >= REGISTERED_MAX {
        return Err(Error::new(MPI_ERR_OTHER, format!("{REGISTERED_MAX} data representations are registered already")));
    }
    registered.push(Arc::new(Registered { name: name.to_vec(), read, write, extent, extra_state }));
    Ok(())
}

impl Datarep {
    pub fn native() -> Datarep {
        Datarep::Memory("native")
    }

    /// # Errors
    /// `MPI_ERR_UNSUPPORTED_DATAREP`.
    pub fn find(name: &[u8]) -> Result<Datarep> {
        match name {
            b"native" => return Ok(Datarep::Memory("native")),
            b"internal" => return Ok(Datarep::Memory("internal")),
            b"external32" => return Ok(Datarep::External),
            _ => {}
        }
        let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = registered.iter().find(|known| known.name == name).cloned();
        let unknown = || Error::new(MPI_ERR_UNSUPPORTED_DATAREP, format!("datarep {:?} is not known", String::from_utf8_lossy(name)));
        found.map(Datarep::Registered).ok_or_else(unknown)
    }

    pub fn name(&self) -> &[u8] {
        match self {
            Datarep::Memory(name) => name.as_bytes(),
            Datarep::External => b"external32",
            Datarep::Registered(registered) => &registered.name,
        }
    }

    /// The layout of a datatype as it lies in the file.
    ///
    /// # Errors
    /// `MPI_ERR_CONVERSION` where the extent function of the program fails.
    pub fn in_file(&self, layout: &SharedLayout) -> Result<SharedLayout> {
        match self {
            Datarep::Memory(_) => Ok(layout.clone()),
            Datarep::External => layout.resized_elements(&|_, element| Ok(element.external_bytes)),
            Datarep::Registered(registered) => layout.resized_elements(&|handle, _| registered.extent_of(handle)),
        }
    }

    /// Whether data can be moved between memory and file as it is.
    pub fn is_memory(&self) -> bool {
        matches!(self, Datarep::Memory(_))
    }

    /// The data of an access as it lies in the file: to be written (`sending`), or room for what will be read.
    ///
    /// # Errors
    /// `MPI_ERR_TYPE`, `MPI_ERR_COUNT`, `MPI_ERR_BUFFER`, `MPI_ERR_CONVERSION`, `MPI_ERR_NO_MEM`.
    pub(super) fn content(&self, data: &Data, sending: bool) -> Result<Content> {
        let buffer = collective::buffer(data)?;
        if self.is_memory() {
            return Ok(Content { datarep: self.clone(), data: *data, bytes: Bytes::Memory(Packed::of(&buffer, sending, !sending)?) });
        }
        let count = data.count as usize;
        let datatype = datatype::committed(data.datatype)?;
        let size = self.in_file(datatype.layout())?.size;
        let total = size.checked_mul(count).filter(|&bytes| bytes <= isize::MAX as usize);
        let total = total.ok_or_else(|| Error::new(MPI_ERR_COUNT, format!("count = {count}, with {size} bytes each in the file, is too large")))?;
        let mut content = Content { datarep: self.clone(), data: *data, bytes: Bytes::Converted(crate::coll::zeros(total)?) };
        if sending {
            content.send()?;
        }
        Ok(content)
    }
}

impl Registered {
    fn extent_of(&self, handle: Datatype) -> Result<usize> {
        let mut extent = 0isize;
        // SAFETY: the program's callback, called as the standard says.
        let code = unsafe { (self.extent)(handle, &mut extent, self.extra_state) };
        match (code, usize::try_from(extent)) {
            (MPI_SUCCESS, Ok(extent)) => Ok(extent),
            _ => Err(Error::new(MPI_ERR_CONVERSION, format!("dtype_file_extent_fn gave code {code} and {extent} bytes"))),
        }
    }

    fn conversion(&self, writing: bool) -> Conversion {
        if writing { self.write } else { self.read }
    }

    /// Whether the program has a function for this direction; without, data is as in memory.
    fn converts(&self, writing: bool) -> bool {
        !matches!(self.conversion(writing), Conversion::Small(None) | Conversion::Large(None))
    }

    /// Calls the program's function for `count` elements, if there is one.
    fn convert(&self, data: &Data, count: usize, file: *mut u8, writing: bool) -> Result<()> {
        let file = file.cast::<c_void>();
        let code = match self.conversion(writing) {
            Conversion::Small(None) | Conversion::Large(None) => return Ok(()),
            Conversion::Small(Some(function)) => {
                let small =
                    i32::try_from(count).map_err(|_| Error::new(MPI_ERR_COUNT, format!("count = {count} does not fit the conversion function's int")))?;
                // SAFETY: the program's callback, called as the standard says: `file` has the bytes that its extent function stated.
                unsafe { function(data.start, data.datatype, small, file, 0, self.extra_state) }
            }
            // SAFETY: as above.
            Conversion::Large(Some(function)) => unsafe { function(data.start, data.datatype, count as i64, file, 0, self.extra_state) },
        };
        if code == MPI_SUCCESS {
            return Ok(());
        }
        let name = if writing { "write_conversion_fn" } else { "read_conversion_fn" };
        Err(Error::new(MPI_ERR_CONVERSION, format!("{name} gave code {code}")))
    }
}

/// The data of one access as it lies in the file.
pub(super) struct Content {
    datarep: Datarep,
    data: Data,
    bytes: Bytes,
}

enum Bytes {
    Memory(Packed),
    Converted(Vec<u8>),
}

impl Content {
    pub(super) fn read(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Memory(packed) => packed.read(),
            Bytes::Converted(bytes) => bytes,
        }
    }

    pub(super) fn write(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::Memory(packed) => packed.write(),
            Bytes::Converted(bytes) => bytes,
        }
    }

    /// Hands the first `bytes` that were read to the program's memory; gives the bytes that they are there.
    ///
    /// # Errors
    /// `MPI_ERR_CONVERSION`.
    pub(super) fn received(mut self, bytes: usize) -> Result<u64> {
        let Bytes::Converted(file) = &mut self.bytes else {
            if let Bytes::Memory(Packed::Copy(copy, Some(buffer))) = &self.bytes {
                buffer.part(0, bytes).fill(&copy[..bytes]);
            }
            return Ok(bytes as u64);
        };
        let (data, datatype) = (self.data, datatype::committed(self.data.datatype)?);
        let (start, count) = (data.start.cast::<u8>(), data.count as usize);
        let Datarep::Registered(registered) = &self.datarep else {
            // SAFETY: the program handed its memory over for the access.
            return Ok(unsafe { datatype::unpack_external_part(datatype, start, count, &file[..bytes])? } as u64);
        };
        if registered.converts(false) {
            // The program's function takes whole datatypes.
            let whole = bytes / self.datarep.in_file(datatype.layout())?.size.max(1);
            if whole > 0 {
                registered.convert(&data, whole, file.as_mut_ptr(), false)?;
            }
            return Ok((whole * datatype.size()) as u64);
        }
        let there = bytes.min(datatype.bytes(count)?);
        collective::buffer(&data)?.part(0, there).fill(&file[..there]);
        Ok(there as u64)
    }

    /// Converts all elements from memory, to be written.
    fn send(&mut self) -> Result<()> {
        let (data, count) = (self.data, self.data.count as usize);
        let Bytes::Converted(file) = &mut self.bytes else { return Ok(()) };
        if count == 0 {
            return Ok(());
        }
        let representation = match &self.datarep {
            Datarep::Registered(registered) if registered.converts(true) => return registered.convert(&data, count, file.as_mut_ptr(), true),
            Datarep::External => Representation::External,
            _ => Representation::Native,
        };
        let packed = datatype::Packed { start: file.as_mut_ptr(), size: file.len() as i64, position: 0, representation };
        // SAFETY: the program handed its memory over for the access; `file` has its length.
        unsafe { packed.pack(data.start.cast(), count, datatype::committed(data.datatype)?).map(drop) }
    }
}
