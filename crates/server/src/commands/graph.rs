//! GRAPH.*: what is computed of the graph that keys describe.

use std::sync::Arc;

use kvasir_analytics::graph::answer::Form;
use kvasir_analytics::graph::bfs::Direction;
use kvasir_analytics::graph::page_rank::{Definition, PageRank};
use kvasir_analytics::graph::source::{Place, Source, TextForm};
use kvasir_analytics::selection::Selection;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{
    Argument, ArgumentKind, Begin, Find, Flags, Group, KeyFlags, KeySpec, Spec,
};
use kvasir_resp::number::{parse_double, parse_integer};
use kvasir_structures::crc16;

use crate::analytics::grant::Grant;
use crate::analytics::graphs::{Cancelled, Delivery, What, Wish};
use crate::analytics::ticket::Ticket;
use crate::calls::routing::served;
use crate::commands::export::{self, SINCE, cancellable};
use crate::commands::is_word;
use crate::run::analytics::{caller, wait};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[
    &PAGERANK,
    &PAGERANK_RO,
    &CONNECTED,
    &CONNECTED_RO,
    &BFS,
    &BFS_RO,
    &DEGREE,
    &DEGREE_RO,
    &TRIANGLES,
    &TRIANGLES_RO,
    &CANCEL,
];

const FLAGS: Flags = Flags::BLOCKING.union(Flags::NOSCRIPT).union(Flags::NO_MULTI);
/// What of a pass over the graph takes the time, where nothing else is said.
const LINEAR: &str = "O(N+M) in nodes and edges, in the background.";

/// The key that ranks go to, which is the last argument.
const fn destination(word: &'static str) -> KeySpec {
    KeySpec {
        flags: KeyFlags::OW.union(KeyFlags::UPDATE),
        notes: None,
        begin: Begin::Keyword { word, from: -2 },
        find: Find::Range { last: 0, step: 1, limit: 0 },
    }
}

/// The hash that has the graph.
const HASH: KeySpec = KeySpec {
    flags: KeyFlags::RO.union(KeyFlags::ACCESS),
    notes: None,
    begin: Begin::Keyword { word: "HASH", from: 1 },
    find: Find::Range { last: 0, step: 1, limit: 0 },
};

const SOURCE: Argument = Argument::one_of(
    "source",
    &[
        Argument::new("pattern", ArgumentKind::Pattern).token("MATCH"),
        Argument::key("hash", 0).token("HASH"),
    ],
);
const TEXT: Argument = Argument::one_of(
    "text",
    &[
        Argument::string("separators").token("SEPARATORS"),
        Argument::integer("bytes").token("PACKED"),
    ],
)
.optional();
const IDS: Argument = Argument::one_of(
    "ids",
    &[Argument::word("integer", "INTEGER"), Argument::word("string", "STRING")],
)
.token("IDS")
.optional();
const WEIGHTED: Argument = Argument::word("weighted", "WEIGHTED").optional();
const DIRECTION: Argument = Argument::one_of(
    "direction",
    &[Argument::word("out", "OUT"), Argument::word("in", "IN"), Argument::word("both", "BOTH")],
)
.token("DIRECTION")
.optional();
const TOP: Argument = Argument::integer("count").token("TOP");
const ALL: Argument = Argument::word("all", "ALL");
const DELIVERY: Argument = Argument::one_of(
    "answer",
    &[
        TOP,
        ALL,
        Argument::key("destination", 1).token("STORE"),
        Argument::key("destination-hash", 2).token("STOREHASH"),
    ],
)
.optional();
const ANSWER: Argument = Argument::one_of("answer", &[TOP, ALL]).optional();

/// What all that compute have in common.
const COMPUTING: Spec = Spec {
    since: SINCE,
    group: Group::Analytics,
    complexity: LINEAR,
    arity: -3,
    flags: FLAGS.union(Flags::WRITE).union(Flags::DENYOOM),
    keys: &[HASH, destination("STORE"), destination("STOREHASH")],
    tips: &["nondeterministic_output"],
    ..Spec::BLANK
};

/// Of one that only answers.
const fn reading(spec: Spec) -> Spec {
    Spec { flags: FLAGS.union(Flags::READONLY), keys: &[HASH], ..spec }
}

