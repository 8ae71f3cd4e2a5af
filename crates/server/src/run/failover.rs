//! Worker 0 waits for the replica that is to take this server's place.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_structures::gate::ExclusivePass;
use kvasir_structures::locks::lock;

use crate::clients::pause::{Paused, Purpose, Scope, UNTIL_TOLD_MS};
use crate::log::{notice, warning};
use crate::replicas::{Replica, Stage as LinkStage};
use crate::run::worker::Worker;
use crate::state::shared::Shared;
use crate::store::replication::failover::{Plan, Stage};
use crate::store::replication::role;
use crate::store::replication::upstream::Primary;
use crate::workers::Message;

/// Begins it, with the gate closed: nobody writes from here on.
pub fn begin(shared: &Shared, plan: Plan, now_ms: u64) {
    match &plan.target {
        Some(target) => notice!("FAILOVER requested to {target}."),
        None => notice!("FAILOVER requested."),
    }
    let paused = Paused { scope: Scope::Writes, until_ms: now_ms + UNTIL_TOLD_MS };
    shared.pause.begin(Purpose::Failover, paused, now_ms);
    shared.replication.failover.set(Some(plan));
    shared.send(0, Message::Look);
}

/// Ends it, whether or not the replica has taken over: calls that were put off are made.
pub fn end(shared: &Shared) {
    shared.replication.failover.set(None);
    shared.pause.end(Purpose::Failover);
    shared.send_all(|| Message::Look);
}

/// Gives it up, with the gate closed; says so in the log.
pub fn give_up(shared: &Shared, alone: &ExclusivePass<'_>, why: &str, now_ms: u64) {
    let Some(plan) = shared.replication.failover.plan() else { return };
    match &plan.target {
        Some(target) => warning!("FAILOVER to {target} aborted: {why}"),
        None => warning!("FAILOVER aborted: {why}"),
    }
    if plan.stage == Stage::InProgress {
        role::become_primary(shared, alone, now_ms);
    }
    end(shared);
}

impl Worker {
    /// Goes on with a failover, if there is one.
    pub fn tend_failover(&mut self) {
        let shared = self.shared;
        if self.index != 0 || !shared.replication.failover.is_under_way() {
            return;
        }
        let Some(plan) = shared.replication.failover.plan() else { return };
        if plan.stage == Stage::WaitsForReplica {
            // Whatever is acknowledged behind this wakes the worker.
            shared.replication.await_acks(self.index);
            self.look_for_successor(plan);
        }
    }

    fn look_for_successor(&mut self, plan: Plan) {
        let (shared, now_ms) = (self.shared, self.core.env.now_ms);
        let is_late = plan.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
        if !is_late && successor(shared, &plan).is_none() {
            return;
        }
        let alone = shared.gate.exclusive_unless(|| shared.keyspace.busy.is_busy());
        let Some(alone) = alone else { return };
        let target = match successor(shared, &plan) {
            Some(target) => target,
            None if !is_late => return,
            None => match plan.target.clone().filter(|_| plan.is_forced) {
                Some(target) => {
                    notice!("failover to {target} time out exceeded, failing over.");
                    target
                }
                None => {
                    let why = "Replica never caught up before timeout";
                    return give_up(shared, &alone, why, now_ms);
                }
            },
        };
        notice!("failover target is asked to take over target={target}");
        let plan = Plan { target: Some(target.clone()), stage: Stage::InProgress, ..plan };
        shared.replication.failover.set(Some(plan));
        role::become_replica(shared, target, now_ms);
    }
}

/// A replica that may take over and has everything.
fn successor(shared: &Shared, plan: &Plan) -> Option<Primary> {
    let end = shared.keyspace.log.end();
    let replicas = shared.replication.replicas();
    let has_all = |replica: &&std::sync::Arc<Replica>| {
        let is_wanted = plan.target.as_ref().is_none_or(|target| is_at(replica, target));
        is_wanted && replica.stage() == LinkStage::Online && replica.acked.load(Relaxed) == end
    };
    replicas.iter().find(has_all).map(|replica| address(replica))
}

fn address(replica: &Replica) -> Primary {
    Primary { host: lock(&replica.address).clone(), port: replica.port.load(Relaxed) }
}

/// Whether a replica is the one that a caller names.
pub fn is_at(replica: &Replica, named: &Primary) -> bool {
    let own = address(replica);
    own.port == named.port && own.host.eq_ignore_ascii_case(&named.host)
}
