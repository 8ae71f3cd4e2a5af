//! Slots that move all at once: who has them, before and after.
//!
//! Keys of slots that are another's may be here and count for nothing: those that are on their way
//! here, and those that have gone and are not deleted yet. The file names these slots, so that a
//! node that was killed does not take such keys for data. The new owner takes the slots by an epoch
//! that is greater than all it knows of, and its file has that before anybody hears of it; so there
//! is one moment at which they change hands, and it is on one disk.

use crate::admin::Refused;
use crate::id::NodeId;
use crate::output::Action;
use crate::slots::SlotSet;
use crate::state::Cluster;

impl Cluster {
    /// Slots of others of which there may be keys here that count for nothing.
    pub fn foreign(&self) -> &SlotSet {
        &self.foreign
    }

    pub(crate) fn change_foreign(&mut self, change: impl FnOnce(&mut SlotSet)) {
        let before = self.foreign.clone();
        change(&mut self.foreign);
        if self.foreign != before {
            self.save_soon();
            self.act(Action::Hide);
        }
    }

    /// Whether one node has all of these.
    pub fn owns_all(&self, owner: NodeId, slots: &SlotSet) -> bool {
        slots.iter().all(|slot| self.owners[usize::from(slot)] == Some(owner))
    }

    /// Fails if some slot is moved by hand.
    pub fn check_by_hand(&self, is_export: bool) -> Result<(), Refused> {
        match is_export {
            true if !self.migrating.is_empty() => {
                Err("ERR Slots are being manually migrated".into())
            }
            false if !self.importing.is_empty() => {
                Err("ERR Slots are being manually imported".into())
            }
            _ => Ok(()),
        }
    }

    /// Slots are moved all at once by primaries only.
    pub fn check_handover(&self) -> Result<(), Refused> {
        match self.me().is_replica() {
            true => Err("ERR Slot migration can only be used on primary nodes.".into()),
            false => Ok(()),
        }
    }

    /// Keys of these slots, which are that node's, are about to come.
    pub fn begin_import(&mut self, slots: &SlotSet, from: NodeId) -> Result<(), Refused> {
        self.check_handover()?;
        self.check_by_hand(false)?;
        if from == self.me || !self.owns_all(from, slots) {
            return Err("ERR Source node is not the owner of the slots.".into());
        }
        self.change_foreign(|foreign| {
            slots.iter().for_each(|slot| {
                foreign.insert(slot);
            });
        });
        self.save();
        Ok(())
    }

    /// All keys of these slots are here, and so are the slots from now on; the epoch says so.
    pub fn take_slots(
        &mut self,
        slots: &SlotSet,
        from: NodeId,
        now_ms: u64,
    ) -> Result<u64, Refused> {
        self.check_handover()?;
        if !self.owns_all(from, slots) {
            return Err("ERR A failover occurred during slot import".into());
        }
        self.bump_epoch_always();
        slots.iter().for_each(|slot| {
            self.take_slot(slot);
            self.give_slot(slot, self.me);
        });
        let epoch = self.me().config_epoch;
        self.note(format!("configEpoch set to {epoch} after importing slots"));
        self.save();
        self.update_state(now_ms);
        self.begin_to_confirm(slots, now_ms);
        self.announce(None);
        Ok(epoch)
    }

    /// That node has taken these slots by that epoch. False if this node is in no older one: what
    /// it has said of its slots may reach that node later, and would have it lose them again.
    pub fn hand_over(&mut self, slots: &SlotSet, to: NodeId, epoch: u64, now_ms: u64) -> bool {
        if self.me().config_epoch >= epoch {
            return false;
        }
        let mine: Vec<u16> =
            slots.iter().filter(|slot| self.owners[usize::from(*slot)] == Some(self.me)).collect();
        let Some(node) = self.nodes.get_mut(&to) else { return false };
        node.config_epoch = node.config_epoch.max(epoch);
        self.current_epoch = self.current_epoch.max(epoch);
        if mine.is_empty() {
            return true;
        }
        for slot in &mine {
            self.migrating.remove(slot);
            self.take_slot(*slot);
            self.give_slot(*slot, to);
        }
        self.save();
        if self.me().slots.is_empty() && self.options.allows_replica_migration {
            self.note(format!(
                "Lost my last slot during slot migration. Reconfiguring myself as a replica of {to}"
            ));
            self.follow(to);
        } else {
            self.lose_keys(mine);
        }
        self.update_state(now_ms);
        self.announce(None);
        true
    }

