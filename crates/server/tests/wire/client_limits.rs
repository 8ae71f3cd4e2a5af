//! What clients may make the server keep: output buffers, and the memory of all clients together.

use crate::check::{run_script, show};
use crate::harness::{Client, Server, backends, each_backend, figure, wait_until};

fn servers(options: &[&str]) -> impl Iterator<Item = Server> {
    let ours = backends().into_iter().map(|backend| Server::kvasir(backend, options));
    ours.chain(Server::redis(&[])).chain(Server::valkey(&[]))
}

#[test]
fn limits_are_set_as_at_redis() {
    let failed = "-ERR CONFIG SET failed (possibly related to argument \
                  'client-output-buffer-limit') -";
    let cases = [
        (
            "normal 1mb",
            format!("{failed} Wrong number of arguments in buffer limit configuration."),
        ),
        (
            "x 1 2 3",
            format!("{failed} Invalid client class specified in buffer limit configuration."),
        ),
        (
            "normal a 1 1",
            format!(
                "{failed} Error in hard, soft or soft_seconds setting in buffer limit \
                 configuration."
            ),
        ),
        ("normal 1mb 2kb 60 replica 1 2 3", "+OK".into()),
        ("", "+OK".into()),
    ];
    for server in servers(&[]) {
        let mut client = server.connect();
        let get = |client: &mut Client| show(&client.ask("CONFIG GET client-output-buffer-limit"));
        let name = "$client-output-buffer-limit";
        // What replicas have to get waits in the log here, and needs no limit.
        let of_replicas = match server.name {
            "redis-server" | "valkey-server" => "268435456 67108864 60",
            _ => "0 0 0",
        };
        let limits = format!("$normal 0 0 0 slave {of_replicas} pubsub 33554432 8388608 60");
        assert_eq!(get(&mut client), format!("[{name} {limits}]"));
        for (value, expected) in &cases {
            let call = ["CONFIG", "SET", "client-output-buffer-limit", value];
            assert_eq!(show(&client.call(&call)), *expected, "{}: {value}", server.name);
        }
        let limits = "$normal 1048576 2048 60 slave 1 2 3 pubsub 33554432 8388608 60";
        assert_eq!(get(&mut client), format!("[{name} {limits}]"), "{}", server.name);
        let replies = run_script(
            &mut client,
            "CONFIG SET maxmemory-clients 5%; CONFIG GET maxmemory-clients; \
             CONFIG SET maxmemory-clients 101%; CONFIG SET maxmemory-clients x; \
             CONFIG SET maxmemory-clients 1mb; CONFIG GET maxmemory-clients",
        );
        let failed = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') -";
        let expected = format!(
            "+OK; [$maxmemory-clients $5%]; {failed} percentage argument must be less or equal to \
             100; {failed} argument must be a memory or percent value; +OK; [$maxmemory-clients \
             $1048576]"
        );
        assert_eq!(replies, expected, "{}", server.name);
    }
}

/// A reply beyond the hard limit never leaves, and its client is closed; others are not.
#[test]
fn a_reply_beyond_the_hard_limit_closes_its_client() {
    // Valkey may send a part of it first.
    for server in servers(&[]).filter(|server| server.name != "valkey-server") {
        let (mut admin, mut client) = (server.connect(), server.connect());
        admin.call(&["CONFIG", "SET", "client-output-buffer-limit", "normal 100000 0 0"]);
        admin.call(&["SET", "k", &"x".repeat(50_000)]);
        assert_eq!(client.ask("GET k").as_bytes().map(<[u8]>::len), Some(50_000));
        client.send_raw(&b"MGET k k k k\r\n".repeat(4));
        assert!(client.read_reply().is_none(), "{}", server.name);
        assert_eq!(show(&admin.ask("PING")), "+PONG", "{}", server.name);
    }
}

/// A subscriber that does not read is closed by the hard limit of its class, whoever publishes.
#[test]
fn a_subscriber_that_does_not_read_is_closed() {
    each_backend(&["--io-threads", "4"], |server| {
        let (mut admin, mut subscriber) = (server.connect(), server.connect());
        admin.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]);
        subscriber.ask("SUBSCRIBE news");
        let message = "x".repeat(100_000);
        wait_until("it is closed", || {
            admin.call(&["PUBLISH", "news", &message]).as_integer() == Some(0)
        });
        let name = "client_output_buffer_limit_disconnections";
        assert_eq!(figure(&mut admin, "stats", name), 1, "{}", server.name);
        // What it can still read is less than was published.
        while subscriber.read_reply().is_some() {}
    });
}

#[test]
fn the_soft_limit_is_one_of_time() {
    each_backend(&[], |server| {
        let (mut admin, mut subscriber) = (server.connect(), server.connect());
        admin.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 100kb 1"]);
        subscriber.ask("SUBSCRIBE news");
        let message = "x".repeat(1 << 20);
        // More than the kernel takes: the rest stays here.
        for _ in 0..20 {
            assert_eq!(admin.call(&["PUBLISH", "news", &message]).as_integer(), Some(1));
        }
        let line = admin.ask_text("CLIENT LIST TYPE pubsub");
        let omem = line.split(" omem=").nth(1).unwrap().split(' ').next().unwrap();
        assert!(omem.parse::<u64>().unwrap() > 1 << 20, "{line}");
        wait_until("it is closed", || {
            figure(&mut admin, "stats", "client_output_buffer_limit_disconnections") == 1
        });
        assert_eq!(admin.ask("PUBLISH news x").as_integer(), Some(0));
    });
}

