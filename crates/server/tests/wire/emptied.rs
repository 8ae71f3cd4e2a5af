//! What FLUSHALL has thrown away does not come back from a file, whatever becomes of the server.

use std::path::Path;

use kvasir_resp::value::Value;

use crate::aof::wait_for;
use crate::certificates::free_port;
use crate::check::run_script;
use crate::harness::{
    Client, Server, add_strings, backends, each_backend, figure, wait_until, wait_until_loaded,
};
use crate::replication::{OURS, is_linked, primary, replica, wait_until_equal};
use crate::saving::{directory, names, path};

const KEYS: u64 = 1000;
/// A snapshot in the background takes minutes.
const SLOW: [&str; 4] = ["--snapshot-bandwidth", "2000", "--rdbcompression", "no"];

/// Starts a snapshot that is under way for as long as the test takes.
fn begin_long_snapshot(client: &mut Client, dir: &Path) {
    let before = names(dir).len();
    assert_eq!(client.ask_text("BGSAVE"), "Background saving started");
    wait_until("it has a file", || names(dir).len() > before);
    wait_until("it has made its cut", || {
        figure(client, "persistence", "current_save_keys_total") == KEYS
    });
}

#[test]
fn all_that_is_flushed_stays_so_after_a_crash() {
    let ways = [
        ("FLUSHALL", "+OK"),
        ("FLUSHALL ASYNC", "+OK"),
        ("MULTI; SET a 1; FLUSHALL; EXEC", "+OK; +QUEUED; +QUEUED; [+OK +OK]"),
        ("EVAL \"redis.call('set','a','1') return redis.call('flushall','sync')\" 0", "+OK"),
    ];
    for (backend, (way, answer)) in backends().into_iter().cycle().zip(ways) {
        let directory = directory();
        let options = ["--dir", path(&directory), "--save", "36000 1"];
        let server = Server::kvasir(backend, &[&options[..], &SLOW].concat());
        let mut client = server.connect();
        add_strings(&mut client, KEYS, "key", 1000);
        assert_eq!(client.ask_text("SAVE"), "OK");
        begin_long_snapshot(&mut client, directory.path());
        assert_eq!(run_script(&mut client, way), answer);
        drop(server);

        // Who is killed has had no time to remove the other one.
        assert!(names(directory.path()).contains(&"dump.rdb".to_owned()), "{way}");
        let server = Server::kvasir(backend, &options);
        let mut client = server.connect();
        wait_until_loaded(&mut client);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(0), "{way}");
    }
}

#[test]
fn a_snapshot_under_way_is_given_up_when_all_is_flushed() {
    for save in ["", "36000 1"] {
        let directory = directory();
        let options = ["--dir", path(&directory), "--save", save];
        each_backend(&[&options[..], &SLOW].concat(), |server| {
            let mut client = server.connect();
            wait_until_loaded(&mut client);
            add_strings(&mut client, KEYS, "key", 1000);
            begin_long_snapshot(&mut client, directory.path());
            assert_eq!(client.ask_text("FLUSHALL"), "OK");
            wait_for(&mut client, "rdb_bgsave_in_progress:0");
            let left: &[&str] = if save.is_empty() { &[] } else { &["dump.rdb"] };
            assert_eq!(names(directory.path()), left);
        });
    }
}

#[test]
fn keys_that_are_flushed_are_changes() {
    let script = "SET a 1; SET b 2; SET c 3; FLUSHDB; FLUSHDB; SET d 4; FLUSHALL; FLUSHALL";
    let check = |server: &Server, wanted| {
        let mut client = server.connect();
        run_script(&mut client, script);
        let changes = figure(&mut client, "persistence", "rdb_changes_since_last_save");
        assert_eq!(changes, wanted, "{}", server.name);
    };
    for (save, wanted) in [("", 8), ("36000 1", 0)] {
        let options = ["--save", save];
        each_backend(&options, |server| check(server, wanted));
        Server::redis(&options).iter().for_each(|server| check(server, wanted));
        Server::valkey(&options).iter().for_each(|server| check(server, wanted));
    }
}

#[test]
fn a_disk_that_takes_nothing_keeps_nobody_from_flushing() {
    let directory = directory();
    let gone = directory.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let options = ["--dir", gone.to_str().unwrap(), "--save", "36000 1"];
    let server = Server::kvasir("epoll", &options);
    std::fs::remove_dir_all(&gone).unwrap();
    let mut client = server.connect();
    assert_eq!(run_script(&mut client, "SET k v; FLUSHALL; DBSIZE"), "+OK; +OK; :0");
}

#[test]
fn a_replica_saves_what_its_primary_has_flushed() {
    for (backend, own) in backends().into_iter().zip(OURS) {
        let (port, directory) = (free_port(), directory());
        let options = ["--dir", path(&directory), "--save", "36000 100000"];
        let primary = primary(backend, port, &["--save", ""]);
        let replica = replica(own, port, &options).expect("it is ours");
        let (mut client, mut reader) = (primary.connect(), replica.connect());
        wait_until("the replica is linked", || is_linked(&mut reader));
        assert_eq!(client.ask_text("SET k v"), "OK");
        wait_until_equal(&mut client, &mut reader);
        assert_eq!(reader.ask_text("SAVE"), "OK");
        assert_eq!(client.ask_text("FLUSHALL"), "OK");
        wait_until("it is saved", || figure(&mut reader, "persistence", "rdb_saves") >= 2);
        drop(replica);
        let alone = Server::kvasir(backend, &options);
        let mut client = alone.connect();
        wait_until_loaded(&mut client);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(0));
    }
}
