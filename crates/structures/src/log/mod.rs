//! The log: one stream of bytes in memory, to which everyone inside the gate appends and which some
//! read: the append-only file, later replicas.
//!
//! Its bytes have offsets that only grow. An entry is appended by one atomic add, which gives it
//! its place, and a copy; nobody waits for another's copy. Readers take slices of what is published
//! where it lies: what the kernel writes to disk are the log's own blocks.
//!
//! # Why a reader sees whole entries only, and all before them
//!
//! Everyone who appends has a lane, the one of the pass that it holds. Appending: (1) write into
//! the own lane the present end of the log, release; (2) add the length to the end, release; copy;
//! (3) mark the lane idle, release. What is published is the least of the end, read with acquire,
//! and of all lanes, read after it. Take an entry that begins before an end that a reader saw. The
//! adds are one release sequence, so the reader's acquire makes (1) of that entry visible: its lane
//! shows that value, which is not past the entry's beginning, or a later one, written after the
//! copy with release, so the copy is visible too. Either way nothing is published that is not
//! copied. Ends are ends of entries, so what is published ends with an entry.
//! What is computed may be less than before, since a lane may be given an end that is old: a reader
//! keeps the most it has seen.
//!
//! # Blocks
//!
//! Block `n` has the bytes from `n * BLOCK_SIZE` on; an entry may lie in several. A ring of
//! pointers leads to them. Whoever comes first to a block adds it. Blocks that lie before what
//! every reader has done with are taken out of the ring by readers, and used again.
//! An entry's writer touches blocks from the entry's beginning on, and no reader is past that
//! before the entry is published: so nobody writes into a block that is taken out. `first_block`
//! tells how far they are taken out, so a place of the ring is empty when it is needed again.
//!
//! # Safety
//!
//! | Field | Who touches it, and when |
//! |---|---|
//! | `lanes[i]` | written by the holder of pass i alone, read by readers |
//! | bytes of a block | each once written, by whoever got its offset; read once published |
//! | `ring[i]` | filled by whoever needs the block, emptied with `readers` locked |
//! | `first_block` | grows with `readers` locked, after the ring's places are empty |

mod block;
mod reader;

use crate::gate::{ExclusivePass, Gate, Pass};
use crate::heap::Exempt;
use crate::locks::lock;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Backoff, Mutex, Ordering, null_pointer};
pub use block::BLOCK_SIZE;
use block::Block;
pub use reader::Reader;

/// Places of the ring: the log never takes more memory than so many blocks, 8 GiB. Back-pressure
/// has to come far earlier ([`Log::waiting_bytes`]); at the ring's end appending waits for readers.
const RING: usize = if cfg!(loom) { 2 } else { 8192 };

/// Emptied blocks that are kept for the next ones: their pages need not be asked for again.
const SPARE_MAX: usize = 2;

/// The value of a lane whose owner appends nothing.
const IDLE: u64 = u64::MAX;

/// See the module.
pub struct Log {
    /// Identifies the gate; never followed.
    gate: *const Gate,
    end: Line<AtomicU64>,
    lanes: Box<[Line<AtomicU64>]>,
    ring: Box<[AtomicPtr<Block>]>,
    first_block: AtomicU64,
    /// No reader has to get anything before this offset.
    slowest: AtomicU64,
    is_open: AtomicBool,
    readers: Mutex<Readers>,
    spare: Mutex<Vec<Box<Block>>>,
    /// What all blocks take: it is no data's, and has limits of its own.
    memory: Exempt,
    #[cfg(loom)]
    broken: Broken,
}

// SAFETY: `gate` is only compared; blocks are reached as the module's header says.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

/// Two cache lines, since processors fetch lines in pairs.
#[repr(align(128))]
struct Line<T>(T);

/// Who reads, and what is kept.
#[derive(Default)]
struct Readers {
    /// Offsets up to which each has what it needs; `None`: a place for another.
    cursors: Vec<Option<u64>>,
    /// What came before was never in the log, or is gone.
    oldest: u64,
}

/// What a model leaves out, which loom must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    Nothing,
    /// The lane is marked idle without release.
    Publish,
    /// The end grows without release.
    Reserve,
    /// The lane is written after the end has grown.
    Announce,
    /// `first_block` grows without release.
    Retire,
}

impl Log {
    /// An empty log whose first byte will have this offset. The gate must not move while the log is
    /// used.
    pub fn new(gate: &Gate, offset: u64) -> Log {
        Log::with_lanes(gate, gate.lanes(), offset)
    }

