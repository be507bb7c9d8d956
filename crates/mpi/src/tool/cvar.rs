//! Control variables (MPI-5.0 §15.3.6): the table of parameters.
//!
//! Initialization reads the table, so most variables can be written before it only. What the running engine takes up may be
//! written until finalization. What only the launcher reads cannot be written here at all.
#![forbid(unsafe_code)]

use super::{Datum, at, bad_handle, enumeration, out_of_handles, tools};
use crate::consts::*;
use crate::error::{Error, Result};
use crate::handle::{TCvarHandle, TEnum};
use crate::world;
use params::{Kind, Row, Unit, Value};
use std::sync::OnceLock;

/// Characters of a text variable, its end included.
pub const TEXT_CHARS: usize = 1024;

pub struct Handle {
    index: usize,
}

/// When a parameter may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writable {
    Never,
    BeforeInitialization,
    /// Until finalization.
    Running,
}

/// What `MPI_T_cvar_get_info` tells.
pub struct Description {
    pub name: String,
    pub verbosity: i32,
    pub datatype: crate::handle::Datatype,
    pub enumeration: TEnum,
    pub text: String,
    pub scope: i32,
}

/// When a row may be written, and in which processes a value must be the same. Initialization reads every row but the launcher's, so a row that no
/// list here names can be written until then.
fn rules(row: &Row) -> (Writable, i32) {
    use Writable::*;
    let is = |known: &&Row| std::ptr::eq(*known, row);
    let running = [params::EAGER_MAX.row(), params::COOPERATIVE_MIN.row(), params::SPIN.row(), params::YIELD.row()];
    let equal = [params::UNEXPECTED_MAX.row(), params::RENDEZVOUS.row(), params::FABRIC.row(), params::PROTECTION.row()];
    if params::LAUNCHER_ROWS.iter().any(is) {
        (Never, MPI_T_SCOPE_READONLY)
    } else if running.iter().any(is) {
        (Running, MPI_T_SCOPE_LOCAL)
    } else if is(&params::REPORT.row()) || is(&params::REPORT_ENVELOPES.row()) {
        (Running, MPI_T_SCOPE_ALL_EQ)
    } else if equal.iter().any(is) {
        (BeforeInitialization, MPI_T_SCOPE_ALL_EQ)
    } else {
        (BeforeInitialization, MPI_T_SCOPE_LOCAL)
    }
}

/// Variables that there are.
pub fn count() -> usize {
    params::table::ALL.len()
}

