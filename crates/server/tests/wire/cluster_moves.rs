//! Slots that move, while something else happens.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use kvasir_resp::value::Value;

use crate::certificates::free_port;
use crate::cluster::{Maker, Node, form, form_with};
use crate::harness::{Client, DEADLINE, wait_until};

/// So many that one of them is at a worker that does not wait.
const CLIENTS: usize = 4;
/// The slot of `bar`.
const SLOT: u16 = 5061;

/// Another node to which MIGRATE sends, and which takes its time to answer.
struct Target(TcpListener);

impl Target {
    fn new() -> Target {
        Target(TcpListener::bind("127.0.0.1:0").expect("there is a port"))
    }

    fn begin(&self, client: &mut Client, key: &str) {
        let port = self.0.local_addr().expect("it listens").port().to_string();
        client.send(&["MIGRATE", "127.0.0.1", &port, key, "0", "100000"]);
    }

    /// Has a client send a key here; returns when it is on its way.
    fn take(&self, client: &mut Client, key: &str) -> TcpStream {
        self.begin(client, key);
        let (mut stream, _) = self.0.accept().expect("a node connects");
        wait_for_key(&mut stream);
        stream
    }

    /// The same over a connection that was kept.
    fn take_more(&self, client: &mut Client, key: &str, stream: &mut TcpStream) {
        self.begin(client, key);
        wait_for_key(stream);
    }
}

fn wait_for_key(stream: &mut TcpStream) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 1024]);
    while !bytes.windows(14).any(|word| word == b"RESTORE-ASKING") {
        match stream.read(&mut chunk).expect("the key comes") {
            0 => panic!("the connection ends"),
            length => bytes.extend_from_slice(&chunk[..length]),
        }
    }
}

/// What the first of these clients is told: others are at the worker that waits.
fn first_of(clients: Vec<Client>, line: &'static str) -> Value {
    begin(clients, line).recv_timeout(DEADLINE).expect("a worker is free")
}

/// Has clients make a call each; what they are told comes as it does.
fn begin(clients: Vec<Client>, line: &'static str) -> mpsc::Receiver<Value> {
    let (tell, heard) = mpsc::channel();
    for mut client in clients {
        let tell = tell.clone();
        std::thread::spawn(move || {
            client.try_send(&line.split(' ').collect::<Vec<_>>());
            client.read_reply().map(|reply| tell.send(reply))
        });
    }
    heard
}

/// What all of them are told in the end.
fn all_of(heard: &mpsc::Receiver<Value>) -> Vec<Value> {
    (0..CLIENTS).map(|_| heard.recv_timeout(DEADLINE).expect("an answer")).collect()
}

fn clients(node: &Node) -> Vec<Client> {
    let connect = |_| {
        let mut client = node.server.connect();
        assert_eq!(client.ask_text("PING"), "PONG");
        client
    };
    (0..CLIENTS).map(connect).collect()
}

fn error(text: &str) -> Value {
    Value::Error(text.as_bytes().to_vec())
}

#[test]
fn what_is_on_its_way_is_read_and_not_written() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let (one, to) = (&nodes[0], nodes[1].id());
    assert_eq!(one.ask("SET bar 1"), "OK");
    assert_eq!(one.ask("SET {bar}2 1"), "OK");
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {to}")), "OK");
    let target = Target::new();
    let [mut mover, mut second] = [(); 2].map(|()| one.server.connect());
    let (writers, deleters, readers, pausers) =
        (clients(one), clients(one), clients(one), clients(one));
    let mut stream = target.take(&mut mover, "bar");
    // They wait until it is known where the key is.
    let writers = begin(writers, "SET bar 2");
    let deleters = begin(deleters, "EVAL return(redis.call('DEL',KEYS[1])) 1 bar");
    assert_eq!(first_of(readers, "GET bar").as_bytes(), Some(&b"1"[..]));
    assert!(writers.try_recv().is_err() && deleters.try_recv().is_err(), "they wait");
    stream.write_all(b"+OK\r\n").expect("it reads");
    let ask = error(&format!("ASK {SLOT} 127.0.0.1:{}", nodes[1].port));
    assert_eq!(all_of(&writers), vec![ask.clone(); CLIENTS]);
    assert_eq!(all_of(&deleters), vec![ask; CLIENTS]);
    assert_eq!(mover.read_reply().as_ref().and_then(Value::as_bytes), Some(&b"OK"[..]));
    assert_eq!(one.ask("GET bar"), format!("ASK {SLOT} 127.0.0.1:{}", nodes[1].port));
    // Who may not write any more when the answer comes keeps the key.
    target.take_more(&mut second, "{bar}2", &mut stream);
    assert_eq!(first_of(pausers, "CLIENT PAUSE 1000000 WRITE").as_bytes(), Some(&b"OK"[..]));
    stream.write_all(b"+OK\r\n").expect("it reads");
    let timeout = error("IOERR error or timeout reading to target instance");
    assert_eq!(second.read_reply(), Some(timeout));
    assert_eq!(one.ask("GET {bar}2"), "1");
}

