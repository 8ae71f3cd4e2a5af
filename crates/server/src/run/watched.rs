//! Calls that somebody watches: those whose keys are counted, those that are traced.

use kvasir_reactor::clock::{Ticks, ticks};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_resp::reply::Mark;
use kvasir_table::Entry;

use crate::calls::admit::Scene;
use crate::calls::invocation::Invocation;
use crate::calls::{hot_keys, tracing};
use crate::run::batch::Batch;
use crate::run::runner::Runner;
use crate::run::session::Session;
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::connection::trace::Begun;
use crate::stats::hot_keys::Watch;

/// A call of a batch, from its beginning on.
pub(super) struct Watched {
    hot: Option<Watch>,
    traced: Option<Begun>,
}

impl Runner<'_> {
    /// Before a call: whether anybody watches it.
    #[inline]
    pub(super) fn watch(
        &mut self,
        connection: &Connection,
        batch: &Batch,
        index: usize,
        call: &Invocation<'_>,
    ) -> Option<Watched> {
        if !self.shared.hot_keys.is_on() && !self.traces {
            return None;
        }
        let is_traced = self.traces && connection.trace.is_some();
        let traced = is_traced.then(|| {
            let keyspace = &self.shared.keyspace;
            tracing::begin(keyspace, self.pass.as_ref(), call, batch.parsed(index), self.came)
        });
        let hot = hot_keys::begin(self.shared, self.core);
        (hot.is_some() || traced.is_some()).then_some(Watched { hot, traced })
    }

    /// After it; its request and its reply have so many bytes.
    #[cold]
    pub(super) fn end_watch(
        &self,
        watched: Watched,
        connection: &mut Connection,
        call: &Invocation<'_>,
        lengths: [usize; 2],
    ) {
        if let Some(traced) = watched.traced {
            tracing::end(connection, traced, call.entry, call.args, 0);
        }
        if let Some(watch) = watched.hot {
            let scene = Scene { shared: self.shared, worker: self.worker, core: self.core };
            hot_keys::end(scene, watch, connection.db, call, lengths.iter().sum());
        }
    }
}

impl Session {
    /// Before it locks something: when that is, if its client is traced.
    pub(super) fn begin_locks(&self) -> Option<Ticks> {
        self.connection.trace.is_some().then(ticks)
    }

    pub(super) fn end_locks(&mut self, since: Option<Ticks>) {
        self.locks += since.map_or(0, |since| ticks().since(since).to_nanos());
    }

    /// The call that the session is for has ended, which is traced.
    pub(super) fn trace(&mut self, begun: Begun, entry: &'static Entry) {
        let (args, locks) = (ArgsBuf::from(self.args()), self.locks);
        tracing::end(&mut self.connection, begun, entry, args.as_args(), locks);
    }

    /// Whether the next call is one whose keys are counted: one of a script is a part of it.
    pub(super) fn watch(&mut self) -> Option<Watch> {
        let Worker { shared, core, .. } = &mut *self.worker;
        if core.env.is_in_script { None } else { hot_keys::begin(shared, core) }
    }

    /// Counts the keys of a call that has ended, if that is wanted. Its request was of so many
    /// bytes, or of those of its arguments if that is 0; its reply begins at the mark.
    pub(super) fn end_watch(
        &self,
        watch: Option<Watch>,
        entry: &'static Entry,
        args: Args<'_>,
        request: usize,
        mark: Mark,
    ) {
        let Some(watch) = watch else { return };
        let Worker { shared, index, core, .. } = &*self.worker;
        let request = if request > 0 { request } else { args.iter().map(<[u8]>::len).sum() };
        let bytes = request + self.connection.reply.len_since(mark);
        let scene = Scene { shared, worker: *index, core };
        let call = &Invocation::new(entry, args);
        hot_keys::end(scene, watch, self.connection.db, call, bytes);
    }
}
