//! nodes.conf, as Redis writes it: the lines of CLUSTER NODES with the fields that only files have,
//! and a line with the epochs. Files of Redis from 3.0 on and of Valkey are read.

use std::fmt::Write;

use crate::grant::Grant;
use crate::id::NodeId;
use crate::node::{Address, Flags, Node};
use crate::options::Options;
use crate::output::Action;
use crate::packet::EPOCH_MAX;
use crate::slots::{SLOTS, SlotSet};
use crate::state::Cluster;
use crate::view::Reader;

/// The variable for slots of which there may be keys that count for nothing.
const FOREIGN: &str = "kvasirForeign";
/// And those for slots that were granted to others.
const GRANTED: &str = "kvasirGranted";

/// The line that cannot be read, from 1 on, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    pub line: usize,
    pub why: &'static str,
}

impl Cluster {
    /// What the file is to hold.
    pub fn file(&self) -> String {
        let mut text = String::new();
        for node in self.nodes.values().filter(|node| !node.is(Flags::HANDSHAKE)) {
            self.describe(&mut text, node, Reader::File);
            text.push('\n');
        }
        // Nothing fails that is written to a string.
        let _ = write!(
            text,
            "vars currentEpoch {} lastVoteEpoch {}",
            self.current_epoch, self.last_vote_epoch
        );
        if !self.foreign.is_empty() {
            // A variable that Redis does not know it passes over.
            let _ = write!(text, " {FOREIGN} {}", self.foreign.words(","));
        }
        for grant in &self.grants {
            let _ = write!(text, " {GRANTED} {}", grant.word());
        }
        text.push('\n');
        text
    }

    /// A node as a file says that it was.
    pub fn from_file(
        text: &str,
        options: Options,
        seed: u64,
        now_ms: u64,
    ) -> Result<Cluster, Unreadable> {
        let mut cluster = Cluster::new(options, seed, now_ms);
        let fresh = cluster.me;
        let mut has_me = false;
        // Lines name nodes that stand further down: shards and primaries come at the end.
        for (at, line) in text.lines().enumerate() {
            let unreadable = |why| Unreadable { line: at + 1, why };
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words.first() {
                None => continue,
                Some(&"vars") => cluster.read_vars(&words[1..]).map_err(unreadable)?,
                Some(_) => {
                    let node = read_node(&words, &mut cluster, now_ms).map_err(unreadable)?;
                    if node.is(Flags::MYSELF) {
                        if has_me {
                            return Err(unreadable("there are two of this node"));
                        }
                        has_me = true;
                        cluster.nodes.remove(&fresh);
                        cluster.me = node.id;
                    }
                    if cluster.nodes.contains_key(&node.id) {
                        return Err(unreadable("the node is there already"));
                    }
                    cluster.nodes.insert(node.id, node);
                    for word in words.get(8..).unwrap_or_default() {
                        cluster.read_slots(word, &words).map_err(unreadable)?;
                    }
                }
            }
        }
        if !has_me {
            return Err(Unreadable { line: 0, why: "this node is not in it" });
        }
        cluster.settle_file();
        Ok(cluster)
    }

