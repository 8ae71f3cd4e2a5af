//! What one worker knows of tracking: messages for its connections, and the keys that it has
//! changed in this turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_resp::reply::{Protocol, Reply};

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
    /// The keys as an array of bulk strings.
    Keys(Arc<Vec<u8>>),
    /// Every key.
    All,
    /// The client that should have been told in this one's place has gone.
    RedirectBroken(u64),
}

#[derive(Default)]
pub struct Local {
    mail: Vec<Letter>,
    /// Taken from the post and not yet given, by connection.
    pub waiting: BTreeMap<usize, Vec<Letter>>,
    /// Keys changed in this turn, and by which client first.
    pub changed: BTreeMap<Vec<u8>, u64>,
}

impl Local {
    pub fn note_change(&mut self, key: &[u8], by: u64) {
        if !self.changed.contains_key(key) {
            self.changed.insert(key.to_vec(), by);
        }
    }

    pub fn take_mail(&mut self, tracking: &Tracking, worker: usize) {
        tracking.post.take(worker, &mut self.mail);
        for letter in self.mail.drain(..) {
            self.waiting.entry(letter.connection).or_default().push(letter);
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
            News::Keys(keys) => reply.raw(keys),
            News::All | News::RedirectBroken(_) => reply.null(),
        }
    }
}
