//! The append-only file turned on and off while the server runs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kvasir_resp::value::Value;

use crate::aof::{start, stop, wait_for};
use crate::check::check_ours;
use crate::harness::{Client, Server};
use crate::saving::{digest, directory, fill, path};

fn on(client: &mut Client) {
    assert_eq!(client.ask_text("CONFIG SET appendonly yes"), "OK");
    let done = "aof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n";
    wait_for(client, done);
}

fn off(client: &mut Client) {
    assert_eq!(client.ask_text("CONFIG SET appendonly no"), "OK");
    wait_for(client, "aof_enabled:0\r\n");
}

#[test]
fn what_was_there_and_what_comes_is_logged_from_then_on() {
    for (backend, fsync) in [("io_uring", "always"), ("epoll", "everysec")] {
        let directory = directory();
        let options = ["--dir", path(&directory), "--appendfsync", fsync, "--save", ""];
        let server = Server::kvasir(backend, &options);
        let mut client = server.connect();
        fill(&mut client);
        for round in 0..3 {
            on(&mut client);
            client.ask(&format!("SET logged{round} 1"));
            if round == 0 {
                off(&mut client);
            } else {
                client.ask("CONFIG SET appendonly no");
            }
            client.ask(&format!("SET unlogged{round} 1"));
        }
        on(&mut client);
        client.ask("INCR last");
        let wanted = digest(&mut client);
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        drop(server);
        let (_server, mut client) = start(backend, directory.path(), &["--save", ""]);
        assert_eq!(digest(&mut client), wanted, "{backend}");
    }
}

#[test]
fn turned_off_it_keeps_what_was_logged() {
    let directory = directory();
    let (server, mut client) = start("io_uring", directory.path(), &["--save", ""]);
    client.ask("SET logged 1");
    off(&mut client);
    client.ask("SET unlogged 1");
    drop(server);
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(client.ask_text("GET logged"), "1");
    assert_eq!(client.ask("EXISTS unlogged"), Value::Integer(0));
}

/// Clients write all the time, and each change is there at the end.
#[test]
fn writers_do_not_notice() {
    let directory = directory();
    let options = ["--dir", path(&directory), "--appendfsync", "always", "--save", ""];
    let server = Server::kvasir("io_uring", &options);
    let mut client = server.connect();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let mut client = server.connect();
                scope.spawn(move || {
                    for number in 0..3000 {
                        client.ask(&format!("RPUSH list{writer} {number}"));
                    }
                })
            })
            .collect();
        for round in 0.. {
            let word = if round % 2 == 0 { "yes" } else { "no" };
            client.ask(&format!("CONFIG SET appendonly {word}"));
            client.ask("BGREWRITEAOF");
            if writers.iter().all(|writer| writer.is_finished()) {
                break;
            }
        }
    });
    on(&mut client);
    let wanted = digest(&mut client);
    drop(server);
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(digest(&mut client), wanted);
}

/// However much comes all the time, the old log's end is reached.
#[test]
fn it_is_turned_off_under_a_load_that_never_pauses() {
    for fsync in ["always", "everysec"] {
        let directory = directory();
        let options = ["--appendfsync", fsync, "--save", ""];
        let (server, mut client) = start("io_uring", directory.path(), &options);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let mut client = server.connect();
                let is_over = &is_over;
                scope.spawn(move || {
                    let call = format!("SET k{writer} {}\r\n", "x".repeat(1000));
                    while !is_over.load(Relaxed) {
                        client.send_raw(call.repeat(100).as_bytes());
                        (0..100).for_each(|_| drop(client.read_reply()));
                    }
                });
            }
            for _ in 0..5 {
                off(&mut client);
                on(&mut client);
            }
            is_over.store(true, Relaxed);
        });
        let wanted = digest(&mut client);
        stop(server, client);
        let (_server, mut client) = start("epoll", directory.path(), &[]);
        assert_eq!(digest(&mut client), wanted);
    }
}

#[test]
fn a_place_that_cannot_be_used_is_refused_at_once() {
    let directory = directory();
    std::fs::write(directory.path().join("appendonlydir"), "in the way").unwrap();
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to \
                   turn on AOF. Check server logs.";
    check_ours(
        &["--dir", path(&directory)],
        &[(
            "CONFIG SET appendonly yes; CONFIG GET appendonly",
            &format!("{refused}; [$appendonly $no]"),
        )],
    );
}

#[test]
fn config_rewrite_keeps_it() {
    let directory = directory();
    let server = Server::kvasir_with_file("k.conf", &format!("dir {}\n", path(&directory)));
    let mut client = server.connect();
    on(&mut client);
    client.ask("CONFIG REWRITE");
    assert!(server.read_file("k.conf").contains("appendonly yes"));
}
