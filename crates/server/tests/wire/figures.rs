//! Figures of INFO and CLIENT LIST that people watch: what they say after what has happened.

use kvasir_resp::value::Value;

use crate::check::{run_script, show};
use crate::harness::{Client, Server, backends, figure, wait_until};

fn servers(options: &[&str]) -> impl Iterator<Item = Server> {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, options));
    ours.chain(Server::redis(options))
        .chain(Server::valkey(options))
        .collect::<Vec<_>>()
        .into_iter()
}

/// A field of a line of INFO, as `failed_calls` of `cmdstat_get`.
fn part(client: &mut Client, section: &str, line: &str, name: &str) -> Option<String> {
    let text = client.ask_text(&format!("INFO {section}"));
    let line = text.lines().find_map(|found| found.strip_prefix(&format!("{line}:")))?.to_owned();
    let parts = line.split(',').filter_map(|part| part.split_once('='));
    parts.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
}

/// How fast it goes is that of the last moments, not of the time since somebody last asked.
#[test]
fn rates_are_the_same_for_all_who_ask() {
    for backend in backends() {
        let server = Server::kvasir(backend, &[]);
        let (mut one, mut other) = (server.connect(), server.connect());
        other.ask_text("INFO");
        (0..1600).for_each(|_| drop(one.ask("SET k v")));
        let mut rates = [0; 3].map(|_| figure(&mut other, "stats", "instantaneous_ops_per_sec"));
        rates.sort_unstable();
        assert!(rates[0] >= 500, "{rates:?}");
        assert!(rates[2] - rates[0] <= 10, "{rates:?}");
    }
}

/// Nobody has to ask for INFO meanwhile.
#[test]
fn the_peak_of_memory_is_noted() {
    for backend in backends() {
        let server = Server::kvasir(backend, &[]);
        let mut client = server.connect();
        let value = "x".repeat(20 << 20);
        client.call(&["SET", "k", &value]);
        // Longer than the time between two looks.
        client.ask("DEBUG SLEEP 0.15");
        client.ask("DEL k");
        assert!(figure(&mut client, "memory", "used_memory_peak") > 20 << 20);
    }
}

#[test]
fn calls_that_wait_for_a_time_are_counted() {
    for server in servers(&[]) {
        let mut clients = [(); 2].map(|()| server.connect());
        clients[0].send(&["BLPOP", "k", "1000"]);
        clients[1].send(&["BLPOP", "k", "0"]);
        let mut admin = server.connect();
        let mut is = |field, count| figure(&mut admin, "clients", field) == count;
        wait_until("both wait", || is("blocked_clients", 2));
        assert!(is("clients_in_timeout_table", 1), "{}", server.name);
        server.connect().ask("RPUSH k a b");
        wait_until("none waits", || is("clients_in_timeout_table", 0));
    }
}

/// An error that ends a wait is one of its command.
#[test]
fn errors_that_end_a_wait_are_counted() {
    for server in servers(&[]) {
        let (mut client, mut admin) = (server.connect(), server.connect());
        run_script(&mut admin, "XGROUP CREATE x g $ MKSTREAM; CONFIG RESETSTAT");
        client.send(&"XREADGROUP GROUP g me BLOCK 0 STREAMS x >".split(' ').collect::<Vec<_>>());
        wait_until("it waits", || figure(&mut admin, "clients", "blocked_clients") == 1);
        admin.ask("XGROUP DESTROY x g");
        assert!(
            matches!(client.read_reply(), Some(Value::Error(text)) if text.starts_with(b"NOGROUP"))
        );
        let mut count = |section, line, name| part(&mut admin, section, line, name);
        let errors = count("errorstats", "errorstat_NOGROUP", "count");
        assert_eq!(errors.as_deref(), Some("1"), "{}", server.name);
        let failed = count("commandstats", "cmdstat_xreadgroup", "failed_calls");
        assert_eq!(failed.as_deref(), Some("1"), "{}", server.name);
    }
}

/// What a script may not call counts as rejected.
#[test]
fn calls_that_scripts_may_not_make_are_counted() {
    for server in servers(&[]) {
        let mut client = server.connect();
        client.call(&["EVAL_RO", "return redis.pcall('set', KEYS[1], 1)", "1", "k"]);
        let mut set = |name| part(&mut client, "commandstats", "cmdstat_set", name);
        let counts = ["calls", "rejected_calls", "failed_calls"].map(|name| set(name).unwrap());
        assert_eq!(counts, ["0", "1", "0"], "{}", server.name);
    }
}

/// As many as there were keys, and those only that took long.
#[test]
fn what_is_freed_in_the_background_is_counted_by_keys() {
    for server in servers(&[]) {
        let mut client = server.connect();
        for key in 0..20 {
            client.ask(&format!("SET {key} v"));
        }
        client.ask("FLUSHDB ASYNC");
        let freed = |client: &mut Client, count| {
            wait_until("nothing is left to free", || {
                figure(client, "memory", "lazyfree_pending_objects") == 0
                    && figure(client, "memory", "lazyfreed_objects") >= count
            });
            figure(client, "memory", "lazyfreed_objects")
        };
        assert_eq!(freed(&mut client, 20), 20, "{}", server.name);
        client.ask("CONFIG RESETSTAT");
        for call in ["XADD s * a b", "XGROUP CREATE s g $", "XGROUP DESTROY s g", "UNLINK s"] {
            client.ask(call);
        }
        assert_eq!(freed(&mut client, 0), 0, "{}", server.name);
        client.ask("CONFIG SET stream-node-max-entries 1");
        (0..200).for_each(|_| drop(client.ask("XADD s * a b")));
        client.ask("XGROUP CREATE s g 0");
        client.ask("XREADGROUP GROUP g me COUNT 200 STREAMS s >");
        client.ask("UNLINK s");
        assert_eq!(freed(&mut client, 1), 1, "{}", server.name);
    }
}

/// What Valkey tells of a client's traffic.
#[test]
fn a_line_tells_what_came_and_went() {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    for server in ours.chain(Server::valkey(&[])) {
        let mut client = server.connect();
        run_script(&mut client, "SET k v; GET k; NOSUCH");
        let line = client.ask_text("CLIENT LIST");
        let tail = " tot-net-in=89 tot-net-out=71 tot-cmds=2";
        assert!(line.trim_end().ends_with(tail), "{}: {line}", server.name);
    }
}

#[test]
fn the_zone_is_told_where_there_is_one() {
    let server = Server::kvasir("epoll", &["--availability-zone", "north"]);
    let mut client = server.connect();
    let hello = show(&client.ask("HELLO 2"));
    assert!(hello.ends_with("$modules [] $availability_zone $north]"), "{hello}");
    assert!(client.ask_text("INFO server").contains("\navailability_zone:north\r\n"));
    client.call(&["CONFIG", "SET", "availability-zone", ""]);
    assert!(show(&client.ask("HELLO 2")).ends_with("$modules []]"));
}

#[test]
fn listeners_are_told_by_their_kind() {
    let server = Server::kvasir("epoll", &["--bind", "127.0.0.1 -::1"]);
    let text = server.connect().ask_text("INFO server");
    let path = server.socket();
    let path = path.file_name().unwrap().to_string_lossy();
    let unix = text.lines().find(|line| line.starts_with("listener1:name=unix,bind=")).unwrap();
    assert!(unix.ends_with(&*path), "{unix}");
}
