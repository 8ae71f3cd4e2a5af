//! memcached's protocol, beside memcached itself where it has the last word.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use kvasir_harness::memcached::{Memcached, Place};

use crate::certificates::free_port;
use crate::harness::{DEADLINE, Server, backends, figure, wait_until, wait_until_loaded};
use crate::http::get;
use crate::replication::{OURS, is_linked, primary, replica};

/// Where the server listens for memcached's clients, from its directory.
const SOCKET: &str = "memcached";
const OPTIONS: [&str; 2] = ["--memcached-unixsocket", SOCKET];

/// A client of memcached's protocol.
struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> Client {
        let mut stream = None;
        wait_until("memcached listens", || {
            stream = UnixStream::connect(socket).ok();
            stream.is_some()
        });
        let stream = stream.expect("just seen");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        Client(stream)
    }

    fn of(server: &Server) -> Client {
        Client::connect(&server.directory().join(SOCKET))
    }

    /// Sends requests; what is answered up to the answer of a `mn` behind them, without that.
    fn ask(&mut self, requests: &str) -> String {
        self.0.write_all(format!("{requests}mn\r\n").as_bytes()).expect("the server reads");
        self.read_to("MN\r\n")
    }

    /// All up to the words with which what comes ends, without those.
    fn read_to(&mut self, end: &str) -> String {
        let (mut reply, mut chunk) = (Vec::new(), [0; 4096]);
        while !reply.ends_with(end.as_bytes()) {
            let len = self.0.read(&mut chunk).expect("the server answers");
            assert_ne!(len, 0, "the connection stays open: {}", reply.escape_ascii());
            reply.extend_from_slice(&chunk[..len]);
        }
        reply.truncate(reply.len() - end.len());
        String::from_utf8(reply).expect("texts")
    }

    /// The lines that `lru_crawler metadump` gives, without those words that differ each time.
    fn listed(&mut self, which: &str) -> Vec<String> {
        self.0.write_all(format!("lru_crawler metadump {which}\r\n").as_bytes()).expect("it reads");
        let mut lines: Vec<_> = self.lines_to_end().iter().map(|line| shown(line)).collect();
        lines.sort();
        lines
    }

    /// All lines up to one that says END.
    fn lines_to_end(&mut self) -> Vec<String> {
        self.lines_to("END\r\n")
    }

    /// All lines up to the words with which what comes ends.
    fn lines_to(&mut self, end: &str) -> Vec<String> {
        self.read_to(end).lines().map(str::to_string).collect()
    }

    /// All up to the end of the connection.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("it is closed");
        rest
    }

    /// The id of a key's value.
    fn id_of(&mut self, key: &str) -> u64 {
        let reply = self.ask(&format!("gets {key}\r\n"));
        let line = reply.lines().next().expect("a line");
        line.rsplit(' ').next().expect("a word").parse().unwrap_or_else(|_| panic!("{reply}"))
    }
}

/// A line of `lru_crawler metadump` without times, ids and sizes: memcached, which counts from its
/// start, may be a second off.
fn shown(line: &str) -> String {
    let kept = ["key=", "exp=-1", "fetch=", "cls="];
    let is_kept = |word: &&str| kept.iter().any(|name| word.starts_with(name));
    line.split(' ').filter(is_kept).collect::<Vec<_>>().join(" ")
}

