//! `maxmemory`: what is refused, what goes, and how closely the limit is kept.

use std::thread;
use std::time::Duration;

use kvasir_resp::encode::encode_request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::certificates::free_port;
use crate::check::{check, check_with, run_script, show};
use crate::harness::{Client, Server, backends, each_backend, figure, wait_until};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const MB: u64 = 1 << 20;

/// A figure of INFO.
fn used(client: &mut Client) -> u64 {
    figure(client, "memory", "used_memory")
}

fn config_set(client: &mut Client, name: &str, value: impl ToString) {
    let reply = client.call(&["CONFIG", "SET", name, &value.to_string()]);
    assert_eq!(show(&reply), "+OK", "{name}");
}

#[test]
fn without_room_only_what_adds_data_is_refused() {
    check(&[
        ("SET k v; RPUSH l a; CONFIG SET maxmemory 1", "+OK; :1; +OK"),
        ("SET k w; SET new v; RPUSH l b; INCR n; SETRANGE k 0 x; COPY k c", &[OOM; 6].join("; ")),
        ("GET k; LPOP l; EXPIRE k 100; RENAME k r; DEL r; EXISTS r", "$v; $a; :1; +OK; :1; :0"),
        ("CONFIG SET maxmemory 0; SET k v", "+OK; +OK"),
    ]);
}

#[test]
fn volatile_policies_need_volatile_keys() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        check_with(
            &["--maxmemory-policy", policy],
            &[(
                "SET k v; SET n w; CONFIG SET maxmemory 1; SET k x; EXPIRE k 1000; SET n x; \
                 EXISTS k; GET n",
                &format!("+OK; +OK; +OK; {OOM}; :1; {OOM}; :0; $w"),
            )],
        );
    }
}

#[test]
fn a_transaction_is_refused_as_a_whole() {
    let queued = "+OK; +QUEUED; +QUEUED";
    check(&[
        (
            "CONFIG SET maxmemory 1; MULTI; GET k; SET k v; EXEC",
            &format!(
                "+OK; +OK; {OOM}; {OOM}; -EXECABORT Transaction discarded because of previous \
                 errors."
            ),
        ),
        ("MULTI; DISCARD; MULTI; EXEC; GET k", "+OK; +OK; +OK; []; _"),
    ]);
    // Refused only when it is to run.
    let refused = format!(
        "-EXECABORT Transaction discarded because of: {}",
        OOM.strip_prefix('-').expect("an error")
    );
    let test = |server: &Server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        assert_eq!(run_script(&mut client, "MULTI; GET k; SET k v"), queued);
        config_set(&mut other, "maxmemory", 1);
        assert_eq!(run_script(&mut client, "EXEC; GET k"), format!("{refused}; _"));
        assert_eq!(run_script(&mut client, "MULTI; EXEC"), "+OK; []", "{}", server.name);
    };
    each_backend(&[], |server| test(server));
    Server::redis(&[]).iter().for_each(test);
}

