//! Calls that wait for a key: order, answers, ends, across workers and on both backends.

use std::time::{Duration, Instant};

use crate::check::{run_script, show};
use crate::harness::{Client, Server, each_backend, wait_until, wait_until_loaded};

/// Sends a call that will wait, and returns when it does.
pub fn wait_for(server: &Server, client: &mut Client, call: &str) {
    let mut other = server.connect();
    let blocked = |other: &mut Client| {
        let info = other.ask_text("INFO clients");
        let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        line.and_then(|text| text.trim().parse::<usize>().ok()).expect("a figure")
    };
    let before = blocked(&mut other);
    client.send(&call.split(' ').collect::<Vec<_>>());
    wait_until("the call waits", || blocked(&mut other) == before + 1);
}

fn reply(client: &mut Client) -> String {
    show(&client.read_reply().expect("the connection is open"))
}

#[test]
fn first_come_first_served() {
    each_backend(&["--io-threads", "4"], |server| {
        let mut waiting: Vec<Client> = (0..8).map(|_| server.connect()).collect();
        for client in &mut waiting {
            wait_for(server, client, "BLPOP list 0");
        }
        let mut pusher = server.connect();
        assert_eq!(run_script(&mut pusher, "RPUSH list 0 1 2; RPUSH list 3"), ":3; :1");
        assert_eq!(run_script(&mut pusher, "RPUSH list 4 5 6 7 8; LRANGE list 0 -1"), ":5; [$8]");
        for (index, client) in waiting.iter_mut().enumerate() {
            assert_eq!(reply(client), format!("[$list ${index}]"));
        }
    });
}

#[test]
fn what_comes_behind_a_waiting_call_is_executed_after_it() {
    each_backend(&[], |server| {
        let (mut waiting, mut pusher) = (server.connect(), server.connect());
        wait_for(server, &mut waiting, "BRPOP list 0");
        waiting.send(&["PING"]);
        let half = b"*2\r\n$4\r\nECHO\r\n$10\r\n01234";
        waiting.send_raw(half);
        assert_eq!(show(&pusher.ask("PING")), "+PONG");
        waiting.send_raw(b"56789\r\n");
        pusher.ask("LPUSH list v");
        let replies: Vec<String> = (0..3).map(|_| reply(&mut waiting)).collect();
        assert_eq!(replies, ["[$list $v]", "+PONG", "$0123456789"]);
    });
}

/// In one packet: calls before the one that waits, and calls behind it.
#[test]
fn a_pipeline_stops_at_a_call_that_waits() {
    each_backend(&[], |server| {
        let (mut waiting, mut pusher) = (server.connect(), server.connect());
        waiting.send_raw(b"SET k 1\r\nBLPOP list 0\r\nINCR k\r\nBLPOP list 0\r\nINCR k\r\nECH");
        assert_eq!(reply(&mut waiting), "+OK");
        assert_eq!(show(&pusher.ask("GET k")), "$1");
        pusher.ask("RPUSH list a");
        assert_eq!([reply(&mut waiting), reply(&mut waiting)], ["[$list $a]", ":2"]);
        pusher.ask("RPUSH list b");
        assert_eq!([reply(&mut waiting), reply(&mut waiting)], ["[$list $b]", ":3"]);
        waiting.send_raw(b"O x\r\n");
        assert_eq!(reply(&mut waiting), "$x");
    });
}

#[test]
fn time_ends_a_wait() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let start = Instant::now();
        assert_eq!(run_script(&mut client, "BLPOP a b 0.2"), "_");
        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(199), "{waited:?}");
        assert_eq!(run_script(&mut client, "BLMOVE a b LEFT RIGHT 0.01; PING"), "_; +PONG");
        // Who was not there any more gets nothing.
        assert_eq!(run_script(&mut client, "RPUSH a 1; LLEN a"), ":1; :1");
    });
}

