//! Predefined reduction operations (MPI-5.0 §6.9.2) on the predefined datatypes of the ABI (MPI-5.0 §20.3).
#![forbid(unsafe_code)]

mod element;
mod float;

use crate::coll::Reducer;
use crate::error::{Error, Result};
use crate::vectors::{self, Loop};
use element::{Bits, Complex, Element, Located, Number, Ordered, Truth};
use float::{F16, F80, F128};
use std::marker::PhantomData;

const MPI_ERR_OP: i32 = 10;

/// Shorter buffers are not worth wider vectors, bytes.
const VECTOR_BYTES_MIN: usize = 128;

/// A predefined operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Predefined {
    Sum,
    Min,
    Max,
    Prod,
    Band,
    Bor,
    Bxor,
    Land,
    Lor,
    Lxor,
    Minloc,
    Maxloc,
    Replace,
    NoOp,
}

/// Operations by handle value: every call asks for one.
const BY_HANDLE: [Option<Predefined>; 0x40] = {
    let (mut all, mut at) = ([None; 0x40], 0);
    while at < Predefined::ALL.len() {
        all[Predefined::ALL[at].handle()] = Some(Predefined::ALL[at]);
        at += 1;
    }
    all
};

impl Predefined {
    pub const ALL: [Predefined; 14] = [
        Predefined::Sum,
        Predefined::Min,
        Predefined::Max,
        Predefined::Prod,
        Predefined::Band,
        Predefined::Bor,
        Predefined::Bxor,
        Predefined::Land,
        Predefined::Lor,
        Predefined::Lxor,
        Predefined::Minloc,
        Predefined::Maxloc,
        Predefined::Replace,
        Predefined::NoOp,
    ];

    /// The operation behind a handle value of the ABI; `None` for `MPI_OP_NULL` and user operations.
    pub fn of(handle: usize) -> Option<Predefined> {
        BY_HANDLE.get(handle).copied().flatten()
    }

    /// Handle value of the ABI.
    pub const fn handle(self) -> usize {
        match self {
            Predefined::Sum => 0x21,
            Predefined::Min => 0x22,
            Predefined::Max => 0x23,
            Predefined::Prod => 0x24,
            Predefined::Band => 0x28,
            Predefined::Bor => 0x29,
            Predefined::Bxor => 0x2a,
            Predefined::Land => 0x30,
            Predefined::Lor => 0x31,
            Predefined::Lxor => 0x32,
            Predefined::Minloc => 0x38,
            Predefined::Maxloc => 0x39,
            Predefined::Replace => 0x3c,
            Predefined::NoOp => 0x3d,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Predefined::Sum => "MPI_SUM",
            Predefined::Min => "MPI_MIN",
            Predefined::Max => "MPI_MAX",
            Predefined::Prod => "MPI_PROD",
            Predefined::Band => "MPI_BAND",
            Predefined::Bor => "MPI_BOR",
            Predefined::Bxor => "MPI_BXOR",
            Predefined::Land => "MPI_LAND",
            Predefined::Lor => "MPI_LOR",
            Predefined::Lxor => "MPI_LXOR",
            Predefined::Minloc => "MPI_MINLOC",
            Predefined::Maxloc => "MPI_MAXLOC",
            Predefined::Replace => "MPI_REPLACE",
            Predefined::NoOp => "MPI_NO_OP",
        }
    }

    /// Whether collectives refuse it: `MPI_REPLACE` and `MPI_NO_OP` are for one-sided accumulation (MPI-5.0 §12.3.4).
    pub fn one_sided_only(self) -> bool {
        matches!(self, Predefined::Replace | Predefined::NoOp)
    }

    /// `MPI_Op_commutative` (MPI-5.0 §6.9.7).
    pub fn commutative(self) -> bool {
        !self.one_sided_only()
    }
}

/// The groups of MPI-5.0 §6.9.2 that decide which operations a type allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    CInteger,
    FortranInteger,
    FloatingPoint,
    Logical,
    Complex,
    Byte,
    MultiLanguage,
    /// Value and index, for `MPI_MINLOC` and `MPI_MAXLOC` (MPI-5.0 §6.9.4).
    Pair,
    /// No reductions at all.
    Other,
}

