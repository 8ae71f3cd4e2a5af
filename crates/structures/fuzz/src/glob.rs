//! No pattern takes longer than its size times that of the text.
//!
//! | Bytes of the input | Meaning |
//! |---|---|
//! | 1 | bit 0: case counts; the rest: size of the pattern |
//! | size | the pattern |
//! | the rest | the text |
//!
//! Both are repeated, and the pattern ends with a byte that the text does not have, so that all is
//! tried that can be tried; libFuzzer's own limit on the time of one input does the rest.
#![no_main]

use kvasir_structures::glob::{Case, matches};
use libfuzzer_sys::fuzz_target;

/// What pattern and text are filled up to.
const SIZE: usize = 400;

fuzz_target!(|input: &[u8]| {
    let Some((&head, rest)) = input.split_first() else { return };
    let Some((pattern, text)) = rest.split_at_checked(usize::from(head >> 1)) else { return };
    let case = if head & 1 == 0 { Case::Sensitive } else { Case::Ignored };
    let escaped: Vec<u8> = text.iter().flat_map(|byte| [b'\\', *byte]).collect();
    assert!(matches(&escaped, text, case), "a text matches itself");
    let (mut pattern, text) = (filled(pattern), filled(text));
    let Some(missing) = (0..=u8::MAX).find(|byte| !text.contains(byte)) else { return };
    pattern.extend([b'\\', missing]);
    slow_if_canary(&pattern, &text);
    let _ = matches(&pattern, &text, case);
});

fn filled(part: &[u8]) -> Vec<u8> {
    part.iter().copied().cycle().take(SIZE).collect()
}

/// The bug that the fuzzer must find: time that doubles with every `*`.
fn slow_if_canary(pattern: &[u8], text: &[u8]) {
    if cfg!(feature = "canary") {
        let _ = tries_all(pattern, text);
    }
}

fn tries_all(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([b'*', after @ ..], _) => (0..=text.len()).any(|taken| tries_all(after, &text[taken..])),
        ([token, after @ ..], [byte, rest @ ..]) => token == byte && tries_all(after, rest),
        _ => pattern.is_empty() && text.is_empty(),
    }
}
