//! How others reach a worker: its waker, what it is asked to do, its figures.

pub mod news;
pub mod ranks;

use std::ops::Deref;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use kvasir_acl::user::User;
use kvasir_keyspace::waiting::Caller;
use kvasir_reactor::{Socket, Waker};
use kvasir_resp::reply::Reply;
use kvasir_structures::locks::lock;

use crate::clients::Place;
use crate::net::listen::ListenerKind;
use crate::net::listening::Change;
use crate::replicas::sync_file::Begun;
use crate::scripts::state::ScriptState;
use crate::stats::WorkerStats;
use crate::workers::news::News;
use crate::workers::ranks::Ranks;

/// All workers, by number.
pub struct Workers {
    handles: Box<[WorkerHandle]>,
    /// Of the thread that executes a primary's stream.
    pub follower: WorkerStats,
}

/// How others reach a worker.
pub struct WorkerHandle {
    pub waker: Waker,
    pub inbox: Mutex<Vec<Message>>,
    pub stats: WorkerStats,
    /// The script that it runs.
    pub script: ScriptState,
    /// Connections it has or is about to get.
    pub connection_count: AtomicUsize,
}

/// What one worker asks of another.
pub enum Message {
    /// A new connection, accepted elsewhere.
    Adopt { socket: Socket, kind: ListenerKind, place: Place },
    /// Accept at other sockets.
    Listen(Change),
    /// Close this client's connection, if it is still there.
    Kill(u64),
    /// End the wait of this client.
    EndWait(u64, End),
    /// End the waits of all clients that this concerns.
    EndWaits(End),
    /// The log has begun anew, in another history: nothing of the former one is waited for.
    LogRestarted,
    /// A call that waited here was answered.
    Unblock(Served),
    /// A replica's snapshot has begun.
    Sync(Box<Begun>),
    /// Keep what was computed for a call that waits here.
    Ranks(Box<Ranks>),
    /// Tell those whom it concerns what a primary's calls have done.
    News(Box<News>),
    /// This user was changed, and may have lost rights.
    CheckUser(Arc<User>),
    /// Much memory was freed: give back to the system what the worker's allocator keeps.
    GiveBack,
    /// Slots have changed hands: look who waits for them.
    SlotsChanged,
    /// The configuration changed, or the server stops: look.
    Look,
}

/// The answer to a call that has waited.
pub struct Served {
    pub caller: Caller,
    pub reply: Reply,
    /// How far the log must be on disk before it is sent.
    pub fence: u64,
    /// How long serving it took.
    pub us: u64,
}

/// How a wait ends without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Timeout,
    Error,
    /// The server has become a replica.
    Replica,
    /// The server does not end, for which a call has waited.
    GoesOn,
}

impl Workers {
    /// `commands`: how many there are in the table.
    pub fn new(wakers: Vec<Waker>, commands: usize) -> Workers {
        let worker = |waker| WorkerHandle {
            waker,
            inbox: Mutex::new(Vec::new()),
            stats: WorkerStats::new(commands),
            script: ScriptState::default(),
            connection_count: AtomicUsize::new(0),
        };
        let handles = wakers.into_iter().map(worker).collect();
        Workers { handles, follower: WorkerStats::new(commands) }
    }

    /// The figures of all who execute calls.
    pub fn stats(&self) -> impl Iterator<Item = &WorkerStats> + Clone {
        self.handles.iter().map(|worker| &worker.stats).chain([&self.follower])
    }

    /// The one with the fewest connections.
    pub fn least_busy(&self) -> usize {
        let counts = self.iter().map(|worker| worker.connection_count.load(Relaxed));
        let least = counts.enumerate().min_by_key(|(_, count)| *count);
        least.expect("there is a worker").0
    }

    pub fn send(&self, worker: usize, message: Message) {
        let handle = &self[worker];
        lock(&handle.inbox).push(message);
        handle.waker.wake();
    }

    pub fn send_all(&self, message: impl Fn() -> Message) {
        (0..self.len()).for_each(|worker| self.send(worker, message()));
    }

    /// Whether one runs a script, busy or not.
    pub fn run_a_script(&self) -> bool {
        self.iter().any(|worker| worker.script.turn().is_some())
    }

    /// Whether one runs a script that nobody may end, since it has written.
    pub fn have_unfinished_scripts(&self) -> bool {
        self.iter().any(|worker| worker.script.is_unfinished())
    }
}

impl Deref for Workers {
    type Target = [WorkerHandle];

    fn deref(&self) -> &[WorkerHandle] {
        &self.handles
    }
}
