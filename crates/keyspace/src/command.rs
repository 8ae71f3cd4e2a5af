//! The command table: rows and how to run them.

use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;
use kvasir_structures::gate::{ExclusivePass, Pass};

use crate::database::Keyspace;
use crate::effect::Effect;
use crate::error::Error;
use crate::place::DbIndex;
use crate::plan::KeyAt;
use crate::rng::Rng;
use crate::spec::Spec;
use crate::view::{Env, Tally, View};
use crate::waiting::{Blocking, Wait};

/// A data command: its row and its function, in one place.
pub struct Command {
    pub spec: Spec,
    pub run: Run,
}

/// How a command reaches data.
pub enum Run {
    /// On the keys that its key specification names, all locked for the whole of the call.
    Keys(fn(&mut Cx<'_, '_>) -> Result<Effect, Error>),
    /// As above, where keys do not all follow from the specification: another database's.
    Planned(fn(&mut Cx<'_, '_>) -> Result<Effect, Error>, PlanKeys),
    /// On any slots, locked one at a time: whole-keyspace reads, which are not atomic.
    Roam(fn(&mut Roam<'_>) -> Result<Effect, Error>),
    /// With the gate closed: nobody else runs.
    World(fn(&mut World<'_, '_>) -> Result<Effect, Error>),
    /// By its first argument one of these.
    Container(&'static [&'static Command]),
}

/// Appends the keys of a call and the database of each.
pub type PlanKeys = fn(&Keyspace, Args<'_>, DbIndex, &mut Vec<KeyAt>) -> Result<(), Error>;

/// What a call on locked keys works with.
pub struct Cx<'a, 'g> {
    pub args: Args<'a>,
    pub db: DbIndex,
    pub view: View<'a, 'g>,
    pub reply: &'a mut Reply,
    pub rng: &'a mut Rng,
    pub blocking: Blocking,
    /// Set by [`Cx::wait`].
    pub(crate) wait: Option<Box<Wait>>,
}

impl Cx<'_, '_> {
    /// Has a blocking call that found nothing wait, or answer so where it may not wait.
    pub fn wait(&mut self, wait: Wait) -> Result<Effect, Error> {
        match self.blocking {
            Blocking::Never => wait.nothing.write_to(self.reply),
            Blocking::For(_) | Blocking::Resumed(_) => self.wait = Some(Box::new(wait)),
        }
        Ok(Effect::None)
    }

    /// Whether others wait already for what this key holds, behind whom a blocking call that comes
    /// new has to queue: they are about to be served.
    pub fn is_behind_others(&mut self, key: usize) -> bool {
        matches!(self.blocking, Blocking::For(_)) && self.view.has_queue_for_value(key)
    }
}

/// What a call on any slots works with.
pub struct Roam<'a> {
    pub args: Args<'a>,
    pub db: DbIndex,
    pub keyspace: &'a Keyspace,
    pub pass: &'a Pass<'a>,
    pub env: &'a Env,
    pub tally: &'a mut Tally,
    pub reply: &'a mut Reply,
    pub rng: &'a mut Rng,
}

/// What a call with the gate closed works with.
pub struct World<'a, 'g> {
    pub args: Args<'a>,
    pub db: DbIndex,
    pub keyspace: &'a Keyspace,
    pub pass: &'a mut ExclusivePass<'g>,
    pub env: &'a Env,
    pub tally: &'a mut Tally,
    pub reply: &'a mut Reply,
}
