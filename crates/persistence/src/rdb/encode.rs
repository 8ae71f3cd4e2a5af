//! Writing what stands in a file, one thing after the other.

use kvasir_keyspace::access::Policy;
use kvasir_keyspace::item::Item;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::serial::{self, Version, Writer};
use kvasir_keyspace::value::Record;
use kvasir_keyspace::view::Env;

use super::{AUX, DATABASE, EXPIRY_MS, FREQUENCY, IDLE, ITEM, LIBRARY, SIZES, header};

/// Collects bytes of a file. Several encoders may write parts of the same one, each of which names
/// its database.
pub struct Encoder {
    writer: Writer,
}

impl Encoder {
    pub fn new(version: Version, compresses: bool) -> Encoder {
        Encoder { writer: Writer::new(version).compressing(compresses) }
    }
    /// The beginning of a file.
    pub fn begin(&mut self, aux: &[(&str, String)], libraries: &[Vec<u8>]) {
        self.writer.push(&header(self.writer.version));
        aux.iter().for_each(|(name, value)| self.aux(name, value));
        libraries.iter().for_each(|code| self.library(code));
    }

    fn aux(&mut self, name: &str, value: &str) {
        self.writer.push(&[AUX]);
        self.writer.string(name.as_bytes());
        self.writer.string(value.as_bytes());
    }

    fn library(&mut self, code: &[u8]) {
        self.writer.push(&[LIBRARY]);
        self.writer.string(code);
    }

    /// What follows is in this database.
    pub fn database(&mut self, db: DbIndex) {
        self.writer.push(&[DATABASE]);
        self.writer.number(u64::from(db.0));
    }

    /// How many keys the database has, for who makes room for them.
    pub fn sizes(&mut self, keys: usize, expiring: usize) {
        self.writer.push(&[SIZES]);
        self.writer.count(keys);
        self.writer.count(expiring);
    }

    /// A key, its value, its expiry, of its use what the policy knows, and what memcached's clients
    /// know of it.
    pub fn entry(&mut self, record: Record<'_>, env: &Env) {
        if record.has_trailer() {
            self.notes(Item::of(record).notes());
        }
        if let Some(expiry_ms) = record.expiry_ms() {
            self.writer.push(&[EXPIRY_MS]);
            self.writer.push(&expiry_ms.to_le_bytes());
        }
        match env.policy {
            policy if policy.is_lfu() => {
                self.writer.push(&[FREQUENCY, env.frequency(record.clock())]);
            }
            Policy::AllKeysLru | Policy::VolatileLru => {
                self.writer.push(&[IDLE]);
                self.writer.number(u64::from(env.idle_s(record.clock())));
            }
            _ => {}
        }
        serial::write_type(record, &mut self.writer);
        self.writer.string(record.key());
        serial::write_body(record, &mut self.writer);
    }

    fn notes(&mut self, notes: u64) {
        if notes != 0 {
            self.writer.push(&[AUX]);
            self.writer.string(ITEM);
            self.writer.string(notes.to_string().as_bytes());
        }
    }

    /// How many bytes wait to be taken.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes so far; those that follow them go into `next`.
    pub fn swap(&mut self, next: Vec<u8>) -> Vec<u8> {
        self.writer.swap_bytes(next)
    }
}
