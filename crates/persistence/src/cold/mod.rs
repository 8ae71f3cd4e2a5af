//! What the log has put out of its own memory for those of its readers that are slow: first packed
//! in memory, once for all of them, and beyond a limit in files.
//!
//! One thread moves the log's oldest bytes here, piece by piece ([`ColdLog::push`]); what nobody
//! needs it leaves out ([`ColdLog::skip_to`]). Readers have a place and take the piece that is
//! there ([`ColdLog::at`]). Pieces go when every reader is past them and they lie before what is
//! kept in any case, the backlog. Where neither memory nor the disk may hold more, the oldest go
//! all the same: whoever still needed them finds nothing, and has to begin anew.
//!
//! What is here is a line without gaps, from `start` to `end`; a reader may stand anywhere from
//! `start` on, also behind `end`, in what the log itself still has.

mod segment;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_structures::heap::Exempt;
use kvasir_structures::locks::lock;
use kvasir_structures::packing::{self, Packer};

use segment::Segment;
pub use segment::Segments;

/// How much is packed together: what is long shrinks better, and what is short holds up nobody who
/// unpacks it.
pub const PIECE_SIZE: usize = 256 << 10;

/// See the module.
#[derive(Default)]
pub struct ColdLog {
    state: Mutex<State>,
    memory: Exempt,
    sums: Sums,
}

#[derive(Default)]
struct State {
    /// In the order of their offsets, without gaps; the oldest ones are on disk.
    pieces: VecDeque<Piece>,
    /// How many of them.
    on_disk: usize,
    end: u64,
    /// Where each reader is.
    readers: Vec<Option<u64>>,
}

struct Piece {
    start: u64,
    len: u32,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Memory(Arc<[u8]>),
    Disk { segment: Arc<Segment>, at: u64, size: u32 },
}

/// What it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes in memory.
    pub memory: u64,
    /// Bytes in files; 0: as many as the disk has.
    pub disk: u64,
}

/// What there is of it, and has been since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Of the stream, in memory, and what that takes there.
    pub memory_bytes: u64,
    pub memory_packed: u64,
    pub disk_bytes: u64,
    pub disk_packed: u64,
    /// Of all pieces that were ever packed.
    pub total_bytes: u64,
    pub total_packed: u64,
    /// The most that pieces have taken in memory.
    pub memory_peak: u64,
    pub start: u64,
    pub end: u64,
}

#[derive(Default)]
struct Sums {
    total_bytes: AtomicU64,
    total_packed: AtomicU64,
    memory_peak: AtomicU64,
}

/// What became of pieces that were too many for the memory.
#[derive(Debug, Default)]
pub struct Spilled {
    /// Bytes of the stream that went although they may be needed.
    pub lost: u64,
    /// Why the disk did not take them; `None`: it may not have more.
    pub error: Option<io::Error>,
}

/// A piece that was found, packed. To load it no lock is needed.
pub struct Found {
    pub start: u64,
    pub len: u32,
    place: Place,
}

/// A reader's place, which is kept until it is given back.
#[derive(Debug)]
pub struct Ticket(usize);

impl ColdLog {
    /// Forgets all, and begins at another offset. Readers stay where they are.
    pub fn restart_at(&self, offset: u64) {
        let mut state = lock(&self.state);
        self.forget(&mut state, usize::MAX);
        state.end = offset;
    }

    /// A reader that is at an offset; `None` if that is not kept any more.
    pub fn open(&self, offset: u64) -> Option<Ticket> {
        let mut state = lock(&self.state);
        if offset < state.start() {
            return None;
        }
        let free = state.readers.iter().position(Option::is_none);
        let index = free.unwrap_or(state.readers.len());
        if index == state.readers.len() {
            state.readers.push(None);
        }
        state.readers[index] = Some(offset);
        Some(Ticket(index))
    }

    /// A reader has gone on.
    pub fn advance(&self, ticket: &Ticket, offset: u64) {
        lock(&self.state).readers[ticket.0] = Some(offset);
    }

