//! Fields that expire: deleting those whose time has come, a few pages of a table at a time.
//!
//! Whoever comes upon a hash with such fields deletes some of them; the cycle of `expire` deletes
//! the rest. As with keys, they are logged: whoever follows a log deletes nothing on its own.

use kvasir_structures::record::BodyMut;

use crate::found::Found;
use crate::value::Object;

/// Pages that a call looks through which comes upon dead fields: all of a hash of some hundred
/// fields, for which even HLEN and EXISTS are exact therefore.
pub const PAGES_PER_ACCESS: usize = 8;
/// Pages that a visit of the expiry cycle looks through under one lock; some tens of microseconds.
pub const PAGES_PER_VISIT: usize = 16;

/// Deletes dead fields of a hash in at most so many pages; none if the hash went with its last one.
pub fn expire_some(mut found: Found<'_>, pages_max: usize) -> Option<Found<'_>> {
    let env = found.env;
    let mut record = found.occupied.record_mut();
    let BodyMut::Object(Object::Hash(fields)) = record.body_mut() else { return Some(found) };
    let mut expired = Vec::new();
    fields.expire_some(env.passed_ms(), pages_max, |field| expired.push(field.to_vec()));
    let is_empty = fields.is_empty();
    found.note_expired_fields(expired);
    if is_empty {
        found.delete_expired();
        return None;
    }
    found.note_part_expiry();
    Some(found)
}
