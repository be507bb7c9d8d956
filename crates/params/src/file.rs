//! The configuration file: `name = value` lines, `#` comments.

use crate::row::Error;
use crate::{CONFIG, PREFIX, table};
use std::io::Read;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Longest configuration file, bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    name: String,
    pub(crate) value: String,
    /// From 1.
    pub(crate) line: usize,
}

/// The configuration file of this process, read once; empty where there is none, and where the process has privileges that its user has not.
///
/// Errors: `WHIMBREL_CONFIG` names a file that cannot be read; the file is too long or has a line that means nothing.
pub(crate) fn current() -> Result<&'static File, Error> {
    static CURRENT: OnceLock<Result<File, Error>> = OnceLock::new();
    let load = || {
        if crate::is_privileged() {
            return Ok(File::default());
        }
        let named = std::env::var_os(CONFIG);
        let required = named.is_some();
        let path: PathBuf = match named {
            Some(path) if path.is_empty() => return Ok(File::default()),
            Some(path) => path.into(),
            None => match std::env::var_os("HOME") {
                Some(home) => PathBuf::from(home).join(".config/whimbrel.conf"),
                None => return Ok(File::default()),
            },
        };
        let mut text = String::new();
        match std::fs::File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)) {
            Ok(length) if length as u64 > FILE_BYTES_MAX => Err(Error(format!("{}: longer than {FILE_BYTES_MAX} bytes", path.display()))),
            Ok(_) => File::parse(path, &text, &table::ALL.iter().map(|row| row.name()).collect::<Vec<_>>()),
            Err(error) if required => Err(Error(format!("{CONFIG}={}: {error}", path.display()))),
            // The usual file need not exist, and may lie in another user's home.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::InvalidData) => Err(Error(format!("{}: {error}", path.display()))),
            Err(_) => Ok(File::default()),
        }
    };
    CURRENT.get_or_init(load).as_ref().map_err(Clone::clone)
}

impl File {
    /// Reads the lines of a file; each must set one of `names`, in any case and with or without prefix, once.
    pub(crate) fn parse(path: PathBuf, text: &str, names: &[&str]) -> Result<File, Error> {
        let mut file = File { path, entries: Vec::new() };
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| Error(format!("{}:{}: {what}", file.path.display(), at + 1));
            let Some((name, value)) = line.split_once('=') else {
                return Err(wrong(format!("{line:?} is not `name = value`")));
            };
            let name = name.trim().to_ascii_uppercase();
            let name = name.strip_prefix(PREFIX).unwrap_or(&name).to_owned();
            if !names.contains(&name.as_str()) {
                return Err(wrong(format!("no parameter is called {:?}", name.to_ascii_lowercase())));
            }
            if file.find(&name).is_some() {
                return Err(wrong(format!("{:?} is set twice", name.to_ascii_lowercase())));
            }
            file.entries.push(Entry { name, value: value.trim().to_owned(), line: at + 1 });
        }
        Ok(file)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_in_any_dress() {
        let file = File::parse("f".into(), "whimbrel_a=1\n  B = x = y  \n#c=3\n", &["A", "B", "C"]).unwrap();
        assert_eq!(file.find("A").unwrap().value, "1");
        assert_eq!(file.find("B").unwrap().value, "x = y");
        assert!(file.find("C").is_none());
    }

    #[test]
    fn a_line_that_means_nothing_is_refused_with_its_number() {
        for (text, what) in [("a", "f:1: \"a\" is not"), ("\nd = 1", "f:2: no parameter"), ("a=1\nA=1", "f:2: \"a\" is set twice")] {
            let line = File::parse("f".into(), text, &["A"]).unwrap_err().to_string();
            assert!(line.starts_with(what), "{line}");
        }
    }
}
