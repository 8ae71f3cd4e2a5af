//! Scripts that run on one worker, and what other workers know of them and do behind them.

use crate::check::show;
use crate::harness::{Client, Server, each_backend, figure, wait_until};

const ENDLESS: &str = "while true do end";
const BUSY: &str =
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const NOT_BUSY: &str = "-NOTBUSY No scripts in execution right now.";

/// Waits until another worker's script is seen, and returns how it is shown.
fn wait_for_script(client: &mut Client) -> String {
    let mut shown = String::new();
    wait_until("the script is seen", || {
        shown = show(&client.ask("FUNCTION STATS"));
        !shown.contains("$running_script _")
    });
    shown
}

/// Clients of a new server, of its workers by turns: each goes where the fewest are. Of two workers
/// each has one of the first two when whoever looked whether the server is there has gone.
fn connect_many(server: &Server) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    wait_until("others are gone", || figure(&mut clients[0], "clients", "connected_clients") == 2);
    clients.extend((0..8).map(|_| server.connect()));
    clients.rotate_left(2);
    clients
}

#[test]
fn a_kill_before_the_threshold_waits_for_it() {
    let run = |server: &Server| {
        let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
        for script in [ENDLESS, "while true do redis.pcall('GET', 'k') end"] {
            let mut runner = server.connect();
            runner.send(&["EVAL", script, "1", "k"]);
            // Who comes before the beginning, or behind the end, finds nothing. Redis reads the
            // others when the script is busy, not before.
            wait_until("the script is killed", || {
                clients.iter_mut().for_each(|client| client.send(&["SCRIPT", "KILL"]));
                let answers = clients.iter_mut().map(|client| client.read_reply());
                let kills: Vec<String> =
                    answers.map(|reply| show(&reply.expect("an answer"))).collect();
                assert!(kills.iter().all(|kill| kill == "+OK" || kill == NOT_BUSY), "{kills:?}");
                kills.iter().any(|kill| kill == "+OK")
            });
            let reply = show(&runner.read_reply().expect("an answer"));
            assert!(reply.contains("Script killed by user"), "{}: {reply}", server.name);
        }
    };
    for workers in ["1", "2", "4"] {
        each_backend(&["--lua-time-limit", "200", "--io-threads", workers], |server| run(server));
    }
    Server::redis(&["--lua-time-limit", "200"]).iter().for_each(run);
}

#[test]
fn a_script_is_seen_from_its_first_moment() {
    let code = "#!lua name=l\nredis.register_function('f', function() while true do end end)";
    let options = ["--busy-reply-threshold", "100000000", "--io-threads", "2"];
    for call in [&["EVAL", ENDLESS, "1", "k"][..], &["EVAL", ENDLESS, "0"], &["FCALL", "f", "0"]] {
        // A function without keys has the gate closed: others wait behind it, but not these.
        each_backend(&options, |server| {
            let mut clients = connect_many(server);
            clients[0].call(&["FUNCTION", "LOAD", code]);
            clients[0].send(call);
            // Of the other worker.
            let shown = wait_for_script(&mut clients[1]);
            let words: Vec<String> = call.iter().map(|word| format!("${word}")).collect();
            let expected =
                format!("$name {} $command [{}] $duration_ms :", words[1], words.join(" "));
            assert!(shown.contains(&expected), "{shown}");
            clients[1].send(&["SHUTDOWN", "NOSAVE"]);
            assert!(server.wait_for_end().success());
        });
    }
}

#[test]
fn a_kill_of_a_script_that_ends_in_time_finds_nothing() {
    let options = ["--busy-reply-threshold", "100000000", "--io-threads", "2"];
    each_backend(&options, |server| {
        let mut clients = connect_many(server);
        clients[0].send(&["EVAL", "for i = 1, 2e7 do end return 1", "1", "k"]);
        wait_for_script(&mut clients[1]);
        assert_eq!(show(&clients[1].ask("SCRIPT KILL")), NOT_BUSY);
        assert_eq!(show(&clients[0].read_reply().expect("an answer")), ":1");
    });
}

/// Who is woken by a push needs a slot that a busy script has: the worker that pushed must not wait
/// for that, and the call is served when the script has ended.
#[test]
fn a_call_that_is_woken_behind_a_busy_script_waits_on() {
    let script = "redis.call('GET', KEYS[1]) while true do end";
    for (block, push, answer) in [
        ("BLPOP a b 0", "LPUSH a x", "[$a $x]"),
        ("BLMOVE a b LEFT RIGHT 0", "LPUSH a x", "$x"),
        ("BZPOPMIN a b 0", "ZADD a 1 x", "[$a $x $1]"),
    ] {
        each_backend(&["--io-threads", "2", "--busy-reply-threshold", "300"], |server| {
            let mut clients = connect_many(server);
            clients[0].send(&block.split(' ').collect::<Vec<_>>());
            wait_until("it waits", || figure(&mut clients[2], "clients", "blocked_clients") == 1);
            clients[1].send(&["EVAL", script, "1", "b"]);
            wait_for_script(&mut clients[2]);
            // The one of the other worker is served; that of the script's may come too late.
            clients[2].send(&push.split(' ').collect::<Vec<_>>());
            for client in &mut clients[3..] {
                wait_until("it is busy", || show(&client.ask("GET b")) == BUSY);
            }
            let mut late = server.connect();
            assert_eq!(show(&late.ask("SCRIPT KILL")), "+OK");
            let reply = show(&clients[1].read_reply().expect("an answer"));
            assert!(reply.contains("Script killed by user"), "{reply}");
            assert_eq!(show(&clients[2].read_reply().expect("an answer")), ":1");
            assert_eq!(show(&clients[0].read_reply().expect("an answer")), answer);
        });
    }
}

#[test]
fn what_needs_a_slot_of_a_script_gives_up_when_it_is_busy() {
    for call in ["WATCH k", "INFO keyspace", "SUNION k other", "SCAN 0", "RANDOMKEY", "SET n v"] {
        // The last one makes room.
        let memory = if call == "SET n v" { "1" } else { "0" };
        each_backend(&["--io-threads", "2", "--busy-reply-threshold", "300"], |server| {
            let mut clients = connect_many(server);
            assert_eq!(show(&clients[0].ask("SETEX k 1000 v")), "+OK");
            clients[0].ask("CONFIG SET maxmemory-policy allkeys-random");
            clients[0].ask(&format!("CONFIG SET maxmemory {memory}"));
            clients[0].send(&["EVAL", ENDLESS, "1", "k"]);
            wait_for_script(&mut clients[1]);
            clients[1].send(&call.split(' ').collect::<Vec<_>>());
            assert!(clients[1].read_reply().is_some(), "{call}");
            for client in &mut clients[2..] {
                wait_until("it is busy", || show(&client.ask("GET k")) == BUSY);
            }
            assert_eq!(show(&clients[1].ask("SCRIPT KILL")), "+OK");
            assert!(clients[0].read_reply().is_some());
            wait_until("nothing is busy", || show(&clients[1].ask("GET none")) == "_");
        });
    }
}
