//! A worker: one thread, one reactor, its connections; turn after turn.
//!
//! A turn takes every completion there is, parses every complete request, executes them as one
//! batch inside the gate, and sends one payload per connection.

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::replication::Quorum;
use kvasir_reactor::{Buffer, ConnectionId, Event, ListenerId, Payload, Reactor, signal};
use kvasir_resp::request::Limits;

use crate::calls::own_keys::Walk;
use crate::calls::{evict, notifications};
use crate::clients::Client;
use crate::clients::tracker::NOBODY;
use crate::log::warning;
use crate::net::input::Input;
use crate::net::listen::{ListenerKind, Open};
use crate::net::tls::transport::Handshakes;
use crate::run::batch::{Batch, Data, Parse, Source};
use crate::run::cron::Cron;
use crate::run::held_back::HeldBack;
use crate::run::runner::{Position, Runner};
use crate::run::scripting::busy::Away;
use crate::run::scripting::interpreters::Interpreters;
use crate::run::server::ServerCommands;
use crate::state::connection::{Connection, find};
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::workers::Message;
use crate::workers::ranks::Ranks;

/// A payload of this size may not be sent at once, so its end is reported as soon as it comes.
const REPORTED_BYTES_MIN: usize = 128 * 1024;
/// Emptied reply buffers kept for the next replies, and how large one may be.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 * 1024;
/// How often it is tried to do what a busy script has held up.
pub const BUSY_RETRY: Duration = Duration::from_millis(20);

/// Where connections come in, and of what kind they are.
pub struct Listening {
    pub id: ListenerId,
    pub kind: ListenerKind,
    /// By which `Shared::listeners` knows it.
    pub number: u64,
}

pub struct Worker {
    pub index: usize,
    pub shared: &'static Shared,
    pub commands: ServerCommands,
    pub reactor: Reactor,
    pub connections: Vec<Option<Box<Connection>>>,
    pub listeners: Vec<Listening>,
    pub core: Core,
    pub interpreters: Interpreters,
    /// The connection whose script is busy, while others are served.
    pub away: Option<Away>,
    pub cron: Cron,
    pub events: Vec<Event>,
    pub batch: Batch,
    /// Connections with requests left from the last turn.
    pub ready: Vec<usize>,
    /// Connections whose calls are put off by CLIENT PAUSE.
    pub postponed: Vec<usize>,
    /// What is kept when the pause is over.
    pub ranks_put_off: Vec<Ranks>,
    /// Connections above the soft limit of their output, and when to look at them.
    pub over_soft: BTreeSet<usize>,
    pub next_soft_look_ms: u64,
    /// The configuration whose limits its connections' output was last held against, all of it.
    pub limited_for: u64,
    /// The limit on the memory of clients that its connections are counted for.
    pub counted_for: usize,
    /// Connections whose replies or state want a look after the batch.
    pub touched: Vec<usize>,
    pub handshakes: Handshakes,
    /// Somebody waits for the report of a send, which may only come with another event: look for
    /// it without waiting.
    awaits_report: bool,
    pub spare: Vec<Vec<u8>>,
    pub held_back: HeldBack,
    /// Connections in reserved places, and until when each has to show that it may have one.
    pub on_trial: VecDeque<(u64, ConnectionId)>,
    pub own_keys: Walk,
}

impl Worker {
    /// Called on the worker's own thread.
    pub fn new(
        index: usize,
        shared: &'static Shared,
        commands: ServerCommands,
        reactor: Reactor,
    ) -> Box<Worker> {
        Box::new(Worker {
            interpreters: Interpreters::default(),
            away: None,
            index,
            shared,
            commands,
            reactor,
            connections: Vec::new(),
            listeners: Vec::new(),
            core: Core::new(shared, index),
            cron: Cron::new(index),
            events: Vec::new(),
            batch: Batch::default(),
            ready: Vec::new(),
            postponed: Vec::new(),
            ranks_put_off: Vec::new(),
            over_soft: BTreeSet::new(),
            next_soft_look_ms: 0,
            limited_for: 0,
            counted_for: 0,
            touched: Vec::new(),
            handshakes: Handshakes::default(),
            awaits_report: false,
            spare: Vec::new(),
            held_back: HeldBack::new(&shared.replication),
            on_trial: VecDeque::new(),
            own_keys: Walk::default(),
        })
    }

