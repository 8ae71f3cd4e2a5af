//! Scripts for ZUNION and its kin.

use kvasir_resp::reply::Protocol;

use crate::effect::Effect;
use crate::testing::events::check_events;
use crate::testing::{Bench, check, check3, split};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const ADD: &str = "ZADD k 1 a 2 b 3 c; ZADD l 10 b 20 c 30 d";

#[test]
fn replies() {
    let script = format!(
        "{ADD}; ZUNION 2 k l; ZUNION 2 k l WITHSCORES; ZINTER 2 k l; ZINTER 2 k l WITHSCORES; \
         ZDIFF 2 k l WITHSCORES; ZDIFF 2 l k; ZUNION 2 none k; ZINTER 2 none k; ZDIFF 2 none k; \
         ZDIFF 2 k none; ZUNION 1 none WITHSCORES"
    );
    check(
        &script,
        ":3; :3; [$a $b $c $d]; [$a $1 $b $12 $c $23 $d $30]; [$b $c]; [$b $12 $c $23]; [$a $1]; \
         [$d]; [$a $b $c]; []; []; [$a $b $c]; []",
    );
    check3(
        &script,
        ":3; :3; [$a $b $c $d]; [[$a ,1] [$b ,12] [$c ,23] [$d ,30]]; [$b $c]; \
         [[$b ,12] [$c ,23]]; [[$a ,1]]; [$d]; [$a $b $c]; []; []; [$a $b $c]; []",
    );
    check(
        &format!("{ADD}; ZUNION 2 k k WITHSCORES; ZINTER 3 k k k WITHSCORES; ZDIFF 2 k k"),
        ":3; :3; [$a $2 $b $4 $c $6]; [$a $3 $b $6 $c $9]; []",
    );
}

#[test]
fn weights_and_aggregates() {
    check(
        &format!(
            "{ADD}; ZUNION 2 k l WEIGHTS 10 0.5 WITHSCORES; ZINTER 2 k l AGGREGATE MIN WITHSCORES; \
             ZINTER 2 k l WITHSCORES aggregate max; \
             ZUNION 2 l k WEIGHTS -1 1 AGGREGATE MIN WITHSCORES; \
             ZUNION 1 k AGGREGATE MIN WEIGHTS 2 WEIGHTS 3 AGGREGATE SUM WITHSCORES WITHSCORES"
        ),
        ":3; :3; [$a $10 $d $15 $b $25 $c $40]; [$b $2 $c $3]; [$b $10 $c $20]; \
         [$d $-30 $c $-20 $b $-10 $a $1]; [$a $3 $b $6 $c $9]",
    );
    check(
        "ZADD p inf a 5 b; ZADD m -inf a 1 b; ZUNION 2 p m WITHSCORES; \
         ZUNION 2 p m WEIGHTS 0 1 WITHSCORES; ZINTER 2 p m WITHSCORES; \
         ZUNION 1 p WEIGHTS inf WITHSCORES; ZINTER 2 p m AGGREGATE MAX WITHSCORES",
        ":2; :2; [$a $0 $b $6]; [$a $-inf $b $1]; [$a $0 $b $6]; [$a $inf $b $inf]; [$b $5 $a $inf]",
    );
    check(
        "ZADD few 5 a; ZADD many 0 a 1 b; ZINTER 2 few many WEIGHTS 2 inf WITHSCORES; \
         ZINTER 2 few many WEIGHTS 2 inf AGGREGATE MIN WITHSCORES; \
         ZINTER 2 few many WEIGHTS 2 inf AGGREGATE MAX WITHSCORES; \
         ZUNION 2 few many WEIGHTS 2 inf WITHSCORES",
        ":1; :2; [$a $0]; [$a $10]; [$a $10]; [$a $10 $b $inf]",
    );
}

