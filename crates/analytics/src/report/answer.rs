//! What a report tells.

use std::cmp::Reverse;

use kvasir_keyspace::place::DbIndex;
use kvasir_resp::reply::Reply;

use crate::report::by::By;
use crate::report::facts::Fact;

/// Bytes of strings that were compressed to see what that saves, and those it has saved.
#[derive(Clone, Copy)]
pub(super) struct Samples {
    bytes: u64,
    saved: u64,
}

/// Sums over some keys.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Sums {
    pub keys: u64,
    pub bytes: u64,
    /// Of those that never expire.
    pub keys_without_ttl: u64,
    pub bytes_without_ttl: u64,
    /// Bytes that compression would save, about.
    pub saves: u64,
    /// The largest keys, the largest first.
    pub largest: Vec<Large>,
    /// Of strings that might be compressed.
    pub(super) text_bytes: u64,
    /// Of those that were compressed to see what it saves.
    pub(super) sampled_bytes: u64,
    pub(super) sampled_saved: u64,
}

/// One key.
#[derive(Clone, PartialEq, Debug)]
pub struct Large {
    pub db: DbIndex,
    /// With `...` at its end if there is more of it.
    pub name: Vec<u8>,
    pub kind: &'static str,
    pub encoding: &'static str,
    pub bytes: u64,
    /// Elements, or bytes of a string.
    pub length: u64,
    pub ttl_ms: Option<u64>,
}

/// A whole report.
pub struct Report {
    pub by: By,
    /// In ms since 1970: the moment that it is of.
    pub cut_ms: u64,
    pub total: Sums,
    /// The largest rows, the largest first.
    pub rows: Vec<(Vec<u8>, Sums)>,
    /// How many rows there are beside them, and what they come to.
    pub others: (u64, Sums),
    /// Keys whose row there was no room for.
    pub rest: Sums,
    /// The largest keys, the largest first.
    pub largest: Vec<Large>,
    pub seconds: f64,
    /// What it took to make it.
    pub memory_bytes: u64,
}

impl Sums {
    pub(super) fn add(&mut self, fact: &Fact) {
        self.keys += 1;
        self.bytes += fact.bytes;
        self.text_bytes += fact.text_bytes;
        if fact.ttl_ms.is_none() {
            self.keys_without_ttl += 1;
            self.bytes_without_ttl += fact.bytes;
        }
    }

    fn add_sums(&mut self, other: &Sums) {
        self.keys += other.keys;
        self.bytes += other.bytes;
        self.keys_without_ttl += other.keys_without_ttl;
        self.bytes_without_ttl += other.bytes_without_ttl;
        self.saves += other.saves;
    }

    pub(super) fn samples(&self) -> Samples {
        Samples { bytes: self.sampled_bytes, saved: self.sampled_saved }
    }

    /// What compression saves, by the samples of these keys, or where there are none by those of
    /// all keys.
    pub(super) fn estimate(&mut self, of_all: Samples) {
        let own = self.samples();
        let Samples { bytes, saved } = if own.bytes > 0 { own } else { of_all };
        if bytes > 0 {
            self.saves = (self.text_bytes as f64 * saved as f64 / bytes as f64) as u64;
        }
    }

    /// The share of bytes that never go by themselves, in percent.
    pub fn percent_without_ttl(&self) -> f64 {
        percent(self.bytes_without_ttl, self.bytes)
    }
}

/// Of a whole, with one digit behind the point; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 * 1000.0 / whole as f64).round() / 10.0 }
}

impl Large {
    pub(super) fn of(fact: &Fact, name: &[u8]) -> Large {
        let more: &[u8] = if fact.is_cut { b"..." } else { b"" };
        Large {
            db: fact.db,
            name: [name, more].concat(),
            kind: fact.kind,
            encoding: fact.encoding,
            bytes: fact.bytes,
            length: fact.length,
            ttl_ms: fact.ttl_ms,
        }
    }
}

impl Report {
    /// Puts rows in order and keeps so many of them.
    pub(super) fn set_rows(&mut self, mut rows: Vec<(Vec<u8>, Sums)>, top: usize) {
        rows.sort_unstable_by(|(name, sums), (other_name, other)| {
            (Reverse(sums.bytes), name).cmp(&(Reverse(other.bytes), other_name))
        });
        for (_, sums) in rows.drain(top.min(rows.len())..) {
            self.others.0 += 1;
            self.others.1.add_sums(&sums);
        }
        self.rows = rows;
    }

    /// The separator of prefixes, and how many of them are in one.
    pub fn separator(&self) -> Option<(&[u8], usize)> {
        match &self.by {
            By::Prefix { separator, depth } => Some((separator, *depth)),
            _ => None,
        }
    }

    pub fn write(&self, reply: &mut Reply) {
        let separator = self.separator();
        reply.map(12 + if separator.is_some() { 2 } else { 0 });
        reply.bulk(b"by");
        reply.bulk(self.by.name().as_bytes());
        if let Some((separator, depth)) = separator {
            reply.bulk(b"separator");
            reply.bulk(separator);
            integer(reply, "depth", depth as u64);
        }
        integer(reply, "cut_unix_ms", self.cut_ms);
        write_numbers(reply, &self.total);
        reply.bulk(b"rows");
        reply.array(self.rows.len());
        for (name, sums) in &self.rows {
            write_row(reply, name, sums);
        }
        reply.bulk(b"others");
        reply.map(6);
        integer(reply, "rows", self.others.0);
        write_numbers(reply, &self.others.1);
        reply.bulk(b"rest");
        reply.map(5);
        write_numbers(reply, &self.rest);
        reply.bulk(b"largest");
        reply.array(self.largest.len());
        self.largest.iter().for_each(|large| write_large(reply, large));
        reply.bulk(b"seconds");
        reply.double_shortest(self.seconds);
    }
}

fn integer(reply: &mut Reply, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(value as i64);
}

/// Five fields.
fn write_numbers(reply: &mut Reply, sums: &Sums) {
    integer(reply, "keys", sums.keys);
    integer(reply, "bytes", sums.bytes);
    integer(reply, "keys_without_ttl", sums.keys_without_ttl);
    integer(reply, "bytes_without_ttl", sums.bytes_without_ttl);
    integer(reply, "compression_saves", sums.saves);
}

fn write_row(reply: &mut Reply, name: &[u8], sums: &Sums) {
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(name);
    write_numbers(reply, sums);
    reply.bulk(b"largest");
    reply.array(sums.largest.len());
    for large in &sums.largest {
        reply.array(2);
        reply.bulk(&large.name);
        reply.integer(large.bytes as i64);
    }
}

fn write_large(reply: &mut Reply, large: &Large) {
    reply.map(7);
    integer(reply, "db", large.db.0.into());
    for (name, value) in [
        ("key", &large.name[..]),
        ("type", large.kind.as_bytes()),
        ("encoding", large.encoding.as_bytes()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value);
    }
    integer(reply, "bytes", large.bytes);
    integer(reply, "length", large.length);
    reply.bulk(b"ttl_ms");
    reply.integer(large.ttl_ms.map_or(-1, |ms| ms as i64));
}
