//! Slots that go to another node: a work for each job, done by a thread (`threads.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_cluster::grant::Grant;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::snapshot::{self, Image, Sink};
use kvasir_reactor::clock;
use kvasir_resp::reply::Reply;

use crate::cluster::Node;
use crate::cluster::handovers::{Job, Stage};
use crate::cluster::hands::{Hands, Later};
use crate::handover::filter::Filter;
use crate::handover::grants::{find_out, give};
use crate::handover::import::settle_down;
use crate::handover::outbox::{Outbox, PIECE};
use crate::handover::peer::{Answer, Lost, Peer, Start};
use crate::handover::words;
use crate::log::{notice, warning};
use crate::replicas::form::Form;
use crate::run::handover;
use crate::state::shared::Shared;
use crate::store::replication::tail::TailReader;

/// Pieces that the target has not answered.
const WINDOW: usize = 4;
/// Runs of slots with an image each; of more runs there is one image, which has what lies between.
const IMAGES_MAX: usize = 16;
/// With so little left of the log its rest is sent while clients wait.
const LEFT_MAX: u64 = 64 << 10;
/// How long a thread that has nothing to do rests.
const REST: Duration = Duration::from_micros(500);
pub(super) const LOST: &str = "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node \
                    for more information.";

/// Why a job goes no further.
pub(super) enum Stop {
    /// It was ended by somebody else.
    Over,
    Failed(String),
}

impl From<Lost> for Stop {
    fn from(Lost(why): Lost) -> Stop {
        notice!("slots are handed over no further: the target is lost error={why}");
        Stop::Failed(LOST.into())
    }
}

/// Has the job done by who works for this node.
pub fn start(shared: &'static Shared, node: &'static Node, job: &Arc<Job>) {
    let own = Arc::clone(job);
    let work = move |hands: Box<dyn Hands>| -> Later<'static, ()> {
        Box::pin(async move {
            match run(hands, shared, node, &own).await {
                Ok(()) => own.end(Stage::Success, ""),
                Err(Stop::Over) => {}
                Err(Stop::Failed(why)) => own.end(Stage::Failed, &why),
            }
            if !node.handovers.is_exporting() {
                shared.replication.note_no_reader(clock::now_unix_ms());
            }
        })
    };
    if let Err(error) = node.workforce.begin("handover", Box::new(work)) {
        job.end(Stage::Failed, &format!("Can't start a thread: {error}"));
    }
}

async fn run(
    mut hands: Box<dyn Hands>,
    shared: &'static Shared,
    node: &'static Node,
    job: &Arc<Job>,
) -> Result<(), Stop> {
    let peer = open(&mut *hands, shared, node, job).await?;
    let mut export = Export {
        hands,
        shared,
        node,
        job,
        peer,
        outbox: Arc::new(Outbox::new(job.slots.clone())),
        images: Vec::new(),
        reader: None,
        filter: Filter::new(&shared.table, job.slots.clone()),
        reply: Reply::default(),
        calls: Vec::new(),
        holds: false,
        sent_bytes: 0,
    };
    let result = export.run().await;
    export.clean_up();
    result
}

/// A connection to the target.
pub(super) async fn open(
    hands: &mut dyn Hands,
    shared: &Shared,
    node: &Node,
    job: &Job,
) -> Result<Peer, Stop> {
    let config = shared.config();
    let target = {
        let cluster = node.look();
        let target = cluster.node(job.target);
        target.map(|target| target.address.clone())
    };
    let Some(address) = target else { return Err(Stop::Failed("Target node is unknown".into())) };
    let port = match config.tls.cluster && address.tls_port != 0 {
        true => address.tls_port,
        false => address.port,
    };
    let mut peer = Peer::connect(hands, &address.ip, port, &config, patience(shared)).await?;
    let (user, password) = (&config.replication.primary_user, &config.replication.primary_auth);
    if !password.is_empty() {
        let words: Vec<&[u8]> = match user.is_empty() {
            true => vec![b"AUTH", password],
            false => vec![b"AUTH", user, password],
        };
        peer.send(&words, patience(shared), || true).await?;
        let Answer(answer) = peer.answer(patience(shared), || true).await?;
        if answer.starts_with('-') {
            return Err(Stop::Failed(format!("Failed to AUTH to target node: {answer}")));
        }
    }
    Ok(peer)
}

