//! CONFIG, INFO, MEMORY, DEBUG, TIME, LOLWUT, SHUTDOWN.

use crate::check::{check, check_with};
use crate::harness::each_backend;

#[test]
fn errors() {
    check(&[
        (
            "SHUTDOWN x; SHUTDOWN SAVE NOSAVE; SHUTDOWN ABORT NOW; SHUTDOWN ABORT; LOLWUT VERSION x",
            "-ERR syntax error; -ERR syntax error; -ERR syntax error; \
             -ERR No shutdown in progress.; -ERR value is not an integer or out of range",
        ),
        (
            "DEBUG nosuch; DEBUG SLEEP; DEBUG SLEEP 0; DEBUG SET-ACTIVE-EXPIRE 1; DEBUG",
            "-ERR unknown subcommand or wrong number of arguments for 'nosuch'. Try DEBUG HELP.; \
             -ERR unknown subcommand or wrong number of arguments for 'SLEEP'. Try DEBUG HELP.; \
             +OK; +OK; -ERR wrong number of arguments for 'debug' command",
        ),
        (
            "DEBUG OBJECT none; MEMORY USAGE none; MEMORY USAGE none x; MEMORY nosuch; MEMORY PURGE",
            "-ERR no such key; _; -ERR syntax error; \
             -ERR unknown subcommand 'nosuch'. Try MEMORY HELP.; +OK",
        ),
        (
            "CONFIG GET; CONFIG SET timeout; CONFIG SET nosuch 1; CONFIG SET timeout 1 nosuch 2; \
             CONFIG SET timeout x; CONFIG GET timeout; CONFIG SET timeout 1 timeout 2; \
             CONFIG SET timeout 1 hz; CONFIG GET nosuch; CONFIG RESETSTAT",
            "-ERR wrong number of arguments for 'config|get' command; \
             -ERR wrong number of arguments for 'config|set' command; \
             -ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'; \
             -ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'; \
             -ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't \
             be parsed into an integer; [$timeout $0]; \
             -ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate \
             parameter; -ERR syntax error; []; +OK",
        ),
    ]);
}

#[test]
fn config_changes_reach_every_worker() {
    each_backend(&[], |server| {
        let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        clients[0].ask("CONFIG SET timeout 7 hz 20");
        for client in &mut clients {
            assert_eq!(
                crate::check::show(&client.ask("CONFIG GET TIMEOUT h?")),
                "[$timeout $7 $hz $20]"
            );
        }
    });
}

#[test]
fn info_has_the_sections_asked_for() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let heads = |text: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.strip_prefix("# ")).map(String::from).collect()
        };
        let default = heads(&client.ask_text("INFO"));
        assert_eq!(default.first().map(String::as_str), Some("Server"));
        assert!(!default.contains(&"Commandstats".into()));
        assert_eq!(heads(&client.ask_text("INFO keyspace SERVER")), ["Server", "Keyspace"]);
        assert_eq!(client.ask_text("INFO nosuch"), "");
        let all = client.ask_text("INFO everything");
        for field in ["redis_version:7.2.4", "loading:0", "role:master", "cluster_enabled:0"] {
            assert!(all.contains(&format!("{field}\r\n")), "{field}");
        }
        assert!(all.contains("cmdstat_info:calls=3,"), "{all}");
    });
}

#[test]
fn figures_follow_what_happens() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("SET k v");
        client.ask("SET volatile v EX 1000");
        client.ask("GET k");
        client.ask("GET nosuch");
        client.ask("GET");
        client.ask("NOSUCH");
        let text = client.ask_text("INFO all");
        for line in [
            "keyspace_hits:1",
            "keyspace_misses:1",
            "errorstat_ERR:count=2",
            "total_error_replies:2",
        ] {
            assert!(text.contains(&format!("{line}\r\n")), "{line} not in {text}");
        }
        let keys = text.lines().find(|line| line.starts_with("db0:")).unwrap();
        let (start, rest) = keys.split_once(",avg_ttl=").unwrap();
        let (avg_ttl, end) = rest.split_once(',').unwrap();
        assert_eq!((start, end), ("db0:keys=2,expires=1", "keys_with_volatile_items=0"));
        assert!((1..=1_000_000).contains(&avg_ttl.parse::<u64>().unwrap()), "{keys}");
        let get = text.lines().find(|line| line.starts_with("cmdstat_get:")).unwrap();
        assert!(get.starts_with("cmdstat_get:calls=2,usec="), "{get}");
        assert!(get.ends_with(",rejected_calls=1,failed_calls=0"), "{get}");
        client.ask("CONFIG RESETSTAT");
        let text = client.ask_text("INFO all");
        assert!(text.contains("keyspace_hits:0\r\n") && text.contains("db0:keys=2"), "{text}");
    });
}

