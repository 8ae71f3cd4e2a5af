//! A call of a batch that needs a session, from the call's beginning to its reply.

use kvasir_reactor::clock;
use kvasir_resp::reply::Mark;
use kvasir_table::Entry;

use crate::calls::monitoring;
use crate::run::session::{Calling, Session, SessionRun};
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::connection::trace::Begun;
use crate::state::waits::Made;

/// A call that a batch came upon and that needs a session.
pub struct Start {
    pub entry: &'static Entry,
    pub run: SessionRun,
    pub connection: Box<Connection>,
    /// Which request of the batch it is.
    pub request: usize,
    /// Its reply is dropped: CLIENT REPLY.
    pub is_muted: bool,
    pub mark: Mark,
}

impl Start {
    /// Runs the call, answers it, and gives the worker back.
    pub fn run(mut self, worker: Box<Worker>) -> Box<Worker> {
        let since = clock::ticks();
        self.connection.in_session = true;
        let is_traced = self.connection.trace.is_some();
        let begun = is_traced.then(|| Begun::now(worker.batch.parsed(self.request), 0));
        let calling = Calling::Request(self.request);
        let mut session = Session::new(worker, self.connection, calling, Some(self.request), since);
        let goes_first = monitoring::runs_script(self.entry);
        if goes_first {
            session.feed_monitors(self.entry, session.args(), false);
        }
        let watch = session.watch();
        let (mut session, result) = (self.run)(session);
        if !goes_first {
            session.feed_monitors(self.entry, session.args(), false);
        }
        if let Err(error) = result {
            session.fail(self.entry, self.mark, &error);
        }
        session.now = clock::ticks();
        session.count(self.entry, session.args(), since);
        let request = session.worker.batch.requests[self.request].len;
        session.note_large(self.entry, session.args(), request, self.mark);
        session.end_watch(watch, self.entry, session.args(), request, self.mark);
        if let Some(begun) = begun {
            session.trace(begun, self.entry);
        }
        let (mut worker, mut connection) = session.end();
        if self.is_muted {
            connection.unmute(self.mark);
        }
        connection.unbound_reply();
        connection.in_session = false;
        connection.end_call();
        if let Some(waits) = connection.waiting.waits.as_deref_mut()
            && waits.is_for_key()
        {
            waits.made = Some(Made { entry: self.entry, len: request });
            let end = worker.batch.requests[self.request].end;
            connection.wire.stopped_at = Some(end);
        }
        connection.use_up_choice(Some(self.entry));
        worker.subscriber(&mut connection).catch_up();
        let index = connection.id.index as usize;
        worker.connections[index] = Some(connection);
        worker
    }
}