/// The key stays, since the other node does not want it.
#[test]
fn who_waits_for_a_key_on_its_way_writes_to_it_where_it_stays() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let (one, to) = (&nodes[0], nodes[1].id());
    assert_eq!(one.ask("SET bar 1"), "OK");
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {to}")), "OK");
    let (target, mut mover) = (Target::new(), one.server.connect());
    let (writers, readers, mut within) = (clients(one), clients(one), clients(one));
    for client in &mut within {
        assert_eq!(client.ask_text("MULTI"), "OK");
        assert_eq!(client.ask_text("INCR bar"), "QUEUED");
    }
    let mut stream = target.take(&mut mover, "bar");
    let (writers, within) = (begin(writers, "INCR bar"), begin(within, "EXEC"));
    assert_eq!(first_of(readers, "GET bar").as_bytes(), Some(&b"1"[..]));
    stream.write_all(b"-BUSYKEY it is there\r\n").expect("it reads");
    let refused = error("ERR Target instance replied with error: BUSYKEY it is there");
    assert_eq!(mover.read_reply(), Some(refused));
    let written = all_of(&writers).into_iter().chain(all_of(&within));
    assert!(written.into_iter().all(|answer| !answer.is_error()));
    assert_eq!(one.ask("GET bar"), (1 + 2 * CLIENTS).to_string());
}

/// A call of MIGRATE goes where the last one went, unless that one has hung up.
#[test]
fn a_connection_is_kept_for_the_next_keys() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let (one, to) = (&nodes[0], nodes[1].id());
    for key in ["bar", "{bar}2", "{bar}3", "{bar}4"] {
        assert_eq!(one.ask(&format!("SET {key} 1")), "OK");
    }
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {to}")), "OK");
    let kept = |count: usize| {
        let field = format!("migrate_cached_sockets:{count}\r\n");
        wait_until("so many are kept", || one.ask("INFO stats").contains(&field));
    };
    let (target, mut mover) = (Target::new(), one.server.connect());
    kept(0);
    // Nothing is asked while a key is on its way: who is asked may be who waits.
    let mut stream = target.take(&mut mover, "bar");
    stream.write_all(b"+OK\r\n").expect("it reads");
    assert_eq!(mover.read_reply().as_ref().and_then(Value::as_bytes), Some(&b"OK"[..]));
    kept(1);
    target.take_more(&mut mover, "{bar}2", &mut stream);
    stream.write_all(b"-BUSYKEY it is there\r\n").expect("it reads");
    let refused = error("ERR Target instance replied with error: BUSYKEY it is there");
    assert_eq!(mover.read_reply(), Some(refused));
    kept(1);
    // Who has hung up is connected to again.
    drop(stream);
    let mut stream = target.take(&mut mover, "{bar}3");
    stream.write_all(b"+OK\r\n").expect("it reads");
    assert_eq!(mover.read_reply().as_ref().and_then(Value::as_bytes), Some(&b"OK"[..]));
    // Who answers a part and hangs up is not.
    target.take_more(&mut mover, "{bar}4", &mut stream);
    stream.write_all(b"+O").expect("it reads");
    drop(stream);
    let lost = error("IOERR error or timeout reading to target instance");
    assert_eq!(mover.read_reply(), Some(lost));
    kept(0);
    assert_eq!(one.ask("GET {bar}4"), "1");
    assert_eq!(one.ask("GET {bar}3"), format!("ASK {SLOT} 127.0.0.1:{}", nodes[1].port));
}

