//! DEBUG, as test suites of clients use it.

use crate::check::{check, check_newer, check_with};
use crate::harness::{Client, Server, each_backend};

#[test]
fn words() {
    let unknown = |word: &str| {
        format!(
            "-ERR unknown subcommand or wrong number of arguments for '{word}'. Try DEBUG HELP."
        )
    };
    let words = ["FOO", "JMAP", "POPULATE", "SLEEP", "OBJECT", "PROTOCOL", "STRINGMATCH-LEN"];
    for word in words {
        check(&[(&format!("DEBUG {word}"), &unknown(word))]);
    }
    check(&[
        ("DEBUG ERROR foo; DEBUG ERROR \"ERR a b\"; DEBUG LOG hello", "-foo; -ERR a b; +OK"),
        ("DEBUG CHANGE-REPL-ID", "+OK"),
        (
            "DEBUG QUICKLIST-PACKED-THRESHOLD 100b; DEBUG QUICKLIST-PACKED-THRESHOLD 5gb",
            "+OK; -ERR argument must be a memory value bigger than 1 and smaller than 4gb",
        ),
        (
            "DEBUG REPLYBUFFER PEAK-RESET-TIME 100; DEBUG REPLYBUFFER PEAK-RESET-TIME x; \
             DEBUG REPLYBUFFER RESIZING 0",
            "+OK; -ERR value is not an integer or out of range; +OK",
        ),
        (
            "DEBUG HTSTATS 99; DEBUG HTSTATS x",
            "-ERR Out of range database; -ERR value is not an integer or out of range",
        ),
        (
            "SET s v; DEBUG LISTPACK s; DEBUG QUICKLIST s; DEBUG HTSTATS-KEY s; DEBUG SDSLEN none",
            "+OK; -ERR Not a listpack encoded object.; -ERR Not a quicklist encoded object.; \
             -ERR The value stored at the specified key is not represented using an hash table; \
             -ERR no such key",
        ),
        ("SET i 1; DEBUG SDSLEN i", "+OK; -ERR Not an sds encoded string."),
    ]);
    check_newer(&[("DEBUG RELOAD; DEBUG DICT-RESIZING 1", "+OK; +OK")]);
}

#[test]
fn replies_of_every_type() {
    let call = |word: &&str| format!("DEBUG PROTOCOL {word}");
    let all = |words: &[&str]| words.iter().map(call).collect::<Vec<_>>().join("; ");
    check(&[
        (
            &all(&["string", "integer", "double", "null", "array", "set", "map", "attrib"]),
            "$Hello World; :12345; $3.141; _; [:0 :1 :2]; [:0 :1 :2]; [:0 :0 :1 :1 :2 :0]; \
             $Some real reply following the attribute",
        ),
        (
            &all(&["push", "verbatim", "true", "false", "bignum"]),
            "-ERR RESP2 is not supported by this command; $This is a verbatim\\nstring; :1; :0; \
             $1234567999999999999999999999999999999",
        ),
        (
            "DEBUG PROTOCOL x",
            "-ERR Wrong protocol type name. Please use one of the following: \
             string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ),
    ]);
}

/// What the decoder of these tests does not show is compared by its bytes. (Redis 7.0 sends the
/// push before the reply that it belongs to.)
#[test]
fn resp3_replies_are_those_of_valkey() {
    let words = ["attrib", "push", "double", "map", "set", "verbatim", "true", "bignum", "null"];
    let run = |server: &Server| {
        let mut client = server.connect();
        client.ask("HELLO 3");
        client.take_raw();
        words.map(|word| {
            client.ask(&format!("DEBUG PROTOCOL {word}"));
            if word == "push" {
                client.read_reply();
            }
            String::from_utf8_lossy(&client.take_raw()).into_owned()
        })
    };
    let Some(theirs) = Server::valkey(&[]).map(|server| run(&server)) else { return };
    each_backend(&[], |server| assert_eq!(run(server), theirs));
}

#[test]
fn populating() {
    check(&[
        (
            "DEBUG POPULATE 3; DBSIZE; GET key:1; DEBUG POPULATE 2 pre 3; GET pre:1; \
             DEBUG POPULATE 1 long 9; GET long:0",
            "+OK; :3; $value:1; +OK; $val; +OK; $value:0\\x00\\x00",
        ),
        ("SET key:0 x; DEBUG POPULATE 1; GET key:0", "+OK; +OK; $x"),
        (
            "DEBUG POPULATE x; DEBUG POPULATE 1 k -5",
            "-ERR value is out of range, must be positive; \
             -ERR value is out of range, must be positive",
        ),
    ]);
}

/// Every type, small and large, has the digest that the oracles have.
#[test]
fn digests_are_those_of_the_oracles() {
    let (Some(redis), Some(valkey)) = (Server::redis(&[]), Server::valkey(&[])) else { return };
    let digests = |server: &Server| {
        let mut client = server.connect();
        client.ask("FLUSHALL");
        fill(&mut client);
        let names = "s i e l ll set ints members h hh z zz x none";
        let values = crate::check::show(&client.ask(&format!("DEBUG DIGEST-VALUE {names}")));
        (values, crate::check::show(&client.ask("DEBUG DIGEST")))
    };
    let theirs = digests(&valkey);
    assert_eq!(digests(&redis), theirs);
    each_backend(&[], |server| assert_eq!(digests(server), theirs));
}

fn fill(client: &mut Client) {
    let numbers = |from: usize, to: usize| (from..to).map(|n| format!(" {n}")).collect::<String>();
    let pairs = |to: usize| (0..to).map(|n| format!(" {n} f{n}")).collect::<String>();
    let calls = [
        "SET s hello".into(),
        "SET i 12".into(),
        "SET e v PX 10000000".into(),
        "RPUSH l a 1 b".into(),
        format!("RPUSH ll{}", numbers(0, 1000)),
        "SADD set a b 3".into(),
        format!("SADD ints{}", numbers(0, 100)),
        format!("SADD members a{}", numbers(0, 1000)),
        "HSET h f v g 1".into(),
        format!("HSET hh{}", pairs(1000)),
        "ZADD z 1 a -inf b 300 c".into(),
        format!("ZADD zz{}", pairs(1000)),
        "XADD x 1-1 f v g 2".into(),
        "XADD x 1-2 f w".into(),
        "XADD x 5-2 other w".into(),
        "SELECT 3".into(),
        "SET elsewhere x".into(),
        "SELECT 0".into(),
    ];
    calls.iter().for_each(|call| drop(client.ask(call)));
}

#[test]
fn a_digest_of_nothing() {
    check_with(
        &[],
        &[(
            "DEBUG DIGEST; DEBUG DIGEST-VALUE none; DEBUG DIGEST-VALUE",
            "+0000000000000000000000000000000000000000; [+0000000000000000000000000000000000000000]; []",
        )],
    );
}