/// memcached itself, and where it listens.
fn memcached() -> Option<(Memcached, PathBuf)> {
    let program = Path::new("/usr/bin/memcached");
    if !program.is_file() {
        assert!(std::env::var("CI").is_err(), "CI needs {}", program.display());
        eprintln!("there is no memcached: its texts are not compared");
        return None;
    }
    let name = format!("kvasir-memcached-{}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let place = Place::Socket(socket.clone());
    let memcached = Memcached::start(program, place, &[], None).expect("it starts");
    Some((memcached, socket))
}

/// Requests whose answers are the same each time.
const CALLS: &[&str] = &[
    "get a\r\n",
    "set a 5 0 3\r\nabc\r\n",
    "get a b a\r\n",
    "set a 0 0 2 noreply\r\nhi\r\nget a\r\n",
    "add a 0 0 1\r\nx\r\nadd b 0 0 1\r\nx\r\n",
    "replace c 0 0 1\r\nx\r\nreplace b 7 0 1\r\ny\r\nget b\r\n",
    "append b 0 0 2\r\nzz\r\nprepend b 9 0 1\r\na\r\nget b\r\nappend none 0 0 1\r\nx\r\n",
    "set n 3 0 2\r\n10\r\nincr n 5\r\ndecr n 6\r\nget n\r\nincr n 18446744073709551615\r\ndecr n 100\r\n",
    "set m 0 0 2\r\n10\r\nincr m 5 noreply\r\ndecr m 1 noreply\r\nincr m x noreply\r\nget m\r\n",
    "get n\r\nincr n 1000\r\nget n\r\nincr a 1\r\nincr none 1\r\nincr n x\r\nincr n -1\r\n",
    "set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nget n\r\n",
    "touch a 100\r\ntouch none 0\r\ntouch a x\r\ntouch a\r\ngat 0 a b\r\ngat x a\r\ngat 1\r\n",
    "set gone 0 -1 1\r\nx\r\nget gone\r\ntouch a -1\r\nget a\r\n",
    "delete b\r\ndelete b\r\ndelete b 1\r\ndelete b 0\r\ndelete b noreply\r\ndelete b 0 noreply\r\n",
    "cas none 0 0 1 5\r\nx\r\nset a 0 0 1\r\nx\r\ncas a 0 0 1 99999999999999999\r\ny\r\n",
    "cas a 0 0 1 x\r\ny\r\n",
    "set a 0 0 -1\r\nset a x 0 1\r\nset a 0 0\r\nset a 0 0 2\r\nabcd\r\n",
    "set a 4294967297 0 1\r\nx\r\nget a\r\n",
    "\r\nx\r\nGET a\r\nget\r\nget  \r\nversion\r\nverbosity 1\r\nverbosity\r\nverbosity x\r\n",
    "stats detail dump\r\nstats detail on\r\nset p:1 0 0 1\r\nx\r\nget p:1 p:2 plain\r\ndelete p:3\r\n",
    "gat 9 p:1\r\nadd p:1 0 0 1\r\nx\r\nmg p:1\r\nstats detail off\r\nget p:1\r\nstats detail dump\r\n",
    "stats reset\r\nstats detail dump\r\nstats detail x\r\n",
    "stats cachedump\r\nstats cachedump 1 x\r\nstats cachedump 64 1\r\nstats cachedump 40 1\r\n",
    "lru_crawler metadump x\r\n",
    "lru_crawler metadump 1,64\r\n",
    "lru_crawler metadump 0\r\nlru_crawler metadump\r\nlru_crawler metadump all 1\r\n",
    "cache_memlimit 64\r\ncache_memlimit 7\r\ncache_memlimit x\r\ncache_memlimit 2000000000\r\n",
    "stats foo\r\nstats reset\r\nstats detail\r\nflush_all x\r\nflush_all 0 noreply\r\nget a\r\n",
    "shutdown\r\nbget a\r\nslabs automove 1\r\nme none\r\nme\r\nmg\r\nmg a x\r\nmg a v v\r\n",
    "ms a 2 T0 F5\r\nhi\r\nmg a v s f t k Oq h\r\nmg a h\r\nmg a u h\r\nmg none\r\nmg none q\r\n",
    "mg none k Oabc\r\nms a S2\r\nhi\r\nms a 2 MX\r\nhi\r\nms a 2 x\r\nhi\r\nms a\r\n",
    "ms a 1 ME\r\nx\r\nms e 1 ME q\r\nx\r\nms e 1 MA\r\ny\r\nms e 1 MP k Oo\r\nw\r\nmg e v\r\n",
    "ms none 1 MR\r\nx\r\nms none 1 MA\r\nx\r\nms e 1 C99999999999999999\r\nx\r\n",
    "md e q\r\nmd e k Oo\r\nmd e x\r\nmd a C99999999999999999\r\n",
    "mg made N30 v t\r\nmg made v t\r\nmg made\r\nms made 1 T30\r\nx\r\nmg made R60\r\nmg made R60\r\n",
    "md made I T90\r\nmg made t\r\nmg made\r\nms made 1\r\nn\r\nmg made v\r\n",
    "ma num\r\nma num N0 J5\r\nma num v\r\nma num D10 MD t v\r\nma num MX\r\nma made\r\nma num q\r\n",
    "ms Zm9v 2 b\r\nhi\r\nmg Zm9v b k v\r\nmg !! b\r\nme x y z\r\nmx\r\n",
];

#[test]
fn texts_are_memcacheds() {
    let Some((_memcached, socket)) = memcached() else { return };
    for backend in backends() {
        let server = Server::kvasir(backend, &OPTIONS);
        let (mut ours, mut theirs) = (Client::of(&server), Client::connect(&socket));
        theirs.ask("flush_all\r\n");
        let long = format!("get {}\r\nmg {0}\r\ndelete {0}\r\n", "k".repeat(251));
        let large = format!("set a 0 0 1048577\r\n{}\r\n", "x".repeat((1 << 20) + 1));
        for calls in CALLS.iter().copied().chain([&*long, &*large]) {
            assert_eq!(ours.ask(calls), theirs.ask(calls), "{}", calls.escape_debug());
        }
    }
}

#[test]
fn items_are_strings_of_database_0() {
    let server = Server::kvasir(backends()[0], &OPTIONS);
    let (mut items, mut redis) = (Client::of(&server), server.connect());
    assert_eq!(items.ask("set k 7 100 5\r\nhello\r\n"), "STORED\r\n");
    assert_eq!(redis.ask("GET k").to_string(), "\"hello\"");
    assert_eq!(redis.ask("TTL k").to_string(), "(integer) 100");
    // Whoever changes the value, its id is another one; who only touches it leaves the id.
    let mut id = items.id_of("k");
    assert_eq!(redis.ask("EXPIRE k 200").to_string(), "(integer) 1");
    assert_eq!(items.id_of("k"), id);
    for call in ["APPEND k !", "SETRANGE k 0 H", "RENAME k l", "RENAME l k", "SET k 5", "INCR k"] {
        redis.ask(call);
        let key = if call.ends_with(" l") { "l" } else { "k" };
        let next = items.id_of(key);
        assert_ne!(next, id, "{call}");
        let stale = format!("cas {key} 0 0 1 {id}\r\nx\r\n");
        assert_eq!(items.ask(&stale), "EXISTS\r\n", "{call}");
        id = next;
    }
    // What Redis sets has no flags; what it changes keeps them.
    assert_eq!(items.ask("get k\r\n"), "VALUE k 0 1\r\n6\r\nEND\r\n");
    items.ask("set k 7 0 1\r\n1\r\n");
    redis.ask("INCRBYFLOAT k 1.5");
    assert_eq!(items.ask("get k\r\n"), "VALUE k 7 3\r\n2.5\r\nEND\r\n");
    // What is no string is not there for who reads, and in the way of who adds.
    redis.ask("RPUSH list a");
    let calls = "get list\r\nadd list 0 0 1\r\nx\r\nappend list 0 0 1\r\nx\r\nincr list 1\r\n";
    let expected = "END\r\nNOT_STORED\r\nNOT_STORED\r\n\
                    CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    assert_eq!(items.ask(calls), expected);
}

/// An item with flags, one that is stale, and one that has neither.
fn fill(items: &mut Client) {
    items.ask("set k 7 0 5\r\nhello\r\nset plain 0 1000 1\r\nx\r\nappend k 0 0 1\r\n!\r\n");
    items.ask("ms stale 1 F9\r\nx\r\nmd stale I T500\r\n");
}

const FILLED: &str = "VALUE k 7 6\r\nhello!\r\nVALUE plain 0 1\r\nx\r\nEND\r\nHD f9 X W\r\n";

#[test]
fn flags_and_staleness_survive_files_and_replication() {
    let aof = ["--appendonly", "yes"];
    let server = Server::kvasir(backends()[0], &[&OPTIONS[..], &aof].concat());
    let (mut items, mut redis) = (Client::of(&server), server.connect());
    wait_until_loaded(&mut redis);
    fill(&mut items);
    let look = "get k plain\r\nmg stale f\r\n";
    // The log, and from it a snapshot.
    assert_eq!(redis.ask("DEBUG LOADAOF").to_string(), "OK");
    assert_eq!(items.ask(look), FILLED);
    assert_eq!(redis.ask("DEBUG RELOAD").to_string(), "OK");
    assert_eq!(items.ask(look), FILLED.replace(" X W", " Z X"));
    // Redis loads the file, and sees strings.
    assert_eq!(redis.ask("SAVE").to_string(), "OK");
    let directory = server.directory().to_str().expect("a plain path");
    if let Some(loaded) = Server::redis(&["--dir", directory, "--dbfilename", "dump.rdb"]) {
        let mut client = loaded.connect();
        assert_eq!(client.ask("GET k").to_string(), "\"hello!\"");
        assert_eq!(client.ask("GET stale").to_string(), "\"x\"");
    }
}

#[test]
fn logins_and_rights() {
    let server =
        Server::kvasir(backends()[0], &[&OPTIONS[..], &["--requirepass", "secret"]].concat());
    let mut redis = server.connect();
    redis.ask("AUTH secret");
    redis.ask("ACL SETUSER reader on >pw ~app:* +get +mget");
    let mut items = Client::of(&server);
    let unauthenticated = "CLIENT_ERROR unauthenticated\r\n";
    items.0.write_all(b"get a\r\n").unwrap();
    let mut login = |text: &str| {
        let set = format!("set x 0 0 {}\r\n{text}\r\n", text.len());
        items.0.write_all(set.as_bytes()).expect("the server reads");
    };
    login("default wrong");
    login("nothing");
    login("default secret");
    let expected = format!(
        "{unauthenticated}CLIENT_ERROR authentication failure\r\n\
         CLIENT_ERROR bad authentication token format\r\nSTORED\r\n"
    );
    assert_eq!(items.ask("set app:a 0 0 1\r\nx\r\n"), expected + "STORED\r\n");
    let mut reader = Client::of(&server);
    reader.0.write_all(b"set x 0 0 9\r\nreader pw\r\n").unwrap();
    let reply = reader.ask("get app:a\r\nget app:a app:b\r\nget other\r\nset app:a 0 0 1\r\ny\r\n");
    let (right, wrong) = reply.split_at(reply.find("CLIENT_ERROR").expect("an error"));
    let value = "VALUE app:a 0 1\r\nx\r\nEND\r\n";
    assert_eq!(right, format!("STORED\r\n{value}{value}"));
    assert_eq!(wrong.matches("CLIENT_ERROR NOPERM ").count(), 2, "{wrong}");
}

/// `stats` tells and changes more than INFO does.
#[test]
fn stats_need_the_rights_of_what_they_do() {
    let server =
        Server::kvasir(backends()[0], &[&OPTIONS[..], &["--requirepass", "secret"]].concat());
    let mut redis = server.connect();
    redis.ask("AUTH secret");
    redis.ask("ACL SETUSER looks on >pw +info");
    redis.ask("ACL SETUSER does on >pw +info +config|resetstat +client|list");
    let calls =
        ["stats reset", "stats detail on", "stats detail dump", "stats detail off", "stats conns"];
    for (user, may) in [("looks", false), ("does", true)] {
        let mut items = Client::of(&server);
        let login = format!("{user} pw");
        let set = format!("set x 0 0 {}\r\n{login}\r\n", login.len());
        assert_eq!(items.ask(&set), "STORED\r\n");
        assert!(items.ask("stats\r\n").starts_with("STAT pid "));
        for call in calls {
            let reply = items.ask(&format!("{call}\r\n"));
            assert_eq!(reply.starts_with("CLIENT_ERROR NOPERM "), !may, "{user}: {call}: {reply}");
        }
    }
}

/// Root's server, as another user's; what lies about is not its data.
#[test]
fn the_user_of_the_command_line_is_who_it_becomes() {
    let program = env!("CARGO_BIN_EXE_kvasir-server");
    let mut command = std::process::Command::new(program);
    command.args(["memcached", "-u", "nosuchuser", "-p", "0"]);
    let may_change = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        .status()
        .is_ok_and(|status| status.success());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let nobody = users.lines().find_map(|line| line.strip_prefix("nobody:x:")?.split(':').next());
    let (true, Some(nobody)) = (may_change, nobody) else {
        eprintln!("this is not root, or there is no nobody: nothing to become");
        return;
    };
    let refused = command.output().expect("it can be started");
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(text, "can't run as user=nosuchuser error=there is no such user\n");

    let directory = crate::saving::directory();
    let dir = directory.path().to_str().expect("a path of text");
    let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir, anybody).unwrap();
    let other = Server::kvasir(backends()[0], &["--dir", dir]);
    let mut redis = other.connect();
    redis.ask("SET k v");
    assert_eq!(redis.ask_text("SAVE"), "OK");
    drop(other);
    let mut command = std::process::Command::new(program);
    command.args(["memcached", "-u", "nobody", "-s", "items", "--"]);
    let server = Server::start("memcached", command, &["--dir", dir, "--logfile", "log"]);
    let mut redis = server.connect();
    wait_until_loaded(&mut redis);
    assert_eq!(redis.ask("DBSIZE").as_integer(), Some(0));
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    for ids in ["Uid:", "Gid:"] {
        let ids: Vec<_> = status
            .lines()
            .find_map(|line| line.strip_prefix(ids))
            .unwrap()
            .split_whitespace()
            .collect();
        assert!(!ids.contains(&"0"), "{status}");
    }
    assert!(status.contains(&format!("Uid:\t{nobody}\t{nobody}\t{nobody}\t{nobody}\n")));
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
    assert!(!groups.split_whitespace().any(|group| group == "0"), "{status}");
    let log =
        std::os::unix::fs::MetadataExt::uid(&directory.path().join("log").metadata().unwrap());
    assert_eq!(log.to_string(), nobody);
}

