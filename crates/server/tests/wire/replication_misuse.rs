//! Primaries that lie, replicas that do not answer, links that are refused: nobody gets other data
//! than the primary's, and nobody waits for ever.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;

use crate::aof::stop;
use crate::certificates::free_port;
use crate::harness::{Client, DEADLINE, Server, figure, wait_until, wait_until_loaded};
use crate::saving::{directory, path};

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// A server that says what a test wants to a replica.
struct Liar(TcpListener);

/// A link to a replica.
struct Link(TcpStream);

impl Liar {
    fn new() -> (Liar, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (Liar(listener), port)
    }

    /// The next link, once it has asked for data; and what it has said then.
    fn accept(&self) -> (Link, String) {
        let (stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut link = Link(stream);
        loop {
            let words = link.hear();
            if words.starts_with("PSYNC ") {
                return (link, words);
            }
            link.say(b"+OK\r\n");
        }
    }
}

impl Link {
    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next call of the replica; a bare line end is an empty one.
    fn hear(&mut self) -> String {
        let mut words = Vec::new();
        let head = self.line();
        let Some(count) = head.strip_prefix('*') else { return head };
        for _ in 0..count.parse::<usize>().unwrap() {
            self.line();
            words.push(self.line());
        }
        words.join(" ")
    }

    fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while self.0.read_exact(&mut byte).map(|()| byte[0] != b'\n').unwrap() {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap().trim_end().into()
    }

    /// Sends all data of a moment, which a server has saved.
    fn give(&mut self, offset: u64, snapshot: &[u8]) {
        self.say(format!("+FULLRESYNC {ID} {offset}\r\n").as_bytes());
        self.say(format!("${}\r\n", snapshot.len()).as_bytes());
        self.say(snapshot);
    }

    fn call(&mut self, words: &[&str]) {
        self.say(&encode_request(words));
    }

