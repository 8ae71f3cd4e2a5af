//! Passwords: kept as SHA-256, compared in constant time.

use sha2::{Digest, Sha256};

use crate::rule::RuleError;

/// The hash of a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PasswordHash([u8; 32]);

impl PasswordHash {
    pub fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// Of 64 hexadecimal digits in lower case.
    pub fn parse(digits: &[u8]) -> Result<PasswordHash, RuleError> {
        let (pairs, rest) = digits.as_chunks::<2>();
        let hash = <&[[u8; 2]; 32]>::try_from(pairs).map_err(|_| RuleError::BadHash)?;
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if !rest.is_empty() || !digits.iter().all(is_hex) {
            return Err(RuleError::BadHash);
        }
        Ok(PasswordHash(hash.map(|[high, low]| nibble(high) << 4 | nibble(low))))
    }

    /// As 64 hexadecimal digits in lower case.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Takes as long wherever the first difference is, so that guessing learns nothing from time.
    pub fn equals(&self, other: &PasswordHash) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
        std::hint::black_box(difference) == 0
    }
}

/// The value of a hexadecimal digit in lower case.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_sha256_in_hexadecimal() {
        let hash = PasswordHash::of(b"pw");
        let hex = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
        assert_eq!(hash.to_hex(), hex);
        assert_eq!(PasswordHash::parse(hex.as_bytes()), Ok(hash));
        assert!(hash.equals(&PasswordHash::of(b"pw")));
        assert!(!hash.equals(&PasswordHash::of(b"pW")));
        for wrong in
            ["", &hex[1..], &hex.to_uppercase(), &format!("{hex}0"), &hex.replace('3', "g")]
        {
            assert_eq!(PasswordHash::parse(wrong.as_bytes()), Err(RuleError::BadHash), "{wrong}");
        }
    }
}
