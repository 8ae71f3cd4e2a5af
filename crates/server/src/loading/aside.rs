//! Calls of a log that are not about data: scripts, functions, settings.
//!
//! They run as clients' calls do, in a session, of a worker that serves nobody. It has the number
//! of one that runs nothing meanwhile.

use std::sync::Arc;

use kvasir_acl::access::Access;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::view::Env;
use kvasir_reactor::{BackendChoice, ConnectionId, Options, Reactor};
use kvasir_resp::args::Args;
use kvasir_table::Entry;

use crate::clients::{Client, Origin};
use crate::run::server::ServerCommands;
use crate::run::session::Session;
use crate::run::worker::Worker;
use crate::state::connection::Connection;
use crate::state::shared::Shared;

/// No client has this number.
const NOBODY: u64 = 0;

/// What such calls change, and so are run.
const RUN: [&str; 15] = [
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "script|load",
    "script|flush",
    "function|load",
    "function|delete",
    "function|restore",
    "function|flush",
    "config|set",
    "acl|setuser",
    "acl|deluser",
];

/// Whether such a call changes anything; all others are passed over.
pub(super) fn changes_something(entry: &Entry) -> bool {
    RUN.contains(&entry.full_name.as_str())
}

/// Who runs them.
pub(super) struct Aside {
    /// `None` only while a call runs.
    parts: Option<(Box<Worker>, Box<Connection>)>,
}

impl Aside {
    pub fn new(
        shared: &'static Shared,
        commands: ServerCommands,
        index: usize,
        env: &Env,
    ) -> Result<Aside, String> {
        // Its sockets are none, so anything will do.
        let options = Options { backend: BackendChoice::Epoll, ..Options::default() };
        let reactor = Reactor::new(&options)
            .map_err(|error| format!("a call that cannot be run error={error}"))?;
        let mut worker = Worker::new(index, shared, commands, reactor);
        worker.core.env = env.clone();
        let client = Client::new(NOBODY, index, Origin::default(), env.now_ms);
        let id = ConnectionId { index: 0, generation: 0 };
        let access = Access::unbound(&shared.table);
        let connection = Box::new(Connection::new(id, Arc::new(client), access));
        Ok(Aside { parts: Some((worker, connection)) })
    }

    pub fn run(&mut self, entry: &'static Entry, args: Args<'_>, db: DbIndex) -> Result<(), Error> {
        let (worker, mut connection) = self.parts.take().expect("calls come one after another");
        connection.db = db;
        let (mut worker, mut connection, result) =
            Session::run_alone(worker, connection, entry, args.into());
        let result = result.and_then(|()| failure(connection.reply.bytes()));
        connection.reply.clear();
        worker.publish_tally();
        self.parts = Some((worker, connection));
        result
    }
}

/// What a script has failed with is its reply.
fn failure(reply: &[u8]) -> Result<(), Error> {
    let Some(text) = reply.strip_prefix(b"-") else { return Ok(()) };
    let text = text.split(|byte| *byte == b'\r').next().unwrap_or(text);
    Err(Error::from_bytes(text.to_vec()))
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some((worker, _)) = &self.parts {
            // Its interpreters go with it.
            let stats = &worker.shared.workers[worker.index].stats;
            stats.script_vm_bytes.set(0);
            stats.function_vm_bytes.set(0);
        }
    }
}
