//! SCRIPT DEBUG: the debugger of scripts, as redis-cli's `--ldb` drives it.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kvasir_resp::value::Value;

use crate::check::{run_script, show};
use crate::harness::{Client, Server, each_backend, figure, wait_until};

const SCRIPT: &str = "local a = {1, 'x', {y = true}}\n\
    local function f(x)\n\
    \x20 local y = x + 1\n\
    \x20 redis.call('set', KEYS[1], y)\n\
    \x20 return y\n\
    end\n\
    redis.breakpoint()\n\
    local z = f(3)\n\
    redis.debug('hi', 5, a, nil)\n\
    redis.pcall('nosuch') redis.pcall('incr', 'l') redis.call('lrange', 'l', 0, -1)\n\
    redis.setresp(3)\n\
    redis.call('hgetall', 'h') redis.call('get', 'none') redis.call('zscore', 'z', 'm')\n\
    return redis.call('get', KEYS[1])\n";

const COMMANDS: [&str; 42] = [
    "help",
    "l",
    "l 3 1",
    "w",
    "b",
    "b 4 100 0x",
    "b 5",
    "b 4",
    "b",
    "b -5",
    "b -9",
    "p",
    "s",
    "p",
    "p a",
    "p none",
    "p KEYS",
    "p ARGV",
    "m",
    "m 10",
    "p a",
    "m 0",
    "c",
    "t",
    "s",
    "t",
    "p y",
    "e 1+1",
    "e error('no')",
    "e x x",
    "r get k",
    "r foo",
    "r",
    "zz",
    "s",
    "s",
    "b 0",
    "s",
    "s",
    "e redis.call('set','k2','v')",
    "s",
    "c",
];

/// Starts a session; gives back what it says at its first stop.
fn begin(client: &mut Client, mode: &str, script: &str) -> String {
    assert_eq!(show(&client.call(&["SCRIPT", "DEBUG", mode])), "+OK");
    show(&client.call(&["EVAL", script, "1", "k", "v"]))
}

/// All that a session says, to the end of the connection.
fn session(server: &Server, mode: &str, script: &str, commands: &[&str]) -> Vec<String> {
    let mut client = server.connect();
    let mut said = vec![begin(&mut client, mode, script)];
    for command in commands {
        if said.last().is_some_and(|last| last.contains("<endsession>")) {
            break;
        }
        said.push(show(&client.ask(command)));
    }
    said.extend(client.read_reply().as_ref().map(show));
    assert!(client.ends(), "{}", server.name);
    said
}

fn fill(server: &Server) {
    let calls = "DEL k k2 l h z; RPUSH l a b c; HSET h f v; ZADD z 1.5 m";
    run_script(&mut server.connect(), calls);
}

#[test]
fn a_session_says_what_it_says_in_redis() {
    let Some(redis) = Server::redis(&[]) else { return };
    let fails = "redis.call('set', KEYS[1], 'w')\nerror({err = 'TELL me'})\nreturn 1";
    each_backend(&["--io-threads", "2"], |server| {
        for mode in ["YES", "SYNC"] {
            for (script, commands) in [
                (SCRIPT, &COMMANDS[..]),
                (SCRIPT, &["s", "s", "c", "abort"]),
                (SCRIPT, &["c", "c"]),
                (fails, &["s", "c"]),
                ("return 1", &["n"]),
                ("no script", &[]),
            ] {
                let [ours, theirs] = [&*server, &redis].map(|server| {
                    fill(server);
                    let mut said = session(server, mode, script, commands);
                    let left = run_script(&mut server.connect(), "GET k; GET k2; DBSIZE");
                    said.push(left);
                    said
                });
                assert_eq!(ours, theirs, "{mode} {script}");
            }
        }
    });
}

#[test]
fn who_debugs_is_told_what_is_not_possible() {
    let test = |server: &Server| {
        let mut client = server.connect();
        let pipeline = "*1\r\n$4\r\nPING\r\n*3\r\n$6\r\nSCRIPT\r\n$5\r\nDEBUG\r\n$3\r\nYES\r\n";
        client.send_raw(pipeline.as_bytes());
        let replies = [client.read_reply(), client.read_reply()];
        let replies = replies.map(|reply| reply.as_ref().map_or_else(String::new, show));
        let text = "-ERR SCRIPT DEBUG must be called outside a pipeline";
        assert_eq!(replies, ["+PONG", text], "{}", server.name);
        let script = "SCRIPT DEBUG yes; EVALSHA 0123456789012345678901234567890123456789 0; \
            EVALSHA x 0; PING; SCRIPT DEBUG no; EVAL 'return redis.breakpoint()' 0; PING";
        let replies = "+OK; -ERR Please use EVAL instead of EVALSHA for debugging; \
            -NOSCRIPT No matching script. Please use EVAL.; +PONG; +OK; _; +PONG";
        assert_eq!(run_script(&mut client, script), replies, "{}", server.name);
    };
    each_backend(&[], |server| test(server));
    Server::redis(&[]).iter().for_each(test);
}

