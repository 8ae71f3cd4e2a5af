//! The memory of interpreters: it is no data's, what scripts leave behind is collected, and what is
//! flushed is freed. Which scripts are kept.

use crate::check::{run_script, show};
use crate::harness::{Client, Server, each_backend, figure, wait_until};

/// Some 30 MB of small strings.
const HOARD: &str = "local t = {} for i = 1, 400000 do t[i] = 'abc' .. i end return #t";

fn hoards(client: &mut Client) {
    assert_eq!(show(&client.call(&["EVAL", HOARD, "0"])), ":400000");
    let library = format!(
        "#!lua name=hoard\n{} redis.register_function('hoard', function() {HOARD} end)",
        "local t = {} for i = 1, 20000 do t[i] = 'abc' .. i end t = nil"
    );
    assert_eq!(show(&client.call(&["FUNCTION", "LOAD", &library])), "$hoard");
    assert_eq!(show(&client.ask("FCALL hoard 0")), ":400000");
}

#[test]
fn the_garbage_of_a_script_throws_no_key_away() {
    let run = |server: &Server| {
        let mut client = server.connect();
        client.ask("DEBUG POPULATE 500 k 10000");
        for policy in ["allkeys-lru", "noeviction"] {
            client.call(&["CONFIG", "SET", "maxmemory-policy", policy]);
            hoards(&mut client);
            let kept = run_script(&mut client, "DBSIZE; SET k:1 x; DBSIZE; FUNCTION FLUSH");
            assert_eq!(kept, ":500; +OK; :500; +OK", "{policy} {}", server.name);
            assert_eq!(figure(&mut client, "stats", "evicted_keys"), 0, "{}", server.name);
        }
    };
    let options = ["--maxmemory", "25mb"];
    each_backend(&options, |server| run(server));
    Server::redis(&options).iter().for_each(run);
    Server::valkey(&options).iter().for_each(run);
}

#[test]
fn what_scripts_leave_behind_is_collected() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let used = figure(&mut client, "memory", "used_memory");
        hoards(&mut client);
        assert!(figure(&mut client, "memory", "used_memory") < used + (1 << 20));
        client.call(&["EVAL", "return #ARGV[1]", "0", &"x".repeat(8 << 20)]);
        for name in ["used_memory_vm_eval", "used_memory_vm_functions"] {
            wait_until("garbage is collected", || {
                (1..1 << 20).contains(&figure(&mut client, "memory", name))
            });
        }
    });
}

#[test]
fn a_flush_frees_the_interpreters_of_all_workers() {
    each_backend(&["--io-threads", "4"], |server| {
        let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
        let library = "#!lua name=l\nlocal kept = {} redis.register_function('keep', \
            function() for i = 1, 50000 do kept[i] = 'abc' .. i end return #kept end)";
        clients[0].call(&["FUNCTION", "LOAD", library]);
        for client in &mut clients {
            assert_eq!(show(&client.ask("FCALL keep 0")), ":50000");
            assert_eq!(show(&client.call(&["EVAL", "return 1", "0"])), ":1");
        }
        let mut vm_bytes = |name| figure(&mut clients[0], "memory", name);
        assert!(vm_bytes("used_memory_vm_functions") > 4 * 2_000_000);
        assert!(vm_bytes("used_memory_vm_eval") > 0);
        let mut other = server.connect();
        assert_eq!(show(&other.ask("SCRIPT FLUSH")), "+OK");
        wait_until("scripts are gone", || vm_bytes("used_memory_vm_eval") == 0);
        assert!(vm_bytes("used_memory_vm_functions") > 4 * 2_000_000);
        assert_eq!(show(&other.ask("FUNCTION FLUSH")), "+OK");
        wait_until("functions are gone", || vm_bytes("used_memory_vm_functions") == 0);
        assert_eq!(vm_bytes("used_memory_vm_total"), 0);
        assert_eq!(show(&other.call(&["EVAL", "return 2", "0"])), ":2");
    });
}

#[test]
fn libraries_keep_what_they_know_when_scripts_are_flushed() {
    let library = "#!lua name=l\nlocal n = 0 redis.register_function('count', \
        function() n = n + 1 return n end)";
    let run = |server: &Server| {
        let mut client = server.connect();
        client.call(&["FUNCTION", "LOAD", library]);
        let replies = run_script(
            &mut client,
            "FCALL count 0; EVAL \"return 1\" 0; FCALL count 0; SCRIPT FLUSH; FCALL count 0; \
             EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
        );
        let expected = ":1; :1; :2; +OK; :3; -NOSCRIPT No matching script. Please use EVAL.";
        assert_eq!(replies, expected, "{}", server.name);
    };
    each_backend(&[], |server| run(server));
    Server::redis(&[]).iter().for_each(run);
}

#[test]
fn a_script_in_use_is_not_forgotten_for_new_ones() {
    let run = |server: &Server| {
        let mut client = server.connect();
        let mut other = server.connect();
        assert_eq!(show(&client.call(&["EVAL", "return 'hot'", "0"])), "$hot");
        let named = ["EVAL", "return redis.sha1hex(ARGV[1])", "0", "return 'hot'"];
        let sha = show(&client.call(&named))[1..].to_owned();
        for number in 0..1200 {
            assert_eq!(show(&client.ask(&format!("EVALSHA {sha} 0"))), "$hot", "{number}");
            let text = format!("return {number}");
            assert_eq!(show(&other.call(&["EVAL", &text, "0"])), format!(":{number}"));
        }
        assert_eq!(figure(&mut client, "stats", "evicted_scripts"), 702, "{}", server.name);
        assert_eq!(figure(&mut client, "memory", "number_of_cached_scripts"), 500);
    };
    each_backend(&[], |server| run(server));
    Server::valkey(&[]).iter().for_each(run);
}
