//! Records of an image on their way into batches that a client pulls.
//!
//! A stream is a range of slots, with a thread of its own that visits them, and a client that pulls
//! what it makes. Whoever saves records, the thread or who is about to change one, adds their rows
//! to one of a few that are being filled; the thread makes messages of those that are full. It
//! stops visiting while enough waits for the client. Who changes something never waits: where the
//! client is so slow that memory is full, or pulls nothing for too long, the export is given up.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::snapshot::{Image, Sink};
use kvasir_keyspace::value::{Object, Record};
use kvasir_keyspace::view::Env;
use kvasir_structures::locks::lock;
use kvasir_structures::record::Record as OwnedRecord;

use crate::budget::Share;
use crate::ipc;
use crate::rows::{BATCH_BYTES, Rows};
use crate::selection::Selection;
use crate::shape::Shape;
use crate::turns::{Shift, Turns};
use crate::visit::{Place, cost_of};

/// Rows that are filled at the same time: more threads than these share them.
const FILLING: usize = 4;
/// Messages that wait for the client before the thread stops visiting.
const READY_BYTES_MAX: usize = 4 * BATCH_BYTES;
/// What a batch takes on its way: its rows, and the message of them.
const NEXT_BYTES: usize = 2 * BATCH_BYTES;
/// How often a thread that has nothing to do looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(200);
const MEMORY_FULL: &str = "analytics-memory is full: the reader is slower than what changes, or \
                           other exports and graphs have it";

static END: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(ipc::END.to_vec()));

/// What a client is given.
#[derive(Clone)]
pub enum Answer {
    Message(Arc<Vec<u8>>),
    /// There is nothing more.
    End,
    Failed(String),
    /// Another client reads the stream.
    Taken,
}

/// Gets an answer for a client that waits; false if that waits no more.
pub type Waiter = Box<dyn FnOnce(Answer) -> bool + Send>;

/// What an export is of, the same for all its streams.
pub struct Order {
    pub shape: Shape,
    pub selection: Selection,
    /// At the cut.
    pub env: Env,
}

/// A range of slots on its way to one client.
pub struct Stream {
    pub id: u64,
    order: Arc<Order>,
    slots: Vec<u16>,
    filling: [Mutex<Rows>; FILLING],
    /// Which of them the next one tries first.
    next_filling: AtomicUsize,
    /// Copies of large values, to be made rows of by the thread.
    large: Mutex<Vec<OwnedRecord<Object>>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    is_given_up: AtomicBool,
    share: Share,
    turns: Arc<Turns>,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub misfits: AtomicU64,
}

struct Queue {
    /// Rows to make messages of.
    full: Vec<Rows>,
    /// With the bytes that were taken for each.
    ready: VecDeque<(Arc<Vec<u8>>, usize)>,
    ready_bytes: usize,
    is_complete: bool,
    /// The client has everything, or has gone.
    is_over: bool,
    failure: Option<String>,
    waiter: Option<Waiter>,
    /// The client that pulls.
    reader: Option<u64>,
    last_pull: Instant,
}

impl Stream {
    /// `None` if there is no memory for one.
    pub fn new(
        id: u64,
        order: Arc<Order>,
        slots: Vec<u16>,
        share: Share,
        turns: Arc<Turns>,
    ) -> Option<Stream> {
        if !share.take(FILLING * BATCH_BYTES) {
            return None;
        }
        let names = order.shape.columns.iter().map(|column| (&column.name[..], column.data_type));
        let schema = Arc::new(ipc::schema(names));
        let queue = Queue {
            full: Vec::new(),
            ready: VecDeque::from([(schema, 0)]),
            ready_bytes: 0,
            is_complete: false,
            is_over: false,
            failure: None,
            waiter: None,
            reader: None,
            last_pull: Instant::now(),
        };
        Some(Stream {
            id,
            filling: std::array::from_fn(|_| Mutex::new(Rows::new(&order.shape))),
            next_filling: AtomicUsize::new(0),
            order,
            slots,
            large: Mutex::default(),
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            is_given_up: AtomicBool::new(false),
            share,
            turns,
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            misfits: AtomicU64::new(0),
        })
    }

