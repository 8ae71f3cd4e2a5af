//! DEBUG as other projects' suites use it to make the server slow, forgetful or lenient.

use kvasir_resp::value::Value;

use crate::check::{check, check_newer, check_ours, check_with};
use crate::harness::{Client, Server, backends, figure, wait_until};

const LIBRARY: &str = "\"#!lua name=lib\\nredis.register_function('f', function() return 7 end)\"";

/// A client of a server that has loaded what there is.
fn ready(server: &Server) -> Client {
    let mut client = server.connect();
    wait_until("it has loaded", || client.ask("DBSIZE") == Value::Integer(0));
    client
}

#[test]
fn the_log_is_loaded_again() {
    let load = format!("FUNCTION LOAD {LIBRARY}; FCALL f 0");
    let made = format!(
        "SET s v PX 10000000; RPUSH l a b; XADD x 1-1 f v; SELECT 3; SET other db; SELECT 0; {load}; \
         DEBUG LOADAOF; GET s; LRANGE l 0 -1; XLEN x; FCALL f 0; DBSIZE; SELECT 3; GET other"
    );
    check_with(
        &["--appendonly", "yes"],
        &[
            (
                &made,
                "+OK; :2; $1-1; +OK; +OK; +OK; $lib; :7; +OK; $v; [$a $b]; :1; :7; :3; +OK; $db",
            ),
            // What is loaded is not logged once more, and what follows is.
            ("INCR n; DEBUG LOADAOF; INCR n; DEBUG LOADAOF; GET n", ":1; +OK; :2; +OK; $2"),
            ("FUNCTION DELETE lib; DEBUG LOADAOF; FCALL f 0", "+OK; +OK; -ERR Function not found"),
            ("FLUSHALL; DEBUG LOADAOF; DBSIZE", "+OK; +OK; :0"),
        ],
    );
}

#[test]
fn without_a_log_nothing_is_thrown_away() {
    let text = "ERR Error trying to load the AOF files, check server logs.";
    check_ours(&[], &[("SET k v; DEBUG LOADAOF; GET k", &format!("+OK; -{text}; $v"))]);
    let transaction = "+OK; +QUEUED; [-ERR DEBUG LOADAOF can't be part of a transaction]";
    check_ours(&["--appendonly", "yes"], &[("MULTI; DEBUG LOADAOF; EXEC", transaction)]);
}

/// A call of another client that comes meanwhile is told to wait, as at the start.
#[test]
fn who_comes_while_the_log_is_loaded_is_told() {
    for backend in backends() {
        let options = ["--appendonly", "yes", "--io-threads", "2"];
        let server = Server::kvasir(backend, &options);
        let (mut one, mut other) = (ready(&server), server.connect());
        (0..20).for_each(|key| drop(one.ask(&format!("SET {key} v"))));
        assert_eq!(one.ask_text("CONFIG SET key-load-delay 50000"), "OK");
        one.send(&["DEBUG", "LOADAOF"]);
        let is_told =
            || matches!(other.ask("GET 1"), Value::Error(text) if text.starts_with(b"LOADING"));
        wait_until("it is told", is_told);
        // The delay may be changed meanwhile.
        assert_eq!(other.ask_text("CONFIG SET key-load-delay 0"), "OK");
        assert_eq!(one.read_reply(), Some(Value::Simple(b"OK".to_vec())));
        assert_eq!(other.ask_text("GET 1"), "v");
    }
}

/// No key of a file is loaded whose library is refused.
#[test]
fn reloading_beside_a_library_of_its_name_fails() {
    let text = "-ERR Error trying to load the RDB dump, check server logs.";
    check_newer(&[
        (
            &format!(
                "FUNCTION LOAD {LIBRARY}; SET k v; SAVE; DEL k; DEBUG RELOAD NOSAVE NOFLUSH; \
                 EXISTS k; FCALL f 0"
            ),
            &format!("$lib; +OK; +OK; :1; {text}; :0; :7"),
        ),
        ("DEBUG RELOAD NOSAVE NOFLUSH MERGE; GET k; FCALL f 0", "+OK; $v; :7"),
        // Without NOFLUSH the libraries go as the keys do.
        (
            "FUNCTION FLUSH; SAVE; FUNCTION LOAD \"#!lua name=new\\nredis.register_function('g', \
             function() return 8 end)\"; DEBUG RELOAD NOSAVE; FCALL g 0",
            "+OK; +OK; $new; +OK; -ERR Function not found",
        ),
    ]);
}

#[test]
fn scripts_may_be_let_do_more() {
    let script = "EVAL \"return redis.pcall('debug', 'protocol', 'integer')\" 0";
    let denied = "-ERR This Redis command is not allowed from script";
    let calls = format!(
        "{script}; DEBUG SET-DISABLE-DENY-SCRIPTS 1; {script}; DEBUG SET-DISABLE-DENY-SCRIPTS 0; {script}"
    );
    let replies = |denied: &str| format!("{denied}; +OK; :12345; +OK; {denied}");
    check_ours(&[], &[(&calls, &replies(denied))]);
    // A script within a script would want the session that the outer one has.
    let nested =
        "DEBUG SET-DISABLE-DENY-SCRIPTS 1; EVAL \"return redis.pcall('eval', 'return 1', 0)\" 0";
    check_ours(&[], &[(nested, &format!("+OK; {denied}"))]);
}

