//! Replies that wait for the disk or for replicas, and whose clients go or are told to wait no
//! more; and those who have to come in while all places are taken by such clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use kvasir_client::{Connection, Options};
use kvasir_resp::value::Value;

use crate::certificates::{BOTH, Certificates, TlsServer, free_port};
use crate::check::show;
use crate::harness::{Client, DEADLINE, Server, backends, figure, wait_until};
use crate::replication::{OURS, is_linked, replica};
use crate::small_disk::SmallDisk;

const GIVEN_UP: &str = "-UNBLOCKED client unblocked via CLIENT UNBLOCK, before the disk or enough \
                        replicas had what was written, which stands";

/// Calls that write, and so wait for a replica that does not come.
const WRITES: [&str; 3] = [
    "SET k v\r\n",
    "MULTI\r\nSET k v\r\nEXEC\r\n",
    "EVAL \"return redis.call('SET',KEYS[1],'v')\" 1 k\r\n",
];

fn replicated(client: &mut Client) -> u64 {
    figure(client, "replication", "master_repl_offset")
}

/// Has something write, and returns when it is written.
fn write_by(admin: &mut Client, write: impl FnOnce()) {
    let before = replicated(admin);
    write();
    wait_until("it is written", || replicated(admin) > before);
}

fn wait_until_alone(admin: &mut Client, what: &str) {
    wait_until(what, || figure(admin, "clients", "connected_clients") == 1);
}

/// Reads what has come, without waiting.
fn has_come(stream: &mut UnixStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 1000]);
    stream.set_nonblocking(false).unwrap();
    read.unwrap_or_else(|error| {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        0
    })
}

/// Others are served, by every worker, long enough that a reply which does not wait would have
/// come.
fn others_go_on(server: &Server) {
    let mut others: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for _ in 0..100 {
        others.iter_mut().for_each(|other| assert_eq!(other.ask_text("PING"), "PONG"));
    }
}

#[test]
fn who_goes_while_its_replies_wait_for_replicas_is_forgotten() {
    for backend in backends() {
        let port = free_port();
        let options = ["--write-quorum", "1", "--port", &port.to_string()];
        let server = Server::kvasir(backend, &options);
        let mut admin = server.connect();
        for call in WRITES {
            // Over either, closed in whole or by half.
            for by_half in [false, true] {
                let mut over_tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
                write_by(&mut admin, || over_tcp.write_all(call.as_bytes()).unwrap());
                let mut over_unix = UnixStream::connect(server.socket()).unwrap();
                write_by(&mut admin, || over_unix.write_all(call.as_bytes()).unwrap());
                if by_half {
                    over_tcp.shutdown(Shutdown::Write).unwrap();
                    over_unix.shutdown(Shutdown::Write).unwrap();
                    wait_until_alone(&mut admin, call);
                }
                drop((over_tcp, over_unix));
                wait_until_alone(&mut admin, call);
            }
            // Together with the call.
            let mut both = UnixStream::connect(server.socket()).unwrap();
            both.write_all(call.as_bytes()).unwrap();
            both.shutdown(Shutdown::Write).unwrap();
            both.read_to_end(&mut Vec::new()).unwrap();
            wait_until_alone(&mut admin, call);
        }
        let options = Options { timeout: Some(DEADLINE), ..Options::default() };
        let mut ring = Client::over(Connection::open(server.socket(), &options).unwrap());
        write_by(&mut admin, || ring.send(&["SET", "k", "v"]));
        drop(ring);
        wait_until_alone(&mut admin, "the ring's client is gone");
    }
}

/// A reset, where the other end has something unread.
#[test]
fn who_breaks_off_is_forgotten() {
    for backend in backends() {
        let server = Server::kvasir(backend, &[]);
        let mut admin = server.connect();
        let mut writer = server.connect();
        assert_eq!(writer.ask_text("CLIENT DURABILITY REPLICAS 1"), "OK");
        writer.send(&["PING"]);
        let before = replicated(&mut admin);
        writer.send(&["SET", "k", "v"]);
        wait_until("it is written", || replicated(&mut admin) > before);
        drop(writer);
        wait_until_alone(&mut admin, "it is gone");
    }
}

#[test]
fn who_goes_over_tls_or_as_a_client_of_memcached_is_forgotten() {
    let certificates = Certificates::new();
    for backend in backends() {
        let options = ["--write-quorum", "1", "--memcached-unixsocket", "memcached"];
        let server = TlsServer::start(backend, &certificates, &options);
        let mut admin = server.server.connect();
        let mut secret = server.connect(&certificates.client(None, &BOTH));
        write_by(&mut admin, || secret.send(&["SET", "k", "v"]));
        drop(secret);
        wait_until_alone(&mut admin, "it is gone");
        let path = server.server.directory().join("memcached");
        let mut items = UnixStream::connect(path).unwrap();
        write_by(&mut admin, || items.write_all(b"set k 0 0 1\r\nx\r\n").unwrap());
        drop(items);
        wait_until_alone(&mut admin, "memcached's is gone");
    }
}

