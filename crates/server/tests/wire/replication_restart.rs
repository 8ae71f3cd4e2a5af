//! Primaries and replicas that end, in order or not, and go on where they were: nobody needs all
//! data again.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::going_back::assert_accepted;
use crate::harness::{Client, DEADLINE, figure, wait_until, wait_until_loaded};
use crate::replication::{
    ALL_TYPES, EFFECTS, OURS, PEERS, is_linked, primary, replica, run_all, wait_until_equal,
};
use crate::replication_slow::signal;
use crate::saving::{directory, path, terminate};

/// All that is, anew, at the end of which the stream is in another database.
fn write_all(client: &mut Client) {
    let scripts = [&["FLUSHALL; FUNCTION FLUSH"], ALL_TYPES, EFFECTS, &["SELECT 7; SET here 1"]];
    run_all(client, &scripts.concat());
}

#[test]
fn a_primary_that_crashes_goes_on_from_its_append_only_file() {
    for start in [OURS[0], OURS[1], PEERS[0], PEERS[1]] {
        let (directory, port) = (directory(), free_port());
        let options = ["--dir", path(&directory), "--appendonly", "yes"];
        let mut server = primary("io_uring", port, &options);
        let mut client = server.connect();
        wait_until_loaded(&mut client);
        run_all(&mut client, ALL_TYPES);
        let Some(replica) = replica(start, port, &[]) else { continue };
        let mut reader = replica.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        for round in 0..3 {
            write_all(&mut client);
            wait_until_equal(&mut client, &mut reader);
            let on_disk = Value::Array(vec![Value::Integer(1), Value::Integer(0)]);
            assert_eq!(client.ask("WAITAOF 1 0 0"), on_disk);
            let id = client.ask_text("INFO replication");
            drop(server);
            let manifest = directory.path().join("appendonlydir/appendonly.aof.manifest");
            assert_accepted("redis-check-aof", &manifest);
            server = primary("io_uring", port, &options);
            client = server.connect();
            wait_until_loaded(&mut client);
            wait_until("it is linked again", || {
                figure(&mut client, "stats", "sync_partial_ok") == 1
            });
            assert_eq!(figure(&mut client, "stats", "sync_full"), 0, "{round} {id}");
            run_all(&mut client, &["SET after 1; RPUSH list x"]);
            wait_until_equal(&mut client, &mut reader);
        }
    }
}

#[test]
fn a_replica_that_crashes_goes_on_from_its_append_only_file() {
    for start in [OURS[1], PEERS[0], PEERS[1]] {
        let (directory, port) = (directory(), free_port());
        let text = port.to_string();
        let Some(primary) = start(&["--port", &text, "--repl-diskless-sync-delay", "0"]) else {
            continue;
        };
        let mut client = primary.connect();
        run_all(&mut client, ALL_TYPES);
        let options = ["--dir", path(&directory), "--appendonly", "yes"];
        let mut server = replica(OURS[0], port, &options).expect("it is ours");
        let mut reader = server.connect();
        for round in 1..=3 {
            wait_until("the replica is linked", || is_linked(&mut reader));
            wait_until("its log is begun", || has_log(&mut reader));
            write_all(&mut client);
            wait_until_equal(&mut client, &mut reader);
            wait_until("it is written", || {
                let info = reader.ask_text("INFO persistence");
                info.contains("aof_buffer_length:0") && info.contains("aof_rewrites:")
            });
            drop(server);
            run_all(&mut client, &["SET missed 1; SELECT 3; SET there 1; SELECT 0"]);
            server = replica(OURS[0], port, &options).expect("it is ours");
            reader = server.connect();
            wait_until("it is linked again", || {
                figure(&mut client, "stats", "sync_partial_ok") == round
            });
            wait_until_equal(&mut client, &mut reader);
        }
        assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
    }
}

fn has_log(client: &mut Client) -> bool {
    let info = client.ask_text("INFO persistence");
    info.contains("aof_enabled:1") && info.contains("aof_rewrite_in_progress:0")
}

