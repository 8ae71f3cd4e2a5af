//! Numbers as nobody should write them, in every place where a command reads one: what Valkey says
//! is what we say.

use crate::testing::compare_valkey;

/// Spellings that one reader of numbers takes and another does not, and the ends of all types.
const SPELLINGS: &[&str] = &[
    "0",
    "-0",
    "+1",
    "01",
    "' 1'",
    "'1 '",
    r#""\x0b1""#,
    r#""1\x00""#,
    r#""1\x002""#,
    "''",
    "-",
    "--1",
    "1.5",
    "1.",
    ".5",
    "1e3",
    "1e",
    "0x10",
    "0X1P3",
    "-0x10",
    "0x",
    "0x.8",
    "1_0",
    "1,5",
    "inf",
    "-inf",
    "Infinity",
    "nan",
    "-nan",
    "nan(1)",
    "1e309",
    "-1e309",
    "1e-400",
    "1e4933",
    "1e-320",
    "2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "x",
];

/// `?` is the number.
const CALLS: &[&str] = &[
    "APPEND s ?",
    "BITCOUNT s ? 1",
    "BITCOUNT s 0 ? BIT",
    "BITPOS s 1 ?",
    "BITPOS s 1 0 ?",
    "BITFIELD s GET u8 ?",
    "BITFIELD s GET u8 #?",
    "BITFIELD s GET u? 0",
    "BITFIELD s GET i? 0",
    "BITFIELD s SET i64 0 ?",
    "BITFIELD s OVERFLOW FAIL INCRBY i8 0 ?",
    "GETBIT s ?",
    "INCRBY s ?",
    "DECRBY s ?",
    "INCRBYFLOAT s ?",
    "GETRANGE s ? 1",
    "GETRANGE s 0 ?",
    "SETRANGE s ? ''",
    "SETEX s ? v",
    "SET s v PXAT ?",
    "GETEX s EX ?",
    "EXPIRE s ?",
    "PEXPIREAT s ?",
    "COPY s d DB ?",
    "SWAPDB ? 0",
    "SCAN ? COUNT 0",
    "SSCAN t ?",
    "SORT l LIMIT ? 2",
    "SORT l LIMIT 0 ?",
    "HINCRBY h f ?",
    "HINCRBYFLOAT h f ?",
    "HEXPIRE h ? FIELDS 1 f",
    "HGETEX h PXAT ? FIELDS 1 f",
    "HPEXPIREAT h 1 FIELDS ? f",
    "LINDEX l ?",
    "LRANGE l ? 2",
    "LRANGE l 0 ?",
    "LTRIM l ? 2",
    "LREM l ? 2",
    "LPOP l ?",
    "LPOS l 1 RANK ?",
    "LPOS l 1 COUNT ?",
    "LPOS l 1 MAXLEN ?",
    "LMPOP ? l LEFT",
    "LMPOP 1 l LEFT COUNT ?",
    "BLPOP l ?",
    "BRPOPLPUSH l d ?",
    "BLMPOP ? 1 l LEFT",
    "BLMPOP 0 ? l LEFT",
    "BZPOPMIN z ?",
    "BZMPOP ? 1 z MIN",
    "SPOP none ?",
    "SRANDMEMBER none ?",
    "SINTERCARD ? t t",
    "SINTERCARD 2 t t LIMIT ?",
    "ZADD z ? m",
    "ZADD z INCR ? a",
    "ZINCRBY z ? a",
    "ZCOUNT z ? 3",
    "ZCOUNT z (? 3",
    "ZLEXCOUNT z ? +",
    "ZRANGE z ? 1",
    "ZRANGE z 0 ?",
    "ZRANGE z ? 3 BYSCORE",
    "ZRANGE z 0 3 BYSCORE LIMIT ? 1",
    "ZRANGESTORE d z 0 ? BYSCORE",
    "ZREVRANGEBYSCORE z ? 0",
    "ZREMRANGEBYSCORE z 0 ?",
    "ZREMRANGEBYRANK z 0 ?",
    "ZRANDMEMBER none ?",
    "ZPOPMIN z ?",
    "ZMPOP ? z MIN",
    "ZUNION ? z z",
    "ZUNION 2 z z WEIGHTS ? 1",
    "ZINTERSTORE d 1 z WEIGHTS ?",
    "ZINTERCARD 1 z LIMIT ?",
    "GEOADD g ? 38 m",
    "GEOADD g 13 ? m",
    "GEOSEARCH g FROMLONLAT ? 37 BYRADIUS 200 km",
    "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS ? km",
    "GEOSEARCH g FROMLONLAT 15 37 BYBOX ? 400 km",
    "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km COUNT ?",
    "GEORADIUS g 15 37 ? km",
    "XADD x ? f v",
    "XADD x MAXLEN ? 9-9 f v",
    "XADD x MINID ? 9-9 f v",
    "XADD x MAXLEN ~ 1 LIMIT ? 9-9 f v",
    "XTRIM x MINID ?",
    "XDEL x ?",
    "XRANGE x ? +",
    "XRANGE x - (?",
    "XRANGE x - + COUNT ?",
    "XREAD COUNT ? STREAMS x 0",
    "XREAD STREAMS x ?",
    "XREAD BLOCK ? STREAMS x 0",
    "XSETID x ?",
    "XSETID x 9-9 ENTRIESADDED ?",
    "XGROUP CREATE x h ?",
    "XGROUP SETID x g ?",
    "XGROUP SETID x g 0 ENTRIESREAD ?",
    "XACK x g ?",
    "XCLAIM x g d ? 1-1 JUSTID",
];

const SETUP: &str = "SET s 10; RPUSH l 1 2 1; SADD t 1 2; ZADD z 1 a 2 b; HSET h f 10; XADD x 1-1 f v; \
                     XGROUP CREATE x g 0; GEOADD g 15 37 p";

#[test]
fn numbers_are_read_as_valkey_reads_them() {
    for call in CALLS {
        for spelling in SPELLINGS {
            if ["#?", "(?", "u?", "i?"].iter().any(|part| call.contains(part))
                && spelling.contains(['\'', '"'])
            {
                continue;
            }
            let call = call.replace('?', spelling);
            compare_valkey(&format!("{SETUP}; {call}; EXISTS s l t z h x g d"));
        }
    }
}

#[test]
fn texts_are_numbers_where_valkey_takes_them_for_numbers() {
    for spelling in SPELLINGS {
        for call in ["INCR k", "DECRBY k 1", "INCRBYFLOAT k 1", "OBJECT ENCODING k"] {
            compare_valkey(&format!("SET k {spelling}; {call}; GET k"));
        }
        compare_valkey(&format!("HSET h f {spelling}; HINCRBY h f 1; HINCRBYFLOAT h f 1"));
        // An empty text is 0 to SORT, as in Redis; to Valkey it is none.
        if *spelling != "''" {
            compare_valkey(&format!("RPUSH l {spelling} 5 -3; SORT l; SORT l DESC"));
        }
    }
}
