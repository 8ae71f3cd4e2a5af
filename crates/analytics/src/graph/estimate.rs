//! What a graph will take, before it is gathered: by a look at some of the keys.

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::hash_value::Hash;
use kvasir_keyspace::list_value::List;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::set_value::Set;
use kvasir_keyspace::sorted_set_value::SortedSet;
use kvasir_keyspace::value::{Kind, Record, Tag, Text};
use kvasir_structures::gate::Gate;
use kvasir_structures::manners::Manners;
use kvasir_structures::table::{Cut, Position};
use kvasir_structures::{crc16, hash};

use crate::graph::edges::Edges;
use crate::graph::gather::Gather;
use crate::graph::source::{Place, TextForm};
use crate::visit::PART;

/// Keys up to which all of them are looked at.
const KEYS_FOR_ALL: usize = 1 << 16;
/// Records of one slot that are looked at under one lock.
const RECORDS_PER_SLOT: usize = 1024;
/// Fields of one hash that are looked at.
const FIELDS: usize = 1024;
/// A word of a string and what separates it, about.
const WORD_BYTES: usize = 8;
/// What a node takes: its id, its places in the table, which is at most half full.
const NODE_BYTES: usize = 28;

/// About how much there is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    pub nodes: usize,
    pub edges: usize,
    pub bytes: usize,
}

/// What was seen, each for as many as it stands for.
#[derive(Default)]
struct Seen {
    /// Nodes that have their neighbours there.
    nodes: f64,
    edges: f64,
    id_bytes: f64,
    /// Of a hash, which is read as a copy if it is large.
    parts: f64,
}

/// What a computation takes of each node and of each edge beside the graph.
#[derive(Clone, Copy)]
pub struct Need {
    pub node_bytes: usize,
    pub edge_bytes: usize,
}

/// Looks at the keys of a graph.
pub fn estimate(
    keyspace: &Keyspace,
    gate: &Gate,
    db: DbIndex,
    gather: &Gather,
    need: Need,
) -> Estimate {
    let seen = match &gather.source.place {
        Place::Hash(key) => {
            let pass = gate.enter_extra();
            let slot = keyspace.database(db, &pass).slot(crc16::slot_of(key)).lock(&pass);
            let record = slot.get(hash::of(key), key).filter(|record| gather.is_wanted(*record));
            record.map_or_else(Seen::default, |record| see_hash(record, gather))
        }
        Place::Keys { .. } => see_keys(keyspace, gate, db, gather),
    };
    // As many again are only led to, about.
    let nodes = (seen.nodes + seen.edges.min(seen.nodes)).round() as usize;
    let (edges, source) = (seen.edges.round() as usize, &gather.source);
    // Texts grow by doubling, as a whole.
    let id_bytes = 2.0 * seen.id_bytes / seen.nodes.max(1.0);
    let id_bytes = if source.has_integer_ids { 0 } else { id_bytes as usize };
    let bytes = nodes * (NODE_BYTES + id_bytes + need.node_bytes)
        + Edges::bytes(edges, source.is_weighted)
        + edges * need.edge_bytes
        + seen.parts.round() as usize * PART;
    Estimate { nodes, edges, bytes }
}

fn see_keys(keyspace: &Keyspace, gate: &Gate, db: DbIndex, gather: &Gather) -> Seen {
    let slots = gather.selection.slots_to_visit();
    let keys = keyspace.database(db, &gate.enter_extra()).len();
    let step = (keys / KEYS_FOR_ALL).clamp(1, 16);
    let (mut seen, mut manners) = (Seen::default(), Manners::default());
    for slot in slots.iter().step_by(step) {
        let pass = gate.enter_extra();
        let table = keyspace.database(db, &pass).slot(*slot).lock(&pass);
        let cut = Cut::for_len(table.len());
        let count = cut.count() * RECORDS_PER_SLOT / table.len().max(1);
        let parts = 0..count.clamp(1, cut.count());
        let each = step as f64 * cut.count() as f64 / parts.len() as f64;
        table.for_each_of_parts(cut, &parts, |record| {
            if gather.is_wanted(record)
                && let Some(id) = gather.source.place.id_of(record.key())
            {
                seen.nodes += each;
                seen.edges += each * edges_of(record, gather) as f64;
                seen.id_bytes += each * id.len() as f64;
            }
        });
        drop(table);
        drop(pass);
        manners.give_way();
    }
    seen
}

fn edges_of(record: Record<'_>, gather: &Gather) -> usize {
    match Tag::of(record).kind() {
        Kind::Hash => Hash::of(record, &gather.env).map_or(0, Hash::len),
        Kind::Set => Set::of(record).map_or(0, Set::len),
        Kind::List => List::of(record).map_or(0, List::len),
        Kind::SortedSet => SortedSet::of(record).map_or(0, SortedSet::len),
        Kind::String => Text::of(record).map_or(0, |text| edges_of_text(text.len(), gather)),
        Kind::Stream => 0,
    }
}

/// A hash that is the graph: a field is a node.
fn see_hash(record: Record<'_>, gather: &Gather) -> Seen {
    // What is no hash is refused when it is read.
    let Ok(hash) = Hash::of(record, &gather.env) else { return Seen::default() };
    let (mut seen, mut position) = (Seen::default(), Position(0));
    loop {
        position = hash.scan(position, FIELDS, |field, value| {
            seen.nodes += 1.0;
            seen.edges += edges_of_text(value.text_len(), gather) as f64;
            seen.id_bytes += field.text_len() as f64;
        });
        if position == Position(0) || seen.nodes >= FIELDS as f64 {
            break;
        }
    }
    let each = hash.len() as f64 / seen.nodes.max(1.0);
    Seen {
        nodes: each * seen.nodes,
        edges: each * seen.edges,
        id_bytes: each * seen.id_bytes,
        parts: each * seen.nodes,
    }
}

fn edges_of_text(bytes: usize, gather: &Gather) -> usize {
    match &gather.source.text {
        TextForm::Separated(_) => bytes / WORD_BYTES + 1,
        TextForm::Packed(size) => bytes / size,
    }
}