#[test]
fn the_binary_protocol_is_refused_once() {
    let server = Server::kvasir(backends()[0], &OPTIONS);
    let mut items = Client::of(&server);
    items.0.write_all(&[0x80; 100]).unwrap();
    let rest = items.rest();
    assert_eq!((rest[0], rest.len()), (0x81, 24 + usize::from(rest[11])));
    assert!(rest.ends_with(b"use the text protocol"), "{}", rest.escape_ascii());
    assert_eq!(Client::of(&server).ask("get a\r\n"), "END\r\n");
}

#[test]
fn memory_that_is_full_and_items_that_are_too_large() {
    let options = ["--maxmemory", "1", "--memcached-item-size-max", "1kb"];
    let server = Server::kvasir(backends()[0], &[&OPTIONS[..], &options].concat());
    let (mut items, mut redis) = (Client::of(&server), server.connect());
    let full = "SERVER_ERROR out of memory storing object\r\n";
    assert_eq!(items.ask("set a 0 0 1\r\nx\r\n"), full);
    redis.ask("CONFIG SET maxmemory 0");
    let long = format!("set a 0 0 1000\r\n{}\r\n", "x".repeat(1000));
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    assert_eq!(
        items.ask(&format!("set a 0 0 1\r\nx\r\n{long}get a\r\n")),
        format!("STORED\r\n{too_large}END\r\n")
    );
}

