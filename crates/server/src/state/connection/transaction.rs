//! Transactions: what a connection has queued since MULTI, and which keys it watches.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::plan::KeyAt;
use kvasir_keyspace::spec::{Flags, Traits};
use kvasir_keyspace::view::Env;
use kvasir_keyspace::watching::{Mark, Watching, has_expired};
use kvasir_resp::args::{Args, ArgsBuf};
use kvasir_structures::gate::Pass;
use kvasir_structures::{crc16, hash};
use kvasir_table::Entry;

use crate::state::connection::Connection;

/// Calls since MULTI.
#[derive(Default)]
pub struct Transaction {
    pub calls: Vec<Queued>,
    /// A call was refused: EXEC will be, too.
    pub is_aborted: bool,
}

/// A call that waits for EXEC.
pub struct Queued {
    pub entry: &'static Entry,
    pub args: ArgsBuf,
}

/// The keys that a connection watches.
#[derive(Default)]
pub struct Watched {
    mark: Arc<Mark>,
    keys: Vec<WatchedKey>,
}

struct WatchedKey {
    db: DbIndex,
    key: Vec<u8>,
}

impl Connection {
    /// Opens a transaction.
    pub fn begin_transaction(&mut self) {
        self.multi.transaction = Some(Box::default());
        self.client.queued.store(0, Relaxed);
    }

    /// Queues a call if a transaction is open and takes it; `false` if the call has to run. Fails
    /// for what may not be in one.
    pub fn queue(&mut self, entry: &'static Entry, args: Args<'_>) -> Result<bool, Error> {
        let Some(transaction) = &mut self.multi.transaction else { return Ok(false) };
        if entry.spec.flags.contains(Flags::NO_MULTI) {
            let name = &entry.full_name;
            return Err(Error::new(format!(
                "ERR Command '{name}' not allowed inside a transaction"
            )));
        }
        if entry.spec.traits.contains(Traits::NOT_QUEUED) {
            return Ok(false);
        }
        let mut copy = ArgsBuf::new();
        for arg in args {
            copy.push(arg).map_err(|_| Error::fixed("ERR the call is longer than 4 GiB"))?;
        }
        self.client.queued_bytes.fetch_add(copy.as_args().len_bytes(), Relaxed);
        transaction.calls.push(Queued { entry, args: copy });
        self.client.queued.store(transaction.calls.len() as i64, Relaxed);
        self.reply.simple("QUEUED");
        Ok(true)
    }

    /// Notes that a call was refused, which spoils the transaction that it was meant for.
    pub fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.multi.transaction {
            transaction.is_aborted = true;
        }
    }

    /// Ends the transaction, if there is one, since its EXEC may not run; what EXEC is answered.
    #[cold]
    pub fn abort_exec(&mut self, keyspace: &Keyspace, reason: &Error) -> Error {
        self.take_transaction();
        self.unwatch(keyspace);
        let text = reason.text();
        let text = text.strip_prefix(b"ERR ").unwrap_or(text);
        Error::from_bytes([b"EXECABORT Transaction discarded because of: ", text].concat())
    }

    /// Ends the transaction, if there is one, and takes it.
    pub fn take_transaction(&mut self) -> Option<Box<Transaction>> {
        self.client.queued.store(-1, Relaxed);
        self.client.queued_bytes.store(0, Relaxed);
        self.multi.transaction.take()
    }

    /// Watches a key of the selected database. Fails if a busy script has it.
    pub fn watch(
        &mut self,
        keyspace: &Keyspace,
        pass: &Pass<'_>,
        env: &Env,
        key: &[u8],
    ) -> Result<(), Error> {
        let db = self.db;
        let watched = self.multi.watched.get_or_insert_default();
        if watched.keys.iter().any(|other| other.db == db && other.key == key) {
            return Ok(());
        }
        let slot = keyspace.database(db, pass).slot(crc16::slot_of(key));
        let slot = slot.lock_unless(pass, || keyspace.busy.is_busy());
        let slot = slot.ok_or_else(|| keyspace.busy.error())?;
        let had_expired = has_expired(&slot, env, key);
        keyspace.watching.add(db, key, &watched.mark, had_expired);
        drop(slot);
        watched.keys.push(WatchedKey { db, key: key.to_vec() });
        self.client.add_name(key);
        self.client.watched.store(watched.keys.len(), Relaxed);
        Ok(())
    }

    /// Watches nothing any more.
    pub fn unwatch(&mut self, keyspace: &Keyspace) {
        let Some(watched) = self.multi.watched.take() else { return };
        for WatchedKey { db, key } in &watched.keys {
            keyspace.watching.remove(*db, key, &watched.mark);
            self.client.remove_name(key);
        }
        self.client.watched.store(0, Relaxed);
    }
}

impl Watched {
    /// Whether a key has changed since it was watched.
    pub fn is_touched(&self) -> bool {
        self.mark.is_touched()
    }

    /// The keys, for locking their slots.
    pub fn places(&self) -> impl Iterator<Item = KeyAt> {
        self.keys.iter().map(|watched| KeyAt {
            arg: 0,
            slot: crc16::slot_of(&watched.key),
            db: watched.db,
            hash: hash::of(&watched.key),
        })
    }

    /// Whether the time of a key is over that had more of it when it was watched.
    pub fn has_expired(
        &self,
        watching: &Watching,
        is_expired: impl Fn(DbIndex, &[u8]) -> bool,
    ) -> bool {
        self.keys.iter().any(|WatchedKey { db, key }| {
            is_expired(*db, key) && !watching.had_expired(*db, key, &self.mark)
        })
    }
}
