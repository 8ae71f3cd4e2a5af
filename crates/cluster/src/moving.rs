//! CLUSTER SETSLOT: a slot moves by hand, key by key, and then its owner is told.
//!
//! One of its steps has to be on the disk before it is answered: that this node has the slot. All
//! others can be lost with the power, as long as keys have not been deleted because of them
//! (MIGRATE sees to that): then the slot is where it was, or its new owner says that it is not.

use crate::admin::Refused;
use crate::id::NodeId;
use crate::state::Cluster;

impl Cluster {
    /// Keys of the slot are sent to that node.
    pub fn set_migrating(&mut self, slot: u16, name: &[u8]) -> Result<(), Refused> {
        self.check_mover()?;
        if self.owners[usize::from(slot)] != Some(self.me) {
            return Err(format!("ERR I'm not the owner of hash slot {slot}").into());
        }
        let to = self.mover(name)?;
        if to == self.me {
            return Err("ERR Target node is not a master".into());
        }
        self.migrating.insert(slot, to);
        self.save_soon();
        Ok(())
    }

    /// Keys of the slot come from that node.
    pub fn set_importing(&mut self, slot: u16, name: &[u8]) -> Result<(), Refused> {
        self.check_mover()?;
        if self.owners[usize::from(slot)] == Some(self.me) {
            return Err(format!("ERR I'm already the owner of hash slot {slot}").into());
        }
        let from = self.mover(name)?;
        self.importing.insert(slot, from);
        self.change_foreign(|foreign| {
            foreign.remove(slot);
        });
        self.save_soon();
        Ok(())
    }

    pub fn set_stable(&mut self, slot: u16) -> Result<(), Refused> {
        self.check_mover()?;
        self.migrating.remove(&slot);
        self.importing.remove(&slot);
        self.save_soon();
        Ok(())
    }

    /// The slot is that node's. `has_keys`: there are keys of it here.
    pub fn set_owner(
        &mut self,
        slot: u16,
        name: &[u8],
        has_keys: bool,
        now_ms: u64,
    ) -> Result<(), Refused> {
        self.check_mover()?;
        let to = self.find(name)?;
        if !self.nodes[&to].is_primary() {
            return Err("ERR Target node is not a master".into());
        }
        let was_mine = self.owners[usize::from(slot)] == Some(self.me);
        if was_mine && to != self.me && has_keys {
            return Err(format!(
                "ERR Can't assign hashslot {slot} to a different node while I still hold keys for \
                 this hash slot."
            )
            .into());
        }
        let was_leaving = !has_keys && self.migrating.remove(&slot).is_some();
        let is_coming = to == self.me && self.importing.remove(&slot).is_some();
        let was = self.take_slot(slot);
        self.give_slot(slot, to);
        match was == Some(to) {
            false if to == self.me => self.save(),
            true if !was_leaving && !is_coming => {}
            _ => self.save_soon(),
        }
        if was_mine && self.me().slots.is_empty() && to != self.me {
            self.note("I have no slots any more.".into());
            if self.options.allows_replica_migration {
                self.follow(to);
            }
        }
        if is_coming {
            // Whoever still says that the slot is its own is wrong from now on.
            if self.bump_epoch() {
                self.note("configEpoch updated after importing slot".into());
            }
            self.announce(None);
        }
        self.update_state(now_ms);
        Ok(())
    }

    /// Slots are moved at primaries only.
    pub fn check_mover(&self) -> Result<(), Refused> {
        match self.me().is_replica() {
            true => Err("ERR Please use SETSLOT only with masters.".into()),
            false => Ok(()),
        }
    }

    fn mover(&self, name: &[u8]) -> Result<NodeId, Refused> {
        let unknown =
            || format!("ERR I don't know about node {}", String::from_utf8_lossy(name)).into();
        let id = self.find(name).map_err(|_: Refused| -> Refused { unknown() })?;
        match self.nodes[&id].is_primary() {
            true => Ok(id),
            false => Err("ERR Target node is not a master".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Flags, Node};
    use crate::options::Options;
    use crate::random::Random;

    /// What a step asks of the disk: whether it is waited for, whether the file changes at all.
    fn asks(cluster: &mut Cluster) -> (bool, bool) {
        let output = cluster.take_output();
        (output.saves, output.saves || output.saves_soon)
    }

    #[test]
    fn only_who_gets_a_slot_waits_for_the_disk() {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        let other = NodeId::random(&mut Random::new(2));
        cluster.add_node(Node::new(other, other, Flags::PRIMARY, 1000));
        let (me, other) = (cluster.my_id().digits(), other.digits());
        cluster.add_slots(&(0..9).collect(), 1000).expect("they are free");
        assert_eq!(asks(&mut cluster), (true, true));
        cluster.set_migrating(1, &other).expect("it has it");
        assert_eq!(asks(&mut cluster), (false, true));
        cluster.set_owner(1, &other, false, 1000).expect("there are no keys");
        assert_eq!(asks(&mut cluster), (false, true));
        cluster.set_owner(1, &other, false, 1000).expect("it is so already");
        assert_eq!(asks(&mut cluster), (false, false));
        cluster.set_importing(1, &other).expect("it has it not");
        assert_eq!(asks(&mut cluster), (false, true));
        cluster.set_owner(1, &me, true, 1000).expect("keys have come");
        assert_eq!(asks(&mut cluster), (true, true));
        cluster.set_stable(1).expect("it is");
        assert_eq!(asks(&mut cluster), (false, true));
    }
}
