//! Predefined datatypes (MPI-5.0 §3.2.2, §5.1, §20.3), those with Fortran parameters (§19.1.9) and pairs of value and index (§6.9.4).
#![forbid(unsafe_code)]

use super::layout::{Block, Layout, SharedLayout};
use super::recipe::Form;
use super::{Type, insert, lookup};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::Datatype;
use crate::op::{Basic, basic_of};
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

/// Handles of predefined datatypes start here, at `MPI_DATATYPE_NULL`.
pub const FIRST: usize = MPI_DATATYPE_NULL.0;
pub const PLACES: usize = 256;

/// By handle, less [`FIRST`].
pub static TYPES: LazyLock<Vec<Option<Type>>> = LazyLock::new(|| (FIRST..FIRST + PLACES).map(make).collect());

/// A value kind, its index kind and the offset of the index, for the kinds that are pairs.
fn pair_of(kind: Basic) -> Option<(Basic, Basic, isize)> {
    use Basic::*;
    Some(match kind {
        FloatInt => (Float32, Int32, 4),
        DoubleInt => (Float64, Int32, 8),
        LongInt => (Int64, Int32, 8),
        IntInt => (Int32, Int32, 4),
        ShortInt => (Int16, Int32, 4),
        Float80Int => (Float80, Int32, 16),
        Float128Int => (Float128, Int32, 16),
        FloatFloat => (Float32, Float32, 4),
        DoubleDouble => (Float64, Float64, 8),
        _ => return None,
    })
}

/// Alignment in C, bytes: of a complex number that of its parts.
fn alignment(kind: Basic) -> usize {
    use Basic::*;
    match kind {
        ComplexFloat16 | ComplexFloat32 | ComplexFloat64 | ComplexFloat80 | ComplexFloat128 => kind.bytes() / 2,
        _ => kind.bytes(),
    }
}

/// The handles of the parts of a pair.
fn parts_of(handle: Datatype) -> Option<(Datatype, Datatype)> {
    Some(match handle {
        MPI_FLOAT_INT => (MPI_FLOAT, MPI_INT),
        MPI_DOUBLE_INT => (MPI_DOUBLE, MPI_INT),
        MPI_LONG_INT => (MPI_LONG, MPI_INT),
        MPI_2INT => (MPI_INT, MPI_INT),
        MPI_SHORT_INT => (MPI_SHORT, MPI_INT),
        MPI_LONG_DOUBLE_INT => (MPI_LONG_DOUBLE, MPI_INT),
        MPI_2REAL => (MPI_REAL, MPI_REAL),
        MPI_2DOUBLE_PRECISION => (MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION),
        MPI_2INTEGER => (MPI_INTEGER, MPI_INTEGER),
        _ => return None,
    })
}

fn make(handle: usize) -> Option<Type> {
    let kind = basic_of(handle)?;
    let handle = Datatype(handle);
    let layout = match (pair_of(kind), parts_of(handle)) {
        (Some((value, index, offset)), Some((value_handle, index_handle))) => {
            let part =
                |displacement, handle, kind| (Block { displacement, length: 1 }, SharedLayout::predefined(Layout::element(handle, kind, alignment(kind))));
            let parts = vec![part(0, value_handle, value), part(offset, index_handle, index)];
            let mut layout = Layout::structure(parts).expect("a pair is small");
            layout.basic = Some(kind);
            layout.named = Some(handle);
            layout
        }
        _ => Layout::element(handle, kind, alignment(kind)),
    };
    Some(Type::new(SharedLayout::predefined(layout), true))
}

/// The name of a predefined datatype: of two for one handle that which is no synonym (MPI-5.0 §3.2.2, table 3.2).
pub fn name(handle: Datatype) -> Option<&'static str> {
    match handle {
        MPI_LONG_LONG => return Some("MPI_LONG_LONG_INT"),
        MPI_C_FLOAT_COMPLEX => return Some("MPI_C_COMPLEX"),
        _ => {}
    }
    let place = DATATYPE_NAMES.binary_search_by_key(&handle, |(handle, _)| *handle).ok()?;
    Some(DATATYPE_NAMES[place].1)
}

/// What a datatype with Fortran parameters was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Parameters {
    Real(i32, i32),
    Complex(i32, i32),
    Integer(i32),
}

/// Every handle given out: the same parameters give the same handle (MPI-5.0 §19.1.9). At most as many as precisions and
/// ranges that a compiler could mean.
static WITH_PARAMETERS: Mutex<BTreeMap<Parameters, Datatype>> = Mutex::new(BTreeMap::new());

