//! Building a stream from parts that come from a file or the network, each of them checked.

use std::fmt;

use super::node::{DELETED, NODE_BYTES_MAX, SAME_FIELDS};
use super::{Group, Node, NodeRef, Pending, Stream, StreamId};
use crate::listpack::{Listpack, ListpackError, Position};

/// What is wrong with the parts of a would-be stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// The node is no listpack.
    Listpack(ListpackError),
    /// The node of this id is a listpack, but no node.
    Node(StreamId),
    /// The node does not follow on the one before.
    Order(StreamId),
    /// There are fewer or more entries than was said.
    Len { said: u64, actual: u64 },
    /// An entry has a greater id than the last one.
    LastId(StreamId),
    /// Two groups or consumers of one name.
    Twice,
    /// An entry that is pending for nobody, or for two.
    Pending(StreamId),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Listpack(error) => write!(f, "node of a stream: {error}"),
            StreamError::Node(id) => write!(f, "broken node {id} of a stream"),
            StreamError::Order(id) => write!(f, "node {id} of a stream is out of order"),
            StreamError::Len { said, actual } => {
                write!(f, "stream of {actual} entries says it has {said}")
            }
            StreamError::LastId(id) => write!(f, "stream has an entry behind its last id {id}"),
            StreamError::Twice => write!(f, "stream has two groups or consumers of one name"),
            StreamError::Pending(id) => write!(f, "entry {id} is not pending for one consumer"),
        }
    }
}

impl std::error::Error for StreamError {}

/// A stream that is being built: first its nodes in order, then [`Restore::finish`], then groups
/// with [`Restore::group`] and [`Stream::add_group`].
#[derive(Default)]
pub struct Restore {
    stream: Stream,
    /// The greatest id so far.
    greatest: Option<StreamId>,
}

impl Restore {
    pub fn new() -> Restore {
        Restore::default()
    }

    /// Adds a node: its master id and its listpack. Linear in its length.
    pub fn node(&mut self, master: StreamId, bytes: Vec<u8>) -> Result<(), StreamError> {
        let listpack = Listpack::from_bytes(bytes).map_err(StreamError::Listpack)?;
        let node = NodeRef { master, listpack: listpack.view() };
        if self.greatest.is_some_and(|greatest| greatest >= master) {
            return Err(StreamError::Order(master));
        }
        let (entries, last_id) = check_node(node).ok_or(StreamError::Node(master))?;
        // Such a node has nothing to say; Redis may leave one behind.
        if entries > 0 {
            let tail = self.stream.tail.replace(Node { master, listpack });
            tail.into_iter().for_each(|tail| self.stream.seal(tail));
            self.stream.len += entries;
        }
        self.greatest = Some(last_id);
        Ok(())
    }

    /// Live entries so far.
    pub fn entry_count(&self) -> u64 {
        self.stream.len
    }

    /// The stream without groups. `len` and `last_id` are what its source said.
    pub fn finish(
        self,
        len: u64,
        last_id: StreamId,
        max_deleted_id: StreamId,
        entries_added: u64,
    ) -> Result<Stream, StreamError> {
        let Restore { mut stream, greatest } = self;
        if stream.len != len {
            return Err(StreamError::Len { said: len, actual: stream.len });
        }
        if greatest.is_some_and(|greatest| greatest > last_id) {
            return Err(StreamError::LastId(last_id));
        }
        stream.last_id = last_id;
        stream.max_deleted_id = max_deleted_id;
        stream.entries_added = entries_added;
        Ok(stream)
    }

