//! Scripts as a whole: the sandbox, errors and their places, `redis.*`, libraries, limits.

use kvasir_resp::reply::Protocol;

use crate::interpreter::sha;
use crate::shebang::parse_script;
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
        "[:1 $x :1 _ [] +fine -bad]",
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
        "[$boolean :1]",
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

#[test]
fn raised_errors() {
    check_error("error('boom')", "ERR user_script:1: boom");
    check_error("error('boom', 0)", "ERR boom");
    check_error("return error('boom')", "ERR user_script:1: boom");
    check_error("error()", "ERR nil");
    check_error("error(42)", "ERR user_script:1: 42");
    check_error("error(true)", "ERR true");
    check_error("error(cjson.null)", "ERR userdata: (nil)");
    check_error("error({err = 'MY boom'})", "MY boom");
    check_error("error({err = 12})", "12");
    check_error("error({err = 'X a', source = 'foo', line = 5})", "X a");
    check_error("error('a\\r\\nb')", "ERR user_script:1: a  b");
    let index = "ERR user_script:1: attempt to index local 'x' (a nil value)";
    check_error("local x = nil; x.y = 1", index);
    check_error("local function f() local x = nil return x.y end return f()", index);
    let script = "local function f() error('boom', 2) end\nf()";
    check(script, &at_line(script, "ERR user_script:2: boom", 1));
    // A table without `err` crashes redis-server 7.0.
    let script = "error({'boom'})";
    check_ours(script, &at(script, "ERR unknown error"));
    check(
        "local co = coroutine.create(function() error('x') end) \
         local ok, e = coroutine.resume(co) return e",
        "$user_script:1: x",
    );
    check("local ok, e = pcall(error, {err = 1}) return {type(e), e}", "[$number :1]");
    check("local ok, e = pcall(error, {x = 1}) return type(e)", "$table");
    check(
        "return {pcall(string.rep)}",
        "[_ $bad argument #1 to \\'?\\' (string expected, got no value)]",
    );
    check("return {pcall()}", "[_ $attempt to call a boolean value]");
    check(
        "local t = {} for i = 1, 7990 do t[i] = i end \
         local f = function() return 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, unpack(t) end \
         return {select('#', pcall(unpack, t)), select('#', pcall(f))}",
        "[:7991 :8003]",
    );
}

#[test]
fn errors_of_the_compiler() {
    let compiling = |error: &str| format!("-ERR Error compiling script (new function): {error}");
    check("syntax error here", &compiling("user_script:1: '=' expected near 'error'"));
    check("#!lua\n\nsyntax err", &compiling("user_script:3: '=' expected near 'err'"));
    check("return '", &compiling("user_script:1: unfinished string near '<eof>'"));
    check("\x1bLua", &compiling("user_script:1: unexpected symbol near 'char(27)'"));
    check(
        "local f, e = loadstring('\\27Lua') return e",
        "$[string \\\"\\x1bLua\\\"]:1: unexpected symbol near \\'char(27)\\'",
    );
    check("local f, e = loadstring(string.dump(function() end)) return f == nil", ":1");
    check(
        "local f, e = loadstring('x=', '=foo') return e",
        "$foo:1: unexpected symbol near \\'<eof>\\'",
    );
    check("return loadstring('return 5')()", ":5");
    let script = "local f = loadstring('foo=1') f()";
    let error = at(script, "ERR [string \"foo=1\"]:1: Attempt to modify a readonly table");
    check(script, &error.replace("@user_script", "foo=1"));
}

