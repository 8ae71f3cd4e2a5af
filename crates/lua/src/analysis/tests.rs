//! Scripts that keep to their keys, scripts that do not, and a property: a script that is said to
//! keep to them does so when it runs.

use std::cell::RefCell;
use std::rc::Rc;

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::{Protocol, Reply};
use proptest::prelude::*;

use super::Touches::{Any, Declared};
use super::{Call, Commands, KeyPositions, Touches, analyse, analyse_library};
use crate::host::{Host, LogLevel, Replication, Tick};
use crate::interpreter::{Interpreter, Options, sha};

/// A few commands: first key, last key (-1: the last argument), whether they only read.
const COMMANDS: [(&str, usize, isize, bool); 19] = [
    ("get", 1, 1, true),
    ("set", 1, 1, false),
    ("incr", 1, 1, false),
    ("expire", 1, 1, false),
    ("del", 1, -1, false),
    ("mget", 1, -1, true),
    ("exists", 1, -1, true),
    ("rename", 1, 2, false),
    ("hget", 1, 1, true),
    ("hgetall", 1, 1, true),
    ("hmset", 1, 1, false),
    ("hincrby", 1, 1, false),
    ("zadd", 1, 1, false),
    ("zcard", 1, 1, true),
    ("zremrangebyscore", 1, 1, false),
    ("lpush", 1, 1, false),
    ("rpoplpush", 1, 2, false),
    ("time", 0, 0, true),
    ("publish", 0, 0, false),
];

struct Table;

fn row(name: &[u8]) -> Option<&'static (&'static str, usize, isize, bool)> {
    COMMANDS.iter().find(|row| row.0.as_bytes().eq_ignore_ascii_case(name))
}

impl Commands for Table {
    fn key_positions(&self, call: &Call) -> Option<KeyPositions> {
        let (_, first, last, _) = *row(call.args[0].as_ref()?)?;
        if first == 0 {
            return Some(KeyPositions::default());
        }
        let count = call.args.len();
        let end = if last < 0 { count.max(first + 1) } else { last as usize + 1 };
        let in_rest = call.is_open && (last < 0 || end > count);
        Some(KeyPositions { positions: (first..end).collect(), in_rest })
    }

    fn is_read_only(&self, call: &Call) -> bool {
        call.args[0].as_ref().and_then(|name| row(name)).is_some_and(|row| row.3)
    }
}

fn touches(script: &str) -> Touches {
    analyse(script.as_bytes(), &Table).touches
}

fn check(expected: Touches, scripts: &[&str]) {
    for script in scripts {
        assert_eq!(touches(script), expected, "{script}");
    }
}

#[test]
fn scripts_that_keep_to_their_keys() {
    check(
        Declared,
        &[
            "",
            "return 1",
            "return redis.call('get', KEYS[1])",
            "return server.pcall(\"GET\", KEYS[1])",
            "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])",
            "redis.call('set', KEYS[1], ARGV[1]) redis.call('expire', KEYS[1], 10)",
            "local key = KEYS[1]\nreturn redis.call('incr', key)",
            "local a, b = KEYS[1], KEYS[2] return redis.call('rename', a, b)",
            "local a, b = unpack(KEYS) return redis.call('rename', a, b)",
            "local a local b = KEYS[1] a = b return redis.call('get', a)",
            "local key if ARGV[1] == 'x' then key = KEYS[1] else key = KEYS[2] end return redis.call('get', key)",
            "return redis.call('del', unpack(KEYS))",
            "return redis.call('mget', KEYS[1], unpack(KEYS, 2))",
            "redis.call('hmset', KEYS[1], unpack(ARGV))",
            "for i = 1, #KEYS do redis.call('del', KEYS[i]) end",
            "for i, key in ipairs(KEYS) do redis.call('incr', key) end",
            "for _, key in pairs(KEYS) do redis.call('incr', key) end",
            "local rcall = redis.call\nrcall('set', KEYS[1], 1) return rcall('get', KEYS[1])",
            "local call, try = redis.call, redis.pcall call('get', KEYS[1]) try('get', KEYS[2])",
            "local ok, e = pcall(redis.call, 'get', KEYS[1]) return e",
            "local now = redis.call('time')[1] return redis.call('set', KEYS[1], now)",
            "local function f(n) return n + 1 end return f(redis.call('incr', KEYS[1]))",
            "local f = function() return redis.call('get', KEYS[1]) end return f()",
            "local t = {redis = 1, load = 2, KEYS = 3} t.load = t.redis return t.KEYS",
            "-- redis.call('get', 'x')\n--[[ redis.call('get', 'x') ]] return 'redis.call(x)'",
            "return redis.call('get', KEYS[#KEYS - 1 + tonumber(ARGV[1])])",
            "return redis.call('get', (KEYS[1]))",
            "return redis.status_reply(redis.call('get', KEYS[1]) or 'none')",
            "redis.log(redis.LOG_WARNING, 'x') return redis.error_reply('ERR x')",
            "return redis.call('publish', ARGV[1], 'x')",
            "redis.setresp(3) return cjson.encode(redis.call('hgetall', KEYS[1]))",
            "return redis.call'time'",
            "local a = 1 repeat a = a * 2 until a > 10 while a > 1 do a = a / 3 break end return not -a",
            "local s = KEYS[1]:upper() .. 'x' return s",
            "local t = {f = function(self, x) return x end} return t:f(1), t.f(t, ...)",
        ],
    );
}

