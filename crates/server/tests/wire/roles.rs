//! Servers that change their part, and what clients of a replica see of its primary's stream.

use kvasir_resp::value::Value;

use crate::certificates::{Certificates, free_port};
use crate::check::run_script;
use crate::harness::{Client, Server, add_strings, figure, wait_until};

type Start = fn(&[&str]) -> Option<Server>;

/// Of this maker and of others.
const ALL: [Start; 3] =
    [|options| Some(Server::kvasir("io_uring", options)), Server::redis, Server::valkey];

struct Node {
    server: Server,
    client: Client,
    port: u16,
}

impl Node {
    fn start(start: Start, options: &[&str]) -> Option<Node> {
        let port = free_port();
        let text = port.to_string();
        let own = ["--port", &text, "--repl-diskless-sync-delay", "0"];
        let server = start(&[&own, options].concat())?;
        Some(Node { client: server.connect(), server, port })
    }

    fn ours(options: &[&str]) -> Node {
        Node::start(ALL[0], options).expect("it is ours")
    }

    /// Until both say so: the primary counts a replica as online only when it has heard from it
    /// behind the snapshot.
    fn follow(&mut self, primary: &mut Node) {
        let answer = self.client.ask(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
        assert_eq!(answer, Value::Simple("OK".into()));
        wait_until("it is linked", || self.info("master_link_status:up"));
        let online = format!("port={},state=online", self.port);
        wait_until("it is online", || primary.info(&online));
    }

    fn info(&mut self, text: &str) -> bool {
        self.client.ask_text("INFO replication").contains(text)
    }

    fn is_primary(&mut self) -> bool {
        self.info("role:master")
    }
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

/// Waits until the replica has what the primary has.
fn wait_until_equal(one: &mut Node, other: &mut Node) {
    wait_until("both have the same data", || {
        one.client.ask("DEBUG DIGEST") == other.client.ask("DEBUG DIGEST")
    });
}

#[test]
fn a_replica_takes_over_without_all_data_again() {
    for (first, second) in [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)] {
        let (Some(mut one), Some(mut two)) =
            (Node::start(ALL[first], &[]), Node::start(ALL[second], &[]))
        else {
            continue;
        };
        two.follow(&mut one);
        one.client.ask("SET k 1");
        assert_eq!(one.client.ask(&format!("FAILOVER TO 127.0.0.1 {}", two.port)), ok());
        wait_until("it has taken over", || two.is_primary() && one.info("link_status:up"));
        assert!(one.info("master_failover_state:no-failover"));
        assert_eq!(two.client.ask("SET k 2"), ok());
        wait_until_equal(&mut one, &mut two);
        // And back, to whoever has everything.
        assert_eq!(two.client.ask("FAILOVER TIMEOUT 60000"), ok());
        wait_until("it has taken over", || one.is_primary() && two.info("link_status:up"));
        assert_eq!(one.client.ask("SET k 3"), ok());
        wait_until_equal(&mut two, &mut one);
        let full = figure(&mut one.client, "stats", "sync_full")
            + figure(&mut two.client, "stats", "sync_full");
        assert_eq!(full, 1);
    }
}

#[test]
fn a_failover_waits_and_can_be_given_up() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&[]));
    two.follow(&mut one);
    let stopped = Stopped::stop(&two.server);
    one.client.ask("SET k 1");
    assert_eq!(one.client.ask(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 60000", two.port)), ok());
    assert!(one.info("master_failover_state:waiting-for-sync"));
    let mut writer = one.server.connect();
    writer.send(&["SET", "k", "2"]);
    assert_eq!(one.client.ask_text("GET k"), "1");
    let error = Value::Error("ERR FAILOVER already in progress.".into());
    assert_eq!(one.client.ask("FAILOVER"), error);
    let error = Value::Error("ERR REPLICAOF not allowed while failing over.".into());
    assert_eq!(one.client.ask("REPLICAOF 127.0.0.1 1"), error);
    assert_eq!(one.client.ask("SLAVEOF NO ONE"), error);
    assert_eq!(one.client.ask("FAILOVER ABORT"), ok());
    assert_eq!(writer.read_reply(), Some(ok()));
    // Its time is over.
    assert_eq!(one.client.ask("FAILOVER TIMEOUT 50"), ok());
    wait_until("it is given up", || one.info("master_failover_state:no-failover"));
    assert!(one.is_primary());
    // Forced, it goes to whoever does not have everything.
    let forced = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 50", two.port);
    assert_eq!(one.client.ask(&forced), ok());
    wait_until("it asks", || one.info("master_failover_state:failover-in-progress"));
    assert!(!one.is_primary());
    drop(stopped);
    wait_until("it has taken over", || two.is_primary() && one.info("link_status:up"));
    wait_until_equal(&mut one, &mut two);
}

/// A server that does nothing until this is dropped.
struct Stopped(u32);

impl Stopped {
    fn stop(server: &Server) -> Stopped {
        send_signal(server.pid(), "STOP");
        Stopped(server.pid())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        send_signal(self.0, "CONT");
    }
}

fn send_signal(pid: u32, name: &str) {
    let command = format!("kill -{name} {pid}");
    let status = std::process::Command::new("sh").args(["-c", &command]).status();
    assert!(status.is_ok_and(|status| status.success()), "{command}");
}

#[test]
fn a_target_that_refuses_leaves_all_as_it_was() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&[]));
    two.follow(&mut one);
    two.client.ask("ACL SETUSER default -psync");
    assert_eq!(one.client.ask("FAILOVER"), ok());
    wait_until("it is given up", || {
        one.is_primary() && one.info("master_failover_state:no-failover")
    });
    assert_eq!(one.client.ask("SET k 1"), ok());
    wait_until_equal(&mut one, &mut two);
    assert!(two.info("role:slave"));
}

