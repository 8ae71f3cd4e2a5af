//! What is kept compressed is the same string for everybody: for every command, whatever the
//! options are and were.

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::Protocol;
use kvasir_structures::compressed::Algorithm;
use kvasir_structures::crc64;
use proptest::prelude::*;

use super::Compression;
use crate::serial::Writer;
use crate::testing::{Bench, compare_compressed, show_all, split};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Lzf, Algorithm::Lz4, Algorithm::Zstd];

fn compressing(algorithm: Algorithm) -> Bench {
    let mut bench = Bench::new(Protocol::Resp2);
    bench.env.compression = Compression::new(algorithm, Compression::TEXT_LEN_MIN);
    bench
}

fn ask(bench: &mut Bench, call: &str) -> String {
    let (reply, _) = bench.call(split(call)[0].as_args());
    show_all(&[reply])
}

fn bytes(bench: &mut Bench, key: &str) -> usize {
    ask(bench, &format!("MEMORY USAGE {key}"))[1..].parse().expect("a number")
}

/// Kept in its record, and outside of it even when it is compressed.
fn texts() -> [String; 3] {
    ["kvasir ".replace(' ', "_").repeat(60), "0123456789".repeat(3000), doubled(320)]
}

/// Noise of which every piece stands twice: any algorithm halves it and no more.
fn doubled(pieces: usize) -> String {
    let mut state = 7_u64;
    let mut piece = || -> String {
        let letter = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'0' + (state >> 33) as u8 % 75)
        };
        let piece: String = (0..128).map(letter).collect();
        let piece = piece.replace(['\'', '"', '\\', ';'], "-");
        piece.repeat(2)
    };
    (0..pieces).map(|_| piece()).collect()
}

#[test]
fn a_compressed_value_takes_less_memory() {
    for algorithm in ALGORITHMS {
        let mut bench = compressing(algorithm);
        for text in texts() {
            ask(&mut bench, &format!("SET k {text}"));
            let taken = bytes(&mut bench, "k");
            assert!(taken < text.len() * 6 / 10 + 100, "{algorithm:?} {} {taken}", text.len());
            assert_eq!(ask(&mut bench, "OBJECT ENCODING k"), "$raw");
            ask(&mut bench, "COPY k l REPLACE");
            ask(&mut bench, "EXPIRE l 100");
            ask(&mut bench, "RENAME l m");
            assert!(bytes(&mut bench, "m") <= taken + 8);
            assert_eq!(ask(&mut bench, "GET m"), format!("${text}"));
            // Changed in a part, it stays as it comes, so that the next change is cheap.
            ask(&mut bench, "APPEND k x");
            assert!(bytes(&mut bench, "k") > text.len());
            ask(&mut bench, "SET k x");
            assert!(bytes(&mut bench, "k") < 100);
        }
        let (short, long) = ("x".repeat(63), "x".repeat(64));
        ask(&mut bench, &format!("MSET k {short} l {long}"));
        assert!(bytes(&mut bench, "l") < bytes(&mut bench, "k"));
    }
}

#[test]
fn options_are_for_what_is_written_later() {
    let text = "abcdefgh".repeat(1000);
    let mut bench = compressing(Algorithm::Lz4);
    ask(&mut bench, &format!("SET lz4 {text}"));
    bench.env.compression = Compression::OFF;
    ask(&mut bench, &format!("SET plain {text}"));
    bench.env.compression = Compression::new(Algorithm::Zstd, 8001);
    ask(&mut bench, &format!("SET shorter {text}"));
    bench.env.compression = Compression::new(Algorithm::Zstd, 8000);
    ask(&mut bench, &format!("SET zstd {text}"));
    let keys = ["lz4", "plain", "shorter", "zstd"];
    assert_eq!(keys.map(|key| bytes(&mut bench, key) < 4000), [true, false, false, true]);
    keys.iter()
        .for_each(|key| assert_eq!(ask(&mut bench, &format!("GET {key}")), format!("${text}")));
}

