//! Pieces of a stream, packed to be kept or sent.
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 1 | algorithm: 0 none, 1 LZF, 2 LZ4 (a block), 3 Zstandard (a frame) |
//! | 1 | 4 | length of the piece, little endian |
//! | 5 | | its bytes, compressed so |
//!
//! A piece that does not shrink by an eighth stays as it is, and where several in a row do not, the
//! next ones are not even tried: first a few, then ever more.

use std::fmt;

use zstd::bulk;

use crate::compressed::Algorithm;
use crate::heap::Exempt;
use crate::lzf;

/// What stands before the bytes.
pub const HEADER_SIZE: usize = 5;
const RAW: u8 = 0;

/// So many pieces in a row have to be incompressible before some are left out, ...
const PATIENCE: u32 = 3;
/// ...and so many are left out at most.
const PAUSE_MAX: u32 = 64;

/// Packs one piece after another.
pub struct Packer {
    algorithm: Option<Algorithm>,
    level: i32,
    zstd: Option<bulk::Compressor<'static>>,
    /// Memory of its tables, some hundred KiB: no data has to go for that.
    tables: Exempt,
    /// Pieces in a row that did not shrink.
    failures: u32,
    /// Pieces that are not tried from now on, and how many those were last.
    pause: u32,
    last_pause: u32,
}

/// Why bytes are no packed piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsound {
    Short,
    Algorithm(u8),
    /// It says that it is longer than may be.
    Long(u32),
    /// What it has is not what it says.
    Bytes,
}

impl Packer {
    /// `level` is Zstandard's; the others have none.
    pub fn new(algorithm: Option<Algorithm>, level: i32) -> Packer {
        let zstd = (algorithm == Some(Algorithm::Zstd)).then(|| bulk::Compressor::new(level));
        // Without memory for its tables it does without.
        let zstd = zstd.and_then(Result::ok);
        let tables = Exempt::default();
        Packer { algorithm, level, zstd, tables, failures: 0, pause: 0, last_pause: 0 }
    }

    /// Whether it packs in this way.
    pub fn is_of(&self, algorithm: Option<Algorithm>, level: i32) -> bool {
        self.algorithm == algorithm && self.level == level
    }

    /// # Panics
    ///
    /// If the piece has 4 GiB or more.
    pub fn pack(&mut self, piece: &[u8]) -> Vec<u8> {
        let packed = match self.algorithm {
            Some(_) if self.pause > 0 => {
                self.pause -= 1;
                None
            }
            Some(algorithm) => {
                let packed = self.compress(algorithm, piece);
                self.learn(packed.is_some());
                packed.map(|packed| (algorithm as u8, packed))
            }
            None => None,
        };
        match packed {
            Some((algorithm, packed)) => [&header(algorithm, piece.len()), &packed[..]].concat(),
            None => [&raw_header(piece.len()), piece].concat(),
        }
    }

    fn compress(&mut self, algorithm: Algorithm, piece: &[u8]) -> Option<Vec<u8>> {
        let max = piece.len() - piece.len().div_ceil(8);
        let packed = match algorithm {
            Algorithm::Lzf => lzf::compress(piece, max)?,
            Algorithm::Lz4 => lz4_flex::block::compress(piece),
            Algorithm::Zstd => {
                let zstd = self.zstd.as_mut()?;
                let packed = zstd.compress(piece).ok()?;
                self.tables.set(zstd.context_mut().sizeof());
                packed
            }
        };
        (packed.len() <= max).then_some(packed)
    }

    fn learn(&mut self, has_paid: bool) {
        if has_paid {
            (self.failures, self.last_pause) = (0, 0);
            return;
        }
        self.failures += 1;
        if self.failures >= PATIENCE {
            self.last_pause = (self.last_pause * 2).clamp(PATIENCE, PAUSE_MAX);
            self.pause = self.last_pause;
        }
    }
}

/// What stands before a piece that is left as it is.
///
/// # Panics
///
/// If it has 4 GiB or more.
pub fn raw_header(len: usize) -> [u8; HEADER_SIZE] {
    header(RAW, len)
}

fn header(algorithm: u8, len: usize) -> [u8; HEADER_SIZE] {
    let [a, b, c, d] = u32::try_from(len).expect("pieces are short").to_le_bytes();
    [algorithm, a, b, c, d]
}

