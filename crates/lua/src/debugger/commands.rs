//! The commands of the debugger, as redis-cli sends them.
//!
//! What they answer is Redis's, word for word: tools and people read it.

use kvasir_resp::number::parse_integer;
use mlua::{Function, Lua, LuaString, MultiValue, Value};

use super::{BREAKPOINTS_MAX, Debugger, SCRIPT};
use crate::arguments::to_bytes;
use crate::function::LEVEL_CALLER;
use crate::interpreter::State;

/// The least that values can be cut to.
const LEN_MIN: usize = 60;

/// How many lines are shown before and after the one that is asked for.
const CONTEXT: i64 = 5;

/// The most words of a command, and bytes of a word.
const WORDS_MAX: i64 = 1024;
const WORD_LEN_MAX: i64 = 1024;

const MALFORMED: &str = "protocol error";

/// The name of the chunk that EVAL compiles.
const CHUNK: &str = "@ldb_eval";

const HELP: [&str; 30] = [
    "Redis Lua debugger help:",
    "[h]elp               Show this help.",
    "[s]tep               Run current line and stop again.",
    "[n]ext               Alias for step.",
    "[c]ontinue           Run till next breakpoint.",
    "[l]ist               List source code around current line.",
    "[l]ist [line]        List source code around [line].",
    "                     line = 0 means: current position.",
    "[l]ist [line] [ctx]  In this form [ctx] specifies how many lines",
    "                     to show before/after [line].",
    "[w]hole              List all source code. Alias for 'list 1 1000000'.",
    "[p]rint              Show all the local variables.",
    "[p]rint <var>        Show the value of the specified variable.",
    "                     Can also show global vars KEYS and ARGV.",
    "[b]reak              Show all breakpoints.",
    "[b]reak <line>       Add a breakpoint to the specified line.",
    "[b]reak -<line>      Remove breakpoint from the specified line.",
    "[b]reak 0            Remove all breakpoints.",
    "[t]race              Show a backtrace.",
    "[e]val <code>        Execute some Lua code (in a different callframe).",
    "[r]edis <cmd>        Execute a Redis command.",
    "[m]axlen [len]       Trim logged Redis replies and Lua var dumps to len.",
    "                     Specifying zero as <len> means unlimited.",
    "[a]bort              Stop the execution of the script. In sync",
    "                     mode dataset changes will be retained.",
    "",
    "Debugger functions you can call from Lua scripts:",
    "redis.debug()        Produce logs in the debugger console.",
    "redis.breakpoint()   Stop execution like if there was a breakpoint in the",
    "                     next line of code.",
];

/// The command that `input` begins with, if it is there as a whole.
pub fn parse(input: &[u8]) -> Result<Option<Vec<Vec<u8>>>, &'static str> {
    let mut rest = input;
    let Some(count) = header(&mut rest, b'*', WORDS_MAX)? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some(len) = header(&mut rest, b'$', WORD_LEN_MAX)? else { return Ok(None) };
        if rest.len() < len + 2 {
            return Ok(None);
        }
        words.push(rest[..len].to_vec());
        rest = &rest[len + 2..];
    }
    Ok(Some(words))
}

/// A line that is a number behind its kind.
fn header(rest: &mut &[u8], kind: u8, max: i64) -> Result<Option<usize>, &'static str> {
    let Some(first) = rest.first() else { return Ok(None) };
    if *first != kind {
        return Err(MALFORMED);
    }
    let Some(end) = memchr::memchr(b'\n', rest) else { return Ok(None) };
    let line = rest[1..end].strip_suffix(b"\r").ok_or(MALFORMED)?;
    *rest = &rest[end + 1..];
    let number = parse_integer(line).filter(|number| (1..=max).contains(number));
    number.map(|number| Some(number as usize)).ok_or(MALFORMED)
}

/// Does what the client asks for; says whether the script goes on. Fails if it shall end.
pub fn obey(
    debugger: &Debugger,
    lua: &Lua,
    state: &State,
    words: &[Vec<u8>],
) -> Result<bool, &'static str> {
    let name = words[0].to_ascii_lowercase();
    match &name[..] {
        b"s" | b"step" | b"n" | b"next" => {
            debugger.steps.set(true);
            return Ok(true);
        }
        b"c" | b"continue" => return Ok(true),
        b"a" | b"abort" => return Err("script aborted for user request"),
        // What fails within Lua fails for want of memory.
        name => match answer(debugger, lua, name, words) {
            Ok(()) => {}
            Err(error) => debugger.log(format!("<error> {error}")),
        },
    }
    state.check_alive()?;
    Ok(false)
}

