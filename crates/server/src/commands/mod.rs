//! Commands about the server and its connections, one file a family.

pub mod connection;

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Spec;
use kvasir_resp::args::Args;
use kvasir_structures::gate::Pass;

use crate::connection::Connection;
use crate::shared::Shared;
use crate::worker::Core;

/// A command that is not about data: its row and its function, in one place.
pub struct ServerCommand {
    pub spec: Spec,
    pub run: ServerRun,
}

#[derive(Clone, Copy)]
pub enum ServerRun {
    Plain(fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// With the gate closed: nobody else runs.
    World(fn(&mut ServerCx<'_>) -> Result<(), Error>),
    /// By its first argument one of these.
    Container(&'static [&'static ServerCommand]),
}

/// What a server command works with. Its reply is the connection's.
pub struct ServerCx<'a> {
    pub shared: &'static Shared,
    /// The worker that runs it.
    pub worker: usize,
    pub core: &'a mut Core,
    pub connection: &'a mut Connection,
    pub pass: &'a Pass<'a>,
    pub args: Args<'a>,
}

/// Every server command, by family.
pub static SERVER_COMMANDS: &[&[&ServerCommand]] = &[connection::COMMANDS];
