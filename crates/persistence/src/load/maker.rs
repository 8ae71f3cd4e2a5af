//! The threads that make values of blocks and add them to their slots.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;

use kvasir_keyspace::database::DbIndex;
use kvasir_keyspace::load::add;
use kvasir_keyspace::serial::{Reader, SerialError, read_value};
use kvasir_keyspace::view::Env;
use kvasir_structures::crc16;
use kvasir_structures::locks::lock;

use super::claims::Claims;
use super::{Block, Entrance, Failure, LoadError, Progress, Target, broken};
use crate::rdb::{Entry, Usage};

pub(super) struct Makers<'a> {
    pub target: &'a Target<'a>,
    pub progress: &'a Progress,
    pub blocks: Mutex<Receiver<Block>>,
    pub failure: &'a Failure,
}

impl Makers<'_> {
    /// Takes blocks until no more come; after a failure they are dropped.
    pub(super) fn run(&self) {
        loop {
            let block = lock(&self.blocks).recv();
            let Ok(block) = block else { return };
            if !self.failure.is_there()
                && let Err(error) = self.add_all(&block)
            {
                self.failure.note(block.file, error);
            }
        }
    }

    fn add_all(&self, block: &Block) -> Result<(), LoadError> {
        let mut entries = block.entries.iter();
        entries.try_for_each(|(db, entry)| {
            let start = entry.offset;
            self.add(*db, entry, &block.bytes[start..], block.claims.as_ref())
                .map_err(|(at, what)| broken(block.offset + (start + at) as u64, what))
        })
    }

    fn add(
        &self,
        db: DbIndex,
        entry: &Entry,
        bytes: &[u8],
        claims: Option<&Claims>,
    ) -> Result<(), (usize, &'static str)> {
        let Target { keyspace, entrance, env, .. } = *self.target;
        let place = |error: SerialError| (error.offset, error.what);
        let mut reader = Reader::new(bytes, env.text_len_max);
        let value_type = reader.byte().map_err(place)?;
        let key = reader.string().map_err(place)?;
        if claims.is_some_and(|claims| !claims.slots().contains(&crc16::slot_of(&key))) {
            return Err((0, "a key of a slot that belongs in another file"));
        }
        let is_dead = entry.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= env.now_ms);
        if is_dead && self.target.drops_expired {
            self.progress.keys_expired.fetch_add(1, Relaxed);
            return Ok(());
        }
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