/// `MPI_Type_create_f90_real`, `_complex` and `_integer`. The datatype is committed and cannot be freed.
///
/// # Errors
/// `MPI_ERR_ARG` where no kind has the precision and range.
pub fn f90(parameters: Parameters) -> Result<Datatype> {
    let mut made = WITH_PARAMETERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(handle) = made.get(&parameters) {
        return Ok(*handle);
    }
    let (combiner, base) = match parameters {
        Parameters::Real(p, r) => (MPI_COMBINER_F90_REAL, real(p, r, [MPI_REAL4, MPI_REAL8, MPI_REAL16])),
        Parameters::Complex(p, r) => (MPI_COMBINER_F90_COMPLEX, real(p, r, [MPI_COMPLEX8, MPI_COMPLEX16, MPI_COMPLEX32])),
        Parameters::Integer(r) => (MPI_COMBINER_F90_INTEGER, integer(r)),
    };
    let base = base.ok_or_else(|| Error::new(MPI_ERR_ARG, format!("no Fortran kind has {parameters:?}")))?;
    let mut layout = Layout::same(lookup(base)?.layout())?;
    layout.named = None;
    let layout = SharedLayout::made_by(layout, combiner, Form::Small, |recipe| {
        match parameters {
            Parameters::Real(p, r) | Parameters::Complex(p, r) => recipe.integer(p).integer(r),
            Parameters::Integer(r) => recipe.integer(r),
        };
    });
    let handle = insert(layout, true)?;
    made.insert(parameters, handle);
    Ok(handle)
}

/// Decimal digits and decimal exponents of IEEE single, double and quadruple precision; `MPI_UNDEFINED` asks for nothing.
fn real(digits: i32, range: i32, kinds: [Datatype; 3]) -> Option<Datatype> {
    const LIMITS: [(i32, i32); 3] = [(6, 37), (15, 307), (33, 4931)];
    let fits = |wanted: i32, limit: i32| wanted == MPI_UNDEFINED || (0..=limit).contains(&wanted);
    let nothing = digits == MPI_UNDEFINED && range == MPI_UNDEFINED;
    let place = LIMITS.iter().position(|&(p, r)| fits(digits, p) && fits(range, r))?;
    (!nothing).then_some(kinds[place])
}

fn integer(range: i32) -> Option<Datatype> {
    Some(match range {
        0..=2 => MPI_INTEGER1,
        3..=4 => MPI_INTEGER2,
        5..=9 => MPI_INTEGER4,
        10..=18 => MPI_INTEGER8,
        19..=38 => MPI_INTEGER16,
        _ => return None,
    })
}

/// `MPI_Type_match_size` (MPI-5.0 §19.1.9): the Fortran type of a class with `size` bytes.
///
/// # Errors
/// `MPI_ERR_ARG` where there is none.
pub fn match_size(class: i32, size: i32) -> Result<Datatype> {
    Ok(match (class, size) {
        (MPI_TYPECLASS_INTEGER, 1) => MPI_INTEGER1,
        (MPI_TYPECLASS_INTEGER, 2) => MPI_INTEGER2,
        (MPI_TYPECLASS_INTEGER, 4) => MPI_INTEGER4,
        (MPI_TYPECLASS_INTEGER, 8) => MPI_INTEGER8,
        (MPI_TYPECLASS_INTEGER, 16) => MPI_INTEGER16,
        (MPI_TYPECLASS_REAL, 2) => MPI_REAL2,
        (MPI_TYPECLASS_REAL, 4) => MPI_REAL4,
        (MPI_TYPECLASS_REAL, 8) => MPI_REAL8,
        (MPI_TYPECLASS_REAL, 16) => MPI_REAL16,
        (MPI_TYPECLASS_COMPLEX, 4) => MPI_COMPLEX4,
        (MPI_TYPECLASS_COMPLEX, 8) => MPI_COMPLEX8,
        (MPI_TYPECLASS_COMPLEX, 16) => MPI_COMPLEX16,
        (MPI_TYPECLASS_COMPLEX, 32) => MPI_COMPLEX32,
        (MPIX_TYPECLASS_LOGICAL, 1) => MPI_LOGICAL1,
        (MPIX_TYPECLASS_LOGICAL, 2) => MPI_LOGICAL2,
        (MPIX_TYPECLASS_LOGICAL, 4) => MPI_LOGICAL4,
        (MPIX_TYPECLASS_LOGICAL, 8) => MPI_LOGICAL8,
        (MPIX_TYPECLASS_LOGICAL, 16) => MPI_LOGICAL16,
        (MPI_TYPECLASS_INTEGER | MPI_TYPECLASS_REAL | MPI_TYPECLASS_COMPLEX | MPIX_TYPECLASS_LOGICAL, _) => {
            return Err(Error::new(MPI_ERR_ARG, format!("size is {size}, which no type of the class has")));
        }
        _ => return Err(Error::new(MPI_ERR_ARG, format!("typeclass is {class}, which is no type class"))),
    })
}

/// `MPI_Type_get_value_index` (MPI-5.0 §6.9.4): the predefined pair, or `MPI_DATATYPE_NULL` where there is none.
///
/// # Errors
/// `MPI_ERR_TYPE` where an argument is not a predefined datatype.
pub fn value_index(value: Datatype, index: Datatype) -> Result<Datatype> {
    for (name, handle) in [("value_type", value), ("index_type", index)] {
        if !lookup(handle)?.predefined() {
            return Err(Error::new(MPI_ERR_TYPE, format!("{name} is {:#x}, not a predefined datatype", handle.0)));
        }
    }
    let pairs = TYPES.iter().flatten().filter_map(|pair| pair.layout().named);
    let found = pairs.filter(|&pair| parts_of(pair) == Some((value, index)));
    Ok(found.last().unwrap_or(MPI_DATATYPE_NULL))
}
