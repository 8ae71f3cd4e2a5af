//! The times of a connection's calls, while somebody traces it.

use std::collections::VecDeque;
use std::sync::Arc;

use kvasir_keyspace::place::DbIndex;
use kvasir_reactor::clock::{self, Ticks, ticks};
use kvasir_table::Entry;

use crate::clients::Client;
use crate::clients::monitors::{By, head};
use crate::clients::traces::{Times, Trace, Traces, line};
use crate::state::connection::Connection;

/// Calls whose replies were not sent; of more nothing is told.
const PENDING_MAX: usize = 4096;

/// Who traces a connection, and calls that they were not told of.
#[derive(Default)]
pub struct Traced {
    by: Vec<Arc<Trace>>,
    pending: VecDeque<Pending>,
}

/// A call that was run.
pub struct Pending {
    pub entry: &'static Entry,
    pub words: Vec<Vec<u8>>,
    pub db: DbIndex,
    pub times: Times,
    /// When it began, in microseconds since 1970.
    pub began_us: u64,
    /// When its last part ended.
    pub since: Ticks,
    /// It waits for its answer.
    pub waits: bool,
    /// Its reply was given to the reactor.
    pub is_on_way: bool,
}

impl Connection {
    /// Looks who traces it now.
    #[cold]
    pub fn look_who_traces(&mut self, traces: &Traces) {
        let by = traces.of(&self.client, &self.access.user().name);
        match &mut self.trace {
            Some(trace) if !by.is_empty() || !trace.pending.is_empty() => trace.by = by,
            Some(_) => self.trace = None,
            None if by.is_empty() => {}
            None => self.trace = Some(Box::new(Traced { by, pending: VecDeque::new() })),
        }
    }

    /// Notes a call that was run.
    #[cold]
    pub fn add_traced(&mut self, pending: Pending) {
        let Some(trace) = &mut self.trace else { return };
        if trace.pending.len() >= PENDING_MAX {
            return trace.by.iter().for_each(|by| by.lose());
        }
        trace.pending.push_back(pending);
    }

    /// The call that waits has its answer.
    #[inline]
    pub fn note_answer(&mut self) {
        if let Some(trace) = &mut self.trace
            && let Some(last) = trace.pending.back_mut().filter(|last| last.waits)
        {
            let now = ticks();
            last.times.wait = now.since(last.since).to_nanos();
            (last.since, last.waits) = (now, false);
        }
    }

    /// What it has to say is given to the reactor.
    #[inline]
    pub fn note_hand_over(&mut self) {
        if let Some(trace) = &mut self.trace {
            let now = ticks();
            for call in trace.pending.iter_mut().filter(|call| !call.waits && !call.is_on_way) {
                call.times.fence = now.since(call.since).to_nanos();
                (call.since, call.is_on_way) = (now, true);
            }
        }
    }

    /// What was given to the reactor is sent: tells of the calls that it has answered.
    #[inline]
    pub fn tell_sent(&mut self, traces: &Traces, worker: usize) {
        if let Some(trace) = &mut self.trace {
            trace.tell_sent(&self.client, traces, worker);
        }
    }

    /// Traces nobody any more.
    pub fn stop_tracing(&mut self, traces: &Traces) {
        if std::mem::take(&mut self.listening.is_tracer) {
            traces.end(self.client.id);
        }
    }
}

impl Traced {
    #[cold]
    fn tell_sent(&mut self, client: &Client, traces: &Traces, worker: usize) {
        let now = ticks();
        while let Some(mut call) = self.pending.pop_front_if(|call| call.is_on_way) {
            call.times.send = now.since(call.since).to_nanos();
            let head = head(call.began_us, By::Client(client), call.db);
            let line = line(head, client.id, &call.entry.full_name, &call.words, &call.times);
            let line = Arc::new(line);
            self.by.iter().for_each(|by| traces.tell(worker, by, &line));
        }
    }
}

/// When a request was parsed.
#[derive(Clone, Copy)]
pub struct Parsing {
    pub began: Ticks,
    pub ended: Ticks,
}

/// A call that is traced, from its beginning on.
#[derive(Clone, Copy)]
pub struct Begun {
    pub times: Times,
    pub began_us: u64,
    /// When its execution began.
    pub since: Ticks,
}

impl Begun {
    /// Of a call that begins now, which was parsed in that time.
    pub fn now(parsed: Option<Parsing>, locks: u64) -> Begun {
        let since = ticks();
        let mut times = Times { locks, ..Times::default() };
        if let Some(Parsing { began, ended }) = parsed {
            times.parse = ended.since(began).to_nanos();
            times.queue = since.since(ended).to_nanos().saturating_sub(locks);
        }
        Begun { times, began_us: clock::now_unix_us(), since }
    }
}
