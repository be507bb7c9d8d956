//! `include/mpi.h`.

use crate::tables::{CHAPTERS, Constant, Function, Tables, TypeKind};
use std::fmt::Write;

/// Groups of constants: a comment and the test that tells whether a constant belongs. The first group that fits wins.
type Group = (&'static str, fn(&Constant) -> bool);

const GROUPS: &[Group] = &[
    ("Versions of the standard and of its ABI", |c| c.name.ends_with("_VERSION") || c.name.ends_with("_SUBVERSION")),
    ("Error classes (9.4)", |c| crate::rust::is_error_class(&c.name) || c.name == "MPI_ERR_LASTCODE"),
    ("Wildcards and special ranks", |c| ["MPI_ANY_SOURCE", "MPI_ANY_TAG", "MPI_PROC_NULL", "MPI_ROOT", "MPI_UNDEFINED"].contains(&c.name.as_str())),
    ("Lengths of strings and buffers", |c| c.name.starts_with("MPI_MAX_") || c.name == "MPI_BSEND_OVERHEAD"),
    ("Null handles", |c| c.name.ends_with("_NULL") && c.c_type.starts_with("MPI_") && !c.c_type.ends_with('*')),
    ("Predefined communicators, groups, messages and info objects", |c| ["MPI_Comm", "MPI_Group", "MPI_Message", "MPI_Info"].contains(&c.c_type.as_str())),
    ("Predefined error handlers", |c| c.c_type == "MPI_Errhandler"),
    ("Predefined reduction operations (6.9.2)", |c| c.c_type == "MPI_Op"),
    ("Predefined datatypes (3.2.2)", |c| c.c_type == "MPI_Datatype"),
    ("Address constants", |c| c.c_type.ends_with('*') && !c.c_type.ends_with("_function*") && !c.c_type.ends_with("_function_c*")),
    ("Predefined callbacks; compared, never called", |c| c.c_type.contains("_function")),
    ("Fortran status", |c| c.name.starts_with("MPI_F_")),
    ("Threads", |c| c.name.starts_with("MPI_THREAD_")),
    ("Results of comparison", |c| ["MPI_IDENT", "MPI_CONGRUENT", "MPI_SIMILAR", "MPI_UNEQUAL"].contains(&c.name.as_str())),
    ("Datatypes: order, distribution, combiners, classes", |c| {
        ["MPI_ORDER_", "MPI_DISTRIBUTE_", "MPI_COMBINER_", "MPI_TYPECLASS_", "MPIX_TYPECLASS_"].iter().any(|p| c.name.starts_with(p))
    }),
    ("Kinds of communicator", |c| ["MPI_CART", "MPI_GRAPH", "MPI_DIST_GRAPH"].contains(&c.name.as_str()) || c.name.starts_with("MPI_COMM_TYPE_")),
    ("Attributes", |c| {
        let names = ["MPI_KEYVAL_INVALID", "MPI_TAG_UB", "MPI_IO", "MPI_HOST", "MPI_WTIME_IS_GLOBAL", "MPI_APPNUM", "MPI_LASTUSEDCODE"];
        names.contains(&c.name.as_str())
            || ["MPI_UNIVERSE_SIZE", "MPI_WIN_BASE", "MPI_WIN_DISP_UNIT", "MPI_WIN_SIZE"].contains(&c.name.as_str())
            || ["MPI_WIN_CREATE_FLAVOR", "MPI_WIN_MODEL"].contains(&c.name.as_str())
    }),
    ("One-sided communication", |c| c.name.starts_with("MPI_WIN_") || c.name.starts_with("MPI_LOCK_")),
    ("Modes of files and of one-sided synchronization", |c| c.name.starts_with("MPI_MODE_")),
    ("Files", |c| c.name.starts_with("MPI_SEEK_") || c.name == "MPI_DISPLACEMENT_CURRENT"),
    ("Tool information interface", |c| c.name.starts_with("MPI_T_")),
];

/// The complete header.
///
/// # Panics
/// When a constant belongs to no group.
pub fn header(tables: &Tables) -> String {
    let mut out = String::from(HEAD);
    types(&mut out, tables);
    constants(&mut out, tables);
    callbacks(&mut out, tables);
    out.push_str("\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    for prefix in ["", "P"] {
        if prefix == "P" {
            out.push_str("\n/*\n * The same functions under their profiling names.\n */\n");
        }
        for (chapter, title) in CHAPTERS {
            let _ = write!(out, "\n/* {chapter} {title} */\n");
            for function in tables.in_chapter(chapter) {
                prototype(&mut out, prefix, function);
            }
        }
    }
    removed(&mut out, tables);
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n\n#endif /* MPI_H_ABI */\n");
    out
}

/// What the standard has removed, for programs written before: outside of the ABI, and each use draws a warning.
fn removed(out: &mut String, tables: &Tables) {
    out.push_str(REMOVED_HEAD);
    for prefix in ["", "P"] {
        for removed in &tables.removed {
            let (function, instead) = (&removed.function, &removed.instead);
            let _ = writeln!(out, "MPI_REMOVED(\"removed from MPI: use {prefix}{instead}\")");
            prototype(out, prefix, function);
        }
    }
    out.push_str("#endif /* MPI_OMIT_REMOVED */\n");
}

/// `MPI_LB` and `MPI_UB` have values that the ABI leaves to libraries. Their combiners are never given out, only compared.
const REMOVED_HEAD: &str = "
/*
 * Removed from the standard, for old programs (17). Not part of the ABI: other libraries may lack them.
 * MPI_OMIT_REMOVED, defined before this header, leaves them out.
 */
#ifndef MPI_OMIT_REMOVED
#if defined(__GNUC__)
#define MPI_REMOVED(text) __attribute__((__deprecated__(text)))
#else
#define MPI_REMOVED(text)
#endif
typedef MPI_Comm_errhandler_function MPI_Handler_function;
/* Markers of the bounds in MPI_Type_struct; MPI_Type_create_resized takes their place */
#define MPI_LB ((MPI_Datatype) 0x00000400)
#define MPI_UB ((MPI_Datatype) 0x00000401)
/* No datatype has these combiners */
#define MPI_COMBINER_HVECTOR_INTEGER  1105
#define MPI_COMBINER_HINDEXED_INTEGER 1107
#define MPI_COMBINER_STRUCT_INTEGER   1110
";

const HEAD: &str = "\
/*
 * mpi.h: the C interface of MPI-5.0 with the standard's application binary interface.
 * Generated from abi/functions.tsv, abi/constants.tsv and abi/types.tsv: change those, not this file.
 */
#ifndef MPI_H_ABI
#define MPI_H_ABI

#include <stdint.h>
";

fn types(out: &mut String, tables: &Tables) {
    out.push_str("\n/* Integers (2.5) */\n");
    for ty in &tables.types {
        if let TypeKind::Integer(c) = &ty.kind {
            let _ = writeln!(out, "typedef {c} {};", ty.name);
        }
    }
    out.push_str("\n/* Handles: pointers to structs that are never completed */\n");
    for ty in &tables.types {
        if let TypeKind::Handle(tag) = &ty.kind {
            let _ = writeln!(out, "typedef struct {tag} *{};", ty.name);
        }
    }
    out.push_str(
        "\n/* The result of a receive (3.2.5): 32 bytes, of which the first three fields are the caller's to read */\n\
         typedef struct MPI_Status {\n    int MPI_SOURCE;\n    int MPI_TAG;\n    int MPI_ERROR;\n    int MPI_internal[5];\n} MPI_Status;\n",
    );
    for ty in &tables.types {
        if matches!(ty.kind, TypeKind::Enum) {
            let members: Vec<String> = tables.constants.iter().filter(|c| c.c_type == ty.name).map(|c| format!("    {} = {}", c.name, c.value)).collect();
            let _ = write!(out, "\ntypedef enum {0} {{\n{1}\n}} {0};\n", ty.name, members.join(",\n"));
        }
    }
}

fn constants(out: &mut String, tables: &Tables) {
    let is_enum = |c: &Constant| matches!(tables.type_named(&c.c_type), Some(t) if matches!(t.kind, TypeKind::Enum));
    let mut left: Vec<&Constant> = tables.constants.iter().filter(|c| !is_enum(c)).collect();
    for (comment, belongs) in GROUPS {
        let (here, rest): (Vec<&Constant>, Vec<&Constant>) = left.into_iter().partition(|c| belongs(c));
        left = rest;
        let _ = write!(out, "\n/* {comment} */\n");
        let width = here.iter().map(|c| c.name.len()).max().unwrap_or(0);
        for constant in here {
            let _ = writeln!(out, "#define {:width$} {}", constant.name, expression(constant));
        }
    }
    assert!(left.is_empty(), "constants without a group: {left:?}");
}

fn expression(constant: &Constant) -> String {
    let value = &constant.value;
    match constant.c_type.as_str() {
        _ if value.starts_with("MPI_") => value.clone(),
        "int" if value.starts_with('-') => format!("({value})"),
        "int" => value.clone(),
        c_type => format!("(({}) {value})", c_type.replace('*', " *").replace("* *", "**").replace("* *", "**")),
    }
}

fn callbacks(out: &mut String, tables: &Tables) {
    out.push_str("\n/* Types of the functions that a program gives to the library */\n");
    for ty in &tables.types {
        let _ = match &ty.kind {
            TypeKind::Callback { returns, parameters } => wrapped(out, &format!("typedef {returns} ({})(", ty.name), parameters),
            TypeKind::Alias(target) => writeln!(out, "typedef {target} {};", ty.name),
            _ => Ok(()),
        };
    }
}

fn prototype(out: &mut String, prefix: &str, function: &Function) {
    let _ = wrapped(out, &format!("{} {prefix}{}(", function.returns, function.name), &function.parameters);
}

/// Writes `start`, the parameters and `);`, broken into lines of at most 120 columns.
fn wrapped(out: &mut String, start: &str, parameters: &str) -> std::fmt::Result {
    const COLUMNS: usize = 120;
    let mut line = start.to_string();
    let mut parts = parameters.split(", ").peekable();
    while let Some(part) = parts.next() {
        let end = if parts.peek().is_some() { "," } else { ");" };
        if line.len() + part.len() + end.len() + 1 > COLUMNS {
            writeln!(out, "{}", line.trim_end())?;
            line = "    ".into();
        }
        line.push_str(part);
        line.push_str(end);
        line.push(' ');
    }
    writeln!(out, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_keep_their_types() {
        let text = header(&Tables::load());
        let define = |name: &str| {
            let line = text.lines().find(|l| l.starts_with("#define ") && l.split_whitespace().nth(1) == Some(name));
            line.unwrap_or_else(|| panic!("{name} is missing")).split_whitespace().skip(2).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(define("MPI_COMM_WORLD"), "((MPI_Comm) 0x00000101)");
        assert_eq!(define("MPI_ANY_SOURCE"), "(-1)");
        assert_eq!(define("MPI_ARGVS_NULL"), "((char ***) 0)");
        assert_eq!(define("MPI_IN_PLACE"), "((void *) 1)");
        assert_eq!(define("MPI_COMM_DUP_FN"), "((MPI_Comm_copy_attr_function *) 1)");
        assert_eq!(define("MPI_C_COMPLEX"), "MPI_C_FLOAT_COMPLEX");
        assert!(text.contains("\nint PMPI_Barrier(MPI_Comm comm);\n"));
        assert!(text.lines().all(|line| line.len() <= 120));
    }
}
