//! HGETEX, HSETEX and HGETDEL: replies and effects.

use kvasir_resp::reply::Protocol;

use crate::effect::{Effect, call};
use crate::testing::events::check_valkey_events;
use crate::testing::{Bench, check_valkey, check_valkey3, split};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const WRONG_COUNT: &str =
    "-ERR numfields should be greater than 0 and match the provided number of fields";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";

#[test]
fn hgetex() {
    check_valkey(
        "HSET h a 1 b 2; HGETEX h FIELDS 2 a x; OBJECT ENCODING h; HGETEX h EX 100 FIELDS 2 a x; \
         OBJECT ENCODING h; HTTL h FIELDS 2 a b; HGETEX h FIELDS 1 a; HTTL h FIELDS 1 a; \
         HGETEX h PERSIST FIELDS 2 a b; HTTL h FIELDS 1 a",
        ":2; [$1 _]; $listpack; [$1 _]; $hashtable; [:100 :-1]; [$1]; [:100]; [$1 $2]; [:-1]",
    );
    check_valkey(
        "HSET h a 1 b 2; HGETEX h px 100000 FIELDS 1 a; HTTL h FIELDS 1 a; \
         HGETEX h EXAT 33177117420 FIELDS 1 a; HEXPIRETIME h FIELDS 1 a; \
         HGETEX h PXAT 33177117420500 FIELDS 1 a; HPEXPIRETIME h FIELDS 1 a; \
         HGETEX h EX 10 EX 20 FIELDS 1 b; \
         HTTL h FIELDS 1 b",
        ":2; [$1]; [:100]; [$1]; [:33177117420]; [$1]; [:33177117420500]; [$2]; [:20]",
    );
    check_valkey(
        "HSET h a 1 b 2; HGETEX h EX 0 FIELDS 3 a a x; HGETALL h; HGETEX h PXAT 1 FIELDS 1 b; \
         EXISTS h",
        ":2; [$1 _ _]; [$b $2]; [$2]; :0",
    );
    check_valkey3(
        "HSET h a 1; HGETEX h EX 9 FIELDS 2 a b; HGETEX none FIELDS 1 a",
        ":1; [$1 _]; [_]",
    );
    check_valkey(
        "HGETEX none EX 1 FIELDS 2 a b; EXISTS none; HGETEX none PERSIST FIELDS 1 a",
        "[_ _]; :0; [_]",
    );
}

#[test]
fn hgetex_refuses() {
    let invalid = "-ERR invalid expire time in 'hgetex' command";
    for (arguments, error) in [
        ("KEEPTTL FIELDS 1 b", SYNTAX),
        ("EX 1 PX 1 FIELDS 1 b", SYNTAX),
        ("EX 1 PERSIST FIELDS 1 b", SYNTAX),
        ("PERSIST EX 1 FIELDS 1 b", SYNTAX),
        ("EX FIELDS 1 b", SYNTAX),
        ("FOO FIELDS x b", SYNTAX),
        ("NX FIELDS 1 b", SYNTAX),
        ("a FIELDS 1", SYNTAX),
        ("EX x FIELDS 1 b", NOT_INTEGER),
        ("EX x FIELDS y b", NOT_INTEGER),
        ("EX x FIELDS 2 b", WRONG_COUNT),
        ("FIELDS 0 b", WRONG_COUNT),
        ("FIELDS 1 b c", WRONG_COUNT),
        ("a b FIELDS", WRONG_COUNT),
        ("a 1 b", WRONG_COUNT),
        ("EX -1 FIELDS 1 b", invalid),
        ("EX 9223372036854775807 FIELDS 1 x", invalid),
    ] {
        check_valkey(&format!("HSET h b 1; HGETEX h {arguments}"), &format!(":1; {error}"));
    }
    check_valkey(
        "SET s v; HGETEX s FIELDS 1 a; HGETEX s EX -1 FIELDS 1 a; HGETEX s FOO FIELDS 1 a; \
         HGETEX none EX -1 FIELDS 1 a; HGETEX h FIELDS 1",
        &format!(
            "+OK; {WRONG_TYPE}; {WRONG_TYPE}; {SYNTAX}; {invalid}; \
             -ERR wrong number of arguments for 'hgetex' command"
        ),
    );
}

