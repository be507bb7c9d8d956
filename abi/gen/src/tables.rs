//! The tables, parsed once into types. A row that does not parse is a panic: the tables are part of the source.

use crate::ctype::{self, Param};

const FUNCTIONS_TSV: &str = include_str!("../../functions.tsv");
const CONSTANTS_TSV: &str = include_str!("../../constants.tsv");
const TYPES_TSV: &str = include_str!("../../types.tsv");
const REMOVED_TSV: &str = include_str!("../../removed.tsv");

/// Chapters of MPI-5.0 that define functions, with their titles.
pub const CHAPTERS: [(u8, &str); 16] = [
    (3, "Point-to-Point Communication"),
    (4, "Partitioned Point-to-Point Communication"),
    (5, "Datatypes"),
    (6, "Collective Communication"),
    (7, "Groups, Contexts, Communicators, and Caching"),
    (8, "Virtual Topologies for MPI Processes"),
    (9, "MPI Environmental Management"),
    (10, "The Info Object"),
    (11, "Process Initialization, Creation, and Management"),
    (12, "One-Sided Communications"),
    (13, "External Interfaces"),
    (14, "I/O"),
    (15, "Tool Support"),
    (16, "Deprecated Interfaces"),
    (19, "Language Bindings"),
    (20, "Application Binary Interface"),
];

/// The chapter that lists what the standard has removed ("Removed Interfaces").
pub const REMOVED_CHAPTER: u8 = 17;

/// A C function of the ABI.
#[derive(Debug, Clone)]
pub struct Function {
    /// C name, such as `MPI_Send`.
    pub name: String,
    /// Chapter of MPI-5.0 that defines it.
    pub chapter: u8,
    /// C return type.
    pub returns: String,
    /// C parameter list as written in a prototype.
    pub parameters: String,
}

impl Function {
    /// The parameters, parsed. A trailing `...` is left out: a definition with the fixed parameters is call-compatible.
    pub fn params(&self) -> Vec<Param> {
        ctype::parse_params(&self.parameters)
    }
}

/// A constant of the ABI.
#[derive(Debug, Clone)]
pub struct Constant {
    pub name: String,
    /// C type: `int`, a handle, a pointer for an address constant, or one of the two enumerated types.
    pub c_type: String,
    /// A number (decimal or hexadecimal, maybe negative) or the name of an earlier constant.
    pub value: String,
}

/// A typedef of the ABI.
#[derive(Debug, Clone)]
pub struct Type {
    pub name: String,
    pub kind: TypeKind,
}

/// What a typedef stands for.
#[derive(Debug, Clone)]
pub enum TypeKind {
    /// An integer of the named C type.
    Integer(String),
    /// A pointer to the named incomplete struct.
    Handle(String),
    /// A function type: return type and parameter list.
    Callback { returns: String, parameters: String },
    /// Another name of the named typedef.
    Alias(String),
    /// A C enumeration; its members are the constants of this type.
    Enum,
}

/// A C function that the standard has removed and that old programs still link against. It is not part of the ABI.
#[derive(Debug, Clone)]
pub struct Removed {
    pub function: Function,
    /// The function that programs should call instead.
    pub instead: String,
}

/// All tables.
#[derive(Debug, Clone)]
pub struct Tables {
    pub functions: Vec<Function>,
    pub removed: Vec<Removed>,
    pub constants: Vec<Constant>,
    pub types: Vec<Type>,
}

