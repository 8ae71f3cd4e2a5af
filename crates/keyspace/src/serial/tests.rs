//! Values go to the oracles and come back, and theirs come here.

use kvasir_resp::reply::Protocol;
use kvasir_resp::value::Value;
use kvasir_structures::crc64;
use kvasir_structures::listpack::{Element, Listpack};

use super::{DumpError, Reader, Version, skip_value};
use crate::place::DbIndex;
use crate::testing::{Bench, Oracle, oracle, redis8, split, valkey};
use crate::value::Tag;

/// Valkey has 512 by default, Redis 7.0 128.
const REDIS_LIMITS: &str = "CONFIG SET hash-max-listpack-entries 512";

/// Checks the value that a script makes of `k`: it goes to both oracles and comes back the same,
/// and what the oracles make of the script comes here.
fn check(script: &str) {
    let oracles = [oracle(), valkey()].into_iter().flatten();
    oracles.for_each(|oracle| check_with(oracle, script, Version::VALKEY_9_0));
}

/// Checks a value that Redis 7.0 does not know, and of which Redis 8 and Valkey have a form each.
fn check_later(script: &str) {
    valkey().into_iter().for_each(|oracle| check_with(oracle, script, Version::VALKEY_9_0));
    redis8().into_iter().for_each(|oracle| check_with(oracle, script, Version::REDIS_7_4));
}

fn check_with(oracle: &Oracle, script: &str, expiring_form: Version) {
    let mut ours = Bench::new(Protocol::Resp2);
    ours.env.expiring_form = expiring_form;
    split(script).iter().for_each(|call| drop(ours.call(call.as_args())));
    let made = content(&ours);
    // Here to there and back.
    let payload = dump(&mut ours);
    let restored = restore(&payload);
    assert_eq!(restored, made, "to itself: {script}");
    let calls = [words("FLUSHALL"), restore_call(&payload), words("DUMP k")];
    let replies = oracle.ask(&calls);
    assert_eq!(replies[1], Value::Simple(b"OK".to_vec()), "{script}");
    assert_eq!(restore(replies[2].as_bytes().unwrap()), made, "there and back: {script}");
    // From there.
    let mut calls = vec![words("FLUSHALL"), words(REDIS_LIMITS)];
    calls.extend(
        split(script)
            .iter()
            .map(|call| call.as_args().iter().map(<[u8]>::to_vec).collect::<Vec<_>>()),
    );
    calls.push(words("DUMP k"));
    let replies = oracle.ask(&calls);
    let payload = replies.last().unwrap().as_bytes().expect("the script makes k");
    assert_eq!(restore(payload), made, "from there: {script}");
}

