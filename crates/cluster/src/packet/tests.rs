//! Packets of every kind to bytes and back, and what is no packet.

use super::*;
use crate::random::Random;

fn sample() -> Packet {
    let mut random = Random::new(3);
    let mut id = || NodeId::random(&mut random);
    let address = Address { ip: "10.0.0.1".into(), port: 7000, tls_port: 7443, bus_port: 17000 };
    let header = Header {
        sender: id(),
        current_epoch: 7,
        config_epoch: 5,
        offset: 1 << 40,
        slots: (0..100).collect(),
        primary: Some(id()),
        address: address.clone(),
        flags: Flags::REPLICA | Flags::EXTENSIONS,
        is_ok: true,
        message_flags: PAUSED | EXT_DATA,
    };
    let rumour = Rumour {
        node: id(),
        ping_sent_s: 1,
        pong_received_s: 2,
        address,
        flags: Flags::PRIMARY | Flags::PFAIL,
    };
    let gossip = Gossip {
        entries: vec![rumour.clone(), rumour],
        extensions: vec![
            Extension::Hostname("node-1.example".into()),
            Extension::Nodename("one".into()),
            Extension::Forgotten { node: id(), ttl_s: 60 },
            Extension::Shard(id()),
        ],
    };
    Packet { header, body: Body::Ping(gossip) }
}

fn kinds() -> Vec<Packet> {
    let first = sample();
    let node = first.header.sender;
    let bodies = [
        first.body.clone(),
        Body::Fail(node),
        Body::Publish { channel: b"c".to_vec(), message: vec![0; 300], is_sharded: false },
        Body::Publish { channel: Vec::new(), message: Vec::new(), is_sharded: true },
        Body::AuthRequest,
        Body::AuthAck,
        Body::Update { config_epoch: 9, node, slots: (5..9).collect() },
        Body::ManualStart,
    ];
    bodies.into_iter().map(|body| Packet { header: first.header.clone(), body }).collect()
}

#[test]
fn every_kind_and_back() {
    for packet in kinds() {
        let bytes = packet.encode();
        assert_eq!(length(&bytes), Ok(Some(bytes.len())));
        assert_eq!(parse(&bytes), Ok(packet));
    }
}

#[test]
fn fields_stand_where_redis_has_them() {
    let packet = sample();
    let bytes = packet.encode();
    assert_eq!(&bytes[..4], b"RCmb");
    assert_eq!(&bytes[8..10], &[0, 1]);
    assert_eq!(&bytes[10..12], &7000u16.to_be_bytes());
    assert_eq!(&bytes[40..80], &packet.header.sender.digits());
    assert_eq!(bytes[80], 0xff);
    assert_eq!(&bytes[2168..2176], b"10.0.0.1");
    assert_eq!(&bytes[2214..2216], &[0, 4]);
    assert_eq!(&bytes[2246..2250], &[7443u16.to_be_bytes(), 17000u16.to_be_bytes()].concat());
    assert_eq!(bytes[2252], 0);
    assert_eq!(bytes[2253], PAUSED | EXT_DATA);
    let extensions = &bytes[HEADER_SIZE + 2 * GOSSIP_SIZE..];
    assert_eq!(&extensions[..8], &[0, 0, 0, 24, 0, 0, 0, 0]);
}

#[test]
fn cuts_and_flips_are_refused_or_read() {
    for packet in kinds() {
        let bytes = packet.encode();
        for cut in [0, 4, 8, 100, HEADER_SIZE - 1, bytes.len() - 1] {
            assert!(parse(&bytes[..cut]).is_err(), "{cut}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(parse(&longer), Err(Refusal::Length));
        let step = if bytes.len() > 3000 { 7 } else { 1 };
        for at in (0..bytes.len()).step_by(step) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x80;
            // Whatever comes of it: no panic, and what is read can be written.
            if let Ok(packet) = parse(&flipped) {
                packet.encode();
            }
        }
    }
}

#[test]
fn strangers_are_told_by_the_first_bytes() {
    assert_eq!(length(b"*1\r\n$4\r\nPING\r\n"), Err(Refusal::Signature));
    assert_eq!(length(b"RC"), Ok(None));
    assert_eq!(length(b"RCmb\xff\xff\xff\xff"), Err(Refusal::Length));
    let mut bytes = sample().encode();
    bytes[9] = 2;
    assert_eq!(parse(&bytes), Err(Refusal::Version));
}

#[test]
fn epochs_leave_room_for_more() {
    let mut packet = sample();
    packet.header.config_epoch = EPOCH_MAX;
    assert_eq!(parse(&packet.encode()), Ok(packet.clone()));
    packet.header.config_epoch += 1;
    assert_eq!(parse(&packet.encode()), Err(Refusal::Content));
    let mut packet = sample();
    packet.header.current_epoch = u64::MAX;
    assert_eq!(parse(&packet.encode()), Err(Refusal::Content));
    let node = packet.header.sender;
    let body = Body::Update { config_epoch: u64::MAX, node, slots: SlotSet::default() };
    let packet = Packet { header: sample().header, body };
    assert_eq!(parse(&packet.encode()), Err(Refusal::Content));
}

/// They stand in lines of nodes.conf.
#[test]
fn names_that_are_none_are_passed_over() {
    for name in ["a,b", "a b", "shard-id=x", "a\nb", &"a".repeat(256)] {
        let mut packet = sample();
        let extensions = vec![Extension::Hostname(name.into()), Extension::Nodename(name.into())];
        packet.body = Body::Ping(Gossip { entries: Vec::new(), extensions });
        let read = parse(&packet.encode()).expect("the rest is sound");
        assert_eq!(read.body, Body::Ping(Gossip::default()), "{name}");
    }
}

#[test]
fn an_extension_of_another_vendor_is_passed_over() {
    let packet = sample();
    let mut bytes = packet.encode();
    let at = bytes.len() - 48;
    assert_eq!(&bytes[at + 4..at + 6], &[0, 3]);
    bytes[at + 5] = 4;
    let read = parse(&bytes).expect("its length is known");
    let Body::Ping(gossip) = read.body else { panic!("it is a ping") };
    assert_eq!(gossip.extensions.len(), 3);
}