    /// What the client gets next; if that is not there yet it waits.
    pub fn pull(&self, client: u64, waiter: impl FnOnce() -> Waiter) -> Option<Answer> {
        let mut queue = self.queue();
        if *queue.reader.get_or_insert(client) != client {
            return Some(Answer::Taken);
        }
        queue.last_pull = Instant::now();
        if let Some(failure) = queue.failure.clone() {
            queue.is_over = true;
            self.changed.notify_all();
            return Some(Answer::Failed(failure));
        }
        if let Some((message, taken)) = queue.ready.pop_front() {
            queue.ready_bytes -= taken;
            self.share.give(taken);
            self.bytes.fetch_add(message.len() as u64, Relaxed);
            self.changed.notify_all();
            return Some(Answer::Message(message));
        }
        if queue.is_complete {
            queue.is_over = true;
            self.changed.notify_all();
            return Some(Answer::End);
        }
        queue.waiter = Some(waiter());
        None
    }

    /// From the first to the last of its slots; nothing if it has none.
    pub fn slots(&self) -> Option<Range<u16>> {
        Some(*self.slots.first()?..*self.slots.last()? + 1)
    }

    /// Whether this client has begun to pull it.
    pub fn is_read_by(&self, client: u64) -> bool {
        self.queue().reader == Some(client)
    }

    /// Whether any client has begun to pull it.
    pub fn has_reader(&self) -> bool {
        self.queue().reader.is_some()
    }

    /// The client wants no more of it.
    pub fn leave(&self) {
        self.queue().is_over = true;
        self.is_given_up.store(true, Relaxed);
        self.changed.notify_all();
    }

    /// Why it was given up, if it was.
    pub fn failure(&self) -> Option<String> {
        self.queue().failure.clone()
    }

    /// As [`Stream::failure`], if nobody has been told.
    pub fn untold_failure(&self) -> Option<String> {
        let queue = self.queue();
        queue.failure.clone().filter(|_| !queue.is_over)
    }

    fn give_up(&self, why: String) {
        self.is_given_up.store(true, Relaxed);
        let mut queue = self.queue();
        if queue.failure.is_some() || queue.is_over {
            return;
        }
        for rows in std::mem::take(&mut queue.full) {
            self.share.give(rows.size_bytes());
        }
        self.forget_ready(&mut queue);
        if let Some(waiter) = queue.waiter.take()
            && waiter(Answer::Failed(why.clone()))
        {
            queue.is_over = true;
        }
        queue.failure = Some(why);
        self.changed.notify_all();
    }

    fn forget_ready(&self, queue: &mut Queue) {
        for (_, taken) in std::mem::take(&mut queue.ready) {
            queue.ready_bytes -= taken;
            self.share.give(taken);
        }
    }

    /// Visits all slots and ends the image with `end`; returns when the client has everything, or
    /// pulls no more.
    pub fn run(
        &self,
        place: Place<'_>,
        image: Option<&Image>,
        patience: Duration,
        end: impl FnOnce(),
    ) {
        if let Some(image) = image {
            place.visit(image, &self.slots, |_| {
                self.make_messages(patience);
                self.wait_for_room(patience);
                !self.is_given_up.load(Relaxed)
            });
        }
        end();
        self.make_messages(patience);
        for rows in &self.filling {
            let rows = std::mem::replace(&mut *lock(rows), Rows::new(&self.order.shape));
            if !rows.is_empty() && self.add_full(rows) {
                self.make_messages(patience);
            }
        }
        self.complete(patience);
    }

    fn complete(&self, patience: Duration) {
        let mut queue = self.queue();
        if queue.failure.is_none() && !self.give_to_waiter(&mut queue, &END) {
            queue.ready.push_back((Arc::clone(&END), 0));
        }
        queue.is_complete = true;
        drop(queue);
        self.wait(patience, |_| false);
        self.is_given_up.store(true, Relaxed);
        *lock(&self.large) = Vec::new();
        self.forget_ready(&mut self.queue());
    }

    /// Waits until the client has taken enough of what is ready for more to have room.
    fn wait_for_room(&self, patience: Duration) {
        self.wait(patience, |queue| {
            let has_room = || self.share.left() >= NEXT_BYTES;
            queue.ready_bytes == 0 || queue.ready_bytes < READY_BYTES_MAX && has_room()
        });
    }