    /// Waits until the replica says that it has executed so much.
    fn wait_for_ack(&mut self, offset: u64) {
        while !self.hear().starts_with(&format!("REPLCONF ACK {offset}")) {}
    }
}

/// A file of these keys, as a primary has it.
fn snapshot_of(calls: &[&str]) -> Vec<u8> {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    calls.iter().for_each(|call| assert!(!client.ask(call).is_error()));
    assert_eq!(client.ask("SAVE"), Value::Simple("OK".into()));
    std::fs::read(server.directory().join("dump.rdb")).unwrap()
}

fn replica_of(port: u16, options: &[&str]) -> (Server, Client) {
    let port = port.to_string();
    let own = ["--replicaof", "127.0.0.1", &port];
    let server = Server::kvasir("epoll", &[&own, options].concat());
    let client = server.connect();
    (server, client)
}

fn length(words: &[&str]) -> u64 {
    encode_request(words).len() as u64
}

/// Pieces that are none end the link, and nothing of them is executed.
#[test]
fn what_is_no_packed_piece_ends_the_link() {
    let (liar, port) = Liar::new();
    let (_server, mut client) = replica_of(port, &[]);
    let snapshot = snapshot_of(&["SET a 1"]);
    // A call that is whole, but not what its head says.
    let call = encode_request(&["SET", "a", "2"]);
    let len = call.len() as u32;
    let piece = |size: u32, algorithm: u8, len: u32| {
        [&size.to_le_bytes()[..], &[algorithm], &len.to_le_bytes(), &call].concat()
    };
    let pieces = [
        piece(u32::MAX, 0, len),
        piece(2, 0, len),
        piece(len + 5, 9, len),
        piece(len + 5, 3, len),
        piece(len + 5, 2, u32::MAX),
        piece(len + 5, 0, len + 1),
    ];
    for piece in pieces {
        let (mut link, _) = liar.accept();
        link.say(format!("+FULLRESYNC {ID} 100 packed\r\n").as_bytes());
        link.say(format!("${}\r\n", snapshot.len()).as_bytes());
        link.say(&snapshot);
        link.wait_for_ack(100);
        link.say(&piece);
        while link.0.read(&mut [0; 100]).is_ok_and(|size| size > 0) {}
        assert_eq!(client.ask_text("GET a"), "1", "{}", piece.escape_ascii());
    }
}

#[test]
fn what_cannot_be_executed_leads_to_all_data_again() {
    let (liar, port) = Liar::new();
    let (_server, mut client) = replica_of(port, &[]);
    let snapshot = snapshot_of(&["SET a 1"]);
    let streams: [&[u8]; 4] = [
        b"*2\r\n$6\r\nNOSUCH\r\n$1\r\na\r\n",
        // No part of a transaction is executed.
        b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n2\r\n*1\r\n$6\r\nNOSUCH\r\n*1\r\n$4\r\nEXEC\r\n",
        b"*1\r\n$3\r\nSET!!",
        b"hello\r\n",
    ];
    for stream in streams {
        let (mut link, asked) = liar.accept();
        assert!(!asked.contains(ID), "it wants to go on: {asked}");
        link.give(100, &snapshot);
        link.wait_for_ack(100);
        assert_eq!(client.ask_text("GET a"), "1");
        link.say(stream);
        // It leaves before it is asked to.
        while link.0.read(&mut [0; 100]).is_ok_and(|size| size > 0) {}
        assert_eq!(client.ask_text("GET a"), "1");
    }
}

#[test]
fn a_snapshot_that_is_broken_leaves_nothing_and_no_place_to_go_on_from() {
    let (liar, port) = Liar::new();
    let (_server, mut client) = replica_of(port, &["--appendonly", "yes"]);
    let snapshot = snapshot_of(&["SET a 1", "SET b 2"]);
    let (mut link, _) = liar.accept();
    link.give(100, &snapshot);
    link.wait_for_ack(100);
    drop(link);
    let (mut link, asked) = liar.accept();
    assert_eq!(asked, format!("PSYNC {ID} 101"));
    let mut broken = snapshot.clone();
    let last = broken.len() - 12;
    broken[last] ^= 1;
    link.give(200, &broken);
    // Half of the data is no data: it asks for all of it.
    let (mut link, asked) = liar.accept();
    assert_eq!(asked, "PSYNC ? -1");
    assert_eq!(client.ask("DBSIZE"), Value::Integer(0));
    link.give(300, &snapshot);
    link.wait_for_ack(300);
    assert_eq!(client.ask("DBSIZE"), Value::Integer(2));
}

#[test]
fn a_transaction_with_functions_counts_as_long_as_it_is() {
    let (liar, port) = Liar::new();
    let (_server, mut client) = replica_of(port, &[]);
    let (mut link, _) = liar.accept();
    link.give(0, &snapshot_of(&[]));
    let code = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    let calls: [&[&str]; 4] =
        [&["MULTI"], &["SET", "a", "1"], &["FUNCTION", "LOAD", code], &["EXEC"]];
    calls.iter().for_each(|call| link.call(call));
    let end: u64 = calls.iter().map(|call| length(call)).sum();
    link.call(&["REPLCONF", "GETACK", "*"]);
    link.wait_for_ack(end + length(&["REPLCONF", "GETACK", "*"]));
    assert_eq!(client.ask_text("GET a"), "1");
    let list = format!("{:?}", client.ask("FUNCTION LIST"));
    assert!(list.contains("\"lib\""), "no library lib: {list}");
}

#[test]
fn while_it_loads_the_primary_hears_of_it_and_clients_wait() {
    let (liar, port) = Liar::new();
    // Ten keys take five seconds.
    let (_server, mut client) = replica_of(port, &["--key-load-delay", "500000"]);
    let keys: Vec<String> = (0..10).map(|number| format!("SET key{number} x")).collect();
    let snapshot = snapshot_of(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut link, _) = liar.accept();
    link.give(100, &snapshot);
    assert_eq!(link.hear(), "", "a bare line's end");
    assert!(client.ask("GET key0").is_error());
    client.ask("CONFIG SET key-load-delay 0");
    link.wait_for_ack(100);
    assert_eq!(client.ask("DBSIZE"), Value::Integer(10));
}

/// Where Redis would load what comes at once, that it comes counts as loading.
#[test]
fn a_snapshot_that_is_to_be_swapped_in_is_loaded_while_it_comes() {
    let (liar, port) = Liar::new();
    let (server, mut client) =
        replica_of(port, &["--repl-diskless-load", "swapdb", "--logfile", "log"]);
    let (mut link, _) = liar.accept();
    let snapshot = snapshot_of(&["SET a 1"]);
    let (head, rest) = snapshot.split_at(snapshot.len() / 2);
    let begin = |link: &mut Link, offset: u64| {
        link.say(format!("+FULLRESYNC {ID} {offset}\r\n${}\r\n", snapshot.len()).as_bytes());
        link.say(head);
    };
    let loads = |client: &mut Client, name| figure(client, "persistence", name) == 1;
    begin(&mut link, 100);
    wait_until("it loads", || loads(&mut client, "loading"));
    assert!(!loads(&mut client, "async_loading"));
    link.say(rest);
    link.wait_for_ack(100);
    drop(link);
    // Of the same history, what there is may be read meanwhile; it stays if no more comes.
    let (mut link, _) = liar.accept();
    begin(&mut link, 200);
    wait_until("it loads aside", || loads(&mut client, "async_loading"));
    assert!(!loads(&mut client, "loading"));
    assert_eq!(client.ask_text("GET a"), "1");
    drop(link);
    wait_until("it has given up", || !loads(&mut client, "async_loading"));
    assert_eq!(client.ask_text("GET a"), "1");
    assert!(server.read_file("log").contains("Internal error in RDB reading offset"));
}

/// In a pause nothing is executed; that nothing comes is noticed all the same.
#[test]
fn a_primary_that_is_silent_in_a_pause_is_given_up() {
    let (liar, port) = Liar::new();
    let (_server, mut client) = replica_of(port, &["--repl-timeout", "1"]);
    let (mut link, _) = liar.accept();
    link.give(100, &snapshot_of(&["SET a 1"]));
    link.wait_for_ack(100);
    assert_eq!(client.ask("CLIENT PAUSE 1000000 WRITE"), Value::Simple("OK".into()));
    // It goes to somebody who may be there.
    let (_again, asked) = liar.accept();
    assert_eq!(asked, format!("PSYNC {ID} 101"));
}

#[test]
fn without_a_link_stale_data_is_served_or_not_and_nobody_may_follow() {
    let (_server, mut client) = replica_of(free_port(), &[]);
    assert_eq!(client.ask("GET a"), Value::Null);
    let error = "NOMASTERLINK Can't SYNC while not connected with my master";
    assert_eq!(client.ask("PSYNC ? -1"), Value::Error(error.into()));
    let stale = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    client.ask("CONFIG SET replica-serve-stale-data no");
    assert_eq!(client.ask("GET a"), Value::Error(stale.into()));
    // A script is refused as a whole, or the calls in it that see data.
    let look = "return redis.call('GET', 'a')";
    let mut eval = |code: &str| client.call(&["EVAL", code, "0"]);
    assert_eq!(eval(look), Value::Error(stale.into()));
    assert_eq!(eval(&format!("#!lua flags=no-writes\n{look}")), Value::Error(stale.into()));
    let refused = eval(&format!("#!lua flags=no-writes,allow-stale\n{look}")).to_string();
    assert!(refused.contains("ERR Can not execute the command on a stale replica"), "{refused}");
    let echo = "#!lua flags=no-writes,allow-stale\nreturn redis.call('ECHO', 'b')";
    assert_eq!(eval(echo).to_string(), "\"b\"");
    assert!(client.ask_text("INFO replication").contains("master_link_status:down"));
    let waits = client.ask("WAIT 1 10");
    assert!(waits.is_error(), "{waits:?}");
    client.ask("REPLICAOF NO ONE");
    assert_eq!(client.ask("GET a"), Value::Null);
    assert_eq!(client.ask("REPLICAOF a 99999"), Value::Error("ERR Invalid master port".into()));
}

/// Why a replica gets all data though it asked to go on stands in the log.
#[test]
fn why_a_replica_does_not_go_on_is_told() {
    let directory = directory();
    let log = directory.path().join("log");
    let options = ["--repl-diskless-sync-delay", "0", "--logfile", log.to_str().unwrap()];
    let primary =
        Server::kvasir("epoll", &[&options[..], &["--repl-backlog-size", "1mb"]].concat());
    let mut client = primary.connect();
    let ask = |id: &str, offset: &str| {
        let mut replica = UnixStream::connect(primary.socket()).unwrap();
        replica.set_read_timeout(Some(DEADLINE)).unwrap();
        replica.write_all(&encode_request(&["PSYNC", id, offset])).unwrap();
        // Bare line ends say that the link is alive.
        let mut first = [b'\n'];
        while first == *b"\n" {
            replica.read_exact(&mut first).unwrap();
        }
        let mut rest = [0; 10];
        replica.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"FULLRESYNC", "{id} {offset}");
    };
    ask("?", "-1");
    let text = || std::fs::read_to_string(&log).unwrap();
    assert!(!text().contains("not accepted"), "{}", text());
    let info = client.ask_text("INFO replication");
    let id = info.lines().find_map(|line| line.strip_prefix("master_replid:")).unwrap().to_owned();
    ask(ID, "1");
    let mismatch = format!(
        "Partial resynchronization not accepted: Replication ID mismatch (Replica asked for \
         '{ID}', my replication IDs are '{id}' and 'none')"
    );
    assert!(text().contains(&mismatch), "{}", text());
    ask("a\r\nb", "1");
    assert!(text().contains("(Replica asked for 'a"), "{}", text());
    ask(&id, "4000000000000000000");
    let beyond = "greater than the master replication offset asked=4000000000000000000 end=";
    assert!(text().contains(beyond), "{}", text());
    for number in 0..100 {
        client.ask(&format!("SET key{number} {}", "x".repeat(30_000)));
    }
    wait_until("little is kept", || {
        figure(&mut client, "replication", "connected_slaves") == 0
            && figure(&mut client, "replication", "repl_backlog_histlen") <= 1 << 20
    });
    ask(&id, "1");
    assert!(
        text().contains("lack of backlog (Replica request was: 1) backlog: from="),
        "{}",
        text()
    );
}

