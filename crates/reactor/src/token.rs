//! What the kernel keeps for us and gives back with each completion: 64 bits that say which kind
//! of operation it was and on which slot.
//!
//! | bits | holds |
//! |---|---|
//! | 0..32 | index of the slot |
//! | 32..56 | low 24 bits of the slot's generation |
//! | 56..64 | kind |

const GENERATION_MASK: u32 = 0x00ff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Receive,
    Send,
    Accept,
    Wake,
    Cancel,
    Connect,
    Bell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) index: u32,
    generation: u32,
}

impl Token {
    pub(crate) fn new(kind: Kind, index: u32, generation: u32) -> Token {
        Token { kind, index, generation: generation & GENERATION_MASK }
    }

    pub(crate) fn with_kind(self, kind: Kind) -> Token {
        Token { kind, ..self }
    }

    pub(crate) fn fits(self, generation: u32) -> bool {
        self.generation == generation & GENERATION_MASK
    }

    pub(crate) fn to_u64(self) -> u64 {
        (self.kind as u64) << 56 | u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_u64(bits: u64) -> Token {
        let kind = match bits >> 56 {
            0 => Kind::Receive,
            1 => Kind::Send,
            2 => Kind::Accept,
            3 => Kind::Wake,
            4 => Kind::Cancel,
            5 => Kind::Connect,
            6 => Kind::Bell,
            other => panic!("completion of an operation never started: kind {other}"),
        };
        Token { kind, index: bits as u32, generation: (bits >> 32) as u32 & GENERATION_MASK }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_back() {
        let all = [Kind::Receive, Kind::Send, Kind::Accept, Kind::Wake, Kind::Cancel];
        for kind in all.into_iter().chain([Kind::Connect, Kind::Bell]) {
            let token = Token::new(kind, u32::MAX - 1, 0x1234_5678);
            assert_eq!(Token::from_u64(token.to_u64()), token);
            assert!(token.fits(0x1234_5678) && !token.fits(0x1234_5679));
        }
    }
}
