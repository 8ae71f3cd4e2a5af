//! What is known of a client that tracks keys (`tracking`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::clients::Client;

/// Whoever changed a key, where no client did.
pub const NOBODY: u64 = 0;
/// The same, where it was evicted.
pub const EVICTION: u64 = u64::MAX;

/// Which keys a client is told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Those that it has read.
    Read,
    /// Those that it has read by a call behind CLIENT CACHING YES.
    OptIn,
    /// Those that it has read, but by calls behind CLIENT CACHING NO.
    OptOut,
    /// Those that begin with its prefixes.
    Broadcast,
}

/// What is known of a client that tracks; another one takes its place when it asks anew.
pub struct Tracker {
    pub client: Arc<Client>,
    pub mode: Mode,
    /// It is not told of what it changed itself.
    pub no_loop: bool,
    /// The client that is told in its place.
    pub redirect: Option<u64>,
    /// In broadcasting mode, at least one.
    pub prefixes: Vec<Arc<[u8]>>,
    /// `redirect` had gone when it should have been told.
    pub is_broken: AtomicBool,
}

/// What a connection knows of its own tracking.
pub struct Tracked {
    pub tracker: Arc<Tracker>,
    /// CLIENT CACHING was called for the call that comes, or runs.
    pub has_choice: bool,
}

impl Tracked {
    /// Whether the client caches what the call at work reads.
    pub fn reads(&self) -> bool {
        match self.tracker.mode {
            Mode::Read => true,
            Mode::OptIn => self.has_choice,
            Mode::OptOut => !self.has_choice,
            Mode::Broadcast => false,
        }
    }
}

/// As GETREDIR and CLIENT LIST show it: 0 for none, -1 for who does not track.
pub fn redirect(tracker: Option<&Tracker>) -> i64 {
    tracker.map_or(-1, |tracker| tracker.redirect.unwrap_or(0) as i64)
}
