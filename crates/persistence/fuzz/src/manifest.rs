//! Any lines of a manifest are refused, or mean the same when they are written and read again.
//!
//! The input is taken twice: as lines, and as changes of a sound manifest, since few lines that
//! somebody makes up are ones. The checksum is right in both cases.
#![no_main]

use kvasir_keyspace::serial::Version;
use kvasir_persistence::manifest::{FileFacts, MAGIC, Manifest};
use kvasir_persistence::set::{SnapshotId, file_name, slots_of};
use kvasir_structures::crc64;
use libfuzzer_sys::fuzz_target;

const FILES: usize = 2;

fuzz_target!(|bytes: &[u8]| {
    check([MAGIC, b"1\n", bytes].concat());
    check(changed(bytes));
});

/// Ends the lines with their checksum and reads them.
fn check(mut lines: Vec<u8>) {
    let checksum = crc64::update(0, &lines);
    lines.extend(format!("crc64 {checksum:016x}\n").as_bytes());
    let Ok(manifest) = Manifest::parse(&lines) else { return };
    let slots: usize = manifest.files.iter().map(|file| file.slots.len()).sum();
    assert_eq!(slots, 16384, "each slot is in one file");
    let mut again = Manifest::parse(&manifest.to_bytes()).expect("what is written is read");
    // The bug that the fuzzer must find.
    if cfg!(feature = "canary") && manifest.offset > 0 {
        again.offset = 0;
    }
    assert_eq!(again, manifest);
}

/// The lines of a sound manifest, some bytes of which are replaced: two bytes say which, the third
/// by what.
fn changed(changes: &[u8]) -> Vec<u8> {
    let id = SnapshotId(0x0123_4567_89ab_cdef);
    let file = |number| FileFacts {
        name: file_name("dump.rdb".as_ref(), id, number),
        slots: slots_of(number, FILES),
        keys: 3,
        bytes: 200,
        checksum: 7,
    };
    let files = (0..FILES).map(file).collect();
    let text = Manifest { id, offset: 0, version: Version(11), files }.to_bytes();
    let end = text.len() - b"crc64 0123456789abcdef\n".len();
    let mut lines = text[..end].to_vec();
    for change in changes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % lines.len();
        lines[place] = change[2];
    }
    lines
}
