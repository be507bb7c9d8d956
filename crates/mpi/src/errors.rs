//! Error classes, codes and strings (MPI-5.0 §9.4, §9.5).

use crate::consts::ERROR_CLASSES;
use std::cell::RefCell;

/// The message of a class or code, without the details of one error.
pub fn message(code: i32) -> String {
    match ERROR_CLASSES.iter().find(|(class, _)| *class == code) {
        Some((_, name)) => (*name).to_string(),
        None => format!("unknown error code {code}"),
    }
}

/// Remembers the latest error of this thread, for `MPI_Error_string` to add its details.
pub fn remember(code: i32, detail: &str) {
    LATEST.with(|latest| *latest.borrow_mut() = Some((code, detail.to_string())));
}

thread_local! {
    static LATEST: RefCell<Option<(i32, String)>> = const { RefCell::new(None) };
}
