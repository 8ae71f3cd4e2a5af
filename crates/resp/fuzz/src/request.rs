//! Any bytes, cut anywhere, parse to the same requests as in one piece.
//!
//! | Bytes of the input | Meaning |
//! |---|---|
//! | 1 | bit 0: authenticated; bit 1: lines of at most 48 bytes; bits 2 to 4: number of cuts |
//! | 2 per cut | a cut's position in the stream, little-endian, modulo the stream's length |
//! | the rest | the stream |
#![no_main]

mod driver;

use kvasir_resp::request::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((flags, rest)) = input.split_first() else { return };
    let Some((cuts, stream)) = rest.split_at_checked(usize::from(flags >> 2 & 7) * 2) else {
        return;
    };
    let limits = Limits {
        authenticated: flags & 1 != 0,
        inline_len_max: if flags & 2 != 0 { 48 } else { 64 * 1024 },
        ..Limits::default()
    };
    let cut = |cut: &[u8]| usize::from(u16::from_le_bytes([cut[0], cut[1]])) % (stream.len() + 1);
    let mut cuts: Vec<usize> = cuts.chunks_exact(2).map(cut).collect();
    cuts.sort_unstable();
    let whole = driver::run(stream, &[], &limits);
    assert_eq!(driver::run(stream, &cuts, &limits), whole);
    if stream.len() <= 256 {
        let everywhere: Vec<usize> = (1..stream.len()).collect();
        assert_eq!(driver::run(stream, &everywhere, &limits), whole);
    }
});
