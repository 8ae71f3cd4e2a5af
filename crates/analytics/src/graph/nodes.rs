//! The nodes of a graph: their ids, and the number of each, in the order in which they were met.

use kvasir_structures::hash;

use crate::column::Cell;

const FREE: u32 = u32::MAX;
/// More nodes than these have no numbers.
pub const NODES_MAX: usize = FREE as usize;

/// Ids, integers or texts, one behind the other.
pub enum Ids {
    Integers(Vec<i64>),
    Texts { ends: Vec<usize>, bytes: Vec<u8> },
}

impl Ids {
    pub fn new(are_integers: bool) -> Ids {
        if are_integers {
            Ids::Integers(Vec::new())
        } else {
            Ids::Texts { ends: Vec::new(), bytes: Vec::new() }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Ids::Integers(ids) => ids.len(),
            Ids::Texts { ends, .. } => ends.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an id; an integer among texts becomes one.
    pub fn push(&mut self, id: Cell<'_>) {
        match (self, id) {
            (Ids::Integers(ids), Cell::Int(id)) => ids.push(id),
            (Ids::Integers(_), _) => unreachable!("the caller made an integer of it"),
            (Ids::Texts { ends, bytes }, Cell::Text(text)) => {
                bytes.extend_from_slice(text);
                ends.push(bytes.len());
            }
            (Ids::Texts { ends, bytes }, id) => {
                bytes.extend_from_slice(&id.to_text());
                ends.push(bytes.len());
            }
        }
    }

    pub fn id(&self, index: usize) -> Cell<'_> {
        match self {
            Ids::Integers(ids) => Cell::Int(ids[index]),
            Ids::Texts { ends, bytes } => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                Cell::Text(&bytes[start..ends[index]])
            }
        }
    }

    pub fn allocated_bytes(&self) -> usize {
        match self {
            Ids::Integers(ids) => 8 * ids.capacity(),
            Ids::Texts { ends, bytes } => 8 * ends.capacity() + bytes.capacity(),
        }
    }
}

/// Ids with a table that finds them: open addressing, at most half full.
pub struct Nodes {
    pub ids: Ids,
    /// A power of two of numbers.
    table: Vec<u32>,
}

impl Nodes {
    pub fn new(are_integers: bool) -> Nodes {
        Nodes { ids: Ids::new(are_integers), table: vec![FREE; 1024] }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub fn allocated_bytes(&self) -> usize {
        self.ids.allocated_bytes() + 4 * self.table.capacity()
    }

    /// The number of an id; a new one if it was not met before.
    pub fn number(&mut self, id: Cell<'_>) -> u32 {
        let place = match self.look_up(id) {
            Ok(number) => return number,
            Err(place) => place,
        };
        let number = self.len() as u32;
        self.ids.push(id);
        self.table[place] = number;
        if 2 * self.len() > self.table.len() {
            self.grow();
        }
        number
    }

    pub fn find(&self, id: Cell<'_>) -> Option<u32> {
        self.look_up(id).ok()
    }

    /// The number of an id, or the free place for it.
    fn look_up(&self, id: Cell<'_>) -> Result<u32, usize> {
        let mut place = hash_of(id) as usize & (self.table.len() - 1);
        loop {
            match self.table[place] {
                FREE => return Err(place),
                number if self.ids.id(number as usize) == id => return Ok(number),
                _ => place = (place + 1) & (self.table.len() - 1),
            }
        }
    }

    fn grow(&mut self) {
        self.table = vec![FREE; 2 * self.table.len()];
        let mask = self.table.len() - 1;
        for number in 0..self.ids.len() {
            let mut place = hash_of(self.ids.id(number)) as usize & mask;
            while self.table[place] != FREE {
                place = (place + 1) & mask;
            }
            self.table[place] = number as u32;
        }
    }

    /// The numbers of all nodes in the order of their ids.
    pub fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        match &self.ids {
            Ids::Integers(ids) => order.sort_unstable_by_key(|number| ids[*number as usize]),
            Ids::Texts { .. } => {
                let text = |number: u32| match self.ids.id(number as usize) {
                    Cell::Text(text) => text,
                    _ => &[],
                };
                order.sort_unstable_by(|one, other| text(*one).cmp(text(*other)));
            }
        }
        order
    }
}

fn hash_of(id: Cell<'_>) -> u64 {
    match id {
        // The upper bits of the product depend on all of the id's.
        Cell::Int(id) => (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32),
        Cell::Text(text) => hash::of(text),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_one_number() {
        let mut nodes = Nodes::new(true);
        let ids: Vec<i64> = (0..5000).map(|n: i64| n * n * 1_000_003 - 7).collect();
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(nodes.number(Cell::Int(*id)), number as u32);
        }
        assert!(ids.iter().enumerate().all(|(n, id)| nodes.find(Cell::Int(*id)) == Some(n as u32)));
        assert_eq!(nodes.find(Cell::Int(3)), None);
        let mut texts = Nodes::new(false);
        for word in ["b", "", "a", "b", "aa"] {
            texts.number(Cell::Text(word.as_bytes()));
        }
        assert_eq!((texts.len(), texts.in_order()), (4, vec![1, 2, 3, 0]));
    }
}