    /// The former owner of slots that this node has taken is in that epoch: from now on this node
    /// is in a newer one.
    pub fn go_beyond(&mut self, epoch: u64) -> u64 {
        if self.me().config_epoch <= epoch {
            self.current_epoch = self.current_epoch.max(epoch);
            self.bump_epoch_always();
            self.announce(None);
        }
        self.me().config_epoch
    }

    /// This replica's primary has said, in its stream or in a snapshot that was loaded, of which
    /// slots there may be keys that count for nothing.
    pub fn learn_foreign(&mut self, slots: SlotSet) {
        if self.me().is_replica() {
            self.change_foreign(|foreign| *foreign = slots);
            self.save();
        }
    }

    /// This replica's primary has said in its stream that it has taken slots by that epoch.
    pub fn learn_taken(&mut self, slots: &SlotSet, epoch: u64, now_ms: u64) {
        let primary = self.my_primary().id;
        if self.me().is_replica() {
            self.current_epoch = self.current_epoch.max(epoch);
            if let Some(node) = self.nodes.get_mut(&primary) {
                node.config_epoch = node.config_epoch.max(epoch);
            }
            self.claim(primary, epoch, slots, now_ms);
            self.save();
        }
    }

    /// Takes a new epoch, whatever there is.
    pub(crate) fn bump_epoch_always(&mut self) {
        let all = self.nodes.values().map(|node| node.config_epoch);
        self.current_epoch = self.current_epoch.max(all.max().unwrap_or(0)) + 1;
        self.me_mut().config_epoch = self.current_epoch;
        self.save();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Flags, Node};
    use crate::options::Options;
    use crate::random::Random;

    fn pair() -> (Cluster, NodeId) {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        let other = NodeId::random(&mut Random::new(2));
        let mut node = Node::new(other, other, Flags::PRIMARY, 1000);
        node.config_epoch = 7;
        cluster.add_node(node);
        (cluster, other)
    }

    #[test]
    fn slots_come_by_a_greater_epoch() {
        let (mut cluster, other) = pair();
        let all: SlotSet = (0..9).collect();
        let some: SlotSet = (3..6).collect();
        assert!(cluster.begin_import(&some, other).is_err());
        all.iter().for_each(|slot| cluster.give_slot(slot, other));
        assert!(cluster.begin_import(&some, other).is_ok());
        assert_eq!(cluster.foreign().words(","), "3-5");
        assert!(cluster.file().contains("kvasirForeign 3-5"));
        assert_eq!(cluster.take_slots(&some, other, 2000), Ok(8));
        assert!(cluster.foreign().is_empty());
        assert_eq!(cluster.me().slots.words(","), "3-5");
        assert!(cluster.take_slots(&some, other, 2000).is_err());
        // Their former owner may have gone on to newer epochs.
        assert_eq!([7, 8, 20].map(|epoch| cluster.go_beyond(epoch)), [8, 9, 21]);
        assert!(cluster.file().contains("currentEpoch 21"));
    }

    #[test]
    fn slots_go_with_their_keys() {
        let (mut cluster, other) = pair();
        let (all, some): (SlotSet, SlotSet) = ((0..9).collect(), (3..6).collect());
        all.iter().for_each(|slot| cluster.give_slot(slot, cluster.me));
        cluster.me_mut().config_epoch = 9;
        assert!(!cluster.hand_over(&some, other, 9, 2000));
        assert!(cluster.owns_all(cluster.me, &some));
        cluster.me_mut().config_epoch = 8;
        assert!(cluster.hand_over(&some, other, 9, 2000));
        assert_eq!(cluster.me().slots.words(","), "0-2,6-8");
        assert_eq!(cluster.node(other).map(|node| node.config_epoch), Some(9));
        let actions = cluster.take_output().actions;
        assert!(actions.contains(&Action::DeleteKeys(vec![3, 4, 5])));
        assert_eq!(cluster.foreign().words(","), "3-5");
        // And comes back empty.
        cluster.take_slot(4);
        cluster.give_slot(4, cluster.me);
        assert_eq!(cluster.foreign().words(","), "3,5");
    }
}
