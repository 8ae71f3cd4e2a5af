//! Rings: all that a connection does, through shared memory; clients that die, or mean harm.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kvasir_client::{Connection, Options};
use kvasir_reactor::ring::client::{Descriptors, Stream, receive};
use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::harness::{Client, DEADLINE, Server, each_backend, figure, wait_until};

fn options() -> Options {
    Options { timeout: Some(DEADLINE), ..Options::default() }
}

fn ring(server: &Server) -> Client {
    ring_of(server, &options())
}

fn ring_of(server: &Server, options: &Options) -> Client {
    let connection = Connection::open(server.socket(), options).expect("the server listens");
    assert_eq!(connection.fallback_reason(), None);
    Client::over(connection)
}

/// What a client of its own making has: the socket, and what came with the reply.
fn by_hand(server: &Server) -> (UnixStream, Descriptors) {
    let mut socket = UnixStream::connect(server.socket()).expect("the server listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    socket.write_all(b"CLIENT RING\r\n").expect("the server reads");
    let mut reply = [0; 64];
    let (count, descriptors) = receive(&socket, &mut reply).expect("the server answers");
    assert_eq!(&reply[..count], b":262144\r\n");
    (socket, descriptors.expect("they come with the reply"))
}

fn texts(value: &Value) -> Vec<String> {
    let items = match value {
        Value::Array(items) | Value::Push(items) => items,
        other => panic!("no array: {other:?}"),
    };
    let text = |item: &Value| match item {
        Value::Integer(number) => number.to_string(),
        item => String::from_utf8_lossy(item.as_bytes().unwrap_or(b"?")).into_owned(),
    };
    items.iter().map(text).collect()
}

#[test]
fn a_ring_does_all_that_a_socket_does() {
    each_backend(&[], |server| {
        let mut client = ring(server);
        let mut other = server.connect();
        assert_eq!(client.ask_text("SET k v"), "OK");
        assert_eq!(other.ask_text("GET k"), "v");

        // Several times what the ring holds, there and back.
        let large = b"0123456789abcdef".repeat(100_000);
        assert_eq!(client.call(&[&b"SET"[..], b"large", &large]).as_bytes(), Some(&b"OK"[..]));
        assert!(client.ask("GET large").as_bytes() == Some(&large[..]));
        assert!(other.ask("GET large").as_bytes() == Some(&large[..]));

        let calls = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(5000);
        client.send_raw(&calls);
        for expect in 1..=5000 {
            assert_eq!(client.read_reply().and_then(|value| value.as_integer()), Some(expect));
        }

        for call in ["MULTI", "SET k w", "GET k"] {
            client.ask(call);
        }
        assert_eq!(texts(&client.ask("EXEC")), ["OK", "w"]);
        assert_eq!(client.call(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]), {
            Value::Bulk(b"w".to_vec())
        });

        client.send(&["BLPOP", "list", "0"]);
        wait_until("it waits", || figure(&mut other, "clients", "blocked_clients") == 1);
        other.ask("RPUSH list x");
        assert_eq!(texts(&client.read_reply().expect("it is served")), ["list", "x"]);

        assert_eq!(texts(&client.ask("SUBSCRIBE news")), ["subscribe", "news", "1"]);
        other.ask("PUBLISH news hello");
        assert_eq!(texts(&client.read_reply().expect("a message")), ["message", "news", "hello"]);
        assert_eq!(figure(&mut other, "clients", "ring_clients"), 1);
        let list = other.ask_text("CLIENT LIST");
        assert_eq!(list.lines().filter(|line| line.ends_with(" ring=524288")).count(), 1, "{list}");
        drop(client);
        wait_until("it is gone", || figure(&mut other, "clients", "ring_clients") == 0);
    });
}