    fn with_lanes(gate: *const Gate, lanes: usize, offset: u64) -> Log {
        let readers = Readers { oldest: offset, ..Readers::default() };
        Log {
            gate,
            end: Line(AtomicU64::new(offset)),
            lanes: (0..lanes).map(|_| Line(AtomicU64::new(IDLE))).collect(),
            ring: (0..RING).map(|_| null_pointer()).collect(),
            first_block: AtomicU64::new(offset / BLOCK_SIZE as u64),
            slowest: AtomicU64::new(offset),
            is_open: AtomicBool::new(false),
            readers: Mutex::new(readers),
            spare: Mutex::new(Vec::new()),
            memory: Exempt::default(),
            #[cfg(loom)]
            broken: Broken::Nothing,
        }
    }

    /// Whether anybody reads. Changes only while the gate is closed: who has seen it inside the
    /// gate may rely on it until it leaves.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Appends an entry, while what it tells of is still locked. Returns the offset behind it.
    pub fn append(&self, pass: &Pass<'_>, entry: &[u8]) -> u64 {
        assert!(core::ptr::eq(self.gate, pass.gate()), "a pass of another gate");
        self.append_in(pass.lane(), entry)
    }

    fn append_in(&self, lane: usize, entry: &[u8]) -> u64 {
        let lane = &self.lanes[lane].0;
        if !self.is_broken_by(Broken::Announce) {
            lane.store(self.end.0.load(Ordering::Relaxed), Ordering::Release);
        }
        let reserve = self.ordering(Broken::Reserve, Ordering::AcqRel);
        let start = self.end.0.fetch_add(entry.len() as u64, reserve);
        if self.is_broken_by(Broken::Announce) {
            lane.store(start, Ordering::Release);
        }
        self.write(start, entry);
        lane.store(IDLE, self.ordering(Broken::Publish, Ordering::Release));
        start + entry.len() as u64
    }

