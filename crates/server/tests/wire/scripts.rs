//! EVAL, SCRIPT, FCALL, FUNCTION: replies, errors, isolation, scripts that do not end.

use std::thread;

use kvasir_resp::value::Value;

use crate::check::{check, check_ours, run_script, show};
use crate::harness::{Client, Server, each_backend, figure, wait_until};

const SHA: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

#[test]
fn scripts_answer() {
    check(&[
        (
            "EVAL 'return 1' 0; EVAL 'return {1,2,{3}}' 0; EVAL 'return nil' 0",
            ":1; [:1 :2 [:3]]; _",
        ),
        ("EVAL 'return {KEYS[1],ARGV[1],ARGV[2]}' 1 k a b", "[$k $a $b]"),
        ("EVAL 'return redis.call(\"set\",KEYS[1],ARGV[1])' 1 k v; GET k", "+OK; $v"),
        ("EVAL 'return redis.call(\"get\",\"undeclared\")' 0", "_"),
        (
            "EVAL 'redis.call(\"set\",\"undeclared\",\"x\") return redis.call(\"get\",\"undeclared\")' 0",
            "$x",
        ),
        ("EVAL 'return redis.call(\"dbsize\")' 0", ":2"),
        (
            "EVAL 'redis.call(\"select\",5) redis.call(\"set\",\"five\",1) return redis.call(\"dbsize\")' 0; EXISTS five; SELECT 5; EXISTS five",
            ":1; :0; +OK; :1",
        ),
        ("EVAL 'return redis.call(\"flushall\")' 0; DBSIZE", "+OK; :0"),
        (
            "EVAL 'return redis.status_reply(\"FINE\")' 0; EVAL 'return {ok=\"YES\"}' 0",
            "+FINE; +YES",
        ),
        ("EVAL_RO 'return 1' 0; EVAL_RO 'return redis.call(\"get\",KEYS[1])' 1 none", ":1; _"),
    ]);
}

/// Figures as Redis has them, where they do not depend on how memory is laid out.
#[test]
fn what_is_kept_is_told() {
    each_backend(&["--io-threads", "2"], |server| {
        let mut client = server.connect();
        let figures = |client: &mut Client| {
            let names = ["number_of_cached_scripts", "number_of_functions", "number_of_libraries"];
            names.map(|name| figure(client, "memory", name))
        };
        assert_eq!(figures(&mut client), [0, 0, 0]);
        assert_eq!(figure(&mut client, "memory", "used_memory_vm_total"), 0);
        client.call(&["EVAL", "return 1", "0"]);
        client.call(&["EVAL", "return 2", "0"]);
        let register = |name| format!("redis.register_function('{name}', function() end)\n");
        let code = format!("#!lua name=lib\n{}", ["a", "b", "c"].map(register).concat());
        assert_eq!(show(&client.call(&["FUNCTION", "LOAD", &code])), "$lib");
        assert_eq!(figures(&mut client), [2, 3, 1]);
        let bytes = |client: &mut Client| {
            let names =
                ["used_memory_scripts_eval", "used_memory_functions", "used_memory_scripts"];
            names.map(|name| figure(client, "memory", name))
        };
        let code_bytes = code.len() as u64;
        assert_eq!(bytes(&mut client), [16, code_bytes, 16 + code_bytes]);
        let stats = client.ask("MEMORY STATS");
        let caches = format!("$lua.caches :16 $functions.caches :{code_bytes} ");
        assert!(show(&stats).contains(&caches), "{}", show(&stats));
        let interpreter = figure(&mut client, "memory", "used_memory_vm_total");
        assert!((10_000..1_000_000).contains(&interpreter), "{interpreter}");
        client.ask("SCRIPT FLUSH");
        client.ask("FUNCTION FLUSH");
        assert_eq!(figures(&mut client), [0, 0, 0]);
        for number in 0..501 {
            client.call(&["EVAL", &format!("return {number}"), "0"]);
        }
        assert_eq!(figure(&mut client, "stats", "evicted_scripts"), 1);
        client.ask("CONFIG RESETSTAT");
        assert_eq!(figure(&mut client, "stats", "evicted_scripts"), 0);
    });
}

/// What a script makes of a set must not depend on where its members lie.
#[test]
fn a_set_that_a_script_leaves_unsorted_has_an_order() {
    check(&[(
        "SADD s c aa b a; EVAL \"return redis.call('sort', KEYS[1], 'by', '_')\" 1 s; \
         EVAL \"return redis.call('sort', KEYS[1], 'by', '_', 'desc', 'limit', 0, 2)\" 1 s",
        ":4; [$a $aa $b $c]; [$c $b]",
    )]);
}