#[test]
fn a_password_is_asked_for_and_given() {
    let port = free_port().to_string();
    let primary = Server::kvasir("epoll", &["--port", &port, "--repl-diskless-sync-delay", "0"]);
    let mut client = primary.connect();
    client.ask("SET a 1");
    client.ask("ACL SETUSER follower on >secret +psync +replconf +ping");
    client.ask("ACL SETUSER default resetpass >other");
    let number = port.parse().unwrap();
    let (_server, mut reader) = replica_of(number, &["--masteruser", "follower"]);
    wait_until("it has tried", || {
        reader.ask_text("INFO replication").contains("master_link_status:down")
    });
    assert_eq!(reader.ask("GET a"), Value::Null);
    reader.ask("CONFIG SET masterauth secret");
    wait_until("it has the data", || reader.ask("GET a") != Value::Null);
}

#[test]
fn a_replica_that_is_too_far_behind_is_closed() {
    let primary = Server::kvasir("epoll", &["--repl-diskless-sync-delay", "0"]);
    let mut client = primary.connect();
    client.call(&["CONFIG", "SET", "client-output-buffer-limit", "replica 1mb 0 0"]);
    let mut deaf = UnixStream::connect(primary.socket()).unwrap();
    deaf.write_all(b"PSYNC ? -1\r\n").unwrap();
    wait_until("it is a replica", || figure(&mut client, "replication", "connected_slaves") == 1);
    let value = "x".repeat(100_000);
    wait_until("it is closed", || {
        client.call(&["SET", "a", &value]);
        figure(&mut client, "replication", "connected_slaves") == 0
    });
}

