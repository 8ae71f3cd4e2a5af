//! As a replica: whose data this server follows, and how that goes. The thread that does so is
//! `following`.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvasir_structures::locks::lock;

/// What all threads see of it.
#[derive(Default)]
pub struct Upstream {
    state: Mutex<State>,
    changed: Condvar,
    /// Changes with the server to follow, with `state` locked.
    version: AtomicU64,
    is_replica: AtomicBool,
    stage: AtomicUsize,
    /// When the primary was last heard of, in ms since 1970.
    pub heard_ms: AtomicU64,
    /// Since when there has been no link, in ms since 1970; 0: there is one.
    pub down_since_ms: AtomicU64,
    /// Bytes of the snapshot that have come, and are to come, as far as that is known.
    pub received: AtomicU64,
    pub total: AtomicU64,
    /// Bytes of the stream that have come and wait for a pause of clients to end.
    pub unused: AtomicU64,
}

/// Ends a link, for who has it to find out.
pub type CutOff = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    primary: Option<Primary>,
    /// Ends the link, when the primary is another one.
    cut_off: Option<CutOff>,
    /// What CLIENT LIST calls the link.
    client: u64,
}

/// A server to follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Primary {
    pub host: String,
    pub port: u16,
}

/// How far the link is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Down,
    Connecting,
    /// What is to be sent is agreed upon.
    Greeting,
    GetsSnapshot,
    Online,
}

impl Stage {
    /// As ROLE names it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Down => "connect",
            Stage::Connecting => "connecting",
            Stage::Greeting => "handshake",
            Stage::GetsSnapshot => "sync",
            Stage::Online => "connected",
        }
    }
}

impl Upstream {
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Acquire)
    }

    /// Whether a snapshot is on its way, in place of what is here.
    pub fn gets_snapshot(&self) -> bool {
        self.is_replica() && self.stage() == Stage::GetsSnapshot
    }

    pub fn primary(&self) -> Option<Primary> {
        lock(&self.state).primary.clone()
    }

    /// Follows this one from now on, or nobody.
    pub fn follow(&self, primary: Option<Primary>, now_ms: u64) {
        let mut state = lock(&self.state);
        self.is_replica.store(primary.is_some(), Release);
        self.down_since_ms.store(if primary.is_some() { now_ms } else { 0 }, Relaxed);
        self.set_stage(Stage::Down);
        state.primary = primary;
        self.version.fetch_add(1, Relaxed);
        if let Some(cut_off) = state.cut_off.take() {
            cut_off();
        }
        self.changed.notify_all();
    }

    /// The server to follow, once there is one, and the version of that wish.
    pub fn wait(&self) -> (Primary, u64) {
        let mut state = lock(&self.state);
        loop {
            if let Some(wish) = self.wish_of(&state) {
                return wish;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As `wait`, if there is one.
    pub fn wish(&self) -> Option<(Primary, u64)> {
        self.wish_of(&lock(&self.state))
    }

    fn wish_of(&self, state: &State) -> Option<(Primary, u64)> {
        Some((state.primary.clone()?, self.version.load(Relaxed)))
    }

    /// Rests, unless another one is to be followed.
    pub fn rest(&self, version: u64, time: Duration) {
        let begin = Instant::now();
        let mut state = lock(&self.state);
        while self.is_current(version) {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the wish is still that one. It changes with the gate closed, so who is inside may
    /// rely on the answer.
    #[inline]
    pub fn is_current(&self, version: u64) -> bool {
        self.version.load(Relaxed) == version
    }

    /// Ends the link, if clients call it so; it is taken up again.
    pub fn break_off(&self, client: u64, now_ms: u64) {
        let mut state = lock(&self.state);
        if state.client != client {
            return;
        }
        let Some(cut_off) = state.cut_off.take() else { return };
        cut_off();
        // Who follows may have to wait before it notices.
        if self.stage() == Stage::Online {
            self.set_stage(Stage::Down);
            let _ = self.down_since_ms.compare_exchange(0, now_ms, Relaxed, Relaxed);
        }
    }

    /// Has the link cut off when the wish changes, or somebody breaks the link off that clients
    /// know by this number; false if the wish has changed already.
    pub fn hold(&self, version: u64, client: u64, cut_off: CutOff) -> bool {
        let mut state = lock(&self.state);
        if !self.is_current(version) {
            return false;
        }
        state.cut_off = Some(cut_off);
        state.client = client;
        true
    }

    pub fn stage(&self) -> Stage {
        [Stage::Down, Stage::Connecting, Stage::Greeting, Stage::GetsSnapshot, Stage::Online]
            [self.stage.load(Relaxed)]
    }

    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as usize, Relaxed);
    }

    /// Changes something about the link, unless the wish has changed.
    pub fn note(&self, version: u64, change: impl FnOnce(&Upstream)) {
        let _state = lock(&self.state);
        if self.is_current(version) {
            change(self);
        }
    }
}

impl std::fmt::Display for Primary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
