//! All data of the primary, loaded in place of what is here.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::replication::DisklessLoad;
use kvasir_keyspace::database::{Database, Keyspace};
use kvasir_keyspace::replace::{note_emptied, replace_all};
use kvasir_keyspace::view::{Garbage, Tally};
use kvasir_persistence::load::Entrance;
use kvasir_structures::gate::ExclusivePass;

use crate::following::host::Wire;
use crate::following::link::Link;
use crate::following::receive::{Partial, Received, receive};
use crate::following::{WORKER, stream_env};
use crate::loading::{Data, Standing, forget_all, read, read_into};
use crate::log::{notice, warning};
use crate::run::handover::learn_granted;
use crate::scripts::libraries::Libraries;
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::workers::Message;
use crate::workers::news::{Item, News};

/// How often it is looked whether nobody reads the log any more.
const LOOK: Duration = Duration::from_millis(1);

/// Where in a history a snapshot is.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub id: &'a str,
    pub offset: u64,
}

/// Whether what there is may be read until the snapshot takes its place: with `swapdb`, if it is
/// the same data, only earlier.
fn may_be_aside(shared: &Shared, id: &str) -> bool {
    let choice = shared.config().replication.diskless_load;
    choice == DisklessLoad::SwapDb && shared.replication.history().id == id
}

/// Receives the snapshot. Where it could be loaded while it comes, which is as good as done then,
/// that is a part of the loading to clients and in the log.
pub async fn receive_and_say<W: Wire>(
    link: &mut Link<W>,
    partial: &mut Option<Partial>,
    id: &str,
    goes_on: bool,
) -> Result<Received, String> {
    let loading = &link.shared.saving.loading;
    if !is_diskless(link.shared) {
        let received = receive(link, partial, goes_on).await?;
        notice!("MASTER <-> REPLICA sync: Loading DB in memory");
        return Ok(received);
    }
    notice!("MASTER <-> REPLICA sync: Loading DB in memory");
    match may_be_aside(link.shared, id) {
        true => loading.begin_aside(),
        false => {
            // Of little data nobody hears.
            loading.hold_calls();
            loading.begin();
        }
    }
    let received = receive(link, partial, goes_on).await;
    if received.is_err() {
        let offset = link.shared.replication.upstream.received.load(Relaxed);
        warning!("Internal error in RDB reading offset {offset}: it ends there");
        loading.end();
        link.shared.send_all(|| Message::Look);
    }
    received
}

/// Whether Redis would load a snapshot while it comes.
fn is_diskless(shared: &Shared) -> bool {
    let (keyspace, pass) = (&shared.keyspace, shared.gate.enter_extra());
    let mut databases = keyspace.indexes().map(|db| keyspace.database(db, &pass));
    match shared.config().replication.diskless_load {
        DisklessLoad::Disabled => false,
        DisklessLoad::OnEmptyDb => databases.all(Database::is_empty),
        DisklessLoad::SwapDb | DisklessLoad::FlushBeforeLoad => true,
    }
}

/// Puts the snapshot in the place of all data here, if that is still wanted. The log goes on where
/// the primary's is.
pub async fn load<W: Wire>(
    link: &mut Link<W>,
    version: u64,
    file: &Received,
    place: Place<'_>,
) -> Result<(), String> {
    let shared = link.shared;
    let loading = &shared.saving.loading;
    let is_aside = shared.config().replication.diskless_load == DisklessLoad::SwapDb;
    let loaded = if may_be_aside(shared, place.id) {
        loading.begin_aside();
        load_aside(link, version, file, place).await
    } else {
        // Of little data nobody hears.
        loading.hold_calls();
        loading.begin();
        match is_aside {
            true => load_aside(link, version, file, place).await,
            false => load_in_place(link, version, file, place).await,
        }
    };
    if loading.is_wanted() {
        loading.end();
    }
    shared.send_all(|| Message::Look);
    // A log of no data must not take the place of one that has some. What was kept while other data
    // was loaded beside it goes on being logged.
    if loaded.is_ok() || is_aside {
        log_again(shared);
    }
    shared.freeing.tidy_later();
    loaded
}

/// The append-only file goes on with what there is.
fn log_again(shared: &'static Shared) {
    let config = shared.config();
    if config.aof.appendonly && !shared.aof.counts() {
        shared.aof.obey(shared, false, &config);
    }
}

/// Throws away what there is before it loads.
async fn load_in_place<W: Wire>(
    link: &mut Link<W>,
    version: u64,
    file: &Received,
    place: Place<'_>,
) -> Result<(), String> {
    let shared = link.shared;
    close_log(link).await?;
    if let Err(text) = forget(shared, Some(version)) {
        // Nothing was thrown away.
        log_again(shared);
        return Err(text);
    }
    let (path, env) = (file.path(), stream_env(shared));
    let entrance = Entrance::Gate(shared.gate);
    let read = link.stay_alive(|| read(shared, path, entrance, &env, false));
    let standing = read.map_err(|error| match forget(shared, None) {
        // What cannot be loaded as a whole is not there at all.
        Ok(()) => error.to_string(),
        Err(text) => text,
    })?;
    go_on_behind(shared, place, standing, &mut shared.gate.exclusive());
    Ok(())
}

