//! Reading an RDB file into the databases, with several threads.
//!
//! One thread reads and cuts the file into blocks of whole entries, which costs little, since only
//! lengths are looked at; the others make values of them and add them to their slots. No block
//! waits for another: keys of a file are different, so their order does not matter.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use kvasir_keyspace::database::{DbIndex, Keyspace};
use kvasir_keyspace::load::add;
use kvasir_keyspace::serial::{Reader, SerialError, Version, read_value};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc64;
use kvasir_structures::gate::{ExclusivePass, Gate};

use crate::disk::read_more;
use crate::rdb::{
    CHECKSUM_SIZE, Entry, HEADER_SIZE, Item, Usage, frame, has_checksum, module_name, parse_header,
};

/// How much is read at once, and about how large a block is.
const BLOCK_SIZE: usize = 1 << 20;
/// Blocks that are read ahead, for each thread that makes values.
const BLOCKS_AHEAD: usize = 2;

/// How the threads get at the databases.
#[derive(Clone, Copy)]
pub enum Entrance<'a> {
    /// Each on its own, while others may be inside.
    Gate(&'a Gate),
    /// With who has closed the gate.
    Inside(&'a ExclusivePass<'a>),
}

/// Where the data goes.
pub struct Target<'a> {
    pub keyspace: &'a Keyspace,
    pub entrance: Entrance<'a>,
    pub env: &'a Env,
    /// Threads that make values.
    pub threads: usize,
    /// Whether keys whose time has come are left out. Who replays a log behind the file needs them.
    pub drops_expired: bool,
    /// Whether a key that is in the databases already stays as it is; otherwise it is an error.
    pub keeps_present: bool,
}

/// How far it is; read by others meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    pub bytes: AtomicU64,
    pub bytes_total: AtomicU64,
    pub keys: AtomicU64,
    pub keys_expired: AtomicU64,
}

/// What a file tells beside its keys.
pub trait Listener {
    fn aux(&mut self, name: &[u8], value: &[u8]);

    /// A library of functions; an error ends the loading.
    fn library(&mut self, code: &[u8]) -> Result<(), String>;

    /// What a module kept, which nobody here can read.
    fn module(&mut self, module: &str, key: Option<&[u8]>);
}

/// Why a file was not read to its end.
#[derive(Debug)]
pub enum LoadError {
    Io(io::Error),
    /// The file is not what it should be, from this byte on.
    Broken {
        offset: u64,
        what: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Io(error) => error.fmt(f),
            LoadError::Broken { offset, what } => write!(f, "{what} at byte {offset}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> LoadError {
        LoadError::Io(error)
    }
}

/// Entries that stand together, and where they stood.
struct Block {
    bytes: Vec<u8>,
    offset: u64,
    entries: Vec<(DbIndex, Entry)>,
}

/// Loads a file. What was loaded before an error stays.
pub fn load(
    path: &Path,
    target: &Target<'_>,
    progress: &Progress,
    listener: &mut impl Listener,
) -> Result<(), LoadError> {
    let file = File::open(path)?;
    progress.bytes_total.store(file.metadata()?.len(), Relaxed);
    load_from(file, target, progress, listener)
}

/// As [`load`], from anything that can be read.
pub fn load_from(
    input: impl Read,
    target: &Target<'_>,
    progress: &Progress,
    listener: &mut impl Listener,
) -> Result<(), LoadError> {
    let (send, blocks) = sync_channel(target.threads * BLOCKS_AHEAD);
    let makers = Makers { target, progress, blocks: Mutex::new(blocks), error: Mutex::default() };
    let read = thread::scope(|scope| {
        (0..target.threads).for_each(|_| {
            scope.spawn(|| makers.run());
        });
        Cutter::new(input, target, progress).run(listener, &send).map(|()| drop(send))
    });
    match makers.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => read,
    }
}

/// The threads that make values.
struct Makers<'a> {
    target: &'a Target<'a>,
    progress: &'a Progress,
    blocks: Mutex<Receiver<Block>>,
    /// The error that is nearest to the file's beginning.
    error: Mutex<Option<LoadError>>,
}

impl Makers<'_> {
    fn run(&self) {
        loop {
            let block = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(block) = block else { return };
            if let Err(error) = self.add_all(&block) {
                let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(error);
            }
        }
    }

    fn add_all(&self, block: &Block) -> Result<(), LoadError> {
        let mut entries = block.entries.iter();
        entries.try_for_each(|(db, entry)| {
            let start = entry.offset;
            self.add(*db, entry, &block.bytes[start..])
                .map_err(|(at, what)| broken(block.offset + (start + at) as u64, what))
        })
    }

    fn add(&self, db: DbIndex, entry: &Entry, bytes: &[u8]) -> Result<(), (usize, &'static str)> {
        let Target { keyspace, entrance, env, .. } = *self.target;
        let is_dead = entry.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= env.now_ms);
        if is_dead && self.target.drops_expired {
            self.progress.keys_expired.fetch_add(1, Relaxed);
            return Ok(());
        }
        let place = |error: SerialError| (error.offset, error.what);
        let mut reader = Reader::new(bytes, env.text_len_max);
        let value_type = reader.byte().map_err(place)?;
        let key = reader.string().map_err(place)?;
        let value = read_value(value_type, &mut reader, env).map_err(place)?;
        let mut record = value.into_record(&key, entry.expiry_ms);
        record.borrow_mut().set_clock(clock(env, entry.usage));
        let added = match entrance {
            Entrance::Gate(gate) => add(keyspace, &gate.enter_extra(), db, record),
            Entrance::Inside(pass) => add(keyspace, pass, db, record),
        };
        match added {
            Err(_) if !self.target.keeps_present => Err((0, "a key that was there before")),
            Err(_) => Ok(()),
            Ok(()) => {
                self.progress.keys.fetch_add(1, Relaxed);
                Ok(())
            }
        }
    }
}