#[test]
fn access_clocks_follow_the_policy() {
    check(&[
        ("SET k v; OBJECT IDLETIME k", "+OK; :0"),
        (
            "CONFIG SET maxmemory-policy allkeys-lfu; OBJECT IDLETIME k",
            "+OK; -ERR An LFU maxmemory policy is selected, idle time not tracked. Please note \
             that when switching between policies at runtime LRU and LFU data will take some time \
             to adjust.",
        ),
        // The first use is counted for certain, and one more cannot lower the count.
        ("SET n v; OBJECT FREQ n; GET n; OBJECT FREQ n; OBJECT FREQ none", "+OK; :5; $v; :6; _"),
        (
            "CONFIG SET lfu-log-factor 0; GET n; GET n; SET n w; OBJECT FREQ n",
            "+OK; $v; $v; +OK; :9",
        ),
        (r#"RESTORE r 0 "\x00\x05hello\n\x00cr\xdfve4 \n" FREQ 200; OBJECT FREQ r"#, "+OK; :200"),
        (r#"RESTORE i 0 "\x00\x05hello\n\x00cr\xdfve4 \n" IDLETIME 9; OBJECT FREQ i"#, "+OK; :5"),
        ("CONFIG SET maxmemory-policy noeviction; SET n v; OBJECT IDLETIME n", "+OK; +OK; :0"),
    ]);
}

#[test]
fn options_have_redis_s_names_values_and_errors() {
    let range = |name: &str, range: &str| {
        format!(
            "-ERR CONFIG SET failed (possibly related to argument '{name}') - argument must be \
             between {range} inclusive"
        )
    };
    check(&[
        ("CONFIG GET maxmemory", "[$maxmemory $0]"),
        (
            "CONFIG SET maxmemory 100mb maxmemory-policy allkeys-lru; CONFIG GET maxmemory",
            "+OK; [$maxmemory $104857600]",
        ),
        (
            "CONFIG GET maxmemory-samples; CONFIG GET maxmemory-eviction-tenacity",
            "[$maxmemory-samples $5]; [$maxmemory-eviction-tenacity $10]",
        ),
        (
            "CONFIG GET lfu-log-factor; CONFIG GET lfu-decay-time",
            "[$lfu-log-factor $10]; [$lfu-decay-time $1]",
        ),
        (
            "CONFIG SET maxmemory-samples 0; CONFIG SET maxmemory-eviction-tenacity 101",
            &format!(
                "{}; {}",
                range("maxmemory-samples", "1 and 2147483647"),
                range("maxmemory-eviction-tenacity", "0 and 100")
            ),
        ),
        (
            "CONFIG SET maxmemory -1",
            "-ERR CONFIG SET failed (possibly related to argument \
          'maxmemory') - argument must be a memory value",
        ),
    ]);
}

/// The n-th of the calls with which a writer fills memory: values of many sizes, some of them long,
/// and collections that grow.
fn filling(writer: u64, number: u64) -> Vec<u8> {
    let draw = (number + writer).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let value = "v".repeat((draw % 2000) as usize);
    let group = format!("{writer}:{}", number / 3000);
    let member = number.to_string();
    match draw / 2000 % 32 {
        0 => encode_request(&["RPUSH", &format!("l:{group}"), &value]),
        1 => encode_request(&["SADD", &format!("s:{group}"), &format!("{member}{value}")]),
        2 => encode_request(&["HSET", &format!("h:{group}"), &member, &value]),
        3 => encode_request(&["ZADD", &format!("z:{group}"), &member, &value]),
        4 if number.is_multiple_of(7) => {
            encode_request(&["SETRANGE", &format!("long:{group}:{member}"), "300000", "x"])
        }
        _ => encode_request(&["SET", &format!("k:{writer}:{number}"), &value]),
    }
}

/// Sends calls in pipelines; no reply may be an error.
fn write_all(client: &mut Client, writer: u64, count: u64) {
    for first in (0..count).step_by(20) {
        let calls: Vec<u8> = (first..first + 20).flat_map(|at| filling(writer, at)).collect();
        client.send_raw(&calls);
        for _ in 0..20 {
            let reply = client.read_reply().expect("the connection stays open");
            assert!(!show(&reply).starts_with('-'), "{}", show(&reply));
        }
    }
}

/// Four writers on four workers write three times the limit.
#[test]
fn the_limit_is_kept_under_load() {
    const LIMIT: u64 = 64 * MB;
    let options = ["--io-threads", "4", "--maxmemory", "64mb", "--maxmemory-policy"];
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        each_backend(&[&options[..], &[policy]].concat(), |server| {
            let mut client = server.connect();
            let mut seen = thread::scope(|scope| {
                let writers: Vec<_> = (0..4)
                    .map(|writer| {
                        let mut client = server.connect();
                        scope.spawn(move || write_all(&mut client, writer, 40_000))
                    })
                    .collect();
                let mut seen = Vec::new();
                while writers.iter().any(|writer| !writer.is_finished()) {
                    seen.push(used(&mut client));
                }
                seen
            });
            seen.sort_unstable();
            // A worker that the system stops between its write and what it evicts for that is seen
            // above the limit for as long.
            let (most, nearly_most) = (seen[seen.len() - 1], seen[seen.len() * 99 / 100]);
            assert!(nearly_most <= LIMIT / 100 * 102, "{policy}: {nearly_most} of {LIMIT}");
            assert!(most <= LIMIT / 100 * 105, "{policy}: {most} of {LIMIT}");
            assert!(most >= LIMIT / 100 * 95, "{policy}: evicted too much, {most}");
            let evicted = figure(&mut client, "stats", "evicted_keys");
            assert!(evicted > 50_000, "{policy}: {evicted}");
            assert_eq!(figure(&mut client, "stats", "current_eviction_exceeded_time"), 0);
        });
    }
}

/// Room is made for a long value, but not by deleting more than it takes.
#[test]
fn long_values_make_room_for_themselves() {
    const LIMIT: u64 = 100 * MB;
    each_backend(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], |server| {
        let mut client = server.connect();
        for number in 0..120 {
            let key = format!("small:{number}");
            assert_eq!(show(&client.call(&["SETRANGE", &key, "999999", "x"])), ":1000000");
        }
        let value = vec![b'x'; 10 << 20];
        for number in 0..30 {
            let key = format!("long:{number}");
            let reply = client.call(&[b"SET".as_slice(), key.as_bytes(), &value]);
            assert_eq!(show(&reply), "+OK");
            let used = used(&mut client);
            assert!(used <= LIMIT / 100 * 102, "{used} after {number}");
            assert!(number == 0 || used >= LIMIT / 100 * 70, "{used} after {number}");
            assert_eq!(show(&client.ask(&format!("EXISTS {key}"))), ":1");
        }
    });
}