/// A command that may store what it computes, and its twin that does not, as SORT_RO: replicas take
/// that, and users who only read may call it.
macro_rules! twins {
    (
        $storing:ident, $reading:ident, $name:literal,
        $spec:expr, [$($argument:expr),*], $what:expr
    ) => {
        static $storing: ServerCommand = ServerCommand {
            spec: Spec {
                name: $name,
                arguments: &[SOURCE, $($argument,)* DELIVERY],
                ..$spec
            },
            run: ServerRun::Plain(|cx| compute(cx, &$storing.spec, $what)),
        };
        static $reading: ServerCommand = ServerCommand {
            spec: Spec {
                name: concat!($name, "_ro"),
                arguments: &[SOURCE, $($argument,)* ANSWER],
                ..reading($spec)
            },
            run: ServerRun::Plain(|cx| compute(cx, &$reading.spec, $what)),
        };
    };
}

twins!(
    PAGERANK,
    PAGERANK_RO,
    "graph.pagerank",
    Spec {
        summary: "Computes the PageRank of every node of a graph.",
        complexity: "O(I*(N+M)) in iterations, nodes and edges, in the background.",
        ..COMPUTING
    },
    [
        TEXT,
        IDS,
        WEIGHTED,
        Argument::integer("iterations").token("ITERATIONS").optional(),
        Argument::new("damping", ArgumentKind::Double).token("DAMPING").optional(),
        Argument::one_of("definition", &[Argument::word("a", "A"), Argument::word("b", "B")])
            .token("DEFINITION")
            .optional()
    ],
    What::PageRank(PageRank { iterations: 10, damping: 0.85, definition: Definition::B })
);

twins!(
    CONNECTED,
    CONNECTED_RO,
    "graph.connected",
    Spec {
        summary: "Finds the connected components of a graph, whatever the direction of edges.",
        ..COMPUTING
    },
    [TEXT, IDS],
    What::Components
);

twins!(
    BFS,
    BFS_RO,
    "graph.bfs",
    Spec {
        summary: "Tells how many edges every node of a graph is away from one.",
        arity: -5,
        ..COMPUTING
    },
    [
        Argument::string("id").token("ROOT"),
        TEXT,
        IDS,
        DIRECTION,
        Argument::integer("edges").token("MAXDEPTH").optional()
    ],
    What::Bfs { root: Vec::new(), direction: Direction::Out, depth_max: i64::MAX }
);

twins!(
    DEGREE,
    DEGREE_RO,
    "graph.degree",
    Spec { summary: "Counts the edges of every node of a graph.", ..COMPUTING },
    [TEXT, IDS, WEIGHTED, DIRECTION],
    What::Degree(Direction::Out)
);

twins!(
    TRIANGLES,
    TRIANGLES_RO,
    "graph.triangles",
    Spec {
        summary: "Counts the triangles that every node of a graph is in.",
        complexity: "O(N+M^1.5) in nodes and edges, in the background.",
        ..COMPUTING
    },
    [TEXT, IDS],
    What::Triangles
);

static CANCEL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "graph.cancel",
        summary: "Gives up the caller's graph of this id, or all, and returns how many those were; \
                  who may call CONFIG SET gives up others' too.",
        since: SINCE,
        group: Group::Analytics,
        arity: 2,
        flags: Flags::NOSCRIPT,
        arguments: &[Argument::one_of(
            "which",
            &[Argument::integer("id"), Argument::word("all", "ALL")],
        )],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(|cx| {
        let id = match &cx.args[1] {
            word if is_word(word, "all") => None,
            text => Some(count(text)? as u64),
        };
        let user = cancellable(cx);
        let cancelled = cx.shared.analytics.cancel(Cancelled { id, user });
        cx.reply().integer(cancelled as i64);
        Ok(())
    }),
};

fn compute(cx: &mut ServerCx<'_>, spec: &'static Spec, what: What) -> Result<(), Error> {
    let grant = Arc::new(export::grant(cx, spec.name)?);
    let mut wish = parse(cx, spec.flags.contains(Flags::WRITE), what, Arc::clone(&grant))?;
    wish.selection.may_read = grant.may_read();
    wish.selection.served = served(cx.shared);
    let (shared, client) = (cx.shared, cx.connection.client.id);
    let job = shared.analytics.new_job(&shared.store, &grant, client, spec.name)?;
    let protocol = cx.connection.reply.protocol();
    let ticket = Ticket::of_job(caller(cx), protocol, Arc::clone(&job));
    shared.analytics.begin_graph(&shared.store, job, Arc::clone(&ticket), wish)?;
    wait(cx, ticket);
    Ok(())
}

/// What the words of a call say.
struct Words<'a, 'c> {
    cx: &'a ServerCx<'c>,
    at: usize,
}

