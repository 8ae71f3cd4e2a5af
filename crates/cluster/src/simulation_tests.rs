//! Several nodes in one thread, of one seed: messages are late or lost, nodes are cut off, crash
//! and come back with what their disk has. After healing there is one owner of each slot, and no
//! two primaries have one epoch.

use std::collections::BTreeMap;

use crate::admin::Failover;
use crate::id::NodeId;
use crate::node::Flags;
use crate::options::{Local, Options};
use crate::output::{Action, LinkId};
use crate::random::Random;
use crate::slots::{SLOTS, SlotSet};
use crate::state::Cluster;
use crate::tick::PERIOD_MS;

const TIMEOUT_MS: u64 = 1_000;
const START_MS: u64 = 1_000_000;

/// What a simulation may do that no node should: to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A crash loses the epochs, a vote among them.
    ForgetsVotes,
}

struct Host {
    cluster: Cluster,
    disk: String,
    is_up: bool,
    /// Cannot reach the others.
    is_cut: bool,
    is_paused: bool,
    offset: u64,
}

/// A message or a connection on its way.
enum Event {
    Connect { from: usize, link: LinkId, port: u16 },
    Deliver { to: usize, link: LinkId, bytes: Vec<u8> },
    Lost { at: usize, link: LinkId },
}

struct World {
    hosts: Vec<Host>,
    now_ms: u64,
    /// By time and number.
    events: BTreeMap<(u64, u64), Event>,
    next: u64,
    /// The other end of each link, by host.
    ends: BTreeMap<(usize, LinkId), (usize, LinkId)>,
    random: Random,
    loss_percent: u64,
    fault: Fault,
    /// Who won which epoch.
    winners: BTreeMap<u64, NodeId>,
}

fn options(host: usize) -> Options {
    let port = 7000 + host as u16;
    Options { node_timeout_ms: TIMEOUT_MS, port, bus_port: port + 10_000, ..Options::default() }
}

impl World {
    fn new(hosts: usize, seed: u64, fault: Fault) -> World {
        let mut random = Random::new(seed);
        let hosts = (0..hosts).map(|host| {
            let cluster = Cluster::new(options(host), random.next_u64(), START_MS);
            Host {
                cluster,
                disk: String::new(),
                is_up: true,
                is_cut: false,
                is_paused: false,
                offset: 0,
            }
        });
        let hosts = hosts.collect();
        World {
            hosts,
            now_ms: START_MS,
            events: BTreeMap::new(),
            next: 0,
            ends: BTreeMap::new(),
            random,
            loss_percent: 0,
            fault,
            winners: BTreeMap::new(),
        }
    }

    /// So many primaries that share the slots, and a replica of each for each round of the rest.
    fn form(&mut self, primaries: usize) {
        for host in 0..self.hosts.len() {
            let now_ms = self.now_ms;
            let cluster = &mut self.hosts[host].cluster;
            if host < primaries {
                let of = |slot: u16| usize::from(slot) * primaries / usize::from(SLOTS);
                let slots: SlotSet = (0..SLOTS).filter(|slot| of(*slot) == host).collect();
                cluster.add_slots(&slots, now_ms).expect("nobody has them");
            }
            cluster.set_config_epoch(host as u64 + 1).expect("it knows nobody");
            if host > 0 {
                cluster.meet("10.0.0.1", 7000, 17000, now_ms);
            }
            self.settle(host);
        }
        self.run(8_000);
        let primary_ids: Vec<NodeId> =
            self.hosts[..primaries].iter().map(|host| host.cluster.my_id()).collect();
        for host in primaries..self.hosts.len() {
            let name = primary_ids[host % primaries].digits();
            let now_ms = self.now_ms;
            self.hosts[host].cluster.replicate(&name, now_ms).expect("it is known and empty");
            self.settle(host);
        }
        self.run(5_000);
    }

    fn push(&mut self, delay_ms: u64, event: Event) {
        self.next += 1;
        self.events.insert((self.now_ms + delay_ms, self.next), event);
    }

