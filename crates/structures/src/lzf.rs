//! LZF, the compression of strings in RDB files and DUMP (libLZF's format).
//!
//! | First byte | Meaning |
//! |---|---|
//! | `000lllll` | a run of l + 1 bytes follows |
//! | `lllooooo` | copy l + 2 bytes; then the low byte of the offset |
//! | `111ooooo` | copy 9 + n bytes; then n; then the low byte of the offset |
//!
//! An offset of 0 is the byte last written. A copy may reach into what it writes, so a run of one
//! byte is a copy of offset 0.

use std::fmt;

const RUN_MAX: usize = 1 << 5;
const OFFSET_MAX: usize = 1 << 13;
const COPY_MIN: usize = 3;
const COPY_MAX: usize = 7 + 255 + 2;
/// What the longest copy takes.
const COPY_SIZE_MAX: usize = 3;

/// Places of the three bytes seen last are kept in at most so many cells (a power of two), which
/// reach well over the longest offset.
const CELLS_MAX: usize = 1 << 14;
const CELLS_MIN: usize = 1 << 8;

/// What is wrong with compressed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LzfError {
    /// So few bytes cannot become so many.
    Impossible { input: usize, output: usize },
    /// The bytes end in the middle of a token, at `offset`.
    Truncated { offset: usize },
    /// The copy at `offset` starts before the first byte.
    Offset { offset: usize },
    /// More or fewer bytes came out than were promised.
    Length { promised: usize },
}

impl fmt::Display for LzfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LzfError::Impossible { input, output } => {
                write!(f, "{input} LZF bytes cannot hold {output} bytes")
            }
            LzfError::Truncated { offset } => write!(f, "LZF ends inside the token at {offset}"),
            LzfError::Offset { offset } => write!(f, "LZF copies from nowhere at {offset}"),
            LzfError::Length { promised } => write!(f, "LZF does not hold {promised} bytes"),
        }
    }
}

impl std::error::Error for LzfError {}

/// The `len` bytes that `input` was made of. Memory is taken for as many as the input can hold at
/// most, 88 for each of its bytes, whatever `len` claims.
pub fn decompress(input: &[u8], len: usize) -> Result<Vec<u8>, LzfError> {
    let mut output = Vec::new();
    decompress_onto(input, len, &mut output)?;
    Ok(output)
}

/// As [`decompress`], behind what is there already. After an error some of it may be appended.
pub fn decompress_onto(input: &[u8], len: usize, output: &mut Vec<u8>) -> Result<(), LzfError> {
    if len > input.len().saturating_mul(COPY_MAX / COPY_SIZE_MAX) {
        return Err(LzfError::Impossible { input: input.len(), output: len });
    }
    output.reserve(len);
    let start = output.len();
    let end = start + len;
    let expect_room = |output: &[u8], more: usize| {
        let fits = output.len() + more <= end;
        fits.then_some(()).ok_or(LzfError::Length { promised: len })
    };
    let mut rest = input;
    while let Some((&token, after)) = rest.split_first() {
        let offset = input.len() - rest.len();
        let truncated = LzfError::Truncated { offset };
        let token = usize::from(token);
        if token < RUN_MAX {
            let (run, after) = after.split_at_checked(token + 1).ok_or(truncated)?;
            expect_room(output, run.len())?;
            output.extend_from_slice(run);
            rest = after;
            continue;
        }
        let (&next, mut after) = after.split_first().ok_or(truncated)?;
        let (mut copied, mut low) = ((token >> 5) + 2, next);
        if token >> 5 == 7 {
            copied += usize::from(next);
            (low, after) =
                after.split_first().map(|(low, after)| (*low, after)).ok_or(truncated)?;
        }
        let distance = ((token & 0x1f) << 8 | usize::from(low)) + 1;
        let from = output.len().checked_sub(distance).filter(|from| *from >= start);
        let from = from.ok_or(LzfError::Offset { offset })?;
        expect_room(output, copied)?;
        copy_within(output, from, copied);
        rest = after;
    }
    if output.len() == end { Ok(()) } else { Err(LzfError::Length { promised: len }) }
}

/// Appends `count` bytes from `from` on, which may be those just appended.
fn copy_within(output: &mut Vec<u8>, from: usize, count: usize) {
    let end = output.len() + count;
    while output.len() < end {
        // What lies between is a period of what is to come: each round doubles it.
        let piece = (output.len() - from).min(end - output.len());
        output.extend_from_within(from..from + piece);
    }
}

