//! Connections whose call waits, for a key most of all, as their worker sees them.
//!
//! While a call waits its connection executes nothing: what it sends is kept. The answer comes from
//! whoever makes the key ready, perhaps another worker, or from the clock of this one.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::waiting::{self, Answer, Blocked, Server};
use kvasir_reactor::clock;
use kvasir_structures::crc16::slot_of;
use kvasir_structures::gate::Pass;

use crate::state::connection::{Connection, Replies};
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::state::waits::{Awaited, Waits};
use crate::workers::{Message, Served};

/// Has a connection wait if its last call asked for that, and serves those who waited for what the
/// call wrote.
#[inline]
pub fn settle(
    shared: &Shared,
    worker: usize,
    core: &mut Core,
    pass: &Pass<'_>,
    connection: &mut Connection,
) {
    begin_wait(core, connection);
    if !core.tally.ready.is_empty() {
        serve(shared, worker, core, pass);
    }
}

/// Has a connection wait if its last call asked for that.
#[inline]
pub fn begin_wait(core: &mut Core, connection: &mut Connection) {
    if let Some(Blocked::Waits(waiter)) = core.tally.blocked.take() {
        connection.client.is_blocked.store(true, Relaxed);
        let is_muted = connection.output.replies != Replies::On;
        let waits = Waits { awaited: Awaited::Key(waiter), is_muted, made: None, us: 0 };
        core.deadlines.add(waits.place(connection));
        connection.client.has_deadline.store(waits.place(connection).is_some(), Relaxed);
        connection.waiting.waits = Some(Box::new(waits));
    }
}

/// Serves those who wait for keys that have become ready.
#[cold]
pub fn serve_ready(shared: &Shared, worker: usize, core: &mut Core, pass: &Pass<'_>) {
    serve(shared, worker, core, pass);
    send_served(shared, core);
}

/// Has other workers give the answers to calls that waited there.
#[inline]
pub fn send_served(shared: &Shared, core: &mut Core) {
    if !core.served_elsewhere.is_empty() {
        for answer in core.served_elsewhere.drain(..) {
            shared.send(answer.caller.worker, Message::Unblock(answer));
        }
    }
}

/// Those who wait elsewhere hear of it when the call that has served them is over.
#[cold]
fn serve(shared: &Shared, worker: usize, core: &mut Core, pass: &Pass<'_>) {
    if let Some(node) = shared.cluster.as_ref().filter(|node| node.handovers.holds_any()) {
        // Who waits there is served by the next owner, or once the slot stays.
        core.tally.ready.retain(|ready| !node.holds(slot_of(&ready.key)));
    }
    // The call that has made keys ready may have taken long: what it gave them may be over.
    core.env.now_ms = core.env.now_ms.max(clock::now_unix_ms());
    let Core { env, tally, rng, served, served_elsewhere, .. } = core;
    let server = Server { keyspace: &shared.keyspace, pass, env, tally, rng };
    let mut since = clock::ticks();
    waiting::serve(server, &mut |waiter, Answer { reply, fence, .. }| {
        let now = clock::ticks();
        let us = now.since(since).to_nanos() / 1000;
        since = now;
        let answer = Served { caller: waiter.caller, reply, fence, us };
        let is_here = waiter.caller.worker == worker;
        if is_here { served.push(answer) } else { served_elsewhere.push(answer) }
    });
}
