//! Scripts when memory is full, and what is known of loaded ones.

use crate::check::{check, check_ours, run_script, show};
use crate::harness::{Client, Server, each_backend};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
/// As a string in a reply is shown.
const OOM_TEXT: &str = r"$OOM command not allowed when used memory > \'maxmemory\'.";

/// Functions with and without flags.
const LIBRARY: &str = "#!lua name=l\n\
    local function write(keys) return redis.call('set', keys[1], 'v') end\n\
    redis.register_function('plain', write)\n\
    redis.register_function{function_name='may_grow', callback=write, flags={'allow-oom'}}\n\
    redis.register_function{function_name='reads', flags={'no-writes'},\n\
        callback=function(keys) return redis.call('get', keys[1]) end}";

#[test]
fn a_script_without_flags_is_refused_what_adds_data() {
    check(&[
        (
            "SET x 1; CONFIG SET maxmemory 1; \
             EVAL 'return redis.call(\"get\",KEYS[1])' 1 x; \
             EVAL 'return {redis.pcall(\"set\",KEYS[1],1)[\"err\"]}' 1 k",
            &format!("+OK; +OK; $1; [{OOM_TEXT}]"),
        ),
        // From its first write on it may go on.
        (
            "EVAL 'redis.call(\"del\",KEYS[1]) return redis.call(\"set\",KEYS[1],2)' 1 x; GET x",
            "+OK; $2",
        ),
        ("EVAL_RO 'return redis.call(\"get\",KEYS[1])' 1 x", "$2"),
    ]);
}

#[test]
fn flags_say_whether_a_script_may_begin_without_memory() {
    let eval = |client: &mut Client, body: &str| show(&client.call(&["EVAL", body, "1", "k"]));
    let test = |server: &Server| {
        let mut client = server.connect();
        client.call(&["FUNCTION", "LOAD", LIBRARY]);
        assert_eq!(run_script(&mut client, "SET k v; CONFIG SET maxmemory 1"), "+OK; +OK");
        for (flags, reply) in [("", OOM), (" flags=allow-oom", "+OK"), (" flags=no-writes", OOM)] {
            let body = format!("#!lua{flags}\nlocal r = redis.pcall('set', KEYS[1], 'v') return r");
            let shown = eval(&mut client, &body);
            // Redis 7.0 says here that the script is read-only.
            assert!(shown == reply || flags.ends_with("no-writes"), "{} {shown}", server.name);
        }
        assert_eq!(
            eval(&mut client, "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])"),
            "$v"
        );
        let calls = "FCALL plain 1 k; FCALL may_grow 1 k; FCALL reads 1 k; FCALL_RO plain 1 k";
        let replies = format!("{OOM}; +OK; $v; {OOM}");
        assert_eq!(run_script(&mut client, calls), replies, "{}", server.name);
    };
    each_backend(&[], |server| test(server));
    Server::redis(&[]).iter().for_each(test);
}

#[test]
fn a_script_of_a_transaction_finds_no_memory_either() {
    each_backend(&[], |server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        let script = "MULTI; EVAL 'return redis.pcall(\"set\",KEYS[1],1)[\"err\"]' 1 k; GET k";
        assert_eq!(run_script(&mut client, script), "+OK; +QUEUED; +QUEUED");
        run_script(&mut other, "CONFIG SET maxmemory 1");
        assert_eq!(run_script(&mut client, "EXEC"), format!("[{OOM_TEXT} _]"));
    });
}

#[test]
fn a_loaded_script_is_shown() {
    check_ours(
        &[],
        &[(
            "SCRIPT LOAD 'return 1'; SCRIPT SHOW e0e1f9fabfc9d4800c877a703b823ac0578ff8db; \
             SCRIPT SHOW E0E1F9FABFC9D4800C877A703B823AC0578FF8DB; SCRIPT SHOW x; \
             SCRIPT FLUSH SYNC; SCRIPT SHOW e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
            "$e0e1f9fabfc9d4800c877a703b823ac0578ff8db; $return 1; $return 1; \
             -NOSCRIPT No matching script.; +OK; -NOSCRIPT No matching script.",
        )],
    );
}