#[test]
fn reading() {
    for text in texts() {
        let len = text.len();
        compare_compressed(&format!(
            "SET k {text}; GET k; STRLEN k; GETRANGE k 3 9; GETRANGE k -9 -1; SUBSTR k 0 -1; \
             MGET k none k; SET k {text} GET; SET k x NX GET; GETEX k EX 100; TTL k; \
             GETEX k PERSIST; TYPE k; OBJECT ENCODING k; EXISTS k; GETDEL k; EXISTS k"
        ));
        compare_compressed(&format!(
            "SET k {text}; BITCOUNT k; BITCOUNT k 5 -5 BIT; BITPOS k 1; BITPOS k 0 {len}; GETBIT k 77; \
             GETBIT k 9999999; BITFIELD_RO k GET u8 5 GET i63 #9; BITFIELD k GET u4 0; GET k"
        ));
        compare_compressed(&format!(
            "SET k {text}; SET n 7; INCR k; DECRBY k 3; INCRBYFLOAT k 1.5; PFADD k a; PFCOUNT k; \
             PFMERGE n k; LPUSH k x; HGET k f; GET k"
        ));
        compare_compressed(&format!(
            "RPUSH l 2 1; MSET w1 {text} w2 b{text} v1 {text}; SORT l BY w* ALPHA GET # GET v*; \
             SORT l BY w*"
        ));
    }
    let text =
        "the same and the same and the same and the same and something else".replace(' ', "_");
    compare_compressed(&format!(
        "MSET a {text} b b{text}b; LCS a b; LCS a b LEN; LCS a b IDX MINMATCHLEN 5 WITHMATCHLEN"
    ));
}

#[test]
fn changing() {
    for text in texts() {
        let set = format!("SET k {text} EX 100");
        compare_compressed(&format!("{set}; APPEND k ''; APPEND k x; APPEND k y; TTL k; GET k"));
        compare_compressed(&format!("{set}; SETRANGE k 3 ''; SETRANGE k 3 xyz; GET k; TTL k"));
        compare_compressed(&format!("{set}; SETRANGE k 70000 xyz; STRLEN k; GET k"));
        compare_compressed(&format!("{set}; SETBIT k 9 1; SETBIT k 9 0; GET k; OBJECT ENCODING k"));
        compare_compressed(&format!(
            "{set}; BITFIELD k SET u8 3 200 INCRBY i5 #90 3; GET k; TTL k"
        ));
        compare_compressed(&format!(
            "{set}; BITOP NOT n k; GET n; BITOP XOR x k n; BITCOUNT x; BITOP AND k k k; GET k; TTL k"
        ));
        compare_compressed(&format!("{set}; GETSET k b{text}; GETSET k c; GET k"));
        compare_compressed(&format!(
            "{set}; SET k x{text} KEEPTTL; TTL k; GET k; SETNX k y; SETNX n {text}"
        ));
        compare_compressed(&format!(
            "{set}; COPY k l; RENAME k m; MOVE m 1; APPEND l x; GET l; GET m"
        ));
        compare_compressed(&format!("MSETNX k {text} l {text}; MGET l k; DEL k; UNLINK l; DBSIZE"));
        compare_compressed(&format!(
            "SETEX k 100 {text}; PSETEX l 100000 {text}; PERSIST k; MGET k l"
        ));
        compare_compressed(&format!("{set}; SELECT 3; SET k {text}; SWAPDB 0 3; GET k"));
    }
    let elements = (0..2000).map(|number| format!(" e{number}")).collect::<String>();
    compare_compressed(&format!(
        "PFADD a{elements}; PFCOUNT a; PFMERGE b a; PFCOUNT b; PFADD b e5; PFADD b new; PFCOUNT b; \
         STRLEN b; GET b; PFMERGE c a b; PFCOUNT a b c; PFDEBUG ENCODING c"
    ));
}

