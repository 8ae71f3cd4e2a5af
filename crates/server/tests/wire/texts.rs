//! What clients send is quoted in many places, and adds no line and no field to any of them.

use crate::check::{check, check_newer, check_ours, run_script, show};
use crate::harness::{Server, each_backend};

/// What would be lines, fields and colours.
const HOSTILE: &str = "A\r\nrole:slave\n# B\nx=1 \u{1b}[31m";

#[test]
fn an_error_of_a_script_adds_no_line_to_info() {
    check_newer(&[
        (
            r#"EVAL "return {err=ARGV[1]}" 0 "Y\r\nrole:slave"; EVAL "return {err=ARGV[1]}" 0 "A:b#c=d,e f"; EVAL "return redis.error_reply(ARGV[1])" 0 "\xffX z"; INFO errorstats"#,
            r"-Y  role:slave; -A:b#c=d,e f; -�X z; $# Errorstats\r\nerrorstat_A_b_c=d,e:count=1\r\nerrorstat_Y:count=1\r\nerrorstat_\xffX:count=1\r\n",
        ),
        (
            r#"CONFIG RESETSTAT; EVAL "return {err=ARGV[1]}" 0 ""; EVAL "return {err=ARGV[1]}" 0 " x"; EVAL "return {err=ARGV[1]}" 0 alone; INFO errorstats"#,
            r"+OK; -; - x; -alone; $# Errorstats\r\nerrorstat_:count=1\r\nerrorstat_ERR:count=2\r\n",
        ),
        (
            r#"CONFIG RESETSTAT; EVAL "return {err=string.rep('x', 30) .. ' y'}" 0; EVAL "return {err=string.rep('x', 31) .. ' y'}" 0; INFO errorstats"#,
            r"+OK; -xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx y; -xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx y; $# Errorstats\r\nerrorstat_ERR:count=1\r\nerrorstat_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:count=1\r\n",
        ),
    ]);
}

#[test]
fn error_codes_of_scripts_are_counted_apart_up_to_a_limit() {
    let run = |server: &Server| {
        let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for number in 0..200 {
            let text = format!("CODE{number} text");
            clients[number % 4].call(&["EVAL", "return {err=ARGV[1]}", "0", &text]);
        }
        let client = &mut clients[0];
        client.call(&["EVAL", "return {err=ARGV[1]}", "0", "CODE5 text"]);
        client.call(&["EVAL", "return {err=ARGV[1]}", "0", "NEW text"]);
        run_script(client, "SET k v; LPUSH k v; GET");
        client.ask_text("INFO errorstats")
    };
    let count = |info: &str, code: &str| {
        let name = format!("errorstat_{code}:count=");
        let found = info.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok());
        found.unwrap_or(0)
    };
    let look = |server: &Server| {
        let info = run(server);
        let of = |codes: &[&str]| codes.iter().map(|code| count(&info, code)).collect::<Vec<_>>();
        let counts = of(&["CODE5", "CODE199", "NEW", "ERRORSTATS_OVERFLOW", "WRONGTYPE", "ERR"]);
        assert_eq!(counts, [2, 0, 0, 73, 1, 1], "{} {info}", server.name);
        assert_eq!(info.lines().count(), 1 + 128 + 3, "{}", server.name);
        let mut client = server.connect();
        let all = client.ask_text("INFO stats");
        assert!(all.contains("total_error_replies:204\r\n"), "{} {all}", server.name);
        let replies = run_script(
            &mut client,
            "CONFIG RESETSTAT; EVAL \"return {err='CODE199 x'}\" 0; INFO errorstats",
        );
        let one = r"+OK; -CODE199 x; $# Errorstats\r\nerrorstat_CODE199:count=1\r\n";
        assert_eq!(replies, one, "{}", server.name);
    };
    each_backend(&["--io-threads", "3"], |server| look(server));
    Server::valkey(&[]).iter().for_each(look);
}

