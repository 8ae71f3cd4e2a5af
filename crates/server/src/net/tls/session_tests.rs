//! A session and a client of rustls, with nothing but memory between them.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use kvasir_reactor::Payload;
use proptest::prelude::*;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use super::{RECORD_MAX, RECORD_OVERHEAD, RECORDS_MAX, Session};

type Version = &'static rustls::SupportedProtocolVersion;

/// A server's certificate, and how to make a client that trusts it.
struct Identity {
    server: Arc<ServerConfig>,
    roots: RootCertStore,
}

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    Identity { server: Arc::new(server), roots }
});

/// Both ends, and all that either has read.
struct Ends {
    session: Session,
    client: ClientConnection,
    at_server: Vec<u8>,
    at_client: Vec<u8>,
}

impl Ends {
    fn new(version: Version) -> Ends {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(IDENTITY.roots.clone())
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let session = Session::new(Arc::clone(&IDENTITY.server)).unwrap();
        Ends { session, client, at_server: Vec::new(), at_client: Vec::new() }
    }

    /// Both ends, with hands shaken.
    fn open(version: Version) -> Ends {
        let mut ends = Ends::new(version);
        while ends.session.is_handshaking() || ends.client.is_handshaking() {
            let bytes = ends.client_bytes();
            ends.session.receive(&bytes, &mut ends.at_server).unwrap();
            ends.send_to_client(false);
        }
        ends
    }

    fn client_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Sends what the session has at once; how many bytes.
    fn send_to_client(&mut self, is_last: bool) -> usize {
        let mut bytes = Vec::new();
        self.session.send(&mut bytes, is_last).unwrap();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            self.client.process_new_packets().unwrap();
            // Ends with "would block" until the goodbye was read.
            let _ = self.client.reader().read_to_end(&mut self.at_client);
        }
        bytes.len()
    }
}

const VERSIONS: [Version; 2] = [&TLS12, &TLS13];

#[test]
fn an_idle_session_keeps_no_buffer() {
    for version in VERSIONS {
        let mut ends = Ends::open(version);
        ends.client.writer().write_all(&[7; 50_000]).unwrap();
        let bytes = ends.client_bytes();
        ends.session.receive(&bytes, &mut ends.at_server).unwrap();
        assert_eq!(ends.at_server, [7; 50_000]);
        ends.session.queue(Payload::from(vec![1; 1000]));
        ends.send_to_client(false);
        let session = &ends.session;
        let capacities = [session.received.capacity(), session.records.capacity()];
        assert_eq!(capacities, [0, 0], "{version:?}");
        assert!(session.unsent.is_none() && !session.has_output());
    }
}

#[test]
fn a_long_reply_goes_out_in_parts() {
    for version in VERSIONS {
        let mut ends = Ends::open(version);
        let chunk: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let shared = vec![(3, Arc::new(chunk.clone()))];
        ends.session.queue(Payload { bytes: b"$1\r\r\n".to_vec(), shared });
        let mut sends = 0;
        while ends.session.has_output() {
            assert!(ends.send_to_client(false) <= RECORDS_MAX * (RECORD_MAX + RECORD_OVERHEAD));
            sends += 1;
        }
        assert_eq!(sends, 1_000_005_usize.div_ceil(RECORDS_MAX * RECORD_MAX));
        assert_eq!(ends.at_client, [b"$1\r", chunk.as_slice(), b"\r\n"].concat());
    }
}

#[test]
fn goodbyes_are_said_once_and_heard() {
    for version in VERSIONS {
        let mut ends = Ends::open(version);
        ends.session.queue(Payload::from(b"+OK\r\n".to_vec()));
        ends.send_to_client(true);
        assert_eq!(ends.send_to_client(true), 0);
        assert_eq!(ends.at_client, b"+OK\r\n");
        assert_eq!(ends.client.reader().read(&mut [0; 8]).unwrap(), 0, "an orderly end");
        ends.client.writer().write_all(b"PING").unwrap();
        ends.client.send_close_notify();
        let bytes = ends.client_bytes();
        ends.session.receive(&bytes, &mut ends.at_server).unwrap();
        assert!(ends.session.is_ended);
        assert_eq!(ends.at_server, b"PING");
    }
}

