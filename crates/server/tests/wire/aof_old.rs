//! Logs of older servers and of other hands: whatever Redis loads is loaded, with the same outcome,
//! and what it refuses is refused by the server and by `check-aof` alike.

use std::path::Path;
use std::process::{Command, Stdio};

use kvasir_resp::value::Value;

use crate::aof::{refused, start, wait_for};
use crate::check::{run_script, split};
use crate::harness::{Server, wait_until};
use crate::saving::{directory, path};

const SET: &str = "\"return redis.call('SET',KEYS[1],ARGV[1])\"";
const SET_SHA: &str = "cf63a54c34e159e75e5a3fe4794bb2ea636ee005";

/// The calls of a script as a log has them.
fn log(script: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for call in script.split("; ") {
        let words = split(call);
        bytes.extend(format!("*{}\r\n", words.len()).into_bytes());
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend([&word[..], b"\r\n"].concat());
        }
    }
    bytes
}

/// What `check-aof` says of a file, and its exit status.
fn check(file: &Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.arg("check-aof").arg(file).stdin(Stdio::null());
    let output = command.output().expect("it can be started");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("no signal"), String::from_utf8(text).unwrap())
}

type Start = fn(&[&str]) -> Option<Server>;

/// Loads a log here and in both others, and has each asked the same.
fn check_loads(script: &str, asked: &str, answers: &str) {
    let (script, bytes) = (script.replace("SET_SHA", SET_SHA).replace("SETTER", SET), Vec::new());
    let bytes = [bytes, log(&script)].concat();
    let peers: [Start; 4] = [
        |options| Some(Server::kvasir("epoll", options)),
        |options| Some(Server::kvasir("io_uring", options)),
        Server::redis,
        Server::valkey,
    ];
    for peer in peers {
        let directory = directory();
        let old = directory.path().join("appendonly.aof");
        std::fs::write(&old, &bytes).unwrap();
        let found = check(&old);
        assert_eq!(found.0, 0, "{script}: {found:?}");
        let Some(server) = peer(&["--dir", path(&directory), "--appendonly", "yes"]) else {
            continue;
        };
        let mut client = server.connect();
        wait_for(&mut client, "\nloading:0");
        assert_eq!(run_script(&mut client, asked), answers, "{}: {script}", server.name);
        assert!(!old.exists() && directory.path().join("appendonlydir/appendonly.aof").exists());
    }
}

#[test]
fn scripts_of_a_log_are_run() {
    for (script, asked, answers) in [
        ("SCRIPT LOAD SETTER; EVALSHA SET_SHA 1 a 1", "GET a; SCRIPT EXISTS SET_SHA", "$1; [:1]"),
        ("EVAL SETTER 1 a 1; EVALSHA SET_SHA 1 b 2", "MGET a b", "[$1 $2]"),
        ("EVAL SETTER 1 a 1; SCRIPT FLUSH; EVALSHA SET_SHA 1 b 2", "MGET a b", "[$1 _]"),
        ("MULTI; EVAL SETTER 1 a 1; SET b 2; EXEC", "MGET a b", "[$1 $2]"),
        ("SELECT 3; EVAL SETTER 1 a 1; SELECT 0", "GET a; SELECT 3; GET a", "_; +OK; $1"),
        // It may touch any key and any database, and the next call is in its own again.
        (
            "EVAL \"redis.call('SET','a',1) redis.call('SELECT',5) redis.call('SET','b',2)\" 0; SET c 3",
            "MGET a b c; SELECT 5; GET b",
            "[$1 _ $3]; +OK; $2",
        ),
        // What a script has done before it fails stays.
        ("EVAL \"redis.call('SET','a',1) error('x')\" 0; SET b 2", "MGET a b", "[$1 $2]"),
        ("EVAL \"no lua\" 0; EVAL SETTER x a 1; EVALSHA nosuch 0; SET b 2", "MGET a b", "[_ $2]"),
        (
            "FUNCTION LOAD \"#!lua name=l\nredis.register_function('f',function(k,a) return redis.call('SET',k[1],a[1]) end)\";              FCALL f 1 a 1; FCALL nosuch 0; FCALL_RO f 1 b 1; FUNCTION DELETE nosuch",
            "GET a; FCALL f 1 b 2",
            "$1; +OK",
        ),
        (
            "EVAL \"for i=1,300000 do end return redis.call('SET','a',redis.call('TIME')[1]-0>0 and 1)\" 0",
            "GET a",
            "$1",
        ),
    ] {
        let sha = |text: &str| text.replace("SET_SHA", SET_SHA);
        check_loads(script, &sha(asked), answers);
    }
}

