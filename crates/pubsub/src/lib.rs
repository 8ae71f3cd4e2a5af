//! Publish and subscribe: from a publisher's worker to every subscriber's, without a global lock.
//!
//! Who subscribes to what is kept twice. The [`Index`]es, which all workers share, say for each
//! channel and pattern how many subscribers each worker has; the worker itself knows which of its
//! connections they are ([`local`]). A publisher looks into the index, has the message encoded
//! once, and posts it to the workers that need it; each gives it to its own connections when its
//! batch is done ([`fan_out`]).
//!
//! Counts are exact: a publisher holds what it read of the index until the message is posted, and
//! a connection that comes or goes takes its worker's post in the moment in which the index
//! changes. So a message reaches exactly those subscribers that its publisher has counted, except
//! where one closes its connection before it could be sent.
//!
//! Locks: channels before patterns before a worker's post, all of them under slots; nothing else is
//! locked inside.
#![forbid(unsafe_code)]

pub mod index;
pub mod local;
pub mod post;
pub mod publication;
pub mod subscriptions;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, RwLockReadGuard};

use kvasir_structures::glob::{self, Case};
use kvasir_structures::hash;

use crate::post::{Origin, Post};
use index::{Index, Receivers};
use publication::{Delivery, Publication};

/// Channels are spread over so many locks.
const SHARDS: usize = 64;
/// As many workers as there may be, in words of a bit set.
const WORKER_WORDS: usize = kvasir_config::table::IO_THREADS_MAX as usize / 64;

/// What one can subscribe to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Channel,
    Pattern,
    ShardChannel,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::ShardChannel];
}

/// Something for each name of a channel or a pattern. Names are shared by all who keep them.
pub type Names<T> = HashMap<Arc<[u8]>, T, BuildHasherDefault<NameHasher>>;

/// Hashes a name as keys are hashed: fast, and with a seed that nobody can guess.
#[derive(Default)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash::of(bytes);
    }

    /// The length, which the hash of the bytes knows already.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What all workers share of it.
pub struct Hub {
    indexes: [Index; Kind::ALL.len()],
    post: Post<Arc<Publication>>,
}

impl Hub {
    pub fn new(workers: usize) -> Hub {
        Hub {
            indexes: Kind::ALL
                .map(|kind| Index::new(if kind == Kind::Pattern { 1 } else { SHARDS })),
            post: Post::new(workers),
        }
    }

    pub fn index_of(&self, kind: Kind) -> &Index {
        &self.indexes[kind as usize]
    }

    /// Posts a message to every worker with subscribers; says how many subscribers will get it,
    /// each pattern of a connection counted on its own.
    pub fn publish(&self, origin: Origin, kind: Kind, channel: &[u8], message: &[u8]) -> u64 {
        // Both are held until the message is posted: see the header.
        let channels = self.index_of(kind).read(channel);
        let patterns = (kind == Kind::Channel).then(|| self.patterns()).flatten();
        let own = channels.get_key_value(channel);
        let matching = patterns.iter().flat_map(|patterns| patterns.iter());
        let matching =
            matching.filter(|(pattern, _)| glob::matches(pattern, channel, Case::Sensitive));
        let mut publication = Publication::default();
        let (mut workers, mut count) = ([0u64; WORKER_WORDS], 0);
        let mut add = |receivers: &Receivers| {
            for (worker, subscribers) in receivers.by_worker() {
                workers[worker / 64] |= 1 << (worker % 64);
                count += u64::from(subscribers);
            }
        };
        if let Some((name, receivers)) = own {
            add(receivers);
            publication.push(Delivery::to_channel(kind, name, message));
        }
        for (pattern, receivers) in matching {
            add(receivers);
            publication.push(Delivery::to_pattern(pattern, channel, message));
        }
        if count > 0 {
            publication.set_fence(origin.fence);
            self.deliver(origin.worker, &workers, publication);
        }
        count
    }

    /// The patterns, if there are any.
    fn patterns(&self) -> Option<RwLockReadGuard<'_, Names<Receivers>>> {
        let index = self.index_of(Kind::Pattern);
        (index.count() > 0).then(|| index.read(b""))
    }

    fn deliver(&self, from: usize, workers: &[u64; WORKER_WORDS], publication: Publication) {
        let publication = Arc::new(publication);
        for (word, bits) in workers.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let to = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.post.send(from, to, Arc::clone(&publication));
            }
        }
    }

    /// Keeps what a worker publishes until it lets it go.
    pub fn hold(&self, worker: usize) {
        self.post.hold(worker);
    }

    /// Posts what was kept.
    pub fn release(&self, worker: usize, fence: u64) {
        self.post.release(worker, |publication| publication.set_fence(fence));
    }

    /// Appends what was published for a worker's subscribers since the last time.
    #[inline]
    pub fn take_mail(&self, worker: usize, pending: &mut Vec<Arc<Publication>>) {
        self.post.take(worker, pending);
    }

    /// Wakes the workers that this one has posted to, once for all of a turn's messages.
    #[inline]
    pub fn wake_others(&self, worker: usize, wake: impl Fn(usize)) {
        self.post.wake_others(worker, wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters of a worker as text, less the first line.
    fn mail(hub: &Hub, worker: usize) -> Vec<String> {
        let mut pending = Vec::new();
        hub.take_mail(worker, &mut pending);
        let deliveries = pending.iter().flat_map(|publication| publication.iter());
        let show = |delivery: &Delivery| {
            let lines = String::from_utf8_lossy(delivery.text()).replace("\r\n", " ");
            lines.split(' ').filter(|word| !word.starts_with('$')).collect::<Vec<_>>().join(" ")
        };
        deliveries.map(|delivery| show(delivery).trim_end().to_string()).collect()
    }

    fn by(worker: usize) -> Origin {
        Origin { worker, fence: 0 }
    }

    #[test]
    fn a_message_is_posted_to_workers_with_subscribers_only() {
        let hub = Hub::new(3);
        for (kind, name, worker) in [
            (Kind::Channel, "news", 0),
            (Kind::Channel, "news", 0),
            (Kind::Channel, "news", 2),
            (Kind::Pattern, "n*", 2),
            (Kind::ShardChannel, "news", 1),
        ] {
            hub.index_of(kind).join(name.as_bytes(), worker, || ());
        }
        assert_eq!(hub.publish(by(0), Kind::Channel, b"news", b"m"), 4);
        assert_eq!(hub.publish(by(1), Kind::ShardChannel, b"news", b"s"), 1);
        assert_eq!(hub.publish(by(0), Kind::Channel, b"none", b"p"), 1);
        assert_eq!(hub.publish(by(0), Kind::Channel, b"other", b"m"), 0);
        let both = ["3 message news m", "4 pmessage n* news m"];
        assert_eq!(mail(&hub, 0)[..1], both[..1]);
        assert_eq!(mail(&hub, 1), ["3 smessage news s"]);
        assert_eq!(mail(&hub, 2), [both[0], both[1], "4 pmessage n* none p"]);
        assert!(mail(&hub, 2).is_empty());
    }
}