#[test]
fn another_client_ends_a_wait() {
    each_backend(&[], |server| {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        let id = show(&waiting.ask("CLIENT ID"));
        let id = id.trim_start_matches(':');
        let calls = [("", "_"), (" TIMEOUT", "_")];
        let error = (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK");
        for (reason, answer) in calls.into_iter().chain([error]) {
            wait_for(server, &mut waiting, "BLPOP list 0");
            assert_eq!(show(&other.ask(&format!("CLIENT UNBLOCK {id}{reason}"))), ":1");
            assert_eq!(reply(&mut waiting), answer);
        }
        assert_eq!(show(&other.ask(&format!("CLIENT UNBLOCK {id}"))), ":0");
        assert_eq!(run_script(&mut waiting, "RPUSH list 1; LLEN list"), ":1; :1");
    });
}

#[test]
fn a_client_that_went_away_gets_nothing() {
    each_backend(&[], |server| {
        let (mut gone, mut pusher) = (server.connect(), server.connect());
        wait_for(server, &mut gone, "BLPOP list 0");
        drop(gone);
        wait_until("its wait is over", || {
            pusher.ask_text("INFO clients").contains("blocked_clients:0\r\n")
        });
        assert_eq!(run_script(&mut pusher, "RPUSH list 1; LLEN list"), ":1; :1");
    });
}

#[test]
fn a_chain_of_moves_runs_through() {
    each_backend(&["--io-threads", "4"], |server| {
        let mut waiting: Vec<Client> = (0..3).map(|_| server.connect()).collect();
        let calls = ["BLMOVE a b LEFT LEFT 0", "BLMOVE b c LEFT LEFT 0", "BLPOP c 0"];
        for (client, call) in waiting.iter_mut().zip(calls) {
            wait_for(server, client, call);
        }
        let mut pusher = server.connect();
        assert_eq!(run_script(&mut pusher, "RPUSH a x; EXISTS a b c"), ":1; :0");
        let replies: Vec<String> = waiting.iter_mut().map(reply).collect();
        assert_eq!(replies, ["$x", "$x", "[$c $x]"]);
    });
}

#[test]
fn clients_that_wait_are_shown_and_not_closed_for_being_idle() {
    each_backend(&["--timeout", "1"], |server| {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        wait_for(server, &mut waiting, "BLPOP list 0");
        assert!(other.ask_text("CLIENT LIST").contains(" flags=b"));
        drop(server.connect());
        let start = Instant::now();
        wait_until("idle clients are closed twice", || {
            assert_eq!(show(&other.ask("PING")), "+PONG");
            start.elapsed() > Duration::from_millis(2200)
        });
        other.ask("RPUSH list v");
        assert_eq!(reply(&mut waiting), "[$list $v]");
    });
}

#[test]
fn swapped_and_moved_keys_are_found() {
    each_backend(&[], |server| {
        let mut waiting: Vec<Client> = (0..2).map(|_| server.connect()).collect();
        waiting.iter_mut().for_each(|client| wait_for(server, client, "BLPOP list 0"));
        let mut other = server.connect();
        let script =
            "SELECT 1; RPUSH list 1; SWAPDB 0 1; RPUSH x 2; MOVE x 0; SELECT 0; RENAME x list";
        assert_eq!(run_script(&mut other, script), "+OK; :1; +OK; :1; :1; +OK; +OK");
        assert_eq!(reply(&mut waiting[0]), "[$list $1]");
        assert_eq!(reply(&mut waiting[1]), "[$list $2]");
    });
}

/// A transaction, a script, a swap make what somebody waits for, and then something else of it:
/// that goes on waiting, until there is what it can take.
#[test]
fn what_was_something_else_in_between_has_not_been_seen() {
    let waits = [
        ("BLPOP k 0", "RPUSH k a", "[$k $a]"),
        ("BLMPOP 0 2 j k LEFT", "RPUSH k a", "[$k [$a]]"),
        ("BLMOVE k d LEFT LEFT 0", "RPUSH k a", "$a"),
        ("BRPOPLPUSH k d 0", "RPUSH k a", "$a"),
        ("BZPOPMAX k 0", "ZADD k 1 a", "[$k $a $1]"),
        ("BZMPOP 0 1 k MIN", "ZADD k 1 a", "[$k [[$a $1]]]"),
        ("XREAD BLOCK 0 STREAMS k $", "XADD k 9-9 f v", "[[$k [[$9-9 [$f $v]]]]]"),
    ];
    let spoils = [
        "MULTI; {}; DEL k; SET k v; EXEC",
        "MULTI; {}; RENAME k t; HSET k f v; EXEC",
        "MULTI; {}; FLUSHALL; SADD k m; EXEC",
        "MULTI; {}; SELECT 1; SET k v; SWAPDB 0 1; EXEC; SELECT 0",
        "EVAL \"redis.call({call}) redis.call('DEL', 'k') redis.call('SET', 'k', 'v')\" 1 k",
    ];
    let test = |server: &Server| {
        for (waits, makes, answer) in waits {
            for spoil in spoils {
                let (mut waiting, mut other) = (server.connect(), server.connect());
                wait_for(server, &mut waiting, waits);
                let quoted: Vec<String> =
                    makes.split(' ').map(|word| format!("'{word}'")).collect();
                let spoil = spoil.replace("{}", makes).replace("{call}", &quoted.join(","));
                run_script(&mut other, &format!("{spoil}; DEL k; {makes}"));
                assert_eq!(reply(&mut waiting), answer, "{}: {waits}, {spoil}", server.name);
                other.ask("FLUSHALL");
            }
        }
    };
    each_backend(&[], |server| test(server));
    let peers = [Server::redis(&[]), Server::valkey(&[])];
    peers.iter().flatten().for_each(test);
}

/// Many who push and many who wait, on all workers: nothing is lost and nothing comes twice.
#[test]
fn nothing_is_lost_between_many() {
    const CLIENTS: usize = 6;
    const EACH: usize = 300;
    each_backend(&["--io-threads", "4"], |server| {
        let server = &*server;
        let mut got: Vec<usize> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    scope.spawn(move || {
                        let mut client = server.connect();
                        let take = |_| {
                            let reply = client.ask("BLPOP {q}a {q}b q 0");
                            let items = reply.as_array().expect("key and element").to_vec();
                            let text = std::str::from_utf8(items[1].as_bytes().unwrap()).unwrap();
                            text.parse().expect("a number")
                        };
                        (0..EACH).map(take).collect::<Vec<usize>>()
                    })
                })
                .collect();
            for pusher in 0..CLIENTS {
                scope.spawn(move || {
                    let mut client = server.connect();
                    for index in 0..EACH {
                        let key = ["{q}a", "{q}b", "q"][index % 3];
                        client.ask(&format!("RPUSH {key} {}", pusher * EACH + index));
                    }
                });
            }
            takers.into_iter().flat_map(|taker| taker.join().expect("it takes")).collect()
        });
        got.sort_unstable();
        assert!(got.iter().copied().eq(0..CLIENTS * EACH), "{} elements", got.len());
    });
}