    /// Does what a node wants: the disk first.
    fn settle(&mut self, host: usize) {
        let output = self.hosts[host].cluster.take_output();
        if output.saves || output.saves_soon {
            self.hosts[host].disk = self.hosts[host].cluster.file();
        }
        let me = self.hosts[host].cluster.me();
        let (is_primary, epoch, id) = (me.votes(), me.config_epoch, me.id);
        let became = output.actions.contains(&Action::BecomePrimary);
        if became && is_primary {
            let winner = *self.winners.entry(epoch).or_insert(id);
            assert!(winner == id, "two replicas have won epoch {epoch}");
        }
        for action in output.actions {
            let delay_ms = 1 + self.random.below(20);
            match action {
                Action::Connect { link, port, .. } => {
                    self.push(delay_ms, Event::Connect { from: host, link, port });
                }
                Action::Send { link, bytes } => {
                    if let Some((to, link)) = self.ends.get(&(host, link)).copied() {
                        self.push(delay_ms, Event::Deliver { to, link, bytes });
                    }
                }
                Action::Close(link) => self.close(host, link),
                Action::PauseWrites { .. } => {
                    let (offset, now_ms) = (self.hosts[host].offset, self.now_ms);
                    self.hosts[host].is_paused = true;
                    self.hosts[host].cluster.writes_are_paused(offset, now_ms);
                    self.settle(host);
                }
                Action::Unpause => self.hosts[host].is_paused = false,
                Action::Follow { node, .. } => {
                    let primary = self.hosts.iter().find(|host| host.cluster.my_id() == node);
                    let offset = primary.map_or(0, |primary| primary.offset);
                    self.hosts[host].offset = offset;
                }
                _ => {}
            }
        }
    }

    fn close(&mut self, host: usize, link: LinkId) {
        if let Some(other) = self.ends.remove(&(host, link)) {
            self.ends.remove(&other);
            self.push(1, Event::Lost { at: other.0, link: other.1 });
        }
    }

    fn reaches(&self, one: usize, other: usize) -> bool {
        let is_fine = |host: usize| self.hosts[host].is_up && !self.hosts[host].is_cut;
        is_fine(one) && is_fine(other)
    }

    fn run(&mut self, time_ms: u64) {
        let end_ms = self.now_ms + time_ms;
        while self.now_ms < end_ms {
            self.now_ms += PERIOD_MS / 10;
            while let Some(entry) = self.events.first_entry() {
                if entry.key().0 > self.now_ms {
                    break;
                }
                let event = entry.remove();
                self.take(event);
            }
            if self.now_ms.is_multiple_of(PERIOD_MS) {
                (0..self.hosts.len()).for_each(|host| self.tick(host));
            }
        }
    }

    fn tick(&mut self, host: usize) {
        let now_ms = self.now_ms;
        // Replicas are as far as their primary.
        let primary = self.hosts[host].cluster.me().primary;
        let primary = self.hosts.iter().find(|other| Some(other.cluster.my_id()) == primary);
        let followed = primary.filter(|primary| primary.is_up).map(|primary| primary.offset);
        let Host { cluster, is_up, is_paused, offset, .. } = &mut self.hosts[host];
        if *is_up {
            match followed {
                Some(followed) => *offset = followed,
                None if *is_paused => {}
                None => *offset += 1,
            }
            cluster.set_local(Local { offset: *offset, data_age_ms: 0, has_keys: false });
            cluster.tick(now_ms);
            self.settle(host);
        }
    }

    fn take(&mut self, event: Event) {
        let now_ms = self.now_ms;
        match event {
            Event::Connect { from, link, port } => {
                let to = usize::from(port) - 17_000;
                if !self.reaches(from, to) {
                    self.hosts[from].cluster.closed(link);
                    return;
                }
                let ip = |host: usize| format!("10.0.0.{}", host + 1);
                let other = self.hosts[to].cluster.accepted(ip(from), ip(to), now_ms);
                self.ends.insert((from, link), (to, other));
                self.ends.insert((to, other), (from, link));
                self.hosts[from].cluster.connected(link, ip(from), now_ms);
                self.settle(from);
            }
            Event::Deliver { to, link, bytes } => {
                let Some((from, _)) = self.ends.get(&(to, link)).copied() else { return };
                let is_lost = self.random.below(100) < self.loss_percent;
                if is_lost || !self.reaches(from, to) {
                    // A connection that loses something is of no use.
                    if is_lost {
                        self.hosts[to].cluster.closed(link);
                        self.close(to, link);
                    }
                    return;
                }
                let received = self.hosts[to].cluster.receive(link, &bytes, now_ms);
                assert_eq!(received, Ok(()));
                self.settle(to);
            }
            Event::Lost { at, link } => self.hosts[at].cluster.closed(link),
        }
    }

    /// A node ends, and its connections with it.
    fn crash(&mut self, host: usize) {
        self.hosts[host].is_up = false;
        let links: Vec<_> = self.ends.keys().filter(|(at, _)| *at == host).copied().collect();
        links.into_iter().for_each(|(at, link)| self.close(at, link));
    }

