//! Kvasir and a peer side by side: the same calls to both, the replies compared.

use std::collections::HashSet;

use anyhow::{Context, Result};
use kvasir_harness::link::{Call, Link, show};
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;
use kvasir_harness::server::{Launch, Server};

use super::content;
use super::intended::Terms;
use super::judge::{Tally, Verdict, judge, judge_parts};
use super::listener::{Event, Listener};
use super::{script, special};

/// Connections to each server; every second one speaks RESP3.
pub const CONNECTIONS: usize = 4;
/// With those that subscribe.
pub const LINKS: usize = CONNECTIONS + 2;

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

/// What makes a server forget what an epoch has left in it.
const CLEAN: [&[&str]; 4] = [
    &["CONFIG", "SET", "notify-keyspace-events", ""],
    &["FLUSHALL"],
    &["FUNCTION", "FLUSH"],
    &["SCRIPT", "FLUSH"],
];

/// What to start.
#[derive(Clone)]
pub struct Launches {
    pub ours: Launch,
    pub theirs: Launch,
    pub terms: Terms,
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
    /// Those that subscribe, then the one that is told what happens to keys.
    listeners: Vec<Listener>,
    pub tally: Tally,
    pub canary: Option<Canary>,
    /// The words of the batch's calls that were refused, or may have been in part.
    refused: HashSet<Vec<u8>>,
}

/// A connection to each server, in the same state.
pub struct Twins {
    pub ours: Link,
    pub theirs: Link,
    pub terms: Terms,
    /// The calls of the transaction that is open.
    queued: Option<Vec<Call>>,
}

impl Pair {
    pub fn start(launches: &Launches) -> Result<Pair> {
        let (ours, theirs) = (Server::start(&launches.ours)?, Server::start(&launches.theirs)?);
        let tally = Tally::new(launches.terms);
        let (links, listeners, refused) = (Vec::new(), Vec::new(), HashSet::new());
        let mut pair = Pair { ours, theirs, links, listeners, tally, canary: None, refused };
        pair.renew()?;
        Ok(pair)
    }

    /// Empty databases and new connections.
    pub fn renew(&mut self) -> Result<()> {
        // Those of the epoch before are gone, so nobody waits for a key any more.
        self.links.clear();
        self.listeners.clear();
        let mut links: Vec<Twins> = (0..LINKS).map(|_| self.connect()).collect::<Result<_>>()?;
        for call in CLEAN {
            links[0].ask(call)?;
        }
        for twins in links.iter_mut().skip(1).step_by(2) {
            twins.ask(&["HELLO", "3"])?;
        }
        self.listeners = links.split_off(CONNECTIONS).into_iter().map(Listener::new).collect();
        self.listeners.push(Listener::of_events(self.connect()?)?);
        self.links = links;
        Ok(())
    }

    pub fn connect(&self) -> Result<Twins> {
        let link = |server: &Server| Link::connect(&server.dir().join("socket"));
        Ok(Twins {
            ours: link(&self.ours)?,
            theirs: link(&self.theirs)?,
            terms: self.tally.terms,
            queued: None,
        })
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
        let connection = batch[0].connection;
        self.refused.clear();
        if connection >= CONNECTIONS {
            let calls: Vec<&Call> = batch.iter().map(|step| &step.call).collect();
            self.listeners[connection - CONNECTIONS].say(&calls)?;
            return self.hear(batch, false);
        }
        let found = self.run_calls(batch)?;
        let is_special = special::is_special(&batch[0].call);
        if found.is_some() { Ok(found) } else { self.hear(batch, is_special) }
    }

