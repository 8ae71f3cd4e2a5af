//! Three nodes: rows from all of them, rows to whoever has the slot.

use kvasir_harness::server::{Server, free_port};
use kvasir_harness::wait::wait_until;
use kvasir_resp::value::Value;

use crate::support::{TABLES, ask, failure, fill, of_tables, rows};

fn form() -> Vec<Server> {
    let start = |_| {
        let bus = free_port().expect("a port").to_string();
        let options = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--bind", "127.0.0.1"];
        let server = crate::support::start(&options);
        (server, bus)
    };
    let nodes: Vec<_> = (0..3).map(start).collect();
    for (number, (server, _)) in nodes.iter().enumerate() {
        let slots = ["0 5460", "5461 10922", "10923 16383"][number];
        let mut client = server.client().expect("it serves");
        ask(&mut client, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
        for (other, bus) in &nodes[..number] {
            ask(&mut client, &format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port()));
        }
    }
    for (server, _) in &nodes {
        let mut client = server.client().expect("it serves");
        wait_until("the nodes know each other", || {
            let is_fine = client.text(&[b"CLUSTER", b"INFO"])?.contains("cluster_state:ok");
            let slots = format!("{:?}", client.call(&[b"CLUSTER", b"SLOTS"])?);
            Ok(is_fine && nodes.iter().all(|(node, _)| slots.contains(&node.port().to_string())))
        })
        .expect("they do");
    }
    nodes.into_iter().map(|(server, _)| server).collect()
}

#[test]
fn a_cluster_is_one_table() {
    let nodes = form();
    let mut clients: Vec<_> = nodes.iter().map(|node| node.client().expect("it serves")).collect();
    fill(|line| {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        let moved = clients.iter_mut().filter_map(|client| client.call(&words).ok());
        let moved = moved.filter(|reply| matches!(reply, Value::Error(_))).count();
        assert_eq!(moved, 2, "one of them has the slot: {line}");
    });
    let server = &nodes[1];
    let count = "SELECT count(*) AS n, sum(age) AS s FROM users";
    assert_eq!(of_tables(server, count), ["n,s", "10,255"]);
    let join = "SELECT count(*) AS n FROM users JOIN orders ON buyer = users.__key";
    assert_eq!(of_tables(server, join), ["n", "20"]);
    for (filter, count) in [
        ("__key = 'user:3'", "1"),
        ("__key IN ('user:1', 'user:2', 'user:3', 'user:4', 'user:5')", "5"),
        ("__key LIKE 'user:1%'", "2"),
    ] {
        let query = format!("SELECT count(*) AS n FROM users WHERE {filter}");
        assert_eq!(of_tables(server, &query), ["n", count], "{filter}");
    }
    let explain = "EXPLAIN FORMAT INDENT SELECT age FROM users WHERE __key = 'user:3'";
    let plan = of_tables(server, explain).join("\n");
    assert!(plan.contains("nodes=1, match=user:*, keys=[\"\"user:3\"\"]"), "{plan}");
    assert!(of_tables(server, "EXPLAIN SELECT age FROM users").join("\n").contains("nodes=3"));
    assert!(rows(server, "SELECT name FROM \"user:*\"").len() == 11);

    let create = "CREATE TABLE copied AS SELECT name, age FROM users; \
                  SELECT count(*) AS n, sum(age) AS s FROM copied";
    assert_eq!(of_tables(server, create), ["count", "10", "n,s", "10,255"]);
    let why = failure(server, "SELECT * FROM pagerank('out:*')");
    assert!(why.contains("each node of a cluster has a part"), "{why}");

    // Slots that nobody serves are no empty table.
    ask(&mut clients[2], "CLUSTER DELSLOTSRANGE 16000 16383");
    let why = failure(&nodes[2], &format!("{TABLES} SELECT count(*) FROM users"));
    assert!(why.contains("384 are served by nobody"), "{why}");
}