/// A primary that names no history, or no place in one, is not believed: the log has nothing that
/// its server would not read.
#[test]
fn words_of_a_primary_that_name_nothing_end_the_link() {
    let (liar, port) = Liar::new();
    let directory = directory();
    let log = directory.path().join("log");
    let options = ["--appendonly", "yes", "--dir", path(&directory)];
    let with_log = [&options[..], &["--logfile", log.to_str().unwrap()]].concat();
    let (server, client) = replica_of(port, &with_log);
    let (long, odd, beyond) = ("a".repeat(1100), ID.replace('0', "g"), (1_u64 << 62) + 1);
    let answers = [
        format!("+FULLRESYNC {long} 1"),
        format!("+FULLRESYNC {odd} 1"),
        format!("+FULLRESYNC {} 1", &ID[1..]),
        format!("+FULLRESYNC {ID} -1"),
        format!("+FULLRESYNC {ID} +1"),
        format!("+FULLRESYNC {ID} {beyond}"),
        format!("+CONTINUE {long}"),
        format!("+CONTINUE {odd}"),
    ];
    for answer in answers {
        let (mut link, _) = liar.accept();
        link.say(format!("{answer}\r\n").as_bytes());
        while link.0.read(&mut [0; 100]).is_ok_and(|size| size > 0) {}
    }
    let (mut link, _) = liar.accept();
    link.give(100, &snapshot_of(&["SET a 1"]));
    link.wait_for_ack(100);
    link.call(&["SET", "b", "2"]);
    link.wait_for_ack(100 + length(&["SET", "b", "2"]));
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches("it names a history that is none: ").count(), 5, "{text}");
    assert_eq!(text.matches("it names an offset that is none: ").count(), 3, "{text}");
    assert!(!text.contains(&long), "the log has the beginning of it: {text}");
    stop(server, client);
    let server = Server::kvasir("epoll", &options);
    let mut client = server.connect();
    wait_until_loaded(&mut client);
    assert_eq!((&*client.ask_text("GET a"), &*client.ask_text("GET b")), ("1", "2"));
}

