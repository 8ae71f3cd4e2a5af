//! Expiries of fields: replies, what other commands make of them, and what the log gets.

use kvasir_resp::reply::Protocol;

use crate::effect::{Effect, call};
use crate::testing::events::{check_our_events, check_valkey_events};
use crate::testing::{Bench, check_valkey, check_valkey3, split};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const WRONG_COUNT: &str =
    "-ERR numfields should be greater than 0 and match the provided number of fields";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";
/// 3021-04-30, in ms.
const FAR: &str = "33177117420500";

const EXPIRES: [&str; 4] = ["hexpire", "hpexpire", "hexpireat", "hpexpireat"];
const ASKS: [&str; 4] = ["httl", "hpttl", "hexpiretime", "hpexpiretime"];

#[test]
fn expiries_are_set_in_four_units() {
    check_valkey(
        "HSET h a 1 b 2; HEXPIRE h 100 FIELDS 2 a x; HTTL h FIELDS 3 a b x; \
         HPEXPIRE h 200000 FIELDS 1 b; \
         HTTL h FIELDS 1 b; HGET h a",
        ":2; [:1 :-2]; [:100 :-1 :-2]; [:1]; [:200]; $1",
    );
    check_valkey(
        &format!(
            "HSET h a 1 b 2; HEXPIREAT h 33177117420 FIELDS 1 a; HPEXPIREAT h {FAR} FIELDS 1 b; \
             HEXPIRETIME h FIELDS 2 a b; HPEXPIRETIME h FIELDS 2 a b"
        ),
        &format!(":2; [:1]; [:1]; [:33177117420 :33177117421]; [:33177117420000 :{FAR}]"),
    );
    check_valkey3(
        "HSET h a 1; HEXPIRE h 100 nx fields 1 a; HTTL h FIELDS 2 a b; HPERSIST h FIELDS 2 a b; \
         HTTL none FIELDS 1 a",
        ":1; [:1]; [:100 :-2]; [:1 :-2]; [:-2]",
    );
    check_valkey(
        "HSET h a 1; HPEXPIREAT h 9223372036854775807 FIELDS 1 a; HPEXPIRETIME h FIELDS 1 a; \
         HEXPIRETIME h FIELDS 1 a",
        ":1; [:1]; [:9223372036854775807]; [:9223372036854776]",
    );
}

#[test]
fn a_time_that_has_passed_deletes() {
    for call in ["HEXPIRE h 0", "HPEXPIRE h 0", "HEXPIREAT h 0", "HEXPIREAT h 1", "HPEXPIREAT h 1"]
    {
        check_valkey(
            &format!(
                "HSET h a 1 b 2; {call} FIELDS 3 a a x; HGETALL h; OBJECT ENCODING h; \
                 {call} FIELDS 1 b; EXISTS h"
            ),
            ":2; [:2 :-2 :-2]; [$b $2]; $listpack; [:2]; :0",
        );
    }
}

#[test]
fn conditions() {
    check_valkey(
        "HSET h a 1 b 2; HEXPIRE h 100 XX FIELDS 1 a; HEXPIRE h 100 GT FIELDS 1 a; \
         OBJECT ENCODING h; \
         HEXPIRE h 100 NX FIELDS 3 a a x; HEXPIRE h 200 NX NX FIELDS 1 a; HTTL h FIELDS 1 a",
        ":2; [:0]; [:0]; $listpack; [:1 :0 :-2]; [:0]; [:100]",
    );
    check_valkey(
        "HSETEX h EX 100 FIELDS 2 a 1 b 2; HEXPIRE h 50 GT FIELDS 1 a; \
         HEXPIRE h 200 gt FIELDS 1 a; \
         HEXPIRE h 300 LT FIELDS 1 a; HTTL h FIELDS 1 a; HEXPIRE h 50 XX LT FIELDS 1 a; \
         HTTL h FIELDS 1 a; \
         HSET h c 3; HEXPIRE h 10 LT FIELDS 1 c; HTTL h FIELDS 1 c",
        ":1; [:0]; [:1]; [:0]; [:200]; [:1]; [:50]; :1; [:1]; [:10]",
    );
    check_valkey(
        "HSETEX h EX 100 FIELDS 2 a 1 b 2; HPEXPIREAT h 1 GT FIELDS 1 a; \
         HPEXPIREAT h 1 LT FIELDS 2 a b; \
         EXISTS h",
        ":1; [:0]; [:2 :2]; :0",
    );
}