#[test]
fn shebang_lines() {
    check("#!lua\nreturn 1", ":1");
    check("#!lua flags=\nreturn 1", ":1");
    check("#!lua  flags=no-writes,allow-stale flags=allow-oom\nreturn 1", ":1");
    check("#!lua flags=\"no-cluster,allow-cross-slot-keys\"\r\nreturn 1", ":1");
    check("#!lua", "-ERR Invalid script shebang");
    check("#!lua \"\nreturn 1", "-ERR Invalid engine in script shebang");
    check("#!python\nreturn 1", "-ERR Unexpected engine in script shebang: #!python");
    check("#! lua\nreturn 1", "-ERR Unexpected engine in script shebang: #!");
    check("#!LUA\nreturn 1", "-ERR Unexpected engine in script shebang: #!LUA");
    check("#!lua foo\nreturn 1", "-ERR Unknown lua shebang option: foo");
    check("#!lua name=x\nreturn 1", "-ERR Unknown lua shebang option: name=x");
    check("#!lua flags=no-writes,bad\nreturn 1", "-ERR Unexpected flag in script shebang: bad");
    check("#!lua flags=no-writes,\nreturn 1", "-ERR Unexpected flag in script shebang: ");
    check("#!lua flags=,\nreturn 1", "-ERR Unexpected flag in script shebang: ");
    let flags = parse_script(b"#!lua flags=no-writes,allow-stale\n").unwrap();
    assert_eq!(flags.names().collect::<Vec<_>>(), ["no-writes", "allow-stale"]);
    assert!(flags.given && !parse_script(b"return 1").unwrap().given);
}

#[test]
fn globals_are_readonly() {
    for script in [
        "foo = 1",
        "redis.x = 1",
        "redis.call = nil",
        "KEYS = 1",
        "string.len = nil",
        "cjson.x = 1",
        "getmetatable('').__index = nil",
        "math.pi = 3",
        "_G.x = 1",
        "function foo() end",
    ] {
        check_error(script, "ERR user_script:1: Attempt to modify a readonly table");
    }
    for script in [
        "rawset(redis, 'x', 1)",
        "setmetatable(_G, {})",
        "setmetatable(redis, {})",
        "table.insert(redis, 1)",
        "setmetatable(string, nil)",
        "rawset(getmetatable(_G), '__index', nil)",
    ] {
        check_error(script, "ERR Attempt to modify a readonly table");
    }
    check("KEYS[1] = 1 return KEYS[1]", ":1");
    check(
        "local t = {} table.insert(t, 1, 'a') rawset(t, 2, 'b') table.sort(t) \
         return {table.remove(t), #t}",
        "[$b :1]",
    );
    check("return rawget(_G, 'print')", "_");
}

#[test]
fn globals_that_do_not_exist() {
    for name in [
        "foo", "print", "debug", "io", "require", "package", "dofile", "loadfile", "setfenv",
        "getfenv", "newproxy", "module",
    ] {
        let text = "Script attempted to access nonexistent global variable";
        check_error(&format!("return {name}"), &format!("ERR user_script:1: {text} '{name}'"));
    }
}

/// A script that lists the names in a table.
fn names(table: &str) -> String {
    format!(
        "local t = {{}} for k in pairs({table}) do t[#t + 1] = k end \
         table.sort(t) return table.concat(t, ' ')"
    )
}

#[test]
fn what_the_globals_hold() {
    for (table, listed) in [
        (
            "string",
            "byte char dump find format gfind gmatch gsub len lower match rep reverse sub upper",
        ),
        ("table", "concat foreach foreachi getn insert maxn remove setn sort"),
        (
            "math",
            "abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 \
             max min mod modf pi pow rad random randomseed sin sinh sqrt tan tanh",
        ),
        ("coroutine", "create resume running status wrap yield"),
        ("struct", "pack size unpack"),
        ("bit", "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex"),
        ("cmsgpack", "_COPYRIGHT _DESCRIPTION _NAME _VERSION pack unpack unpack_limit unpack_one"),
        (
            "cjson",
            "_NAME _VERSION decode decode_invalid_numbers decode_max_depth encode \
             encode_invalid_numbers encode_keep_buffer encode_max_depth encode_number_precision \
             encode_sparse_array new null",
        ),
    ] {
        check(&names(table), &format!("${listed}"));
    }
    check_valkey(&names("os"), "$clock");
    check_valkey(
        &names("server"),
        "$LOG_DEBUG LOG_NOTICE LOG_VERBOSE LOG_WARNING REDIS_VERSION REDIS_VERSION_NUM REPL_ALL \
         REPL_AOF REPL_NONE REPL_REPLICA REPL_SLAVE SERVER_NAME VALKEY_VERSION VALKEY_VERSION_NUM \
         acl_check_cmd breakpoint call debug error_reply log pcall replicate_commands set_repl \
         setresp sha1hex status_reply",
    );
    check_valkey("return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM}", "[$7.2.4 :459268]");
    // The oracles also show the functions by which they handle errors.
    check_ours(
        &names("_G"),
        "$ARGV KEYS _G _VERSION assert bit cjson cmsgpack collectgarbage coroutine error gcinfo \
         getmetatable ipairs load loadstring math next os pairs pcall rawequal rawget rawset redis \
         select server setmetatable string struct table tonumber tostring type unpack xpcall",
    );
}

