//! Whether data is being loaded, and how far that is; who loads it is `loading`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvasir_keyspace::error::Error;
use kvasir_persistence::cancel::Cancel;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::load::Progress;
use kvasir_reactor::{clock, signal};
use kvasir_structures::locks::lock;

/// Whether data is being loaded, and how far that is.
#[derive(Default)]
pub struct Loading {
    /// Also once it has failed: nobody sees a part of the data.
    is_under_way: AtomicBool,
    /// Other data is loaded, while clients work with what there is.
    is_aside: AtomicBool,
    /// Asked when the server ends.
    pub end: Arc<Cancel>,
    /// Why the data could not be loaded.
    pub failure: Mutex<Option<String>>,
    pub progress: Progress,
    /// `key-load-delay`.
    pub key_delay: KeyDelay,
    pub started_ms: AtomicU64,
    /// Calls that come earlier are held rather than refused.
    held_until_ms: AtomicU64,
    /// What the snapshot says its server had in use.
    pub used_memory: AtomicU64,
}

/// Calls are held so long before they are told to wait: most data is loaded by then, and clients of
/// a server that has just started, or has begun to follow another, never hear of it.
const HOLD_MS: u64 = 500;

pub const LOADING: Error = Error::fixed("LOADING Redis is loading the dataset in memory");

impl Loading {
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::Acquire)
    }

    /// Fails while data is loaded.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        if self.is_under_way() { Err(LOADING) } else { Ok(()) }
    }

    /// Whether other data is loaded while clients work with what there is.
    #[inline]
    pub fn is_aside(&self) -> bool {
        self.is_aside.load(Ordering::Acquire)
    }

    /// As `begin`, of data that nobody sees before it is whole.
    pub fn begin_aside(&self) {
        self.started_ms.store(clock::now_unix_ms(), Ordering::Relaxed);
        self.is_aside.store(true, Ordering::Release);
    }

    /// Has calls held for a moment from now on. To be called before it begins: no call comes in
    /// between.
    pub fn hold_calls(&self) {
        self.held_until_ms.store(clock::now_unix_ms() + HOLD_MS, Ordering::Relaxed);
    }

    /// Whether a call that may not run yet may do so soon.
    pub fn holds_calls(&self, now_ms: u64) -> bool {
        self.is_under_way() && now_ms < self.held_until_ms.load(Ordering::Relaxed)
    }

    /// Whether the data will be of use to anybody.
    pub fn is_wanted(&self) -> bool {
        !self.end.is_asked() && signal::shutdown_requested().is_none()
    }

    /// What gives up a snapshot that is taken while data is loaded.
    pub fn cancel(&self) -> &Arc<Cancel> {
        &self.end
    }

    /// Changes something on the disk, unless the server ends: then all stays as it is.
    pub fn change<R>(&self, change: impl FnOnce() -> R) -> Result<R, String> {
        self.end.commit(change).ok_or_else(|| "given up".into())
    }

    pub fn begin(&self) {
        self.started_ms.store(clock::now_unix_ms(), Ordering::Relaxed);
        self.used_memory.store(0, Ordering::Relaxed);
        self.is_under_way.store(true, Ordering::Release);
    }

    pub fn end(&self) {
        self.is_under_way.store(false, Ordering::Release);
        self.is_aside.store(false, Ordering::Release);
        self.held_until_ms.store(0, Ordering::Relaxed);
    }

    /// What to tell the user if the server ended because its data could not be loaded.
    pub fn take_failure(&self) -> Option<String> {
        lock(&self.failure).take()
    }
}

/// Seconds that are left if it goes on as until now.
pub fn eta_s(elapsed: Duration, bytes: u64, total: u64) -> u64 {
    let left = total.saturating_sub(bytes);
    (elapsed.as_secs_f64() * left as f64 / bytes.max(1) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_left() {
        assert_eq!(eta_s(Duration::from_secs(2), 25, 100), 6);
        assert_eq!(eta_s(Duration::from_secs(2), 0, 0), 0);
        assert_eq!(eta_s(Duration::ZERO, 0, 100), 0);
    }
}
