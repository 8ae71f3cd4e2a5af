//! What scripts need from the server that runs them.

use kvasir_resp::args::Args;
use kvasir_resp::reply::Reply;

/// The server, as scripts see it. One for each interpreter, so it is called by one thread only, and
/// never while it is being called.
pub trait Host {
    /// Runs a command for `redis.call` and `redis.pcall` and writes its reply. `reply` comes empty,
    /// in the protocol that the script has chosen by `redis.setresp`.
    ///
    /// An error is a reply as well, with the text that the command, or Redis on its way to the
    /// command, gives (`ERR Unknown Redis command called from script`). The host counts it; the
    /// text of the script's own failure is then not to be counted again
    /// ([`crate::failure::Failure::counted`]).
    fn call(&self, args: Args<'_>, reply: &mut Reply);

    /// Counts an error that is a part of a script's reply, and that no command gave.
    fn count_error(&self, text: &[u8]);

    /// Whether the script's user may run a command; `None` if there is no such command.
    fn acl_check(&self, args: Args<'_>) -> Option<bool>;

    /// Whether a message of this level would be logged at all.
    fn logs(&self, level: LogLevel) -> bool;

    fn log(&self, level: LogLevel, text: &[u8]);

    /// Chooses where the effects of the script's next writes go.
    fn set_replication(&self, replication: Replication);

    /// Called every [`crate::interpreter::INSTRUCTIONS_PER_TICK`] instructions, or what takes as
    /// long as those: while a script runs, while one is compiled, and while a reply is read.
    fn tick(&self) -> Tick;

    /// Whether the last command was refused, and not run: the debugger shows that.
    fn was_refused(&self) -> bool {
        false
    }

    /// Sends bytes to the client of a script that is debugged.
    fn tell_debugger(&self, _bytes: Vec<u8>) {}

    /// Waits for bytes of that client; none come if it is gone. Fails if the script has to end.
    fn ask_debugger(&self) -> Result<Vec<u8>, &'static str> {
        Ok(Vec::new())
    }

    /// Whether the command that was just called took so long that a tick is due behind it.
    fn is_tick_due(&self) -> bool {
        false
    }
}

/// What a running script shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tick {
    Continue,
    /// Ends it with this error. No `pcall` holds that up.
    Kill(&'static str),
}

/// `redis.LOG_DEBUG` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug = 0,
    Verbose = 1,
    Notice = 2,
    Warning = 3,
}

impl LogLevel {
    pub const ALL: [LogLevel; 4] =
        [LogLevel::Debug, LogLevel::Verbose, LogLevel::Notice, LogLevel::Warning];
}

/// `redis.REPL_NONE` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    pub aof: bool,
    pub replicas: bool,
}