#[test]
fn who_goes_while_the_disk_hangs_is_forgotten() {
    for backend in backends() {
        let Some(disk) = SmallDisk::new() else { return };
        let options = ["--appendfsync", "always", "--save", ""];
        let (server, mut admin) = crate::aof::start(backend, &disk.path(), &options);
        admin.ask("SET before v");
        if !disk.freeze() {
            return;
        }
        let mut writer = server.connect();
        write_by_log(&mut admin, || writer.send(&["SET", "k", "v"]));
        drop(writer);
        wait_until_alone(&mut admin, "it is gone");
        disk.thaw();
    }
}

/// As `write_by`, of what no replica ever asked for.
fn write_by_log(admin: &mut Client, write: impl FnOnce()) {
    let before = figure(admin, "persistence", "rdb_changes_since_last_save");
    write();
    let changes = |admin: &mut Client| figure(admin, "persistence", "rdb_changes_since_last_save");
    wait_until("it is written", || changes(admin) > before);
}

/// Whoever has only closed its half is still answered, if that takes no longer than usual.
#[test]
fn who_closes_its_half_hears_of_what_is_on_disk() {
    for backend in backends() {
        let directory = crate::saving::directory();
        let options = ["--appendfsync", "always"];
        let (server, _admin) = crate::aof::start(backend, directory.path(), &options);
        let mut client = UnixStream::connect(server.socket()).unwrap();
        client.write_all(b"PING\r\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "+PONG\r\n");
    }
}

/// Before anybody replicates nothing is kept for replicas.
#[test]
fn the_first_write_waits_too() {
    for backend in backends() {
        let port = free_port().to_string();
        let options = ["--port", &port, "--repl-diskless-sync-delay", "0"];
        for first in ["CLIENT DURABILITY REPLICAS 1\r\n", "CONFIG SET write-quorum 1\r\n"] {
            for call in WRITES {
                let server = Server::kvasir(backend, &options);
                let mut writer = UnixStream::connect(server.socket()).unwrap();
                writer.set_read_timeout(Some(DEADLINE)).unwrap();
                writer.write_all(format!("{first}{call}").as_bytes()).unwrap();
                let changes = "rdb_changes_since_last_save";
                let mut admin = server.connect();
                wait_until("it is written", || figure(&mut admin, "persistence", changes) == 1);
                others_go_on(&server);
                // What stands before the write may have been answered in a turn of its own.
                let all = match call.starts_with("MULTI") {
                    true => "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n".len(),
                    false => "+OK\r\n+OK\r\n".len(),
                };
                let come = has_come(&mut writer);
                assert!(come < all, "{first}{call}");
                let port = port.parse().unwrap();
                let replica = replica(OURS[1], port, &[]).expect("it is ours");
                wait_until("it is linked", || is_linked(&mut replica.connect()));
                writer.read_exact(&mut vec![0; all - come]).unwrap();
                assert_eq!(replica.connect().ask_text("GET k"), "v");
            }
        }
    }
}

#[test]
fn client_unblock_ends_the_wait_for_replicas() {
    for backend in backends() {
        let server = Server::kvasir(backend, &["--memcached-unixsocket", "memcached"]);
        let mut admin = server.connect();
        let mut writer = server.connect();
        let id = writer.ask("CLIENT ID").as_integer().unwrap();
        assert_eq!(writer.ask_text("CLIENT DURABILITY REPLICAS 1"), "OK");
        for (round, word) in ["", " TIMEOUT", " ERROR"].into_iter().enumerate() {
            let call = format!("CLIENT UNBLOCK {id}{word}");
            assert_eq!(admin.ask(&call), Value::Integer(0));
            writer.send_raw(b"INCR n\r\nGET n\r\nMULTI\r\nINCR n\r\nEXEC\r\n");
            let all = (2 * round + 2).to_string();
            wait_until("all is written", || admin.ask("GET n").as_bytes() == Some(all.as_bytes()));
            wait_until("it is told", || admin.ask(&call) == Value::Integer(1));
            let replies: Vec<_> = (0..5).map(|_| show(&writer.read_reply().unwrap())).collect();
            assert_eq!(replies, [GIVEN_UP; 5], "{word}");
            assert_eq!(show(&writer.ask("PING")), "+PONG");
        }
        assert_eq!(figure(&mut admin, "clients", "blocked_clients"), 0);
        assert_eq!(admin.ask_text("GET n"), "6");
        // A message is no reply.
        writer.ask("HELLO 3");
        writer.ask("SUBSCRIBE news");
        writer.send_raw(b"INCR n\r\nPUBLISH news x\r\nINCR n\r\n");
        wait_until("all is written", || admin.ask_text("GET n") == "8");
        let call = format!("CLIENT UNBLOCK {id}");
        wait_until("it is told", || admin.ask(&call) == Value::Integer(1));
        let replies: Vec<_> = (0..4).map(|_| show(&writer.read_reply().unwrap())).collect();
        assert_eq!(replies.iter().filter(|reply| *reply == GIVEN_UP).count(), 3, "{replies:?}");
        assert_eq!(replies.iter().filter(|reply| reply.contains("message")).count(), 1);
        // What the former has read waits from now on, too.
        let mut admin = server.connect();
        assert_eq!(admin.ask_text("CONFIG SET write-quorum 1"), "OK");
        let mut items = UnixStream::connect(server.directory().join("memcached")).unwrap();
        items.set_read_timeout(Some(DEADLINE)).unwrap();
        items.write_all(b"set k 0 0 1\r\nx\r\n").unwrap();
        let list = |admin: &mut Client| admin.ask_text("CLIENT LIST");
        let is_other = |line: &&str| !line.contains(&format!("id={id} ")) && line.contains("=set");
        let mut line = String::new();
        wait_until("it has written", || {
            line = list(&mut admin).lines().find(is_other).unwrap_or_default().to_owned();
            !line.is_empty()
        });
        let id = line.strip_prefix("id=").unwrap().split(' ').next().unwrap();
        let call = format!("CLIENT UNBLOCK {id}");
        wait_until("it is told", || admin.ask(&call) == Value::Integer(1));
        let mut reply = String::new();
        items.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, format!("SERVER_ERROR {}\r\n", &GIVEN_UP[1..]));
    }
}

