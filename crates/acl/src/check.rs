//! Why a call is not allowed, and how that is said.

use kvasir_keyspace::error::Error;

use crate::call::Call;
use crate::user::User;

/// What of a call its user may not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    pub reason: Reason,
    /// The argument that it is about; 0 for the command itself.
    pub arg: usize,
}

/// A later one outweighs an earlier one, if several selectors deny a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    Database,
    Command,
    Key,
    Channel,
}

/// Whether the user may make this call.
pub fn check(user: &User, call: &Call<'_>) -> Result<(), Denied> {
    user.check(call)
}

impl Reason {
    /// As ACL LOG names it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Database => "database",
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
        }
    }
}

impl Denied {
    /// The reply to a call that may not run.
    pub fn error(self, user: &User, call: &Call<'_>) -> Error {
        Error::from_bytes([b"NOPERM ", &self.text(user, call)[..]].concat())
    }

    /// The reply of EXEC for a call that was allowed when it was queued.
    pub fn error_in_exec(self) -> Error {
        let reason = match self.reason {
            Reason::Command => "no permission to execute the command or subcommand",
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => {
                "no permission to access one of the channels used as arguments to the command"
            }
            Reason::Database => "no permission",
        };
        Error::new(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {reason}"
        ))
    }

    /// The error that a script gets.
    pub fn error_in_script(self, user: &User, call: &Call<'_>) -> Error {
        Error::from_bytes([b"ERR ACL failure in script: ", &self.text(user, call)[..]].concat())
    }

    /// Says no more than the client should know: not which key.
    fn text(self, user: &User, call: &Call<'_>) -> Vec<u8> {
        match self.reason {
            Reason::Command => no_command(user, call),
            Reason::Key => b"No permissions to access a key".to_vec(),
            Reason::Channel => b"No permissions to access a channel".to_vec(),
            Reason::Database => b"No permissions to access database".to_vec(),
        }
    }

    /// The reply of ACL DRYRUN, which names what is denied.
    pub fn explain(self, user: &User, call: &Call<'_>) -> Vec<u8> {
        let (before, object, after) = match self.reason {
            Reason::Command => return no_command(user, call),
            Reason::Key => ("the '", &call.args[self.arg], "' key"),
            Reason::Channel => ("the '", &call.args[self.arg], "' channel"),
            Reason::Database => ("database ", &call.args[self.arg], ""),
        };
        let who = [b"User ", &user.name[..], b" has no permissions to access "].concat();
        [&who, before.as_bytes(), object, after.as_bytes()].concat()
    }
}

fn no_command(user: &User, call: &Call<'_>) -> Vec<u8> {
    let what = format!(" has no permissions to run the '{}' command", call.entry.full_name);
    [b"User ", &user.name[..], what.as_bytes()].concat()
}
