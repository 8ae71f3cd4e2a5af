//! What a change of the cluster does to this server: whose data it has, which slots are its own,
//! and calls on slots that move.

use kvasir_cluster::output::Action;
use kvasir_cluster::slots::SlotSet;
use kvasir_keyspace::database::{DbIndex, Place};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::slot_keys::give_up_slot;
use kvasir_pubsub::Kind;
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_structures::gate::ExclusivePass;
use kvasir_table::Entry;

use crate::calls::routing::{self, Route, Wish};
use crate::calls::{blocking, notifications};
use crate::clients::pause::{Purpose, Scope};
use crate::clients::tracker::NOBODY;
use crate::cluster::Node;
use crate::run::session::Session;
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::shared::Shared;
use crate::store::replication::role;
use crate::store::replication::upstream::Primary;
use crate::workers::Message;
use crate::workers::news::{Item, News};

/// Keys deleted under one lock.
const BATCH: usize = 128;

/// Does what the state machine wants of the server, with the gate closed.
pub fn settle(shared: &'static Shared, node: &Node, alone: &ExclusivePass<'_>, now_ms: u64) {
    let (actions, routes_changed) = node.take_server_todo();
    let (mut news, mut has_paused) = (News::default(), false);
    for action in actions {
        match action {
            Action::Follow { ip, port, .. } => {
                let primary = Primary { host: ip, port };
                if shared.replication.upstream.primary().as_ref() != Some(&primary) {
                    role::become_replica(shared, primary, now_ms);
                }
            }
            Action::BecomePrimary => {
                if shared.replication.upstream.is_replica() {
                    role::become_primary(shared, alone, now_ms);
                }
            }
            Action::DeleteKeys(slots) => {
                let slots: SlotSet = slots.into_iter().collect();
                shared.send(0, Message::GiveUpSlots(Box::new(slots)));
            }
            Action::Flush => {
                let slots: SlotSet = (0..kvasir_cluster::slots::SLOTS).collect();
                shared.send(0, Message::GiveUpSlots(Box::new(slots)));
            }
            Action::PauseWrites { until_ms } => {
                has_paused = true;
                shared.pause.begin(Purpose::Failover, (Scope::Writes, until_ms), now_ms);
                shared.send_all(|| Message::Look);
            }
            Action::Unpause => {
                shared.pause.end(Purpose::Failover);
                shared.send_all(|| Message::Look);
            }
            Action::Publish { channel, message, is_sharded } => {
                let kind = if is_sharded { Kind::ShardChannel } else { Kind::Channel };
                news.items.push(Item::Message(kind, channel, message));
            }
            Action::Connect { .. } | Action::Send { .. } | Action::Close(_) => {}
        }
    }
    if has_paused {
        // With the gate closed nobody writes, so that is how far it will be.
        let offset = shared.keyspace.log.end();
        node.change(|cluster| cluster.writes_are_paused(offset, now_ms));
    }
    if !news.is_empty() {
        shared.send(0, Message::News(Box::new(news)));
    }
    if routes_changed {
        let cluster = node.look();
        if node.routes.differ(&cluster) {
            node.routes.publish(&cluster);
            drop(cluster);
            // Who waits for keys, or listens to channels, of slots that are another's hears of it.
            shared.send_all(|| Message::SlotsChanged);
        }
    }
}

/// A call of a client on a slot that moves: with its keys held it is known which of them are here.
pub fn run_moving(mut session: Session) -> (Session, Result<(), Error>) {
    let result = hold_and_call(&mut session);
    (session, result)
}

fn hold_and_call(session: &mut Session) -> Result<(), Error> {
    let shared = session.shared();
    let args: ArgsBuf = session.args().iter().collect();
    let entry = shared.table.resolve(args.as_args()).map_err(|_| Error::SYNTAX)?;
    session.hold_own_keys(|args, db| {
        let mut keys: Vec<KeyAt> = Vec::new();
        // A malformed call fails when it runs.
        let _ = crate::calls::planning::plan_keys(entry, args, db, &shared.keyspace, &mut keys);
        keys
    })?;
    let wish = Wish::of(&session.connection, entry);
    session.check_routes(wish, [(entry, args.as_args())].into_iter())?;
    session.call(entry, args.as_args())
}