/// A power cut, or a kill right behind a rewrite, leaves a base and nothing of what came later:
/// that is a place in the history as any other.
#[test]
fn a_base_without_what_came_later_is_a_place_to_go_on_from() {
    // A call at no place that is told leads away from there.
    let call = "*3\r\n$3\r\nSET\r\n$5\r\nstray\r\n$1\r\n1\r\n";
    for (preamble, later, goes_on) in [("yes", "", true), ("no", "", true), ("yes", call, false)] {
        let (directory, port) = (directory(), free_port());
        let primary = primary("io_uring", port, &[]);
        let mut client = primary.connect();
        write_all(&mut client);
        let log = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let options = [&["--dir", path(&directory)], &log[..]].concat();
        let mut server = replica(OURS[1], port, &options).expect("it is ours");
        let mut reader = server.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        wait_until("its log is begun", || has_log(&mut reader));
        run_all(&mut client, &["SELECT 3; SET after 1; SELECT 0; LPUSH list x"]);
        wait_until_equal(&mut client, &mut reader);
        signal(&server, "-KILL");
        server.wait_for_end();
        let files = std::fs::read_dir(directory.path().join("appendonlydir")).unwrap();
        let paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        let is_increment = |path: &&std::path::PathBuf| path.to_str().unwrap().contains(".incr.");
        let increments: Vec<_> = paths.iter().filter(is_increment).collect();
        assert_eq!(increments.len(), 1, "{paths:?}");
        std::fs::write(increments[0], later).unwrap();
        server = replica(OURS[1], port, &options).expect("it is ours");
        reader = server.connect();
        wait_until("it is linked again", || is_linked(&mut reader));
        wait_until_equal(&mut client, &mut reader);
        let synced =
            ["sync_partial_ok", "sync_full"].map(|name| figure(&mut client, "stats", name));
        assert_eq!(synced, if goes_on { [1, 1] } else { [0, 2] }, "{preamble} {later}");
    }
}

/// What a replica was sent its primary knows after a crash, too, however fast all writes are.
#[test]
fn a_primary_that_crashes_under_load_has_all_that_its_replica_has() {
    let (directory, port) = (directory(), free_port());
    let options = ["--dir", path(&directory), "--appendonly", "yes", "--repl-backlog-size", "64mb"];
    let mut server = primary("io_uring", port, &options);
    let mut client = server.connect();
    wait_until_loaded(&mut client);
    let replica = replica(OURS[1], port, &[]).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    for round in 0..5 {
        let mut writer = server.connect();
        let before = figure(&mut reader, "replication", "slave_repl_offset");
        std::thread::scope(|scope| {
            scope.spawn(move || while writer.try_send(&["INCR", "k"]) {});
            wait_until("it follows", || {
                figure(&mut reader, "replication", "slave_repl_offset") > before + 100_000
            });
            signal(&server, "-KILL");
        });
        drop(server);
        server = primary("io_uring", port, &options);
        client = server.connect();
        wait_until_loaded(&mut client);
        wait_until("it is linked again", || figure(&mut client, "stats", "sync_partial_ok") == 1);
        assert_eq!(figure(&mut client, "stats", "sync_full"), 0, "{round}");
        wait_until_equal(&mut client, &mut reader);
    }
}

/// Calls that are under way when a replica ends are no reason to forget where it is.
#[test]
fn a_busy_replica_that_ends_in_order_goes_on_where_it_was() {
    let (directory, port) = (directory(), free_port());
    let primary = primary("io_uring", port, &[]);
    let mut client = primary.connect();
    let options = ["--dir", path(&directory), "--appendonly", "yes"];
    for (round, call) in (1..).zip(["SET k v", "SWAPDB 0 1"]) {
        let mut server = replica(OURS[0], port, &options).expect("it is ours");
        let mut reader = server.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        wait_until("its log is begun", || has_log(&mut reader));
        reader.ask("CONFIG SET key-load-delay 20000");
        for _ in 0..100 {
            client.ask(call);
        }
        assert_eq!(client.ask("WAIT 1 100"), Value::Integer(0));
        signal(&server, "-TERM");
        assert!(server.wait_for_end().success());
        let again = replica(OURS[0], port, &options).expect("it is ours");
        wait_until("it is linked again", || {
            figure(&mut client, "stats", "sync_partial_ok") == 2 * round - 1
        });
        wait_until_equal(&mut client, &mut again.connect());
        drop(again);
        wait_until("it is gone", || client.ask_text("CLIENT LIST TYPE replica").is_empty());
    }
    assert_eq!(figure(&mut client, "stats", "sync_full"), 1);
}

