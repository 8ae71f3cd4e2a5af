//! A table of slots with dense indices. A slot's generation changes each time it is emptied, so
//! that an id which outlived its entry is told from the entry that took its place.

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), vacant: Vec::new() }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Index and generation of the new entry. The slot emptied last is used first.
    pub(crate) fn insert(&mut self, value: T) -> (u32, u32) {
        let Some(index) = self.vacant.pop() else {
            let index = u32::try_from(self.slots.len()).expect("descriptors fit into 31 bits");
            self.slots.push(Slot { generation: 0, value: Some(value) });
            return (index, 0);
        };
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.value.is_none());
        slot.value = Some(value);
        (index, slot.generation)
    }

    /// As `find`, to look at it only.
    pub(crate) fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation == generation { slot.value.as_ref() } else { None }
    }

    /// `None` if the entry has been removed, also if another took its slot.
    pub(crate) fn find(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation == generation { slot.value.as_mut() } else { None }
    }

    pub(crate) fn generation(&self, index: u32) -> Option<u32> {
        self.slots.get(index as usize).map(|slot| slot.generation)
    }

    pub(crate) fn remove(&mut self, index: u32, generation: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(index);
        Some(value)
    }

    /// Index and generation of every entry there is.
    pub(crate) fn ids(&self) -> Vec<(u32, u32)> {
        let taken = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        taken.map(|(index, slot)| (index as u32, slot.generation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_generation() {
        let mut slab = Slab::new();
        let (first, second) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((first, second), ((0, 0), (1, 0)));
        assert_eq!(slab.remove(first.0, first.1), Some('a'));
        assert_eq!(slab.remove(first.0, first.1), None);
        let third = slab.insert('c');
        assert_eq!(third, (0, 1));
        assert_eq!(slab.find(first.0, first.1), None);
        assert_eq!(slab.find(third.0, third.1), Some(&mut 'c'));
        assert_eq!((slab.count(), slab.ids()), (2, vec![(0, 1), (1, 0)]));
    }
}