#[test]
fn scripts_of_the_kind_that_people_run() {
    check(Declared, &[RELEASE_LOCK, EXTEND_LOCK, TOKEN_BUCKET, SLIDING_WINDOW, FIXED_WINDOW]);
    check(Any, &[QUEUE_WITH_BUILT_KEYS, SCHEDULED_POLL]);
}

const RELEASE_LOCK: &str = r#"
if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
else
    return 0
end"#;

const EXTEND_LOCK: &str = r#"
local released = 0
for index, resource in ipairs(KEYS) do
    if redis.call("get", resource) == ARGV[1] then
        redis.call("expire", resource, ARGV[2])
        released = released + 1
    end
end
return released"#;

const TOKEN_BUCKET: &str = r#"
local bucket = KEYS[1]
local rate, burst, now, wanted =
    tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local state = redis.call('mget', bucket)
local tokens = tonumber(redis.call('hget', bucket, 'tokens')) or burst
local last = tonumber(redis.call('hget', bucket, 'at')) or now
tokens = math.min(burst, tokens + math.max(0, now - last) * rate)
local allowed = tokens >= wanted
if allowed then tokens = tokens - wanted end
redis.call('hmset', bucket, 'tokens', tokens, 'at', now)
redis.call('expire', bucket, math.ceil(burst / rate) + 1)
return {allowed and 1 or 0, tokens}"#;

const SLIDING_WINDOW: &str = r#"
redis.replicate_commands()
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[1])
local count = redis.call('ZCARD', KEYS[1])
if count < tonumber(ARGV[2]) then
    redis.call('ZADD', KEYS[1], now, now .. '-' .. count)
    redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[1] / 1000))
    return 0
end
return 1"#;

const FIXED_WINDOW: &str = r#"
local current = redis.call("INCR", KEYS[1])
if tonumber(current) == 1 then redis.call("EXPIRE", KEYS[1], ARGV[1]) end
return current"#;

const QUEUE_WITH_BUILT_KEYS: &str = r#"
local rcall = redis.call
local function finish(id, prefix)
    rcall("del", prefix .. id .. ":lock")
    rcall("lpush", prefix .. "done", id)
end
local id = rcall("rpoplpush", KEYS[1], KEYS[2])
if id then finish(id, ARGV[1]) end
return id"#;

const SCHEDULED_POLL: &str = r#"
local jobs = redis.call("zcard", KEYS[1])
for i = 1, jobs do redis.call("lpush", "queue:" .. i, i) end"#;

#[test]
fn keys_that_were_not_declared() {
    check(
        Any,
        &[
            "return redis.call('get', 'x')",
            "return redis.call('get', ARGV[1])",
            "return redis.call('get', KEYS[1] .. ':x')",
            "return redis.call('get', KEYS)",
            "return redis.call('get', tostring(KEYS[1]))",
            "return redis.call('get', KEYS[1] or 'x')",
            "return redis.call('rename', KEYS[1], 'x')",
            "return redis.call('rename', KEYS[1], unpack(ARGV))",
            "return redis.call('del', KEYS[1], unpack(ARGV))",
            "return redis.call('del', unpack(ARGV))",
            "return redis.call('mget', KEYS[1], ...)",
            "return redis.call('mget', (unpack(ARGV)))",
            "local key = KEYS[1] key = key .. 'x' return redis.call('get', key)",
            "local key = KEYS[1] for key = 1, 2 do redis.call('get', key) end",
            "local key = KEYS[1] local function f(key) return redis.call('get', key) end return f('x')",
            "local key = KEYS[1] local function f() key = 'x' end f() return redis.call('get', key)",
            "local a, key = KEYS[1] .. 'x', KEYS[1] a, key = key, a return redis.call('get', key)",
            "local t = {} local key = KEYS[1] t.x, key = 1, 'x' return redis.call('get', key)",
            "local a = KEYS[1] local b = a a = 'x' b = a return redis.call('get', b)",
            "local key = (KEYS[1]):upper() return redis.call('get', key)",
            "for key, i in ipairs(KEYS) do redis.call('get', key) end",
            "for i, key in ipairs(ARGV) do redis.call('get', key) end",
            "local function f(...) return redis.call('get', arg[1]) end return f('x')",
            "local arg = KEYS[1] local function f(...) return redis.call('get', arg) end return f('x')",
            "local t = {f = function(self) return redis.call('get', self) end} local self = KEYS[1] return t.f('x')",
            "local self = KEYS[1] local t = {} function t:f() return redis.call('get', self) end return t:f()",
            "local a, b = KEYS[1] return redis.call('rename', a, ARGV[1])",
        ],
    );
}