#[test]
fn missing_keys_and_wrong_types() {
    for command in EXPIRES {
        check_valkey(
            &format!("{command} none 100 FIELDS 2 a b; SET s v; {command} s 100 FIELDS 1 a"),
            &format!("[:-2 :-2]; +OK; {WRONG_TYPE}"),
        );
    }
    for command in ASKS.iter().chain(&["hpersist"]) {
        check_valkey(
            &format!("{command} none FIELDS 2 a b; SET s v; {command} s FIELDS 1 a"),
            &format!("[:-2 :-2]; +OK; {WRONG_TYPE}"),
        );
    }
}

#[test]
fn expire_refuses() {
    let nx = "-ERR NX and XX, GT or LT options at the same time are not compatible";
    let gt = "-ERR GT and LT options at the same time are not compatible";
    for (arguments, error) in [
        ("h 100 NX XX FIELDS x b", nx),
        ("h x NX GT FIELDS 1 b", nx),
        ("h 100 GT LT FIELDS 1 b", gt),
        ("h 100 FOO FIELDS x b", "-ERR Unsupported option FOO"),
        ("h x 1 FIELDS b", "-ERR Unsupported option 1"),
        ("h FIELDS 1 a FIELDS 1 b", "-ERR Unsupported option 1"),
        ("h x FIELDS 1 a", NOT_INTEGER),
        ("h 1.5 FIELDS 1 a", NOT_INTEGER),
        ("h 100 FIELDS x b", NOT_INTEGER),
        ("h 100 FIELDS FIELDS 1 b", NOT_INTEGER),
        ("h 100 FIELDS 9223372036854775808 b", NOT_INTEGER),
        ("h 100 FIELDS 9223372036854775807 b", WRONG_COUNT),
        ("h x FIELDS 2 b", WRONG_COUNT),
        ("h 100 FIELDS 0 b", WRONG_COUNT),
        ("h 100 FIELDS -1 b", WRONG_COUNT),
        ("h 100 FIELDS 1 b c", WRONG_COUNT),
        ("h 100 FIELDS 1 b NX", WRONG_COUNT),
        ("h 100 NX FIELDS 1", WRONG_COUNT),
        ("h 100 NX XX GT FIELDS", WRONG_COUNT),
        ("h x FOO 1 b", WRONG_COUNT),
    ] {
        for command in EXPIRES {
            check_valkey(
                &format!("HSET h b 1; {command} {arguments}; HGET h b"),
                &format!(":1; {error}; $1"),
            );
        }
    }
    for command in EXPIRES {
        let invalid = format!("-ERR invalid expire time in '{command}' command");
        check_valkey(
            &format!(
                "SET s v; {command} s -1 FIELDS 1 a; {command} none -9223372036854775808 FIELDS 1 a"
            ),
            &format!("+OK; {invalid}; {invalid}"),
        );
        check_valkey(
            &format!("{command} h 100 FIELDS 1"),
            &format!("-ERR wrong number of arguments for '{command}' command"),
        );
        if command != "hpexpireat" {
            check_valkey(&format!("{command} h 9223372036854775807 GT FIELDS 1 a"), &invalid);
        }
    }
    check_valkey(
        "HEXPIRE h 9223372036854775 FIELDS 1 a; HSET h a 1; \
         HEXPIREAT h 9223372036854775 FIELDS 1 a",
        "-ERR invalid expire time in 'hexpire' command; :1; [:1]",
    );
}