#[test]
fn scripts_fail() {
    check(&[
        (
            "EVAL 'return 1' x; EVAL 'return 1' 2 k; EVAL 'return 1' -1",
            "-ERR value is not an integer or out of range; -ERR Number of keys can't be greater than number of args; -ERR Number of keys can't be negative",
        ),
        ("EVAL 'return redis.error_reply(\"MY problem\")' 0", "-MY problem"),
        (
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0; EVALSHA x 0",
            "-NOSCRIPT No matching script. Please use EVAL.; -NOSCRIPT No matching script. Please use EVAL.",
        ),
    ]);
    // Their texts name the script, so the bytes are compared only.
    for script in [
        "return redis.call('nope')",
        "return redis.call('get')",
        "return redis.call('get','a','b')",
        "return redis.call('multi')",
        "return redis.call('client','nope')",
        "redis.call('set','k','v') return redis.call('incr','k')",
        "return redis.pcall('incr','k')",
        "return redis.pcall('incr','k').err",
        "local ok, e = pcall(redis.call,'incr','k') return e.err",
        "error('mine')",
        "error({err='MINE its text'})",
        "return nothing_here",
        "x = 1",
        "local = 1",
        "return {err='OWN x'}",
        "#!lua flags=no-writes\nreturn redis.call('set','k','v')",
        "return redis.call('pfcount','k')",
        "return redis.call('publish','c','message')",
        "#!lua flags=nope\nreturn 1",
        "#!python\nreturn 1",
        "#!lua\nreturn 1",
        "return redis.call('set','k','v','nope')",
        "return #redis.call('keys','*')",
        "return redis.call('time')[3]",
    ] {
        compare(&["EVAL", script, "0"]);
        compare(&["EVAL_RO", script, "0"]);
    }
}

/// The bytes of one call's reply here and at the oracle.
fn compare(call: &[&str]) {
    let bytes = |server: &Server| {
        let mut client = server.connect();
        client.call(call);
        String::from_utf8_lossy(&client.take_raw()).into_owned()
    };
    let oracle = Server::redis(&[]).map(|server| bytes(&server));
    each_backend(&[], |server| {
        oracle.iter().for_each(|oracle| assert_eq!(&bytes(server), oracle, "{call:?}"));
    });
}

/// As in Valkey, and in Redis since 7.2; 7.0 refuses them.
#[test]
fn blocking_calls_of_scripts_do_not_wait() {
    check_ours(
        &[],
        &[
            (
                "RPUSH l a; EVAL 'return {redis.call(\"blpop\",\"l\",0), redis.call(\"brpop\",\"l\",0)}' 0",
                ":1; [[$l $a] _]",
            ),
            ("EVAL 'return {redis.call(\"blmove\",\"l\",\"m\",\"left\",\"left\",0)}' 0", "[_]"),
            ("EVAL 'return {redis.call(\"bzpopmin\",\"z\",0)}' 0", "[_]"),
        ],
    );
}

#[test]
fn scripts_are_kept() {
    check(&[
        (
            "SCRIPT EXISTS x; SCRIPT LOAD 'return 1'; EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0; \
             EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0",
            &format!("[:0]; ${SHA}; :1; :1"),
        ),
        (
            &format!(
                "SCRIPT EXISTS {SHA} x {SHA}; SCRIPT FLUSH; SCRIPT EXISTS {SHA}; EVALSHA {SHA} 0"
            ),
            "[:1 :0 :1]; +OK; [:0]; -NOSCRIPT No matching script. Please use EVAL.",
        ),
        (&format!("EVAL 'return 1' 0; EVALSHA {SHA} 0; EVALSHA_RO {SHA} 0"), ":1; :1; :1"),
        (
            "SCRIPT FLUSH ASYNC; SCRIPT FLUSH SYNC; SCRIPT FLUSH x",
            "+OK; +OK; -ERR SCRIPT FLUSH only support SYNC|ASYNC option",
        ),
        (
            "SCRIPT KILL; FUNCTION KILL",
            "-NOTBUSY No scripts in execution right now.; -NOTBUSY No scripts in execution right now.",
        ),
        ("SCRIPT DEBUG NO; SCRIPT DEBUG x", "+OK; -ERR Use SCRIPT DEBUG YES/SYNC/NO"),
    ]);
}

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('get', function(keys, args) return redis.call('get', keys[1]) end)\nredis.register_function{function_name='echo', callback=function(keys, args) return args[1] end, flags={'no-writes'}, description='says it'}";