#[test]
fn commands_that_are_not_known() {
    check(
        Any,
        &[
            "return redis.call(ARGV[1], KEYS[1])",
            "local c = 'get' return redis.call(c, KEYS[1])",
            "return redis.call(unpack(KEYS))",
            "return redis.call('ge' .. 't', KEYS[1])",
            "return redis.call('nosuch', KEYS[1])",
            "return redis.call()",
            "return pcall(redis.call, unpack(ARGV))",
        ],
    );
}

#[test]
fn ways_around() {
    check(
        Any,
        &[
            "local r = redis return r.call('get', 'x')",
            "return redis['call']('get', KEYS[1])",
            "return redis[ARGV[1]]('get', KEYS[1])",
            "local c = redis.call c = function() end return c('get', KEYS[1])",
            "local c = redis.call local d = c return d('get', 'x')",
            "local c = {redis.call} return c[1]('get', 'x')",
            "local t = {} t.call = redis.call return t.call('get', 'x')",
            "return (function(f) return f('get', 'x') end)(redis.call)",
            "local function f(c) return c('get', 'x') end local c = redis.call return f(c)",
            "return xpcall(redis.call, print)",
            "return string.gsub('x', 'x', redis.call)",
            "return (redis.call)('get', 'x')",
            "return (redis.call or 1)('get', 'x')",
            "return _G.redis.call('get', 'x')",
            "return _G['red' .. 'is'].call('get', 'x')",
            "for _, v in pairs(_G) do end",
            "return loadstring('return redis.call(\"get\", \"x\")')()",
            "return load(function() end)",
            "local l = loadstring",
            "setfenv(1, {})",
            "return getfenv(0)",
            "KEYS[1] = 'x' return redis.call('get', KEYS[1])",
            "local a a, KEYS[1] = 1, 'x' return redis.call('get', KEYS[1])",
            "local k = KEYS k[1] = 'x' return redis.call('get', KEYS[1])",
            "table.insert(KEYS, 1, 'x') return redis.call('get', KEYS[1])",
            "rawset(KEYS, 1, 'x') return redis.call('get', KEYS[1])",
            "setmetatable(KEYS, {}) return redis.call('get', KEYS[3])",
            "local f, t = ipairs(KEYS) t[1] = 'x' return redis.call('get', KEYS[1])",
            "for i, key in ipairs(KEYS), 1 do redis.call('get', key) end",
            "local KEYS = {'x'} return redis.call('get', KEYS[1])",
            "local function f(KEYS) return redis.call('get', KEYS[1]) end return f({'x'})",
            "for KEYS = 1, 2 do end",
            "local unpack = function() return 'x' end return redis.call('get', unpack(KEYS))",
            "local function unpack(t) t[1] = 'x' end unpack(KEYS) return redis.call('get', KEYS[1])",
            "local ipairs = function() return next, {1, 'x'} end for i, k in ipairs(KEYS) do redis.call('get', k) end",
            "local pcall = function(f) f('get', 'x') end pcall(redis.call, 'get', KEYS[1])",
            "function unpack() end return redis.call('mget', unpack(KEYS))",
            "redis.call = nil return 1",
            "function redis.call() end",
            "return redis:call('get', KEYS[1])",
            "local redis = redis",
            "local t = KEYS or {} return t",
            "return {KEYS}",
            "local s = redis.call == nil",
            "local a = --[==[ ]] redis ]==] redis",
            "local s = '\\\n' local r = redis",
            "this is no lua",
            "return 'unfinished",
        ],
    );
}

