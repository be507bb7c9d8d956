//! Headers of messages as bytes: two words of the header, up to six further words, little-endian.

const WORDS_MAX: usize = 6;
/// Bytes of the longest.
const BYTES_MAX: usize = 16 + 8 * WORDS_MAX;

/// The header of a message, and the words after it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    pub head: [u64; 2],
    words: [u64; WORDS_MAX],
    count: u8,
}

impl Header {
    /// With `words`, at most six.
    #[inline]
    pub fn new(head: [u64; 2], words: &[u64]) -> Header {
        let mut all = [0; WORDS_MAX];
        all[..words.len()].copy_from_slice(words);
        Header { head, words: all, count: words.len() as u8 }
    }

    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words[..self.count as usize]
    }

    /// The bytes, and how many of them count.
    #[inline]
    pub fn to_bytes(&self) -> ([u8; BYTES_MAX], usize) {
        let mut bytes = [0; BYTES_MAX];
        // Also the words that do not count: so it is no loop.
        let all = self.head.iter().chain(&self.words);
        all.zip(bytes.as_chunks_mut().0).for_each(|(word, to)| *to = word.to_le_bytes());
        (bytes, 16 + 8 * self.count as usize)
    }

    /// `None` where `bytes` are none.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let [first, second, rest @ ..] = words else { return None };
        let mut after = [0; WORDS_MAX];
        after.iter_mut().zip(rest).for_each(|(to, word)| *to = u64::from_le_bytes(*word));
        let head = [u64::from_le_bytes(*first), u64::from_le_bytes(*second)];
        (rest.len() <= WORDS_MAX).then_some(Header { head, words: after, count: rest.len() as u8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for words in [&[][..], &[1], &[1, 2, 3, 4, 5, u64::MAX]] {
            let header = Header::new([7, u64::MAX - 1], words);
            let (bytes, length) = header.to_bytes();
            let read = Header::parse(&bytes[..length]).unwrap();
            assert_eq!((read, read.words()), (header, words));
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let (bytes, length) = Header::new([1, 2], &[9]).to_bytes();
        assert!(Header::parse(&bytes[..length - 1]).is_none(), "not whole words");
        assert!(Header::parse(&bytes[..8]).is_none(), "too short");
        assert!(Header::parse(&[&bytes[..], &[0; 8]].concat()).is_none(), "too long");
    }
}