/// Clients with much unfinished input are closed from the largest down, but for those that may not.
#[test]
fn the_largest_clients_go_first() {
    each_backend(&["--io-threads", "4"], |server| {
        let mut admin = server.connect();
        admin.ask("CLIENT NO-EVICT on");
        let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
        clients[3].ask("CLIENT NO-EVICT on");
        // Part of a request, each longer than the one before.
        for (index, client) in clients.iter_mut().enumerate() {
            client.ask(&format!("CLIENT SETNAME c{index}"));
            client.send_raw(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 10 << 20).as_bytes());
            client.send_raw(&vec![b'x'; (index + 1) << 20]);
        }
        let waiting = |admin: &mut Client| {
            let list = admin.ask_text("CLIENT LIST");
            let input =
                |line: &str| line.split(" qbuf=").nth(1)?.split(' ').next()?.parse::<usize>().ok();
            list.lines().filter_map(input).sum::<usize>()
        };
        wait_until("all of it has come", || waiting(&mut admin) >= 10 << 20);
        admin.ask("CONFIG SET maxmemory-clients 8mb");
        wait_until("one has gone", || figure(&mut admin, "stats", "evicted_clients") == 1);
        assert!(clients[2].read_reply().is_none(), "{}: the largest that may", server.name);
        let list = admin.ask_text("CLIENT LIST");
        let is_there = |name: &str| list.contains(&format!(" name={name} "));
        assert_eq!(["c0", "c1", "c2", "c3"].map(is_there), [true, true, false, true], "{list}");
        admin.ask("CONFIG SET maxmemory-clients 1mb");
        wait_until("the others have gone", || figure(&mut admin, "stats", "evicted_clients") == 3);
        assert!(admin.ask_text("CLIENT LIST").contains(" name=c3 "), "{}", server.name);
    });
}

#[test]
fn what_is_queued_counts() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("MULTI");
        client.call(&["SET", "k", &"x".repeat(10_000)]);
        let line = server.connect().ask_text("CLIENT LIST");
        let queued = line.split(" multi-mem=").nth(1).unwrap().split(' ').next().unwrap();
        assert!(queued.parse::<usize>().unwrap() >= 10_000, "{line}");
        client.ask("DISCARD");
        assert!(client.ask_text("CLIENT INFO").contains(" multi-mem=0 "));
    });
}

#[test]
fn a_lower_limit_counts_for_output_that_waits_already() {
    each_backend(&[], |server| {
        let (mut client, mut slow) = (server.connect(), server.connect());
        client.call(&["SET", "big", &"x".repeat(1_000_000)]);
        (0..20).for_each(|_| slow.send(&["GET", "big"]));
        let is_waiting = |line: &&str| {
            let bytes = line.split(" omem=").nth(1).and_then(|rest| rest.split(' ').next());
            bytes.and_then(|bytes| bytes.parse().ok()).is_some_and(|bytes: u64| bytes > 10_000_000)
        };
        wait_until("its replies wait", || {
            client.ask_text("CLIENT LIST").lines().any(|line| is_waiting(&line))
        });
        client.call(&["CONFIG", "SET", "client-output-buffer-limit", "normal 5mb 0 0"]);
        wait_until("it is closed", || figure(&mut client, "clients", "connected_clients") == 1);
    });
}

/// What a client watches, has subscribed to or tracks: a call that names more, and one that forgets
/// all.
const NAMES: [(&str, &str); 5] = [
    ("WATCH", "UNWATCH"),
    ("SUBSCRIBE", "UNSUBSCRIBE"),
    ("PSUBSCRIBE", "PUNSUBSCRIBE"),
    ("SSUBSCRIBE", "SUNSUBSCRIBE"),
    ("CLIENT TRACKING ON BCAST PREFIX", "CLIENT TRACKING OFF"),
];

#[test]
fn names_count() {
    for server in servers(&[]) {
        let mut control = server.connect();
        assert_eq!(run_script(&mut control, "CLIENT NO-EVICT ON"), "+OK");
        control.ask("CONFIG SET maxmemory-clients 200000");
        // Valkey counts hardly anything for a prefix.
        let names = if server.name == "valkey-server" { &NAMES[..4] } else { &NAMES };
        for (more, _) in names {
            let mut client = server.connect();
            let is_told = |client: &mut Client, number: u32| {
                let call = format!("{more} {number:012}");
                client.try_send(&call.split(' ').collect::<Vec<_>>())
                    && client.read_reply().is_some()
            };
            let closed_at = (0..10_000).find(|number| !is_told(&mut client, *number));
            let closed_at = closed_at.unwrap_or_else(|| panic!("{}: {more}", server.name));
            assert!(closed_at > 500, "{}: {more} {closed_at}", server.name);
        }
    }
}

#[test]
fn names_that_are_forgotten_count_no_more() {
    const COUNT: usize = 1000;
    each_backend(&[], |server| {
        let (mut control, mut client) = (server.connect(), server.connect());
        client.ask("HELLO 3");
        let id = show(&client.ask("CLIENT ID"));
        let mut memory = || -> usize {
            let line = control.ask_text(&format!("CLIENT LIST ID {}", &id[1..]));
            let field = line.split(' ').find_map(|field| field.strip_prefix("tot-mem="));
            field.expect("it is there").parse().expect("a number")
        };
        for (more, less) in NAMES {
            let before = memory();
            for number in 0..COUNT {
                client.ask(&format!("{more} {number:012}"));
            }
            let with_names = memory();
            assert!(with_names > before + 100 * COUNT, "{more}: {before} {with_names}");
            client.send(&less.split(' ').collect::<Vec<_>>());
            wait_until(less, || memory() < before + 50 * COUNT);
            let answers = if less.contains("SUB") { COUNT } else { 1 };
            (0..answers).for_each(|_| drop(client.read_reply()));
        }
    });
}