/// Of every section, the oracle's fields in their order; ours may be more, and some are left out.
#[test]
fn fields_come_in_the_order_of_redis() {
    let Some(oracle) = crate::harness::Server::redis(&[]) else { return };
    let names = |text: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let theirs = names(&oracle.connect().ask_text("INFO"));
    each_backend(&[], |server| {
        let ours = names(&server.connect().ask_text("INFO"));
        let common: Vec<_> = ours.iter().filter(|name| theirs.contains(name)).collect();
        let expected: Vec<_> = theirs.iter().filter(|name| ours.contains(name)).collect();
        assert_eq!(common, expected);
        let missing: Vec<_> = theirs.iter().filter(|name| !ours.contains(name)).collect();
        assert_eq!(missing.len(), MISSING.len(), "{missing:?}");
        assert!(missing.iter().all(|name| MISSING.contains(&name.as_str())), "{missing:?}");
    });
}

/// Facts of Redis's build that have no like here.
const MISSING: &[&str] = &["atomicvar_api", "gcc_version"];

/// What Valkey 9.1 tells beyond Redis 7.0 and Kvasir does not, by the beginning of the fields.
const MISSING_OF_VALKEY: &[(&str, &str)] = &[
    ("valkey_", "the server is another one: see server_name"),
    ("gcc_version", "of another compiler"),
    ("atomicvar_api", "of another compiler"),
    ("module", "no modules"),
    ("engine", "told by used_memory_vm_eval and number_of_cached_scripts"),
];

#[test]
fn fields_of_valkey_are_there_or_have_a_reason() {
    let Some(oracle) = crate::harness::Server::valkey(&[]) else { return };
    let text = oracle.connect().ask_text("INFO everything");
    each_backend(&[], |server| {
        let ours = server.connect().ask_text("INFO everything");
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let missing: Vec<&str> = fields
            .map(|(name, _)| name)
            .filter(|name| !ours.contains(&format!("\n{name}:")))
            .filter(|name| !name.starts_with("cmdstat_") && !name.starts_with("latency_"))
            .filter(|name| !MISSING_OF_VALKEY.iter().any(|(start, _)| name.starts_with(start)))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    });
}

#[test]
fn memory_figures_are_there() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("SET k v");
        assert!(client.ask("MEMORY USAGE k").as_integer().unwrap() > 2);
        let stats = client.ask("MEMORY STATS");
        let stats = stats.as_array().unwrap();
        let position =
            stats.iter().position(|name| name.as_bytes() == Some(b"keys.count")).unwrap();
        assert_eq!(stats[position + 1].as_integer(), Some(1));
        for call in ["MEMORY DOCTOR", "MEMORY MALLOC-STATS", "LOLWUT", "LOLWUT VERSION 5 1 2"] {
            assert!(!client.ask_text(call).is_empty(), "{call}");
        }
        for call in ["CLIENT", "CONFIG", "COMMAND", "MEMORY", "DEBUG"] {
            assert!(client.ask(&format!("{call} HELP")).as_array().unwrap().len() > 3, "{call}");
        }
        assert_eq!(client.ask("TIME").as_array().unwrap().len(), 2);
    });
}

#[test]
fn shutdown_ends_the_process_without_a_word() {
    each_backend(&[], |server| {
        let mut other = server.connect();
        other.ask("PING");
        let mut client = server.connect();
        client.send(&["SHUTDOWN", "NOSAVE"]);
        assert!(client.ends() && other.ends(), "{}", server.name);
        assert!(server.wait_for_end().success());
    });
}

#[test]
fn debug_sleep_stops_everybody() {
    each_backend(&[], |server| {
        let mut sleeper = server.connect();
        let mut others: Vec<_> = (0..4).map(|_| server.connect()).collect();
        others.iter_mut().for_each(|other| drop(other.ask("PING")));
        let start = std::time::Instant::now();
        sleeper.send_raw(b"ECHO before\r\nDEBUG SLEEP 0.3\r\n");
        sleeper.read_reply();
        // Both replies leave together, so the sleep is over when the first one is here.
        for other in &mut others {
            other.ask("PING");
        }
        sleeper.read_reply();
        assert!(start.elapsed().as_millis() >= 300, "{:?}", start.elapsed());
    });
}

