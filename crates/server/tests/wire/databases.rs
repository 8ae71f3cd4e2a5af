//! As many databases as there can be, and no more.

use std::process::{Command, Stdio};

use crate::aof::{start, stop, wait_for};
use crate::check::run_script;
use crate::harness::Server;
use crate::saving::{directory, path};

/// What a database's number holds, less one: so their count is a number of the same size.
const MOST: &str = "65535";

#[test]
fn the_last_of_as_many_as_there_can_be_is_like_any_other() {
    let directory = directory();
    let options = ["--databases", MOST, "--dir", path(&directory)];
    let server = Server::kvasir("epoll", &options);
    let mut client = server.connect();
    let script = "SELECT 65535; SELECT 65534; SET k v PX 1; SET k v; SET other v; SWAPDB 1 65534; \
                  SELECT 1; GET k; COPY k k DB 65534; CLIENT LIST DB 65534; DBSIZE; SAVE";
    let shown = "-ERR DB index is out of range; +OK; +OK; +OK; +OK; +OK; +OK; $v; :1; $; :2; +OK";
    assert_eq!(run_script(&mut client, script), shown);
    let keys = |client: &mut _| run_script(client, "SELECT 1; KEYS k; SELECT 65534; KEYS *");
    let wanted = "+OK; [$k]; +OK; [$k]";
    assert_eq!(keys(&mut client), wanted);
    drop(server);
    // The log takes the snapshot over.
    let options = &options[..2];
    for rewrites in [false, true] {
        let (server, mut client) = start("io_uring", directory.path(), options);
        assert_eq!(keys(&mut client), wanted);
        if rewrites {
            client.ask("BGREWRITEAOF");
            wait_for(&mut client, "aof_rewrites:1\r\n");
        }
        client.ask("SET k v");
        stop(server, client);
    }
    let (_server, mut client) = start("epoll", directory.path(), options);
    assert_eq!(keys(&mut client), wanted);
    assert_eq!(run_script(&mut client, "FLUSHALL; SELECT 1; DBSIZE"), "+OK; +OK; :0");
}

#[test]
fn more_than_can_be_numbered_are_refused() {
    for databases in ["65536", "65537", "2147483647", "4294967297"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-server"));
        command.args(["--port", "0", "--databases", databases]).stdin(Stdio::null());
        let output = command.output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{databases}");
        assert!(said.contains("argument must be between 1 and 65535 inclusive"), "{said}");
    }
}
