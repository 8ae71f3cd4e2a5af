//! A base that is a log: `aof-use-rdb-preamble no`.

use std::path::PathBuf;

use kvasir_resp::value::Value;

use crate::aof::{LIBRARY, change, check_loads_in, start, stop, wait_for};
use crate::harness::{Server, backends};
use crate::saving::{digest, directory, fill, names, path};

const OPTIONS: [&str; 2] = ["--aof-use-rdb-preamble", "no"];

fn base(dir: &std::path::Path) -> PathBuf {
    let text = std::fs::read_to_string(dir.join("appendonlydir/appendonly.aof.manifest")).unwrap();
    dir.join("appendonlydir").join(text.split(' ').nth(1).expect("a base"))
}

#[test]
fn everything_comes_back_from_calls() {
    for (backend, checksums) in [("io_uring", "yes"), ("epoll", "no")] {
        let directory = directory();
        let options = [&OPTIONS[..], &["--aof-checksums", checksums]].concat();
        let (server, mut client) = start(backend, directory.path(), &options);
        assert!(base(directory.path()).to_str().unwrap().ends_with(".1.base.aof"));
        fill(&mut client);
        change(&mut client);
        for line in [
            "HSET timed a 1 b 2",
            "HPEXPIREAT timed 99999999999999 FIELDS 1 a",
            "XADD groups 1-1 f v",
            "XADD groups 2-1 f v",
            "XADD groups 3-1 f v",
            "XGROUP CREATE groups g 0",
            "XGROUP CREATECONSUMER groups g idle",
            "XREADGROUP GROUP g reader COUNT 2 STREAMS groups >",
            "XADD empty 5-1 f v",
            "XDEL empty 5-1",
        ] {
            client.ask(line);
        }
        client.ask("BGREWRITEAOF");
        wait_for(&mut client, "aof_rewrites:1\r\n");
        let looks = [
            "XINFO GROUPS groups",
            "XPENDING groups g",
            "XINFO GROUPS stream",
            "TYPE empty",
            "XLEN empty",
            "HPEXPIRETIME timed FIELDS 2 a b",
            "FUNCTION LIST",
        ];
        let before = (digest(&mut client), looks.map(|line| client.ask(line)));
        drop(server);
        let file = base(directory.path());
        assert!(file.to_str().unwrap().ends_with(".2.base.aof"));
        let start_of_file = if checksums == "yes" { "#KVG:" } else { "*" };
        assert!(std::fs::read(file).unwrap().starts_with(start_of_file.as_bytes()));
        let (_server, mut client) = start(backend, directory.path(), &[]);
        let after = (digest(&mut client), looks.map(|line| client.ask(line)));
        assert_eq!(after, before, "{backend}");
        let refused = client.ask("XADD empty 5-1 f v");
        assert!(matches!(refused, Value::Error(_)), "it has forgotten its last id: {refused:?}");
        assert_eq!(client.ask("FCALL f 0"), Value::Integer(7), "{LIBRARY}");
    }
}

#[test]
fn redis_and_valkey_load_it() {
    check_loads_in(Server::redis, &OPTIONS, &["DEL zset", "DEL large-zset"]);
    check_loads_in(Server::valkey, &OPTIONS, &[]);
}

/// As Redis does: a base and a manifest, which a start with the log begins with.
#[test]
fn without_a_log_a_base_is_written_alone() {
    for backend in backends() {
        let directory = directory();
        let folder = directory.path().join("appendonlydir");
        let server = Server::kvasir(backend, &["--dir", path(&directory)]);
        let mut client = server.connect();
        fill(&mut client);
        for round in 1..=2 {
            client.call(&["SET", "round", &round.to_string()]);
            let answer = client.ask_text("BGREWRITEAOF");
            assert_eq!(answer, "Background append only file rewriting started");
            wait_for(&mut client, &format!("aof_rewrites:{round}\r\n"));
            let manifest = std::fs::read_to_string(folder.join("appendonly.aof.manifest")).unwrap();
            let expected = format!("file appendonly.aof.{round}.base.rdb seq {round} type b\n");
            assert_eq!(manifest, expected);
            let bases = names(&folder).into_iter().filter(|name| name.ends_with(".rdb")).count();
            assert_eq!(bases, 1, "the older one is gone");
        }
        assert!(client.ask_text("INFO persistence").contains("aof_enabled:0\r\n"));
        let saved = digest(&mut client);
        client.ask("SET later v");
        stop(server, client);
        let (_server, mut client) = start(backend, directory.path(), &[]);
        assert_eq!(digest(&mut client), saved);
    }
}