#[test]
fn calls_that_fail_or_change_no_data_are_passed_over() {
    for (script, asked, answers) in [
        ("EXEC; DISCARD; UNWATCH; WATCH a; SET a 1", "GET a", "$1"),
        ("MULTI; SET a 1; MULTI; SET b 2; EXEC", "MGET a b", "[$1 $2]"),
        // Calls go on where they went before.
        (
            "SELECT 3; SET a 1; SELECT 99; SET b 2; SELECT -1; SELECT x; SET c 3",
            "GET a; SELECT 3; MGET a b c",
            "_; +OK; [$1 $2 $3]",
        ),
        (
            "SET a 1; SWAPDB 0 99; MOVE a 99; COPY a b DB 99; LPUSH a 1; SETEX c 0 1",
            "MGET a b c",
            "[$1 _ _]",
        ),
        ("PING; ECHO x; GET a; INFO; AUTH x; HELLO 3; QUIT; RESET; SET a 1", "GET a", "$1"),
        (
            "SUBSCRIBE a; MONITOR; PUBLISH a b; CLIENT SETNAME x; CLIENT REPLY OFF; SET a 1",
            "GET a",
            "$1",
        ),
        (
            "BLPOP l 0; XREAD BLOCK 0 STREAMS s 0; SAVE; BGSAVE; LASTSAVE; SHUTDOWN NOSAVE; SET a 1",
            "GET a",
            "$1",
        ),
        (
            "CONFIG SET maxmemory 123mb; CONFIG SET nosuch 1; CONFIG RESETSTAT; SET a 1",
            "GET a; CONFIG GET maxmemory",
            "$1; [$maxmemory $128974848]",
        ),
        (
            "ACL SETUSER bob on nopass +get ~a; ACL WHOAMI; ACL DELUSER nosuch; SET a 1",
            "GET a; AUTH bob x; GET a",
            "$1; +OK; $1",
        ),
    ] {
        check_loads(script, asked, answers);
    }
}

/// A file that is refused stays where it is, as it is, and the tool refuses it as well.
#[test]
fn what_is_no_call_is_refused_by_the_tool_and_the_server() {
    for (script, what) in [
        ("SET a 1; FOO a", "Unknown command 'FOO' reading the append only file, at byte 27"),
        (
            "MULTI; CONFIG FOO a; EXEC",
            "Unknown command 'CONFIG' reading the append only file, at byte",
        ),
        ("SET a 1; LPUSH a", "a call of LPUSH with too few words or too many at byte 27"),
        ("\"\"", "Unknown command '' reading the append only file, at byte 0"),
    ] {
        let directory = directory();
        let old = directory.path().join("appendonly.aof");
        refused(directory.path(), &old, &log(script), &[], what);
        assert!(!directory.path().join("appendonlydir/appendonly.aof.manifest").exists());
        let (status, text) = check(&old);
        assert!(status == 3 && text.contains(what), "{script}: {status} {text}");
        // When it is mended the next start takes it in.
        std::fs::write(&old, log("SET a 1")).unwrap();
        let (_server, mut client) = start("epoll", directory.path(), &[]);
        assert_eq!(client.ask_text("GET a"), "1");
        assert!(!old.exists());
    }
}

/// Between the manifest and the move power may go.
#[test]
fn a_single_file_whose_manifest_is_there_already_is_taken_in() {
    let directory = directory();
    let (old, inside) =
        (directory.path().join("appendonly.aof"), directory.path().join("appendonlydir"));
    std::fs::write(&old, log("SET a 1")).unwrap();
    std::fs::create_dir(&inside).unwrap();
    let manifest = inside.join("appendonly.aof.manifest");
    std::fs::write(&manifest, "file appendonly.aof seq 1 type b\n").unwrap();
    let (_server, mut client) = start("epoll", directory.path(), &[]);
    assert_eq!(client.ask_text("GET a"), "1");
    assert!(!old.exists() && inside.join("appendonly.aof").exists());
}

/// Names that clients have to use make no difference: effects have commands' own names.
#[test]
fn a_server_with_renamed_commands_loads_its_own_log() {
    let renames = ["--rename-command", "SET", "secret", "--rename-command", "DEL", ""];
    let directory = directory();
    for round in 1..=2 {
        let (server, mut client) = start("epoll", directory.path(), &renames);
        client.ask("SECRET k v");
        client.ask("SECRET short v PX 1");
        wait_until("a key has expired", || client.ask("EXISTS short") == Value::Integer(0));
        client.ask("INCR rounds");
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        drop(server);
        let (_server, mut client) = start("epoll", directory.path(), &renames);
        assert_eq!(run_script(&mut client, "MGET k short rounds"), format!("[$v _ ${round}]"));
    }
}
