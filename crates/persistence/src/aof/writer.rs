//! What becomes of the log on disk: groups are written, synced when that is due, and go on in
//! another increment at the cut of a rewrite.
//!
//! Knows no clock and no threads: who drives it says what time it is, and is told how far changes
//! are on disk and what went wrong. Three things can. A group is not written, for want of space
//! say: what was written of it is cut off, and it is tried again with the next turn. A sync fails:
//! what was written since the last one may be gone, though the system shows it. It is written once
//! more by a rewrite, and until then nothing counts as on disk. It is not known what stands in a
//! file or in the manifest: then there is no going on.
//!
//! Where each group is synced, zeros are written ahead of many of them at once: a sync of a file
//! that has grown makes the file system write its journal, which takes longer than the data. A
//! start takes zeros at the end for what they are; they are gone when the file is left for good.
//!
//! What is broken at the end of a file may never have been on disk, or it may be damage: only a
//! sound group behind it tells, by what it says of the file. So while there is nothing else to
//! write an empty group stands at the end, the mark, which says that all before it is on disk. The
//! next group takes its place. The last one of a file that is left in order is on disk itself.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

use kvasir_structures::log::Reader;

use super::files::{Files, Increment, Opening};
use super::output::{Failed, Output, Plain, write_all};
use super::record::{group_head, time_line};
use crate::disk::{Disk, DiskFile};

/// What stands before the changes of a group takes no more bytes.
const HEAD_MAX: u64 = 128;

static ZEROS: [u8; 1 << 14] = [0; 1 << 14];

/// Writes the log into one increment after the other.
pub struct Writer<'l, F> {
    reader: Reader<'l>,
    file: F,
    /// The number of the increment.
    seq: u64,
    /// Bytes of the file that are whole groups.
    len: u64,
    /// Where the zeros end that stand behind them, if there are any.
    room: u64,
    /// Where the mark ends that stands behind them, if there is one.
    marked: u64,
    /// Something says of all before this that it is on disk, or nothing can.
    proven: u64,
    /// What is written goes to the end of the file, behind what others may have written.
    is_shared: bool,
    /// Those that are known to be on disk.
    synced: u64,
    /// Something was written that may not be on disk.
    is_dirty: bool,
    last_sync: Duration,
    last_line_s: u64,
    /// All changes before this offset of the log survive a power cut.
    durable: u64,
    /// Goes before the next group: what the log says from here on is meant to come behind it.
    first: Vec<u8>,
    /// The last increment in which a sync has failed, until a base makes it superfluous.
    lost_in: Option<u64>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub when: When,
    /// Of a clock that never goes back.
    pub now: Duration,
    /// The time to be noted before the group, in seconds since 1970.
    pub unix_s: Option<u64>,
    pub has_checksums: bool,
    /// Up to a multiple of so many bytes zeros are written ahead of groups that are synced; 0: none
    /// are. To sync what takes their place, the file's length need not be brought to the disk.
    pub room: u64,
    /// From this offset on the log goes to another increment.
    pub switch_at: Option<u64>,
    /// What comes behind this offset is for a later turn: something is to stand before it.
    pub pause_at: Option<u64>,
    /// Nothing comes after it.
    pub is_last: bool,
}

/// When what is written is brought to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    /// When the last time is so long ago.
    Every(Duration),
    Never,
}

/// What went wrong.
#[derive(Debug)]
pub enum Trouble {
    /// It is tried again with the next turn.
    NotWritten(io::Error),
    /// What was written since the last sync has to be written again by a rewrite.
    Lost(io::Error),
    /// To go on could damage what is there.
    Stuck(io::Error),
}

