//! One turn's requests: parsed from every connection, prefetched in stages, executed in order.
//!
//! A random access to a large keyspace costs three cache misses: slot, bucket, record. Executed one
//! by one, each waits for its own. Here, while one request runs, the record of a later one, the
//! bucket of one behind that and the slot of one still further are on their way, so that the
//! misses overlap with work and with each other.

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_memcached::request::{Call, Limits as ItemLimits};
use kvasir_reactor::clock::ticks;
use kvasir_reactor::{Buffer, ConnectionId, Reactor};
use kvasir_resp::args::Args;
use kvasir_resp::request::{Limits, Parsed, ProtocolError, Span};
use kvasir_structures::gate::Pass;
use kvasir_table::{Entry, NotFound, Table};

use crate::calls::planning::plan_keys;
use crate::net::input::Input;
use crate::state::connection::trace::Parsing;
use crate::state::connection::{Connection, Dialect, REQUESTS_PER_CONNECTION};
use crate::state::shared::Shared;

/// Keys between one step of prefetching and the next: the work on so many takes longer than a
/// cache miss.
const DISTANCE: usize = 6;
/// Keys that are fetched together: where a core has to look up the page of each address, it does so
/// for several at a time if it comes to them one behind the other.
const GROUP: usize = 8;
/// Keys that one step fetches at once, at the start of a batch or behind a call of many keys.
const STEP_MAX: usize = 3 * DISTANCE + GROUP;
/// Requests that a turn of many connections shares out: some milliseconds of work.
const REQUESTS_PER_TURN: usize = 4096;
/// What each of very many connections gets all the same, so that pipelines are not cut to pieces.
const REQUESTS_MIN: usize = 32;

/// Scratch memory of a worker, reused every turn.
#[derive(Default)]
pub struct Batch {
    pub sources: Vec<Source>,
    pub requests: Vec<Request>,
    pub spans: Vec<Span>,
    pub keys: Vec<KeyAt>,
    pub scratch: Vec<u8>,
    /// Calls of clients of memcached.
    pub items: Vec<Call>,
    /// When requests of clients that are traced were parsed, in the order of their numbers.
    parsed: Vec<(u32, Parsing)>,
    last_name: LastName,
}

/// What the requests of one connection are parsed with.
#[derive(Clone, Copy)]
pub struct Parse<'a> {
    pub reactor: &'a Reactor,
    pub shared: &'a Shared,
    pub limits: &'a Limits,
}

/// More words of requests than this have no place in memory between turns.
const SPANS_KEPT_MAX: usize = 64 * 1024;

/// The name of the last call and its command: pipelines repeat it.
#[derive(Default)]
struct LastName {
    packed: u64,
    command: usize,
}

/// Bytes of one connection.
pub struct Source {
    pub connection: ConnectionId,
    pub data: Data,
    /// How far `data` was parsed.
    pub consumed: usize,
    /// Parsing stopped at the turn's limit, not for want of bytes.
    pub has_more: bool,
    /// Its connection has got its bytes back.
    pub is_released: bool,
}

impl Source {
    pub fn new(connection: ConnectionId, data: Data) -> Source {
        Source { connection, data, consumed: 0, has_more: false, is_released: false }
    }

    /// Takes the bytes out of the batch.
    pub fn release(&mut self) -> (ConnectionId, Data) {
        self.is_released = true;
        (self.connection, std::mem::replace(&mut self.data, Data::Own(Input::default())))
    }
}

pub enum Data {
    /// The reactor's own buffer, not copied.
    Direct(Buffer),
    /// The connection's input, taken out for the turn.
    Own(Input),
}

/// A request of the batch.
pub struct Request {
    pub source: u32,
    pub what: What,
    /// Where it ends in its source.
    pub end: usize,
    /// Bytes on the wire.
    pub len: usize,
    /// Its arguments are in the scratch buffer.
    pub is_inline: bool,
    pub spans: (u32, u32),
    pub keys: (u32, u32),
    pub planned_for: Option<DbIndex>,
}

pub enum What {
    /// Index in the command table.
    Call(u16),
    /// A call of a client of memcached: its number in the batch, and the index of the command that
    /// it counts as.
    Item {
        call: u32,
        command: u16,
    },
    /// As `Item`, but answered whatever there is.
    Answered(u32),
    UnknownCommand,
    UnknownSubcommand,
    Malformed(ProtocolError),
}

impl Data {
    pub fn bytes<'a>(&'a self, reactor: &'a Reactor) -> &'a [u8] {
        match self {
            Data::Direct(buffer) => reactor.bytes(buffer),
            Data::Own(input) => input,
        }
    }

