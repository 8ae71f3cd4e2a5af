//! CLUSTER SETSLOT: a slot moves by hand, key by key, and then its owner is told.

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
        self.save();
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
        self.save();
        Ok(())
    }

    pub fn set_stable(&mut self, slot: u16) -> Result<(), Refused> {
        self.check_mover()?;
        self.migrating.remove(&slot);
        self.importing.remove(&slot);
        self.save();
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
        if !has_keys {
            self.migrating.remove(&slot);
        }
        self.take_slot(slot);
        self.give_slot(slot, to);
        if was_mine && self.me().slots.is_empty() && to != self.me {
            self.note("I have no slots any more.".into());
            if self.options.allows_replica_migration {
                self.follow(to);
            }
        }
        if to == self.me && self.importing.remove(&slot).is_some() {
            // Whoever still says that the slot is its own is wrong from now on.
            if self.bump_epoch() {
                self.note("configEpoch updated after importing slot".into());
            }
            self.announce(None);
        }
        self.save();
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
