//! Records as bytes of a file, in one of two forms: as in RDB files, or as calls of a log.

use kvasir_keyspace::calls::Calls;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::value::Record;
use kvasir_keyspace::view::Env;

use crate::aof::record::group_head;
use crate::rdb;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    #[default]
    Rdb,
    /// The base of an append-only file as a log, with checksums or without.
    Calls { has_checksums: bool },
}

/// Collects bytes of a file; parts of it may be in any order.
pub(crate) enum Encoder {
    Rdb(rdb::Encoder),
    Calls { calls: Calls, has_checksums: bool },
}

impl Encoder {
    /// The beginning of a file.
    pub fn begin(&mut self, aux: &[(&str, String)], libraries: &[Vec<u8>]) {
        match self {
            Encoder::Rdb(encoder) => encoder.begin(aux, libraries),
            Encoder::Calls { calls, .. } => {
                libraries.iter().for_each(|code| calls.call(&[b"FUNCTION", b"LOAD", code]));
            }
        }
    }

    pub fn database(&mut self, db: DbIndex) {
        match self {
            Encoder::Rdb(encoder) => encoder.database(db),
            Encoder::Calls { calls, .. } => calls.select(db),
        }
    }

    /// How many keys a database has.
    pub fn sizes(&mut self, db: DbIndex, keys: usize, expiring: usize) {
        if let Encoder::Rdb(encoder) = self {
            encoder.database(db);
            encoder.sizes(keys, expiring);
        }
    }

    pub fn entry(&mut self, record: Record<'_>, env: &Env) {
        match self {
            Encoder::Rdb(encoder) => encoder.entry(record, env),
            Encoder::Calls { calls, .. } => calls.entry(record),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Encoder::Rdb(encoder) => encoder.len(),
            Encoder::Calls { calls, .. } => calls.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes so far, calls as a group; those that follow them go into `next`, which is empty.
    pub fn swap(&mut self, next: Vec<u8>) -> Vec<u8> {
        match self {
            Encoder::Rdb(encoder) => encoder.swap(next),
            Encoder::Calls { calls, has_checksums: true } if !calls.is_empty() => {
                let mut calls = calls.swap(next);
                let head = group_head(0, &[&calls]);
                calls.splice(..0, head);
                calls
            }
            Encoder::Calls { calls, .. } => calls.swap(next),
        }
    }

    /// The bytes so far, for who writes nothing more.
    pub fn take(&mut self) -> Vec<u8> {
        self.swap(Vec::new())
    }
}
