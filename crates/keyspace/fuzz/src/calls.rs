//! Any arguments are answered: no call panics, takes long or takes much memory.
//!
//! The input says which commands are called and, along each one's tree of arguments, with which
//! words: mostly such as the tree asks for, now and then one left out, one too many or another.
//! Every reply has to be exactly one reply.
#![no_main]

mod bench;
mod draw;

use bench::Bench;
use draw::Draw;
use libfuzzer_sys::fuzz_target;

/// A key of every kind, small and large.
const CONTENT: &str = "SET text hello; SET number 12; RPUSH list a b 3; SADD ints 1 2 3; SADD set a b; \
    ZADD zset 1 a 2.5 b; HSET hash f v g 12; XADD stream 1-1 f v; XADD stream 2-2 f w; \
    XGROUP CREATE stream group 0; XREADGROUP GROUP group me COUNT 1 STREAMS stream >; \
    PFADD hll a b c; GEOADD geo 13.361 38.115 Palermo 15.087 37.502 Catania; \
    SET old x PX 100; SETBIT bits 100 1";

const CALLS_MAX: usize = 12;

fuzz_target!(|input: &[u8]| {
    let mut draw = Draw::new(input);
    let mut bench = Bench::new();
    bench.script(CONTENT);
    for _ in 0..CALLS_MAX {
        if draw.is_over() {
            break;
        }
        let words = draw.call();
        bench.env.now_ms += draw.wait_ms();
        let reply = bench.call(&words);
        // The bug that the fuzzer must find, within a minute also on a busy machine.
        if cfg!(feature = "canary") && matches!(&words[0][..], b"lpush" | b"rpush" | b"sadd") {
            assert_eq!(reply.as_integer(), None);
        }
    }
});