#[test]
fn functions() {
    let quoted = format!("\"{}\"", LIBRARY.replace('\n', "\\n"));
    let load = format!("FUNCTION LOAD {quoted}");
    let replace = format!("FUNCTION LOAD REPLACE {quoted}");
    check(&[
        (
            &format!("FUNCTION LIST; {load}; {load}; {replace}"),
            "[]; $lib; -ERR Library 'lib' already exists; $lib",
        ),
        (
            "SET k v; FCALL get 1 k; FCALL echo 0 hello; FCALL_RO echo 0 hello; FCALL none 0",
            "+OK; $v; $hello; $hello; -ERR Function not found",
        ),
        (
            "FCALL_RO get 1 k; FCALL echo x; FCALL echo 1; FCALL echo -1",
            "-ERR Can not execute a script with write flag using *_ro command.; -ERR Bad number of keys provided; -ERR Number of keys can't be greater than number of args; -ERR Number of keys can't be negative",
        ),
        (
            "FUNCTION LIST LIBRARYNAME x*; FUNCTION LIST LIBRARYNAME; FUNCTION LIST x",
            "[]; -ERR library name argument was not given; -ERR Unknown argument x",
        ),
        (
            "FUNCTION DELETE none; FUNCTION DELETE lib; FCALL echo 0 a; FUNCTION DELETE lib",
            "-ERR Library not found; +OK; -ERR Function not found; -ERR Library not found",
        ),
        (
            &format!("{load}; FUNCTION FLUSH; FUNCTION LIST; FUNCTION FLUSH x"),
            "$lib; +OK; []; -ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
        ),
        (
            "FUNCTION RESTORE x; FUNCTION RESTORE x y",
            "-ERR DUMP payload version or checksum are wrong; -ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        ),
        (
            "FUNCTION LOAD x; FUNCTION LOAD 'return 1'; FUNCTION LOAD x y",
            "-ERR Missing library metadata; -ERR Missing library metadata; -ERR Unknown option given: x",
        ),
        (
            "FUNCTION STATS",
            "[$running_script _ $engines [$LUA [$libraries_count :0 $functions_count :0]]]",
        ),
    ]);
}

#[test]
fn libraries_travel_as_payloads() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.call(&["FUNCTION", "LOAD", LIBRARY]);
        let payload = client.call(&["FUNCTION", "DUMP"]);
        let payload = payload.as_bytes().expect("a payload").to_vec();
        for peer in Server::redis(&[]).iter() {
            let mut other = peer.connect();
            let call: [&[u8]; 3] = [b"FUNCTION", b"RESTORE", &payload];
            assert_eq!(show(&other.call(&call)), "+OK");
            let theirs = other.call(&["FUNCTION", "DUMP"]);
            client.ask("FUNCTION FLUSH");
            let call: [&[u8]; 3] = [b"FUNCTION", b"RESTORE", theirs.as_bytes().expect("a payload")];
            assert_eq!(show(&client.call(&call)), "+OK");
        }
        let mut restore = |policy: &str| {
            let call: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &payload, policy.as_bytes()];
            show(&client.call(&call))
        };
        assert_eq!(restore("APPEND"), "-ERR Library lib already exists");
        assert_eq!(restore("REPLACE"), "+OK");
        assert_eq!(restore("FLUSH"), "+OK");
        assert_eq!(show(&client.ask("FCALL echo 0 x")), "$x");
        // Another worker has it as well.
        let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| assert_eq!(show(&client.ask("FCALL echo 0 y")), "$y"));
    });
}

#[test]
fn scripts_in_transactions() {
    check(&[
        (
            "MULTI; SET k 1; EVAL 'return redis.call(\"incr\",KEYS[1])' 1 k; EVAL 'return redis.call(\"incr\",\"k\")' 0; GET k; EXEC",
            "+OK; +QUEUED; +QUEUED; +QUEUED; +QUEUED; [+OK :2 :3 $3]",
        ),
        (
            "MULTI; EVAL 'return redis.call(\"nope\")' 1; GET k; EXEC",
            "+OK; +QUEUED; +QUEUED; [-ERR Number of keys can't be greater than number of args $3]",
        ),
        (
            "EVAL 'return 7' 0; MULTI; EVALSHA x 0; EVAL 'return 7' 0; EXEC",
            ":7; +OK; +QUEUED; +QUEUED; [-NOSCRIPT No matching script. Please use EVAL. :7]",
        ),
    ]);
}

