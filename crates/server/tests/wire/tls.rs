//! TLS as clients use it: on both backends, with both versions.

use std::io::{Read, Write};
use std::sync::Arc;

use kvasir_resp::encode::encode_request;
use kvasir_resp::value::Value;
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};

use crate::certificates::{BOTH, Certificates, TlsServer, Version, free_port};
use crate::check::{run_script, show};
use crate::harness::{Client, backends, wait_until};

/// Runs a test on every backend with a client of each version.
fn each(more: &[&str], test: impl Fn(&TlsServer, &Arc<ClientConfig>)) {
    let certificates = Certificates::new();
    for backend in backends() {
        let server = TlsServer::start(backend, &certificates, more);
        for version in BOTH {
            test(&server, &certificates.client(None, &[version]));
        }
    }
}

#[test]
fn calls_are_answered_and_data_is_that_of_other_connections() {
    each(&[], |server, config| {
        let (mut client, mut plain) = (server.connect(config), server.server.connect());
        let script = "PING; SET k v; GET k; nosuch; DEL k; GET k";
        let replies = "+PONG; +OK; $v; -ERR unknown command 'nosuch', with args beginning with: ; \
                       :1; _";
        assert_eq!(run_script(&mut client, script), replies);
        assert_eq!(run_script(&mut client, "SET shared 1"), "+OK");
        assert_eq!(run_script(&mut plain, "GET shared; SET shared 2"), "$1; +OK");
        assert_eq!(run_script(&mut client, "GET shared"), "$2");
        let info = client.ask_text("INFO server");
        assert!(info.contains(&format!("tcp_port:{}\r\n", server.port)), "{info}");
        let own = client.ask_text("CLIENT INFO");
        assert!(own.contains(&format!(" laddr=127.0.0.1:{} ", server.port)), "{own}");
        assert!(own.contains(" flags=N "), "{own}");
        let ready = format!("Ready to accept connections tls-port={} bind=", server.port);
        server.wait_for_log(&ready);
    });
}

#[test]
fn the_debugger_of_scripts_is_there_too() {
    each(&[], |server, config| {
        let mut client = server.connect(config);
        assert_eq!(show(&client.ask("SCRIPT DEBUG YES")), "+OK");
        let stopped = show(&client.call(&["EVAL", "local a = 1\nreturn a", "0"]));
        assert_eq!(stopped, "[+* Stopped at 1, stop reason = step over +-> 1   local a = 1]");
        let stopped = show(&client.ask("s"));
        assert_eq!(stopped, "[+* Stopped at 2, stop reason = step over +-> 2   return a]");
        assert_eq!(show(&client.ask("p a")), "[+<value> 1]");
        assert_eq!(show(&client.ask("c")), "[+<endsession>]");
        assert_eq!(client.read_reply().as_ref().map(show), Some(":1".to_owned()));
        assert!(client.ends());
    });
}

#[test]
fn pipelines_are_answered_in_order() {
    each(&[], |server, config| {
        let mut client = server.connect(config);
        let calls: Vec<u8> =
            (0..5000).flat_map(|n| encode_request(&["ECHO", &n.to_string()])).collect();
        let sender = calls.clone();
        client.send_raw(&sender);
        for number in 0..5000 {
            let reply = client.read_reply().map(|reply| show(&reply));
            assert_eq!(reply, Some(format!("${number}")));
        }
        // Those behind a call that waits are kept until it is answered.
        client.send_raw(b"BLPOP queue 0\r\nPING\r\n");
        let mut other = server.connect(config);
        wait_until("the call waits", || {
            other.ask_text("INFO clients").contains("blocked_clients:1\r\n")
        });
        assert_eq!(show(&other.ask("RPUSH queue x")), ":1");
        assert_eq!(client.read_reply().map(|reply| show(&reply)).as_deref(), Some("[$queue $x]"));
        assert_eq!(client.read_reply().map(|reply| show(&reply)).as_deref(), Some("+PONG"));
    });
}

#[test]
fn large_values_go_both_ways() {
    each(&[], |server, config| {
        let mut client = server.connect(config);
        let value = |seed: u32, size: u32| -> Vec<u8> {
            (0..size).map(|place| (place.wrapping_mul(seed) >> 7) as u8).collect()
        };
        let values = [value(40_503, 10_000_000), value(7, 16_384), value(9, 5), value(11, 70_001)];
        for (number, value) in values.iter().enumerate() {
            let key = format!("k{number}");
            assert_eq!(show(&client.call(&[b"SET".as_slice(), key.as_bytes(), value])), "+OK");
        }
        // Some in one reply, with small ones between them.
        let reply = client.ask("MGET k3 k1 none k2 k3");
        let bulk = |number: usize| Value::Bulk(values[number].clone());
        let expect = vec![bulk(3), bulk(1), Value::Null, bulk(2), bulk(3)];
        assert!(reply == Value::Array(expect), "the values differ");
        for (number, value) in values.iter().enumerate() {
            assert!(client.ask(&format!("GET k{number}")) == Value::Bulk(value.clone()));
        }
    });
}

#[test]
fn who_does_not_read_holds_nobody_up() {
    each(&[], |server, config| {
        let (mut lazy, mut client) = (server.connect(config), server.connect(config));
        let value = vec![b'x'; 2_000_000];
        assert_eq!(show(&client.call(&[b"SET".as_slice(), b"k", &value])), "+OK");
        for _ in 0..10 {
            lazy.send(&["GET", "k"]);
        }
        assert_eq!(show(&client.ask("PING")), "+PONG");
        for _ in 0..10 {
            assert!(lazy.read_reply() == Some(Value::Bulk(value.clone())));
        }
    });
}

