//! Calls that wait for streams: what wakes them, and what they answer then.

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_structures::gate::Gate;

use crate::command::{Command, Run};
use crate::commands;
use crate::database::Keyspace;
use crate::execute::{Call, Context, execute};
use crate::place::DbIndex;
use crate::plan;
use crate::rng::Rng;
use crate::testing::split;
use crate::view::{Env, Tally};
use crate::waiting::{Blocked, Blocking, Caller, Server, serve};

/// A keyspace whose clients may wait.
struct Waiters {
    gate: &'static Gate,
    keyspace: Keyspace,
    env: Env,
    tally: Tally,
    rng: Rng,
}

impl Waiters {
    fn new() -> Waiters {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new(1)));
        Waiters {
            gate,
            keyspace: Keyspace::new(gate, 16),
            env: Env { now_ms: 1_000, ..Env::default() },
            tally: Tally::default(),
            rng: Rng::new(1),
        }
    }

    /// Runs a call of client 0; its reply, then those of the clients that it woke.
    fn ask(&mut self, call: &str) -> Vec<String> {
        let mut replies: Vec<String> = self.call(0, call).into_iter().collect();
        let Waiters { gate, keyspace, env, tally, rng } = self;
        let pass = gate.enter(0);
        serve(Server { keyspace, pass: &pass, env, tally, rng }, &mut |waiter, answer| {
            replies.push(format!("{}: {}", waiter.caller.client, text(&answer.reply)));
        });
        replies
    }

    /// Runs a call of a client that has to wait.
    fn wait(&mut self, client: u64, call: &str) {
        assert_eq!(self.call(client, call), None, "{call} has nothing to wait for");
    }

    fn call(&mut self, client: u64, call: &str) -> Option<String> {
        let args: ArgsBuf = split(call).remove(0);
        let (command, args) = (command(&args), args.as_args());
        let Waiters { gate, keyspace, env, tally, rng } = self;
        let (mut reply, mut keys) = (Reply::new(Protocol::Resp2), Vec::new());
        plan::keys(keyspace, command, args, DbIndex(0), &mut keys).unwrap();
        let call = Call { command, args, db: DbIndex(0), keys: &keys };
        let blocking = Blocking::For(Caller { client, worker: 0, connection: 0 });
        let context = Context { env, tally, rng, reply: &mut reply, blocking };
        execute(keyspace, &gate.enter(0), &call, context).unwrap();
        match self.tally.blocked.take() {
            Some(Blocked::Waits(_)) => None,
            Some(Blocked::Still | Blocked::Locked) => {
                panic!("a new call waits, it does not go on waiting")
            }
            None => Some(text(&reply)),
        }
    }
}

fn command(args: &ArgsBuf) -> &'static Command {
    let args = args.as_args();
    let named = |command: &&'static Command, word: &[u8]| {
        command.spec.name.as_bytes().eq_ignore_ascii_case(word)
    };
    let command = commands::all().find(|command| named(command, &args[0])).unwrap();
    match command.run {
        Run::Container(list) => list.iter().find(|sub| named(sub, &args[1])).unwrap(),
        _ => command,
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.to_vec()).unwrap().trim_end().replace("\r\n", " ")
}

const ENTRY: &str = "*1 *2 $1 s *1 *2 $3 5-1 *2 $1 a $1 1";

#[test]
fn an_entry_wakes_every_reader() {
    let mut clients = Waiters::new();
    clients.wait(1, "XREAD BLOCK 0 STREAMS s 0");
    clients.wait(2, "XREAD BLOCK 100 STREAMS t s $ $");
    clients.wait(3, "XREAD BLOCK 0 STREAMS s 7");
    let woken = [format!("1: {ENTRY}"), format!("2: {ENTRY}")];
    assert_eq!(clients.ask("XADD s 5-1 a 1"), [&["$3 5-1".to_string()], &woken[..]].concat());
    let replies = clients.ask("XADD s 8-1 a 1");
    assert_eq!(replies[1..], ["3: *1 *2 $1 s *1 *2 $3 8-1 *2 $1 a $1 1"]);
}

#[test]
fn the_dollar_is_what_it_was() {
    let mut clients = Waiters::new();
    clients.ask("XADD s 4-1 a 1");
    clients.wait(1, "XREAD BLOCK 0 STREAMS s $");
    // Gone before it was read; the reader waits for what comes next.
    assert_eq!(clients.ask("XADD s MAXLEN 0 4-2 a 1"), ["$3 4-2"]);
    assert_eq!(clients.ask("XADD s 5-1 a 1")[1..], [format!("1: {ENTRY}")]);
}

#[test]
fn an_entry_goes_to_one_of_a_group() {
    let mut clients = Waiters::new();
    clients.ask("XGROUP CREATE s g 0 MKSTREAM");
    clients.ask("XGROUP CREATE s h 0");
    clients.wait(1, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    clients.wait(2, "XREADGROUP GROUP g d BLOCK 0 STREAMS s >");
    clients.wait(3, "XREADGROUP GROUP h c BLOCK 0 STREAMS s >");
    let woken = [format!("1: {ENTRY}"), format!("3: {ENTRY}")];
    assert_eq!(clients.ask("XADD s 5-1 a 1")[1..], woken);
    assert_eq!(clients.ask("XADD s 6-1 a 1").len(), 2, "client 2 was next");
}

#[test]
fn who_waits_does_not_hold_up_another_group() {
    let mut clients = Waiters::new();
    clients.ask("XADD s 5-1 a 1");
    clients.ask("XGROUP CREATE s g $");
    clients.ask("XGROUP CREATE s h 0");
    clients.wait(1, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    assert_eq!(clients.ask("XREADGROUP GROUP h c BLOCK 0 STREAMS s >"), [ENTRY]);
}

#[test]
fn a_group_that_goes_away_is_reported() {
    let gone = "1: -NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    let wrong = "1: -WRONGTYPE Operation against a key holding the wrong kind of value";
    let ends =
        [("XGROUP DESTROY s g", gone), ("DEL s", gone), ("SET s v", wrong), ("RENAME s t", gone)];
    for (call, reply) in ends {
        let mut clients = Waiters::new();
        clients.ask("XGROUP CREATE s g 0 MKSTREAM");
        clients.wait(1, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        clients.wait(2, "XREAD BLOCK 0 STREAMS s 0");
        let replies = clients.ask(call);
        assert_eq!(replies[1..], [reply], "{call}");
    }
}

#[test]
fn a_consumer_exists_while_it_waits() {
    let mut clients = Waiters::new();
    clients.ask("XGROUP CREATE s g 0 MKSTREAM");
    clients.wait(1, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    assert_eq!(clients.ask("XGROUP CREATECONSUMER s g c"), [":0"]);
    // Deleted meanwhile, it is back with the next entry only.
    clients.ask("XGROUP DELCONSUMER s g c");
    clients.ask("XADD s MAXLEN 0 4-1 a 1");
    assert_eq!(clients.ask("XGROUP DELCONSUMER s g c"), [":0"]);
    assert_eq!(clients.ask("XADD s 5-1 a 1").len(), 2);
    assert_eq!(clients.ask("XGROUP CREATECONSUMER s g c"), [":0"]);
}