#[test]
fn hsetex() {
    check_valkey(
        "HSETEX h FIELDS 1 a 1; OBJECT ENCODING h; HSETEX h KEEPTTL FIELDS 1 a 2; \
         OBJECT ENCODING h; \
         HSETEX h EX 100 FIELDS 2 a 1 b 2; OBJECT ENCODING h; HTTL h FIELDS 2 a b; \
         HSETEX h KEEPTTL FIELDS 2 a 9 c 3; HTTL h FIELDS 3 a b c; HSETEX h FIELDS 1 a 2; \
         HTTL h FIELDS 2 a b; \
         HMGET h a b c",
        ":1; $listpack; :1; $listpack; :1; $hashtable; [:100 :100]; :1; [:100 :100 :-1]; :1; \
         [:-1 :100]; \
         [$2 $2 $3]",
    );
    check_valkey(
        "HSETEX h FNX FIELDS 2 a 1 b 1; HSETEX h FNX FIELDS 2 b 2 c 2; \
         HSETEX h FXX FIELDS 2 b 3 c 3; \
         HSETEX h fxx FIELDS 2 a 4 b 4; HGETALL h; HSETEX none FXX FIELDS 1 a 1; EXISTS none",
        ":1; :0; :0; :1; [$a $4 $b $4]; :0; :0",
    );
    check_valkey(
        "HSETEX h XX FIELDS 1 a 1; HSETEX h NX FIELDS 1 a 1; HSETEX h nx NX FIELDS 1 b 1; \
         HSETEX h XX FNX EX 100 FIELDS 1 b 1; HTTL h FIELDS 1 b; \
         HSETEX g FNX NX FIELDS 2 q 1 q 2; HGETALL g",
        ":0; :1; :0; :1; [:100]; :1; [$q $2]",
    );
    check_valkey(
        "HSETEX h PX 100000 FIELDS 1 a 1; HTTL h FIELDS 1 a; \
         HSETEX h EXAT 33177117420 FIELDS 1 a 1; \
         HEXPIRETIME h FIELDS 1 a; HSETEX h PXAT 33177117420500 FIELDS 1 a 1; \
         HPEXPIRETIME h FIELDS 1 a",
        ":1; [:100]; :1; [:33177117420]; :1; [:33177117420500]",
    );
    check_valkey3("HSETEX h EX 5 FIELDS 1 a 1; HSETEX h FNX FIELDS 1 a 1", ":1; :0");
}

#[test]
fn hsetex_with_a_time_that_has_passed_deletes() {
    check_valkey(
        "HSET h a 1 b 2; HSETEX h EX 0 FIELDS 2 a 1 c 1; HGETALL h; \
         HSETEX h PXAT 1 FIELDS 1 b 1; EXISTS h; \
         HSETEX none PXAT 1 FIELDS 1 a 1; EXISTS none; HSETEX none FNX PX 0 FIELDS 1 a 1",
        ":2; :1; [$b $2]; :1; :0; :1; :0; :1",
    );
}

