//! The last snapshot for replicas, for those whose link broke before they had all of it: they go on
//! in the same file, and behind it in the same stream.
//!
//! It is kept until all that it was taken for have it, or have not asked again for `repl-timeout`.

use std::sync::Arc;

use kvasir_persistence::cold::{ColdLog, Ticket};
use kvasir_structures::locks::lock;

use crate::replicas::sync_file::{Progress, Reader, SyncFile};
use crate::store::replication::Replication;

/// How long one is still made that nobody reads: who has lost its link comes again sooner.
const MADE_FOR_NOBODY_MS: u64 = 5000;

pub struct Kept {
    file: Arc<SyncFile>,
    id: String,
    offset: u64,
    /// Keeps the stream behind it.
    ticket: Ticket,
    /// Those who do not have it yet.
    missing: usize,
    /// When somebody last had it, in ms since 1970.
    used_ms: u64,
}

/// Where a replica goes on.
pub struct Resumed {
    pub reader: Reader,
    pub id: String,
    pub offset: u64,
    pub ticket: Ticket,
}

impl Replication {
    /// Keeps a snapshot for so many, at a place in a history.
    pub fn keep(&self, file: &Arc<SyncFile>, id: &str, offset: u64, missing: usize) {
        let cold = &self.tail.cold;
        let Some(ticket) = cold.open(offset) else { return };
        let file = Arc::clone(file);
        let kept = Kept { file, id: id.to_owned(), offset, ticket, missing, used_ms: 0 };
        kept.file.keep(true);
        let before = lock(&self.kept).replace(kept);
        give_up(cold, before);
    }

    /// Finds the snapshot that has this mark, if it has so many bytes.
    pub fn find_kept(&self, mark: &[u8], at: u64) -> Option<Resumed> {
        let kept = lock(&self.kept);
        let Kept { file, id, offset, .. } = kept.as_ref()?;
        // What comes behind it has to be of that history still.
        let is_it =
            *id == self.history().id && file.mark == mark && file.progress() != Progress::Failed;
        let reader = is_it.then(|| file.reader(at)).flatten()?;
        let ticket = self.tail.cold.open(*offset)?;
        Some(Resumed { reader, id: id.clone(), offset: *offset, ticket })
    }

    /// Whether there is one; the stream behind it is kept then, too.
    #[inline]
    pub fn keeps_snapshot(&self) -> bool {
        self.tail.is_kept() && lock(&self.kept).is_some()
    }

    /// One of them has all of it.
    pub fn note_whole(&self, file: &Arc<SyncFile>) {
        let mut kept = lock(&self.kept);
        if let Some(kept) = kept.as_mut().filter(|kept| Arc::ptr_eq(&kept.file, file)) {
            kept.missing = kept.missing.saturating_sub(1);
        }
        let over = kept.take_if(|kept| kept.missing == 0);
        drop(kept);
        give_up(&self.tail.cold, over);
    }

    /// Gives it up if nobody has asked for it in a long time.
    pub fn tend_kept(&self, now_ms: u64, patience_ms: u64) {
        let mut kept = lock(&self.kept);
        if let Some(kept) = kept.as_mut() {
            let is_used = kept.file.has_readers() || kept.used_ms == 0;
            kept.used_ms = if is_used { now_ms } else { kept.used_ms };
        }
        let over = kept.take_if(|kept| {
            let is_made = kept.file.progress() == Progress::Grows;
            let patience_ms =
                if is_made { patience_ms.min(MADE_FOR_NOBODY_MS) } else { patience_ms };
            now_ms.saturating_sub(kept.used_ms) > patience_ms
        });
        drop(kept);
        give_up(&self.tail.cold, over);
    }

    /// Gives it up: the stream is another one from here on.
    pub fn drop_kept(&self) {
        let kept = lock(&self.kept).take();
        give_up(&self.tail.cold, kept);
    }
}

fn give_up(cold: &ColdLog, kept: Option<Kept>) {
    if let Some(kept) = kept {
        kept.file.keep(false);
        cold.close(kept.ticket);
    }
}