    fn restart(&mut self, host: usize) {
        let seed = self.random.next_u64();
        let mut disk = self.hosts[host].disk.clone();
        if self.fault == Fault::ForgetsVotes {
            let vars = disk.find("vars ").unwrap_or(disk.len());
            disk.truncate(vars);
        }
        let read = Cluster::from_file(&disk, options(host), seed, self.now_ms);
        self.hosts[host].cluster = read.expect("a node reads what it wrote");
        self.hosts[host].is_up = true;
    }

    /// What must be true once all have spoken to all.
    fn check(&self, what: &str) {
        let mut epochs = BTreeMap::new();
        let mut owned = SlotSet::default();
        for host in &self.hosts {
            let me = host.cluster.me();
            if me.votes() {
                let other = epochs.insert(me.config_epoch, me.id);
                assert_eq!(other, None, "{what}: two primaries have epoch {}", me.config_epoch);
                for slot in me.slots.iter() {
                    assert!(owned.insert(slot), "{what}: slot {slot} has two owners");
                }
            }
        }
        assert_eq!(owned.len(), SLOTS, "{what}: slots without an owner");
        let first = &self.hosts[0].cluster;
        for host in &self.hosts {
            assert!(host.cluster.is_ok(), "{what}: {:?} is down", host.cluster.my_id());
            assert_eq!(host.cluster.nodes().count(), self.hosts.len(), "{what}");
            for slot in 0..SLOTS {
                let (one, other) = (first.owner(slot), host.cluster.owner(slot));
                assert_eq!(one.map(|node| node.id), other.map(|node| node.id), "{what}: {slot}");
            }
        }
    }
}

#[test]
fn nodes_meet_and_agree() {
    let mut world = World::new(6, 1, Fault::None);
    world.form(3);
    world.check("after meeting");
    let replicas = world.hosts.iter().filter(|host| host.cluster.me().is_replica()).count();
    assert_eq!(replicas, 3);
}

#[test]
fn a_replica_takes_over_and_the_former_primary_follows_it() {
    for seed in 1..6 {
        let mut world = World::new(6, seed, Fault::None);
        world.form(3);
        world.crash(0);
        world.run(8_000);
        let heir = world.hosts[3].cluster.me();
        assert!(heir.is_primary() && heir.slots.len() > 5_000, "seed {seed}");
        world.restart(0);
        world.run(10_000);
        world.check("after coming back");
        assert_eq!(world.hosts[0].cluster.me().primary, Some(world.hosts[3].cluster.my_id()));
    }
}

#[test]
fn a_minority_serves_nobody() {
    let mut world = World::new(5, 3, Fault::None);
    world.form(5);
    world.hosts[4].is_cut = true;
    world.run(6_000);
    assert!(!world.hosts[4].cluster.is_ok());
    assert!(world.hosts[4].cluster.nodes().any(|node| node.is(Flags::PFAIL)));
    world.hosts[4].is_cut = false;
    world.run(10_000);
    world.check("after healing");
}

#[test]
fn replicas_take_over_by_hand() {
    for how in [Failover::Agreed, Failover::Force, Failover::Takeover] {
        let mut world = World::new(6, 9, Fault::None);
        world.form(3);
        let now_ms = world.now_ms;
        world.hosts[4].cluster.failover(how, now_ms).expect("it is a replica");
        world.settle(4);
        world.run(6_000);
        assert!(world.hosts[4].cluster.me().is_primary(), "{how:?}");
        assert!(world.hosts[1].cluster.me().is_replica(), "{how:?}");
        world.check("after a failover by hand");
    }
}

/// The stream of a primary that is paused may grow all the same, by what is no write.
#[test]
fn a_replica_that_has_more_than_the_paused_primary_said_takes_over() {
    let mut world = World::new(6, 9, Fault::None);
    world.form(3);
    let now_ms = world.now_ms;
    world.hosts[4].cluster.failover(Failover::Agreed, now_ms).expect("it is a replica");
    world.settle(4);
    while !world.hosts[1].is_paused {
        world.run(PERIOD_MS / 10);
    }
    world.hosts[1].offset += 37;
    world.run(6_000);
    assert!(world.hosts[4].cluster.me().is_primary());
    world.check("after a failover by hand");
}

