//! Redis 8 beside Valkey and Redis 7.0: each gets what it can read, as a replica, in a file, by
//! DUMP. Redis and Valkey have a form each for hashes whose fields expire, and neither reads the
//! other's.

use kvasir_resp::value::Value;

use crate::aof::wait_for;
use crate::certificates::free_port;
use crate::harness::{Client, Server, backends, figure, wait_until};
use crate::replication::{
    ALL_TYPES, EFFECTS, Start, is_linked, primary, replica, run_all, wait_until_equal,
};
use crate::saving::{digest, directory, fill, path, wait_for_snapshot};

/// Small hashes, which all keep in a listpack, and one that all keep in a table.
const TIMED: [&str; 3] = ["timed", "all-timed", "large-timed"];
/// Far from now, so that nothing expires meanwhile.
const LATE_MS: u64 = 4_102_444_800_000;

fn add_timed(client: &mut Client) {
    client.ask("HSET timed f v g 12 h w");
    client.ask(&format!("HPEXPIREAT timed {LATE_MS} FIELDS 1 g"));
    client.ask("HSET all-timed f v g w");
    client.ask(&format!("HPEXPIREAT all-timed {} FIELDS 1 f", LATE_MS + 70_000));
    client.ask(&format!("HPEXPIREAT all-timed {LATE_MS} FIELDS 1 g"));
    for number in 0..600_u64 {
        client.ask(&format!("HSET large-timed field-{number} value-{number}"));
        if number % 3 > 0 {
            let expiry_ms = LATE_MS + number * 1000 % 7777;
            client.ask(&format!("HPEXPIREAT large-timed {expiry_ms} FIELDS 1 field-{number}"));
        }
    }
}

/// What follows on it in a stream.
const CHANGES: &[&str] = &[
    "SET eq a; SET eq b IFEQ a; SET eq c EX 1000; SET eq d IFEQ c KEEPTTL; SET gone x; DELIFEQ gone x",
    "HSETEX new NX FIELDS 1 a 1; HSETEX new XX PXAT 4102444800000 FIELDS 2 b 2 c 3",
    "HSETEX new XX KEEPTTL FIELDS 1 b 4; HSETEX new FXX KEEPTTL FIELDS 1 c 5",
    "HINCRBYFLOAT timed g 1.5; HGETEX all-timed PXAT 4102444800001 FIELDS 1 f",
    "HPERSIST all-timed FIELDS 1 g; HGETDEL timed FIELDS 1 h; HGETEX timed PERSIST FIELDS 1 g",
    "HSET large-timed field-1 again; HPEXPIREAT large-timed 1 FIELDS 1 field-2",
];

