//! Primaries and replicas of all three makers in every mix: all data, and what is written from then
//! on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::check::run_script;
use crate::harness::{Client, DEADLINE, Server, backends, figure, wait_until};

pub type Start = fn(&[&str]) -> Option<Server>;

pub const PEERS: [Start; 2] = [Server::redis, Server::valkey];
/// Of this maker, on either backend.
pub const OURS: [Start; 2] = [
    |options| Some(Server::kvasir("io_uring", options)),
    |options| Some(Server::kvasir("epoll", options)),
];

/// Values of every type and in most forms.
pub const ALL_TYPES: &[&str] = &[
    "SET text hello; SET number 12345; APPEND text x; SETRANGE long 3000 end; PFADD hll a b c",
    "RPUSH list a b 1 2 300; SADD ints 1 2 3; SADD set a b c; HSET hash f v g 1",
    "ZADD zset 1 a 2.5 b; XADD stream 1-1 f v; XGROUP CREATE stream group 0; XADD stream 2-1 f w",
    "XREADGROUP GROUP group me COUNT 1 STREAMS stream >; GEOADD geo 13.3 38.1 here",
    "SET dying x PXAT 4102444800000; SELECT 9; SET elsewhere 1; LPUSH l x; SELECT 0",
];

/// Calls whose effects are others than they.
pub const EFFECTS: &[&str] = &[
    "INCRBYFLOAT number 1.5; SET short x EX 1000; GETEX short PX 900000; SPOP set; LPOP list",
    "MULTI; SET a 1; INCR a; SELECT 9; SET a 9; EXEC; SELECT 0",
    "EVAL \"redis.call('SET',KEYS[1],redis.call('TIME')[1]) redis.call('INCR',KEYS[1])\" 1 script",
    "XADD stream * f x; HINCRBYFLOAT hash g 2.5; SETBIT bits 100 1; RENAME text renamed; DEL long",
    "SWAPDB 0 9; SET swapped 1; SELECT 9; SET back 1; SELECT 0",
    "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f',function(k) return redis.call('SET',k[1],'f') end)\"",
    "FCALL f 1 by-function; EXPIRE by-function 5000; PERSIST by-function; COPY by-function copied",
    "BLPOP list 1; LMOVE list other LEFT RIGHT; ZADD zset INCR 2 a; SORT ints STORE sorted",
];

pub fn primary(backend: &'static str, port: u16, options: &[&str]) -> Server {
    let port = port.to_string();
    let own = ["--port", &port, "--repl-diskless-sync-delay", "0"];
    Server::kvasir(backend, &[&own, options].concat())
}

pub fn replica(start: Start, port: u16, options: &[&str]) -> Option<Server> {
    let port = port.to_string();
    start(&[&["--replicaof", "127.0.0.1", &port], options].concat())
}

pub fn run_all(client: &mut Client, scripts: &[&str]) {
    for script in scripts {
        let answers = run_script(client, script);
        assert!(!answers.contains("-ERR"), "{script}: {answers}");
    }
}

pub fn is_linked(replica: &mut Client) -> bool {
    replica.ask_text("INFO replication").contains("master_link_status:up")
}

/// Waits until the replica has what the primary has.
pub fn wait_until_equal(primary: &mut Client, replica: &mut Client) {
    let digest = |client: &mut Client| client.ask("DEBUG DIGEST");
    wait_until("the replica has the same data", || digest(replica) == digest(primary));
}

#[test]
fn replicas_of_other_makers_get_everything() {
    for backend in backends() {
        for start in PEERS {
            let port = free_port();
            let primary = primary(backend, port, &[]);
            let mut client = primary.connect();
            run_all(&mut client, ALL_TYPES);
            let Some(replica) = replica(start, port, &[]) else { continue };
            let mut reader = replica.connect();
            wait_until("the replica is linked", || is_linked(&mut reader));
            wait_until_equal(&mut client, &mut reader);
            run_all(&mut client, EFFECTS);
            wait_until_equal(&mut client, &mut reader);
            assert_eq!(client.ask("FLUSHALL"), Value::Simple("OK".into()));
            wait_until("nothing is left", || reader.ask("DBSIZE") == Value::Integer(0));
        }
    }
}

