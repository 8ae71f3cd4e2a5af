//! What an administrator asks of a node. Refusals are Redis's texts.

use std::borrow::Cow;

use crate::gossip::Purpose;
use crate::id::NodeId;
use crate::node::{Address, Flags};
use crate::output::Action;
use crate::slots::SlotSet;
use crate::state::Cluster;

/// The text of an error, with its code.
pub type Refused = Cow<'static, str>;

impl Cluster {
    pub fn find(&self, name: &[u8]) -> Result<NodeId, Refused> {
        let id = NodeId::parse(name).filter(|id| self.nodes.contains_key(id));
        id.ok_or_else(|| format!("ERR Unknown node {}", String::from_utf8_lossy(name)).into())
    }

    pub fn meet(&mut self, ip: &str, port: u16, bus_port: u16, now_ms: u64) {
        let address = Address { ip: ip.to_owned(), port, tls_port: 0, bus_port };
        let address = self.ports_as_kept(address);
        self.begin_handshake(address, Flags::MEET, now_ms);
    }

    /// Has this node forget another for a minute, and others to whom it speaks of that.
    pub fn forget(&mut self, name: &[u8], now_ms: u64) -> Result<(), Refused> {
        let id = match self.find(name) {
            Ok(id) => id,
            Err(_) if NodeId::parse(name).is_some_and(|id| self.is_forgotten(id, now_ms)) => {
                // Another node has said so already.
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if id == self.me {
            return Err("ERR I tried hard but I can't forget myself...".into());
        }
        if self.me().primary == Some(id) {
            return Err("ERR Can't forget my master!".into());
        }
        let until = now_ms.saturating_add(self.options.blacklist_ttl_ms);
        self.forgotten.insert(id, until);
        self.tell_forgotten(id);
        self.remove_node(id);
        self.save();
        Ok(())
    }

    /// Adds slots that nobody has.
    pub fn add_slots(&mut self, slots: &SlotSet, now_ms: u64) -> Result<(), Refused> {
        if let Some(slot) = slots.iter().find(|slot| self.owners[usize::from(*slot)].is_some()) {
            return Err(format!("ERR Slot {slot} is already busy").into());
        }
        for slot in slots.iter() {
            self.importing.remove(&slot);
            self.give_slot(slot, self.me);
        }
        self.save();
        self.update_state(now_ms);
        Ok(())
    }

    pub fn delete_slots(&mut self, slots: &SlotSet, now_ms: u64) -> Result<(), Refused> {
        if let Some(slot) = slots.iter().find(|slot| self.owners[usize::from(*slot)].is_none()) {
            return Err(format!("ERR Slot {slot} is already unassigned").into());
        }
        for slot in slots.iter() {
            self.take_slot(slot);
            self.migrating.remove(&slot);
        }
        self.save();
        self.update_state(now_ms);
        Ok(())
    }

    pub fn flush_slots(&mut self, now_ms: u64) -> Result<(), Refused> {
        if self.local.has_keys {
            return Err("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.".into());
        }
        self.take_all_slots(self.me);
        self.save();
        self.update_state(now_ms);
        Ok(())
    }

    pub fn replicate(&mut self, name: &[u8], now_ms: u64) -> Result<(), Refused> {
        let id = self.find(name)?;
        if id == self.me {
            return Err("ERR Can't replicate myself".into());
        }
        if !self.nodes[&id].is_primary() {
            return Err("ERR I can only replicate a master, not a replica.".into());
        }
        let me = self.me();
        if me.is_primary() && (!me.slots.is_empty() || self.local.has_keys) {
            return Err(
                "ERR To set a master the node must be empty and without assigned slots.".into()
            );
        }
        if me.primary != Some(id) {
            self.follow(id);
            self.update_state(now_ms);
            self.announce(None);
        }
        Ok(())
    }

    /// CLUSTER REPLICATE NO ONE: a replica becomes a primary in a shard of its own, without slots
    /// and without data.
    pub fn replicate_no_one(&mut self, now_ms: u64) {
        if !self.me().is_replica() {
            return;
        }
        self.leave_primary();
        self.end_manual();
        self.election.forget();
        self.me_mut().shard = NodeId::random(&mut self.random);
        self.save();
        self.update_state(now_ms);
        self.announce(None);
    }

    /// Follows nobody any more, and has none of its primary's data.
    fn leave_primary(&mut self) {
        self.me_mut().change(Flags::REPLICA, Flags::PRIMARY);
        self.attach(self.me, None);
        self.followed = None;
        self.act(Action::BecomePrimary);
        self.act(Action::Flush);
    }

    /// CLUSTER FAILOVER, FORCE if the primary is not asked, TAKEOVER if nobody is.
    pub fn failover(&mut self, how: Failover, now_ms: u64) -> Result<(), Refused> {
        if self.me().is_primary() {
            return Err("ERR You should send CLUSTER FAILOVER to a replica".into());
        }
        let primary = self.me().primary.and_then(|id| self.nodes.get(&id));
        let Some(primary) = primary else {
            return Err("ERR I'm a replica but my master is unknown to me".into());
        };
        let is_down = primary.is(Flags::FAIL) || !self.is_connected(primary.link);
        if is_down && how == Failover::Agreed {
            return Err("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE".into());
        }
        let primary = primary.id;
        match how {
            Failover::Agreed => self.begin_manual(false, primary, now_ms),
            Failover::Force => self.begin_manual(true, primary, now_ms),
            Failover::Takeover => {
                self.note("Taking over the master (user request).".into());
                self.bump_epoch();
                self.take_over(now_ms);
            }
        }
        Ok(())
    }

    pub fn set_config_epoch(&mut self, epoch: u64) -> Result<(), Refused> {
        if self.nodes.len() > 1 {
            return Err("ERR The user can assign a config epoch only when the node does not know \
                        any other node."
                .into());
        }
        if self.me().config_epoch != 0 {
            return Err("ERR Node config epoch is already non-zero".into());
        }
        self.me_mut().config_epoch = epoch;
        self.current_epoch = self.current_epoch.max(epoch);
        self.save();
        Ok(())
    }

    /// CLUSTER BUMPEPOCH: the epoch, and whether it is new.
    pub fn bump(&mut self) -> (u64, bool) {
        let is_new = self.bump_epoch();
        (self.me().config_epoch, is_new)
    }

    /// Forgets the cluster; `is_hard` its own name and all epochs as well.
    pub fn reset(&mut self, is_hard: bool, now_ms: u64) -> Result<(), Refused> {
        if self.me().is_primary() && self.local.has_keys {
            return Err(
                "ERR CLUSTER RESET can't be called with master nodes containing keys".into()
            );
        }
        if self.me().is_replica() {
            self.leave_primary();
        }
        self.owners.iter_mut().for_each(|owner| *owner = None);
        self.migrating.clear();
        self.importing.clear();
        self.change_foreign(|foreign| *foreign = SlotSet::default());
        self.grants.clear();
        self.end_manual();
        self.election.forget();
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|id| *id != self.me).collect();
        others.into_iter().for_each(|id| self.remove_node(id));
        self.forgotten.clear();
        let (id, shard) = (NodeId::random(&mut self.random), NodeId::random(&mut self.random));
        let me = self.me_mut();
        me.slots = SlotSet::default();
        me.flags.remove(Flags::MIGRATE_TO);
        me.shard = shard;
        if is_hard {
            let mut me = self.nodes.remove(&self.me).expect("a node knows itself");
            self.note(format!("Node hard reset, now I'm {id}"));
            self.current_epoch = 0;
            self.last_vote_epoch = 0;
            (me.id, me.config_epoch) = (id, 0);
            self.me = id;
            self.nodes.insert(id, me);
        }
        self.save();
        self.update_state(now_ms);
        Ok(())
    }

    /// Sends a message of a client to the other nodes, or to those of this node's shard.
    pub fn publish(&mut self, channel: &[u8], message: &[u8], is_sharded: bool) {
        let body = crate::packet::Body::Publish {
            channel: channel.to_vec(),
            message: message.to_vec(),
            is_sharded,
        };
        let packet = crate::packet::Packet { header: self.header(), body };
        if !is_sharded {
            return self.broadcast(&packet);
        }
        let mine = self.my_primary().id;
        let links: Vec<_> = self
            .shard_of(mine)
            .into_iter()
            .filter(|node| !node.is(Flags::MYSELF | Flags::HANDSHAKE))
            .filter_map(|node| node.link)
            .collect();
        self.send_to(links, &packet);
    }

    fn tell_forgotten(&mut self, id: NodeId) {
        let ttl_s = self.options.blacklist_ttl_ms / 1000;
        let to: Vec<_> = self
            .nodes
            .values()
            .filter(|node| node.id != id && node.is(Flags::EXTENSIONS) && !node.is(Flags::MYSELF))
            .filter_map(|node| node.link)
            .collect();
        self.farewell = Some((id, ttl_s));
        for link in to {
            let node = self.links.get(&link).and_then(|link| link.node);
            self.send_gossip(link, node, Purpose::Ping);
        }
        self.farewell = None;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failover {
    Agreed,
    Force,
    Takeover,
}
