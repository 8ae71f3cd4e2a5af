//! Connections that we begin.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixListener;

use crate::harness::{Worker, pattern};
use kvasir_reactor::{Address, BackendChoice, Payload};

crate::for_each_backend! {
    what_is_connected_sends_and_receives
    a_unix_socket_is_connected
    what_is_refused_is_said
    what_cannot_begin_fails_at_once
    who_closes_before_the_end_hears_nothing
    many_are_connected_at_once
}

fn what_is_connected_sends_and_receives(backend: BackendChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap());
    let source: IpAddr = "127.0.0.2".parse().unwrap();
    let mut worker = Worker::new(backend);
    let id = worker.begin(&to, Some(source)).unwrap();
    let (mut peer, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), source);
    // What is there before anybody looks comes all the same, behind the news.
    peer.write_all(b"hello").unwrap();
    worker.run_until(|worker| worker.peers[&id].received == b"hello");
    assert_eq!(worker.peers[&id].connected, [Ok(())]);
    let bytes = pattern(1 << 20, 7);
    worker.reactor.send(id, Payload::from(bytes.clone()));
    let reader = std::thread::spawn(move || {
        let mut read = vec![0; 1 << 20];
        peer.read_exact(&mut read).map(|()| read)
    });
    worker.run_until(|worker| worker.peers[&id].sent.len() == 1);
    assert!(reader.join().unwrap().unwrap() == bytes);
    worker.run_until(|worker| worker.peers[&id].closed.len() == 1);
}

fn a_unix_socket_is_connected(backend: BackendChoice) {
    let name = format!("kvasir-connect-{backend:?}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let mut worker = Worker::new(backend);
    let id = worker.begin(&Address::Unix(path.clone()), None).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    worker.run_until(|worker| worker.peers[&id].connected == [Ok(())]);
    worker.reactor.send_quietly(id, Payload::from(b"hello".to_vec()));
    worker.turn(Some(std::time::Duration::ZERO));
    let mut read = [0; 5];
    peer.read_exact(&mut read).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(&read, b"hello");
}

fn what_is_refused_is_said(backend: BackendChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap());
    drop(listener);
    let mut worker = Worker::new(backend);
    let id = worker.begin(&to, None).unwrap();
    worker.run_until(|worker| worker.peers[&id].connected.len() == 1);
    let said = worker.peers[&id].connected[0].clone().unwrap_err();
    assert!(said.starts_with("Connection refused"), "{said}");
    worker.close(id);
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
}

fn what_cannot_begin_fails_at_once(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    let nowhere = Address::Unix("/nonexistent/socket".into());
    let error = worker.begin(&nowhere, None).unwrap_err().to_string();
    let expect = "cannot connect to /nonexistent/socket: connect: No such file or directory";
    assert_eq!(error, expect);
    let to = Address::Tcp(worker.address);
    let error = worker.begin(&to, Some("192.0.2.1".parse().unwrap())).unwrap_err().to_string();
    assert!(error.ends_with("bind: Cannot assign requested address"), "{error}");
}

fn who_closes_before_the_end_hears_nothing(backend: BackendChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap());
    let mut worker = Worker::new(backend);
    let id = worker.begin(&to, None).unwrap();
    worker.close(id);
    worker.run_until(|worker| worker.reactor.connection_count() == 0);
    let (_kept, other) = worker.connect();
    assert!(other.index != id.index || other.generation != id.generation);
    assert!(worker.peers[&id].connected.is_empty());
}

fn many_are_connected_at_once(backend: BackendChoice) {
    let mut worker = Worker::new(backend);
    worker.echo = true;
    let to = Address::Tcp(worker.address);
    let ours: Vec<_> = (0..100).map(|_| worker.begin(&to, None).unwrap()).collect();
    worker.run_until(|worker| ours.iter().all(|id| worker.peers[id].connected == [Ok(())]));
    worker.run_until(|worker| worker.ids.len() == 100);
    // Each has an echo at the other end, and echoes: the bytes go round.
    for id in &ours {
        worker.reactor.send(*id, Payload::from(b"x".to_vec()));
    }
    worker.run_until(|worker| ours.iter().all(|id| !worker.peers[id].received.is_empty()));
}