#[test]
fn an_error_leaves_an_alert_to_send() {
    let mut hello = Ends::new(&TLS13).client_bytes();
    // The length of the list of cipher suites.
    hello[77] ^= 1;
    for bytes in [b"PING\r\nPING\r\n".as_slice(), &hello] {
        let mut ends = Ends::new(&TLS13);
        assert!(ends.session.receive(bytes, &mut ends.at_server).is_err());
        let mut alert = Vec::new();
        ends.session.send(&mut alert, true).unwrap();
        // A record of type alert with 2 bytes, the first of which says that it is fatal.
        assert_eq!((alert[0], &alert[3..6]), (21, &[0, 2, 2][..]));
        assert!(!ends.session.has_output());
    }
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(&TLS12 as Version), Just(&TLS13 as Version)]
}

/// A payload of pieces around the sizes of records, and its bytes in order.
fn payload() -> impl Strategy<Value = (Payload, Vec<u8>)> {
    let size = prop_oneof![0_usize..40, 16_300_usize..16_500, 0_usize..70_000];
    prop::collection::vec((any::<bool>(), size), 0..8).prop_map(|pieces| {
        let (mut payload, mut all) = (Payload::default(), Vec::new());
        for (is_shared, size) in pieces {
            let piece: Vec<u8> = (0..size).map(|place| (place + all.len()) as u8).collect();
            all.extend_from_slice(&piece);
            if is_shared {
                payload.shared.push((payload.bytes.len(), Arc::new(piece)));
            } else {
                payload.bytes.extend_from_slice(&piece);
            }
        }
        (payload, all)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn payloads_of_any_shape_arrive(version in version(), (payload, all) in payload()) {
        let mut ends = Ends::open(version);
        ends.session.queue(payload);
        while ends.session.has_output() {
            ends.send_to_client(false);
        }
        prop_assert!(ends.at_client == all);
    }

    #[test]
    fn received_bytes_may_be_cut_anywhere(
        version in version(),
        size in 0_usize..50_000,
        cuts in prop::collection::vec(1_usize..20_000, 1..20),
    ) {
        let mut ends = Ends::new(version);
        let sent: Vec<u8> = (0..size).map(|place| place as u8).collect();
        // More than rustls would buffer during the handshake is written when that is over.
        let (early, late) = sent.split_at(size.min(1000));
        ends.client.writer().write_all(early).unwrap();
        let mut cuts = cuts.iter().cycle();
        let mut is_all_written = false;
        loop {
            if !ends.client.is_handshaking() && !is_all_written {
                is_all_written = true;
                ends.client.writer().write_all(late).unwrap();
            }
            let bytes = ends.client_bytes();
            if bytes.is_empty() {
                break;
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (part, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                ends.session.receive(part, &mut ends.at_server).unwrap();
                rest = behind;
            }
            ends.send_to_client(false);
        }
        prop_assert!(ends.at_server == sent);
    }

    /// A flipped bit is found out, and nothing panics.
    #[test]
    fn no_bytes_panic(version in version(), at in 0_usize..2_000, bit in 0_u8..8, flight in 0..3) {
        let mut ends = Ends::new(version);
        let mut has_failed = false;
        for number in 0..3 {
            if number > 0 && !ends.client.is_handshaking() {
                ends.client.writer().write_all(&[b'x'; 100]).unwrap();
            }
            let mut bytes = ends.client_bytes();
            if number == flight && !bytes.is_empty() {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            if ends.session.receive(&bytes, &mut ends.at_server).is_err() {
                let mut alert = Vec::new();
                ends.session.send(&mut alert, true).unwrap();
                has_failed = true;
                break;
            }
            let mut records = Vec::new();
            ends.session.send(&mut records, false).unwrap();
            let mut records = records.as_slice();
            while !records.is_empty() && ends.client.read_tls(&mut records).is_ok() {
                if ends.client.process_new_packets().is_err() {
                    return Ok(());
                }
            }
        }
        prop_assert!(has_failed || ends.at_server.iter().all(|byte| *byte == b'x'));
    }

    #[test]
    fn no_noise_panics(noise in prop::collection::vec(any::<u8>(), 0..600), starts_well: bool) {
        let mut ends = Ends::new(&TLS13);
        let mut bytes = noise;
        if starts_well && bytes.len() >= 6 {
            // A handshake record that holds a ClientHello.
            let head = [22, 3, 1, 0, bytes.len() as u8, 1];
            bytes[..6].copy_from_slice(&head);
        }
        if ends.session.receive(&bytes, &mut ends.at_server).is_err() {
            ends.session.send(&mut Vec::new(), true).unwrap();
        }
        prop_assert!(ends.at_server.is_empty() && ends.session.is_handshaking());
    }
}