#[test]
fn reserved_places_are_for_who_administers_and_for_replicas() {
    const MAX: usize = 5;
    const TOO_MANY: &str = "-ERR max number of clients reached";
    for backend in backends() {
        let port = free_port();
        let text = port.to_string();
        let options = ["--maxclients", "5", "--maxclients-reserved", "2", "--write-quorum", "1"];
        let more = ["--port", &text, "--repl-diskless-sync-delay", "0"];
        let server = Server::kvasir(backend, &[&options[..], &more].concat());
        let mut admin = server.connect();
        admin.ask("ACL SETUSER weak on >weak ~* +@all -config");
        admin.ask("ACL SETUSER strong on >strong ~* &* +@all");
        admin.ask("ACL SETUSER default on >secret");
        wait_until_alone(&mut admin, "who looked has gone");
        let log_in = |user: &str| {
            let mut client = server.connect();
            assert_eq!(show(&client.ask(&format!("AUTH {user} {user}"))), "+OK");
            client
        };
        // The first administrator has one place.
        let mut writers: Vec<Client> = (1..MAX).map(|_| log_in("weak")).collect();
        writers.iter_mut().for_each(|writer| writer.send(&["INCR", "n"]));
        // It has a reserved place, until it shows that there is none for it.
        let mut late = log_in("weak");
        assert_eq!(show(&late.ask("INCR n")), TOO_MANY);
        assert!(late.ends());
        // Who says nothing of that kind has no place, either.
        let mut nobody = server.connect();
        assert_eq!(show(&nobody.ask("GET n")), TOO_MANY);
        assert!(nobody.ends());
        let mut admin = None;
        wait_until("there is a place", || {
            let mut next = server.connect();
            let is_in = next.try_send(&["AUTH", "strong", "strong"])
                && next.read_reply().is_some_and(|reply| show(&reply) == "+OK");
            admin = is_in.then_some(next);
            admin.is_some()
        });
        let mut admin = admin.unwrap();
        assert!(figure(&mut admin, "stats", "rejected_connections") >= 2);
        let options = ["--masteruser", "default", "--masterauth", "secret"];
        let replica = replica(OURS[1], port, &options).expect("it is ours");
        wait_until("the replica is linked", || is_linked(&mut replica.connect()));
        for writer in &mut writers {
            assert!(writer.read_reply().is_some_and(|reply| reply.as_integer().is_some()));
        }
        assert_eq!(figure(&mut admin, "clients", "connected_clients"), MAX as u64 + 1);
    }
}
