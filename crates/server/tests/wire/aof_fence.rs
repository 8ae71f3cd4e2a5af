//! Nobody hears of what is not on disk: replies, messages and invalidations, while the thread that
//! would bring it there stands still.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use kvasir_resp::value::Value;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::aof::{start, wait_for};
use crate::harness::{Client, Server, thread_of, wait_until};
use crate::saving::directory;

/// The thread `log` of a server, which does nothing until this is dropped. It must be idle before.
struct Frozen(Pid);

impl Frozen {
    fn log(server: &Server) -> Frozen {
        let tid = Pid::from_raw(thread_of(server, "log").parse().unwrap());
        ptrace::seize(tid, ptrace::Options::empty()).expect("a child may be traced");
        ptrace::interrupt(tid).unwrap();
        waitpid(tid, Some(WaitPidFlag::__WALL)).unwrap();
        Frozen(tid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        ptrace::detach(self.0, None).unwrap();
    }
}

/// A client, and whether it has got anything.
struct Listener {
    client: Client,
    stream: UnixStream,
}

impl Listener {
    fn of(server: &Server) -> Listener {
        let stream = UnixStream::connect(server.socket()).unwrap();
        let client = Client::over(stream.try_clone().unwrap());
        Listener { client, stream }
    }

    fn send(&mut self, line: &str) {
        self.client.send(&line.split(' ').collect::<Vec<_>>());
    }

    /// Sends lines at once and reads a reply to each.
    fn ask_all(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.send(line));
        lines.iter().for_each(|_| drop(self.client.read_reply()));
    }

    fn has_something(&self) -> bool {
        let mut polled = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).unwrap() > 0
    }

    fn reply(&mut self) -> Value {
        self.client.read_reply().expect("the connection stays open")
    }
}

/// A server whose log is idle.
fn idle(dir: &std::path::Path, options: &[&str]) -> (Server, Client) {
    let (server, mut client) = start("io_uring", dir, options);
    client.ask("WAITAOF 1 0 0");
    wait_for(&mut client, "aof_buffer_length:0\r\n");
    (server, client)
}

/// Returns when something has been written to the log that the disk has not.
fn written(server: &Server) {
    let mut client = server.connect();
    let is_on_disk = |info: String| info.contains("aof_buffer_length:0\r\n");
    wait_until("something is written", || !is_on_disk(client.ask_text("INFO persistence")));
}

/// Other connections are served, by every worker, long enough that a reply which does not wait
/// would have come.
fn others_go_on(server: &Server, count: usize) {
    let mut others: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for number in 0..count {
        for other in &mut others {
            assert_eq!(other.ask(&format!("EXISTS nothing{number}")), Value::Integer(0));
        }
    }
}

fn text(bytes: &[u8]) -> Value {
    Value::Bulk(bytes.to_vec())
}

#[test]
fn replies_of_writes_and_of_reads_that_saw_them_wait() {
    let directory = directory();
    let (server, _) = idle(directory.path(), &["--appendfsync", "always"]);
    let [mut writer, mut reader, mut script] = std::array::from_fn(|_| Listener::of(&server));
    let frozen = Frozen::log(&server);
    writer.send("SET k v");
    written(&server);
    reader.send("GET k");
    script.send("EVAL return(redis.call('GET',KEYS[1])) 1 k");
    others_go_on(&server, 100);
    assert!(!writer.has_something() && !reader.has_something() && !script.has_something());
    drop(frozen);
    assert_eq!(writer.reply(), Value::Simple(b"OK".to_vec()));
    assert_eq!((reader.reply(), script.reply()), (text(b"v"), text(b"v")));
}

