//! MULTI, EXEC, WATCH: errors, order, isolation across workers.

use std::thread;

use crate::check::{check, check_newer, run_script, show};
use crate::harness::{Server, each_backend};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_transaction_runs_what_was_queued() {
    check(&[
        (
            "MULTI; SET k 1; INCR k; GET k; EXEC; GET k",
            "+OK; +QUEUED; +QUEUED; +QUEUED; [+OK :2 $2]; $2",
        ),
        ("MULTI; EXEC", "+OK; []"),
        // An EXEC that may not run ends the transaction.
        (
            "MULTI; SET refused 1; EXEC now; EXEC; EXISTS refused",
            "+OK; +QUEUED; -EXECABORT Transaction discarded because of: wrong number of arguments \
             for 'exec' command; -ERR EXEC without MULTI; :0",
        ),
        ("MULTI; SET d 1; DISCARD; EXISTS d", "+OK; +QUEUED; +OK; :0"),
        (
            "MULTI; ping; ECHO a; TYPE none; EXEC",
            "+OK; +QUEUED; +QUEUED; +QUEUED; [+PONG $a +none]",
        ),
        (
            "SET s v; MULTI; LPUSH s a; SET s w; LPUSH s b; EXEC; GET s",
            &format!("+OK; +OK; +QUEUED; +QUEUED; +QUEUED; [{WRONG_TYPE} +OK {WRONG_TYPE}]; $w"),
        ),
    ]);
}

#[test]
fn other_databases_and_whole_ones() {
    check(&[
        (
            "MULTI; SET a 0; SELECT 5; SET a 5; GET a; SELECT 0; GET a; EXEC; GET a",
            "+OK; +QUEUED; +QUEUED; +QUEUED; +QUEUED; +QUEUED; +QUEUED; [+OK +OK +OK $5 +OK $0]; $0",
        ),
        (
            "SELECT 5; MULTI; GET a; SELECT 99; GET a; EXEC",
            "+OK; +OK; +QUEUED; +QUEUED; +QUEUED; [$5 -ERR DB index is out of range $5]",
        ),
        (
            "FLUSHALL; MULTI; SET a 1; DBSIZE; FLUSHALL; DBSIZE; SET b 1; KEYS *; EXEC",
            "+OK; +OK; +QUEUED; +QUEUED; +QUEUED; +QUEUED; +QUEUED; +QUEUED; [+OK :1 +OK :0 +OK [$b]]",
        ),
        (
            "MULTI; SWAPDB 0 1; GET b; RANDOMKEY; EXEC; SWAPDB 0 1",
            "+OK; +QUEUED; +QUEUED; +QUEUED; [+OK _ _]; +OK",
        ),
        ("MULTI; MOVE b 3; EXEC; SELECT 3; GET b", "+OK; +QUEUED; [:1]; +OK; $1"),
    ]);
}

#[test]
fn what_may_not_be_in_one() {
    let script = |call: &str, name: &str| {
        let script = format!("MULTI; {call}; SET m 1; EXEC; GET m");
        let refused = format!("-ERR Command '{name}' not allowed inside a transaction");
        (script, format!("+OK; {refused}; +QUEUED; {ABORTED}; _"))
    };
    let scripts = [
        script("MULTI", "multi"),
        script("WATCH k", "watch"),
        script("SAVE", "save"),
        script("CLIENT REPLY OFF", "client|reply"),
    ];
    let scripts: Vec<_> = scripts.iter().map(|(call, reply)| (&call[..], &reply[..])).collect();
    check_newer(&scripts);
}

#[test]
fn what_is_refused() {
    check(&[
        ("EXEC; DISCARD", "-ERR EXEC without MULTI; -ERR DISCARD without MULTI"),
        ("MULTI; UNWATCH; EXEC", "+OK; +QUEUED; [+OK]"),
        (
            "MULTI; GET; SET x 1; EXEC; EXISTS x; EXEC",
            &format!(
                "+OK; -ERR wrong number of arguments for 'get' command; +QUEUED; {ABORTED}; :0; -ERR EXEC without MULTI"
            ),
        ),
        (
            "MULTI; nope; EXEC",
            &format!("+OK; -ERR unknown command 'nope', with args beginning with: ; {ABORTED}"),
        ),
        (
            "MULTI; CLIENT nope; EXEC",
            &format!("+OK; -ERR unknown subcommand 'nope'. Try CLIENT HELP.; {ABORTED}"),
        ),
        (
            "MULTI; nope; DISCARD; MULTI; EXEC",
            "+OK; -ERR unknown command 'nope', with args beginning with: ; +OK; +OK; []",
        ),
        (
            "MULTI; SET x 1; RESET; EXEC; EXISTS x",
            "+OK; +QUEUED; +RESET; -ERR EXEC without MULTI; :0",
        ),
        ("MULTI; QUIT; PING", "+OK; +OK; !"),
        ("MULTI x", "-ERR wrong number of arguments for 'multi' command"),
        ("WATCH", "-ERR wrong number of arguments for 'watch' command"),
    ]);
}

