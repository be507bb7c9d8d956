//! Rust source of the exported symbols: each function of the table as `MPI_X` and `PMPI_X`.

use crate::ctype::{Param, by_value, rust_type};
use crate::tables::{Function, Tables};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// How a file of `entry` builds functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `pub unsafe fn MPI_X(`: the function itself.
    Own,
    /// `pub unsafe fn MPI_X<`: the function and its forms with other widths of numbers, `MPI_X_c` and `MPI_X_x`. The function's name comes first.
    Sized,
    /// `pub unsafe fn MPI_X_plan`: the blocking, nonblocking and persistent forms of a collective, each with all widths. The communicator comes first, and
    /// `comm`, `info` and `request` are left out.
    Plan,
}

/// What a file of `entry` makes of a function of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry<'a> {
    module: &'a str,
    /// The name of the item in that module.
    item: String,
    shape: Shape,
}

/// Which module of `entry` builds which function, found by the lines `pub unsafe fn MPI_X` of its files.
#[derive(Debug, Clone, Default)]
pub struct Built {
    entries: BTreeMap<String, (String, Shape)>,
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
            for (name, shape) in text.lines().filter_map(entry_item) {
                if let Some((other, _)) = built.entries.insert(name.to_string(), (stem.clone(), shape)) {
                    return Err(format!("{name} is defined in both entry/{other}.rs and entry/{stem}.rs"));
                }
            }
        }
        Ok(built)
    }

    /// Whether something builds `function`.
    pub fn has(&self, function: &str) -> bool {
        self.entry(function).is_some()
    }

    fn entry(&self, function: &str) -> Option<Entry<'_>> {
        let find = |item: String, shapes: &[Shape]| {
            let (module, shape) = self.entries.get(&item).filter(|(_, shape)| shapes.contains(shape))?;
            Some(Entry { module, item, shape: *shape })
        };
        let narrow = function.strip_suffix("_c").or_else(|| function.strip_suffix("_x")).unwrap_or(function);
        find(function.to_string(), &[Shape::Own, Shape::Sized])
            .or_else(|| find(narrow.to_string(), &[Shape::Sized]))
            .or_else(|| find(format!("{}_plan", collective_of(narrow).1), &[Shape::Plan]))
    }

    /// Names of entry points that the table does not have.
    pub fn strangers<'a>(&'a self, tables: &'a Tables) -> impl Iterator<Item = &'a str> {
        let known = |name: &str| tables.exported().any(|f| f.name == name.strip_suffix("_plan").unwrap_or(name));
        self.entries.keys().map(String::as_str).filter(move |name| !known(name))
    }
}

