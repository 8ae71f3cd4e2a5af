//! Any lines of an append-only file's manifest are refused, or mean the same when they are written
//! and read again.
//!
//! The input is taken twice: as lines, and as changes of a sound manifest, since few lines that
//! somebody makes up are ones.
#![no_main]

use kvasir_persistence::aof::manifest::{Manifest, Part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&changed(bytes));
});

fn check(lines: &[u8]) {
    let Ok(manifest) = Manifest::parse(lines) else { return };
    let sequence: Vec<u64> = manifest.increments.iter().map(|part| part.seq).collect();
    assert!(sequence.is_sorted() && !sequence.contains(&0));
    let parts = manifest.base.iter().chain(&manifest.history).chain(&manifest.increments);
    for Part { name, .. } in parts {
        assert!(!name.is_empty() && !name.contains('/'), "a name that leads elsewhere: {name}");
    }
    // Names that take long to quote make lines that are longer than there may be.
    let Ok(mut again) = Manifest::parse(&manifest.to_bytes()) else {
        let bytes = manifest.to_bytes();
        let mut lines = bytes.split(|byte| *byte == b'\n');
        return assert!(lines.any(|line| line.len() > 1024), "what is written is read");
    };
    // The bug that the fuzzer must find.
    if cfg!(feature = "canary") && manifest.increments.len() == 2 {
        again.increments.pop();
    }
    assert_eq!(again, manifest);
}

/// The lines of a sound manifest, some bytes of which are replaced: one says which, the next by
/// what.
fn changed(changes: &[u8]) -> Vec<u8> {
    let part = |name: &str, seq| Part { name: name.into(), seq };
    let manifest = Manifest {
        base: Some(part("a.2.base.rdb", 2)),
        history: vec![part("a.1.base.rdb", 1), part("a b.1.incr.aof", 1)],
        increments: vec![part("a.2.incr.aof", 2), part("a.9.incr.aof", 9)],
    };
    let mut lines = manifest.to_bytes();
    for change in changes.chunks_exact(2) {
        let place = usize::from(change[0]) % lines.len();
        lines[place] = change[1];
    }
    lines
}
