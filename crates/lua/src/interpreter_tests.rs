//! Scripts as a whole: the sandbox, errors and their places, `redis.*`, libraries, limits.

use kvasir_resp::reply::Protocol;

use crate::interpreter::{Options, sha};
use crate::testing::{
    Bench, check, check_library, check_ours, check_valkey, check_with, check3, show,
};

/// What stands behind an error that a script raised on its first line.
fn at(script: &str, error: &str) -> String {
    at_line(script, error, 1)
}

fn at_line(script: &str, error: &str, line: u32) -> String {
    let name = sha(script.as_bytes());
    let name = String::from_utf8_lossy(&name);
    format!("-{error} script: {name}, on @user_script:{line}.")
}

/// A script that raises this error on its first line.
fn check_error(script: &str, error: &str) {
    check(script, &at(script, error));
}

#[test]
fn results_become_replies() {
    check("return 1", ":1");
    check("return", "_");
    check("return nil", "_");
    check("return 1, 2", ":1");
    check("return 'text'", "$text");
    check("return true", ":1");
    check("return false", "_");
    check("return 3.99", ":3");
    check("return -3.99", ":-3");
    check("return 2^63", ":-9223372036854775808");
    check("return 0/0", ":-9223372036854775808");
    check("return 9007199254740993", ":9007199254740992");
    check("return {1, 2, nil, 4}", "[:1 :2]");
    check(
        "return {1.9, 'x', true, false, {}, {ok = 'fine'}, {err = 'bad'}}",
        concat!("[:1 $x :1 _ [] +fine -bad]"),
    );
    check("return {[2] = 1, a = 1}", "[]");
    check("return function() end", "_");
    check("return {coroutine.create(function() end), 2}", "[_ :2]");
    check("return {ok = 'fine\\r\\nx'}", "+fine  x");
    check("return {err = 'My\\nErr\\r\\n'}", "-My Err");
    check("return {err = 'ERR a', ok = 'b'}", "-ERR a");
    check("return {err = 1}", "[]");
    check("return {ok = {}}", "[]");
    check("return setmetatable({}, {__index = function() return 'x' end})", "[]");
    check("return redis", "[]");
}

#[test]
fn results_of_resp3_types() {
    let scripts = [
        ("return {double = 3.5}", "$3.5", ",3.5"),
        ("return {double = 'x'}", "[]", "[]"),
        ("return {map = {a = 1}}", "[$a :1]", "{$a :1}"),
        ("return {map = {}}", "[]", "{}"),
        ("return {map = {a = {1, {map = {}}}}}", "[$a [:1 []]]", "{$a [:1 {}]}"),
        ("return {set = {a = true}}", "[$a]", "~[$a]"),
        ("return {true, false}", "[:1 _]", "[:1 _]"),
        ("redis.setresp(3) return {true, false}", "[:1 :0]", "[#t #f]"),
    ];
    for (script, resp2, resp3) in scripts {
        check(script, resp2);
        check3(script, resp3);
    }
    check("return {big_number = '12\\r\\n3'}", "$12  3");
    check3("return {big_number = '123'}", "(big number) 123");
    check3("return {verbatim_string = {format = 'txtxx', string = 'hey'}}", "hey");
    check3("return {verbatim_string = {format = 'txt'}}", "[]");
}

#[test]
fn deep_results_end_in_an_error() {
    let ours = Bench::new(Protocol::Resp2).eval("local t = {} t[1] = t return t", &[], &[]);
    let expected = [&b"*1\r\n".repeat(7995)[..], b"-ERR reached lua stack limit\r\n"].concat();
    assert!(ours == expected, "{} bytes", ours.len());
    let script = "local t = {} t.map = {x = t} return t";
    let ours = Bench::new(Protocol::Resp2).eval(script, &[], &[]);
    let expected =
        [&b"*2\r\n$1\r\nx\r\n".repeat(2665)[..], b"-ERR reached lua stack limit\r\n"].concat();
    assert!(ours == expected, "{} bytes", ours.len());
}

