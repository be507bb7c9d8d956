//! Rust source of the exported symbols: each function of the table as `MPI_X` and `PMPI_X`.

use crate::ctype::{Param, by_value, rust_type};
use crate::tables::{Function, Tables};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Which module of `entry` builds which function, found by the lines `pub unsafe fn MPI_X(` of its files.
#[derive(Debug, Clone, Default)]
pub struct Built {
    module_of: BTreeMap<String, String>,
}

impl Built {
    /// Reads every `.rs` file of `entry_dir` but `mod.rs`.
    ///
    /// # Errors
    /// When the folder or a file cannot be read, or two modules define the same function.
    pub fn scan(entry_dir: &Path) -> Result<Built, String> {
        let mut built = Built::default();
        let listing = std::fs::read_dir(entry_dir).map_err(|e| format!("{}: {e}", entry_dir.display()))?;
        for file in listing {
            let path = file.map_err(|e| e.to_string())?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("").to_string();
            if path.extension().is_none_or(|e| e != "rs") || stem == "mod" {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            for name in text.lines().filter_map(entry_name) {
                if let Some(other) = built.module_of.insert(name.to_string(), stem.clone()) {
                    return Err(format!("{name} is defined in both entry/{other}.rs and entry/{stem}.rs"));
                }
            }
        }
        Ok(built)
    }

    /// The module that builds `function`.
    pub fn module(&self, function: &str) -> Option<&str> {
        self.module_of.get(function).map(String::as_str)
    }

    /// Names of entry points that the table does not have.
    pub fn strangers<'a>(&'a self, tables: &'a Tables) -> impl Iterator<Item = &'a str> {
        self.module_of.keys().map(String::as_str).filter(|name| tables.exported().all(|f| f.name != *name))
    }
}

/// The exported symbols.
///
/// # Errors
/// When an entry point is not in the table, or a function that cannot report an error (its result is no error code) is not built.
pub fn exports(tables: &Tables, built: &Built) -> Result<String, String> {
    if let Some(name) = built.strangers(tables).next() {
        return Err(format!("entry point {name} is neither in abi/functions.tsv nor in abi/removed.tsv"));
    }
    let mut out = String::new();
    for function in tables.exported() {
        export(&mut out, tables, built, function)?;
    }
    Ok(out)
}

/// Whether the function's `int` result is a value rather than an error code.
pub fn returns_value(function: &Function) -> bool {
    function.returns != "int" || function.name.ends_with("_toint")
}

/// Whether the standard allows the function before MPI is initialized and after it is finalized (MPI-5.0 §11.4.1, §15.3, chapter 20),
/// or programs clean up with it at their end.
fn any_time(name: &str) -> bool {
    const PREFIXES: [&str; 11] = [
        "MPI_Abi_",
        "MPI_Add_error_",
        "MPI_Errhandler_",
        "MPI_Error_",
        "MPI_Get_hw_",
        "MPI_Info_",
        "MPI_Init",
        "MPI_Remove_error_",
        "MPI_Session_",
        "MPI_Status_",
        "MPI_T_",
    ];
    const NAMES: [&str; 11] = [
        "MPI_Abort",
        "MPI_Address",
        "MPI_Alloc_mem",
        "MPI_Finalize",
        "MPI_Finalized",
        "MPI_Free_mem",
        "MPI_Get_address",
        "MPI_Get_library_version",
        "MPI_Get_version",
        "MPI_Pcontrol",
        "MPI_Test_cancelled",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name) || name.ends_with("_create_errhandler")
}

/// Whether the function must be told that MPI is not in use; others find out by their communicator, session or request.
fn needs_world(function: &Function) -> bool {
    const FINDS_OUT: [&str; 5] = ["MPI_Comm", "MPI_Session", "MPI_Request", "MPI_Message", "MPI_File"];
    !returns_value(function) && !any_time(&function.name) && !function.params().iter().any(|p| FINDS_OUT.contains(&p.base.as_str()))
}

fn export(out: &mut String, tables: &Tables, built: &Built, function: &Function) -> Result<(), String> {
    let params = function.params();
    let types: Vec<String> = params.iter().map(|p| rust_type(tables, p)).collect();
    // The mark keeps C's names from meeting Rust's keywords, and in front it tells that an unbuilt function uses none.
    let marked = |p: &Param| {
        if built.module(&function.name).is_some() { format!("{}_", p.name) } else { format!("_{}", p.name) }
    };
    let names: Vec<String> = params.iter().map(marked).collect();
    let declared: Vec<String> = names.iter().zip(&types).map(|(n, t)| format!("{n}: {t}")).collect();
    let returns = rust_type(tables, &by_value(&function.returns));
    let name = &function.name;
    let body = match built.module(name) {
        Some(module) => {
            // Argument passing would coerce `*mut T` to `*const T`; the constant makes any difference an error.
            let _ = writeln!(out, "const _: unsafe fn({}) -> {returns} = crate::entry::{module}::{name};", types.join(", "));
            let call = format!("crate::entry::{module}::{name}({})", names.join(", "));
            if needs_world(function) { format!("if let Some(code) = crate::fail::outside(\"{name}\") {{ return code }} {call}") } else { call }
        }
        None if returns_value(function) => return Err(format!("{name} has no error code to return and must be built")),
        None if name.starts_with("MPI_T_") => format!("crate::fail::unsupported_tool(\"{name}\")"),
        None => format!("crate::fail::unsupported(\"{name}\")"),
    };
    for prefix in ["", "P"] {
        let _ = writeln!(out, "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {prefix}{name}({}) -> {returns} {{ {body} }}", declared.join(", "));
    }
    Ok(())
}

fn entry_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub unsafe fn ")?;
    let (name, _) = rest.split_once('(')?;
    name.starts_with("MPI_").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables_of(name: &str) -> Tables {
        let mut tables = Tables::load();
        tables.functions.retain(|f| f.name == name);
        tables.removed.clear();
        tables
    }