    /// Compares what was pushed while the batch ran. Of a special step nothing is: our questions
    /// about it touch keys as well.
    fn hear(&mut self, batch: &[Step], is_special: bool) -> Result<Option<Difference>> {
        for listener in &mut self.listeners {
            // Whether a key is looked for before or after a call's words were found wrong is
            // nobody's business. That a BITFIELD which sets nothing makes its key longer is told
            // by us alone.
            let is_told = |event: &Event<'_>| {
                let is_vague = matches!(event.name, b"keymiss" | b"setbit")
                    && self.refused.contains(event.key);
                !is_special && !is_vague
            };
            let Some((ours, theirs)) = listener.differ(is_told)? else { continue };
            let calls: Vec<String> = batch.iter().map(|step| show(&step.call)).collect();
            return Ok(Some(Difference {
                step: batch.len() - 1,
                call: format!("what was pushed while this ran: {}", calls.join("; ")),
                ours: format!("{ours:?}"),
                theirs: format!("{theirs:?}"),
            }));
        }
        Ok(None)
    }

    fn run_calls(&mut self, batch: &[Step]) -> Result<Option<Difference>> {
        let twins = &mut self.links[batch[0].connection];
        if special::is_special(&batch[0].call) {
            let call = &batch[0].call;
            if twins.queued.is_some() {
                // It would only be queued, and its questions with it.
                return Ok(None);
            }
            let (ours, theirs, is_same) = special::run(twins, call)?;
            if is_same {
                self.tally.commands += 1;
                return Ok(None);
            }
            let verdict = judge(call, &ours, &theirs, &mut self.tally);
            let is_different = verdict == Verdict::Different;
            return Ok(is_different.then(|| differ(0, call, &ours, &theirs)));
        }
        let expanded: Vec<Vec<Call>> = batch.iter().map(|step| expand(&step.call)).collect();
        let calls: Vec<&Call> = expanded.iter().flatten().collect();
        twins.ours.send(&calls)?;
        twins.theirs.send(&calls)?;
        for (index, (step, calls)) in batch.iter().zip(&expanded).enumerate() {
            for (at, sent) in calls.iter().enumerate() {
                // The last call is the step's, others prepare it.
                let call = if at + 1 == calls.len() { &step.call } else { sent };
                let theirs = twins.theirs.reply().context("the peer")?;
                let mut ours = twins.ours.reply()?;
                if let Some(canary) = &mut self.canary {
                    canary.touch(&mut ours);
                }
                let run = twins.queued.iter().flatten().chain([call]);
                let has_failed = has_error(&ours) || has_error(&theirs);
                let is_refused = |call: &&Call| has_failed || may_fail(call);
                self.refused.extend(run.filter(is_refused).flat_map(words));
                if twins.judge(call, &ours, &theirs, &mut self.tally) == Verdict::Different {
                    return Ok(Some(differ(index, call, &ours, &theirs)));
                }
            }
        }
        Ok(None)
    }
}

impl Twins {
    fn ask(&mut self, words: &[&str]) -> Result<()> {
        self.ours.ask(words)?;
        self.theirs.ask(words)?;
        Ok(())
    }

    /// Compares replies, and keeps account of the transaction that is open.
    fn judge(&mut self, call: &Call, ours: &Raw, theirs: &Raw, tally: &mut Tally) -> Verdict {
        let name = call[0].to_ascii_lowercase();
        match &name[..] {
            b"exec" | b"discard" | b"reset" if !theirs.is_error() || is_abort(theirs) => {
                let queued = self.queued.take().unwrap_or_default();
                let is_list = |raw: &Raw| raw.items().len() == queued.len() && !queued.is_empty();
                if ours != theirs && is_list(ours) && is_list(theirs) {
                    let replies = ours.items().iter().cloned().zip(theirs.items().iter().cloned());
                    let calls = queued.into_iter().zip(replies);
                    let parts: Vec<_> = calls.map(|(call, (a, b))| (call, a, b)).collect();
                    return judge_parts(&parts, tally);
                }
            }
            b"multi" if !theirs.is_error() => self.queued = Some(Vec::new()),
            _ if theirs.text() == Some(b"QUEUED") => {
                self.queued.get_or_insert_default().push(call.clone());
            }
            _ => {}
        }
        judge(call, ours, theirs, tally)
    }
}

/// Of a script also those in its statements, which have a letter in front.
fn words(call: &Call) -> impl Iterator<Item = Vec<u8>> {
    let inner = call.iter().filter_map(|word| word.get(1..));
    call.iter().map(Vec::as_slice).chain(inner).map(<[u8]>::to_vec)
}

/// BITFIELD with OVERFLOW FAIL.
fn may_fail(call: &Call) -> bool {
    words(call).any(|word| word.eq_ignore_ascii_case(b"fail"))
}

/// Whether it is an error or has one in it.
fn has_error(reply: &Raw) -> bool {
    reply.is_error() || reply.items().iter().any(has_error)
}

fn is_abort(reply: &Raw) -> bool {
    reply.text().is_some_and(|text| text.starts_with(b"EXECABORT"))
}

/// What one step sends.
fn expand(call: &Call) -> Vec<Call> {
    if script::is_script(call) { script::expand(call) } else { vec![call.clone()] }
}

fn differ(step: usize, call: &Call, ours: &Raw, theirs: &Raw) -> Difference {
    let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
    Difference { step, call: show(call), ours, theirs }
}
