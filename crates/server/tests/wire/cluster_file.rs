//! nodes.conf on a disk that takes its time, or does not take it.

use std::fs;
use std::path::PathBuf;

use kvasir_resp::value::Value;

use crate::cluster::{Maker, Node, join};
use crate::harness::wait_until;
use crate::small_disk::SmallDisk;

/// One of the first node's.
const SLOT: u16 = 5061;
/// Calls of another client while the disk hangs.
const SERVED: usize = 100;

/// What a node says of the slots that another one has.
fn slots_of(node: &Node, id: &str) -> String {
    let nodes = node.ask("CLUSTER NODES");
    let line = nodes.lines().find(|line| line.starts_with(id)).unwrap_or_default();
    line.split(' ').skip(8).collect::<Vec<_>>().join(" ")
}

#[test]
fn who_gets_a_slot_is_answered_once_the_disk_has_it_and_nobody_else_waits() {
    let Some(disk) = SmallDisk::new() else { return };
    let directory = disk.path();
    let start = |options: &[&str]| Node::start(Maker::Kvasir, options).expect("it is ours");
    let file = directory.join("nodes.conf");
    let directory = directory.to_str().expect("a path of ours");
    let nodes = join(vec![
        start(&[]),
        // FLUSHALL waits for the disk where there are save points.
        start(&["--dir", directory, "--save", ""]),
        start(&[]),
    ]);
    // Thawed before they end.
    let disk = disk;
    let (old, new) = (nodes[0].id(), nodes[1].id());
    let importing = format!("[{SLOT}-<-{old}]");
    assert_eq!(nodes[1].ask(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {old}")), "OK");
    wait_until("the file has all so far", || {
        fs::read_to_string(&file).is_ok_and(|text| text.contains(&importing))
    });
    if !disk.freeze() {
        return;
    }
    let mut asker = nodes[1].server.connect();
    asker.send(&["CLUSTER", "SETSLOT", &SLOT.to_string(), "NODE", &new]);
    wait_until("it has the slot", || slots_of(&nodes[1], &new).contains(&SLOT.to_string()));
    let mut client = nodes[1].server.connect();
    for number in 0..SERVED {
        // A key of its own slots; the whole world stands still for FLUSHALL.
        let number = number.to_string();
        assert_eq!(client.call(&["SET", "{foo}", &number]).as_bytes(), Some(&b"OK"[..]));
        assert_eq!(client.ask_text("FLUSHALL"), "OK");
    }
    let clients = client.ask_text("CLIENT LIST");
    let waits = |line: &&str| line.contains("flags=b") && line.contains("cmd=cluster|setslot");
    assert_eq!(clients.lines().filter(waits).count(), 1, "{clients}");
    assert!(!slots_of(&nodes[0], &new).contains(&SLOT.to_string()));
    disk.thaw();
    assert_eq!(asker.read_reply().expect("an answer").as_bytes(), Some(&b"OK"[..]));
    let text = fs::read_to_string(&file).expect("it is there");
    let line = text.lines().find(|line| line.starts_with(&new)).expect("it knows itself");
    assert!(line.contains(&format!(" {SLOT} ")) && !line.contains(&importing), "{line}");
    wait_until("others hear of it", || {
        slots_of(&nodes[0], &new).split(' ').any(|range| range == SLOT.to_string())
    });
}

/// What stands in the way of the file that is written beside.
fn obstacle(node: &Node) -> PathBuf {
    node.server.directory().join(format!("nodes.conf.tmp-{}", node.server.pid()))
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_and_still_to_come() {
    let mut node = Node::start(Maker::Kvasir, &[]).expect("it is ours");
    fs::create_dir(obstacle(&node)).expect("nothing is there");
    let error = "ERR error saving the cluster node config: Is a directory";
    assert_eq!(node.ask("CLUSTER SAVECONFIG"), error);
    fs::remove_dir(obstacle(&node)).expect("it is empty");
    assert_eq!(node.ask("CLUSTER SAVECONFIG"), "OK");
    // What may be written later, and cannot be: it is not forgotten with the error.
    fs::create_dir(obstacle(&node)).expect("nothing is there");
    let mut client = node.server.connect();
    client.send_raw(b"CLUSTER SETSLOT 1 STABLE\r\nCLUSTER SAVECONFIG\r\n");
    if let Some(answer) = client.read_reply() {
        assert_eq!(answer, Value::Simple(b"OK".to_vec()));
    }
    // No node tells others what its next start would not know.
    assert_eq!(node.server.wait_for_end().code(), Some(1));
}

/// A node that may says that its file is old, and goes on.
#[test]
fn a_node_that_may_goes_on_without_its_file() {
    let best_effort = ["--cluster-config-save-behavior", "best-effort"];
    let node = Node::start(Maker::Kvasir, &best_effort).expect("it is ours");
    fs::create_dir(obstacle(&node)).expect("nothing is there");
    let error = "ERR error saving the cluster node config: Is a directory";
    assert_eq!(node.ask("CLUSTER ADDSLOTS 1 2 3"), "OK");
    assert_eq!(node.ask("CLUSTER BUMPEPOCH"), "BUMPED 1");
    assert_eq!(node.ask("CLUSTER SETSLOT 1 STABLE"), "OK");
    assert_eq!(node.ask(&format!("CLUSTER SETSLOT 4 NODE {}", node.id())), "OK");
    assert_eq!(node.ask("CLUSTER SAVECONFIG"), error);
    assert_eq!(slots_of(&node, &node.id()), "1-4");
    // What was not written is still to come.
    fs::remove_dir(obstacle(&node)).expect("it is empty");
    let file = node.server.directory().join("nodes.conf");
    wait_until("the file has all", || {
        fs::read_to_string(&file).is_ok_and(|text| text.contains("connected 1-4"))
    });
    assert_eq!(node.ask("CLUSTER SAVECONFIG"), "OK");
}
