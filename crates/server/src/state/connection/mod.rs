//! A connection as its worker sees it.

pub mod fence;
pub mod input;
pub mod link;
pub mod messages;
pub mod output;
pub mod pause;
pub mod trace;
pub mod tracking;
pub mod transaction;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_acl::access::Access;
use kvasir_config::aof::Fsync;
use kvasir_config::replication::Quorum;
use kvasir_keyspace::place::DbIndex;
use kvasir_pubsub::subscriptions::Subscriptions;
use kvasir_reactor::ConnectionId;
use kvasir_reactor::ring::Ring;
use kvasir_resp::reply::{Mark, Protocol, Reply};
use kvasir_resp::request::Parser;

use crate::clients::Client;
use crate::clients::monitors::Monitors;
use crate::clients::tracker::Tracked;
use crate::net::input::Input;
use crate::net::tls::transport::Tls;
use crate::replicas::Stage;
use crate::scripts::state::{Awaited, DebugMode};
use crate::state::connection::link::Link;
use crate::state::connection::trace::Traced;
use crate::state::connection::tracking::EvictedNews;
use crate::state::connection::transaction::{Transaction, Watched};
use crate::state::waits::{Dump, Waits};

/// Requests of one connection in one turn; the rest waits, so that others get theirs.
pub const REQUESTS_PER_CONNECTION: usize = 1024;

/// State of one connection; an idle one owns no buffer.
///
/// What belongs together is a part of its own, each looked after by those that its comment names.
pub struct Connection {
    pub id: ConnectionId,
    pub client: Arc<Client>,
    pub kind: ClientKind,
    pub db: DbIndex,
    /// Who it is.
    pub access: Access,
    pub reply: Reply,
    /// Its call runs others: there is a part of a reply, into which no message may get.
    pub in_session: bool,
    /// It has a place beyond `maxclients`, and has not shown yet that there are some for it.
    pub is_on_trial: bool,
    /// Executes nothing more, and closes once everything was sent.
    pub is_closing: bool,
    pub wire: Wire,
    pub output: Output,
    pub listening: Listening,
    pub multi: Multi,
    /// SCRIPT DEBUG.
    pub debug_mode: Option<DebugMode>,
    pub waiting: Waiting,
    pub durability: Durability,
    pub routing: Routing,
    /// While somebody traces it.
    pub trace: Option<Box<Traced>>,
    /// Of one that replicates.
    pub link: Option<Box<Link>>,
}

/// What stands at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientKind {
    Normal,
    /// It has subscribed to something.
    Subscriber,
    /// It replicates this server's data.
    Replica,
}

/// What comes in, until it is executed: the worker receives it, the batch parses it.
pub struct Wire {
    /// `None` on a connection that is not encrypted.
    pub tls: Option<Box<Tls>>,
    pub parser: Dialect,
    /// Received and not yet executed: the rest of a request, or more than one turn's share.
    pub input: Input,
    /// Requests that a turn parses: about as many as its share of one is enough for, since what is
    /// left is parsed again.
    pub turn_max: usize,
    /// Of the batch at work: where what was executed ends, if more was parsed.
    pub stopped_at: Option<usize>,
    /// Of the batch at work: has a source in it already.
    pub in_round: bool,
    /// Receiving is stopped until `input` was worked off.
    pub is_paused: bool,
    /// Nothing more comes from it: it closes when what has come is executed.
    pub has_ended: bool,
}

/// What it speaks, and how far a request was read.
pub enum Dialect {
    Resp(Parser),
    Memcached(kvasir_memcached::request::Parser),
}

impl Dialect {
    /// Whether it is memcached's protocol.
    pub fn is_memcached(&self) -> bool {
        matches!(self, Dialect::Memcached(_))
    }

    /// The next request begins at its beginning.
    fn begin_again(&mut self) {
        match self {
            Dialect::Resp(parser) => *parser = Parser::default(),
            Dialect::Memcached(parser) => *parser = Default::default(),
        }
    }
}

