//! A connection that tracks keys.

use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::state::connection::Connection;
use crate::tracking::local::Letter;
use crate::tracking::{Scene, Tracking};

impl Connection {
    pub fn hear(&mut self, letter: &Letter) {
        if letter.client == self.client.id && !self.is_closing {
            self.wait_for(letter.fence);
            let (protocol, subscribes) = (self.protocol(), self.listening.subscriptions.is_some());
            letter.write_to(self.messages(), protocol, subscribes);
        }
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
