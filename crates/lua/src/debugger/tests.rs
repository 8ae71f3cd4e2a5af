//! Sessions of the debugger, without a server: what it says to each command.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::encode::encode_request;
use kvasir_resp::reply::Reply;

use crate::debugger::Debugged;
use crate::host::{Host, LogLevel, Replication, Tick};
use crate::interpreter::{Interpreter, Options, sha};

/// Few commands, and a client that says what it is to say.
#[derive(Default)]
struct Console {
    says: RefCell<VecDeque<Vec<u8>>>,
    heard: RefCell<Vec<u8>>,
    was_refused: Cell<bool>,
    /// So many looks until the script is killed.
    ticks_left: Cell<Option<u32>>,
}

impl Host for Console {
    fn call(&self, args: Args<'_>, reply: &mut Reply) {
        self.was_refused.set(false);
        match args.name() {
            b"set" => reply.ok(),
            b"get" => reply.bulk(b"4"),
            b"incr" => reply.error("ERR value is not an integer or out of range"),
            _ => {
                self.was_refused.set(true);
                reply.error("ERR Unknown Redis command called from script");
            }
        }
    }

    fn was_refused(&self) -> bool {
        self.was_refused.get()
    }

    fn tell_debugger(&self, bytes: Vec<u8>) {
        self.heard.borrow_mut().extend(bytes);
    }

    fn ask_debugger(&self) -> Result<Vec<u8>, &'static str> {
        Ok(self.says.borrow_mut().pop_front().unwrap_or_default())
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
        match self.ticks_left.get() {
            Some(0) => Tick::Kill("Script killed by user with SCRIPT KILL."),
            Some(left) => {
                self.ticks_left.set(Some(left - 1));
                Tick::Continue
            }
            None => Tick::Continue,
        }
    }
}

const SCRIPT: &str = "local a = {1, 'x\\n', {y = true}}\n\
    local function f(x)\n\
    local y = x + 1\n\
    redis.call('set', KEYS[1], y)\n\
    return y\n\
    end\n\
    redis.breakpoint()\n\
    local z = f(3)\n\
    redis.debug('hi', 5, a, nil)\n\
    redis.pcall('nosuch') redis.pcall('incr', 'k')\n\
    return z\n\n";

fn run(console: Rc<Console>, script: &str, patience: Duration) -> String {
    let interpreter = Interpreter::new(Rc::clone(&console) as _, Options::default());
    let compiled = interpreter.compile_script(script.as_bytes()).expect("it compiles");
    let (mut args, mut reply) = (ArgsBuf::new(), Reply::default());
    args.push(b"k").expect("it is short");
    let (name, source) = (&sha(script.as_bytes()), script.as_bytes());
    let debugged = Debugged { script: &compiled, name, source, patience };
    let (result, logs) = interpreter.debug_script(debugged, &mut args, 1, &mut reply);
    let ended = match result {
        Ok(()) => reply.to_vec(),
        Err(failure) => failure.text,
    };
    let mut heard = console.heard.take();
    heard.extend(super::lines_reply(&logs));
    heard.extend(ended);
    // What comes next in the same interpreter is not debugged.
    let next = interpreter.compile_script(b"return redis.breakpoint()").expect("it compiles");
    let mut reply = Reply::default();
    let name = sha(b"return redis.breakpoint()");
    let result = interpreter.run_script(&next, &name, &mut ArgsBuf::new(), 0, &mut reply);
    assert_eq!((result, reply.to_vec()), (Ok(()), b"$-1\r\n".to_vec()));
    assert!(console.heard.borrow().is_empty());
    String::from_utf8(heard).expect("nothing else was put in").replace("\r\n", "\n")
}

fn says(commands: &[&str]) -> Rc<Console> {
    let console = Console::default();
    for command in commands {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        console.says.borrow_mut().push_back(encode_request(&words));
    }
    Rc::new(console)
}

/// Checks what a session says after the first stop.
fn check(commands: &[&str], said: &str) {
    let heard = run(says(commands), SCRIPT, Duration::from_secs(60));
    let first = "*2\n+* Stopped at 1, stop reason = step over\n\
        +-> 1   local a = {1, 'x\\n', {y = true}}\n";
    assert_eq!(heard.strip_prefix(first), Some(said), "{heard}");
}

const END: &str = "*1\n+<debug> line 9: \"hi\", 5, {1; \"x\\n\"; {[\"y\"]=true}}, nil\n:4\n";

