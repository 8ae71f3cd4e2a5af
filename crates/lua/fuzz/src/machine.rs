//! An interpreter for a fuzz target, with a server that answers every command alike.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvasir_lua::failure::Failure;
use kvasir_lua::host::{Host, LogLevel, Replication, Tick};
use kvasir_lua::interpreter::{Compiled, Interpreter, Options, sha};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Reply;

/// What a script may take: less than the fuzzer allows the whole process.
const MEMORY_LIMIT_BYTES: usize = 64 << 20;

/// A script ends after so many ticks, each of a hundred thousand instructions.
const TICKS_MAX: u32 = 20;

/// A server that says what it is told to say, and notes what it was asked.
#[derive(Default)]
pub struct Server {
    /// The bytes of its replies; if there are none, a command's arguments are its reply.
    pub reply: RefCell<Vec<u8>>,
    pub calls: RefCell<Vec<ArgsBuf>>,
    ticks: Cell<u32>,
}

impl Host for Server {
    fn call(&self, args: Args<'_>, reply: &mut Reply) {
        self.calls.borrow_mut().push(args.into());
        let bytes = self.reply.borrow();
        if bytes.is_empty() {
            reply.array(args.len());
            args.iter().for_each(|arg| reply.bulk(arg));
        } else {
            reply.raw(&bytes);
        }
    }

    fn count_error(&self, _: &[u8]) {}

    fn acl_check(&self, _: Args<'_>) -> Option<bool> {
        Some(true)
    }

    fn logs(&self, _: LogLevel) -> bool {
        false
    }

    fn log(&self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&self, _: Replication) {}

    fn tick(&self) -> Tick {
        self.ticks.set(self.ticks.get() + 1);
        if self.ticks.get() > TICKS_MAX { Tick::Kill("it takes long") } else { Tick::Continue }
    }
}

pub struct Machine {
    pub server: Rc<Server>,
    interpreter: Interpreter,
}

impl Machine {
    pub fn new() -> Machine {
        let server = Rc::new(Server::default());
        let options = Options { memory_limit_bytes: MEMORY_LIMIT_BYTES };
        Machine { interpreter: Interpreter::new(server.clone(), options), server }
    }

    pub fn compile(&self, body: &[u8]) -> Option<Compiled> {
        self.interpreter.compile_script(body).ok()
    }

    /// The bytes of a script's reply.
    pub fn run(
        &self,
        script: &Compiled,
        keys: &[&[u8]],
        argv: &[&[u8]],
    ) -> Result<Vec<u8>, Failure> {
        self.server.ticks.set(0);
        self.server.calls.borrow_mut().clear();
        let mut args: ArgsBuf = keys.iter().chain(argv).collect();
        let mut reply = Reply::default();
        let name = sha(b"");
        self.interpreter.run_script(script, &name, &mut args, keys.len(), &mut reply)?;
        Ok(reply.to_vec())
    }
}

/// A target's interpreter and the script that it runs on its inputs.
pub struct Bench {
    pub machine: Machine,
    script: Compiled,
}

impl Bench {
    pub fn new(script: &str) -> Bench {
        let machine = Machine::new();
        let script = machine.compile(script.as_bytes()).expect("the script of a target compiles");
        Bench { machine, script }
    }

    /// As [`Machine::run`].
    pub fn try_run(&self, keys: &[&[u8]], argv: &[&[u8]]) -> Result<Vec<u8>, Failure> {
        self.machine.run(&self.script, keys, argv)
    }

    /// As [`Machine::run`]; the script itself must not fail.
    pub fn run(&self, keys: &[&[u8]], argv: &[&[u8]]) -> Vec<u8> {
        self.try_run(keys, argv).unwrap_or_else(|failure| panic!("{}", failure.text.escape_ascii()))
    }

    /// For a script that says what is wrong with its first argument: nothing may be. The second
    /// one tells it to plant a fault.
    pub fn check(&self, input: &[u8]) {
        let mode: &[u8] = if cfg!(feature = "canary") { b"canary" } else { b"" };
        let said = self.run(&[], &[input, mode]);
        assert_eq!(said, b"$0\r\n\r\n", "{}", said.escape_ascii());
    }
}