impl<'l, F: DiskFile> Writer<'l, F> {
    /// Goes on in an increment, all of which is on disk.
    pub fn new(reader: Reader<'l>, increment: Increment<F>, now: Duration) -> Writer<'l, F> {
        let Increment { file, seq, len, is_shared } = increment;
        Writer {
            durable: reader.cursor(),
            reader,
            file,
            seq,
            len,
            room: len,
            marked: len,
            // It ends with a group that says so of all before it.
            proven: len,
            is_shared,
            synced: len,
            is_dirty: true,
            last_sync: now,
            last_line_s: 0,
            first: Vec::new(),
            lost_in: None,
        }
    }

    /// Has records stand before what the log says next, behind others of the kind.
    pub fn put_first(&mut self, records: &[u8]) {
        self.first.extend_from_slice(records);
    }

    /// All changes before this offset of the log survive a power cut.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The log before this offset is written, or was passed over.
    pub fn written(&self) -> u64 {
        self.reader.cursor()
    }

    /// How far there is something to write.
    pub fn look(&mut self) -> u64 {
        self.reader.look()
    }

    /// Whether there is something to write.
    pub fn has_work(&mut self) -> bool {
        self.reader.look() > self.reader.cursor()
    }

    /// Whether something has to be synced.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    pub fn last_sync(&self) -> Duration {
        self.last_sync
    }

    /// Whether a sync has failed, and no rewrite has made good for it.
    pub fn has_lost(&self) -> bool {
        self.lost_in.is_some()
    }

