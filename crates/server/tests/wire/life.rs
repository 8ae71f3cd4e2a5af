//! ARCHITECTURE.md tells the life of one SET; this walks the same way and looks at each station.

use crate::check::show;
use crate::harness::each_backend;

/// The figure of an INFO field.
fn figure(info: &str, field: &str) -> u64 {
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("no figure {field}"))
}

#[test]
fn the_life_of_one_set() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let mut other = server.connect();
        let before = other.ask_text("INFO stats");

        // 1 to 3: the request comes in two pieces; the first alone does nothing.
        let request = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$64\r\n";
        client.send_raw(request);
        assert_eq!(show(&other.ask("EXISTS key:000000000001")), ":0");
        client.send_raw(&[b'v'; 64]);
        client.send_raw(b"\r\n");

        // 7: the reply.
        let reply = client.read_reply().expect("the connection is open");
        assert_eq!(show(&reply), "+OK");

        // 5 and 6: every worker finds the record, which takes 88 bytes and its place in a bucket.
        let value = "v".repeat(64);
        for client in [&mut client, &mut other] {
            assert_eq!(show(&client.ask("GET key:000000000001")), format!("${value}"));
        }
        assert_eq!(show(&other.ask("DBSIZE")), ":1");
        assert_eq!(show(&other.ask("MEMORY USAGE key:000000000001")), ":98");

        // What was counted on the way.
        let after = other.ask_text("INFO stats");
        let grown = |field| figure(&after, field) - figure(&before, field);
        assert!(grown("total_net_input_bytes") >= request.len() as u64 + 66);
        assert_eq!(grown("keyspace_hits"), 2);
        let stats = other.ask_text("INFO commandstats");
        let set = stats.lines().find(|line| line.starts_with("cmdstat_set:"));
        assert!(set.is_some_and(|line| line.contains("calls=1,")), "{set:?}");
    });
}