impl<'a> Words<'a, '_> {
    fn next(&mut self) -> Result<&'a [u8], Error> {
        self.at += 1;
        self.cx.args.get(self.at - 1).ok_or(Error::SYNTAX)
    }

    /// One of these words, as its number.
    fn one_of(&mut self, words: &[&str]) -> Result<usize, Error> {
        let word = self.next()?;
        words.iter().position(|known| is_word(word, known)).ok_or(Error::SYNTAX)
    }

    fn direction(&mut self) -> Result<Direction, Error> {
        let all = [Direction::Out, Direction::In, Direction::Both];
        Ok(all[self.one_of(&["out", "in", "both"])?])
    }
}

fn parse(
    cx: &ServerCx<'_>,
    may_store: bool,
    mut what: What,
    grant: Arc<Grant>,
) -> Result<Wish, Error> {
    let (mut place, mut delivery) = (None, Delivery::Top(10));
    let mut text = TextForm::Separated(b" ,;\t\r\n".to_vec());
    let (mut has_integer_ids, mut is_weighted) = (true, false);
    let mut words = Words { cx, at: 1 };
    while words.at < cx.args.len() {
        let word = words.next()?;
        match word.to_ascii_lowercase().as_slice() {
            b"match" if place.is_none() => {
                let pattern = words.next()?;
                place = Some(Place::of_pattern(pattern).ok_or(Error::fixed(
                    "ERR the pattern of a graph has one * in it, which stands for the id of a \
                     node, and no other wildcard",
                ))?);
            }
            b"hash" if place.is_none() => place = Some(Place::Hash(words.next()?.to_vec())),
            b"separators" => text = TextForm::Separated(words.next()?.to_vec()),
            b"packed" => text = TextForm::Packed([4, 8][words.one_of(&["4", "8"])?]),
            b"ids" => has_integer_ids = words.one_of(&["integer", "string"])? == 0,
            b"weighted" if matches!(what, What::PageRank(_) | What::Degree(_)) => {
                is_weighted = true;
            }
            b"top" => delivery = Delivery::Top(count(words.next()?)?),
            b"all" => delivery = Delivery::All,
            b"store" if may_store && words.at + 1 == cx.args.len() => {
                let key = words.next()?.to_vec();
                delivery = Delivery::Store { key, form: Form::SortedSet };
            }
            b"storehash" if may_store && words.at + 1 == cx.args.len() => {
                let key = words.next()?.to_vec();
                delivery = Delivery::Store { key, form: Form::Hash };
            }
            word => own_option(word, &mut words, &mut what)?,
        }
    }
    if matches!(&what, What::Bfs { root, .. } if root.is_empty()) {
        return Err(Error::fixed("ERR GRAPH.BFS wants a ROOT"));
    }
    let place = place.ok_or(Error::fixed("ERR a graph wants MATCH or HASH"))?;
    let source = Source { place, text, has_integer_ids, is_weighted };
    let (db, env) = (cx.connection.db, cx.core.env.clone());
    Ok(Wish { selection: selection(&source.place), source, db, env, what, delivery, grant })
}

/// Options that only one of the commands has.
fn own_option(word: &[u8], words: &mut Words<'_, '_>, what: &mut What) -> Result<(), Error> {
    match (word, what) {
        (b"iterations", What::PageRank(page_rank)) => {
            let iterations = u32::try_from(count(words.next()?)?).ok();
            let few = iterations.filter(|iterations| *iterations <= 1_000_000);
            page_rank.iterations = few.ok_or(Error::NOT_INTEGER)?;
        }
        (b"damping", What::PageRank(page_rank)) => {
            let damping =
                parse_double(words.next()?).filter(|damping| (0.0..1.0).contains(damping));
            page_rank.damping =
                damping.ok_or(Error::fixed("ERR DAMPING is a number from 0 to below 1"))?;
        }
        (b"definition", What::PageRank(page_rank)) => {
            page_rank.definition = [Definition::A, Definition::B][words.one_of(&["a", "b"])?];
        }
        (b"root", What::Bfs { root, .. }) => *root = words.next()?.to_vec(),
        (b"maxdepth", What::Bfs { depth_max, .. }) => {
            *depth_max = i64::try_from(count(words.next()?)?).unwrap_or(i64::MAX);
        }
        (b"direction", What::Bfs { direction, .. } | What::Degree(direction)) => {
            *direction = words.direction()?;
        }
        _ => return Err(Error::SYNTAX),
    }
    Ok(())
}

/// One hash stands in one slot.
fn selection(place: &Place) -> Selection {
    let Place::Hash(key) = place else { return Selection::all() };
    let slot = crc16::slot_of(key);
    let keys = Some([key.clone()].into());
    Selection { keys, slots: slot..slot + 1, ..Selection::all() }
}

fn count(text: &[u8]) -> Result<usize, Error> {
    let count = parse_integer(text).and_then(|count| usize::try_from(count).ok());
    count.ok_or(Error::NOT_INTEGER)
}
