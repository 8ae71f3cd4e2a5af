//! The packed form of a tiny stream: one node and no groups, as a run of bytes.
//!
//! | Offset | Size | Field, little endian |
//! |---|---|---|
//! | 0 | 16 | last id: ms, number |
//! | 16 | 16 | greatest id that was deleted |
//! | 32 | 8 | entries ever added |
//! | 40 | 16 | master id of the node; with the listpack, if there is one |
//! | 56 | | the node's listpack |
//!
//! Only what [`Stream::to_packed`] made is read again.

use super::{Node, Stream, StreamId};
use crate::listpack::Listpack;

/// A stream whose node is larger than this is not packed: each change copies the whole of it.
pub const PACKED_MAX: usize = 1024;

const HEAD_SIZE: usize = 40;
const NODE_AT: usize = HEAD_SIZE + 16;

impl Stream {
    /// The packed form, if the stream is tiny.
    pub fn to_packed(&self) -> Option<Vec<u8>> {
        let size = self.tail.as_ref().map_or(0, |tail| tail.listpack.size_bytes());
        if !self.sealed.is_empty() || !self.groups.is_empty() || size > PACKED_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(NODE_AT + size);
        push_id(&mut bytes, self.last_id);
        push_id(&mut bytes, self.max_deleted_id);
        bytes.extend_from_slice(&self.entries_added.to_le_bytes());
        if let Some(tail) = &self.tail {
            push_id(&mut bytes, tail.master);
            bytes.extend_from_slice(tail.listpack.view().bytes());
        }
        Some(bytes)
    }

    /// The stream of a packed form.
    pub fn from_packed(bytes: &[u8]) -> Stream {
        let node = bytes.get(NODE_AT..).map(|listpack| Node {
            master: id_at(bytes, HEAD_SIZE),
            listpack: Listpack::from_sound_bytes(listpack.to_vec()),
        });
        Stream {
            len: node.as_ref().map_or(0, |node| node.view().counts().0),
            tail: node,
            last_id: id_at(bytes, 0),
            max_deleted_id: id_at(bytes, 16),
            entries_added: number_at(bytes, 32),
            ..Stream::new()
        }
    }
}

fn push_id(bytes: &mut Vec<u8>, id: StreamId) {
    bytes.extend_from_slice(&id.ms.to_le_bytes());
    bytes.extend_from_slice(&id.seq.to_le_bytes());
}

fn id_at(bytes: &[u8], offset: usize) -> StreamId {
    StreamId::new(number_at(bytes, offset), number_at(bytes, offset + 8))
}

fn number_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(*bytes[offset..].first_chunk().expect("made by `to_packed`"))
}