#[test]
fn a_lower_limit_is_reached_in_the_background() {
    each_backend(&["--maxmemory-policy", "allkeys-random"], |server| {
        let mut client = server.connect();
        write_all(&mut client, 0, 20_000);
        let limit = used(&mut client) / 2;
        config_set(&mut client, "maxmemory", limit);
        wait_until("memory is within the new limit", || used(&mut client) <= limit);
        assert!(used(&mut client) > limit / 10 * 8);
        // Another policy, which no key is subject to.
        config_set(&mut client, "maxmemory-policy", "volatile-ttl");
        wait_until("nobody evicts by the old one", || {
            let keys = show(&client.ask("DBSIZE"));
            thread::sleep(Duration::from_millis(100));
            show(&client.ask("DBSIZE")) == keys
        });
        config_set(&mut client, "maxmemory", limit / 2);
        assert_eq!(show(&client.ask("SET k v")), OOM);
        let keys = show(&client.ask("DBSIZE"));
        assert_eq!(show(&client.ask("DBSIZE")), keys);
        config_set(&mut client, "maxmemory-policy", "allkeys-lru");
        wait_until("memory is within the limit", || used(&mut client) <= limit / 2);
        assert_eq!(show(&client.ask("SET k v")), "+OK");
    });
}

/// Half of the keys are read again, then so many new ones written that as much as the other half
/// has to go; returns how many of those that were read are left, of 1000.
fn kept_of_thousand(server: &Server) -> usize {
    let mut client = server.connect();
    let value = "v".repeat(1000);
    for number in 0..2000 {
        client.call(&["SET", &format!("k:{number}"), &value]);
    }
    // Clocks are in seconds.
    wait_until("the keys are two seconds old", || {
        show(&client.ask("OBJECT IDLETIME k:1999")) == ":2"
    });
    for number in 0..1000 {
        client.ask(&format!("GET k:{number}"));
    }
    let limit = used(&mut client);
    config_set(&mut client, "maxmemory", limit);
    config_set(&mut client, "maxmemory-policy", "allkeys-lru");
    for number in 0..700 {
        assert_eq!(show(&client.call(&["SET", &format!("n:{number}"), &value])), "+OK");
    }
    let is_there = |number: &i32| show(&client.ask(&format!("EXISTS k:{number}"))) == ":1";
    (0..1000).filter(is_there).count()
}

#[test]
fn keys_used_lately_stay_as_they_do_in_redis() {
    let ours = kept_of_thousand(&Server::kvasir("epoll", &[]));
    assert!(ours > 960, "{ours} of 1000");
    if let Some(redis) = Server::redis(&[]) {
        let theirs = kept_of_thousand(&redis);
        assert!(ours + 20 >= theirs, "{ours}, and {theirs} in Redis");
    }
}

