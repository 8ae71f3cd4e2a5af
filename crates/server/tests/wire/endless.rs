//! Code of strangers that never ends, or takes as long as it can: the other clients get answers,
//! whoever may ends it, and the server stops when it is told to.

use std::process::Command;

use kvasir_keyspace::serial::functions;

use crate::check::{run_script, show};
use crate::harness::{Client, Server, backends, each_backend, wait_until};

/// A threshold that comes soon, and one that never comes while a test runs.
const SOON: &[&str] = &["--busy-reply-threshold", "50"];
const NEVER: &[&str] = &["--busy-reply-threshold", "0"];

/// Scripts that do not end, by what they spend their time in.
const ENDLESS: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    // Each level has new coroutines, which have their own counts of instructions in plain Lua.
    "local function spin(depth) while true do if depth > 0 then \
     pcall(coroutine.wrap(function() spin(depth - 1) end)) end end end spin(4)",
    "local co = coroutine.wrap(function() while true do coroutine.yield() end end) \
     while true do co() end",
    // Few instructions, and much behind each.
    "local s = string.rep('x', 5e7) while true do local t = s .. 'y' end",
    "local s = string.rep('x', 5e7) while true do s:upper() end",
    "local s = string.rep('x', 5e7) while true do s:find('y', 1, true) end",
    "local s = string.rep('x', 1e5) while true do s:find('x*x*x*y') end",
    "local s = string.rep('1', 1e7) while true do local n = s + 1 end",
    "local a, b = string.rep('x', 5e7) .. 'a', string.rep('x', 5e7) .. 'b' \
     while true do local c = a < b end",
    "local t = {} for i = 1, 3e6 do t[i] = i end for i = 1, 3e6 do t[i] = nil end \
     while true do next(t) end",
    "local t = {} for i = 1, 1e6 do t[i] = i % 1000 end while true do table.sort(t) end",
    "local t = {} for i = 1, 1e6 do t[i] = 'abc' end while true do table.concat(t) end",
    "local t = {} for i = 1, 1e6 do t[i] = {} end while true do collectgarbage() end",
    "local s = string.rep('a = 1 ', 1e5) while true do loadstring(s) end",
    "local s = '[' .. string.rep('1,', 1e6) .. '1]' while true do cjson.decode(s) end",
    "local s = string.rep('x', 5e7) while true do redis.sha1hex(s) end",
    "local s = string.rep('x', 5e7) while true do redis.pcall('nope', s) end",
    "while true do redis.call('LRANGE', KEYS[1], 0, -1) end",
    "while true do redis.call('SORT_RO', KEYS[1], 'ALPHA', 'LIMIT', 0, 1) end",
    // Its reply has no end.
    "local a, b = {}, {} for i = 1, 10 do a[i] = b b[i] = a end return a",
];

fn wait_for_busy(client: &mut Client) {
    wait_until("it is busy", || show(&client.ask("GET x")).starts_with("-BUSY"));
}

/// A list of this many elements.
fn push_list(client: &mut Client, key: &str, count: usize) {
    let elements: Vec<String> = (0..count).map(|number| format!("element:{number}")).collect();
    let call = ["RPUSH", key].into_iter().chain(elements.iter().map(String::as_str));
    assert_eq!(show(&client.call(&call.collect::<Vec<_>>())), format!(":{count}"));
}

#[test]
fn whatever_a_script_spends_its_time_in_it_can_be_killed() {
    let run = |server: &Server| {
        let mut others: Vec<Client> = (0..3).map(|_| server.connect()).collect();
        push_list(&mut others[0], "list", 20_000);
        for script in ENDLESS {
            let mut runner = server.connect();
            runner.send(&["EVAL", script, "1", "list"]);
            others.iter_mut().for_each(wait_for_busy);
            assert_eq!(show(&others[1].ask("SCRIPT KILL")), "+OK", "{script}");
            let reply = show(&runner.read_reply().expect("an answer"));
            assert!(reply.contains("Script killed by user"), "{script}: {reply}");
            wait_until("nothing is busy", || show(&others[2].ask("GET x")) == "_");
        }
    };
    for (backend, workers) in backends().into_iter().zip(["1", "3"]) {
        run(&Server::kvasir(backend, &[SOON, &["--io-threads", workers]].concat()));
    }
}

/// What FUNCTION DUMP would say of libraries.
fn dump(codes: &[String]) -> Vec<u8> {
    functions::dump(codes.iter().map(String::as_bytes))
}

const TIMEOUT: &str = "-ERR Error registering functions: ERR FUNCTION LOAD timeout";