/// Who waits goes on waiting, and the key goes without anybody asking for it.
#[test]
fn a_key_that_has_expired_when_it_wakes_somebody_is_deleted() {
    each_backend(&["--enable-debug-command", "yes"], |server| {
        let (mut client, mut waiting) = (server.connect(), server.connect());
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        wait_for(server, &mut waiting, "BLPOP list 0");
        for call in ["SELECT 1", "RPUSH list x", "PEXPIRE list 1", "DEBUG SLEEP 0.01", "SWAPDB 0 1"]
        {
            client.ask(call);
        }
        client.ask("SELECT 0");
        wait_until("it is gone", || show(&client.ask("DBSIZE")) == ":0");
        client.ask("RPUSH list y");
        assert_eq!(reply(&mut waiting), "[$list $y]");
        // However long the call takes that makes it ready.
        wait_for(server, &mut waiting, "BLPOP list 0");
        for call in ["MULTI", "RPUSH list x", "PEXPIRE list 1", "DEBUG SLEEP 0.01", "EXEC"] {
            client.ask(call);
        }
        wait_until("it is gone", || show(&client.ask("DBSIZE")) == ":0");
        client.ask("RPUSH list y");
        assert_eq!(reply(&mut waiting), "[$list $y]");
    });
}

/// SCAN and RANDOMKEY delete what has expired where they come by; KEYS does not.
#[test]
fn who_looks_for_keys_deletes_those_that_have_expired() {
    each_backend(&["--appendonly", "yes"], |server| {
        let mut client = server.connect();
        wait_until_loaded(&mut client);
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        for (call, is_deleted) in
            [("KEYS *", false), ("SCAN 0 COUNT 1000", true), ("RANDOMKEY", true)]
        {
            client.ask("FLUSHALL");
            (0..20).for_each(|at| drop(client.ask(&format!("SET gone:{at} x PX 1"))));
            wait_until("they have expired", || show(&client.ask("EXISTS gone:19")) == ":0");
            let found = show(&client.ask(call));
            assert!(!found.contains("gone"), "{call}: {found}");
            let left = show(&client.ask("DBSIZE"));
            assert_eq!(left == ":0", is_deleted, "{call}: {left}");
        }
    });
}
