//! Every operation on every kind against scalar arithmetic written another way.

use super::*;
use proptest::prelude::*;
use rustc_apfloat::Float;
use rustc_apfloat::ieee::{Double, Half, Quad, Single, X87DoubleExtended};

/// The operations of the standard's table, by class, written out once more.
const TABLE: &[(Predefined, &[Class])] = {
    use Class::*;
    &[
        (Predefined::Max, &[CInteger, FortranInteger, FloatingPoint, MultiLanguage]),
        (Predefined::Min, &[CInteger, FortranInteger, FloatingPoint, MultiLanguage]),
        (Predefined::Sum, &[CInteger, FortranInteger, FloatingPoint, Complex, MultiLanguage]),
        (Predefined::Prod, &[CInteger, FortranInteger, FloatingPoint, Complex, MultiLanguage]),
        (Predefined::Land, &[CInteger, Logical]),
        (Predefined::Lor, &[CInteger, Logical]),
        (Predefined::Lxor, &[CInteger, Logical]),
        (Predefined::Band, &[CInteger, FortranInteger, Byte, MultiLanguage]),
        (Predefined::Bor, &[CInteger, FortranInteger, Byte, MultiLanguage]),
        (Predefined::Bxor, &[CInteger, FortranInteger, Byte, MultiLanguage]),
        (Predefined::Minloc, &[Pair]),
        (Predefined::Maxloc, &[Pair]),
    ]
};

#[test]
fn allows_what_the_table_says_and_carries_it_out() {
    for &op in &Predefined::ALL {
        for &kind in Basic::ALL {
            let listed = TABLE.iter().find(|(listed, _)| *listed == op);
            let expected = listed.is_none_or(|(_, classes)| classes.contains(&kind.class()));
            assert_eq!(allowed(op, kind), expected, "{op:?} on {kind:?}");
            let mut inout = vec![1; 3 * kind.bytes()];
            match apply(op, kind, &vec![1; 3 * kind.bytes()], &mut inout) {
                Ok(()) => assert!(expected, "{op:?} on {kind:?}"),
                Err(error) => {
                    assert!(!expected, "{op:?} on {kind:?}");
                    assert_eq!(error.class, MPI_ERR_OP);
                    assert!(error.detail.contains(op.name()), "{error}");
                }
            }
        }
    }
}

/// Rows of the ABI's table with this C type and a number: name, value.
fn constants(c_type: &str) -> impl Iterator<Item = (&'static str, usize)> {
    include_str!("../../../../abi/constants.tsv").lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let hexadecimal = fields[2].strip_prefix("0x").filter(|_| fields[1] == c_type)?;
        Some((fields[0], usize::from_str_radix(hexadecimal, 16).expect("a handle")))
    })
}

#[test]
fn knows_every_predefined_datatype_and_its_size() {
    let mut known = 0;
    for (name, handle) in constants("MPI_Datatype").filter(|(name, _)| *name != "MPI_DATATYPE_NULL") {
        let kind = basic_of(handle).unwrap_or_else(|| panic!("{name} is unknown"));
        known += 1;
        // MPI-5.0 §20.3.4: from 0x240 on, three bits of the handle are the logarithm of the size.
        if handle >= 0x240 {
            assert_eq!(kind.size_bytes(), 1 << (handle >> 3 & 7), "{name}");
        }
    }
    assert_eq!(known, (0..0x1000).filter(|&handle| basic_of(handle).is_some()).count());
    assert_eq!(basic_of(0x200), None);
    assert_eq!(basic_of(usize::MAX), None);
}

#[test]
fn knows_every_predefined_operation() {
    for (name, handle) in constants("MPI_Op") {
        let expected = (name != "MPI_OP_NULL").then_some(name);
        assert_eq!(Predefined::of(handle).map(Predefined::name), expected);
    }
    assert_eq!(Predefined::of(0x1000), None);
}

