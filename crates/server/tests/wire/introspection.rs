//! SLOWLOG, COMMANDLOG, LATENCY, and what INFO tells of commands.

use kvasir_resp::value::Value;

use crate::blocking::wait_for;
use crate::check::{check, check_ours, run_script, show};
use crate::harness::{Client, Server, backends, each_backend, figure, wait_until};

#[test]
fn slow_log_words() {
    let count = "-ERR count should be greater than or equal to -1";
    check(&[
        ("SLOWLOG RESET; SLOWLOG LEN; SLOWLOG GET; SLOWLOG GET -1", "+OK; :0; []; []"),
        ("SLOWLOG GET -2; SLOWLOG GET x", &format!("{count}; {count}")),
        (
            "SLOWLOG GET 1 2; SLOWLOG FOO; SLOWLOG LEN x; SLOWLOG",
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.; \
             -ERR unknown subcommand 'FOO'. Try SLOWLOG HELP.; \
             -ERR wrong number of arguments for 'slowlog|len' command; \
             -ERR wrong number of arguments for 'slowlog' command",
        ),
    ]);
}

/// Redis 7.0 has no COMMANDLOG; the replies are Valkey's.
#[test]
fn command_log_words() {
    let kind = "-ERR type should be one of the following: slow, large-request, large-reply";
    check_ours(
        &[],
        &[
            (
                "COMMANDLOG LEN slow; COMMANDLOG GET -1 large-REQUEST; COMMANDLOG RESET large-reply",
                ":0; []; +OK",
            ),
            (
                "COMMANDLOG GET 1 x; COMMANDLOG LEN x; COMMANDLOG RESET x",
                &format!("{kind}; {kind}; {kind}"),
            ),
            (
                "COMMANDLOG GET x slow; COMMANDLOG GET 1",
                "-ERR count should be greater than or equal to -1; \
                 -ERR wrong number of arguments for 'commandlog|get' command",
            ),
        ],
    );
}

/// The arguments of the entries, newest first.
fn entries(client: &mut Client, call: &str) -> Vec<String> {
    let reply = client.ask(call);
    let args = |entry: &Value| show(&entry.as_array().unwrap()[3]);
    reply.as_array().unwrap().iter().map(args).collect()
}

/// The same calls leave the same entries here and at the oracle.
#[test]
fn entries_are_those_of_redis() {
    let run = |server: &Server| {
        let mut client = server.connect();
        client.ask("CONFIG SET slowlog-log-slower-than 0");
        client.ask("SLOWLOG RESET");
        let long = "x".repeat(200);
        let many = vec!["a"; 40].join(" ");
        let calls = [
            "SET k v",
            "GET",
            "NOSUCH",
            "GET k",
            &format!("SET k {long}"),
            &format!("DEL {many}"),
            "AUTH u p",
            "AUTH p",
            "HELLO 2 AUTH u p SETNAME me",
            "CONFIG SET requirepass a nosuch b",
            "CLIENT SETNAME me",
            "SET k v",
        ];
        calls.iter().for_each(|call| drop(client.ask(call)));
        let all = entries(&mut client, "SLOWLOG GET -1");
        let reply = client.ask("SLOWLOG GET 2");
        let newest = &reply.as_array().unwrap()[1].as_array().unwrap().to_vec();
        let name = newest[5].as_bytes().unwrap().to_vec();
        client.ask("CONFIG SET slowlog-max-len 2");
        client.ask("SET k v");
        (all, name, client.ask("SLOWLOG LEN").as_integer())
    };
    let theirs = Server::redis(&[]).map(|server| run(&server));
    each_backend(&[], |server| {
        let ours = run(server);
        assert_eq!(ours.0.len(), 11, "{:?}", ours.0);
        assert_eq!((ours.1.as_slice(), ours.2), (&b"me"[..], Some(2)));
        if let Some(theirs) = &theirs {
            assert_eq!(ours, *theirs);
        }
    });
}

/// Whatever stands around it in a pipeline, a slow call is found, with its arguments.
#[test]
fn a_slow_call_is_found_in_a_pipeline() {
    each_backend(&["--slowlog-log-slower-than", "50000"], |server| {
        let mut client = server.connect();
        let gets = b"GET k\r\n".repeat(200);
        client.send_raw(&[gets.as_slice(), b"DEBUG SLEEP 0.1\r\n", &gets].concat());
        (0..401).for_each(|_| drop(client.read_reply()));
        // A machine that stops the server for so long may add others.
        let all = entries(&mut client, "SLOWLOG GET -1");
        assert!(all.contains(&"[$DEBUG $SLEEP $0.1]".to_owned()), "{all:?}");
        let reply = client.ask("SLOWLOG GET -1");
        let us = reply
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry.as_array().unwrap()[2].as_integer().unwrap());
        assert!(us.max() >= Some(100_000));
    });
}

