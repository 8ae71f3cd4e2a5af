//! Kvasir and a peer side by side: the same calls to both, the replies compared.

use anyhow::{Context, Result};

use super::content;
use super::intended::{Peer, Tally, Verdict, judge};
use super::special;
use crate::link::{Call, Link, show};
use crate::random::Random;
use crate::raw::Raw;
use crate::server::{Launch, Server};

/// Connections to each server; every second one speaks RESP3.
pub const CONNECTIONS: usize = 4;

/// One call of a sequence.
#[derive(Clone, Debug)]
pub struct Step {
    pub connection: usize,
    /// Steps in a row with the same number are sent at once.
    pub batch: usize,
    pub call: Call,
}

/// Where the servers disagree.
#[derive(Debug)]
pub struct Difference {
    /// Index of the step; the number of steps if the contents differ after all of them.
    pub step: usize,
    /// The call, or the question about the content.
    pub call: String,
    pub ours: String,
    pub theirs: String,
}

/// What to start.
#[derive(Clone)]
pub struct Launches {
    pub ours: Launch,
    pub theirs: Launch,
    pub peer: Peer,
}

/// Plants one wrong reply in so many, to see whether it is found.
pub struct Canary {
    random: Random,
    once_in: u64,
}

impl Canary {
    pub fn new(seed: u64) -> Canary {
        Canary { random: Random::new(seed), once_in: 10_000 }
    }

    fn touch(&mut self, raw: &mut Raw) {
        if let Raw::Leaf(bytes) = raw
            && self.random.once_in(self.once_in)
        {
            let at = bytes.len() / 2;
            bytes[at] ^= 1;
        }
    }
}

/// Both servers and the connections to them.
pub struct Pair {
    ours: Server,
    theirs: Server,
    links: Vec<Twins>,
    pub tally: Tally,
    pub canary: Option<Canary>,
}

/// A connection to each server, in the same state.
pub struct Twins {
    pub ours: Link,
    pub theirs: Link,
    pub peer: Peer,
}

impl Pair {
    pub fn start(launches: &Launches) -> Result<Pair> {
        let (ours, theirs) = (Server::start(&launches.ours)?, Server::start(&launches.theirs)?);
        let tally = Tally::new(launches.peer);
        let mut pair = Pair { ours, theirs, links: Vec::new(), tally, canary: None };
        pair.renew()?;
        Ok(pair)
    }

    /// Empty databases and new connections.
    pub fn renew(&mut self) -> Result<()> {
        // Those of the epoch before are gone, so nobody waits for a key any more.
        self.links.clear();
        self.links = (0..CONNECTIONS).map(|_| self.connect()).collect::<Result<_>>()?;
        for (index, twins) in self.links.iter_mut().enumerate() {
            if index == 0 {
                twins.ours.ask(&["FLUSHALL"])?;
                twins.theirs.ask(&["FLUSHALL"])?;
            }
            if index % 2 == 1 {
                twins.ours.ask(&["HELLO", "3"])?;
                twins.theirs.ask(&["HELLO", "3"])?;
            }
        }
        Ok(())
    }

    pub fn connect(&self) -> Result<Twins> {
        let link = |server: &Server| Link::connect(&server.dir().join("socket"));
        Ok(Twins { ours: link(&self.ours)?, theirs: link(&self.theirs)?, peer: self.tally.peer })
    }

    /// Runs the steps until the first difference. A server that hangs or ends differs, too.
    pub fn run(&mut self, steps: &[Step]) -> Result<Option<Difference>> {
        let mut first = 0;
        for batch in steps.chunk_by(|one, next| one.batch == next.batch) {
            let found = self.run_batch(batch);
            let found = match found {
                Ok(found) => found,
                Err(error) => Some(self.broken(batch, &error)?),
            };
            if let Some(difference) = found {
                return Ok(Some(Difference { step: first + difference.step, ..difference }));
            }
            first += batch.len();
        }
        Ok(None)
    }

    /// Compares everything that is stored.
    pub fn compare_contents(&mut self, step: usize) -> Result<Option<Difference>> {
        let mut twins = self.connect()?;
        let found = content::compare(&mut twins);
        let difference = match found {
            Ok(found) => found,
            Err(error) => Some(self.broken(&[], &error)?),
        };
        Ok(difference.map(|difference| Difference { step, ..difference }))
    }

    /// Our server does not answer; the peer has to.
    fn broken(&mut self, batch: &[Step], error: &anyhow::Error) -> Result<Difference> {
        self.theirs.check_alive().context("the peer")?;
        let state = match self.ours.check_alive() {
            Ok(()) => "it still runs".to_string(),
            Err(error) => format!("{error:#}"),
        };
        Ok(Difference {
            step: batch.len().saturating_sub(1),
            call: batch.iter().map(|step| show(&step.call)).collect::<Vec<_>>().join("; "),
            ours: format!("{error:#}; {state}"),
            theirs: "alive".to_string(),
        })
    }

    fn run_batch(&mut self, batch: &[Step]) -> Result<Option<Difference>> {
        let twins = &mut self.links[batch[0].connection];
        if special::is_special(&batch[0].call) {
            let call = &batch[0].call;
            let (ours, theirs, is_same) = special::run(twins, call)?;
            self.tally.commands += 1;
            return Ok((!is_same).then(|| differ(0, call, &ours, &theirs)));
        }
        let calls: Vec<&Call> = batch.iter().map(|step| &step.call).collect();
        twins.ours.send(&calls)?;
        twins.theirs.send(&calls)?;
        let theirs = twins.theirs.replies(calls.len()).context("the peer")?;
        for (index, (call, theirs)) in calls.into_iter().zip(theirs).enumerate() {
            let mut ours = twins.ours.reply()?;
            if let Some(canary) = &mut self.canary {
                canary.touch(&mut ours);
            }
            if judge(call, &ours, &theirs, &mut self.tally) == Verdict::Different {
                return Ok(Some(differ(index, call, &ours, &theirs)));
            }
        }
        Ok(None)
    }
}

fn differ(step: usize, call: &Call, ours: &Raw, theirs: &Raw) -> Difference {
    let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
    Difference { step, call: show(call), ours, theirs }
}
