//! What a change of the cluster does to this server: whose data it has, which slots are its own,
//! who is to hear of that.

use std::time::Duration;

use kvasir_cluster::output::Action;
use kvasir_cluster::view::Place as Standing;
use kvasir_keyspace::place::{DbIndex, Place};
use kvasir_keyspace::replace::note_emptied;
use kvasir_keyspace::slot_keys::give_up_slot;
use kvasir_keyspace::view::{Garbage, Tally};
use kvasir_keyspace::waiting::note_all;
use kvasir_pubsub::Kind;
use kvasir_resp::encode::encode_request;
use kvasir_structures::gate::ExclusivePass;

use crate::calls::routing::{self, Wish};
use crate::calls::{blocking, notifications};
use crate::clients::pause::{Paused, Purpose, Scope};
use crate::clients::tracker::NOBODY;
use crate::cluster::Node;
use crate::run::handover;
use crate::run::worker::{BUSY_RETRY, Worker};
use crate::state::connection::Connection;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::state::waits::Waits;
use crate::store::replication::role;
use crate::store::replication::upstream::Primary;
use crate::workers::Message;
use crate::workers::news::{Item, News};

/// Keys deleted under one lock.
pub const BATCH: usize = 128;

/// Does what the state machine wants of the server, with the gate closed.
pub fn settle(shared: &'static Shared, node: &Node, alone: &mut ExclusivePass<'_>, now_ms: u64) {
    let (actions, routes_changed) = node.take_server_todo();
    let (mut has_paused, mut has_to_hide) = (false, false);
    let becomes_primary = actions.contains(&Action::BecomePrimary);
    give_up(shared, node, &actions, alone);
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
            Action::Flush => flush(shared, alone),
            Action::Confirmed(slots) => handover::hold(shared, node, alone, &slots, false),
            Action::Hide => has_to_hide = true,
            Action::PauseWrites { until_ms } => {
                has_paused = true;
                let paused = Paused { scope: Scope::Writes, until_ms };
                shared.pause.begin(Purpose::Failover, paused, now_ms);
                shared.send_all(|| Message::Look);
            }
            Action::Unpause => {
                shared.pause.end(Purpose::Failover);
                shared.send_all(|| Message::Look);
            }
            Action::DeleteKeys(_)
            | Action::Publish { .. }
            | Action::Connect { .. }
            | Action::Send { .. }
            | Action::Close(_) => {}
        }
    }
    if has_paused {
        // With the gate closed nobody writes, so that is how far it will be.
        let offset = shared.keyspace.log.end();
        node.change(|cluster| cluster.writes_are_paused(offset, now_ms));
    }
    if has_to_hide || becomes_primary {
        handover::hide(shared, node, alone);
    }
    if becomes_primary {
        // What the former primary had granted may be another's.
        let granted = node.look().granted();
        handover::hold(shared, node, alone, &granted, true);
        handover::tell_granted(shared, node, alone);
    }
    if routes_changed {
        publish_routes(shared, node);
    }
}

/// Has keys go that are not this node's any more, before it becomes something else.
fn give_up(shared: &'static Shared, node: &Node, actions: &[Action], alone: &ExclusivePass<'_>) {
    for action in actions {
        if let Action::DeleteKeys(slots) = action {
            node.give_up(slots.clone());
        }
    }
    if actions.contains(&Action::BecomePrimary) {
        // What was on its way to the former primary stays with who sent it.
        let foreign = node.look().foreign().iter().collect();
        node.give_up(foreign);
    }
    node.give_up(handover::end_imports(node));
    // What this server deletes it deletes as the primary that it was.
    let follows = actions.iter().any(|action| matches!(action, Action::Follow { .. }));
    delete_at_once(shared, &node.take_back(follows), alone);
    if node.given_up().is_some() {
        shared.send(0, Message::Look);
    }
}

fn publish_routes(shared: &'static Shared, node: &Node) {
    let (cluster, held) = (node.look(), node.handovers.held());
    if node.routes.differ(&cluster, &held) {
        node.routes.publish(&cluster, &held);
        drop((cluster, held));
        // Who waits for keys, or listens to channels, of slots that are another's hears of it.
        shared.send_all(|| Message::SlotsChanged);
    }
}

