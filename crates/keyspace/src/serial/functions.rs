//! FUNCTION DUMP's payload: libraries as RDB files have them, and DUMP's footer.
//!
//! | Size | Field |
//! |---|---|
//! | 1 | 245, for each library |
//! | | its code, a string |
//! | 2 | version, little endian |
//! | 8 | CRC64 of all before it, little endian |

use super::dump::{seal, split_footer};
use super::{Reader, Version, Writer};

const LIBRARY: u8 = 245;

/// The payload of libraries with this code.
pub fn dump<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut writer = Writer::new(Version::REDIS_7_0);
    for code in codes {
        writer.push(&[LIBRARY]);
        writer.string(code);
    }
    seal(writer, Version::REDIS_7_0)
}

/// The code of each library of a payload, or what Redis says of one that is none.
pub fn undump(payload: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let libraries =
        split_footer(payload, false).ok_or("ERR DUMP payload version or checksum are wrong")?;
    let mut reader = Reader::new(libraries, payload.len().max(1 << 20));
    let mut codes = Vec::new();
    while reader.offset() < libraries.len() {
        match reader.byte() {
            Ok(LIBRARY) => {}
            _ => return Err("ERR given type is not a function"),
        }
        let code = reader.string().map_err(|_| "ERR Failed loading library data")?;
        codes.push(code.into_owned());
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dumped_is_read_again() {
        let codes: [&[u8]; 2] = [b"#!lua name=a\n1", b"#!lua name=b\n2"];
        let payload = dump(codes.into_iter());
        assert_eq!(undump(&payload).as_deref(), Ok(&codes.map(<[u8]>::to_vec)[..]));
        assert_eq!(undump(&dump([].into_iter())), Ok(Vec::new()));
    }

    #[test]
    fn a_payload_of_anything_else_is_refused() {
        let payload = dump([&b"#!lua name=a\n1"[..]].into_iter());
        for at in 0..payload.len() {
            let mut broken = payload.clone();
            broken[at] ^= 1;
            assert_eq!(undump(&broken), Err("ERR DUMP payload version or checksum are wrong"));
            assert!(undump(&payload[..at]).is_err());
        }
    }
}
