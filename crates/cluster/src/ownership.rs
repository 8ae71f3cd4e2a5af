//! Who owns a slot: claims of packets, and what follows for this node.

use crate::id::NodeId;
use crate::node::Flags;
use crate::output::Action;
use crate::packet::{Body, Packet};
use crate::slots::SlotSet;
use crate::state::Cluster;

impl Cluster {
    /// Gives a slot that has no owner one.
    pub(crate) fn give_slot(&mut self, slot: u16, to: NodeId) {
        let had_replicas = self.nodes.values().any(|node| node.is_replica());
        let Some(node) = self.nodes.get_mut(&to) else { return };
        if node.slots.is_empty() && had_replicas {
            node.flags.insert(Flags::MIGRATE_TO);
        }
        node.slots.insert(slot);
        self.owners[usize::from(slot)] = Some(to);
        self.disowned.remove(slot);
        if to == self.my_primary().id {
            self.change_foreign(|foreign| {
                foreign.remove(slot);
            });
        }
        self.out.changed = true;
    }

    /// Takes a slot from its owner, if it has one.
    pub(crate) fn take_slot(&mut self, slot: u16) -> Option<NodeId> {
        let owner = self.owners[usize::from(slot)].take()?;
        self.disowned.remove(slot);
        if let Some(node) = self.nodes.get_mut(&owner) {
            node.slots.remove(slot);
        }
        self.out.changed = true;
        Some(owner)
    }

    /// Keys of these slots were found at the start. Slots that nobody has are this node's; those
    /// that another has are on their way there, or lost here: what is here can be asked for.
    pub fn claim_loaded(&mut self, held: &SlotSet) {
        if self.me().is_replica() {
            return;
        }
        for slot in held.iter() {
            match self.owners[usize::from(slot)] {
                Some(owner) if owner == self.me || self.importing.contains_key(&slot) => {}
                None => {
                    self.note(format!(
                        "I have keys for unassigned slot {slot}. Taking responsibility for it."
                    ));
                    self.give_slot(slot, self.me);
                    self.save();
                }
                Some(owner) => {
                    self.note(format!(
                        "I have keys for slot {slot}, but the slot is assigned to another node. \
                         Setting it to importing state."
                    ));
                    self.importing.insert(slot, owner);
                    self.save();
                }
            }
        }
    }

    pub(crate) fn take_all_slots(&mut self, of: NodeId) {
        let slots = self.nodes.get(&of).map(|node| node.slots.clone()).unwrap_or_default();
        slots.iter().for_each(|slot| {
            self.take_slot(slot);
        });
    }

    /// `sender` says that it owns these slots by this epoch. Newer epochs win. What this node loses
    /// it gives up; if that was the last, it follows who has got it.
    pub(crate) fn claim(&mut self, sender: NodeId, epoch: u64, slots: &SlotSet, now_ms: u64) {
        if sender == self.me {
            return;
        }
        let primary = self.my_primary().id;
        let (mut lost, mut orphaned) = (Vec::new(), false);
        let mut taken_from_mine = 0;
        for slot in slots.iter() {
            let owner = self.owners[usize::from(slot)];
            // A slot that is imported is only moved by commands.
            if owner == Some(sender) || self.importing.contains_key(&slot) {
                continue;
            }
            let is_newer = match owner.and_then(|id| self.nodes.get(&id)) {
                None => true,
                Some(owner) => owner.config_epoch < epoch || self.disowned.contains(slot),
            };
            if !is_newer {
                continue;
            }
            if owner == Some(self.me) {
                lost.push(slot);
                self.migrating.remove(&slot);
            }
            if owner == Some(primary) {
                orphaned = true;
                taken_from_mine += 1;
            }
            self.take_slot(slot);
            self.give_slot(slot, sender);
            self.save_soon();
        }
        let has_none = self.nodes.get(&primary).is_none_or(|node| node.slots.is_empty());
        let follows = self.options.allows_replica_migration || taken_from_mine == slots.len();
        if orphaned && has_none && follows {
            self.note(format!(
                "Configuration change detected. Reconfiguring myself as a replica of {sender}"
            ));
            self.follow(sender);
            self.update_state(now_ms);
        } else if !lost.is_empty() {
            self.lose_keys(lost);
        }
    }

    /// `sender` itself says by this epoch which slots it has. If it has given some away and taken a
    /// newer epoch since, who has them by an older one could not be believed otherwise.
    pub(crate) fn note_disowned(&mut self, sender: NodeId, epoch: u64, slots: &SlotSet) {
        // What it said earlier may come later, by another link.
        let Some(node) = self.nodes.get(&sender).filter(|node| node.config_epoch == epoch) else {
            return;
        };
        for slot in node.slots.iter() {
            match slots.contains(slot) {
                true => self.disowned.remove(slot),
                false => self.disowned.insert(slot),
            };
        }
    }

