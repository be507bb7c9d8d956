//! One row of the table: its type, how its value is read, and where it came from.

use crate::{PREFIX, file};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::RwLock;

/// One clear line: which variable or line of which file, its value, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// What a number counts. Values may carry a suffix: bytes `K`, `M`, `G` (powers of 1024, also `KiB`, …), times `ns`,
/// `us`, `ms`, `s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Count,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Percent,
}

/// The type of a row and the values it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `1`, `on`, `yes`, `true` or `0`, `off`, `no`, `false`.
    Switch,
    /// A whole number within a range.
    Number { unit: Unit, range: RangeInclusive<usize> },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Switch(bool),
    Number(usize),
    Text(&'static str),
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    Environment,
    /// File and line.
    File(PathBuf, usize),
    /// The program itself, while it runs.
    Program,
}

/// A row without its Rust type, as the table lists it.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    kind: Kind,
    default: Value,
    meaning: &'static str,
    read: RwLock<Option<Result<(Value, Source), Error>>>,
}

/// A row whose value has the type `T`: `bool`, `usize` or `&'static str`.
#[derive(Debug)]
pub struct Param<T> {
    row: Row,
    typed: PhantomData<fn() -> T>,
}

/// The Rust types of values.
pub trait Typed: Copy {
    /// `None` where the kind differs.
    fn from_value(value: Value) -> Option<Self>;
}

impl Typed for bool {
    fn from_value(value: Value) -> Option<bool> {
        if let Value::Switch(value) = value { Some(value) } else { None }
    }
}

impl Typed for usize {
    fn from_value(value: Value) -> Option<usize> {
        if let Value::Number(value) = value { Some(value) } else { None }
    }
}

impl Typed for &'static str {
    fn from_value(value: Value) -> Option<&'static str> {
        if let Value::Text(value) = value { Some(value) } else { None }
    }
}

impl Row {
    /// Name without prefix, upper case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Type and allowed values.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The value where nothing else is set.
    pub fn default(&self) -> Value {
        self.default
    }

    /// What it is for, one or more sentences.
    pub fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// Value and source, read at the first call and kept until [`Row::set`].
    ///
    /// Errors: the value does not parse, or the configuration file does not.
    pub fn read(&self) -> Result<(Value, Source), Error> {
        let read = || {
            let variable = std::env::var_os(format!("{PREFIX}{}", self.name));
            let variable = variable.map(|value| value.to_string_lossy().into_owned());
            self.resolve(variable, file::current()?)
        };
        if let Some(known) = &*self.read.read().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return known.clone();
        }
        let fresh = read();
        self.read.write().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(fresh).clone()
    }

    /// Gives the row another value from now on. Whoever has read it already keeps the old one.
    ///
    /// Errors: the row does not allow the value.
    pub fn set(&self, value: Value) -> Result<(), Error> {
        if !self.kind.allows(value) {
            return Err(Error(format!("{PREFIX}{}={value}: expected {}", self.name, self.kind)));
        }
        *self.read.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Ok((value, Source::Program)));
        Ok(())
    }

    pub(crate) fn resolve(&self, variable: Option<String>, file: &file::File) -> Result<(Value, Source), Error> {
        let (text, source) = match (variable, file.find(self.name)) {
            (Some(text), _) => (text, Source::Environment),
            (None, Some(entry)) => (entry.value.clone(), Source::File(file.path.clone(), entry.line)),
            (None, None) => return Ok((self.default, Source::Default)),
        };
        match self.kind.parse(&text) {
            Some(value) => Ok((value, source)),
            None => {
                let place = if let Source::File(path, line) = source {
                    format!("{}:{line}: {}", path.display(), self.name.to_lowercase())
                } else {
                    format!("{PREFIX}{}", self.name)
                };
                Err(Error(format!("{place}={text:?}: expected {}", self.kind)))
            }
        }
    }
}

impl<T: Typed> Param<T> {
    /// The value, read at the first call and kept.
    ///
    /// Errors: it does not parse, or the configuration file does not.
    pub fn value(&self) -> Result<T, Error> {
        let (value, _) = self.row.read()?;
        T::from_value(value).ok_or_else(|| Error(format!("{}{} has another type", PREFIX, self.row.name)))
    }

    /// Whether somebody has set it: the user, or the program.
    ///
    /// Errors: as [`Param::value`].
    pub fn is_set(&self) -> Result<bool, Error> {
        Ok(self.row.read()?.1 != Source::Default)
    }

    /// The row without its type.
    pub const fn row(&self) -> &Row {
        &self.row
    }

    /// For [`table!`](crate::table).
    pub(crate) const fn new(name: &'static str, kind: Kind, default: Value, meaning: &'static str) -> Param<T> {
        Param { row: Row { name, kind, default, meaning, read: RwLock::new(None) }, typed: PhantomData }
    }
}

