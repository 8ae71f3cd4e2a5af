//! What Valkey 9 has added to CLUSTER and to SHUTDOWN.

use crate::cluster::{Maker, Node, form};
use crate::harness::wait_until;

/// One node that has all slots.
fn alone(maker: Maker, options: &[&str]) -> Option<Node> {
    let node = Node::start(maker, options)?;
    assert_eq!(node.ask("CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
    wait_until("it is up", || node.ask("CLUSTER INFO").contains("cluster_state:ok"));
    Some(node)
}

#[test]
fn words_are_taken_and_refused_as_by_valkey() {
    let ours = alone(Maker::Kvasir, &[]).expect("it is ours");
    let Some(peer) = alone(Maker::Valkey, &[]) else { return };
    for line in [
        "CLUSTER FLUSHSLOT",
        "CLUSTER FLUSHSLOT x",
        "CLUSTER FLUSHSLOT 16384",
        "CLUSTER FLUSHSLOT 1",
        "CLUSTER FLUSHSLOT 1 ASYNC",
        "CLUSTER FLUSHSLOT 1 sync",
        "CLUSTER FLUSHSLOT 1 x",
        "CLUSTER FLUSHSLOT 1 SYNC ASYNC",
        "CLUSTER REPLICATE NO ONE",
        "CLUSTER REPLICATE no TWO",
        "CLUSTER REPLICATE x ONE",
        "CLUSTER REPLICATE NO ONE x",
        "CLUSTER REPLICATE NO",
        "SHUTDOWN SAFE",
        "SHUTDOWN safe NOW NOSAVE",
        "SHUTDOWN SAFE ABORT",
        "SET k v",
        "CLUSTER FLUSHSLOT 7629",
        "DBSIZE",
    ] {
        assert_eq!(ours.ask(line), peer.ask(line), "{line}");
    }
    let fields = |node: &Node| {
        let info = node.ask("CLUSTER INFO");
        let names = info.lines().filter_map(|line| line.split(':').next());
        let names = names.filter(|name| name.contains("nodes") || name.contains("slots"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(fields(&ours), fields(&peer));
}

#[test]
fn the_keys_of_a_slot_go_at_its_replica_too() {
    let nodes = form(&[Maker::Kvasir; 2]).expect("these are ours");
    let [primary, replica] = &nodes[..] else { panic!("there are two") };
    let mut client = primary.server.connect();
    for key in 0..300 {
        assert_eq!(client.ask_text(&format!("SET {{a}}{key} v")), "OK");
    }
    assert_eq!(client.ask_text("SET b v"), "OK");
    wait_until("the replica has them", || replica.ask("DBSIZE") == "301");
    assert!(replica.ask("CLUSTER FLUSHSLOT 15495").starts_with("READONLY"));
    assert_eq!(client.ask_text("CLUSTER FLUSHSLOT 15495"), "OK");
    assert_eq!(primary.ask("DBSIZE"), "1");
    wait_until("the replica has not", || replica.ask("DBSIZE") == "1");
}

#[test]
fn a_replica_becomes_an_empty_primary() {
    let nodes = form(&[Maker::Kvasir; 2]).expect("these are ours");
    let [primary, replica] = &nodes[..] else { panic!("there are two") };
    assert_eq!(primary.ask("SET a v"), "OK");
    wait_until("the replica has it", || replica.ask("DBSIZE") == "1");
    let shard = replica.ask("CLUSTER MYSHARDID");
    assert_eq!(replica.ask("CLUSTER REPLICATE NO ONE"), "OK");
    assert_eq!(replica.ask("DBSIZE"), "0");
    assert!(replica.ask("INFO replication").contains("role:master"));
    assert_ne!(replica.ask("CLUSTER MYSHARDID"), shard);
    let id = replica.id();
    wait_until("the other knows", || {
        let nodes = primary.ask("CLUSTER NODES");
        nodes.lines().any(|line| line.starts_with(&id) && line.contains(" master "))
    });
    assert_eq!(primary.ask("DBSIZE"), "1");
    // And back again, as a new node would.
    let primary_id = primary.id();
    assert_eq!(replica.ask(&format!("CLUSTER REPLICATE {primary_id}")), "OK");
    wait_until("it follows again", || replica.is_synced() && replica.ask("DBSIZE") == "1");
}

#[test]
fn a_signal_does_not_end_who_serves_slots() {
    let options = ["--shutdown-on-sigterm", "safe", "--logfile", "log"];
    let mut node = alone(Maker::Kvasir, &options).expect("it is ours");
    let pid = node.server.pid().to_string();
    let terminate = || {
        let status = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(status.expect("kill is here").success());
    };
    terminate();
    wait_until("it says why it goes on", || node.server.read_file("log").contains("can't exit"));
    assert_eq!(node.ask("CLUSTER FLUSHSLOTS"), "OK");
    terminate();
    assert!(node.server.wait_for_end().success());
}

#[test]
fn nodes_are_known_by_the_address_that_they_connect_from() {
    let options = ["--bind", "127.0.0.1", "127.0.0.3", "--bind-source-addr", "127.0.0.3"];
    let several = Node::start(Maker::Kvasir, &options).expect("it is ours");
    let other = Node::start(Maker::Kvasir, &[]).expect("it is ours");
    several.meet(&other);
    let (id, here) = (several.id(), format!("127.0.0.3:{}@", several.port));
    wait_until("the other knows it", || {
        let nodes = other.ask("CLUSTER NODES");
        nodes.lines().any(|line| line.starts_with(&id) && line.contains(&here))
    });
}
