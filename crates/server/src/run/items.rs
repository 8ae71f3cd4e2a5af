//! Clients of memcached's protocol: their requests in a batch, and how these are run.
//!
//! A call passes the same checks as a call of the Redis command that it counts as, and is told to
//! the same: monitors, the slow log, caches, notifications. Of a `get` of many keys each is looked
//! up on its own, as the batch has prefetched it.

use std::cell::Cell;

use kvasir_keyspace::command::{Run, World};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::execute::{KeyCall, execute_on_key, execute_world};
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::spec::Flags;
use kvasir_memcached::expiry::Expiry;
use kvasir_memcached::item::{Count, Cx, say};
use kvasir_memcached::request::{Call, Limits, Parsed, Where};
use kvasir_memcached::{change, fetch, meta_call, store};
use kvasir_pubsub::post::Origin;
use kvasir_reactor::{Reactor, signal};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Reply;
use kvasir_table::{Entry, Handler};

use crate::calls::admit::{Moment, Scene, admit_later};
use crate::calls::blocking::settle;
use crate::calls::fence;
use crate::calls::invocation::Invocation;
use crate::calls::login::log_in;
use crate::log::notice;
use crate::run::batch::{Batch, Lookahead, Parse, Request, What};
use crate::run::runner::Runner;
use crate::run::worker::Worker;
use crate::run::{item_dump, item_stats};
use crate::state::connection::{Connection, Dialect};
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::stats::prefixes::Deed;
use crate::store::Store;
use crate::workers::Message;

/// Where clients of memcached work.
const DB: DbIndex = DbIndex(0);

/// A request of such a client, and what it asks for.
#[derive(Clone, Copy)]
pub struct Item<'b> {
    pub batch: &'b Batch,
    pub request: &'b Request,
    pub asks: Call,
}

/// A call that was parsed: where its words are, and its bytes on the wire.
struct Found {
    call: Call,
    args: Where,
    first_span: usize,
    len: usize,
}

impl Batch {
    /// As `parse`, of a client of memcached.
    pub fn parse_items(
        &mut self,
        source: usize,
        connection: &mut Connection,
        with: Parse<'_>,
        limits: &Limits,
        most: usize,
    ) {
        let reactor = with.reactor;
        // Whoever logs in is read anew behind that.
        let most = if limits.is_authenticated { most } else { 1 };
        let Dialect::Memcached(parser) = &mut connection.wire.parser else {
            unreachable!("the caller looked");
        };
        for _ in 0..most {
            let Batch { sources, spans, scratch, .. } = self;
            let bytes = sources[source].data.bytes(reactor);
            let base = sources[source].consumed;
            let first = spans.len();
            let parsed = parser.parse(&bytes[base..], spans, scratch, limits);
            let found = match parsed {
                Parsed::Incomplete => return,
                Parsed::Nothing { consumed } => {
                    self.sources[source].consumed += consumed;
                    continue;
                }
                Parsed::Call { consumed: len, call, args } => {
                    Found { call, args, first_span: first, len }
                }
            };
            if found.args == Where::Input {
                spans[first..].iter_mut().for_each(|span| span.start += base as u32);
            }
            self.sources[source].consumed += found.len;
            self.add_item(source, with, found);
        }
        let Batch { sources, .. } = self;
        sources[source].has_more =
            sources[source].consumed < sources[source].data.bytes(reactor).len();
    }

    fn add_item(&mut self, source: usize, with: Parse<'_>, found: Found) {
        let Found { call, args: place, first_span, len } = found;
        let spans = (first_span as u32, self.spans.len() as u32);
        let first_key = self.keys.len();
        let bytes = match place {
            Where::Scratch => &self.scratch[..],
            Where::Input => self.sources[source].data.bytes(with.reactor),
        };
        let args = Args::new(bytes, &self.spans[first_span..]);
        let args = args.first(call.argument_count(args.len()));
        self.keys.extend((1..key_end(call, args)).map(|arg| KeyAt::new(args, arg, DB)));
        let what = match with.shared.memcached.command_of(call, args) {
            Some(command) => What::Item { call: self.items.len() as u32, command },
            None => What::Answered(self.items.len() as u32),
        };
        self.items.push(call);
        self.requests.push(Request {
            source: source as u32,
            what,
            end: self.sources[source].consumed,
            len,
            is_inline: place == Where::Scratch,
            spans,
            keys: (first_key as u32, self.keys.len() as u32),
            planned_for: Some(DB),
        });
    }