    /// What is left when so many bytes were used up; a buffer goes back to the reactor.
    pub fn into_rest(self, consumed: usize, reactor: &mut Reactor) -> Input {
        match self {
            Data::Direct(buffer) => {
                // A malformed request uses up all there is.
                let rest = reactor.bytes(&buffer).get(consumed..).unwrap_or_default();
                let rest = Input::from(rest);
                reactor.recycle(buffer);
                rest
            }
            Data::Own(mut input) => {
                input.use_up(consumed);
                input
            }
        }
    }
}

impl Batch {
    /// Forgets the last turn; the sources were taken out.
    pub fn clear(&mut self) {
        debug_assert!(self.sources.is_empty());
        self.requests.clear();
        self.spans.clear();
        self.keys.clear();
        self.scratch.clear();
        self.items.clear();
        self.parsed.clear();
    }

    /// Gives back what a call of very many words or keys took, once it was made.
    pub fn give_back(&mut self) {
        if self.spans.capacity() > SPANS_KEPT_MAX {
            (self.spans, self.keys, self.scratch) = Default::default();
            self.requests.clear();
        }
    }

    /// Parses what is complete in one source, and plans the keys of every call.
    pub fn parse(
        &mut self,
        source: usize,
        connection: &mut Connection,
        with: Parse<'_>,
        item_size_max: usize,
    ) {
        let Parse { reactor, shared, limits } = with;
        let share = REQUESTS_PER_TURN / self.sources.len();
        let share = share.clamp(REQUESTS_MIN, REQUESTS_PER_CONNECTION);
        let share = share.min(connection.take_turn_max());
        let Dialect::Resp(parser) = &mut connection.wire.parser else {
            let limits = ItemLimits { is_authenticated: limits.authenticated, item_size_max };
            return self.parse_items(source, connection, with, &limits, share);
        };
        let Source { data, consumed, has_more, .. } = &mut self.sources[source];
        let bytes = data.bytes(reactor);
        let is_traced = connection.trace.is_some();
        for _ in 0..share {
            let began = is_traced.then(ticks);
            let first_span = self.spans.len();
            let input = &bytes[*consumed..];
            let parsed = parser.parse(input, &mut self.spans, &mut self.scratch, limits);
            let (length, is_inline) = match parsed {
                Ok(Parsed::Request { consumed }) => (consumed, false),
                Ok(Parsed::Inline { consumed }) => (consumed, true),
                Ok(Parsed::Nothing { consumed: length }) => {
                    *consumed += length;
                    continue;
                }
                Ok(Parsed::Incomplete { .. }) => return,
                Err(error) => {
                    *consumed = bytes.len();
                    return self.requests.push(Request::malformed(source, error));
                }
            };
            let base = *consumed;
            *consumed += length;
            if !is_inline {
                // From here on positions count from the start of the source.
                self.spans[first_span..].iter_mut().for_each(|span| span.start += base as u32);
            }
            let spans = &self.spans[first_span..];
            let args = Args::new(if is_inline { &self.scratch } else { bytes }, spans);
            let first_key = self.keys.len();
            let known = resolve(&mut self.last_name, &shared.table, args);
            let (what, planned_for) =
                plan(known, args, connection.db, &shared.keyspace, &mut self.keys);
            self.requests.push(Request {
                source: source as u32,
                what,
                end: *consumed,
                len: length,
                is_inline,
                spans: (first_span as u32, self.spans.len() as u32),
                keys: (first_key as u32, self.keys.len() as u32),
                planned_for,
            });
            if let Some(began) = began {
                let parsing = Parsing { began, ended: ticks() };
                self.parsed.push((self.requests.len() as u32 - 1, parsing));
            }
        }
        *has_more = *consumed < bytes.len();
    }

    /// When a request was parsed, if its client is traced.
    pub fn parsed(&self, request: usize) -> Option<Parsing> {
        let found = self.parsed.binary_search_by_key(&request, |(index, _)| *index as usize);
        found.ok().map(|at| self.parsed[at].1)
    }

    /// Inline: what is returned through memory and passed on at once would be waited for.
    #[inline(always)]
    pub fn args<'a>(&'a self, request: &Request, reactor: &'a Reactor) -> Args<'a> {
        let all = self.all_words(request, reactor);
        match self.item(request) {
            Some(call) => all.first(call.argument_count(all.len())),
            None => all,
        }
    }

    /// The call of a client of memcached.
    #[inline]
    pub fn item(&self, request: &Request) -> Option<Call> {
        match request.what {
            What::Item { call, .. } | What::Answered(call) => Some(self.items[call as usize]),
            _ => None,
        }
    }

    /// The arguments, and of a meta command the words of its flags.
    #[inline(always)]
    pub fn all_words<'a>(&'a self, request: &Request, reactor: &'a Reactor) -> Args<'a> {
        let spans = &self.spans[request.spans.0 as usize..request.spans.1 as usize];
        let data = &self.sources[request.source as usize].data;
        Args::new(if request.is_inline { &self.scratch } else { data.bytes(reactor) }, spans)
    }

