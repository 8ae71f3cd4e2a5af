//! Keys in base64, as meta commands have them: the usual alphabet, with padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the text of some bytes.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_there = digit <= chunk.len();
            let value = (bits >> (18 - 6 * digit) & 63) as usize;
            out.push(if is_there { ALPHABET[value] } else { b'=' });
        }
    }
}

/// Appends the bytes of a text; says whether it is one, and not empty.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return false;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return false;
    }
    let (digits, last) = (&text[..text.len() - padding], text.len() / 4 - 1);
    for (index, chunk) in digits.chunks(4).enumerate() {
        let mut bits = 0;
        for at in 0..4 {
            let Some(value) = chunk.get(at).map_or(Some(0), |digit| value(*digit)) else {
                return false;
            };
            bits = bits << 6 | value;
        }
        let count = if index == last { 3 - padding } else { 3 };
        out.extend_from_slice(&bits.to_be_bytes()[1..=count]);
    }
    true
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_texts() {
        for (bytes, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("\0\u{7f}", "AH8=")]
        {
            let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
            encode(bytes.as_bytes(), &mut encoded);
            assert_eq!(encoded, text.as_bytes());
            assert!(decode(text.as_bytes(), &mut decoded));
            assert_eq!(decoded, bytes.as_bytes());
        }
        for wrong in ["", "Zg", "Zg=", "Z===", "Zm9!", "Zm=v", "===="] {
            assert!(!decode(wrong.as_bytes(), &mut Vec::new()), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let (mut text, mut decoded) = (Vec::new(), Vec::new());
            encode(&bytes, &mut text);
            prop_assert!(decode(&text, &mut decoded));
            prop_assert_eq!(decoded, bytes);
        }
    }
}
