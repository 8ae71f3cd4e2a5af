//! A message on its way to subscribers, encoded once for all of them.
//!
//! RESP2 and RESP3 differ in the first byte only, `*` or `>`; so the text is kept without it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_resp::reply::{Protocol, Reply};
use smallvec::SmallVec;

use crate::Kind;

/// From this size on a text is sent from where it lies, not copied for each subscriber.
const SHARED_MIN: usize = 8 * 1024;
/// What stands around channel and message: headers, and the word that says what it is.
const FRAME_LEN_MAX: usize = 64;

/// One message, for the subscribers of its channel and for those of each pattern that matches.
#[derive(Default)]
pub struct Publication {
    deliveries: SmallVec<[Delivery; 1]>,
    /// How far the log must be on disk before anybody gets it.
    fence: AtomicU64,
}

/// What the subscribers of one name get of a message.
pub struct Delivery {
    pub kind: Kind,
    /// The channel, or the pattern.
    pub name: Arc<[u8]>,
    /// Shared, so that long texts need not be copied.
    text: Arc<Vec<u8>>,
}

impl Publication {
    pub fn push(&mut self, delivery: Delivery) {
        self.deliveries.push(delivery);
    }

    pub fn fence(&self) -> u64 {
        self.fence.load(Relaxed)
    }

    /// Called before it is posted.
    pub fn set_fence(&self, fence: u64) {
        self.fence.store(fence, Relaxed);
    }
}

impl Deref for Publication {
    type Target = [Delivery];

    fn deref(&self) -> &[Delivery] {
        &self.deliveries
    }
}

impl Delivery {
    pub fn to_channel(kind: Kind, channel: &Arc<[u8]>, message: &[u8]) -> Delivery {
        let word = if kind == Kind::ShardChannel { "smessage" } else { "message" };
        let text = encode("3\r\n", &[word.as_bytes(), channel, message]);
        Delivery { kind, name: Arc::clone(channel), text }
    }

    pub fn to_pattern(pattern: &Arc<[u8]>, channel: &[u8], message: &[u8]) -> Delivery {
        let text = encode("4\r\n", &[b"pmessage", pattern, channel, message]);
        Delivery { kind: Kind::Pattern, name: Arc::clone(pattern), text }
    }

    /// Without its first byte.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    pub fn is_to(&self, other: &Delivery) -> bool {
        let is_same_name = || Arc::ptr_eq(&self.name, &other.name) || self.name == other.name;
        self.kind == other.kind && is_same_name()
    }

    #[inline]
    pub fn write_to(&self, reply: &mut Reply) {
        reply.raw(&[first_byte(reply.protocol())]);
        if self.text.len() < SHARED_MIN {
            reply.raw(&self.text);
        } else {
            reply.raw_shared(Arc::clone(&self.text));
        }
    }
}

/// Several texts in a row, each encoding made when the first subscriber needs it.
pub struct Block<'a> {
    deliveries: &'a [(u64, &'a Delivery)],
    /// For RESP2 and for RESP3.
    joined: [Option<Arc<Vec<u8>>>; 2],
}

impl<'a> Block<'a> {
    /// Of deliveries to the same name, each with its number.
    pub fn new(deliveries: &'a [(u64, &'a Delivery)]) -> Block<'a> {
        Block { deliveries, joined: [None, None] }
    }

    /// Writes those with at least this number.
    #[inline]
    pub fn write_to(&mut self, reply: &mut Reply, from: u64) {
        match self.deliveries {
            [(number, only)] if *number >= from => only.write_to(reply),
            [_] => {}
            [(first, _), ..] if *first >= from => self.write_all(reply),
            some => {
                let missing = some.iter().filter(|(number, _)| *number >= from);
                missing.for_each(|(_, delivery)| delivery.write_to(reply));
            }
        }
    }

    fn write_all(&mut self, reply: &mut Reply) {
        let joined = &mut self.joined[reply.protocol() as usize];
        let joined = joined.get_or_insert_with(|| join(self.deliveries, reply.protocol()));
        if joined.len() < SHARED_MIN {
            reply.raw(joined);
        } else {
            reply.raw_shared(Arc::clone(joined));
        }
    }
}

fn join(deliveries: &[(u64, &Delivery)], protocol: Protocol) -> Arc<Vec<u8>> {
    let len = deliveries.iter().map(|(_, delivery)| delivery.text.len() + 1).sum();
    let mut all = Vec::with_capacity(len);
    for (_, delivery) in deliveries {
        all.push(first_byte(protocol));
        all.extend_from_slice(&delivery.text);
    }
    Arc::new(all)
}

fn first_byte(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Resp2 => b'*',
        Protocol::Resp3 => b'>',
    }
}

fn encode(count: &str, parts: &[&[u8]]) -> Arc<Vec<u8>> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut text = Reply::default();
    text.give_back(Vec::with_capacity(FRAME_LEN_MAX + len));
    text.raw(count.as_bytes());
    parts.iter().for_each(|part| text.bulk(part));
    Arc::new(text.take().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(message: &[u8]) -> Delivery {
        Delivery::to_channel(Kind::Channel, &Arc::from(*b"ch"), message)
    }

    fn check(protocol: Protocol, from: u64, expect: &str) {
        let (one, two) = (delivery(b"1"), delivery(b"22"));
        let deliveries = [(5, &one), (6, &two)];
        let mut reply = Reply::new(protocol);
        Block::new(&deliveries).write_to(&mut reply, from);
        assert_eq!(reply.to_vec().escape_ascii().to_string(), expect.replace(' ', "\\r\\n"));
    }

    #[test]
    fn a_subscriber_gets_what_it_has_not_yet() {
        let one = "*3 $7 message $2 ch $1 1 ";
        let two = "*3 $7 message $2 ch $2 22 ";
        check(Protocol::Resp2, 0, &format!("{one}{two}"));
        check(Protocol::Resp2, 5, &format!("{one}{two}"));
        check(Protocol::Resp2, 6, two);
        check(Protocol::Resp2, 7, "");
        check(Protocol::Resp3, 0, &format!("{one}{two}").replace('*', ">"));
        check(Protocol::Resp3, 6, &two.replace('*', ">"));
    }

    #[test]
    fn what_is_long_is_not_copied() {
        let long = delivery(&[b'x'; SHARED_MIN]);
        let half = delivery(&[b'x'; SHARED_MIN / 2]);
        for deliveries in [&[(0, &long)][..], &[(0, &half), (1, &half)]] {
            let mut block = Block::new(deliveries);
            let mut replies = [Protocol::Resp2, Protocol::Resp2, Protocol::Resp3].map(Reply::new);
            replies.iter_mut().for_each(|reply| block.write_to(reply, 0));
            let chunk = |reply: &Reply| Arc::clone(&reply.chunks()[0].1);
            assert!(Arc::ptr_eq(&chunk(&replies[0]), &chunk(&replies[1])));
            for reply in replies {
                let one = |(_, delivery): &(u64, &Delivery)| {
                    [&[first_byte(reply.protocol())], delivery.text()].concat()
                };
                assert_eq!(reply.to_vec(), deliveries.iter().flat_map(one).collect::<Vec<_>>());
            }
        }
    }
}