/// Found by the simulation: a replica that was away while its primary became a replica itself.
#[test]
fn nobody_stays_the_replica_of_a_replica() {
    let mut world = World::new(7, 9, Fault::None);
    world.form(3);
    // Hosts 3 and 6 are replicas of host 0.
    let (first, second) = (world.hosts[0].cluster.my_id(), world.hosts[3].cluster.my_id());
    let now_ms = world.now_ms;
    world.hosts[3].cluster.failover(Failover::Force, now_ms).expect("it is a replica");
    world.settle(3);
    world.run(6_000);
    assert_eq!(world.hosts[0].cluster.me().primary, Some(second));
    // As it would be if it had heard of host 0 alone.
    world.hosts[6].cluster.follow(first);
    world.settle(6);
    world.run(5_000);
    assert_eq!(world.hosts[6].cluster.me().primary, Some(second));
    world.check("without a chain");
}

#[test]
fn a_replica_goes_where_there_is_none() {
    let mut world = World::new(7, 5, Fault::None);
    world.form(3);
    // Hosts 3 and 6 are replicas of host 0.
    world.crash(4);
    world.run(20_000);
    let second = world.hosts[1].cluster.my_id();
    let moved =
        [3, 6].iter().filter(|host| world.hosts[**host].cluster.me().primary == Some(second));
    assert_eq!(moved.count(), 1);
}

#[test]
fn names_come_change_and_go() {
    let mut world = World::new(3, 2, Fault::None);
    world.form(3);
    for name in ["one.example", "another.example", ""] {
        let named = Options { hostname: name.into(), nodename: name.into(), ..options(0) };
        world.hosts[0].cluster.set_options(named);
        world.run(5_000);
        let id = world.hosts[0].cluster.my_id();
        for host in &world.hosts[1..] {
            let node = host.cluster.nodes().find(|node| node.id == id).expect("it is known");
            assert_eq!([&node.hostname, &node.nodename], [name, name]);
        }
    }
}

/// Who learns which slots a node has learns its name with that.
#[test]
fn a_name_comes_with_the_slots() {
    let mut world = World::new(3, 4, Fault::None);
    let named = Options { hostname: "one.example".into(), ..options(0) };
    world.hosts[0].cluster.set_options(named);
    let all: SlotSet = (0..100).collect();
    world.hosts[0].cluster.add_slots(&all, world.now_ms).expect("they are free");
    world.settle(0);
    world.hosts[1].cluster.meet("10.0.0.1", 7000, 17000, world.now_ms);
    world.settle(1);
    let id = world.hosts[0].cluster.my_id();
    let known = |world: &World| {
        let node = world.hosts[1].cluster.nodes().find(|node| node.id == id)?;
        (!node.slots.is_empty()).then(|| node.hostname.clone())
    };
    while known(&world).is_none() {
        world.run(1);
    }
    assert_eq!(known(&world).as_deref(), Some("one.example"));
}

/// Crashes, cuts and losses at random; then peace.
fn storm(seed: u64, fault: Fault) {
    let mut world = World::new(6, seed, fault);
    world.form(3);
    for _ in 0..6 {
        let host = world.random.below(6) as usize;
        world.loss_percent = world.random.below(4);
        match world.random.below(3) {
            0 => {
                world.crash(host);
                let time_ms = 500 + world.random.below(5_000);
                world.run(time_ms);
                world.restart(host);
            }
            1 => {
                world.hosts[host].is_cut = true;
                let time_ms = 500 + world.random.below(6_000);
                world.run(time_ms);
                world.hosts[host].is_cut = false;
            }
            _ => {
                let time_ms = world.random.below(3_000);
                world.run(time_ms);
            }
        }
    }
    world.loss_percent = 0;
    world.run(25_000);
    world.check(&format!("seed {seed}"));
}

/// Whether a primary that has voted would vote again in that epoch, after a crash.
fn votes_twice(fault: Fault) -> bool {
    let mut world = World::new(7, 5, fault);
    world.form(3);
    // Hosts 3 and 6 are replicas of host 0.
    world.crash(0);
    while world.hosts[1].cluster.last_vote_epoch == 0 {
        world.run(PERIOD_MS / 10);
    }
    let mut header = world.hosts[6].cluster.header();
    header.current_epoch = world.hosts[1].cluster.last_vote_epoch;
    world.crash(1);
    world.restart(1);
    let (now_ms, voter) = (world.now_ms, &mut world.hosts[1].cluster);
    voter.current_epoch = voter.current_epoch.max(header.current_epoch);
    voter.why_not_to_vote(header.sender, &header, now_ms).is_none()
}

#[test]
fn a_vote_outlives_a_crash_and_one_that_does_not_is_found() {
    assert!(!votes_twice(Fault::None));
    assert!(votes_twice(Fault::ForgetsVotes));
}

#[test]
fn one_owner_of_each_slot_after_healing() {
    (100..110).for_each(|seed| storm(seed, Fault::None));
}