impl Kind {
    /// Whether a row of this kind may have `value`.
    pub fn allows(&self, value: Value) -> bool {
        match (self, value) {
            (Kind::Switch, Value::Switch(_)) | (Kind::Text, Value::Text(_)) => true,
            (Kind::Number { range, .. }, Value::Number(number)) => range.contains(&number),
            (Kind::Choice(words), Value::Text(word)) => words.contains(&word),
            _ => false,
        }
    }

    /// The value that `text` means, blanks around it aside; `None` if it means none.
    pub(crate) fn parse(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        match self {
            Kind::Switch => match text.to_ascii_lowercase().as_str() {
                "1" | "on" | "yes" | "true" => Some(Value::Switch(true)),
                "0" | "off" | "no" | "false" => Some(Value::Switch(false)),
                _ => None,
            },
            Kind::Number { unit, range } => {
                let digits = text.bytes().take_while(u8::is_ascii_digit).count();
                let (number, suffix) = text.split_at(digits);
                let value = unit.convert(number.parse().ok()?, suffix.trim_start())?;
                range.contains(&value).then_some(Value::Number(value))
            }
            Kind::Choice(words) => words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| Value::Text(word)),
            // Read once per process and row, so what is leaked is bounded.
            Kind::Text => Some(Value::Text(Box::leak(text.to_owned().into_boxed_str()))),
        }
    }
}

impl Unit {
    /// `number` with `suffix` in this unit; `None` past the largest number or where a time is no whole number of units.
    fn convert(self, number: usize, suffix: &str) -> Option<usize> {
        if suffix.is_empty() {
            return Some(number);
        }
        if self == Unit::Bytes {
            let shift = match suffix.to_ascii_lowercase().as_str() {
                "b" => 0,
                "k" | "kib" => 10,
                "m" | "mib" => 20,
                "g" | "gib" => 30,
                _ => return None,
            };
            return number.checked_mul(1 << shift);
        }
        if self == Unit::Percent {
            return (suffix == "%").then_some(number);
        }
        let nanoseconds = |suffix: &str| match suffix {
            "ns" => Some(1),
            "us" => Some(1_000),
            "ms" => Some(1_000_000),
            "s" => Some(1_000_000_000),
            _ => None,
        };
        let total = number.checked_mul(nanoseconds(suffix)?)?;
        let own = nanoseconds(self.suffix())?;
        total.is_multiple_of(own).then_some(total / own)
    }

    /// As written after a number: `bytes`, `ms`, …; empty for a count.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Count => "",
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Percent => "%",
        }
    }
}

/// What is expected: `a number of bytes from 0 to 65536`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Switch => f.write_str("on or off"),
            Kind::Number { unit: Unit::Count, range } => {
                write!(f, "a whole number from {} to {}", range.start(), range.end())
            }
            Kind::Number { unit, range } => {
                write!(f, "a whole number of {} from {} to {}", unit.suffix(), range.start(), range.end())
            }
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Kind::Text => f.write_str("text"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Environment => f.write_str("environment"),
            Source::File(path, line) => write!(f, "{}:{line}", path.display()),
            Source::Program => f.write_str("the program"),
        }
    }
}