    #[test]
    fn an_unbuilt_function_names_itself() {
        let text = exports(&tables_of("MPI_Barrier"), &Built::default()).unwrap();
        assert!(text.contains("fn PMPI_Barrier(_comm: Comm) -> c_int { crate::fail::unsupported(\"MPI_Barrier\") }"), "{text}");
        assert!(text.contains("fn MPI_Barrier("));
    }

    #[test]
    fn a_built_function_calls_its_entry() {
        let mut built = Built::default();
        built.module_of.insert("MPI_Barrier".into(), "coll".into());
        let text = exports(&tables_of("MPI_Barrier"), &built).unwrap();
        assert!(text.contains("{ crate::entry::coll::MPI_Barrier(comm_) }"), "{text}");
        assert!(text.contains("const _: unsafe fn(Comm) -> c_int = crate::entry::coll::MPI_Barrier;"));
    }

    #[test]
    fn calls_outside_of_mpi_are_found_out_where_no_handle_tells() {
        for (name, told) in [("MPI_Type_commit", true), ("MPI_Get_processor_name", true), ("MPI_Send", false), ("MPI_Info_create", false), ("MPI_Wtime", false)]
        {
            assert_eq!(needs_world(&tables_of(name).functions[0]), told, "{name}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        assert!(exports(&tables_of("MPI_Wtime"), &Built::default()).is_err());
        let mut built = Built::default();
        built.module_of.insert("MPI_Bariier".into(), "coll".into());
        assert!(exports(&tables_of("MPI_Barrier"), &built).unwrap_err().contains("MPI_Bariier"));
    }

    #[test]
    fn entry_lines_are_recognized() {
        assert_eq!(entry_name("pub unsafe fn MPI_Send("), Some("MPI_Send"));
        assert_eq!(entry_name("pub unsafe fn helper(x: c_int) {"), None);
        assert_eq!(entry_name("fn MPI_Send("), None);
    }
}
