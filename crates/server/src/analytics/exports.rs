//! EXPORT: streams of one cut, each with a thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_analytics::export::{Answer, Order, Stream};
use kvasir_analytics::visit::Place;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::snapshot::{self, Image, Sink};
use kvasir_reactor::thread as reactor_thread;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;

use crate::analytics::Analytics;
use crate::analytics::grant::{Grant, LOST};
use crate::analytics::ticket::Ticket;
use crate::log::{notice, warning};
use crate::store::Store;

/// Streams at the same time, of all exports: each has an image that writers look at.
pub const STREAMS_MAX: usize = 64;

/// Failures that are kept for readers who come late.
const FAILURES_MAX: usize = 64;

/// A stream, and who has begun it.
pub struct Export {
    pub stream: Arc<Stream>,
    pub client: u64,
    grant: Arc<Grant>,
}

/// What is to be exported, in so many streams, and who has asked.
pub struct Wanted {
    pub db: DbIndex,
    pub order: Order,
    pub streams: usize,
    pub client: u64,
    pub grant: Grant,
}

/// Why a stream was given up whose reader has not been told.
pub struct Failure {
    id: u64,
    /// By id.
    user: u64,
    why: String,
}

const NO_SUCH: Error = Error::fixed("ERR no such export: it has ended, or is another user's");

impl Analytics {
    /// Begins streams of one cut, and returns their ids. The gate is closed.
    pub fn begin_export(
        &'static self,
        store: &'static Store,
        pass: &mut ExclusivePass<'_>,
        wanted: Wanted,
    ) -> Result<Vec<u64>, Error> {
        let Wanted { db, order, streams: count, client, grant } = wanted;
        self.obey(&store.config());
        self.check_places(&grant, count)?;
        let grant = Arc::new(grant);
        let order = Arc::new(order);
        let wanted = order.selection.slots_to_visit();
        let streams = parts(&wanted, count).map(|slots| {
            let (share, turns) = (grant.share(&self.budget), Arc::clone(&self.turns));
            let stream =
                Stream::new(self.new_id(), Arc::clone(&order), slots.to_vec(), share, turns);
            stream.map(Arc::new)
        });
        let Some(streams) = streams.collect::<Option<Vec<_>>>() else {
            let text = format!(
                "ERR analytics-memory is full: {} bytes of {} are left",
                grant.share(&self.budget).left(),
                self.budget.bytes_max()
            );
            return Err(Error::new(text));
        };
        let mut begun: Vec<Arc<Export>> = Vec::new();
        for stream in streams {
            let sink: Arc<dyn Sink> = Arc::clone(&stream) as Arc<dyn Sink>;
            let cut = |slots| snapshot::cut_one(&store.keyspace, pass, db, &sink, slots);
            let image = stream.slots().and_then(cut);
            let export = Arc::new(Export { stream, client, grant: Arc::clone(&grant) });
            lock(&self.exports).push(Arc::clone(&export));
            self.stats.exports.fetch_add(1, Relaxed);
            begun.push(Arc::clone(&export));
            let own = image.clone();
            let run = move || self.run(store, &export, own);
            if let Err(error) = std::thread::Builder::new().name("export".into()).spawn(run) {
                warning!("can't start a thread for an export error={error}");
                snapshot::end(&store.keyspace, pass, image.as_slice());
                if let Some(last) = begun.pop() {
                    lock(&self.exports).retain(|one| !Arc::ptr_eq(one, &last));
                }
                // Nobody knows their ids.
                begun.iter().for_each(|export| export.stream.leave());
                return Err(Error::fixed("ERR can't start a thread for the export"));
            }
        }
        Ok(begun.iter().map(|export| export.stream.id).collect())
    }

    /// Whether there is room for so many more streams.
    fn check_places(&self, grant: &Grant, count: usize) -> Result<(), Error> {
        let exports = lock(&self.exports);
        let own = exports.iter().filter(|export| export.grant.user.id == grant.user.id).count();
        let own_max = grant.places(STREAMS_MAX);
        if exports.len() + count > STREAMS_MAX {
            let text = format!("ERR there are no more than {STREAMS_MAX} streams at a time");
            return Err(Error::new(text));
        }
        if own + count > own_max {
            let text = format!("ERR a user has no more than {own_max} streams at a time");
            return Err(Error::new(text));
        }
        Ok(())
    }

