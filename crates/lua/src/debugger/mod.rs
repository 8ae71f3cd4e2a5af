//! The debugger of scripts: stops them at their lines, and there does what its client asks for.
//!
//! The client is whoever called the script, over the connection of the call: its commands come as
//! requests, and each is answered by an array of lines, the ones that end with the script included.
//! Bytes come and go by [`Host::ask_debugger`] and [`Host::tell_debugger`], so the debugger knows
//! no connection. What the commands do is in `commands`, how values are shown in `values`.
//!
//! [`Host::ask_debugger`]: crate::host::Host::ask_debugger
//! [`Host::tell_debugger`]: crate::host::Host::tell_debugger

mod commands;
#[cfg(test)]
mod tests;
mod values;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use kvasir_lua_stack::Outcome;
use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use mlua::debug::{Debug, DebugEvent};
use mlua::{Function, HookTriggers, Lua, Table, Value, VmState};

use crate::arguments::Arguments;
use crate::function::procedure;
use crate::interpreter::{Compiled, INSTRUCTIONS_PER_TICK, Sha, State, end_at_once};

/// What is shown of a value or a reply unless the client asks for more, in bytes.
const LEN_MAX: usize = 256;

/// Breakpoints that a script may have.
const BREAKPOINTS_MAX: usize = 64;

/// Bytes of a command that are kept until the rest of it has come.
const INPUT_MAX: usize = 1024 * 1024;

/// The arguments of a command of the script that are shown.
const WORDS_SHOWN: usize = 10;

/// The part of the name of a chunk by which the script's own lines are known.
const SCRIPT: &str = "user_script";

/// A script to be debugged.
#[derive(Clone, Copy)]
pub struct Debugged<'a> {
    pub script: &'a Compiled,
    pub name: &'a Sha,
    pub source: &'a [u8],
    /// For how long it may run without a stop.
    pub patience: Duration,
}

pub struct Debugger {
    /// The source, for the client.
    lines: Vec<Vec<u8>>,
    /// It stops at the next line; until then the client is shown each command.
    steps: Cell<bool>,
    /// The script has called `redis.breakpoint()`.
    is_called: Cell<bool>,
    /// It stops since the script has run for so long that it may never end.
    is_late: Cell<bool>,
    breakpoints: RefCell<Vec<usize>>,
    /// Where the script is, from 1.
    line: Cell<usize>,
    /// What is shown of a value, in bytes; 0: all of it.
    len_max: Cell<usize>,
    /// The client knows how to be shown more.
    hint_given: Cell<bool>,
    /// What the client is told next.
    logs: RefCell<Vec<Vec<u8>>>,
    /// What has come from the client and is no whole command yet.
    input: RefCell<Vec<u8>>,
    /// When the script was last let go on, and how long it may run without a stop.
    since: Cell<Instant>,
    patience: Duration,
    tools: Tools,
}

/// Functions of Lua that the commands need.
struct Tools {
    /// `locals(level, index)`: the name and the value of a local variable.
    locals: Function,
    /// `evaluate(handler, f)`: whether `f` has returned, and its value or its error.
    evaluate: Function,
    /// Gives an error back as it is.
    handler: Function,
    /// `string.format`.
    format: Function,
}

impl Tools {
    fn new(lua: &Lua) -> mlua::Result<Tools> {
        let locals = kvasir_lua_stack::function(lua, |stack| {
            let number = |index| match stack.argument(index) {
                kvasir_lua_stack::Scalar::Number(number) => number as usize,
                _ => 0,
            };
            let (level, index) = (number(1), number(2));
            Outcome::Results(if stack.push_local(level, index) { 2 } else { 0 })
        })?;
        let evaluate = kvasir_lua_stack::function(lua, |stack| {
            stack.push_argument(2);
            let has_returned = stack.run(0, 1);
            stack.push_boolean(has_returned);
            stack.push_copy(1);
            Outcome::Results(2)
        })?;
        Ok(Tools {
            locals,
            evaluate,
            handler: crate::function::function(lua, |_, arguments| Ok(arguments.value(1).clone()))?,
            format: lua.globals().raw_get::<Table>("string")?.raw_get("format")?,
        })
    }
}

