//! How fast datatypes are packed and unpacked, beside memcpy of as many bytes: `cargo run --release --example pack`.

use engine::Plan;
use mpi::consts::*;
use mpi::datatype::{self, Form, lookup};
use mpi::error::Result;
use mpi::handle::Datatype;
use std::time::Instant;

/// Packed bytes of every case: they and their memory fit the second-level cache, so that moving is measured and not memory.
const PACKED_BYTES: usize = 64 << 10;

fn main() -> Result<()> {
    let every = |gap: i64, item: Datatype| datatype::vector(Form::Large, 1, 1, gap, item).and_then(|v| spaced(v, gap, item));
    let places: Vec<i64> = (0..512).map(|i| i * 3 + i % 2).collect();
    let lengths: Vec<i64> = (0..512).map(|i| 1 + i % 3).collect();
    let spread: Vec<i64> = (0..512).map(|i| i * 5).collect();
    let particle = datatype::structure(Form::Large, &[3, 1, 1], &[0, 24, 32], &[MPI_DOUBLE, MPI_INT, MPI_DOUBLE])?;
    let mixed = datatype::structure(Form::Large, &[1, 1], &[0, 8], &[MPI_DOUBLE, MPI_CHAR])?;
    let cases = [
        ("contiguous bytes", datatype::contiguous(Form::Large, 1024, MPI_CHAR)?),
        ("every 2nd char", every(2, MPI_CHAR)?),
        ("every 2nd short", every(2, MPI_SHORT)?),
        ("every 2nd int", every(2, MPI_INT)?),
        ("every 2nd double", every(2, MPI_DOUBLE)?),
        ("every 2nd complex", every(2, MPI_C_DOUBLE_COMPLEX)?),
        ("3 of 4 doubles", datatype::vector(Form::Large, 64, 3, 4, MPI_DOUBLE)?),
        ("blocks of 128 B, 50 %", datatype::vector(Form::Large, 64, 16, 32, MPI_DOUBLE)?),
        ("blocks of 1 KiB, 50 %", datatype::vector(Form::Large, 16, 128, 256, MPI_DOUBLE)?),
        ("vectors of 3 in vectors", {
            let inner = datatype::vector(Form::Large, 3, 1, 2, MPI_DOUBLE)?;
            datatype::hvector(Form::Large, 64, 1, 80, inner)?
        }),
        ("column of a 3-d block", datatype::subarray(Form::Large, &[64, 64, 32], &[16, 32, 4], &[0, 0, 0], MPI_ORDER_C, MPI_DOUBLE)?),
        ("indexed, 1 to 3 doubles", datatype::indexed(Form::Large, &lengths, &spread, MPI_DOUBLE)?),
        ("indexed block, doubles", datatype::indexed_block(Form::Large, 1, &places, MPI_DOUBLE)?),
        ("struct 24 + 4 + 8 of 40", particle),
        ("struct 8 + 1 of 16", mixed),
        ("MPI_SHORT_INT", MPI_SHORT_INT),
        ("MPI_DOUBLE_INT", MPI_DOUBLE_INT),
    ];
    println!("{:>26} {:>9} {:>9} {:>9} {:>11}   GB/s of packed bytes", "", "memcpy", "pack", "unpack", "in 4 KiB");
    for (name, handle) in cases {
        datatype::commit(handle)?;
        measure(name, handle);
    }
    Ok(())
}

fn spaced(one: Datatype, gap: i64, item: Datatype) -> Result<Datatype> {
    let (_, bytes) = (lookup(one)?.size(), lookup(item)?.extent() as i64);
    datatype::resized(Form::Large, one, 0, gap * bytes)
}

fn measure(name: &str, handle: Datatype) {
    let datatype = lookup(handle).expect("just made");
    let count = PACKED_BYTES / datatype.size();
    let bytes = count * datatype.size();
    let mut memory = vec![1u8; count * datatype.extent() as usize + datatype.true_extent() as usize];
    let mut packed = vec![0u8; bytes];
    let mut other = vec![1u8; bytes];
    let program = datatype.layout().program();
    let (start, out) = (memory.as_mut_ptr(), packed.as_mut_ptr());
    // SAFETY: `packed` and `other` hold that many bytes.
    let copy = best(bytes, || unsafe { std::ptr::copy_nonoverlapping(out, std::hint::black_box(other.as_mut_ptr()), bytes) });
    // SAFETY: here and below: `memory` spans `count` elements and `packed` holds their bytes.
    let pack = best(bytes, || unsafe { program.pack(start, count, 0, std::hint::black_box(out), bytes) });
    // SAFETY: the same.
    let unpack = best(bytes, || unsafe { program.unpack(std::hint::black_box(start), count, 0, out, bytes) });
    // SAFETY: the same, in parts.
    let pieces = best(bytes, || (0..bytes).step_by(4096).for_each(|at| unsafe { program.pack(start, count, at, out.add(at), 4096.min(bytes - at)) }));
    println!("{name:>26} {copy:>9.1} {pack:>9.1} {unpack:>9.1} {pieces:>11.1}");
}

/// Bytes per nanosecond of the fastest of many runs.
fn best(bytes: usize, mut run: impl FnMut()) -> f64 {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos().max(1)
    };
    let fastest = (0..2000).map(|_| time(&mut run)).min().expect("some runs");
    bytes as f64 / fastest as f64
}