#[test]
fn reading_scripts() {
    let reads = |script: &str| analyse(script.as_bytes(), &Table).reads_only;
    assert!(reads("return 1"));
    assert!(reads("return redis.call('get', 'x')"));
    assert!(reads("local c = redis.pcall return {c('GET', KEYS[1]), redis.call('time')}"));
    assert!(!reads("redis.call('get', KEYS[1]) redis.call('set', KEYS[1], 1)"));
    assert!(!reads("return redis.call('nosuch', KEYS[1])"));
    assert!(!reads("local f = redis return f.call('get', KEYS[1])"));
    assert!(!reads("redis.call('publish', 'c', 'm')"));
}

/// A host that notes the keys of the calls that a script makes.
#[derive(Default)]
struct Recorder {
    keys: RefCell<Vec<Vec<u8>>>,
}

impl Host for Recorder {
    fn call(&self, args: Args<'_>, reply: &mut Reply) {
        let call =
            Call { args: args.iter().map(|arg| Some(arg.to_vec())).collect(), is_open: false };
        match Table.key_positions(&call) {
            Some(keys) => {
                let touched = keys.positions.iter().filter_map(|position| args.get(*position));
                self.keys.borrow_mut().extend(touched.map(<[u8]>::to_vec));
            }
            None => self.keys.borrow_mut().push(b"any".to_vec()),
        }
        reply.bulk(b"x");
    }

    fn count_error(&self, _: &[u8]) {}

