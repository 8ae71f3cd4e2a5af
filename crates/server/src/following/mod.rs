//! As a replica: who follows another server. It asks for what has happened since it was
//! last there, gets all data if that cannot be had, and executes the stream.
//!
//! What is executed goes into this server's own log as it came, while nobody can look in between:
//! so offsets are those of the primary, and replicas of this server, its own append-only file and
//! whoever takes its place need nothing else.

pub mod host;
mod link;
mod receive;
mod snapshot;
mod stream;
pub mod thread;
pub mod wire;

use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_keyspace::view::Env;
use kvasir_reactor::clock;

use crate::loading::replay::Replayer;
use crate::log::{notice, warning};
use crate::run::failover;
use crate::run::server::ServerCommands;
use crate::state::shared::Shared;
use crate::store::replication::upstream::{Primary, Stage};
use crate::store::tuning::env;
use host::Host;
use link::{Answer, Link};
use receive::Partial;
use snapshot::Place;
use stream::Ended;

/// After a failure it is tried again so much later.
const AGAIN: Duration = Duration::from_secs(1);
/// Whose number calls of the stream have that are no data's.
const WORKER: usize = 0;

/// Follows whoever is to be followed, as long as the server runs.
pub async fn follow(
    shared: &'static Shared,
    commands: ServerCommands,
    host: impl Host,
) -> Infallible {
    let replayer = Replayer::new(shared, commands, WORKER, &stream_env(shared));
    Follower { host, shared, replayer, partial: None }.run().await
}

struct Follower<H> {
    host: H,
    shared: &'static Shared,
    replayer: Replayer,
    /// What has come of a snapshot when a link broke.
    partial: Option<Partial>,
}

impl<H: Host> Follower<H> {
    async fn run(mut self) -> Infallible {
        let upstream = &self.shared.replication.upstream;
        loop {
            let (primary, version) = self.host.wait(upstream).await;
            // What is there by then counts, and is what the primary is asked to go on from.
            while self.shared.saving.loading.is_under_way() && upstream.is_current(version) {
                self.host.rest(upstream, version, AGAIN / 10).await;
            }
            // DEBUG SLEEP holds it up, too.
            drop(self.shared.gate.enter_extra());
            let ended = self.follow(&primary, version).await;
            if !upstream.is_current(version) {
                continue;
            }
            upstream.note(version, |upstream| {
                upstream.set_stage(Stage::Down);
                let now_ms = clock::now_unix_ms();
                let _ = upstream.down_since_ms.compare_exchange(0, now_ms, Relaxed, Relaxed);
            });
            if let Err(text) = ended {
                warning!("the link to the primary is down: {text} primary={primary}");
            }
            self.host.rest(upstream, version, AGAIN).await;
        }
    }

    /// Returns when the link has ended.
    async fn follow(&mut self, primary: &Primary, version: u64) -> Result<(), String> {
        let shared = self.shared;
        let upstream = &shared.replication.upstream;
        let wire = self.host.connect(shared, primary, version).await?;
        let mut link = Link::over(shared, wire, version)?;
        upstream.note(version, |upstream| upstream.set_stage(Stage::Greeting));
        let answer = link.greet(self.partial.as_ref().and_then(Partial::wish)).await?;
        if !matches!(answer, Answer::Refuses) && shared.replication.failover.is_in_progress() {
            failover::end(shared);
        }
        let form = match answer {
            Answer::Refuses => {
                let alone = shared.gate.exclusive();
                if upstream.is_current(version) {
                    let why = "Failover target rejected psync request";
                    failover::give_up(shared, &alone, why, clock::now_unix_ms());
                }
                return Err("another one is to be followed".into());
            }
            Answer::GoesOn { id, form } => {
                self.partial = None;
                notice!("Successful partial resynchronization with master. primary={primary}");
                // Inside the gate it stays so whom this server follows.
                let _pass = shared.gate.enter_extra();
                if !upstream.is_current(version) {
                    return Err("another one is to be followed".into());
                }
                if shared.replication.rename(id, shared.keyspace.log.end()) {
                    // Its own replicas come again, and hear of the new name.
                    shared.replication.drop_links(&shared.workers);
                }
                form
            }
            Answer::Begins { id, offset, form, goes_on } => {
                upstream.note(version, |upstream| upstream.set_stage(Stage::GetsSnapshot));
                let partial = &mut self.partial;
                let file = snapshot::receive_and_say(&mut link, partial, &id, goes_on).await?;
                snapshot::load(&mut link, version, &file, Place { id: &id, offset }).await?;
                notice!("MASTER <-> REPLICA sync: Finished with success primary={primary}");
                form
            }
        };
        link.begin_stream(form)?;
        notice!("the link to the primary is up primary={primary}");
        upstream.note(version, |upstream| {
            upstream.set_stage(Stage::Online);
            upstream.down_since_ms.store(0, Relaxed);
        });
        self.replayer.begin_stream(version, link.client());
        let ended = stream::execute(&mut link, &mut self.replayer).await;
        ended.map_err(|ended| match ended {
            Ended::Link(text) => text,
            Ended::Unusable(text) if upstream.is_current(version) => {
                // To go on behind it would be to have other data than the primary.
                shared.replication.begin_history(shared.keyspace.log.end());
                format!(
                    "== CRITICAL == all data is asked for again, since a call cannot be executed: \
                     {text}"
                )
            }
            Ended::Unusable(text) => text,
        })
    }
}

/// What the primary has decided is not decided again.
fn stream_env(shared: &Shared) -> Env {
    let env = env(&shared.config(), clock::now_unix_ms());
    Env { replays: true, ..env }
}