#[test]
fn who_ends_in_order_goes_on_from_the_snapshot() {
    for start in [OURS[1], PEERS[0], PEERS[1]] {
        let (directories, port) = ([directory(), directory()], free_port());
        let own = ["--dir", path(&directories[0]), "--save", "100 1000"];
        let other = ["--dir", path(&directories[1]), "--save", "100 1000"];
        let mut first = primary("epoll", port, &own);
        let mut client = first.connect();
        run_all(&mut client, ALL_TYPES);
        let Some(mut second) = replica(start, port, &other) else { continue };
        let mut reader = second.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        // What dies meanwhile dies on both.
        run_all(&mut client, &[EFFECTS, &["SELECT 7; SET here 1 PX 1; SET there 1"]].concat());
        wait_until_equal(&mut client, &mut reader);
        terminate(&mut client);
        first.wait_for_end();
        first = primary("epoll", port, &own);
        client = first.connect();
        wait_until("it is linked again", || figure(&mut client, "stats", "sync_partial_ok") == 1);
        run_all(&mut client, &["SET after 1; RPUSH list x"]);
        wait_until_equal(&mut client, &mut reader);
        terminate(&mut reader);
        second.wait_for_end();
        run_all(&mut client, &["SET missed 1; SELECT 3; SET there 1; SELECT 0"]);
        let Some(again) = replica(start, port, &other) else { continue };
        let mut reader = again.connect();
        wait_until("it is linked again", || figure(&mut client, "stats", "sync_partial_ok") == 2);
        wait_until_equal(&mut client, &mut reader);
        assert_eq!(figure(&mut client, "stats", "sync_full"), 0);
    }
}

/// What has died while a primary was away is deleted when it is back, and its replicas hear of it.
#[test]
fn what_dies_while_a_primary_is_away_dies_on_its_replicas() {
    let (directory, port) = (directory(), free_port());
    let options = ["--dir", path(&directory), "--save", "3600 1", "--enable-debug-command", "yes"];
    let mut server = primary("epoll", port, &options);
    let mut client = server.connect();
    let replica = replica(OURS[1], port, &[]).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    run_all(&mut client, &["DEBUG SET-ACTIVE-EXPIRE 0; SET stays 1"]);
    for number in 0..100 {
        client.call(&["SET", &format!("dies:{number}"), "x", "PX", "1"]);
    }
    wait_until("it has all", || reader.ask("DBSIZE") == Value::Integer(101));
    client.ask("CONFIG RESETSTAT");
    assert_eq!(figure(&mut client, "stats", "sync_full"), 0);
    terminate(&mut client);
    server.wait_for_end();
    server = primary("epoll", port, &options);
    client = server.connect();
    wait_until_loaded(&mut client);
    assert_eq!(figure(&mut client, "persistence", "rdb_last_load_keys_expired"), 100);
    assert_eq!(client.ask("DBSIZE"), Value::Integer(1));
    wait_until("it is linked again", || figure(&mut client, "stats", "sync_partial_ok") == 1);
    wait_until_equal(&mut client, &mut reader);
    assert_eq!(reader.ask("DBSIZE"), Value::Integer(1));
    for (client, name) in
        [(&mut client, "total_net_repl_output_bytes"), (&mut reader, "total_net_repl_input_bytes")]
    {
        assert!(figure(client, "stats", name) > 100 * "DEL dies:1".len() as u64, "{name}");
    }
}

