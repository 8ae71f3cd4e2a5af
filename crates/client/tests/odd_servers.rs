//! Servers that answer late, or what no server should.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use kvasir_client::{Client, Connection, Options};
use kvasir_resp::value::Value;

/// Asks a server that is a thread for a connection.
fn open(
    name: &str,
    options: &Options,
    server: impl FnOnce(UnixStream) + Send + 'static,
) -> std::io::Result<Connection> {
    let path = std::env::temp_dir().join(format!("kvasir-odd-{name}-{}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("the path is free");
    std::thread::spawn(move || server(listener.accept().expect("it connects").0));
    let connection = Connection::open(&path, options);
    std::fs::remove_file(&path).expect("it was made");
    connection
}

/// Reads a request, whatever it is, and answers it.
fn answer(mut stream: &UnixStream, reply: &[u8]) {
    assert!(stream.read(&mut [0; 1024]).expect("it asks") > 0);
    stream.write_all(reply).expect("it listens");
}

#[test]
fn after_a_timeout_no_reply_is_taken_for_another() {
    let timeout = Some(Duration::from_millis(50));
    let options = Options { timeout, is_quiet: true, ..Options::default() };
    let (go_on, wait) = std::sync::mpsc::channel();
    let connection = open("late", &options, move |stream| {
        answer(&stream, b"-ERR no rings\r\n");
        answer(&stream, b":1\r\n");
        wait.recv().expect("it says when");
        answer(&stream, b":2\r\n");
        let _ = answer_if_asked(&stream);
    });
    let mut client = Client::over(connection.expect("it is over the socket"));
    assert_eq!(client.call(&["FIRST"]).expect("in time"), Value::Integer(1));
    let late = client.call(&["SECOND"]).expect_err("too late").kind();
    assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&late), "{late}");
    go_on.send(()).expect("it waits");
    let third = client.call(&["THIRD"]).expect_err("whose reply would it be?");
    assert_eq!(third.kind(), ErrorKind::BrokenPipe);
    assert!(client.read_reply().is_err());
}

fn answer_if_asked(mut stream: &UnixStream) -> std::io::Result<()> {
    if stream.read(&mut [0; 1024])? > 0 {
        stream.write_all(b":3\r\n")?;
    }
    Ok(())
}

#[test]
fn an_empty_answer_is_an_error() {
    for line in ["\r\n", "+OK\r\n", ":262144\r\n"] {
        let opened = open("empty", &Options::default(), move |stream| {
            answer(&stream, line.as_bytes());
        });
        let error = opened.err().expect("it is no answer");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{line:?}");
    }
}