    /// Accepts connections there.
    pub fn listen(&mut self, open: Open) {
        let Open { listener, kind, number } = open;
        let id = self.reactor.listen(listener);
        self.listeners.push(Listening { id, kind, number });
    }

    /// Serves until the server stops. The worker is handed around whole, since a session takes it.
    pub fn run(self: Box<Worker>) -> std::io::Result<()> {
        let mut worker = self;
        while !worker.shared.is_stopping.load(Relaxed) {
            worker = worker.step()?;
        }
        Ok(())
    }

    /// One turn, with the wait for what it is about.
    pub fn step(mut self: Box<Worker>) -> std::io::Result<Box<Worker>> {
        self.wait()?;
        let mut worker = self.turn();
        worker.do_chores();
        Ok(worker)
    }

    /// Waits for events.
    fn wait(&mut self) -> std::io::Result<()> {
        let timeout = self.timeout();
        self.awaits_report = false;
        self.reactor.wait(timeout, &mut self.events)?;
        self.heed_signal();
        self.core.refresh(self.shared);
        self.shared.workers[self.index].stats.cycles.add(1);
        self.shared.look_around(self.core.env.now_ms);
        Ok(())
    }

    /// What is due between turns.
    fn do_chores(&mut self) {
        if !self.shared.is_at_rest(self.core.env.now_ms) {
            evict::keep_limit(self.shared, self.index, &mut self.core);
            notifications::tell(self.shared, self.index, &mut self.core, NOBODY);
        }
        self.cron.run(self.shared, &mut self.core);
        self.expire_own_keys();
        self.flush_when_due();
        self.give_up_slots();
        self.serve_left(NOBODY);
        self.answer_served();
        self.go_on_dumping();
        self.send_held_back();
        self.close_gone();
        self.end_trials();
        self.shake_hands();
        self.end_handshakes();
        self.end_pause();
        self.end_waits();
        self.limit_slow_readers();
        self.evict_clients();
        self.close_idle();
        self.collect_garbage();
        self.publish_tally();
        self.tend_failover();
        self.tend_ending();
        self.feed_links();
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty()
            || !self.events.is_empty()
            || self.awaits_report
            || self.held_back.is_behind
            || self.handshakes.is_waiting()
            || self.core.evicting.is_behind()
            || self.interpreters.have_garbage
        {
            return Some(Duration::ZERO);
        }
        let has_left = !self.core.tally.ready.is_empty();
        let next_serving = has_left.then_some(BUSY_RETRY);
        let has_connections = self.connections.iter().any(Option::is_some);
        let until = |ms: u64| Duration::from_millis(ms.saturating_sub(self.core.env.now_ms));
        let next_wait = self.core.deadlines.next_ms().map(until);
        let next_task = self.cron.timeout(self.shared, &self.core, has_connections);
        let next_handshake = self.handshakes.next_ms().map(until);
        // A script has kept the data from being saved.
        let next_stop = signal::shutdown_requested().map(|_| BUSY_RETRY);
        let next_flush = self.next_flush_ms().map(until);
        let next_look = [self.pause_end_ms(), self.next_soft_look_ms()].map(|ms| ms.map(until));
        let next_own = self.own_keys_look_ms().map(until);
        let next_gone = self.held_back.next_gone_ms().map(until);
        let next_verdict = self.next_verdict_ms().map(until);
        let own = [next_wait, next_task, next_handshake, next_serving, next_stop, next_own];
        let others = [self.links_timeout(), self.give_up_timeout(), self.dump_timeout()];
        own.into_iter()
            .chain(others)
            .chain([next_flush, next_gone, next_verdict])
            .chain(next_look)
            .flatten()
            .min()
    }

