//! Replaying effects gives the same data: the promise of `effect`, for random calls.
//!
//! One keyspace takes calls while its clock moves; another, whose clock stands far ahead and whose
//! random generator differs, takes what would be in the log: a DEL of every key and an HDEL of
//! every field that expired, and what the calls returned. In the end both hold the same records.

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::Protocol;
use proptest::prelude::*;

use crate::place::DbIndex;
use crate::testing::Bench;

/// K and L are keys, V a value, N a number, S seconds, M milliseconds, A a time.
pub const CALLS: &[&str] = &[
    "SET K V",
    "SET K V EX S",
    "SET K V PX M",
    "SET K V PXAT A",
    "SET K V KEEPTTL",
    "SET K V NX",
    "SET K V XX GET",
    "SETNX K V",
    "SETEX K S V",
    "PSETEX K M V",
    "GETSET K V",
    "GET K",
    "GETDEL K",
    "GETEX K EX S",
    "GETEX K PXAT A",
    "GETEX K PERSIST",
    "MSET K V L N",
    "MSETNX K V L N",
    "MSETEX 2 K V L N EX S",
    "MSETEX 2 K V L N KEEPTTL XX",
    "MSETEX 1 K V PXAT A NX",
    "SET K V IFEQ 5 PX M",
    "DELIFEQ K V",
    "SET K V IFNE 5 KEEPTTL",
    "SET K V IFNE V EX S",
    "SET K V IFDNE 0000000000000000",
    "DELEX K IFNE V",
    "DELEX K",
    "APPEND K V",
    "SETRANGE K 3 V",
    "INCR K",
    "DECRBY K N",
    "HSET K a V b N",
    "HSETNX K b N",
    "HINCRBY K b N",
    "HINCRBYFLOAT K b N",
    "HDEL K a",
    "HGETALL K",
    "HEXPIRE K S FIELDS 2 a b",
    "HPEXPIRE K M NX FIELDS 1 b",
    "HPEXPIREAT K A GT FIELDS 2 b c",
    "HEXPIRE K 0 FIELDS 1 a",
    "HPERSIST K FIELDS 2 a b",
    "HGETEX K PX M FIELDS 2 a c",
    "HGETEX K PXAT A FIELDS 1 b",
    "HGETEX K PERSIST FIELDS 1 a",
    "HSETEX K EX S FIELDS 2 a V c N",
    "HSETEX K PXAT A FNX FIELDS 1 b N",
    "HSETEX K KEEPTTL FIELDS 2 a V b N",
    "HSETEX K FNX FIELDS 1 b N",
    "HSETEX K FXX FIELDS 1 c V",
    "HSETEX K NX PX M FIELDS 1 a N",
    "HGETDEL K FIELDS 2 a c",
    "DEL K L",
    "UNLINK K",
    "EXISTS K",
    "TOUCH K L",
    "TYPE K",
    "TTL K",
    "EXPIRE K S",
    "EXPIRE K S NX",
    "EXPIRE K S GT",
    "EXPIRE K S LT",
    "PEXPIRE K M XX",
    "EXPIRE K -1",
    "PEXPIREAT K A",
    "PERSIST K",
    "RENAME K L",
    "RENAMENX K L",
    "COPY K L",
    "COPY K L REPLACE",
    "COPY K L DB 1 REPLACE",
    "MOVE K 0",
    "MOVE K 1",
    "SADD K V N",
    "SADD K S M A",
    "SADD L V N",
    "SREM K V N",
    "SMOVE K L V",
    "SPOP K",
    "SPOP K S",
    "SINTERSTORE K K L",
    "SUNIONSTORE K K L",
    "SDIFFSTORE K L K",
    "LPUSH K V N",
    "RPUSH K V",
    "LPUSHX K V",
    "RPUSHX K N",
    "LPOP K",
    "RPOP K 2",
    "LSET K 0 V",
    "LINSERT K BEFORE N V",
    "LREM K 1 V",
    "LTRIM K 0 2",
    "LMOVE K L LEFT RIGHT",
    "RPOPLPUSH K L",
    "LMPOP 2 K L RIGHT COUNT 2",
    "BLPOP K L 0",
    "BLMOVE K L RIGHT RIGHT 0",
    "BLMPOP 0 2 K L LEFT",
    "XADD K * f V",
    "XADD K MAXLEN ~ 1 * f V",
    "XTRIM K MAXLEN ~ 0",
    "XGROUP CREATE K g 0 MKSTREAM",
    "XREADGROUP GROUP g c STREAMS K >",
    "RESTORE K 0 TEXT",
    "RESTORE K M TEXT REPLACE",
    "RESTORE K A LIST REPLACE ABSTTL",
    "RESTORE K M HASH REPLACE IDLETIME S",
    "RANDOMKEY",
    "KEYS *",
    "SCAN 0",
    "SETBIT K 9 1",
    "SETBIT K 150 0",
    "BITOP XOR K L M",
    "BITOP NOT K L",
    "BITFIELD K SET u7 S N INCRBY i5 #3 N",
    "BITFIELD K OVERFLOW FAIL INCRBY u2 40 1",
    "PFADD K V N M",
    "PFCOUNT K",
    "PFMERGE K L",
    "PFDEBUG TODENSE K",
    "GEOADD K S N V N S a",
    "GEOADD K XX CH N N a",
    "GEORADIUS K 0 0 900 km STORE L",
    "GEOSEARCHSTORE L K FROMLONLAT 0 0 BYBOX 900 900 km COUNT S STOREDIST",
    "ZADD K N V",
    "ZADD K GT CH N V S text",
    "ZADD K NX INCR N V",
    "ZADD L S a M b N c",
    "ZINCRBY K N V",
    "ZREM K V text",
    "ZPOPMIN K",
    "ZPOPMAX K S",
    "ZMPOP 2 K L MAX COUNT 2",
    "BZPOPMIN K L S",
    "BZMPOP S 2 K L MIN",
    "ZREMRANGEBYRANK K N 1",
    "ZREMRANGEBYSCORE K N 5",
    "ZREMRANGEBYLEX K - (b",
    "ZRANGESTORE K L N -1 REV",
    "ZUNIONSTORE K 2 K L WEIGHTS N 2",
    "ZINTERSTORE K 2 K L AGGREGATE MIN",
    "ZDIFFSTORE K 2 K L",
    "FLUSHDB",
    "FLUSHALL",
    "SWAPDB 0 1",
];