/// Making one, and what the interpreter calls it for.
impl Debugger {
    pub fn new(lua: &Lua, source: &[u8], patience: Duration) -> mlua::Result<Debugger> {
        let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let len = source.iter().rposition(|byte| !ends(byte)).map_or(0, |last| last + 1);
        Ok(Debugger {
            lines: source[..len].split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect(),
            steps: Cell::new(true),
            is_called: Cell::default(),
            is_late: Cell::default(),
            breakpoints: RefCell::default(),
            line: Cell::default(),
            len_max: Cell::new(LEN_MAX),
            hint_given: Cell::default(),
            logs: RefCell::default(),
            input: RefCell::default(),
            since: Cell::new(Instant::now()),
            patience,
            tools: Tools::new(lua)?,
        })
    }

    /// Has it called at each line of the script that runs next.
    pub(crate) fn attach(self: &Rc<Self>, lua: &Lua, state: &Rc<State>) -> mlua::Result<()> {
        let (debugger, its_state) = (Rc::clone(self), Rc::clone(state));
        // In a function of ours, where what is allocated is not the script's.
        let stop = procedure(lua, move |lua, _| {
            // Whoever has killed it already has said why.
            if let Err(text) = debugger.stop(lua, &its_state)
                && its_state.check_alive().is_ok()
            {
                its_state.killed.set(Some(text));
            }
            Ok(())
        })?;
        let (debugger, state) = (Rc::clone(self), Rc::clone(state));
        let triggers =
            HookTriggers::new().every_line().every_nth_instruction(INSTRUCTIONS_PER_TICK);
        lua.set_global_hook(triggers, move |lua, debug| {
            let is_alive = match debugger.stops_at(debug, &state) {
                Ok(false) => Ok(()),
                Ok(true) => {
                    stop.call::<()>(())?;
                    state.check_alive()
                }
                Err(text) => Err(text),
            };
            if is_alive.is_ok() { Ok(VmState::Continue) } else { end_at_once(lua) }
        })
    }

    /// What the client was not told yet when the script has ended.
    pub fn take_logs(&self) -> Vec<Vec<u8>> {
        self.logs.take()
    }

    /// `redis.breakpoint()`: stops at the next line.
    pub fn call_breakpoint(&self) {
        self.is_called.set(true);
    }

    /// `redis.debug()`: shows values.
    pub fn show(&self, arguments: &Arguments) {
        let mut text = format!("<debug> line {}: ", self.line.get()).into_bytes();
        for (index, value) in arguments.iter().enumerate() {
            text.extend_from_slice(if index == 0 { b"" } else { b", " });
            self.write_value(value, 0, &mut text);
        }
        self.log(text);
    }

    /// Shows a command that the script is about to call.
    pub fn note_call(&self, args: Args<'_>) {
        if !self.steps.get() {
            return;
        }
        let mut text = b"<redis>".to_vec();
        for arg in args.iter().take(WORDS_SHOWN) {
            text.push(b' ');
            text.extend_from_slice(arg);
        }
        if args.len() > WORDS_SHOWN {
            let more = args.len() - WORDS_SHOWN - 1;
            text.extend_from_slice(format!(" ... ({more} more)").as_bytes());
        }
        self.log(text);
    }

    /// Shows what a command has answered, which was refused before it was run if it `is_refused`.
    pub fn note_reply(&self, reply: &Reply, is_refused: bool) {
        if !self.steps.get() {
            return;
        }
        let bytes = reply.to_vec();
        if bytes.first() == Some(&b'-') {
            let line = bytes.strip_suffix(b"\r\n").unwrap_or(&bytes);
            self.note_error(if is_refused { &line[1..] } else { line });
        }
        if !is_refused {
            self.log_short(values::of_reply(&bytes, reply.protocol()));
        }
    }

    /// Shows the error of a call that never came to a command.
    pub fn note_error(&self, text: &[u8]) {
        if self.steps.get() {
            let text = text.strip_prefix(b"ERR ").unwrap_or(text);
            self.log([b"<error> ", text].concat());
        }
    }
}