#[test]
fn a_flush_may_come_later() {
    let server = Server::kvasir(backends()[0], &OPTIONS);
    let (mut items, mut redis) = (Client::of(&server), server.connect());
    assert_eq!(
        items.ask("set a 0 0 1\r\nx\r\nflush_all 1\r\nget a\r\n"),
        "STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    );
    wait_until("database 0 is flushed", || redis.ask("DBSIZE").to_string() == "(integer) 0");
    assert_eq!(items.ask("set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\n"), "STORED\r\nOK\r\nEND\r\n");
}

#[test]
fn who_connects_and_what_was_done_is_shown() {
    let server = Server::kvasir(backends()[0], &OPTIONS);
    let (mut items, mut redis) = (Client::of(&server), server.connect());
    items.ask("set a 0 0 1\r\nx\r\nget a b\r\n");
    let stats = items.ask("stats\r\n");
    for line in ["STAT cmd_set 1\r\n", "STAT get_hits 1\r\n", "STAT get_misses 1\r\n", "END\r\n"] {
        assert!(stats.contains(line), "{line}: {stats}");
    }
    let clients = redis.ask("CLIENT LIST").to_string();
    assert!(clients.contains("cmd=info") && clients.contains("protocol=memcached"), "{clients}");
    let info = redis.ask("INFO stats").to_string();
    assert!(info.contains("memcached_get_hits:1"), "{info}");
}

/// A server that has memcached's command line, and a client of it.
fn start_as_memcached(words: &[&str]) -> (Server, Client) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(["memcached", "-s", SOCKET]).args(words).arg("--");
    let server = Server::start("kvasir as memcached", command, &[]);
    let client = Client::of(&server);
    (server, client)
}

