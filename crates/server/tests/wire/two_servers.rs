//! Two servers in one directory: the second is refused or harmless, and nothing is lost.

use std::path::Path;
use std::process::{Command, Stdio};

use kvasir_resp::value::Value;

use crate::harness::{Client, Server};
use crate::saving::{directory, names, path};

/// How a server keeps its data.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Log,
    /// One file, at the end too.
    OneFile,
    FourFiles,
    /// When somebody asks.
    Asked,
    /// As it comes.
    Default,
}

use Way::{Asked, Default, FourFiles, Log, OneFile};

impl Way {
    fn options(self) -> &'static [&'static str] {
        match self {
            Log => &["--appendonly", "yes", "--appendfsync", "always"],
            OneFile => &["--snapshot-files", "1"],
            FourFiles => &["--snapshot-files", "4"],
            Asked => &["--save", ""],
            Default => &[],
        }
    }
}

/// How the first one ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    First,
    Last,
    Killed,
}

fn start(dir: &Path, options: &[&str]) -> (Server, Client) {
    let dir = dir.to_str().expect("a path of text");
    let server = Server::kvasir("epoll", &[&["--dir", dir], options].concat());
    let mut client = server.connect();
    crate::aof::wait_for(&mut client, "\nloading:0");
    (server, client)
}