    fn read_vars(&mut self, words: &[&str]) -> Result<(), &'static str> {
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err("a variable has no value") };
            let epoch = || {
                let epoch = value.parse().ok().filter(|epoch| *epoch <= EPOCH_MAX);
                epoch.ok_or("a variable is no number")
            };
            match *name {
                "currentEpoch" => self.current_epoch = epoch()?,
                "lastVoteEpoch" => self.last_vote_epoch = epoch()?,
                FOREIGN => {
                    let slots = SlotSet::parse(value, ',');
                    self.foreign = slots.ok_or("a range of slots is none")?;
                }
                GRANTED => self.grants.push(Grant::parse(value).ok_or("a grant is none")?),
                // Of a newer version.
                _ => {}
            }
        }
        Ok(())
    }

    fn read_slots(&mut self, word: &str, line: &[&str]) -> Result<(), &'static str> {
        let id = NodeId::parse(line[0].as_bytes()).ok_or("a name is none")?;
        let slot = |text: &str| {
            let slot: Option<u16> = text.parse().ok().filter(|slot| *slot < SLOTS);
            slot.ok_or("a slot is none")
        };
        if let Some(open) = word.strip_prefix('[') {
            let open = open.strip_suffix(']').ok_or("a slot that moves has no end")?;
            let node = |text: &str| NodeId::parse(text.as_bytes()).ok_or("a name is none");
            if let Some((number, to)) = open.split_once("->-") {
                self.migrating.insert(slot(number)?, node(to)?);
            } else if let Some((number, from)) = open.split_once("-<-") {
                self.importing.insert(slot(number)?, node(from)?);
            } else {
                return Err("a slot moves nowhere");
            }
            return Ok(());
        }
        let (first, last) = match word.split_once('-') {
            Some((first, last)) => (slot(first)?, slot(last)?),
            None => (slot(word)?, slot(word)?),
        };
        for slot in first..=last {
            if self.owners[usize::from(slot)].is_some() {
                return Err("a slot has two owners");
            }
            self.give_slot(slot, id);
        }
        Ok(())
    }

    /// What one line cannot know.
    fn settle_file(&mut self) {
        let links: Vec<(NodeId, Option<NodeId>)> =
            self.nodes.values().map(|node| (node.id, node.primary)).collect();
        for (id, primary) in links {
            let Some(primary) = primary else { continue };
            let shard = self.nodes.get_mut(&primary).map(|node| {
                node.flags.insert(Flags::MIGRATE_TO);
                node.shard
            });
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            match shard {
                Some(shard) => node.shard = shard,
                None => node.primary = None,
            }
        }
        // A file of a newer version may name a node that it has not.
        let nodes = &self.nodes;
        self.migrating.retain(|_, to| nodes.contains_key(to));
        self.importing.retain(|_, from| nodes.contains_key(from));
        self.grants.retain(|grant| nodes.contains_key(&grant.to));
        let greatest = self.nodes.values().map(|node| node.config_epoch).max().unwrap_or(0);
        self.current_epoch = self.current_epoch.max(greatest);
        let options = self.options.clone();
        self.set_options(options);
        self.size = self.nodes.values().filter(|node| node.votes()).count();
        let primary = self.my_primary().id;
        let owners = &self.owners;
        self.foreign = (self.foreign.iter())
            .filter(|slot| owners[usize::from(*slot)] != Some(primary))
            .collect();
        if !self.foreign.is_empty() {
            self.act(Action::Hide);
        }
    }
}

fn read_node(words: &[&str], cluster: &mut Cluster, now_ms: u64) -> Result<Node, &'static str> {
    let [id, place, flags, primary, ping, pong, epoch, link, ..] = words else {
        return Err("a node has eight words");
    };
    if !link.ends_with("connected") {
        return Err("a link is in no state");
    }
    let id = NodeId::parse(id.as_bytes()).ok_or("a name is none")?;
    let flags = Flags::parse(flags).ok_or("a flag is unknown")?;
    let shard = NodeId::random(&mut cluster.random);
    let mut node = Node::new(id, shard, flags, now_ms);
    read_place(place, &mut node)?;
    node.primary = match *primary {
        "-" => None,
        name => Some(NodeId::parse(name.as_bytes()).ok_or("a name is none")?),
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| "a number is none");
    // Who was not reached is asked from now on, in this process's time.
    node.ping_sent_ms = if number(ping)? == 0 { 0 } else { now_ms };
    node.pong_received_ms = if number(pong)? == 0 { 0 } else { now_ms };
    if !node.is(Flags::PRIMARY | Flags::REPLICA) {
        node.flags.insert(Flags::PRIMARY);
    }
    if node.is(Flags::FAIL) {
        node.failed_ms = now_ms;
    }
    node.config_epoch = number(epoch)?;
    if node.config_epoch > EPOCH_MAX {
        return Err("an epoch is none");
    }
    Ok(node)
}

