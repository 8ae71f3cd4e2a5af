//! A small hash whose fields expire, or did once: a listpack that stands in the key's record.
//!
//! The listpack holds field, value and expiry in turn, ordered by expiry: what dies next stands in
//! front, what never dies at the end, with an expiry of 0. Otherwise an expiry is in ms since 1970.
//! So the next expiry costs one look, and what has died is a run at the beginning.

use kvasir_structures::listpack::{Element, Listpack, ListpackRef, Position};

/// Elements of the listpack for each field.
pub const PARTS: usize = 3;

/// A field, its value, and when it dies.
pub type Entry<'a> = (Element<'a>, Element<'a>, Option<u64>);

/// For reading.
#[derive(Clone, Copy)]
pub struct ExpiringRef<'a>(ListpackRef<'a>);

/// To be changed, outside of its record.
pub struct Expiring(Listpack);

impl<'a> ExpiringRef<'a> {
    /// Bytes that an [`Expiring`] gave.
    pub fn new(bytes: &'a [u8]) -> ExpiringRef<'a> {
        ExpiringRef(ListpackRef::new(bytes))
    }

    /// The number of fields.
    pub fn len(self) -> usize {
        self.0.len() / PARTS
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn size_bytes(self) -> usize {
        self.0.bytes().len()
    }

    /// When the next field dies.
    #[inline]
    pub fn next_expiry_ms(self) -> Option<u64> {
        self.iter().next()?.2
    }

    pub fn get(self, field: &[u8]) -> Option<Entry<'a>> {
        self.find(field).map(|at| self.entry(at))
    }

    pub fn iter(self) -> impl Iterator<Item = Entry<'a>> {
        let mut parts = self.0.iter();
        std::iter::from_fn(move || {
            let (field, value) = (parts.next()?, parts.next()?);
            Some((field, value, expiry_of(parts.next()?)))
        })
    }

    fn find(self, field: &[u8]) -> Option<Position> {
        self.0.find(self.0.start(), field, PARTS - 1)
    }

    fn entry(self, at: Position) -> Entry<'a> {
        let (field, at) = self.0.read(at);
        let (value, at) = self.0.read(at);
        (field, value, expiry_of(self.0.at(at)))
    }

    fn after(self, at: Position) -> Position {
        self.0.skip(at, PARTS)
    }

    /// Before the first field that dies later.
    fn place_for(self, expiry_ms: Option<u64>) -> Position {
        let Some(expiry_ms) = expiry_ms else { return self.0.end() };
        let mut at = self.0.start();
        let dies_first = |other: Option<u64>| other.is_some_and(|other| other <= expiry_ms);
        while at < self.0.end() && dies_first(self.entry(at).2) {
            at = self.after(at);
        }
        at
    }
}

impl Expiring {
    /// Fields and values in turn, none of which expires.
    pub fn from_pairs(pairs: ListpackRef<'_>) -> Expiring {
        let mut fields = Listpack::with_capacity(pairs.bytes().len() + pairs.len());
        let mut elements = pairs.iter();
        while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
            fields.splice(fields.view().end()..fields.view().end(), &parts(field, value, None));
        }
        Expiring(fields)
    }

    /// Fields that are all different.
    pub fn from_entries(mut entries: Vec<Entry<'_>>) -> Expiring {
        entries.sort_by_key(|(_, _, expiry_ms)| expiry_ms.unwrap_or(u64::MAX));
        let mut fields = Listpack::new();
        for (field, value, expiry_ms) in entries {
            let end = fields.view().end();
            fields.splice(end..end, &parts(field, value, expiry_ms));
        }
        Expiring(fields)
    }

    /// A copy of what stands in a record, with room for more bytes.
    pub fn copy(bytes: &[u8], room: usize) -> Expiring {
        let mut copy = Vec::with_capacity(bytes.len() + room);
        copy.extend_from_slice(bytes);
        Expiring(Listpack::from_sound_bytes(copy))
    }

    pub fn view(&self) -> ExpiringRef<'_> {
        ExpiringRef(self.0.view())
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    /// Sets a field to a value and an expiry, whatever they were; says whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8], expiry_ms: Option<u64>) -> bool {
        let found = self.view().find(field);
        if let Some(at) = found {
            if self.view().entry(at).2 == expiry_ms {
                let at = self.0.view().after(at);
                self.0.replace(at, Element::Bytes(value));
                return false;
            }
            self.0.remove(at, PARTS);
        }
        self.insert(Element::Bytes(field), Element::Bytes(value), expiry_ms);
        found.is_none()
    }

    /// Sets or takes away the expiry of a field that is there.
    pub fn set_expiry(&mut self, field: &[u8], expiry_ms: Option<u64>) {
        let Some(at) = self.view().find(field) else { return };
        let (_, value, old_ms) = self.view().entry(at);
        if old_ms != expiry_ms {
            let value = value.to_vec();
            self.0.remove(at, PARTS);
            self.insert(Element::Bytes(field), Element::Bytes(&value), expiry_ms);
        }
    }

    /// Says whether the field was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let found = self.view().find(field);
        found.into_iter().for_each(|at| self.0.remove(at, PARTS));
        found.is_some()
    }

    /// Removes the fields that die up to a time, and calls `f` with each before.
    pub fn remove_until(&mut self, time_ms: u64, mut f: impl FnMut(&[u8])) {
        let due = |entry: &Entry<'_>| entry.2.is_some_and(|expiry_ms| expiry_ms <= time_ms);
        let mut count = 0;
        self.view().iter().take_while(due).for_each(|(field, ..)| {
            f(&field.text());
            count += 1;
        });
        self.0.remove(self.0.view().start(), count * PARTS);
    }

    fn insert(&mut self, field: Element<'_>, value: Element<'_>, expiry_ms: Option<u64>) {
        let at = self.view().place_for(expiry_ms);
        self.0.splice(at..at, &parts(field, value, expiry_ms));
    }
}