    fn write(&self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (offset % BLOCK_SIZE as u64) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_SIZE - at));
            // SAFETY: the offsets of these bytes were given to the caller alone, and nobody reads
            // them before they are published.
            unsafe { self.block_for_writing(offset / BLOCK_SIZE as u64).write(at, now) };
            (offset, bytes) = (offset + now.len() as u64, later);
        }
    }

    #[inline]
    fn block_for_writing(&self, number: u64) -> &Block {
        let mut backoff = Backoff::new();
        // Readers go on without any lock that the caller may hold.
        while number - self.first_block.load(Ordering::Acquire) >= RING as u64 {
            backoff.snooze();
        }
        let place = &self.ring[number as usize % RING];
        let pointer = match place.load(Ordering::Acquire) {
            pointer if pointer.is_null() => self.add_block(place),
            pointer => pointer,
        };
        // SAFETY: a block in the ring is freed only once it lies before every reader's cursor,
        // which it does not while the caller has bytes in it to write.
        unsafe { &*pointer }
    }

    #[cold]
    fn add_block(&self, place: &AtomicPtr<Block>) -> *mut Block {
        let spare = lock(&self.spare).pop();
        let block = spare.unwrap_or_else(|| {
            self.memory.add(BLOCK_SIZE);
            Block::new()
        });
        let new = Box::into_raw(block);
        let (empty, release) = (core::ptr::null_mut(), Ordering::AcqRel);
        match place.compare_exchange(empty, new, release, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: it came from a box a moment ago, and nobody else has seen it.
                self.keep_spare(unsafe { Box::from_raw(new) });
                other
            }
        }
    }

    fn keep_spare(&self, block: Box<Block>) {
        let mut spare = lock(&self.spare);
        if spare.len() < SPARE_MAX {
            spare.push(block);
        } else {
            self.memory.sub(BLOCK_SIZE);
        }
    }

    /// The offset behind the last byte that anybody has a place for. With the gate closed all of it
    /// is published.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.0.load(Ordering::Acquire)
    }

    /// Where what a reader may take ends: with a whole entry.
    fn published(&self) -> u64 {
        let end = self.end.0.load(Ordering::Acquire);
        self.lanes.iter().fold(end, |least, lane| least.min(lane.0.load(Ordering::Acquire)))
    }

    /// Bytes that the slowest reader still has to take.
    #[inline]
    pub fn waiting_bytes(&self) -> u64 {
        self.end.0.load(Ordering::Relaxed).saturating_sub(self.slowest.load(Ordering::Relaxed))
    }

    /// Memory of the blocks. Who limits the data does not count it ([`Exempt`]).
    pub fn allocated_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The first offset that can still be read.
    pub fn oldest(&self) -> u64 {
        lock(&self.readers).oldest
    }

    /// A reader of what is appended from now on.
    pub fn open(&self, _alone: &mut ExclusivePass<'_>) -> Reader<'_> {
        let mut readers = lock(&self.readers);
        let reader = Reader::new(self, &mut readers, self.end());
        self.settle(&mut readers);
        reader
    }

    /// A reader of what came from `offset` on, if that is still there.
    pub fn open_at(&self, offset: u64) -> Option<Reader<'_>> {
        let mut readers = lock(&self.readers);
        let is_there = self.is_open() && (readers.oldest..=self.published()).contains(&offset);
        is_there.then(|| Reader::new(self, &mut readers, offset))
    }

    /// Has nothing appended any more that only this reader would take. What is there it takes when
    /// it likes, before it is closed.
    pub fn stop(&self, reader: &Reader<'_>, _alone: &mut ExclusivePass<'_>) {
        let readers = lock(&self.readers);
        let is_other =
            |(index, cursor): (usize, &Option<u64>)| index != reader.index() && cursor.is_some();
        let has_others = readers.cursors.iter().enumerate().any(is_other);
        self.is_open.store(has_others, Ordering::Relaxed);
    }

    /// Ends a reader.
    pub fn close(&self, reader: Reader<'_>, _alone: &mut ExclusivePass<'_>) {
        let mut readers = lock(&self.readers);
        readers.cursors[reader.index()] = None;
        self.settle(&mut readers);
    }

    /// Ends a reader while others may be inside the gate: the log stays as open as it is, until
    /// something about who reads changes with the gate closed.
    pub fn leave(&self, reader: Reader<'_>) {
        let mut readers = lock(&self.readers);
        readers.cursors[reader.index()] = None;
        self.retire(&mut readers);
    }

    /// How many readers there are.
    pub fn readers(&self) -> usize {
        lock(&self.readers).cursors.iter().flatten().count()
    }

    /// Empties the log and has it go on at another offset.
    ///
    /// # Panics
    ///
    /// If somebody reads it.
    pub fn restart_at(&self, offset: u64, _alone: &mut ExclusivePass<'_>) {
        let mut readers = lock(&self.readers);
        assert!(readers.cursors.iter().all(Option::is_none), "nobody reads what begins anew");
        for place in &self.ring {
            let pointer = place.swap(core::ptr::null_mut(), Ordering::AcqRel);
            if !pointer.is_null() {
                // SAFETY: it came from a box; nobody reads, and with the gate closed nobody writes.
                self.keep_spare(unsafe { Box::from_raw(pointer) });
            }
        }
        readers.oldest = offset;
        self.end.0.store(offset, Ordering::Release);
        self.slowest.store(offset, Ordering::Relaxed);
        self.first_block.store(offset / BLOCK_SIZE as u64, Ordering::Release);
    }

    /// Notes what changed about who reads, with the gate closed.
    fn settle(&self, readers: &mut Readers) {
        let has_readers = readers.cursors.iter().any(Option::is_some);
        self.is_open.store(has_readers, Ordering::Relaxed);
        self.retire(readers);
    }

    /// Takes blocks out that nobody needs any more.
    fn retire(&self, readers: &mut Readers) {
        let slowest = readers.cursors.iter().flatten().copied().min();
        let slowest = slowest.unwrap_or_else(|| self.published());
        self.slowest.store(slowest, Ordering::Relaxed);
        let kept = slowest.max(readers.oldest);
        let first_kept = kept / BLOCK_SIZE as u64;
        let first = self.first_block.load(Ordering::Relaxed);
        if first_kept == first {
            return;
        }
        readers.oldest = first_kept * BLOCK_SIZE as u64;
        for number in first..first_kept {
            let pointer =
                self.ring[number as usize % RING].swap(core::ptr::null_mut(), Ordering::AcqRel);
            if !pointer.is_null() {
                // SAFETY: it came from a box; all its bytes are published and lie before every
                // cursor, so nobody has a reference to it.
                self.keep_spare(unsafe { Box::from_raw(pointer) });
            }
        }
        self.first_block.store(first_kept, self.ordering(Broken::Retire, Ordering::Release));
    }

    #[inline(always)]
    fn ordering(&self, whose: Broken, right: Ordering) -> Ordering {
        if self.is_broken_by(whose) { Ordering::Relaxed } else { right }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn is_broken_by(&self, _: Broken) -> bool {
        false
    }
}

/// For models, which do without a gate.
#[cfg(loom)]
impl Log {
    pub fn model(lanes: usize, broken: Broken) -> Log {
        let mut log = Log::with_lanes(core::ptr::null(), lanes, 0);
        log.broken = broken;
        log
    }

    /// Nobody else may use the lane.
    pub fn append_as(&self, lane: usize, entry: &[u8]) -> u64 {
        self.append_in(lane, entry)
    }

    /// Before anything is forgotten; what was appended is read from the beginning.
    pub fn open_model(&self) -> Reader<'_> {
        let mut readers = lock(&self.readers);
        let reader = Reader::new(self, &mut readers, 0);
        self.settle(&mut readers);
        reader
    }

    fn is_broken_by(&self, what: Broken) -> bool {
        self.broken == what
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        for place in &self.ring {
            let pointer = place.swap(core::ptr::null_mut(), Ordering::AcqRel);
            if !pointer.is_null() {
                // SAFETY: it came from a box, and nobody has the log any more.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
