//! The name of a node, or of a shard: 40 hexadecimal digits.

use std::fmt;

use crate::random::Random;

/// Ordered as its digits are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; 20]);

/// Digits of a name.
pub const DIGITS: usize = 40;

impl NodeId {
    pub fn random(random: &mut Random) -> NodeId {
        let mut bytes = [0; 20];
        bytes.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        NodeId(bytes)
    }

    /// `None` if these are not 40 hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<NodeId> {
        if text.len() != DIGITS {
            return None;
        }
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(NodeId(bytes))
    }

    /// As it stands in packets.
    pub fn digits(&self) -> [u8; DIGITS] {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
        std::array::from_fn(|at| {
            let byte = self.0[at / 2];
            digit(if at % 2 == 0 { byte >> 4 } else { byte & 15 })
        })
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_back() {
        let id = NodeId::random(&mut Random::new(7));
        assert_eq!(NodeId::parse(&id.digits()), Some(id));
        assert_eq!(id.to_string().as_bytes(), id.digits());
        assert_eq!(NodeId::parse(&[b'g'; 40]), None);
        assert_eq!(NodeId::parse(&[b'a'; 39]), None);
    }
}
