//! The first bytes of a file.

use kvasir_keyspace::serial::Version;

/// Size in bytes, of either name.
pub const HEADER_SIZE: usize = 9;

/// From this version on numbers are Valkey's, and so is the name.
const VALKEY_FIRST: u16 = 80;

pub fn header(version: Version) -> [u8; HEADER_SIZE] {
    let text = match version.0 {
        VALKEY_FIRST.. => format!("VALKEY{:03}", version.0),
        _ => format!("REDIS{:04}", version.0),
    };
    text.into_bytes().try_into().expect("a version has few digits")
}

/// The version that a header names, or what is wrong with it.
pub fn parse_header(bytes: &[u8; HEADER_SIZE]) -> Result<Version, String> {
    let digits = bytes.strip_prefix(b"REDIS").or_else(|| bytes.strip_prefix(b"VALKEY"));
    let digits = digits.ok_or("no RDB file: it begins neither with REDIS nor with VALKEY")?;
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = text.and_then(|text| text.parse().ok()).ok_or("the version is no number")?;
    match Version(number) {
        version if version.is_known() => Ok(version),
        _ => Err(format!("RDB version {number}, where 1 to 12 and 80 are known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_and_read() {
        let headers = [b"REDIS0010", b"REDIS0011", b"REDIS0012", b"VALKEY080"];
        for (version, bytes) in [10, 11, 12, 80].into_iter().zip(headers) {
            assert_eq!(&header(Version(version)), bytes);
            assert_eq!(parse_header(bytes), Ok(Version(version)));
        }
        assert_eq!(parse_header(b"REDIS0001"), Ok(Version(1)));
    }

    #[test]
    fn other_files_are_refused() {
        for bytes in [
            b"REDIS0000",
            b"REDIS0013",
            b"VALKEY081",
            b"REDIS00+1",
            b"redis0010",
            b"\x1f\x8b\0\0\0\0\0\0\0",
        ] {
            assert!(parse_header(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