/// Valkey's; Redis 7.0 has none of them.
#[test]
fn conditions_on_long_values() {
    for (algorithm, text) in ALGORITHMS.into_iter().flat_map(|one| texts().map(|text| (one, text)))
    {
        let mut bench = compressing(algorithm);
        let same_len = format!("!{}", &text[1..]);
        let mut expect = |call: String, reply: &str| assert_eq!(ask(&mut bench, &call), reply);
        expect(format!("MSETEX 2 k {text} l {text} EX 100"), ":1");
        expect(format!("SET k new IFEQ {same_len}"), "_");
        expect("SET k new IFEQ x".into(), "_");
        expect(format!("SET k new IFEQ {text}"), "+OK");
        expect(format!("DELIFEQ l {same_len}"), ":0");
        expect(format!("DELIFEQ l {text}"), ":1");
        expect("MGET k l".into(), "[$new _]");
    }
}

/// A payload of a string that is said to be LZF.
fn payload(lzf: &[u8], text_len: usize) -> Vec<u8> {
    let mut writer = Writer::new(crate::serial::Version::REDIS_7_0);
    writer.push(&[0]);
    writer.lzf(lzf, text_len);
    writer.push(&10_u16.to_le_bytes());
    let mut payload = writer.into_bytes();
    payload.extend(crc64::update(0, &payload).to_le_bytes());
    payload
}