#[test]
fn pairs_are_laid_out_as_c_structs() {
    #[repr(C)]
    struct Pair<V, I>(V, I);
    #[repr(C, align(16))]
    struct Sixteen([u8; 16]);
    assert_eq!(Basic::FloatInt.bytes(), size_of::<Pair<f32, i32>>());
    assert_eq!(Basic::DoubleInt.bytes(), size_of::<Pair<f64, i32>>());
    assert_eq!(Basic::LongInt.bytes(), size_of::<Pair<i64, i32>>());
    assert_eq!(Basic::ShortInt.bytes(), size_of::<Pair<i16, i32>>());
    assert_eq!(Basic::Float80Int.bytes(), size_of::<Pair<Sixteen, i32>>());
    assert_eq!(Basic::Float128Int.bytes(), size_of::<Pair<Sixteen, i32>>());
}

#[test]
#[should_panic(expected = "operands of one length")]
fn refuses_different_lengths() {
    let _ = apply(Predefined::Sum, Basic::Int8, &[1, 2], &mut [1]);
}

/// `apply` to unaligned buffers, to as many elements as it takes to reach vectorized loops and their ends.
fn applied(op: Predefined, kind: Basic, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (mut input, mut inout) = (vec![0xee], vec![0xee]);
    input.extend_from_slice(a);
    inout.extend_from_slice(b);
    apply(op, kind, &input[1..], &mut inout[1..]).expect("allowed");
    inout.remove(0);
    inout
}

