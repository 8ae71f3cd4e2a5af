//! Flatbuffers, as far as Arrow's messages need them: tables, strings, vectors.
//!
//! Everything is written forwards: a table first, with room for what it refers to, and what it
//! refers to behind it. Positions count from the beginning of the buffer, and each value stands at
//! a multiple of its size, as <https://flatbuffers.dev/internals/> says.

/// A buffer that grows.
pub struct Flat {
    bytes: Vec<u8>,
}

/// The value of a table's field.
#[derive(Clone, Copy)]
pub enum Slot {
    /// Its default.
    Absent,
    Byte(u8),
    Short(i16),
    Int(i32),
    Long(i64),
    /// To something that is written later.
    Reference,
}

/// Where a table begins, and where each of its references stands, in order.
pub struct Table {
    pub start: usize,
    pub references: Vec<usize>,
}

impl Slot {
    fn size(self) -> usize {
        match self {
            Slot::Absent => 0,
            Slot::Byte(_) => 1,
            Slot::Short(_) => 2,
            Slot::Int(_) | Slot::Reference => 4,
            Slot::Long(_) => 8,
        }
    }
}

impl Flat {
    /// With room for the reference to the root at position 0.
    pub fn new() -> Flat {
        Flat { bytes: vec![0; 4] }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes a table: what its fields are, two bytes each, then the fields.
    pub fn table(&mut self, slots: &[Slot]) -> Table {
        self.align(2);
        let directory = self.bytes.len();
        let directory_len = 4 + 2 * slots.len();
        let start = (directory + directory_len).next_multiple_of(4);
        let (mut at, mut places) = (start + 4, Vec::new());
        for slot in slots {
            let size = slot.size();
            at = at.next_multiple_of(size.max(1));
            places.push(at);
            at += size;
        }
        self.bytes.resize(at, 0);
        self.put(directory, &(directory_len as u16).to_le_bytes());
        self.put(directory + 2, &((at - start) as u16).to_le_bytes());
        self.put(start, &((start - directory) as i32).to_le_bytes());
        let mut references = Vec::new();
        for (index, (slot, place)) in slots.iter().zip(places).enumerate() {
            match *slot {
                Slot::Absent => continue,
                Slot::Byte(value) => self.put(place, &[value]),
                Slot::Short(value) => self.put(place, &value.to_le_bytes()),
                Slot::Int(value) => self.put(place, &value.to_le_bytes()),
                Slot::Long(value) => self.put(place, &value.to_le_bytes()),
                Slot::Reference => references.push(place),
            }
            self.put(directory + 4 + 2 * index, &((place - start) as u16).to_le_bytes());
        }
        Table { start, references }
    }

    /// Has a reference lead to what stands at `target`, behind it.
    pub fn refer(&mut self, reference: usize, target: usize) {
        self.put(reference, &((target - reference) as u32).to_le_bytes());
    }

    pub fn string(&mut self, text: &str) -> usize {
        self.align(4);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        start
    }

    /// A vector of references: where it begins, and where each of them stands.
    pub fn references(&mut self, count: usize) -> (usize, Vec<usize>) {
        self.align(4);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(count as u32).to_le_bytes());
        let places = (0..count).map(|index| start + 4 + 4 * index).collect();
        self.bytes.resize(start + 4 + 4 * count, 0);
        (start, places)
    }

    /// A vector of structures of two longs.
    pub fn pairs(&mut self, pairs: &[(i64, i64)]) -> usize {
        // Its count stands right before the first long.
        self.align(8);
        self.bytes.extend_from_slice(&[0; 4]);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
        for (one, other) in pairs {
            self.bytes.extend_from_slice(&one.to_le_bytes());
            self.bytes.extend_from_slice(&other.to_le_bytes());
        }
        start
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_laid_out_as_the_format_says() {
        let mut flat = Flat::new();
        let table = flat.table(&[Slot::Byte(7), Slot::Absent, Slot::Long(9), Slot::Reference]);
        flat.refer(0, table.start);
        let text = flat.string("ab");
        flat.refer(table.references[0], text);
        let bytes = flat.into_bytes();
        // Twelve bytes of directory behind the root, so the table begins at 16.
        assert_eq!(bytes[..4], [16, 0, 0, 0]);
        assert_eq!(bytes[4..16], [12, 0, 20, 0, 4, 0, 0, 0, 8, 0, 16, 0]);
        assert_eq!(bytes[16..20], [12, 0, 0, 0]);
        assert_eq!((bytes[20], bytes[24]), (7, 9));
        assert_eq!(bytes[32..], [4, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 0]);
    }
}