impl Session {
    /// Fails if keys of these calls, which are held, are not here to be used.
    pub fn check_routes<'a>(
        &self,
        wish: Wish,
        calls: impl Iterator<Item = (&'a Entry, Args<'a>)>,
    ) -> Result<(), Error> {
        let shared = self.shared();
        let Some(node) = &shared.cluster else { return Ok(()) };
        if !self.has_client() {
            return Ok(());
        }
        let (mut slots, mut keys) = (Vec::new(), Vec::new());
        for (entry, args) in calls {
            slots.extend(routing::slots_of(entry, args));
            // As above.
            let _ = kvasir_table::keys::each_key_used(entry.spec, args, |arg, _| {
                keys.push(args[arg].to_vec());
            });
        }
        let Some(slot) = routing::one_slot(slots.into_iter())? else { return Ok(()) };
        let Route::Moving { is_import, .. } = routing::route_slot(shared, node, slot, wish)? else {
            return Ok(());
        };
        keys.sort();
        keys.dedup();
        let present = keys.iter().filter(|key| self.has_key(DbIndex(0), key)).count();
        let counts = (present, keys.len() - present);
        routing::judge_moving(shared, node, (slot, is_import), counts, wish.is_tls)
    }
}

impl Worker {
    /// Deletes what there is of slots that are another's from now on.
    pub fn give_up_slots(&mut self, slots: &SlotSet) {
        let (shared, index) = (self.shared, self.index);
        for slot in slots.iter() {
            if shared.cluster.as_ref().is_some_and(|node| node.routes.is_own(slot)) {
                // It has come back meanwhile.
                continue;
            }
            loop {
                let Some(pass) = shared.gate.enter_unless(index, || shared.keyspace.busy.is_busy())
                else {
                    return;
                };
                self.core.see_listeners(shared);
                let core = &mut self.core;
                let (env, tally) = (&core.env, &mut core.tally);
                let place = Place { db: DbIndex(0), slot };
                let has_more = give_up_slot(&shared.keyspace, &pass, place, env, tally, BATCH);
                blocking::serve_ready(shared, index, core, &pass);
                notifications::tell(shared, index, core, NOBODY);
                if !has_more {
                    break;
                }
            }
        }
    }

    /// Slots have changed hands: who waits for keys of another's is sent there, and who listens to
    /// shard channels of another's does so no more.
    pub fn look_at_slots(&mut self) {
        let shared = self.shared;
        let Some(node) = &shared.cluster else { return };
        (0..self.connections.len()).for_each(|index| self.leave_shard_channels(node, index));
        for index in 0..self.connections.len() {
            let Some(connection) = self.connections[index].as_deref() else { continue };
            let Some(waits) = connection.waiting.waits.as_deref() else { continue };
            let crate::state::waits::Awaited::Key(waiter) = &waits.awaited else { continue };
            let Some((entry, _)) = waits.made else { continue };
            let args = waiter.args();
            let wish = Wish::of(connection, entry);
            let slot = routing::slots_of(entry, args).first().copied();
            let result = slot.map(|slot| routing::route_slot(shared, node, slot, wish));
            if let Some(Err(error)) = result {
                self.refuse_wait(index, &error);
            }
        }
    }

    fn leave_shard_channels(&mut self, node: &Node, index: usize) {
        let Some(mut connection) = self.connections[index].take() else { return };
        let kind = Kind::ShardChannel;
        let wish = Wish {
            asks: false,
            reads_replicas: true,
            writes: false,
            is_pubsub: true,
            is_tls: connection.wire.tls.is_some(),
        };
        let has_any = |connection: &Connection| {
            let all = connection.listening.subscriptions.as_ref();
            all.map_or(0, |all| all.count(kind))
        };
        if has_any(&connection) > 0 {
            for name in self.subscriber(&mut connection).names(kind) {
                let slot = kvasir_structures::crc16::slot_of(&name);
                let route = routing::route_slot(self.shared, node, slot, wish);
                if !route.is_err_and(|error| error.text().starts_with(b"MOVED")) {
                    continue;
                }
                self.subscriber(&mut connection).unsubscribe(kind, &name);
                let count = has_any(&connection);
                connection.reply.push(3);
                connection.reply.bulk(b"sunsubscribe");
                connection.reply.bulk(&name);
                connection.reply.integer(count as i64);
                self.touched.push(index);
            }
        }
        self.connections[index] = Some(connection);
    }
}
