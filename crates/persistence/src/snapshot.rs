//! Writing a data set into files, while it changes or while the world stands still.
//!
//! The cut is taken with the gate closed; then visitors, and whoever changes something first, save
//! records (`chunks.rs`), and each file has a thread that writes it. Only threads that may be left
//! behind wait for the disk itself (`apart.rs`): it may hang.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::snapshot::{self, Image, Sink};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc16;
use kvasir_structures::gate::{ExclusivePass, Gate, Guests, Pass};
use kvasir_structures::slot::SLOTS;

use crate::apart::{Apart, LeftBehind, Patience, SILENCE_MAX};
use crate::blocks;
use crate::cancel::Cancel;
use crate::chunks::{Chunks, Limits};
use crate::delay::KeyDelay;
use crate::disk::Disk;
use crate::pool::Pool;
use crate::replace::Replacement;
use crate::save::{
    Beside, Frame, Options, Place, SaveError, Saved, Written, count_keys, end, version_for,
};
use kvasir_structures::manners::Manners;

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
    /// Over all files; 0: as many as the disk takes. It may be changed meanwhile.
    pub bytes_per_second: &'a Arc<AtomicU64>,
    /// `rdb-key-save-delay`.
    pub key_delay: &'a KeyDelay,
    pub progress: &'a Arc<Progress>,
    pub cancel: &'a Arc<Cancel>,
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
    /// Of snapshots before.
    pub left_behind: LeftBehind,
}

/// What is known of the data at the cut.
struct Cut {
    chunks: Arc<Chunks>,
    images: Vec<Arc<Image>>,
    /// How each file begins and ends.
    frames: Vec<Frame>,
}

/// A file that comes to count with all others, or why there is none.
type Outcome<D> = Result<Written<D>, SaveError>;

impl Entrance<'_, '_> {
    /// Whether nobody is served meanwhile.
    fn holds_up_all(&self) -> bool {
        matches!(self, Entrance::Inside(_))
    }

    fn alone<R>(&mut self, run: impl FnOnce(&mut ExclusivePass<'_>) -> R) -> R {
        match self {
            Entrance::Gate(gate) => run(&mut gate.exclusive()),
            Entrance::Inside(pass) => run(pass),
        }
    }

    fn of_visitors(&self) -> Door<'_> {
        match self {
            Entrance::Gate(gate) => Door::Gate(gate),
            Entrance::Inside(pass) => Door::Guests(pass.guests()),
        }
    }
}

/// How one visitor gets in.
#[derive(Clone, Copy)]
enum Door<'a> {
    Gate(&'a Gate),
    Guests(Guests<'a>),
}

impl<'a> Door<'a> {
    fn enter(self) -> Pass<'a> {
        match self {
            Door::Gate(gate) => gate.enter_extra(),
            Door::Guests(guests) => guests.enter(),
        }
    }
}

