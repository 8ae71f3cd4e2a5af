//! A run: entries are appended to a real log by several lanes, the real writer brings them to the
//! disk, and the files are rewritten now and then; as a server does it, in one thread and by a
//! simulated clock.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

use kvasir_keyspace::rng::Rng;
use kvasir_persistence::aof::files::{Files as AofFiles, Increment, Opening};
use kvasir_persistence::aof::manifest::Part;
use kvasir_persistence::aof::output::{Outcome, Output, Plain};
use kvasir_persistence::aof::record::group_head;
use kvasir_persistence::aof::writer::{Trouble, Turn, When, Writer};
use kvasir_persistence::disk::DiskFile;
use kvasir_persistence::replace::Replacement;
use kvasir_resp::encode::encode_request;
use kvasir_structures::gate::Gate;
use kvasir_structures::log::{BLOCK_SIZE, Log};

use super::model;
use super::recover::Found;
use crate::disk::{SimDisk, SimFile};

pub const DIR: &str = "dir";
pub const NAME: &str = "log";
const TEMP_BASE: &str = "temp-base";

const LANES: usize = 3;
const TURNS: usize = 60;
/// The log begins so far before the end of a block that entries lie in two.
const BEFORE_BLOCK: u64 = 700;
/// As the server: what is appended is written so soon, and synced so soon.
const GATHER: Duration = Duration::from_millis(10);
const EVERY: Duration = Duration::from_millis(980);
const SECOND: Duration = Duration::from_secs(1);
/// So little that it is often used up.
const ROOM: u64 = 512;
/// Entries that one operation writes to a base.
const BASE_CHUNK: usize = 12;

/// What kind of run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    /// `appendfsync always`; else `everysec`.
    pub is_always: bool,
    /// Writes and syncs as io_uring chains them; else by system calls.
    pub is_chained: bool,
    pub canary: Option<Canary>,
}

/// A fault in what is tried, which must be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// What is written counts as acknowledged, synced or not.
    AcknowledgesEarly,
    /// The manifest names an increment whose name is not safe.
    NamesEarly,
    /// After a sync that failed the next one is believed.
    BelievesSync,
    /// `everysec` syncs every other second.
    SyncsLate,
}

/// What a crash at the end of the run must leave.
#[derive(Clone, Copy, Default, Debug)]
pub struct Promise {
    /// Entries that were appended, those found at the start included.
    pub logged: usize,
    /// Of these, from the first on: those that a power cut must leave.
    pub safe: usize,
    /// Those that the end of the process must leave.
    pub written: usize,
}

/// Runs until all turns are over, the plug is pulled, or a server would end.
pub fn run(disk: &SimDisk, setup: &Setup, found: &Found) -> Promise {
    if setup.canary == Some(Canary::NamesEarly) {
        disk.forget_new_names();
    }
    let gate = Gate::new(LANES);
    let log = Log::new(&gate, BLOCK_SIZE as u64 - BEFORE_BLOCK);
    let reader = log.open(&mut gate.exclusive());
    let nothing = Promise { logged: found.entries, safe: found.entries, written: found.entries };
    let Ok((files, increment)) = begin(disk, found) else { return nothing };
    let mut driver = Driver {
        setup,
        disk,
        gate: &gate,
        log: &log,
        writer: Writer::new(reader, increment, Duration::ZERO),
        files,
        rng: Rng::new(setup.seed),
        now: Duration::ZERO,
        found: found.entries,
        appended: Vec::new(),
        promise: nothing,
        refused_since: None,
        switch_at: None,
        rewrite: None,
        wants_rewrite: false,
    };
    for turn in 0..=TURNS {
        if driver.turn(turn == TURNS).is_none() || disk.has_stopped() {
            break;
        }
    }
    driver.end()
}

/// From what was found to an increment that can be appended to.
fn begin(disk: &SimDisk, found: &Found) -> io::Result<(AofFiles<SimDisk>, Increment<SimFile>)> {
    let manifest = found.manifest.clone();
    let is_new = manifest.is_none();
    let manifest = manifest.unwrap_or_default();
    let mut files = AofFiles::new(disk.clone(), DIR.into(), NAME.into(), manifest);
    if is_new {
        let base = files.next_base();
        let file = Replacement::begin(disk, files.path(TEMP_BASE), 0, false)?;
        file.finish(&files.path(&base.name))?;
        files.take_base(base, 1)?;
    }
    files.delete_history()?;
    let Some(Part { name, seq }) = files.manifest().increments.last().cloned() else {
        let increment = files.begin_increment(Opening::OF_GROUPS)?;
        return Ok((files, increment));
    };
    let mut file = disk.open(&files.path(&name))?;
    file.truncate(found.good_to)?;
    file.sync()?;
    let select = encode_request(&["SELECT", "0"]);
    let select = [group_head(found.good_to, &[&select]), select].concat();
    file.append(&select)?;
    file.sync()?;
    let len = found.good_to + select.len() as u64;
    Ok((files, Increment { file, seq, len, is_shared: false }))
}