pub(super) fn patience(shared: &Shared) -> Duration {
    Duration::from_secs(shared.config().replication.timeout.max(1))
}

struct Export<'a> {
    hands: Box<dyn Hands>,
    shared: &'static Shared,
    node: &'static Node,
    job: &'a Arc<Job>,
    peer: Peer,
    outbox: Arc<Outbox>,
    /// With the first and the last of their slots.
    images: Vec<(u16, u16, Arc<Image>)>,
    /// Of the log behind the cut.
    reader: Option<TailReader>,
    filter: Filter,
    reply: Reply,
    /// What the log says of the slots, and is not sent yet.
    calls: Vec<u8>,
    /// Calls of clients about the slots are put off.
    holds: bool,
    sent_bytes: u64,
}

impl Export<'_> {
    async fn run(&mut self) -> Result<(), Stop> {
        self.establish().await?;
        self.cut()?;
        self.send_image().await?;
        self.enter(Stage::Streaming)?;
        self.catch_up().await?;
        self.ask_to_settle().await?;
        self.catch_up().await?;
        self.send_rest().await?;
        self.hand_over().await
    }

    fn enter(&self, stage: Stage) -> Result<(), Stop> {
        if self.job.enter(stage) { Ok(()) } else { Err(Stop::Over) }
    }

    /// Fails if there is no sense in going on.
    fn check(&self) -> Result<(), Stop> {
        if self.job.stage().is_last() {
            return Err(Stop::Over);
        }
        let cluster = self.node.look();
        let failed = |why: &str| Err(Stop::Failed(why.into()));
        if cluster.me().is_replica() {
            return failed("This node is not a primary any more");
        }
        if !cluster.owns_all(self.job.source, &self.job.slots) {
            return failed("Slots are no longer all owned by myself");
        }
        let comes = cluster.unconfirmed();
        if comes.is_some_and(|slots| self.job.slots.iter().any(|slot| slots.contains(slot))) {
            return failed("Slots have come here just now, and not enough nodes know of it");
        }
        match cluster.node(self.job.target) {
            None => failed("Target node is unknown"),
            // What it was at first it says itself.
            Some(node) if !node.is_primary() && self.job.stage() != Stage::Connecting => {
                failed("Target node is not a primary any more")
            }
            Some(_) => Ok(()),
        }
    }

    async fn say(&mut self, word: &str, more: &[&[u8]]) -> Result<(), Stop> {
        let name = self.job.name.as_bytes();
        let words: [&[u8]; 4] = [b"CLUSTER", b"SYNCSLOTS", word.as_bytes(), name];
        let request = [&words[..], more].concat();
        let (job, patience) = (self.job, patience(self.shared));
        match self.peer.send(&request, patience, || !job.stage().is_last()).await {
            Ok(()) => Ok(()),
            Err(_) if job.stage().is_last() => Err(Stop::Over),
            Err(lost) => Err(lost.into()),
        }
    }

    async fn answer(&mut self) -> Result<Answer, Stop> {
        let job = self.job;
        let answer = self.peer.answer(patience(self.shared), || !job.stage().is_last()).await;
        match answer {
            Ok(answer) => {
                self.job.note_heard();
                Ok(answer)
            }
            Err(_) if self.job.stage().is_last() => Err(Stop::Over),
            Err(lost) => Err(lost.into()),
        }
    }

    /// Has the target expect the slots.
    async fn establish(&mut self) -> Result<(), Stop> {
        self.check()?;
        self.enter(Stage::Establishing)?;
        let (source, slots) = (self.job.source.to_string(), self.job.ranges.replace(' ', ","));
        self.say(words::BEGIN, &[source.as_bytes(), slots.as_bytes()]).await?;
        let answer = self.answer().await?;
        let Answer(text) = &answer;
        // Valkey's server knows the command and another protocol, that of Redis does not know it.
        let is_strange = ["-ERR syntax error", "-ERR unknown", "-ERR Unknown"];
        if is_strange.iter().any(|start| text.starts_with(start)) {
            return Err(Stop::Failed(
                "Target node does not take slots all at once from a server of this kind. Use \
                 CLUSTER SETSLOT and MIGRATE."
                    .into(),
            ));
        }
        if answer.is_error() {
            return Err(Stop::Failed(format!("Received error during handshake to target: {text}")));
        }
        self.enter(Stage::WaitsToSnapshot)
    }

    /// Begins an image of the slots, and to read the log where it begins.
    fn cut(&mut self) -> Result<(), Stop> {
        let Export { shared, job, outbox, .. } = self;
        let shared = *shared;
        let mut alone = shared.gate.exclusive();
        let sink = Arc::clone(outbox) as Arc<dyn Sink>;
        let mut runs = job.slots.ranges();
        if let (Some(first), Some(last)) = (runs.first(), runs.last())
            && runs.len() > IMAGES_MAX
        {
            runs = vec![(first.0, last.1)];
        }
        for (first, last) in runs {
            let (keyspace, slots) = (&shared.keyspace, first..last + 1);
            let image = snapshot::cut_one(keyspace, &mut alone, DbIndex(0), &sink, slots);
            self.images.extend(image.map(|image| (first, last, image)));
        }
        self.job.replaced.store(shared.keyspace.replaced(), Relaxed);
        let replication = &shared.replication;
        replication.open_log(shared, &mut alone);
        replication.note_reader();
        self.reader = replication.tail.open(shared, shared.keyspace.log.end());
        drop(alone);
        self.check()?;
        match &self.reader {
            Some(_) => self.enter(Stage::Snapshotting),
            None => Err(Stop::Failed("The log cannot be read".into())),
        }
    }

    async fn send_image(&mut self) -> Result<(), Stop> {
        let shared = self.shared;
        for slot in self.job.slots.iter() {
            let of_slot =
                self.images.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
            let Some((_, _, image)) = of_slot else { continue };
            let image = Arc::clone(image);
            loop {
                while self.outbox.has_piece() {
                    let piece = self.outbox.take();
                    self.send(&piece).await?;
                }
                let pass = shared.gate.enter_extra();
                let has_more = image.visit(&shared.keyspace, &pass, slot);
                drop(pass);
                if !has_more {
                    break;
                }
                self.check()?;
            }
        }
        self.end_images();
        loop {
            let piece = self.outbox.take();
            if piece.is_empty() {
                break;
            }
            self.send(&piece).await?;
        }
        let (what, bytes) = (self.job.describe(), self.sent_bytes);
        notice!("Slot migration {what} snapshot finished, starting streaming. bytes={bytes}");
        Ok(())
    }

    /// Sends calls, once the target has answered some of what it got.
    async fn send(&mut self, calls: &[u8]) -> Result<(), Stop> {
        while self.peer.unanswered() >= WINDOW {
            self.take_answer().await?;
        }
        self.check()?;
        self.sent_bytes += calls.len() as u64;
        self.say(words::CALLS, &[calls]).await
    }

    async fn take_answer(&mut self) -> Result<(), Stop> {
        let answer = self.answer().await?;
        if answer.is_error() {
            let text = answer.0.trim_end();
            warning!("slots are handed over no further: the target says {text}");
            return Err(Stop::Failed(match text.contains("OOM") {
                true => "Ran out of memory (OOM) during slot import".into(),
                false => format!("Failed to process command during slot migration: {text}"),
            }));
        }
        Ok(())
    }

    /// Sends what the log says until little is left of it, and all else is answered.
    async fn catch_up(&mut self) -> Result<(), Stop> {
        loop {
            let has_read = self.read_log().await?;
            if self.left() < LEFT_MAX {
                self.send_calls().await?;
                while self.peer.unanswered() > 0 {
                    self.take_answer().await?;
                }
                if self.left() < LEFT_MAX {
                    return Ok(());
                }
            } else if !has_read {
                self.hands.rest(REST).await;
            }
            self.check()?;
        }
    }

    fn left(&self) -> u64 {
        let at = self.reader.as_ref().map_or(0, TailReader::cursor);
        let left = self.shared.keyspace.log.end().saturating_sub(at);
        self.job.left.store(left, Relaxed);
        left
    }

    /// Reads some of the log; says whether there was something.
    async fn read_log(&mut self) -> Result<bool, Stop> {
        let Some(reader) = &mut self.reader else { return Ok(false) };
        self.reply.clear();
        let fed = reader.feed(Form::Plain, &mut self.reply);
        fed.map_err(|_| Stop::Failed("The log does not reach back to the snapshot".into()))?;
        let bytes = self.reply.to_vec();
        self.filter.take(&bytes, &mut self.calls).map_err(Stop::Failed)?;
        if self.calls.len() >= PIECE {
            self.send_calls().await?;
        }
        Ok(!bytes.is_empty())
    }

    async fn send_calls(&mut self) -> Result<(), Stop> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let calls = std::mem::take(&mut self.calls);
        self.send(&calls).await
    }

    /// Has disk and replicas of the target get what it has, while nobody waits for that yet.
    async fn ask_to_settle(&mut self) -> Result<(), Stop> {
        self.say(words::SETTLE, &[words::REPLICAS.as_bytes()]).await?;
        self.take_answer().await
    }

    /// Puts calls of clients about the slots off, and sends what is left.
    async fn send_rest(&mut self) -> Result<(), Stop> {
        let shared = self.shared;
        let alone = shared.gate.exclusive();
        self.check()?;
        if self.job.replaced.load(Relaxed) != shared.keyspace.replaced() {
            return Err(Stop::Failed("Data was flushed".into()));
        }
        self.enter(Stage::Paused)?;
        handover::hold(shared, self.node, &alone, &self.job.slots, true);
        self.holds = true;
        let end = shared.keyspace.log.end();
        drop(alone);
        let (start, config) = (Start::now(), shared.config());
        let most = Duration::from_millis(config.cluster.manual_failover_timeout);
        while self.reader.as_ref().is_some_and(|reader| reader.cursor() < end) {
            if !self.read_log().await? {
                shared.aof.write_now(&shared.keyspace.log);
                self.hands.rest(REST).await;
            }
            if start.elapsed() > most {
                return Err(Stop::Failed("Timed out while writes were paused".into()));
            }
        }
        self.send_calls().await?;
        self.say(words::SETTLE, &[words::DISK.as_bytes()]).await?;
        while self.peer.unanswered() > 0 {
            self.take_answer().await?;
        }
        self.check()
    }

    /// Has the file and the replicas know that the slots may be the target's from now on.
    async fn grant(&mut self) -> Result<(), Stop> {
        let (shared, node, job) = (self.shared, self.node, self.job);
        let grant = Grant { job: job.name.clone(), to: job.target, slots: job.slots.clone() };
        let alone = shared.gate.exclusive();
        self.check()?;
        node.change(|cluster| cluster.grant(grant));
        handover::tell_granted(shared, node, &alone);
        drop(alone);
        match shared.config().replication.quorum().replicas {
            0 => Ok(()),
            _ => settle_down(&mut *self.hands, shared, true).await.map_err(Stop::Failed),
        }
    }

    /// Has the target take the slots; returns once it is known whose they are.
    async fn hand_over(&mut self) -> Result<(), Stop> {
        self.grant().await?;
        self.enter(Stage::Granted)?;
        let (shared, node, job) = (self.shared, self.node, self.job);
        let answer = match self.say(words::TAKE, &[]).await {
            Ok(()) => {
                let is_open = || node.look().owns_all(job.source, &job.slots);
                self.peer.answer(patience(shared), is_open).await
            }
            Err(_) => Err(Lost("it does not take what is sent".into())),
        };
        match answer {
            Ok(answer) => match answer.integer() {
                Some(epoch) if give(shared, node, job, epoch) => return Ok(()),
                Some(_) => {}
                None => return Err(Stop::Failed(answer.0.trim_end().into())),
            },
            Err(Lost(why)) => {
                warning!("whose the slots are is not known yet: the target is lost error={why}");
            }
        }
        find_out(&mut *self.hands, shared, node, job).await
    }

    fn end_images(&mut self) {
        let images: Vec<_> = self.images.drain(..).map(|(_, _, image)| image).collect();
        if !images.is_empty() {
            snapshot::end(&self.shared.keyspace, &mut self.shared.gate.exclusive(), &images);
        }
    }

    fn clean_up(&mut self) {
        self.end_images();
        if std::mem::take(&mut self.holds) {
            let alone = self.shared.gate.exclusive();
            let Job { name, slots, .. } = &**self.job;
            handover::end_grant(self.shared, self.node, &alone, name, slots);
        }
    }
}
