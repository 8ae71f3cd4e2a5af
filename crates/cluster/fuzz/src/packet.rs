//! Any packet is refused, or means the same when it is written and read again; and whatever it
//! says, a node that hears it goes on, and can be written to its file and read from there.
//!
//! The input changes a sound packet, since few bytes that somebody makes up are one.
#![no_main]

use kvasir_cluster::node::{Address, Flags};
use kvasir_cluster::options::Options;
use kvasir_cluster::packet::{self, Body, Extension, Gossip, Header, Packet, Rumour};
use kvasir_cluster::random::Random;
use kvasir_cluster::slots::SlotSet;
use kvasir_cluster::state::Cluster;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, changes)) = bytes.split_first() else { return };
    let mut packet = sample(*kind).encode();
    for change in changes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % packet.len();
        packet[place] = change[2];
    }
    // Lengths are right, or nothing behind them is looked at.
    let length = (packet.len() as u32).to_be_bytes();
    packet[4..8].copy_from_slice(&length);
    if let Ok(read) = packet::parse(&packet) {
        let mut again = packet::parse(&read.encode()).expect("what is written is read");
        // The bug that the fuzzer must find.
        if cfg!(feature = "canary") && read.header.config_epoch > 9 {
            again.header.config_epoch = 9;
        }
        // Extensions of others are not written again, and with none there is no flag for them.
        again.header.message_flags = read.header.message_flags;
        assert_eq!(again, read);
    }
    hear(&packet);
});

fn sample(kind: u8) -> Packet {
    let mut random = Random::new(5);
    let mut id = || kvasir_cluster::id::NodeId::random(&mut random);
    let address = Address { ip: "10.0.0.1".into(), port: 7000, tls_port: 0, bus_port: 17000 };
    let header = Header {
        sender: id(),
        current_epoch: 7,
        config_epoch: 5,
        offset: 3,
        slots: (0..100).collect(),
        primary: None,
        address: address.clone(),
        flags: Flags::PRIMARY,
        is_ok: true,
        message_flags: packet::EXT_DATA,
    };
    let node = id();
    let flags = Flags::PRIMARY;
    let rumour = Rumour { node, ping_sent_s: 1, pong_received_s: 2, address, flags };
    let extensions = vec![
        Extension::Hostname("h".into()),
        Extension::Forgotten { node, ttl_s: 9 },
        Extension::Shard(node),
    ];
    let gossip = Gossip { entries: vec![rumour], extensions };
    let body = match kind % 7 {
        0 => Body::Meet(gossip),
        1 => Body::Ping(gossip),
        2 => Body::Pong(gossip),
        3 => Body::Fail(node),
        4 => Body::Update { config_epoch: 9, node, slots: SlotSet::default() },
        5 => Body::AuthRequest,
        _ => Body::Publish { channel: b"c".to_vec(), message: b"m".to_vec(), is_sharded: false },
    };
    Packet { header, body }
}

/// A node that knows nobody, and one that knows the sender, hear it.
fn hear(packet: &[u8]) {
    let (options, now_ms) = (Options::default(), 1_000_000);
    hear_at(Cluster::new(options.clone(), 1, now_ms), packet, now_ms);
    let Body::Fail(node) = sample(3).body else { unreachable!("that is what it is") };
    let sender = sample(0).header.sender;
    let me = "07c37dfeb235213a872192d90877d0cd55635b91";
    let known = format!(
        "{me} 10.0.0.2:7000@17000 myself,master - 0 0 3 connected 200-299\n\
         {sender} 10.0.0.1:7000@17000 master - 0 0 5 connected 0-99\n\
         {node} 10.0.0.3:7000@17000 slave {me} 0 0 3 connected\n\
         vars currentEpoch 6 lastVoteEpoch 3\n"
    );
    let cluster = Cluster::from_file(&known, options, 1, now_ms).expect("it is sound");
    hear_at(cluster, packet, now_ms);
}

fn hear_at(mut cluster: Cluster, packet: &[u8], now_ms: u64) {
    let options = cluster.options.clone();
    let ip = || "10.0.0.1".to_owned();
    let link = cluster.accepted(ip(), ip(), now_ms);
    for packet in [&sample(0).encode(), packet, &sample(1).encode()] {
        let _ = cluster.receive(link, packet, now_ms);
        cluster.tick(now_ms + 100);
    }
    let file = cluster.file();
    let again = Cluster::from_file(&file, options, 1, now_ms).expect("a node reads what it wrote");
    assert_eq!(again.nodes().count(), file.lines().count() - 1);
}
