//! Predefined reduction operations (MPI-5.0 §6.9.2).