macro_rules! basics {
    ($($variant:ident $class:ident $extent:literal $size:literal,)+) => {
        /// A kind of element: what the bytes of a predefined datatype mean.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Basic { $($variant,)+ }

        impl Basic {
            pub const ALL: &'static [Basic] = &[$(Basic::$variant),+];

            /// Bytes from one element to the next: the extent, C padding included.
            pub const fn bytes(self) -> usize {
                match self { $(Basic::$variant => $extent),+ }
            }

            /// `MPI_Type_size`, bytes: without the padding of pairs.
            pub const fn size_bytes(self) -> usize {
                match self { $(Basic::$variant => $size),+ }
            }

            pub const fn class(self) -> Class {
                match self { $(Basic::$variant => Class::$class),+ }
            }
        }
    };
}

basics! {
    Int8 CInteger 1 1,
    Uint8 CInteger 1 1,
    Int16 CInteger 2 2,
    Uint16 CInteger 2 2,
    Int32 CInteger 4 4,
    Uint32 CInteger 4 4,
    Int64 CInteger 8 8,
    Uint64 CInteger 8 8,
    Integer1 FortranInteger 1 1,
    Integer2 FortranInteger 2 2,
    Integer4 FortranInteger 4 4,
    Integer8 FortranInteger 8 8,
    Integer16 FortranInteger 16 16,
    // MPI_AINT, MPI_OFFSET, MPI_COUNT.
    Address MultiLanguage 8 8,
    Float16 FloatingPoint 2 2,
    Float32 FloatingPoint 4 4,
    Float64 FloatingPoint 8 8,
    // x87 double extended: 10 bytes, 6 of padding.
    Float80 FloatingPoint 16 16,
    Float128 FloatingPoint 16 16,
    ComplexFloat16 Complex 4 4,
    ComplexFloat32 Complex 8 8,
    ComplexFloat64 Complex 16 16,
    ComplexFloat80 Complex 32 32,
    ComplexFloat128 Complex 32 32,
    // C `_Bool`, C++ `bool`.
    Bool Logical 1 1,
    Logical1 Logical 1 1,
    Logical2 Logical 2 2,
    Logical4 Logical 4 4,
    Logical8 Logical 8 8,
    Logical16 Logical 16 16,
    Byte Byte 1 1,
    FloatInt Pair 8 8,
    DoubleInt Pair 16 12,
    LongInt Pair 16 12,
    IntInt Pair 8 8,
    ShortInt Pair 8 6,
    Float80Int Pair 32 20,
    Float128Int Pair 32 20,
    FloatFloat Pair 8 8,
    DoubleDouble Pair 16 16,
    // MPI_CHAR: printable characters in the standard, which defines no arithmetic on them. Here, as in MPICH and Open MPI, C's `char`.
    Char CInteger 1 1,
    // MPI_CHARACTER, MPI_PACKED.
    Character Other 1 1,
    WideCharacter Other 4 4,
}

impl Basic {
    /// The kind of C that has the same values: programs in several languages use either.
    pub const fn alike(self) -> Basic {
        match self {
            Basic::Integer1 | Basic::Char => Basic::Int8,
            Basic::Integer2 => Basic::Int16,
            Basic::Integer4 => Basic::Int32,
            Basic::Integer8 | Basic::Address => Basic::Int64,
            other => other,
        }
    }
}

/// C's `long double`: x87 on x86, IEEE quadruple elsewhere.
const X87: bool = cfg!(any(target_arch = "x86_64", target_arch = "x86"));
const LONG_DOUBLE: Basic = if X87 { Basic::Float80 } else { Basic::Float128 };
const LONG_DOUBLE_COMPLEX: Basic = if X87 { Basic::ComplexFloat80 } else { Basic::ComplexFloat128 };
const LONG_DOUBLE_INT: Basic = if X87 { Basic::Float80Int } else { Basic::Float128Int };

