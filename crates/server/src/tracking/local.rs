//! What one worker knows of tracking: messages for its connections, and the keys that it has
//! changed in this turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_resp::reply::{Protocol, Reply};
use kvasir_structures::heap::Exempt;

use crate::clients::tracker::EVICTION;
use crate::tracking::Tracking;

/// The channel on which a RESP2 client is told in another's place.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// A message on its way to one connection.
pub struct Letter {
    pub connection: usize,
    /// Its client; the connection's place may be another's by now.
    pub client: u64,
    /// It is about what another client has cached.
    pub is_redirected: bool,
    pub news: News,
    /// How far the log must be on disk before it is sent.
    pub fence: u64,
}

#[derive(Clone)]
pub enum News {
    /// Some keys.
    Keys(Arc<Keys>),
    /// Every key.
    All,
    /// The client that should have been told in this one's place has gone.
    RedirectBroken(u64),
}

/// Keys as an array of bulk strings, for all who are told of them.
///
/// What tells of evicted keys is no data: were it counted for `maxmemory`, more would be evicted
/// for it, and be told of in turn.
pub struct Keys {
    text: Arc<Vec<u8>>,
    /// About so many of its bytes are there because keys were evicted.
    evicted: usize,
    exempt: Exempt,
}

impl Keys {
    pub fn new(mut text: Vec<u8>, evicted: usize) -> Arc<Keys> {
        let (evicted, exempt) = (evicted.min(text.len()), Exempt::default());
        if evicted > 0 {
            text.shrink_to_fit();
            exempt.add(evicted);
        }
        Arc::new(Keys { text: Arc::new(text), evicted, exempt })
    }

    pub fn evicted_bytes(&self) -> usize {
        self.evicted
    }

    /// Whether it is sent from where it lies.
    pub fn is_shared(&self) -> bool {
        self.text.len() >= SHARED_MIN
    }

    /// A letter is written that has them, in a list that may double.
    pub fn count_letter(&self) {
        if self.evicted > 0 {
            self.exempt.add(2 * size_of::<Letter>());
        }
    }
}

/// A longer text is sent to all from where it lies.
const SHARED_MIN: usize = 4096;
/// What a key takes in the list of those that have changed, beside its own bytes.
const NOTE_SIZE: usize = 64;
/// A list of letters that held more at once gives the memory back.
const LETTERS_KEPT_MAX: usize = 1024;

#[derive(Default)]
pub struct Local {
    mail: Vec<Letter>,
    /// Taken from the post and not yet given, by connection.
    pub waiting: BTreeMap<usize, Vec<Letter>>,
    /// Keys changed in this turn, and by which client first.
    pub changed: BTreeMap<Vec<u8>, u64>,
    /// Of those, what was evicted.
    evicted: Exempt,
}

impl Local {
    pub fn note_change(&mut self, key: &[u8], by: u64) {
        if !self.changed.contains_key(key) {
            self.changed.insert(key.to_vec(), by);
            if by == EVICTION {
                self.evicted.add(key.len());
                self.evicted.add(NOTE_SIZE);
            }
        }
    }

    /// What was changed has been told, and dropped.
    pub fn forget_changes(&mut self) {
        self.evicted.set(0);
    }

    pub fn take_mail(&mut self, tracking: &Tracking, worker: usize) {
        tracking.post.take(worker, &mut self.mail);
        for letter in self.mail.drain(..) {
            self.waiting.entry(letter.connection).or_default().push(letter);
        }
        if self.mail.capacity() > LETTERS_KEPT_MAX {
            self.mail = Vec::new();
        }
    }

    /// Takes what there is for a connection.
    pub fn take_letters(
        &mut self,
        tracking: &Tracking,
        worker: usize,
        connection: usize,
    ) -> Option<Vec<Letter>> {
        self.take_mail(tracking, worker);
        self.waiting.remove(&connection)
    }
}

impl Letter {
    /// How much of it is there because keys were evicted, and the keys.
    pub fn evicted(&self) -> Option<&Arc<Keys>> {
        match &self.news {
            News::Keys(keys) if keys.evicted > 0 => Some(keys),
            _ => None,
        }
    }

    /// As this one, but about every key.
    pub fn about_all(&self) -> Letter {
        Letter { news: News::All, ..*self }
    }

    /// A RESP2 client hears of nothing that it did not subscribe to.
    pub fn write_to(&self, reply: &mut Reply, protocol: Protocol, subscribes: bool) {
        let is_resp3 = protocol == Protocol::Resp3;
        if let News::RedirectBroken(id) = self.news {
            if is_resp3 {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(id as i64);
            }
            return;
        }
        if is_resp3 {
            reply.push(2);
            reply.bulk(b"invalidate");
        } else if self.is_redirected && subscribes {
            reply.push(3);
            reply.bulk(b"message");
            reply.bulk(CHANNEL);
        } else {
            return;
        }
        match &self.news {
            News::Keys(keys) if keys.is_shared() => reply.raw_shared(Arc::clone(&keys.text)),
            News::Keys(keys) => reply.raw(&keys.text),
            News::All | News::RedirectBroken(_) => reply.null(),
        }
    }
}
