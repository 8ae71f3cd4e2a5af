//! Any bytes as a log are refused, torn, or read; and what is left of a sound log, torn off or with
//! one byte changed, is never read as anything but what stood there.
#![no_main]

use std::sync::atomic::AtomicU64;

use kvasir_persistence::aof::load::{AofError, End, Replay, load};
use kvasir_persistence::aof::record::group_head;
use kvasir_resp::args::Args;
use libfuzzer_sys::fuzz_target;

type Call = Vec<Vec<u8>>;

fuzz_target!(|bytes: &[u8]| {
    check_any(bytes);
    if let [a, b, c, bits, rest @ ..] = bytes {
        let place = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        check_sound(rest, place, *bits);
    }
});

#[derive(Default)]
struct Calls(Vec<Call>);

impl Replay for Calls {
    fn call(&mut self, args: Args<'_>) -> Result<(), String> {
        self.0.push(args.iter().map(<[u8]>::to_vec).collect());
        Ok(())
    }
}

fn read(bytes: &[u8]) -> (Vec<Call>, Result<End, AofError>) {
    let mut calls = Calls::default();
    let end = load(bytes, 0, &AtomicU64::new(0), &mut calls);
    // The bug that the fuzzer must find.
    if cfg!(feature = "canary") && calls.0.len() == 2 {
        calls.0.pop();
    }
    (calls.0, end)
}

fn check_any(bytes: &[u8]) {
    let (calls, end) = read(bytes);
    match end {
        Ok(End { offset, room }) => assert_eq!(offset + room, bytes.len() as u64),
        Err(AofError::Torn { offset }) => {
            // What is left when the end is cut off is sound, and the same.
            let (left, end) = read(&bytes[..offset as usize]);
            assert_eq!((left, end.expect("it is sound")), (calls, End { offset, room: 0 }));
        }
        Err(AofError::Broken { offset, .. }) => assert!(offset <= bytes.len() as u64),
        Err(AofError::Io(error)) => panic!("there is no disk: {error}"),
    }
}

/// Makes a log of some calls, and looks at what is read of it as it is, torn off at a place, and
/// changed there.
fn check_sound(text: &[u8], place: usize, bits: u8) {
    let (mut log, mut wanted) = (Vec::new(), Vec::new());
    for group in text.split(|byte| *byte == 0xff) {
        let mut calls: Vec<Call> = group.split(|byte| *byte == 0xfe).map(call).collect();
        let mut body: Vec<u8> = calls.iter().flat_map(|call| encode(call)).collect();
        if calls.len() > 1 {
            let word = |word: &[u8]| encode(&vec![word.to_vec()]);
            body = [word(b"MULTI"), body, word(b"EXEC")].concat();
        }
        wanted.append(&mut calls);
        // The groups before this one are on disk, or nobody knows.
        let synced = if bits & 1 == 0 { 0 } else { log.len() as u64 };
        log.extend(group_head(synced, &[&body]));
        log.extend(body);
    }
    let (calls, end) = read(&log);
    let whole = End { offset: log.len() as u64, room: 0 };
    assert_eq!((&calls, end.expect("it is sound")), (&wanted, whole));

    let place = place % log.len();
    let (calls, end) = read(&log[..place]);
    assert!(wanted.starts_with(&calls), "something else was read");
    assert!(matches!(end, Ok(_) | Err(AofError::Torn { .. })), "torn off is not damaged");

    log[place] ^= bits;
    let (calls, _) = read(&log);
    assert!(wanted.starts_with(&calls), "damage was read as something else");
}

/// A call with a name that is not one of those that mean something to the loader.
fn call(text: &[u8]) -> Call {
    let words = text.split(|byte| *byte == 0xfd).map(<[u8]>::to_vec);
    std::iter::once(b"CALL".to_vec()).chain(words).collect()
}

fn encode(call: &Call) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", call.len()).into_bytes();
    for word in call {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}
