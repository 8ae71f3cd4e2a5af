//! A call as rules see it: what it does to which database and channel.

use kvasir_keyspace::spec::Traits;
use std::ops::Range;

use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::spec::{Categories, Flags, Group};
use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;

use kvasir_table::Entry;

/// A call, which may have too few arguments.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub entry: &'a Entry,
    pub args: Args<'a>,
    /// The database that the connection has selected.
    pub db: DbIndex,
    /// How many databases there are.
    pub databases: u16,
}

impl Call<'_> {
    /// The databases that are named: argument and number. A number that is none is no database.
    pub fn databases(&self) -> Vec<(usize, u32)> {
        let args: Vec<usize> = match self.entry.full_name.as_str() {
            "select" => vec![1],
            "move" => vec![2],
            "swapdb" => vec![1, 2],
            "copy" => self.copy_databases(),
            _ => return Vec::new(),
        };
        let count = args.len();
        let found = args.into_iter().filter_map(|arg| Some((arg, self.database(arg)?)));
        let found: Vec<_> = found.collect();
        // SWAPDB of what is no database fails before it comes to the other one.
        if self.swaps() && found.len() < count { Vec::new() } else { found }
    }

    /// Whether it is about the databases that it names and no other.
    pub fn swaps(&self) -> bool {
        self.entry.spec.traits.contains(Traits::NAMED_DATABASES)
    }

    /// COPY's `DB n`; none if an option is wrong.
    fn copy_databases(&self) -> Vec<usize> {
        let (mut at, mut found) = (3, Vec::new());
        while let Some(word) = self.args.get(at) {
            if word.eq_ignore_ascii_case(b"replace") {
                at += 1;
            } else if word.eq_ignore_ascii_case(b"db") && at + 1 < self.args.len() {
                found.push(at + 1);
                at += 2;
            } else {
                return Vec::new();
            }
        }
        found
    }

    fn database(&self, arg: usize) -> Option<u32> {
        let number = parse_integer(self.args.get(arg)?)?;
        u32::try_from(number).ok().filter(|number| *number < u32::from(self.databases))
    }

    /// The channel arguments, and whether they are patterns.
    pub fn channels(&self) -> Option<(Range<usize>, bool)> {
        if !self.entry.spec.flags.contains(Flags::PUBSUB) {
            return None;
        }
        match self.entry.full_name.as_str() {
            "publish" | "spublish" => Some((1..self.args.len().min(2), false)),
            "subscribe" | "ssubscribe" => Some((1..self.args.len(), false)),
            "psubscribe" => Some((1..self.args.len(), true)),
            _ => None,
        }
    }
}

/// Whether a command has to do with the selected database.
pub fn works_on_data(entry: &Entry) -> bool {
    let spec = entry.spec;
    let is_generic = spec.group == Group::Generic
        && entry.subcommands.is_empty()
        && !spec.categories.intersects(Categories::SORTABLE.union(Categories::CONNECTION));
    let has_keys = !spec.keys.is_empty() && !spec.flags.contains(Flags::PUBSUB);
    has_keys
        || is_generic
        || spec.flags.intersects(Flags::READONLY.union(Flags::WRITE))
        || spec.categories.contains(Categories::KEYSPACE)
}
