//! Fields that expire: deleting those whose time has come, a few pages of a table at a time.
//!
//! Whoever comes upon a hash with such fields deletes some of them; the cycle of `expire` deletes
//! the rest. As with keys, they are logged: whoever follows a log deletes nothing on its own.

use kvasir_structures::record::{BodyMut, NewBody};

use crate::found::Found;
use crate::hash_expiring::Expiring;
use crate::value::{Object, Tag};

/// Pages that a call looks through which comes upon dead fields: all of a hash of some hundred
/// fields, for which even HLEN and EXISTS are exact therefore.
pub const PAGES_PER_ACCESS: usize = 8;
/// Pages that a visit of the expiry cycle looks through under one lock; some tens of microseconds.
pub const PAGES_PER_VISIT: usize = 16;

/// Deletes dead fields of a hash, of a large one in at most so many pages; none if the hash went
/// with its last one.
pub fn expire_some(mut found: Found<'_>, pages_max: usize) -> Option<Found<'_>> {
    let passed_ms = found.env.passed_ms();
    let is_small = Tag::of(found.record()) == Tag::HashExpiring;
    let (mut expired, mut rest) = (Vec::new(), None);
    let is_empty = match found.occupied.record_mut().body_mut() {
        BodyMut::Object(Object::Hash(fields)) => {
            fields.expire_some(passed_ms, pages_max, |field| expired.push(field.to_vec()));
            fields.is_empty()
        }
        BodyMut::Bytes(bytes) if is_small => {
            let fields = rest.insert(Expiring::copy(bytes, 0));
            fields.remove_until(passed_ms, |field| expired.push(field.to_vec()));
            fields.view().is_empty()
        }
        _ => return Some(found),
    };
    found.note_expired_fields(expired);
    if is_empty {
        found.delete_expired();
        return None;
    }
    if let Some(fields) = rest {
        found.set_body(Tag::HashExpiring, NewBody::Bytes(&fields.into_bytes()));
    }
    found.note_part_expiry();
    Some(found)
}