#[test]
fn many_connections_at_once() {
    each(&[], |server, config| {
        let run = |number: usize| {
            let mut clients: Vec<Client> = (0..20).map(|_| server.connect(config)).collect();
            for (index, client) in clients.iter_mut().enumerate() {
                let key = format!("{number}-{index}");
                let replies = run_script(client, &format!("SET {key} {index}; GET {key}"));
                assert_eq!(replies, format!("+OK; ${index}"));
            }
        };
        std::thread::scope(|scope| {
            (0..10).for_each(|number| drop(scope.spawn(move || run(number))));
        });
        wait_until("they are gone", || {
            server.server.connect().ask_text("INFO clients").contains("connected_clients:1\r\n")
        });
    });
}

#[test]
fn goodbyes_are_said_and_understood() {
    each(&[], |server, config| {
        // The server's: an end without one would be an error.
        let mut stream = server.open(config);
        stream.write_all(b"PING\r\nQUIT\r\nPING\r\n").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"+PONG\r\n+OK\r\n");
        // The client's: what came before it is answered, even what takes more than one turn.
        let mut stream = server.open(config);
        stream.write_all(&b"PING\r\n".repeat(3000)).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert!(all == b"+PONG\r\n".repeat(3000), "{} bytes", all.len());
        // A call that waits ends with its client.
        let mut stream = server.open(config);
        stream.write_all(b"BLPOP nothing 0\r\n").unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    });
}

/// Shakes hands; how, and in which version.
fn kind_of(server: &TlsServer, config: &Arc<ClientConfig>) -> (HandshakeKind, ProtocolVersion) {
    let mut stream = server.open(config);
    stream.write_all(b"PING\r\n").unwrap();
    // With the reply comes the ticket.
    stream.read_exact(&mut [0; 7]).unwrap();
    let session = &stream.conn;
    (session.handshake_kind().unwrap(), session.protocol_version().unwrap())
}

#[test]
fn sessions_are_resumed_if_the_options_say_so() {
    let kinds = |server: &TlsServer, config: &Arc<ClientConfig>| {
        [(); 2].map(|()| kind_of(server, config).0)
    };
    each(&[], |server, config| {
        assert_eq!(kinds(server, config), [HandshakeKind::Full, HandshakeKind::Resumed]);
    });
    each(&["--tls-session-caching", "no"], |server, config| {
        assert_eq!(kinds(server, config), [HandshakeKind::Full; 2]);
    });
    each(&["--tls-session-cache-timeout", "0"], |server, config| {
        assert_eq!(kinds(server, config), [HandshakeKind::Full; 2]);
    });
}

#[test]
fn versions_and_suites_are_those_of_the_options() {
    let [old, new] = BOTH;
    let certificates = Certificates::new();
    let check = |options: &[&str],
                 versions: &[Version],
                 expect: Option<(ProtocolVersion, &str)>| {
        let server = TlsServer::start("epoll", &certificates, options);
        let mut stream = server.open(&certificates.client(None, versions));
        let result = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut [0; 7]));
        let suite = stream.conn.negotiated_cipher_suite().map(|suite| suite.suite());
        let found = result.is_ok().then(|| stream.conn.protocol_version().zip(suite)).flatten();
        let found = found.map(|(version, suite)| (version, format!("{suite:?}")));
        assert_eq!(found, expect.map(|(v, suite)| (v, suite.to_owned())), "{options:?}");
    };
    use ProtocolVersion::{TLSv1_2, TLSv1_3};
    let aes = "TLS13_AES_256_GCM_SHA384";
    check(&[], &[old, new], Some((TLSv1_3, aes)));
    check(
        &["--tls-protocols", "TLSv1.2"],
        &[old, new],
        Some((TLSv1_2, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")),
    );
    check(&["--tls-protocols", "TLSv1.2"], &[new], None);
    check(&["--tls-protocols", "TLSv1.3"], &[old], None);
    let chacha = ["--tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"];
    check(&chacha, &[old, new], Some((TLSv1_3, "TLS13_CHACHA20_POLY1305_SHA256")));
    let chacha = ["--tls-ciphers", "CHACHA20:AES128", "--tls-prefer-server-ciphers", "yes"];
    check(&chacha, &[old], Some((TLSv1_2, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")));
    // Suites of the other kind of key.
    check(&["--tls-ciphers", "aRSA"], &[old], None);
}

#[test]
fn clients_of_memcached_speak_it_if_the_options_say_so() {
    let port = free_port();
    let options = ["--memcached-port", &port.to_string(), "--tls-memcached", "yes"];
    each(&options, |server, config| {
        let value = "v".repeat(300_000);
        let mut stream = TlsServer::open_at(port, config);
        let requests = format!("set k 5 0 300000\r\n{value}\r\nget k\r\nmg k s f\r\nget none\r\n");
        stream.write_all(requests.as_bytes()).expect("the server reads");
        let expect =
            format!("STORED\r\nVALUE k 5 300000\r\n{value}\r\nEND\r\nHD s300000 f5\r\nEND\r\n");
        let mut replies = vec![0; expect.len()];
        stream.read_exact(&mut replies).expect("the server answers");
        assert!(replies == expect.as_bytes());
        assert_eq!(run_script(&mut server.connect(config), "STRLEN k"), ":300000");
        // Who does not speak it gets nowhere.
        let mut plain = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        plain.write_all(b"version\r\n").expect("there is room");
        let mut rest = Vec::new();
        let _ = plain.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"VERSION"));
    });
}