/// The form of a collective (blocking, nonblocking, persistent) that a function's name, without its width, tells, and the name of the blocking one.
fn collective_of(name: &str) -> (&'static str, String) {
    if let Some(blocking) = name.strip_suffix("_init") {
        return ("again", blocking.to_string());
    }
    match name.strip_prefix("MPI_I").and_then(|rest| rest.chars().next().map(|first| (first, rest))) {
        Some((first, rest)) if first.is_ascii_lowercase() => ("later", format!("MPI_{}{}", first.to_ascii_uppercase(), &rest[1..])),
        _ => ("now", name.to_string()),
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
    let (name, entry) = (&function.name, built.entry(&function.name));
    // The mark keeps C's names from meeting Rust's keywords, and in front it tells that an unbuilt function uses none.
    let marked = |p: &Param| if entry.is_some() { format!("{}_", p.name) } else { format!("_{}", p.name) };
    let names: Vec<String> = params.iter().map(marked).collect();
    let declared: Vec<String> = names.iter().zip(&types).map(|(n, t)| format!("{n}: {t}")).collect();
    let returns = rust_type(tables, &by_value(&function.returns));
    let body = match entry {
        Some(entry) => {
            let call = called(out, &entry, name, &names, &types, &returns);
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

/// The call of an entry. Argument passing would coerce `*mut T` to `*const T`: a constant written to `out` makes any difference an error.
fn called(out: &mut String, entry: &Entry, name: &str, names: &[String], types: &[String], returns: &str) -> String {
    let item = format!("crate::entry::{}::{}", entry.module, entry.item);
    let (names_joined, types_joined) = (names.join(", "), types.join(", "));
    match entry.shape {
        Shape::Own => {
            let _ = writeln!(out, "const _: unsafe fn({types_joined}) -> {returns} = {item};");
            format!("{item}({names_joined})")
        }
        Shape::Sized => {
            let _ = writeln!(out, "const _: unsafe fn(&'static str, {types_joined}) -> {returns} = {item};");
            format!("{item}(\"{name}\", {names_joined})")
        }
        Shape::Plan => {
            let narrow = name.strip_suffix("_c").unwrap_or(name);
            let context = |n: &String| ["comm_", "info_", "request_"].contains(&n.as_str());
            let of = |chosen: bool| names.iter().filter(|n| context(n) == chosen).cloned().collect::<Vec<_>>();
            let arguments = [vec!["c".to_string()], of(false)].concat().join(", ");
            format!("crate::entry::coll::{}(\"{name}\", {}, |c| {item}({arguments}))", collective_of(narrow).0, of(true).join(", "))
        }
    }
}

fn entry_item(line: &str) -> Option<(&str, Shape)> {
    let rest = line.trim_start().strip_prefix("pub unsafe fn ")?;
    let (name, sized) = rest.split_at(rest.find(['(', '<'])?);
    let shape = match name.ends_with("_plan") {
        true => Shape::Plan,
        false if sized.starts_with('<') => Shape::Sized,
        false => Shape::Own,
    };
    name.starts_with("MPI_").then_some((name, shape))
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

    fn exported(name: &str, built: &Built) -> String {
        let (mut text, tables) = (String::new(), tables_of(name));
        export(&mut text, &tables, built, &tables.functions[0]).unwrap();
        text
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
        built.entries.insert("MPI_Barrier".into(), ("coll".into(), Shape::Own));
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
        built.entries.insert("MPI_Bariier".into(), ("coll".into(), Shape::Own));
        assert!(exports(&tables_of("MPI_Barrier"), &built).unwrap_err().contains("MPI_Bariier"));
    }

    #[test]
    fn one_item_builds_all_widths() {
        let mut built = Built::default();
        built.entries.insert("MPI_Type_size".into(), ("datatype".into(), Shape::Sized));
        for name in ["MPI_Type_size", "MPI_Type_size_c", "MPI_Type_size_x"] {
            let text = exported(name, &built);
            assert!(text.contains(&format!("crate::entry::datatype::MPI_Type_size(\"{name}\", datatype_, size_)")), "{text}");
        }
        assert!(!built.has("MPI_Type_size_d"));
    }

    #[test]
    fn one_plan_builds_all_forms_of_a_collective() {
        let mut built = Built::default();
        built.entries.insert("MPI_Bcast_plan".into(), ("coll".into(), Shape::Plan));
        let plan = "|c| crate::entry::coll::MPI_Bcast_plan(c, buffer_, count_, datatype_, root_))";
        for (name, call) in [
            ("MPI_Bcast", "now(\"MPI_Bcast\", comm_, "),
            ("MPI_Bcast_c", "now(\"MPI_Bcast_c\", comm_, "),
            ("MPI_Ibcast_c", "later(\"MPI_Ibcast_c\", comm_, request_, "),
            ("MPI_Bcast_init", "again(\"MPI_Bcast_init\", comm_, info_, request_, "),
        ] {
            let text = exported(name, &built);
            assert!(text.contains(&format!("crate::entry::coll::{call}{plan}")), "{text}");
        }
        assert!(!built.has("MPI_Init") && !built.has("MPI_Ibcas"));
    }

    #[test]
    fn entry_lines_are_recognized() {
        assert_eq!(entry_item("pub unsafe fn MPI_Send("), Some(("MPI_Send", Shape::Own)));
        assert_eq!(entry_item("pub unsafe fn MPI_Send<N: Number>("), Some(("MPI_Send", Shape::Sized)));
        assert_eq!(entry_item("pub unsafe fn MPI_Barrier_plan("), Some(("MPI_Barrier_plan", Shape::Plan)));
        assert_eq!(entry_item("pub unsafe fn helper(x: c_int) {"), None);
        assert_eq!(entry_item("fn MPI_Send("), None);
    }
}