/// Declares the rows of [`table`](crate::table) as statics and lists them in `ALL`.
#[macro_export]
#[doc(hidden)]
macro_rules! table {
    ($($(#[doc = $meaning:literal])+ $name:ident = $kind:ident($($arguments:tt)*);)*) => {
        $($(#[doc = $meaning])+ pub static $name: $crate::table!(@type $kind) =
            $crate::table!(@new $kind, stringify!($name), concat!($($meaning),+), $($arguments)*);)*

        /// Every row, in the order of this file.
        pub static ALL: &[&$crate::Row] = &[$($name.row()),*];
    };
    (@type switch) => { $crate::Param<bool> };
    (@type number) => { $crate::Param<usize> };
    (@type choice) => { $crate::Param<&'static str> };
    (@type text) => { $crate::Param<&'static str> };
    (@new switch, $name:expr, $meaning:expr, $default:expr) => {
        $crate::Param::new($name, $crate::Kind::Switch, $crate::Value::Switch($default), $meaning)
    };
    (@new number, $name:expr, $meaning:expr, $unit:ident, $default:expr, $range:expr) => {
        $crate::Param::new(
            $name,
            $crate::Kind::Number { unit: $crate::Unit::$unit, range: $range },
            $crate::Value::Number($default),
            $meaning,
        )
    };
    (@new choice, $name:expr, $meaning:expr, $default:expr, $words:expr) => {
        $crate::Param::new($name, $crate::Kind::Choice(&$words), $crate::Value::Text($default), $meaning)
    };
    (@new text, $name:expr, $meaning:expr, $default:expr) => {
        $crate::Param::new($name, $crate::Kind::Text, $crate::Value::Text($default), $meaning)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::File;
    use proptest::prelude::*;

    fn number(unit: Unit, text: &str) -> Option<usize> {
        match (Kind::Number { unit, range: 0..=usize::MAX }).parse(text) {
            Some(Value::Number(number)) => Some(number),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_take_the_suffixes_of_their_unit() {
        for (text, bytes) in [("0", 0), (" 17 ", 17), ("4K", 4096), ("4 KiB", 4096), ("2m", 2 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(number(Unit::Bytes, text), Some(bytes), "{text}");
        }
        assert_eq!(number(Unit::Milliseconds, "2s"), Some(2000));
        assert_eq!(number(Unit::Milliseconds, "5000us"), Some(5));
        assert_eq!(number(Unit::Nanoseconds, "3us"), Some(3000));
        assert_eq!(number(Unit::Percent, "30%"), Some(30));
        for text in ["", "K", "-1", "+1", "1.5", "0x10", "4T", "4 s", "99999999999999999999", "99999999999999999G"] {
            assert_eq!(number(Unit::Bytes, text), None, "{text}");
        }
        assert_eq!(number(Unit::Milliseconds, "5us"), None);
        assert_eq!(number(Unit::Count, "5K"), None);
    }

    #[test]
    fn switches_and_choices() {
        assert_eq!(Kind::Switch.parse("On"), Some(Value::Switch(true)));
        assert_eq!(Kind::Switch.parse("0"), Some(Value::Switch(false)));
        assert_eq!(Kind::Switch.parse(""), None);
        assert_eq!(Kind::Switch.parse("2"), None);
        let choice = Kind::Choice(&["auto", "none"]);
        assert_eq!(choice.parse("None"), Some(Value::Text("none")));
        assert_eq!(choice.parse("non"), None);
    }

    #[test]
    fn environment_wins_over_file_wins_over_default() {
        let row = Param::<usize>::new("DEPTH", Kind::Number { unit: Unit::Count, range: 1..=8 }, Value::Number(4), "");
        let row = row.row();
        let empty = File::default();
        let file = File::parse("conf".into(), "# comment\n\ndepth = 5\n", &["DEPTH"]).unwrap();
        assert_eq!(row.resolve(None, &empty), Ok((Value::Number(4), Source::Default)));
        assert_eq!(row.resolve(None, &file), Ok((Value::Number(5), Source::File("conf".into(), 3))));
        assert_eq!(row.resolve(Some("6".into()), &file), Ok((Value::Number(6), Source::Environment)));
    }

    #[test]
    fn a_wrong_value_is_refused_by_name_and_never_replaced() {
        let row = Param::<usize>::new("DEPTH", Kind::Number { unit: Unit::Bytes, range: 1..=8 }, Value::Number(4), "");
        let file = File::parse("conf".into(), "depth = 9", &["DEPTH"]).unwrap();
        assert_eq!(
            row.row().resolve(Some("banana".into()), &file).unwrap_err().to_string(),
            "WHIMBREL_DEPTH=\"banana\": expected a whole number of bytes from 1 to 8"
        );
        assert_eq!(row.row().resolve(None, &file).unwrap_err().to_string(), "conf:1: depth=\"9\": expected a whole number of bytes from 1 to 8");
    }

    #[test]
    fn the_program_may_set_what_the_row_allows() {
        let row = Param::<usize>::new("DEPTH", Kind::Number { unit: Unit::Count, range: 1..=8 }, Value::Number(4), "");
        assert_eq!(row.value(), Ok(4));
        row.row().set(Value::Number(7)).unwrap();
        assert_eq!(row.row().read(), Ok((Value::Number(7), Source::Program)));
        let refused = row.row().set(Value::Number(9)).unwrap_err().to_string();
        assert_eq!(refused, "WHIMBREL_DEPTH=9: expected a whole number from 1 to 8");
        assert!(row.row().set(Value::Switch(true)).is_err());
        assert_eq!(row.value(), Ok(7));
        let choice = Kind::Choice(&["auto", "none"]);
        assert!(choice.allows(Value::Text("none")) && !choice.allows(Value::Text("some")));
    }

    #[test]
    fn every_default_is_a_value_of_its_row() {
        for row in crate::table::ALL {
            let default = row.default();
            assert_eq!(row.kind().parse(&default.to_string()), Some(default), "{}", row.name());
            assert!(!row.meaning().trim().is_empty(), "{}", row.name());
            assert!(row.name().bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_'));
            assert!(crate::OTHERS.iter().all(|other| &other[PREFIX.len()..] != row.name()));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_in_range_or_refused(text in ".{0,30}") {
            let kind = Kind::Number { unit: Unit::Bytes, range: 3..=1 << 40 };
            if let Some(Value::Number(number)) = kind.parse(&text) {
                prop_assert!((3..=1 << 40).contains(&number));
            }
        }
    }
}