/// The length of the piece that was packed.
///
/// # Errors
///
/// If it has no header.
pub fn unpacked_len(packed: &[u8]) -> Result<u32, Unsound> {
    let len = packed.get(1..HEADER_SIZE).ok_or(Unsound::Short)?;
    Ok(u32::from_le_bytes(len.try_into().expect("four bytes")))
}

/// Whether a packed piece is compressed.
pub fn is_compressed(packed: &[u8]) -> bool {
    packed.first().is_some_and(|algorithm| *algorithm != RAW)
}

/// The piece; it may come from anywhere.
///
/// # Errors
///
/// If it is not sound, or longer than `len_max`.
pub fn unpack(packed: &[u8], len_max: u32) -> Result<Vec<u8>, Unsound> {
    let len = unpacked_len(packed)?;
    if len > len_max {
        return Err(Unsound::Long(len));
    }
    let (bytes, size) = (&packed[HEADER_SIZE..], len as usize);
    let piece = match packed[0] {
        RAW => bytes.to_vec(),
        1 => {
            let mut piece = Vec::with_capacity(size);
            lzf::decompress_onto(bytes, size, &mut piece).map_err(|_| Unsound::Bytes)?;
            piece
        }
        2 => lz4_flex::block::decompress(bytes, size).map_err(|_| Unsound::Bytes)?,
        3 => bulk::decompress(bytes, size).map_err(|_| Unsound::Bytes)?,
        other => return Err(Unsound::Algorithm(other)),
    };
    if piece.len() == size { Ok(piece) } else { Err(Unsound::Bytes) }
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsound::Short => f.write_str("a packed piece is too short"),
            Unsound::Algorithm(number) => write!(f, "a piece is packed in the way {number}"),
            Unsound::Long(len) => write!(f, "a packed piece is too long: {len} bytes"),
            Unsound::Bytes => f.write_str("a packed piece is not sound"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Option<Algorithm>; 4] =
        [None, Some(Algorithm::Lzf), Some(Algorithm::Lz4), Some(Algorithm::Zstd)];

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn what_shrinks_is_compressed() {
        let text = b"*3\r\n$3\r\nSET\r\n$4\r\nname\r\n$5\r\nvalue\r\n".repeat(500);
        for algorithm in ALL {
            let packed = Packer::new(algorithm, 1).pack(&text);
            assert_eq!(is_compressed(&packed), algorithm.is_some());
            assert_eq!(unpacked_len(&packed), Ok(text.len() as u32));
            assert!(algorithm.is_none() || packed.len() < text.len() / 5, "{algorithm:?}");
            assert_eq!(unpack(&packed, 1 << 20).as_deref(), Ok(&text[..]));
            assert_eq!(unpack(&packed, 100), Err(Unsound::Long(text.len() as u32)));
        }
    }

    #[test]
    fn what_does_not_is_soon_left_alone() {
        let noise = noise(4096);
        for algorithm in ALL.into_iter().flatten() {
            let mut packer = Packer::new(Some(algorithm), 1);
            for _ in 0..PATIENCE {
                assert_eq!(packer.pause, 0);
                assert!(!is_compressed(&packer.pack(&noise)));
            }
            let text = vec![b'a'; 4096];
            for _ in 0..PATIENCE {
                assert!(!is_compressed(&packer.pack(&text)), "a pause");
            }
            assert!(is_compressed(&packer.pack(&text)) && is_compressed(&packer.pack(&text)));
        }
    }

    proptest! {
        #[test]
        fn what_comes_from_anywhere_is_looked_at(
            mut packed in prop::collection::vec(any::<u8>(), 0..200),
            algorithm in 0..5_u8,
        ) {
            if let Some(first) = packed.first_mut() {
                *first = algorithm;
            }
            if let Ok(piece) = unpack(&packed, 1 << 16) {
                prop_assert_eq!(Ok(piece.len() as u32), unpacked_len(&packed));
            }
        }

        #[test]
        fn every_piece_comes_back(
            pieces in prop::collection::vec(prop::collection::vec(0..4_u8, 0..2000), 1..10),
            which in 0..4_usize,
        ) {
            let mut packer = Packer::new(ALL[which], 3);
            for piece in pieces {
                let packed = packer.pack(&piece);
                prop_assert_eq!(unpack(&packed, 2000), Ok(piece));
            }
        }
    }
}
