//! As a replica: the thread that follows another server. It asks for what has happened since it was
//! last there, gets all data if that cannot be had, and executes the stream.
//!
//! What is executed goes into this server's own log as it came, while nobody can look in between:
//! so offsets are those of the primary, and replicas of this server, its own append-only file and
//! whoever takes its place need nothing else.

mod link;
mod receive;
mod snapshot;
mod stream;
mod wire;

use std::io;
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
use link::{Answer, Link};
use receive::Partial;
use stream::Ended;

/// After a failure it is tried again so much later.
const AGAIN: Duration = Duration::from_secs(1);
/// Whose number calls of the stream have that are no data's.
const WORKER: usize = 0;

/// Starts the thread, which ends with the process.
pub fn start(shared: &'static Shared, commands: ServerCommands) -> io::Result<()> {
    let run = move || Follower::new(shared, commands).run();
    std::thread::Builder::new().name("replica".into()).spawn(run)?;
    Ok(())
}

struct Follower {
    shared: &'static Shared,
    replayer: Replayer,
    /// What has come of a snapshot when a link broke.
    partial: Option<Partial>,
}

impl Follower {
    fn new(shared: &'static Shared, commands: ServerCommands) -> Follower {
        let replayer = Replayer::new((shared, commands, WORKER), &stream_env(shared));
        Follower { shared, replayer, partial: None }
    }

    fn run(mut self) {
        let upstream = &self.shared.replication.upstream;
        loop {
            let (primary, version) = upstream.wait();
            // What is there by then counts, and is what the primary is asked to go on from.
            while self.shared.saving.loading.is_under_way() && upstream.is_current(version) {
                upstream.rest(version, AGAIN / 10);
            }
            // DEBUG SLEEP holds it up, too.
            drop(self.shared.gate.enter_extra());
            let ended = self.follow(&primary, version);
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
            upstream.rest(version, AGAIN);
        }
    }

    /// Returns when the link has ended.
    fn follow(&mut self, primary: &Primary, version: u64) -> Result<(), String> {
        let shared = self.shared;
        let upstream = &shared.replication.upstream;
        let mut link = Link::connect(shared, primary, version)?;
        upstream.note(version, |upstream| upstream.set_stage(Stage::Greeting));
        let answer = link.greet(self.partial.as_ref().and_then(Partial::wish))?;
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
                let file = snapshot::receive_and_say(&mut link, &mut self.partial, (&id, goes_on))?;
                notice!("MASTER <-> REPLICA sync: Loading DB in memory primary={primary}");
                link.stay_alive(|| snapshot::load(shared, version, &file, (&id, offset)))?;
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
        stream::execute(&mut link, &mut self.replayer).map_err(|ended| match ended {
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
