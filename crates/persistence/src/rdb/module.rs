//! Data of modules. There are none here, but a file that holds some can be read past them.
//!
//! A module's name is 9 characters of 6 bits and 10 bits of version, in one number. Its data is a
//! row of parts, each behind a number that says what it is: 0 the end, 1 and 2 an integer, 3 a
//! float, 4 a double, 5 a string.

use kvasir_keyspace::serial::{Reader, SerialError};

const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const NAME_LEN: u32 = 9;
const VERSION_BITS: u32 = 10;

/// The name in a module's number.
pub fn module_name(number: u64) -> String {
    let character = |place| CHARACTERS[(number >> (VERSION_BITS + 6 * place) & 63) as usize];
    (0..NAME_LEN).rev().map(|place| char::from(character(place))).collect()
}

/// Why a file is refused that holds data of a module: a value, or what it keeps beside its values.
pub fn unknown_module(module: &str, is_value: bool) -> String {
    let (data, what) =
        if is_value { ("module data", "module type") } else { ("AUX module data", "module") };
    format!(
        "The RDB file contains {data} I can't load: no matching {what} '{module}' (rdb-skip-modules \
         leaves it out)"
    )
}

/// Goes past data of a module and returns the module's number.
pub(super) fn skip_data(reader: &mut Reader<'_>) -> Result<u64, SerialError> {
    let module = reader.number()?;
    loop {
        match reader.number()? {
            0 => return Ok(module),
            1 | 2 => drop(reader.number()?),
            3 => drop(reader.take(size_of::<f32>())?),
            4 => drop(reader.take(size_of::<f64>())?),
            5 => reader.skip_string()?,
            _ => return Err(reader.error("no such part of a module's data")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_passed_by() {
        // A module "helloworl", version 0, with one part of each kind.
        let number = b"helloworl".iter().fold(0, |number, byte| {
            let place = CHARACTERS.iter().position(|character| character == byte);
            number << 6 | place.expect("a letter") as u64
        }) << VERSION_BITS;
        assert_eq!(module_name(number), "helloworl");
        let mut bytes = vec![0x81];
        bytes.extend(number.to_be_bytes());
        bytes.extend(b"\x01\x05\x02\x06\x03abcd\x04abcdefgh\x05\x02hi\0");
        let mut reader = Reader::new(&bytes, 100);
        assert_eq!(skip_data(&mut reader), Ok(number));
        assert_eq!(reader.offset(), bytes.len());
        for len in 0..bytes.len() {
            let error = skip_data(&mut Reader::new(&bytes[..len], 100)).expect_err("it is cut");
            assert!(error.is_end_missing(), "{error}");
        }
        assert!(
            skip_data(&mut Reader::new(b"\x01\x06", 100))
                .is_err_and(|error| !error.is_end_missing())
        );
    }
}
