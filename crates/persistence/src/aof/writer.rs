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

use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

use kvasir_structures::log::Reader;

use super::files::{Files, Increment};
use super::output::{Failed, Output, write_all};
use super::record::group_head;
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
    /// Those that are known to be on disk.
    synced: u64,
    /// Something was written that may not be on disk.
    is_dirty: bool,
    last_sync: Duration,
    last_line_s: u64,
    /// All changes before this offset of the log survive a power cut.
    durable: u64,
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
        let Increment { file, seq, len } = increment;
        Writer {
            durable: reader.cursor(),
            reader,
            file,
            seq,
            len,
            room: len,
            synced: len,
            is_dirty: true,
            last_sync: now,
            last_line_s: 0,
            lost_in: None,
        }
    }

    /// All changes before this offset of the log survive a power cut.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The log before this offset is written, or was passed over.
    pub fn written(&self) -> u64 {
        self.reader.cursor()
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

    /// Ends it; what was written may not be on disk.
    pub fn into_parts(self) -> (Reader<'l>, F) {
        (self.reader, self.file)
    }

    /// Ends it; where it has come to is kept by whoever reads the log next.
    pub fn into_reader(self) -> Reader<'l> {
        self.reader
    }

    /// Writes what there is, up to the switch, and syncs if that is due. Returns the bytes that
    /// were added to the file.
    pub fn step(&mut self, output: &mut impl Output<F>, turn: &Turn) -> Result<u64, Trouble> {
        let end = self.reader.look();
        let to = turn.switch_at.map_or(end, |at| at.min(end));
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
        result
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
        let line_s = turn.unix_s.filter(|now_s| *now_s != self.last_line_s);
        let mut head = line_s.map_or(Vec::new(), |now_s| format!("#TS:{now_s}\r\n").into_bytes());
        let body: Vec<&[u8]> = self.reader.slices(range.clone()).collect();
        if turn.has_checksums {
            head.extend(group_head(self.synced, &body));
        }
        let head_first = std::iter::once(&head[..]).chain(body);
        let mut slices: Vec<_> = head_first.map(IoSlice::new).collect();
        let written = write_all(output, &mut self.file, self.len, &mut slices, syncs);
        if let Err(Failed::Write(error)) = written {
            self.cut()?;
            return Err(Trouble::NotWritten(error));
        }
        let added = head.len() as u64 + range.end - range.start;
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
        if needed <= from || size > room {
            return Ok(());
        }
        let to = needed.next_multiple_of(room);
        let whole = (to - from) as usize / ZEROS.len();
        let rest = (to - from) as usize % ZEROS.len();
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
        self.room = self.len;
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
        has_checksums: bool,
    ) -> Result<u64, Trouble> {
        assert!(!self.is_dirty, "no increment but the last may be torn");
        let begun = match self.lost_in {
            Some(_) => files.begin_apart(has_checksums),
            None => files.begin_increment(has_checksums),
        };
        match begun {
            Ok(Increment { file, seq, len }) => {
                (self.file, self.seq) = (file, seq);
                (self.len, self.room, self.synced) = (len, len, len);
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

fn output_sync<F>(output: &mut impl Output<F>, file: &mut F, len: u64) -> Result<(), Failed> {
    write_all(output, file, len, &mut [], true)
}
