//! Any bytes, cut anywhere, parse to the same calls as in one piece.
//!
//! | Bytes of the input | Meaning |
//! |---|---|
//! | 1 | bit 0: logged in; bit 1: items of at most 1 KiB; bits 2 to 4: number of cuts |
//! | 2 per cut | a cut's position in the stream, little-endian, modulo the stream's length |
//! | the rest | the stream |
#![no_main]

use kvasir_memcached::request::{Call, Limits, Parsed, Parser, Where};
use kvasir_resp::args::Span;
use libfuzzer_sys::fuzz_target;

/// A call and its words.
type Found = (Call, Vec<Vec<u8>>);

fuzz_target!(|input: &[u8]| {
    let Some((flags, rest)) = input.split_first() else { return };
    let Some((cuts, stream)) = rest.split_at_checked(usize::from(flags >> 2 & 7) * 2) else {
        return;
    };
    let limits = Limits {
        is_authenticated: flags & 1 != 0,
        item_size_max: if flags & 2 != 0 { 1024 } else { 1 << 20 },
    };
    let cut = |cut: &[u8]| usize::from(u16::from_le_bytes([cut[0], cut[1]])) % (stream.len() + 1);
    let mut cuts: Vec<usize> = cuts.chunks_exact(2).map(cut).collect();
    cuts.sort_unstable();
    let whole = run(stream, &[], &limits);
    assert_eq!(run(stream, &cuts, &limits), whole);
});

/// Feeds the stream piece by piece.
fn run(stream: &[u8], cuts: &[usize], limits: &Limits) -> Vec<Found> {
    let (mut parser, mut input, mut found) = (Parser::default(), Vec::new(), Vec::new());
    let mut from = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        input.extend_from_slice(&stream[from..end]);
        from = end;
        let mut used = 0;
        loop {
            let (mut spans, mut scratch) = (Vec::new(), Vec::new());
            match parser.parse(&input[used..], &mut spans, &mut scratch, limits) {
                Parsed::Incomplete => break,
                Parsed::Nothing { consumed } => used += consumed,
                Parsed::Call { consumed, call, args } => {
                    let bytes = if args == Where::Scratch { &scratch } else { &input[used..] };
                    let words = words(call, bytes, &spans);
                    used += consumed;
                    // The bug that the fuzzer must find.
                    if cfg!(feature = "canary") && !cuts.is_empty() && found.len() == 1 {
                        continue;
                    }
                    found.push((call, words));
                    // Nothing is executed behind these, however much of it was read.
                    if matches!(call, Call::SayAndClose(_) | Call::Binary | Call::Quit) {
                        return found;
                    }
                }
            }
            assert!(used <= input.len(), "no more is used up than is there");
        }
        input.drain(..used);
    }
    found
}

fn words(call: Call, bytes: &[u8], spans: &[Span]) -> Vec<Vec<u8>> {
    if matches!(call, Call::Say(_) | Call::Binary) {
        return Vec::new();
    }
    spans.iter().map(|span| bytes[span.range()].to_vec()).collect()
}