#[test]
fn expired_keys_go_by_themselves_unless_told_not_to() {
    use crate::harness::wait_until;
    each_backend(&[], |server| {
        let mut client = server.connect();
        let count = |client: &mut crate::harness::Client| client.ask_text("INFO keyspace");
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        client.ask("SET a v PX 1");
        client.ask("DEBUG SLEEP 0.3");
        assert!(count(&mut client).contains("keys=1,expires=1"), "{}", server.name);
        client.ask("DEBUG SET-ACTIVE-EXPIRE 1");
        wait_until("the key is deleted", || !count(&mut client).contains("keys="));
        assert!(client.ask_text("INFO stats").contains("expired_keys:1\r\n"));
    });
}

#[test]
fn expired_fields_go_by_themselves_and_their_hash_with_the_last() {
    use crate::harness::wait_until;
    each_backend(&[], |server| {
        let mut client = server.connect();
        let keyspace = |client: &mut crate::harness::Client| client.ask_text("INFO keyspace");
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        // HSET would delete a dead field itself: they live until it was here, in one turn with it.
        let calls =
            ["HSETEX h PX 200 FIELDS 2 a 1 b 2", "HSETEX g PX 200 FIELDS 1 a 1", "HSET g b 2"];
        client.send_raw((calls.join("\r\n") + "\r\n").as_bytes());
        calls.iter().for_each(|call| assert!(client.read_reply().is_some(), "{call}"));
        client.ask("DEBUG SLEEP 0.3");
        let before = "keys=2,expires=0,avg_ttl=0,keys_with_volatile_items=2";
        assert!(keyspace(&mut client).contains(before), "{}", server.name);
        client.ask("DEBUG SET-ACTIVE-EXPIRE 1");
        let after = "keys=1,expires=0,avg_ttl=0,keys_with_volatile_items=0";
        wait_until("the fields are deleted", || keyspace(&mut client).contains(after));
        let stats = client.ask_text("INFO stats");
        assert!(stats.contains("expired_keys:0\r\nexpired_fields:3\r\n"), "{stats}");
    });
}

/// More than the expiry cycle deletes in one stay, so that it has to go on within a slot.
#[test]
fn a_large_hash_dies_in_steps() {
    use crate::harness::wait_until;
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("DEBUG SET-ACTIVE-EXPIRE 0");
        for chunk in 0..100 {
            let fields: String = (0..1000).map(|field| format!(" f{chunk}:{field} v")).collect();
            client.ask(&format!("HSETEX h PX 1 FIELDS 1000{fields}"));
            client.ask(&format!("HSETEX i PXAT 33177117420000 FIELDS 1000{fields}"));
        }
        client.ask("DEBUG SET-ACTIVE-EXPIRE 1");
        let keyspace = |client: &mut crate::harness::Client| client.ask_text("INFO keyspace");
        wait_until("the hash is gone", || keyspace(&mut client).contains("keys=1,"));
        client.ask("SET k v PX 1");
        wait_until("the next round is over", || keyspace(&mut client).contains("keys=1,"));
        assert!(client.ask_text("INFO stats").contains("expired_fields:100000\r\n"));
    });
}

#[test]
fn debug_needs_permission() {
    let refused = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                   \"local\", you can run it from a local connection, otherwise you need to set \
                   this option in the configuration file, and then restart the server.";
    check_with(&["--enable-debug-command", "no"], &[("DEBUG SLEEP 0", refused)]);
    check_with(&["--enable-debug-command", "local"], &[("DEBUG SLEEP 0", "+OK")]);
}

/// Found when the allocator put its arena on huge pages, which made it 28 MB.
#[test]
fn a_fresh_server_is_small() {
    each_backend(&["--io-threads", "1"], |server| {
        let info = server.connect().ask_text("INFO memory");
        let rss = info.lines().find_map(|line| line.strip_prefix("used_memory_rss:"));
        let rss: u64 = rss.and_then(|text| text.trim().parse().ok()).expect("a figure");
        assert!(rss < 16_000_000, "{rss} bytes are resident");
    });
}
