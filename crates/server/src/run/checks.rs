//! What code asks before it reads or writes. Code that comes in a primary's stream or stands in the
//! log is asked nothing: who made it was.

use kvasir_keyspace::error::Error;

use crate::calls::admission;
use crate::run::session::Session;
use crate::state::core::Core;
use crate::state::shared::Shared;

impl Session {
    /// Fails if nothing may be written, as far as the disk and replicas are concerned.
    pub fn check_write(&self) -> Result<(), Error> {
        self.ask(|shared, core| admission::check_write(shared, &core.config, core.env.now_ms))
    }

    /// As `check_write`, of code that says beforehand that it writes.
    pub fn check_writing_code(&self) -> Result<(), Error> {
        self.ask(|shared, core| {
            shared.saving.check_script(shared)?;
            admission::check_replicas(shared, &core.config, core.env.now_ms)
        })
    }

    /// Fails if writes want more replicas than follow closely.
    pub fn check_replicas(&self) -> Result<(), Error> {
        self.ask(|shared, core| admission::check_replicas(shared, &core.config, core.env.now_ms))
    }

    /// Fails if this is a replica whose data may be old, and that does not show it.
    pub fn check_stale(&self) -> Result<(), Error> {
        self.ask(|shared, core| admission::check_stale(shared, &core.config))
    }

    fn ask(
        &self,
        check: impl FnOnce(&'static Shared, &Core) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.has_client() { check(self.shared(), &self.worker.core) } else { Ok(()) }
    }
}