#[test]
fn the_clock_may_stand_still() {
    for backend in backends() {
        let server = Server::kvasir(backend, &[]);
        let mut client = server.connect();
        client.ask("DEBUG PAUSE-CRON 1");
        client.ask("SET k v PX 1");
        client.ask("SET other v PX 100");
        wait_until("its time has come", || client.ask("PTTL other") == Value::Integer(-2));
        assert_eq!(client.ask("DBSIZE"), Value::Integer(1), "who asked has deleted one");
        client.ask("DEBUG PAUSE-CRON 0");
        wait_until("all are gone", || client.ask("DBSIZE") == Value::Integer(0));
    }
}

#[test]
fn what_is_broken_behind_its_checksum_may_be_looked_for() {
    check(&[(
        "RESTORE k 0 \"\\x00\\x01v\\x0a\\x00bad sum!\"; DEBUG SET-SKIP-CHECKSUM-VALIDATION 1; \
         RESTORE k 0 \"\\x00\\x01v\\x0a\\x00bad sum!\"; GET k",
        "-ERR DUMP payload version or checksum are wrong; +OK; +OK; $v",
    )]);
}

/// How long a save takes, and what is written when, is in the hands of who tests.
#[test]
fn saving_and_writing_may_be_slow() {
    for backend in backends() {
        let server = Server::kvasir(backend, &["--appendonly", "yes"]);
        let (mut client, path) = (ready(&server), "appendonlydir/appendonly.aof.1.incr.aof");
        assert_eq!(client.ask_text("DEBUG AOF-FLUSH-SLEEP 1000000"), "OK");
        client.ask("SET k first");
        assert!(!server.read_file(path).contains("first"));
        assert_eq!(client.ask_text("DEBUG AOF-FLUSH-SLEEP 0"), "OK");
        wait_until("it is written", || server.read_file(path).contains("first"));
        client.ask("CONFIG SET rdb-key-save-delay 10000000");
        client.ask("BGSAVE");
        assert_eq!(figure(&mut client, "persistence", "rdb_bgsave_in_progress"), 1);
        assert_eq!(client.ask_text("CONFIG SET rdb-key-save-delay 0"), "OK");
        wait_until("it is saved", || {
            figure(&mut client, "persistence", "rdb_bgsave_in_progress") == 0
        });
    }
}

/// Whoever waits for the end of a rewrite may ask for the next.
#[test]
fn a_rewrite_that_is_about_to_begin_is_under_way() {
    for backend in backends() {
        let server = Server::kvasir(backend, &[]);
        let mut client = server.connect();
        for _ in 0..20 {
            client.ask("CONFIG SET appendonly yes");
            for _ in 0..2 {
                wait_until("nothing is rewritten", || {
                    figure(&mut client, "persistence", "aof_rewrite_in_progress") == 0
                });
                let reply = client.ask_text("BGREWRITEAOF");
                assert_eq!(reply, "Background append only file rewriting started");
            }
            client.ask("CONFIG SET appendonly no");
        }
    }
}

#[test]
fn replaced_files_stay_until_they_may_go() {
    let files = |server: &Server| {
        let names = std::fs::read_dir(server.directory().join("appendonlydir")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains(".aof.") && !name.contains("manifest")).count()
    };
    for backend in backends() {
        let server = Server::kvasir(backend, &["--appendonly", "yes"]);
        let mut client = ready(&server);
        client.ask("CONFIG SET aof-disable-auto-gc yes");
        client.ask("BGREWRITEAOF");
        wait_until("it is rewritten", || {
            figure(&mut client, "persistence", "aof_rewrite_in_progress") == 0
        });
        assert!(server.read_file("appendonlydir/appendonly.aof.manifest").contains("type h"));
        assert!(files(&server) > 2);
        client.ask("CONFIG SET aof-disable-auto-gc no");
        assert!(!server.read_file("appendonlydir/appendonly.aof.manifest").contains("type h"));
    }
}

/// Who looks inside finds what has expired and is still there; who asks for it deletes it.
#[test]
fn what_has_expired_is_seen_until_somebody_asks_for_it() {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    for server in ours.chain(Server::redis(&[])).chain(Server::valkey(&[])) {
        let mut client = server.connect();
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        client.ask("SET k v PX 1");
        client.ask("DEBUG SLEEP 0.01");
        assert!(client.ask_text("DEBUG OBJECT k").contains("encoding:"), "{}", server.name);
        let exists = client.call(&["EVAL", "return redis.call('EXISTS', KEYS[1])", "1", "k"]);
        assert_eq!(exists.as_integer(), Some(0));
        let gone = client.ask("DEBUG OBJECT k");
        assert_eq!(gone, Value::Error(b"ERR no such key".to_vec()), "{}", server.name);
    }
}