    /// A group of consumers, each with its name, when it was seen and was active, and the ids
    /// pending for it; `pending` has for each such id when it was delivered and how often.
    pub fn group(
        last_id: StreamId,
        entries_read: Option<u64>,
        pending: &[(StreamId, u64, u64)],
        consumers: &[RestoredConsumer<'_>],
    ) -> Result<Group, StreamError> {
        let mut group = Group::new(last_id, entries_read);
        let deliveries: std::collections::BTreeMap<_, _> =
            pending.iter().map(|(id, ms, count)| (*id, (*ms, *count))).collect();
        for consumer in consumers {
            if group.consumer(consumer.name).is_some() {
                return Err(StreamError::Twice);
            }
            let id = group.add_consumer(consumer.name, consumer.seen_ms);
            group.consumer_mut(id).active_ms = consumer.active_ms;
            for entry in &consumer.pending {
                let error = StreamError::Pending(*entry);
                let (delivered_ms, deliveries) = *deliveries.get(entry).ok_or(error)?;
                if group.pending(*entry).is_some() {
                    return Err(error);
                }
                group.set_pending(*entry, Pending { consumer: id, delivered_ms, deliveries });
            }
        }
        let orphan = deliveries.keys().find(|id| group.pending(**id).is_none());
        orphan.map_or(Ok(group), |id| Err(StreamError::Pending(*id)))
    }
}

/// A consumer as a file describes it.
pub struct RestoredConsumer<'a> {
    pub name: &'a [u8],
    pub seen_ms: u64,
    pub active_ms: Option<u64>,
    pub pending: Vec<StreamId>,
}

/// Number of live entries and the greatest id of a listpack that is a node.
fn check_node(node: NodeRef<'_>) -> Option<(u64, StreamId)> {
    if node.listpack.bytes().len() > NODE_BYTES_MAX {
        return None;
    }
    let mut walk = Walk { node, at: node.listpack.start() };
    let (entries, deleted) = (walk.count()?, walk.count()?);
    let names = walk.count()?;
    walk.skip(names)?;
    if walk.int()? != 0 {
        return None;
    }
    let (mut seen_entries, mut seen_deleted, mut greatest) = (0, 0, None);
    while walk.at != node.listpack.end() {
        let (id, is_deleted) = walk.entry(names)?;
        // The first entry has the node's own id, unless the node was made by trimming another.
        if id < node.master || greatest.is_some_and(|greatest| greatest >= id) {
            return None;
        }
        greatest = Some(id);
        *(if is_deleted { &mut seen_deleted } else { &mut seen_entries }) += 1;
    }
    let is_sound = (seen_entries, seen_deleted) == (entries, deleted);
    is_sound.then_some((entries, greatest.unwrap_or(node.master)))
}

/// A walk over elements that may be anything.
struct Walk<'a> {
    node: NodeRef<'a>,
    at: Position,
}

impl Walk<'_> {
    /// Passes one entry; its id, and whether it is deleted.
    fn entry(&mut self, names: u64) -> Option<(StreamId, bool)> {
        let (flags, ms, seq) = (self.int()?, self.int()?, self.int()?);
        if flags & !(DELETED | SAME_FIELDS) != 0 {
            return None;
        }
        let elements = if flags & SAME_FIELDS != 0 {
            self.skip(names)?;
            names.checked_add(3)?
        } else {
            let parts = self.count()?.checked_mul(2)?;
            self.skip(parts)?;
            parts.checked_add(4)?
        };
        let id = StreamId::new(
            self.node.master.ms.wrapping_add(ms as u64),
            self.node.master.seq.wrapping_add(seq as u64),
        );
        (self.count()? == elements).then_some((id, flags & DELETED != 0))
    }

    fn int(&mut self) -> Option<i64> {
        if self.at == self.node.listpack.end() {
            return None;
        }
        let (element, after) = self.node.listpack.read(self.at);
        self.at = after;
        element.to_int()
    }

    fn count(&mut self) -> Option<u64> {
        self.int().and_then(|int| u64::try_from(int).ok())
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        for _ in 0..count {
            if self.at == self.node.listpack.end() {
                return None;
            }
            self.at = self.node.listpack.after(self.at);
        }
        Some(())
    }
}