#[test]
fn primaries_of_other_makers_are_followed() {
    for start in [PEERS[0], PEERS[1], OURS[0]] {
        for own in OURS {
            for diskless in ["yes", "no"] {
                let port = free_port();
                let text = port.to_string();
                let options = ["--port", &text, "--repl-diskless-sync-delay", "0"];
                let options = [&options[..], &["--repl-diskless-sync", diskless]].concat();
                let Some(primary) = start(&options) else { continue };
                let mut client = primary.connect();
                run_all(&mut client, ALL_TYPES);
                let replica = replica(own, port, &[]).expect("it is ours");
                let mut reader = replica.connect();
                wait_until("the replica is linked", || is_linked(&mut reader));
                wait_until_equal(&mut client, &mut reader);
                run_all(&mut client, EFFECTS);
                wait_until_equal(&mut client, &mut reader);
                assert_eq!(client.ask("WAIT 1 0"), Value::Integer(1));
                let error = "READONLY You can't write against a read only replica.";
                assert_eq!(reader.ask("SET a 1"), Value::Error(error.into()));
                assert_eq!(client.ask("FLUSHALL"), Value::Simple("OK".into()));
                wait_until("nothing is left", || reader.ask("DBSIZE") == Value::Integer(0));
            }
        }
    }
}

#[test]
fn a_link_that_breaks_is_taken_up_where_it_was() {
    for start in [PEERS[0], PEERS[1], OURS[1]] {
        let port = free_port();
        let text = port.to_string();
        let Some(primary) = start(&["--port", &text, "--repl-diskless-sync-delay", "0"]) else {
            continue;
        };
        let mut client = primary.connect();
        let replica = replica(OURS[0], port, &[]).expect("it is ours");
        let mut reader = replica.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        for round in 1..=3 {
            run_all(&mut client, ALL_TYPES);
            assert_eq!(client.ask("CLIENT KILL TYPE replica"), Value::Integer(1));
            run_all(&mut client, &["SET missed 1; FLUSHDB; SELECT 3; SET later 2; SELECT 0"]);
            wait_until("it is linked again", || {
                figure(&mut client, "stats", "sync_partial_ok") == round
            });
            wait_until_equal(&mut client, &mut reader);
        }
        // From the other side too.
        let list = reader.ask_text("CLIENT LIST TYPE master");
        assert!(list.lines().count() == 1 && list.contains(" flags=M "), "{list}");
        assert_eq!(reader.ask("CLIENT KILL TYPE master"), Value::Integer(1));
        wait_until("it is linked again", || figure(&mut client, "stats", "sync_partial_ok") == 4);
        assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
    }
}

#[test]
fn replicas_of_replicas_stay_when_the_middle_is_promoted() {
    for last in [PEERS[0], PEERS[1], OURS[0]] {
        let ports = [free_port(), free_port()];
        let first = primary("io_uring", ports[0], &[]);
        let mut client = first.connect();
        run_all(&mut client, ALL_TYPES);
        let port = ports[1].to_string();
        let middle = ["--port", &port, "--repl-diskless-sync-delay", "0", "--appendonly", "yes"];
        let middle = replica(OURS[1], ports[0], &middle).expect("it is ours");
        let mut in_middle = middle.connect();
        wait_until("the middle is linked", || is_linked(&mut in_middle));
        let Some(last) = replica(last, ports[1], &[]) else { continue };
        let mut reader = last.connect();
        wait_until("the last is linked", || is_linked(&mut reader));
        run_all(&mut client, &["SELECT 5; SET there 1; SET k 5"]);
        wait_until_equal(&mut client, &mut reader);
        assert_eq!(in_middle.ask("REPLICAOF NO ONE"), Value::Simple("OK".into()));
        run_all(&mut in_middle, EFFECTS);
        wait_until_equal(&mut in_middle, &mut reader);
        assert_eq!(figure(&mut in_middle, "stats", "sync_full"), 1);
        // Who was the first goes on as a replica of the middle, and both stay equal.
        client.ask(&format!("REPLICAOF 127.0.0.1 {port}"));
        wait_until("the first is linked", || is_linked(&mut client));
        run_all(&mut in_middle, &["SET after 1"]);
        wait_until_equal(&mut in_middle, &mut client);
        // What the middle has logged meanwhile is what it has.
        let digest = in_middle.ask("DEBUG DIGEST");
        wait_for_log(&mut in_middle);
        assert_eq!(in_middle.ask("DEBUG LOADAOF"), Value::Simple("OK".into()));
        assert_eq!(in_middle.ask("DEBUG DIGEST"), digest);
    }
}

/// Waits until the log of all data is begun and no rewrite is under way.
fn wait_for_log(client: &mut Client) {
    wait_until("the log is there", || {
        let info = client.ask_text("INFO persistence");
        info.contains("aof_enabled:1")
            && info.contains("aof_rewrite_in_progress:0")
            && info.contains("aof_rewrite_scheduled:0")
    });
}

