//! Writing a data set into files, while it changes or while the world stands still.
//!
//! The cut is taken with the gate closed; then visitors, and whoever changes something first, save
//! records (`chunks.rs`), and each file has a thread that writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::snapshot::{self, Image, Sink};
use kvasir_keyspace::view::Env;
use kvasir_structures::gate::{ExclusivePass, Gate, Pass};
use kvasir_structures::slot::SLOTS;

use crate::blocks;
use crate::cancel::Cancel;
use crate::chunks::{Chunks, Limits};
use crate::disk::Disk;
use crate::manners::Manners;
use crate::pool::Pool;
use crate::replace::Replacement;
use crate::save::{
    Beside, Options, Place, SaveError, Saved, Written, count_keys, end, needed_version,
};

/// What files gather before they write it is this part of what may wait for the disk, at most, and
/// what they write meanwhile is as much.
const GATHERED_PART: usize = 8;

/// What a snapshot needs to know beside what it writes.
pub struct Snapshot<'a> {
    pub keyspace: &'a Keyspace,
    pub env: &'a Env,
    /// Threads that visit.
    pub visitors: usize,
    /// Bytes that may wait for the disk, or to be whole chunks of it.
    pub buffer_max: usize,
    /// Over all files; 0: as many as the disk takes.
    pub bytes_per_second: u64,
    pub progress: &'a Progress,
    pub cancel: &'a Cancel,
}

/// How the threads get at the databases.
pub enum Entrance<'a, 'g> {
    /// Each on its own, while others are inside.
    Gate(&'a Gate),
    /// With who has closed the gate.
    Inside(&'a mut ExclusivePass<'g>),
}

/// How far a snapshot is; read by others meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    pub keys_total: AtomicU64,
    pub keys: AtomicU64,
}

/// What is known of the data at the cut.
struct Cut {
    chunks: Arc<Chunks>,
    images: Vec<Arc<Image>>,
    /// How each file begins.
    heads: Vec<Vec<u8>>,
}

