//! C declarations of the tables and the Rust types that are call-compatible with them.

use crate::tables::{Tables, TypeKind};

/// One parameter of a C prototype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Base type without `const`, `*` and `[]`, such as `MPI_Comm`.
    pub base: String,
    /// Whether the base is `const`.
    pub is_const: bool,
    /// Levels of pointer, arrays included.
    pub pointers: usize,
    /// Elements of the array that the innermost pointer points to: `int ranges[][3]` has 3.
    pub row: Option<usize>,
    /// Name of the parameter, or empty.
    pub name: String,
}

/// Parses a parameter list; `void` gives none and `...` is dropped.
pub fn parse_params(list: &str) -> Vec<Param> {
    list.split(',').map(str::trim).filter(|p| !matches!(*p, "void" | "...")).map(parse_param).collect()
}

fn parse_param(text: &str) -> Param {
    let mut pointers = text.matches('*').count() + text.matches("[]").count();
    let (cleaned, row) = match text.split_once("[][") {
        Some((start, end)) => (start, Some(end.trim_end_matches(']').parse().expect("a row has a length"))),
        None => (text, None),
    };
    let cleaned = cleaned.replace("[]", " ").replace('*', " ");
    let mut words: Vec<&str> = cleaned.split_whitespace().collect();
    let is_const = words[0] == "const";
    if is_const {
        words.remove(0);
    }
    assert!(words.len() <= 2, "unexpected declaration: {text}");
    // `const int level` passes by value: the qualifier binds the callee's copy alone.
    let is_const = is_const && pointers > 0;
    let base = words[0].to_string();
    // A parameter of function type is a pointer to that function.
    if base.ends_with("_function") && pointers == 0 {
        pointers = 1;
    }
    Param { base, is_const, pointers, row, name: words.get(1).unwrap_or(&"").to_string() }
}

/// Rust name of an `MPI_*` type: `MPI_T_cvar_handle` is `TCvarHandle`, `MPI_Comm` is `Comm`.
pub fn rust_name(c_name: &str) -> String {
    let short = c_name.strip_prefix("MPI_").unwrap_or(c_name);
    short.split('_').map(capitalized).collect()
}

/// The Rust type of a parameter or, with no name, of a return value.
///
/// Attribute copy callbacks are `*const c_void`: the ABI gives them the values 0 and 1, and 1 is no valid Rust
/// function pointer. Other callbacks are `Option<unsafe extern "C" fn …>`, whose `None` is the null pointer.
///
/// # Panics
/// When the type is in neither the tables nor C.
pub fn rust_type(tables: &Tables, param: &Param) -> String {
    if let Some(callback) = callback_of(tables, &param.base) {
        assert_eq!(param.pointers, 1, "a callback is passed by pointer");
        return if is_copy_callback(&callback) { "*const c_void".into() } else { format!("Option<{}>", rust_name(&callback)) };
    }
    let base = match param.base.as_str() {
        "int" => "c_int".into(),
        "char" => "c_char".into(),
        "double" => "f64".into(),
        "void" if param.pointers == 0 => "()".into(),
        "void" => "c_void".into(),
        "MPI_Status" => "Status".into(),
        "MPI_Aint" => "isize".into(),
        "MPI_Count" | "MPI_Offset" => "i64".into(),
        name if tables.type_named(name).is_some() => rust_name(name),
        name => panic!("unknown C type {name}"),
    };
    let base = param.row.map_or(base.clone(), |n| format!("[{base}; {n}]"));
    match param.pointers {
        0 => base,
        n => {
            let inner = if param.is_const { format!("*const {base}") } else { format!("*mut {base}") };
            (1..n).fold(inner, |t, _| format!("*mut {t}"))
        }
    }
}

/// Whether this callback type has the predefined value 1 ("duplicate").
pub fn is_copy_callback(c_name: &str) -> bool {
    c_name.ends_with("opy_function") || c_name.ends_with("_copy_attr_function")
}

/// A value of the named C type, as a function returns it.
pub fn by_value(c_name: &str) -> Param {
    Param { base: c_name.into(), is_const: false, pointers: 0, row: None, name: String::new() }
}

/// The callback type that `name` names, directly or as an alias.
fn callback_of(tables: &Tables, name: &str) -> Option<String> {
    match &tables.type_named(name)?.kind {
        TypeKind::Callback { .. } => Some(name.into()),
        TypeKind::Alias(target) => callback_of(tables, target),
        _ => None,
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(declaration: &str) -> String {
        rust_type(&Tables::load(), &parse_params(declaration)[0])
    }

    #[test]
    fn declarations_become_call_compatible_types() {
        assert_eq!(rust("const void *buf"), "*const c_void");
        assert_eq!(rust("void *baseptr"), "*mut c_void");
        assert_eq!(rust("const int level, ..."), "c_int");
        assert_eq!(rust("char ***argv"), "*mut *mut *mut c_char");
        assert_eq!(rust("char *argv[]"), "*mut *mut c_char");
        assert_eq!(rust("const MPI_Datatype types[]"), "*const Datatype");
        assert_eq!(rust("int ranges[][3]"), "*mut [c_int; 3]");
        assert_eq!(rust("MPI_Aint disp"), "isize");
        assert_eq!(rust("MPI_Count *size"), "*mut i64");
        assert_eq!(rust("MPI_User_function *user_fn"), "Option<UserFunction>");
        assert_eq!(rust("MPI_T_event_cb_function event_cb_function"), "Option<TEventCbFunction>");
        assert_eq!(rust("MPI_Comm_copy_attr_function *f"), "*const c_void");
        assert_eq!(rust("MPI_Comm_delete_attr_function *f"), "Option<CommDeleteAttrFunction>");
        assert_eq!(rust("MPI_T_cb_safety s"), "TCbSafety");
        assert!(parse_params("void").is_empty());
    }
}