#[test]
fn names_have_no_room_for_fields() {
    let wrong = "cannot contain spaces, newlines or special characters.";
    let replies = format!(
        "-ERR Client names {wrong}; -ERR Client names {wrong}; -ERR Client names {wrong}; \
         -ERR Client names {wrong}; -ERR Usernames can't contain spaces or null characters; \
         -ERR Usernames can't contain spaces or null characters; \
         -ERR Error in ACL SETUSER modifier '~a user evil on': Syntax error; \
         -ERR Error in ACL SETUSER modifier '&a b': Syntax error"
    );
    check(&[(
        r#"CLIENT SETNAME "a\nb"; CLIENT SETNAME "a id=9"; CLIENT SETNAME "a\x1b"; HELLO 2 SETNAME "a\r\nb"; ACL SETUSER "a\nb" on; ACL SETUSER "a b"; ACL SETUSER u "~a\nuser evil on"; ACL SETUSER u "&a b""#,
        &replies,
    )]);
    let replies = format!("-ERR LIB-NAME {wrong}; -ERR lib-ver {wrong}");
    check_newer(&[(
        r#"CLIENT SETINFO LIB-NAME "a\nb"; CLIENT SETINFO lib-ver "a id=9""#,
        &replies,
    )]);
}

#[test]
fn a_script_adds_no_line_to_the_log() {
    for format in ["legacy", "logfmt", "json"] {
        each_backend(&["--logfile", "log", "--log-format", format], |server| {
            let mut client = server.connect();
            client.call(&["EVAL", "redis.log(redis.LOG_WARNING, ARGV[1])", "0", HOSTILE]);
            client.call(&["DEBUG", "LOG", HOSTILE]);
            let log = server.read_file("log");
            let whole = |line: &&str| line.contains("role:slave") && line.contains("x=1");
            assert_eq!(log.lines().filter(whole).count(), 2, "{format} {log}");
            assert!(!log.contains('\u{1b}') && !log.contains('\r'), "{format} {log}");
        });
    }
}

#[test]
fn a_rewritten_configuration_has_no_line_of_a_client() {
    let server = Server::kvasir_with_file("c.conf", "maxclients 100\n");
    let mut client = server.connect();
    client.call(&["CONFIG", "SET", "requirepass", HOSTILE]);
    assert_eq!(show(&client.ask("CONFIG REWRITE")), "+OK");
    let file = server.read_file("c.conf");
    let hostile = file.lines().filter(|line| line.contains("role:slave"));
    let expected = r##"requirepass "A\r\nrole:slave\n# B\nx=1 \x1b[31m""##;
    assert_eq!(hostile.collect::<Vec<_>>(), [expected], "{file}");
    // A name with a line break can't stand in the manifest of a snapshot.
    check_ours(
        &["--enable-protected-configs", "yes"],
        &[(
            r#"CONFIG SET dbfilename "a\nb""#,
            "-ERR CONFIG SET failed (possibly related to argument 'dbfilename') - dbfilename \
             can't have a line break",
        )],
    );
}

#[test]
fn errors_of_scripts_are_counted_once_wherever_they_stand() {
    let of =
        |script: &str| format!("CONFIG RESETSTAT; SET k v; EVAL \"{script}\" 0; INFO errorstats");
    let nested = of("return {1, {err='NEST x'}, {{err='NEST2 y'}}}");
    let caught = of("return {redis.pcall('lpush', 'k', 'v')}");
    check_newer(&[
        (
            &nested,
            r"+OK; +OK; [:1 -NEST x [-NEST2 y]]; $# Errorstats\r\nerrorstat_NEST:count=1\r\nerrorstat_NEST2:count=1\r\n",
        ),
        (
            &caught,
            r"+OK; +OK; [-WRONGTYPE Operation against a key holding the wrong kind of value]; $# Errorstats\r\nerrorstat_WRONGTYPE:count=1\r\n",
        ),
    ]);
    let failed_calls = |server: &Server| {
        let mut client = server.connect();
        client.ask("SET k v");
        let scripts = [
            "return {1, {err='NEST x'}}",
            "return redis.call('lpush', 'k', 'v')",
            "return redis.pcall('lpush', 'k', 'v')",
            "return {err='X y', ignore_error_stats_update=true}",
            "redis.pcall('foo') return 1",
        ];
        for (script, failed) in scripts.into_iter().zip([1, 1, 1, 1, 0]) {
            client.ask("CONFIG RESETSTAT");
            client.call(&["EVAL", script, "0"]);
            let info = client.ask_text("INFO commandstats");
            let line = info.lines().find(|line| line.starts_with("cmdstat_eval:"));
            let end = format!("failed_calls={failed}");
            assert!(line.expect("it was called").ends_with(&end), "{} {script}", server.name);
        }
    };
    each_backend(&[], |server| failed_calls(server));
    Server::redis(&[]).iter().for_each(failed_calls);
    Server::valkey(&[]).iter().for_each(failed_calls);
}