/// What it lacked when it came it would lack again.
#[test]
fn a_replica_that_comes_again_far_behind_is_not_closed_for_that() {
    let port = free_port().to_string();
    let primary = Server::kvasir("epoll", &["--port", &port, "--repl-diskless-sync-delay", "0"]);
    let mut client = primary.connect();
    client.ask("CONFIG SET repl-backlog-size 10mb");
    client.call(&["CONFIG", "SET", "client-output-buffer-limit", "replica 100kb 100kb 0"]);
    let (_server, mut reader) = replica_of(port.parse().unwrap(), &[]);
    let up =
        |reader: &mut Client| reader.ask_text("INFO replication").contains("master_link_status:up");
    wait_until("it has all", || up(&mut reader));
    let value = "x".repeat(3_000_000);
    client.ask("MULTI");
    client.ask("CLIENT KILL TYPE replica");
    client.call(&["SET", "a", &value]);
    client.ask("EXEC");
    wait_until("it has the rest", || reader.ask("STRLEN a") == Value::Integer(3_000_000));
    let (whole, parts) = (
        figure(&mut client, "stats", "sync_full"),
        figure(&mut client, "stats", "sync_partial_ok"),
    );
    assert_eq!((whole, parts), (1, 1));
}

#[test]
fn the_backlog_obeys_its_options_and_goes_when_nobody_has_come_for_long() {
    let primary = Server::kvasir("epoll", &["--repl-diskless-sync-delay", "0"]);
    let mut client = primary.connect();
    // Who only says something about replication is no replica.
    assert_eq!(client.ask("REPLCONF listening-port 1"), Value::Simple("OK".into()));
    assert_eq!(figure(&mut client, "replication", "connected_slaves"), 0);
    let mut replica = UnixStream::connect(primary.socket()).unwrap();
    replica.write_all(b"PSYNC ? -1\r\n").unwrap();
    let active = |client: &mut Client| figure(client, "replication", "repl_backlog_active");
    wait_until("there is a backlog", || active(&mut client) == 1);
    for number in 0..100 {
        client.ask(&format!("SET key{number} {}", "x".repeat(30_000)));
    }
    let kept = |client: &mut Client| figure(client, "replication", "repl_backlog_histlen");
    assert!(kept(&mut client) > 3_000_000);
    client.ask("CONFIG SET repl-backlog-size 100kb");
    drop(replica);
    wait_until("less is kept", || kept(&mut client) <= 100 * 1024);
    // Who has missed more gets everything, though the log still has it.
    let end = figure(&mut client, "replication", "master_repl_offset");
    let info = client.ask_text("INFO replication");
    let history = info.lines().find_map(|line| line.strip_prefix("master_replid:")).unwrap();
    for (missed, answer) in [(150 << 10, "+FULLRESYNC"), (90 << 10, "+CONTINUE")] {
        let mut replica = UnixStream::connect(primary.socket()).unwrap();
        replica.write_all(format!("PSYNC {history} {}\r\n", end - missed).as_bytes()).unwrap();
        let mut first = [0; 9];
        replica.read_exact(&mut first).unwrap();
        assert!(answer.as_bytes().starts_with(&first), "{missed} {answer} {first:?}");
    }
    wait_until("they are gone", || figure(&mut client, "replication", "connected_slaves") == 0);
    let id = |client: &mut Client| {
        let info = client.ask_text("INFO replication");
        info.lines().find(|line| line.starts_with("master_replid:")).map(str::to_owned)
    };
    let before = id(&mut client);
    client.ask("CONFIG SET repl-backlog-ttl 1");
    wait_until("it is gone", || active(&mut client) == 0);
    // What is written from now on is nowhere: nobody may go on behind it.
    assert_ne!(id(&mut client), before);
}