#[test]
fn a_signal_that_cron_has_not_seen_can_be_called_off() {
    let mut one = Node::ours(&[]);
    assert_eq!(one.client.ask("DEBUG PAUSE-CRON 1"), ok());
    send_signal(one.server.pid(), "TERM");
    wait_until("the signal has come", || one.client.ask("SHUTDOWN ABORT") == ok());
    assert_eq!(one.client.ask("DEBUG PAUSE-CRON 0"), ok());
    let none = Value::Error("ERR No shutdown in progress.".into());
    assert_eq!(one.client.ask("SHUTDOWN ABORT"), none);
    assert_eq!(one.client.ask("SET k 1"), ok());
}

#[test]
fn the_end_waits_for_replicas() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&[]));
    two.follow(&mut one);
    one.client.ask("SET k 1");
    let stopped = Stopped::stop(&two.server);
    one.client.ask("SET k 2");
    let mut asks = one.server.connect();
    asks.send(&["SHUTDOWN"]);
    wait_until("it waits", || {
        one.client.ask_text("INFO server").contains("shutdown_in_milliseconds:")
    });
    assert_eq!(one.client.ask_text("GET k"), "2");
    assert_eq!(one.client.ask("SHUTDOWN ABORT"), ok());
    let error = Value::Error("ERR Errors trying to SHUTDOWN. Check logs.".into());
    assert_eq!(asks.read_reply(), Some(error));
    let none = Value::Error("ERR No shutdown in progress.".into());
    assert_eq!(one.client.ask("SHUTDOWN ABORT"), none);
    assert_eq!(one.client.ask("SET k 3"), ok());
    send_signal(one.server.pid(), "TERM");
    wait_until("it waits", || {
        one.client.ask_text("INFO server").contains("shutdown_in_milliseconds:")
    });
    drop(stopped);
    assert!(one.server.wait_for_end().success());
    assert_eq!(two.client.ask_text("GET k"), "3");
}

#[test]
fn the_end_does_not_wait_for_ever() {
    let (mut one, mut two) = (Node::ours(&["--shutdown-timeout", "1"]), Node::ours(&[]));
    two.follow(&mut one);
    let stopped = Stopped::stop(&two.server);
    one.client.ask("SET k 1");
    send_signal(one.server.pid(), "TERM");
    assert!(one.server.wait_for_end().success());
    drop(stopped);
}

