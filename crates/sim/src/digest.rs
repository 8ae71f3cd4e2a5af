//! A figure that depends on all that has happened in a run, in its order and at its time: two runs
//! with the same one were the same.

use kvasir_reactor::clock;
use kvasir_resp::value::Value;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Digest(u64);

impl Digest {
    pub fn note(&mut self, what: u64) {
        let mixed = (self.0 ^ what ^ clock::monotonic_ns().rotate_left(20)).rotate_left(23);
        self.0 = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub fn note_answers(&mut self, answers: &[Value]) {
        for byte in answers.iter().flat_map(|answer| format!("{answer:?}").into_bytes()) {
            self.note(byte.into());
        }
    }
}