/// The element kind of a predefined datatype, by handle value of the ABI; `None` for `MPI_DATATYPE_NULL` and all others.
pub fn basic_of(handle: usize) -> Option<Basic> {
    Some(match handle {
        0x201..=0x203 => Basic::Address,
        0x207 => Basic::Character,
        0x208 => Basic::Int16,
        0x209 => Basic::Int32,
        0x20a | 0x20b => Basic::Int64,
        0x20c => Basic::Uint16,
        0x20d => Basic::Uint32,
        0x20e | 0x20f => Basic::Uint64,
        0x210 => Basic::Float32,
        0x212 | 0x213 => Basic::ComplexFloat32,
        0x214 => Basic::Float64,
        0x216 | 0x217 => Basic::ComplexFloat64,
        0x218 => Basic::Logical4,
        0x219 => Basic::Integer4,
        0x21a => Basic::Float32,
        0x21b => Basic::ComplexFloat32,
        0x21c => Basic::Float64,
        0x21d => Basic::ComplexFloat64,
        0x21e => Basic::Character,
        0x220 => LONG_DOUBLE,
        0x224 | 0x225 => LONG_DOUBLE_COMPLEX,
        0x228 => Basic::FloatInt,
        0x229 => Basic::DoubleInt,
        0x22a => Basic::LongInt,
        0x22b => Basic::IntInt,
        0x22c => Basic::ShortInt,
        0x22d => LONG_DOUBLE_INT,
        0x230 => Basic::FloatFloat,
        0x231 => Basic::DoubleDouble,
        0x232 => Basic::IntInt,
        0x238 | 0x239 => Basic::Bool,
        0x23c => Basic::WideCharacter,
        0x240 => Basic::Int8,
        0x241 => Basic::Uint8,
        0x243 => Basic::Char,
        0x244 => Basic::Int8,
        0x245 => Basic::Uint8,
        0x247 => Basic::Byte,
        0x248 => Basic::Int16,
        0x249 => Basic::Uint16,
        0x250 => Basic::Int32,
        0x251 => Basic::Uint32,
        0x258 => Basic::Int64,
        0x259 => Basic::Uint64,
        0x2c0 => Basic::Logical1,
        0x2c1 => Basic::Integer1,
        0x2c8 => Basic::Logical2,
        0x2c9 => Basic::Integer2,
        0x2ca => Basic::Float16,
        0x2d0 => Basic::Logical4,
        0x2d1 => Basic::Integer4,
        0x2d2 => Basic::Float32,
        0x2d3 => Basic::ComplexFloat16,
        0x2d8 => Basic::Logical8,
        0x2d9 => Basic::Integer8,
        0x2da => Basic::Float64,
        0x2db => Basic::ComplexFloat32,
        0x2e0 => Basic::Logical16,
        0x2e1 => Basic::Integer16,
        0x2e2 => Basic::Float128,
        0x2e3 => Basic::ComplexFloat64,
        0x2eb => Basic::ComplexFloat128,
        _ => return None,
    })
}

/// Whether the standard defines `op` on `kind` (MPI-5.0 §6.9.2, §6.9.4; §12.3.4 for `MPI_REPLACE` and `MPI_NO_OP`, which
/// take every kind), or programs rely on it: `MPI_CHAR` counts as a C integer.
#[inline]
pub fn allowed(op: Predefined, kind: Basic) -> bool {
    ALLOWED[kind as usize] >> op as u32 & 1 != 0
}

/// For each kind of element a bit for each operation.
static ALLOWED: [u16; Basic::ALL.len()] = {
    let mut all = [0; Basic::ALL.len()];
    let mut kind = 0;
    while kind < all.len() {
        let mut op = 0;
        while op < Predefined::ALL.len() {
            if is_defined(Predefined::ALL[op], Basic::ALL[kind]) {
                all[Basic::ALL[kind] as usize] |= 1 << Predefined::ALL[op] as u32;
            }
            op += 1;
        }
        kind += 1;
    }
    all
};

const fn is_defined(op: Predefined, kind: Basic) -> bool {
    use Class::*;
    let class = kind.class();
    match op {
        Predefined::Max | Predefined::Min => {
            matches!(class, CInteger | FortranInteger | FloatingPoint | MultiLanguage)
        }
        Predefined::Sum | Predefined::Prod => {
            matches!(class, CInteger | FortranInteger | FloatingPoint | Complex | MultiLanguage)
        }
        Predefined::Land | Predefined::Lor | Predefined::Lxor => matches!(class, CInteger | Logical),
        Predefined::Band | Predefined::Bor | Predefined::Bxor => {
            matches!(class, CInteger | FortranInteger | Byte | MultiLanguage)
        }
        Predefined::Minloc | Predefined::Maxloc => matches!(class, Pair),
        Predefined::Replace | Predefined::NoOp => true,
    }
}