/// Keeps what there is until all is loaded.
async fn load_aside<W: Wire>(
    link: &mut Link<W>,
    version: u64,
    file: &Received,
    place: Place<'_>,
) -> Result<(), String> {
    let shared = link.shared;
    let other = Keyspace::new(shared.gate, shared.keyspace.database_count());
    let libraries = Libraries::default();
    let data = Data { keyspace: &other, libraries: &libraries };
    let (path, env, entrance) = (file.path(), stream_env(shared), Entrance::Gate(shared.gate));
    let read = link.stay_alive(|| read_into(shared, data, path, entrance, &env, false));
    let read = match read.map_err(|error| error.to_string()) {
        Ok(standing) => close_log(link).await.map(|()| standing),
        Err(text) => Err(text),
    };
    let mut alone = shared.gate.exclusive();
    let is_wanted = shared.replication.upstream.is_current(version);
    let mut tally = Tally::default();
    let (old, result) = match read {
        Ok(standing) if is_wanted => {
            let old = replace_all(&shared.keyspace, &other, &env, &mut tally, &mut alone);
            shared.libraries.replace(&libraries);
            go_on_behind(shared, place, standing, &mut alone);
            tell_of_all(shared, tally);
            (old, Ok(()))
        }
        read => {
            notice!("what was loaded from the primary is given up, and what was there stays");
            let loaded = other.indexes().filter_map(|db| other.flush(db, &mut alone)).collect();
            (loaded, read.and_then(|_| Err("another one is to be followed".into())))
        }
    };
    drop(alone);
    shared.freeing.free(old.into_iter().map(Garbage::Database));
    result
}

/// What is in memory is the primary's data of an offset in a history, and so the log goes on there,
/// as the snapshot says.
fn go_on_behind(
    shared: &'static Shared,
    place: Place<'_>,
    standing: Standing,
    alone: &mut ExclusivePass<'_>,
) {
    let Place { id, offset } = place;
    shared.keyspace.log_db.stand_in(standing.db);
    if let Some(node) = &shared.cluster {
        shared.keyspace.hidden.set(standing.hidden.iter());
        node.change(|cluster| cluster.learn_foreign(standing.hidden));
        learn_granted(shared, node, &standing.granted);
        node.wake();
    }
    let log = &shared.keyspace.log;
    shared.replication.tail.end(log, alone);
    log.restart_at(offset, alone);
    shared.replication.set_history(id, offset);
    shared.replication.tail.begin(shared, alone);
    shared.send_all(|| Message::LogRestarted);
}

/// Those who cache keys, or wait for them, hear that all of them may be others.
fn tell_of_all(shared: &Shared, mut tally: Tally) {
    let news = News { items: vec![Item::Flushed], ready: std::mem::take(&mut tally.ready) };
    shared.send(WORKER, Message::News(Box::new(news)));
}

/// Waits until nobody reads the log, since it is about to begin elsewhere. Whoever follows this
/// server has to begin anew too.
async fn close_log<W: Wire>(link: &mut Link<W>) -> Result<(), String> {
    let shared = link.shared;
    shared.replication.drop_links(&shared.workers);
    shared.replication.drop_kept();
    shared.aof.turn_off();
    let (log, tail) = (&shared.keyspace.log, &shared.replication.tail);
    while log.readers() > usize::from(tail.is_kept()) || tail.cold.has_readers() {
        if !shared.saving.loading.is_wanted() {
            return Err("the server ends".into());
        }
        link.rest_alive(LOOK).await;
    }
    shared.aof.join();
    Ok(())
}

/// Throws all data away, and what the log has kept of its history: nobody may go on from there.
/// With the gate closed it stays so whether another server is to be followed by now.
fn forget(shared: &'static Shared, version: Option<u64>) -> Result<(), String> {
    let (mut core, mut alone) = (Core::new(shared, WORKER), shared.gate.exclusive());
    if version.is_some_and(|version| !shared.replication.upstream.is_current(version)) {
        return Err("another one is to be followed".into());
    }
    note_emptied(&shared.keyspace, &core.env, &alone);
    forget_all(shared, &mut core, &mut alone);
    shared.replication.tail.end(&shared.keyspace.log, &mut alone);
    shared.replication.begin_history(shared.keyspace.log.end());
    shared.keyspace.log_db.stand_in(0);
    drop(alone);
    shared.freeing.free(core.tally.garbage.drain(..));
    tell_of_all(shared, core.tally);
    Ok(())
}