impl Entrance<'_, '_> {
    fn alone<R>(&mut self, run: impl FnOnce(&mut ExclusivePass<'_>) -> R) -> R {
        match self {
            Entrance::Gate(gate) => run(&mut gate.exclusive()),
            Entrance::Inside(pass) => run(pass),
        }
    }

    fn enter<R>(&self, run: impl FnOnce(&Pass<'_>) -> R) -> R {
        match self {
            Entrance::Gate(gate) => run(&gate.enter_extra()),
            Entrance::Inside(pass) => run(pass),
        }
    }
}

impl Snapshot<'_> {
    /// Writes all databases as they are at one moment soon after the call. `at_cut` is called at
    /// that moment, with the gate closed, and says what else the file has.
    pub fn run<D: Disk>(
        &self,
        mut entrance: Entrance<'_, '_>,
        (disk, place): (&D, Place<'_>),
        options: &Options,
        at_cut: impl FnOnce(&mut ExclusivePass<'_>) -> Beside,
    ) -> Result<Saved, SaveError> {
        let mut files = place.begin(disk, self.gathered(place.files), options.syncs_often)?;
        let mut manners = Manners::new();
        files.iter_mut().for_each(|file| file.prepare(|| manners.give_way()));
        let pool = self.limits(place.files).pool(place.files);
        let cut = entrance.alone(|pass| self.cut((pass, pool), place, options, at_cut));
        let Cut { chunks, images, heads } = cut.ok_or(SaveError::Cancelled)?;
        let written: Result<Vec<_>, _> = thread::scope(|scope| {
            let chunks = &*chunks;
            let write = |(index, (file, head))| {
                let run = move || self.write(chunks, index, file, head, options);
                let writer = thread::Builder::new().spawn_scoped(scope, run);
                // What belongs into the file would wait for ever.
                writer.inspect_err(|_| chunks.fail())
            };
            let writers: Vec<_> = files.into_iter().zip(heads).enumerate().map(write).collect();
            self.visit_all(&entrance, chunks, place, &images);
            entrance.alone(|pass| snapshot::end(self.keyspace, pass));
            chunks.complete();
            let written = writers.into_iter().map(|writer| writer.map(ScopedJoinHandle::join));
            written.map(|written| written?.expect("a writer's panic")).collect()
        });
        let written = written?;
        let commit = || place.commit(disk, chunks.version, written);
        Ok(self.cancel.commit(commit).ok_or(SaveError::Cancelled)??)
    }

    /// Bytes that so many files gather together.
    fn gathered(&self, files: usize) -> usize {
        (self.buffer_max / GATHERED_PART).min(files * blocks::SIZE)
    }

    /// Of chunks, which have what files leave them.
    fn limits(&self, files: usize) -> Limits {
        let buffer_max = self.buffer_max - 2 * self.gathered(files);
        Limits { buffer_max, bytes_per_second: self.bytes_per_second }
    }

    /// Begins the images; `None` if nobody wants them any more.
    fn cut(
        &self,
        (pass, pool): (&mut ExclusivePass<'_>, Pool),
        place: Place<'_>,
        options: &Options,
        at_cut: impl FnOnce(&mut ExclusivePass<'_>) -> Beside,
    ) -> Option<Cut> {
        if self.cancel.is_asked() {
            return None;
        }
        let version = options.version.max(needed_version(self.keyspace, pass));
        let beside = at_cut(pass);
        let heads = place.heads((version, options, &beside), (self.keyspace, pass));
        self.progress.keys_total.store(count_keys(self.keyspace, pass), Relaxed);
        let (memory, way) = ((self.limits(place.files), pool), (version, options));
        let chunks = Arc::new(Chunks::new(self.env, memory, place.files, way));
        let sink: Arc<dyn Sink> = Arc::clone(&chunks) as Arc<dyn Sink>;
        let images = snapshot::cut(self.keyspace, pass, &sink);
        Some(Cut { chunks, images, heads })
    }

    /// Has all slots visited: by the calling thread, and by others as far as they can be started.
    fn visit_all(
        &self,
        entrance: &Entrance<'_, '_>,
        chunks: &Chunks,
        place: Place<'_>,
        images: &[Arc<Image>],
    ) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let visit = || self.visit(entrance, chunks, place, (images, &next));
            for _ in 1..self.visitors {
                if thread::Builder::new().spawn_scoped(scope, visit).is_err() {
                    break;
                }
            }
            visit();
        });
    }

    /// Visits slots until none is left, of one file after the other, so that all are written.
    fn visit(
        &self,
        entrance: &Entrance<'_, '_>,
        chunks: &Chunks,
        place: Place<'_>,
        (images, next): (&[Arc<Image>], &AtomicUsize),
    ) {
        let slots_max = SLOTS.div_ceil(place.files);
        let mut manners = Manners::new();
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(image) = images.get(number / (slots_max * place.files)) else { return };
            let slots = place.slots_of(number % place.files);
            let Some(slot) = slots.clone().nth(number / place.files % slots_max) else { continue };
            let mut has_more = true;
            while has_more && !chunks.has_failed() {
                chunks.take_aside();
                chunks.wait_for_room();
                has_more = entrance.enter(|pass| {
                    // Who has cancelled may have ended the images, but not while this is inside.
                    !self.cancel.is_asked() && image.visit(self.keyspace, pass, slot)
                });
                manners.give_way();
            }
        }
    }

    /// Writes one of the files; if that fails, it is gone.
    fn write<'d, D: Disk>(
        &self,
        chunks: &Chunks,
        index: usize,
        mut file: Replacement<'d, D>,
        head: Vec<u8>,
        options: &Options,
    ) -> Result<Written<'d, D>, SaveError> {
        let begun = file.append(&head);
        if begun.is_err() {
            chunks.fail();
        }
        let tell = || self.progress.keys.store(chunks.keys(), Relaxed);
        let written = chunks.write(index, &mut file, self.cancel, tell);
        begun?;
        written?;
        Ok(end(file, chunks.keys_of(index), (chunks.version, options))?)
    }
}