fn clock(env: &Env, usage: Usage) -> u32 {
    match (env.policy.is_lfu(), usage) {
        (true, Usage::Frequency(frequency)) => env.clock_of_frequency(frequency),
        (false, Usage::IdleS(idle_s)) => env.clock_of_idle(idle_s),
        _ => env.clock_of_new(),
    }
}

fn broken(offset: u64, what: impl Into<String>) -> LoadError {
    LoadError::Broken { offset, what: what.into() }
}

/// Whole entries at the beginning of what was read.
struct CutOff {
    /// Bytes that they and what stands between them take.
    used: usize,
    entries: Vec<(DbIndex, Entry)>,
    /// Whether the file ends behind them.
    is_end: bool,
}

/// The thread that reads.
struct Cutter<'a, R> {
    input: R,
    target: &'a Target<'a>,
    progress: &'a Progress,
    /// What was read and not cut yet.
    bytes: Vec<u8>,
    /// Where `bytes` begins in the file.
    offset: u64,
    /// Nothing follows on `bytes`.
    has_ended: bool,
    checksum: u64,
    db: DbIndex,
}

impl<'a, R: Read> Cutter<'a, R> {
    fn new(input: R, target: &'a Target<'a>, progress: &'a Progress) -> Cutter<'a, R> {
        Cutter {
            input,
            target,
            progress,
            bytes: Vec::new(),
            offset: 0,
            has_ended: false,
            checksum: 0,
            db: DbIndex(0),
        }
    }

    fn run(
        mut self,
        listener: &mut impl Listener,
        blocks: &SyncSender<Block>,
    ) -> Result<(), LoadError> {
        self.read(BLOCK_SIZE)?;
        let header = self.bytes.first_chunk::<HEADER_SIZE>();
        let header = header.ok_or_else(|| broken(0, "shorter than any RDB file"))?;
        let version = parse_header(header).map_err(|what| broken(0, what))?;
        self.take(HEADER_SIZE);
        loop {
            let CutOff { used, entries, is_end } = self.cut(listener)?;
            let offset = self.offset;
            let bytes = self.take(used);
            if !entries.is_empty() {
                // Nobody takes it if a thread has failed; then that is what is reported.
                let _ = blocks.send(Block { bytes, offset, entries });
            }
            if is_end {
                return self.end(version);
            }
            if self.has_ended {
                return Err(broken(self.offset + self.bytes.len() as u64, "the end is missing"));
            }
            // A value that is longer than what was read is looked at again when there is twice as
            // much of it, so all looking together is linear.
            self.read(self.bytes.len().max(BLOCK_SIZE))?;
        }
    }

    /// Finds the whole entries among what was read.
    fn cut(&mut self, listener: &mut impl Listener) -> Result<CutOff, LoadError> {
        let (mut used, mut entries) = (0, Vec::new());
        loop {
            let frame = match frame(&self.bytes[used..], self.target.env.text_len_max) {
                Ok(frame) => frame,
                Err(error) if error.is_end_missing() => {
                    return Ok(CutOff { used, entries, is_end: false });
                }
                Err(error) => {
                    return Err(broken(self.offset + (used + error.offset) as u64, error.what));
                }
            };
            let start = used;
            used += frame.size;
            let wrong = |what: String| broken(self.offset + start as u64, what);
            match frame.item {
                Item::Entry(entry) => {
                    entries.push((self.db, Entry { offset: start + entry.offset, ..entry }));
                }
                Item::Database(index) => {
                    let known = i64::try_from(index).ok();
                    let known = known.and_then(|index| self.target.keyspace.db_index(index));
                    let what =
                        || wrong(format!("database {index}, which is not among those there are"));
                    self.db = known.ok_or_else(what)?;
                }
                Item::Aux { name, value } => listener.aux(&name, &value),
                Item::Library(code) => listener.library(&code).map_err(wrong)?,
                Item::OfModule { key, module } => {
                    listener.module(&module_name(module), key.as_deref());
                }
                Item::Hint => {}
                Item::End => return Ok(CutOff { used, entries, is_end: true }),
            }
        }
    }

    /// Checks the checksum. What follows it is not looked at, as in Redis.
    fn end(&mut self, version: Version) -> Result<(), LoadError> {
        if !has_checksum(version) {
            return Ok(());
        }
        if self.bytes.len() < CHECKSUM_SIZE {
            self.read(CHECKSUM_SIZE)?;
        }
        let (offset, computed) = (self.offset, self.checksum);
        let stored = self.bytes.first_chunk::<CHECKSUM_SIZE>();
        match stored.map(|bytes| u64::from_le_bytes(*bytes)) {
            None => Err(broken(offset, "the checksum is missing")),
            Some(stored) if stored != 0 && stored != computed => {
                let what = format!("checksum {stored:016x}, where the data has {computed:016x},");
                Err(broken(offset, what))
            }
            Some(_) => Ok(()),
        }
    }

    fn read(&mut self, size: usize) -> Result<(), LoadError> {
        self.has_ended = read_more(&mut self.input, &mut self.bytes, size)?;
        Ok(())
    }

    /// The first bytes, which are done with here.
    fn take(&mut self, size: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(size);
        let taken = std::mem::replace(&mut self.bytes, rest);
        self.checksum = crc64::update(self.checksum, &taken);
        self.offset += size as u64;
        self.progress.bytes.store(self.offset, Relaxed);
        taken
    }
}
