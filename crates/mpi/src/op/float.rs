//! Floating-point formats without a Rust type: IEEE half, x87 double extended, IEEE quadruple.

use super::element::{Element, Number, Ordered, Real};
use rustc_apfloat::Float;
use rustc_apfloat::ieee::{Quad, X87DoubleExtended};

/// IEEE binary16. Its sums and products are those of binary32 rounded once more, which is exact rounding:
/// 24 bits are at least twice 11 and two more (Figueroa 1995).
#[derive(Clone, Copy)]
pub(super) struct F16(u16);

impl F16 {
    // Every case is computed and one chosen, for then the loops are vectorized.
    #[inline(always)]
    fn wide(self) -> f32 {
        let sign = (self.0 as u32 & 0x8000) << 16;
        let rest = self.0 as u32 & 0x7fff;
        let normal = (rest << 13) + ((127 - 15) << 23);
        // A multiple of 2^-24.
        let subnormal = (rest as i32 as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
        let special = 0x7f80_0000 | rest << 13;
        let finite = if rest < 0x400 { subnormal } else { normal };
        f32::from_bits(sign | if rest < 0x7c00 { finite } else { special })
    }

    /// To nearest, ties to even.
    #[inline(always)]
    fn narrow(wide: f32) -> F16 {
        let bits = wide.to_bits();
        let sign = bits >> 16 & 0x8000;
        let rest = bits & 0x7fff_ffff;
        let odd = rest >> 13 & 1;
        let normal = rest.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
        // Adding 1/2 leaves the last bit at 2^-24, the unit of subnormal halves, and rounds there.
        let subnormal = (f32::from_bits(rest) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let special = if rest > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let finite = if rest < (127 - 14) << 23 { subnormal } else { normal };
        F16((sign | if rest < (127 + 16) << 23 { finite } else { special }) as u16)
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    const VECTORS: bool = true;
    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        F16(u16::load(bytes))
    }
    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        self.0.store(bytes);
    }
}

impl Number for F16 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        F16::narrow(self.wide() + other.wide())
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        F16::narrow(self.wide() * other.wide())
    }
}

impl Real for F16 {
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        F16::narrow(self.wide() - other.wide())
    }
}

impl Ordered for F16 {
    #[inline(always)]
    fn less(self, other: Self) -> bool {
        self.wide() < other.wide()
    }
}

/// C's `long double` on x86: 10 bytes and 6 of padding, which are written as zero.
#[derive(Clone, Copy)]
pub(super) struct F80(X87DoubleExtended);

/// IEEE binary128.
#[derive(Clone, Copy)]
pub(super) struct F128(Quad);

macro_rules! soft {
    ($type:ident, $format:ty, $bits:literal) => {
        impl Element for $type {
            const BYTES: usize = 16;
            fn load(bytes: &[u8]) -> Self {
                $type(<$format>::from_bits(u128::load(bytes) & (u128::MAX >> (128 - $bits))))
            }
            fn store(self, bytes: &mut [u8]) {
                self.0.to_bits().store(bytes);
            }
        }

        impl Number for $type {
            fn plus(self, other: Self) -> Self {
                $type((self.0 + other.0).value)
            }
            fn times(self, other: Self) -> Self {
                $type((self.0 * other.0).value)
            }
        }

        impl Real for $type {
            fn minus(self, other: Self) -> Self {
                $type((self.0 - other.0).value)
            }
        }

        impl Ordered for $type {
            fn less(self, other: Self) -> bool {
                self.0 < other.0
            }
        }
    };
}

soft!(F80, X87DoubleExtended, 80);
soft!(F128, Quad, 128);
