//! What the program says of itself: words that people and tools look for in a Redis.

use std::path::Path;
use std::process::Output;

use kvasir_resp::value::Value;

use crate::aof::wait_for;
use crate::harness::{Server, wait_until};
use crate::saving::{directory, path, terminate, wait_for_snapshot};
use crate::snapshot_files::run;

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], b"|", &output.stderr].concat();
    String::from_utf8(text).unwrap()
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// The lines of a log, which must come in this order.
fn assert_in_order(log: &str, parts: &[&str]) {
    let mut rest = log;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is not where it belongs: {log}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn the_version_begins_as_that_of_redis() {
    let text = said(&run(&["--version"]));
    assert!(text.starts_with("Redis server v=7.2.4 sha="), "{text}");
    assert_has(&text, &["\nKvasir server v=0.1.0\n"]);
}

#[test]
fn what_is_wrong_at_the_start_is_named_where_somebody_reads_it() {
    let usage = said(&run(&["help"]));
    assert_has(&usage, &["Usage: kvasir-server"]);
    assert_eq!(said(&run(&["check-rdb"])), "|check-rdb needs a file\n");
    assert_eq!(said(&run(&["check-aof"])), "|check-aof needs a file\n");
    let no_log = run(&["--port", "0", "--unixsocket", "s", "--logfile", "/nonexistent/log"]);
    assert_eq!(no_log.status.code(), Some(1));
    let what = "|Can't open the log file: file=/nonexistent/log error=No such file or directory";
    assert_has(&said(&no_log), &[what]);
    let no_rule = run(&["--port", "0", "--unixsocket", "s", "--user", "a b"]);
    assert_eq!(no_rule.status.code(), Some(1));
    let what = "Reading the command line, at option 3\n>>> 'user \"a b\"'\n";
    assert_has(&said(&no_rule), &[what]);
}

#[test]
fn a_port_in_use_is_named_as_in_redis() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let output = run(&["--port", &port, "--bind", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(1));
    let failed = format!("Failed listening on port {port} (TCP), aborting.");
    assert_has(&said(&output), &["Address already in use", &failed]);
}

/// A server that logs into a file in `directory`.
fn logging(directory: &Path, options: &[&str]) -> (Server, impl Fn() -> String + use<>) {
    let log = directory.join("log");
    let own = ["--dir", directory.to_str().unwrap(), "--logfile", log.to_str().unwrap()];
    let server = Server::kvasir("epoll", &[&own[..], options].concat());
    (server, move || std::fs::read_to_string(&log).unwrap_or_default())
}

#[test]
fn the_log_has_the_phrases_of_redis() {
    let directory = directory();
    let options = ["--always-show-logo", "yes", "--appendonly", "yes"];
    let (mut server, log) = logging(directory.path(), &options);
    wait_until("it is ready", || log().contains("Ready to accept connections"));
    let pid = format!(" PID: {}\n", server.pid());
    assert_in_order(&log(), &["Running in standalone mode", " Port: 0\n", &pid]);
    let mut client = server.connect();
    client.ask("SET a b");
    client.ask("BGSAVE");
    wait_for_snapshot(&mut client);
    client.ask("BGREWRITEAOF");
    wait_for(&mut client, "aof_rewrites:1\r\n");
    client.ask("SAVE");
    client.send(&["SHUTDOWN"]);
    assert!(server.wait_for_end().success());
    assert_in_order(
        &log(),
        &[
            "Background saving started",
            "DB saved on disk file=dump.rdb keys=1",
            "Background saving terminated with success",
            "Background append only file rewriting started",
            "Background AOF rewrite finished successfully",
            "DB saved on disk",
            "User requested shutdown... by=client id=",
            " user=default",
            "Saving the final RDB snapshot before exiting.",
            "DB saved on disk",
            "Kvasir is now ready to exit, bye bye...",
        ],
    );
    // The keys are those of the append-only file.
    let (server, log) = logging(directory.path(), &["--appendonly", "yes"]);
    wait_until("it is ready", || log().matches("Ready to accept").count() == 2);
    let log = log();
    let second = log.rsplit("Kvasir is starting").next().unwrap();
    assert_in_order(
        second,
        &[
            "Running mode=standalone, port=0.",
            "Server initialized\n",
            "DB loaded from append only file:",
        ],
    );
    assert_has(second, &["keys=1\n"]);
    drop(server);
}

#[test]
fn a_signal_is_named_as_the_reason_of_the_end() {
    let directory = directory();
    let (mut server, log) = logging(directory.path(), &["--save", ""]);
    terminate(&mut server.connect());
    assert!(server.wait_for_end().success());
    assert_in_order(&log(), &["User requested shutdown... by=signal signal=SIGTERM", "bye bye"]);
}

#[test]
fn broken_data_is_named_as_in_redis() {
    let directory = directory();
    let broken = b"REDIS0010\xfe\0\0\x01k\x01v\xff\x01\0\0\0\0\0\0\0";
    std::fs::write(directory.path().join("dump.rdb"), broken).unwrap();
    let options = ["--port", "0", "--unixsocket", "s", "--dir", path(&directory)];
    let output = run(&options);
    assert_eq!(output.status.code(), Some(65));
    let phrase = "Terminating server after rdb file reading failure: can't load file=dump.rdb";
    assert_has(&said(&output), &[phrase, "RDB CRC error"]);
    std::fs::create_dir(directory.path().join("appendonlydir")).unwrap();
    let file = |name: &str| directory.path().join("appendonlydir").join(name);
    let manifest = "file a.1.incr.aof seq 1 type i\n";
    std::fs::write(file("appendonly.aof.manifest"), manifest).unwrap();
    let options = [&options[..], &["--appendonly", "yes", "--aof-load-truncated", "no"]].concat();
    for (log, phrase) in [
        ("*1\r\n$4\r\nPI", "Unexpected end of file reading the append only file"),
        ("nonsense\r\n", "Bad file format reading the append only file"),
    ] {
        std::fs::write(file("a.1.incr.aof"), log).unwrap();
        assert_has(&said(&run(&options)), &[phrase]);
    }
    std::fs::write(file("appendonly.aof.manifest"), "").unwrap();
    assert_has(&said(&run(&options)), &["Found an empty AOF manifest"]);
}

#[test]
fn options_without_effect_are_one_line() {
    let directory = directory();
    let options = ["--proc-title-template", "x", "--hz", "10", "--set-proc-title", "yes"];
    let (server, log) = logging(directory.path(), &options);
    assert_eq!(server.connect().ask("PING"), Value::Simple(b"PONG".to_vec()));
    let names = "* options have no effect, loglevel debug says why names=proc-title-template,set-proc-title\n";
    assert_has(&log(), &[names]);
    assert!(!log().contains("option without effect") && !log().contains(" # "), "{}", log());
    let (server, log) =
        logging(directory.path(), &[&options[..], &["--loglevel", "debug"]].concat());
    assert_eq!(server.connect().ask("PING"), Value::Simple(b"PONG".to_vec()));
    assert_has(&log(), &["option without effect name=set-proc-title reason=the title of"]);
}
