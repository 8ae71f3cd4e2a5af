//! Who moves slots, by hand and all at once, a step at a time, and has replicas take over. Steps
//! come late or never, as those of an administrator do whose nodes fail meanwhile.

use kvasir_cluster::admin::Failover;
use kvasir_cluster::slots::{SLOTS, SlotSet};
use kvasir_keyspace::rng::Rng;

use super::host::Host;

/// Slots on their way between two hosts.
pub struct Move {
    slots: SlotSet,
    from: usize,
    to: usize,
    is_at_once: bool,
    step: usize,
    /// By which the new owner has them.
    epoch: u64,
}

impl Move {
    /// Of some slots of a primary to another one.
    pub fn draw(hosts: &[Host], rng: &mut Rng) -> Option<Move> {
        let primaries: Vec<usize> = (0..hosts.len())
            .filter(|host| hosts[*host].is_up && hosts[*host].cluster.me().is_primary())
            .collect();
        if primaries.len() < 2 {
            return None;
        }
        let from = primaries[rng.below(primaries.len())];
        let to = primaries[rng.below(primaries.len())];
        let owned = &hosts[from].cluster.me().slots;
        if from == to || owned.is_empty() {
            return None;
        }
        let is_at_once = rng.below(2) == 0;
        let first = rng.below(usize::from(SLOTS)) as u16;
        // Now and then all that it has.
        let most = match (is_at_once, rng.below(8)) {
            (true, 0) => usize::from(SLOTS),
            (true, _) => 1 + rng.below(500),
            (false, _) => 1 + rng.below(3),
        };
        let slots: SlotSet =
            owned.iter().filter(|slot| *slot >= first || most > 500).take(most).collect();
        (!slots.is_empty()).then_some(Move { slots, from, to, is_at_once, step: 0, epoch: 0 })
    }

    /// Who is asked next.
    pub fn next_host(&self) -> usize {
        match (self.is_at_once, self.step) {
            (true, 0 | 1) | (false, 0 | 2) => self.to,
            _ => self.from,
        }
    }

    /// The slots, if they are moved by hand.
    pub fn by_hand(&self) -> impl Iterator<Item = u16> {
        self.slots.iter().filter(|_| !self.is_at_once)
    }

    /// Both ends, which have to reach each other where slots move all at once.
    pub fn ends(&self) -> (usize, usize) {
        (self.from, self.to)
    }

    pub fn needs_link(&self) -> bool {
        self.is_at_once && self.step < 2
    }

    /// Does the next step at that host; false: there is nothing more to be done.
    pub fn go_on(&mut self, hosts: &mut [Host], now_ms: u64) -> bool {
        let (from, to) = (hosts[self.from].cluster.my_id(), hosts[self.to].cluster.my_id());
        let host = &mut hosts[self.next_host()];
        let clock_ms = host.clock_ms(now_ms);
        let cluster = &mut host.cluster;
        let (step, slots) = (self.step, &self.slots);
        self.step += 1;
        let each = |one: &mut dyn FnMut(u16) -> bool| slots.iter().all(one);
        match (self.is_at_once, step) {
            (true, 0) => cluster.begin_import(slots, from).is_ok(),
            (true, 1) => match cluster.take_slots(slots, from, clock_ms) {
                Ok(epoch) => {
                    self.epoch = epoch;
                    true
                }
                Err(_) => false,
            },
            (true, _) => {
                if cluster.me().is_primary() {
                    cluster.hand_over(slots, to, self.epoch, clock_ms);
                }
                false
            }
            (false, 0) => each(&mut |slot| cluster.set_importing(slot, &from.digits()).is_ok()),
            (false, 1) => each(&mut |slot| cluster.set_migrating(slot, &to.digits()).is_ok()),
            (false, 2) => {
                // If the slot was taken from its owner meanwhile, there is nothing to be had here.
                let is_still =
                    |slot: &u16| cluster.importing().any(|(of, by)| of == *slot && by == from);
                self.slots = self.slots.iter().filter(is_still).collect();
                let mut all = self.slots.iter();
                !self.slots.is_empty()
                    && all
                        .all(|slot| cluster.set_owner(slot, &to.digits(), false, clock_ms).is_ok())
            }
            (false, _) => {
                let is_still =
                    |slot: &u16| cluster.migrating().any(|(of, by)| of == *slot && by == to);
                let left: Vec<u16> = self.slots.iter().filter(is_still).collect();
                for slot in left {
                    let _ = cluster.set_owner(slot, &to.digits(), false, clock_ms);
                }
                false
            }
        }
    }
}

/// Asks a replica to take over; whether it will.
pub fn fail_over(host: &mut Host, now_ms: u64, rng: &mut Rng) {
    let how = match rng.below(5) {
        0 => Failover::Force,
        1 => Failover::Takeover,
        _ => Failover::Agreed,
    };
    let clock_ms = host.clock_ms(now_ms);
    // Whether it is a replica at all it says itself.
    let _ = host.cluster.failover(how, clock_ms);
}

/// Gives slots that have no owner one, as `redis-cli --cluster fix` does. Two primaries that take
/// the same epoch at once, or one that dies before its replicas have heard of a slot, leave such
/// slots where they are moved by hand, as with Redis.
pub fn cover(hosts: &mut [Host], by_hand: &SlotSet, now_ms: u64) {
    let votes = |host: &&mut Host| host.cluster.me().votes();
    let mut missing = by_hand.clone();
    for host in hosts.iter_mut().filter(votes) {
        host.cluster.me().slots.iter().for_each(|slot| {
            missing.remove(slot);
        });
    }
    let Some(host) = hosts.iter_mut().find(votes) else { return };
    let (me, clock_ms) = (host.cluster.my_id().digits(), host.clock_ms(now_ms));
    for slot in missing.iter() {
        let _ = host.cluster.set_owner(slot, &me, false, clock_ms);
    }
}

/// Ends what was begun and not ended.
pub fn settle_moves(host: &mut Host) {
    let cluster = &mut host.cluster;
    let open: Vec<u16> =
        cluster.migrating().chain(cluster.importing()).map(|(slot, _)| slot).collect();
    for slot in open {
        let _ = cluster.set_stable(slot);
    }
}