#[test]
fn keys_and_arguments() {
    check_with("return {KEYS, ARGV}", &["2", "a", "b", "c", "d"], "[[$a $b] [$c $d]]");
    check_with(
        "return {#KEYS, #ARGV, type(KEYS[1]), type(ARGV[1])}",
        &["0", "1"],
        "[:0 :1 $nil $string]",
    );
    check_with("return ARGV[1] + 1", &["0", "41"], ":42");
}

#[test]
fn random_numbers() {
    let numbers = "return {tostring(math.random()), tostring(math.random()), math.random(10), \
                   math.random(5, 10), math.random(-5, 5), math.random(2^31 - 1)}";
    let mut bench = Bench::new(Protocol::Resp2);
    // What redis-server gives to the first script after its start.
    let first = show(&bench.eval("return tostring(math.random())", &[], &[]));
    assert_eq!(first, "$0.39646477363839");
    assert_eq!(show(&bench.eval("return tostring(math.random())", &[], &[])), "$0.84048536971234");
    for seed in ["0", "5", "-5.7", "1e15", "2^40", "'7'"] {
        let script = format!("math.randomseed({seed}) {numbers}");
        check(&script, &show(&bench.eval(&script, &[], &[])));
    }
    let argument = |index: u32, error: &str| {
        format!("ERR user_script:1: bad argument #{index} to 'random' ({error})")
    };
    check_error("return {math.random(0)}", &argument(1, "interval is empty"));
    check_error("return {math.random(5, 1)}", &argument(2, "interval is empty"));
    check_error("return {math.random(2^31)}", &argument(1, "interval is empty"));
    check_error("return {math.random('x')}", &argument(1, "number expected, got string"));
    check_error("return math.random(1, 2, 3)", "ERR user_script:1: wrong number of arguments");
    check_error(
        "return math.randomseed()",
        "ERR user_script:1: bad argument #1 to 'randomseed' (number expected, got no value)",
    );
}

#[test]
fn replies_made_by_hand() {
    for (text, error) in [
        ("my err", "my err"),
        ("-my err", "my err"),
        ("word", "ERR word"),
        ("-word", "ERR word"),
        (" x", " x"),
        ("a b\\r\\n", "a b"),
        ("a b\\nc d", "a b c d"),
        ("--x y", "-x y"),
        ("", "ERR "),
    ] {
        check(&format!("return redis.error_reply('{text}')"), &format!("-{error}"));
    }
    for call in ["error_reply()", "error_reply(1)", "error_reply('a', 'b')", "status_reply(1)"] {
        check(&format!("return redis.{call}"), "-ERR wrong number or type of arguments");
    }
    check("return redis.status_reply('x')", "+x");
    check("return redis.status_reply('')", "+");
    check("return redis.sha1hex('x')", "$11f6ad8ec52a2984abaafd7c3b516503785c2072");
    check("return redis.sha1hex(1.5)", "$aa8f289ebe6d4db1b4a1038b8931ec8c2b5399fb");
    check("return redis.sha1hex({})", "$da39a3ee5e6b4b0d3255bfef95601890afd80709");
    check_error("return redis.sha1hex()", "ERR wrong number of arguments");
}

