//! A worker gives those who trace clients what was told of their calls, at the end of a turn.

use crate::run::worker::Worker;

/// Who has more than this to read gets no more lines.
const OUTPUT_MAX: usize = 1 << 20;

impl Worker {
    /// Gives tracers of this worker what was told, and wakes those of others.
    #[inline]
    pub fn deliver_traced(&mut self) {
        let traces = &self.shared.traces;
        let mut letters = Vec::new();
        traces.post.take(self.index, &mut letters);
        // Lines that stand together are for the same one as a rule.
        let mut last = (0, None);
        for (trace, line) in letters {
            trace.arrive();
            if last.0 != trace.tracer {
                last = (trace.tracer, self.index_of(trace.tracer));
            }
            let Some(index) = last.1 else { continue };
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            if !connection.listening.is_tracer || connection.is_closing {
                continue;
            }
            if connection.output_bytes() > OUTPUT_MAX {
                trace.lose();
                continue;
            }
            if let Some(lost) = trace.take_lost() {
                connection.reply.raw(lost.as_bytes());
            }
            connection.reply.raw(&line);
            self.touched.push(index);
        }
        let workers = &self.shared.workers;
        traces.post.wake_others(self.index, |worker| workers[worker].waker.wake());
    }
}
