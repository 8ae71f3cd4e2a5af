//! What other threads ask of a worker.

use kvasir_structures::heap;
use kvasir_structures::locks::lock;

use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::workers::Message;

impl Worker {
    /// Does what other threads have asked of this worker.
    pub fn read_inbox(&mut self) {
        let inbox = &self.shared.workers[self.index].inbox;
        let messages = std::mem::take(&mut *lock(inbox));
        for message in messages {
            match message {
                Message::Adopt { socket, kind, place } => self.adopt(socket, kind, place),
                Message::Listen(change) => self.listen_as(change),
                Message::Kill(id) => self.kill(id),
                Message::EndWait(id, end) => self.end_wait_of(id, end),
                Message::EndWaits(end) => self.end_all_waits(end),
                Message::LogRestarted => self.forget_former_log(),
                Message::Unblock(served) => self.unblock(served),
                Message::CheckUser(user) => self.check_user(&user),
                Message::GiveBack => heap::give_back(),
                Message::Ranks(ranks) => self.keep_ranks(*ranks),
                Message::News(news) => self.spread(*news),
                Message::Sync(begun) => self.begin_sync(*begun),
                Message::SlotsChanged => {
                    self.look_at_slots();
                    // Who waited for a slot to be handed over goes on.
                    self.core.next_look_ms = self.core.next_look_ms.map(|_| 0);
                }
                Message::Look => self.tidy_interpreters(),
            }
        }
    }

    fn kill(&mut self, id: u64) {
        match self.index_of(id) {
            Some(index) => self.close(index),
            None => self.shared.replication.upstream.break_off(id, self.core.env.now_ms),
        }
    }

    /// The number of a client's connection.
    pub fn index_of(&self, id: u64) -> Option<usize> {
        let is_it = |connection: &Option<Box<Connection>>| {
            connection.as_ref().is_some_and(|connection| connection.client.id == id)
        };
        self.connections.iter().position(is_it)
    }
}