/// An integer of any width, wide.
fn widened(bytes: &[u8], signed: bool) -> i128 {
    let mut wide = [if signed && bytes[bytes.len() - 1] >= 0x80 { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

fn integer_reference(op: Predefined, signed: bool, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (x, y) = (widened(a, signed), widened(b, signed));
    let result = match op {
        Predefined::Sum => x.wrapping_add(y),
        Predefined::Prod => x.wrapping_mul(y),
        Predefined::Min => x.min(y),
        Predefined::Max => x.max(y),
        Predefined::Band => x & y,
        Predefined::Bor => x | y,
        Predefined::Bxor => x ^ y,
        Predefined::Land => i128::from(x != 0 && y != 0),
        Predefined::Lor => i128::from(x != 0 || y != 0),
        Predefined::Lxor => i128::from((x != 0) != (y != 0)),
        _ => unreachable!("no integer operation"),
    };
    result.to_le_bytes()[..a.len()].to_vec()
}

/// Bits of a soft float in an element of its own.
trait Format: Float {
    fn read(bytes: &[u8]) -> Self {
        let mut wide = [0; 16];
        let length = Self::BITS.div_ceil(8);
        wide[..length].copy_from_slice(&bytes[..length]);
        Self::from_bits(u128::from_le_bytes(wide))
    }
    fn bytes(self, length: usize) -> Vec<u8> {
        self.to_bits().to_le_bytes()[..length].to_vec()
    }
}
impl<F: Float> Format for F {}

/// NaN for all NaN, else the bytes.
fn without_payload<F: Float>(bytes: &[u8]) -> Vec<u8> {
    if F::read(bytes).is_nan() { F::NAN.bytes(bytes.len()) } else { F::read(bytes).bytes(bytes.len()) }
}

fn float_reference<F: Float>(op: Predefined, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (x, y) = (F::read(a), F::read(b));
    let result = match op {
        Predefined::Sum => (x + y).value,
        Predefined::Prod => (x * y).value,
        Predefined::Min => {
            if x < y {
                x
            } else {
                y
            }
        }
        Predefined::Max => {
            if x > y {
                x
            } else {
                y
            }
        }
        _ => unreachable!("no floating-point operation"),
    };
    result.bytes(a.len())
}

fn complex_reference<F: Float>(op: Predefined, a: &[u8], b: &[u8]) -> Vec<u8> {
    let half = a.len() / 2;
    let read = |bytes: &[u8]| (F::read(&bytes[..half]), F::read(&bytes[half..]));
    let ((a, b), (c, d)) = (read(a), read(b));
    let (re, im) = match op {
        Predefined::Sum => ((a + c).value, (b + d).value),
        _ => (((a * c).value - (b * d).value).value, ((a * d).value + (b * c).value).value),
    };
    [re.bytes(half), im.bytes(half)].concat()
}

fn check_float<F: Float>(op: Predefined, kind: Basic, a: &[u8], b: &[u8]) {
    let result = applied(op, kind, a, b);
    let each = |bytes: &[u8]| bytes.chunks(kind.bytes()).map(<[u8]>::to_vec).collect::<Vec<_>>();
    for ((a, b), got) in each(a).iter().zip(each(b)).zip(each(&result)) {
        let complex = kind.class() == Class::Complex;
        let expected = if complex { complex_reference::<F>(op, a, &b) } else { float_reference::<F>(op, a, &b) };
        let part = if complex { kind.bytes() / 2 } else { kind.bytes() };
        for (got, expected) in got.chunks(part).zip(expected.chunks(part)) {
            assert_eq!(without_payload::<F>(got), without_payload::<F>(expected), "{op:?} on {kind:?}: {a:?}, {b:?}");
        }
    }
}

fn is_signed(kind: Basic) -> bool {
    !matches!(kind, Basic::Uint8 | Basic::Uint16 | Basic::Uint32 | Basic::Uint64)
}

/// Bytes with many zeros, equal elements and extreme values among them.
fn operands() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let byte = || prop_oneof![6 => any::<u8>(), 2 => Just(0), 1 => Just(0xff), 1 => Just(0x7f)];
    let bytes = || proptest::collection::vec(byte(), 32 * 37);
    (bytes(), bytes(), any::<u64>()).prop_map(|(a, mut b, mask)| {
        for (i, (a, b)) in a.chunks(32).zip(b.chunks_mut(32)).enumerate() {
            match mask >> (2 * i % 64) & 3 {
                0 => b.copy_from_slice(a),
                1 => b[..16].fill(0),
                _ => {}
            }
        }
        (a, b)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn integers_and_logicals_agree_with_wide_arithmetic((a, b) in operands()) {
        for &op in &Predefined::ALL[..10] {
            for &kind in Basic::ALL.iter().filter(|&&kind| allowed(op, kind)) {
                if matches!(kind.class(), Class::FloatingPoint | Class::Complex) {
                    continue;
                }
                let result = applied(op, kind, &a, &b);
                let size = kind.bytes();
                for ((a, b), got) in a.chunks(size).zip(b.chunks(size)).zip(result.chunks(size)) {
                    prop_assert_eq!(got, integer_reference(op, is_signed(kind), a, b), "{:?} on {:?}", op, kind);
                }
            }
        }
    }

    #[test]
    fn floats_agree_with_soft_arithmetic((a, b) in operands()) {
        for op in [Predefined::Sum, Predefined::Prod, Predefined::Min, Predefined::Max] {
            check_float::<Half>(op, Basic::Float16, &a, &b);
            check_float::<Single>(op, Basic::Float32, &a, &b);
            check_float::<Double>(op, Basic::Float64, &a, &b);
            check_float::<Quad>(op, Basic::Float128, &a, &b);
        }
        for op in [Predefined::Sum, Predefined::Prod] {
            check_float::<Half>(op, Basic::ComplexFloat16, &a, &b);
            check_float::<Single>(op, Basic::ComplexFloat32, &a, &b);
            check_float::<Double>(op, Basic::ComplexFloat64, &a, &b);
            check_float::<X87DoubleExtended>(op, Basic::ComplexFloat80, &a, &b);
            check_float::<Quad>(op, Basic::ComplexFloat128, &a, &b);
        }
    }

    #[test]
    fn replace_takes_the_input_and_no_op_leaves_the_target((a, b) in operands()) {
        for &kind in Basic::ALL {
            prop_assert_eq!(&applied(Predefined::Replace, kind, &a, &b), &a);
            prop_assert_eq!(&applied(Predefined::NoOp, kind, &a, &b), &b);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What is compiled for wider vectors gives the same bits, but for which NaN a sum of two is. Widths that the processor lacks are tried as the next that it has.
    #[test]
    fn all_widths_of_vectors_agree((a, b) in operands(), items in 1..37usize) {
        let every = Predefined::ALL.iter().flat_map(|op| Basic::ALL.iter().map(move |kind| (*op, *kind)));
        for (op, kind) in every.filter(|(op, kind)| allowed(*op, *kind)) {
            let bytes = items * kind.bytes();
            let of_width = |width| {
                vectors::MOST.set(width);
                let result = applied(op, kind, &a[..bytes], &b[..bytes]);
                match kind {
                    Basic::Float16 | Basic::ComplexFloat16 => result.chunks(2).flat_map(without_payload::<Half>).collect(),
                    Basic::Float32 | Basic::ComplexFloat32 => result.chunks(4).flat_map(without_payload::<Single>).collect(),
                    Basic::Float64 | Basic::ComplexFloat64 => result.chunks(8).flat_map(without_payload::<Double>).collect(),
                    _ => result,
                }
            };
            let least = of_width(vectors::Width::Least);
            for width in [vectors::Width::Bits256, vectors::Width::Bits512] {
                prop_assert_eq!(&of_width(width), &least, "{:?} of {:?} with {:?}", op, kind, width);
            }
        }
    }
}

/// All pairs of interesting values and indices of a pair type, in its C layout.
fn check_pairs<V: Copy + PartialOrd, I: Copy + PartialOrd, const V_BYTES: usize, const I_BYTES: usize>(
    kind: Basic,
    index_at: usize,
    values: &[V],
    indices: &[I],
    value_bytes: impl Fn(V) -> [u8; V_BYTES],
    index_bytes: impl Fn(I) -> [u8; I_BYTES],
) {
    let element = |value: V, index: I| {
        let mut bytes = vec![0; kind.bytes()];
        bytes[..V_BYTES].copy_from_slice(&value_bytes(value));
        bytes[index_at..index_at + I_BYTES].copy_from_slice(&index_bytes(index));
        bytes
    };
    for &x in values {
        for &y in values {
            for &i in indices {
                for &j in indices {
                    let lower = if i < j { i } else { j };
                    let (a, b) = (element(x, i), element(y, j));
                    let tie = element(y, lower);
                    let min = if x < y {
                        &a
                    } else if y < x {
                        &b
                    } else {
                        &tie
                    };
                    let max = if x > y {
                        &a
                    } else if y > x {
                        &b
                    } else {
                        &tie
                    };
                    assert_eq!(&applied(Predefined::Minloc, kind, &a.repeat(5), &b.repeat(5)), &min.repeat(5));
                    assert_eq!(&applied(Predefined::Maxloc, kind, &a.repeat(5), &b.repeat(5)), &max.repeat(5));
                    let packed = |element: &Vec<u8>| [&element[..V_BYTES], &element[index_at..index_at + I_BYTES]].concat().repeat(5);
                    for (op, expected) in [(Predefined::Minloc, min), (Predefined::Maxloc, max)] {
                        let mut inout = packed(&b);
                        let reduction = Reduction { op, kind, packed: true };
                        assert_eq!(inout.len(), 5 * reduction.element_bytes());
                        reduction.reduce(&packed(&a), &mut inout).expect("allowed");
                        assert_eq!(inout, packed(expected));
                    }
                }
            }
        }
    }
}

#[test]
fn pairs_keep_the_lower_index_of_equal_values() {
    let indices = [0i32, 7, 3, -1, i32::MAX];
    let floats = [0.5f32, -0.5, 1e30, f32::INFINITY, f32::NEG_INFINITY];
    let doubles = [0.5f64, -0.5, 1e300, f64::INFINITY];
    check_pairs(Basic::FloatInt, 4, &floats, &indices, f32::to_ne_bytes, i32::to_ne_bytes);
    check_pairs(Basic::DoubleInt, 8, &doubles, &indices, f64::to_ne_bytes, i32::to_ne_bytes);
    check_pairs(Basic::LongInt, 8, &[1i64 << 40, -1, 0], &indices, i64::to_ne_bytes, i32::to_ne_bytes);
    check_pairs(Basic::IntInt, 4, &indices, &indices, i32::to_ne_bytes, i32::to_ne_bytes);
    check_pairs(Basic::ShortInt, 4, &[-300i16, 1, 300], &indices, i16::to_ne_bytes, i32::to_ne_bytes);
    check_pairs(Basic::FloatFloat, 4, &floats, &floats, f32::to_ne_bytes, f32::to_ne_bytes);
    check_pairs(Basic::DoubleDouble, 8, &doubles, &doubles, f64::to_ne_bytes, f64::to_ne_bytes);
    let x87 = |value: i32| X87DoubleExtended::from_i128(value.into()).value.to_bits().to_ne_bytes();
    check_pairs(Basic::Float80Int, 16, &[-5, 0, 9], &indices, x87, i32::to_ne_bytes);
    let quad = |value: i32| Quad::from_i128(value.into()).value.to_bits().to_ne_bytes();
    check_pairs(Basic::Float128Int, 16, &[-5, 0, 9], &indices, quad, i32::to_ne_bytes);
}

#[test]
fn halves_convert_exactly_and_round_to_nearest_even() {
    // One times x is x: every half survives widening and narrowing.
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let ones = 0x3c00u16.to_le_bytes().repeat(1 << 16);
    check_float::<Half>(Predefined::Prod, Basic::Float16, &ones, &halves);
    // Sums and products with these need rounding of every kind, into subnormals and into infinity too.
    for other in [0x0001u16, 0x03ff, 0x0400, 0x1401, 0x3800, 0x3bff, 0x5801, 0x7bff, 0x8001, 0xb555, 0xfbff] {
        let others = other.to_le_bytes().repeat(1 << 16);
        check_float::<Half>(Predefined::Prod, Basic::Float16, &others, &halves);
        check_float::<Half>(Predefined::Sum, Basic::Float16, &others, &halves);
        check_float::<Half>(Predefined::Min, Basic::Float16, &others, &halves);
    }
}

/// Bytes of a number without the payload of NaN.
type Clean = fn(&[u8]) -> Vec<u8>;

#[test]
fn long_doubles_and_quadruples_agree_with_gcc() {
    let bytes = |hex: &str| {
        let mut bytes = u128::from_str_radix(hex, 16).expect("hexadecimal").to_le_bytes().to_vec();
        bytes.truncate(16);
        bytes
    };
    let mut checked = 0;
    for line in include_str!("float_vectors.tsv").lines().skip(1) {
        let [format, a, b, sum, product, less] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("six fields: {line}");
        };
        let (kind, clean): (Basic, Clean) = match format {
            "x87" => (Basic::Float80, without_payload::<X87DoubleExtended>),
            _ => (Basic::Float128, without_payload::<Quad>),
        };
        let (a, b) = (bytes(a), bytes(b));
        assert_eq!(clean(&applied(Predefined::Sum, kind, &a, &b)), clean(&bytes(sum)), "sum: {line}");
        assert_eq!(clean(&applied(Predefined::Prod, kind, &a, &b)), clean(&bytes(product)), "product: {line}");
        let min = if less == "1" { &a } else { &b };
        assert_eq!(&applied(Predefined::Min, kind, &a, &b), min, "min: {line}");
        checked += 1;
    }
    assert!(checked >= 300);
}