fn words(call: &str) -> Vec<Vec<u8>> {
    call.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn restore_call(payload: &[u8]) -> Vec<Vec<u8>> {
    [words("RESTORE k 0"), vec![payload.to_vec()]].concat()
}

/// A value in the keyspace of a bench, without how it is kept.
fn content(bench: &Bench) -> Vec<String> {
    let mut content = bench.content();
    content.remove(&(DbIndex(0), b"k".to_vec())).expect("the key is there").1
}

fn dump(bench: &mut Bench) -> Vec<u8> {
    let (reply, _) =
        bench.call([b"DUMP", &b"k"[..]].iter().collect::<kvasir_resp::args::ArgsBuf>().as_args());
    kvasir_resp::decode::decode(&reply).unwrap().as_bytes().unwrap().to_vec()
}

/// What a payload holds, or the error.
fn restore(payload: &[u8]) -> Vec<String> {
    let mut bench = Bench::new(Protocol::Resp2);
    let call: kvasir_resp::args::ArgsBuf = restore_call(payload).iter().collect();
    let (reply, _) = bench.call(call.as_args());
    match reply == b"+OK\r\n" {
        true => content(&bench),
        false => vec![reply.escape_ascii().to_string()],
    }
}

/// A payload of a value's bytes, with a footer.
fn payload(value: &[u8], version: u16) -> Vec<u8> {
    let guarded = [value, &version.to_le_bytes()].concat();
    let checksum = crc64::update(0, &guarded);
    [&guarded[..], &checksum.to_le_bytes()].concat()
}

/// Checks what bytes hold, here and at the oracles that know their version.
fn check_reads(value: &[u8], version: u16, content: &[&str]) {
    check_skips(value);
    let payload = payload(value, version);
    assert_eq!(restore(&payload), content, "{}", value.escape_ascii());
    let redis = oracle().filter(|_| version <= 10);
    let valkey = valkey().filter(|_| version <= 11 || version == 80);
    let redis8 = redis8().filter(|_| version == 12);
    for oracle in [redis, valkey, redis8].into_iter().flatten() {
        let replies = oracle.ask(&[words("FLUSHALL"), restore_call(&payload), words("DUMP k")]);
        let back = replies[2].as_bytes().unwrap_or_else(|| panic!("{:?}", replies[1]));
        assert_eq!(restore(back), content, "{}", value.escape_ascii());
    }
}

/// Checks that a value can be passed by, and that its beginning is taken for no more than that.
fn check_skips(value: &[u8]) {
    let (type_byte, body) = value.split_first().expect("a type");
    let skip = |len| {
        let mut reader = Reader::new(&body[..len], 1 << 20);
        skip_value(*type_byte, &mut reader).map(|()| reader.offset())
    };
    assert_eq!(skip(body.len()), Ok(body.len()), "{}", value.escape_ascii());
    for len in 0..body.len() {
        let is_cut = skip(len).is_err_and(|error| error.is_end_missing());
        assert!(is_cut, "{len} of {}", value.escape_ascii());
    }
}

/// Checks that bytes are refused, here and at both oracles.
fn check_refused(value: &[u8]) {
    let payload = payload(value, 10);
    assert_eq!(restore(&payload), ["-ERR Bad data format\\r\\n"], "{}", value.escape_ascii());
    for oracle in [oracle(), valkey()].into_iter().flatten() {
        let sanitize = words("CONFIG SET sanitize-dump-payload yes");
        let replies = oracle.ask(&[words("FLUSHALL"), sanitize, restore_call(&payload)]);
        let wanted = Value::Error(b"ERR Bad data format".to_vec());
        assert_eq!(replies[2], wanted, "{}", value.escape_ascii());
    }
}

#[test]
fn strings() {
    for text in ["hello", "''", "12", "-300", "70000", "-2147483648", "2147483648", "012", "1.5"] {
        check(&format!("SET k {text}"));
    }
    for (text, times) in [("a", 20), ("a", 21), ("abcdefgh", 8), ("xy", 300), ("0123456789", 5000)]
    {
        check(&format!("SET k {}", text.repeat(times)));
    }
    check("SETRANGE k 70000 x");
    check("APPEND k 12; APPEND k 34");
}

#[test]
fn hashes() {
    check("HSET k f v g 12 h ''");
    check(&format!("HSET k f {} g v", "long".repeat(50)));
    check(&format!("HSET k f {} g v", "x".repeat(20_000)));
    let fields: Vec<String> = (0..600).map(|field| format!("f{field} {field}")).collect();
    check(&format!("HSET k {}", fields[..100].join(" ")));
    check(&format!("HSET k {}", fields.join(" ")));
    check_refused(b"\x04\0");
    check_refused(b"\x04\x02\x01a\x01b\x01a\x01c");
    check_refused(b"\x04\x02\x01a\x01b");
    check_refused(b"\x10\x13\x13\0\0\0\x04\0\x81f\x02\x81v\x02\x81f\x02\x81w\x02\xff");
    check_refused(b"\x10\x0a\x0a\0\0\0\x01\0\x81a\x02\xff");
    check_refused(b"\x10\x07\x07\0\0\0\0\0\xff");
    check_refused(b"\x10\x0d\x0d\0\0\0\x02\0\x81a\x02\x81b\x01\xff");
}

#[test]
fn old_hashes() {
    let zipmap = b"\x09\x1b\x02\x03foo\x03\x00bar\x05hello\x07\x01world..!\xff";
    check_reads(zipmap, 1, &["foo bar", "hello world.."]);
    let ziplist = b"\x0d\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01f\x03\xf6\xff";
    check_reads(ziplist, 6, &["f 5"]);
    check_refused(b"\x0d\x10\x10\0\0\0\x0c\0\0\0\x02\0\0\x01f\x03\xf6\xff");
    check_refused(b"\x09\x07\x02\x01a\x01\0b\xff");
}

/// One may have texts that no listpack would get today.
#[test]
fn an_old_hash_of_long_texts_is_a_table() {
    let mut bench = Bench::new(Protocol::Resp2);
    let zipmap = b"\x09\x0d\x02\x01f\x01\0v\x01g\x02\0ww\xff";
    for (value_max, tag) in [(1, Tag::HashTable), (2, Tag::HashListpack)] {
        bench.env.hash_listpack_value_max = value_max;
        let value = super::undump(&payload(zipmap, 1), &bench.env).unwrap();
        let record = value.into_record(b"k", None);
        assert_eq!(Tag::of(record.borrow()), tag, "{value_max}");
    }
}

#[test]
fn hashes_with_fields_that_expire() {
    check_later("HSET k f v g 12; HPEXPIREAT k 4000000000000 FIELDS 1 f");
    let never = [0xff; 8];
    let late = 4_000_000_000_000_i64.to_le_bytes();
    let past = 1_i64.to_le_bytes();
    let value = [&b"\x16\x03\x01f\x01v"[..], &late, b"\x01g\x01w", &never, b"\x01h\x01x", &past];
    check_reads(&value.concat(), 80, &["f v 4000000000000", "g w", "h x 1"]);
    check_refused(
        &[&b"\x16\x01\x01f\x01v"[..], &[0xfe, 255, 255, 255, 255, 255, 255, 255]].concat(),
    );
    check_refused(&[&b"\x16\x02\x01f\x01v"[..], &late, b"\x01f\x01w", &never].concat());
    for fields in [500, 600] {
        let fields: Vec<_> = (0..fields).map(|field| format!("f{field} {field}")).collect();
        check_later(&format!(
            "HSET k {}; HPEXPIREAT k 4000000000000 FIELDS 2 f7 f9; HPERSIST k FIELDS 1 f7",
            fields.join(" ")
        ));
    }
    let long = "x".repeat(65);
    check_later(&format!("HSETEX k PXAT 4000000000000 FIELDS 2 f {long} g v; HDEL k f"));
}

#[test]
fn hashes_with_fields_that_expire_in_redis() {
    let late = 4_000_000_000_000_i64.to_le_bytes();
    let value = [&b"\x18"[..], &late, b"\x03\x01\x01f\x01v\0\x01g\x01w\x41\x01\x01h\x01x"].concat();
    let content = ["f v 4000000000000", "g w", "h x 4000000000256"];
    check_reads(&value, 12, &content);
    let pack = |parts: &[&[u8]]| {
        let listpack: Listpack = parts.iter().map(|part| Element::Bytes(part)).collect();
        let bytes = listpack.into_bytes();
        [&b"\x19"[..], &late, &[bytes.len() as u8], &bytes].concat()
    };
    let [f, v, g, w, h, x] = [b"f", b"v", b"g", b"w", b"h", b"x"];
    let parts: [&[u8]; 9] = [f, v, b"4000000000000", h, x, b"4000000000256", g, w, b"0"];
    check_reads(&pack(&parts), 12, &content);
    for broken in [&parts[..8], &[], &[f, v, b"1", f, w, b"0"], &[f, v, b"soon"], &[f, v, b"-1"]] {
        check_refused(&pack(broken));
    }
    check_refused(&[&b"\x18"[..], &late, b"\0"].concat());
    check_refused(&[&b"\x18"[..], &late, b"\x02\0\x01f\x01v\0\x01f\x01w"].concat());
    let overflow = [&b"\x18"[..], &late, b"\x01\x81", &[0xff; 8], b"\x01f\x01v"];
    check_refused(&overflow.concat());
    check_refused(&[&b"\x18"[..], &[0xff; 8], b"\x01\0\x01f\x01v"].concat());
}

#[test]
fn sorted_sets() {
    check("ZADD k 1 a 2.5 b -3 '' 0 12");
    check("ZADD k -0 a 0 b inf c -inf d 1e300 e 0.1 f 4503599627370496 g -4503599627370497 h");
    check(&format!("ZADD k 2 {} 1 b", "long".repeat(50)));
    let members: Vec<String> = (0..200).map(|member| format!("{member} m{member}")).collect();
    check(&format!("ZADD k {}", members[..128].join(" ")));
    check(&format!("ZADD k {}", members.join(" ")));
    check_reads(b"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff", 6, &["c -inf", "a 1.5", "b inf"]);
    let ziplist = b"\x0c\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01f\x03\xf6\xff";
    check_reads(ziplist, 6, &["f 5"]);
}

#[test]
fn broken_sorted_sets() {
    check_refused(b"\x05\0");
    check_refused(b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f");
    check_refused(b"\x05\x02\x01a\0\0\0\0\0\0\0\0\x01a\0\0\0\0\0\0\0\0");
    check_refused(b"\x05\x02\x01a\0\0\0\0\0\0\0\0");
    check_refused(b"\x03\x01\x01a\xfd");
    check_refused(b"\x03\x01\x01a\x03abc");
    check_refused(b"\x11\x07\x07\0\0\0\0\0\xff");
    check_refused(b"\x11\x0a\x0a\0\0\0\x01\0\x81a\x02\xff");
    check_refused(b"\x11\x11\x11\0\0\0\x04\0\x81a\x02\x01\x01\x81a\x02\x02\x01\xff");
    // Redis believes that members stand in order, and takes a score without digits for 0.
    let broken: [&[u8]; 2] = [
        b"\x11\x11\x11\0\0\0\x04\0\x81a\x02\x02\x01\x81b\x02\x01\x01\xff",
        b"\x11\x0d\x0d\0\0\0\x02\0\x81a\x02\x81x\x02\xff",
    ];
    for value in broken {
        assert_eq!(restore(&payload(value, 10)), ["-ERR Bad data format\\r\\n"]);
    }
}

#[test]
fn lists() {
    check("RPUSH k a b 12 '' -5");
    check(&format!("RPUSH k {} b", "long".repeat(500)));
    check(&format!("RPUSH k a {} b", "x".repeat(20_000)));
    let elements: Vec<String> = (0..5_000).map(|element| format!("element{element}")).collect();
    check(&format!("RPUSH k {}", elements.join(" ")));
    check_reads(b"\x01\x03\x01a\x01b\xc0\x05", 6, &["a", "b", "5"]);
    check_reads(b"\x0a\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01f\x03\xf6\xff", 6, &["f", "5"]);
    let quicklist = b"\x0e\x02\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01f\x03\xf6\xff\
                      \x0e\x0e\0\0\0\x0a\0\0\0\x01\0\0\x01g\xff";
    check_reads(quicklist, 6, &["f", "5", "g"]);
    let nodes =
        b"\x12\x03\x02\x07\x07\0\0\0\0\0\xff\x01\x03abc\x02\x0a\x0a\0\0\0\x01\0\x81b\x02\xff";
    check_reads(nodes, 10, &["abc", "b"]);
}

/// A list of several nodes is not small, whatever is in them.
#[test]
fn lists_of_nodes_keep_their_encoding() {
    let one = b"\x12\x01\x02\x0a\x0a\0\0\0\x01\0\x81b\x02\xff".as_slice();
    let two = [b"\x12\x02", &one[2..], &one[2..]].concat();
    for (value, encoding) in [(one, "listpack"), (&two, "quicklist")] {
        let calls = [restore_call(&payload(value, 10)), words("OBJECT ENCODING k")];
        let mut bench = Bench::new(Protocol::Resp2);
        let replies = calls.clone().map(|call| {
            bench.call(call.iter().collect::<kvasir_resp::args::ArgsBuf>().as_args()).0
        });
        assert_eq!(replies[1], format!("${}\r\n{encoding}\r\n", encoding.len()).as_bytes());
        if let Some(oracle) = valkey() {
            let replies = oracle.ask(&[words("FLUSHALL"), calls[0].clone(), calls[1].clone()]);
            assert_eq!(replies[2].as_bytes(), Some(encoding.as_bytes()));
        }
    }
}

#[test]
fn broken_lists() {
    check_refused(b"\x01\0");
    check_refused(b"\x12\0");
    check_refused(b"\x12\x01\x02\x07\x07\0\0\0\0\0\xff");
    check_refused(b"\x12\x01\x03\x07\x07\0\0\0\0\0\xff");
    check_refused(b"\x12\x01\x02\x0a\x0a\0\0\0\x02\0\x81b\x02\xff");
    check_refused(b"\x0e\x01\x0e\x0e\0\0\0\x0a\0\0\0\x02\0\0\x01g\xff");
}

#[test]
fn sets() {
    for members in ["1 2 3", "-70000 5", "9223372036854775807 0", "a b", "a 1 ''"] {
        check(&format!("SADD k {members}"));
    }
    check(&format!("SADD k {} a", "long".repeat(50)));
    let numbers: Vec<String> = (0..600).map(|number| number.to_string()).collect();
    check(&format!("SADD k {}", numbers[..512].join(" ")));
    check(&format!("SADD k {}", numbers.join(" ")));
    check(&format!("SADD k m {}", numbers[..127].join(" ")));
    check(&format!("SADD k m {}", numbers.join(" ")));
    let listpack = b"\x14\x0d\x0d\0\0\0\x02\0\x81a\x02\x81b\x02\xff";
    check_reads(listpack, 11, &["a", "b"]);
    check_reads(b"\x02\x02\xc0\x05\x01\x31", 6, &["1", "5"]);
}

#[test]
fn broken_sets() {
    check_refused(b"\x02\0");
    check_refused(b"\x02\x02\x01a\x01a");
    check_refused(b"\x02\x02\xc0\x05\x015");
    check_refused(b"\x0b\x08\x02\0\0\0\0\0\0\0");
    check_refused(b"\x0b\x0e\x02\0\0\0\x03\0\0\0\x01\0\x03\0\x02\0");
    check_refused(b"\x0b\x0e\x02\0\0\0\x03\0\0\0\x01\0\x02\0\x02\0");
    check_refused(b"\x0b\x0e\x03\0\0\0\x02\0\0\0\x01\0\x03\0\x02\0");
    let broken: [&[u8]; 2] =
        [b"\x14\x07\x07\0\0\0\0\0\xff", b"\x14\x0d\x0d\0\0\0\x02\0\x81a\x02\x81a\x02\xff"];
    for value in broken {
        assert_eq!(restore(&payload(value, 11)), ["-ERR Bad data format\\r\\n"]);
    }
}

#[test]
fn streams() {
    check("XADD k 1-1 f v g w; XADD k 1-2 f x g y; XADD k 5-0 h 12");
    check("XADD k 1-1 f v; XADD k 1-2 f x; XDEL k 1-1");
    check("XADD k 1-1 f v; XDEL k 1-1");
    check("XADD k 1-1 f v; XADD k 9-9 f v; XTRIM k MAXLEN 1; XSETID k 20-1");
    let many: Vec<String> =
        (1..500).map(|ms| format!("XADD k {ms}-1 f value{ms} g {ms}")).collect();
    check(&many.join("; "));
    check(
        "XADD k 1-1 f v; XADD k 2-1 f v; XGROUP CREATE k g 0; XGROUP CREATE k h 1-1; \
         XGROUP CREATECONSUMER k g idle; \
         XCLAIM k g me 0 1-1 TIME 1600000000000 RETRYCOUNT 7 FORCE",
    );
    check_reads(
        b"\x0f\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\
          \x1d\x1d\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81a\x02\0\x01\x02\x01\0\x01\0\x01\x81b\x02\
          \x04\x01\xff\
          \x01\x01\x01\0",
        9,
        &["1 1-1 0-0 1; node 1-1 [1, 0, 1, \"a\", 0, 2, 0, 0, \"b\", 4]"],
    );
}

#[test]
fn broken_streams() {
    let node = |listpack: &[u8]| {
        let id = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        [&b"\x13\x01\x10"[..], &id, &[listpack.len() as u8], listpack].concat()
    };
    let sound = b"\x1d\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81a\x02\0\x01\x02\x01\0\x01\0\x01\x81b\x02\x04\x01\xff";
    let counts = b"\x01\x01\x01\x01\x01\0\0\x01";
    let whole = [&node(sound)[..], counts].concat();
    let content = ["1 1-1 0-0 1; node 1-1 [1, 0, 1, \"a\", 0, 2, 0, 0, \"b\", 4]"];
    check_reads(&[&whole[..], b"\0"].concat(), 10, &content);
    // A listpack that is no node.
    check_refused(&[&node(b"\x0a\0\0\0\x01\0\x81b\x02\xff")[..], counts, b"\0"].concat());
    // Redis believes how many entries there are.
    let counted = [&node(sound)[..], b"\x02\x01\x01\x01\x01\0\0\x01\0"].concat();
    assert_eq!(restore(&payload(&counted, 10)), ["-ERR Bad data format\\r\\n"]);
    // Two groups of one name; a consumer of an entry that is not pending; one pending for nobody.
    let group = b"\x01g\0\0\0\0\0";
    check_refused(&[&whole[..], b"\x02", group, group].concat());
    let id = [0; 16];
    let time = [0; 8];
    let consumer = [&b"\x01c"[..], &time, b"\x01", &id].concat();
    check_refused(&[&whole[..], b"\x01\x01g\0\0\0\0\x01", &consumer].concat());
    check_refused(&[&whole[..], b"\x01\x01g\0\0\0\x01", &id, &time, b"\x01\0"].concat());
}

#[test]
fn what_is_no_value() {
    let modules: [&[u8]; 2] = [b"\x06\0\0", b"\x07\x81\0\0\0\0\0\0\0\0\0"];
    let types: [&[u8]; 4] = [b"\x08\0", b"\x1e\0", b"\xfc\0\0\0\0\0\0\0\0\0\x05hello", b"\xff"];
    modules.into_iter().chain(types).for_each(check_refused);
}

#[test]
fn versions() {
    let bench = Bench::new(Protocol::Resp2);
    for version in [1, 6, 10, 11, 12, 80] {
        assert!(super::undump(&payload(b"\0\x05hello", version), &bench.env).is_ok(), "{version}");
    }
    for version in [0, 13, 79, 81, 0x0100, 0xffff] {
        let result = super::undump(&payload(b"\0\x05hello", version), &bench.env);
        assert_eq!(result.err(), Some(DumpError::Footer), "{version}");
    }
}

/// A changed bit is never taken for a value.
#[test]
fn checksums() {
    let mut bench = Bench::new(Protocol::Resp2);
    drop(bench.call(split("HSET k f v")[0].as_args()));
    let payload = dump(&mut bench);
    for bit in 0..payload.len() * 8 {
        let mut payload = payload.clone();
        payload[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(super::undump(&payload, &bench.env).err(), Some(DumpError::Footer), "{bit}");
    }
}
