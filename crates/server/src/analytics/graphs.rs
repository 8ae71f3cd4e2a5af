//! GRAPH.*: a graph is gathered from an image, something is computed of it, and who asked is told.
//!
//! Graphs are computed one after the other, each by `analytics-threads` threads. What is to be kept
//! goes to the worker of the client that asked, which writes it as a call of that client.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use kvasir_analytics::column::Cell;
use kvasir_analytics::graph::answer::{First, Form, Total, Values, to_value};
use kvasir_analytics::graph::bfs::{self, Direction};
use kvasir_analytics::graph::estimate::{Need, estimate};
use kvasir_analytics::graph::gather::{Gather, Graph, no_memory};
use kvasir_analytics::graph::nodes::{Ids, Nodes};
use kvasir_analytics::graph::page_rank::{self, PageRank};
use kvasir_analytics::graph::source::{Source, integer_id};
use kvasir_analytics::graph::workers::Workers;
use kvasir_analytics::graph::{components, degree, triangles};
use kvasir_analytics::job::Job;
use kvasir_analytics::selection::Selection;
use kvasir_analytics::visit::Place;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::snapshot::{self, Sink};
use kvasir_keyspace::view::Env;
use kvasir_reactor::thread as reactor_thread;
use kvasir_resp::reply::Reply;
use kvasir_structures::locks::lock;

use crate::analytics::grant::{Grant, LOST};
use crate::analytics::ticket::Ticket;
use crate::analytics::{Analytics, tell_failure, threads, timeout};
use crate::log::notice;
use crate::store::Store;
use crate::workers::Message;
use crate::workers::ranks::{Kept, Ranks};

/// Graphs at the same time, nearly all of which wait.
const JOBS_MAX: usize = 64;
/// How often a graph that waits for another looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// What is asked for.
pub struct Wish {
    pub source: Source,
    pub selection: Selection,
    pub db: DbIndex,
    pub env: Env,
    pub what: What,
    pub delivery: Delivery,
    pub grant: Arc<Grant>,
}

/// Which jobs are meant to end.
#[derive(Clone, Copy)]
pub struct Cancelled {
    /// `None`: all.
    pub id: Option<u64>,
    /// Of this user, by id; `None`: whose ever.
    pub user: Option<u64>,
}

impl Cancelled {
    pub fn is(self, job: &Job) -> bool {
        self.id.is_none_or(|id| id == job.id) && self.user.is_none_or(|user| user == job.user)
    }
}

/// What is computed.
#[derive(Clone)]
pub enum What {
    PageRank(PageRank),
    Components,
    Bfs { root: Vec<u8>, direction: Direction, depth_max: i64 },
    Degree(Direction),
    Triangles,
}

/// How it is told.
#[derive(Clone)]
pub enum Delivery {
    Top(usize),
    All,
    Store { key: Vec<u8>, form: Form },
}

impl What {
    /// Bytes that it takes of each node and of each edge beside the graph.
    fn need(&self, is_weighted: bool) -> Need {
        let row = if is_weighted { 12 } else { 4 };
        let (node_bytes, edge_bytes) = match self {
            What::PageRank(_) => (page_rank::NODE_BYTES + 4, row),
            What::Components => (components::NODE_BYTES, 0),
            What::Bfs { direction: Direction::Both, .. } => (bfs::NODE_BYTES + 8, 2 * row),
            What::Bfs { .. } => (bfs::NODE_BYTES + 4, row),
            What::Degree(_) => (degree::NODE_BYTES, 0),
            What::Triangles => (triangles::NODE_BYTES, triangles::EDGE_BYTES),
        };
        Need { node_bytes, edge_bytes }
    }
}

/// What was computed.
struct Computed {
    nodes: Nodes,
    values: Values,
    first: First,
    totals: Vec<(&'static str, Total)>,
    /// Sizes of components.
    sizes: Option<Vec<u64>>,
}

impl Analytics {
    /// A job of a client, which has called `name`, unless there are too many.
    pub fn new_job(
        &self,
        store: &Store,
        grant: &Grant,
        client: u64,
        name: &'static str,
    ) -> Result<Arc<Job>, Error> {
        self.obey(&store.config());
        let mut jobs = lock(&self.jobs);
        if jobs.all.len() >= JOBS_MAX {
            let text = format!("ERR there are no more than {JOBS_MAX} graphs at a time");
            return Err(Error::new(text));
        }
        let (user, own_max) = (grant.user.id, grant.places(JOBS_MAX));
        if jobs.all.iter().filter(|job| job.user == user).count() >= own_max {
            let text = format!("ERR a user has no more than {own_max} graphs at a time");
            return Err(Error::new(text));
        }
        let job = Job::new(self.new_id(), client, user, name, grant.share(&self.budget));
        let job = Arc::new(job);
        jobs.all.push(Arc::clone(&job));
        Ok(job)
    }

