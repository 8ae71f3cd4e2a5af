//! Clusters whose nodes speak TLS with each other.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::certificates::{Certificates, free_port};
use crate::cluster::{Maker, Node, join};
use crate::harness::{DEADLINE, wait_until};
use crate::migrate_slots::wait_for_state;

fn start(maker: Maker, certificates: &Certificates) -> Option<Node> {
    let port = free_port().to_string();
    let [certificate, key, authority] = [("server", "crt"), ("server", "key"), ("ca", "crt")]
        .map(|(name, ending)| certificates.name(name, ending));
    Node::start(
        maker,
        &[
            "--tls-port",
            &port,
            "--tls-cluster",
            "yes",
            "--tls-replication",
            "yes",
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &authority,
        ],
    )
}

/// Buses, replicas and MIGRATE, with Redis on one side or the other; Valkey as pip has it knows no
/// TLS.
#[test]
fn nodes_speak_tls_with_each_other() {
    let certificates = Certificates::new();
    for makers in [
        [Maker::Kvasir; 3],
        [Maker::Kvasir, Maker::Redis, Maker::Kvasir],
        [Maker::Redis, Maker::Kvasir, Maker::Kvasir],
    ] {
        let nodes: Option<Vec<Node>> =
            makers.iter().map(|maker| start(*maker, &certificates)).collect();
        let Some(nodes) = nodes else { continue };
        let nodes = join(nodes);
        let [one, two, replica] = &nodes[..] else { panic!("three were started") };
        assert_eq!(one.ask("SET bar 1"), "OK");
        wait_until("the replica has it", || replica.ask("DBSIZE") == "1");
        // A client without TLS is told of the port where it need not speak it.
        let moved = format!("MOVED 5061 127.0.0.1:{}", one.port);
        assert_eq!(two.ask("GET bar"), moved, "{makers:?}");
        if makers == [Maker::Kvasir; 3] {
            for (from, to) in [(one, two), (two, one)] {
                let to_id = to.id();
                let migrate = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5061 5061 NODE {to_id}");
                assert_eq!(from.ask(&migrate), "OK");
                wait_for_state(from, "success");
                assert_eq!(to.ask("GET bar"), "1");
            }
        }
        assert_eq!(two.ask(&format!("CLUSTER SETSLOT 5061 IMPORTING {}", one.id())), "OK");
        assert_eq!(one.ask(&format!("CLUSTER SETSLOT 5061 MIGRATING {}", two.id())), "OK");
        // MIGRATE connects by TLS, so it is told of the port where that is spoken.
        let port = two.tls_port();
        assert_eq!(one.ask(&format!("MIGRATE 127.0.0.1 {port} bar 0 10000")), "OK");
        assert_eq!(two.ask("CLUSTER COUNTKEYSINSLOT 5061"), "1");
    }
}

#[test]
fn who_does_not_speak_tls_is_no_node() {
    let certificates = Certificates::new();
    let node = start(Maker::Kvasir, &certificates).expect("it is ours");
    let mut stream = TcpStream::connect(("127.0.0.1", node.bus)).expect("the bus listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    stream.write_all(b"RCmb\0\0\x08\xd0").expect("it reads");
    // An alert, if anything, and the end.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"RCmb"));
    let other = Node::start(Maker::Kvasir, &[]).expect("it is ours");
    other.meet(&node);
    wait_until("the handshake is given up", || other.ask("CLUSTER INFO").contains("nodes:1"));
}