#[test]
fn stores() {
    check(
        &format!(
            "{ADD}; ZUNIONSTORE d 2 k l; ZRANGE d 0 -1 WITHSCORES; ZINTERSTORE d 2 k l WEIGHTS 2 1; \
             ZRANGE d 0 -1 WITHSCORES; ZDIFFSTORE d 2 k l; ZRANGE d 0 -1 WITHSCORES; \
             ZINTERSTORE d 2 k none; EXISTS d; ZUNIONSTORE k 2 k l AGGREGATE MAX; \
             ZRANGE k 0 -1 WITHSCORES"
        ),
        ":3; :3; :4; [$a $1 $b $12 $c $23 $d $30]; :2; [$b $14 $c $26]; :1; [$a $1]; :0; :0; :4; \
         [$a $1 $b $10 $c $20 $d $30]",
    );
    check(
        "SET d v EX 100; ZADD k 1 a; ZUNIONSTORE d 1 k; TTL d; TYPE d; SET e v; ZDIFFSTORE e 1 none; \
         EXISTS e",
        "+OK; :1; :1; :-1; +zset; +OK; :0; :0",
    );
    let long = "x".repeat(65);
    let pairs =
        |from: usize, to: usize| (from..to).map(|n| format!(" {n} m{n}")).collect::<String>();
    let encoding = "OBJECT ENCODING d";
    check(
        &format!(
            "ZADD k{}; ZADD l{}; ZUNIONSTORE d 2 k l; {encoding}; ZINTERSTORE d 2 k l; {encoding}; \
             ZDIFFSTORE d 2 k l; {encoding}; ZADD l 1 {long}; ZDIFFSTORE d 2 l k; {encoding}",
            pairs(0, 100),
            pairs(50, 150)
        ),
        ":100; :100; :150; $skiplist; :50; $listpack; :50; $listpack; :1; :51; $skiplist",
    );
}

#[test]
fn zintercard() {
    check(
        &format!(
            "{ADD}; ZINTERCARD 2 k l; ZINTERCARD 2 k l LIMIT 1; ZINTERCARD 2 k l limit 0; \
             ZINTERCARD 2 k none; ZINTERCARD 1 k LIMIT 9; ZINTERCARD 2 k k LIMIT 1 LIMIT 2"
        ),
        ":3; :3; :2; :1; :2; :0; :3; :2",
    );
}

#[test]
fn refuses() {
    let (syntax, integer) = ("-ERR syntax error", "-ERR value is not an integer or out of range");
    let none =
        |command: &str| format!("-ERR at least 1 input key is needed for '{command}' command");
    check(
        "ZUNION 0 k; ZINTER -1 k; ZDIFF 0 k; ZUNIONSTORE d 0 k; ZINTERCARD 0 k; ZUNION x k; \
         ZUNION 2 k; ZUNIONSTORE d 2 k; ZUNION 9223372036854775807 k",
        &format!(
            "{}; {}; {}; {}; {}; {integer}; {syntax}; {syntax}; {syntax}",
            none("zunion"),
            none("zinter"),
            none("zdiff"),
            none("zunionstore"),
            none("zintercard")
        ),
    );
    let weight = "-ERR weight value is not a float";
    check(
        "ZUNION 1 k FOO; ZUNION 2 k l WEIGHTS 1; ZUNION 1 k WEIGHTS x; ZUNION 1 k WEIGHTS nan; \
         ZUNION 1 k AGGREGATE; ZUNION 1 k AGGREGATE FOO; ZUNIONSTORE d 1 k WITHSCORES; \
         ZDIFF 1 k WEIGHTS 1; ZDIFF 1 k AGGREGATE SUM; ZDIFFSTORE d 1 k WITHSCORES; \
         ZINTER 1 k LIMIT 1; ZINTERSTORE d 1 k WEIGHTS",
        &format!(
            "{syntax}; {syntax}; {weight}; {weight}; {syntax}; {syntax}; {syntax}; {syntax}; {syntax}; \
             {syntax}; {syntax}; {syntax}"
        ),
    );
    let limit = "-ERR LIMIT can't be negative";
    check(
        "ZINTERCARD 1 k LIMIT -1; ZINTERCARD 1 k LIMIT x; ZINTERCARD 1 k LIMIT; \
         ZINTERCARD 1 k WITHSCORES; ZINTERCARD 1 k FOO 1",
        &format!("{limit}; {limit}; {syntax}; {syntax}; {syntax}"),
    );
    let calls = [
        "ZUNION 2 none s",
        "ZINTER 2 none s",
        "ZDIFF 2 none s FOO",
        "ZUNIONSTORE d 1 s",
        "ZINTERSTORE d 2 none s",
        "ZDIFFSTORE d 2 none s",
        "ZINTERCARD 2 none s",
    ];
    for call in calls {
        check(&format!("SET s v; {call}"), &format!("+OK; {WRONG_TYPE}"));
        let name = call.split(' ').next().unwrap();
        let arity = format!("-ERR wrong number of arguments for '{}' command", name.to_lowercase());
        check(&format!("{name} 1"), &arity);
    }
}

