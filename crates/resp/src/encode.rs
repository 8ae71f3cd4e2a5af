//! Requests as clients, logs and replicas send them: arrays of strings.

use crate::number::write_unsigned;

/// A request. Room is made in `out` as it grows.
pub fn write_request<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    write_count(words.len(), out);
    words.for_each(|word| write_word(word, out));
}

/// The beginning of a request of so many words, which follow.
pub fn write_count(words: usize, out: &mut Vec<u8>) {
    write_header(b'*', words, out);
}

/// One word of a request.
pub fn write_word(word: &[u8], out: &mut Vec<u8>) {
    write_header(b'$', word.len(), out);
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// A number as a word of a request.
pub fn write_number(number: u64, out: &mut Vec<u8>) {
    let digits = number.checked_ilog10().map_or(1, |digits| digits as usize + 1);
    write_header(b'$', digits, out);
    write_unsigned(number, out);
    out.extend_from_slice(b"\r\n");
}

fn write_header(kind: u8, count: usize, out: &mut Vec<u8>) {
    out.push(kind);
    write_unsigned(count as u64, out);
    out.extend_from_slice(b"\r\n");
}

/// A request as a client sends it.
pub fn encode_request<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut out = Vec::new();
    write_request(words.iter().map(AsRef::as_ref), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_words() {
        for number in [0, 7, 10, 99, 100, 65_535, u64::MAX] {
            let (mut as_number, mut as_word) = (Vec::new(), Vec::new());
            write_number(number, &mut as_number);
            write_word(number.to_string().as_bytes(), &mut as_word);
            assert_eq!(as_number, as_word);
        }
    }
}
