//! Slots that move all at once: what is under way and what was, as CLUSTER GETSLOTMIGRATIONS tells
//! of it, and slots whose calls wait meanwhile. Who does the work is `handover`.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use kvasir_cluster::id::NodeId;
use kvasir_cluster::slots::SlotSet;
use kvasir_reactor::clock;
use kvasir_structures::locks::lock;

use crate::cluster::hands::{Chunk, Chunks};
use crate::log::{notice, warning};

/// Slots on their way from one node to another.
pub struct Job {
    /// 40 hexadecimal digits.
    pub name: String,
    pub is_export: bool,
    pub slots: SlotSet,
    /// The slots as they were given.
    pub ranges: String,
    pub source: NodeId,
    pub target: NodeId,
    pub created_s: u64,
    /// Of the keyspace's databases, when the job began there.
    pub replaced: AtomicU64,
    progress: Mutex<Progress>,
    /// When the other side was last heard of, in seconds since 1970.
    pub heard_s: AtomicU64,
    /// Bytes of the log that are still to be sent.
    pub left: AtomicU64,
}

/// What a job is to be.
pub struct Wanted {
    pub name: String,
    pub is_export: bool,
    pub slots: SlotSet,
    pub ranges: String,
    pub source: NodeId,
    pub target: NodeId,
}

/// How far a job is.
#[derive(Clone)]
pub struct Progress {
    pub stage: Stage,
    pub message: String,
    pub updated_s: u64,
}

/// As Valkey names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Connecting,
    Establishing,
    WaitsToSnapshot,
    Snapshotting,
    Streaming,
    Paused,
    /// The target was asked to take the slots: only it knows whose they are.
    Granted,
    ReceivesSnapshot,
    Success,
    Failed,
    Cancelled,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Connecting => "connecting",
            Stage::Establishing => "reading-establish-response",
            Stage::WaitsToSnapshot => "waiting-to-snapshot",
            Stage::Snapshotting => "snapshotting",
            Stage::Streaming => "waiting-to-pause",
            Stage::Paused => "failover-paused",
            Stage::Granted => "failover-granted",
            Stage::ReceivesSnapshot => "receiving-snapshot",
            Stage::Success => "success",
            Stage::Failed => "failed",
            Stage::Cancelled => "cancelled",
        }
    }

    pub fn is_last(self) -> bool {
        matches!(self, Stage::Success | Stage::Failed | Stage::Cancelled)
    }
}

impl Job {
    pub fn new(wanted: Wanted) -> Arc<Job> {
        let Wanted { name, is_export, slots, ranges, source, target } = wanted;
        let now_s = clock::now_unix_ms() / 1000;
        let stage = if is_export { Stage::Connecting } else { Stage::ReceivesSnapshot };
        let progress = Progress { stage, message: String::new(), updated_s: now_s };
        Arc::new(Job {
            name,
            is_export,
            slots,
            ranges,
            source,
            target,
            created_s: now_s,
            replaced: AtomicU64::new(0),
            progress: Mutex::new(progress),
            heard_s: AtomicU64::new(now_s),
            left: AtomicU64::new(0),
        })
    }

    pub fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    pub fn stage(&self) -> Stage {
        lock(&self.progress).stage
    }

    pub fn note_heard(&self) {
        self.heard_s.store(clock::now_unix_ms() / 1000, Relaxed);
    }

    /// It cannot end well, and that is why; it ends once nobody works on it any more.
    pub fn spoil(&self, why: &str) {
        let mut progress = lock(&self.progress);
        if progress.message.is_empty() && !progress.stage.is_last() {
            why.clone_into(&mut progress.message);
        }
    }

    pub fn is_spoiled(&self) -> bool {
        let progress = lock(&self.progress);
        progress.stage.is_last() || !progress.message.is_empty()
    }

    /// Goes on to the next stage, unless the job is over. Says whether it did.
    pub fn enter(&self, stage: Stage) -> bool {
        let mut progress = lock(&self.progress);
        let before = progress.stage;
        if before.is_last() {
            return false;
        }
        progress.stage = stage;
        progress.updated_s = clock::now_unix_ms() / 1000;
        drop(progress);
        let (from, to) = (before.name(), stage.name());
        notice!("Slot migration {} state transition: {from} -> {to}", self.describe());
        true
    }

    /// Ends the job, unless it is over.
    pub fn end(&self, stage: Stage, message: &str) {
        self.end_if(stage, message, |_| true);
    }

    /// So if it is at such a stage. Says whether it did.
    fn end_if(&self, stage: Stage, message: &str, may_end: impl Fn(Stage) -> bool) -> bool {
        let mut progress = lock(&self.progress);
        if progress.stage.is_last() || !may_end(progress.stage) {
            return false;
        }
        let updated_s = clock::now_unix_ms() / 1000;
        let known = std::mem::take(&mut progress.message);
        let message = if known.is_empty() { message.to_owned() } else { known };
        *progress = Progress { stage, message: message.clone(), updated_s };
        drop(progress);
        let (what, state) = (self.describe(), stage.name());
        let shown = message.trim_end();
        match stage {
            Stage::Failed => {
                warning!("Slot migration {what} finished. State: {state}, Message: {shown}");
            }
            _ => notice!("Slot migration {what} finished. State: {state}, Message: {shown}"),
        }
        true
    }