    /// Slots that were this node's are another's, and so are their keys.
    pub(crate) fn lose_keys(&mut self, slots: Vec<u16>) {
        self.forget_unconfirmed(&slots);
        self.change_foreign(|foreign| {
            slots.iter().for_each(|slot| {
                foreign.insert(*slot);
            });
        });
        self.act(Action::DeleteKeys(slots));
    }

    /// Tells a node that claims slots by an old epoch who owns them. Says whether there was need.
    pub(crate) fn correct(&mut self, sender: NodeId, epoch: u64, slots: &SlotSet) -> bool {
        let newer = slots.iter().find_map(|slot| {
            let owner = self.owners[usize::from(slot)]?;
            let node = self.nodes.get(&owner)?;
            (owner != sender && node.config_epoch > epoch).then_some(owner)
        });
        let Some(owner) = newer else { return false };
        self.send_update(sender, owner);
        true
    }

    pub(crate) fn send_update(&mut self, to: NodeId, about: NodeId) {
        let Some(link) = self.nodes.get(&to).and_then(|node| node.link) else { return };
        let Some(node) = self.nodes.get(&about) else { return };
        let body = Body::Update {
            config_epoch: node.config_epoch,
            node: about,
            slots: node.slots.clone(),
        };
        let packet = Packet { header: self.header(), body };
        self.send(link, &packet);
    }

    /// Two primaries with one epoch: the one whose name is smaller takes a new one.
    pub(crate) fn settle_collision(&mut self, sender: NodeId, epoch: u64) {
        let is_primary = |id| self.nodes.get(&id).is_some_and(|node| node.is_primary());
        let collides = is_primary(sender) && is_primary(self.me) && epoch == self.me().config_epoch;
        if !collides || sender <= self.me {
            return;
        }
        self.current_epoch += 1;
        let epoch = self.current_epoch;
        self.me_mut().config_epoch = epoch;
        self.save();
        self.note(format!("configEpoch collision with node {sender}. configEpoch set to {epoch}"));
    }

    /// Takes a new epoch without asking, unless this node has the greatest already.
    pub(crate) fn bump_epoch(&mut self) -> bool {
        let all = self.nodes.values().map(|node| node.config_epoch);
        let greatest = all.max().unwrap_or(0).max(self.current_epoch);
        let mine = self.me().config_epoch;
        if mine != 0 && mine == greatest {
            return false;
        }
        self.current_epoch += 1;
        let epoch = self.current_epoch;
        self.me_mut().config_epoch = epoch;
        self.save();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;
    use crate::options::Options;
    use crate::random::Random;

    /// Found by the simulation: a node gives a slot away and takes a newer epoch, and another one
    /// that has heard of that before it hears of the slot's new owner never believed that one.
    #[test]
    fn a_slot_that_its_owner_disowns_is_whose_who_claims_it() {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        let mut random = Random::new(2);
        let [giver, taker] = [(); 2].map(|()| NodeId::random(&mut random));
        for (id, epoch) in [(giver, 7), (taker, 5)] {
            let mut node = Node::new(id, id, Flags::PRIMARY, 1000);
            node.config_epoch = epoch;
            cluster.add_node(node);
        }
        (0..9).for_each(|slot| cluster.give_slot(slot, giver));
        let (given, kept): (SlotSet, SlotSet) = ((0..4).collect(), (4..9).collect());
        cluster.claim(taker, 5, &given, 1000);
        assert!(cluster.owns_all(giver, &given));
        // By an epoch that is not its newest it says nothing that counts.
        cluster.note_disowned(giver, 6, &kept);
        cluster.claim(taker, 5, &given, 1000);
        assert!(cluster.owns_all(giver, &given));
        cluster.note_disowned(giver, 7, &kept);
        cluster.note_disowned(giver, 7, &(0..9).collect());
        cluster.claim(taker, 5, &given, 1000);
        assert!(cluster.owns_all(giver, &given));
        cluster.note_disowned(giver, 7, &kept);
        cluster.claim(taker, 5, &(0..9).collect(), 1000);
        assert!(cluster.owns_all(taker, &given) && cluster.owns_all(giver, &kept));
    }

    /// A replica that has not heard of its primary's new epoch asks for votes by the old one.
    #[test]
    fn a_replica_is_told_of_its_own_primary() {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        let mut random = Random::new(2);
        let [primary, replica] = [(); 2].map(|()| NodeId::random(&mut random));
        let mut node = Node::new(primary, primary, Flags::PRIMARY, 1000);
        node.config_epoch = 5;
        cluster.add_node(node);
        let mut node = Node::new(replica, primary, Flags::REPLICA, 1000);
        node.primary = Some(primary);
        cluster.add_node(node);
        let slots: SlotSet = (0..9).collect();
        slots.iter().for_each(|slot| cluster.give_slot(slot, primary));
        assert!(cluster.correct(replica, 4, &slots));
        assert!(!cluster.correct(replica, 5, &slots));
        assert!(!cluster.correct(primary, 4, &slots));
    }
}