#[test]
fn clients_of_a_replica_hear_of_the_stream() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&["--notify-keyspace-events", "KEA"]));
    two.follow(&mut one);
    let mut listener = two.server.connect();
    listener.ask("PSUBSCRIBE __keyspace@*__:k");
    listener.ask("SUBSCRIBE news");
    listener.ask("SSUBSCRIBE shard");
    let mut cache = two.server.connect();
    cache.ask("HELLO 3");
    cache.ask("CLIENT TRACKING ON");
    cache.ask("GET k");
    let mut blocked = two.server.connect();
    blocked.send(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]);
    wait_until("it waits", || figure(&mut two.client, "clients", "blocked_clients") == 1);
    one.client.ask("SET k 1");
    one.client.ask("PUBLISH news hello");
    one.client.ask("SPUBLISH shard there");
    one.client.ask("XADD s 1-1 f v");
    let heard = |client: &mut Client, words: &[&str]| {
        let got = client.read_reply();
        let text = format!("{got:?}");
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    };
    heard(&mut listener, &["__keyspace@0__:k", "set"]);
    heard(&mut listener, &["message", "news", "hello"]);
    heard(&mut listener, &["smessage", "shard", "there"]);
    heard(&mut cache, &["invalidate", "k"]);
    heard(&mut blocked, &["1-1"]);
    // All of it counts.
    let stats = two.client.ask_text("INFO commandstats");
    for name in ["set", "publish", "spublish", "xadd"] {
        assert!(stats.contains(&format!("cmdstat_{name}:calls=1,")), "{name}: {stats}");
    }
    // In a transaction and from a script, too.
    one.client.ask("MULTI");
    one.client.ask("PUBLISH news inside");
    one.client.ask("EXEC");
    heard(&mut listener, &["message", "news", "inside"]);
    let script = "return redis.call('publish','news','script')";
    one.client.call(&["EVAL", script, "0"]);
    heard(&mut listener, &["message", "news", "script"]);
}

#[test]
fn a_replica_whose_clients_are_paused_executes_nothing() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&[]));
    two.follow(&mut one);
    one.client.ask("SET k 1");
    assert_eq!(one.client.ask("WAIT 1 0"), Value::Integer(1));
    assert_eq!(two.client.ask("CLIENT PAUSE 100000 WRITE"), ok());
    one.client.ask("SET k 2");
    assert_eq!(one.client.ask("WAIT 1 300"), Value::Integer(0));
    assert_eq!(two.client.ask_text("GET k"), "1");
    // What comes is read all the same.
    let offset = |client: &mut Client, name| figure(client, "replication", name);
    let end = offset(&mut one.client, "master_repl_offset");
    wait_until("it is read", || offset(&mut two.client, "slave_read_repl_offset") >= end);
    assert!(offset(&mut two.client, "slave_repl_offset") < end);
    assert_eq!(two.client.ask("CLIENT UNPAUSE"), ok());
    wait_until("it goes on", || two.client.ask_text("GET k") == "2");
}

#[test]
fn who_waits_is_told_that_the_server_became_a_replica() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&[]));
    let mut blocked = two.server.connect();
    blocked.send(&["BLPOP", "list", "0"]);
    wait_until("it waits", || figure(&mut two.client, "clients", "blocked_clients") == 1);
    two.follow(&mut one);
    let reply = format!("{:?}", blocked.read_reply());
    assert!(reply.contains("UNBLOCKED force unblock from blocking operation"), "{reply}");
    one.client.ask("RPUSH list a b c");
    wait_until_equal(&mut one, &mut two);
}

/// What is written in one turn with the change of role is at no replica.
#[test]
fn what_waits_for_replicas_is_not_told_once_the_server_is_one() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&["--appendonly", "yes"]));
    let mut writer = two.server.connect();
    assert_eq!(writer.ask("CLIENT DURABILITY REPLICAS 1"), ok());
    let mut other = two.server.connect();
    assert_eq!(other.ask("CLIENT DURABILITY REPLICAS 1"), ok());
    other.send(&["SET", "k", "0"]);
    let call = format!("SET k 1\r\nREPLICAOF 127.0.0.1 {}\r\n", one.port);
    writer.send_raw(call.as_bytes());
    assert_eq!((writer.read_reply(), other.read_reply()), (None, None));
    wait_until("it is linked", || two.info("master_link_status:up"));
    wait_until_equal(&mut one, &mut two);
}