/// What is kept of a graph is a write of the client that asked, by whichever thread it was made.
#[test]
fn who_has_ranks_kept_waits_for_them() {
    let directory = directory();
    let (server, mut client) = idle(directory.path(), &["--appendfsync", "always"]);
    client.ask("SADD out:1 2 3");
    wait_for(&mut client, "aof_buffer_length:0\r\n");
    let mut writer = Listener::of(&server);
    let frozen = Frozen::log(&server);
    writer.send("GRAPH.DEGREE MATCH out:* STORE ranks");
    written(&server);
    others_go_on(&server, 100);
    assert!(!writer.has_something());
    drop(frozen);
    assert!(matches!(writer.reply(), Value::Array(_) | Value::Map(_)));
}

/// They are answered some at a time, with nothing else that wakes the worker; one has gone
/// meanwhile.
#[test]
fn all_who_waited_together_are_answered() {
    let directory = directory();
    let options = ["--appendfsync", "always", "--io-threads", "1"];
    let (server, _) = idle(directory.path(), &options);
    let mut writers: Vec<_> = (0..100).map(|_| Listener::of(&server)).collect();
    let frozen = Frozen::log(&server);
    writers.iter_mut().for_each(|writer| writer.send("INCR k"));
    written(&server);
    others_go_on(&server, 100);
    drop(writers.swap_remove(50));
    drop(frozen);
    let mut seen: Vec<_> = writers.iter_mut().map(Listener::reply).collect();
    seen.sort_by_key(|reply| if let Value::Integer(count) = reply { *count } else { 0 });
    seen.dedup();
    assert_eq!((seen.len(), seen.last()), (99, Some(&Value::Integer(100))));
}

#[test]
fn nobody_waits_any_more_when_always_ends() {
    let directory = directory();
    let options = ["--appendfsync", "always", "--io-threads", "1"];
    let (server, mut client) = idle(directory.path(), &options);
    let mut writer = Listener::of(&server);
    let _frozen = Frozen::log(&server);
    writer.send("SET k v");
    written(&server);
    assert!(!writer.has_something());
    assert_eq!(client.ask("CONFIG SET appendfsync no"), Value::Simple(b"OK".to_vec()));
    others_go_on(&server, 1);
    assert_eq!(writer.reply(), Value::Simple(b"OK".to_vec()));
}

/// Who publishes behind a write, in the same transaction or script, or by a call of its own, tells
/// of what may be gone after a crash.
#[test]
fn messages_of_who_has_written_wait() {
    for publisher in [
        &["MULTI", "SET k v", "PUBLISH news k", "EXEC"][..],
        &["EVAL redis.call('SET',KEYS[1],'v')redis.call('PUBLISH','news','k') 1 k"],
        &["SET k v", "PUBLISH news k"],
    ] {
        let directory = directory();
        let (server, _) = idle(directory.path(), &["--appendfsync", "always"]);
        let mut subscribers: Vec<_> = (0..4).map(|_| Listener::of(&server)).collect();
        subscribers.iter_mut().for_each(|one| one.ask_all(&["SUBSCRIBE news"]));
        let mut of_others = Listener::of(&server);
        of_others.ask_all(&["SUBSCRIBE other"]);
        let mut writer = Listener::of(&server);
        let frozen = Frozen::log(&server);
        publisher.iter().for_each(|line| writer.send(line));
        written(&server);
        others_go_on(&server, 100);
        assert_eq!(server.connect().ask("PUBLISH other m"), Value::Integer(1));
        assert!(matches!(of_others.reply(), Value::Array(_)));
        assert!(subscribers.iter().all(|one| !one.has_something()), "{publisher:?}");
        drop(frozen);
        for subscriber in &mut subscribers {
            let Value::Array(words) = subscriber.reply() else { panic!("no message") };
            assert_eq!(words[2], text(b"k"));
        }
    }
}

