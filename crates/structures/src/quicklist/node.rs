//! One node of a quicklist: a listpack or a single large element, packed or compressed.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{ELEMENT_OVERHEAD, End, Entry, NodeMax, NodeRef, without};
use crate::listpack::{Element, Listpack, ListpackRef, SIZE_MIN};
use crate::lzf;

/// Smaller nodes are not worth a try.
const COMPRESSED_FROM: usize = 48;
/// A node that gets smaller by less than this stays as it is.
const SAVED_MIN: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Node {
    body: Body,
    count: usize,
}

#[derive(Clone, Debug)]
enum Body {
    Packed(Listpack),
    Plain(Arc<Vec<u8>>),
    Compressed(Box<Compressed>),
}

#[derive(Clone, Debug)]
struct Compressed {
    lzf: Vec<u8>,
    /// Bytes when unpacked.
    size: usize,
    is_plain: bool,
}

impl Compressed {
    fn unpacked(&self) -> Body {
        let bytes = lzf::decompress(&self.lzf, self.size).expect("it was compressed here");
        if self.is_plain {
            Body::Plain(Arc::new(bytes))
        } else {
            Body::Packed(Listpack::from_sound_bytes(bytes))
        }
    }
}

impl Node {
    pub(super) fn packed(listpack: Listpack) -> Node {
        Node { count: listpack.len(), body: Body::Packed(listpack) }
    }

