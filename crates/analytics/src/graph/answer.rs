//! What is computed of each node, and how it is told: the first few, all, or as a value to be kept.

use std::cmp::Ordering;

use kvasir_keyspace::serial::{Value, Version, Writer, seal, undump};
use kvasir_keyspace::view::Env;
use kvasir_resp::reply::Reply;

use crate::column::Cell;
use crate::graph::nodes::{Ids, Nodes};

/// The count of a node that has none.
pub const ABSENT: i64 = i64::MIN;
/// Types of an RDB file: a sorted set with scores as doubles, a hash of pairs.
const SORTED_SET: u8 = 5;
const HASH: u8 = 4;

/// What a pair of id and value takes in an answer, the id if it is an integer.
const PAIR_BYTES: usize = 64;
/// What a node takes in a value that is kept: as an element, and in the dump of it.
const KEPT_BYTES: usize = 128;

/// One value a node.
pub enum Values {
    /// NaN: none.
    Numbers(Vec<f64>),
    Counts(Vec<i64>),
}

/// Which nodes come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    Greatest,
    Least,
}

/// As what ranks are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    SortedSet,
    Hash,
}

/// What an answer tells beside the nodes.
#[derive(Clone, Copy, Debug)]
pub enum Total {
    Count(u64),
    Number(f64),
}

impl Values {
    fn cell(&self, node: u32) -> Cell<'static> {
        match self {
            Values::Numbers(numbers) => match numbers[node as usize] {
                number if number.is_nan() => Cell::Null,
                number => Cell::Float(number),
            },
            Values::Counts(counts) => match counts[node as usize] {
                ABSENT => Cell::Null,
                count => Cell::Int(count),
            },
        }
    }

    fn compare(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (one as usize, other as usize);
        match self {
            Values::Numbers(numbers) => numbers[one].total_cmp(&numbers[other]),
            Values::Counts(counts) => counts[one].cmp(&counts[other]),
        }
    }

    /// How many nodes have one.
    pub fn present(&self) -> usize {
        match self {
            Values::Numbers(numbers) => numbers.iter().filter(|number| !number.is_nan()).count(),
            Values::Counts(counts) => counts.iter().filter(|count| **count != ABSENT).count(),
        }
    }

    /// The sum of those that there are.
    pub fn sum(&self) -> f64 {
        // A sum of nothing is -0 otherwise.
        0.0 + match self {
            Values::Numbers(numbers) => {
                numbers.iter().filter(|number| !number.is_nan()).sum::<f64>()
            }
            Values::Counts(counts) => counts
                .iter()
                .filter(|count| **count != ABSENT)
                .map(|count| *count as f64)
                .sum::<f64>(),
        }
    }

    /// The first nodes, `most` of them if there are as many; of equal ones those of lower ids.
    pub fn first(&self, nodes: &Nodes, most: usize, first: First) -> Vec<u32> {
        let is_there = |node: &u32| self.cell(*node) != Cell::Null;
        let mut all: Vec<u32> = (0..nodes.len() as u32).filter(is_there).collect();
        let order = |one: &u32, other: &u32| {
            let by_value = self.compare(*one, *other);
            let by_value = if first == First::Greatest { by_value.reverse() } else { by_value };
            by_value.then_with(|| compare_ids(nodes, *one, *other))
        };
        if most < all.len() {
            if most == 0 {
                return Vec::new();
            }
            all.select_nth_unstable_by(most - 1, order);
            all.truncate(most);
        }
        all.sort_unstable_by(order);
        all
    }

    /// All nodes that have a value, in the order of their ids.
    pub fn all(&self, nodes: &Nodes) -> Vec<u32> {
        let mut all = nodes.in_order();
        all.retain(|node| self.cell(*node) != Cell::Null);
        all
    }

    /// Writes pairs of id and value.
    pub fn write(&self, nodes: &Nodes, chosen: &[u32], reply: &mut Reply) {
        reply.array(chosen.len());
        for node in chosen {
            reply.array(2);
            write_cell(nodes.ids.id(*node as usize), reply);
            write_cell(self.cell(*node), reply);
        }
    }

    /// About as many bytes as an answer about so many of the nodes takes to be made.
    pub fn answer_bytes(nodes: &Nodes, count: usize) -> usize {
        4 * nodes.len() + PAIR_BYTES * count + text_bytes(nodes, count)
    }

    /// As [`Values::answer_bytes`], for a value that is kept.
    pub fn kept_bytes(nodes: &Nodes) -> usize {
        KEPT_BYTES * nodes.len() + 2 * text_bytes(nodes, nodes.len())
    }

    /// A sorted set or a hash of all values as DUMP has it; nothing where there are none.
    pub fn to_dump(&self, nodes: &Nodes, form: Form) -> Option<Vec<u8>> {
        let all = self.all(nodes);
        if all.is_empty() {
            return None;
        }
        let mut writer = Writer::new(Version::REDIS_7_0);
        writer.push(&[if form == Form::Hash { HASH } else { SORTED_SET }]);
        writer.number(all.len() as u64);
        for node in all {
            writer.string(&nodes.ids.id(node as usize).to_text());
            match (form, self.cell(node)) {
                (Form::Hash, cell) => writer.string(&cell.to_text()),
                (Form::SortedSet, Cell::Float(number)) => writer.push(&number.to_le_bytes()),
                (Form::SortedSet, Cell::Int(count)) => writer.push(&(count as f64).to_le_bytes()),
                (Form::SortedSet, _) => unreachable!("only those that have a value"),
            }
        }
        Some(seal(writer, Version::REDIS_7_0))
    }
}

/// The value of a dump.
pub fn to_value(dump: &[u8], env: &Env) -> Result<Value, String> {
    undump(dump, env).map_err(|error| format!("the ranks make no value: {error:?}"))
}

/// What the ids of so many nodes take, if they are texts.
fn text_bytes(nodes: &Nodes, count: usize) -> usize {
    match &nodes.ids {
        Ids::Integers(_) => 0,
        Ids::Texts { bytes, .. } => bytes.len().div_ceil(nodes.len().max(1)) * count,
    }
}

impl Total {
    pub fn write(self, reply: &mut Reply) {
        match self {
            Total::Count(count) => reply.integer(count as i64),
            Total::Number(number) => reply.double_shortest(number),
        }
    }
}

fn write_cell(cell: Cell<'_>, reply: &mut Reply) {
    match cell {
        Cell::Null => reply.null(),
        Cell::Int(int) => reply.integer(int),
        Cell::Float(number) => reply.double_shortest(number),
        Cell::Text(text) => reply.bulk(text),
    }
}

fn compare_ids(nodes: &Nodes, one: u32, other: u32) -> Ordering {
    match (nodes.ids.id(one as usize), nodes.ids.id(other as usize)) {
        (Cell::Int(one), Cell::Int(other)) => one.cmp(&other),
        (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
        _ => Ordering::Equal,
    }
}
