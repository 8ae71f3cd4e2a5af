//! Limits: on requests, on idle clients, on how many clients there are.

use std::time::Instant;

use kvasir_resp::encode::encode_request;

use crate::check::{check, run_script, show};
use crate::harness::{Client, Server, each_backend, wait_until};

#[test]
fn a_new_limit_holds_at_once() {
    let fits = "x".repeat(1_048_576);
    check(&[
        ("CONFIG SET proto-max-bulk-len 1mb", "+OK"),
        (&format!("SET k {fits}; STRLEN k; APPEND k y"), &format!("+OK; :1048576; {TOO_LONG}")),
    ]);
    each_backend(&[], |server| {
        let (mut client, mut sender) = (server.connect(), server.connect());
        assert_eq!(show(&client.ask("CONFIG SET proto-max-bulk-len 1mb")), "+OK");
        sender.send_raw(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n");
        let reply = sender.read_reply().map(|reply| show(&reply));
        assert_eq!(reply.as_deref(), Some("-ERR Protocol error: invalid bulk length"));
        assert!(sender.ends());
    });
}

const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";

#[test]
fn encodings_follow_the_configuration() {
    check(&[
        ("HSET h a 1 b 2; OBJECT ENCODING h", ":2; $listpack"),
        (
            "CONFIG SET hash-max-listpack-entries 2; HSET h c 3; OBJECT ENCODING h",
            "+OK; :1; $hashtable",
        ),
    ]);
}

#[test]
fn who_is_idle_for_too_long_is_closed() {
    // Longer than a machine stands still, else the busy one is idle too.
    each_backend(&["--timeout", "4"], |server| {
        let (mut idle, mut busy) = (server.connect(), server.connect());
        let mut monitor = server.connect();
        assert_eq!(show(&monitor.ask("MONITOR")), "+OK");
        assert_eq!(show(&idle.ask("PING")), "+PONG");
        let start = Instant::now();
        wait_until("the idle client is closed", || {
            busy.ask_text("INFO clients").contains("connected_clients:2\r\n")
        });
        assert!(start.elapsed().as_millis() >= 3900, "{:?}", start.elapsed());
        assert!(idle.ends());
        assert_eq!(show(&busy.ask("PING")), "+PONG");
        // Who monitors has nothing to say.
        assert!(show(&monitor.read_reply().expect("it goes on")).contains("PING"));
    });
}

#[test]
fn one_client_too_many_is_told_so() {
    each_backend(&["--maxclients", "2"], |server| {
        let (one, _two) = (admitted(server), admitted(server));
        let mut three = server.connect();
        let refused = three.read_reply().map(|reply| show(&reply));
        assert_eq!(refused.as_deref(), Some("-ERR max number of clients reached"));
        assert!(three.ends());
        drop(one);
        admitted(server);
    });
}

/// A client that was let in, once there is room.
fn admitted(server: &Server) -> Client {
    let mut admitted = None;
    wait_until("there is room for a client", || {
        let mut next = server.connect();
        let reply = next.try_send(&["PING"]).then(|| next.read_reply()).flatten();
        if reply.is_some_and(|reply| show(&reply) == "+PONG") {
            admitted = Some(next);
        }
        admitted.is_some()
    });
    admitted.expect("just seen")
}

/// Those that fit are served, with `maxclients` lowered, and the others are refused politely.
#[test]
fn few_descriptors_lower_maxclients() {
    let server = Server::with_few_files(64, &[]);
    let mut client = server.connect();
    let max = run_script(&mut client, "CONFIG GET maxclients");
    let max: usize =
        max.trim_start_matches("[$maxclients $").trim_end_matches(']').parse().unwrap();
    assert!((1..64).contains(&max), "{max}");
    let mut others: Vec<_> = (1..max).map(|_| server.connect()).collect();
    others.iter_mut().for_each(|other| assert_eq!(show(&other.ask("PING")), "+PONG"));
    let mut next = server.connect();
    let refused = next.read_reply().map(|reply| show(&reply));
    assert_eq!(refused.as_deref(), Some("-ERR max number of clients reached"));
    assert_eq!(show(&client.ask("PING")), "+PONG");
}

/// Receiving stops while many requests wait; the one behind them may need more than has come.
#[test]
fn a_long_request_behind_many_is_received_to_its_end() {
    each_backend(&["--io-threads", "1"], |server| {
        let value = vec![b'x'; 5_000_000];
        for count in (20_000..40_000).step_by(4_000) {
            let mut client = server.connect();
            let mut calls = encode_request(&["PING"]).repeat(count);
            calls.extend(encode_request(&[b"SET".as_slice(), b"k", &value]));
            client.send_raw(&calls);
            for _ in 0..count {
                assert_eq!(client.read_reply().map(|reply| show(&reply)).as_deref(), Some("+PONG"));
            }
            assert_eq!(client.read_reply().map(|reply| show(&reply)).as_deref(), Some("+OK"));
        }
    });
}

/// What a pipeline takes is cut into turns, whether its calls are slow or run by a session: others
/// are served in between, and it goes on where it was.
#[test]
fn slow_calls_in_a_pipeline_let_others_in() {
    const CALLS: i64 = 400;
    for slow in ["DEBUG SLEEP 0.002", "LPOS l none", "EVAL for_a_while 0"] {
        each_backend(&["--io-threads", "1", "--enable-debug-command", "yes"], |server| {
            let (mut patient, mut heavy) = (server.connect(), server.connect());
            for _ in 0..40 {
                patient.ask(&format!("RPUSH l{}", " element".repeat(500)));
            }
            let while_long = "for _ = 1, 200000 do end";
            let slow: Vec<String> = slow.split(' ').map(String::from).collect();
            let slow = slow.iter().map(|word| word.replace("for_a_while", while_long));
            let calls = [encode_request(&slow.collect::<Vec<_>>()), encode_request(&["INCR", "n"])];
            heavy.send_raw(&calls.concat().repeat(CALLS as usize));
            wait_until("it is under way", || patient.ask("EXISTS n").as_integer() == Some(1));
            let done: i64 = patient.ask_text("GET n").parse().unwrap();
            assert!((1..CALLS).contains(&done), "{done} of {CALLS}");
            for call in 1..=CALLS {
                heavy.read_reply().expect("the slow call is answered");
                assert_eq!(heavy.read_reply().unwrap().as_integer(), Some(call));
            }
            let served = patient.ask_text("INFO commandstats");
            assert!(served.contains(&format!("cmdstat_incr:calls={CALLS},")), "{served}");
        });
    }
}