/// What is left of a slot that was lost is gone before a key comes that belongs there.
#[test]
fn a_slot_that_comes_back_is_empty() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let [one, two, _] = &nodes[..] else { panic!("three were started") };
    let fill = "for at = 1, 50000 do redis.call('SET', '{bar}' .. at, at) end";
    assert_eq!(one.server.connect().call(&["EVAL", fill, "1", "bar"]), Value::Null);
    assert_eq!(two.ask(&format!("CLUSTER SETSLOT {SLOT} NODE {}", two.id())), "OK");
    assert!(two.ask("CLUSTER BUMPEPOCH").starts_with("BUMPED"));
    let moved = format!("MOVED {SLOT} 127.0.0.1:{}", two.port);
    wait_until("the slot is lost", || one.ask("GET bar") == moved);
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", two.id())), "OK");
    assert_eq!(one.ask(&format!("CLUSTER COUNTKEYSINSLOT {SLOT}")), "0");
    let mut client = one.server.connect();
    assert_eq!(client.ask_text("ASKING"), "OK");
    assert_eq!(client.ask_text("SET {bar}1 new"), "OK");
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} NODE {}", one.id())), "OK");
    assert_eq!(one.ask("GET {bar}1"), "new");
    // And what is lost goes when nothing comes. The second may hear only now that it has lost the
    // slot, so it takes it until it is heard itself.
    wait_until("the slot is lost again", || {
        assert_eq!(two.ask(&format!("CLUSTER SETSLOT {SLOT} NODE {}", two.id())), "OK");
        two.ask("CLUSTER BUMPEPOCH");
        one.ask(&format!("CLUSTER COUNTKEYSINSLOT {SLOT}")) == "0"
    });
}