#[test]
fn stops_and_goes_on() {
    check(
        &["c", "p z", "s", "s", "t", "p", "p a", "b", "C"],
        &format!(
            "*2\n+* Stopped at 8, stop reason = redis.breakpoint() called\n+-> 8   local z = f(3)\n\
             *1\n+No such variable.\n\
             *2\n+* Stopped at 3, stop reason = step over\n+-> 3   local y = x + 1\n\
             *2\n+* Stopped at 4, stop reason = step over\n+-> 4   redis.call('set', KEYS[1], y)\n\
             *4\n+In f:\n+-> 4   redis.call('set', KEYS[1], y)\n\
             +From top level:\n+   8   local z = f(3)\n\
             *2\n+<value> x = 3\n+<value> y = 4\n\
             *1\n+<value> {{1; \"x\\n\"; {{[\"y\"]=true}}}}\n\
             *1\n+No breakpoints set. Use 'b <line>' to add one.\n{END}"
        ),
    );
}

#[test]
fn steps_show_commands() {
    check(
        &["b 4 10", "c", "c", "s", "n", "n", "n", "n", "n"],
        "*6\n+   3   local y = x + 1\n+  #4   redis.call('set', KEYS[1], y)\n+   5   return y\n\
         +   9   redis.debug('hi', 5, a, nil)\n\
         +  #10  redis.pcall('nosuch') redis.pcall('incr', 'k')\n+   11  return z\n\
         *2\n+* Stopped at 8, stop reason = redis.breakpoint() called\n+-> 8   local z = f(3)\n\
         *2\n+* Stopped at 4, stop reason = break point\n\
         +->#4   redis.call('set', KEYS[1], y)\n\
         *4\n+<redis> set k 4\n+<reply> \"+OK\"\n+* Stopped at 5, stop reason = step over\n\
         +-> 5   return y\n\
         *2\n+* Stopped at 9, stop reason = step over\n+-> 9   redis.debug('hi', 5, a, nil)\n\
         *3\n+<debug> line 9: \"hi\", 5, {1; \"x\\n\"; {[\"y\"]=true}}, nil\n\
         +* Stopped at 10, stop reason = break point\n\
         +->#10  redis.pcall('nosuch') redis.pcall('incr', 'k')\n\
         *7\n+<redis> nosuch\n+<error> Unknown Redis command called from script\n\
         +<redis> incr k\n+<error> -ERR value is not an integer or out of range\n\
         +<reply> \"-ERR value is not an integer or out of range\"\n\
         +* Stopped at 11, stop reason = step over\n+-> 11  return z\n*0\n:4\n",
    );
}

#[test]
fn code_is_run_apart() {
    check(
        &["e 1 + 1", "e error('no')", "e x x", "r get k", "r", "m 61", "e ('x'):rep(70)", "c", "c"],
        &format!(
            "*1\n+<retval> 2\n*1\n+<error> ldb_eval:1: no\n\
             *1\n+<error> ldb_eval:1: '=' expected near 'x'\n\
             *2\n+<redis> get k\n+<reply> \"4\"\n\
             *1\n+<error> Unknown Redis Lua debugger command or wrong number of arguments.\n\
             *1\n+<value> replies are truncated at 61 bytes.\n\
             *1\n+<retval> \"{} ...\n\
             *2\n+* Stopped at 8, stop reason = redis.breakpoint() called\n\
             +-> 8   local z = f(3)\n{END}",
            "x".repeat(51)
        ),
    );
    // An error that is a table ends the process of Redis.
    check(
        &["e error({err='tell'})", "e redis.call('nosuch')", "a"],
        &format!(
            "*1\n+<error> tell\n*1\n+<error> ERR Unknown Redis command called from script\n\
             *0\nERR script aborted for user request script: {}, on @user_script:1.",
            String::from_utf8_lossy(&sha(SCRIPT.as_bytes()))
        ),
    );
}

#[test]
fn a_script_ends_though_nobody_is_there_any_more() {
    check(
        &["b 4"],
        &format!(
            "*3\n+   3   local y = x + 1\n+  #4   redis.call('set', KEYS[1], y)\n\
             +   5   return y\n\
             *2\n+* Stopped at 8, stop reason = redis.breakpoint() called\n\
             +-> 8   local z = f(3)\n{END}"
        ),
    );
}

#[test]
fn what_does_not_end_is_stopped_or_killed() {
    let endless = "while true do end";
    let heard = run(says(&["c", "p", "a"]), endless, Duration::ZERO);
    assert!(heard.contains("stop reason = timeout reached, infinite loop?\n"), "{heard}");
    assert!(heard.contains("ERR script aborted for user request"), "{heard}");
    let heard = run(says(&["c"]), endless, Duration::ZERO);
    let text = "ERR timeout during Lua debugging with client closing connection";
    assert!(heard.contains(text), "{heard}");
    let console = says(&["e while true do end"]);
    console.ticks_left.set(Some(3));
    let heard = run(Rc::clone(&console), "return 1", Duration::ZERO);
    assert!(heard.contains("ERR Script killed by user with SCRIPT KILL."), "{heard}");
}