/// The variable called `name`, as its environment variable is.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_NAME`.
pub fn index(name: &[u8]) -> Result<i32> {
    super::check()?;
    let bare = name.strip_prefix(params::PREFIX.as_bytes());
    super::find(params::table::ALL, "control variable", name, |row| bare == Some(row.name().as_bytes()))
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_INDEX`.
pub fn describe(index: i32) -> Result<Description> {
    super::check()?;
    let row = *at(params::table::ALL, index, "control variable")?;
    let gap = match row.kind() {
        Kind::Number { unit, .. } if *unit != Unit::Count => format!(" {}", unit.suffix()),
        _ => String::new(),
    };
    Ok(Description {
        name: format!("{}{}", params::PREFIX, row.name()),
        verbosity: if matches!(row.kind(), Kind::Number { .. }) { MPI_T_VERBOSITY_TUNER_BASIC } else { MPI_T_VERBOSITY_USER_BASIC },
        datatype: datum(row, row.default())?.datatype(),
        enumeration: enumeration::of_row(row),
        text: format!("{} It is {}, by default {}{gap}.", row.meaning().trim(), row.kind(), row.default()),
        scope: rules(row).1,
    })
}

/// A handle of a variable, and how many elements the variable has.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_INDEX`, `MPI_T_ERR_OUT_OF_HANDLES`.
pub fn open(index: i32) -> Result<(TCvarHandle, usize)> {
    let mut tools = tools()?;
    let row = *at(params::table::ALL, index, "control variable")?;
    let handle = tools.cvars.insert(Handle { index: index as usize }).map_err(out_of_handles)?;
    Ok((TCvarHandle(handle), if *row.kind() == Kind::Text { TEXT_CHARS } else { 1 }))
}

/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_HANDLE`.
pub fn close(handle: TCvarHandle) -> Result<()> {
    tools()?.cvars.remove(handle.0).map(drop).ok_or_else(|| bad_handle("control variable's handle", handle.0))
}

fn row_of(handle: TCvarHandle) -> Result<&'static Row> {
    let tools = tools()?;
    let found = tools.cvars.get(handle.0).ok_or_else(|| bad_handle("control variable's handle", handle.0))?;
    Ok(params::table::ALL[found.index])
}

/// The value that the variable has.
///
/// # Errors
/// `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_HANDLE`; `MPI_T_ERR_NOT_ACCESSIBLE` where environment or file give none that parses.
pub fn read(handle: TCvarHandle) -> Result<Datum> {
    let row = row_of(handle)?;
    let (value, _) = row.read().map_err(|e| Error::new(MPI_T_ERR_NOT_ACCESSIBLE, e.to_string()))?;
    datum(row, value)
}

/// What is to be written into the variable: a value whose variant says what it is read as.
///
/// # Errors
/// As [`write`].
pub fn shape(handle: TCvarHandle) -> Result<Datum> {
    let row = row_of(handle)?;
    datum(row, row.default())
}

/// Gives the variable a value.
///
/// # Errors
/// `MPI_T_ERR_CVAR_SET_NEVER` where the process does not read it; `MPI_T_ERR_CVAR_SET_NOT_NOW` when it is too late;
/// `MPI_T_ERR_INVALID` for a value out of range; `MPI_T_ERR_NOT_INITIALIZED`, `MPI_T_ERR_INVALID_HANDLE`.
pub fn write(handle: TCvarHandle, value: &Datum) -> Result<()> {
    let row = row_of(handle)?;
    let too_late = |until: &str| {
        let text = format!("{}{} can be set before {until} only", params::PREFIX, row.name());
        Error::new(MPI_T_ERR_CVAR_SET_NOT_NOW, text)
    };
    match rules(row).0 {
        Writable::Never => {
            let text = format!("{}{} is read by the launcher, not by this process", params::PREFIX, row.name());
            return Err(Error::new(MPI_T_ERR_CVAR_SET_NEVER, text));
        }
        Writable::BeforeInitialization if world::initialized() => return Err(too_late("initialization")),
        Writable::Running if world::finalized() => return Err(too_late("finalization")),
        _ => {}
    }
    let wrong = || Error::new(MPI_T_ERR_INVALID, format!("{}{}={value:?}: expected {}", params::PREFIX, row.name(), row.kind()));
    let new = match (row.kind(), value) {
        (Kind::Switch, Datum::Int(0 | 1)) => Value::Switch(*value == Datum::Int(1)),
        (Kind::Choice(words), Datum::Int(n)) => Value::Text(usize::try_from(*n).ok().and_then(|n| words.get(n)).copied().ok_or_else(wrong)?),
        (Kind::Number { .. }, Datum::Unsigned(number)) => Value::Number(usize::try_from(*number).map_err(|_| wrong())?),
        // What is there already is kept; another text stays for good, as those of the environment do.
        (Kind::Text, Datum::Text(text)) => match row.read() {
            Ok((Value::Text(old), _)) if old == text => Value::Text(old),
            _ => Value::Text(Box::leak(text.clone().into_boxed_str())),
        },
        _ => return Err(wrong()),
    };
    row.set(new).map_err(|_| wrong())?;
    take_up()
}

/// Gives the running engine what it can take up.
fn take_up() -> Result<()> {
    let Ok(world) = world::get() else { return Ok(()) };
    let number = |param: &'static params::Param<usize>| param.value().map_err(|e| Error::new(MPI_T_ERR_NOT_ACCESSIBLE, e.to_string()));
    // Where nobody has set them, measured costs decide.
    let set = |param: &'static params::Param<usize>| number(param).map(|value| param.is_set().is_ok_and(|set| set).then_some(value));
    let (eager, cooperative) = (set(&params::EAGER_MAX)?, set(&params::COOPERATIVE_MIN)?);
    let (spin_us, yield_us) = (number(&params::SPIN)?, number(&params::YIELD)?);
    for cell in world.engines.all() {
        cell.lock().retune(eager, cooperative.map(|bytes| bytes as u64), spin_us as u64 * 1000, yield_us as u64 * 1000);
    }
    Ok(())
}

fn datum(row: &Row, value: Value) -> Result<Datum> {
    Ok(match (row.kind(), value) {
        (_, Value::Switch(on)) => Datum::Int(on.into()),
        (_, Value::Number(number)) => Datum::Unsigned(number as u64),
        (Kind::Choice(words), Value::Text(word)) => {
            let place = words.iter().position(|known| *known == word);
            Datum::Int(place.ok_or_else(|| Error::new(MPI_T_ERR_NOT_ACCESSIBLE, format!("{} has no known value", row.name())))? as i32)
        }
        (_, Value::Text(text)) => Datum::Text(text.into()),
    })
}

/// Names of the variables, in order.
pub(super) fn names() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| params::table::ALL.iter().map(|row| row.name().to_string()).collect())
}