#[test]
fn asking_refuses() {
    for (arguments, ask, persist) in [
        ("FIELDS 2 a", SYNTAX, WRONG_COUNT),
        ("FIELDS 0 a", SYNTAX, WRONG_COUNT),
        ("FIELDS -1 a", SYNTAX, WRONG_COUNT),
        ("FIELDS 1 a b", SYNTAX, WRONG_COUNT),
        ("FIELDS 9223372036854775807 a", SYNTAX, WRONG_COUNT),
        ("FIELDS x a", NOT_INTEGER, NOT_INTEGER),
        ("FOO x a", SYNTAX, SYNTAX),
        ("a FIELDS 1", SYNTAX, SYNTAX),
    ] {
        for command in ASKS {
            check_valkey(&format!("SET s v; {command} s {arguments}"), &format!("+OK; {ask}"));
        }
        check_valkey(&format!("SET s v; HPERSIST s {arguments}"), &format!("+OK; {persist}"));
    }
    for command in ASKS.iter().chain(&["hpersist"]) {
        check_valkey(
            &format!("{command} h FIELDS 1"),
            &format!("-ERR wrong number of arguments for '{command}' command"),
        );
    }
}

#[test]
fn persist() {
    check_valkey(
        "HSETEX h EX 100 FIELDS 1 a 1; HSET h b 2; HPERSIST h FIELDS 4 a b x a; \
         HTTL h FIELDS 2 a b; \
         OBJECT ENCODING h",
        ":1; :1; [:1 :-1 :-2 :-1]; [:-1 :-1]; $hashtable",
    );
    check_valkey("HSET h a 1; HPERSIST h FIELDS 1 a; OBJECT ENCODING h", ":1; [:-1]; $listpack");
}

#[test]
fn what_other_commands_do_to_an_expiry() {
    check_valkey(
        "HSETEX h EX 100 FIELDS 6 a 1 b 2 c 3 d 4 e 5 f 6; HSET h a 9; HMSET h b 9; HINCRBY h c 1; \
         HINCRBYFLOAT h d 0.5; HSETNX h e 9; HDEL h f; HSET h f 1; HTTL h FIELDS 6 a b c d e f; \
         HLEN h",
        ":1; :0; +OK; :4; $4.5; :0; :1; :1; [:-1 :-1 :100 :100 :100 :-1]; :6",
    );
    check_valkey(
        "HSETEX h EX 100 FIELDS 1 a 1; OBJECT ENCODING h; COPY h g; HTTL g FIELDS 1 a; RENAME g i; \
         HTTL i FIELDS 1 a; EXPIRE i 500; HTTL i FIELDS 1 a; PERSIST i; HTTL i FIELDS 1 a; \
         OBJECT ENCODING i",
        ":1; $hashtable; :1; [:100]; +OK; [:100]; :1; [:100]; :1; [:100]; $hashtable",
    );
    check_valkey(
        "HSETEX h EX 100 FIELDS 1 a 1; HSET h a 2; TTL h; HSET h b 3; HTTL h FIELDS 2 a b",
        ":1; :0; :-1; :1; [:-1 :-1]",
    );
}

/// A bench in which the clock was moved; what calls reply.
fn at(bench: &mut Bench, now_ms: u64, script: &str) -> String {
    bench.env.now_ms = now_ms;
    let replies = split(script).iter().map(|call| bench.call(call.as_args()).0).collect::<Vec<_>>();
    crate::testing::show_all(&replies)
}

fn bench() -> Bench {
    let mut bench = Bench::new(Protocol::Resp2);
    bench.env.now_ms = 1_000;
    bench
}

#[test]
fn a_dead_field_is_gone_for_every_reader_to_the_millisecond() {
    let reads = "HGET h a; HMGET h a b; HEXISTS h a; HSTRLEN h a; HGETALL h; HKEYS h; HVALS h; \
                 HRANDFIELD h 9; HRANDFIELD h -2; HTTL h FIELDS 1 a";
    let replies = "_; [_ $2]; :0; :0; [$b $2]; [$b]; [$2]; [$b]; [$b $b]; [:-2]";
    for is_large in [false, true] {
        let mut bench = bench();
        if is_large {
            fill(&mut bench);
        }
        at(&mut bench, 1_000, "HSET h b 2; HSETEX h PX 500 FIELDS 1 a 1");
        assert_eq!(at(&mut bench, 1_499, "HGET h a; HPTTL h FIELDS 1 a"), "$1; [:1]");
        assert_eq!(at(&mut bench, 1_500, reads), replies);
    }
    let mut bench = bench();
    at(&mut bench, 1_000, "HSET h b 2; HSETEX h PX 500 FIELDS 1 a 1");
    assert_eq!(at(&mut bench, 1_500, "HSCAN h 0; HLEN h"), "[$0 [$b $2]]; :1");
}