/// Who comes back to it finds no byte that it has not: not even a PING.
#[test]
fn a_primary_that_comes_back_has_added_nothing() {
    let (directory, port) = (directory(), free_port());
    let ping = ["--repl-ping-replica-period", "3600"];
    let options = [&["--dir", path(&directory), "--save", "3600 1"][..], &ping].concat();
    let mut server = primary("epoll", port, &options);
    let mut client = server.connect();
    let replica = replica(OURS[1], port, &[]).expect("it is ours");
    let mut reader = replica.connect();
    wait_until("the replica is linked", || is_linked(&mut reader));
    terminate(&mut client);
    server.wait_for_end();
    server = primary("epoll", port, &options);
    client = server.connect();
    wait_until("it is linked again", || figure(&mut client, "stats", "sync_partial_ok") == 1);
    // Where nothing was ever written a history ends, too.
    for (name, value) in [("master_repl_offset", 0), ("second_repl_offset", 1)] {
        assert_eq!(figure(&mut client, "replication", name), value, "{name}");
    }
}

/// Reads what has come, without waiting.
fn has_come(stream: &mut UnixStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 1000]);
    stream.set_nonblocking(false).unwrap();
    read.unwrap_or_else(|error| {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        0
    })
}

#[test]
fn who_asks_for_replicas_is_answered_when_they_have_it_and_nobody_else_waits() {
    for (start, on_disk) in [(OURS[0], true), (OURS[1], false), (PEERS[1], true), (PEERS[0], false)]
    {
        let port = free_port();
        let primary = primary("io_uring", port, &[]);
        let mut client = primary.connect();
        let Some(replica) = replica(start, port, &["--appendonly", "yes"]) else { continue };
        let mut reader = replica.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        let mut asker = UnixStream::connect(primary.socket()).unwrap();
        asker.set_read_timeout(Some(DEADLINE)).unwrap();
        let fsync = if on_disk { " FSYNC" } else { "" };
        write!(asker, "CLIENT DURABILITY REPLICAS 1{fsync}\r\n").unwrap();
        let mut answer = [0; 5];
        client.ask("SET k none");
        for round in 0..3 {
            asker.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"+OK\r\n", "{round}");
            let both = Value::Array(vec![Value::Integer(0), Value::Integer(1)]);
            wait_until("the replica has all", || match on_disk {
                true => client.ask("WAITAOF 0 1 100") == both,
                false => client.ask("WAIT 1 100") == Value::Integer(1),
            });
            signal(&replica, "-STOP");
            write!(asker, "SET k {round}\r\n").unwrap();
            wait_until("it is written", || client.ask_text("GET k") == round.to_string());
            for _ in 0..100 {
                client.ask("INCR other");
            }
            assert_eq!(has_come(&mut asker), 0);
            signal(&replica, "-CONT");
        }
        asker.read_exact(&mut answer).unwrap();
        // All are asked for by an option.
        primary.connect().ask("CONFIG SET write-quorum 2");
        client.send(&["SET", "k", "9"]);
        let mut other = primary.connect();
        other.send(&["GET", "k"]);
        let mut third = primary.connect();
        third.send(&["CONFIG", "SET", "write-quorum", "1"]);
        assert_eq!(client.read_reply(), Some(Value::Simple("OK".into())));
        assert!(other.read_reply().is_some());
    }
}

#[test]
fn who_asks_for_the_disk_is_not_answered_by_memory() {
    let port = free_port();
    let primary = primary("epoll", port, &[]);
    // Without an append-only file nothing is ever on its disk.
    let replica = replica(OURS[0], port, &[]).expect("it is ours");
    wait_until("the replica is linked", || is_linked(&mut replica.connect()));
    let mut client = primary.connect();
    for call in ["CONFIG SET write-quorum 1", "CONFIG SET write-quorum-fsync yes"] {
        assert_eq!(client.ask(call), Value::Simple("OK".into()));
    }
    let before = figure(&mut client, "replication", "master_repl_offset");
    let mut asker = UnixStream::connect(primary.socket()).unwrap();
    asker.set_read_timeout(Some(DEADLINE)).unwrap();
    asker.write_all(b"SET k 1\r\n").unwrap();
    wait_until("the replica has it", || {
        replica.connect().ask("EXISTS k") == Value::Integer(1)
            && figure(&mut client, "replication", "master_repl_offset") > before
    });
    assert_eq!(has_come(&mut asker), 0);
    client.ask("CONFIG SET write-quorum-fsync no");
    let mut answer = [0; 5];
    asker.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}
