//! A call as a client has sent it, on its way through the checks to its command.

use kvasir_keyspace::plan::KeyAt;
use kvasir_resp::args::Args;
use kvasir_table::Entry;

/// A command and the words that it was called with.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    pub entry: &'static Entry,
    pub args: Args<'a>,
    /// Its keys, if they are known already.
    pub planned: Option<&'a [KeyAt]>,
}

impl<'a> Invocation<'a> {
    /// Of a call whose keys are not known.
    pub fn new(entry: &'static Entry, args: Args<'a>) -> Invocation<'a> {
        Invocation { entry, args, planned: None }
    }
}