#[test]
fn the_command_line_of_memcached() {
    let (_server, mut items) = start_as_memcached(&["-m", "100", "-c", "50", "-FX"]);
    assert_eq!(
        items.ask("set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\n"),
        "STORED\r\nCLIENT_ERROR flush_all not allowed\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    );
    assert_eq!(
        items.ask("stats cachedump 1 1\r\n"),
        "CLIENT_ERROR stats cachedump not allowed\r\n"
    );
    let refused = items.ask("lru_crawler metadump all\r\n");
    assert_eq!(refused, "ERROR metadump not allowed\r\n");
    let settings = items.ask("stats settings\r\n");
    for line in ["maxbytes 104857600", "maxconns 50", "evictions on", "flush_enabled no"] {
        assert!(settings.contains(&format!("STAT {line}\r\n")), "{line}: {settings}");
    }
}

#[test]
fn names_and_passwords_of_memcached() {
    let file = std::env::temp_dir().join(format!("kvasir-names-{}", std::process::id()));
    std::fs::write(&file, "foo:bar\nother:a:b\n").expect("it can be written");
    let (_server, mut items) = start_as_memcached(&["-Y", file.to_str().expect("plain")]);
    items.0.write_all(b"get a\r\nset x 0 0 7\r\nfoo bad\r\nset x 0 0 9\r\nother a:b\r\n").unwrap();
    let expected =
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\nSTORED\r\n";
    assert_eq!(items.ask("set a 0 0 1\r\nx\r\n"), format!("{expected}STORED\r\n"));
    std::fs::remove_file(&file).expect("it is there");
}

#[test]
fn clients_that_may_end_the_server() {
    let (mut server, mut items) = start_as_memcached(&["-A"]);
    assert_eq!(items.ask("shutdown now\r\n"), "CLIENT_ERROR invalid shutdown mode\r\n");
    items.0.write_all(b"shutdown graceful\r\n").expect("the server reads");
    assert!(items.rest().is_empty());
    assert!(server.wait_for_end().success());
    assert!(!server.directory().join(SOCKET).exists(), "its socket goes with it");
}

#[test]
fn keys_are_listed_and_figures_of_memory_told() {
    let server = Server::kvasir(backends()[0], &OPTIONS);
    let (mut items, mut redis) = (Client::of(&server), server.connect());
    assert!(items.ask("stats\r\n").contains("STAT bytes 0\r\n"));
    redis.ask("RPUSH list x");
    items.ask("set a 0 0 2\r\nxy\r\n");
    redis.ask("PEXPIREAT a 2000000000999");
    assert_eq!(items.ask("stats cachedump 1 0\r\n"), "ITEM a [2 b; 2000000000 s]\r\nEND\r\n");
    items.ask("set b 0 0 2\r\nxy\r\n");
    assert_eq!(items.ask("stats cachedump 1 1\r\n").lines().count(), 2);
    assert_eq!(items.ask("cache_memlimit 9\r\n"), "OK\r\n");
    assert_eq!(figure(&mut redis, "memory", "maxmemory"), 9 << 20);
    redis.ask("CONFIG SET maxmemory 1 maxmemory-policy noeviction");
    items.ask("set c 0 0 1\r\nx\r\n");
    assert!(items.ask("stats\r\n").contains("STAT store_no_memory 1\r\n"));
}

#[test]
fn lists_tell_of_nothing_that_may_still_be_lost() {
    let ports @ [port, page] = [(); 2].map(|()| free_port());
    let [_, metrics] = ports.map(|port| port.to_string());
    let primary = primary("epoll", port, &[&OPTIONS[..], &["--metrics-port", &metrics]].concat());
    // Without an append-only file nothing is ever on its disk.
    let replica = replica(OURS[0], port, &[]).expect("it is ours");
    wait_until("the replica is linked", || is_linked(&mut replica.connect()));
    let (mut writer, mut other) = (primary.connect(), primary.connect());
    for call in ["CONFIG SET write-quorum 1", "CONFIG SET write-quorum-fsync yes"] {
        assert_eq!(other.ask_text(call), "OK");
    }
    let wait_until_held_back = |count: usize| {
        let line = format!("\nkvasir_fences_waiting {count}\n");
        wait_until("they are held back", || get(page, "/metrics").body.contains(&line));
    };
    writer.send(&["SET", "k", "1"]);
    wait_until_held_back(1);
    let lists = ["lru_crawler metadump all\r\n", "stats cachedump 1 0\r\n"].map(|call| {
        let mut items = Client::of(&primary);
        items.0.write_all(call.as_bytes()).expect("it reads");
        items
    });
    wait_until_held_back(3);
    assert_eq!(other.ask_text("CONFIG SET write-quorum-fsync no"), "OK");
    for mut items in lists {
        assert_eq!(items.lines_to_end().len(), 1);
    }
    assert!(writer.read_reply().is_some());
}

#[test]
fn all_items_are_listed_as_by_memcached() {
    let Some((_memcached, socket)) = memcached() else { return };
    for backend in backends() {
        let server = Server::kvasir(backend, &OPTIONS);
        let (mut ours, mut theirs) = (Client::of(&server), Client::connect(&socket));
        server.connect().ask("RPUSH list x");
        let listed = [&mut ours, &mut theirs].map(|items| {
            items.ask("flush_all\r\nset a 0 0 1\r\nx\r\nget a\r\nset gone 0 -1 1\r\nx\r\n");
            items.ask("set a%b/~_-.\u{e9} 7 2000000000 2\r\nxy\r\n");
            ["all", "hash", "1", "2,1", "1,", "2,3"].map(|which| items.listed(which))
        });
        assert_eq!(listed[0], listed[1]);
        assert_eq!(listed[0][0].len(), 2, "{listed:?}");
    }
    let server = Server::kvasir(backends()[0], &OPTIONS);
    let mut items = Client::of(&server);
    items.ask("set a 0 0 1\r\nx\r\n");
    items.0.write_all(b"lru_crawler metadump all\r\n").expect("the server reads");
    assert!(items.lines_to_end()[0].contains(" cas=0 "), "nobody has asked for it");
    items.ask("set b 0 2000000000 1\r\nx\r\n");
    items.0.write_all(b"lru_crawler metadump all\r\n").expect("the server reads");
    assert!(items.lines_to_end().iter().any(|line| line.starts_with("key=b exp=2000000000 la=")));
    items.ask("delete b\r\n");
    let known = items.id_of("a");
    items.0.write_all(b"lru_crawler metadump all\r\n").expect("the server reads");
    assert!(items.lines_to_end()[0].contains(&format!(" cas={known} ")));
}

/// More than fits into what the kernel keeps for a reader that does not read.
#[test]
fn who_reads_a_list_of_items_slowly_holds_up_nobody() {
    const KEYS: usize = 40_000;
    for backend in backends() {
        let server = Server::kvasir(backend, &OPTIONS);
        let (mut slow, mut other) = (Client::of(&server), Client::of(&server));
        server.connect().ask(&format!("DEBUG POPULATE {KEYS}"));
        slow.0.write_all(b"lru_crawler metadump all\r\nget key:7\r\n").expect("the server reads");
        assert_eq!(other.ask("get key:1\r\n"), "VALUE key:1 0 7\r\nvalue:1\r\nEND\r\n");
        // Then comes what stands behind.
        let mut keys = slow.lines_to("END\r\nVALUE key:7 0 7\r\nvalue:7\r\nEND\r\n");
        keys.iter_mut().for_each(|line| line.truncate(line.find(' ').expect("words")));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), KEYS, "each once");
        slow.0.write_all(b"lru_crawler metadump hash\r\n").expect("the server reads");
        slow.0.shutdown(Shutdown::Write).expect("it is open");
        let rest = slow.rest();
        assert!(rest.ends_with(b"END\r\n"), "whole, though nothing more will be asked");
        assert_eq!(rest.iter().filter(|byte| **byte == b'\n').count(), KEYS + 1);
    }
}

/// What memcached-tool and exporters make a row of: without it they show none.
#[test]
fn tools_find_the_one_class_of_items() {
    let server = Server::kvasir("epoll", &OPTIONS);
    let mut items = Client::of(&server);
    assert!(!items.ask("stats slabs\r\n").contains(":total_pages"));
    for number in 0..100 {
        items.ask(&format!("set key:{number} 0 0 1\r\nx\r\n"));
    }
    let text = items.ask("stats items\r\nstats slabs\r\n");
    let figure = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    for (name, expect) in [
        ("items:1:number", 100),
        ("items:1:evicted", 0),
        ("items:1:evicted_time", 0),
        ("items:1:outofmemory", 0),
        ("items:1:age", 0),
        ("1:total_chunks", 100),
        ("1:used_chunks", 100),
        ("1:free_chunks", 0),
        ("active_slabs", 1),
    ] {
        assert_eq!(figure(name), expect, "{name}");
    }
    for name in ["1:chunk_size", "1:chunks_per_page", "1:total_pages"] {
        assert!(figure(name) > 0, "{name}");
    }
}
