//! A thread that reads a file and cuts it into blocks of whole entries.

use std::io::Read;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::serial::Version;
use kvasir_structures::crc64;

use super::claims::Claims;
use super::{Block, Failure, LoadError, Progress, Source, Target, broken};
use crate::disk::read_more;
use crate::rdb::{CHECKSUM_SIZE, Entry, HEADER_SIZE, Item, frame, has_checksum, parse_header};

/// How much is read at once, and about how large a block is.
const BLOCK_SIZE: usize = 1 << 20;

/// Where it goes.
pub(super) struct Out {
    pub blocks: SyncSender<Block>,
    pub news: SyncSender<News>,
}

/// What is no key, and where it stood.
pub(super) struct News {
    pub file: usize,
    pub offset: u64,
    pub item: Item<'static>,
    /// Gone once the caller has taken note of it, for who waits for that.
    pub noted: Option<SyncSender<()>>,
}

/// Whole entries at the beginning of what was read.
struct CutOff {
    /// Bytes that they and what stands between them take.
    used: usize,
    entries: Vec<(DbIndex, Entry)>,
    /// Whether the file ends behind them.
    is_end: bool,
}

pub(super) struct Cutter<'a, R> {
    file: usize,
    input: R,
    claims: Option<Claims>,
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
    keys: u64,
}

impl<'a, R: Read> Cutter<'a, R> {
    pub(super) fn new(
        file: usize,
        Source { input, claims }: Source<R>,
        target: &'a Target<'a>,
        progress: &'a Progress,
    ) -> Cutter<'a, R> {
        Cutter {
            file,
            input,
            claims,
            target,
            progress,
            bytes: Vec::new(),
            offset: 0,
            has_ended: false,
            checksum: 0,
            db: DbIndex(0),
            keys: 0,
        }
    }

    /// Reads to the end, or until something fails elsewhere.
    pub(super) fn run(mut self, out: &Out, failure: &Failure) -> Result<(), LoadError> {
        self.read(BLOCK_SIZE)?;
        let header = self.bytes.first_chunk::<HEADER_SIZE>();
        let header = header.ok_or_else(|| broken(0, "shorter than any RDB file"))?;
        let version = parse_header(header).map_err(|what| broken(0, what))?;
        self.claims.iter().try_for_each(|claims| claims.check_version(version))?;
        self.take(HEADER_SIZE);
        while !failure.is_there() {
            let CutOff { used, entries, is_end } = self.cut(out)?;
            let (file, offset, claims) = (self.file, self.offset, self.claims.clone());
            self.keys += entries.len() as u64;
            let bytes = self.take(used);
            if !entries.is_empty() {
                // Somebody takes it as long as there are readers.
                let _ = out.blocks.send(Block { file, bytes, offset, entries, claims });
            }
            if is_end {
                return self.end(version);
            }
            if self.has_ended {
                return Err(broken(
                    self.offset + self.bytes.len() as u64,
                    "Short read or OOM loading DB: the end is missing",
                ));
            }
            // A value that is longer than what was read is looked at again when there is twice as
            // much of it, so all looking together is linear.
            self.read(self.bytes.len().max(BLOCK_SIZE))?;
        }
        Ok(())
    }

    /// Finds the whole entries among what was read.
    fn cut(&mut self, out: &Out) -> Result<CutOff, LoadError> {
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
            let offset = self.offset + start as u64;
            match frame.item {
                Item::Entry(entry) => {
                    entries.push((self.db, Entry { offset: start + entry.offset, ..entry }));
                }
                Item::Database(index) => {
                    let known = i64::try_from(index).ok();
                    let known = known.and_then(|index| self.target.keyspace.db_index(index));
                    let what = || format!("database {index}, which is not among those there are");
                    self.db = known.ok_or_else(|| broken(offset, what()))?;
                }
                Item::Hint => {}
                Item::End => return Ok(CutOff { used, entries, is_end: true }),
                item => {
                    if let (Item::Aux { name, value }, Some(claims)) = (&item, &mut self.claims) {
                        claims.check_aux(name, value).map_err(|what| broken(offset, what))?;
                    }
                    self.tell(out, offset, item.into_owned());
                }
            }
        }
    }

    /// Passes news on, which the caller takes as long as there are readers. No key is loaded behind
    /// a library that the caller refuses.
    fn tell(&self, out: &Out, offset: u64, item: Item<'static>) {
        let is_library = matches!(item, Item::Library(_));
        let (noted, wait) = sync_channel(0);
        let noted = is_library.then_some(noted);
        let _ = out.news.send(News { file: self.file, offset, item, noted });
        if is_library {
            let _ = wait.recv();
        }
    }

    /// Checks the checksum, and what else was told of the file. What follows the end of a file of
    /// which nothing was told is not looked at, as in Redis.
    fn end(&mut self, version: Version) -> Result<(), LoadError> {
        if has_checksum(version) && !self.target.env.skips_checksums {
            self.check_checksum()?;
        }
        let (keys, offset, checksum) = (self.keys, self.offset, self.checksum);
        self.claims.iter().try_for_each(|claims| claims.check_end(keys, offset, checksum))
    }

    fn check_checksum(&mut self) -> Result<(), LoadError> {
        if self.bytes.len() < CHECKSUM_SIZE {
            self.read(CHECKSUM_SIZE)?;
        }
        let (offset, computed) = (self.offset, self.checksum);
        let stored = self.bytes.first_chunk::<CHECKSUM_SIZE>();
        match stored.map(|bytes| u64::from_le_bytes(*bytes)) {
            None => Err(broken(offset, "the checksum is missing")),
            Some(stored) if stored != 0 && stored != computed => {
                let what =
                    format!("RDB CRC error: {stored:016x}, where the data has {computed:016x},");
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
        self.progress.bytes.fetch_add(size as u64, Relaxed);
        taken
    }
}