    /// A node of one element.
    pub(super) fn of(bytes: &[u8], node_max: NodeMax) -> Node {
        if node_max.isolates(bytes.len()) {
            return Node { body: Body::Plain(Arc::new(bytes.to_vec())), count: 1 };
        }
        Node::packed(Listpack::from_iter([bytes]))
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The listpack, if the node is one and not compressed.
    pub(super) fn listpack(&self) -> Option<ListpackRef<'_>> {
        match &self.body {
            Body::Packed(listpack) => Some(listpack.view()),
            Body::Plain(_) | Body::Compressed(_) => None,
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        match &self.body {
            Body::Packed(listpack) => listpack.capacity_bytes(),
            // Two counts and the vector's three words stand before the bytes.
            Body::Plain(bytes) => 5 * size_of::<usize>() + bytes.capacity(),
            Body::Compressed(body) => size_of::<Compressed>() + body.lzf.capacity(),
        }
    }

    /// Calls `f` with the elements from the one at `offset` on, until it breaks.
    pub(super) fn visit(
        &self,
        start: End,
        offset: usize,
        f: &mut impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match &*self.body() {
            Body::Plain(bytes) => f(Entry::Plain(bytes)),
            Body::Packed(listpack) => {
                let view = listpack.view();
                let at = view.seek(offset as i64).expect("an index below the count");
                let mut visit = |(_, element)| f(Entry::Packed(element));
                match start {
                    End::Head => view.entries_in(at..view.end()).try_for_each(&mut visit),
                    End::Tail => {
                        let mut entries = view.entries_in(view.start()..view.after(at)).rev();
                        entries.try_for_each(&mut visit)
                    }
                }
            }
            Body::Compressed(_) => unreachable!("just unpacked"),
        }
    }

    /// Calls `f` with the node as it is when it is not compressed.
    pub(super) fn with_ref(&self, f: impl FnOnce(NodeRef<'_>)) {
        match &*self.body() {
            Body::Plain(bytes) => f(NodeRef::Plain(bytes)),
            Body::Packed(listpack) => f(NodeRef::Packed(listpack.view())),
            Body::Compressed(_) => unreachable!("just unpacked"),
        }
    }

    /// Whether an element of this length may come into this node.
    pub(super) fn has_room(&self, len: usize, node_max: NodeMax) -> bool {
        let Some(size) = self.listpack_size() else { return false };
        !node_max.isolates(len) && node_max.admits(size + len + ELEMENT_OVERHEAD, self.count + 1)
    }

    pub(super) fn push(&mut self, end: End, bytes: &[u8]) {
        self.count += 1;
        match end {
            End::Head => self.listpack_mut().push_front(bytes),
            End::Tail => self.listpack_mut().push_back(bytes),
        }
    }

    /// Puts an element before the one at `offset`, or behind the last.
    pub(super) fn insert(&mut self, offset: usize, bytes: &[u8]) {
        self.count += 1;
        let listpack = self.listpack_mut();
        let view = listpack.view();
        let at = view.seek(offset as i64).unwrap_or(view.end());
        listpack.insert(at, bytes);
        listpack.shrink_to_fit();
    }

    /// Replaces an element if the node keeps to its limit; says whether it did.
    pub(super) fn try_set(&mut self, offset: usize, bytes: &[u8], node_max: NodeMax) -> bool {
        let is_alone = node_max.isolates(bytes.len());
        let (count, element) = (self.count, Element::Bytes(bytes));
        let Some(size) = self.listpack_size() else {
            if is_alone {
                self.body = Body::Plain(Arc::new(bytes.to_vec()));
            }
            return is_alone;
        };
        if is_alone {
            return false;
        }
        let view = self.listpack_mut().view();
        let at = view.seek(offset as i64).expect("an index below the count");
        let old_size = view.at(at).stored_size();
        if count > 1 && !node_max.admits(size - old_size + element.stored_size(), count) {
            return false;
        }
        self.listpack_mut().replace(at, element);
        true
    }

    /// Removes some elements, but not all.
    pub(super) fn remove(&mut self, offset: usize, count: usize) {
        self.count -= count;
        self.listpack_mut().remove_range(offset as i64, count);
        self.give_back_room();
    }

    /// The node without up to `count` elements that are `value`, the first ones seen from `start`;
    /// how many they were. `None` if there are none.
    pub(super) fn without(&self, value: &[u8], count: usize, start: End) -> Option<(Node, usize)> {
        match &*self.body() {
            Body::Plain(bytes) if **bytes == *value => {
                Some((Node { body: Body::Plain(Arc::clone(bytes)), count: 0 }, 1))
            }
            Body::Plain(_) => None,
            Body::Packed(listpack) => {
                let (rest, removed) = without(listpack.view(), value, count, start)?;
                let mut node = Node::packed(rest);
                node.give_back_room();
                Some((node, removed))
            }
            Body::Compressed(_) => unreachable!("just unpacked"),
        }
    }

    /// Takes the elements from `offset` on away, which are not all, as a new node.
    pub(super) fn split_off(&mut self, offset: usize) -> Node {
        let count = self.count;
        let listpack = self.listpack_mut();
        let view = listpack.view();
        let at = view.seek(offset as i64).expect("an index below the count");
        let behind = Node::packed(view.copy_range(at..view.end()));
        listpack.remove(at, count - offset);
        listpack.shrink_to_fit();
        self.count = offset;
        behind
    }

    /// Whether one node may hold what this and the next one do.
    pub(super) fn merges_with(&self, next: &Node, node_max: NodeMax) -> bool {
        match (self.listpack_size(), next.listpack_size()) {
            (Some(one), Some(other)) => {
                node_max.admits(one + other - SIZE_MIN, self.count + next.count)
            }
            _ => false,
        }
    }

    pub(super) fn append(&mut self, mut next: Node) {
        self.count += next.count;
        let view = next.listpack_mut().view();
        self.listpack_mut().extend_from(view, view.start()..view.end());
    }

    /// Gives back all room beyond what is used.
    pub(super) fn shrink(&mut self) {
        if let Body::Packed(listpack) = &mut self.body {
            listpack.shrink_to_fit();
        }
    }

    pub(super) fn compress(&mut self) {
        let (bytes, is_plain) = match &self.body {
            Body::Packed(listpack) => (listpack.view().bytes(), false),
            Body::Plain(bytes) => (&bytes[..], true),
            Body::Compressed(_) => return,
        };
        if bytes.len() < COMPRESSED_FROM {
            return;
        }
        if let Some(mut lzf) = lzf::compress(bytes, bytes.len() - SAVED_MIN) {
            lzf.shrink_to_fit();
            let size = bytes.len();
            self.body = Body::Compressed(Box::new(Compressed { lzf, size, is_plain }));
        }
    }

    pub(super) fn unpack(&mut self) {
        if let Body::Compressed(compressed) = &self.body {
            self.body = compressed.unpacked();
        }
    }

    /// What the node holds, not compressed.
    fn body(&self) -> Cow<'_, Body> {
        match &self.body {
            Body::Compressed(compressed) => Cow::Owned(compressed.unpacked()),
            body => Cow::Borrowed(body),
        }
    }

    /// The size of the listpack, which may be compressed; `None` for a plain node.
    fn listpack_size(&self) -> Option<usize> {
        match &self.body {
            Body::Packed(listpack) => Some(listpack.size_bytes()),
            Body::Compressed(compressed) if !compressed.is_plain => Some(compressed.size),
            Body::Plain(_) | Body::Compressed(_) => None,
        }
    }

    fn listpack_mut(&mut self) -> &mut Listpack {
        self.unpack();
        match &mut self.body {
            Body::Packed(listpack) => listpack,
            _ => unreachable!("the caller knows that the node is a listpack"),
        }
    }

    /// Keeps the room of a node that got smaller within twice its size.
    fn give_back_room(&mut self) {
        if let Body::Packed(listpack) = &mut self.body
            && listpack.capacity_bytes() > 2 * listpack.size_bytes()
        {
            listpack.shrink_to_fit();
        }
    }
}