/// How replies go out: the worker sends them, and limits what waits.
#[derive(Default)]
pub struct Output {
    pub replies: Replies,
    /// A payload is with the reactor.
    pub is_sending: bool,
    /// How long that is.
    pub sending_bytes: usize,
    /// Goes out with the reply that tells of it; from then on everything comes and goes through it.
    pub ring: Option<Box<Ring>>,
    /// Since when more waits to be sent than the soft limit allows.
    pub over_soft_since_ms: Option<u64>,
    /// What its call collected was more than the hard limit allows.
    pub is_beyond_limit: bool,
    /// In the list of those that have something to send.
    pub is_dirty: bool,
    /// What the connection takes up, as the sum over all clients has it.
    pub counted_bytes: usize,
}

/// What it is told of besides the replies to its calls: messages, invalidations, others' calls.
#[derive(Default)]
pub struct Listening {
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The number of the first message published for its worker that it has not been given yet.
    pub next_message: u64,
    /// Messages that have to stand behind the reply to the call at work.
    pub late: Option<Box<Reply>>,
    /// CLIENT TRACKING.
    pub tracking: Option<Box<Tracked>>,
    /// What it is told of evicted keys, and was not sent yet.
    pub evicted: Option<Box<EvictedNews>>,
    pub is_monitor: bool,
    /// CLIENT TRACE.
    pub is_tracer: bool,
}

/// MULTI and WATCH.
#[derive(Default)]
pub struct Multi {
    /// What is queued since MULTI.
    pub transaction: Option<Box<Transaction>>,
    pub watched: Option<Box<Watched>>,
}

/// Why it executes nothing for now.
#[derive(Default)]
pub struct Waiting {
    /// Its last call waits for a key; until that is answered nothing else is executed.
    pub waits: Option<Box<Waits>>,
    /// Its call was put off by CLIENT PAUSE; nothing else is executed either.
    pub is_postponed: bool,
    /// What its call about scripts waits for.
    pub awaits_scripts: Option<Awaited>,
}

/// How far the log must be on disk for what it was told, or is to be told.
#[derive(Default)]
pub struct Durability {
    /// Nothing is sent before the log is on disk up to here.
    pub fence: u64,
    /// In its worker's list of those who wait for that, ...
    pub is_held_back: bool,
    /// ...and of those who have gone.
    pub is_gone: bool,
    /// The offset behind what it last wrote to the log.
    pub written_to: u64,
    /// CLIENT DURABILITY, if it asks for more than the server does for everybody, ...
    pub wish: Option<Fsync>,
    /// ...and the replicas that it asks for.
    pub quorum: Quorum,
    /// Replicas were last asked how far they are for this fence.
    pub asked: u64,
}

/// What a client of a cluster has said about where its calls may run.
#[derive(Default)]
pub struct Routing {
    pub asks: Asks,
    /// READONLY: it takes what a replica has.
    pub reads_replicas: bool,
}

/// ASKING.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Asks {
    #[default]
    No,
    /// The next call was sent here by an -ASK.
    Next,
    /// The call at work was, or the transaction.
    This,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Replies {
    #[default]
    On,
    Off,
    /// The reply to the next command is dropped.
    SkipNext,
    /// The reply to the command that runs is dropped.
    SkipThis,
}