    /// The words of flags behind the arguments of a meta command.
    fn flag_words<'a>(&'a self, request: &Request, call: Call, reactor: &'a Reactor) -> Args<'a> {
        let all = self.all_words(request, reactor);
        all.from(call.flags_at().unwrap_or(all.len()))
    }
}

/// The argument behind the last key.
fn key_end(call: Call, args: Args<'_>) -> usize {
    match call {
        Call::Get { .. } | Call::GetAndTouch { .. } => args.len(),
        Call::Say(_)
        | Call::SayAndClose(_)
        | Call::Binary
        | Call::Quit
        | Call::Stats
        | Call::Dump { .. }
        | Call::DumpAll { .. }
        | Call::MemoryLimit { .. }
        | Call::Shutdown { .. }
        | Call::FlushAll { .. }
        | Call::Login => 1,
        _ => 2.min(args.len()),
    }
}

/// Answers what needs no data.
pub fn answer(connection: &mut Connection, call: Call, args: Args<'_>) {
    match call {
        Call::Say(text) => say(&mut connection.reply, text, false),
        Call::SayAndClose(text) => {
            say(&mut connection.reply, text, false);
            connection.is_closing = true;
        }
        Call::Quit => connection.is_closing = true,
        Call::Binary => {
            refuse_binary(&mut connection.reply, args.name());
            connection.is_closing = true;
        }
        _ => unreachable!("it counts as a command"),
    }
}

/// A message of the binary protocol that says that it is not spoken: who speaks it understands.
fn refuse_binary(reply: &mut Reply, asked: &[u8]) {
    const TEXT: &[u8] = b"the binary protocol is not supported, use the text protocol";
    const NOT_SUPPORTED: u8 = 0x83;
    let mut header = [0; 24];
    // The command and the opaque token come back, so that it finds what was refused.
    for at in [1, 12, 13, 14, 15] {
        header[at] = asked.get(at).copied().unwrap_or(0);
    }
    (header[0], header[7], header[11]) = (0x81, NOT_SUPPORTED, TEXT.len() as u8);
    reply.raw(&header);
    reply.raw(TEXT);
}