/// The stream of a primary begins before what clients of this server have waited for.
#[test]
fn who_has_written_to_a_longer_log_is_served_by_the_replica() {
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&always));
    let mut writer = two.server.connect();
    assert_eq!(writer.ask(&format!("SET long {}", "x".repeat(100_000))), ok());
    one.client.ask("SET k short");
    two.follow(&mut one);
    wait_until("its log is begun", || {
        let info = two.server.connect().ask_text("INFO persistence");
        info.contains("aof_enabled:1") && info.contains("aof_rewrite_in_progress:0")
    });
    assert!(figure(&mut two.server.connect(), "replication", "slave_repl_offset") < 50_000);
    assert_eq!(writer.ask_text("GET k"), "short");
    assert_eq!(two.client.ask_text("GET k"), "short");
}

#[test]
fn a_primary_is_reached_from_the_address_that_is_named() {
    let mut one = Node::ours(&[]);
    let mut two = Node::ours(&["--bind-source-addr", "127.0.0.2"]);
    two.follow(&mut one);
    let list = one.client.ask_text("CLIENT LIST TYPE replica");
    assert!(list.contains(" addr=127.0.0.2:"), "{list}");
    let refused = two.client.ask("CONFIG SET bind-source-addr nowhere").to_string();
    assert!(refused.contains("argument must be an IP address"), "{refused}");
    assert_eq!(two.client.call(&["CONFIG", "SET", "bind-source-addr", ""]), ok());
    one.client.ask("CLIENT KILL TYPE replica");
    wait_until("it comes from another one", || {
        one.client.ask_text("CLIENT LIST TYPE replica").contains(" addr=127.0.0.1:")
    });
}

#[test]
fn keys_of_a_writable_replicas_clients_expire() {
    let (mut one, mut two) = (Node::ours(&[]), Node::ours(&["--replica-read-only", "no"]));
    two.follow(&mut one);
    two.client.ask("SET own 1 PX 1");
    let script = "redis.call('SET',KEYS[1],1,'PX',1)";
    two.client.call(&["EVAL", script, "1", "scripted"]);
    two.client.ask("SET kept 1 PX 1");
    two.client.ask("PERSIST kept");
    wait_until("they are gone", || figure(&mut two.client, "stats", "expired_keys") >= 2);
    wait_until("nobody looks for them", || {
        figure(&mut two.client, "stats", "slave_expires_tracked_keys") == 0
    });
}

#[test]
fn old_data_is_served_while_new_is_loaded() {
    let mut one = Node::ours(&["--repl-backlog-size", "1"]);
    let mut two = Node::ours(&["--repl-diskless-load", "swapdb", "--appendonly", "yes"]);
    add_strings(&mut one.client, 2000, "key", 100);
    one.client.ask("SET name old");
    two.follow(&mut one);
    wait_until_equal(&mut one, &mut two);
    two.client.ask("CONFIG SET key-load-delay 2000");
    // It misses more than the backlog has.
    let mut paused = two.server.connect();
    paused.send(&["DEBUG", "SLEEP", "0.2"]);
    one.client.ask("CLIENT KILL TYPE replica");
    one.client.ask("SET name new");
    add_strings(&mut one.client, 1000, "more", 10_000);
    wait_until("it loads beside", || figure(&mut two.client, "persistence", "async_loading") == 1);
    assert_eq!(two.client.ask_text("GET name"), "old");
    let loading = "LOADING Redis is loading the dataset in memory";
    assert_eq!(two.client.ask("BGREWRITEAOF"), Value::Error(loading.into()));
    two.client.ask("CONFIG SET key-load-delay 0");
    wait_until("it has it", || two.client.ask_text("GET name") == "new");
    wait_until_equal(&mut one, &mut two);
    assert_eq!(figure(&mut one.client, "stats", "sync_full"), 2);
}

