//! How a datatype was made: what `MPI_Type_get_envelope` and `MPI_Type_get_contents` tell (MPI-5.0 §5.1.13).
#![forbid(unsafe_code)]

use super::layout::SharedLayout;
use smallvec::SmallVec;

/// The kind of call that made a datatype: with `int` counts, or a `_c` function with `MPI_Count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Small,
    Large,
}

/// A constructor's arguments, in the order of MPI-5.0 §5.1.13.
pub struct Recipe {
    /// `MPI_COMBINER_*`.
    pub combiner: i32,
    pub form: Form,
    pub integers: SmallVec<[i32; 6]>,
    pub addresses: SmallVec<[isize; 3]>,
    pub counts: Vec<i64>,
    pub types: SmallVec<[SharedLayout; 3]>,
}

impl Recipe {
    #[inline]
    pub fn new(combiner: i32, form: Form) -> Recipe {
        Recipe { combiner, form, integers: SmallVec::new(), addresses: SmallVec::new(), counts: Vec::new(), types: SmallVec::new() }
    }

    /// An argument that is an `int` in both forms.
    #[inline]
    pub fn integer(&mut self, value: i32) -> &mut Recipe {
        self.integers.push(value);
        self
    }

    pub fn integers(&mut self, values: &[i32]) -> &mut Recipe {
        self.integers.extend_from_slice(values);
        self
    }

    /// An argument that is an `int` in the small form and an `MPI_Count` in the large one.
    #[inline]
    pub fn count(&mut self, value: i64) -> &mut Recipe {
        self.count_list(&[value])
    }

    #[inline]
    pub fn count_list(&mut self, values: &[i64]) -> &mut Recipe {
        match self.form {
            Form::Small => self.integers.extend(values.iter().map(|&value| value as i32)),
            Form::Large => self.counts.extend_from_slice(values),
        }
        self
    }

    /// An argument that is an `MPI_Aint` in the small form and an `MPI_Count` in the large one.
    #[inline]
    pub fn address_list(&mut self, values: &[i64]) -> &mut Recipe {
        match self.form {
            Form::Small => self.addresses.extend(values.iter().map(|&value| value as isize)),
            Form::Large => self.counts.extend_from_slice(values),
        }
        self
    }

    #[inline]
    pub fn datatype(&mut self, layout: &SharedLayout) -> &mut Recipe {
        self.types.push(layout.clone());
        self
    }
}