    fn run(&self, store: &'static Store, export: &Arc<Export>, image: Option<Arc<Image>>) {
        let _ = reactor_thread::wake_late().and_then(|()| reactor_thread::work_less());
        let stream = &export.stream;
        let patience = Duration::from_secs(store.config().analytics.reader_timeout);
        let place = Place { keyspace: &store.keyspace, gate: store.gate, turns: &self.turns };
        stream.run(place, image.as_deref(), patience, || {
            snapshot::end(&store.keyspace, &mut store.gate.exclusive(), image.as_slice());
        });
        if let Some(why) = stream.untold_failure() {
            let mut failures = lock(&self.failures);
            failures.truncate(FAILURES_MAX - 1);
            failures.push_front(Failure { id: stream.id, user: export.grant.user.id, why });
        }
        lock(&self.exports).retain(|one| !Arc::ptr_eq(one, export));
        self.stats.rows.fetch_add(stream.rows.load(Relaxed), Relaxed);
        self.stats.bytes.fetch_add(stream.bytes.load(Relaxed), Relaxed);
        if let Some(failure) = stream.failure() {
            notice!("export given up id={} reason={failure}", stream.id);
            self.stats.exports_given_up.fetch_add(1, Relaxed);
            *lock(&self.stats.last_failure) = failure;
        }
        store.freeing.tidy_later();
    }

    /// A stream of a user, which is known by its id: another may have its name by now.
    fn find(&self, id: u64, user: u64) -> Result<Arc<Export>, Error> {
        let exports = lock(&self.exports);
        let is_it = |export: &&Arc<Export>| export.stream.id == id && export.grant.user.id == user;
        exports.iter().find(is_it).cloned().ok_or(NO_SUCH)
    }

    /// Why a stream was given up, told once.
    fn take_failure(&self, id: u64, user: u64) -> Option<String> {
        let mut failures = lock(&self.failures);
        let at = failures.iter().position(|failure| failure.id == id && failure.user == user)?;
        failures.remove(at).map(|failure| failure.why)
    }

    /// The next message of a stream; `None` if the ticket's call is to wait for it.
    pub fn pull(
        &self,
        store: &'static Store,
        id: u64,
        user: u64,
        ticket: &Arc<Ticket>,
    ) -> Result<Option<Answer>, Error> {
        let export = match self.find(id, user) {
            Ok(export) => export,
            Err(error) => {
                return self.take_failure(id, user).map(Answer::Failed).map(Some).ok_or(error);
            }
        };
        if let Err(error) = export.grant.check() {
            export.stream.leave();
            return Err(error);
        }
        let grant = Arc::clone(&export.grant);
        let waiter = || -> Box<dyn FnOnce(Answer) -> bool + Send> {
            let ticket = Arc::clone(ticket);
            Box::new(move |answer| {
                let mut reply = Reply::new(ticket.protocol);
                match grant.holds() {
                    true => write(answer, &mut reply),
                    // The next pull ends it.
                    false => reply.error(LOST),
                }
                ticket.answer(store, reply, 0)
            })
        };
        Ok(export.stream.pull(ticket.caller.client, waiter))
    }

    /// EXPORT END.
    pub fn end_export(&self, id: u64, user: u64) -> Result<(), Error> {
        if self.take_failure(id, user).is_none() {
            self.find(id, user)?.stream.leave();
        }
        Ok(())
    }

    /// A client has gone: nobody reads what it has begun to read, nor what it has begun and nobody
    /// reads.
    pub fn forget(&self, client: u64) {
        for export in lock(&self.exports).iter() {
            let stream = &export.stream;
            if stream.is_read_by(client) || export.client == client && !stream.has_reader() {
                stream.leave();
            }
        }
    }
}

pub fn write(answer: Answer, reply: &mut Reply) {
    match answer {
        Answer::Message(bytes) => reply.bulk_shared(bytes),
        Answer::End => reply.null(),
        Answer::Taken => reply.error("ERR another client reads this stream"),
        Answer::Failed(why) => reply.error(&format!("ERR the export was given up: {why}")),
    }
}

/// Slots in so many parts, some of which have none if there are too few.
fn parts(slots: &[u16], count: usize) -> impl Iterator<Item = &[u16]> {
    let start = move |index: usize| index * slots.len() / count;
    (0..count).map(move |index| &slots[start(index)..start(index + 1)])
}
