//! How do process managers write a command? `key=value` pairs between separators: spaces in PMI-1, semicolons in PMI-2.

use std::fmt;

/// Longest message of a process manager that is read, bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Most pairs in one message.
pub const PAIRS_MAX: usize = 64;

/// The pairs of one message, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    pairs: Vec<(String, String)>,
}

/// Bytes that are no message of a process manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    TooLong,
    TooManyPairs,
    NotText,
    /// A word without `=`, or with nothing before it.
    NoKey,
    /// No `cmd`.
    NoCommand,
    /// A PMI-2 message whose length is no number.
    NoLength,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::TooLong => "a message that is too long",
            Malformed::TooManyPairs => "a message of too many fields",
            Malformed::NotText => "a message that is not UTF-8",
            Malformed::NoKey => "a field without a name",
            Malformed::NoCommand => "a message without a command",
            Malformed::NoLength => "a message without its length",
        })
    }
}

impl Fields {
    /// Reads a PMI-1 line, without or with its end: `cmd=put_result rc=0`. A value may contain `=`.
    pub fn of_line(line: &[u8]) -> Result<Fields, Malformed> {
        let text = text(line)?.trim_end_matches(['\n', '\r']);
        let mut fields = Fields { pairs: Vec::new() };
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            fields.push(word)?;
        }
        fields.checked()
    }

    /// Reads a PMI-2 message without its length: `cmd=kvs-put-response;rc=0;`. A doubled semicolon is one within a value.
    pub fn of_message(message: &[u8]) -> Result<Fields, Malformed> {
        let mut fields = Fields { pairs: Vec::new() };
        let mut pair = String::new();
        let mut characters = text(message)?.chars().peekable();
        while let Some(character) = characters.next() {
            if character != ';' {
                pair.push(character);
            } else if characters.next_if_eq(&';').is_some() {
                pair.push(';');
            } else if !pair.is_empty() {
                fields.push(&std::mem::take(&mut pair))?;
            }
        }
        if !pair.is_empty() {
            fields.push(&pair)?;
        }
        fields.checked()
    }

    /// The message's command.
    pub fn command(&self) -> &str {
        self.text("cmd").unwrap_or_default()
    }

    /// The value of `key`.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The value of `key` if it is a number.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.text(key)?.parse().ok()
    }

    fn push(&mut self, word: &str) -> Result<(), Malformed> {
        if self.pairs.len() == PAIRS_MAX {
            return Err(Malformed::TooManyPairs);
        }
        match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => self.pairs.push((key.to_owned(), value.to_owned())),
            _ => return Err(Malformed::NoKey),
        }
        Ok(())
    }

    fn checked(self) -> Result<Fields, Malformed> {
        if self.command().is_empty() { Err(Malformed::NoCommand) } else { Ok(self) }
    }
}

/// A length in front of a PMI-2 message: six characters, padded with spaces on either side.
pub fn length(head: &[u8; 6]) -> Result<usize, Malformed> {
    let text = std::str::from_utf8(head).map_err(|_| Malformed::NoLength)?;
    match text.trim_matches([' ', '\0']).parse() {
        Ok(length) if length <= MESSAGE_BYTES_MAX => Ok(length),
        Ok(_) => Err(Malformed::TooLong),
        Err(_) => Err(Malformed::NoLength),
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Malformed::TooLong);
    }
    std::str::from_utf8(bytes).map_err(|_| Malformed::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_read_in_any_order() {
        let fields = Fields::of_line(b"cmd=get_result value=a=b;c rc=0\n").unwrap();
        assert_eq!((fields.command(), fields.text("value"), fields.number("rc")), ("get_result", Some("a=b;c"), Some(0)));
        assert_eq!(fields.text("msg"), None);
        assert_eq!(Fields::of_line(b"rc=-1  cmd=x").unwrap().number("rc"), Some(-1));
    }

    #[test]
    fn messages_unfold_doubled_semicolons() {
        let fields = Fields::of_message(b"cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b=c;").unwrap();
        assert_eq!(fields.text("value"), Some("a;b=c"));
        assert_eq!(Fields::of_message(b"cmd=x;rc=0").unwrap().number("rc"), Some(0));
    }

    #[test]
    fn limits_are_kept() {
        assert_eq!(Fields::of_line(b""), Err(Malformed::NoCommand));
        assert_eq!(Fields::of_line(b"rc=0"), Err(Malformed::NoCommand));
        assert_eq!(Fields::of_line(b"cmd=x word"), Err(Malformed::NoKey));
        assert_eq!(Fields::of_line(b"cmd=x =1"), Err(Malformed::NoKey));
        assert_eq!(Fields::of_message(b"cmd=\xff"), Err(Malformed::NotText));
        assert_eq!(Fields::of_line(&[b'a'; MESSAGE_BYTES_MAX + 1]), Err(Malformed::TooLong));
        let many = format!("cmd=x{}", " a=b".repeat(PAIRS_MAX));
        assert_eq!(Fields::of_line(many.as_bytes()), Err(Malformed::TooManyPairs));
    }

    #[test]
    fn lengths_may_stand_left_or_right() {
        assert_eq!((length(b"    63"), length(b"114   "), length(b"000007")), (Ok(63), Ok(114), Ok(7)));
        assert_eq!((length(b"      "), length(b"-    1"), length(b"999999")), (Err(Malformed::NoLength), Err(Malformed::NoLength), Err(Malformed::TooLong)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Fields::of_line(&bytes);
            let _ = Fields::of_message(&bytes);
        }
    }
}
