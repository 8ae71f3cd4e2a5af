//! Setting a key to a value: where the value stands, and what becomes of the old one.

use std::sync::Arc;

use kvasir_structures::record::{NewBody, Record as OwnedRecord};

use crate::compression;
use crate::event::Class;
use crate::gone::note_expired;
use crate::item::Item;
use crate::value::{Object, SHARED_TEXT_MIN, Tag};
use crate::view::View;

impl View<'_, '_> {
    /// Sets a key to a value, whatever it was.
    #[inline]
    pub fn put(&mut self, key: usize, tag: Tag, body: NewBody<'_, Object>, expiry_ms: Option<u64>) {
        self.put_item(key, tag, body, expiry_ms, Item::default());
    }

    /// As [`View::put`], with what memcached's clients know of it.
    pub fn put_item(
        &mut self,
        key: usize,
        tag: Tag,
        body: NewBody<'_, Object>,
        expiry_ms: Option<u64>,
        item: Item,
    ) {
        let trailer = item.needed_trailer();
        self.note_ready(key, tag.kind());
        self.save_before_change(key);
        let guard = self.guard_of(key);
        let (hash, name) = (self.keys[key].hash, self.key(key));
        let slot = &mut self.guards[guard].slot;
        let keeper = slot.keeper();
        if let Some(expiry_ms) = expiry_ms {
            keeper.note_expiry(expiry_ms);
            self.tally.noted_expiry = true;
        }
        let Some(mut occupied) = slot.find(hash, name) else {
            let mut record =
                OwnedRecord::with_trailer(name, tag as u8, body, expiry_ms, trailer.as_ref());
            record.borrow_mut().set_clock(self.env.clock_of_new());
            slot.insert(hash, record, &keeper);
            return self.tell(key, Class::NEW, "new");
        };
        let old_clock = occupied.record().clock();
        let clock = self.env.clock_of_used(old_clock, &mut self.tally.draws);
        if let NewBody::Bytes(bytes) = body
            && occupied.record().expiry_ms().is_none()
            && !occupied.record().parts_expire()
            && expiry_ms.is_none()
            && trailer.is_none()
            && occupied.record_mut().try_write(bytes)
        {
            let mut record = occupied.record_mut();
            record.set_tag(tag as u8);
            record.set_clock(clock);
            return;
        }
        let mut record =
            OwnedRecord::with_trailer(name, tag as u8, body, expiry_ms, trailer.as_ref());
        record.borrow_mut().set_clock(clock);
        let old = occupied.replace(record);
        let has_passed = |expiry_ms| self.env.has_passed(expiry_ms);
        if old.borrow().expiry_ms().is_some_and(has_passed) {
            // Nobody had come upon it; what was put here is the value of a new key.
            let place = self.keys[key].place();
            note_expired(self.keyspace, self.env, self.tally, place, old);
            return self.tell(key, Class::NEW, "new");
        }
        self.tally.discard(old);
    }

    /// Sets a key to a string: compressed or not, in its record or beside it, as options and its
    /// length ask for.
    #[inline]
    pub fn put_text(&mut self, key: usize, tag: Tag, bytes: &[u8], expiry_ms: Option<u64>) {
        self.put_text_item(key, tag, bytes, expiry_ms, Item::default());
    }

    /// As [`View::put_text`], with what memcached's clients know of it.
    pub fn put_text_item(
        &mut self,
        key: usize,
        tag: Tag,
        bytes: &[u8],
        expiry_ms: Option<u64>,
        item: Item,
    ) {
        if let Some(compressed) = self.env.compression.compress(bytes) {
            let body = compression::body(&compressed);
            return self.put_item(key, Tag::CompressedText, body, expiry_ms, item);
        }
        if bytes.len() < SHARED_TEXT_MIN {
            return self.put_item(key, tag, NewBody::Bytes(bytes), expiry_ms, item);
        }
        let object = Box::new(Object::Text(Arc::new(bytes.to_vec())));
        self.put_item(key, tag, NewBody::Object(object), expiry_ms, item);
    }
}