#[test]
fn the_rest_of_the_api() {
    check("return redis.replicate_commands()", ":1");
    check("return redis.breakpoint()", "_");
    check("return redis.debug('x')", "_");
    check("return redis.setresp('3')", "_");
    check("return select('#', redis.log(1, 'x'))", ":0");
    check("return redis.set_repl('x')", "_");
    check("return redis.acl_check_cmd('get', 'x')", ":1");
    for (call, error) in [
        ("setresp()", "ERR redis.setresp() requires one argument."),
        ("setresp(3, 2)", "ERR redis.setresp() requires one argument."),
        ("setresp(4)", "ERR RESP version must be 2 or 3."),
        ("setresp('x')", "ERR RESP version must be 2 or 3."),
        ("log(1)", "ERR redis.log() requires two arguments or more."),
        ("log('x', 'y')", "ERR First argument must be a number (log level)."),
        ("log(9, 'y')", "ERR Invalid debug level."),
        ("log(-1, 'y')", "ERR Invalid debug level."),
        ("set_repl()", "ERR redis.set_repl() requires two arguments."),
        (
            "set_repl(9)",
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ),
        ("acl_check_cmd('nosuch')", "ERR Invalid command passed to redis.acl_check_cmd()"),
        ("acl_check_cmd()", "ERR Please specify at least one argument for this redis lib call"),
        ("acl_check_cmd({})", "ERR Lua redis lib command arguments must be strings or integers"),
    ] {
        check_error(&format!("return redis.{call}"), error);
    }
    check_error(
        "return redis.register_function('x', function() end)",
        "ERR user_script:1: attempt to call field 'register_function' (a nil value)",
    );
}

#[test]
fn what_reaches_the_host() {
    let mut bench = Bench::new(Protocol::Resp2);
    let script = "redis.log(redis.LOG_WARNING, 'a', {}, 1.5, 'b') redis.log(redis.LOG_DEBUG, 'x')";
    bench.eval(script, &[], &[]);
    assert_eq!(*bench.host.log.borrow(), ["Warning a 1.5 b"]);
    bench.eval("redis.set_repl(redis.REPL_AOF)", &[], &[]);
    let replication = bench.host.replication.get().unwrap();
    assert!(replication.aof && !replication.replicas);
}

#[test]
fn the_options_of_cjson_hold_for_one_script() {
    let mut bench = Bench::new(Protocol::Resp2);
    bench.eval("cjson.encode_number_precision(3)", &[], &[]);
    assert_eq!(show(&bench.eval("return cjson.encode_number_precision()", &[], &[])), ":14");
}

#[test]
fn libraries() {
    check_library(
        "#!lua name=a\nredis.register_function('f', function(keys, args) \
         return {keys[2], args[1], #keys} end)",
        "$a",
        "[$k2 $a1 :2]",
    );
    let none = "-ERR Function not found";
    check_library("return 1", "-ERR Missing library metadata", none);
    check_library("#!lua name=a\nlocal x", "-ERR No functions registered", none);
    check_library("#!lua name=a!\nlocal x", INVALID_NAME, none);
}

const INVALID_NAME: &str = "-ERR Library names can only contain letters, numbers, or \
    underscores(_) and must be at least one character long";

#[test]
fn what_a_script_leaves_behind_is_collected() {
    let mut bench = Bench::new(Protocol::Resp2);
    let before = bench.interpreter.memory_bytes();
    assert!(!bench.interpreter.has_garbage());
    bench.eval("local t = {} for i = 1, 200000 do t[i] = 'abc' .. i end return #t", &[], &[]);
    assert!(bench.interpreter.has_garbage());
    while bench.interpreter.has_garbage() {
        bench.interpreter.collect_some();
    }
    let left = bench.interpreter.memory_bytes();
    assert!(left < before + 100_000, "{left} bytes of {before} before");
    // Large arguments go as well.
    bench.eval("return 1", &[], &[&"x".repeat(4 << 20)]);
    while bench.interpreter.has_garbage() {
        bench.interpreter.collect_some();
    }
    let left = bench.interpreter.memory_bytes();
    assert!(left < before + 100_000, "{left} bytes of {before} before");
}
