//! A keyspace with one client, for fuzz targets.

use kvasir_keyspace::command::{Command, Run, World};
use kvasir_keyspace::commands;
use kvasir_keyspace::compression::Compression;
use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::effect::Effect;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{Call, Context, execute};
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan;
use kvasir_keyspace::rng::Rng;
use kvasir_keyspace::view::{Env, Tally};
use kvasir_keyspace::waiting::Blocking;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::decode::decode;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_resp::value::Value;
use kvasir_structures::compressed::Algorithm;
use kvasir_structures::gate::Gate;

/// The longest string: inputs are short, and what a call makes out of nothing shall be, too.
const TEXT_LEN_MAX: usize = 1 << 16;

pub struct Bench {
    pub keyspace: Keyspace,
    /// The keyspace knows where it stands.
    pub gate: Box<Gate>,
    pub env: Env,
    tally: Tally,
    rng: Rng,
}

impl Bench {
    pub fn new() -> Bench {
        let gate = Box::new(Gate::new(1));
        let env = Env {
            now_ms: 1_700_000_000_000,
            logs: true,
            text_len_max: TEXT_LEN_MAX,
            // RESTORE's strings may be LZF already.
            compression: Compression::new(Algorithm::Lzf, Compression::TEXT_LEN_MIN),
            ..Env::default()
        };
        let keyspace = Keyspace::new(&gate, 2);
        Bench { keyspace, gate, env, tally: Tally::default(), rng: Rng::new(1) }
    }

    /// Runs the calls of a script, whose words have no spaces.
    pub fn script(&mut self, script: &str) {
        for call in script.split("; ") {
            self.call(&call.split(' ').collect::<Vec<_>>());
        }
    }

    /// Runs one call; its reply, which has to be one.
    pub fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Value {
        let args: ArgsBuf = words.iter().collect();
        let mut reply = Reply::new(Protocol::Resp3);
        if let Err(error) = self.run(args.as_args(), &mut reply) {
            reply.clear();
            reply.error_bytes(error.text());
        }
        self.tally.garbage.clear();
        if self.tally.blocked.take().is_some() {
            return Value::Null;
        }
        let (mut bytes, chunks) = reply.take();
        for (at, chunk) in chunks.iter().rev() {
            bytes.splice(*at..*at, chunk.iter().copied());
        }
        decode(&bytes).unwrap_or_else(|error| panic!("{error:?}: {}", bytes.escape_ascii()))
    }

    fn run(&mut self, args: Args<'_>, reply: &mut Reply) -> Result<Effect, Error> {
        let db = DbIndex(0);
        let command = resolve(args).ok_or(Error::SYNTAX)?;
        if !command.spec.accepts_count(args.len()) {
            return Err(Error::wrong_arity(command.spec.name));
        }
        let Bench { gate, keyspace, env, tally, rng, .. } = self;
        if let Run::World(run) = command.run {
            let mut pass = gate.exclusive();
            return run(&mut World { args, db, keyspace, pass: &mut pass, env, tally, reply });
        }
        let mut keys = Vec::new();
        plan::keys(keyspace, command, args, db, &mut keys)?;
        let call = Call { command, args, db, keys: &keys };
        let blocking = Blocking::Never;
        execute(keyspace, &gate.enter(0), &call, Context { env, tally, rng, reply, blocking })
    }
}

fn resolve(args: Args<'_>) -> Option<&'static Command> {
    let named = |command: &&'static Command, word: Option<&[u8]>| {
        word.is_some_and(|word| command.spec.name.as_bytes().eq_ignore_ascii_case(word))
    };
    let command = commands::all().find(|command| named(command, args.get(0)))?;
    let Run::Container(list) = command.run else { return Some(command) };
    list.iter().copied().find(|sub| named(sub, args.get(1)))
}