/// `ip:port@bus,hostname,name=value...`; the newer the version, the more there is of it.
fn read_place(place: &str, node: &mut Node) -> Result<(), &'static str> {
    let mut parts = place.split(',');
    let address = parts.next().unwrap_or_default();
    let (ip, ports) = address.rsplit_once(':').ok_or("an address has no port")?;
    let (port, bus) = match ports.split_once('@') {
        Some((port, bus)) => (port, Some(bus)),
        None => (ports, None),
    };
    let number = |text: &str| text.parse::<u16>().map_err(|_| "a port is none");
    let port = number(port)?;
    let bus_port = bus.map_or_else(|| Ok(port.wrapping_add(10_000)), number)?;
    node.address = Address { ip: ip.to_owned(), port, tls_port: 0, bus_port };
    // It stands first, whatever it looks like.
    parts.next().unwrap_or_default().clone_into(&mut node.hostname);
    for part in parts {
        match part.split_once('=') {
            Some(("shard-id", shard)) => {
                node.shard = NodeId::parse(shard.as_bytes()).ok_or("a shard is none")?;
            }
            Some(("nodename", name)) => name.clone_into(&mut node.nodename),
            Some(("tls-port", port)) => node.address.tls_port = number(port)?,
            // Then the port that stands first is that of TLS.
            Some(("tcp-port", port)) => {
                (node.address.tls_port, node.address.port) = (node.address.port, number(port)?);
            }
            // Of a newer version.
            _ => {}
        }
    }
    if node.address.port == node.address.tls_port {
        // It has one port for clients.
        node.address.port = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS_7_0: &str = concat!(
        "07c37dfeb235213a872192d90877d0cd55635b91 127.0.0.1:30004@31004 slave e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 1426238317239 4 connected\n",
        "67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 127.0.0.1:30002@31002,host-2 master - 0 1426238316232 2 connected 5461-10922\n",
        "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460 [93->-67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1] [10000-<-67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1]\n",
        "vars currentEpoch 6 lastVoteEpoch 3\n",
    );

    const VALKEY: &str = concat!(
        "07c37dfeb235213a872192d90877d0cd55635b91 ::1:30004@31004,,tls-port=0,shard-id=69bc080733d1355567173199cff4a6a039a2f024,nodename=four myself,slave 67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 0 0 4 connected\n",
        "67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 ::1:30002@31002,h,tls-port=6,shard-id=69bc080733d1355567173199cff4a6a039a2f024 master,fail - 5 1 2 connected 0-1 7\n",
        "vars currentEpoch 6 lastVoteEpoch 0\n",
    );

    fn read(text: &str) -> Result<Cluster, Unreadable> {
        let options = Options { port: 30001, bus_port: 31001, ..Options::default() };
        Cluster::from_file(text, options, 1, 1000)
    }

    #[test]
    fn files_of_redis_are_read_and_written() {
        for text in [REDIS_7_0, VALKEY] {
            let first = read(text).expect("it is a file of a peer");
            let again = read(&first.file()).expect("it is our own");
            assert_eq!(first.file(), again.file());
        }
        let cluster = read(REDIS_7_0).expect("it is a file of a peer");
        assert_eq!(cluster.epochs(), (6, 3));
        assert_eq!(cluster.me().slots.len(), 5461);
        assert_eq!(cluster.migrating.len() + cluster.importing.len(), 2);
        let cluster = read(VALKEY).expect("it is a file of a peer");
        let primary = cluster.my_primary();
        assert!(primary.is(Flags::FAIL));
        assert_eq!((primary.address.ip.as_str(), primary.address.tls_port), ("::1", 6));
        assert_eq!(cluster.me().shard, primary.shard);
    }

    #[test]
    fn the_port_of_tls_may_stand_first() {
        for (place, ports) in [
            (",h,tls-port=6,", (30002, 6)),
            (",h,tcp-port=6,", (6, 30002)),
            (",h,tls-port=30002,", (0, 30002)),
        ] {
            let cluster = read(&VALKEY.replace(",h,tls-port=6,", place)).expect("it is a file");
            let again = read(&cluster.file()).expect("it is our own");
            for cluster in [cluster, again] {
                let address = &cluster.my_primary().address;
                assert_eq!((address.port, address.tls_port), ports, "{place}");
            }
        }
    }

    #[test]
    fn slots_whose_keys_count_for_nothing_are_remembered() {
        let text =
            VALKEY.replace("lastVoteEpoch 0", "lastVoteEpoch 0 kvasirForeign 2-6,9 new word");
        let cluster = read(&text).expect("it is a file");
        assert_eq!(cluster.foreign().words(","), "2-6,9");
        let again = read(&cluster.file()).expect("it is our own");
        assert_eq!(again.foreign().words(","), "2-6,9");
        assert!(read(&text.replace("2-6", "6-2")).is_err());
    }

    #[test]
    fn a_hostname_may_look_like_anything() {
        let text = VALKEY.replace(",h,", ",shard-id=x,");
        let cluster = read(&text).expect("a hostname is no shard");
        assert_eq!(cluster.my_primary().hostname, "shard-id=x");
        assert_eq!(cluster.me().shard, cluster.my_primary().shard);
    }

    #[test]
    fn what_is_torn_is_told_with_its_line() {
        for (from, to, line) in [
            ("myself,", "", 0),
            ("5461-10922", "5461-20000", 2),
            ("5461-10922", "5460-10922", 3),
            ("currentEpoch 6", "currentEpoch six", 4),
            ("30002@31002", "30002@310021", 2),
            ("connected 0-5460", "", 3),
            ("master", "king", 2),
            ("lastVoteEpoch 3", "lastVoteEpoch 9223372036854775808", 4),
            ("1426238316232 2 c", "1426238316232 9223372036854775808 c", 2),
        ] {
            let found = read(&REDIS_7_0.replacen(from, to, 1)).err().map(|error| error.line);
            assert_eq!(found, Some(line), "{from} to {to}");
        }
        for cut in 0..REDIS_7_0.len() {
            // No panic, whatever is left.
            let _ = read(&REDIS_7_0[..cut]);
        }
    }
}
