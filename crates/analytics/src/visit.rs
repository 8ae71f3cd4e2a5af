//! Going through the slots of an image, some at a time.

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::snapshot::Image;
use kvasir_keyspace::value::{self, Object};
use kvasir_structures::gate::Gate;
use kvasir_structures::record::{Body, Record};

use crate::turns::{Shift, Turns};

/// Slots that are visited within one turn: some tenths of a millisecond where each has few keys.
const SLOTS_PER_TURN: usize = 16;

/// What visitors need of the data.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub keyspace: &'a Keyspace,
    pub gate: &'a Gate,
    pub turns: &'a Turns,
}

impl Place<'_> {
    /// Visits these slots. Between turns `before` is called, with how many were visited: false
    /// ends it.
    pub fn visit(self, image: &Image, slots: &[u16], mut before: impl FnMut(usize) -> bool) {
        let (mut next, mut shift) = (0, Shift::new(self.turns));
        while next < slots.len() && before(next) {
            shift.next_piece();
            let pass = self.gate.enter_extra();
            let end = (next + SLOTS_PER_TURN).min(slots.len());
            while next < end && !image.visit(self.keyspace, &pass, slots[next]) {
                next += 1;
            }
            drop(pass);
            shift.rest();
        }
    }
}

/// What a part of a large value takes in a copy that shares its parts with the value.
pub const PART: usize = 32;

/// What a copy of a large value costs.
pub fn cost_of(record: &Record<Object>) -> usize {
    match record.borrow().body() {
        Body::Bytes(bytes) => bytes.len(),
        Body::Object(_) => PART * value::part_count(record.borrow()),
    }
}