/// Does what leaves the script where it is.
fn answer(debugger: &Debugger, lua: &Lua, name: &[u8], words: &[Vec<u8>]) -> mlua::Result<()> {
    match name {
        b"h" | b"help" => HELP.iter().for_each(|line| debugger.log(*line)),
        b"t" | b"trace" => trace(debugger, lua),
        b"m" | b"maxlen" => limit(debugger, words),
        b"b" | b"break" => set_breakpoints(debugger, words),
        b"l" | b"list" => {
            let number = |index: usize| words.get(index).map(|word| leading_number(word));
            let around = number(1).filter(|line| *line > 0);
            let around = around.unwrap_or(debugger.line.get() as i64);
            list(debugger, around, number(2).unwrap_or(CONTEXT));
        }
        b"w" | b"whole" => list(debugger, 1, 1_000_000),
        b"p" | b"print" if words.len() == 2 => return print(debugger, lua, &words[1]),
        b"p" | b"print" => return print_all(debugger),
        b"e" | b"eval" => return eval(debugger, lua, &words[1..]),
        b"r" | b"redis" if words.len() > 1 => return call(debugger, lua, &words[1..]),
        _ => {
            debugger.log("<error> Unknown Redis Lua debugger command or wrong number of arguments.")
        }
    }
    Ok(())
}