/// A script, a function and a transaction show no more than a call does.
#[test]
fn stale_data_is_not_shown_by_code_either() {
    let library = "#!lua name=l\n\
        redis.register_function('plain', function(k) return redis.call('GET', k[1]) end)\n\
        redis.register_function{function_name = 'stale', callback = function() return 'hello' end, \
        flags = {'allow-stale', 'no-writes'}}";
    let told = |server: &Server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        client.ask("SET k v");
        client.call(&["FUNCTION", "LOAD", library]);
        client.ask("CONFIG SET replica-serve-stale-data no");
        other.ask("MULTI");
        other.ask("GET k");
        // Nobody is there.
        client.ask("REPLICAOF 127.0.0.1 1");
        let calls: [&[&str]; 5] = [
            &["GET", "k"],
            &["EVAL", "return redis.pcall('GET', KEYS[1])", "1", "k"],
            &["EVAL", "#!lua\nreturn 1", "0"],
            &["FCALL", "plain", "1", "k"],
            &["FCALL", "stale", "0"],
        ];
        let mut told: Vec<String> =
            calls.iter().map(|call| client.call(call).to_string()).collect();
        told.push(other.ask("EXEC").to_string());
        told
    };
    let ours = told(&Server::kvasir("epoll", &[]));
    assert_eq!(ours[4], "\"hello\"");
    assert!(ours[..4].iter().all(|text| text.starts_with("(error) ")), "{ours:#?}");
    for oracle in [Server::redis(&[]), Server::valkey(&[])].into_iter().flatten() {
        assert_eq!(ours, told(&oracle), "{}", oracle.name);
    }
}

/// Calls that come in one piece are a batch up to what is none of it, wherever the piece is cut:
/// databases change, calls fail, subcommands have one name, transactions stand between.
#[test]
fn calls_in_one_piece_are_executed_in_their_order() {
    let calls: &[&[&str]] = &[
        &["SELECT", "0"],
        &["SET", "a", "1"],
        &["INCR", "a"],
        &["LPUSH", "a", "x"],
        &["INCR", "a"],
        &["SELECT", "3"],
        &["SET", "a", "other"],
        &["MULTI"],
        &["APPEND", "a", "wise"],
        &["SELECT", "0"],
        &["INCR", "a"],
        &["EXEC"],
        &["XADD", "s", "1-1", "f", "v"],
        &["XGROUP", "CREATE", "s", "g", "0"],
        &["XGROUP", "CREATECONSUMER", "s", "g", "c"],
        &["FLUSHDB"],
        &["SET", "b", "1"],
        &["PUBLISH", "channel", "text"],
        &["INCR", "b"],
    ];
    let many: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    let many = many.iter().flat_map(|key| encode_request(&["SET", key, key]));
    let stream: Vec<u8> = calls.iter().flat_map(|call| encode_request(call)).chain(many).collect();
    let snapshot = snapshot_of(&["SET before x"]);
    for cut in [0, 1, 40, 333, 700, stream.len() - 1] {
        let (liar, port) = Liar::new();
        let (_replica, mut client) = replica_of(port, &["--propagation-error-behavior", "ignore"]);
        let (mut link, _) = liar.accept();
        link.give(0, &snapshot);
        let (first, second) = stream.split_at(cut);
        link.say(first);
        link.say(second);
        link.call(&["REPLCONF", "GETACK", "*"]);
        link.wait_for_ack(stream.len() as u64 + length(&["REPLCONF", "GETACK", "*"]));
        for (call, text) in [("GET b", "2"), ("GET k499", "k499")] {
            assert_eq!(client.ask_text(call), text, "cut at {cut}");
        }
        assert_eq!(client.ask("DBSIZE"), Value::Integer(501), "cut at {cut}");
        assert_eq!(client.ask("SELECT 3"), Value::Simple("OK".into()));
        assert_eq!(client.ask_text("GET a"), "otherwise");
        let stats = client.ask_text("INFO commandstats");
        let of = |name: &str, text: &str| {
            let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
            assert!(line.unwrap_or_default().contains(text), "{name} {text} {stats}");
        };
        of("set", "calls=503,");
        of("incr", "calls=4,");
        of("lpush", "failed_calls=1");
    }
}

/// Whether its clients may write is nothing to the primary's stream.
#[test]
fn code_in_the_stream_is_executed() {
    let (liar, port) = Liar::new();
    let (_server, mut client) = replica_of(port, &["--min-replicas-to-write", "1"]);
    let (mut link, _) = liar.accept();
    link.give(100, &snapshot_of(&["SET a 1"]));
    link.wait_for_ack(100);
    let mut end = 100;
    for code in ["return redis.call('incr', KEYS[1])", "#!lua\nreturn redis.call('incr', KEYS[1])"]
    {
        let call = ["EVAL", code, "1", "a"];
        link.call(&call);
        end += length(&call);
    }
    link.wait_for_ack(end);
    assert_eq!(client.ask_text("GET a"), "3");
}
