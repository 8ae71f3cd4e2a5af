//! Slots that this node has granted to another one: that one was asked to take them, and may have
//! done so. Until it is known whose they are nobody is served here.
//!
//! The file names them, and the replicas' files do too, so that a node that starts again, or that
//! takes its primary's place, asks first and serves then. Else it would answer writes that are lost
//! as soon as the other node is heard of, since that one has the slots by a newer epoch.

use crate::id::NodeId;
use crate::slots::SlotSet;
use crate::state::Cluster;

/// What the slots go by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The name of what moves them.
    pub job: String,
    pub to: NodeId,
    pub slots: SlotSet,
}

impl Grant {
    /// `job,to,first-last,...`
    pub fn word(&self) -> String {
        format!("{},{},{}", self.job, self.to, self.slots.words(","))
    }

    pub fn parse(word: &str) -> Option<Grant> {
        let (job, rest) = word.split_once(',')?;
        let (to, slots) = rest.split_once(',')?;
        let slots = SlotSet::parse(slots, ',').filter(|slots| !slots.is_empty())?;
        Some(Grant { job: job.to_owned(), to: NodeId::parse(to.as_bytes())?, slots })
    }
}

/// As replicas are told of them.
pub fn words(grants: &[Grant]) -> String {
    grants.iter().map(Grant::word).collect::<Vec<_>>().join(" ")
}

impl Cluster {
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The slots of all grants.
    pub fn granted(&self) -> SlotSet {
        self.grants.iter().flat_map(|grant| grant.slots.iter()).collect()
    }

    /// The other node is about to be asked.
    pub fn grant(&mut self, grant: Grant) {
        self.end_grant(&grant.job);
        self.grants.push(grant);
        self.save();
    }

    /// It is known whose these slots are; or nobody was asked.
    pub fn end_grant(&mut self, job: &str) {
        let before = self.grants.len();
        self.grants.retain(|grant| grant.job != job);
        if self.grants.len() != before {
            self.save();
        }
    }

    /// This replica's primary has said, in its stream or in a snapshot that was loaded, which slots
    /// it has granted: `words`.
    pub fn learn_grants(&mut self, words: &str) {
        let grants: Vec<Grant> = words.split_ascii_whitespace().filter_map(Grant::parse).collect();
        if self.me().is_replica() && self.grants != grants {
            self.grants = grants;
            self.save();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Flags, Node};
    use crate::options::Options;
    use crate::random::Random;

    #[test]
    fn a_file_names_what_is_granted_until_it_is_known_whose_it_is() {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        let to = NodeId::random(&mut Random::new(2));
        cluster.add_node(Node::new(to, to, Flags::PRIMARY, 1000));
        for (job, first) in [("one", 3), ("two", 9)] {
            let slots: SlotSet = (first..first + 2).collect();
            cluster.grant(Grant { job: job.into(), to, slots });
        }
        let again = |cluster: &Cluster| {
            Cluster::from_file(&cluster.file(), Options::default(), 1, 1000).expect("it is sound")
        };
        assert_eq!(again(&cluster).grants(), cluster.grants());
        assert_eq!(cluster.granted().words(","), "3-4,9-10");
        cluster.end_grant("one");
        assert_eq!(again(&cluster).granted().words(","), "9-10");
    }

    #[test]
    fn a_replica_has_the_grants_of_its_primary() {
        let mut cluster = Cluster::new(Options::default(), 1, 1000);
        let to = NodeId::random(&mut Random::new(2));
        let grant = Grant { job: "one".into(), to, slots: (3..5).collect() };
        let told = words(&[grant.clone(), Grant { job: "two".into(), ..grant.clone() }]);
        cluster.learn_grants(&told);
        assert!(cluster.grants().is_empty(), "a primary is told by nobody");
        cluster.follow(to);
        cluster.learn_grants(&told);
        assert_eq!(cluster.grants().len(), 2);
        cluster.learn_grants(&grant.word());
        assert_eq!(cluster.grants(), [grant]);
    }
}