    /// The keys as planned; `None` if that failed or the connection has selected another database
    /// since.
    pub fn keys(&self, request: &Request, db: DbIndex) -> Option<&[KeyAt]> {
        let keys = &self.keys[request.keys.0 as usize..request.keys.1 as usize];
        (request.planned_for == Some(db)).then_some(keys)
    }

    /// Fetches what the calls behind `request` will touch, each step a little further ahead.
    #[inline]
    pub fn look_ahead(
        &self,
        ahead: &mut Lookahead,
        request: &Request,
        keyspace: &Keyspace,
        pass: &Pass<'_>,
    ) {
        self.look_ahead_from(ahead, request.keys.0 as usize, keyspace, pass);
    }

    /// As [`Batch::look_ahead`], from a key on.
    #[inline]
    pub fn look_ahead_from(
        &self,
        ahead: &mut Lookahead,
        now: usize,
        keyspace: &Keyspace,
        pass: &Pass<'_>,
    ) {
        ahead.fetch(&self.keys, now, keyspace, pass);
    }
}

/// How far each step of prefetching has come, in keys of the batch.
#[derive(Default)]
pub struct Lookahead {
    /// The first key behind the last group.
    next: usize,
    slots: Cursor,
    buckets: Cursor,
    records: Cursor,
}

impl Lookahead {
    /// Fetches what calls will touch that stand behind the one whose first key is `now`.
    #[inline]
    pub fn fetch(&mut self, keys: &[KeyAt], now: usize, keyspace: &Keyspace, pass: &Pass<'_>) {
        if now < self.next {
            return;
        }
        self.next = now + GROUP;
        let slot = |key: &KeyAt| keyspace.database(key.db, pass).slot(key.slot);
        for key in self.slots.advance(keys, self.next + 3 * DISTANCE) {
            slot(key).prefetch();
        }
        for key in self.buckets.advance(keys, self.next + 2 * DISTANCE) {
            slot(key).prefetch_buckets(key.hash, pass);
        }
        for key in self.records.advance(keys, self.next + DISTANCE) {
            slot(key).prefetch_record(key.hash, pass);
        }
    }
}

#[derive(Default)]
struct Cursor(usize);

impl Cursor {
    /// The keys from here to `end`; a call of many keys is prefetched in part only.
    #[inline]
    fn advance<'k>(&mut self, keys: &'k [KeyAt], end: usize) -> &'k [KeyAt] {
        let end = end.min(keys.len());
        let start = self.0.max(end.saturating_sub(STEP_MAX)).min(end);
        self.0 = end;
        &keys[start..end]
    }
}

impl Request {
    fn malformed(source: usize, error: ProtocolError) -> Request {
        Request {
            source: source as u32,
            what: What::Malformed(error),
            end: usize::MAX,
            len: 0,
            is_inline: false,
            spans: (0, 0),
            keys: (0, 0),
            planned_for: None,
        }
    }
}

/// What a request is; the keys of a call are appended, and it is said for which database.
#[inline]
fn plan(
    known: Result<&Entry, NotFound>,
    args: Args<'_>,
    db: DbIndex,
    keyspace: &Keyspace,
    keys: &mut Vec<KeyAt>,
) -> (What, Option<DbIndex>) {
    match known {
        Err(NotFound::Command) => (What::UnknownCommand, Some(db)),
        Err(NotFound::Subcommand) => (What::UnknownSubcommand, Some(db)),
        Ok(entry) => {
            // An error is found again, and reported, when the call's turn comes.
            let is_planned = plan_keys(entry, args, db, keyspace, keys).is_ok();
            (What::Call(entry.index as u16), is_planned.then_some(db))
        }
    }
}

/// As `Table::resolve`, at the cost of a comparison where the call before had the same name.
#[inline]
fn resolve<'t>(
    last: &mut LastName,
    table: &'t Table,
    args: Args<'_>,
) -> Result<&'t Entry, NotFound> {
    let packed = pack(args.name());
    if packed != 0 && packed == last.packed {
        return Ok(&table.entries()[last.command]);
    }
    let entry = table.resolve(args)?;
    let is_subcommand = entry.full_name.len() != entry.spec.name.len();
    if entry.subcommands.is_empty() && !is_subcommand {
        *last = LastName { packed, command: entry.index };
    }
    Ok(entry)
}

/// A name of 1 to 7 bytes as one word, 0 for any other.
#[inline]
fn pack(name: &[u8]) -> u64 {
    match name.len() {
        len @ 1..=7 => name.iter().fold(len as u64, |word, byte| word << 8 | u64::from(*byte)),
        _ => 0,
    }
}