/// `input` compressed, if that takes at most `size_max` bytes.
pub fn compress(input: &[u8], size_max: usize) -> Option<Vec<u8>> {
    // Positions are kept in four bytes; nobody waits for so much to be compressed anyway.
    if u32::try_from(input.len()).is_err() {
        return None;
    }
    let mut output = Vec::with_capacity(size_max.min(input.len()));
    let cells = input.len().next_power_of_two().clamp(CELLS_MIN, CELLS_MAX);
    // By the hash of three bytes, their last position plus one; 0 is none.
    let mut seen = vec![0_u32; cells];
    let (mut at, mut run_start) = (0, 0);
    while let Some(&[first, second, third]) = input[at..].first_chunk::<COPY_MIN>() {
        let cell = &mut seen[cell_of([first, second, third], cells)];
        let before = core::mem::replace(cell, at as u32 + 1) as usize;
        let copied = match before.checked_sub(1) {
            Some(from) if at - from <= OFFSET_MAX => common_len(input, from, at),
            _ => 0,
        };
        if copied < COPY_MIN {
            at += 1;
            continue;
        }
        push_runs(&mut output, &input[run_start..at]);
        push_copy(&mut output, at + 1 - before, copied);
        if output.len() > size_max {
            return None;
        }
        at += copied;
        run_start = at;
    }
    push_runs(&mut output, &input[run_start..]);
    (output.len() <= size_max).then_some(output)
}

fn cell_of([first, second, third]: [u8; 3], cells: usize) -> usize {
    let mixed = u32::from_le_bytes([first, second, third, 0]).wrapping_mul(0x9e37_79b1);
    (mixed >> 16) as usize & (cells - 1)
}

fn common_len(input: &[u8], from: usize, at: usize) -> usize {
    let pairs = input[from..].iter().zip(&input[at..]).take(COPY_MAX);
    pairs.take_while(|(one, other)| one == other).count()
}

fn push_runs(output: &mut Vec<u8>, bytes: &[u8]) {
    for run in bytes.chunks(RUN_MAX) {
        output.push(run.len() as u8 - 1);
        output.extend_from_slice(run);
    }
}

fn push_copy(output: &mut Vec<u8>, distance: usize, count: usize) {
    let [low, high, ..] = (distance - 1).to_le_bytes();
    match count - 2 {
        short @ ..7 => output.extend([(short as u8) << 5 | high, low]),
        long => output.extend([7 << 5 | high, (long - 7) as u8, low]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// From redis-server 7.0's DUMP of "a" 52 times, and of "abcdefgh" 8 times.
    #[test]
    fn reads_what_redis_wrote() {
        assert_eq!(decompress(b"\x01aa\xe0\x27\x00\x01aa", 52), Ok(vec![b'a'; 52]));
        let eight = decompress(b"\x08abcdefgha\xe0\x2c\x07\x01gh", 64);
        assert_eq!(eight, Ok(b"abcdefgh".repeat(8)));
    }

    #[test]
    fn refuses_what_is_broken() {
        let cases: [(&[u8], usize, LzfError); 9] = [
            (b"", 1, LzfError::Impossible { input: 0, output: 1 }),
            (b"\x01aa", 1 << 40, LzfError::Impossible { input: 3, output: 1 << 40 }),
            (b"\x02aa", 3, LzfError::Truncated { offset: 0 }),
            (b"\x00a\x20", 4, LzfError::Truncated { offset: 2 }),
            (b"\x00a\xe0\x00", 10, LzfError::Truncated { offset: 2 }),
            (b"\x00a\x20\x01", 4, LzfError::Offset { offset: 2 }),
            (b"\x01aa", 1, LzfError::Length { promised: 1 }),
            (b"\x01aa", 3, LzfError::Length { promised: 3 }),
            (b"\x00a\xe0\xff\x00", 264, LzfError::Length { promised: 264 }),
        ];
        for (input, len, error) in cases {
            assert_eq!(decompress(input, len), Err(error), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn compresses_only_what_gets_smaller() {
        assert_eq!(compress(&[b'a'; 20], 16).map(|bytes| bytes.len()), Some(5));
        assert_eq!(compress(b"no three bytes of it are twice", 26), None);
        assert_eq!(compress(b"", 0), Some(vec![]));
        let zeros = compress(&[0; 1 << 20], 1 << 20).expect("smaller");
        assert!(zeros.len() < (1 << 20) / 80, "{}", zeros.len());
    }

    /// Few letters, so that there is something to copy.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let piece = (prop::collection::vec(b'a'..b'e', 1..20), 1..40usize);
        let pieces = prop::collection::vec(piece, 0..40);
        pieces.prop_map(|pieces| {
            pieces.iter().flat_map(|(piece, times)| piece.repeat(*times)).collect()
        })
    }

    proptest! {
        #[test]
        fn comes_back(text in text()) {
            let compressed = compress(&text, usize::MAX).expect("any size will do");
            prop_assert_eq!(decompress(&compressed, text.len()), Ok(text));
        }

        #[test]
        fn any_bytes_end_in_a_value_or_an_error(
            input in prop::collection::vec(any::<u8>(), 0..100),
            len in 0..9_000usize,
        ) {
            if let Ok(output) = decompress(&input, len) {
                prop_assert_eq!(output.len(), len);
            }
        }
    }
}
