//! What one worker knows of tracking: messages for its connections, and the keys that it has
//! changed in this turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_resp::args::Args;
use kvasir_resp::reply::{Protocol, Reply};

use super::{Scene, Tracking};
use crate::config::aof::Fsync;
use crate::connection::Connection;
use crate::dispatch::Entry;
use crate::fence;
use crate::shared::Shared;
use crate::worker::{Core, Worker};

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
    waiting: BTreeMap<usize, Vec<Letter>>,
    /// Keys changed in this turn, and by which client first.
    changed: BTreeMap<Vec<u8>, u64>,
}

impl Local {
    pub fn note_change(&mut self, key: &[u8], by: u64) {
        if !self.changed.contains_key(key) {
            self.changed.insert(key.to_vec(), by);
        }
    }

    fn take_mail(&mut self, tracking: &Tracking, worker: usize) {
        tracking.post.take(worker, &mut self.mail);
        for letter in self.mail.drain(..) {
            self.waiting.entry(letter.connection).or_default().push(letter);
        }
    }

    /// Gives a connection that tracks what there is for it: before its call what is older, behind
    /// it what has come meanwhile.
    #[cold]
    pub fn catch_up(&mut self, tracking: &Tracking, worker: usize, connection: &mut Connection) {
        self.take_mail(tracking, worker);
        let letters = self.waiting.remove(&(connection.id.index as usize));
        letters.iter().flatten().for_each(|letter| connection.hear(letter));
    }
}

impl Connection {
    fn hear(&mut self, letter: &Letter) {
        if letter.client == self.client.id && !self.is_closing {
            self.wait_for(letter.fence);
            let (protocol, subscribes) = (self.protocol(), self.subscriptions.is_some());
            letter.write_to(self.messages(), protocol, subscribes);
        }
    }

    /// What CLIENT CACHING said is used up by any call but those of CLIENT, or by a transaction.
    #[inline]
    pub fn use_up_choice(&mut self, entry: Option<&Entry>) {
        if let Some(tracked) = &mut self.tracking
            && self.transaction.is_none()
            && !entry.is_some_and(|entry| entry.full_name.starts_with("client|"))
        {
            tracked.has_choice = false;
        }
    }

    /// Lists the client, if it tracks, for the keys that a call reads.
    #[inline]
    pub fn remember_keys(&self, scene: Scene<'_>, entry: &Entry, args: Args<'_>) {
        if let Some(tracked) = &self.tracking {
            scene.shared.tracking.remember(scene, tracked, entry, args);
        }
    }

    /// Has what was put aside behind a reply follow it.
    pub fn append_late(&mut self) {
        if let Some(mut late) = self.late.take() {
            self.reply.append(&mut late);
        }
    }
}

impl Letter {
    /// A RESP2 client hears of nothing that it did not subscribe to.
    fn write_to(&self, reply: &mut Reply, protocol: Protocol, subscribes: bool) {
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

impl Core {
    /// Has commands note changes if a client tracks. To be called whenever the gate was entered.
    #[inline]
    pub fn see_listeners(&mut self, shared: &Shared) {
        self.env.tracks = shared.tracking.count() > 0;
        self.env.logs = shared.keyspace.log.is_open();
        let all_wait = self.config.aof.appendfsync == Fsync::Always;
        self.env.fences =
            self.env.logs && shared.aof.counts() && (all_wait || shared.aof.demand.has_wishes());
    }
}

impl Worker {
    /// Tells of what was changed in this turn, gives every connection its messages, and wakes
    /// workers whose connections have got some.
    #[inline]
    pub fn deliver_invalidations(&mut self) {
        let (shared, index) = (self.shared, self.index);
        if !self.core.tracking.changed.is_empty() {
            let changed = std::mem::take(&mut self.core.tracking.changed);
            let place = (index, fence::of_news(&self.core));
            shared.tracking.broadcast(shared, place, &changed);
        }
        let local = &mut self.core.tracking;
        local.take_mail(&shared.tracking, index);
        if !local.waiting.is_empty() {
            self.give_letters();
        }
        shared.tracking.post.wake_others(shared, index);
    }

    #[cold]
    fn give_letters(&mut self) {
        for (index, letters) in std::mem::take(&mut self.core.tracking.waiting) {
            match self.connections.get_mut(index).and_then(Option::as_deref_mut) {
                Some(connection) => {
                    letters.iter().for_each(|letter| connection.hear(letter));
                    connection.append_late();
                    self.touched.push(index);
                }
                // Its script is busy: it gets them when that has ended.
                None if self.away.is_some() => {
                    self.core.tracking.waiting.insert(index, letters);
                }
                None => {}
            }
        }
    }
}
