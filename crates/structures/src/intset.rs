//! The intset: a sorted array of integers, as wide as the widest needs; Redis's form, so that dumps
//! carry it as it is.
//!
//! | Offset | Size | Field, little endian |
//! |---|---|---|
//! | 0 | 4 | bytes of an integer: 2, 4 or 8 |
//! | 4 | 4 | number of integers |
//! | 8 | | the integers, ascending, none twice |
//!
//! [`IntsetRef`] reads bytes that live anywhere; [`Intset`] owns its bytes. Bytes from outside pass
//! [`validate`] first. An integer that is removed does not make the others narrower.

use std::fmt;

/// The size of an empty intset.
pub const SIZE_MIN: usize = HEADER_SIZE;

const HEADER_SIZE: usize = 8;

/// What is wrong with the bytes of a would-be intset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntsetError {
    /// Shorter than a header, or not as long as the header says.
    Length { actual: usize },
    /// Integers have 2, 4 or 8 bytes.
    Width { header: u32 },
    /// The integer at this index is not greater than the one before.
    Order { index: usize },
}

impl fmt::Display for IntsetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            IntsetError::Length { actual } => write!(f, "intset of {actual} bytes says otherwise"),
            IntsetError::Width { header } => write!(f, "intset of integers of {header} bytes"),
            IntsetError::Order { index } => write!(f, "intset out of order at {index}"),
        }
    }
}

impl std::error::Error for IntsetError {}

/// Checks every byte of `bytes`; whatever they are, it does not panic. Linear in their number.
pub fn validate(bytes: &[u8]) -> Result<(), IntsetError> {
    let actual = bytes.len();
    let (Some(width), Some(len)) = (word(bytes, 0), word(bytes, 4)) else {
        return Err(IntsetError::Length { actual });
    };
    if ![2, 4, 8].contains(&width) {
        return Err(IntsetError::Width { header: width });
    }
    if u64::from(len) * u64::from(width) + HEADER_SIZE as u64 != actual as u64 {
        return Err(IntsetError::Length { actual });
    }
    let ints = IntsetRef { bytes };
    match (1..ints.len()).find(|index| ints.at(index - 1) >= ints.at(*index)) {
        Some(index) => Err(IntsetError::Order { index }),
        None => Ok(()),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// An intset in borrowed bytes.
#[derive(Clone, Copy)]
pub struct IntsetRef<'a> {
    bytes: &'a [u8],
}

impl<'a> IntsetRef<'a> {
    /// Bytes that are one intset, made here or passed by [`validate`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> IntsetRef<'a> {
        let ints = IntsetRef { bytes };
        let size = HEADER_SIZE + ints.len() * ints.width();
        assert_eq!(size, bytes.len(), "an intset knows its size");
        ints
    }

    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub fn len(self) -> usize {
        word(self.bytes, 4).expect("an intset has a header") as usize
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The integer with this index, which is below the length; they ascend.
    #[inline]
    pub fn at(self, index: usize) -> i64 {
        let (width, from) = (self.width(), self.offset(index));
        let bytes = &self.bytes[from..from + width];
        match *bytes {
            [a, b] => i64::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => i64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        }
    }

    /// The index of an integer, or the one that it would get.
    pub fn search(self, int: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle).cmp(&int) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    pub fn contains(self, int: i64) -> bool {
        self.search(int).is_ok()
    }

    /// The integers, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = i64> + use<'a> {
        (0..self.len()).map(move |index| self.at(index))
    }

    #[inline]
    fn width(self) -> usize {
        word(self.bytes, 0).expect("an intset has a header") as usize
    }

    #[inline]
    fn offset(self, index: usize) -> usize {
        HEADER_SIZE + index * self.width()
    }
}

/// An intset that owns its bytes.
#[derive(Clone)]
pub struct Intset {
    bytes: Vec<u8>,
}

impl Default for Intset {
    fn default() -> Intset {
        Intset::new()
    }
}