#[test]
fn a_ring_is_refused_with_a_reason() {
    each_backend(&["--ring-clients-max", "1", "--ring-size-max", "1mb"], |server| {
        let mut plain = server.connect();
        let mut check = |call: &str, expect: &str| {
            assert_eq!(plain.ask(call), Value::Error(expect.into()), "{call}");
        };
        check("CLIENT RING SIZE", "ERR syntax error");
        check("CLIENT RING SIZE x", "ERR value is not an integer or out of range");
        check("CLIENT RING SIZE -1", "ERR value is not an integer or out of range");
        check("CLIENT RING SIZE 1048577", "ERR A ring is no larger than ring-size-max.");
        let mut first = ring(server);
        assert_eq!(
            first.ask("CLIENT RING"),
            Value::Error("ERR This connection has a ring.".into())
        );
        check("CLIENT RING", "ERR ring-clients-max connections have a ring.");
        plain.ask("MULTI");
        let mut check = |call: &str, expect: &str| {
            assert_eq!(plain.ask(call), Value::Error(expect.into()), "{call}");
        };
        check("CLIENT RING", "ERR Command 'client|ring' not allowed inside a transaction");
        drop(first);

        // Behind something else, and before it.
        let mut client = server.connect();
        client.send_raw(b"PING\r\nCLIENT RING\r\n");
        client.read_reply();
        let reply = client.read_reply().expect("an answer");
        assert!(reply.is_error(), "{reply:?}");
        let mut client = server.connect();
        wait_until("there is a place", || figure(&mut client, "clients", "ring_clients") == 0);
        client.send_raw(b"CLIENT RING\r\nSET behind 1\r\n");
        client.read_reply();
        assert!(client.ends());
        assert_eq!(server.connect().ask("EXISTS behind").as_integer(), Some(0));
    });
}

#[test]
fn who_gets_no_ring_goes_on_over_the_socket() {
    let server = Server::kvasir("epoll", &["--ring-clients-max", "0"]);
    let quiet = Options { is_quiet: true, ..options() };
    let connection = Connection::open(server.socket(), &quiet).expect("the server listens");
    let reason = connection.fallback_reason().expect("there is a reason").to_owned();
    assert_eq!(reason, "ERR ring-clients-max connections have a ring.");
    assert_eq!(Client::over(connection).ask_text("PING"), "PONG");
    let Some(redis) = Server::redis(&[]) else { return };
    let connection = Connection::open(redis.socket(), &quiet).expect("the server listens");
    let reason = connection.fallback_reason().expect("there is a reason").to_owned();
    assert!(reason.starts_with("ERR unknown subcommand 'RING'"), "{reason}");
    assert_eq!(Client::over(connection).ask_text("PING"), "PONG");
}

#[test]
fn a_user_may_through_a_ring_what_it_may_elsewhere() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        admin.ask("ACL SETUSER alice on >secret ~a* +@all -client|kill");
        admin.ask("ACL SETUSER bob on >secret ~* +@all -client|ring");
        let of = |user: &str| Options {
            user: Some(user.into()),
            password: Some("secret".into()),
            is_quiet: true,
            ..options()
        };
        let mut alice = ring_of(server, &of("alice"));
        assert_eq!(alice.ask_text("SET a 1"), "OK");
        assert!(alice.ask("SET b 1").is_error());
        let bob = Connection::open(server.socket(), &of("bob")).expect("the server listens");
        assert!(bob.fallback_reason().is_some_and(|reason| reason.starts_with("NOPERM")));
        let wrong = Options { password: Some("wrong".into()), ..of("alice") };
        assert!(Connection::open(server.socket(), &wrong).is_err());
        // Whoever may not be any more is closed, and sees it at once.
        admin.ask("ACL DELUSER alice");
        assert!(alice.ends());
    });
}