    pub fn close(&self, ticket: Ticket) {
        lock(&self.state).readers[ticket.0] = None;
    }

    pub fn has_readers(&self) -> bool {
        lock(&self.state).readers.iter().any(Option::is_some)
    }

    /// The first offset that can be read here, or in the log behind.
    pub fn start(&self) -> u64 {
        lock(&self.state).start()
    }

    /// The offset behind the last byte that is here.
    pub fn end(&self) -> u64 {
        lock(&self.state).end
    }

    /// The offset from which on somebody needs the stream, who keeps `kept` and what is behind it
    /// in any case.
    pub fn needed_from(&self, kept: u64) -> u64 {
        lock(&self.state).readers.iter().flatten().copied().fold(kept, u64::min)
    }

    /// Leaves out what comes before an offset, if nobody needs it: all is forgotten. False: by now
    /// somebody does.
    pub fn skip_to(&self, offset: u64, kept: u64) -> bool {
        let mut state = lock(&self.state);
        let is_needed = |reader: &u64| *reader < offset;
        if kept < offset || state.readers.iter().flatten().any(is_needed) {
            return false;
        }
        self.forget(&mut state, usize::MAX);
        state.end = offset;
        true
    }

    /// Adds the bytes behind all that is here.
    pub fn push(&self, packer: &mut Packer, bytes: &[u8]) {
        let packed: Arc<[u8]> = packer.pack(bytes).into();
        self.memory.add(held(&packed));
        self.sums.total_bytes.fetch_add(bytes.len() as u64, Relaxed);
        self.sums.total_packed.fetch_add(packed.len() as u64, Relaxed);
        self.sums.memory_peak.fetch_max(self.memory.bytes() as u64, Relaxed);
        let len = u32::try_from(bytes.len()).expect("pieces are short");
        let mut state = lock(&self.state);
        let start = state.end;
        state.end += u64::from(len);
        state.pieces.push_back(Piece { start, len, place: Place::Memory(packed) });
    }

    /// Forgets what every reader is past, and lies before `kept`.
    pub fn trim(&self, kept: u64) {
        let mut state = lock(&self.state);
        let needed = state.readers.iter().flatten().copied().fold(kept, u64::min);
        let is_past = |piece: &Piece| piece.start + u64::from(piece.len) <= needed;
        let count = state.pieces.iter().take_while(|piece| is_past(piece)).count();
        self.forget(&mut state, count);
    }

    /// The piece that has the byte at an offset, if it is here.
    pub fn at(&self, offset: u64) -> Option<Found> {
        let state = lock(&self.state);
        let behind = state.pieces.partition_point(|piece| piece.start <= offset);
        let piece = &state.pieces[behind.checked_sub(1)?];
        let has_it = offset < piece.start + u64::from(piece.len);
        has_it.then(|| Found { start: piece.start, len: piece.len, place: piece.place.clone() })
    }

    /// Brings what is too much for the memory to the disk, the oldest first. One thread does so.
    pub fn spill(&self, limits: Limits, segments: &mut Segments) -> Spilled {
        let mut spilled = Spilled::default();
        while self.memory.bytes() as u64 > limits.memory {
            let Some((start, packed)) = self.oldest_in_memory() else { break };
            let room = limits.disk == 0 || segments.bytes() + packed.len() as u64 <= limits.disk;
            let written = match room {
                true => segments.append(&packed, limits.disk).map(Some),
                false => Ok(None),
            };
            match written {
                Ok(Some((segment, at))) => self.note_on_disk(start, segment, at),
                Ok(None) | Err(_) => {
                    spilled.error = written.err().or(spilled.error);
                    spilled.lost += self.lose_oldest();
                    segments.rest();
                }
            }
        }
        spilled
    }

