//! Reads the ABI tables and writes what is generated from them.
