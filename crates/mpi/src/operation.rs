//! Reduction operations (MPI-5.0 §6.9): predefined ones on predefined elements, and the program's own.

use crate::coll::Reducer;
use crate::consts::*;
use crate::datatype::{Layout, Type};
use crate::error::{Error, Result};
use crate::handle;
use crate::op::{self, Basic, Predefined};
use crate::table::Table;
use engine::order::before_callback;
use std::ffi::{c_int, c_void};

/// The function of a user's operation; the large form takes 64-bit counts.
#[derive(Clone, Copy)]
pub enum Function {
    Small(handle::UserFunction),
    Large(handle::UserFunctionC),
}

/// A user's operation.
#[derive(Clone, Copy)]
pub struct User {
    pub function: Function,
    pub commutative: bool,
}

static OPERATIONS: Table<User> = Table::new();

/// `MPI_Op_create`.
pub fn create(user: User) -> Result<handle::Op> {
    OPERATIONS.insert(user).map(handle::Op).ok_or_else(|| Error::new(MPI_ERR_OTHER, "too many operations exist"))
}

/// `MPI_Op_free`.
pub fn free(handle: handle::Op) -> Result<()> {
    if Predefined::of(handle.0).is_some() {
        return Err(Error::new(MPI_ERR_OP, "a predefined operation cannot be freed"));
    }
    OPERATIONS.remove(handle.0).map(|_| ()).ok_or_else(|| unknown(handle))
}

/// `MPI_Op_commutative`.
pub fn commutative(handle: handle::Op) -> Result<bool> {
    if let Some(predefined) = Predefined::of(handle.0) {
        return Ok(predefined.commutative());
    }
    OPERATIONS.share(handle.0).map(|user| user.commutative).ok_or_else(|| unknown(handle))
}

#[cold]
fn unknown(handle: handle::Op) -> Box<Error> {
    match handle {
        MPI_OP_NULL => Error::new(MPI_ERR_OP, "the operation is MPI_OP_NULL"),
        _ => Error::new(MPI_ERR_OP, format!("{:#x} is no operation", handle.0)),
    }
}

/// A datatype as messages call it.
#[cold]
fn named(handle: handle::Datatype, t: &Type) -> String {
    let name = String::from_utf8_lossy(&t.name()).into_owned();
    if name.is_empty() { format!("the derived datatype {:#x}", handle.0) } else { name }
}

/// An operation on elements of one datatype.
#[derive(Clone)]
pub enum Operation {
    Predefined(Predefined, Basic),
    User {
        user: User,
        datatype: handle::Datatype,
        /// Bytes from one element to the next in the buffers that are reduced.
        stride: usize,
        /// Where an element's data begins, seen from the address that the function is given.
        before: isize,
        /// Elements reach past their extent: the function is given one at a time.
        singly: bool,
    },
}

impl Operation {
    /// What a [predefined](Operation::Predefined) one is, where it is defined on the datatype.
    #[inline]
    pub fn predefined(op: handle::Op, t: &Type) -> Option<(Predefined, Basic)> {
        let (predefined, basic) = (Predefined::of(op.0)?, t.basic()?);
        (!predefined.one_sided_only() && op::allowed(predefined, basic)).then_some((predefined, basic))
    }

    /// # Errors
    /// `MPI_ERR_OP` when the operation is unknown or not defined on the datatype.
    #[inline]
    pub fn new(op: handle::Op, datatype: handle::Datatype, t: &Type) -> Result<Operation> {
        if let Some(predefined) = Predefined::of(op.0) {
            if predefined.one_sided_only() {
                return Err(Error::new(MPI_ERR_OP, format!("{} is for one-sided communication only", predefined.name())));
            }
            return match t.basic() {
                Some(basic) if op::allowed(predefined, basic) => Ok(Operation::Predefined(predefined, basic)),
                _ => Err(Error::new(MPI_ERR_OP, format!("{} is not defined on {}", predefined.name(), named(datatype, t)))),
            };
        }
        let user = *OPERATIONS.share(op.0).ok_or_else(|| unknown(op))?;
        let (singly, before) = (!within_extent(t.layout()), Operation::before(t.layout()));
        let stride = if singly { t.true_extent() } else { t.extent() };
        Ok(Operation::User { user, datatype, stride: stride.unsigned_abs().max(1), before, singly })
    }

    /// What the elements of a predefined operation are, the same number for types that are alike in C and Fortran; `None` for the
    /// program's own operations, which know themselves what they take.
    #[inline]
    pub fn element(&self) -> Option<u8> {
        match self {
            Operation::Predefined(_, basic) => Some(basic.alike() as u8),
            Operation::User { .. } => None,
        }
    }

    /// Bytes that a buffer of spread elements leaves out at the start of each.
    pub fn before(layout: &Layout) -> isize {
        if within_extent(layout) { 0 } else { layout.true_lb }
    }

    /// Whether elements travel as they lie in memory, gaps and all, since the function must see them so.
    #[inline]
    pub fn keeps_layout(&self) -> bool {
        matches!(self, Operation::User { .. })
    }
}

/// Whether elements may lie one after the other at their extent without touching each other.
fn within_extent(layout: &Layout) -> bool {
    layout.true_lb >= 0 && layout.true_ub <= layout.extent()
}

impl Reducer for Operation {
    #[inline]
    fn element_bytes(&self) -> usize {
        match self {
            Operation::Predefined(_, basic) => basic.size_bytes(),
            Operation::User { stride, .. } => *stride,
        }
    }

    #[inline]
    fn commutative(&self) -> bool {
        match self {
            Operation::Predefined(op, _) => op.commutative(),
            Operation::User { user, .. } => user.commutative,
        }
    }

    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()> {
        match self {
            Operation::Predefined(op, basic) => op::apply_packed(*op, *basic, input, inout),
            Operation::User { user, datatype, stride, before, singly } => {
                let at_once = if *singly { *stride } else { inout.len().max(1) };
                for (input, inout) in input.chunks(at_once).zip(inout.chunks_mut(at_once)) {
                    let input = input.as_ptr().wrapping_offset(-before).cast_mut().cast();
                    let out = inout.as_mut_ptr().wrapping_offset(-before).cast();
                    // SAFETY: both buffers hold that many elements of the datatype.
                    unsafe { user.call(input, out, inout.len() / stride, *datatype)? };
                }
                Ok(())
            }
        }
    }
}

impl User {
    /// # Safety
    /// Both addresses have `count` elements of the datatype; the function is the program's (MPI-5.0 §6.9.5).
    unsafe fn call(&self, input: *mut c_void, inout: *mut c_void, count: usize, mut datatype: handle::Datatype) -> Result<()> {
        before_callback();
        match self.function {
            Function::Small(function) => {
                let too_many = || Error::new(MPI_ERR_COUNT, format!("{count} elements are too many for an operation made by MPI_Op_create"));
                let mut length = c_int::try_from(count).map_err(|_| too_many())?;
                // SAFETY: the caller's promise.
                unsafe { function(input, inout, &mut length, &mut datatype) };
            }
            Function::Large(function) => {
                let mut length = count as i64;
                // SAFETY: the caller's promise.
                unsafe { function(input, inout, &mut length, &mut datatype) };
            }
        }
        Ok(())
    }
}