/// A very large value is freed in the background; while it is, no other has to go.
#[test]
fn what_is_being_freed_counts_as_free() {
    // Two workers that find the limit lowered would make room each.
    let options = ["--io-threads", "1", "--maxmemory-policy", "allkeys-random"];
    each_backend(&options, |server| {
        let mut client = server.connect();
        for number in 0..1_500_000 / 500 {
            let mut call = vec!["HSET".to_owned(), format!("hash:{}", number % 4)];
            let fields = number * 500..(number + 1) * 500;
            call.extend(fields.flat_map(|at| [at.to_string(), "v".repeat(8)]));
            client.call(&call);
        }
        let limit = used(&mut client) - MB / 2;
        config_set(&mut client, "maxmemory", limit);
        assert_eq!(show(&client.ask("SET k v")), "+OK");
        let pending = |client: &mut Client| figure(client, "memory", "lazyfree_pending_objects");
        wait_until("a hash is freed", || pending(&mut client) == 0);
        assert!(used(&mut client) < limit);
        assert_eq!(figure(&mut client, "stats", "evicted_keys"), 1);
        assert_eq!(figure(&mut client, "memory", "lazyfreed_objects"), 1);
    });
}

#[test]
fn memory_in_use_is_what_was_given_out() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let start = used(&mut client);
        assert!((100_000..8 * MB).contains(&start), "{start}");
        let value = vec![b'x'; 20 << 20];
        client.call(&[b"SET".as_slice(), b"k", &value]);
        let full = used(&mut client);
        assert!((start + 20 * MB..start + 23 * MB).contains(&full), "{start} {full}");
        assert!(figure(&mut client, "memory", "used_memory_dataset") >= 20 * MB);
        assert!(figure(&mut client, "memory", "used_memory_peak") >= full);
        client.ask("DEL k");
        // The slots of the database stay.
        wait_until("the value is freed", || used(&mut client) < start + 2 * MB);
        assert!(figure(&mut client, "memory", "used_memory_peak") >= full);
    });
}

/// Its buffer is memory in use, but no reason to give keys up.
#[test]
fn a_snapshot_evicts_nothing() {
    each_backend(&["--snapshot-bandwidth", "4mb", "--maxmemory-policy", "allkeys-lru"], |server| {
        let mut client = server.connect();
        let value = "v".repeat(10_000);
        for key in 0..4000 {
            client.call(&["SET", &format!("key:{key}"), &value]);
        }
        let before = used(&mut client);
        config_set(&mut client, "maxmemory", before + MB);
        assert_eq!(show(&client.ask("BGSAVE")), "+Background saving started");
        let buffer = |client: &mut Client| figure(client, "memory", "mem_not_counted_for_evict");
        wait_until("the buffer is there", || buffer(&mut client) > before / 5);
        assert!(used(&mut client) > before + before / 5);
        assert!(buffer(&mut client) < before * 3 / 10, "it is a quarter of the memory in use");
        for key in 0..100 {
            client.call(&["SET", &format!("key:{key}"), &value]);
        }
        assert_eq!(figure(&mut client, "persistence", "rdb_bgsave_in_progress"), 1);
        assert_eq!(figure(&mut client, "stats", "evicted_keys"), 0);
        client.ask("BGSAVE CANCEL");
        wait_until("the buffer is gone", || buffer(&mut client) == 0);
        wait_until("it is no memory in use", || used(&mut client) < before + before / 10);
    });
}

