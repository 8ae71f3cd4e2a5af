//! Certificates: whom the server lets in, what it is started with, how it takes new ones.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rustls::pki_types::CertificateDer;

use crate::certificates::{BOTH, Certificates, TlsServer, Version, free_port};
use crate::check::show;
use crate::harness::{Client, Server, backends, wait_until};

/// Whom each mode lets in.
#[test]
fn clients_are_let_in_as_the_mode_says() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    certificates.issue_expired("expired");
    let cases: &[(&str, [bool; 4])] = &[
        // Nothing shown, a good certificate, one that is over, one of a stranger's.
        ("yes", [false, true, false, false]),
        ("optional", [true, true, false, false]),
        ("no", [true, true, true, true]),
    ];
    for backend in backends() {
        for (mode, expect) in cases {
            let server = TlsServer::start(backend, &certificates, &["--tls-auth-clients", mode]);
            for version in BOTH {
                let mut config = certificates.client(None, &[version]);
                let of_stranger = strangers.client(Some("client"), &[version]);
                let shown = [
                    certificates.client(None, &[version]),
                    certificates.client(Some("client"), &[version]),
                    certificates.client(Some("expired"), &[version]),
                    {
                        // Trusts the server, but shows what another authority has signed.
                        let inner = std::sync::Arc::get_mut(&mut config).expect("only here");
                        inner.client_auth_cert_resolver =
                            of_stranger.client_auth_cert_resolver.clone();
                        config
                    },
                ];
                let let_in = shown.map(|config| server.try_ping(&config).is_ok());
                assert_eq!(let_in, *expect, "{backend} {mode} {version:?}");
            }
            let expect = 2 * expect.iter().filter(|let_in| !**let_in).count();
            wait_until("all are logged", || server.failed() >= expect);
            assert_eq!(server.failed(), expect, "{}", server.log());
        }
    }
}

#[test]
fn a_client_that_does_not_trust_the_server_goes_away() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, &[]);
        for version in BOTH {
            let error = server.try_ping(&strangers.client(None, &[version])).unwrap_err();
            assert!(error.contains("UnknownIssuer"), "{error}");
            assert!(server.try_ping(&certificates.client(None, &[version])).is_ok());
        }
    }
}

/// Starts a server that should not start; what it says.
fn refusal(options: &[&str]) -> String {
    let port = free_port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
    command.args(["--port", "0", "--io-backend", "epoll", "--tls-port", &port]).args(options);
    let output = command.output().expect("the program is built");
    assert!(!output.status.success(), "{options:?}: it started");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_wrong_file_stops_the_start() {
    let certificates = Certificates::new();
    let (cert, key) = (certificates.name("server", "crt"), certificates.name("server", "key"));
    let other = certificates.name("client", "key");
    let check = |options: &[&str], expect: &str| {
        let said = refusal(options);
        assert!(said.contains(expect), "{options:?}: {said}");
    };
    check(&[], "tls-cert-file is not set, which tls-port needs");
    check(
        &["--tls-cert-file", "/nosuch", "--tls-key-file", &key],
        "tls-cert-file /nosuch: No such file or directory",
    );
    let pair = ["--tls-cert-file", &cert, "--tls-key-file", &key];
    check(&pair, "tls-auth-clients needs tls-ca-cert-file or tls-ca-cert-dir");
    check(
        &["--tls-cert-file", &cert, "--tls-key-file", &other],
        &format!("tls-key-file {other}: this is not the key of tls-cert-file {cert}"),
    );
    check(
        &[&pair[..], &["--tls-auth-clients", "no", "--tls-protocols", "TLSv1.1"]].concat(),
        "tls-protocols: TLSv1.1 is not safe",
    );
}

const NOT_UPDATED: &str = "Unable to update TLS configuration. Check server logs.";

/// Sets options; the reply as text.
fn set(client: &mut Client, pairs: &[(&str, &str)]) -> String {
    let mut call = vec!["CONFIG", "SET"];
    call.extend(pairs.iter().flat_map(|(name, value)| [*name, *value]));
    show(&client.call(&call))
}

/// The certificate that a new connection is shown.
fn shown(
    server: &TlsServer,
    certificates: &Certificates,
    version: Version,
) -> CertificateDer<'static> {
    let mut stream = server.open(&certificates.client(None, &[version]));
    stream.write_all(b"PING\r\n").unwrap();
    stream.read_exact(&mut [0; 7]).unwrap();
    stream.conn.peer_certificates().expect("servers show theirs")[0].clone().into_owned()
}