    fn turn(mut self: Box<Worker>) -> Box<Worker> {
        self.gather();
        if !self.batch.sources.is_empty() {
            self = self.run_batch();
            self.finish_sources();
            self.shared.freeing.tidy_later();
            self.answer_served();
        }
        // Who has a reply in hand finds it counted.
        self.publish_tally();
        self.flush_touched();
        self
    }

    /// Takes the events in, and parses what they brought.
    pub fn gather(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.take(event, &mut batch);
        }
        self.events = events;
        // They have had a share of the last turn: whoever is new comes first.
        for connection in std::mem::take(&mut self.ready) {
            self.add_own_source(&mut batch, connection);
        }
        self.parse(&mut batch);
        self.batch = batch;
    }

    fn run_batch(mut self: Box<Worker>) -> Box<Worker> {
        let mut position = Position::default();
        loop {
            let batch = std::mem::take(&mut self.batch);
            let start = Runner::new(&mut self, &batch).run(&batch, &mut position);
            self.batch = batch;
            match start {
                Some(start) => self = start.run(self),
                None => break,
            }
        }
        self.shared.workers[self.index].stats.batches.add(1);
        self
    }

    /// Sends what the connections have to say that the turn has touched, published messages
    /// included.
    pub fn flush_touched(&mut self) {
        self.deliver_publications();
        self.deliver_invalidations();
        self.deliver_monitored();
        self.deliver_traced();
        for connection in std::mem::take(&mut self.touched) {
            self.flush(connection);
        }
    }

    fn take(&mut self, event: Event, batch: &mut Batch) {
        let Some(event) = self.keep_for_away(event) else { return };
        match event {
            Event::Received { connection, buffer } => self.receive(connection, buffer, batch),
            Event::Sent { connection, payload, result } => {
                self.sent(connection, payload, result.is_ok());
            }
            Event::Closed { connection, error } => {
                self.hear_goodbye(connection, error.is_some(), batch);
            }
            Event::Accepted { listener, socket } => self.accept(listener, socket),
            // It is closed elsewhere, and the message that says so is under way.
            Event::AcceptFailed { error, .. } if error.kind() == ErrorKind::InvalidInput => {}
            Event::AcceptFailed { error, .. } => {
                warning!("accept failed error={error}");
            }
            Event::Connected { .. } => unreachable!("no worker has begun a connection"),
            Event::Woken => self.read_inbox(),
        }
    }

    /// Adds received bytes to the batch: uncopied if they are all that the connection has.
    fn receive(&mut self, id: ConnectionId, buffer: Buffer, batch: &mut Batch) {
        let index = id.index as usize;
        let Some(connection) = find(&mut self.connections, id) else {
            return self.reactor.recycle(buffer);
        };
        self.shared.workers[self.index].stats.reads.add(1);
        if connection.is_closing {
            return self.reactor.recycle(buffer);
        }
        if connection.wire.tls.is_some() {
            return self.receive_records(index, buffer, batch);
        }
        let received = self.reactor.bytes(&buffer);
        self.shared.workers[self.index].stats.input_bytes.add(received.len() as u64);
        Client::add(&connection.client.received_bytes, received.len() as u64);
        if connection.is_stalled() {
            connection.keep_input(received);
            self.reactor.recycle(buffer);
            return self.limit_input(index, true);
        }
        if connection.wire.input.is_empty() && !connection.wire.in_round {
            connection.wire.in_round = true;
            batch.sources.push(Source::new(id, Data::Direct(buffer)));
            return;
        }
        if connection.wire.in_round && connection.wire.input.is_empty() {
            self.copy_direct_source(index, batch);
        }
        let connection = self.connections[index].as_deref_mut().expect("just looked at");
        connection.wire.input.append(self.reactor.bytes(&buffer));
        self.reactor.recycle(buffer);
        self.add_own_source(batch, index);
    }

    /// A second buffer came for a connection in one turn: the first must stand before it.
    fn copy_direct_source(&mut self, index: usize, batch: &mut Batch) {
        let of_connection = |source: &Source| source.connection.index as usize == index;
        let Some(at) = batch.sources.iter().position(of_connection) else { return };
        let connection = self.connections[index].as_deref_mut().expect("it has a source");
        let own = Data::Own(Input::default());
        let source = std::mem::replace(&mut batch.sources[at].data, own);
        if let Data::Direct(buffer) = source {
            connection.wire.input.append(self.reactor.bytes(&buffer));
            self.reactor.recycle(buffer);
        }
    }

    pub fn add_own_source(&mut self, batch: &mut Batch, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        if !connection.wire.in_round {
            connection.wire.in_round = true;
            batch.sources.push(Source::new(connection.id, Data::Own(Input::default())));
        }
    }

    fn parse(&mut self, batch: &mut Batch) {
        for source in 0..batch.sources.len() {
            let index = batch.sources[source].connection.index as usize;
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            if let Data::Own(input) = &mut batch.sources[source].data {
                *input = std::mem::take(&mut connection.wire.input);
            }
            if self.shared.traces.is_on() || connection.trace.is_some() {
                connection.look_who_traces(&self.shared.traces);
            }
            let limits =
                Limits { authenticated: connection.access.is_authenticated(), ..self.core.limits };
            let item_size_max = self.core.config.memcached.item_size_max as usize;
            let with = Parse { reactor: &self.reactor, shared: self.shared, limits: &limits };
            batch.parse(source, connection, with, item_size_max);
            if connection.reply.is_empty() && !connection.output.is_sending {
                connection.reply.give_back(self.spare.pop().unwrap_or_default());
            }
            self.touched.push(index);
        }
    }

    /// Keeps what was not executed and gives the rest of the memory back.
    pub fn finish_sources(&mut self) {
        let mut sources = std::mem::take(&mut self.batch.sources);
        for source in sources.drain(..).filter(|source| !source.is_released) {
            let Source { connection: id, data, consumed, mut has_more, .. } = source;
            // Its place may have another one by now, if a script was busy.
            let connection = find(&mut self.connections, id);
            let Some(connection) = connection else {
                data.into_rest(consumed, &mut self.reactor);
                continue;
            };
            has_more |= connection.wire.stopped_at.is_some();
            // It came while a script of this connection was busy.
            has_more |= !connection.wire.input.is_empty();
            let consumed = connection.used_up_to(consumed);
            connection.put_back(data.into_rest(consumed, &mut self.reactor));
            let (index, has_ended) = (id.index as usize, connection.wire.has_ended);
            connection.wire.in_round = false;
            connection.client.input_bytes.store(connection.wire.input.len(), Relaxed);
            if connection.waiting.is_postponed {
                self.postponed.push(index);
            } else if has_more && !connection.is_closing && connection.waiting.waits.is_none() {
                self.ready.push(index);
            }
            if has_ended {
                self.see_off(index, has_more);
            }
            self.limit_input(index, has_more);
            self.count_memory(index);
        }
        self.batch.sources = sources;
        self.batch.give_back();
    }

    /// Sends what a connection has to say, unless a payload is under way; then closes it if that
    /// was its last word.
    pub fn flush(&mut self, index: usize) {
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        connection.output.is_dirty = false;
        if self.limit_output(index) {
            return;
        }
        self.count_memory(index);
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        if connection.output.is_sending {
            self.awaits_report |= connection.has_output();
            return;
        }
        if self.holds_back(index) {
            return;
        }
        let Some(connection) = self.connections[index].as_deref_mut() else { return };
        connection.note_hand_over();
        if connection.wire.tls.is_some() {
            return self.flush_records(index);
        }
        if connection.reply.is_empty() {
            connection.tell_sent(&self.shared.traces, self.index);
            if connection.is_closing {
                return self.close(index);
            }
            let (unused, _) = connection.reply.take();
            return self.spare(unused);
        }
        let (bytes, shared) = connection.reply.take();
        connection.listening.hand_over_news();
        connection.output.is_sending = true;
        let stats = &self.shared.workers[self.index].stats;
        let length = bytes.len() + shared.iter().map(|(_, chunk)| chunk.len()).sum::<usize>();
        connection.output.sending_bytes = length;
        stats.output_bytes.add(length as u64);
        if connection.link.is_some() {
            stats.stream_bytes.add(length as u64);
        }
        Client::add(&connection.client.sent_bytes, length as u64);
        stats.writes.add(1);
        let payload = Payload { bytes, shared };
        let is_long = length >= REPORTED_BYTES_MIN;
        connection.client.output_bytes.store(if is_long { length } else { 0 }, Relaxed);
        let has_more = connection.has_more_to_say();
        let is_traced = connection.trace.is_some();
        if let Some(ring) = connection.output.ring.take()
            && !connection.is_closing
        {
            self.reactor.open_ring(connection.id, *ring, payload);
        } else if connection.is_closing || is_long || has_more || is_traced {
            // Its report is what the connection waits for to be closed or to be given more, and
            // what says that memory is free again.
            self.reactor.send(connection.id, payload);
        } else {
            self.reactor.send_quietly(connection.id, payload);
        }
    }

    fn sent(&mut self, id: ConnectionId, payload: Payload, is_ok: bool) {
        let index = id.index as usize;
        let Some(connection) = find(&mut self.connections, id) else {
            return self.spare(payload.bytes);
        };
        connection.output.is_sending = false;
        connection.output.sending_bytes = 0;
        let told_of_eviction = connection.end_news();
        connection.tell_sent(&self.shared.traces, self.index);
        let is_link = connection.link.is_some();
        if !told_of_eviction {
            // Kept, such a buffer would count as memory in use from now on.
            self.spare(payload.bytes);
        }
        match (is_ok, is_link) {
            (true, true) => self.feed(index),
            (true, false) => self.flush(index),
            (false, _) => self.close(index),
        }
    }

    /// Keeps an emptied buffer for the next reply.
    pub fn spare(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && (1..=SPARE_BYTES_MAX).contains(&bytes.capacity()) {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Forgets a connection; what it still had to send is dropped.
    pub fn close(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        self.forget_wait(&connection);
        if connection.durability.is_held_back {
            self.held_back.forget(index);
            self.count_held_back();
        }
        self.shared.analytics.forget(connection.client.id);
        if let Some(node) = &self.shared.cluster {
            node.handovers.forget(connection.client.id);
        }
        connection.set_durability(self.shared, None, Quorum::default());
        self.forget_subscriptions(&mut connection);
        self.forget_pause(&mut connection);
        self.uncount_memory(&mut connection);
        self.forget_link(&mut connection);
        self.shared.tracking.stop(&mut connection.listening.tracking);
        connection.set_monitor(&self.shared.monitors, self.index, false);
        connection.stop_tracing(&self.shared.traces);
        connection.unwatch(&self.shared.keyspace);
        self.reactor.close(connection.id);
        self.shared.clients.remove(connection.client.id);
        if connection.client.ring_bytes.swap(0, Relaxed) > 0 {
            // Here, not where it is forgotten: another thread may do that before it has its ring.
            self.shared.clients.give_ring_back();
        }
        self.shared.freeing.tidy_later();
        self.shared.workers[self.index].connection_count.fetch_sub(1, Relaxed);
    }

    /// Moves what the turn counted to where INFO finds it.
    pub fn publish_tally(&mut self) {
        let (tally, stats) = (&mut self.core.tally, &self.shared.workers[self.index].stats);
        stats.hits.add(std::mem::take(&mut tally.hits));
        stats.misses.add(std::mem::take(&mut tally.misses));
        stats.expired.add(std::mem::take(&mut tally.expired));
        stats.evicted.add(std::mem::take(&mut tally.evicted));
        stats.fields_expired.add(std::mem::take(&mut tally.fields_expired));
        stats.changes.add(std::mem::take(&mut tally.changes));
        self.shared.aof.wake_for(&self.shared.keyspace.log, &self.core.env);
        self.shared.replication.wake_for(self.shared);
        if !tally.garbage.is_empty() {
            self.shared.freeing.free(tally.garbage.drain(..));
        }
        if std::mem::take(&mut tally.noted_expiry) && !self.shared.has_expiries.swap(true, Relaxed)
        {
            self.shared.send(0, Message::Look);
        }
    }
}
