//! What takes an image of the data, or changes whole databases, while another such thing is under
//! way: every pair, at many moments. No server ends, every reply is one that there may be, and what
//! is on disk afterwards is whole.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kvasir_resp::value::Value;

use crate::aof::{start, wait_for};
use crate::harness::{Client, Server, add_strings, backends};
use crate::saving::directory;

const CALLS: [&str; 8] = [
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "CONFIG SET appendonly yes",
    "SHUTDOWN SAVE",
    "DEBUG RELOAD",
    "FLUSHALL",
    "SWAPDB 0 1",
];

/// How many moments each pair is tried at, if this is set; a few otherwise.
const MOMENTS_VARIABLE: &str = "KVASIR_IMAGE_MOMENTS";
const MOMENTS: u32 = 2;
/// About as long as an image of so many keys takes.
const SPAN: Duration = Duration::from_millis(60);
const KEYS: u64 = 30_000;
const KEYS_OF_OTHER: u64 = 100;

/// What may be answered beside OK.
const ANSWERS: &[&str] = &[
    "Background saving started",
    "Background append only file rewriting started",
    "Background append only file rewriting scheduled",
    "ERR Background save already in progress",
    "ERR Background append only file rewriting already in progress",
    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in \
     order to schedule a BGSAVE whenever possible.",
];

fn moments() -> u32 {
    let set = std::env::var(MOMENTS_VARIABLE).ok();
    set.map_or(MOMENTS, |text| text.parse().expect("a number of moments"))
}

/// A server, with a log if that is not what is to be turned on.
fn server(dir: &Path, backend: &'static str, has_log: bool) -> (Server, Client) {
    let log = if has_log { "yes" } else { "no" };
    let options = ["--save", "", "--auto-aof-rewrite-percentage", "0", "--appendonly", log];
    start(backend, dir, &options)
}

fn fill(client: &mut Client) {
    wait_for_peace(client);
    client.ask("FLUSHALL");
    add_strings(client, KEYS, "key", 50);
    client.ask("SELECT 1");
    add_strings(client, KEYS_OF_OTHER, "key", 50);
    client.ask("SELECT 0");
}

/// Until no image is taken, or wanted.
fn wait_for_peace(client: &mut Client) {
    wait_for(client, "rdb_bgsave_in_progress:0");
    wait_for(client, "aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n");
    wait_for(client, "rdb_bgsave_in_progress:0");
}

fn check_reply(pair: [&str; 2], call: &str, reply: Option<Value>) {
    let text = match &reply {
        None => None,
        Some(Value::Simple(text) | Value::Error(text)) => Some(String::from_utf8_lossy(text)),
        Some(other) => panic!("{pair:?}: {call}: {other:?}"),
    };
    let is_ok = match text.as_deref() {
        None => pair.contains(&"SHUTDOWN SAVE"),
        Some("OK") => call != "SHUTDOWN SAVE",
        Some(text) => ANSWERS.contains(&text),
    };
    assert!(is_ok, "{pair:?}: {call}: {text:?}");
}