impl Connection {
    /// Whether it is a replica's, which has asked for the data.
    #[inline]
    pub fn is_replicating(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.stage() != Stage::Greeting)
    }

    pub fn new(id: ConnectionId, client: Arc<Client>, access: Access) -> Connection {
        Connection {
            id,
            client,
            kind: ClientKind::Normal,
            db: DbIndex(0),
            access,
            reply: Reply::new(Protocol::Resp2),
            in_session: false,
            is_on_trial: false,
            is_closing: false,
            wire: Wire {
                tls: None,
                parser: Dialect::Resp(Parser::default()),
                input: Input::default(),
                turn_max: REQUESTS_PER_CONNECTION,
                stopped_at: None,
                in_round: false,
                is_paused: false,
                has_ended: false,
            },
            output: Output::default(),
            listening: Listening::default(),
            multi: Multi::default(),
            debug_mode: None,
            waiting: Waiting::default(),
            durability: Durability::default(),
            routing: Routing::default(),
            trace: None,
            link: None,
        }
    }

    /// A call begins, which ASKING may be about.
    pub fn begin_call(&mut self) {
        if self.routing.asks == Asks::Next {
            self.routing.asks = Asks::This;
        }
    }

    /// A call has ended. A transaction goes on being about what ASKING said.
    pub fn end_call(&mut self) {
        if self.routing.asks == Asks::This && self.multi.transaction.is_none() {
            self.routing.asks = Asks::No;
        }
    }

    /// Whether the reply to the next command is dropped; CLIENT REPLY SKIP is used up by it.
    pub fn mute(&mut self) -> bool {
        if self.output.replies == Replies::SkipNext {
            self.output.replies = Replies::SkipThis;
        }
        self.output.replies != Replies::On
    }

    /// Drops the reply to a command that was muted and has not turned replies on.
    pub fn unmute(&mut self, mark: Mark) {
        if self.output.replies != Replies::On {
            self.reply.truncate(mark);
        }
        if self.output.replies == Replies::SkipThis {
            self.output.replies = Replies::On;
        }
    }

    /// Keeps what comes while nothing is executed.
    pub fn keep_input(&mut self, bytes: &[u8]) {
        self.wire.input.append(bytes);
        self.client.input_bytes.store(self.wire.input.len(), Relaxed);
    }

    /// Puts what was not executed before what has come meanwhile.
    pub fn put_back(&mut self, mut rest: Input) {
        rest.append(&self.wire.input);
        self.wire.input = rest;
    }

    /// How far a source is used up of which this much was parsed. What stands behind
    /// `stopped_at` is parsed again.
    pub fn used_up_to(&mut self, consumed: usize) -> usize {
        match self.wire.stopped_at.take() {
            None => consumed,
            Some(end) => {
                self.wire.parser.begin_again();
                end
            }
        }
    }

    /// Executes no more of this batch than up to `end`, with which so many requests were executed:
    /// they took its share of a turn.
    pub fn stop_for_this_turn(&mut self, end: usize, requests: usize) {
        self.wire.stopped_at = Some(end);
        self.wire.turn_max = requests;
    }

    /// How many requests to parse for this turn; for the next one it is a little more.
    pub fn take_turn_max(&mut self) -> usize {
        let more = (self.wire.turn_max + self.wire.turn_max / 4 + 1).min(REQUESTS_PER_CONNECTION);
        std::mem::replace(&mut self.wire.turn_max, more)
    }

    /// What the log of large calls is told of a request and its reply of so many bytes: a reply
    /// that is dropped has none.
    pub fn heard(&self, [request, reply]: [usize; 2]) -> [usize; 2] {
        [request, if self.output.replies == Replies::On { reply } else { 0 }]
    }

    /// Has it monitor, or do so no more.
    pub fn set_monitor(&mut self, all: &Monitors, worker: usize, monitors: bool) {
        if self.listening.is_monitor != monitors {
            self.listening.is_monitor = monitors;
            self.client.is_monitor.store(monitors, Relaxed);
            all.count(worker, monitors);
        }
    }

    /// Whether its client has ended its stream.
    pub fn has_gone(&self) -> bool {
        self.wire.has_ended || self.wire.tls.as_ref().is_some_and(|tls| tls.session.is_ended)
    }

    /// Whether there is something to send, as soon as that is possible.
    pub fn has_output(&self) -> bool {
        !self.reply.is_empty() || self.wire.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    /// Whether nothing waits to be sent.
    pub fn has_sent_all(&self) -> bool {
        !self.output.is_sending && !self.has_output()
    }

    /// Whether it has more to say when what is under way is sent.
    pub fn has_more_to_say(&self) -> bool {
        self.has_more_to_replicate() || self.dump().is_some()
    }

    /// How far its answer is that goes out piece by piece.
    pub fn dump(&self) -> Option<&Dump> {
        self.waiting.waits.as_deref()?.dump()
    }
}

/// The connection of this id, if it is still there: its number may be another's by now, even within
/// the events of one turn.
pub fn find(
    connections: &mut [Option<Box<Connection>>],
    id: ConnectionId,
) -> Option<&mut Connection> {
    let connection = connections.get_mut(id.index as usize)?.as_deref_mut()?;
    (connection.id == id).then_some(connection)
}