/// More fields that die at 1500 than one look at the hash deletes.
fn fill(bench: &mut Bench) {
    let fields: String = (0..3_000).map(|field| format!(" f{field} v")).collect();
    at(bench, 1_000, &format!("HSETEX h PX 500 FIELDS 3000{fields}"));
}

#[test]
fn a_hash_is_gone_with_its_last_field() {
    let mut bench = bench();
    at(&mut bench, 1_000, "HSETEX h PX 500 FIELDS 2 a 1 b 2; HSETEX g PX 600 FIELDS 1 a 1");
    assert_eq!(at(&mut bench, 1_500, "EXISTS h; TYPE h; HGETALL h; DBSIZE"), ":0; +none; []; :1");
    assert_eq!(bench.tally.fields_expired, 2);
    bench.env.now_ms = 1_600;
    bench.expire_all(crate::place::DbIndex(0));
    assert_eq!(at(&mut bench, 1_600, "DBSIZE"), ":0");
    assert_eq!(bench.tally.fields_expired, 3);
}

/// In a large hash, calls come upon fields that are dead and not yet deleted.
#[test]
fn a_dead_field_is_no_field_for_who_changes_it() {
    for (call, reply, ttl) in [
        ("HSET h a 9", ":1", -1),
        ("HSETNX h a 9", ":1", -1),
        ("HINCRBY h a 9", ":9", -1),
        ("HINCRBYFLOAT h a 9", "$9", -1),
        ("HDEL h a", ":0", -2),
        ("HSETEX h FNX FIELDS 1 a 9", ":1", -1),
        ("HSETEX h FXX FIELDS 1 a 9", ":0", -2),
        ("HSETEX h KEEPTTL FIELDS 1 a 9", ":1", -1),
        ("HEXPIRE h 100 FIELDS 1 a", "[:-2]", -2),
        ("HPERSIST h FIELDS 1 a", "[:-2]", -2),
        ("HGETEX h EX 100 FIELDS 1 a", "[_]", -2),
        ("HGETDEL h FIELDS 1 a", "[_]", -2),
    ] {
        let mut bench = bench();
        fill(&mut bench);
        at(&mut bench, 1_000, "HSETEX h PX 500 FIELDS 1 a 1; HSET h b 2");
        assert_eq!(at(&mut bench, 1_500, call), reply, "{call}");
        assert_eq!(at(&mut bench, 1_500, "HTTL h FIELDS 1 a"), format!("[:{ttl}]"), "{call}");
    }
}

#[test]
fn dead_fields_are_logged_as_deleted() {
    let mut bench = bench();
    at(&mut bench, 1_000, "HSETEX h PX 500 FIELDS 1 a 1; HSET h b 2");
    bench.take_logged();
    at(&mut bench, 1_500, "HGET h b");
    assert_eq!(bench.take_logged(), [["HDEL", "h", "a"].iter().collect()]);
}

#[test]
fn who_follows_a_log_deletes_nothing() {
    let mut bench = bench();
    bench.env.replays = true;
    at(&mut bench, 1_000, "HPEXPIREAT h 1 FIELDS 1 a; HSET h a 1 b 2");
    assert_eq!(
        at(&mut bench, 1_000, "HPEXPIREAT h 1 FIELDS 1 a; HSETEX h PXAT 1 FIELDS 1 c 3"),
        "[:1]; :1"
    );
    assert_eq!(at(&mut bench, 9_000, "HGET h a; HLEN h; HGET h c"), "$1; :3; $3");
    bench.take_logged();
    bench.expire_all(crate::place::DbIndex(0));
    assert_eq!(bench.take_logged(), []);
}