/// How many keys the snapshot of a directory has, which is whole.
fn keys_saved(dir: &Path) -> Option<u64> {
    let file = dir.join("dump.rdb");
    if !file.exists() {
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    let output = command.arg("check-rdb").arg(file).output().expect("it can be started");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let last = text.lines().filter_map(|line| line.strip_prefix("keys ")).next_back();
    let count = last.and_then(|rest| rest.split(' ').next()).expect("it tells how many");
    Some(count.parse().unwrap())
}

fn keys_in_memory(client: &mut Client) -> u64 {
    let mut size = |db: &str| {
        client.ask(db);
        match client.ask("DBSIZE") {
            Value::Integer(count) => count as u64,
            other => panic!("{other:?}"),
        }
    };
    size("SELECT 1") + size("SELECT 0")
}

/// One pair at all moments.
fn check_pair(backend: &'static str, pair: [&str; 2]) {
    let directory = directory();
    let has_log = !pair.contains(&CALLS[3]);
    let (mut server_now, mut client) = server(directory.path(), backend, has_log);
    let moments = moments();
    for moment in 0..moments {
        if !has_log {
            client.ask("CONFIG SET appendonly no");
            wait_for(&mut client, "aof_enabled:0\r\n");
        }
        fill(&mut client);
        let (mut one, mut other) = (server_now.connect(), server_now.connect());
        one.send(&pair[0].split(' ').collect::<Vec<_>>());
        std::thread::sleep(SPAN * moment / moments);
        let is_sent = other.try_send(&pair[1].split(' ').collect::<Vec<_>>());
        check_reply(pair, pair[0], one.read_reply());
        check_reply(pair, pair[1], if is_sent { other.read_reply() } else { None });
        let all = KEYS + KEYS_OF_OTHER;
        if pair.contains(&"SHUTDOWN SAVE") {
            assert!(server_now.wait_for_end().success(), "{pair:?}");
            let saved = keys_saved(directory.path());
            assert!(saved == Some(all) || pair.contains(&"FLUSHALL"), "{pair:?}: {saved:?}");
            (server_now, client) = server(directory.path(), backend, has_log);
        } else {
            wait_for_peace(&mut client);
            let left = keys_in_memory(&mut client);
            assert!(left == all || pair.contains(&"FLUSHALL") && left == 0, "{pair:?}: {left}");
            let saved = keys_saved(directory.path());
            assert!(saved.is_none_or(|keys| keys == all || keys == 0), "{pair:?}: {saved:?}");
        }
    }
    wait_for_peace(&mut client);
    // The log has what the memory has.
    let is_on = client.ask_text("INFO persistence").contains("aof_enabled:1\r\n");
    let wanted = keys_in_memory(&mut client);
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert!(server_now.wait_for_end().success(), "{pair:?}");
    if is_on {
        let (_server, mut client) = server(directory.path(), backend, true);
        assert_eq!(keys_in_memory(&mut client), wanted, "{pair:?}");
    }
}

fn check_pairs_that_begin_with(calls: &[&str]) {
    let backends = backends();
    for (number, first) in calls.iter().enumerate() {
        for (place, second) in CALLS.iter().enumerate() {
            let backend = backends[(number + place) % backends.len()];
            check_pair(backend, [first, second]);
        }
    }
}

#[test]
fn pairs_that_begin_with_an_image_while_everybody_waits() {
    check_pairs_that_begin_with(&["SAVE", "DEBUG RELOAD", "SHUTDOWN SAVE"]);
}

#[test]
fn pairs_that_begin_with_a_snapshot() {
    check_pairs_that_begin_with(&["BGSAVE"]);
}

#[test]
fn pairs_that_begin_with_a_rewrite() {
    check_pairs_that_begin_with(&["BGREWRITEAOF", "CONFIG SET appendonly yes"]);
}

#[test]
fn pairs_that_begin_with_a_change_of_whole_databases() {
    check_pairs_that_begin_with(&["FLUSHALL", "SWAPDB 0 1"]);
}

/// A rewrite that takes minutes, at the place where it has an image.
fn begin_long_rewrite(dir: &Path, options: &[&str]) -> (Server, Client) {
    let slow = ["--snapshot-bandwidth", "2000", "--rdbcompression", "no"];
    let (server, mut client) = start("io_uring", dir, &[&slow, options].concat());
    add_strings(&mut client, 1000, "key", 1000);
    assert_eq!(client.ask_text("BGREWRITEAOF"), "Background append only file rewriting started");
    let next = dir.join("appendonlydir/appendonly.aof.2.incr.aof");
    crate::harness::wait_until("it has made its cut", || next.exists());
    (server, client)
}

#[test]
fn save_and_reload_stand_beside_a_rewrite_which_goes_on() {
    for call in ["SAVE", "DEBUG RELOAD"] {
        let directory = directory();
        let (server, mut client) = begin_long_rewrite(directory.path(), &["--save", ""]);
        assert_eq!(client.ask_text(call), "OK");
        assert!(client.ask_text("INFO persistence").contains("aof_rewrite_in_progress:1\r\n"));
        assert!(!directory.path().join("appendonlydir/appendonly.aof.3.incr.aof").exists());
        client.ask("CONFIG SET snapshot-bandwidth 0");
        // What was loaded stands in no log, so it is rewritten once more.
        let rewrites = if call == "SAVE" { 1 } else { 2 };
        wait_for(&mut client, &format!("aof_rewrites:{rewrites}\r\n"));
        wait_for_peace(&mut client);
        assert_eq!(keys_saved(directory.path()), Some(1000));
        drop(server);
        let (_server, mut client) = start("epoll", directory.path(), &[]);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(1000), "{call}");
    }
}

#[test]
fn bgsave_waits_for_a_rewrite_only_if_it_may() {
    let directory = directory();
    let (_server, mut client) = begin_long_rewrite(directory.path(), &["--save", ""]);
    let Value::Error(text) = client.ask("BGSAVE") else { panic!("a rewrite is under way") };
    assert!(text.starts_with(b"ERR Another child process is active (AOF?)"));
    assert_eq!(client.ask_text("BGSAVE SCHEDULE"), "Background saving scheduled");
    assert_eq!(client.ask_text("BGSAVE SCHEDULE"), "Background saving scheduled");
    assert_eq!(client.ask_text("BGSAVE CANCEL"), "Scheduled background saving cancelled");
    assert_eq!(client.ask_text("BGSAVE SCHEDULE"), "Background saving scheduled");
    client.ask("CONFIG SET appendonly no");
    client.ask("CONFIG SET snapshot-bandwidth 0");
    wait_for(&mut client, "rdb_saves:1\r\n");
    assert_eq!(keys_saved(directory.path()), Some(1000));
}

#[test]
fn the_end_saves_what_it_has_to_during_a_rewrite() {
    for end in ["SHUTDOWN SAVE", "SIGTERM"] {
        let directory = directory();
        let (mut server, mut client) = begin_long_rewrite(directory.path(), &["--save", "9999 1"]);
        client.ask("SET last 1");
        match end {
            "SIGTERM" => crate::saving::terminate(&mut client),
            end => client.send(&end.split(' ').collect::<Vec<_>>()),
        }
        assert!(server.wait_for_end().success(), "{end}");
        assert_eq!(keys_saved(directory.path()), Some(1001), "{end}");
        drop(server);
        let (_server, mut client) = start("epoll", directory.path(), &[]);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(1001), "{end}");
    }
}
