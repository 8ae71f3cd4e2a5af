//! Any bytes are an intset or an error; what is an intset can be read and edited as a set.
//!
//! | Bytes of the input | Meaning |
//! |---|---|
//! | 1 | size of the intset |
//! | size | the intset |
//! | the rest | edits: bit 0: insert or remove; bits 2 to 7: bits to shift by; then 2 bytes |
#![no_main]

use std::collections::BTreeSet;

use kvasir_structures::intset::{Intset, validate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&size, rest)) = input.split_first() else { return };
    let Some((bytes, edits)) = rest.split_at_checked(usize::from(size)) else { return };
    let mut ints = match validate(bytes) {
        Ok(()) => Intset::from_sound_bytes(bytes.to_vec()),
        Err(_) => Intset::new(),
    };
    let mut model: BTreeSet<i64> = ints.view().iter().collect();
    check(&ints, &model);
    for edit in edits.chunks_exact(3) {
        let int = i64::from(i16::from_le_bytes([edit[1], edit[2]])) << (edit[0] >> 2);
        if edit[0] & 1 == 0 {
            assert_eq!(ints.insert(int), model.insert(int));
        } else {
            // The bug that the fuzzer must find.
            let is_forgotten = cfg!(feature = "canary") && int == -2;
            let was_there = if is_forgotten { model.contains(&int) } else { model.remove(&int) };
            assert_eq!(ints.remove(int), was_there);
        }
        check(&ints, &model);
    }
});

fn check(ints: &Intset, model: &BTreeSet<i64>) {
    assert_eq!(validate(ints.view().bytes()), Ok(()));
    assert!(ints.view().iter().eq(model.iter().copied()));
    assert!(model.iter().all(|int| ints.view().contains(*int)));
}
