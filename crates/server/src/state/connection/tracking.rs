//! A connection that tracks keys.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_resp::args::Args;
use kvasir_structures::heap::Exempt;
use kvasir_table::Entry;

use crate::state::connection::{Connection, Listening};
use crate::tracking::local::{Keys, Letter};
use crate::tracking::{Scene, Tracking};

/// So many bytes about evicted keys may wait to be sent: they are not counted for `maxmemory`.
const WAITING_MAX: usize = 1 << 20;

/// What a connection is told of evicted keys, until it is sent.
#[derive(Default)]
pub struct EvictedNews {
    /// In the reply, and with who sends it.
    written: Part,
    sending: Part,
    /// It is told to forget all at this point, so it has no key that was evicted since.
    forgets_all_behind: Option<u64>,
}

impl EvictedNews {
    fn waiting(&self) -> usize {
        self.written.bytes + self.sending.bytes
    }
}

#[derive(Default)]
struct Part {
    bytes: usize,
    /// What is sent from where it lies, and the memory of buffers that grew for the rest.
    texts: Vec<Arc<Keys>>,
    buffers: Exempt,
}

impl Listening {
    /// What was written is given to who sends it.
    #[inline]
    pub fn hand_over_news(&mut self) {
        if let Some(evicted) = &mut self.evicted {
            let written = std::mem::take(&mut evicted.written);
            evicted.sending.take_over(written);
        }
    }
}

impl Part {
    fn add(&mut self, grown: usize, keys: Option<&Arc<Keys>>) {
        if grown > 0 {
            self.buffers.set(self.buffers.bytes() + grown);
        }
        if let Some(keys) = keys {
            self.bytes += keys.evicted_bytes();
            if keys.is_shared() {
                self.texts.push(Arc::clone(keys));
            }
        }
    }

    fn take_over(&mut self, mut other: Part) {
        self.bytes += other.bytes;
        self.texts.append(&mut other.texts);
        if other.buffers.bytes() > 0 {
            self.buffers.set(self.buffers.bytes() + other.buffers.bytes());
        }
    }

    fn is_empty(&self) -> bool {
        self.bytes == 0 && self.buffers.bytes() == 0
    }
}

impl Connection {
    pub fn hear(&mut self, letter: &Letter) {
        if letter.client == self.client.id && !self.is_closing {
            self.wait_for(letter.fence);
            match letter.evicted() {
                Some(keys) => self.hear_of_eviction(letter, keys),
                None => self.write_letter(letter),
            }
        }
    }

    fn write_letter(&mut self, letter: &Letter) {
        let (protocol, subscribes) = (self.protocol(), self.listening.subscriptions.is_some());
        letter.write_to(self.messages(), protocol, subscribes);
    }

    /// Who reads too slowly for what is evicted is told to forget everything instead, once for all
    /// that is evicted before anything else is said.
    #[cold]
    fn hear_of_eviction(&mut self, letter: &Letter, keys: &Arc<Keys>) {
        let mut evicted = self.listening.evicted.take();
        let waiting = evicted.as_ref().map_or(0, |evicted| evicted.waiting());
        let forgets_all = waiting + keys.evicted_bytes() > WAITING_MAX;
        let forgot = evicted.as_ref().and_then(|evicted| evicted.forgets_all_behind);
        if !(forgets_all && forgot == Some(self.said_bytes())) {
            let before = self.messages().buffer_bytes();
            let said_before = self.said_bytes();
            match forgets_all {
                true => self.write_letter(&letter.about_all()),
                false => self.write_letter(letter),
            }
            let grown = self.messages().buffer_bytes().saturating_sub(before);
            let said = self.said_bytes();
            // A RESP2 client may hear of nothing.
            if said > said_before {
                let evicted = evicted.get_or_insert_default();
                evicted.written.add(grown, (!forgets_all).then_some(keys));
                evicted.forgets_all_behind = forgets_all.then_some(said);
            }
        }
        self.listening.evicted = evicted;
    }

    /// How much it was told and is to be told, up to now.
    fn said_bytes(&self) -> u64 {
        let late = self.listening.late.as_ref().map_or(0, |late| late.len());
        self.client.sent_bytes.load(Relaxed) + (self.reply.len() + late) as u64
    }

    /// That was sent. Says whether there was something about evicted keys in it.
    #[inline]
    pub fn end_news(&mut self) -> bool {
        if self.listening.evicted.is_none() {
            return false;
        }
        self.drop_sent_news()
    }

    #[cold]
    fn drop_sent_news(&mut self) -> bool {
        let is_all = self.has_sent_all() && self.listening.late.is_none();
        // Of what is encrypted nobody knows whose bytes were sent.
        let is_known = self.wire.tls.is_none();
        let Some(evicted) = self.listening.evicted.as_deref_mut() else { return false };
        let was_there = !evicted.sending.is_empty();
        if is_known {
            evicted.sending = Part::default();
        }
        if is_all {
            self.listening.evicted = None;
        }
        was_there
    }

    /// What CLIENT CACHING said is used up by any call but those of CLIENT, or by a transaction.
    #[inline]
    pub fn use_up_choice(&mut self, entry: Option<&Entry>) {
        if let Some(tracked) = &mut self.listening.tracking
            && self.multi.transaction.is_none()
            && !entry.is_some_and(|entry| entry.full_name.starts_with("client|"))
        {
            tracked.has_choice = false;
        }
    }

    /// Lists the client, if it tracks, for the keys that a call reads.
    #[inline]
    pub fn remember_keys(
        &self,
        tracking: &Tracking,
        scene: Scene<'_>,
        entry: &Entry,
        args: Args<'_>,
    ) {
        if let Some(tracked) = &self.listening.tracking {
            tracking.remember(scene, tracked, entry, args);
        }
    }

    /// Has what was put aside behind a reply follow it.
    pub fn append_late(&mut self) {
        if let Some(mut late) = self.listening.late.take() {
            self.reply.append(&mut late);
        }
    }
}
