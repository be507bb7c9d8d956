//! Rust source of the handle types, callback types and constants, included by the `mpi` crate.

use crate::ctype::{by_value, parse_params, rust_name, rust_type};
use crate::tables::{Constant, Tables, TypeKind};
use std::fmt::Write;

/// Handle newtypes, callback types and the enumerated types.
pub fn handles(tables: &Tables) -> String {
    let mut out = String::new();
    for ty in &tables.types {
        let name = rust_name(&ty.name);
        let _ = match &ty.kind {
            TypeKind::Handle(_) => write!(
                out,
                "/// `{}`: the value of a C handle, a predefined constant or one given out by the library.\n\
                 #[repr(transparent)]\n#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]\npub struct {name}(pub usize);\n\n",
                ty.name
            ),
            TypeKind::Callback { returns, parameters } => {
                let types: Vec<String> = parse_params(parameters).iter().map(|p| rust_type(tables, p)).collect();
                let variadic = if parameters.ends_with("...") { ", ..." } else { "" };
                let returns = if returns == "void" { "" } else { " -> c_int" };
                write!(out, "/// `{}`.\npub type {name} = unsafe extern \"C\" fn({}{variadic}){returns};\n\n", ty.name, types.join(", "))
            }
            TypeKind::Enum => write!(out, "/// `{}`, a C enumeration; any value may come from C.\npub type {name} = c_int;\n\n", ty.name),
            TypeKind::Integer(_) | TypeKind::Alias(_) => Ok(()),
        };
    }
    out
}

/// Constants and the table of error classes.
///
/// `int` constants are `i32`, handles are their newtypes, lengths of strings (`MPI_MAX_*`) and address constants
/// (`MPI_IN_PLACE`, `MPI_COMM_DUP_FN`, …) are `usize`.
pub fn constants(tables: &Tables) -> String {
    let mut out = String::new();
    for constant in &tables.constants {
        let (ty, value) = typed(tables, constant);
        let _ = writeln!(out, "pub const {}: {ty} = {value};", constant.name);
    }
    let classes: Vec<&Constant> = tables.constants.iter().filter(|c| is_error_class(&c.name)).collect();
    let _ = write!(
        out,
        "\n/// Every predefined error class with its name, in ascending order of value.\npub const ERROR_CLASSES: [(i32, &str); {}] = [\n",
        classes.len()
    );
    for class in classes {
        let _ = writeln!(out, "    ({}, \"{}\"),", class.value, class.name);
    }
    out.push_str("];\n");
    let types: Vec<&Constant> = tables.constants.iter().filter(|c| c.c_type == "MPI_Datatype" && c.value.starts_with("0x")).collect();
    let _ = write!(
        out,
        "\n/// Every predefined datatype handle with its name, in ascending order of value.\npub const DATATYPE_NAMES: [(Datatype, &str); {}] = [\n",
        types.len()
    );
    for constant in types {
        let _ = writeln!(out, "    ({0}, \"{0}\"),", constant.name);
    }
    out.push_str("];\n");
    out
}

/// Whether the constant is an error class that `MPI_Error_class` may give.
pub fn is_error_class(name: &str) -> bool {
    (name == "MPI_SUCCESS" || name.starts_with("MPI_ERR_") || name.starts_with("MPI_T_ERR_")) && name != "MPI_ERR_LASTCODE" && name != "MPI_ERRCODES_IGNORE"
}

fn typed(tables: &Tables, constant: &Constant) -> (String, String) {
    let value = constant.value.clone();
    let c_type = constant.c_type.as_str();
    if tables.is_handle(c_type) {
        let name = rust_name(c_type);
        let is_alias = value.starts_with("MPI_");
        return (name.clone(), if is_alias { value } else { format!("{name}({value})") });
    }
    match c_type {
        "int" if constant.name.starts_with("MPI_MAX_") || constant.name == "MPI_BSEND_OVERHEAD" => ("usize".into(), value),
        pointer if pointer.ends_with('*') => ("usize".into(), value),
        scalar => {
            let ty = rust_type(tables, &by_value(scalar));
            (if matches!(tables.type_named(scalar).map(|t| &t.kind), None | Some(TypeKind::Enum)) { "i32".into() } else { ty }, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_the_types_that_callers_need() {
        let text = constants(&Tables::load());
        for line in [
            "pub const MPI_ERR_RANK: i32 = 6;",
            "pub const MPI_ANY_SOURCE: i32 = -1;",
            "pub const MPI_COMM_WORLD: Comm = Comm(0x00000101);",
            "pub const MPI_LONG_LONG_INT: Datatype = MPI_LONG_LONG;",
            "pub const MPI_IN_PLACE: usize = 1;",
            "pub const MPI_COMM_DUP_FN: usize = 1;",
            "pub const MPI_MAX_ERROR_STRING: usize = 512;",
            "pub const MPI_DISPLACEMENT_CURRENT: i64 = -1;",
        ] {
            assert!(text.contains(line), "{line}");
        }
    }
}