    pub fn reader(&self) -> &Reader<'l> {
        &self.reader
    }

    /// Ends it; what was written may not be on disk yet.
    pub fn end(self) -> (Reader<'l>, Written<F>) {
        let can_be_marked = self.lost_in.is_none() && !self.is_shared;
        (self.reader, Written { file: self.file, len: self.len, can_be_marked })
    }

    /// Writes what there is, up to the switch, and syncs if that is due. Returns the bytes that
    /// were added to the file.
    pub fn step(&mut self, output: &mut impl Output<F>, turn: &Turn) -> Result<u64, Trouble> {
        let end = self.reader.look();
        let to = [turn.switch_at, turn.pause_at].into_iter().flatten().fold(end, u64::min);
        let ends_file = turn.is_last || turn.switch_at == Some(to);
        let syncs = self.is_due(turn) || ends_file;
        let mut result = Ok(0);
        if to > self.reader.cursor() {
            // Only groups are told from what a power cut leaves of zeros.
            if syncs && !ends_file && turn.has_checksums {
                self.make_room(output, to - self.reader.cursor() + HEAD_MAX, turn.room)?;
            }
            result = self.write(output, self.reader.cursor()..to, turn, syncs);
        }
        if ends_file {
            self.give_room_back()?;
        }
        if syncs && self.is_dirty {
            self.last_sync = turn.now;
            let synced = output_sync(output, &mut self.file, self.len);
            self.note_sync(synced)?;
        }
        if turn.has_checksums && !ends_file && matches!(result, Ok(0)) {
            self.mark(output)?;
        }
        result
    }

    /// Says behind the last group that it is on disk, if nothing does so yet. To bring this to the
    /// disk too is worth no sync.
    fn mark(&mut self, output: &mut impl Output<F>) -> Result<(), Trouble> {
        let is_needed = self.proven < self.len && self.synced == self.len;
        if !is_needed || self.is_shared {
            return Ok(());
        }
        self.proven = self.len;
        let mark = group_head(self.len, &[]);
        let end = self.len + mark.len() as u64;
        match write_all(output, &mut self.file, self.len, &mut [IoSlice::new(&mark)], false) {
            Ok(()) => {
                self.marked = end;
                Ok(())
            }
            Err(_) => self.cut(),
        }
    }

    fn is_due(&self, turn: &Turn) -> bool {
        let is_time = match turn.when {
            When::Always => true,
            When::Every(interval) => turn.now.saturating_sub(self.last_sync) >= interval,
            When::Never => false,
        };
        is_time || turn.is_last
    }

    fn write(
        &mut self,
        output: &mut impl Output<F>,
        range: Range<u64>,
        turn: &Turn,
        syncs: bool,
    ) -> Result<u64, Trouble> {
        if !turn.has_checksums {
            // A call may be shorter than the mark, which stays.
            self.len = self.len.max(self.marked);
        }
        let line_s = turn.unix_s.filter(|now_s| *now_s != self.last_line_s);
        let mut head = line_s.map_or(Vec::new(), time_line);
        let first = std::mem::take(&mut self.first);
        let of_log = self.reader.slices(range.clone());
        let before = (!first.is_empty()).then_some(&first[..]);
        let body: Vec<&[u8]> = before.into_iter().chain(of_log).collect();
        if turn.has_checksums {
            head.extend(group_head(self.synced, &body));
        }
        let head_first = std::iter::once(&head[..]).chain(body);
        let mut slices: Vec<_> = head_first.map(IoSlice::new).collect();
        let written = write_all(output, &mut self.file, self.len, &mut slices, syncs);
        if let Err(Failed::Write(error)) = written {
            self.first = first;
            self.cut()?;
            return Err(Trouble::NotWritten(error));
        }
        let added = (head.len() + first.len()) as u64 + range.end - range.start;
        self.reader.advance(range.end);
        self.len += added;
        self.last_line_s = line_s.unwrap_or(self.last_line_s);
        self.is_dirty = true;
        if syncs {
            self.last_sync = turn.now;
            self.note_sync(written)?;
        }
        Ok(added)
    }

    /// Writes zeros where the next `size` bytes and those behind them will stand, up to a multiple
    /// of `room`. Who writes more than that at once has no use for it.
    fn make_room(
        &mut self,
        output: &mut impl Output<F>,
        size: u64,
        room: u64,
    ) -> Result<(), Trouble> {
        let (from, needed) = (self.room.max(self.len), self.len + size);
        if needed <= from || size > room || self.is_shared {
            return Ok(());
        }
        let to = needed.next_multiple_of(room);
        let size = usize::try_from(to - from).expect("less than twice the room");
        let (whole, rest) = (size / ZEROS.len(), size % ZEROS.len());
        let mut zeros = vec![IoSlice::new(&ZEROS); whole];
        zeros.push(IoSlice::new(&ZEROS[..rest]));
        match write_all(output, &mut self.file, from, &mut zeros, false) {
            Ok(()) => {
                self.room = to;
                Ok(())
            }
            // There may be space enough for the group.
            Err(_) => self.cut(),
        }
    }

    /// Removes whatever stands behind the groups: to go on behind a half of one would damage the
    /// file.
    fn cut(&mut self) -> Result<(), Trouble> {
        if self.is_shared {
            let what = "others may have written to it, so nothing can be cut off";
            return Err(Trouble::Stuck(io::Error::other(what)));
        }
        (self.room, self.marked) = (self.len, self.len);
        // Until a sync a power cut may bring back what is cut off.
        self.is_dirty = true;
        self.file.truncate(self.len).map_err(Trouble::Stuck)
    }

    /// Redis loads no file with zeros at its end, and another may only follow one that is whole.
    fn give_room_back(&mut self) -> Result<(), Trouble> {
        if self.room > self.len {
            self.is_dirty = true;
            self.cut()?;
        }
        Ok(())
    }

    fn note_sync(&mut self, synced: Result<(), Failed>) -> Result<(), Trouble> {
        // Either all is on disk, or it is given up.
        self.is_dirty = false;
        match synced {
            Ok(()) if self.lost_in.is_none() => {
                (self.durable, self.synced) = (self.reader.cursor(), self.len);
            }
            Ok(()) => {}
            Err(Failed::Write(error) | Failed::Sync(error)) => {
                self.lost_in = Some(self.seq);
                return Err(Trouble::Lost(error));
            }
        }
        Ok(())
    }

    /// Whether all before the offset is written and on disk as far as it can be.
    pub fn has_reached(&self, offset: u64) -> bool {
        self.reader.cursor() == offset && !self.is_dirty
    }

    /// Goes on in another increment, once what comes before it is on disk. Returns its number.
    /// After an error it goes on in the same one, but for `Stuck`.
    pub fn switch<D: Disk<File = F>>(
        &mut self,
        files: &mut Files<D>,
        opening: Opening,
    ) -> Result<u64, Trouble> {
        assert!(!self.is_dirty, "no increment but the last may be torn");
        let begun = match self.lost_in {
            Some(_) => files.begin_apart(opening),
            None => files.begin_increment(opening),
        };
        match begun {
            Ok(Increment { file, seq, len, is_shared }) => {
                self.first.clear();
                (self.file, self.seq, self.is_shared) = (file, seq, is_shared);
                (self.len, self.room, self.synced) = (len, len, len);
                (self.marked, self.proven) = (len, len);
                Ok(seq)
            }
            Err(error) if files.is_certain() => Err(Trouble::NotWritten(error)),
            Err(error) => Err(Trouble::Stuck(error)),
        }
    }

    /// A base makes all increments before this one superfluous: nothing of them is missed.
    pub fn make_good(&mut self, first: u64) {
        if self.lost_in.is_some_and(|seq| seq < first) {
            self.lost_in = None;
            // What is durable is told with the next sync.
            self.is_dirty = true;
        }
    }
}

