//! A replica gets its snapshot whatever the disk of its primary takes, and nobody makes one that
//! nobody takes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::certificates::free_port;
use crate::harness::{Client, DEADLINE, Server, add_strings, backends, figure, wait_until};
use crate::replication::{OURS, PEERS, is_linked, replica, wait_until_equal};
use crate::saving::{directory, path};

const LINKS: &str = "connected_slaves";

/// Strings that take as much room in a snapshot: 5 MB.
fn fill(client: &mut Client) {
    client.ask("CONFIG SET rdbcompression no");
    add_strings(client, 5000, "key", 1000);
}

/// Whoever follows this primary gets all.
fn check_full_sync(primary: &Server, port: u16, why: &str) {
    let mut client = primary.connect();
    fill(&mut client);
    for start in [OURS[0], OURS[1], PEERS[0], PEERS[1]] {
        let Some(replica) = replica(start, port, &[]) else { continue };
        let mut reader = replica.connect();
        wait_until(why, || is_linked(&mut reader));
        client.ask("INCR n");
        wait_until_equal(&mut client, &mut reader);
    }
}

#[test]
fn a_primary_whose_directory_takes_no_file_gives_its_data() {
    for backend in backends() {
        let (port, directory) = (free_port(), directory());
        let port_text = port.to_string();
        let log = directory.path().join("log");
        let gone = directory.path().join("gone");
        std::fs::create_dir(&gone).unwrap();
        let mut options = vec!["--port", &port_text, "--repl-diskless-sync-delay", "0"];
        options.extend(["--save", "", "--logfile", log.to_str().unwrap()]);
        options.extend(["--dir", gone.to_str().unwrap()]);
        let primary = Server::kvasir(backend, &options);
        std::fs::remove_dir_all(&gone).unwrap();
        check_full_sync(&primary, port, "it gets all without a directory");
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.contains("a snapshot goes to replicas through memory"), "{text}");
    }
}

#[test]
fn a_primary_whose_disk_is_full_gives_its_data() {
    for backend in backends() {
        let port = free_port();
        let port_text = port.to_string();
        let mut options = vec!["--io-backend", backend, "--port", &port_text, "--save", ""];
        options.extend(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"]);
        // Of 5 MB one goes into the file.
        let primary = Server::with_short_files(1 << 20, &options);
        check_full_sync(&primary, port, "it gets all from a full disk");
    }
}

/// A replica that has begun to read its snapshot; `words`: what it says before.
fn begin(primary: &Server, words: &str) -> UnixStream {
    let mut replica = UnixStream::connect(primary.socket()).unwrap();
    replica.set_read_timeout(Some(DEADLINE)).unwrap();
    replica.write_all(words.as_bytes()).unwrap();
    let (mut got, mut byte) = (Vec::new(), [0]);
    replica.read_exact(&mut [0; b"+OK\r\n".len()]).unwrap();
    replica.write_all(b"PSYNC ? -1\r\n").unwrap();
    while !String::from_utf8_lossy(&got).contains("$EOF:") {
        replica.read_exact(&mut byte).unwrap();
        got.push(byte[0]);
    }
    replica
}

#[test]
fn a_replica_that_takes_nothing_of_its_snapshot_is_closed() {
    for backend in backends() {
        for has_disk in [true, false] {
            let directory = directory();
            let gone = directory.path().join("gone");
            std::fs::create_dir(&gone).unwrap();
            let options = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "2", "--save", ""];
            let dir = ["--dir", gone.to_str().unwrap()];
            let primary = Server::kvasir(backend, &[&options[..], &dir].concat());
            let mut client = primary.connect();
            fill(&mut client);
            if !has_disk {
                std::fs::remove_dir_all(&gone).unwrap();
            }
            // It says all the time that it lives.
            let replica = begin(&primary, "REPLCONF capa eof\r\n");
            wait_until("it is closed", || {
                let _ = (&replica).write_all(b"\n");
                figure(&mut client, "replication", LINKS) == 0
            });
        }
    }
}

#[test]
fn a_snapshot_that_nobody_waits_for_any_more_ends() {
    for (backend, words) in backends().into_iter().cycle().zip([
        "REPLCONF capa eof\r\n",
        // It may come again and go on where it was, but does not.
        "REPLCONF capa eof capa packed\r\n",
    ]) {
        let directory = directory();
        // The whole of it would take a day.
        let mut options = vec!["--dir", path(&directory), "--repl-diskless-sync-delay", "0"];
        options.extend(["--rdb-key-save-delay", "20000000", "--save", ""]);
        let primary = Server::kvasir(backend, &options);
        let mut client = primary.connect();
        fill(&mut client);
        let replica = begin(&primary, words);
        assert_eq!(figure(&mut client, "persistence", "rdb_bgsave_in_progress"), 1);
        drop(replica);
        wait_until("it ends", || figure(&mut client, "persistence", "rdb_bgsave_in_progress") == 0);
        // The next one is for who comes next.
        client.ask("CONFIG SET rdb-key-save-delay 0");
        drop(begin(&primary, words));
    }
}