/// Fields with their values and expiries. No digest: Redis 8 alone counts in which fields expire.
fn timed(client: &mut Client, key: &str) -> Vec<(String, Value, Value)> {
    let all = client.ask(&format!("HGETALL {key}"));
    let all = all.as_array().unwrap_or_else(|| panic!("{key}: {all:?}")).to_vec();
    let mut fields = Vec::new();
    for pair in all.chunks_exact(2) {
        let name = String::from_utf8_lossy(pair[0].as_bytes().expect("a name")).into_owned();
        let expiry = client.ask(&format!("HPEXPIRETIME {key} FIELDS 1 {name}"));
        fields.push((name, pair[1].clone(), expiry));
    }
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

fn wait_until_timed_equal(primary: &mut Client, replica: &mut Client, keys: &[&str]) {
    for key in keys {
        let wanted = timed(primary, key);
        assert!(!wanted.is_empty(), "{key}");
        wait_until("the replica has the hash", || timed(replica, key) == wanted);
    }
}

/// The same in both, once the hashes that were compared are gone.
fn assert_same(one: &mut Client, other: &mut Client, what: &str) {
    for key in TIMED {
        assert_eq!(timed(one, key), timed(other, key), "{what}: {key}");
        for client in [&mut *one, &mut *other] {
            client.ask(&format!("DEL {key}"));
        }
    }
    assert_eq!(digest(one), digest(other), "{what}");
}

#[test]
fn replicas_of_all_makers_share_a_primary() {
    for backend in backends() {
        let port = free_port();
        let server = primary(backend, port, &[]);
        let mut client = server.connect();
        run_all(&mut client, ALL_TYPES);
        client.ask("SELECT 3");
        fill(&mut client);
        add_timed(&mut client);
        let makers: [Start; 3] =
            [Server::redis8, Server::valkey, |options| Some(Server::kvasir("epoll", options))];
        let replicas: Vec<Server> =
            makers.iter().filter_map(|start| replica(*start, port, &[])).collect();
        let mut readers: Vec<Client> = replicas.iter().map(Server::connect).collect();
        for reader in &mut readers {
            wait_until("the replica is linked", || is_linked(reader));
            wait_until_timed_equal(&mut client, reader, &TIMED);
        }
        run_all(&mut client, EFFECTS);
        // They have swapped databases.
        client.ask("SWAPDB 0 9");
        run_all(&mut client, CHANGES);
        for reader in &mut readers {
            wait_until_timed_equal(&mut client, reader, &TIMED);
            wait_until_timed_equal(&mut client, reader, &["new"]);
        }
        client.ask(&format!("DEL new {}", TIMED.join(" ")));
        // Where no field expires any more Redis 7.0 is one of them.
        let oldest = replica(Server::redis, port, &[]);
        readers.extend(oldest.iter().map(Server::connect));
        for reader in &mut readers {
            wait_until("the replica is linked", || is_linked(reader));
            wait_until_equal(&mut client, reader);
        }
    }
}

#[test]
fn a_primary_that_is_redis_8_is_followed() {
    for backend in backends() {
        let port = free_port().to_string();
        let Some(server) = Server::redis8(&["--port", &port, "--repl-diskless-sync-delay", "0"])
        else {
            return;
        };
        let mut client = server.connect();
        run_all(&mut client, ALL_TYPES);
        add_timed(&mut client);
        let ours = Server::kvasir(backend, &["--replicaof", "127.0.0.1", &port]);
        let mut reader = ours.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        wait_until_timed_equal(&mut client, &mut reader, &TIMED);
        run_all(&mut client, EFFECTS);
        // They have swapped databases.
        client.ask("SWAPDB 0 9");
        run_all(&mut client, &CHANGES[3..]);
        wait_until_timed_equal(&mut client, &mut reader, &TIMED);
        client.ask(&format!("DEL {}", TIMED.join(" ")));
        wait_until_equal(&mut client, &mut reader);
    }
}

/// Redis 7.0 can't read what it is sent: it is told why, and not sent it again and again.
#[test]
fn a_replica_that_refuses_its_snapshot_is_told_why() {
    let (port, logs) = (free_port(), directory());
    let log = logs.path().join("log");
    let server = primary("epoll", port, &["--logfile", log.to_str().expect("a path of text")]);
    let mut client = server.connect();
    add_timed(&mut client);
    let own_port = free_port().to_string();
    let Some(_replica) = replica(Server::redis, port, &["--port", &own_port]) else { return };
    wait_until("it is held off", || {
        client.ask_text("INFO errorstats").contains("errorstat_NOMASTERLINK:")
    });
    let fulls = figure(&mut client, "stats", "sync_full");
    assert!((2..4).contains(&fulls), "{fulls}");
    let text = std::fs::read_to_string(&log).expect("a log");
    assert!(text.contains("a replica went away over its snapshot again"), "{text}");
    assert!(text.contains("rdb_version=12 times=2"), "{text}");
    // Others get theirs.
    for start in [Server::redis8, Server::valkey] {
        let Some(other) = replica(start, port, &[]) else { continue };
        let mut reader = other.connect();
        wait_until("the replica is linked", || is_linked(&mut reader));
        wait_until_timed_equal(&mut client, &mut reader, &TIMED);
    }
}

const FORMS: [(&str, Start); 2] = [("12", Server::redis8), ("80", Server::valkey)];

#[test]
fn snapshots_of_the_version_asked_for_load_in_redis_8_and_valkey() {
    for (version, peer) in FORMS {
        for has_timed in [true, false] {
            let directory = directory();
            let dir = ["--dir", path(&directory)];
            let ours = Server::kvasir("epoll", &[&dir[..], &["--rdb-version", version]].concat());
            let mut client = ours.connect();
            fill(&mut client);
            if has_timed {
                add_timed(&mut client);
            }
            client.ask("BGSAVE");
            wait_for_snapshot(&mut client);
            let Some(theirs) = peer(&dir) else { continue };
            assert_same(&mut client, &mut theirs.connect(), &format!("{version} {has_timed}"));
        }
    }
}

#[test]
fn bases_of_the_version_asked_for_load_in_redis_8_and_valkey() {
    for (version, peer) in FORMS {
        let directory = directory();
        let dir = ["--dir", path(&directory), "--appendonly", "yes"];
        let ours = Server::kvasir("epoll", &[&dir[..], &["--rdb-version", version]].concat());
        let mut client = ours.connect();
        wait_for(&mut client, "\nloading:0");
        fill(&mut client);
        add_timed(&mut client);
        client.ask("BGREWRITEAOF");
        wait_for(&mut client, "aof_rewrites:1\r\n");
        // Behind the base.
        client.ask("HSET timed f again");
        wait_for(&mut client, "aof_buffer_length:0\r\n");
        let Some(theirs) = peer(&dir) else { continue };
        let mut other = theirs.connect();
        wait_for(&mut other, "\nloading:0");
        assert_same(&mut client, &mut other, version);
    }
}

/// By DUMP and RESTORE, there and back.
#[test]
fn values_go_to_redis_8_and_valkey_and_come_back() {
    let keys = ["text", "list", "ints", "words", "zset", "hash", "stream", "hll", "large-zset"];
    for (version, peer) in FORMS {
        let ours = Server::kvasir("epoll", &["--rdb-version", version]);
        let Some(theirs) = peer(&[]) else { continue };
        let (mut client, mut other) = (ours.connect(), theirs.connect());
        fill(&mut client);
        add_timed(&mut client);
        for key in keys.into_iter().chain(TIMED) {
            let before = (timed_if_hash(&mut client, key), digest_of(&mut client, key));
            let Value::Bulk(payload) = client.call(&["DUMP", key]) else { panic!("{key}") };
            let call = [b"RESTORE", key.as_bytes(), b"0", &payload];
            assert_eq!(other.call(&call), Value::Simple(b"OK".to_vec()), "{version} {key}");
            let Value::Bulk(payload) = other.call(&["DUMP", key]) else { panic!("{key}") };
            let call = [b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"];
            assert_eq!(client.call(&call), Value::Simple(b"OK".to_vec()), "{version} {key}");
            let after = (timed_if_hash(&mut client, key), digest_of(&mut client, key));
            assert_eq!(before, after, "{version} {key}");
        }
    }
}

fn timed_if_hash(client: &mut Client, key: &str) -> Option<Vec<(String, Value, Value)>> {
    (client.ask_text(&format!("TYPE {key}")) == "hash").then(|| timed(client, key))
}

fn digest_of(client: &mut Client, key: &str) -> Value {
    client.call(&["DEBUG", "DIGEST-VALUE", key])
}