/// Drives redis-cli; what it prints.
fn cli(server: &Server, program: &Path, option: &str, commands: &str) -> String {
    let script = server.directory().join("script.lua");
    std::fs::write(&script, SCRIPT).expect("the directory is there");
    // It writes to the connection once more when the session has ended, and would be killed by that
    // where a socket of this machine is closed already.
    let mut child = Command::new("sh")
        .args(["-c", "trap '' PIPE; exec \"$0\" \"$@\""])
        .arg(program)
        .arg("-s")
        .arg(server.socket())
        .args([option, "--eval"])
        .arg(script)
        .args(["k", ",", "v"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-cli runs");
    child.stdin.take().expect("it is piped").write_all(commands.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn redis_cli_debugs_scripts() {
    let Some(redis) = Server::redis(&[]) else { return };
    let program = env::var_os("KVASIR_REDIS_SERVER").map(PathBuf::from);
    let program = program.map(|program| program.with_file_name("redis-cli"));
    let Some(program) = program.filter(|program| program.exists()) else { return };
    each_backend(&[], |server| {
        for option in ["--ldb", "--ldb-sync-mode"] {
            let commands = "l\nb 4\nc\nc\np x\np\ne 1+1\nredis get k\ns\nabort\n";
            let [ours, theirs] = [&*server, &redis].map(|server| {
                fill(server);
                let printed = cli(server, &program, option, commands);
                printed + &run_script(&mut server.connect(), "GET k")
            });
            assert!(ours.contains("break point") && ours.contains("aborted"), "{ours}");
            assert_eq!(ours, theirs);
        }
    });
}

/// What the script of a forked session writes.
const WRITES: &str = "redis.call('set', 'k', '2') redis.call('incr', 'n')\n\
    redis.call('rename', 'h', 'h2') redis.call('hset', 'h2', 'f', 'w')\n\
    redis.call('rpush', 'q', 'x') redis.call('del', 'l') redis.call('pexpire', 'e', 1)\n\
    redis.call('sort', 'numbers', 'store', 'sorted') redis.call('copy', 'k', 'k', 'db', 1)\n\
    redis.call('select', 1) redis.call('set', 'other', 1) redis.call('select', 0)\n\
    redis.call('publish', 'c', 'm')\n\
    local refused = redis.pcall('flushall').err\n\
    return {redis.call('get', 'k'), redis.call('dbsize'), redis.call('lrange', 'sorted', 0, -1), \
    refused}";

#[test]
fn a_forked_session_leaves_nothing_behind() {
    let options = ["--io-threads", "2", "--appendonly", "yes", "--enable-debug-command", "yes"];
    each_backend(&options, |server| {
        let mut other = server.connect();
        run_script(
            &mut other,
            "CONFIG SET notify-keyspace-events KEA; SET k 1; HSET h f v; RPUSH l a b; \
             SET e v PX 1000000; RPUSH numbers 3 1 2; WATCH k h sorted q",
        );
        // Without the lines that say how long what comes behind them is.
        let log = |server: &Server| {
            let text = server.read_file("appendonlydir/appendonly.aof.1.incr.aof");
            text.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect::<String>()
        };
        wait_until("it is logged", || log(server).contains("numbers"));
        let (digest, written) = (show(&other.ask("DEBUG DIGEST")), log(server));
        let changes = figure(&mut other, "persistence", "rdb_changes_since_last_save");
        let mut subscriber = server.connect();
        subscriber.ask("PSUBSCRIBE *");
        let mut waiter = server.connect();
        waiter.send(&["BLPOP", "q", "0"]);
        wait_until("it waits", || figure(&mut other, "clients", "blocked_clients") == 1);

        let mut client = server.connect();
        begin(&mut client, "YES", WRITES);
        let stopped = client.ask("s");
        assert!(show(&stopped).contains("Stopped at 2"), "{}", show(&stopped));
        let busy = show(&server.connect().ask("GET k"));
        assert!(busy.starts_with("-BUSY "), "{busy}");
        assert_eq!(show(&client.ask("c")), "[+<endsession>]");
        let refused = "$ERR This command is not possible while a script is debugged unless by \
            SCRIPT DEBUG SYNC, since it can not be undone";
        let returned = client.read_reply().as_ref().map(show);
        assert_eq!(returned, Some(format!("[$2 :7 [$1 $2 $3] {refused}]")));
        assert!(client.ends());

        assert_eq!(show(&other.ask("DEBUG DIGEST")), digest);
        assert_eq!(figure(&mut other, "persistence", "rdb_changes_since_last_save"), changes);
        assert_eq!(run_script(&mut other, "MULTI; GET k; EXEC"), "+OK; +QUEUED; [$1]");
        run_script(&mut other, "SET mark 1");
        let call = "*3\r\n$3\r\nSET\r\n$4\r\nmark\r\n$1\r\n1\r\n";
        wait_until("the log has it", || log(server).ends_with(call));
        assert_eq!(log(server).strip_suffix(call), Some(&written[..]));
        // The first that others hear of is what came behind.
        let first = subscriber.read_reply().expect("a message");
        assert!(show(&first).contains("mark"), "{}", show(&first));
        run_script(&mut other, "RPUSH q real");
        assert_eq!(waiter.read_reply().as_ref().map(show), Some("[$q $real]".to_owned()));
    });
}

#[test]
fn others_may_end_a_session() {
    each_backend(&["--io-threads", "2"], |server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        begin(&mut client, "SYNC", "local a = 1\nreturn a");
        wait_until("it is known", || show(&other.ask("GET k")).starts_with("-BUSY "));
        assert_eq!(show(&other.ask("SCRIPT KILL")), "+OK");
        let said = [client.read_reply(), client.read_reply()].map(|reply| reply.expect("a reply"));
        assert_eq!(show(&said[0]), "[+<endsession>]");
        let Value::Error(text) = &said[1] else { panic!("{}", show(&said[1])) };
        assert!(text.starts_with(b"ERR Script killed by user with SCRIPT KILL."));
        assert!(client.ends());
        // Whoever goes away lets the script run to its end.
        let mut client = server.connect();
        begin(&mut client, "SYNC", "redis.call('set', 'k', 'done')\nreturn 1");
        drop(client);
        wait_until("the script has ended", || show(&other.ask("GET k")) == "$done");
        assert_eq!(show(&other.ask("PING")), "+PONG");
    });
}
