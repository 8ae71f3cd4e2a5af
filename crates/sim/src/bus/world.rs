//! The world of one run: what happens in which order, and what goes wrong.

use std::rc::Rc;

use kvasir_cluster::id::NodeId;
use kvasir_cluster::options::{Local, Options};
use kvasir_cluster::output::Action;
use kvasir_cluster::random::Random;
use kvasir_cluster::slots::SlotSet;
use kvasir_cluster::state::Cluster;
use kvasir_cluster::tick::PERIOD_MS;
use kvasir_keyspace::rng::Rng;
use kvasir_reactor::clock;

use super::admin::{self, Move};
use super::host::{Host, head, said};
use super::judge::{Judge, WON, check_peace};
use super::wires::{End, Event, Wires};
use super::{Canary, Ran, Setup, Traffic};
use crate::disk::SimDisk;
use crate::luck::Luck;
use crate::nodes_file::{BUS_PORT, first_file, ip};

const NODES_MAX: usize = 50;
/// Until primaries that have just started serve anybody.
const DAWN_MS: u64 = 2_600;
/// Power goes while one of so many files is written, ...
const CUT_ONE_IN: usize = 150;
/// ...and of those who have voted, one of so many loses it a moment later.
const CUT_VOTER_ONE_IN: usize = 6;
/// Who has crashed starts again within so long.
const DOWN_MS: usize = 2_000;
/// Clocks are wrong by up to so much.
const SKEW_MS: usize = 3_000;
/// Within so many times `cluster-node-timeout` all are well, once all is mended.
const PEACE_TIMEOUTS: u64 = 60;

/// For so long the traffic of a bus is measured.
const TRAFFIC_S: u64 = 30;

/// A vote.
const VOTE: u16 = 6;

pub struct World {
    setup: Setup,
    rng: Rng,
    now_ms: u64,
    timeout_ms: u64,
    hosts: Vec<Host>,
    ids: Vec<NodeId>,
    wires: Wires,
    moves: Vec<Move>,
    /// Slots that were to be moved by hand.
    by_hand: SlotSet,
    is_stormy: bool,
    judge: Judge,
    log: Vec<String>,
    ran: Ran,
}

/// How many nodes there are: primaries, and replicas of each.
fn draw_size(rng: &mut Rng) -> (usize, usize) {
    let (primaries, replicas) = match rng.below(200) {
        0 => (5 + rng.below(20), 1 + rng.below(4)),
        1..20 => (3 + rng.below(4), 1 + rng.below(2)),
        _ => (3 + rng.below(2), 1),
    };
    let replicas = if replicas == 1 && rng.below(4) == 0 { 2 } else { replicas };
    (primaries, replicas.min(NODES_MAX / primaries - 1))
}

