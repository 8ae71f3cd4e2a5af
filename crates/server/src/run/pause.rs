//! Connections whose calls were put off go on: after a pause, or when what they wait for has come.

use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::store::aof::Aof;

/// How often those whose writes wait for the disk look whether it has caught up.
const DISK_LOOK_MS: u64 = 5;

impl Worker {
    /// Has connections whose calls were put off go on, if the pause is over, or it is time to look
    /// whether what they wait for has come.
    #[inline]
    pub fn end_pause(&mut self) {
        if !self.postponed.is_empty() && self.is_time_to_go_on() {
            for index in std::mem::take(&mut self.postponed) {
                if let Some(connection) = self.connections[index].as_deref_mut()
                    && connection.waiting.is_postponed
                {
                    connection.set_postponed(&self.shared.pause, false);
                    self.ready.push(index);
                }
            }
        }
    }

    fn is_time_to_go_on(&mut self) -> bool {
        let now_ms = self.core.env.now_ms;
        let looks_at_scripts = self.core.script_look_ms.take_if(|look_ms| *look_ms <= now_ms);
        looks_at_scripts.is_some() || self.pause_end_ms().is_none()
    }

    /// When connections of this worker may go on, if calls of some are put off.
    pub fn pause_end_ms(&self) -> Option<u64> {
        if self.postponed.is_empty() {
            return None;
        }
        let now_ms = self.core.env.now_ms;
        if self.core.script_look_ms.is_some() {
            return self.core.script_look_ms;
        }
        let current = self.shared.pause.current(now_ms).map(|(_, until_ms)| until_ms);
        let is_behind = Aof::is_behind(self.shared, self.core.config.aof.buffer_limit);
        current.or(is_behind.then_some(now_ms + DISK_LOOK_MS))
    }

    /// Forgets that calls of a connection that closes were put off.
    pub fn forget_pause(&mut self, connection: &mut Connection) {
        connection.set_postponed(&self.shared.pause, false);
    }
}
