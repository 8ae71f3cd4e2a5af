//! Where the edges of a graph stand in the data, and how a record names them.
//!
//! | Value | Neighbours |
//! |---|---|
//! | set, list | its members |
//! | sorted set | its members, with scores as weights |
//! | hash | its fields, with values as weights |
//! | string | words between separators, or packed integers |
//! | one hash of adjacency | a field is a node, its value a string as above |

use kvasir_keyspace::hash_value::{Hash, Item};
use kvasir_keyspace::list_value::List;
use kvasir_keyspace::set_value::Set;
use kvasir_keyspace::sorted_set_value::{Direction, SortedSet};
use kvasir_keyspace::value::{Kind, Record, Tag, Text};
use kvasir_keyspace::view::Env;
use kvasir_resp::number::{parse_c_double, parse_integer};
use kvasir_structures::quicklist::End;

use crate::column::Cell;

/// Where nodes and their neighbours come from.
pub struct Source {
    pub place: Place,
    pub text: TextForm,
    /// Whether nodes are integers, else any bytes.
    pub has_integer_ids: bool,
    pub is_weighted: bool,
}

/// The keys of a graph.
pub enum Place {
    /// Those between these two parts of their names, which have the node's id there.
    Keys { before: Vec<u8>, after: Vec<u8> },
    /// One hash.
    Hash(Vec<u8>),
}

/// How a string lists neighbours.
pub enum TextForm {
    /// Any of these bytes, or several, stand between them.
    Separated(Vec<u8>),
    /// Integers of so many bytes, little-endian: of 4 without a sign, of 8 with one.
    Packed(usize),
}

/// What the edges are told to: a node, and then each of its neighbours with a weight.
pub trait Listener {
    /// Fails with a text.
    fn node(&mut self, id: Cell<'_>) -> Result<(), String>;
    fn neighbour(&mut self, id: Cell<'_>, weight: f64) -> Result<(), String>;
}

impl Place {
    /// Of a pattern with one `*`, which stands for the id.
    pub fn of_pattern(pattern: &[u8]) -> Option<Place> {
        let mut parts = pattern.split(|byte| *byte == b'*');
        let (before, after) = (parts.next()?.to_vec(), parts.next()?.to_vec());
        let is_plain = |part: &[u8]| !part.iter().any(|byte| b"?[\\".contains(byte));
        let is_one = parts.next().is_none() && is_plain(&before) && is_plain(&after);
        is_one.then_some(Place::Keys { before, after })
    }

    /// The node that a key is of, or nothing if it is none of the graph's.
    pub fn id_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match self {
            Place::Keys { before, after } => {
                let id = key.strip_prefix(&before[..])?.strip_suffix(&after[..])?;
                (!id.is_empty()).then_some(id)
            }
            Place::Hash(_) => None,
        }
    }

    pub fn takes(&self, key: &[u8]) -> bool {
        match self {
            Place::Keys { .. } => self.id_of(key).is_some(),
            Place::Hash(name) => key == name,
        }
    }
}

impl Source {
    /// Tells of all edges of a record, which is one of the graph's.
    pub fn read(
        &self,
        record: Record<'_>,
        env: &Env,
        to: &mut impl Listener,
    ) -> Result<(), String> {
        let (kind, sound) = (Tag::of(record).kind(), "the type was looked at");
        let Some(id) = self.place.id_of(record.key()) else {
            return match kind {
                Kind::Hash => self.read_hash(Hash::of(record, env).expect(sound), to),
                kind => Err(format!("{}: a hash is wanted, not a {}", name(record), kind.name())),
            };
        };
        to.node(Cell::Text(id))?;
        let mut result = Ok(());
        let mut tell = |id: Cell<'_>, weight: f64| {
            if result.is_ok() {
                let weight = if self.is_weighted { weight } else { 1.0 };
                result = check_weight(id, weight).and_then(|()| to.neighbour(id, weight));
            }
        };
        match kind {
            Kind::Set => {
                let set = Set::of(record).expect(sound);
                set.for_each(|member| tell(Cell::from(member), 1.0));
            }
            Kind::List => {
                let list = List::of(record).expect(sound);
                list.visit_some(End::Head, 0, list.len(), |item| tell(Cell::from(item), 1.0));
            }
            Kind::SortedSet => {
                let set = SortedSet::of(record).expect(sound);
                set.for_each(0..set.len(), Direction::Ascending, |member, score| {
                    member.with_bytes(|member| tell(Cell::Text(member), score));
                });
            }
            Kind::Hash => {
                let hash = Hash::of(record, env).expect(sound);
                hash.for_each(|field, value| tell(Cell::from(field), self.weight_of(value)));
            }
            Kind::String => {
                let text = Text::of(record).expect(sound).bytes();
                return self.read_text(&text, to).map_err(|why| format!("{}: {why}", name(record)));
            }
            Kind::Stream => return Err(format!("{}: a stream is no adjacency", name(record))),
        }
        result.map_err(|why| format!("{}: {why}", name(record)))
    }