#[test]
fn a_replica_that_lost_its_link_goes_on_where_it_was() {
    for start in PEERS {
        let port = free_port();
        let primary = primary("io_uring", port, &[]);
        let mut client = primary.connect();
        let Some(replica) = replica(start, port, &[]) else { continue };
        let mut reader = replica.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        for round in 1..=3 {
            run_all(&mut client, ALL_TYPES);
            assert_eq!(client.ask("CLIENT KILL TYPE replica"), Value::Integer(1));
            run_all(&mut client, &["SET missed 1; FLUSHDB; SET later 2"]);
            wait_until_equal(&mut client, &mut reader);
            wait_until("it is linked again", || {
                figure(&mut client, "stats", "sync_partial_ok") == round
            });
        }
        assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
        // What is not in the backlog any more cannot be had.
        client.ask("CONFIG SET repl-backlog-size 1");
        client.ask("DEBUG CHANGE-REPL-ID");
        client.ask("CLIENT KILL TYPE replica");
        wait_until("it gets all again", || figure(&mut client, "stats", "sync_full") == 2);
        wait_until_equal(&mut client, &mut reader);
    }
}

#[test]
fn a_snapshot_is_taken_while_clients_write() {
    for diskless in ["yes", "no"] {
        for start in PEERS {
            let port = free_port();
            let primary = primary("io_uring", port, &["--repl-diskless-sync", diskless]);
            let mut client = primary.connect();
            client.ask("DEBUG POPULATE 50000 key 200");
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let write = || {
                    let mut writer = primary.connect();
                    for number in (0..).take_while(|_| !is_over.load(Relaxed)) {
                        writer.ask(&format!("SET key:{} {number}", number * 7919 % 60_000));
                        writer.ask(&format!("RPUSH list:{} {number}", number % 100));
                    }
                };
                scope.spawn(write);
                scope.spawn(write);
                let replica = replica(start, port, &[]);
                if let Some(replica) = &replica {
                    let mut reader = replica.connect();
                    wait_until("the replica is linked", || is_linked(&mut reader));
                }
                is_over.store(true, Relaxed);
                if let Some(replica) = &replica {
                    wait_until_equal(&mut client, &mut replica.connect());
                }
            });
        }
    }
}

#[test]
fn who_waits_for_replicas_is_answered_when_they_have_it() {
    let port = free_port();
    let primary = primary("epoll", port, &[]);
    let mut client = primary.connect();
    assert_eq!(client.ask("WAIT 1 10"), Value::Integer(0));
    let Some(replica) = replica(Server::valkey, port, &["--appendonly", "yes"]) else { return };
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    for number in 0..20 {
        client.ask(&format!("SET k {number}"));
        assert_eq!(client.ask("WAIT 1 0"), Value::Integer(1));
        assert_eq!(reader.ask_text("GET k"), number.to_string());
    }
    let on_disk = Value::Array(vec![Value::Integer(0), Value::Integer(1)]);
    assert_eq!(client.ask("WAITAOF 0 1 0"), on_disk);
    assert_eq!(client.ask("WAIT 2 10"), Value::Integer(1));
    let role = client.ask("ROLE");
    let replicas = role.as_array().and_then(|role| role[2].as_array()).map(<[Value]>::len);
    assert_eq!(replicas, Some(1), "{role:?}");
    let list = client.ask_text("CLIENT LIST TYPE replica");
    assert!(list.lines().count() == 1 && list.contains(" flags=S "), "{list}");
    client.ask("CONFIG SET min-replicas-to-write 1");
    assert_eq!(client.ask("SET k 1"), Value::Simple("OK".into()));
    drop(replica);
    wait_until("writes are refused", || client.ask("SET k 2").is_error());
    let error = client.ask("SET k 2");
    assert_eq!(error, Value::Error("NOREPLICAS Not enough good replicas to write.".into()));
    assert_eq!(client.ask_text("GET k"), "1");
}

#[test]
fn who_knows_no_histories_gets_a_snapshot_all_the_same() {
    let primary = primary("epoll", free_port(), &[]);
    let mut client = primary.connect();
    client.ask("SET k v");
    for diskless in ["yes", "no"] {
        client.ask(&format!("CONFIG SET repl-diskless-sync {diskless}"));
        let mut old = UnixStream::connect(primary.socket()).unwrap();
        old.set_read_timeout(Some(DEADLINE)).unwrap();
        old.write_all(b"SYNC\r\n").unwrap();
        // Bare line ends say that the link is alive.
        let (mut got, mut piece) = (Vec::new(), [0; 1000]);
        let line = loop {
            let size = old.read(&mut piece).unwrap();
            got.extend_from_slice(&piece[..size]);
            let text: Vec<u8> = got.iter().copied().skip_while(|byte| *byte == b'\n').collect();
            if let Some(end) = text.windows(9).position(|part| part == b"REDIS0010") {
                break String::from_utf8_lossy(&text[..end]).into_owned();
            }
            assert!(size > 0, "no snapshot: {}", got.escape_ascii());
        };
        let size = line.strip_prefix('$').and_then(|line| line.strip_suffix("\r\n"));
        assert!(
            size.and_then(|size| size.parse::<u64>().ok()).is_some_and(|size| size > 9),
            "{line}"
        );
    }
}
