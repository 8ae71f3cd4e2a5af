//! A server with some rows, and the program that asks it.

use std::process::{Command, Output};

use kvasir_harness::client::Client;
use kvasir_harness::kvasir;
use kvasir_harness::server::Server;
use kvasir_resp::value::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_kvasir-sql");

/// What most tests begin with: both tables declared.
pub const TABLES: &str = "CREATE EXTERNAL TABLE users (name TEXT, age BIGINT, city TEXT) \
                          STORED AS KVASIR LOCATION 'user:*'; \
                          CREATE EXTERNAL TABLE orders (buyer TEXT, amount DOUBLE, at TIMESTAMP) \
                          STORED AS KVASIR LOCATION 'order:*';";

pub fn start(options: &[&str]) -> Server {
    let launch = kvasir::launch("io_uring", 2, options).expect("it is built");
    Server::start(&launch).expect("it starts")
}

/// With ten users and twenty orders.
pub fn start_filled() -> Server {
    let server = start(&[]);
    fill(|line| do_all(&server, &[line]));
    server
}

pub fn fill(mut call: impl FnMut(&str)) {
    for id in 1..=10 {
        let city = ["Oslo", "Rome", "Bonn"][id % 3];
        call(&format!("HSET user:{id} name n{id} age {} city {city}", 20 + id));
    }
    for id in 1..=20 {
        let (buyer, amount) = (id % 5 + 1, id as f64 * 1.5);
        call(&format!(
            "HSET order:{id} buyer user:{buyer} amount {amount} at 2026-07-{id:02}T12:00:00Z"
        ));
    }
}

/// Calls, each a line of words.
pub fn do_all(server: &Server, lines: &[&str]) {
    let mut client = server.client().expect("it serves");
    for line in lines {
        ask(&mut client, line);
    }
}

pub fn ask(client: &mut Client, line: &str) -> Value {
    let words: Vec<_> = line.split_whitespace().map(str::as_bytes).collect();
    let reply = client.call(&words).expect("it answers");
    assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    reply
}

pub fn run(port: u16, args: &[&str]) -> Output {
    let port = port.to_string();
    let mut command = Command::new(PROGRAM);
    command.args(["--port", &port]).args(args).output().expect("it runs")
}

/// The rows of statements, as CSV.
pub fn rows(server: &Server, text: &str) -> Vec<String> {
    let output = run(server.port(), &["--format", "csv", "-c", text]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {errors}");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_string).collect()
}

/// As `rows`, behind the tables.
pub fn of_tables(server: &Server, query: &str) -> Vec<String> {
    rows(server, &format!("{TABLES} {query}"))
}

/// Why statements fail.
pub fn failure(server: &Server, text: &str) -> String {
    let output = run(server.port(), &["--format", "csv", "-c", text]);
    assert!(!output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}