#[test]
fn large_requests_and_replies_are_kept() {
    let options =
        ["--commandlog-request-larger-than", "100", "--commandlog-reply-larger-than", "100"];
    let run = |server: &Server| {
        let mut client = server.connect();
        client.call(&["SET", "k", &"x".repeat(100)]);
        client.call(&["GET", "k"]);
        client.call(&["GET", "none"]);
        // In this order, since the first of these replies is a large one itself.
        ["large-reply", "large-request"].map(|kind| {
            let reply = client.ask(&format!("COMMANDLOG GET -1 {kind}"));
            let shown = reply.as_array().unwrap().iter().map(|entry| {
                let fields = entry.as_array().unwrap();
                format!("{} {}", show(&fields[2]), show(&fields[3]))
            });
            shown.collect::<Vec<_>>().join("; ")
        })
    };
    let theirs = Server::valkey(&options).map(|server| run(&server));
    each_backend(&options, |server| {
        let ours = run(server);
        assert_eq!(ours[1], format!(":128 [$SET $k ${}]", "x".repeat(100)));
        assert_eq!(ours[0], ":108 [$GET $k]");
        assert!(theirs.as_ref().is_none_or(|theirs| *theirs == ours), "{theirs:?}");
    });
}

/// What the logs of large calls have, which forget it: length and the beginning of the call.
fn take_large(admin: &mut Client) -> Vec<String> {
    let mut shown = Vec::new();
    for kind in ["large-reply", "large-request"] {
        let reply = admin.ask(&format!("COMMANDLOG GET -1 {kind}"));
        shown.extend(reply.as_array().unwrap().iter().map(|entry| {
            let fields = entry.as_array().unwrap();
            let call = show(&fields[3]);
            format!("{kind} {} {:.12}", show(&fields[2]), call)
        }));
        admin.ask(&format!("COMMANDLOG RESET {kind}"));
    }
    admin.ask("COMMANDLOG RESET large-reply");
    shown
}

/// What runs others, what they run, and who has waited, are told of as any call is.
#[test]
fn large_replies_of_scripts_transactions_and_woken_clients_are_kept() {
    let options =
        ["--commandlog-request-larger-than", "250", "--commandlog-reply-larger-than", "250"];
    let run = |server: &Server| {
        let big = "x".repeat(300);
        let (mut admin, mut client) = (server.connect(), server.connect());
        let library = "#!lua name=l\nredis.register_function('f', function(keys) return \
                       redis.call('GET', keys[1]) end)";
        admin.call(&["FUNCTION", "LOAD", library]);
        admin.call(&["SET", "k", &big]);
        let mut shown = Vec::new();
        let mut take = |admin: &mut Client| shown.extend(take_large(admin));
        take(&mut admin);
        let calls = [
            "EVAL \"return redis.call('GET', KEYS[1])\" 1 k",
            "EVAL \"redis.call('GET', KEYS[1]) return 1\" 1 k",
            "EVAL_RO \"return redis.call('GET', KEYS[1])\" 1 k",
            "FCALL f 1 k",
            "MULTI; GET k; STRLEN k; LPOS none 1; EXEC",
            "MULTI; EVAL \"return redis.call('GET', KEYS[1])\" 1 k; EXEC",
            &format!("EVAL \"return 1\" 0 {big}"),
            &format!("EVAL \"return redis.call('SET', 'q', ARGV[1])\" 0 {big}"),
            &format!("SCRIPT LOAD \"return 1 --{big}\""),
            &format!("MULTI; SET q {big}; EXEC; MULTI; GET {big}; DISCARD"),
        ];
        for call in calls {
            run_script(&mut client, call);
            take(&mut admin);
        }
        for (waits, wakes) in [
            ("BLPOP l 0".to_owned(), format!("RPUSH l {big}")),
            (format!("BLPOP l{big} 0"), format!("RPUSH l{big} v")),
            ("BZPOPMIN z 0".to_owned(), format!("ZADD z 1 {big}")),
            ("XREAD BLOCK 0 STREAMS x 0".to_owned(), format!("XADD x 1-1 f {big}")),
        ] {
            wait_for(server, &mut client, &waits);
            admin.ask("COMMANDLOG RESET large-reply");
            admin.ask(&wakes);
            client.read_reply();
            take(&mut admin);
        }
        assert_eq!(show(&client.ask(&format!("BLPOP none{big} 0.01"))), "_");
        take(&mut admin);
        client.send(&["CLIENT", "REPLY", "SKIP"]);
        client.send(&["GET", "k"]);
        assert_eq!(show(&client.ask("PING")), "+PONG");
        take(&mut admin);
        shown.sort();
        shown
    };
    let theirs = Server::valkey(&options).map(|server| run(&server));
    each_backend(&options, |server| {
        let ours = run(server);
        for line in [
            "large-reply :308 [$EVAL $retu",
            "large-reply :312 [$GET $k]",
            "large-reply :308 [$FCALL $f $",
        ] {
            assert!(ours.iter().any(|shown| shown == line), "{line}: {ours:#?}");
        }
        if let Some(theirs) = &theirs {
            assert_eq!(ours, *theirs);
        }
    });
}