#[test]
fn new_certificates_are_taken_whole_or_not_at_all() {
    let certificates = Certificates::new();
    certificates.issue("new");
    let (cert, key) = (certificates.name("new", "crt"), certificates.name("new", "key"));
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, &[]);
        let mut old = server.connect(&certificates.client(None, &BOTH));
        assert_eq!(show(&old.ask("PING")), "+PONG");
        let before = old.ask("CONFIG GET tls-*");
        let refused: &[&[(&str, &str)]] = &[
            &[("tls-cert-file", &cert)],
            &[("tls-key-file", &key)],
            &[("timeout", "7"), ("tls-cert-file", "/nosuch"), ("tls-key-file", &key)],
            &[("tls-cert-file", &cert), ("tls-key-file", &key), ("tls-protocols", "SSLv3")],
            &[("tls-ca-cert-file", ""), ("tls-auth-clients", "yes")],
            &[("tls-ciphers", "nosuch")],
            &[("tls-ciphersuites", "nosuch")],
        ];
        for pairs in refused {
            let name = pairs.iter().map(|pair| pair.0).find(|name| *name != "timeout").unwrap();
            let argument = format!("(possibly related to argument '{name}')");
            let expect = format!("-ERR CONFIG SET failed {argument} - {NOT_UPDATED}");
            assert_eq!(set(&mut old, pairs), expect);
            assert_eq!(old.ask("CONFIG GET tls-*"), before);
            assert_eq!(show(&old.ask("CONFIG GET timeout")), "[$timeout $0]");
        }
        server.wait_for_log("# TLS configuration was not changed: tls-cert-file /nosuch");
        let is = |name: &str| {
            for version in BOTH {
                let shown = shown(&server, &certificates, version);
                assert!(shown == certificates.certificate(name), "{name} {version:?}");
            }
        };
        is("server");
        assert_eq!(set(&mut old, &[("tls-cert-file", &cert), ("tls-key-file", &key)]), "+OK");
        is("new");
        assert_eq!(show(&old.ask("PING")), "+PONG");
        // The same name again has the files read again.
        certificates.issue("new");
        assert_eq!(set(&mut old, &[("tls-key-file", &key)]), "+OK");
        is("new");
        assert_eq!(set(&mut old, &[("tls-auth-clients", "yes")]), "+OK");
        assert!(server.try_ping(&certificates.client(None, &BOTH)).is_err());
        assert!(server.try_ping(&certificates.client(Some("client"), &BOTH)).is_ok());
        assert_eq!(show(&old.ask("PING")), "+PONG");
    }
}

/// As Redis's, byte for byte.
#[test]
fn errors_are_those_of_redis() {
    let certificates = Certificates::new();
    let port = free_port().to_string();
    let files = [("server", "crt"), ("server", "key"), ("ca", "crt")];
    let [cert, key, ca] = files.map(|(name, ending)| certificates.name(name, ending));
    let mut options = vec!["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key];
    options.extend(["--tls-ca-cert-file", &ca]);
    let errors = |server: &Server| {
        let mut client = server.connect();
        let pairs: &[&[(&str, &str)]] = &[
            &[("tls-auth-clients", "maybe")],
            &[("tls-cert-file", "/nosuch")],
            &[("timeout", "7"), ("tls-KEY-file", "/nosuch"), ("tls-cert-file", "/nosuch")],
            &[("tls-protocols", "SSLv3")],
            &[("tls-ciphersuites", "nosuch")],
            &[("tls-ciphers", "nosuch")],
            &[("tls-session-cache-size", "-1")],
            &[("tls-session-cache-timeout", "x")],
            &[("tls-session-caching", "x")],
            &[("tls-prefer-server-ciphers", "x")],
            &[("tls-ca-cert-file", "")],
        ];
        pairs.iter().map(|pairs| set(&mut client, pairs)).collect::<Vec<_>>()
    };
    // One after the other: they listen on the same port.
    let Some(redis) = Server::redis(&options).map(|server| errors(&server)) else { return };
    assert_eq!(errors(&Server::kvasir("epoll", &options)), redis);
}

/// Clients come and work while the certificate changes all the time.
#[test]
fn reloads_under_load_disturb_nobody() {
    let certificates = Certificates::new();
    certificates.issue("new");
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, &[]);
        let config = certificates.client(None, &BOTH);
        let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (server, config, served, is_over) = (&server, &config, &served, &is_over);
                scope.spawn(move || {
                    let mut steady = server.connect(config);
                    while !is_over.load(Relaxed) {
                        let mut fresh = server.connect(config);
                        for client in [&mut steady, &mut fresh] {
                            assert_eq!(show(&client.ask(&format!("SET k{number} v"))), "+OK");
                        }
                        served.fetch_add(1, Relaxed);
                    }
                });
            }
            let mut admin = server.server.connect();
            for round in 0.. {
                let name = if round % 2 == 0 { "new" } else { "server" };
                let (cert, key) = (certificates.name(name, "crt"), certificates.name(name, "key"));
                let pairs = [("tls-cert-file", cert.as_str()), ("tls-key-file", &key)];
                assert_eq!(set(&mut admin, &pairs), "+OK");
                if round > 50 && served.load(Relaxed) > 100 {
                    break;
                }
            }
            is_over.store(true, Relaxed);
        });
    }
}