#[test]
fn the_end_of_either_side_is_seen_by_the_other() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        let mut client = ring(server);
        let id = client.ask("CLIENT ID").as_integer().expect("a number");
        client.send(&["BLPOP", "nothing", "0"]);
        wait_until("it waits", || figure(&mut admin, "clients", "blocked_clients") == 1);
        admin.ask(&format!("CLIENT KILL ID {id}"));
        assert!(client.ends());

        let mut client = ring(server);
        client.send(&["QUIT"]);
        assert_eq!(client.read_reply(), Some(Value::Simple("OK".into())));
        assert!(client.ends());

        // Its half of the socket is shut: what it asked for is answered still.
        let (socket, descriptors) = by_hand(server);
        let mut stream = Stream::new(socket.try_clone().expect("a copy"), descriptors).unwrap();
        stream.write_all(b"PING\r\n").expect("there is room");
        socket.shutdown(Shutdown::Write).expect("it is open");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("it ends");
        assert_eq!(reply, b"+PONG\r\n");

        let mut client = ring(server);
        assert_eq!(client.ask_text("PING"), "PONG");
        client.send(&["BLPOP", "nothing", "0"]);
        let pid = nix::unistd::Pid::from_raw(server.pid().try_into().expect("a number"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
        assert!(client.ends());
    });
}

/// What the test of a killed client runs as a process of its own; does nothing otherwise.
#[test]
fn a_client_to_be_killed() {
    let Some(socket) = std::env::var_os("KVASIR_TEST_RING") else { return };
    let connection = Connection::open(Path::new(&socket), &options()).expect("it listens");
    let mut client = Client::over(connection);
    client.ask("SET alive 1");
    loop {
        client.call(&[&b"SET"[..], b"busy", &[b'x'; 50_000]]);
        client.ask("GET busy");
    }
}

fn child(server: &Server) -> Child {
    let program = std::env::current_exe().expect("this test");
    let mut command = Command::new(program);
    command.args(["--exact", "ring::a_client_to_be_killed", "--nocapture"]);
    command.env("KVASIR_TEST_RING", server.socket()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}

#[test]
fn a_client_that_is_killed_leaves_nothing() {
    each_backend(&[], |server| {
        let mut other = ring(server);
        for _ in 0..5 {
            let mut victim = child(server);
            wait_until("it is at work", || other.ask("DEL alive").as_integer() == Some(1));
            victim.kill().expect("it runs");
            victim.wait().expect("our child");
            wait_until("it is gone", || figure(&mut other, "clients", "ring_clients") == 1);
            assert_eq!(other.ask_text("PING"), "PONG");
        }
    });
}

/// A word of the memory, as the client sees it.
fn word(memory: &File, at: u64) -> u32 {
    let mut word = [0; 4];
    memory.read_exact_at(&mut word, at).expect("it is there");
    u32::from_le_bytes(word)
}

#[test]
fn a_client_that_dies_with_its_ring_full_is_let_go() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        admin.call(&[&b"SET"[..], b"large", &[b'x'; 300_000]]);
        for has_said_goodbye in [false, true] {
            let (socket, Descriptors { memory, bell, heard }) = by_hand(server);
            let (memory, mut bell) = (File::from(memory), File::from(bell));
            let request = b"GET large\r\n";
            memory.write_all_at(request, 4096).expect("there is room");
            memory.write_all_at(&(request.len() as u32).to_le_bytes(), 64).expect("it may");
            bell.write_all(&1u64.to_ne_bytes()).expect("it is a bell");
            wait_until("the ring is full", || word(&memory, 192) == 262_144);
            if has_said_goodbye {
                socket.shutdown(Shutdown::Write).expect("it is open");
                // The server has heard of it once a request of somebody else was behind it.
                (0..100).for_each(|_| assert_eq!(admin.ask_text("PING"), "PONG"));
                assert_eq!(figure(&mut admin, "clients", "ring_clients"), 1);
            }
            drop((socket, memory, bell, heard));
            wait_until("it is gone", || figure(&mut admin, "clients", "ring_clients") == 0);
        }
    });
}

#[test]
fn who_wants_no_replies_gets_no_ring_and_goes_on() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.send_raw(b"CLIENT REPLY OFF\r\nCLIENT RING\r\nCLIENT REPLY ON\r\n");
        assert_eq!(client.read_reply(), Some(Value::Simple("OK".into())));
        client.send_raw(b"CLIENT REPLY SKIP\r\nCLIENT RING\r\nPING\r\n");
        assert_eq!(client.read_reply(), Some(Value::Simple("PONG".into())));
        assert_eq!(figure(&mut client, "clients", "ring_clients"), 0);
    });
}

