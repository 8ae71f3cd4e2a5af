//! Where a server listens, changed while it runs: here on both backends, and at the oracles.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use kvasir_resp::value::Value;

use crate::certificates::{BOTH, Certificates, TlsServer, free_port};
use crate::harness::{Client, DEADLINE, Server, backends};

const HERE: [u8; 4] = [127, 0, 0, 1];
const THERE: [u8; 4] = [127, 0, 0, 2];

fn connect(address: [u8; 4], port: u16) -> Option<Client> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(address)), port);
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
    Some(Client::over(stream))
}

fn answers(address: [u8; 4], port: u16) -> bool {
    connect(address, port).is_some_and(|mut client| client.ask_text("ECHO there") == "there")
}

/// A server of each kind on a port of its own, at one address.
fn each_server(test: impl Fn(&Server, u16)) {
    let options = |port: &str| ["--bind", "127.0.0.1", "--port", port].map(str::to_owned);
    let run = |start: &dyn Fn(&[&str]) -> Option<Server>| {
        let port = free_port();
        let options = options(&port.to_string());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        if let Some(server) = start(&options) {
            test(&server, port);
        }
    };
    for backend in backends() {
        run(&|options| Some(Server::kvasir(backend, options)));
    }
    run(&|options| Server::redis(options));
    run(&|options| Server::valkey(options));
}

fn set(client: &mut Client, pairs: &[&str]) -> String {
    match client.call(&[&["CONFIG", "SET"], pairs].concat()) {
        Value::Error(text) | Value::Simple(text) => String::from_utf8_lossy(&text).into_owned(),
        other => other.to_string(),
    }
}

#[test]
fn a_port_changes_and_connections_stay() {
    each_server(|server, port| {
        let (mut client, mut early) = (server.connect(), connect(HERE, port).expect(server.name));
        let other = free_port();
        assert_eq!(set(&mut client, &["port", &other.to_string()]), "OK");
        // Nobody is let in at the old one from the reply on.
        assert!(connect(HERE, port).is_none(), "{}", server.name);
        assert!(answers(HERE, other), "{}", server.name);
        assert_eq!(early.ask_text("ECHO still"), "still");
        let info = client.ask_text("INFO server");
        assert!(info.contains(&format!("tcp_port:{other}\r\n")), "{info}");
        assert_eq!(set(&mut client, &["port", "0"]), "OK");
        assert!(connect(HERE, other).is_none(), "{}", server.name);
        assert_eq!(set(&mut client, &["port", &port.to_string()]), "OK");
        assert!(answers(HERE, port), "{}", server.name);
    });
}

/// What is in the way of a new socket may be one of the old ones.
#[test]
fn addresses_change_and_those_in_common_stay() {
    each_server(|server, port| {
        let mut client = server.connect();
        for (bind, here, there) in [
            ("127.0.0.1 127.0.0.2", true, true),
            ("127.0.0.2", false, true),
            ("*", true, true),
            ("127.0.0.1 -192.0.2.1", true, false),
            ("* -::*", true, true),
        ] {
            assert_eq!(set(&mut client, &["bind", bind]), "OK", "{} {bind}", server.name);
            assert!(client.ask_text("INFO server").contains(&format!("tcp_port:{port}")));
            assert_eq!(answers(HERE, port), here, "{} {bind}", server.name);
            assert_eq!(answers(THERE, port), there, "{} {bind}", server.name);
        }
    });
}

#[test]
fn a_change_that_fails_leaves_all_as_it_was() {
    each_server(|server, port| {
        let mut client = server.connect();
        let taken = free_port();
        let _other = TcpListener::bind((Ipv4Addr::UNSPECIFIED, taken)).expect("it was free");
        let refused = |name: &str, why: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
        };
        let (of_port, of_bind) = (
            refused("port", "Unable to listen on this port. Check server logs."),
            refused("bind", "Failed to bind to specified addresses."),
        );
        let taken = taken.to_string();
        let too_many = ["127.0.0.1"; 17].join(" ");
        for (pairs, expect) in [
            (&["port", &taken][..], &of_port),
            (&["port", &taken, "bind", "127.0.0.2"], &of_port),
            (&["bind", "192.0.2.1"], &of_bind),
            (&["bind", "no.such.host.invalid"], &of_bind),
            // Here the old sockets had to go first.
            (&["bind", "* 192.0.2.1"], &of_bind),
            (&["bind", "127.0.0.2 192.0.2.1", "timeout", "7"], &of_bind),
            (&["bind", &too_many], &refused("bind", "Too many bind addresses specified.")),
        ] {
            assert_eq!(&set(&mut client, pairs), expect, "{} {pairs:?}", server.name);
            assert!(answers(HERE, port), "{} {pairs:?}", server.name);
            assert!(!answers(THERE, port), "{} {pairs:?}", server.name);
        }
        let before = client.call(&["CONFIG", "GET", "port", "bind", "timeout"]).to_string();
        assert!(before.contains(&port.to_string()), "{before}");
        assert!(before.contains("127.0.0.1") && !before.contains("127.0.0.2"), "{before}");
    });
}

#[test]
fn the_port_of_tls_changes_too() {
    let certificates = Certificates::new();
    for backend in backends() {
        let mut tls = TlsServer::start(backend, &certificates, &[]);
        let config = certificates.client(None, &BOTH);
        let mut client = tls.server.connect();
        let (old, port) = (tls.port, free_port());
        assert_eq!(set(&mut client, &["tls-port", &port.to_string()]), "OK");
        assert!(connect(HERE, old).is_none());
        tls.port = port;
        assert_eq!(tls.try_ping(&config), Ok(b"+PONG\r\n".to_vec()));
    }
}

/// Without a certificate there is no TLS to listen for.
#[test]
fn no_port_for_tls_without_a_certificate() {
    let expect = "ERR CONFIG SET failed (possibly related to argument 'tls-port') - Unable to update \
                  TLS configuration. Check server logs.";
    let ours = Server::kvasir("epoll", &[]);
    // Valkey 9.1 dies of it.
    for server in [Some(ours), Server::redis(&[])].into_iter().flatten() {
        let mut client = server.connect();
        let port = free_port().to_string();
        assert_eq!(set(&mut client, &["tls-port", &port]), expect, "{}", server.name);
        assert!(!client.ask("CONFIG GET tls-port").to_string().contains(&port));
    }
}