#[test]
fn lzf_from_elsewhere_is_not_believed() {
    let text = "abcdefgh".repeat(1000);
    let lzf = kvasir_structures::lzf::compress(text.as_bytes(), text.len()).expect("it is smaller");
    let mut bench = compressing(Algorithm::Lzf);
    let mut restore = |lzf: &[u8], len: usize| {
        let payload = payload(lzf, len);
        let call: ArgsBuf =
            [&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"].into_iter().collect();
        let (reply, _) = bench.call(call.as_args());
        (show_all(&[reply]), ask(&mut bench, "GET k"))
    };
    assert_eq!(restore(&lzf, text.len()), ("+OK".into(), format!("${text}")));
    let refused = ("-ERR Bad data format".to_string(), format!("${text}"));
    for len in [0, 1, text.len() - 1, text.len() + 1, lzf.len() * 100, 1 << 40, usize::MAX] {
        assert_eq!(restore(&lzf, len), refused, "{len}");
    }
    for cut in 0..lzf.len() {
        assert_eq!(restore(&lzf[..cut], text.len()), refused, "{cut}");
    }
    // Sound, but it saves less than what is asked for: kept as it is.
    let noise = "kvasir".to_string() + &doubled(1)[..128];
    let run: Vec<u8> = noise
        .as_bytes()
        .chunks(32)
        .flat_map(|run| [&[run.len() as u8 - 1], run].concat())
        .collect();
    assert_eq!(restore(&run, noise.len()), ("+OK".into(), format!("${noise}")));
}

/// K and L are keys, V and W values.
const CALLS: &[&str] = &[
    "SET K V",
    "SET K V",
    "SET K V",
    "SET K V GET",
    "SET K V KEEPTTL",
    "SET K V NX EX 100",
    "SET K V XX",
    "SET K V IFEQ W",
    "DELIFEQ K V",
    "DELEX K IFNE W",
    "DIGEST K",
    "SETNX K V",
    "SETEX K 100 V",
    "GETSET K V",
    "MSET K V L W",
    "MSETNX K V L W",
    "MSETEX 2 K V L W PX 70000",
    "GET K",
    "MGET K L",
    "GETDEL K",
    "GETEX K EX 100",
    "GETEX K PERSIST",
    "GETRANGE K 50 90",
    "GETRANGE K -60000 -3",
    "STRLEN K",
    "APPEND K V",
    "APPEND K x",
    "SETRANGE K 50 xyz",
    "SETRANGE K 20000 V",
    "INCR K",
    "INCRBYFLOAT K 1.5",
    "SETBIT K 9 1",
    "SETBIT K 90000 0",
    "GETBIT K 77",
    "BITCOUNT K 5 -5",
    "BITPOS K 0 3",
    "BITOP XOR L K L",
    "BITOP NOT L K",
    "BITFIELD K GET u8 5 SET u7 99 7",
    "PFADD K a b c",
    "PFADD K d",
    "PFDEBUG TODENSE K",
    "PFMERGE L K",
    "PFCOUNT K",
    "PFCOUNT K L",
    "COPY K L REPLACE",
    "COPY K L DB 1",
    "RENAME K L",
    "MOVE K 1",
    "SELECT 0",
    "SELECT 1",
    "EXPIRE K 100",
    "PERSIST K",
    "TTL K",
    "DUMP K",
    "CARRY K L",
    "OBJECT ENCODING K",
    "DEL K",
    "FLUSHDB",
];

/// A call, and how strings are compressed from then on if that changes.
#[derive(Clone, Debug)]
struct Step {
    words: Vec<String>,
    compression: Option<Compression>,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop::sample::select(&["a", "b", "{a}c"][..]);
    let [short, long, large] = texts();
    let values = ["7", "a text that is left as it is", &"y".repeat(64), &short, &long, &large];
    let value = prop::sample::select(values.map(String::from).to_vec());
    let compressions = [
        Compression::OFF,
        Compression::new(Algorithm::Lzf, 0),
        Compression::new(Algorithm::Lz4, 0),
        Compression::new(Algorithm::Lz4, 1000),
        Compression::new(Algorithm::Zstd, 0),
    ];
    let compression = prop::option::weighted(0.1, prop::sample::select(compressions.to_vec()));
    let texts = (prop::sample::select(CALLS), key(), key(), value.clone(), value);
    (texts, compression).prop_map(|((call, key, other, value, second), compression)| {
        let word = |word: &str| match word {
            "K" => key.to_string(),
            "L" => other.to_string(),
            "V" => value.clone(),
            "W" => second.clone(),
            word => word.to_string(),
        };
        Step { words: call.split(' ').map(word).collect(), compression }
    })
}

fn call(bench: &mut Bench, words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let call: ArgsBuf = words.iter().collect();
    bench.call(call.as_args()).0
}

/// What one dumps, both restore.
fn carry(model: &mut Bench, bench: &mut Bench, key: &str, other: &str) {
    let dumped = call(model, &["DUMP", key]);
    assert_eq!(call(bench, &["DUMP", key]), dumped);
    if dumped.starts_with(b"$-1") {
        return;
    }
    let start = dumped.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
    let payload = &dumped[start..dumped.len() - 2];
    let restore = [&b"RESTORE"[..], other.as_bytes(), b"0", payload, b"REPLACE"];
    assert_eq!(call(model, &restore), b"+OK\r\n");
    assert_eq!(call(bench, &restore), b"+OK\r\n");
}

proptest! {
    // Each case moves megabytes.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nobody_can_tell(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Bench::new(Protocol::Resp2);
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.now_ms = model.env.now_ms;
        for Step { words, compression } in &steps {
            bench.env.compression = compression.unwrap_or(bench.env.compression);
            if words[0] == "CARRY" {
                carry(&mut model, &mut bench, &words[1], &words[2]);
                continue;
            }
            let (wanted, got) = (call(&mut model, words), call(&mut bench, words));
            prop_assert_eq!(wanted.escape_ascii().to_string(), got.escape_ascii().to_string());
        }
        let values = |bench: &Bench| -> Vec<_> {
            let value = |(place, (_, elements, expiry))| (place, elements, expiry);
            bench.content().into_iter().map(value).collect()
        };
        prop_assert_eq!(values(&model), values(&bench));
    }
}