#[test]
fn the_log_gets_what_changed() {
    let mut bench = Bench::new(Protocol::Resp2);
    let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
    effect("ZADD k 1 a");
    for call in ["ZUNIONSTORE d 1 k", "ZUNIONSTORE d 1 k", "ZINTERSTORE d 1 none"] {
        assert_eq!(effect(call), Effect::AsGiven, "{call}");
    }
    for call in ["ZINTERSTORE d 1 none", "ZUNION 1 k", "ZDIFFSTORE d 2 k k"] {
        assert_eq!(effect(call), Effect::None, "{call}");
    }
}

#[test]
fn members_of_sets_score_one() {
    let sets = "SADD s a b c; ZADD z 5 b 7 d";
    check(&format!("{sets}; ZUNION 2 s z WITHSCORES"), ":3; :2; [$a $1 $c $1 $b $6 $d $7]");
    check(&format!("{sets}; ZINTER 2 s z WEIGHTS 3 2 WITHSCORES"), ":3; :2; [$b $13]");
    check(&format!("{sets}; ZDIFF 2 s z; ZDIFF 2 z s"), ":3; :2; [$a $c]; [$d]");
    check(
        &format!("{sets}; ZUNIONSTORE o 1 s; ZSCORE o a; ZINTERCARD 2 s z"),
        ":3; :2; :3; $1; :1",
    );
    check(
        "SADD s 1 2 3; ZADD z 5 2; ZINTERSTORE o 2 s z AGGREGATE MAX; ZRANGE o 0 -1 WITHSCORES",
        ":3; :1; :1; [$2 $5]",
    );
    check("SADD s a; SET t x; ZUNION 2 s t", &format!(":1; +OK; {WRONG_TYPE}"));
}

#[test]
fn events_of_storing() {
    check_events(
        "ZADD a 1 x 2 y; ZADD b 1 y 2 z; ZUNIONSTORE d 2 a b; ZUNIONSTORE d 2 a b; \
         ZUNIONSTORE d 2 none k; ZUNIONSTORE d 2 none k; ZINTERSTORE d 2 a b; ZINTERSTORE d \
         2 a none; ZDIFFSTORE d 2 a b; ZDIFFSTORE d 2 none a; ZDIFFSTORE d 1 a; ZDIFFSTORE d \
         2 a a; SADD s x; ZUNIONSTORE d 2 s a; ZUNIONSTORE s 2 s a",
        "new a, zadd a; new b, zadd b; new d, zunionstore d; zunionstore d; keymiss none, \
         keymiss k, del d; keymiss none, keymiss k; new d, zinterstore d; keymiss none, del \
         d; new d, zdiffstore d; keymiss none, del d; new d, zdiffstore d; del d; new s, \
         sadd s; new d, zunionstore d; zunionstore s",
    );
    check_events(
        "ZUNION 2 k l; ZINTER 2 k l; ZDIFF 2 k l; ZINTERCARD 2 k l",
        "keymiss k, keymiss l; keymiss k, keymiss l; keymiss k, keymiss l; keymiss k, \
         keymiss l",
    );
}
