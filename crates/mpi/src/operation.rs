//! Reduction operations (MPI-5.0 §6.9): predefined ones on predefined elements, and the program's own.

use crate::coll::Reducer;
use crate::consts::*;
use crate::datatype::Type;
use crate::error::{Error, Result};
use crate::handle;
use crate::op::{self, Basic, Predefined};
use crate::table::Table;
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
    OPERATIONS.insert(user.into()).map(handle::Op).map_err(|_| Error::new(MPI_ERR_OTHER, "too many operations exist"))
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

/// An operation on elements of one datatype.
#[derive(Clone)]
pub enum Operation {
    Predefined(Predefined, Basic),
    User {
        user: User,
        datatype: handle::Datatype,
        /// Bytes from one element to the next in the buffers that the function is given.
        extent: usize,
        /// What lies before the address that the function is given, in bytes of a buffer.
        before: usize,
    },
}

impl Operation {
    /// # Errors
    /// `MPI_ERR_OP` when the operation is unknown or not defined on the datatype.
    pub fn new(op: handle::Op, datatype: handle::Datatype, t: &Type) -> Result<Operation> {
        if let Some(predefined) = Predefined::of(op.0) {
            if predefined.one_sided_only() {
                return Err(Error::new(MPI_ERR_OP, format!("{} is for one-sided communication only", predefined.name())));
            }
            return match t.basic() {
                Some(basic) if op::allowed(predefined, basic) => Ok(Operation::Predefined(predefined, basic)),
                _ => Err(Error::new(MPI_ERR_OP, format!("{} is not defined on the datatype {:#x}", predefined.name(), datatype.0))),
            };
        }
        let user = *OPERATIONS.share(op.0).ok_or_else(|| unknown(op))?;
        Ok(Operation::User { user, datatype, extent: t.extent().unsigned_abs().max(1), before: (-t.true_lb()).max(0) as usize })
    }

    /// Whether elements travel as they lie in memory, gaps and all, since the function must see them so.
    pub fn keeps_layout(&self) -> bool {
        matches!(self, Operation::User { .. })
    }
}

impl Reducer for Operation {
    fn element_bytes(&self) -> usize {
        match self {
            Operation::Predefined(_, basic) => basic.size_bytes(),
            Operation::User { extent, .. } => *extent,
        }
    }

    fn commutative(&self) -> bool {
        match self {
            Operation::Predefined(op, _) => op.commutative(),
            Operation::User { user, .. } => user.commutative,
        }
    }

    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()> {
        match self {
            Operation::Predefined(op, basic) => op::apply_packed(*op, *basic, input, inout),
            Operation::User { user, datatype, extent, before } => {
                let count = inout.len() / extent;
                let mut datatype = *datatype;
                // SAFETY: both buffers hold `count` elements of the datatype; the function is the program's (MPI-5.0 §6.9.5).
                unsafe {
                    let input = input.as_ptr().add(*before).cast_mut().cast::<c_void>();
                    let inout = inout.as_mut_ptr().add(*before).cast::<c_void>();
                    match user.function {
                        Function::Small(function) => {
                            let mut length = c_int::try_from(count).map_err(|_| Error::new(MPI_ERR_COUNT, format!("{count} elements are too many for an operation made by MPI_Op_create")))?;
                            function(input, inout, &mut length, &mut datatype);
                        }
                        Function::Large(function) => {
                            let mut length = count as i64;
                            function(input, inout, &mut length, &mut datatype);
                        }
                    }
                }
                Ok(())
            }
        }
    }
}
