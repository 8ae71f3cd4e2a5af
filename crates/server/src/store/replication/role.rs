//! From a primary to a replica, and back. With the gate closed: what is logged before and behind is
//! of two histories.

use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_structures::gate::ExclusivePass;

use crate::log::{notice, warning};
use crate::machine::process;
use crate::store::Store;
use crate::store::replication::upstream::Primary;
use crate::workers::{End, Message};

/// From here on the server follows this one.
pub fn become_replica(store: &Store, primary: Primary, now_ms: u64) {
    let upstream = &store.replication.upstream;
    let was_replica = upstream.is_replica();
    // What it has written itself is told by its own history, which a primary may know.
    if !was_replica && !store.keyspace.log.is_open() {
        store.replication.begin_history(store.keyspace.log.end());
    }
    notice!("this server is a replica from now on primary={primary}");
    let words = vec![primary.host.clone(), primary.port.to_string()];
    if !was_replica {
        // Who sees that it is a replica sees this too.
        store.replication.demotions.fetch_add(1, Relaxed);
    }
    upstream.follow(Some(primary), now_ms);
    note_primary(store, words);
    if !was_replica {
        // What they wait for is not theirs to take any more.
        store.send_all(|| Message::EndWaits(End::Replica));
    }
}

/// From here on the stream is this server's own.
pub fn become_primary(store: &Store, _alone: &ExclusivePass<'_>, now_ms: u64) {
    let (replication, log) = (&store.replication, &store.keyspace.log);
    notice!("this server is no replica any more");
    replication.upstream.follow(None, now_ms);
    replication.begin_own(log.end());
    // Its own replicas come again, and hear of the new name.
    replication.drop_links(&store.workers);
    // A full synchronization that did not end has left it off.
    let config = store.config();
    if config.aof.appendonly && !store.aof.counts() {
        store.aof.obey(store, false, &config);
    }
    note_primary(store, Vec::new());
}

/// CONFIG GET and CONFIG REWRITE tell of it.
fn note_primary(store: &Store, words: Vec<String>) {
    // A cluster says whom a node follows, not a file.
    let words = if store.config().cluster.enabled { Vec::new() } else { words };
    let changed = store.change_config(|config| {
        let mut config = config.clone();
        config.replication.primary = words;
        Ok::<_, Infallible>(config)
    });
    let Ok(config) = changed;
    if let Err(error) = process::adjust_oom_score(&config) {
        warning!("oom-score-adj has no effect: {error}");
    }
}