macro_rules! by_kind {
    ($kind:expr, $type:ident => $run:expr, $($($variant:ident)|+ = $element:ty,)+) => {
        match $kind {
            $($(Basic::$variant)|+ => {
                type $type = $element;
                $run
            })+
            _ => unreachable!("`allowed` was asked before"),
        }
    };
}

macro_rules! numbers {
    ($kind:expr, $type:ident => $run:expr) => {
        by_kind!($kind, $type => $run,
            Int8 | Integer1 = i8, Uint8 = u8, Char = std::ffi::c_char, Int16 | Integer2 = i16, Uint16 = u16, Int32 | Integer4 = i32,
            Uint32 = u32, Int64 | Integer8 | Address = i64, Uint64 = u64, Integer16 = i128, Float16 = F16,
            Float32 = f32, Float64 = f64, Float80 = F80, Float128 = F128, ComplexFloat16 = Complex<F16>,
            ComplexFloat32 = Complex<f32>, ComplexFloat64 = Complex<f64>, ComplexFloat80 = Complex<F80>,
            ComplexFloat128 = Complex<F128>,
        )
    };
}

macro_rules! ordered {
    ($kind:expr, $type:ident => $run:expr) => {
        by_kind!($kind, $type => $run,
            Int8 | Integer1 = i8, Uint8 = u8, Char = std::ffi::c_char, Int16 | Integer2 = i16, Uint16 = u16, Int32 | Integer4 = i32,
            Uint32 = u32, Int64 | Integer8 | Address = i64, Uint64 = u64, Integer16 = i128, Float16 = F16,
            Float32 = f32, Float64 = f64, Float80 = F80, Float128 = F128,
        )
    };
}

macro_rules! bits {
    ($kind:expr, $type:ident => $run:expr) => {
        by_kind!($kind, $type => $run,
            Int8 | Uint8 | Char | Integer1 | Byte = u8, Int16 | Uint16 | Integer2 = u16, Int32 | Uint32 | Integer4 = u32,
            Int64 | Uint64 | Integer8 | Address = u64, Integer16 = u128,
        )
    };
}

macro_rules! truths {
    ($kind:expr, $type:ident => $run:expr) => {
        by_kind!($kind, $type => $run,
            Int8 | Uint8 | Char | Bool | Logical1 = u8, Int16 | Uint16 | Logical2 = u16, Int32 | Uint32 | Logical4 = u32,
            Int64 | Uint64 | Logical8 = u64, Logical16 = u128,
        )
    };
}

macro_rules! pairs {
    ($kind:expr, $type:ident => $run:expr) => {
        by_kind!($kind, $type => $run,
            FloatInt = Located<f32, i32, 4, 8>, DoubleInt = Located<f64, i32, 8, 16>,
            LongInt = Located<i64, i32, 8, 16>, IntInt = Located<i32, i32, 4, 8>, ShortInt = Located<i16, i32, 4, 8>,
            Float80Int = Located<F80, i32, 16, 32>, Float128Int = Located<F128, i32, 16, 32>,
            FloatFloat = Located<f32, f32, 4, 8>, DoubleDouble = Located<f64, f64, 8, 16>,
        )
    };
}

macro_rules! packed_pairs {
    ($kind:expr, $type:ident => $run:expr) => {
        by_kind!($kind, $type => $run,
            FloatInt = Located<f32, i32, 4, 8>, DoubleInt = Located<f64, i32, 8, 12>,
            LongInt = Located<i64, i32, 8, 12>, IntInt = Located<i32, i32, 4, 8>, ShortInt = Located<i16, i32, 2, 6>,
            Float80Int = Located<F80, i32, 16, 20>, Float128Int = Located<F128, i32, 16, 20>,
            FloatFloat = Located<f32, f32, 4, 8>, DoubleDouble = Located<f64, f64, 8, 16>,
        )
    };
}

