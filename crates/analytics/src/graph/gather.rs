//! From the records of an image to nodes and edges.
//!
//! Whoever saves records, the thread that gathers or who is about to change one, only copies ids
//! out of them; the thread gives them numbers. A large value it reads itself, without any lock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::snapshot::{Image, Sink};
use kvasir_keyspace::value::{Object, Record};
use kvasir_keyspace::view::Env;
use kvasir_structures::locks::lock;
use kvasir_structures::record::Record as OwnedRecord;

use crate::column::Cell;
use crate::graph::edges::Edges;
use crate::graph::nodes::{Ids, NODES_MAX, Nodes};
use crate::graph::source::{Listener, Source, integer_id};
use crate::job::Job;
use crate::selection::Selection;
use crate::turns::Shift;
use crate::visit::{Place, cost_of};

/// Ids that are copied before they are given numbers.
const RAW_IDS: usize = 1 << 15;
/// More edges than these have no place in a row's 32 bits.
const EDGES_MAX: usize = u32::MAX as usize;
const TOO_LARGE: &str = "the graph has more than 4294967294 nodes or 4294967295 edges";
/// Threads that copy at the same time; more of them share.
const FILLING: usize = 4;

/// A graph as it was at the cut.
pub struct Graph {
    pub nodes: Nodes,
    pub edges: Edges,
}

/// What gathers one.
pub struct Gather {
    pub source: Source,
    /// Which keys may be looked at, beside those that are not the graph's.
    pub selection: Selection,
    pub env: Env,
    job: Arc<Job>,
    filling: [Mutex<Raw>; FILLING],
    next_filling: AtomicUsize,
    full: Mutex<Vec<Raw>>,
    large: Mutex<Vec<OwnedRecord<Object>>>,
    failure: Mutex<Option<String>>,
    has_failed: AtomicBool,
}

/// Ids that have no numbers yet: of a node, then of its neighbours, and so on.
struct Raw {
    ids: Ids,
    /// How many neighbours follow each node.
    counts: Vec<u32>,
    weights: Vec<f64>,
    is_weighted: bool,
    job: Arc<Job>,
    /// Bytes that were taken for it.
    taken: usize,
}

impl Raw {
    fn new(source: &Source, job: &Arc<Job>) -> Raw {
        Raw {
            ids: Ids::new(source.has_integer_ids),
            counts: Vec::new(),
            weights: Vec::new(),
            is_weighted: source.is_weighted,
            job: Arc::clone(job),
            taken: 0,
        }
    }

    /// Adds an id, or nothing if it is none.
    fn push(&mut self, id: Cell<'_>) -> Result<(), String> {
        // One value may have more neighbours than there is memory for.
        if !self.ids.is_empty() && self.ids.len().is_multiple_of(RAW_IDS) {
            self.charge()?;
        }
        match self.ids {
            Ids::Integers(_) => self.ids.push(Cell::Int(integer_id(id)?)),
            Ids::Texts { .. } => self.ids.push(id),
        }
        Ok(())
    }

    /// Takes memory for what has been added.
    fn charge(&mut self) -> Result<(), String> {
        let (bytes, share) = (self.allocated_bytes(), &self.job.share);
        let more = bytes.saturating_sub(self.taken);
        if !share.take(more) {
            return Err(no_memory(share.bytes() + more));
        }
        self.taken += more;
        Ok(())
    }

    fn allocated_bytes(&self) -> usize {
        self.ids.allocated_bytes() + 4 * self.counts.capacity() + 8 * self.weights.capacity()
    }
}

/// Only what has an id is counted: after a failure the ids are those that the counts tell of.
impl Listener for Raw {
    fn node(&mut self, id: Cell<'_>) -> Result<(), String> {
        self.push(id)?;
        self.counts.push(0);
        Ok(())
    }

    fn neighbour(&mut self, id: Cell<'_>, weight: f64) -> Result<(), String> {
        self.push(id)?;
        if let Some(count) = self.counts.last_mut() {
            *count += 1;
        }
        if self.is_weighted {
            self.weights.push(weight);
        }
        Ok(())
    }
}

/// A graph that grows, within turns.
struct Builder<'j> {
    graph: Graph,
    job: &'j Job,
    shift: Shift<'j>,
    /// Bytes that were taken for it.
    taken: usize,
    /// The node whose neighbours come.
    node: u32,
}

impl Builder<'_> {
    fn number(&mut self, id: Cell<'_>) -> Result<u32, String> {
        let nodes = &mut self.graph.nodes;
        if nodes.len() >= NODES_MAX {
            return Err(TOO_LARGE.into());
        }
        let number = match nodes.ids {
            Ids::Integers(_) => nodes.number(Cell::Int(integer_id(id)?)),
            Ids::Texts { .. } => match id {
                Cell::Text(_) => nodes.number(id),
                // An integer is the text that it would be written as.
                id => nodes.number(Cell::Text(&id.to_text())),
            },
        };
        Ok(number)
    }

    fn add(&mut self, raw: &Raw) -> Result<(), String> {
        self.shift.next_piece();
        let (mut at, mut edge) = (0, 0);
        for count in &raw.counts {
            self.node(raw.ids.id(at))?;
            for index in at + 1..=at + *count as usize {
                let weight = raw.weights.get(edge).copied().unwrap_or(1.0);
                self.neighbour(raw.ids.id(index), weight)?;
                edge += 1;
            }
            at += 1 + *count as usize;
        }
        self.end_piece()
    }

    fn end_piece(&mut self) -> Result<(), String> {
        self.shift.rest();
        self.charge()
    }

    /// Takes memory for what has been added.
    fn charge(&mut self) -> Result<(), String> {
        let bytes = self.graph.nodes.allocated_bytes() + self.graph.edges.allocated_bytes();
        let more = bytes.saturating_sub(self.taken);
        if !self.job.share.take(more) {
            return Err(no_memory(bytes));
        }
        self.taken += more;
        Ok(())
    }
}

