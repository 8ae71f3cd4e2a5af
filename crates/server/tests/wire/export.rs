//! `export-rdb`: one file of a snapshot in several, and of one that a later server wrote.

use std::path::Path;
use std::process::Output;

use kvasir_resp::value::Value;

use crate::harness::Server;
use crate::saving::{digest, directory, fill, names, path};
use crate::snapshot_files::run;

fn export(from: &Path, to: &Path) -> Output {
    run(&["export-rdb", from.to_str().unwrap(), to.to_str().unwrap()])
}

fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

#[test]
fn a_set_of_files_becomes_one_that_redis_loads() {
    let (directory, there) = (directory(), directory());
    let options = ["--dir", path(&directory), "--snapshot-files", "3", "--rdb-version", "11"];
    let server = Server::kvasir("epoll", &options);
    let mut client = server.connect();
    fill(&mut client);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    client.call(&["FUNCTION", "LOAD", library]);
    client.ask("SAVE");
    let before = digest(&mut client);
    assert_eq!(names(directory.path()).len(), 4);

    let (from, to) = (directory.path().join("dump.rdb"), there.path().join("one.rdb"));
    let output = export(&from, &to);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(names(there.path()), ["one.rdb"], "nothing else is made");
    assert_eq!(names(directory.path()).len(), 4, "nor is anything lost");
    for loaded in [
        Some(Server::kvasir("epoll", &["--dir", path(&there), "--dbfilename", "one.rdb"])),
        Server::redis(&["--dir", path(&there), "--dbfilename", "one.rdb"]),
    ] {
        let Some(loaded) = loaded else { continue };
        let mut client = loaded.connect();
        crate::aof::wait_for(&mut client, "\nloading:0");
        assert_eq!(digest(&mut client), before, "{}", loaded.name);
        assert_eq!(client.ask("FCALL f 0"), Value::Integer(7), "{}", loaded.name);
    }
    let output = export(&from, &to);
    let refused = format!("not exported: file={} error=it is there already\n", to.display());
    assert_eq!((output.status.code(), text(&output)), (Some(1), refused));
}

#[test]
fn a_snapshot_of_valkey_becomes_one_that_redis_loads() {
    let (directory, there) = (directory(), directory());
    let Some(valkey) = Server::valkey(&["--dir", path(&directory)]) else { return };
    let mut client = valkey.connect();
    fill(&mut client);
    client.ask("SAVE");
    let output = export(&directory.path().join("dump.rdb"), &there.path().join("dump.rdb"));
    assert!(output.status.success(), "{}", text(&output));
    let Some(redis) = Server::redis(&["--dir", path(&there)]) else { return };
    assert_eq!(digest(&mut redis.connect()), digest(&mut client));
}

#[test]
fn what_is_not_sound_is_not_exported() {
    let directory = directory();
    let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
    std::fs::write(&from, b"REDIS0010\xfe\0\0\x01k").unwrap();
    let output = export(&from, &to);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).starts_with("not exported: file="), "{}", text(&output));
    assert_eq!(names(directory.path()), ["from"]);
}