    fn oldest_in_memory(&self) -> Option<(u64, Arc<[u8]>)> {
        let state = lock(&self.state);
        let piece = state.pieces.get(state.on_disk)?;
        match &piece.place {
            Place::Memory(packed) => Some((piece.start, Arc::clone(packed))),
            Place::Disk { .. } => None,
        }
    }

    fn note_on_disk(&self, start: u64, segment: Arc<Segment>, at: u64) {
        let mut state = lock(&self.state);
        let on_disk = state.on_disk;
        // Unless it was forgotten meanwhile.
        if let Some(piece) = state.pieces.get_mut(on_disk).filter(|piece| piece.start == start)
            && let Place::Memory(packed) = &piece.place
        {
            self.memory.sub(held(packed));
            let size = u32::try_from(packed.len()).expect("pieces are short");
            piece.place = Place::Disk { segment, at, size };
            state.on_disk += 1;
        }
    }

    /// Forgets the oldest pieces: those of one file, whose room others get, or one in memory.
    fn lose_oldest(&self) -> u64 {
        let mut state = lock(&self.state);
        let start = state.start();
        let first = state.pieces.front().and_then(Piece::segment).map(Arc::as_ptr);
        let is_there = |piece: &&Piece| piece.segment().map(Arc::as_ptr) == first;
        let count = match first {
            Some(_) => state.pieces.iter().take_while(is_there).count(),
            None => 1,
        };
        self.forget(&mut state, count);
        state.start() - start
    }

    fn forget(&self, state: &mut State, count: usize) {
        let count = count.min(state.pieces.len());
        for piece in state.pieces.drain(..count) {
            if let Place::Memory(packed) = piece.place {
                self.memory.sub(held(&packed));
            }
        }
        state.on_disk = state.on_disk.saturating_sub(count);
    }

    /// What all pieces in memory take.
    pub fn allocated_bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub fn facts(&self) -> Facts {
        let state = lock(&self.state);
        let mut facts = Facts {
            total_bytes: self.sums.total_bytes.load(Relaxed),
            total_packed: self.sums.total_packed.load(Relaxed),
            memory_peak: self.sums.memory_peak.load(Relaxed),
            start: state.start(),
            end: state.end,
            ..Facts::default()
        };
        for piece in &state.pieces {
            match &piece.place {
                Place::Memory(packed) => {
                    facts.memory_bytes += u64::from(piece.len);
                    facts.memory_packed += packed.len() as u64;
                }
                Place::Disk { size, .. } => {
                    facts.disk_bytes += u64::from(piece.len);
                    facts.disk_packed += u64::from(*size);
                }
            }
        }
        facts
    }
}

/// What a piece takes in memory, with what counts who has it.
fn held(packed: &Arc<[u8]>) -> usize {
    packed.len() + 2 * size_of::<usize>()
}

impl State {
    fn start(&self) -> u64 {
        self.pieces.front().map_or(self.end, |piece| piece.start)
    }
}

impl Piece {
    fn segment(&self) -> Option<&Arc<Segment>> {
        match &self.place {
            Place::Memory(_) => None,
            Place::Disk { segment, .. } => Some(segment),
        }
    }
}

impl Found {
    pub fn is_on_disk(&self) -> bool {
        matches!(self.place, Place::Disk { .. })
    }

    /// The piece as it is packed (`kvasir_structures::packing`).
    ///
    /// # Errors
    ///
    /// If it cannot be read from its file.
    pub fn packed(&self) -> io::Result<Arc<[u8]>> {
        match &self.place {
            Place::Memory(packed) => Ok(Arc::clone(packed)),
            Place::Disk { segment, at, size } => segment.read(*at, *size as usize).map(Into::into),
        }
    }

    /// The piece.
    ///
    /// # Errors
    ///
    /// If it cannot be read from its file, or is not what was written there.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        packing::unpack(&self.packed()?, self.len)
            .map_err(|unsound| io::Error::new(io::ErrorKind::InvalidData, unsound.to_string()))
    }
}

#[cfg(test)]
mod tests;
