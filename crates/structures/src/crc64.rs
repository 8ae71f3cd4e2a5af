//! The checksum of RDB files and of DUMP: CRC-64/Jones, as Redis has it.
//!
//! | Parameter | Value |
//! |---|---|
//! | polynomial | `ad93d23594c935a9`, here reflected: `95ac9329ac4bc9b5` |
//! | start, final xor | 0 |
//! | input and output | reflected |
//! | check value, of `123456789` | `e9c6d914c4b8d9ca` |
//!
//! Eight bytes are taken at once, each through a table of its own ("slicing by eight"): table `i`
//! holds what a byte does to the sum when `i` more bytes follow it.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
const SLICES: usize = 8;

static TABLES: [[u64; 256]; SLICES] = tables();

/// The checksum of `bytes` behind what has the checksum `crc`; 0 where nothing came before.
pub fn update(crc: u64, bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<SLICES>();
    let crc = chunks.iter().fold(crc, |crc, chunk| {
        let mixed = (crc ^ u64::from_le_bytes(*chunk)).to_le_bytes();
        let bytes = mixed.iter().zip(TABLES.iter().rev());
        bytes.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
    });
    rest.iter().fold(crc, |crc, byte| TABLES[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const fn tables() -> [[u64; 256]; SLICES] {
    let mut tables = [[0; 256]; SLICES];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICES {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[slice - 1][byte];
            tables[slice][byte] = tables[0][(before & 0xff) as usize] ^ (before >> 8);
            byte += 1;
        }
        slice += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bit_by_bit(crc: u64, bytes: &[u8]) -> u64 {
        bytes.iter().fold(crc, |crc, byte| {
            let mixed = crc ^ u64::from(*byte);
            (0..8).fold(mixed, |crc, _| (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 })
        })
    }

    #[test]
    fn known_values() {
        assert_eq!(update(0, b""), 0);
        assert_eq!(update(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        // The end of redis-server 7.0's DUMP of the string "hello".
        assert_eq!(update(0, b"\0\x05hello\x0a\0"), 0x0a20_3465_76df_7263);
    }

    proptest! {
        #[test]
        fn as_bit_by_bit_in_any_pieces(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            cut in 0..100usize,
        ) {
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(update(update(0, head), tail), bit_by_bit(0, &bytes));
        }
    }
}
