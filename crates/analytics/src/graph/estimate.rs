//! What a graph will take, before it is gathered: by a look at some of the keys.

use kvasir_keyspace::database::{DbIndex, Keyspace};
use kvasir_keyspace::hash_value::Hash;
use kvasir_keyspace::list_value::List;
use kvasir_keyspace::set_value::Set;
use kvasir_keyspace::sorted_set_value::SortedSet;
use kvasir_keyspace::value::{Kind, Record, Tag, Text, allocated_bytes};
use kvasir_structures::gate::Gate;
use kvasir_structures::manners::Manners;
use kvasir_structures::table::Cut;

use crate::graph::gather::Gather;
use crate::graph::source::TextForm;

/// Keys up to which all of them are looked at.
const KEYS_FOR_ALL: usize = 1 << 16;
/// Records of one slot that are looked at under one lock.
const RECORDS_PER_SLOT: usize = 1024;
/// A word of a string and what separates it, about.
const WORD_BYTES: usize = 8;
/// What a node takes: its id, its places in the table, which is at most half full.
const NODE_BYTES: usize = 28;
const EDGE_BYTES: usize = 8;

/// About how much there is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    pub nodes: usize,
    pub edges: usize,
    pub bytes: usize,
}

/// Looks at the keys of a graph; `node_bytes` and `edge_bytes` is what the computation takes of
/// each beside the graph.
pub fn estimate(
    (keyspace, gate): (&Keyspace, &Gate),
    db: DbIndex,
    gather: &Gather,
    (node_bytes, edge_bytes): (usize, usize),
) -> Estimate {
    let slots = gather.selection.slots_to_visit();
    let keys = keyspace.database(db, &gate.enter_extra()).len();
    let step = if gather.selection.keys.is_some() { 1 } else { (keys / KEYS_FOR_ALL).clamp(1, 16) };
    let (mut keys, mut edges, mut manners) = (0.0, 0.0, Manners::default());
    for slot in slots.iter().step_by(step) {
        let pass = gate.enter_extra();
        let table = keyspace.database(db, &pass).slot(*slot).lock(&pass);
        let cut = Cut::for_len(table.len());
        let parts = if gather.selection.keys.is_some() {
            0..cut.count()
        } else {
            0..(cut.count() * RECORDS_PER_SLOT / table.len().max(1)).clamp(1, cut.count())
        };
        let part = cut.count() as f64 / parts.len() as f64;
        table.for_each_of_parts(cut, &parts, |record| {
            if gather.is_wanted(record) {
                keys += part;
                edges += part * edges_of(record, gather) as f64;
            }
        });
        drop(table);
        drop(pass);
        manners.give_way();
    }
    let (keys, edges) = (keys * step as f64, (edges * step as f64) as usize);
    // As many again are only led to, about.
    let nodes = keys as usize + edges.min(keys as usize);
    let weight = if gather.source.is_weighted { 16 } else { 0 };
    let bytes = nodes * (NODE_BYTES + node_bytes) + edges * (EDGE_BYTES + edge_bytes + weight);
    Estimate { nodes, edges, bytes }
}

fn edges_of(record: Record<'_>, gather: &Gather) -> usize {
    let of_text = |bytes: usize| match &gather.source.text {
        TextForm::Separated(_) => bytes / WORD_BYTES + 1,
        TextForm::Packed(size) => bytes / size,
    };
    let is_one_hash = gather.source.place.id_of(record.key()).is_none();
    match Tag::of(record).kind() {
        Kind::Hash if is_one_hash => of_text(allocated_bytes(record)),
        Kind::Hash => Hash::of(record, &gather.env).map_or(0, Hash::len),
        Kind::Set => Set::of(record).map_or(0, Set::len),
        Kind::List => List::of(record).map_or(0, List::len),
        Kind::SortedSet => SortedSet::of(record).map_or(0, SortedSet::len),
        Kind::String => Text::of(record).map_or(0, |text| of_text(text.len())),
        Kind::Stream => 0,
    }
}