/// Scripts with declared and with undeclared keys move money; who reads finds nothing missing.
#[test]
fn scripts_are_isolated() {
    const MOVE: &str = "local from, to = KEYS[1], KEYS[2] \
        redis.call('decrby', from, ARGV[1]) redis.call('incrby', to, ARGV[1]) return 1";
    const MOVE_ANY: &str =
        "redis.call('decrby', ARGV[1], 5) redis.call('incrby', ARGV[2], 5) return 1";
    let library = "#!lua name=l\nredis.register_function('move', function(keys, args) \
        redis.call('decrby', keys[1], args[1]) redis.call('incrby', keys[2], args[1]) return 1 end)";
    each_backend(&["--io-threads", "4"], |server| {
        let mut setup = server.connect();
        setup.call(&["FUNCTION", "LOAD", library]);
        (0..10).for_each(|n| {
            setup.call(&["SET", &format!("a:{n}"), "100"]);
        });
        let server = &*server;
        thread::scope(|scope| {
            for seed in 0..4 {
                scope.spawn(move || {
                    let mut client = server.connect();
                    for round in 0..300 {
                        let (from, to) = ((seed + round) % 10, (seed + round * 3 + 1) % 10);
                        let (from, to) = (format!("a:{from}"), format!("a:{to}"));
                        let reply = match seed % 3 {
                            0 => client.call(&["EVAL", MOVE, "2", &from, &to, "7"]),
                            1 => client.call(&["EVAL", MOVE_ANY, "0", &from, &to]),
                            _ => client.call(&["FCALL", "move", "2", &from, &to, "3"]),
                        };
                        assert_eq!(show(&reply), ":1");
                    }
                });
            }
            scope.spawn(move || {
                let mut reader = server.connect();
                for _ in 0..300 {
                    let shown = show(&reader.ask("MGET a:0 a:1 a:2 a:3 a:4 a:5 a:6 a:7 a:8 a:9"));
                    let amounts = shown.trim_matches(['[', ']']).split(' ');
                    let sum: i64 =
                        amounts.map(|one| one[1..].parse::<i64>().expect("a number")).sum();
                    assert_eq!(sum, 1000, "{shown}");
                }
            });
        });
    });
}

const ENDLESS: &str = "while true do end";

fn wait_for_busy(client: &mut Client) {
    wait_until("the script is busy", || show(&client.ask("GET x")).starts_with("-BUSY"));
}

#[test]
fn a_busy_script_can_be_killed() {
    const BUSY: &str =
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    let run = |server: &Server| {
        let mut runner = server.connect();
        let mut others: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        runner.send(&["EVAL", ENDLESS, "1", "k"]);
        runner.send(&["PING"]);
        for other in &mut others {
            wait_for_busy(other);
            assert_eq!(
                run_script(other, "SET k v; PING; MULTI; DISCARD"),
                format!("{BUSY}; {BUSY}; +OK; +OK"),
                "{}",
                server.name
            );
        }
        runner.send(&["ECHO", "while it is busy"]);
        let mut late = server.connect();
        assert_eq!(show(&late.ask("FUNCTION KILL")), BUSY, "{}", server.name);
        assert_eq!(show(&late.ask("SCRIPT KILL")), "+OK", "{}", server.name);
        let reply = show(&runner.read_reply().expect("an answer"));
        assert!(
            reply.starts_with("-ERR Error running script")
                || reply.contains("Script killed by user with SCRIPT KILL."),
            "{} {reply}",
            server.name
        );
        assert_eq!(show(&runner.read_reply().expect("an answer")), "+PONG");
        let echo = runner.read_reply().expect("an answer");
        assert_eq!(echo, Value::Bulk(b"while it is busy".to_vec()));
        wait_until("nothing is busy", || show(&others[0].ask("SET k v")) == "+OK");
        assert_eq!(show(&late.ask("SCRIPT KILL")), "-NOTBUSY No scripts in execution right now.");
    };
    let options = ["--lua-time-limit", "50"];
    each_backend(&[&options[..], &["--io-threads", "1"]].concat(), |server| run(server));
    each_backend(&[&options[..], &["--io-threads", "3"]].concat(), |server| run(server));
    Server::redis(&options).iter().for_each(run);
}

#[test]
fn a_busy_script_that_has_written_cannot_be_killed() {
    each_backend(&["--busy-reply-threshold", "50"], |server| {
        let mut runner = server.connect();
        let script = format!("redis.call('set','k','v') {ENDLESS}");
        runner.send(&["EVAL", &script, "0"]);
        let mut other = server.connect();
        wait_for_busy(&mut other);
        assert!(
            show(&other.ask("SCRIPT KILL"))
                .starts_with("-UNKILLABLE Sorry the script already executed write commands")
        );
        other.send(&["SHUTDOWN", "NOSAVE"]);
        assert!(server.wait_for_end().success());
    });
}

#[test]
fn memory_of_a_script_is_limited() {
    each_backend(&["--script-memory-limit", "16mb"], |server| {
        let mut client = server.connect();
        let reply = show(&client.call(&[
            "EVAL",
            "local t = {} for i = 1, 1e9 do t[i] = tostring(i) .. string.rep('x', 100000) end",
            "0",
        ]));
        assert!(reply.contains("not enough memory"), "{reply}");
        assert_eq!(show(&client.ask("PING")), "+PONG");
    });
}