/// Deletes the keys of slots, whose new keys are about to come.
pub fn delete_at_once(shared: &'static Shared, slots: &[u16], alone: &ExclusivePass<'_>) {
    if slots.is_empty() {
        return;
    }
    let mut core = Core::new(shared, 0);
    core.see_listeners(shared);
    for slot in slots {
        let place = Place { db: DbIndex(0), slot: *slot };
        let (env, tally) = (&core.env, &mut core.tally);
        while give_up_slot(&shared.keyspace, alone, place, env, tally, BATCH) {}
    }
    let items = core.tally.events.drain(..).map(Item::Event).collect();
    tell(shared, core, items);
}

/// Throws all data away. It is logged: else a later start would find it.
fn flush(shared: &'static Shared, alone: &mut ExclusivePass<'_>) {
    let (keyspace, mut core) = (&shared.keyspace, Core::new(shared, 0));
    core.see_listeners(shared);
    note_emptied(keyspace, &core.env, alone);
    for db in keyspace.indexes() {
        let old = keyspace.flush(db, alone);
        core.tally.garbage.extend(old.map(Garbage::Database));
        note_all(keyspace, alone, db, &mut core.tally);
    }
    shared.libraries.flush();
    if core.env.logs {
        keyspace.log.append(alone, &encode_request(&["FLUSHALL"]));
        keyspace.log.append(alone, &encode_request(&["FUNCTION", "FLUSH"]));
    }
    tell(shared, core, vec![Item::Flushed]);
}

/// Has a worker tell those whom it concerns what was done by nobody's call.
pub fn tell(shared: &Shared, core: Core, items: Vec<Item>) {
    let Tally { garbage, ready, .. } = core.tally;
    shared.freeing.free(garbage);
    shared.send(0, Message::News(Box::new(News { items, ready })));
}

impl Worker {
    /// Deletes some of what there is of slots that are another's by now.
    pub fn give_up_slots(&mut self) {
        let (shared, index) = (self.shared, self.index);
        let Some(node) = shared.cluster.as_ref().filter(|_| index == 0) else { return };
        if node.given_up().is_none() {
            return;
        }
        let pass = shared.gate.enter_unless(index, || shared.keyspace.busy.is_busy());
        let Some(pass) = pass else { return };
        if shared.replication.upstream.is_replica() {
            // What a replica deletes its primary says.
            node.take_back(true);
            return;
        }
        self.core.see_listeners(shared);
        // A slot that has come back was emptied with the gate closed: it is not among these.
        let Some(slot) = node.given_up() else { return };
        let core = &mut self.core;
        let (env, tally) = (&core.env, &mut core.tally);
        let place = Place { db: DbIndex(0), slot };
        if !give_up_slot(&shared.keyspace, &pass, place, env, tally, BATCH) {
            node.has_given_up(slot);
        }
        blocking::serve_ready(shared, index, core, &pass);
        notifications::tell(shared, index, core, NOBODY);
    }

    /// When there is more of that to delete.
    pub fn give_up_timeout(&self) -> Option<Duration> {
        let node = self.shared.cluster.as_ref().filter(|_| self.index == 0)?;
        node.given_up()?;
        // A busy script keeps it from that.
        let is_busy = self.shared.keyspace.busy.is_busy();
        Some(if is_busy { BUSY_RETRY } else { Duration::ZERO })
    }

    /// Slots have changed hands: who waits for keys of another's is sent there, and who listens to
    /// shard channels of another's does so no more.
    pub fn look_at_slots(&mut self) {
        let shared = self.shared;
        let Some(node) = &shared.cluster else { return };
        (0..self.connections.len()).for_each(|index| self.leave_shard_channels(node, index));
        for index in 0..self.connections.len() {
            let Some(connection) = self.connections[index].as_deref() else { continue };
            let waits = connection.waiting.waits.as_deref();
            let Some((entry, args)) = waits.and_then(Waits::blocked_call) else { continue };
            let wish = Wish::of(shared, connection, entry, args);
            let Some(slot) = routing::slots_of(entry, args).first().copied() else { continue };
            // Who waits in a slot that comes here was sent here.
            let comes = matches!(node.look().place(slot), Standing::Importing(_));
            if let Err(error) = routing::route_slot(shared, node, slot, wish)
                && !comes
                && error != routing::HELD
            {
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
                // While the cluster is down nobody knows of another place for them.
                // Who listens in a slot that comes here was sent here.
                let comes = matches!(node.look().place(slot), Standing::Importing(_));
                let is_anothers = !comes
                    && route.is_err_and(|error| {
                        error.text().starts_with(b"MOVED") || error == routing::UNBOUND
                    });
                if !is_anothers {
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
