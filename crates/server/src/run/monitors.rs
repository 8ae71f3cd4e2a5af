//! A worker gives its monitors what was told, at the end of a turn.

use std::sync::Arc;

use crate::run::worker::Worker;

impl Worker {
    /// Gives monitors of this worker what was told, and wakes those of others.
    #[inline]
    pub fn deliver_monitored(&mut self) {
        let monitors = &self.shared.monitors;
        let mut lines = Vec::new();
        monitors.post.take(self.index, &mut lines);
        if !lines.is_empty() {
            self.give_lines(&lines);
        }
        let workers = &self.shared.workers;
        monitors.post.wake_others(self.index, |worker| workers[worker].waker.wake());
    }

    #[cold]
    fn give_lines(&mut self, lines: &[Arc<Vec<u8>>]) {
        let all = self.connections.iter_mut().enumerate();
        let open = all.filter_map(|(index, connection)| Some((index, connection.as_deref_mut()?)));
        for (index, connection) in open {
            if connection.listening.is_monitor && !connection.is_closing {
                lines.iter().for_each(|line| connection.reply.raw(line));
                self.touched.push(index);
            }
        }
    }
}
