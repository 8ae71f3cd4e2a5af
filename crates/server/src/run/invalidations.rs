//! A worker tells of the keys that it has changed, and gives its connections what they are told, at
//! the end of a turn.

use kvasir_pubsub::post::Origin;

use crate::calls::fence;
use crate::run::worker::Worker;

impl Worker {
    /// Tells of what was changed in this turn, gives every connection its messages, and wakes
    /// workers whose connections have got some.
    #[inline]
    pub fn deliver_invalidations(&mut self) {
        let (shared, index) = (self.shared, self.index);
        if !self.core.tracking.changed.is_empty() {
            let changed = std::mem::take(&mut self.core.tracking.changed);
            let origin = Origin { worker: index, fence: fence::of_news(&self.core) };
            shared.tracking.broadcast(&shared.clients, origin, &changed);
            drop(changed);
            self.core.tracking.forget_changes();
        }
        let local = &mut self.core.tracking;
        local.take_mail(&shared.tracking, index);
        if !local.waiting.is_empty() {
            self.give_letters();
        }
        shared.tracking.post.wake_others(index, |worker| shared.workers[worker].waker.wake());
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