    /// Ends the job, if its slots are this node's still for sure. Says whether it did.
    fn cancel(&self) -> bool {
        self.end_if(Stage::Cancelled, "", |stage| stage != Stage::Granted)
    }

    pub fn describe(&self) -> String {
        let Job { name, ranges: slots, source, target, .. } = self;
        match self.is_export {
            true => format!(
                "{{name: {name}, operation: export, target_node_id: {target}, slots: {slots}}}"
            ),
            false => format!(
                "{{name: {name}, operation: import, source_node_id: {source}, slots: {slots}}}"
            ),
        }
    }
}

/// Slots that come here.
pub struct Import {
    pub job: Arc<Job>,
    /// The connection that they come by.
    pub client: u64,
    /// What has come counts. Ends with the gate closed, or when nothing comes any more.
    pub is_on: Arc<AtomicBool>,
    pub chunks: Arc<Chunks>,
}

#[derive(Default)]
pub struct Handovers {
    /// The newest first.
    jobs: Mutex<Vec<Arc<Job>>>,
    imports: Mutex<Vec<Import>>,
    holds_any: AtomicBool,
    held: Mutex<SlotSet>,
}

impl Handovers {
    pub fn jobs(&self) -> Vec<Arc<Job>> {
        lock(&self.jobs).clone()
    }

    /// Adds jobs, and forgets the oldest of those that are over, beyond so many.
    pub fn add(&self, new: Vec<Arc<Job>>, kept_max: usize) {
        let mut jobs = lock(&self.jobs);
        jobs.splice(0..0, new);
        let mut kept = 0;
        jobs.retain(|job| {
            let is_over = job.stage().is_last();
            kept += usize::from(is_over);
            !is_over || kept <= kept_max
        });
    }

    pub fn is_exporting(&self) -> bool {
        lock(&self.jobs).iter().any(|job| job.is_export && !job.stage().is_last())
    }

    /// The first of these slots that a job under way is about.
    pub fn busy_slot(&self, slots: &SlotSet, is_export: bool) -> Option<u16> {
        let jobs = lock(&self.jobs);
        let mut busy =
            jobs.iter().filter(|job| job.is_export == is_export && !job.stage().is_last());
        busy.find_map(|job| slots.iter().find(|slot| job.slots.contains(*slot)))
    }

    /// Ends what sends slots away and can still be ended; says whether there was something.
    pub fn cancel_exports(&self) -> bool {
        let jobs = self.jobs();
        jobs.iter().filter(|job| job.is_export && job.cancel()).count() > 0
    }

    #[inline]
    pub fn holds_any(&self) -> bool {
        self.holds_any.load(Acquire)
    }

    pub fn held(&self) -> MutexGuard<'_, SlotSet> {
        lock(&self.held)
    }

    /// Has calls about these slots put off, or not any more; with the gate closed.
    pub fn hold(&self, slots: &SlotSet, are_held: bool) {
        let mut held = self.held();
        slots.iter().for_each(|slot| {
            if are_held {
                held.insert(slot)
            } else {
                held.remove(slot)
            };
        });
        self.holds_any.store(!held.is_empty(), Release);
    }

    pub fn begin_import(&self, import: Import) {
        lock(&self.imports).push(import);
    }

    /// Has something done with the slots that come by this connection.
    pub fn work(&self, name: &[u8], client: u64, chunk: Chunk) -> bool {
        let imports = lock(&self.imports);
        let import = imports.iter().find(|one| one.client == client && one.is(name));
        import.is_some_and(|import| {
            import.job.note_heard();
            import.chunks.push(chunk)
        })
    }

    /// The job that comes by this connection.
    pub fn import(&self, name: &[u8], client: u64) -> Option<Arc<Job>> {
        let imports = lock(&self.imports);
        let import = imports.iter().find(|one| one.client == client && one.is(name))?;
        Some(Arc::clone(&import.job))
    }

    /// An import is over: what has come counts for nothing, or, if the slots are here now, is all
    /// there is. With the gate closed.
    pub fn end_import(&self, name: &[u8]) {
        let mut imports = lock(&self.imports);
        if let Some(at) = imports.iter().position(|import| import.is(name)) {
            imports.swap_remove(at).is_on.store(false, Release);
        }
    }

    /// A connection is closed: nothing comes by it any more. Who works on what has come finishes
    /// that, and deletes it.
    pub fn forget(&self, client: u64) {
        lock(&self.imports).retain(|import| import.client != client);
    }

    /// Ends imports that cannot be right any more, with the gate closed; returns their slots.
    pub fn end_imports(&self, is_sound: impl Fn(&Job) -> bool) -> Vec<u16> {
        let mut slots = Vec::new();
        lock(&self.imports).retain(|import| {
            let goes_on = is_sound(&import.job);
            if !goes_on {
                import.is_on.store(false, Release);
                import.job.spoil("A failover occurred during slot import");
                slots.extend(import.job.slots.iter());
            }
            goes_on
        });
        slots
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        self.chunks.close();
    }
}

impl Import {
    fn is(&self, name: &[u8]) -> bool {
        self.job.name.as_bytes() == name
    }
}