#[test]
fn effects_are_absolute() {
    let mut bench = bench();
    let mut effect = |text: &str| bench.call(split(text)[0].as_args()).1;
    effect("HSET h a 1 b 2 c 3");
    let set = |ms: &[u8], count: &[u8], names: &[&[u8]]| {
        let words: [&[u8]; 5] = [b"HPEXPIREAT", b"h", ms, b"FIELDS", count];
        Effect::Rewritten(vec![call(&[&words[..], names].concat())])
    };
    assert_eq!(effect("HEXPIRE h 1 FIELDS 3 a x b"), set(b"2000", b"2", &[b"a", b"b"]));
    assert_eq!(effect("HPEXPIRE h 5 NX FIELDS 2 a c"), set(b"1005", b"1", &[b"c"]));
    assert_eq!(effect("HEXPIREAT h 9 FIELDS 1 c"), set(b"9000", b"1", &[b"c"]));
    assert_eq!(effect("HEXPIRE h 1 NX FIELDS 1 c"), Effect::None);
    assert_eq!(effect("HEXPIRE h 1 FIELDS 1 x"), Effect::None);
    assert_eq!(effect("HPERSIST h FIELDS 1 c"), Effect::AsGiven);
    assert_eq!(effect("HPERSIST h FIELDS 1 c"), Effect::None);
    assert_eq!(
        effect("HINCRBYFLOAT h c 1"),
        Effect::Rewritten(vec![call(&[b"HSET", b"h", b"c", b"4"])])
    );
    let words: [&[u8]; 7] = [b"HSETEX", b"h", b"KEEPTTL", b"FIELDS", b"1", b"a", b"2"];
    assert_eq!(effect("HINCRBYFLOAT h a 1"), Effect::Rewritten(vec![call(&words)]));
    assert_eq!(
        effect("HEXPIRE h 0 FIELDS 2 a x"),
        Effect::Rewritten(vec![call(&[b"HDEL", b"h", b"a"])])
    );
}

#[test]
fn events_of_expiries() {
    check_valkey_events(
        "HSET h a 1 b 2; HEXPIRE h 100 FIELDS 2 a b; HEXPIRE h 100 NX FIELDS 1 a; HEXPIRE h \
         100 FIELDS 1 zz; HEXPIRE none 100 FIELDS 1 a; HPEXPIRE h 100000 FIELDS 1 a; \
         HEXPIREAT h 33177117420 FIELDS 1 a; HPEXPIREAT h 33177117420000 FIELDS 1 a; \
         HPERSIST h FIELDS 2 a b; HPERSIST h FIELDS 2 a b; HPERSIST h FIELDS 1 zz; HPERSIST \
         none FIELDS 1 zz",
        "new h, hset h; hexpire h; ; ; ; hexpire h; hexpire h; hexpire h; hpersist h; ; ; ",
    );
    check_valkey_events(
        "HSET h a 1 b 2; HEXPIRE h 0 FIELDS 1 a; HEXPIRE h 0 FIELDS 1 zz; HPEXPIREAT h 1 \
         FIELDS 2 b c; HEXPIRE h 0 FIELDS 1 a",
        "new h, hset h; hexpired h; ; hexpired h, del h; ",
    );
    check_valkey_events(
        "HTTL k FIELDS 1 a; HPTTL k FIELDS 1 a; HEXPIRETIME k FIELDS 1 a; HPEXPIRETIME k \
         FIELDS 1 a",
        "keymiss k; keymiss k; keymiss k; keymiss k",
    );
    check_valkey_events(
        "HSETEX h PX 50 FIELDS 2 a 1 b 2; SLEEP 400; EXISTS h; SET s v",
        "new h, hset h, hexpire h; hexpired h, del h; keymiss h; new s, set s",
    );
}

#[test]
fn a_field_that_expires_changes_its_hash() {
    // Valkey tells of it, but takes the hash for unchanged.
    check_our_events(
        "HSETEX h PX 50 FIELDS 1 a 1; HSET h b 2; SLEEP 400; HSETEX h PX 50 FIELDS 1 b 1; SLEEP 400",
        "new h, hset h, hexpire h; hset h; hexpired h; hset h, hexpire h; hexpired h, del h",
    );
}