    /// What a field of a hash weighs; NaN if that is no number.
    fn weight_of(&self, value: Item<'_>) -> f64 {
        match value {
            _ if !self.is_weighted => 1.0,
            Item::Int(int) => int as f64,
            Item::Bytes(bytes) => parse_c_double(bytes).unwrap_or(f64::NAN),
            Item::Shared(text) => parse_c_double(text).unwrap_or(f64::NAN),
        }
    }

    fn read_hash(&self, hash: Hash<'_>, to: &mut impl Listener) -> Result<(), String> {
        let mut result = Ok(());
        hash.for_each(|field, value| {
            if result.is_ok() {
                let read = |text: &[u8]| {
                    to.node(Cell::from(field))?;
                    self.read_text(text, to)
                };
                result = value.with_bytes(read);
                if let Err(why) = &mut result {
                    *why = format!("field '{}': {why}", show(Cell::from(field)));
                }
            }
        });
        result
    }

    fn read_text(&self, text: &[u8], to: &mut impl Listener) -> Result<(), String> {
        match &self.text {
            TextForm::Separated(separators) => {
                let words = text.split(|byte| separators.contains(byte));
                let mut words = words.filter(|word| !word.is_empty());
                words.try_for_each(|word| to.neighbour(Cell::Text(word), 1.0))
            }
            TextForm::Packed(size) => {
                if !text.len().is_multiple_of(*size) {
                    return Err(format!("{} bytes are no integers of {size} bytes", text.len()));
                }
                let mut all = text.chunks_exact(*size).map(|bytes| {
                    let mut long = [0; 8];
                    long[..bytes.len()].copy_from_slice(bytes);
                    i64::from_le_bytes(long)
                });
                all.try_for_each(|id| to.neighbour(Cell::Int(id), 1.0))
            }
        }
    }
}

/// Others would leave nodes with ranks that are no numbers.
fn check_weight(id: Cell<'_>, weight: f64) -> Result<(), String> {
    let is_one = (0.0..=f64::MAX).contains(&weight);
    let wrong = || format!("the weight of '{}' is no finite number from 0 on", show(id));
    is_one.then_some(()).ok_or_else(wrong)
}

/// An id as an integer.
pub fn integer_id(id: Cell<'_>) -> Result<i64, String> {
    let int = match id {
        Cell::Int(int) => Some(int),
        Cell::Text(text) => parse_integer(text),
        _ => None,
    };
    int.ok_or_else(|| format!("'{}' is no integer: say IDS STRING if ids are texts", show(id)))
}

fn show(cell: Cell<'_>) -> String {
    let text = cell.to_text();
    text[..text.len().min(64)].escape_ascii().to_string()
}

fn name(record: Record<'_>) -> String {
    format!("key '{}'", show(Cell::Text(record.key())))
}