/// Nor is what the log has not brought to the disk yet.
#[test]
fn a_log_that_waits_for_the_disk_evicts_nothing() {
    for (backend, policy) in [("epoll", "noeviction"), ("io_uring", "allkeys-lru")] {
        let options = ["--appendonly", "yes", "--maxmemory-policy", policy];
        let server = Server::kvasir(backend, &options);
        let mut client = server.connect();
        wait_until("it has loaded", || show(&client.ask("GET k")) == "_");
        let limit = used(&mut client) + 20 * MB;
        config_set(&mut client, "maxmemory", limit);
        let value = "v".repeat(1000);
        for _ in 0..4 {
            let calls: String = (0..12_000).map(|key| format!("SET k{key} {value}\r\n")).collect();
            client.send_raw(calls.as_bytes());
            for key in 0..12_000 {
                let reply = client.read_reply().expect("it answers");
                assert_eq!(show(&reply), "+OK", "{policy} {key}");
            }
        }
        assert_eq!(show(&client.ask("DBSIZE")), ":12000");
        assert_eq!(figure(&mut client, "stats", "evicted_keys"), 0);
        let mut memory = |name| figure(&mut client, "memory", name);
        wait_until("the log is no reason to evict, but overhead", || {
            // In this order: it gets shorter meanwhile.
            let exempt = memory("mem_not_counted_for_evict");
            let overhead = memory("used_memory_overhead");
            let log = memory("mem_aof_buffer");
            assert!(log >= MB, "a block at least: {log}");
            exempt >= log && overhead >= log
        });
    }
}

/// A reply that nobody reads is memory in use.
#[test]
fn replies_that_wait_are_counted() {
    each_backend(&[], |server| {
        let (mut client, mut lazy) = (server.connect(), server.connect());
        for number in 0..1000 {
            client.call(&["RPUSH", "list", &format!("{number}{}", "v".repeat(1000))]);
        }
        let before = used(&mut client);
        (0..30).for_each(|_| lazy.send(&["LRANGE", "list", "0", "-1"]));
        wait_until("the replies are counted", || used(&mut client) > before + 10 * MB);
        drop(lazy);
        wait_until("they are gone", || used(&mut client) < before + MB);
    });
}

/// A low limit is reached, and what a database takes without a key is there before the first one:
/// memory in use does not jump behind FLUSHALL.
#[test]
fn a_low_limit_is_reached_key_by_key() {
    each_backend(&["--maxmemory-policy", "allkeys-lru"], |server| {
        let mut client = server.connect();
        client.ask("SET k v");
        let before = used(&mut client);
        client.ask("FLUSHALL");
        wait_until("it is freed", || used(&mut client) <= before + 64 * 1024);
        let limit = used(&mut client) + 100 * 1024;
        config_set(&mut client, "maxmemory", limit);
        let mut number = 0;
        while figure(&mut client, "stats", "evicted_keys") == 0 {
            client.ask(&format!("SETEX first:{number} 10000 x"));
            number += 1;
        }
        assert!(number > 100, "{number}");
    });
}

/// What a replica has yet to take is no reason to give keys up.
#[test]
fn a_slow_replica_evicts_nothing() {
    let port = free_port().to_string();
    let options = ["--port", &port, "--repl-backlog-size", "16kb", "--maxmemory-policy"];
    let server = Server::kvasir(backends()[0], &[&options[..], &["allkeys-random"]].concat());
    let mut client = server.connect();
    for number in 0..100 {
        client.ask(&format!("SETRANGE key:{number} 100000 asdf"));
    }
    let replica = Server::kvasir(backends()[0], &["--replicaof", &format!("127.0.0.1 {port}")]);
    let is_up = |client: &mut Client| client.ask_text("INFO replication").contains("state=online");
    wait_until("it follows", || is_up(&mut client));
    let exempt = figure(&mut client, "memory", "mem_not_counted_for_evict");
    let limit = used(&mut client) - exempt + MB;
    config_set(&mut client, "maxmemory", limit);
    kill(Pid::from_raw(replica.pid() as i32), Signal::SIGSTOP).expect("it is ours");
    let value = "A".repeat(1000);
    for _ in 0..10_000 {
        client.call(&["SETRANGE", "key:0", "0", &value]);
    }
    let waits = figure(&mut client, "memory", "mem_clients_slaves");
    assert!(waits > 2 * MB, "{waits}");
    assert_eq!(show(&client.ask("DBSIZE")), ":100");
    assert_eq!(figure(&mut client, "stats", "evicted_keys"), 0);
    client.ask("CLIENT KILL TYPE replica");
    wait_until("nothing is kept for it", || {
        figure(&mut client, "memory", "mem_clients_slaves") == 0
    });
}