#[test]
fn a_library_that_does_not_end_is_given_up() {
    let code = "#!lua name=endless\nwhile true do end";
    let test = |server: &Server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.send(&["FUNCTION", "LOAD", code]);
        assert_eq!(show(&other.ask("SET k v")), "+OK");
        assert_eq!(show(&client.read_reply().expect("an answer")), TIMEOUT, "{}", server.name);
        // An old one stays.
        let register = "redis.register_function('f', function() return 1 end)";
        let sound = format!("#!lua name=endless\n{register}");
        assert_eq!(show(&client.call(&["FUNCTION", "LOAD", &sound])), "$endless");
        assert_eq!(show(&client.call(&["FUNCTION", "LOAD", "REPLACE", code])), TIMEOUT);
        assert_eq!(run_script(&mut client, "FCALL f 0; GET k"), ":1; $v", "{}", server.name);
    };
    for workers in ["1", "2", "4"] {
        each_backend(&["--io-threads", workers], |server| {
            test(server);
            // Here both Redis and Valkey hang.
            let mut client = server.connect();
            let payload = dump(&[code.into()]);
            let call: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &payload, b"FLUSH"];
            assert_eq!(show(&client.call(&call)), TIMEOUT, "{}", server.name);
            assert_eq!(run_script(&mut client, "FCALL f 0; PING"), ":1; +PONG");
        });
    }
    [Server::redis(&[]), Server::valkey(&[])].iter().flatten().for_each(test);
}

/// Each library within its time, but all of them together without end.
#[test]
fn many_slow_libraries_are_busy_and_can_be_killed() {
    each_backend(SOON, |server| {
        let code = |number| {
            format!(
                "#!lua name=l{number}\nfor i = 1, 2e6 do end\n\
                 redis.register_function('f{number}', function() end)"
            )
        };
        let codes: Vec<String> = (0..3000).map(code).collect();
        let payload = dump(&codes);
        let (mut runner, mut other) = (server.connect(), server.connect());
        let call: [&[u8]; 3] = [b"FUNCTION", b"RESTORE", &payload];
        runner.send(&call);
        wait_for_busy(&mut other);
        let shown = show(&other.ask("FUNCTION STATS"));
        assert!(shown.contains("$running_script [$name $RESTORE $command [$FUNCTION $RESTORE "));
        assert_eq!(show(&other.ask("FUNCTION KILL")), "+OK");
        let reply = show(&runner.read_reply().expect("an answer"));
        assert!(reply.contains("Script killed by user with FUNCTION KILL."), "{reply}");
        wait_until("nothing is busy", || show(&other.ask("GET x")) == "_");
        assert_eq!(show(&other.ask("FUNCTION LIST")), "[]");
    });
}

#[test]
fn a_function_that_does_not_end_can_be_killed() {
    let code = "#!lua name=l\n\
        redis.register_function('f', function() while true do end end)\n\
        redis.register_function{function_name='g', flags={'no-writes'}, callback=function() \
        while true do redis.pcall('GET', 'k') end end}";
    each_backend(&[SOON, &["--io-threads", "4"]].concat(), |server| {
        let mut other = server.connect();
        other.call(&["FUNCTION", "LOAD", code]);
        for call in ["FCALL f 1 k", "FCALL g 0", "FCALL_RO g 1 k"] {
            let mut runner = server.connect();
            runner.send(&call.split(' ').collect::<Vec<_>>());
            wait_for_busy(&mut other);
            assert_eq!(show(&other.ask("FUNCTION KILL")), "+OK");
            let reply = show(&runner.read_reply().expect("an answer"));
            assert!(reply.contains("Script killed by user with FUNCTION KILL."), "{reply}");
            wait_until("nothing is busy", || show(&other.ask("GET x")) == "_");
        }
    });
}

/// Sources that are deep, or long, for the compiler.
#[test]
fn hostile_sources_are_answered() {
    let deep = 100_000;
    let deep: Vec<String> = ["(", "{", "- ", "not ", "f(", "do ", "a[", "if a then ", "a..", "a^"]
        .iter()
        .map(|piece| format!("return {}", piece.repeat(deep)))
        .chain(["function() ", "a.b", "a(", "[==["].map(|piece| piece.repeat(deep)))
        .collect();
    each_backend(&[], |server| {
        let mut client = server.connect();
        for source in &deep {
            let reply = show(&client.call(&["EVAL", source, "0"]));
            assert!(reply.starts_with('-'), "{reply}");
            let loaded = show(&client.call(&["SCRIPT", "LOAD", source]));
            assert!(loaded.starts_with('-'), "{loaded}");
        }
        assert_eq!(show(&client.ask("PING")), "+PONG");
    });
}

