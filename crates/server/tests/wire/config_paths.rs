//! Options that are paths, changed while the server runs: nothing is left behind, nothing of others
//! is touched.

use kvasir_resp::value::Value;

use crate::aof::wait_for;
use crate::harness::{Client, Server, each_backend, wait_until};
use crate::saving::{directory, names, path};

const PROTECTED: [&str; 2] = ["--enable-protected-configs", "yes"];

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn set(client: &mut Client, pairs: &[&str]) -> Value {
    client.call(&[&["CONFIG", "SET"], pairs].concat())
}

fn start(options: &[&str]) -> (Server, Client) {
    let server = Server::kvasir("epoll", &[&PROTECTED, options].concat());
    let mut client = server.connect();
    wait_for(&mut client, "\nloading:0");
    (server, client)
}

/// It would start on nothing there.
#[test]
fn a_log_does_not_move() {
    let (here, there) = (directory(), directory());
    let (server, mut client) = start(&["--dir", path(&here), "--appendonly", "yes"]);
    client.ask("SET a 1");
    let refused = set(&mut client, &["dir", path(&there)]);
    let Value::Error(error) = &refused else { panic!("{refused:?}") };
    let text = "ERR CONFIG SET failed (possibly related to argument 'dir') - the append-only file \
                can't move while it is written: set appendonly to no first, then dir, then \
                appendonly to yes";
    assert_eq!(String::from_utf8_lossy(error), text);
    let dir = client.ask("CONFIG GET dir");
    assert_eq!(dir, Value::Array(["dir", path(&here)].map(|text| Value::Bulk(text.into())).into()));
    // Where it is, by another name.
    let same = format!("{}/../{}", path(&here), here.path().file_name().unwrap().display());
    assert_eq!(set(&mut client, &["dir", &same]), ok());
    // As the error says; turned off and away may be said at once.
    assert_eq!(set(&mut client, &["appendonly", "no", "dir", path(&there)]), ok());
    wait_for(&mut client, "aof_enabled:0\r\n");
    assert_eq!(set(&mut client, &["appendonly", "yes"]), ok());
    wait_for(&mut client, "aof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0");
    client.ask("SET b 1");
    client.ask("WAITAOF 1 0 0");
    drop(server);
    for (dir, keys) in [(&here, 1), (&there, 2)] {
        let (_server, mut client) = start(&["--dir", path(dir), "--appendonly", "yes"]);
        assert_eq!(client.ask("DBSIZE"), Value::Integer(keys));
    }
}

/// Redis tells where it is, and CONFIG REWRITE writes that.
#[test]
fn the_directory_is_told_from_the_root() {
    let directory = directory();
    std::fs::create_dir_all(directory.path().join("b/b")).unwrap();
    let text = format!("dir {}\nenable-protected-configs yes\n", path(&directory));
    let ours = Server::kvasir_with_file("k.conf", &text);
    let theirs = Server::redis_with_file("k.conf", &text);
    for server in theirs.iter().chain([&ours]) {
        let mut client = server.connect();
        for expect in ["b", "b/b"] {
            assert_eq!(set(&mut client, &["dir", "b"]), ok(), "{}", server.name);
            let expect = directory.path().canonicalize().unwrap().join(expect);
            let expect = expect.to_str().unwrap();
            let got = client.ask("CONFIG GET dir");
            assert_eq!(
                got,
                Value::Array(["dir", expect].map(|text| Value::Bulk(text.into())).into())
            );
            client.ask("CONFIG REWRITE");
            let file = server.read_file("k.conf").replace('"', "");
            assert!(file.contains(&format!("dir {expect}\n")), "{}: {file}", server.name);
        }
    }
}

/// In Redis a child saves, which stays where it was.
#[test]
fn a_snapshot_under_way_goes_where_it_was_to_go() {
    for files in ["1", "3"] {
        let (here, there) = (directory(), directory());
        let options = ["--dir", path(&here), "--snapshot-files", files];
        let (_server, mut client) = start(&options);
        client.ask("DEBUG POPULATE 4000 key 1000");
        client.ask("CONFIG SET snapshot-bandwidth 2mb rdbcompression no");
        client.ask("BGSAVE");
        // From its cut on, for two seconds.
        wait_for(&mut client, "current_save_keys_total:4000\r\n");
        assert_eq!(set(&mut client, &["dir", path(&there), "dbfilename", "other.rdb"]), ok());
        wait_for(&mut client, "rdb_bgsave_in_progress:0\r\n");
        wait_for(&mut client, "rdb_last_bgsave_status:ok\r\n");
        assert!(here.path().join("dump.rdb").exists());
        assert_eq!(names(there.path()), [""; 0]);
        assert_eq!(client.ask("SAVE"), ok());
        assert!(there.path().join("other.rdb").exists());
    }
}

/// The end removes what this server has made, and not what has the same name elsewhere.
#[test]
fn files_of_others_are_not_removed_at_the_end() {
    each_backend(&PROTECTED, |server| {
        let there = directory();
        let mut client = server.connect();
        std::fs::write(there.path().join("socket"), "another server's").unwrap();
        std::fs::write(there.path().join("pid"), "another server's").unwrap();
        assert_eq!(set(&mut client, &["dir", path(&there)]), ok());
        client.send(&["SHUTDOWN", "NOSAVE"]);
        server.wait_for_end();
        assert!(there.path().join("socket").exists());
    });
    let (here, there) = (directory(), directory());
    std::fs::write(there.path().join("pid"), "another server's").unwrap();
    let (mut server, mut client) = start(&["--dir", path(&here), "--pidfile", "pid"]);
    wait_until("it has its pid file", || here.path().join("pid").exists());
    assert_eq!(set(&mut client, &["dir", path(&there)]), ok());
    client.send(&["SHUTDOWN", "NOSAVE"]);
    assert!(server.wait_for_end().success());
    assert!(there.path().join("pid").exists() && !here.path().join("pid").exists());
}

/// As in Redis.
#[test]
fn other_paths_stay_as_they_are() {
    let ours = Some(Server::kvasir("epoll", &PROTECTED));
    for server in [ours, Server::redis(&PROTECTED), Server::valkey(&PROTECTED)].iter().flatten() {
        let mut client = server.connect();
        let names =
            ["appenddirname", "appendfilename", "aclfile", "logfile", "unixsocket", "pidfile"];
        for name in names {
            let refused = set(&mut client, &[name, "x"]);
            let text = format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - can't set \
                 immutable config"
            );
            assert_eq!(refused, Value::Error(text.into()), "{}", server.name);
        }
        let refused = set(&mut client, &["dbfilename", "x/y"]);
        let text = "ERR CONFIG SET failed (possibly related to argument 'dbfilename') - dbfilename \
                    can't be a path, just a filename";
        assert_eq!(refused, Value::Error(text.into()), "{}", server.name);
    }
}