impl Listener for Builder<'_> {
    fn node(&mut self, id: Cell<'_>) -> Result<(), String> {
        self.node = self.number(id)?;
        Ok(())
    }

    fn neighbour(&mut self, id: Cell<'_>, weight: f64) -> Result<(), String> {
        let other = self.number(id)?;
        if self.graph.edges.len() >= EDGES_MAX {
            return Err(TOO_LARGE.into());
        }
        self.graph.edges.push(self.node, other, weight);
        // A value of millions of neighbours takes memory and turns as it is read.
        if self.graph.edges.len().is_multiple_of(RAW_IDS) {
            self.end_piece()?;
            self.job.check()?;
            self.shift.next_piece();
        }
        Ok(())
    }
}

/// What is said where memory is full.
pub fn no_memory(bytes: usize) -> String {
    format!("analytics-memory is full: the graph takes more than {bytes} bytes")
}

impl Gather {
    pub fn new(source: Source, selection: Selection, env: Env, job: Arc<Job>) -> Gather {
        Gather {
            filling: std::array::from_fn(|_| Mutex::new(Raw::new(&source, &job))),
            next_filling: AtomicUsize::new(0),
            source,
            selection,
            env,
            job,
            full: Mutex::default(),
            large: Mutex::default(),
            failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Visits the image, ends it with `end`, and returns the graph.
    pub fn run(
        &self,
        place: Place<'_>,
        image: Option<&Image>,
        end: impl FnOnce(),
    ) -> Result<Graph, String> {
        let Source { has_integer_ids, is_weighted, .. } = self.source;
        let graph = Graph { nodes: Nodes::new(has_integer_ids), edges: Edges::new(is_weighted) };
        let shift = Shift::new(place.turns);
        let mut builder = Builder { graph, job: &self.job, shift, taken: 0, node: 0 };
        let mut result = Ok(());
        if let Some(image) = image {
            let (slots, mut seen) = (self.selection.slots_to_visit(), 0);
            self.job.begin("loading", slots.len() as u64);
            place.visit(image, &slots, |visited| {
                self.job.step((visited - seen) as u64);
                seen = visited;
                result = self.check().and_then(|()| self.drain(&mut builder));
                result.is_ok()
            });
        }
        end();
        result?;
        // What failed in the last slots is found before what they have left behind is read.
        self.check()?;
        for raw in &self.filling {
            let raw = std::mem::replace(&mut *lock(raw), Raw::new(&self.source, &self.job));
            builder.add(&raw)?;
            self.job.share.give(raw.taken);
        }
        self.drain(&mut builder)?;
        self.check()?;
        Ok(builder.graph)
    }

    /// Fails if anything has, or nobody wants the graph any more.
    fn check(&self) -> Result<(), String> {
        self.job.check()?;
        lock(&self.failure).take().map_or(Ok(()), Err)
    }

    /// Gives numbers to what was put aside.
    fn drain(&self, builder: &mut Builder<'_>) -> Result<(), String> {
        for raw in std::mem::take(&mut *lock(&self.full)) {
            builder.add(&raw)?;
            self.job.share.give(raw.taken);
        }
        loop {
            let Some(record) = lock(&self.large).pop() else { return Ok(()) };
            builder.shift.next_piece();
            self.source.read(record.borrow(), &self.env, builder)?;
            builder.end_piece()?;
            self.job.share.give(cost_of(&record));
        }
    }

    fn fail(&self, why: String) {
        self.has_failed.store(true, Relaxed);
        lock(&self.failure).get_or_insert(why);
    }

    fn take_one(&self, record: Record<'_>, raw: &mut Raw) -> Result<(), String> {
        self.source.read(record, &self.env, raw)?;
        if raw.ids.len() < RAW_IDS {
            return Ok(());
        }
        raw.charge()?;
        let full = std::mem::replace(raw, Raw::new(&self.source, &self.job));
        lock(&self.full).push(full);
        Ok(())
    }

    fn charge(&self, bytes: usize) -> Result<(), String> {
        let share = &self.job.share;
        if share.take(bytes) { Ok(()) } else { Err(no_memory(share.bytes() + bytes)) }
    }

    pub fn is_wanted(&self, record: Record<'_>) -> bool {
        !self.has_failed.load(Relaxed)
            && self.source.place.takes(record.key())
            && self.selection.takes(record, &self.env)
    }
}

impl Sink for Gather {
    fn take(&self, _: DbIndex, records: &[Record<'_>]) {
        let mut wanted = records.iter().filter(|record| self.is_wanted(**record)).peekable();
        if wanted.peek().is_none() {
            return;
        }
        let first = self.next_filling.fetch_add(1, Relaxed);
        let free = (0..FILLING).find_map(|at| self.filling[(first + at) % FILLING].try_lock().ok());
        let mut raw = free.unwrap_or_else(|| lock(&self.filling[first % FILLING]));
        if let Err(why) = wanted.try_for_each(|record| self.take_one(*record, &mut raw)) {
            // Nobody reads what has failed half-way.
            self.job.share.give(raw.taken);
            *raw = Raw::new(&self.source, &self.job);
            drop(raw);
            self.fail(why);
        }
    }

    fn prefers_copy(&self, _: usize) -> bool {
        false
    }

    fn take_large(&self, _: DbIndex, record: OwnedRecord<Object>) {
        if !self.is_wanted(record.borrow()) {
            return;
        }
        match self.charge(cost_of(&record)) {
            Ok(()) => lock(&self.large).push(record),
            Err(why) => self.fail(why),
        }
    }
}