    fn acl_check(&self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn logs(&self, _: LogLevel) -> bool {
        false
    }

    fn log(&self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&self, _: Replication) {}

    fn tick(&self) -> Tick {
        Tick::Kill("long enough")
    }
}

/// Words of which random scripts are made; most of them do not compile, many of the others fail.
const WORDS: [&str; 74] = [
    "KEYS",
    "KEYS[1]",
    "KEYS[2]",
    "ARGV[1]",
    "'x'",
    "'get'",
    "'del'",
    "redis.call",
    "redis.pcall",
    "redis.call('get', KEYS[1])",
    "redis.call('del', k)",
    "redis.call('mget', unpack(KEYS))",
    "redis",
    "server",
    "call",
    "pcall(",
    "k",
    "t",
    "f",
    "local k",
    "local k =",
    "local k = KEYS[1]",
    "local k = KEYS",
    "local t = {}",
    "local call = redis.call",
    "call('get', k)",
    "call('get', 'x')",
    "local f = function(k)",
    "local function f(k, ...)",
    "function f(KEYS)",
    "f(k)",
    "f(KEYS)",
    "f('x')",
    "f(redis.call)",
    "t.k",
    "t[1]",
    "t.call =",
    "t[1] = 'x'",
    "KEYS[1] = 'x'",
    "k = 'x'",
    "k = k ..",
    "=",
    "==",
    "..",
    ",",
    ";",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "or",
    "and",
    "not",
    "#",
    "if k then",
    "else",
    "end",
    "for i, k in ipairs(KEYS) do",
    "for k, v in pairs(t) do",
    "for k = 1, 2 do",
    "do",
    "while true do",
    "repeat until",
    "return",
    "unpack(",
    "unpack(KEYS)",
    "table.insert(",
    "rawset(",
    "_G",
    "...",
    "--",
    "[[",
];

/// Random statements that do compile.
const STATEMENTS: [&str; 36] = [
    "local k = KEYS[1]",
    "local k = KEYS[2]",
    "local k = 'x'",
    "local k",
    "k = KEYS[1]",
    "k = 'x'",
    "k = ARGV[1]",
    "k = k .. 'x'",
    "local k = t",
    "local t = k",
    "t = k",
    "local t = KEYS",
    "local t = {KEYS[1]}",
    "t = {'x'}",
    "k = t[1]",
    "KEYS[1] = 'x'",
    "table.insert(KEYS, 1, 'x')",
    "local c = redis.call",
    "local c = redis.pcall",
    "c = redis.call",
    "c('get', k)",
    "c('del', t)",
    "redis.call('get', k)",
    "redis.call('get', KEYS[1])",
    "redis.call('del', unpack(KEYS))",
    "redis.call('mget', unpack(t))",
    "pcall(redis.call, 'get', k)",
    "pcall(redis.call, 'get', t)",
    "local f = function(k) return redis.call('get', k) end",
    "pcall(f, k)",
    "f(k)",
    "f('x')",
    "for i, k in ipairs(KEYS) do redis.call('get', k) end",
    "for i, k in ipairs({'x'}) do redis.call('get', k) end",
    "k, t = t, k",
    "local k, t = unpack(KEYS)",
];

/// Checks that a script which is said to keep to its keys does so. Whether it was said.
fn keeps_its_word(script: &str) -> bool {
    if touches(script) == Any {
        return false;
    }
    let host = Rc::new(Recorder::default());
    let interpreter = Interpreter::new(host.clone(), Options::default());
    let name = sha(script.as_bytes());
    let Ok(compiled) = interpreter.compile_script(script.as_bytes()) else { return true };
    let mut args = ArgsBuf::from_iter([b"k1", b"k2", b"a1"]);
    let mut reply = Reply::new(Protocol::Resp2);
    let _ = interpreter.run_script(&compiled, &name, &mut args, 2, &mut reply);
    for key in host.keys.borrow().iter() {
        assert!(matches!(&key[..], b"k1" | b"k2"), "{script} touched {}", key.escape_ascii());
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_words_keep_their_word(
        words in prop::collection::vec(prop::sample::select(&WORDS[..]), 1..12),
    ) {
        keeps_its_word(&words.join(" "));
    }

    #[test]
    fn random_statements_keep_their_word(
        statements in prop::collection::vec(prop::sample::select(&STATEMENTS[..]), 1..8),
    ) {
        keeps_its_word(&statements.join("\n"));
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        analyse(&bytes, &Table);
    }
}

/// The property above would hold as well if nothing was ever said.
#[test]
fn random_statements_are_often_declared() {
    let pairs =
        STATEMENTS.iter().flat_map(|first| STATEMENTS.iter().map(move |then| (first, then)));
    let scripts = pairs.map(|(first, then)| format!("{first}\n{then}"));
    let declared = scripts.filter(|script| keeps_its_word(script)).count();
    assert!(declared > 200, "{declared}");
}

fn library_touches(functions: &str) -> Touches {
    analyse_library(format!("#!lua name=l\n{functions}").as_bytes(), &Table)
}

#[test]
fn libraries_that_keep_to_their_keys() {
    for library in [
        "redis.register_function('f', function(keys, args) return redis.call('get', keys[1]) end)",
        "redis.register_function('f', function(KEYS, ARGV) return redis.call('get', KEYS[1]) end)",
        "local function f(keys) local k = keys[1] return redis.call('get', k) end \
         redis.register_function('f', f)",
        "redis.register_function{function_name='f', flags={'no-writes'}, callback=function(keys) \
         return redis.call('mget', unpack(keys)) end}",
        "local function add(a, b) return a + b end \
         redis.register_function('f', function(keys, args) \
         return redis.call('set', keys[1], add(args[1], 1)) end) \
         redis.register_function('g', function() return 1 end)",
        "local function f(keys) for _, k in ipairs(keys) do redis.call('get', k) end end \
         redis.register_function({function_name = 'f', callback = f})",
    ] {
        assert_eq!(library_touches(library), Declared, "{library}");
    }
}

#[test]
fn libraries_that_may_touch_anything() {
    for library in [
        "redis.register_function('f', function(keys, args) return redis.call('get', args[1]) end)",
        "redis.register_function('f', function(k) return redis.call('get', k[1]) end)",
        // A key of an earlier call.
        "local k redis.register_function('f', function(keys) k = keys[1] end) \
         redis.register_function('g', function(keys) return redis.call('get', k) end)",
        "local k = {} redis.register_function('f', function(keys) \
         k.f = function() return redis.call('get', keys[1]) end end) \
         redis.register_function('g', function(keys) return k.f() end)",
        // Other tables of the same name.
        "local function f(keys) return redis.call('get', keys[1]) end \
         redis.register_function('f', function(keys, args) return f(args) end)",
        "local function f(keys) return redis.call('get', keys[1]) end local g = f \
         redis.register_function('f', function(keys, args) return g(args) end)",
        "local function f(keys) return redis.call('get', keys[1]) end \
         redis.register_function('f', function(keys, args) return pcall(f, args) end)",
        "redis.register_function('f', function(keys, args) keys = args \
         return redis.call('get', keys[1]) end)",
        "redis.register_function('f', function(keys, args) keys[1] = args[1] \
         return redis.call('get', keys[1]) end)",
        "redis.register_function('f', function(a, keys) return redis.call('get', keys[1]) end)",
        "local keys = {'k'} \
         redis.register_function('f', function() return redis.call('get', keys[1]) end)",
        "local r = redis.register_function \
         r('f', function(keys, args) return redis.call('get', keys[1]) end)",
        "local t = {} function t.f(keys) return redis.call('get', keys[1]) end \
         redis.register_function('f', function(keys, args) return t.f(args) end)",
    ] {
        assert_eq!(library_touches(library), Any, "{library}");
    }
}