    /// Waits for something that the client does; not for ever, and not if it was given up.
    fn wait(&self, patience: Duration, is_done: impl Fn(&Queue) -> bool) {
        let mut queue = self.queue();
        while !is_done(&queue) && !queue.is_over && queue.failure.is_none() {
            if queue.waiter.is_none() && queue.last_pull.elapsed() >= patience {
                drop(queue);
                return self.give_up(format!(
                    "the reader has pulled nothing for {} s (analytics-reader-timeout)",
                    patience.as_secs()
                ));
            }
            let waited = self.changed.wait_timeout(queue, LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes rows of what is large, and messages of the rows that are full.
    fn make_messages(&self, patience: Duration) {
        loop {
            let full = std::mem::take(&mut self.queue().full);
            for rows in full {
                self.make_message(&rows);
            }
            let large = lock(&self.large).pop();
            let Some(record) = large else { return };
            self.share.give(cost_of(&record));
            self.take_picture(&record, patience);
        }
    }

    fn make_message(&self, rows: &Rows) {
        let turn = self.turns.take();
        let message = Arc::new(rows.to_message());
        drop(turn);
        self.rows.fetch_add(rows.len() as u64, Relaxed);
        self.misfits.fetch_add(rows.misfits(), Relaxed);
        if !self.is_given_up.load(Relaxed) && !self.add_ready(message) {
            self.give_up(MEMORY_FULL.into());
        }
        self.share.give(rows.size_bytes());
    }

    /// Gives a message to the client that waits for it, or keeps it; false if memory is full.
    fn add_ready(&self, message: Arc<Vec<u8>>) -> bool {
        let mut queue = self.queue();
        if self.give_to_waiter(&mut queue, &message) {
            return true;
        }
        let fits = self.share.take(message.len());
        if fits {
            queue.ready_bytes += message.len();
            let taken = message.len();
            queue.ready.push_back((message, taken));
        }
        fits
    }

    fn give_to_waiter(&self, queue: &mut Queue, message: &Arc<Vec<u8>>) -> bool {
        let Some(waiter) = queue.waiter.take().filter(|_| queue.ready.is_empty()) else {
            return false;
        };
        queue.last_pull = Instant::now();
        let is_given = waiter(Answer::Message(Arc::clone(message)));
        if is_given {
            self.bytes.fetch_add(message.len() as u64, Relaxed);
        }
        is_given
    }

    /// Makes rows of a large value, without any lock; waits for the client in between.
    fn take_picture(&self, record: &OwnedRecord<Object>, patience: Duration) {
        let Order { shape, env, .. } = &*self.order;
        let (mut rows, mut shift) = (Rows::new(shape), Shift::new(&self.turns));
        shift.next_piece();
        let mut full = |rows: Rows| {
            shift.rest();
            let fits = self.charge(&rows);
            if fits {
                self.make_message(&rows);
                self.wait_for_room(patience);
            }
            shift.next_piece();
            fits && !self.is_given_up.load(Relaxed)
        };
        let taken = rows.take(record.borrow(), shape, env, &mut full);
        match taken {
            Err(misfit) => self.give_up(misfit.text),
            Ok(()) if !rows.is_empty() => drop(full(rows)),
            Ok(()) => {}
        }
    }

    fn charge(&self, rows: &Rows) -> bool {
        let fits = self.share.take(rows.size_bytes());
        if !fits {
            self.give_up(MEMORY_FULL.into());
        }
        fits
    }

    /// Puts rows where the thread makes a message of them.
    fn add_full(&self, rows: Rows) -> bool {
        let fits = self.charge(&rows);
        if fits {
            self.queue().full.push(rows);
        }
        fits
    }

    /// Rows that nobody fills at this moment, if there are any.
    fn filling(&self) -> MutexGuard<'_, Rows> {
        let first = self.next_filling.load(Relaxed);
        for index in 0..FILLING {
            if let Ok(rows) = self.filling[(first + index) % FILLING].try_lock() {
                return rows;
            }
        }
        self.next_filling.store((first + 1) % FILLING, Relaxed);
        lock(&self.filling[first % FILLING])
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl Sink for Stream {
    fn take(&self, _: DbIndex, records: &[Record<'_>]) {
        let Order { shape, selection, env } = &*self.order;
        if self.is_given_up.load(Relaxed) {
            return;
        }
        let mut wanted = records.iter().filter(|record| selection.takes(**record, env)).peekable();
        if wanted.peek().is_none() {
            return;
        }
        let mut rows = self.filling();
        for record in wanted {
            let taken = rows.take(*record, shape, env, &mut |rows| self.add_full(rows));
            if let Err(misfit) = taken {
                drop(rows);
                return self.give_up(misfit.text);
            }
        }
    }

    fn prefers_copy(&self, _: usize) -> bool {
        false
    }

    fn take_large(&self, _: DbIndex, record: OwnedRecord<Object>) {
        let Order { selection, env, .. } = &*self.order;
        if self.is_given_up.load(Relaxed) || !selection.takes(record.borrow(), env) {
            return;
        }
        if !self.share.take(cost_of(&record)) {
            return self.give_up(MEMORY_FULL.into());
        }
        lock(&self.large).push(record);
    }
}