#[test]
fn hsetex_refuses() {
    let invalid = "-ERR invalid expire time in 'hsetex' command";
    for (arguments, error) in [
        ("NX XX FIELDS 9 a 1", SYNTAX),
        ("FXX FNX FIELDS 1 a 1", SYNTAX),
        ("EX 1 PX 1 FIELDS 1 a 1", SYNTAX),
        ("EX 1 KEEPTTL FIELDS 1 a 1", SYNTAX),
        ("PERSIST FIELDS 1 a 1", SYNTAX),
        ("FOO FIELDS x a 1", SYNTAX),
        ("EX FIELDS 1 a 1", SYNTAX),
        ("a 1 b FIELDS 1", SYNTAX),
        ("EX x FIELDS 1 a 1", NOT_INTEGER),
        ("FIELDS x a 1", NOT_INTEGER),
        ("FIELDS FIELDS 1 a 1", NOT_INTEGER),
        ("EX x FIELDS 2 a 1", WRONG_COUNT),
        ("FIELDS 0 a 1", WRONG_COUNT),
        ("FIELDS -1 a 1", WRONG_COUNT),
        ("FIELDS 1 a 1 b", WRONG_COUNT),
        ("FIELDS 1 a 1 EX 10", WRONG_COUNT),
        ("FIELDS 4611686018427387905 a 1", WRONG_COUNT),
        ("a 1 b 2", WRONG_COUNT),
        ("a 1 b 2 FIELDS", WRONG_COUNT),
        ("EX -1 FIELDS 1 a 1", invalid),
        ("FXX EX -1 FIELDS 1 c 1", invalid),
        ("EX 9223372036854775807 FIELDS 1 a 1", invalid),
    ] {
        check_valkey(
            &format!("HSET h b 1; HSETEX h {arguments}; HGETALL h"),
            &format!(":1; {error}; [$b $1]"),
        );
    }
    check_valkey(
        "SET s v; HSETEX s FIELDS 1 a 1; HSETEX s EX -1 FIELDS 1 a 1; HSETEX s NX FIELDS 1 a 1; \
         HSETEX s FXX FIELDS 1 a 1; HSETEX s FOO FIELDS 1 a 1; HSETEX none XX EX -1 FIELDS 1 a 1; \
         HSETEX h FIELDS 1 a",
        &format!(
            "+OK; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; {SYNTAX}; :0; \
             -ERR wrong number of arguments for 'hsetex' command"
        ),
    );
}

#[test]
fn hgetdel() {
    check_valkey(
        "HSET h a 1 b 2 c 3; HGETDEL h FIELDS 3 a a x; HGETALL h; HGETDEL h FIELDS 2 b c; \
         EXISTS h; \
         HGETDEL h FIELDS 1 a",
        ":3; [$1 _ _]; [$b $2 $c $3]; [$2 $3]; :0; [_]",
    );
    check_valkey3(
        "HSETEX h EX 9 FIELDS 2 a 1 b 2; HGETDEL h FIELDS 2 a x; HTTL h FIELDS 2 a b",
        ":1; [$1 _]; [:-2 :9]",
    );
    let long = "v".repeat(70_000);
    check_valkey(
        &format!("HSET h a {long} b 1; HGETDEL h FIELDS 1 a; HLEN h"),
        &format!(":2; [${long}]; :1"),
    );
    for (arguments, error) in [
        ("FIELDS 0 a", WRONG_COUNT),
        ("FIELDS -1 a", WRONG_COUNT),
        ("FIELDS 2 a", WRONG_COUNT),
        ("FIELDS 1 a b", WRONG_COUNT),
        ("FIELDS x a", NOT_INTEGER),
        ("FOO x a", SYNTAX),
        ("a FIELDS 1", SYNTAX),
        ("FIELDS 1 a", WRONG_TYPE),
    ] {
        check_valkey(&format!("SET s v; HGETDEL s {arguments}"), &format!("+OK; {error}"));
    }
    check_valkey("HGETDEL h FIELDS 1", "-ERR wrong number of arguments for 'hgetdel' command");
}