/// A start that must fail: what it logs.
fn refused_start(dir: &Path, options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(["--port", "0", "--unixsocket"]).arg(dir.join("refused-socket"));
    command.arg("--dir").arg(dir).args(options).stdin(Stdio::null());
    let output = command.output().expect("it can be started");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stop(mut server: Server, mut client: Client) {
    client.send(&["SHUTDOWN"]);
    assert!(server.wait_for_end().success());
}

/// Whether a server saves; if not, it names the one that does.
fn saves(client: &mut Client, other: &Server) -> bool {
    match client.ask("SAVE") {
        Value::Simple(_) => true,
        Value::Error(error) => {
            let error = String::from_utf8(error).unwrap();
            let holder = format!("pid={} unixsocket={}", other.pid(), other.socket().display());
            assert!(error.starts_with("ERR another server saves into ") && error.contains(&holder));
            assert_eq!(client.ask("BGSAVE"), Value::Error(error.into_bytes()));
            false
        }
        other => panic!("{other:?}"),
    }
}

fn has(client: &mut Client, key: &str) -> bool {
    client.ask(&format!("EXISTS {key}")) == Value::Integer(1)
}

/// Snapshots under names of their own.
fn beside(dir: &Path) -> Vec<String> {
    let is_one = |name: &String| {
        let id = name.strip_prefix("dump.rdb.");
        id.is_some_and(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    names(dir).into_iter().filter(is_one).collect()
}

fn check(first: Way, second: Way, end: End, by_link: bool) {
    let what = format!("{first:?} {second:?} {end:?} {by_link}");
    let directory = directory();
    let (dir, link) = (directory.path().join("data"), directory.path().join("link"));
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink("data", &link).unwrap();
    let there = if by_link { &link } else { &dir };
    let (one, mut one_client) = start(&dir, first.options());
    one_client.ask("SET a 1");
    if (first, second) == (Log, Log) {
        let log = refused_start(there, second.options());
        let holder = format!("holder: pid={} unixsocket=", one.pid());
        assert!(log.contains("another server has the append-only file"), "{what}: {log}");
        assert!(log.contains(&holder), "{what}: {log}");
        one_client.ask("SET late1 1");
        drop(one);
        let (_one, mut client) = start(there, first.options());
        assert!(has(&mut client, "a") && has(&mut client, "late1"), "{what}");
        return;
    }
    let (two, mut two_client) = start(there, second.options());
    two_client.ask("SET b 1");
    let (one_saves, two_saves) = (saves(&mut one_client, &two), saves(&mut two_client, &one));
    assert!(one_saves != two_saves, "{what}: {one_saves} {two_saves}");
    one_client.ask("SET late1 1");
    two_client.ask("SET late2 1");
    match end {
        End::First => {
            stop(one, one_client);
            stop(two, two_client);
        }
        End::Last => {
            stop(two, two_client);
            stop(one, one_client);
        }
        End::Killed => {
            drop(one);
            stop(two, two_client);
        }
    }
    let beside = beside(&dir);
    let find = |way: Way, key: &str, is_owner: bool| {
        let (_server, mut client) = start(&dir, way.options());
        // Nobody is in its way any more.
        let found = has(&mut client, key);
        drop(client);
        let is_beside = || {
            beside.iter().any(|name| {
                let (_server, mut client) = start(&dir, &["--dbfilename", name]);
                has(&mut client, key)
            })
        };
        found || !is_owner && is_beside()
    };
    // What was promised: what is in a log, what SAVE was answered for, what an orderly end saves.
    assert!(first != Log && !one_saves || find(first, "a", one_saves), "{what}");
    assert!(second != Log && !two_saves || find(second, "b", two_saves), "{what}");
    let keeps = |way: Way, is_orderly: bool| way == Log || way != Asked && is_orderly;
    assert!(!keeps(first, end != End::Killed) || find(first, "late1", one_saves), "{what}");
    assert!(!keeps(second, true) || find(second, "late2", two_saves), "{what}");
}

fn check_all(first: Way) {
    for (index, second) in [Log, OneFile, FourFiles, Asked, Default].into_iter().enumerate() {
        for end in [End::First, End::Last, End::Killed] {
            check(first, second, end, (index + end as usize).is_multiple_of(2));
        }
    }
}

#[test]
fn a_second_one_beside_a_log_is_refused_or_harmless() {
    check_all(Log);
}

#[test]
fn a_second_one_beside_a_snapshot_of_one_file_is_harmless() {
    check_all(OneFile);
}

#[test]
fn a_second_one_beside_a_snapshot_of_several_files_is_harmless() {
    check_all(FourFiles);
}

#[test]
fn a_second_one_beside_one_that_saves_when_asked_is_harmless() {
    check_all(Asked);
}

#[test]
fn a_second_one_beside_one_as_it_comes_is_harmless() {
    check_all(Default);
}

/// What the second one does not know of is not replaced, though nobody holds it any more.
#[test]
fn what_another_one_has_saved_is_not_replaced_when_it_has_ended() {
    let directory = directory();
    let (one, mut one_client) = start(directory.path(), &[]);
    let (two, mut two_client) = start(directory.path(), &["--save", ""]);
    one_client.ask("SET a 1");
    stop(one, one_client);
    two_client.ask("SET b 1");
    let refused = two_client.ask("SAVE");
    let Value::Error(error) = &refused else { panic!("{refused:?}") };
    assert!(error.starts_with(b"ERR another server has saved into "), "{refused:?}");
    stop(two, two_client);
    let (_one, mut client) = start(directory.path(), &[]);
    assert!(has(&mut client, "a") && !has(&mut client, "b"));
}

/// One that has never saved, and was killed, is in nobody's way.
#[test]
fn a_claim_does_not_outlive_its_holder() {
    for (first, second) in [(Log, Log), (Default, Default), (FourFiles, OneFile)] {
        let directory = directory();
        let (one, _client) = start(directory.path(), first.options());
        let waiting = (second != Log).then(|| start(directory.path(), second.options()));
        drop(one);
        let (_two, mut client) =
            waiting.unwrap_or_else(|| start(directory.path(), second.options()));
        assert_eq!(client.ask_text("SAVE"), "OK", "{first:?}");
    }
}

fn error_of(client: &mut Client, call: &[&str]) -> String {
    match client.call(call) {
        Value::Error(error) => String::from_utf8(error).unwrap(),
        other => panic!("{call:?}: {other:?}"),
    }
}

const PROTECTED: &[&str] = &["--enable-protected-configs", "yes"];

#[test]
fn options_do_not_lead_onto_another_servers_files() {
    let (here, there) = (directory(), directory());
    let (one, mut one_client) = start(there.path(), &["--dbfilename", "x.rdb"]);
    let (_two, mut client) = start(here.path(), PROTECTED);
    let holder = format!("pid={} ", one.pid());
    client.ask("CONFIG SET dbfilename x.rdb");
    let refused = error_of(&mut client, &["CONFIG", "SET", "dir", path(&there)]);
    assert!(refused.contains("argument 'dir') - another server saves into "), "{refused}");
    assert!(refused.contains(&holder), "{refused}");
    // It is where it was, and saves there.
    assert_eq!(client.ask_text("SAVE"), "OK");
    assert!(here.path().join("x.rdb").exists());
    client.ask("CONFIG SET dbfilename y.rdb");
    assert_eq!(client.call(&["CONFIG", "SET", "dir", path(&there)]), Value::Simple("OK".into()));
    let refused = error_of(&mut client, &["CONFIG", "SET", "dbfilename", "x.rdb"]);
    assert!(refused.contains("argument 'dbfilename') - another server saves into "), "{refused}");
    assert_eq!(client.ask_text("SAVE"), "OK");
    assert!(there.path().join("y.rdb").exists());
    // What it has left is free.
    let (_three, mut third) = start(here.path(), &["--dbfilename", "x.rdb"]);
    assert_eq!(third.ask_text("SAVE"), "OK");

    assert_eq!(one_client.ask_text("CONFIG SET appendonly yes"), "OK");
    crate::aof::wait_for(
        &mut one_client,
        "aof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n",
    );
    one_client.ask("SET a 1");
    one_client.ask("WAITAOF 1 0 0");
    let refused = error_of(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(refused.contains("another server has the append-only file"), "{refused}");
    assert!(refused.contains(&holder), "{refused}");
    // Nor is its log replaced when it was killed.
    drop(one);
    let refused = error_of(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(refused.contains("another server has written the append-only file since"), "{refused}");
    let (_one, mut client) = start(there.path(), &["--appendonly", "yes"]);
    assert!(has(&mut client, "a"));
}

/// Turned off, the log is anybody's.
#[test]
fn a_log_that_is_turned_off_is_free() {
    let directory = directory();
    let (_one, mut client) = start(directory.path(), &["--appendonly", "yes"]);
    client.ask("SET a 1");
    client.ask("CONFIG SET appendonly no");
    crate::aof::wait_for(&mut client, "aof_enabled:0\r\n");
    let (two, mut other) = start(directory.path(), &["--appendonly", "yes"]);
    assert!(has(&mut other, "a"));
    let refused = error_of(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(refused.contains(&format!("holder: pid={} ", two.pid())), "{refused}");
}

/// The files themselves, in another directory.
#[test]
fn a_log_whose_files_are_linked_is_not_written_twice() {
    let (directory, other) = (directory(), directory());
    let (one, mut client) = start(directory.path(), &["--appendonly", "yes"]);
    client.ask("SET a 1");
    client.ask("WAITAOF 1 0 0");
    let (from, to) = (directory.path().join("appendonlydir"), other.path().join("appendonlydir"));
    std::fs::create_dir(&to).unwrap();
    for name in names(&from) {
        std::fs::hard_link(from.join(&name), to.join(&name)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(["--port", "0", "--appendonly", "yes", "--unixsocket"]);
    command.arg(other.path().join("socket")).arg("--dir").arg(other.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && log.contains("somebody else is writing the file"), "{log}");
    client.ask("SET b 1");
    client.ask("WAITAOF 1 0 0");
    drop(one);
    let (_one, mut client) = start(directory.path(), &["--appendonly", "yes"]);
    assert!(has(&mut client, "a") && has(&mut client, "b"));
}