/// An increment to which nothing is appended any more.
pub struct Written<F> {
    file: F,
    len: u64,
    can_be_marked: bool,
}

impl<F: DiskFile> Written<F> {
    /// Brings it to the disk, and behind it the mark that says so.
    pub fn seal(mut self, has_checksums: bool) -> io::Result<()> {
        self.file.sync()?;
        if !has_checksums || !self.can_be_marked {
            return Ok(());
        }
        let mark = group_head(self.len, &[]);
        let mut slices = [IoSlice::new(&mark)];
        match write_all(&mut Plain, &mut self.file, self.len, &mut slices, true) {
            Ok(()) => Ok(()),
            // All the rest is on disk: the end is as good as any, if it is an end.
            Err(Failed::Write(_) | Failed::Sync(_)) => self.file.truncate(self.len),
        }
    }
}

fn output_sync<F>(output: &mut impl Output<F>, file: &mut F, len: u64) -> Result<(), Failed> {
    write_all(output, file, len, &mut [], true)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::sync::atomic::AtomicU64;

    use kvasir_resp::args::Args;
    use kvasir_structures::gate::Gate;
    use kvasir_structures::log::Log;

    use super::*;
    use crate::aof::load::{Replay, load};

    struct Count(usize);

    impl Replay for Count {
        fn call(&mut self, _args: Args<'_>) -> Result<(), String> {
            self.0 += 1;
            Ok(())
        }
    }

    /// Where a file system has no locks, two servers may write to one file.
    #[test]
    fn what_is_written_to_a_shared_file_goes_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, group_head(0, &[])).unwrap();
        let len = std::fs::metadata(&path).unwrap().len();
        let gates = [Gate::new(1), Gate::new(1)];
        let logs = gates.each_ref().map(|gate| Log::new(gate, 0));
        let open = |(log, gate): (_, &Gate)| {
            let mut file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_append().unwrap();
            let increment = Increment { file, seq: 1, len, is_shared: true };
            Writer::<File>::new(Log::open(log, &mut gate.exclusive()), increment, Duration::ZERO)
        };
        let mut writers: Vec<_> = logs.iter().zip(&gates).map(open).collect();
        let turn = Turn {
            when: When::Always,
            now: Duration::ZERO,
            unix_s: None,
            has_checksums: true,
            room: 1 << 10,
            switch_at: None,
            pause_at: None,
            is_last: false,
        };
        for number in 0..20 {
            let each = writers.iter_mut().zip(&logs).zip(&gates).enumerate();
            for (index, ((writer, log), gate)) in each {
                if number % (index + 2) == 0 {
                    let call = b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n";
                    log.append(&gate.enter(0), call);
                }
                writer.step(&mut Plain, &turn).unwrap();
            }
        }
        for writer in writers {
            writer.end().1.seal(true).unwrap();
        }
        let (bytes, mut calls) = (std::fs::read(&path).unwrap(), Count(0));
        let end = load(&bytes[..], 0, &AtomicU64::new(0), &mut calls).unwrap();
        assert_eq!((calls.0, end.offset), (10 + 7, bytes.len() as u64));
    }
}
