//! What else may come to a port for TLS: noise, silence, other protocols, too many, strangers.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use kvasir_resp::encode::encode_request;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::certificates::{BOTH, Certificates, TlsServer};
use crate::check::show;
use crate::harness::{Client, DEADLINE, Server, backends, wait_until};

fn clients_of(server: &TlsServer) -> String {
    server.server.connect().ask_text("INFO clients")
}

/// Waits until the server has closed its end.
fn ends(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // An alert comes first, or a reset where something was not read.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest[0] == 21, "no alert: {rest:?}");
}

#[test]
fn what_is_no_handshake_is_closed_with_a_line_in_the_log() {
    let certificates = Certificates::new();
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, &[]);
        let noise: Vec<u8> =
            (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        // A record of the right form that holds no ClientHello.
        let no_hello = [&[22, 3, 1, 0, 8, 1, 0, 0, 4][..], b"nope"].concat();
        let all: [&[u8]; 4] = [b"PING\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", &noise, &no_hello];
        for bytes in all {
            let mut stream = server.connect_tcp();
            // The server may have closed before all is written.
            let _ = stream.write_all(bytes);
            ends(&mut stream);
        }
        wait_until("all are logged", || server.failed() == all.len());
        // One that goes away in the middle of it.
        drop(server.connect_tcp());
        let mut half = server.connect_tcp();
        half.write_all(&[22, 3, 1, 0, 200, 1]).unwrap();
        drop(half);
        wait_until("all are gone", || clients_of(&server).contains("connected_clients:1\r\n"));
        assert!(server.try_ping(&certificates.client(None, &BOTH)).is_ok());
    }
}

#[test]
fn noise_behind_the_handshake_ends_the_connection() {
    let certificates = Certificates::new();
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, &[]);
        for version in BOTH {
            let mut stream = server.open(&certificates.client(None, &[version]));
            stream.write_all(b"PING\r\n").unwrap();
            stream.read_exact(&mut [0; 7]).unwrap();
            // As a record of data, but not encrypted with the keys agreed on.
            let fake = [&[23, 3, 3, 0, 64][..], &[b'x'; 64]].concat();
            stream.sock.write_all(&fake).unwrap();
            assert!(stream.read(&mut [0; 8]).is_err(), "an alert");
        }
        server.wait_for_log("cannot decrypt peer's message");
    }
}

#[test]
fn who_is_slow_with_the_handshake_gets_ten_seconds() {
    let certificates = Certificates::new();
    let run = |backend: &'static str| {
        let server = TlsServer::start(backend, &certificates, &["--maxclients", "5"]);
        let start = Instant::now();
        let mut silent = server.connect_tcp();
        let mut half = server.connect_tcp();
        half.write_all(&[22, 3, 1, 0, 200, 1]).unwrap();
        // Byte by byte is no matter as long as it ends in time.
        let name = "localhost".try_into().unwrap();
        let session = ClientConnection::new(certificates.client(None, &BOTH), name).unwrap();
        let mut slow = Client::over(StreamOwned::new(session, Dripping(server.connect_tcp())));
        assert_eq!(show(&slow.ask("PING")), "+PONG");
        // They count, so there is room for two more.
        let mut others = [admitted(&server.server), admitted(&server.server)];
        let mut surplus = server.connect_tcp();
        assert_eq!(surplus.read(&mut [0; 8]).unwrap(), 0, "closed without a word");
        assert!(!others[0].ask_text("INFO stats").contains("rejected_connections:0\r\n"));
        ends(&mut silent);
        ends(&mut half);
        let took = start.elapsed();
        assert!((9..15).contains(&took.as_secs()), "{took:?}");
        server.wait_for_log("error=the handshake took too long");
        assert_eq!(show(&slow.ask("PING")), "+PONG");
    };
    std::thread::scope(|scope| {
        backends().into_iter().for_each(|backend| drop(scope.spawn(move || run(backend))));
    });
}

/// A client for whom there is room, as soon as one that has gone is forgotten.
fn admitted(server: &Server) -> Client {
    let mut found = None;
    wait_until("there is room", || {
        let mut client = server.connect();
        let reply = client.try_send(&["PING"]).then(|| client.read_reply()).flatten();
        found = reply.filter(|reply| show(reply) == "+PONG").map(|_| client);
        found.is_some()
    });
    found.expect("just waited for")
}

/// Sends one byte at a time.
struct Dripping(TcpStream);

impl Read for Dripping {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for Dripping {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(&bytes[..1])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Many handshakes at once must not hold up those who have theirs behind them: one is answered
/// while others still wait, unless this thread was kept from asking in time.
#[test]
fn handshakes_leave_time_to_others() {
    const ATTEMPTS: usize = 20;
    let certificates = Certificates::new();
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, &[]);
        let config = certificates.client(None, &BOTH);
        let mut client = server.connect(&config);
        assert_eq!(show(&client.ask("PING")), "+PONG");
        let overtakes = |_| {
            let mut waiting: Vec<TcpStream> = (0..300).map(|_| server.connect_tcp()).collect();
            for stream in &mut waiting {
                let name = "localhost".try_into().unwrap();
                let mut session = ClientConnection::new(config.clone(), name).unwrap();
                session.write_tls(stream).unwrap();
            }
            assert_eq!(show(&client.ask("PING")), "+PONG");
            waiting.iter().any(|stream| !is_answered(stream))
        };
        assert!((0..ATTEMPTS).any(overtakes), "on {backend}");
    }
}

fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).is_ok()
}

#[test]
fn protected_mode_keeps_strangers_out_and_tells_them() {
    let Some(address) = outer_address() else {
        eprintln!("this machine has no address but the loopback interface's: nothing to test");
        return;
    };
    let certificates = Certificates::new();
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, &[]);
        for version in BOTH {
            let tcp = TcpStream::connect((address, server.port)).unwrap();
            tcp.set_read_timeout(Some(DEADLINE)).unwrap();
            let name = "localhost".try_into().unwrap();
            let config = certificates.client(None, &[version]);
            let session = ClientConnection::new(config, name).unwrap();
            let mut stream = StreamOwned::new(session, tcp);
            let set = encode_request(&["SET", "k", "v"]);
            stream.write_all(&set).unwrap();
            let mut said = Vec::new();
            let read = stream.read_to_end(&mut said);
            assert!(read.is_ok(), "{read:?} {}", server.log());
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with("-DENIED Redis is running in protected mode"), "{said}");
        }
        let mut local = server.server.connect();
        assert_eq!(show(&local.ask("EXISTS k")), ":0");
        assert!(local.ask_text("INFO stats").contains("rejected_connections:2\r\n"));
    }
}

/// An authority, and what `openssl x509 -req` made with it: a certificate of version 1 and its key.
const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBfzCCASWgAwIBAgIUIot6zi0XKmLlSTY+4+8gQPcrhF8wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJYXV0aG9yaXR5MCAXDTI2MTEyNjAxNDcyMloYDzIxMjYxMTAy
MDE0NzIyWjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARmVMcslPtClROusESztuCfQXxy6YDxMiriQ5SsB3fwvb5Y2B7rRhNn
JRWLzKZtqjXTK+uCiIaRLmnD9O+P3dPBo1MwUTAdBgNVHQ4EFgQUsjGvAfrExV+z
50/7rHe+m247ZwcwHwYDVR0jBBgwFoAUsjGvAfrExV+z50/7rHe+m247ZwcwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiA4677sW/vTi6SQZu0uJZPx
Neexfj7Iq9neHQA0mpJ8kwIhAKpB/k/rY44eNJ8nWsi2b6c24lglecXWbhCqDGZ1
NR05
-----END CERTIFICATE-----
";
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBITCByAIUej+uorRg49kJn/zhK5cxqh7kw5wwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJYXV0aG9yaXR5MCAXDTI2MTEyNjAxNDcyMloYDzIxMjYxMTAyMDE0NzIy
WjARMQ8wDQYDVQQDDAZjbGllbnQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT4
RvAsGBkutIXySbAGBdPq8tV+AX7HHsTEW5ULScKRpL0rE/TV7MlvxwetQjKfA/lu
vl7sY9u29BP7e24riEjbMAoGCCqGSM49BAMCA0gAMEUCIAIQPXmsr4kEpx1802Gg
5EjoMzhU+LUpzHxM5X0J+aVtAiEAgOfv6OAam5f4NMDEcbT/FAEoFyvoYuscVTOi
5tlKLe0=
-----END CERTIFICATE-----
";
const VERSION_1_KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgG9TzYZ1dCDMFeLAT
NLzw+OXIv3eyHDn5YkBPpcG1ZmuhRANCAAT4RvAsGBkutIXySbAGBdPq8tV+AX7H
HsTEW5ULScKRpL0rE/TV7MlvxwetQjKfA/luvl7sY9u29BP7e24riEjb
-----END PRIVATE KEY-----
";

/// OpenSSL would take it; the library that judges certificates here does not, and the log says why.
#[test]
fn a_certificate_of_version_1_is_named_in_the_log() {
    let certificates = Certificates::new();
    let authority = certificates.name("authority", "crt");
    std::fs::write(&authority, AUTHORITY).unwrap();
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(VERSION_1_KEY.as_bytes()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap()];
    let identity = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let mut roots = RootCertStore::empty();
    roots.add(certificates.certificate("ca")).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&BOTH)
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(identity));
    let options = ["--tls-ca-cert-file", &authority, "--tls-auth-clients", "yes"];
    let server = TlsServer::start("epoll", &certificates, &options);
    assert!(server.try_ping(&Arc::new(client)).is_err());
    server.wait_for_log("a client's certificate must be of X.509 version 3");
}

/// An address of this machine that others would use.
fn outer_address() -> Option<IpAddr> {
    // Nothing is sent; the kernel only chooses a route.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}