impl Tables {
    /// Parses the tables compiled into this crate.
    ///
    /// # Panics
    /// When a row does not have its columns or holds an unknown kind.
    pub fn load() -> Tables {
        let functions = rows::<4>(FUNCTIONS_TSV, ["name", "chapter", "returns", "parameters"])
            .map(|[name, chapter, returns, parameters]| Function {
                name: name.into(),
                chapter: chapter.parse().expect("chapter is a number"),
                returns: returns.into(),
                parameters: parameters.into(),
            })
            .collect();
        let removed = rows::<4>(REMOVED_TSV, ["name", "instead", "returns", "parameters"])
            .map(|[name, instead, returns, parameters]| Removed {
                function: Function { name: name.into(), chapter: REMOVED_CHAPTER, returns: returns.into(), parameters: parameters.into() },
                instead: instead.into(),
            })
            .collect();
        let constants = rows::<3>(CONSTANTS_TSV, ["name", "c_type", "value"])
            .map(|[name, c_type, value]| Constant { name: name.into(), c_type: c_type.into(), value: value.into() })
            .collect();
        let types = rows::<3>(TYPES_TSV, ["name", "kind", "definition"])
            .map(|[name, kind, definition]| Type { name: name.into(), kind: parse_kind(kind, definition) })
            .collect();
        Tables { functions, removed, constants, types }
    }

    /// Every function that is exported: those of the ABI, then those that the standard has removed.
    pub fn exported(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().chain(self.removed.iter().map(|removed| &removed.function))
    }

    /// The typedef of this name, if there is one.
    pub fn type_named(&self, name: &str) -> Option<&Type> {
        self.types.iter().find(|t| t.name == name)
    }

    /// Whether `name` is a handle type.
    pub fn is_handle(&self, name: &str) -> bool {
        matches!(self.type_named(name), Some(Type { kind: TypeKind::Handle(_), .. }))
    }

    /// The functions of one chapter, in the order of the table.
    pub fn in_chapter(&self, chapter: u8) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(move |f| f.chapter == chapter)
    }
}

fn parse_kind(kind: &str, definition: &str) -> TypeKind {
    match kind {
        "integer" => TypeKind::Integer(definition.into()),
        "handle" => {
            let tag = definition.strip_prefix("struct ").and_then(|d| d.strip_suffix('*'));
            TypeKind::Handle(tag.expect("a handle is `struct TAG*`").into())
        }
        "callback" => {
            let (returns, rest) = definition.split_once(" (").expect("a callback is `RETURN (PARAMETERS)`");
            let parameters = rest.strip_suffix(')').expect("a callback ends in `)`");
            TypeKind::Callback { returns: returns.into(), parameters: parameters.into() }
        }
        "alias" => TypeKind::Alias(definition.into()),
        "enum" => TypeKind::Enum,
        _ => panic!("unknown kind of type: {kind}"),
    }
}

fn rows<const N: usize>(text: &'static str, columns: [&str; N]) -> impl Iterator<Item = [&'static str; N]> {
    let split = |line: &'static str| -> [&'static str; N] {
        let cells: Vec<&str> = line.split('\t').collect();
        cells.try_into().unwrap_or_else(|_| panic!("expected {N} columns: {line}"))
    };
    let mut lines = text.lines();
    assert_eq!(split(lines.next().expect("a table has a head")), columns);
    lines.map(split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_tables_are_whole() {
        let tables = Tables::load();
        assert_eq!(tables.functions.len(), 664);
        assert_eq!(tables.constants.len(), 365);
        assert_eq!(tables.types.len(), 49);
        let names: HashSet<_> = tables.functions.iter().map(|f| &f.name).collect();
        assert_eq!(names.len(), 664);
        for removed in &tables.removed {
            assert!(names.contains(&removed.instead) && !names.contains(&removed.function.name), "{}", removed.function.name);
        }
        for function in &tables.functions {
            assert!(CHAPTERS.iter().any(|(n, _)| *n == function.chapter), "{}", function.name);
        }
    }

    #[test]
    fn predefined_handles_lie_below_the_first_free_value() {
        let tables = Tables::load();
        let mut seen = HashSet::new();
        for constant in tables.constants.iter().filter(|c| tables.is_handle(&c.c_type) && !c.name.starts_with("MPI_T_")) {
            let Some(hex) = constant.value.strip_prefix("0x") else { continue };
            let value = u32::from_str_radix(hex, 16).unwrap();
            assert!((0x20..0x400).contains(&value), "{}", constant.name);
            assert!(seen.insert(value), "{} repeats a value", constant.name);
        }
    }
}
