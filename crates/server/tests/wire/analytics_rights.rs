//! EXPORT, GRAPH and MEMORY REPORT: what a user may have of them, whose it is, and what becomes of
//! it once its rights, its client or itself are gone.

use kvasir_resp::value::Value;

use crate::analytics::{begin, pull_all};
use crate::blocking::wait_for;
use crate::check::show;
use crate::harness::{Client, Server, each_backend, figure, wait_until};

const GUEST: &str = "ACL SETUSER guest on nopass ~open:* +@connection +@analytics +memory|report";
const LOST: &str = "-NOPERM the rights that this was asked for with are gone";

/// A client of this user, who needs no password.
fn connect_as(server: &Server, user: &str) -> Client {
    let mut client = server.connect();
    assert_eq!(show(&client.ask(&format!("AUTH {user} x"))), "+OK");
    client
}

fn active(client: &mut Client) -> u64 {
    figure(client, "analytics", "exports_active")
}

#[test]
fn rights_are_asked_again_at_every_pull() {
    each_backend(&["--analytics-reader-timeout", "1000000"], |server| {
        let mut client = server.connect();
        client.ask("MSET open:1 1 open:2 2 secret:1 4");
        client.ask(GUEST);
        let mut guest = connect_as(server, "guest");
        // Who may read more, or as much in other words, goes on.
        let ids = begin(&mut guest, "TYPE string");
        client.ask("ACL SETUSER guest %R~more:* +get");
        assert_eq!(pull_all(&mut guest, ids[0]).len(), 3);
        for change in ["resetkeys ~other:*", "-@analytics +export|next"] {
            client.ask(&format!("{GUEST} resetkeys ~open:*"));
            let ids = begin(&mut guest, "TYPE string");
            let next = format!("EXPORT NEXT {}", ids[0]);
            assert!(matches!(guest.ask(&next), Value::Bulk(_)));
            client.ask(&format!("ACL SETUSER guest {change}"));
            assert_eq!(show(&guest.ask(&next)), LOST, "{change}");
            wait_until("it ends", || active(&mut client) == 0);
            let text = show(&guest.ask(&next));
            assert!(text.starts_with("-ERR no such export"), "{text}");
        }
        // So it is with a free user who is free no more.
        client.ask("ACL SETUSER chief on nopass ~* &* +@all");
        let mut chief = connect_as(server, "chief");
        let ids = begin(&mut chief, "TYPE string");
        client.ask("ACL SETUSER chief resetkeys ~open:*");
        assert_eq!(show(&chief.ask(&format!("EXPORT NEXT {}", ids[0]))), LOST);
        wait_until("all is given back", || {
            figure(&mut client, "analytics", "analytics_memory_used") == 0
        });
    });
}

#[test]
fn a_user_of_the_same_name_is_another() {
    let server = Server::kvasir("epoll", &["--analytics-reader-timeout", "1000000"]);
    let mut client = server.connect();
    client.ask("MSET open:1 1 open:2 2");
    client.ask(GUEST);
    let mut guest = connect_as(&server, "guest");
    let ids = begin(&mut guest, "TYPE string STREAMS 2");
    client.ask("ACL DELUSER guest");
    client.ask("ACL SETUSER guest on nopass ~* &* +@all");
    let mut heir = connect_as(&server, "guest");
    for id in &ids {
        for call in ["NEXT", "END"] {
            let text = show(&heir.ask(&format!("EXPORT {call} {id}")));
            assert!(text.starts_with("-ERR no such export"), "{text}");
        }
    }
    wait_until("they end with their client", || active(&mut client) == 0);
}

const ENDLESS: &str = "GRAPH.PAGERANK MATCH open:* ITERATIONS 1000000";

/// Nodes enough for an endless graph not to end.
fn set_graph(client: &mut Client) {
    for node in 0..500 {
        client.ask(&format!("SADD open:{node} {} {}", node + 1, node * 7 % 500));
    }
}

