//! Any payload restores to a value that works, or is refused.
//!
//! The input is the type and the body of a value, without the footer, which would keep out
//! everything else: it is computed here. Seeds are DUMPs of redis-server and Valkey, cut likewise.
//! A value that got in is dumped and restored again, which must give the same, and then takes part
//! in traffic of its kind.
#![no_main]

mod bench;

use bench::Bench;
use kvasir_resp::value::Value;
use kvasir_structures::crc64;
use libfuzzer_sys::fuzz_target;

/// What Valkey 9 writes, which allows all types.
const VERSION: u16 = 80;

/// By what TYPE says; K is the key.
const TRAFFIC: [(&str, &[&str]); 6] = [
    ("string", &["GET K", "APPEND K x", "SETRANGE K 3 y", "INCR K", "GETRANGE K -2 -1"]),
    (
        "list",
        &[
            "LRANGE K 0 -1",
            "RPUSH K x 12",
            "LINSERT K BEFORE x y",
            "LSET K -1 z",
            "LPOS K y",
            "LREM K 1 x",
            "LTRIM K 1 -2",
            "LPOP K 2",
            "RPOP K",
        ],
    ),
    (
        "set",
        &[
            "SMEMBERS K",
            "SISMEMBER K x",
            "SADD K x 12",
            "SRANDMEMBER K 3",
            "SSCAN K 0",
            "SPOP K 2",
            "SREM K x",
            "SADD K a b c",
        ],
    ),
    (
        "zset",
        &[
            "ZRANGE K 0 -1 WITHSCORES",
            "ZADD K 1.5 x 3 y",
            "ZRANK K x",
            "ZSCORE K y",
            "ZINCRBY K 2 x",
            "ZRANGEBYSCORE K -inf 3",
            "ZREMRANGEBYRANK K 0 0",
            "ZREM K y",
            "ZPOPMIN K",
            "ZPOPMAX K",
        ],
    ),
    (
        "hash",
        &[
            "HGETALL K",
            "HGET K x",
            "HSET K x 1 y 2",
            "HINCRBY K x 3",
            "HRANDFIELD K 2",
            "HSCAN K 0",
            "HDEL K y",
            "HSTRLEN K x",
            "HKEYS K",
        ],
    ),
    (
        "stream",
        &[
            "XRANGE K - +",
            "XREVRANGE K + - COUNT 3",
            "XLEN K",
            "XADD K * f v",
            "XINFO STREAM K FULL",
            "XGROUP CREATE K new 0",
            "XREADGROUP GROUP new me COUNT 2 STREAMS K >",
            "XPENDING K new",
            "XDEL K 1-1",
            "XTRIM K MAXLEN 1",
            "XINFO GROUPS K",
        ],
    ),
];

fuzz_target!(|value: &[u8]| {
    let mut bench = Bench::new();
    if restore(&mut bench, "K", &payload(value)) != Value::Simple(b"OK".to_vec()) {
        return;
    }
    check_dump(&mut bench);
    let Value::Simple(kind) = bench.call(&["TYPE", "K"]) else { panic!("TYPE is a status") };
    let traffic = TRAFFIC.iter().find(|(name, _)| name.as_bytes() == kind);
    // All fields of a hash may have expired.
    for call in traffic.map_or(&[][..], |(_, calls)| calls) {
        bench.script(call);
        check_dump(&mut bench);
    }
});

/// Checks that what a key holds is dumped and restored to the same.
fn check_dump(bench: &mut Bench) {
    let Value::Bulk(dump) = bench.call(&["DUMP", "K"]) else { return };
    // The bug that the fuzzer must find.
    let cut = usize::from(cfg!(feature = "canary") && dump[0] == 2);
    let restored = restore(bench, "L", &dump[cut..]);
    assert_eq!(restored, Value::Simple(b"OK".to_vec()), "{}", dump.escape_ascii());
    assert_eq!(content(bench, "K"), content(bench, "L"), "{}", dump.escape_ascii());
    bench.call(&["DEL", "L"]);
}

/// What a key holds, in an order of its own.
fn content(bench: &mut Bench, key: &str) -> Vec<String> {
    let Value::Simple(kind) = bench.call(&["TYPE", key]) else { panic!("TYPE is a status") };
    let reply = match &kind[..] {
        b"string" => bench.call(&["GET", key]),
        b"list" => bench.call(&["LRANGE", key, "0", "-1"]),
        b"set" => bench.call(&["SMEMBERS", key]),
        b"zset" => bench.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        b"hash" => bench.call(&["HGETALL", key]),
        // Not FULL: when a consumer was active is not in the form that Redis 7.0 takes.
        b"stream" => {
            let entries = bench.call(&["XRANGE", key, "-", "+"]);
            Value::Array(vec![entries, bench.call(&["XINFO", "GROUPS", key])])
        }
        _ => Value::Null,
    };
    match reply {
        Value::Set(values) => sorted(values.iter().map(|value| format!("{value:?}"))),
        Value::Map(pairs) => sorted(pairs.iter().map(|pair| format!("{pair:?}"))),
        reply => vec![format!("{reply:?}")],
    }
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

fn restore(bench: &mut Bench, key: &str, payload: &[u8]) -> Value {
    bench.call(&[b"RESTORE", key.as_bytes(), b"0", payload])
}

fn payload(value: &[u8]) -> Vec<u8> {
    let mut payload = [value, &VERSION.to_le_bytes()].concat();
    let checksum = crc64::update(0, &payload);
    payload.extend(checksum.to_le_bytes());
    payload
}