    /// Has a graph computed; the answer goes to the ticket's call.
    pub fn begin_graph(
        &'static self,
        store: &'static Store,
        job: Arc<Job>,
        ticket: Arc<Ticket>,
        wish: Wish,
    ) -> Result<(), Error> {
        let leaving = Arc::clone(&job);
        let run = move || {
            let _ = reactor_thread::wake_late().and_then(|()| reactor_thread::work_less());
            if let Err(why) = self.run_in_turn(store, &job, &ticket, wish) {
                self.stats.graphs_failed.fetch_add(1, Relaxed);
                notice!("graph given up id={} reason={why}", job.id);
                let mut reply = Reply::new(ticket.protocol);
                tell_failure(&why, &mut reply);
                *lock(&self.stats.last_failure) = why;
                ticket.answer(store, reply, 0);
            }
            self.end_job(&job);
            store.freeing.tidy_later();
        };
        let begun = std::thread::Builder::new().name("graph".into()).spawn(run);
        if begun.is_err() {
            self.end_job(&leaving);
            return Err(Error::fixed("ERR can't start a thread for the graph"));
        }
        Ok(())
    }

    /// Whoever has a job must end it.
    fn end_job(&self, job: &Arc<Job>) {
        lock(&self.jobs).end(job);
        self.changed.notify_all();
    }

    /// GRAPH.CANCEL: says how many.
    pub fn cancel(&self, cancelled: Cancelled) -> usize {
        let jobs = self.jobs();
        jobs.iter().filter(|job| cancelled.is(job)).inspect(|job| job.cancel()).count()
    }