impl Runner<'_> {
    /// Runs a call on its keys, or what it is about otherwise.
    pub fn run_item(
        &mut self,
        connection: &mut Connection,
        item: Item<'_>,
        call: &Invocation<'_>,
        ahead: &mut Lookahead,
    ) -> Result<(), Error> {
        let args = call.args;
        match item.asks {
            Call::FlushAll { delay, is_quiet } => self.flush_all(connection, delay, is_quiet),
            Call::Stats => {
                item_stats::write(self.shared, self.core, self.pass.as_ref(), connection, args);
                Ok(())
            }
            Call::Dump { limit } => {
                item_dump::write(self.shared, self.core, self.pass.as_ref(), connection, limit)
            }
            Call::DumpAll { has_first } => {
                item_dump::begin(self.core, connection, has_first);
                Ok(())
            }
            Call::MemoryLimit { megabytes, is_quiet } => {
                self.limit_memory(connection, megabytes, is_quiet)
            }
            Call::Shutdown { is_right } => {
                shut_down(self.core, connection, is_right);
                Ok(())
            }
            Call::Login => {
                self.log_in(connection, args);
                Ok(())
            }
            _ => self.run_keys(connection, item, call, ahead),
        }
    }

    fn run_keys(
        &mut self,
        connection: &mut Connection,
        item: Item<'_>,
        call: &Invocation<'_>,
        ahead: &mut Lookahead,
    ) -> Result<(), Error> {
        let (Item { batch, request, asks }, Invocation { entry, args, .. }) = (item, *call);
        let words = batch.flag_words(request, asks, self.reactor);
        let is_read_only = entry.spec.flags.contains(Flags::READONLY);
        let keys = batch.keys(request, DB).unwrap_or_default();
        if keys.len() > 1 && !connection.access.is_free(&self.shared.acl) {
            self.check_each(connection, entry, args)?;
        }
        self.core.env.touches = true;
        let Some(pass) = &self.pass else { return Err(self.shared.keyspace.busy.error()) };
        let stats = &self.shared.workers[self.worker].stats.memcached;
        let is_hit = Cell::new(false);
        let count = |count: Count| {
            is_hit.set(matches!(count, Count::GetHits | Count::TouchHits));
            stats[count as usize].add(1);
        };
        let counts_prefixes = self.shared.memcached.counts_prefixes();
        let item_size_max = self.core.config.memcached.item_size_max as usize;
        for (index, key) in keys.iter().enumerate() {
            if index > 0 {
                let (keyspace, at) = (&self.shared.keyspace, request.keys.0 as usize + index);
                batch.look_ahead_from(ahead, at, keyspace, pass);
            }
            let Core { env, tally, .. } = &mut *self.core;
            let reply = &mut connection.reply;
            let target = KeyCall { args, key, is_read_only };
            let expired = tally.expired;
            execute_on_key(&self.shared.keyspace, pass, target, env, tally, |view| {
                run(&mut Cx { view, reply, count: &count, item_size_max }, asks, args, words);
            })?;
            if self.core.tally.expired > expired && matches!(entry.spec.name, "get" | "mget") {
                count(Count::GetExpired);
            }
            if counts_prefixes {
                self.count_prefix(asks, &args[index + 1], is_hit.get());
            }
        }
        if matches!(asks, Call::Get { .. } | Call::GetAndTouch { .. }) {
            connection.reply.raw(b"END\r\n");
        }
        settle(self.shared, self.worker, self.core, pass, connection);
        Ok(())
    }

    /// As `stats detail` has it: of classic calls those that get, set or delete.
    #[cold]
    fn count_prefix(&self, asks: Call, key: &[u8], is_hit: bool) {
        let deed = match asks {
            Call::Get { .. } | Call::GetAndTouch { .. } => Deed::Get { is_hit },
            Call::Store(_) | Call::TooLarge { .. } => Deed::Set,
            Call::Delete { .. } => Deed::Delete,
            _ => return,
        };
        let delimiter = self.core.config.memcached.delimiter();
        self.shared.workers[self.worker].stats.prefixes.count(key, delimiter, deed);
    }

    /// What was admitted with the first key, with each of the others.
    #[cold]
    fn check_each(
        &self,
        connection: &mut Connection,
        entry: &Entry,
        args: Args<'_>,
    ) -> Result<(), Error> {
        let scene = Scene { shared: self.shared, worker: self.worker, core: self.core };
        for key in args.from(2).iter() {
            let call: ArgsBuf = [entry.spec.name.as_bytes(), key].into_iter().collect();
            admit_later(scene, connection, entry, call.as_args(), Moment::Arrival)?;
        }
        Ok(())
    }

    fn log_in(&mut self, connection: &mut Connection, args: Args<'_>) {
        let stats = &self.shared.workers[self.worker].stats.memcached;
        stats[Count::Logins as usize].add(1);
        let mut words = args[2].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let (Some(name), Some(password)) = (words.next(), words.next()) else {
            let text = "CLIENT_ERROR bad authentication token format";
            return say(&mut connection.reply, text, false);
        };
        let scene = Scene { shared: self.shared, worker: self.worker, core: self.core };
        let is_right = log_in(scene, connection, &args[0], name, password).is_ok();
        if !is_right {
            stats[Count::LoginErrors as usize].add(1);
        }
        let text = if is_right { "STORED" } else { "CLIENT_ERROR authentication failure" };
        say(&mut connection.reply, text, false);
    }

    #[cold]
    fn limit_memory(
        &mut self,
        connection: &mut Connection,
        megabytes: u64,
        is_quiet: bool,
    ) -> Result<(), Error> {
        let entry = &self.shared.table.entries()[self.shared.memcached.configure_command()];
        let Handler::Server(of) = entry.handler else { unreachable!("it is about the server") };
        let bytes = (megabytes << 20).to_string();
        let call: ArgsBuf = ["CONFIG", "SET", "maxmemory", &bytes].into_iter().collect();
        let mark = connection.reply.mark();
        self.run_server(connection, self.run_of(of), call.as_args())?;
        connection.reply.truncate(mark);
        say(&mut connection.reply, "OK", is_quiet);
        Ok(())
    }

    /// Now, or when the delay is over.
    fn flush_all(
        &mut self,
        connection: &mut Connection,
        delay: i32,
        is_quiet: bool,
    ) -> Result<(), Error> {
        let now_ms = self.core.env.now_ms;
        self.shared.workers[self.worker].stats.memcached[Count::Flushes as usize].add(1);
        if !self.core.config.memcached.flush_all {
            say(&mut connection.reply, "CLIENT_ERROR flush_all not allowed", is_quiet);
            return Ok(());
        }
        match Expiry::of(delay, now_ms) {
            Expiry::At(at_ms) => {
                self.shared.memcached.set_flush_at(at_ms);
                self.shared.send(0, Message::Look);
            }
            Expiry::Never | Expiry::Past => {
                self.shared.memcached.set_flush_at(0);
                let mark = connection.reply.mark();
                let call: ArgsBuf = ["FLUSHDB"].iter().collect();
                self.run_world(connection, flush_function(self.shared), call.as_args())?;
                connection.reply.truncate(mark);
            }
        }
        say(&mut connection.reply, "OK", is_quiet);
        Ok(())
    }
}