#[test]
fn a_source_that_takes_long_to_compile_is_busy() {
    let source = "a = 1 ".repeat(5_000_000);
    each_backend(&["--busy-reply-threshold", "5"], |server| {
        for call in [&["EVAL", &source, "0"][..], &["SCRIPT", "LOAD", &source]] {
            let (mut runner, mut other) = (server.connect(), server.connect());
            runner.send(call);
            wait_for_busy(&mut other);
            assert_eq!(show(&other.ask("SCRIPT KILL")), "+OK");
            let reply = show(&runner.read_reply().expect("an answer"));
            assert!(reply.contains("Script killed by user with SCRIPT KILL."), "{reply}");
        }
    });
}

/// What a reply becomes is the script's memory, and so is what the script becomes as a reply.
#[test]
fn replies_count_for_the_memory_of_a_script() {
    let limit = ["--script-memory-limit", "16mb"];
    each_backend(&limit, |server| {
        let mut client = server.connect();
        push_list(&mut client, "list", 20_000);
        let script =
            "local t = {} for i = 1, 1e9 do t[i] = redis.call('LRANGE', KEYS[1], 0, -1) end";
        let reply = show(&client.call(&["EVAL", script, "1", "list"]));
        assert!(reply.contains("not enough memory"), "{reply}");
        let script =
            "local s, t = string.rep('x', 1e5), {} for i = 1, 9999 do t[i] = s end return t";
        let reply = show(&client.call(&["EVAL", script, "0"]));
        assert_eq!(reply, "-ERR the reply of the script is too large");
        assert_eq!(run_script(&mut client, "LLEN list; EVAL 'return 1' 0"), ":20000; :1");
    });
}

fn terminate(server: &Server) {
    let status = Command::new("kill").arg(server.pid().to_string()).status();
    assert!(status.expect("it is there").success());
}

/// Runs an endless script that says in the log that it runs.
fn run_endless(server: &Server, body: &str) -> Client {
    let mut runner = server.connect();
    let script = format!("{body} redis.log(redis.LOG_WARNING, 'it runs') while true do end");
    runner.send(&["EVAL", &script, "1", "k"]);
    let log = server.directory().join("log");
    wait_until("it runs", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("it runs"))
    });
    runner
}

#[test]
fn a_signal_ends_the_server_though_a_script_does_not_end() {
    for (threshold, workers, save) in
        [(NEVER, "1", "900 1"), (NEVER, "2", "900 1"), (SOON, "1", "900 1"), (SOON, "4", "")]
    {
        let options = [threshold, &["--io-threads", workers, "--save", save, "--logfile", "log"]];
        each_backend(&options.concat(), |server| {
            assert_eq!(show(&server.connect().ask("SET k v")), "+OK");
            for body in ["", "redis.call('GET', 'undeclared')"] {
                drop(run_endless(server, body));
            }
            terminate(server);
            assert!(server.wait_for_end().success());
            // Nothing of the data was in the script's way.
            assert_eq!(server.directory().join("dump.rdb").exists(), !save.is_empty());
        });
    }
}

/// It is given time to end; then nothing is saved, since that would be a part of what it does.
#[test]
fn a_script_that_has_written_does_not_keep_the_server_for_ever() {
    let options = ["--save", "900 1", "--io-threads", "2", "--logfile", "log"];
    let mut server = Server::kvasir("epoll", &[NEVER, &options].concat());
    let runner = run_endless(&server, "redis.call('SET', KEYS[1], 'half')");
    terminate(&server);
    assert!(server.wait_for_end().success());
    drop(runner);
    assert!(!server.directory().join("dump.rdb").exists());
    assert!(server.read_file("log").contains("stopping without saving"));
}

#[test]
fn the_log_has_no_part_of_a_script_that_the_end_of_the_server_ends() {
    for threshold in [NEVER, SOON] {
        let options = ["--appendonly", "yes", "--save", "", "--logfile", "log"];
        each_backend(&[threshold, &options].concat(), |server| {
            let mut other = server.connect();
            wait_until("it has loaded", || show(&other.ask("SET whole v")) == "+OK");
            let runner = run_endless(server, "redis.call('SET', KEYS[1], 'half')");
            other.send(&["SHUTDOWN", "NOSAVE"]);
            assert!(server.wait_for_end().success());
            drop(runner);
            let log = server.read_file("appendonlydir/appendonly.aof.1.incr.aof");
            assert!(log.contains("whole") && !log.contains("half"), "{log}");
        });
    }
}
