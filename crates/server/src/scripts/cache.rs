//! The scripts that clients have loaded, by their SHA1; shared by all workers.
//!
//! Scripts that came by EVAL are forgotten when there are too many, those first that nobody has
//! used for long: programs that write values into their scripts would otherwise fill the memory.
//! Those that SCRIPT LOAD brought stay. A worker that has compiled a script sees by the script
//! itself that it was forgotten, so that one that goes costs the others nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kvasir_lua::analysis::Touches;
use kvasir_lua::interpreter::Sha;
use kvasir_lua::shebang::Flags;
use kvasir_structures::locks::{read, write};

/// As many scripts of EVAL are kept as Valkey keeps.
const EVAL_SCRIPTS_MAX: usize = 500;

/// So many forgotten scripts, and texts of so many bytes, workers may keep until they look for
/// what they have of them.
const UNSWEPT_SCRIPTS_MAX: usize = 64;
const UNSWEPT_BYTES_MAX: usize = 1 << 20;

/// A script that compiles.
pub struct Script {
    pub sha: Sha,
    pub body: Vec<u8>,
    pub flags: Flags,
    pub touches: Touches,
    /// It is not in the cache any more. Changed under the cache's lock.
    is_forgotten: AtomicBool,
    /// Somebody ran it since it was last about to be forgotten.
    was_used: AtomicBool,
}

impl Script {
    pub fn new(sha: Sha, body: Vec<u8>, flags: Flags, touches: Touches) -> Script {
        let (is_forgotten, was_used) = (AtomicBool::new(false), AtomicBool::new(false));
        Script { sha, body, flags, touches, is_forgotten, was_used }
    }

    #[inline]
    pub fn is_forgotten(&self) -> bool {
        self.is_forgotten.load(Relaxed)
    }

    /// Called for each use but the first. All workers read the line that it is in, so it is written
    /// only where that changes something.
    #[inline]
    pub fn note_use(&self) {
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
    }
}

#[derive(Default)]
pub struct Cache {
    scripts: RwLock<Scripts>,
    flushes: AtomicU64,
    sweeps: AtomicU64,
    evicted: AtomicUsize,
}

#[derive(Default)]
struct Scripts {
    by_sha: HashMap<Sha, Arc<Script>>,
    /// Those that may be forgotten, oldest first.
    evictable: VecDeque<Sha>,
    body_bytes: usize,
    /// Forgotten since workers were last told to look.
    unswept: Unswept,
}

/// Scripts that workers may have yet.
#[derive(Default)]
struct Unswept {
    count: usize,
    body_bytes: usize,
}

impl Scripts {
    /// Forgets the oldest script that nobody has used since it was last asked for.
    fn forget_one(&mut self) -> Option<Arc<Script>> {
        for _ in 0..self.evictable.len() {
            let used = |sha| self.by_sha.get(sha).is_some_and(|one| one.was_used.load(Relaxed));
            if !self.evictable.front().is_some_and(used) {
                break;
            }
            self.by_sha[&self.evictable[0]].was_used.store(false, Relaxed);
            self.evictable.rotate_left(1);
        }
        let script = self.by_sha.remove(&self.evictable.pop_front()?)?;
        script.is_forgotten.store(true, Relaxed);
        self.body_bytes -= script.body.len();
        self.unswept.count += 1;
        self.unswept.body_bytes += script.body.len();
        Some(script)
    }
}

impl Cache {
    pub fn find(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.read().by_sha.get(sha).cloned()
    }

    /// Keeps a script; for good if `stays`. Returns the one that is kept: another worker may have
    /// been faster.
    pub fn add(&self, script: Arc<Script>, stays: bool) -> Arc<Script> {
        if !stays && let Some(known) = self.find(&script.sha) {
            return known;
        }
        let mut scripts = self.write();
        let sha = script.sha;
        if stays {
            scripts.evictable.retain(|other| *other != sha);
        }
        if let Some(known) = scripts.by_sha.get(&sha) {
            return Arc::clone(known);
        }
        if !stays {
            if scripts.evictable.len() >= EVAL_SCRIPTS_MAX && scripts.forget_one().is_some() {
                self.evicted.fetch_add(1, Relaxed);
            }
            scripts.evictable.push_back(sha);
        }
        let Unswept { count, body_bytes } = scripts.unswept;
        if count >= UNSWEPT_SCRIPTS_MAX || body_bytes >= UNSWEPT_BYTES_MAX {
            scripts.unswept = Unswept::default();
            self.sweeps.fetch_add(1, Relaxed);
        }
        scripts.body_bytes += script.body.len();
        script.is_forgotten.store(false, Relaxed);
        scripts.by_sha.insert(sha, Arc::clone(&script));
        script
    }

    pub fn flush(&self) {
        *self.write() = Scripts::default();
        self.flushes.fetch_add(1, Relaxed);
    }

    /// How often all scripts have gone: what workers have compiled before is stale.
    #[inline]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// Changes when workers should drop what they have of forgotten scripts.
    #[inline]
    pub fn sweeps(&self) -> u64 {
        self.sweeps.load(Relaxed)
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

    /// CONFIG RESETSTAT.
    pub fn reset_figures(&self) {
        self.evicted.store(0, Relaxed);
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
        Arc::new(Script::new(sha, body, Flags::default(), Touches::Any))
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

    #[test]
    fn scripts_in_use_outlive_those_that_are_not() {
        let cache = Cache::default();
        let all: Vec<_> = (0..EVAL_SCRIPTS_MAX).map(script).collect();
        all.iter().for_each(|script| drop(cache.add(Arc::clone(script), false)));
        all.iter().filter(|script| script.sha != all[7].sha).for_each(|script| script.note_use());
        cache.add(script(1000), false);
        assert!(cache.find(&all[7].sha).is_none() && all[7].is_forgotten());
        assert!(!all[0].is_forgotten() && cache.find(&script(1000).sha).is_some());
        // Where all are in use the newest stays as well.
        all.iter().for_each(|script| script.note_use());
        cache.find(&script(1000).sha).unwrap().note_use();
        cache.add(script(1001), false);
        assert!(cache.find(&script(1001).sha).is_some());
        assert_eq!((cache.len(), cache.evicted()), (EVAL_SCRIPTS_MAX, 2));
    }

    #[test]
    fn workers_are_told_to_look_when_much_was_forgotten() {
        let cache = Cache::default();
        let sweeps_of = |numbers: std::ops::Range<usize>| {
            numbers.for_each(|number| drop(cache.add(script(number), false)));
            cache.sweeps()
        };
        assert_eq!(sweeps_of(0..EVAL_SCRIPTS_MAX), 0);
        assert_eq!(sweeps_of(1000..1000 + 2 * UNSWEPT_SCRIPTS_MAX), 2);
    }

    #[test]
    fn of_two_workers_that_bring_a_script_the_first_has_it_kept() {
        let cache = Cache::default();
        let (first, second) = (script(1), script(1));
        assert!(Arc::ptr_eq(&cache.add(Arc::clone(&first), false), &first));
        assert!(Arc::ptr_eq(&cache.add(Arc::clone(&second), false), &first));
        assert!(Arc::ptr_eq(&cache.add(second, true), &first));
    }
}