#[test]
fn a_ring_is_a_power_of_two_within_its_limits() {
    let size = ["--ring-size", "5000", "--ring-size-max", "100000"];
    each_backend(&size, |server| {
        for (asked, given) in
            [(None, 8192), (Some(1), 4096), (Some(4097), 8192), (Some(65_536), 65_536)]
        {
            let socket = UnixStream::connect(server.socket()).expect("the server listens");
            let size = asked.map(|bytes| format!(" SIZE {bytes}")).unwrap_or_default();
            (&socket).write_all(format!("CLIENT RING{size}\r\n").as_bytes()).expect("it reads");
            let mut reply = [0; 64];
            let (count, descriptors) = receive(&socket, &mut reply).expect("it answers");
            assert_eq!(String::from_utf8_lossy(&reply[..count]), format!(":{given}\r\n"));
            let memory = File::from(descriptors.expect("they come with it").memory);
            assert_eq!(memory.metadata().expect("a file").len(), 4096 + 2 * given);
        }
        // Rounded up it would be larger than may be.
        for size in ["65537", "100001", "18446744073709551615"] {
            let reply = server.connect().ask(&format!("CLIENT RING SIZE {size}"));
            assert!(reply.is_error(), "{size}: {reply:?}");
        }
    });
}

#[test]
fn a_ring_is_not_given_over_tcp() {
    let port = free_port();
    let port_text = port.to_string();
    let server = Server::kvasir("epoll", &["--bind", "127.0.0.1", "--port", &port_text]);
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    let mut client = Client::over(stream);
    let refused = "ERR A ring is for clients of a unix socket.";
    assert_eq!(client.ask("CLIENT RING"), Value::Error(refused.into()));
    assert_eq!(client.ask_text("PING"), "PONG");
    drop(server);
}