/// Calls to streams, with which a key is a stream most of the time.
pub const STREAM_CALLS: &[&str] = &[
    "XADD K * f V",
    "XADD K * f V",
    "XADD K * f V g N",
    "XADD K A f V",
    "XADD K A-* f V",
    "XADD K S-* f V",
    "XADD K NOMKSTREAM * f V",
    "XADD K MAXLEN ~ 2 * f V",
    "XADD K MAXLEN 3 * f V",
    "XADD K MINID ~ A * f V",
    "XADD K MINID A * f V",
    "XTRIM K MAXLEN ~ 1",
    "XTRIM K MINID ~ A",
    "XTRIM K MAXLEN S",
    "XDEL K S-0 1000000-0",
    "XDELEX K KEEPREF IDS 2 S-0 1000000-0",
    "XDELEX K DELREF IDS 3 1-0 2-0 3-0",
    "XDELEX K ACKED IDS 3 1-0 2-0 3-0",
    "XACKDEL K g DELREF IDS 2 S-0 1000000-0",
    "XACKDEL K g ACKED IDS 3 1-0 2-0 3-0",
    "XTRIM K MAXLEN S ACKED",
    "XTRIM K MINID ~ A ACKED",
    "XTRIM K MAXLEN ~ S DELREF",
    "XADD K MAXLEN S ACKED * f V",
    "XADD K MAXLEN S DELREF * f V",
    "XADD K KEEPREF MAXLEN ~ S * f V",
    "XSETID K A",
    "XSETID K 1040000 ENTRIESADDED 99 MAXDELETEDID A",
    "XGROUP CREATE K g 0 MKSTREAM",
    "XGROUP CREATE K h $",
    "XGROUP SETID K g 0",
    "XGROUP SETID K g $",
    "XGROUP SETID K h 0 ENTRIESREAD 1",
    "XGROUP DESTROY K h",
    "XGROUP CREATECONSUMER K g L",
    "XGROUP DELCONSUMER K g L",
    "XREADGROUP GROUP g L COUNT S STREAMS K >",
    "XREADGROUP GROUP g L STREAMS K >",
    "XREADGROUP GROUP h L NOACK STREAMS K >",
    "XREADGROUP GROUP g L BLOCK 5 STREAMS K 0",
    "XREADGROUP GROUP g L STREAMS K S-0",
    "XACK K g S-0 1000000-0",
    "XCLAIM K g L 0 S-0 1000000-0 FORCE",
    "XCLAIM K g L 0 S-0 IDLE M RETRYCOUNT S LASTID S",
    "XCLAIM K g L M S-0 JUSTID",
    "XAUTOCLAIM K g L M 0 COUNT S",
    "XAUTOCLAIM K g L 0 0 JUSTID",
    "COPY K L REPLACE",
    "DEL K",
    "PEXPIRE K M",
];

