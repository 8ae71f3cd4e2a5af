//! The scripts that clients have loaded, by their SHA1; shared by all workers.
//!
//! Scripts that came by EVAL are forgotten, the oldest first, when there are too many: programs
//! that write values into their scripts would otherwise fill the memory. Those that SCRIPT LOAD
//! brought stay.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kvasir_lua::analysis::Touches;
use kvasir_lua::interpreter::Sha;
use kvasir_lua::shebang::Flags;
use kvasir_structures::locks::{read, write};

/// As many scripts of EVAL are kept as Valkey keeps.
const EVAL_SCRIPTS_MAX: usize = 500;

/// A script that compiles.
pub struct Script {
    pub sha: Sha,
    pub body: Vec<u8>,
    pub flags: Flags,
    pub touches: Touches,
}

#[derive(Default)]
pub struct Cache {
    scripts: RwLock<Scripts>,
    /// Changes when a script goes: what workers have compiled is stale.
    generation: AtomicU64,
    evicted: AtomicUsize,
}

#[derive(Default)]
struct Scripts {
    by_sha: HashMap<Sha, Arc<Script>>,
    /// Those that may be forgotten, oldest first.
    evictable: VecDeque<Sha>,
    body_bytes: usize,
}

impl Cache {
    pub fn find(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.read().by_sha.get(sha).cloned()
    }

    /// Keeps a script; for good if `stays`.
    pub fn add(&self, script: Arc<Script>, stays: bool) {
        let mut scripts = self.write();
        let (sha, bytes) = (script.sha, script.body.len());
        if stays {
            scripts.evictable.retain(|other| *other != sha);
        }
        if scripts.by_sha.insert(sha, script).is_some() {
            return;
        }
        scripts.body_bytes += bytes;
        if !stays {
            scripts.evictable.push_back(sha);
        }
        if scripts.evictable.len() > EVAL_SCRIPTS_MAX
            && let Some(oldest) = scripts.evictable.pop_front()
            && let Some(script) = scripts.by_sha.remove(&oldest)
        {
            scripts.body_bytes -= script.body.len();
            self.evicted.fetch_add(1, Relaxed);
            self.generation.fetch_add(1, Relaxed);
        }
    }

    pub fn flush(&self) {
        *self.write() = Scripts::default();
        self.generation.fetch_add(1, Relaxed);
    }

    /// Another number than before if scripts have gone.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// How many scripts there are.
    pub fn len(&self) -> usize {
        self.read().by_sha.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the texts take up, in bytes.
    pub fn body_bytes(&self) -> usize {
        self.read().body_bytes
    }

    /// How many scripts were forgotten to make room.
    pub fn evicted(&self) -> usize {
        self.evicted.load(Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, Scripts> {
        read(&self.scripts)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Scripts> {
        write(&self.scripts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(number: usize) -> Arc<Script> {
        let body = format!("return {number}").into_bytes();
        let sha = kvasir_lua::interpreter::sha(&body);
        Arc::new(Script { sha, body, flags: Flags::default(), touches: Touches::Any })
    }

    #[test]
    fn scripts_of_eval_go_when_there_are_too_many_and_those_loaded_stay() {
        let cache = Cache::default();
        let loaded = script(0);
        cache.add(Arc::clone(&loaded), false);
        cache.add(Arc::clone(&loaded), true);
        for number in 1..=EVAL_SCRIPTS_MAX + 1 {
            cache.add(script(number), false);
        }
        assert!(cache.find(&loaded.sha).is_some());
        assert!(cache.find(&script(1).sha).is_none());
        assert!(cache.find(&script(2).sha).is_some());
        assert_eq!((cache.len(), cache.evicted()), (EVAL_SCRIPTS_MAX + 1, 1));
        cache.flush();
        assert_eq!((cache.len(), cache.body_bytes()), (0, 0));
    }
}