impl Intset {
    pub fn new() -> Intset {
        Intset { bytes: vec![2, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// Bytes that are one intset, made here or passed by [`validate`].
    pub fn from_sound_bytes(bytes: Vec<u8>) -> Intset {
        IntsetRef::new(&bytes);
        Intset { bytes }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    #[inline]
    pub fn view(&self) -> IntsetRef<'_> {
        IntsetRef { bytes: &self.bytes }
    }

    pub fn len(&self) -> usize {
        self.view().len()
    }

    pub fn is_empty(&self) -> bool {
        self.view().is_empty()
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an integer; says whether it is new. Linear where it does not go to the end.
    pub fn insert(&mut self, int: i64) -> bool {
        let width = width_of(int);
        if width > self.view().width() {
            self.widen(width);
        }
        let Err(index) = self.view().search(int) else { return false };
        let (at, width) = (self.view().offset(index), self.view().width());
        self.bytes.splice(at..at, int.to_le_bytes()[..width].iter().copied());
        self.set_len(self.len() + 1);
        true
    }

    /// Removes an integer; says whether it was there. Linear where it was not the last.
    pub fn remove(&mut self, int: i64) -> bool {
        let Ok(index) = self.view().search(int) else { return false };
        self.bytes.drain(self.view().offset(index)..self.view().offset(index + 1));
        self.set_len(self.len() - 1);
        true
    }

    fn widen(&mut self, width: usize) {
        let mut bytes = Vec::with_capacity(HEADER_SIZE + (self.len() + 1) * width);
        bytes.extend((width as u32).to_le_bytes());
        bytes.extend(&self.bytes[4..HEADER_SIZE]);
        self.view().iter().for_each(|int| bytes.extend(&int.to_le_bytes()[..width]));
        self.bytes = bytes;
    }

    fn set_len(&mut self, len: usize) {
        let len = u32::try_from(len).expect("an intset is small");
        self.bytes[4..HEADER_SIZE].copy_from_slice(&len.to_le_bytes());
    }
}

fn width_of(int: i64) -> usize {
    match int {
        _ if i16::try_from(int).is_ok() => 2,
        _ if i32::try_from(int).is_ok() => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn int() -> impl Strategy<Value = i64> {
        let edges = [i16::MIN as i64, i16::MAX as i64, i32::MIN as i64, i32::MAX as i64];
        prop_oneof![
            8 => -20..20i64,
            2 => (prop::sample::select(edges.to_vec()), -1..=1i64).prop_map(|(edge, by)| edge + by),
            1 => any::<i64>(),
            1 => prop::sample::select(vec![i64::MIN, i64::MAX]),
        ]
    }

    proptest! {
        #[test]
        fn an_intset_is_an_ordered_set(
            steps in prop::collection::vec((any::<bool>(), int()), 0..200),
        ) {
            let (mut ints, mut model, mut widest) = (Intset::new(), BTreeSet::new(), 2);
            for (inserts, int) in steps {
                if inserts {
                    prop_assert_eq!(ints.insert(int), model.insert(int));
                    widest = widest.max(width_of(int));
                } else {
                    prop_assert_eq!(ints.remove(int), model.remove(&int));
                }
                prop_assert_eq!(ints.view().contains(int), inserts);
                prop_assert_eq!(validate(ints.view().bytes()), Ok(()));
                prop_assert_eq!(ints.size_bytes(), SIZE_MIN + model.len() * widest);
            }
            prop_assert_eq!(ints.is_empty(), model.is_empty());
            prop_assert!(ints.view().iter().eq(model.iter().copied()));
            let copy = Intset::from_sound_bytes(ints.clone().into_bytes());
            prop_assert_eq!(copy.len(), model.len());
        }

        #[test]
        fn any_bytes_are_refused_or_sound(
            width in prop::sample::select(vec![0u32, 2, 4, 8, 16, u32::MAX]),
            len in prop_oneof![0..20u32, Just(u32::MAX)],
            rest in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let bytes = [&width.to_le_bytes()[..], &len.to_le_bytes(), &rest].concat();
            for bytes in [&bytes[..], &rest] {
                if validate(bytes).is_ok() {
                    let ints = IntsetRef::new(bytes);
                    prop_assert!(ints.iter().is_sorted());
                    prop_assert!(ints.iter().all(|int| ints.contains(int)));
                }
            }
        }
    }

    /// As `DUMP` of Redis shows it.
    #[test]
    fn the_bytes_are_those_of_redis() {
        let mut ints = Intset::new();
        [5, -1, 300].into_iter().for_each(|int| assert!(ints.insert(int)));
        assert_eq!(ints.view().bytes(), b"\x02\0\0\0\x03\0\0\0\xff\xff\x05\0\x2c\x01");
        assert!(ints.insert(1 << 16));
        assert_eq!(
            ints.view().bytes(),
            b"\x04\0\0\0\x04\0\0\0\xff\xff\xff\xff\x05\0\0\0\x2c\x01\0\0\0\0\x01\0"
        );
    }

    #[test]
    fn what_is_refused() {
        assert_eq!(validate(b"\x02\0\0\0\0\0\0"), Err(IntsetError::Length { actual: 7 }));
        assert_eq!(validate(b"\x03\0\0\0\0\0\0\0"), Err(IntsetError::Width { header: 3 }));
        let twice = b"\x02\0\0\0\x02\0\0\0\x05\0\x05\0";
        assert_eq!(validate(twice), Err(IntsetError::Order { index: 1 }));
        assert_eq!(validate(&twice[..11]), Err(IntsetError::Length { actual: 11 }));
    }
}
