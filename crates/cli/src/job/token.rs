//! What is an event in `epoll` about?

use crate::output::{Stream, Tokens};

/// What an event in `epoll` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Signals,
    Listener,
    Connection(u32),
    Pipe(u32, Stream),
    Sink(Stream),
    Stdin,
    RankStdin,
    Pidfd(u32),
    Lifeline,
}

impl Token {
    pub(super) const fn encode(self) -> u64 {
        let (kind, index) = match self {
            Token::Signals => (0, 0),
            Token::Listener => (1, 0),
            Token::Connection(id) => (2, id),
            Token::Pipe(rank, Stream::Out) => (3, rank),
            Token::Pipe(rank, Stream::Err) => (4, rank),
            Token::Sink(Stream::Out) => (5, 0),
            Token::Sink(Stream::Err) => (6, 0),
            Token::Stdin => (7, 0),
            Token::RankStdin => (8, 0),
            Token::Pidfd(rank) => (9, rank),
            Token::Lifeline => (10, 0),
        };
        (kind << 32) | index as u64
    }

    pub(super) fn decode(number: u64) -> Option<Token> {
        let index = number as u32;
        Some(match number >> 32 {
            0 => Token::Signals,
            1 => Token::Listener,
            2 => Token::Connection(index),
            3 => Token::Pipe(index, Stream::Out),
            4 => Token::Pipe(index, Stream::Err),
            5 => Token::Sink(Stream::Out),
            6 => Token::Sink(Stream::Err),
            7 => Token::Stdin,
            8 => Token::RankStdin,
            9 => Token::Pidfd(index),
            10 => Token::Lifeline,
            _ => return None,
        })
    }
}

impl Tokens for Token {
    fn stream(rank: usize, stream: Stream) -> u64 {
        Token::Pipe(rank as u32, stream).encode()
    }

    fn sink(stream: Stream) -> u64 {
        Token::Sink(stream).encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_epoll() {
        for token in [
            Token::Signals,
            Token::Listener,
            Token::Connection(u32::MAX),
            Token::Pipe(3, Stream::Out),
            Token::Pipe(3, Stream::Err),
            Token::Sink(Stream::Out),
            Token::Sink(Stream::Err),
            Token::Stdin,
            Token::RankStdin,
            Token::Pidfd(1023),
            Token::Lifeline,
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(99 << 32), None);
    }
}