#[test]
fn notifications_and_invalidations_wait() {
    let directory = directory();
    let options = ["--appendfsync", "always", "--notify-keyspace-events", "KEA"];
    let (server, _) = idle(directory.path(), &options);
    let mut cache = Listener::of(&server);
    cache.ask_all(&["HELLO 3", "CLIENT TRACKING on", "GET k"]);
    let mut prefixes = Listener::of(&server);
    prefixes.ask_all(&["HELLO 3", "CLIENT TRACKING on BCAST"]);
    let mut events = Listener::of(&server);
    events.ask_all(&["SUBSCRIBE __keyspace@0__:k"]);
    let mut writer = Listener::of(&server);
    let frozen = Frozen::log(&server);
    ["MULTI", "SET k v", "EXEC"].iter().for_each(|line| writer.send(line));
    written(&server);
    others_go_on(&server, 100);
    assert!(!cache.has_something() && !prefixes.has_something() && !events.has_something());
    drop(frozen);
    let key = Value::Array(vec![text(b"k")]);
    for mut told in [cache, prefixes] {
        assert_eq!(told.reply(), Value::Push(vec![text(b"invalidate"), key.clone()]));
    }
    assert!(matches!(events.reply(), Value::Array(_)));
}

#[test]
fn only_who_asks_for_it_waits() {
    let directory = directory();
    let (server, _) = idle(directory.path(), &["--appendfsync", "everysec"]);
    let [mut strict, mut reader] = std::array::from_fn(|_| Listener::of(&server));
    for one in [&mut strict, &mut reader] {
        one.ask_all(&["CLIENT DURABILITY ALWAYS"]);
    }
    let frozen = Frozen::log(&server);
    let mut other = server.connect();
    assert_eq!(other.ask("SET k v"), Value::Simple(b"OK".to_vec()));
    reader.send("GET k");
    strict.send("SET l v");
    others_go_on(&server, 100);
    assert_eq!((other.ask("GET k"), other.ask("GET l")), (text(b"v"), text(b"v")));
    assert!(!reader.has_something() && !strict.has_something());
    drop(frozen);
    assert_eq!(strict.reply(), Value::Simple(b"OK".to_vec()));
    assert_eq!(reader.reply(), text(b"v"));
}

#[test]
fn waitaof_tells_at_its_end_what_is_there() {
    let directory = directory();
    let (server, _) = idle(directory.path(), &[]);
    let counts = |local| Value::Array(vec![Value::Integer(local), Value::Integer(0)]);
    let mut waiting = Listener::of(&server);
    waiting.ask_all(&["CLIENT SETNAME waiting"]);
    let frozen = Frozen::log(&server);
    waiting.send("SET k v");
    waiting.send("WAITAOF 1 0 30");
    assert_eq!((waiting.reply(), waiting.reply()), (Value::Simple(b"OK".to_vec()), counts(0)));
    waiting.send("WAITAOF 1 0 0");
    let mut other = server.connect();
    wait_until("it waits", || other.ask_text("INFO clients").contains("blocked_clients:1\r\n"));
    others_go_on(&server, 100);
    assert!(!waiting.has_something());
    drop(frozen);
    assert_eq!(waiting.reply(), counts(1));
}

/// Of what waits for the disk there is a limit; whoever reads goes on.
#[test]
fn writes_are_put_off_while_too_much_waits_for_the_disk() {
    const WRITES: usize = 64;
    let directory = directory();
    let (server, mut client) = idle(directory.path(), &["--aof-buffer-limit", "1mb"]);
    let frozen = Frozen::log(&server);
    let long = "x".repeat(100_000);
    let mut writer = Listener::of(&server);
    let mut accepted = 0;
    for number in 0..WRITES {
        writer.send(&format!("SET k{number} {long}"));
        wait_until("it is made or put off", || {
            writer.has_something()
                || client.ask_text("INFO clients").contains("blocked_clients:1\r\n")
        });
        if !writer.has_something() {
            break;
        }
        writer.reply();
        accepted += 1;
    }
    assert!((10..20).contains(&accepted), "{accepted}");
    assert_eq!(client.ask("STRLEN k0"), Value::Integer(100_000));
    assert_eq!(client.ask(&format!("EXISTS k{accepted}")), Value::Integer(0));
    drop(frozen);
    assert_eq!(writer.reply(), Value::Simple(b"OK".to_vec()));
    assert_eq!(client.ask(&format!("EXISTS k{accepted}")), Value::Integer(1));
}
