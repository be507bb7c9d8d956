//! Elements as they lie in memory, and what can be done with two of them.

/// Read from and written to exactly `BYTES` unaligned bytes in the machine's byte order.
pub(super) trait Element: Copy {
    const BYTES: usize;
    /// The processor may have instructions for several at once.
    const VECTORS: bool = false;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);

    /// `inout[i] = combine(input[i], inout[i])` for all elements.
    #[inline(always)]
    fn each(input: &[u8], inout: &mut [u8], combine: impl Fn(Self, Self) -> Self) {
        for (a, b) in input.chunks_exact(Self::BYTES).zip(inout.chunks_exact_mut(Self::BYTES)) {
            combine(Self::load(a), Self::load(b)).store(b);
        }
    }
}

pub(super) trait Number: Element {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// Numbers that have complex ones above them.
pub(super) trait Real: Number {
    fn minus(self, other: Self) -> Self;
}

pub(super) trait Ordered: Element {
    fn less(self, other: Self) -> bool;
}

pub(super) trait Bits: Element {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

pub(super) trait Truth: Element {
    fn is_true(self) -> bool;
    fn truth(value: bool) -> Self;
}

macro_rules! primitive {
    ($($type:ty),+) => {$(
        impl Element for $type {
            const BYTES: usize = size_of::<$type>();
            const VECTORS: bool = true;
            #[inline(always)]
            fn load(bytes: &[u8]) -> Self {
                <$type>::from_ne_bytes(bytes.try_into().expect("a whole element"))
            }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            /// Over arrays, by index, so that the loop is vectorized also where iterators over chunks are not inlined.
            #[inline(always)]
            fn each(input: &[u8], inout: &mut [u8], combine: impl Fn(Self, Self) -> Self) {
                let (from, to) = (input.as_chunks().0, inout.as_chunks_mut().0);
                let count = from.len().min(to.len());
                let (from, to) = (&from[..count], &mut to[..count]);
                for at in 0..count {
                    to[at] = combine(<$type>::from_ne_bytes(from[at]), <$type>::from_ne_bytes(to[at])).to_ne_bytes();
                }
            }
        }

        impl Ordered for $type {
            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )+};
}

macro_rules! integer {
    ($($type:ty),+) => {$(
        impl Number for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }

        impl Bits for $type {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }

        impl Truth for $type {
            #[inline(always)]
            fn is_true(self) -> bool {
                self != 0
            }
            #[inline(always)]
            fn truth(value: bool) -> Self {
                value as $type
            }
        }
    )+};
}

macro_rules! real {
    ($($type:ty),+) => {$(
        impl Number for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
        }

        impl Real for $type {
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
        }
    )+};
}

primitive!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128, f32, f64);
integer!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128);
real!(f32, f64);

/// Real part, then imaginary part.
#[derive(Clone, Copy)]
pub(super) struct Complex<T> {
    re: T,
    im: T,
}

impl<T: Element> Element for Complex<T> {
    const BYTES: usize = 2 * T::BYTES;
    const VECTORS: bool = T::VECTORS;
    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        let (re, im) = bytes.split_at(T::BYTES);
        Complex { re: T::load(re), im: T::load(im) }
    }
    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        let (re, im) = bytes.split_at_mut(T::BYTES);
        self.re.store(re);
        self.im.store(im);
    }
}

impl<T: Real> Number for Complex<T> {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Complex { re: self.re.plus(other.re), im: self.im.plus(other.im) }
    }
    /// By the textbook: each product and the sum are rounded; infinities are not recovered from NaN.
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        Complex { re: self.re.times(other.re).minus(self.im.times(other.im)), im: self.re.times(other.im).plus(self.im.times(other.re)) }
    }
}

/// A value and its index `INDEX_AT` bytes behind it in an element of `EXTENT` bytes, with or without a C struct's padding.
#[derive(Clone, Copy)]
pub(super) struct Located<V, I, const INDEX_AT: usize, const EXTENT: usize> {
    value: V,
    index: I,
}

impl<V: Element, I: Element, const INDEX_AT: usize, const EXTENT: usize> Element for Located<V, I, INDEX_AT, EXTENT> {
    const BYTES: usize = EXTENT;
    const VECTORS: bool = V::VECTORS;
    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        Located { value: V::load(&bytes[..V::BYTES]), index: I::load(&bytes[INDEX_AT..][..I::BYTES]) }
    }
    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        self.value.store(&mut bytes[..V::BYTES]);
        self.index.store(&mut bytes[INDEX_AT..][..I::BYTES]);
    }
}

impl<V: Ordered, I: Ordered, const INDEX_AT: usize, const EXTENT: usize> Located<V, I, INDEX_AT, EXTENT> {
    /// `MPI_MINLOC`: of equal values the lower index.
    #[inline(always)]
    pub(super) fn lower(self, other: Self) -> Self {
        self.chosen(other, self.value.less(other.value), other.value.less(self.value))
    }

    /// `MPI_MAXLOC`: of equal values the lower index.
    #[inline(always)]
    pub(super) fn higher(self, other: Self) -> Self {
        self.chosen(other, other.value.less(self.value), self.value.less(other.value))
    }

    /// Without branches, whose ways depend on the values.
    #[inline(always)]
    fn chosen(self, other: Self, mine: bool, others: bool) -> Self {
        let value = if mine { self.value } else { other.value };
        let index = if mine | (!others & self.index.less(other.index)) { self.index } else { other.index };
        Located { value, index }
    }
}