fn parts<'a>(
    field: Element<'a>,
    value: Element<'a>,
    expiry_ms: Option<u64>,
) -> [Element<'a>; PARTS] {
    [field, value, Element::Int(expiry_ms.map_or(0, |expiry_ms| expiry_ms as i64))]
}

fn expiry_of(part: Element<'_>) -> Option<u64> {
    match part {
        Element::Int(0) => None,
        Element::Int(expiry_ms) => Some(expiry_ms as u64),
        Element::Bytes(_) => unreachable!("an expiry is a number"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

    #[derive(Clone, Debug)]
    enum Step {
        Set(Vec<u8>, Vec<u8>, Option<u64>),
        SetExpiry(Vec<u8>, Option<u64>),
        Remove(Vec<u8>),
        RemoveUntil(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let name = || (0..12u8).prop_map(|n| if n < 6 { vec![b'0' + n] } else { vec![b'f', n] });
        let expiry = || prop_oneof![Just(None), (1..40u64).prop_map(Some)];
        prop_oneof![
            4 => (name(), name(), expiry()).prop_map(|(f, v, expiry)| Step::Set(f, v, expiry)),
            2 => (name(), expiry()).prop_map(|(field, expiry)| Step::SetExpiry(field, expiry)),
            2 => name().prop_map(Step::Remove),
            1 => (0..40u64).prop_map(Step::RemoveUntil),
        ]
    }

    fn check(fields: &Expiring, model: &Model) {
        let view = fields.view();
        let own =
            view.iter().map(|(field, value, expiry)| (field.to_vec(), (value.to_vec(), expiry)));
        assert_eq!(own.collect::<Model>(), *model);
        assert_eq!(view.len(), model.len());
        let order: Vec<_> = view.iter().map(|entry| entry.2.unwrap_or(u64::MAX)).collect();
        assert!(order.is_sorted(), "{order:?}");
        assert_eq!(view.next_expiry_ms(), model.values().filter_map(|(_, expiry)| *expiry).min());
        for (field, (_, expiry)) in model {
            assert_eq!(view.get(field).map(|entry| entry.2), Some(*expiry));
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec(step(), 1..60)) {
            let (mut fields, mut model) = (Expiring::from_entries(Vec::new()), Model::new());
            for step in steps {
                match step {
                    Step::Set(field, value, expiry) => {
                        let is_new = fields.set(&field, &value, expiry);
                        prop_assert_eq!(is_new, model.insert(field, (value, expiry)).is_none());
                    }
                    Step::SetExpiry(field, expiry) => {
                        fields.set_expiry(&field, expiry);
                        model.entry(field).and_modify(|(_, old)| *old = expiry);
                    }
                    Step::Remove(field) => {
                        prop_assert_eq!(fields.remove(&field), model.remove(&field).is_some());
                    }
                    Step::RemoveUntil(time_ms) => {
                        let mut removed = Vec::new();
                        fields.remove_until(time_ms, |field| removed.push(field.to_vec()));
                        let (len, gone) = (model.len(), removed.len());
                        removed.iter().for_each(|field| drop(model.remove(field)));
                        model.values().for_each(|(_, expiry)| {
                            assert!(expiry.is_none_or(|expiry| expiry > time_ms));
                        });
                        prop_assert_eq!(model.len(), len - gone);
                    }
                }
                check(&fields, &model);
            }
            let bytes = fields.into_bytes();
            let entries = ExpiringRef::new(&bytes).iter().collect::<Vec<_>>().into_iter().rev();
            check(&Expiring::from_entries(entries.collect()), &model);
        }
    }

    #[test]
    fn pairs_get_room_for_expiries() {
        let pairs: Listpack =
            ["f", "1", "g", ""].map(|text| Element::Bytes(text.as_bytes())).into_iter().collect();
        let fields = Expiring::from_pairs(pairs.view());
        let text = |text: &str| text.as_bytes().to_vec();
        check(
            &fields,
            &Model::from([(text("f"), (text("1"), None)), (text("g"), (text(""), None))]),
        );
    }
}