/// One call on one key.
fn run(cx: &mut Cx<'_, '_, '_>, call: Call, args: Args<'_>, words: Args<'_>) {
    match call {
        Call::Get { with_id } => fetch::get(cx, with_id),
        Call::GetAndTouch { with_id, exptime } => fetch::get_and_touch(cx, with_id, exptime),
        Call::Store(new) => store::store(cx, &args[2], new),
        Call::TooLarge { is_quiet } => store::refuse(cx, is_quiet),
        Call::Delta { is_increment, delta, is_quiet } => {
            change::delta(cx, is_increment, delta, is_quiet);
        }
        Call::Touch { exptime, is_quiet } => change::touch(cx, exptime, is_quiet),
        Call::Delete { is_quiet } => change::delete(cx, is_quiet),
        Call::MetaGet(flags) => meta_call::get(cx, &flags, words),
        Call::MetaSet(flags, mode) => meta_call::set(cx, &args[2], &flags, mode, words),
        Call::MetaDelete(flags) => meta_call::delete(cx, &flags, words),
        Call::MetaArithmetic(flags, up) => meta_call::arithmetic(cx, &flags, up, words),
        Call::MetaDebug => meta_call::debug(cx, !words.is_empty()),
        Call::Say(_)
        | Call::SayAndClose(_)
        | Call::Binary
        | Call::Login
        | Call::FlushAll { .. }
        | Call::Stats
        | Call::Dump { .. }
        | Call::DumpAll { .. }
        | Call::MemoryLimit { .. }
        | Call::Shutdown { .. }
        | Call::Quit => unreachable!("it has no keys"),
    }
}

/// Ends the server as SIGTERM does, if the configuration lets clients do so.
#[cold]
fn shut_down(core: &Core, connection: &mut Connection, is_right: bool) {
    let reply = &mut connection.reply;
    if !core.config.memcached.shutdown {
        return say(reply, "ERROR: shutdown not enabled", false);
    }
    if !is_right {
        return say(reply, "CLIENT_ERROR invalid shutdown mode", false);
    }
    let client = &connection.client;
    notice!("a client of memcached ends the server id={} addr={}", client.id, client.address);
    connection.is_closing = true;
    signal::request_shutdown();
}

type Flush = fn(&mut World<'_, '_>) -> Result<kvasir_keyspace::effect::Effect, Error>;

fn flush_function(shared: &Shared) -> Flush {
    let entry = &shared.table.entries()[shared.memcached.flush_command()];
    match entry.handler {
        Handler::Data(command) => match command.run {
            Run::World(run) => run,
            _ => unreachable!("FLUSHDB needs the gate closed"),
        },
        Handler::Server(_) => unreachable!("FLUSHDB is about data"),
    }
}

impl Worker {
    /// How long it is until database 0 has to be flushed, where this worker is to do it.
    pub fn next_flush_ms(&self) -> Option<u64> {
        if self.index == 0 { self.shared.memcached.flush_at_ms() } else { None }
    }

    /// Flushes database 0 once the time that a client said has come.
    pub fn flush_when_due(&mut self) {
        let Worker { index, shared, core, .. } = self;
        if *index != 0 || !shared.memcached.take_due(core.env.now_ms) {
            return;
        }
        let Store { gate, keyspace, replication, .. } = &shared.store;
        if replication.upstream.is_replica() {
            return;
        }
        let Some(mut pass) = gate.exclusive_unless(|| keyspace.busy.is_busy()) else {
            return shared.memcached.set_flush_at(core.env.now_ms + 1);
        };
        core.see_listeners(shared);
        let args: ArgsBuf = ["FLUSHDB"].iter().collect();
        let mut reply = Reply::default();
        let world = &mut World {
            args: args.as_args(),
            db: DB,
            keyspace,
            pass: &mut pass,
            env: &core.env,
            tally: &mut core.tally,
            reply: &mut reply,
        };
        let result = execute_world(flush_function(shared), world);
        debug_assert!(result.is_ok(), "nothing is wrong with the call");
        drop(pass);
        if core.env.tracks {
            let origin = Origin { worker: *index, fence: fence::of_news(core) };
            shared.tracking.flush(&shared.clients, origin);
        }
    }
}