/// `inout[i] = input[i] op inout[i]` for each element, `kind.bytes()` from one to the next. The buffers need no
/// alignment; integers wrap; NaN compares false, so that it is kept where it stands in `inout`; logical results are 0 and 1.
///
/// Errors: `MPI_ERR_OP` where the operation is not [`allowed`]. Panics unless both lengths are equal; they are a multiple of
/// `kind.bytes()`.
pub fn apply(op: Predefined, kind: Basic, input: &[u8], inout: &mut [u8]) -> Result<()> {
    check(op, kind, kind.bytes(), input, inout)?;
    match op {
        Predefined::Sum => numbers!(kind, T => each(input, inout, T::plus)),
        Predefined::Prod => numbers!(kind, T => each(input, inout, T::times)),
        Predefined::Min => ordered!(kind, T => each(input, inout, |a: T, b| if a.less(b) { a } else { b })),
        Predefined::Max => ordered!(kind, T => each(input, inout, |a: T, b| if b.less(a) { a } else { b })),
        Predefined::Band => bits!(kind, T => each(input, inout, T::and)),
        Predefined::Bor => bits!(kind, T => each(input, inout, T::or)),
        Predefined::Bxor => bits!(kind, T => each(input, inout, T::xor)),
        Predefined::Land => truths!(kind, T => each(input, inout, |a: T, b| T::truth(a.is_true() & b.is_true()))),
        Predefined::Lor => truths!(kind, T => each(input, inout, |a: T, b| T::truth(a.is_true() | b.is_true()))),
        Predefined::Lxor => truths!(kind, T => each(input, inout, |a: T, b| T::truth(a.is_true() ^ b.is_true()))),
        Predefined::Minloc => pairs!(kind, T => each(input, inout, T::lower)),
        Predefined::Maxloc => pairs!(kind, T => each(input, inout, T::higher)),
        Predefined::Replace => inout.copy_from_slice(input),
        Predefined::NoOp => {}
    }
    Ok(())
}

/// As [`apply`] where elements lie without padding, as `MPI_Pack` leaves them: `kind.size_bytes()` from one to the next.
pub fn apply_packed(op: Predefined, kind: Basic, input: &[u8], inout: &mut [u8]) -> Result<()> {
    match op {
        Predefined::Minloc | Predefined::Maxloc => {
            check(op, kind, kind.size_bytes(), input, inout)?;
            if op == Predefined::Minloc {
                packed_pairs!(kind, T => each(input, inout, T::lower));
            } else {
                packed_pairs!(kind, T => each(input, inout, T::higher));
            }
            Ok(())
        }
        Predefined::Replace if kind.class() == Class::Pair => {
            inout.copy_from_slice(input);
            Ok(())
        }
        Predefined::NoOp if kind.class() == Class::Pair => Ok(()),
        // Nothing but pairs has padding between its elements.
        _ => apply(op, kind, input, inout),
    }
}

/// A predefined operation on one kind of element, for the collective algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reduction {
    pub op: Predefined,
    pub kind: Basic,
    /// Whether pairs lie without padding.
    pub packed: bool,
}

impl Reducer for Reduction {
    fn element_bytes(&self) -> usize {
        if self.packed { self.kind.size_bytes() } else { self.kind.bytes() }
    }

    fn commutative(&self) -> bool {
        self.op.commutative()
    }

    fn reduce(&self, input: &[u8], inout: &mut [u8]) -> Result<()> {
        if self.packed { apply_packed(self.op, self.kind, input, inout) } else { apply(self.op, self.kind, input, inout) }
    }
}

fn check(op: Predefined, kind: Basic, element_bytes: usize, input: &[u8], inout: &[u8]) -> Result<()> {
    assert_eq!(input.len(), inout.len(), "operands of one length");
    debug_assert!(input.len().is_multiple_of(element_bytes), "{} bytes are no whole {kind:?} elements", input.len());
    if allowed(op, kind) { Ok(()) } else { Err(refused(op, kind)) }
}

#[cold]
fn refused(op: Predefined, kind: Basic) -> Box<Error> {
    Error::new(MPI_ERR_OP, format!("{} is not defined on a {:?} element ({kind:?})", op.name(), kind.class()))
}

/// A loop over all elements of two buffers.
struct Each<'a, T, F> {
    input: &'a [u8],
    inout: &'a mut [u8],
    combine: F,
    of: PhantomData<T>,
}

impl<T: Element, F: Fn(T, T) -> T> Loop for Each<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        T::each(self.input, self.inout, self.combine);
    }
}

fn each<T: Element>(input: &[u8], inout: &mut [u8], combine: impl Fn(T, T) -> T) {
    let all = Each { input, inout, combine, of: PhantomData };
    // Few elements are done before a choice is made.
    if T::VECTORS && all.inout.len() >= VECTOR_BYTES_MIN { vectors::run(all) } else { all.run() }
}

#[cfg(test)]
mod tests;
