//! The integers of BITFIELD: widths, signs, and what happens when a result does not fit.

/// An integer of `width` bits: 1 to 64 if signed, 1 to 63 if not.
#[derive(Clone, Copy)]
pub struct Type {
    pub is_signed: bool,
    pub width: u32,
}

/// What becomes of a result that does not fit.
#[derive(Clone, Copy)]
pub enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Type {
    /// The number that the lowest `width` bits say.
    pub fn decode(self, bits: u64) -> i64 {
        let unused = 64 - self.width;
        if self.is_signed {
            (bits << unused) as i64 >> unused
        } else {
            (bits << unused >> unused) as i64
        }
    }

    /// `value` as this type has it; none if it does not fit and that is to fail. A negative value
    /// of an unsigned type is too large, not too small.
    pub fn assign(self, value: i64, overflow: Overflow) -> Option<i64> {
        let value = if self.is_signed { i128::from(value) } else { i128::from(value as u64) };
        self.fit(value, overflow)
    }

    /// `old + change`; none if it does not fit and that is to fail.
    pub fn add(self, old: i64, change: i64, overflow: Overflow) -> Option<i64> {
        self.fit(i128::from(old) + i128::from(change), overflow)
    }

    fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = match self.is_signed {
            true => (-1 << (self.width - 1), (1 << (self.width - 1)) - 1),
            false => (0, (1i128 << self.width) - 1),
        };
        match overflow {
            _ if (min..=max).contains(&value) => Some(value as i64),
            Overflow::Wrap => Some(self.decode(value as u64)),
            Overflow::Saturate => Some(value.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }
}