struct Driver<'a> {
    setup: &'a Setup,
    disk: &'a SimDisk,
    gate: &'a Gate,
    log: &'a Log,
    writer: Writer<'a, SimFile>,
    files: AofFiles<SimDisk>,
    rng: Rng,
    now: Duration,
    /// Entries that were there before.
    found: usize,
    /// Where each entry ends in the log, and when it was appended.
    appended: Vec<(u64, Duration)>,
    promise: Promise,
    /// Writes are refused.
    refused_since: Option<Duration>,
    switch_at: Option<u64>,
    rewrite: Option<Rewrite>,
    wants_rewrite: bool,
}

/// A rewrite under way.
struct Rewrite {
    base: Part,
    /// While it is written.
    file: Option<Replacement<SimDisk>>,
    /// The entries that are still to be written to it.
    rest: Range<usize>,
    /// The increment behind the cut, once the log is there.
    first: Option<Option<u64>>,
    has_failed: bool,
}

impl Driver<'_> {
    /// The log ends as a server's does that stops.
    fn end(self) -> Promise {
        let promise = self.promise();
        if !self.disk.has_stopped() && !self.writer.is_dirty() {
            // What is promised stays so, whatever becomes of it.
            let _ = self.writer.end().1.seal(true);
        }
        promise
    }

    /// None: a server would have ended.
    fn turn(&mut self, is_last: bool) -> Option<()> {
        self.pass_time();
        if self.refused_since.is_none() {
            for _ in 0..self.rng.below(3) {
                self.append();
            }
        }
        let is_time = self.wants_rewrite || self.rng.below(12) == 0;
        if self.rewrite.is_none() && is_time && !is_last {
            self.cut();
        }
        self.step(is_last)?;
        self.go_on_with_rewrite();
        if is_last {
            // What a rewrite that does not end was to make good.
            let _ = self.files.keep_apart();
        }
        Some(())
    }

    /// A server gathers for a moment, or sleeps until something is due.
    fn pass_time(&mut self) {
        let moment = Duration::from_millis(1 + self.rng.below(GATHER.as_millis() as usize) as u64);
        let sleeps = !self.writer.has_work() && self.rng.below(3) == 0;
        if self.refused_since.is_some() {
            self.now += SECOND;
        } else if sleeps {
            let until = self.now + Duration::from_millis(self.rng.below(900) as u64);
            let due = self.writer.last_sync() + self.every();
            self.now = if self.writer.is_dirty() { until.min(due.max(self.now)) } else { until };
        } else {
            self.now += moment;
        }
    }

    fn every(&self) -> Duration {
        if self.setup.canary == Some(Canary::SyncsLate) { EVERY + SECOND } else { EVERY }
    }

    fn append(&mut self) {
        let entry = model::entry(self.found + self.appended.len());
        let end = self.log.append(&self.gate.enter(self.rng.below(LANES)), &entry);
        self.appended.push((end, self.now));
    }

    /// The cut of a rewrite: what comes behind it goes to another increment.
    fn cut(&mut self) {
        self.wants_rewrite = false;
        let base = self.files.next_base();
        let disk = self.disk;
        let file = Replacement::begin(disk, self.files.path(TEMP_BASE), 0, false);
        self.switch_at = Some(self.log.end());
        self.rewrite = Some(Rewrite {
            base,
            has_failed: file.is_err(),
            file: file.ok(),
            rest: 0..self.found + self.appended.len(),
            first: None,
        });
    }

    fn step(&mut self, is_last: bool) -> Option<()> {
        let turn = Turn {
            when: if self.setup.is_always { When::Always } else { When::Every(self.every()) },
            now: self.now,
            unix_s: Some(self.now.as_secs()),
            has_checksums: true,
            room: if self.setup.is_always { ROOM } else { 0 },
            switch_at: self.switch_at,
            pause_at: None,
            is_last,
        };
        let mut output = if self.setup.is_chained { Way::Chained } else { Way::Plain };
        let result = self.writer.step(&mut output, &turn);
        self.note_progress();
        match result {
            Ok(_) if !self.writer.has_lost() => self.refused_since = None,
            Ok(_) => {}
            Err(trouble) => self.handle(&trouble)?,
        }
        if self.switch_at.is_some_and(|offset| self.writer.has_reached(offset)) {
            self.switch()?;
        }
        Some(())
    }

    fn handle(&mut self, trouble: &Trouble) -> Option<()> {
        if self.setup.is_always || matches!(trouble, Trouble::Stuck(_)) {
            return None;
        }
        self.refused_since.get_or_insert(self.now);
        if matches!(trouble, Trouble::NotWritten(_)) && self.switch_at.take().is_some() {
            // The rewrite fails.
            self.rewrite.iter_mut().for_each(|rewrite| rewrite.first = Some(None));
        }
        if matches!(trouble, Trouble::Lost(_)) {
            self.wants_rewrite = true;
            if self.setup.canary == Some(Canary::BelievesSync) {
                self.writer.make_good(u64::MAX);
            }
        }
        Some(())
    }

    fn switch(&mut self) -> Option<()> {
        let first = match self.writer.switch(&mut self.files, Opening::OF_GROUPS) {
            Ok(seq) => Some(seq),
            Err(Trouble::Stuck(_)) => return None,
            Err(_) => None,
        };
        self.switch_at = None;
        if let Some(rewrite) = &mut self.rewrite {
            rewrite.first = Some(first);
        }
        Some(())
    }

    /// Writes a part of the base, or has it take its place.
    fn go_on_with_rewrite(&mut self) {
        let Some(rewrite) = &mut self.rewrite else { return };
        if let Some(mut file) = rewrite.file.take() {
            let end = rewrite.rest.end.min(rewrite.rest.start + BASE_CHUNK);
            let chunk: Vec<u8> = (rewrite.rest.start..end).flat_map(model::entry).collect();
            rewrite.rest.start = end;
            let written = match file.append(&chunk) {
                Ok(()) if rewrite.rest.is_empty() => {
                    file.finish(&self.files.path(&rewrite.base.name)).map(drop)
                }
                Ok(()) => {
                    rewrite.file = Some(file);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            rewrite.has_failed = written.is_err();
        } else if rewrite.first.is_some() {
            self.end_rewrite();
        }
    }

    fn end_rewrite(&mut self) {
        let Some(Rewrite { base, first, has_failed, .. }) = self.rewrite.take() else { return };
        let first = first.flatten().filter(|_| !has_failed);
        let taken = first.filter(|first| self.files.take_base(base.clone(), *first).is_ok());
        let Some(first) = taken else {
            self.files.drop_base(&base);
            self.wants_rewrite = self.writer.has_lost();
            return;
        };
        self.writer.make_good(first);
        // They are deleted with the next ones, or at the next start.
        let _ = self.files.delete_history();
    }

    fn note_progress(&mut self) {
        let count = |offset| {
            self.found + self.appended.iter().take_while(|(end, _)| *end <= offset).count()
        };
        let is_early = self.setup.canary == Some(Canary::AcknowledgesEarly);
        let written = count(self.writer.written());
        let safe = if is_early { written } else { count(self.writer.durable()) };
        self.promise.safe = self.promise.safe.max(safe);
        self.promise.written = written;
    }

    fn promise(&self) -> Promise {
        let mut promise = self.promise;
        promise.logged = self.found + self.appended.len();
        if !self.setup.is_always {
            // What was acknowledged more than a second ago, or before writes were refused.
            let until = self.refused_since.unwrap_or(self.now).min(self.now);
            let is_old = |at: Duration| at + SECOND <= until;
            let old = self.appended.iter().take_while(|(_, at)| is_old(*at)).count();
            promise.safe = promise.safe.max(self.found + old);
        }
        promise
    }
}

/// How it is written.
enum Way {
    Plain,
    /// A write for each slice, and behind them the sync: one that falls short, or fails, ends it.
    Chained,
}

impl Output<SimFile> for Way {
    fn write(
        &mut self,
        file: &mut SimFile,
        at: u64,
        slices: &[IoSlice<'_>],
        syncs: bool,
    ) -> Outcome {
        if let Way::Plain = self {
            return Plain.write(file, at, slices, syncs);
        }
        let mut written = 0;
        for slice in slices {
            let count = match file.write_at(at + written as u64, &[IoSlice::new(slice)]) {
                Ok(count) => count,
                Err(error) => return Outcome::WriteFailed(written, error),
            };
            written += count;
            if count < slice.len() {
                return Outcome::Written(written);
            }
        }
        match if syncs { file.sync() } else { Ok(()) } {
            Ok(()) => Outcome::Written(written),
            Err(error) => Outcome::SyncFailed(error),
        }
    }

    fn retries(&self) -> u32 {
        match self {
            Way::Plain => 0,
            Way::Chained => 2,
        }
    }
}