/// While it moves they stay; where it has gone they are sent.
#[test]
fn who_waits_or_listens_hears_that_a_slot_has_gone() {
    let nodes = form(&[Maker::Kvasir; 3]).expect("these are ours");
    let [one, two, _] = &nodes[..] else { panic!("three were started") };
    let [mut listener, mut waiter] = [(); 2].map(|()| one.server.connect());
    listener.ask("SSUBSCRIBE bar");
    waiter.send(&["BLPOP", "bar", "0"]);
    wait_until("it waits", || one.ask("INFO clients").contains("blocked_clients:1"));
    assert_eq!(two.ask(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {}", one.id())), "OK");
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", two.id())), "OK");
    assert_eq!(one.ask("SPUBLISH bar hello"), "1");
    let message = |words: [&str; 3]| Some(words.map(str::to_owned).to_vec());
    let mut heard = || {
        let value = listener.read_reply()?;
        let text = |part: &Value| match part {
            Value::Integer(number) => number.to_string(),
            part => String::from_utf8_lossy(part.as_bytes().unwrap_or_default()).into_owned(),
        };
        Some(value.as_array()?.iter().map(text).collect::<Vec<_>>())
    };
    assert_eq!(heard(), message(["smessage", "bar", "hello"]));
    assert_eq!(one.ask(&format!("CLUSTER SETSLOT {SLOT} NODE {}", two.id())), "OK");
    assert_eq!(heard(), message(["sunsubscribe", "bar", "0"]));
    let moved = format!("MOVED {SLOT} 127.0.0.1:{}", two.port);
    assert_eq!(waiter.read_reply(), Some(error(&moved)));
}

#[test]
fn a_replica_that_is_reset_has_no_data() {
    let nodes = form_with(&[Maker::Kvasir; 2], &["--appendonly", "yes"]).expect("these are ours");
    let [primary, replica] = &nodes[..] else { panic!("two were started") };
    assert_eq!(primary.ask("SET bar 1"), "OK");
    wait_until("the replica has it", || replica.ask("DBSIZE") == "1");
    let mut client = replica.server.connect();
    client.send_raw(b"CLUSTER RESET\r\nDBSIZE\r\n");
    client.read_reply();
    assert_eq!(client.read_reply(), Some(Value::Integer(0)));
}

/// All keys of a cluster, asked for where the cursor says, each node of another maker.
#[test]
fn a_walk_goes_through_all_nodes() {
    for makers in [[Maker::Kvasir; 3], [Maker::Kvasir, Maker::Valkey, Maker::Valkey]] {
        let Some(nodes) = form(&makers) else { continue };
        let mut wanted: Vec<String> = (0..200).map(|number| format!("key:{number}")).collect();
        wanted.extend((0..50).map(|number| format!("{{bar}}{number}")));
        for key in &wanted {
            let is_set = nodes[..2].iter().any(|node| node.ask(&format!("SET {key} 1")) == "OK");
            assert!(is_set, "{key}");
        }
        for (options, count) in [("COUNT 7", 250), ("MATCH key:1*", 111), ("SLOT 5061", 50)] {
            let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
            let mut at = 0;
            loop {
                let call = format!("CLUSTERSCAN {cursor} {options}");
                let answer = nodes[at].server.connect().ask(&call);
                let Some([next, keys]) = answer.as_array() else {
                    assert!(answer.is_error(), "{makers:?} {answer:?}");
                    at = 1 - at;
                    continue;
                };
                let text = |value: &Value| {
                    String::from_utf8_lossy(value.as_bytes().expect("a text")).into_owned()
                };
                found.extend(keys.as_array().expect("a list").iter().map(text));
                cursor = text(next);
                if cursor == "0" {
                    break;
                }
            }
            found.sort();
            found.dedup();
            assert_eq!(found.len(), count, "{makers:?} {options}");
        }
        let one = &nodes[0];
        assert_eq!(one.ask("CLUSTERSCAN 1"), "ERR Invalid cursor");
        let mismatch = "ERR Cursor slot mismatch with SLOT argument";
        assert_eq!(one.ask("CLUSTERSCAN 0-{bar}-0 SLOT 1"), mismatch);
        let moved = format!("MOVED 12182 127.0.0.1:{}", nodes[1].port);
        assert_eq!(one.ask("CLUSTERSCAN 0-{foo}-0"), moved);
    }
}

#[test]
fn clients_of_memcached_are_told_of_a_slot_that_moves_in_their_words() {
    let port = free_port();
    let (text, options) = (port.to_string(), "--memcached-port");
    let one = Node::start(Maker::Kvasir, &[options, &text]).expect("it is ours");
    let two = Node::start(Maker::Kvasir, &[]).expect("it is ours");
    assert_eq!(one.ask("CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
    one.meet(&two);
    wait_until("the cluster is up", || one.ask("CLUSTER INFO").contains("cluster_state:ok"));
    wait_until("they know each other", || {
        one.ask(&format!("CLUSTER SETSLOT {SLOT} MIGRATING {}", two.id())) == "OK"
    });
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    stream.write_all(b"set bar 0 0 1\r\n1\r\nget foo\r\n").expect("it reads");
    let wanted = b"SERVER_ERROR TRYAGAIN Multiple keys request during rehashing of slot\r\nEND\r\n";
    let mut answer = vec![0; wanted.len()];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(answer, wanted);
    assert_eq!(one.ask(&format!("CLUSTER COUNTKEYSINSLOT {SLOT}")), "0");
}

/// All texts in a reply.
fn texts(value: &Value) -> String {
    match value.as_array() {
        Some(all) => all.iter().map(texts).collect::<Vec<_>>().join(" "),
        None => String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned(),
    }
}

/// Whoever asks right after CONFIG SET is told of it.
#[test]
fn a_new_hostname_is_told_at_once() {
    let node = Node::start(Maker::Kvasir, &[]).expect("it is ours");
    assert_eq!(node.ask("CLUSTER ADDSLOTS 5"), "OK");
    let mut client = node.server.connect();
    for name in ["first.example", "second.example", "third.example"] {
        assert_eq!(client.ask_text(&format!("CONFIG SET cluster-announce-hostname {name}")), "OK");
        assert!(client.ask_text("CLUSTER NODES").contains(name));
        client.send(&["CLUSTER", "SLOTS"]);
        let slots = format!("{:?}", client.read_reply().map(|slots| texts(&slots)));
        assert!(slots.contains(name), "{slots}");
    }
}

/// One that says nothing of itself may touch what it likes, as long as that is here.
#[test]
fn a_script_with_flags_keeps_to_the_slot_that_it_was_called_with() {
    let node = Node::start(Maker::Kvasir, &[]).expect("it is ours");
    assert_eq!(node.ask("CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
    wait_until("it serves", || node.ask("SET foo 1") == "OK");
    let mut client = node.server.connect();
    let refusal = "ERR Script attempted to access keys that do not hash to the same slot";
    let plain = "return redis.call('GET', 'foo')";
    for (head, keys, answer) in [
        ("", &["1", "bar"][..], Ok("1")),
        ("#!lua\n", &["1", "bar"], Err(refusal)),
        ("#!lua\n", &["1", "{foo}2"], Ok("1")),
        ("#!lua\n", &["0"], Ok("1")),
        ("#!lua flags=allow-cross-slot-keys\n", &["1", "bar"], Ok("1")),
    ] {
        let script = format!("{head}{plain}");
        let reply = client.call(&[&["EVAL", &script][..], keys].concat());
        match (answer, &reply) {
            (Ok(value), reply) => assert_eq!(reply.as_bytes(), Some(value.as_bytes()), "{script}"),
            (Err(text), Value::Error(error)) => {
                assert!(String::from_utf8_lossy(error).starts_with(text), "{script} {reply:?}");
            }
            (Err(_), reply) => panic!("{script} {reply:?}"),
        }
    }
}
