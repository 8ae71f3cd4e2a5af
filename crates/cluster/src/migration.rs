//! A replica goes to a primary that has none left.

use crate::id::NodeId;
use crate::node::Flags;
use crate::state::Cluster;

/// A primary is without replicas for so long before somebody goes there: its own may come back.
const DELAY_MS: u64 = 5_000;

impl Cluster {
    /// Notes which primaries have lost all of their replicas, and goes to one of them if this node
    /// is the one to go.
    pub(crate) fn migrate_replica(&mut self, now_ms: u64) {
        let primaries: Vec<NodeId> =
            self.nodes.values().filter(|node| node.votes()).map(|node| node.id).collect();
        let (mut most, mut target) = (0, None);
        for id in primaries {
            let replicas = self.working_replicas_of(id);
            most = most.max(replicas);
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            let is_orphaned = replicas == 0 && node.is(Flags::MIGRATE_TO) && !node.is(Flags::FAIL);
            if !is_orphaned {
                node.orphaned_ms = 0;
                continue;
            }
            if node.orphaned_ms == 0 {
                node.orphaned_ms = now_ms;
            }
            if target.is_none() && now_ms.saturating_sub(node.orphaned_ms) > DELAY_MS {
                target = Some(id);
            }
        }
        let Some(target) = target else { return };
        let Some(primary) = self.me().primary.filter(|_| self.me().is_replica()) else { return };
        let allowed =
            self.options.allows_replica_migration && self.is_ok && !self.options.is_no_failover;
        let mine = self.working_replicas_of(primary);
        if !allowed || most < 2 || mine != most || mine as u64 <= self.options.migration_barrier {
            return;
        }
        // Of all who could go, the one with the smallest name does.
        let may_go = |id: NodeId| {
            self.nodes.get(&id).is_some_and(|node| {
                let primary = node.primary.filter(|id| self.working_replicas_of(*id) == most);
                node.is_replica() && !node.is_failing() && primary.is_some()
            })
        };
        let chosen = self.nodes.keys().copied().find(|id| may_go(*id));
        if chosen == Some(self.me) {
            self.note(format!("Migrating to orphaned master {target}"));
            self.follow(target);
        }
    }
}