#[test]
fn replies_become_values() {
    check("return redis.call('set', 'k', 'v')", "+OK");
    check("return redis.call('set', 'k', 'v').ok", "$OK");
    check("redis.call('set', 'k', 'v') return redis.call('get', 'k')", "$v");
    check(
        "return {type(redis.call('get', 'no')), redis.call('get', 'no') == false}",
        concat!("[$boolean :1]"),
    );
    check("redis.setresp(3) return type(redis.call('get', 'no'))", "$nil");
    check("return redis.call('incr', 'n') + 1", ":2");
    check("redis.call('set', 'a', 1) return redis.call('mget', 'a', 'b', 'a')", "[$1 _ $1]");
    check("redis.call('hset', 'h', 'f', 1) return redis.call('hgetall', 'h')", "[$f $1]");
    check(
        "redis.setresp(3) redis.call('hset', 'h', 'f', 1) return redis.call('hgetall', 'h')",
        "[$f $1]",
    );
    check3(
        "redis.setresp(3) redis.call('hset', 'h', 'f', 1) return redis.call('hgetall', 'h')",
        "{$f $1}",
    );
    check(
        "redis.setresp(3) redis.call('hset', 'h', 'f', 1) return redis.call('hgetall', 'h').map.f",
        "$1",
    );
    check(
        "redis.setresp(3) redis.call('sadd', 's', 'm') return redis.call('smembers', 's').set.m",
        ":1",
    );
    check3(
        "redis.setresp(3) redis.call('sadd', 's', 'm') return redis.call('smembers', 's')",
        "~[$m]",
    );
    check(
        "redis.setresp(3) redis.call('zadd', 'z', 1.5, 'm') return type(redis.call('zscore', 'z', 'm').double)",
        "$number",
    );
    check3(
        "redis.setresp(3) redis.call('zadd', 'z', 1.5, 'm') return redis.call('zscore', 'z', 'm')",
        ",1.5",
    );
    check("redis.setresp(3) return redis.call('info', 'nothing').verbatim_string.format", "$txt");
}

#[test]
fn replies_of_types_that_no_command_has() {
    let call =
        |reply: &str| format!("redis.setresp(3) local r = redis.call('reply', '{reply}\\r\\n') ");
    check_ours(&(call("#t") + "return {type(r), r}"), "[$boolean :1]");
    check_ours(&(call("_") + "return type(r)"), "$nil");
    check_ours(&(call("(12345") + "return r.big_number"), "$12345");
    check_ours(&(call("*-1") + "return type(r)"), "$boolean");
    check_ours(&(call("|1\\r\\n+a\\r\\n:1\\r\\n:7") + "return r"), ":7");
    check_ours(&(call(",inf") + "return tostring(r.double)"), "$inf");
    let script = call("$5") + "return r";
    check_ours(&script, &at(&script, "ERR a command's reply is malformed"));
}

#[test]
fn numbers_as_arguments_of_commands() {
    let text =
        |number: &str| format!("redis.call('set', 'k', {number}) return redis.call('get', 'k')");
    for (number, printed) in [
        ("100", "$100"),
        ("3.14159265358979", "$3.14159265358979"),
        ("1e20", "$1e+20"),
        ("12345678901234567", "$12345678901234568"),
        ("1/0", "$inf"),
        ("0/0", "$-nan"),
    ] {
        check(&text(number), printed);
    }
    check_valkey(&text("0.1"), "$0.1");
    check_valkey(&text("-0"), "$0");
}

#[test]
fn errors_of_commands() {
    check_error("return redis.call('nosuch')", "ERR Unknown Redis command called from script");
    check_error(
        "return redis.call('incr')",
        "ERR Wrong number of args calling Redis command from script",
    );
    check_error(
        "redis.call('set', 'k', 'v') redis.call('lpush', 'k', 'v')",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    );
    check_error(
        "return redis.call()",
        "ERR Please specify at least one argument for this redis lib call",
    );
    check_error(
        "return redis.call({})",
        "ERR Lua redis lib command arguments must be strings or integers",
    );
    check_error(
        "return redis.call('get', nil)",
        "ERR Lua redis lib command arguments must be strings or integers",
    );
    check(
        "return redis.pcall({})",
        "-ERR Lua redis lib command arguments must be strings or integers",
    );
    check("return redis.pcall('nosuch')", "-ERR Unknown Redis command called from script");
    let fields = "local t = {} for k, v in pairs(e) do t[#t + 1] = k .. '=' .. tostring(v) end table.sort(t) return t";
    check(
        &format!("local e = redis.pcall('nosuch') {fields}"),
        "[$err=ERR Unknown Redis command called from script $ignore_error_stats_update=true]",
    );
    check(
        &format!("local e = redis.pcall() {fields}"),
        "[$err=ERR Please specify at least one argument for this redis lib call]",
    );
    check(
        &format!(
            "local ok, e = xpcall(function() return redis.call('nosuch') end, function(e) return e end) {fields}"
        ),
        "[$err=ERR Unknown Redis command called from script $ignore_error_stats_update=true]",
    );
    check(
        "local ok, e = pcall(redis.call, 'nosuch') return {type(e), e}",
        "[$string $ERR Unknown Redis command called from script]",
    );
    let script = "local e = redis.pcall('nosuch')\nerror(e)";
    check(script, &at_line(script, "ERR Unknown Redis command called from script", 2));
    let script = "local f = function()\nreturn redis.call('nosuch') end\nf()";
    check(script, &at_line(script, "ERR Unknown Redis command called from script", 2));
    let script = "local co = coroutine.wrap(function()\nlocal x = redis.call('nosuch') end)\nco()";
    check(script, &at_line(script, "ERR Unknown Redis command called from script", 3));
}