    fn run_in_turn(
        &self,
        store: &'static Store,
        job: &Arc<Job>,
        ticket: &Arc<Ticket>,
        wish: Wish,
    ) -> Result<(), String> {
        let mut jobs = lock(&self.jobs);
        while !jobs.begin(job) {
            job.check()?;
            let waited = self.changed.wait_timeout(jobs, LOOK);
            jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(jobs);
        if let Some(time) = timeout(&store.config()) {
            job.limit(time);
        }
        self.compute(store, job, ticket, wish)
    }

    fn compute(
        &self,
        store: &'static Store,
        job: &Arc<Job>,
        ticket: &Arc<Ticket>,
        wish: Wish,
    ) -> Result<(), String> {
        let Wish { source, selection, db, env, what, delivery, grant } = wish;
        let is_weighted = source.is_weighted;
        let begin = Instant::now();
        let gather = Arc::new(Gather::new(source, selection, env.clone(), Arc::clone(job)));
        let left = job.share.left();
        check_memory(store, db, &gather, what.need(is_weighted), left)?;
        let (graph, fence) = self.gather(store, db, &gather)?;
        let loaded = begin.elapsed();
        let workers = Workers { job, turns: &self.turns, threads: threads(&store.config()) };
        let (begin, nodes, edges) = (Instant::now(), graph.nodes.len(), graph.edges.len());
        let computed = run(what, graph, workers)?;
        let took = begin.elapsed();
        job.begin("answering", 0);
        let mut facts =
            vec![("nodes", Total::Count(nodes as u64)), ("edges", Total::Count(edges as u64))];
        facts.extend(&computed.totals);
        facts.push(("load_seconds", Total::Number(loaded.as_secs_f64())));
        facts.push(("compute_seconds", Total::Number(took.as_secs_f64())));
        facts.push(("memory_bytes", Total::Count(job.share.bytes() as u64)));
        let mut reply = Reply::new(ticket.protocol);
        reply.map(facts.len() + 1);
        for (name, total) in facts {
            reply.bulk(name.as_bytes());
            total.write(&mut reply);
        }
        // Of what was taken until now, as much is left.
        let sizes = computed.sizes.as_ref().map_or(0, Vec::len);
        job.share.keep(computed.nodes.allocated_bytes() + 8 * (computed.nodes.len() + sizes));
        let turn = self.turns.take();
        if !grant.holds() {
            return Err(LOST.into());
        }
        let answer = Answer { store, job, ticket, reply, fence, grant };
        answer.deliver(computed, delivery, db, &env)?;
        drop(turn);
        self.stats.graphs.fetch_add(1, Relaxed);
        Ok(())
    }

    /// The graph as it is now, and up to where the disk must have what it shows.
    fn gather(
        &self,
        store: &'static Store,
        db: DbIndex,
        gather: &Arc<Gather>,
    ) -> Result<(Graph, u64), String> {
        let sink: Arc<dyn Sink> = Arc::clone(gather) as Arc<dyn Sink>;
        let (keyspace, slots) = (&store.keyspace, gather.selection.slots.clone());
        let mut pass = store.gate.exclusive();
        let image = snapshot::cut_one(keyspace, &mut pass, db, &sink, slots);
        let fence = if keyspace.log.is_open() { keyspace.log.end() } else { 0 };
        drop(pass);
        let end = || snapshot::end(keyspace, &mut store.gate.exclusive(), image.as_slice());
        let place = Place { keyspace, gate: store.gate, turns: &self.turns };
        gather.run(place, image.as_deref(), end).map(|graph| (graph, fence))
    }
}

/// Refuses what will not fit into what is left, before it begins.
fn check_memory(
    store: &Store,
    db: DbIndex,
    gather: &Gather,
    need: Need,
    left: usize,
) -> Result<(), String> {
    let estimate = estimate(&store.keyspace, store.gate, db, gather, need);
    if estimate.bytes <= left {
        return Ok(());
    }
    Err(format!(
        "the graph needs about {} bytes, for {} nodes and {} edges, and of analytics-memory there \
         are {left} left",
        estimate.bytes, estimate.nodes, estimate.edges
    ))
}

fn run(what: What, graph: Graph, workers: Workers<'_>) -> Result<Computed, String> {
    let count = |name, count| (name, Total::Count(count));
    let computed = |Graph { nodes, .. }, values, first, totals| Computed {
        nodes,
        values,
        first,
        totals,
        sizes: None,
    };
    let greatest = First::Greatest;
    Ok(match what {
        What::PageRank(page_rank) => {
            let (graph, values) = page_rank.run(graph, workers)?;
            let totals = vec![
                count("ranked", values.present() as u64),
                ("sum", Total::Number(values.sum())),
            ];
            computed(graph, values, greatest, totals)
        }
        What::Components => {
            let (values, sizes) = components::run(&graph, workers)?;
            let totals = vec![count("components", sizes.len() as u64)];
            Computed { sizes: Some(sizes), ..computed(graph, values, First::Least, totals) }
        }
        What::Bfs { root, direction, depth_max } => {
            let found = find_node(&graph.nodes, &root)?;
            let (values, reached) = bfs::run(&graph, found, direction, depth_max, workers)?;
            computed(graph, values, First::Least, vec![count("reached", reached)])
        }
        What::Degree(direction) => {
            let values = degree::run(&graph, direction, workers)?;
            computed(graph, values, greatest, Vec::new())
        }
        What::Triangles => {
            let (values, triangles) = triangles::run(&graph, workers)?;
            computed(graph, values, greatest, vec![count("triangles", triangles)])
        }
    })
}

fn find_node(nodes: &Nodes, root: &[u8]) -> Result<u32, String> {
    let id = match nodes.ids {
        Ids::Integers(_) => Cell::Int(integer_id(Cell::Text(root))?),
        _ => Cell::Text(root),
    };
    nodes.find(id).ok_or_else(|| format!("there is no node '{}'", root.escape_ascii()))
}

/// What is told of a graph so far, and to whom.
struct Answer<'a> {
    store: &'static Store,
    job: &'a Job,
    ticket: &'a Arc<Ticket>,
    reply: Reply,
    fence: u64,
    grant: Arc<Grant>,
}

impl Answer<'_> {
    /// Tells who asked, or has the ranks kept.
    fn deliver(
        self,
        computed: Computed,
        delivery: Delivery,
        db: DbIndex,
        env: &Env,
    ) -> Result<(), String> {
        let Answer { store, job, ticket, mut reply, fence, grant } = self;
        let Computed { nodes, values, first, sizes, .. } = computed;
        let bytes = match &delivery {
            Delivery::Top(most) => Values::answer_bytes(&nodes, nodes.len().min(*most)),
            Delivery::All => Values::answer_bytes(&nodes, nodes.len()),
            Delivery::Store { .. } => Values::kept_bytes(&nodes),
        };
        if !job.share.take(bytes) {
            return Err(no_memory(job.share.bytes() + bytes));
        }
        match (delivery, sizes) {
            (Delivery::Top(most), Some(sizes)) => {
                reply.bulk(b"result");
                reply.array(most.min(sizes.len()));
                for (number, size) in sizes.iter().take(most).enumerate() {
                    reply.array(2);
                    reply.integer(number as i64);
                    reply.integer(*size as i64);
                }
            }
            (Delivery::Top(most), None) => {
                reply.bulk(b"result");
                values.write(&nodes, &values.first(&nodes, most, first), &mut reply);
            }
            (Delivery::All, _) => {
                reply.bulk(b"result");
                values.write(&nodes, &values.all(&nodes), &mut reply);
            }
            (Delivery::Store { key, form }, _) => {
                let kept = values.to_dump(&nodes, form).map(|dump| {
                    let value = to_value(&dump, env)?;
                    Ok::<_, String>(Kept { record: value.into_record(&key, None), dump })
                });
                let (kept, count) = (kept.transpose()?, values.present());
                reply.bulk(b"stored");
                let claimed = Arc::clone(ticket);
                let claim = Box::new(move || claimed.claim());
                let caller = ticket.caller;
                let may_keep = Box::new(move || grant.check());
                let ranks = Ranks { caller, claim, may_keep, db, key, kept, reply, count, fence };
                store.send(ticket.caller.worker, Message::Ranks(Box::new(ranks)));
                return Ok(());
            }
        }
        ticket.answer(store, reply, fence);
        Ok(())
    }
}