#[test]
fn rights_are_asked_again_before_a_graph_is_told() {
    let server = Server::kvasir("epoll", &[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    set_graph(&mut client);
    for call in ["GRAPH.DEGREE_RO MATCH open:*", "GRAPH.DEGREE MATCH open:* STORE open:ranks"] {
        other.ask(GUEST);
        other.ask("ACL SETUSER guest resetkeys ~open:*");
        let mut guest = connect_as(&server, "guest");
        wait_for(&server, &mut client, ENDLESS);
        wait_for(&server, &mut guest, call);
        other.ask("ACL SETUSER guest resetkeys ~other:*");
        let info = other.ask_text("INFO analytics");
        let first = info.lines().find_map(|line| line.strip_prefix("graph_0:id=")).unwrap();
        let (id, _) = first.split_once(',').unwrap();
        assert_eq!(show(&other.ask(&format!("GRAPH.CANCEL {id}"))), ":1");
        assert_eq!(show(&client.read_reply().unwrap()), "-ERR cancelled");
        assert_eq!(show(&guest.read_reply().unwrap()), LOST, "{call}");
        assert_eq!(show(&other.ask("EXISTS open:ranks")), ":0");
    }
}

/// What nobody pulls ends with its client; what another has begun to pull does not.
#[test]
fn streams_that_nobody_pulls_end_with_their_client() {
    each_backend(&["--analytics-reader-timeout", "1000000"], |server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.ask("DEBUG POPULATE 1000 key 10");
        begin(&mut client, "STREAMS 64");
        assert_eq!(active(&mut other), 64);
        drop(client);
        wait_until("they end", || active(&mut other) == 0);
        assert_eq!(figure(&mut other, "analytics", "analytics_memory_used"), 0);
        let mut client = server.connect();
        let ids = begin(&mut client, "TYPE string STREAMS 2");
        assert!(matches!(other.ask(&format!("EXPORT NEXT {}", ids[0])), Value::Bulk(_)));
        drop(client);
        wait_until("one ends", || active(&mut other) == 1);
        assert!(!pull_all(&mut other, ids[0]).is_empty());
        let text = show(&other.ask(&format!("EXPORT NEXT {}", ids[1])));
        assert!(text.starts_with("-ERR no such export"), "{text}");
    });
}

#[test]
fn who_may_not_do_everything_leaves_half_to_others() {
    let server = Server::kvasir("epoll", &["--analytics-memory", "40mb"]);
    let mut client = server.connect();
    client.ask(GUEST);
    let mut guest = connect_as(&server, "guest");
    let refused = "-ERR a user has no more than 32 streams at a time";
    assert_eq!(show(&guest.ask("EXPORT BEGIN STREAMS 33")), refused);
    let text = show(&guest.ask("EXPORT BEGIN STREAMS 6"));
    let full = "-ERR analytics-memory is full: ";
    assert!(text.starts_with(full) && text.ends_with(" of 41943040 are left"), "{text}");
    begin(&mut guest, "STREAMS 5");
    assert!(show(&guest.ask("EXPORT BEGIN")).starts_with(full));
    begin(&mut client, "STREAMS 5");
    assert!(show(&client.ask("EXPORT BEGIN")).starts_with(full));
}

#[test]
fn memory_is_a_part_of_that_of_the_data() {
    let server = Server::kvasir("epoll", &["--maxmemory", "100mb"]);
    let mut client = server.connect();
    for (maxmemory, bytes) in [("100mb", 25 << 20), ("1mb", 16 << 20), ("9gb", 512 << 20)] {
        client.ask(&format!("CONFIG SET maxmemory {maxmemory}"));
        assert_eq!(figure(&mut client, "analytics", "analytics_memory_max"), bytes, "{maxmemory}");
    }
    client.ask("CONFIG SET maxmemory 0");
    assert_eq!(figure(&mut client, "analytics", "analytics_memory_max"), 512 << 20);
    let get = |client: &mut Client| show(&client.ask("CONFIG GET analytics-memory"));
    assert_eq!(get(&mut client), "[$analytics-memory $auto]");
    client.ask("CONFIG SET analytics-memory 1mb");
    assert_eq!(get(&mut client), "[$analytics-memory $1048576]");
    assert!(show(&client.ask("EXPORT BEGIN")).starts_with("-ERR analytics-memory is full"));
    assert_eq!(show(&client.ask("CONFIG SET analytics-memory AUTO")), "+OK");
    begin(&mut client, "");
}

#[test]
fn graphs_take_no_longer_than_they_may() {
    let server = Server::kvasir("epoll", &["--analytics-timeout", "1"]);
    let (mut client, mut other) = (server.connect(), server.connect());
    set_graph(&mut client);
    let late = "-ERR it takes longer than analytics-timeout";
    assert_eq!(show(&client.ask(ENDLESS)), late);
    wait_until("it ends", || figure(&mut other, "analytics", "graphs_active") == 0);
    assert_eq!(figure(&mut other, "analytics", "analytics_memory_used"), 0);
    assert!(show(&client.ask("GRAPH.DEGREE MATCH open:*")).contains("$nodes :501"));
}

/// What others have begun ends only who may change the configuration.
#[test]
fn only_what_is_ones_own_is_cancelled() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    set_graph(&mut client);
    client.ask(GUEST);
    client.ask("ACL SETUSER guest +memory");
    let (mut guest, mut own) = (connect_as(&server, "guest"), connect_as(&server, "guest"));
    wait_for(&server, &mut client, ENDLESS);
    wait_for(&server, &mut own, ENDLESS);
    assert_eq!(show(&guest.ask("GRAPH.CANCEL 1")), ":0");
    assert_eq!(show(&guest.ask("MEMORY REPORT CANCEL")), ":0");
    assert_eq!(show(&guest.ask("GRAPH.CANCEL ALL")), ":1");
    assert_eq!(show(&own.read_reply().unwrap()), "-ERR cancelled");
    let mut other = server.connect();
    let active = |other: &mut Client| figure(other, "analytics", "graphs_active");
    wait_until("one is left", || active(&mut other) == 1);
    other.ask("ACL SETUSER guest +config|set");
    assert_eq!(show(&guest.ask("GRAPH.CANCEL ALL")), ":1");
    assert_eq!(show(&client.read_reply().unwrap()), "-ERR cancelled");
}

/// Who traces others lives on that right as who subscribes does on his.
#[test]
fn who_may_trace_no_more_hears_no_more() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("ACL SETUSER watcher on nopass ~* &* +@all");
        let mut watcher = connect_as(server, "watcher");
        assert_eq!(show(&watcher.ask("CLIENT TRACE USER default")), "+OK");
        client.ask("PING");
        assert!(show(&watcher.read_reply().unwrap()).contains("PING"));
        client.ask("ACL SETUSER watcher -client|trace");
        while watcher.read_reply().is_some() {}
    });
}