/// As C's `atoi`.
fn leading_number(word: &[u8]) -> i64 {
    let digits = |from: usize| word[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let sign = usize::from(matches!(word.first(), Some(b'-' | b'+')));
    let text = std::str::from_utf8(&word[..sign + digits(sign)]).unwrap_or("");
    text.parse().unwrap_or(0)
}

fn list(debugger: &Debugger, around: i64, context: i64) {
    let is_near = |line: &usize| (around - *line as i64).abs() <= context;
    (1..=debugger.lines.len()).filter(is_near).for_each(|line| debugger.log_line(line));
}

fn trace(debugger: &Debugger, lua: &Lua) {
    for level in 0.. {
        let frame = lua.inspect_stack(LEVEL_CALLER + level, |debug| {
            let is_script = debug.source().short_src.is_some_and(|name| name.contains(SCRIPT));
            let name = debug.names().name.map(|name| name.into_owned());
            (is_script, name, debug.current_line().unwrap_or(0))
        });
        let Some((is_script, name, line)) = frame else { return };
        if is_script {
            let whence = if level == 0 { "In" } else { "From" };
            debugger.log(format!("{whence} {}:", name.as_deref().unwrap_or("top level")));
            debugger.log_line(line);
        }
    }
}

fn limit(debugger: &Debugger, words: &[Vec<u8>]) {
    if let [_, len] = words {
        debugger.hint_given.set(true);
        let len = usize::try_from(leading_number(len)).unwrap_or(LEN_MIN);
        debugger.len_max.set(if len == 0 { 0 } else { len.max(LEN_MIN) });
    }
    debugger.log(match debugger.len_max.get() {
        0 => "<value> replies are unlimited.".to_owned(),
        len => format!("<value> replies are truncated at {len} bytes."),
    });
}

fn set_breakpoints(debugger: &Debugger, words: &[Vec<u8>]) {
    if words.len() == 1 {
        let lines = debugger.breakpoints.borrow().clone();
        if lines.is_empty() {
            debugger.log("No breakpoints set. Use 'b <line>' to add one.");
        } else {
            debugger.log(format!("{} breakpoints set:", lines.len()));
            lines.into_iter().for_each(|line| debugger.log_line(line));
        }
    }
    for word in &words[1..] {
        match parse_integer(word) {
            None => debugger.log([b"Invalid argument:'", &word[..], b"'"].concat()),
            Some(line) => set_breakpoint(debugger, line),
        }
    }
}

/// Adds a breakpoint; takes one away where the number is below 0, and all of them for 0.
fn set_breakpoint(debugger: &Debugger, number: i64) {
    let line = number.unsigned_abs() as usize;
    let mut breakpoints = debugger.breakpoints.borrow_mut();
    let at = breakpoints.iter().position(|breakpoint| *breakpoint == line);
    match (number, at) {
        (0, _) => {
            breakpoints.clear();
            debugger.log("All breakpoints removed.");
        }
        (..0, Some(at)) => {
            breakpoints.remove(at);
            debugger.log("Breakpoint removed.");
        }
        (..0, None) => debugger.log("No breakpoint in the specified line."),
        (1.., _) if breakpoints.len() == BREAKPOINTS_MAX => {
            debugger.log("Too many breakpoints set.");
        }
        (1.., None) if line <= debugger.lines.len() => {
            breakpoints.push(line);
            drop(breakpoints);
            list(debugger, number, 1);
        }
        (1.., _) => debugger.log("Wrong line number."),
    }
}

/// Shows a variable: the innermost local one of this name.
fn print(debugger: &Debugger, lua: &Lua, name: &[u8]) -> mlua::Result<()> {
    let mut level = 0;
    while lua.inspect_stack(LEVEL_CALLER + level, |_| ()).is_some() {
        let mut index = 1;
        while let (Some(found), value) = local(debugger, level, index)? {
            if *found.as_bytes() == *name {
                show(debugger, "<value> ", &value);
                return Ok(());
            }
            index += 1;
        }
        level += 1;
    }
    if matches!(name, b"KEYS" | b"ARGV") {
        let value = lua.globals().raw_get::<Value>(lua.create_string(name)?)?;
        show(debugger, "<value> ", &value);
    } else {
        debugger.log("No such variable.");
    }
    Ok(())
}

/// Shows the local variables of the function at work.
fn print_all(debugger: &Debugger) -> mlua::Result<()> {
    let (mut index, mut count) = (1, 0);
    while let (Some(name), value) = local(debugger, 0, index)? {
        if !name.as_bytes().starts_with(b"(*temporary") {
            show(debugger, &format!("<value> {} = ", name.to_string_lossy()), &value);
            count += 1;
        }
        index += 1;
    }
    if count == 0 {
        debugger.log("No local variables in the current context.");
    }
    Ok(())
}

/// The local variable of this index, so many calls further out than the line at which it stands.
fn local(
    debugger: &Debugger,
    level: usize,
    index: usize,
) -> mlua::Result<(Option<LuaString>, Value)> {
    debugger.tools.locals.call((LEVEL_CALLER + 1 + level, index))
}

fn show(debugger: &Debugger, before: &str, value: &Value) {
    let mut text = before.as_bytes().to_vec();
    debugger.write_value(value, 0, &mut text);
    debugger.log_short(text);
}

/// Runs code, as an expression if it is one, and shows its value.
fn eval(debugger: &Debugger, lua: &Lua, words: &[Vec<u8>]) -> mlua::Result<()> {
    let code = words.join(&b' ');
    let compile = |code: Vec<u8>| lua.load(code).set_name(CHUNK).into_function();
    let compiled = compile([b"return ", &code[..]].concat()).or_else(|_| compile(code));
    let function = match compiled {
        Ok(function) => function,
        Err(mlua::Error::SyntaxError { message, .. }) => {
            debugger.log(format!("<error> {message}"));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    match run(debugger, lua, function)? {
        (true, value) => show(debugger, "<retval> ", &value),
        (false, error) => debugger.log([b"<error> ", &error_text(&error)[..]].concat()),
    }
    Ok(())
}

/// Calls a function in a coroutine, whose instructions are counted: one that does not end can be
/// killed as scripts can.
fn run(debugger: &Debugger, lua: &Lua, function: Function) -> mlua::Result<(bool, Value)> {
    let thread = lua.create_thread(debugger.tools.evaluate.clone())?;
    thread.resume((&debugger.tools.handler, function))
}

/// Errors of commands are tables.
fn error_text(error: &Value) -> Vec<u8> {
    let text = match error {
        Value::Table(table) => table.raw_get("err").unwrap_or(Value::Nil),
        error => error.clone(),
    };
    to_bytes(&text).map_or_else(|| b"unknown error".to_vec(), |text| text.to_vec())
}

/// Makes a call of `redis.call`, which is shown as those of the script are.
fn call(debugger: &Debugger, lua: &Lua, words: &[Vec<u8>]) -> mlua::Result<()> {
    let redis: mlua::Table = lua.globals().raw_get("redis")?;
    let pcall: Function = redis.raw_get("pcall")?;
    let words = words.iter().map(|word| lua.create_string(word).map(Value::String));
    let words = words.collect::<mlua::Result<MultiValue>>()?;
    debugger.steps.set(true);
    let result = pcall.call::<()>(words);
    debugger.steps.set(false);
    result
}