#[test]
fn a_change_of_ones_own_ends_a_watch_too() {
    check(&[
        ("SET w 1; WATCH w; SET w 2; MULTI; GET w; EXEC", "+OK; +OK; +OK; +OK; +QUEUED; _"),
        (
            "WATCH w; MULTI; SET w 3; EXEC; MULTI; GET w; EXEC",
            "+OK; +OK; +QUEUED; [+OK]; +OK; +QUEUED; [$3]",
        ),
        ("WATCH w; SET w 2; UNWATCH; MULTI; GET w; EXEC", "+OK; +OK; +OK; +OK; +QUEUED; [$2]"),
        (
            "WATCH w; SET w 2; MULTI; DISCARD; MULTI; GET w; EXEC",
            "+OK; +OK; +OK; +OK; +OK; +QUEUED; [$2]",
        ),
        ("WATCH none w none; GET w; DEL none; MULTI; EXEC", "+OK; $2; :0; +OK; []"),
    ]);
}

/// What ends a watch, from another connection; and what does not.
#[test]
fn others_end_a_watch() {
    let changes = [
        ("SET k v", true),
        ("DEL k", true),
        ("EXPIRE k 100", true),
        ("FLUSHDB", true),
        ("FLUSHALL", true),
        ("SWAPDB 0 1", true),
        ("SWAPDB 0 0", false),
        ("GET k", false),
        ("SET other v", false),
        ("SETNX k v", false),
        ("EXPIRE none 100", false),
        ("PEXPIREAT k 1", true),
    ];
    let run = |server: &Server| {
        for (change, ends) in changes {
            let (mut watcher, mut other) = (server.connect(), server.connect());
            run_script(&mut other, "FLUSHALL; SET k 0");
            assert_eq!(run_script(&mut watcher, "WATCH k; MULTI; PING"), "+OK; +OK; +QUEUED");
            other.ask(change);
            let reply = show(&watcher.ask("EXEC"));
            assert_eq!(reply, if ends { "_" } else { "[+PONG]" }, "{} {change}", server.name);
        }
    };
    each_backend(&["--io-threads", "4"], |server| run(server));
    Server::redis(&[]).iter().for_each(run);
}

#[test]
fn a_key_whose_time_is_over_ends_a_watch_unless_it_was_over_before() {
    let run = |server: &Server| {
        let mut client = server.connect();
        run_script(&mut client, "DEBUG SET-ACTIVE-EXPIRE 0; SET k v PX 300; WATCH k; MULTI; PING");
        thread::sleep(std::time::Duration::from_millis(400));
        assert_eq!(show(&client.ask("EXEC")), "_", "{}", server.name);
        // Nor does it end one that it is deleted then, by whomever.
        for (script, replies) in [
            ("WATCH k; MULTI; GET k; EXEC", "+OK; +OK; +QUEUED; [_]"),
            ("WATCH k; GET k; MULTI; PING; EXEC", "+OK; _; +OK; +QUEUED; [+PONG]"),
            ("WATCH k; FLUSHDB; MULTI; PING; EXEC", "+OK; +OK; +OK; +QUEUED; [+PONG]"),
            ("WATCH k; GET k; SET k v; MULTI; PING; EXEC", "+OK; _; +OK; +OK; +QUEUED; _"),
        ] {
            run_script(&mut client, "SET k v PX 1");
            thread::sleep(std::time::Duration::from_millis(10));
            assert_eq!(run_script(&mut client, script), replies, "{}", server.name);
        }
    };
    each_backend(&[], |server| run(server));
    Server::redis(&[]).iter().for_each(run);
}

/// What is missing or over, and becomes one of the two, stays what it is for whoever watches.
#[test]
fn swapped_databases_end_a_watch_where_something_is_there() {
    const LIVE: &str = "SET k v";
    const OVER: &str = "SET k v PX 1";
    let run = |server: &Server| {
        let mut client = server.connect();
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        for (before, after, is_changed) in [
            ("PING", "PING", false),
            ("PING", OVER, false),
            (OVER, OVER, false),
            (OVER, "PING", false),
            ("PING", LIVE, true),
            (OVER, LIVE, true),
            (LIVE, OVER, true),
            (LIVE, "PING", true),
            (LIVE, LIVE, true),
        ] {
            let script = format!("FLUSHALL; SELECT 1; {after}; SELECT 0; {before}");
            run_script(&mut client, &script);
            thread::sleep(std::time::Duration::from_millis(10));
            let said = run_script(&mut client, "WATCH k; SWAPDB 0 1; MULTI; PING; EXEC");
            let exec = if is_changed { "_" } else { "[+PONG]" };
            let name = server.name;
            assert!(said.ends_with(exec), "{name}: {before} by {after}: {said}");
        }
    };
    each_backend(&[], |server| run(server));
    Server::redis(&[]).iter().for_each(run);
}