/// What a ring takes of a server, by what its descriptors lead to; how many rings are mapped.
/// Sockets and pipes have names that do not come again.
fn traces(server: &Server) -> (BTreeMap<String, usize>, usize) {
    let process = format!("/proc/{}", server.pid());
    let mut open = BTreeMap::new();
    for descriptor in std::fs::read_dir(format!("{process}/fd")).expect("it runs").flatten() {
        // It may be closed meanwhile.
        let Ok(target) = std::fs::read_link(descriptor.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        if ["socket:", "pipe:", "anon_inode:[eventfd]", "/memfd:"]
            .iter()
            .any(|kind| target.starts_with(kind))
        {
            *open.entry(target).or_default() += 1;
        }
    }
    let maps = std::fs::read_to_string(format!("{process}/maps")).expect("it runs");
    (open, maps.lines().filter(|line| line.contains("kvasir-ring")).count())
}

#[test]
fn a_thousand_rings_leave_no_trace() {
    each_backend(&[], |server| {
        let mut admin = server.connect();
        admin.ask("PING");
        let (before, _) = traces(server);
        for round in 0..1000 {
            let mut client = ring(server);
            // Every other one is gone before it has said anything.
            if round % 2 == 0 {
                assert_eq!(client.ask_text("PING"), "PONG");
            }
        }
        wait_until("all are gone", || figure(&mut admin, "clients", "ring_clients") == 0);
        // A worker may have forgotten a connection that the kernel gives back in its next turn.
        // What was open before may end as well, such as a connection that asked whether the
        // server is there; so nothing new is what must come, not what was.
        let mut left = (Vec::new(), 0);
        wait_until("nothing is left of them", || {
            let (open, maps) = traces(server);
            let is_new = |(name, count): &(String, usize)| before.get(name).unwrap_or(&0) < count;
            let new = (open.into_iter().filter(is_new).collect(), maps);
            let is_changed = std::mem::replace(&mut left, new) != left;
            if is_changed {
                eprintln!("{}: left are {left:?}", server.name);
            }
            left.0.is_empty() && left.1 == 0
        });
    });
}

#[test]
fn a_hostile_client_hurts_nobody_else() {
    each_backend(&[], |server| {
        let mut other = ring(server);
        let mut admin = server.connect();
        admin.call(&[&b"SET"[..], b"large", &[b'x'; 300_000]]);
        let scribble = |memory: &File, at: u64, value: u32| {
            memory.write_all_at(&value.to_le_bytes(), at).expect("it may write there");
        };
        // The size cannot be changed, and the indices are not believed.
        for (at, value) in [(64, 262_145), (64, u32::MAX), (256, 300_000), (256, u32::MAX)] {
            let (mut socket, descriptors) = by_hand(server);
            let memory = File::from(descriptors.memory);
            assert!(memory.set_len(0).is_err() && memory.set_len(1 << 30).is_err());
            let request = b"GET large\r\n";
            memory.write_all_at(request, 4096).expect("there is room");
            scribble(&memory, at, value);
            if at != 64 {
                scribble(&memory, 64, request.len() as u32);
            }
            let mut bell = File::from(descriptors.bell);
            bell.write_all(&1u64.to_ne_bytes()).expect("it is a bell");
            let mut rest = Vec::new();
            assert_eq!(socket.read_to_end(&mut rest).expect("it is closed"), 0, "{at} {value}");
        }
        // Whatever stands in the header and the requests, again and again.
        let (socket, descriptors) = by_hand(server);
        let (memory, mut bell) = (File::from(descriptors.memory), File::from(descriptors.bell));
        let mut tail = 0;
        for round in 0..200u32 {
            let noise: Vec<u8> = (0..1000).map(|i| ((i * round * 7919) >> 3) as u8).collect();
            memory.write_all_at(&noise, 4096 + u64::from(tail)).expect("there is room");
            scribble(&memory, 192, round);
            scribble(&memory, 128, !round);
            scribble(&memory, 320, round);
            tail += 1000;
            scribble(&memory, 64, tail);
            bell.write_all(&1u64.to_ne_bytes()).expect("it is a bell");
        }
        drop(socket);
        assert_eq!(other.ask_text("PING"), "PONG");
        wait_until("all are gone", || figure(&mut admin, "clients", "ring_clients") == 1);
    });
}

#[test]
fn who_never_reads_is_held_to_its_limits() {
    let limit = ["--client-output-buffer-limit", "normal 4mb 0 0"];
    each_backend(&limit, |server| {
        let mut admin = server.connect();
        admin.call(&[&b"SET"[..], b"large", &vec![b'x'; 300_000]]);
        let mut other = ring(server);
        let (socket, descriptors) = by_hand(server);
        let mut stream = Stream::new(socket, descriptors).expect("it is a ring");
        stream.set_timeout(Some(DEADLINE));
        // It asks on, and reads nothing.
        while stream.write_all(b"GET large\r\n").is_ok() {}
        assert_eq!(other.ask_text("PING"), "PONG");
        wait_until("it is closed", || figure(&mut admin, "clients", "ring_clients") == 1);
        assert!(figure(&mut admin, "stats", "client_output_buffer_limit_disconnections") > 0);
    });
}

#[test]
fn a_ring_counts_as_its_clients_memory() {
    let server = Server::kvasir("epoll", &["--ring-size", "1mb"]);
    let mut admin = server.connect();
    let _client = ring(&server);
    let list = admin.ask_text("CLIENT LIST");
    let line = list.lines().find(|line| line.contains(" ring=2097152")).expect("its line");
    let memory = line.split(' ').find_map(|word| word.strip_prefix("tot-mem=")).expect("a figure");
    assert!(memory.parse::<usize>().expect("a number") > 2_097_152, "{line}");
    let silent = Options { spin: Some(Duration::ZERO), ring_bytes: Some(4096), ..options() };
    assert_eq!(ring_of(&server, &silent).ask_text("PING"), "PONG");
}