#[test]
fn primaries_are_followed_over_tls() {
    let certificates = Certificates::new();
    let file = |name: &str, ending: &str| certificates.name(name, ending);
    let port = free_port().to_string();
    let tls = [
        ("--tls-cert-file", file("server", "crt")),
        ("--tls-key-file", file("server", "key")),
        ("--tls-ca-cert-file", file("ca", "crt")),
        ("--tls-client-cert-file", file("client", "crt")),
        ("--tls-client-key-file", file("client", "key")),
        ("--tls-replication", "yes".into()),
    ];
    let mut options: Vec<&str> = tls.iter().flat_map(|(name, value)| [*name, value]).collect();
    let own = ["--port", "0", "--repl-diskless-sync-delay", "0", "--tls-port", &port];
    let primary = Server::kvasir("epoll", &[&own, &options[..]].concat());
    let mut client = primary.connect();
    client.ask("DEBUG POPULATE 20000 key 100");
    options.extend(["--replicaof", "127.0.0.1", &port]);
    let replica = Server::kvasir("io_uring", &options);
    let mut reader = replica.connect();
    let is_linked =
        |reader: &mut Client| reader.ask_text("INFO replication").contains("master_link_status:up");
    wait_until("it is linked", || is_linked(&mut reader));
    client.ask("SET k v");
    assert_eq!(client.ask("WAIT 1 0"), Value::Integer(1));
    assert_eq!(reader.ask("DEBUG DIGEST"), client.ask("DEBUG DIGEST"));
    // Whom nobody has signed is not followed.
    let strange = Certificates::new();
    reader.ask(&format!("CONFIG SET tls-ca-cert-file {}", strange.name("ca", "crt")));
    client.ask("CLIENT KILL TYPE replica");
    wait_until("it is refused", || reader.ask_text("INFO replication").contains("status:down"));
    client.ask("SET k w");
    reader.ask(&format!("CONFIG SET tls-ca-cert-file {}", certificates.name("ca", "crt")));
    wait_until("it is linked again", || is_linked(&mut reader));
    wait_until("it has it", || reader.ask_text("GET k") == "w");
}

#[test]
fn a_call_that_fails_here_ends_a_replica_that_wants_that() {
    let (mut one, mut two) =
        (Node::ours(&[]), Node::ours(&["--propagation-error-behavior", "panic-on-replicas"]));
    two.follow(&mut one);
    two.client.ask("CONFIG SET replica-read-only no");
    two.client.ask("SET k text");
    two.client.ask("CONFIG SET replica-read-only yes");
    one.client.ask("INCR k");
    assert!(!two.server.wait_for_end().success());
}

/// A client that can follow is sent to the primary, as by Valkey; others are not.
#[test]
fn a_replica_sends_who_can_follow_to_its_primary() {
    for start in [ALL[0], ALL[2]] {
        let (Some(mut primary), Some(mut replica)) =
            (Node::start(start, &[]), Node::start(start, &[]))
        else {
            continue;
        };
        let redirect = format!("-REDIRECT 127.0.0.1:{}", primary.port);
        let mut client = replica.server.connect();
        let mut ask = |script: &str| run_script(&mut client, script);
        assert_eq!(ask("CLIENT CAPA redirect; SET a 1; MULTI; SET a 2"), "+OK; +OK; +OK; +QUEUED");
        replica.follow(&mut primary);
        assert_eq!(
            ask("EXEC; SET a 1; GET a; PING"),
            format!("{redirect}; {redirect}; {redirect}; +PONG")
        );
        let aborted = "-EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(ask("MULTI; GET a; EXEC"), format!("+OK; {redirect}; {aborted}"));
        assert_eq!(ask("READONLY; GET a; SET a 1"), format!("+OK; _; {redirect}"));
        assert_eq!(ask("READWRITE; GET a"), format!("+OK; {redirect}"));
        let read_only = "-READONLY You can't write against a read only replica.";
        assert_eq!(run_script(&mut replica.client, "GET a; SET a 1"), format!("_; {read_only}"));
    }
}

/// Who gets READONLY looks for the primary; who gets MASTERDOWN or LOADING waits for this server.
#[test]
fn a_write_to_a_replica_is_refused_for_what_it_is() {
    let told = |server: &Server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.ask("CONFIG SET replica-serve-stale-data no");
        other.ask("MULTI");
        other.ask("SET k v");
        // Nobody is there.
        client.ask("REPLICAOF 127.0.0.1 1");
        let calls = ["SET k v", "DEL k", "GET k", "DBSIZE", "PING", "FLUSHALL", "XADD s * f v"];
        let mut told: Vec<String> = calls.iter().map(|call| client.ask(call).to_string()).collect();
        told.push(other.ask("EXEC").to_string());
        told
    };
    let ours = told(&Server::kvasir("epoll", &[]));
    assert!(ours[0].contains("READONLY") && ours[2].contains("MASTERDOWN"), "{ours:#?}");
    for oracle in [Server::redis(&[]), Server::valkey(&[])].into_iter().flatten() {
        assert_eq!(ours, told(&oracle), "{}", oracle.name);
    }
}
