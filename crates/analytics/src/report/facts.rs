//! What is noted of records on the way: whoever is about to change a key notes it, so it is little,
//! and is summed up by the thread that makes the report.

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::usage;
use kvasir_keyspace::value::{self, Record, Tag, Text};
use kvasir_keyspace::view::Env;

use crate::report::by::{self, By};

/// More of a key's name is not kept.
pub const NAME_MAX: usize = 256;
/// More of a string is not compressed to see what that would save.
const SAMPLE_MAX: usize = 16 << 10;

/// One key.
#[derive(Clone, Copy)]
pub struct Fact {
    pub db: DbIndex,
    pub slot: u16,
    /// Of the name, what was kept.
    name_len: u16,
    /// Of what was kept, what is the prefix.
    pub prefix_len: u16,
    pub is_cut: bool,
    pub bytes: u64,
    pub length: u64,
    /// The bytes of a string that might be compressed, else 0.
    pub text_bytes: u64,
    pub kind: &'static str,
    pub encoding: &'static str,
    pub ttl_ms: Option<u64>,
}

/// A string to be compressed, or the start of it.
pub struct Sample {
    /// The fact that it belongs to.
    fact: usize,
    pub text: Vec<u8>,
}

/// Facts that are not summed up yet.
#[derive(Default)]
pub struct Facts {
    all: Vec<Fact>,
    names: Vec<u8>,
    samples: Vec<Sample>,
    sample_bytes: usize,
}

impl Facts {
    /// Notes a record. `is_sampled` decides of a string of so many bytes that might be compressed
    /// whether a part of it is kept; it is 0 for what can't.
    pub fn push(
        &mut self,
        db: DbIndex,
        record: Record<'_>,
        by: &By,
        env: &Env,
        is_for_compression: impl FnOnce(usize) -> Option<bool>,
    ) {
        let key = record.key();
        let name = &key[..key.len().min(NAME_MAX)];
        let (text_bytes, sample) = text_of(record, is_for_compression);
        if let Some(text) = sample {
            self.sample_bytes += text.len();
            self.samples.push(Sample { fact: self.all.len(), text });
        }
        self.names.extend_from_slice(name);
        self.all.push(Fact {
            db,
            slot: by.slot(key),
            name_len: name.len() as u16,
            prefix_len: by.prefix_len(key).min(name.len()) as u16,
            is_cut: name.len() < key.len(),
            bytes: usage::bytes(record) as u64,
            length: usage::length(record, env) as u64,
            text_bytes,
            kind: by::kind(record).name(),
            encoding: value::encoding(record),
            ttl_ms: record.expiry_ms().map(|ms| ms.saturating_sub(env.now_ms)),
        });
    }

    pub fn size_bytes(&self) -> usize {
        self.all.len() * size_of::<Fact>() + self.names.len() + self.sample_bytes
    }

    /// Gives all facts with their names, each with its sample if there is one, and has none then.
    pub fn drain(&mut self, mut take: impl FnMut(Fact, &[u8], Option<Vec<u8>>)) {
        let mut samples = std::mem::take(&mut self.samples).into_iter().peekable();
        let mut start = 0;
        for (index, fact) in self.all.drain(..).enumerate() {
            let end = start + usize::from(fact.name_len);
            let sample = samples.next_if(|sample| sample.fact == index);
            take(fact, &self.names[start..end], sample.map(|sample| sample.text));
            start = end;
        }
        self.names.clear();
        self.sample_bytes = 0;
    }
}

/// How much of a string might be compressed, and perhaps a copy of some of it.
fn text_of(
    record: Record<'_>,
    is_for_compression: impl FnOnce(usize) -> Option<bool>,
) -> (u64, Option<Vec<u8>>) {
    let (Ok(text), false) = (Text::of(record), Tag::of(record) == Tag::CompressedText) else {
        return (0, None);
    };
    match is_for_compression(text.len()) {
        None => (0, None),
        Some(is_sampled) => {
            let sample = || {
                let bytes = text.bytes();
                bytes[..bytes.len().min(SAMPLE_MAX)].to_vec()
            };
            (text.len() as u64, is_sampled.then(sample))
        }
    }
}