/// Stopping.
impl Debugger {
    /// Whether the script stops where it is.
    fn stops_at(&self, debug: &Debug<'_>, state: &State) -> Result<bool, &'static str> {
        let is_count = debug.event() == DebugEvent::Count;
        if is_count {
            state.tick()?;
        }
        state.check_alive()?;
        if !debug.source().short_src.is_some_and(|name| name.contains(SCRIPT)) {
            return Ok(false);
        }
        let line = debug.current_line().unwrap_or(0);
        self.line.set(line);
        let is_due = self.steps.get() || self.is_called.get() || self.is_breakpoint(line);
        if is_count && !is_due && self.since.get().elapsed() >= self.patience {
            self.is_late.set(true);
        }
        Ok(is_due || self.is_late.get())
    }

    fn is_breakpoint(&self, line: usize) -> bool {
        self.breakpoints.borrow().contains(&line)
    }

    /// Stops the script and does what the client says, until that lets the script go on. Fails if
    /// the script has to end.
    fn stop(&self, lua: &Lua, state: &State) -> Result<(), &'static str> {
        let is_late = self.is_late.take();
        let reason = match (self.is_called.take(), self.is_breakpoint(self.line.get())) {
            (true, _) => "redis.breakpoint() called",
            (false, true) => "break point",
            (false, false) if is_late => "timeout reached, infinite loop?",
            (false, false) => "step over",
        };
        self.steps.set(false);
        self.log(format!("* Stopped at {}, stop reason = {reason}", self.line.get()).into_bytes());
        self.log_line(self.line.get());
        self.send_logs(state);
        loop {
            let Some(words) = self.next_command(state)? else {
                // Nobody is there any more: the script goes on to its end, if it has one.
                self.steps.set(false);
                self.breakpoints.borrow_mut().clear();
                if is_late {
                    return Err("timeout during Lua debugging with client closing connection");
                }
                break;
            };
            if commands::obey(self, lua, state, &words)? {
                break;
            }
            self.send_logs(state);
        }
        self.since.set(Instant::now());
        Ok(())
    }

    /// The next command; `None` if the client is gone.
    fn next_command(&self, state: &State) -> Result<Option<Vec<Vec<u8>>>, &'static str> {
        loop {
            let parsed = commands::parse(&self.input.borrow())?;
            if let Some(words) = parsed {
                // What else has come with it is dropped, as Redis does: one at a time.
                self.input.borrow_mut().clear();
                return Ok(Some(words));
            }
            let bytes = state.host.ask_debugger()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let mut input = self.input.borrow_mut();
            input.extend_from_slice(&bytes);
            if input.len() > INPUT_MAX {
                return Err("max client buffer reached");
            }
        }
    }
}

/// Telling the client.
impl Debugger {
    fn log(&self, text: impl Into<Vec<u8>>) {
        self.logs.borrow_mut().push(text.into());
    }

    /// As `log`, of what may be long.
    fn log_short(&self, mut text: Vec<u8>) {
        let len_max = self.len_max.get();
        let is_long = len_max > 0 && text.len() > len_max;
        if is_long {
            text.truncate(len_max);
            text.extend_from_slice(b" ...");
        }
        self.log(text);
        if is_long && !self.hint_given.replace(true) {
            let hint = "<hint> The above reply was trimmed. Use 'maxlen 0' to disable trimming.";
            self.log(hint);
        }
    }

    /// Shows a line of the source, with what there is to say of it.
    fn log_line(&self, line: usize) {
        let mark = match (self.line.get() == line, self.is_breakpoint(line)) {
            (true, true) => "->#",
            (true, false) => "-> ",
            (false, true) => "  #",
            (false, false) => "   ",
        };
        let source = line.checked_sub(1).and_then(|index| self.lines.get(index));
        let source = source.map_or(&b"<out of range source code line>"[..], Vec::as_slice);
        self.log([format!("{mark}{line:<3} ").as_bytes(), source].concat());
    }

    fn write_value(&self, value: &Value, depth: usize, out: &mut Vec<u8>) {
        values::write(&self.tools.format, value, depth, out);
    }

    fn send_logs(&self, state: &State) {
        state.host.tell_debugger(lines_reply(&self.logs.take()));
    }
}

/// Lines as the client of a debugger gets them.
pub fn lines_reply(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", lines.len()).into_bytes();
    for line in lines {
        let ends = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
        bytes.push(b'+');
        bytes.extend(line.iter().map(ends));
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