#[test]
fn effects() {
    let mut bench = Bench::new(Protocol::Resp2);
    bench.env.now_ms = 1_000;
    let mut effect = |text: &str| bench.call(split(text)[0].as_args()).1;
    let logged = |text: &str| {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        Effect::Rewritten(vec![call(&words)])
    };
    assert_eq!(effect("HSETEX h FIELDS 2 a 1 b 2"), Effect::AsGiven);
    assert_eq!(effect("HSETEX h NX FIELDS 2 a 1 b 2"), Effect::None);
    assert_eq!(effect("HSETEX h FXX PX 9 FIELDS 1 a 1"), logged("HSETEX h PXAT 1009 FIELDS 1 a 1"));
    assert_eq!(effect("HSETEX h KEEPTTL FIELDS 1 a 1"), Effect::AsGiven);
    assert_eq!(effect("HSETEX h EX 0 FIELDS 1 x 1"), Effect::None);
    assert_eq!(effect("HSETEX h EX 0 FIELDS 2 x 1 a 1"), logged("HDEL h x a"));
    assert_eq!(effect("HGETEX h FIELDS 1 b"), Effect::None);
    assert_eq!(effect("HGETEX h PERSIST FIELDS 1 b"), Effect::None);
    assert_eq!(effect("HGETEX h EX 1 FIELDS 2 b x"), logged("HPEXPIREAT h 2000 FIELDS 1 b"));
    assert_eq!(effect("HGETEX h PERSIST FIELDS 2 b x"), logged("HPERSIST h FIELDS 1 b"));
    assert_eq!(effect("HGETEX h EX 0 FIELDS 2 b x"), logged("HDEL h b"));
    effect("HSET h a 1");
    assert_eq!(effect("HGETDEL h FIELDS 1 x"), Effect::None);
    assert_eq!(effect("HGETDEL h FIELDS 1 a"), Effect::AsGiven);
}

#[test]
fn events_of_reading() {
    check_valkey_events(
        "HSET h a 1 b 2 c 3; HGETEX h FIELDS 1 a; HGETEX h EX 100 FIELDS 2 a zz; HGETEX h \
         PERSIST FIELDS 1 a; HGETEX h PERSIST FIELDS 1 a; HGETEX h EX 100 FIELDS 1 zz; \
         HGETEX h EXAT 33177117420 FIELDS 1 a; HGETEX h EXAT 33177117420 FIELDS 1 a",
        "new h, hset h; ; hexpire h; hpersist h; ; ; hexpire h; hexpire h",
    );
    check_valkey_events(
        "HSET h a 1 b 2 c 3; HGETEX h PXAT 1 FIELDS 1 a; HGETEX h PXAT 1 FIELDS 2 b c; \
         HGETEX h PXAT 1 FIELDS 1 b; HGETEX none EX 100 FIELDS 1 b; HGETEX none PERSIST \
         FIELDS 1 b; HGETEX none FIELDS 1 b",
        "new h, hset h; hexpired h; hexpired h, del h; keymiss h; keymiss none; keymiss \
         none; keymiss none",
    );
    check_valkey_events(
        "HSET h a 1 b 2 c 3; HGETDEL h FIELDS 1 a; HGETDEL h FIELDS 1 a; HGETDEL h FIELDS 3 \
         b c d; HGETDEL h FIELDS 3 b c d",
        "new h, hset h; hdel h; ; hdel h, del h; ",
    );
}

#[test]
fn events_of_setting() {
    check_valkey_events(
        "HSETEX h FIELDS 1 a 1; HSETEX h FIELDS 1 a 1; HSETEX h EX 100 FIELDS 2 a 1 b 2; \
         HSETEX h KEEPTTL FIELDS 1 a 1; HSETEX h FNX FIELDS 1 a 1; HSETEX h FXX FIELDS 1 a \
         2; HSETEX h FNX EX 100 FIELDS 2 c 1 d 1; HSETEX n FXX FIELDS 1 a 1; HSETEX n NX \
         FIELDS 1 a 1; HSETEX n NX FIELDS 1 a 1; HSETEX n XX FIELDS 1 a 1",
        "new h, hset h; hset h; hset h, hexpire h; hset h; ; hset h; hset h, hexpire h; ; \
         new n, hset n; ; hset n",
    );
    check_valkey_events(
        "HSET h a 1 b 2; HSETEX h PXAT 1 FIELDS 1 a 1; HSETEX h PXAT 1 FIELDS 1 zz 1; HSETEX \
         n PXAT 1 FIELDS 1 zz 1; HSETEX h PXAT 1 FIELDS 2 b 1 c 1; EXISTS h",
        "new h, hset h; hset h, hexpire h, hexpired h; (hset h), (hexpire h), (hexpired h); \
         new n, (hset n), (hexpire n), (hexpired n), (del n); hset h, hexpire h, hexpired h, \
         del h; keymiss h",
    );
}