/// Payloads of DUMP that happen to be printable: a string, a list and a hash.
const DUMPED_TEXT: &str = "\x00\x04almw\n\x00{CVf<VuE";
const DUMPED_LIST: &str = "\x01\x02\x04acgb\x01a\n\x009JU>F,JC";
const DUMPED_HASH: &str = "\x04\x01\x01f\x04ayfk\n\x00k`KhR}w;";

pub const START_MS: u64 = 1_000_000;

/// A call, at a moment, in a database; before it, perhaps, a visit of the expiry cycle.
#[derive(Clone, Debug)]
pub struct Step {
    pub wait_ms: u64,
    pub expires_all: bool,
    pub db: DbIndex,
    pub words: Vec<String>,
}

pub fn step(calls: &'static [&'static str]) -> impl Strategy<Value = Step> {
    let key = || prop::sample::select(&["a", "b", "{a}c", "d"][..]);
    let long = "x".repeat(20_000);
    let values = ["5", "-7", "text", "", "a longer text than what fits into an embstr", &long];
    let value = prop::sample::select(values.map(String::from).to_vec());
    let texts = (prop::sample::select(calls), key(), key(), value);
    let numbers = (-9..9i64, 1..4u64, 1..4_000u64, START_MS - 1_000..START_MS + 30_000);
    (texts, numbers, 0..500u64, prop::bool::weighted(0.1), 0..2u16).prop_map(
        |((call, key, other, value), (number, s, ms, at), wait_ms, expires_all, db)| {
            let word = |word: &str| match word {
                "K" => key.to_string(),
                "L" => other.to_string(),
                "V" => value.clone(),
                "N" => number.to_string(),
                "S" => s.to_string(),
                "M" => ms.to_string(),
                "A" => at.to_string(),
                "TEXT" => DUMPED_TEXT.to_string(),
                "LIST" => DUMPED_LIST.to_string(),
                "HASH" => DUMPED_HASH.to_string(),
                word => word.to_string(),
            };
            let words = call.split(' ').map(word).collect();
            Step { wait_ms, expires_all, db: DbIndex(db), words }
        },
    )
}

/// Runs a step and has the other keyspace follow.
fn take(step: &Step, leader: &mut Bench, follower: &mut Bench) {
    leader.env.now_ms += step.wait_ms;
    if step.expires_all {
        leader.expire_all(step.db);
    }
    leader.select(step.db);
    let args: ArgsBuf = step.words.iter().collect();
    leader.call(args.as_args());
    for call in leader.take_logged() {
        let (reply, _) = follower.call(call.as_args());
        assert_ne!(reply[0], b'-', "{:?}: {}", call.as_args(), reply.escape_ascii());
    }
}

/// Whether one who follows a keyspace through these steps has the same data in the end.
fn follows(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut leader = Bench::seeded(Protocol::Resp2, 1);
    leader.env.now_ms = START_MS;
    let mut follower = Bench::seeded(Protocol::Resp3, 77);
    (follower.env.now_ms, follower.env.replays) = (START_MS + 1_000_000_000, true);
    for step in steps {
        take(step, &mut leader, &mut follower);
    }
    prop_assert_eq!(leader.content(), follower.content());
    prop_assert_eq!((follower.tally.expired, follower.tally.fields_expired), (0, 0));
    Ok(())
}

proptest! {
    #[test]
    fn replaying_effects_gives_the_same_data(steps in prop::collection::vec(step(CALLS), 1..200)) {
        follows(&steps)?;
    }

    #[test]
    fn replaying_gives_the_same_streams(
        steps in prop::collection::vec(step(STREAM_CALLS), 1..200),
    ) {
        follows(&steps)?;
    }
}