#[test]
fn a_client_list_shows_transactions() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let field = |line: &str, name: &str| {
            let found = line.split(' ').find_map(|field| field.strip_prefix(name));
            found.expect("the field").to_owned()
        };
        assert_eq!(field(&client.ask_text("CLIENT INFO"), "multi="), "-1");
        client.ask("MULTI");
        client.ask("PING");
        client.ask("CLIENT INFO");
        let list = server.connect().ask_text("CLIENT LIST");
        let line = list.lines().next().expect("a client");
        assert_eq!((field(line, "multi="), field(line, "flags=")), ("2".into(), "xU".into()));
    });
}

/// Money moves between accounts, by transactions that name all keys and by optimistic ones; who
/// reads all accounts at once always finds the same sum.
#[test]
fn no_money_is_lost() {
    const ACCOUNTS: usize = 10;
    each_backend(&["--io-threads", "4"], |server| {
        let name = |account: usize| format!("account:{account}");
        let mut setup = server.connect();
        for account in 0..ACCOUNTS {
            setup.call(&["SET", &name(account), "100"]);
        }
        let server = &*server;
        thread::scope(|scope| {
            for seed in 0..3 {
                scope.spawn(move || transfer_blindly(server, seed));
                scope.spawn(move || transfer_watching(server, seed));
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut reader = server.connect();
                    for _ in 0..500 {
                        let names = (0..ACCOUNTS).map(name);
                        let call: Vec<String> =
                            ["MGET".to_owned()].into_iter().chain(names).collect();
                        let shown = show(&reader.call(&call));
                        let sum: i64 = shown
                            .trim_matches(['[', ']'])
                            .split(' ')
                            .map(|one| one[1..].parse::<i64>().expect("a number"))
                            .sum();
                        assert_eq!(sum, 100 * ACCOUNTS as i64, "{shown}");
                    }
                });
            }
        });
    });

    fn transfer_blindly(server: &Server, seed: usize) {
        let mut client = server.connect();
        for round in 0..500 {
            let (from, to) = pair(seed, round);
            let script = format!("MULTI; DECRBY account:{from} 7; INCRBY account:{to} 7; EXEC");
            let replies = run_script(&mut client, &script);
            assert!(replies.starts_with("+OK; +QUEUED; +QUEUED; [:"), "{replies}");
        }
    }

    fn transfer_watching(server: &Server, seed: usize) {
        let mut client = server.connect();
        let amount = |reply: String| reply[1..].parse::<i64>().expect("a number");
        for round in 0..300 {
            let (from, to) = pair(seed + 5, round);
            loop {
                run_script(&mut client, &format!("WATCH account:{from} account:{to}"));
                let one = amount(show(&client.ask(&format!("GET account:{from}"))));
                let other = amount(show(&client.ask(&format!("GET account:{to}"))));
                let (one, other) = (one - 3, other + 3);
                let script =
                    format!("MULTI; SET account:{from} {one}; SET account:{to} {other}; EXEC");
                if run_script(&mut client, &script) == "+OK; +QUEUED; +QUEUED; [+OK +OK]" {
                    break;
                }
            }
        }
    }

    fn pair(seed: usize, round: usize) -> (usize, usize) {
        let from = (seed * 31 + round * 7) % 10;
        (from, (from + 1 + (seed + round) % 9) % 10)
    }
}

/// Without replicas none is good.
#[test]
fn writes_that_want_replicas_are_refused() {
    let text = "NOREPLICAS Not enough good replicas to write.";
    check(&[
        (
            "SET k v; CONFIG SET min-replicas-to-write 1; SET k w; GET k; MULTI; GET k; EXEC",
            &format!("+OK; +OK; -{text}; $v; +OK; +QUEUED; [$v]"),
        ),
        (
            "EVAL \"return redis.call('get', KEYS[1])\" 1 k; \
             EVAL \"return redis.pcall('set', KEYS[1], 1)\" 1 k; EVAL \"#!lua\nreturn 1\" 0",
            &format!("$v; -{text}; -{text}"),
        ),
        (
            "CONFIG SET min-slaves-max-lag 0; SET k w; CONFIG SET min-replicas-max-lag 10",
            "+OK; +OK; +OK",
        ),
        (
            "CONFIG SET min-replicas-to-write 0; MULTI; SET k x; \
             CONFIG SET min-replicas-to-write 1; EXEC; CONFIG SET min-replicas-to-write 0",
            "+OK; +OK; +QUEUED; +QUEUED; [+OK +OK]; +OK",
        ),
    ]);
}