impl World {
    pub fn new(setup: Setup) -> World {
        let mut rng = Rng::new(setup.seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95));
        // The first numbers of seeds beside each other are much alike.
        (0..4).for_each(|_| {
            rng.draw();
        });
        let (primaries, replicas) = draw_size(&mut rng);
        let nodes = primaries * (1 + replicas);
        let timeout_ms = if nodes > 16 { 4_000 } else { 800 + rng.below(700) as u64 };
        World::of(setup, rng, primaries, nodes, timeout_ms)
    }

    fn of(setup: Setup, mut rng: Rng, primaries: usize, nodes: usize, timeout_ms: u64) -> World {
        let mut names = Random::new(rng.draw());
        let ids: Vec<NodeId> = (0..nodes).map(|_| NodeId::random(&mut names)).collect();
        let options = Options {
            node_timeout_ms: timeout_ms,
            bus_port: BUS_PORT,
            allows_replica_migration: rng.below(2) == 0,
            requires_full_coverage: rng.below(2) == 0,
            replica_validity_factor: if rng.below(2) == 0 { 10 } else { 0 },
            ..Options::default()
        };
        let mut world = World {
            setup,
            now_ms: 0,
            timeout_ms,
            hosts: Vec::new(),
            wires: Wires::default(),
            moves: Vec::new(),
            by_hand: SlotSet::default(),
            is_stormy: false,
            judge: Judge::default(),
            log: Vec::new(),
            ran: Ran::default(),
            rng,
            ids,
        };
        for me in 0..nodes {
            let text = first_file(me, &world.ids, primaries);
            let host = Host::new(options.clone(), &text, world.rng.draw());
            world.hosts.push(host.expect("the first file is sound"));
            world.plant(me);
            world.hosts[me].skew_ms = world.draw_skew();
            let at_ms = 1 + world.rng.below(PERIOD_MS as usize) as u64;
            world.wires.push(at_ms, Event::Tick { host: me, starts: 1 });
        }
        world
    }

    /// What goes over the bus of so many nodes, half of them replicas, when nothing is wrong.
    pub fn traffic(nodes: usize, timeout_ms: u64) -> Result<Traffic, String> {
        let setup = Setup { seed: 0, canary: None };
        let mut world = World::of(setup, Rng::new(1), nodes.div_ceil(2), nodes, timeout_ms);
        // All links are there, and everybody has been pinged once.
        world.pass(DAWN_MS + timeout_ms)?;
        let before = (world.ran.packets, world.ran.bytes);
        world.pass(TRAFFIC_S * 1000)?;
        let per_s = |now: u64, before: u64| (now - before) as f64 / TRAFFIC_S as f64;
        let (packets, bytes) = (world.ran.packets, world.ran.bytes);
        Ok(Traffic { packets: per_s(packets, before.0), bytes: per_s(bytes, before.1) })
    }

    fn plant(&mut self, host: usize) {
        match self.setup.canary {
            Some(Canary::VotesTwice) => self.hosts[host].cluster.votes_twice = true,
            Some(Canary::SpeaksEarly) => self.hosts[host].disk.forget_syncs(),
            None => {}
        }
    }

    fn draw_skew(&mut self) -> i64 {
        match self.rng.below(3) {
            0 => 0,
            _ => self.rng.below(2 * SKEW_MS) as i64 - SKEW_MS as i64,
        }
    }

    pub fn run(mut self) -> Result<Ran, String> {
        let result = self.go();
        if result.is_err() && !crate::is_quiet() {
            self.log.iter().for_each(|line| println!("{line}"));
        }
        result?;
        self.ran.votes = self.judge.votes() as u64;
        Ok(self.ran)
    }

    fn go(&mut self) -> Result<(), String> {
        self.pass(DAWN_MS)?;
        self.is_stormy = true;
        for _ in 0..8 + self.rng.below(10) {
            self.disturb()?;
            self.settle_all()?;
            let most_ms = if self.rng.below(3) == 0 { 3 * self.timeout_ms } else { 400 };
            let time_ms = 1 + self.rng.below(most_ms as usize) as u64;
            self.pass(time_ms)?;
        }
        self.mend()
    }

    /// What goes wrong, and what an administrator does.
    fn disturb(&mut self) -> Result<(), String> {
        let (one, other) = (self.rng.below(self.hosts.len()), self.rng.below(self.hosts.len()));
        match self.rng.below(16) {
            0..3 => {
                let (disk, luck) = match self.rng.below(2) {
                    0 => (self.hosts[one].disk.clone(), Luck::KILLED),
                    _ => (self.hosts[one].disk.clone(), Luck::of_a_cut(&mut self.rng)),
                };
                self.crash(one, &disk, luck, DOWN_MS);
            }
            3 => self.wires.cut(one, other),
            4 => (0..self.hosts.len()).for_each(|host| self.wires.cut(one, host)),
            // In two halves.
            5 => {
                let side = self.rng.draw();
                let is_here = |host: usize| side >> (host % 64) & 1 == 0;
                for (a, b) in (0..self.hosts.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                    if is_here(a) != is_here(b) {
                        self.wires.cut(a, b);
                    }
                }
            }
            6..9 => self.wires.mend(self.now_ms, &mut self.rng),
            9 => self.wires.reset(one, other, self.now_ms, &mut self.rng),
            10 => {
                let time_ms = self.rng.below(2 * self.timeout_ms as usize) as u64;
                self.hosts[one].stopped_until_ms = self.now_ms + time_ms;
            }
            11 => self.hosts[one].skew_ms = self.draw_skew(),
            12..14 => {
                let drawn = Move::draw(&self.hosts, &mut self.rng);
                drawn.iter().flat_map(Move::by_hand).for_each(|slot| {
                    self.by_hand.insert(slot);
                });
                self.moves.extend(drawn);
            }
            14 => self.fail_over(one),
            _ => {}
        }
        self.go_on_moving()
    }

    /// A replica is to take over.
    fn fail_over(&mut self, host: usize) {
        if self.is_awake(host) {
            admin::fail_over(&mut self.hosts[host], self.now_ms, &mut self.rng);
        }
    }

    fn is_awake(&self, host: usize) -> bool {
        self.hosts[host].is_up && self.hosts[host].stopped_until_ms <= self.now_ms
    }

    fn go_on_moving(&mut self) -> Result<(), String> {
        let mut going_on = Vec::new();
        for mut one in std::mem::take(&mut self.moves) {
            if self.rng.below(2) == 0 {
                going_on.push(one);
                continue;
            }
            let (from, to) = one.ends();
            let is_linked = !self.wires.are_cut(from, to) && self.is_awake(from);
            let host = one.next_host();
            let may = self.is_awake(host) && (is_linked || !one.needs_link());
            let has_more = may && one.go_on(&mut self.hosts, self.now_ms);
            self.settle(host)?;
            // Whose power goes before its disk has the step does not answer.
            if has_more && self.hosts[host].is_up {
                going_on.push(one);
            }
        }
        self.moves = going_on;
        Ok(())
    }

    fn settle_all(&mut self) -> Result<(), String> {
        (0..self.hosts.len()).try_for_each(|host| self.settle(host))
    }

    /// All goes well from now on: sooner or later all agree.
    fn mend(&mut self) -> Result<(), String> {
        self.is_stormy = false;
        self.wires.mend(self.now_ms, &mut self.rng);
        self.hosts.iter_mut().for_each(|host| host.stopped_until_ms = 0);
        // Those that are down come back by themselves.
        self.pass(DOWN_MS as u64 + 1)?;
        let mut found = Err(String::new());
        for _ in 0..PEACE_TIMEOUTS {
            self.hosts.iter_mut().for_each(admin::settle_moves);
            admin::cover(&mut self.hosts, &self.by_hand, self.now_ms);
            self.settle_all()?;
            self.pass(self.timeout_ms)?;
            let nodes: Vec<&Cluster> = self.hosts.iter().map(|host| &host.cluster).collect();
            found = check_peace(&nodes);
            if found.is_ok() {
                return Ok(());
            }
        }
        found.map_err(|what| format!("there is no peace in the end: {what}"))
    }

    fn pass(&mut self, time_ms: u64) -> Result<(), String> {
        let end_ms = self.now_ms + time_ms;
        while let Some(((at_ms, number), event)) = self.wires.next(end_ms) {
            self.now_ms = self.now_ms.max(at_ms);
            clock::simulate(self.now_ms * 1_000_000);
            self.take(number, event)?;
        }
        self.now_ms = end_ms;
        Ok(())
    }

    fn take(&mut self, number: u64, event: Event) -> Result<(), String> {
        let host = match &event {
            Event::Tick { host, .. } | Event::Start { host } => *host,
            Event::Connect { from, .. } => from.host,
            Event::Deliver { wire, side, .. } | Event::Lost { wire, side } => {
                match self.wires.host_of(*wire, *side) {
                    Some(host) => host,
                    None => return Ok(()),
                }
            }
        };
        let until_ms = self.hosts[host].stopped_until_ms;
        if until_ms > self.now_ms && self.hosts[host].is_up {
            self.wires.put_off(number, until_ms, event);
            return Ok(());
        }
        match event {
            Event::Start { host } => self.start(host),
            Event::Tick { host, starts } if starts == self.hosts[host].starts => self.tick(host),
            Event::Tick { .. } => Ok(()),
            Event::Connect { from, starts, port } => self.connect(from, starts, port),
            Event::Deliver { wire, side, bytes } => self.deliver(wire, side, &bytes),
            Event::Lost { wire, side } => {
                if let Some(end) = self.wires.lost(wire, side) {
                    self.hosts[end.host].cluster.closed(end.link);
                }
                Ok(())
            }
        }
    }

    fn tick(&mut self, host: usize) -> Result<(), String> {
        if !self.hosts[host].is_up || self.hosts[host].saves_soon && !self.save(host)? {
            return Ok(());
        }
        self.follow(host);
        let Host { offset, fresh_ms, starts, .. } = self.hosts[host];
        let local =
            Local { offset, data_age_ms: self.now_ms - fresh_ms.min(self.now_ms), has_keys: false };
        let clock_ms = self.hosts[host].clock_ms(self.now_ms);
        let cluster = &mut self.hosts[host].cluster;
        cluster.set_local(local);
        cluster.tick(clock_ms);
        let late_ms = if self.rng.below(50) == 0 { self.rng.below(200) as u64 } else { 0 };
        self.wires.push(self.now_ms + PERIOD_MS + late_ms, Event::Tick { host, starts });
        self.settle(host)
    }

    /// Data goes the way that nodes say, if they reach each other.
    fn follow(&mut self, host: usize) {
        let primary = self.hosts[host].cluster.me().primary;
        let Some(primary) = primary else {
            self.hosts[host].offset += 1;
            self.hosts[host].fresh_ms = self.now_ms;
            return;
        };
        let Some(at) = self.ids.iter().position(|id| *id == primary) else { return };
        if self.is_awake(at) && !self.wires.are_cut(host, at) {
            self.hosts[host].offset = self.hosts[at].offset;
            self.hosts[host].fresh_ms = self.now_ms;
        }
    }

    fn connect(&mut self, from: End, starts: u64, port: u16) -> Result<(), String> {
        if self.hosts[from.host].starts != starts || !self.hosts[from.host].is_up {
            return Ok(());
        }
        let to = usize::from(port);
        let to_clock_ms = self.hosts[to].clock_ms(self.now_ms);
        if !self.is_awake(to) || self.wires.are_cut(from.host, to) {
            self.hosts[from.host].cluster.closed(from.link);
            return Ok(());
        }
        let link = self.hosts[to].cluster.accepted(ip(from.host), ip(to), to_clock_ms);
        self.wires.open([from, End { host: to, link }]);
        let clock_ms = self.hosts[from.host].clock_ms(self.now_ms);
        self.hosts[from.host].cluster.connected(from.link, ip(from.host), clock_ms);
        self.settle(from.host)
    }

    fn deliver(&mut self, wire: usize, side: usize, bytes: &Rc<Vec<u8>>) -> Result<(), String> {
        let Some(End { host, link }) = self.wires.receiver(wire, side, bytes) else {
            return Ok(());
        };
        self.ran.packets += 1;
        self.ran.bytes += bytes.len() as u64;
        self.ran.digest.note(host as u64);
        let clock_ms = self.hosts[host].clock_ms(self.now_ms);
        let received = self.hosts[host].cluster.receive(link, bytes, clock_ms);
        received.map_err(|refusal| format!("host {host} refuses a packet: {refusal:?}"))?;
        self.settle(host)
    }

    /// Does what a node wants: the disk first.
    fn settle(&mut self, host: usize) -> Result<(), String> {
        if !self.hosts[host].is_up {
            return Ok(());
        }
        loop {
            let output = self.hosts[host].cluster.take_output();
            self.hosts[host].saves_soon |= output.saves_soon;
            if output.saves && !self.save(host)? {
                return Ok(());
            }
            if output.notes.iter().any(|note| note == WON) {
                self.judge.elected(&self.hosts[host].cluster)?;
                self.ran.reigns += 1;
            }
            if !crate::is_quiet() {
                let line = |note: &String| format!("{:>8} {host:>2} {note}", self.now_ms);
                self.log.extend(output.notes.iter().map(line));
            }
            if output.actions.is_empty() {
                return Ok(());
            }
            for action in output.actions {
                if !self.act(host, action)? {
                    return Ok(());
                }
            }
        }
    }

    /// Brings a node's file to its disk; false if power goes meanwhile.
    fn save(&mut self, host: usize) -> Result<bool, String> {
        if self.is_stormy && self.rng.below(CUT_ONE_IN) == 0 {
            self.hosts[host].disk.note_in(self.rng.below(5));
        }
        self.hosts[host].save()?;
        let Some(disk) = self.hosts[host].disk.noted() else { return Ok(true) };
        let luck = Luck::of_a_cut(&mut self.rng);
        self.crash(host, &disk, luck, DOWN_MS);
        Ok(false)
    }

    /// False if that was the last that the node does for now.
    fn act(&mut self, host: usize, action: Action) -> Result<bool, String> {
        let (now_ms, rng) = (self.now_ms, &mut self.rng);
        let mut has_voted = false;
        if let Some(bytes) = said(&action) {
            has_voted = head(bytes).0 == VOTE;
        }
        match action {
            Action::Connect { link, ip, port: _ } => {
                let to = ip.rsplit('.').next().and_then(|last| last.parse::<u16>().ok());
                let port = to.ok_or_else(|| format!("it connects to {ip}"))? - 1;
                let starts = self.hosts[host].starts;
                let at_ms = now_ms + Wires::delay_ms(rng);
                self.wires.push(at_ms, Event::Connect { from: End { host, link }, starts, port });
            }
            Action::Send { link, bytes } => {
                let from = End { host, link };
                let Some(to) = self.wires.other(from) else { return Ok(true) };
                self.judge.hear(&self.hosts[host], to, &bytes)?;
                self.wires.send(from, bytes, now_ms, rng);
            }
            Action::Close(link) => self.wires.close(End { host, link }, now_ms, rng),
            Action::PauseWrites { .. } => {
                let Host { offset, .. } = self.hosts[host];
                let clock_ms = self.hosts[host].clock_ms(now_ms);
                self.hosts[host].cluster.writes_are_paused(offset, clock_ms);
            }
            Action::Follow { .. }
            | Action::BecomePrimary
            | Action::DeleteKeys(_)
            | Action::Hide
            | Action::Flush
            | Action::Confirmed(_)
            | Action::Publish { .. }
            | Action::Unpause => {}
        }
        if has_voted && self.is_stormy && self.rng.below(CUT_VOTER_ONE_IN) == 0 {
            let (disk, luck) = (self.hosts[host].disk.clone(), Luck::of_a_cut(&mut self.rng));
            self.crash(host, &disk, luck, 100);
            return Ok(false);
        }
        Ok(true)
    }

    fn crash(&mut self, host: usize, disk: &SimDisk, luck: Luck, down_ms: usize) {
        if !self.hosts[host].is_up {
            return;
        }
        self.ran.crashes += 1;
        if !crate::is_quiet() {
            self.log.push(format!("{:>8} {host:>2} CRASH {luck:?}", self.now_ms));
        }
        self.wires.stop(host, self.now_ms, &mut self.rng);
        self.hosts[host].crash(disk, luck);
        self.plant(host);
        let at_ms = self.now_ms + 1 + self.rng.below(down_ms) as u64;
        self.wires.push(at_ms, Event::Start { host });
    }

    fn start(&mut self, host: usize) -> Result<(), String> {
        if self.hosts[host].is_up {
            return Ok(());
        }
        let started = self.hosts[host].start(self.now_ms, &mut self.rng);
        started.map_err(|what| format!("host {host} does not start: {what}"))?;
        self.plant(host);
        let starts = self.hosts[host].starts;
        self.wires.push(self.now_ms + 1, Event::Tick { host, starts });
        self.settle(host)
    }
}
