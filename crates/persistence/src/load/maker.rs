//! The threads that make values of blocks and add them to their slots.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender};

use kvasir_keyspace::item::trailer_of_notes;
use kvasir_keyspace::load::add;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::serial::{Reader, SerialError, read_value};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc16;
use kvasir_structures::locks::lock;

use super::claims::Claims;
use super::cutter::News;
use super::{Block, Entrance, Failure, LoadError, Progress, Target, broken};
use crate::rdb::{Entry, Item, Usage};

pub(super) struct Makers<'a> {
    pub target: &'a Target<'a>,
    pub progress: &'a Progress,
    pub blocks: Mutex<Receiver<Block>>,
    pub failure: &'a Failure,
}

/// Where in an entry something is wrong, and what.
type Wrong = (usize, &'static str);

/// What becomes of an entry.
enum Made {
    Added,
    /// Its time has come.
    Dead,
    /// The databases have its key already.
    Kept,
    /// A collection without elements.
    Empty(Vec<u8>),
}

impl Makers<'_> {
    /// Takes blocks until no more come; after a failure they are dropped.
    pub(super) fn run(&self, news: &SyncSender<News>) {
        loop {
            let block = lock(&self.blocks).recv();
            let Ok(block) = block else { return };
            if let Err(error) = self.add_all(&block, news) {
                self.failure.note(block.file, error);
            }
        }
    }

    fn add_all(&self, block: &Block, news: &SyncSender<News>) -> Result<(), LoadError> {
        for (db, entry) in &block.entries {
            // One block may hold a value of any size.
            if self.failure.is_there() {
                return Ok(());
            }
            let place = |at: usize| block.offset + (entry.offset + at) as u64;
            let made = self
                .make(*db, entry, &block.bytes[entry.offset..], block.claims.as_ref())
                .map_err(|(at, what)| broken(place(at), what))?;
            let count = match made {
                Made::Added => &self.progress.keys,
                Made::Dead => &self.progress.keys_expired,
                Made::Kept => continue,
                Made::Empty(key) => {
                    let item = Item::Empty(Cow::Owned(key));
                    // The caller takes it as long as there are makers.
                    let _ =
                        news.send(News { file: block.file, offset: place(0), item, noted: None });
                    &self.progress.keys_empty
                }
            };
            count.fetch_add(1, Relaxed);
            self.target.key_delay.wait(1, || !self.failure.is_there());
        }
        Ok(())
    }

    /// The value is looked at even if nobody will see it: what is broken is broken.
    fn make(
        &self,
        db: DbIndex,
        entry: &Entry,
        bytes: &[u8],
        claims: Option<&Claims>,
    ) -> Result<Made, Wrong> {
        let Target { keyspace, entrance, env, .. } = *self.target;
        let place = |error: SerialError| (error.offset, error.what);
        let mut reader = Reader::new(bytes, env.text_len_max);
        let value_type = reader.byte().map_err(place)?;
        let key = reader.string().map_err(place)?;
        if claims.is_some_and(|claims| !claims.slots().contains(&crc16::slot_of(&key))) {
            return Err((0, "a key of a slot that belongs in another file"));
        }
        let value = match read_value(value_type, &mut reader, env) {
            Err(error) if error.is_value_empty() => return Ok(Made::Empty(key.into_owned())),
            value => value.map_err(place)?,
        };
        let is_dead = entry.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= env.now_ms);
        if is_dead && self.target.drops_expired {
            return Ok(Made::Dead);
        }
        let mut record = value.into_record(&key, entry.expiry_ms);
        if let Some(trailer) = trailer_of_notes(entry.notes) {
            record = record.trailed(&trailer);
        }
        record.borrow_mut().set_clock(clock(env, entry.usage));
        let added = match entrance {
            Entrance::Gate(gate) => add(keyspace, &gate.enter_extra(), db, record),
            Entrance::Inside(guests) => add(keyspace, &guests.enter(), db, record),
        };
        match added {
            Err(_) if !self.target.keeps_present => Err((0, "a key that was there before")),
            Err(_) => Ok(Made::Kept),
            Ok(()) => Ok(Made::Added),
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
