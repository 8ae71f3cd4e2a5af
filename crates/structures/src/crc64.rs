//! The checksum of RDB files and of DUMP: CRC-64/Jones, as Redis has it.
//!
//! | Parameter | Value |
//! |---|---|
//! | polynomial | `ad93d23594c935a9`, here reflected: `95ac9329ac4bc9b5` |
//! | start, final xor | 0 |
//! | input and output | reflected |
//! | check value, of `123456789` | `e9c6d914c4b8d9ca` |

use crc_fast::CrcAlgorithm::Crc64Redis;
use crc_fast::Digest;

/// The checksum of `bytes` behind what has the checksum `crc`; 0 where nothing came before.
pub fn update(crc: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(Crc64Redis, crc);
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

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
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            cut in 0..3000usize,
        ) {
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(update(update(0, head), tail), bit_by_bit(0, &bytes));
        }
    }
}