impl Snapshot<'_> {
    /// Writes all databases as they are at one moment soon after the call. `at_cut` is called at
    /// that moment, with the gate closed, and says what else the file has.
    pub fn run<D: Disk>(
        &self,
        mut entrance: Entrance<'_, '_>,
        disk: &D,
        place: Place<'_>,
        options: &Options,
        at_cut: impl FnOnce(&mut ExclusivePass<'_>) -> Beside,
    ) -> Result<Saved, SaveError> {
        if self.progress.left_behind.is_any() {
            let what = "the disk hangs with what an earlier snapshot was to write";
            return Err(SaveError::stuck(what));
        }
        let limits = self.limits(place.files, &entrance);
        // Where a file's bytes are synced now and then, no single call takes long.
        let silence_max = (limits.holds_up_all && options.syncs_often).then_some(SILENCE_MAX);
        let files = self.begin(disk, place, options, silence_max)?;
        let pool = limits.pool(place.files);
        let cut = entrance.alone(|pass| self.cut(pass, limits, pool, place, options, at_cut));
        let Cut { chunks, images, frames } = match cut {
            Ok(cut) => cut,
            Err(error) => {
                self.apart(
                    move || drop(files),
                    &mut Patience::new(self.cancel, None, silence_max),
                )?;
                return Err(error);
            }
        };
        let files = files.into_iter().zip(frames).enumerate();
        let writers = files
            .map(|(index, (file, frame))| self.begin_writing(&chunks, index, file, frame, options))
            .collect();
        self.visit_all(entrance.of_visitors(), &chunks, place, &images);
        entrance.alone(|pass| snapshot::end(self.keyspace, pass, &images));
        chunks.complete();
        self.commit(disk, place, &chunks, writers, silence_max)
    }

    /// Begins the files, and takes the memory that they need.
    fn begin<D: Disk>(
        &self,
        disk: &D,
        place: Place<'_>,
        options: &Options,
        silence_max: Option<Duration>,
    ) -> Result<Vec<Replacement<D>>, SaveError> {
        let (target, Place { id, files, .. }) = (place.target.to_owned(), place);
        let (disk, gathered) = (disk.clone(), self.gathered(files));
        let syncs_often = options.syncs_often;
        let begin = move || {
            let place = Place { target: &target, id, files };
            let mut files = place.begin(&disk, gathered, syncs_often)?;
            let mut manners = Manners::default();
            files.iter_mut().for_each(|file| file.prepare(|| manners.give_way()));
            Ok(files)
        };
        self.apart(begin, &mut Patience::new(self.cancel, None, silence_max))?
    }

    /// Has all files count once each is written; after an error none is left.
    fn commit<D: Disk>(
        &self,
        disk: &D,
        place: Place<'_>,
        chunks: &Chunks,
        writers: Vec<io::Result<Apart<Outcome<D>>>>,
        silence_max: Option<Duration>,
    ) -> Result<Saved, SaveError> {
        let patience = &mut Patience::new(self.cancel, Some(chunks), silence_max);
        let wait = |writer: io::Result<_>| self.wait(writer?, patience)?;
        let written: Vec<Outcome<D>> = writers.into_iter().map(wait).collect();
        let (target, Place { id, files, .. }) = (place.target.to_owned(), place);
        let (disk, cancel, version) = (disk.clone(), Arc::clone(self.cancel), chunks.version);
        let is_whole = !chunks.has_failed();
        let commit = move || {
            let written = all(written)?;
            // Others have given it up, and it is not known here why.
            if !is_whole {
                return Err(SaveError::Cancelled);
            }
            let place = Place { target: &target, id, files };
            let commit = || place.commit(&disk, version, written);
            Ok(cancel.commit(commit).ok_or(SaveError::Cancelled)??)
        };
        let patience = &mut Patience::new(self.cancel, None, silence_max);
        let saved = self.apart(commit, patience)?;
        if chunks.is_stuck() { Err(too_slow()) } else { saved }
    }

    /// Does something that may hang.
    fn apart<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
        patience: &mut Patience<'_>,
    ) -> Result<R, SaveError> {
        self.wait(Apart::begin(work)?, patience)
    }

    fn wait<R: Send + 'static>(
        &self,
        apart: Apart<R>,
        patience: &mut Patience<'_>,
    ) -> Result<R, SaveError> {
        let result = apart.wait(&self.progress.left_behind, || patience.is_over());
        result.ok_or_else(|| match self.cancel.is_asked() {
            true => SaveError::Cancelled,
            false => SaveError::stuck("the disk hangs"),
        })
    }

    /// Bytes that so many files gather together.
    fn gathered(&self, files: usize) -> usize {
        (self.buffer_max / GATHERED_PART).min(files * blocks::SIZE)
    }

    /// Of chunks, which have what files leave them.
    fn limits(&self, files: usize, entrance: &Entrance<'_, '_>) -> Limits<'_> {
        let buffer_max = self.buffer_max - 2 * self.gathered(files);
        let (bytes_per_second, holds_up_all) = (self.bytes_per_second, entrance.holds_up_all());
        Limits { buffer_max, bytes_per_second, holds_up_all }
    }

    /// Begins the images, unless nobody wants them any more.
    fn cut(
        &self,
        pass: &mut ExclusivePass<'_>,
        limits: Limits<'_>,
        pool: Pool,
        place: Place<'_>,
        options: &Options,
        at_cut: impl FnOnce(&mut ExclusivePass<'_>) -> Beside,
    ) -> Result<Cut, SaveError> {
        if self.cancel.is_asked() {
            return Err(SaveError::Cancelled);
        }
        let version = version_for(options, self.keyspace, pass);
        let beside = at_cut(pass);
        let frames = place.frames(version, options, &beside, self.keyspace, pass);
        self.progress.keys_total.store(count_keys(self.keyspace, pass), Relaxed);
        let files = place.files;
        let chunks = Chunks::new(self.env, limits, pool, files, version, options, self.cancel);
        let chunks = Arc::new(chunks);
        let sink: Arc<dyn Sink> = Arc::clone(&chunks) as Arc<dyn Sink>;
        let images = snapshot::cut(self.keyspace, pass, &sink, 0..crc16::SLOTS);
        Ok(Cut { chunks, images, frames })
    }

    /// Has all slots visited: by the calling thread, and by others as far as they can be started.
    fn visit_all(&self, door: Door<'_>, chunks: &Chunks, place: Place<'_>, images: &[Arc<Image>]) {
        let (next, waited_for) = (AtomicUsize::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let visit = || self.visit(door, chunks, place, images, &next, &waited_for);
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
        door: Door<'_>,
        chunks: &Chunks,
        place: Place<'_>,
        images: &[Arc<Image>],
        next: &AtomicUsize,
        waited_for: &AtomicU64,
    ) {
        let slots_max = SLOTS.div_ceil(place.files);
        let mut manners = Manners::default();
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(image) = images.get(number / (slots_max * place.files)) else { return };
            let slots = place.slots_of(number % place.files);
            let Some(slot) = slots.clone().nth(number / place.files % slots_max) else { continue };
            let mut has_more = true;
            while has_more && !chunks.has_failed() {
                chunks.take_aside();
                chunks.wait_for_room();
                let pass = door.enter();
                has_more = !self.cancel.is_asked() && image.visit(self.keyspace, &pass, slot);
                drop(pass);
                let keys = chunks.keys();
                let new_keys = keys.saturating_sub(waited_for.fetch_max(keys, Relaxed));
                self.key_delay.wait(new_keys, || !self.cancel.is_asked());
                if let Door::Gate(_) = door {
                    manners.give_way();
                }
            }
        }
    }

    /// Has one of the files written; if that fails, it is gone.
    fn begin_writing<D: Disk>(
        &self,
        chunks: &Arc<Chunks>,
        index: usize,
        file: Replacement<D>,
        frame: Frame,
        options: &Options,
    ) -> io::Result<Apart<Outcome<D>>> {
        let (all_chunks, options) = (Arc::clone(chunks), options.clone());
        let (cancel, progress) = (Arc::clone(self.cancel), Arc::clone(self.progress));
        let begun = Apart::begin(move || {
            let tell = || progress.keys.store(all_chunks.keys(), Relaxed);
            write(&all_chunks, index, file, &frame, &options, &cancel, &tell)
        });
        if begun.is_err() {
            chunks.fail();
        }
        begun
    }
}

fn write<D: Disk>(
    chunks: &Chunks,
    index: usize,
    mut file: Replacement<D>,
    frame: &Frame,
    options: &Options,
    cancel: &Cancel,
    tell: &dyn Fn(),
) -> Outcome<D> {
    let begun = file.append(&frame.head);
    if begun.is_err() {
        chunks.fail();
    }
    let written = chunks.write(index, &mut file, cancel, tell);
    begun?;
    written?;
    file.append(&frame.tail)?;
    Ok(end(file, chunks.keys_of(index), chunks.version, options)?)
}

/// All files, or an error of the disk, if there is one, or another.
fn all<D: Disk>(written: Vec<Outcome<D>>) -> Result<Vec<Written<D>>, SaveError> {
    let is_io = |outcome: &Outcome<D>| matches!(outcome, Err(SaveError::Io(_)));
    match written.iter().position(is_io) {
        Some(index) => written.into_iter().nth(index).into_iter().collect(),
        None => written.into_iter().collect(),
    }
}

fn too_slow() -> SaveError {
    SaveError::stuck("the disk hangs, or takes far less than clients change")
}