#[test]
fn latency_words() {
    check(&[
        ("LATENCY RESET; LATENCY LATEST; LATENCY HISTORY command", ":0; []; []"),
        (
            "LATENCY GRAPH command; LATENCY HISTOGRAM nosuch; LATENCY RESET command foo",
            "-ERR No samples available for event 'command'; []; :0",
        ),
        (
            "LATENCY HISTORY; LATENCY FOO",
            "-ERR wrong number of arguments for 'latency|history' command; \
             -ERR unknown subcommand 'FOO'. Try LATENCY HELP.",
        ),
    ]);
}

#[test]
fn slow_events_are_sampled() {
    each_backend(&["--latency-monitor-threshold", "10"], |server| {
        let mut client = server.connect();
        client.ask("DEBUG SLEEP 0.03");
        let latest = client.ask("LATENCY LATEST");
        let events = latest.as_array().unwrap();
        let command = events
            .iter()
            .map(|event| event.as_array().unwrap())
            .find(|event| event[0].as_bytes() == Some(b"command"));
        let command = command.expect("the event");
        assert!(command[2].as_integer() >= Some(30) && command[3].as_integer() >= Some(30));
        assert_eq!(client.ask("LATENCY HISTORY command").as_array().unwrap().len(), 1);
        let graph = client.ask_text("LATENCY GRAPH command");
        assert!(graph.starts_with("command - high ") && graph.contains("all time high"), "{graph}");
        assert!(client.ask_text("LATENCY DOCTOR").contains("1. command: 1 samples"));
        assert!(client.ask("LATENCY RESET command").as_integer() == Some(1));
    });
}

#[test]
fn histograms_and_percentiles_by_command() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("SET k v");
        client.send_raw(&b"GET k\r\n".repeat(100));
        (0..100).for_each(|_| drop(client.read_reply()));
        client.ask("HELLO 3");
        let histogram = client.ask("LATENCY HISTOGRAM get set config");
        let Value::Map(commands) = &histogram else { panic!("{histogram:?}") };
        let calls: Vec<String> = commands
            .iter()
            .map(|(name, facts)| {
                let Value::Map(facts) = facts else { panic!("{facts:?}") };
                let Value::Map(pairs) = &facts[1].1 else { panic!("{facts:?}") };
                let last = pairs.last().map(|(_, calls)| show(calls)).unwrap();
                assert_eq!(show(&facts[0].1), last, "the last step holds all calls");
                format!("{}={last}", show(name))
            })
            .collect();
        assert_eq!(calls, ["$get=:100", "$set=:1"]);
        let info = client.ask_text("INFO latencystats");
        assert!(info.contains("latency_percentiles_usec_get:p50="), "{info}");
        client.ask("CONFIG SET latency-tracking-info-percentiles \"0 50.0 100\"");
        client.call(&["CONFIG", "SET", "latency-tracking-info-percentiles", "0 50.0 100"]);
        let info = client.ask_text("INFO latencystats");
        let line = info.lines().find(|line| line.contains("_usec_get:")).unwrap();
        assert!(
            line.contains(":p0=") && line.contains(",p50=") && line.contains(",p100="),
            "{line}"
        );
        client.ask("CONFIG RESETSTAT");
        wait_until("the histograms are empty", || {
            !client.ask_text("INFO latencystats").contains("_usec_set:")
        });
        client.ask("CONFIG SET latency-tracking no");
        assert!(!client.ask_text("INFO latencystats").contains("_usec_"));
    });
}

/// A call that others have waited for is over before theirs are, at whatever worker they wait.
#[test]
fn the_slow_log_has_calls_in_the_order_of_their_ends() {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    for server in ours.chain(Server::redis(&[])).chain(Server::valkey(&[])) {
        let mut admin = server.connect();
        let mut waiting = [(); 4].map(|()| server.connect());
        for client in &mut waiting {
            client.send(&["BLPOP", "k", "0"]);
        }
        wait_until("all wait", || figure(&mut admin, "clients", "blocked_clients") == 4);
        admin.ask("CONFIG SET slowlog-log-slower-than 0");
        admin.ask("SLOWLOG RESET");
        admin.ask("rPush k 1 2 3 4");
        waiting.iter_mut().for_each(|client| drop(client.read_reply().unwrap()));
        let entries = admin.ask("SLOWLOG GET 5");
        let names: Vec<String> = entries
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| show(&entry.as_array().unwrap()[3]))
            .collect();
        assert_eq!(names[4], "[$rPush $k $1 $2 $3 $4]", "{}: {names:?}", server.name);
        assert!(names[..4].iter().all(|name| name == "[$BLPOP $k $0]"), "{names:?}");
    }
}
