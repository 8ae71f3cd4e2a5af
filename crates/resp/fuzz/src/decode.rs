//! Any bytes decode to replies or to an error, the same in one piece and byte by byte.
#![no_main]

use kvasir_resp::decode::{DecodeError, Decoder, decode_all};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = decode_all(input);
    let mut decoder = Decoder::default();
    let mut values = vec![];
    for byte in input {
        decoder.feed(&[*byte]);
        loop {
            match decoder.next_value() {
                Ok(Some(value)) => values.push(value),
                Ok(None) => break,
                Err(error) => return assert_eq!(whole.err(), Some(error)),
            }
        }
    }
    match whole {
        // As text: a NaN is not equal to itself.
        Ok(whole) => assert_eq!(format!("{values:?}"), format!("{whole:?}")),
        Err(error) => {
            assert_eq!(error, DecodeError::Truncated);
            assert!(!decoder.is_idle());
        }
    }
});
