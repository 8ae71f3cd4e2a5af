//! What was computed in the background for a call that waits, to be kept under a key.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_keyspace::value::Object;
use kvasir_keyspace::waiting::Caller;
use kvasir_resp::reply::Reply;
use kvasir_structures::record::Record;

/// Ranks on their way into a key.
pub struct Ranks {
    pub caller: Caller,
    /// Ends the wait of the call; false if that has ended.
    pub claim: Box<dyn FnOnce() -> bool + Send>,
    /// Whether who asked still may have them kept.
    pub may_keep: Box<dyn FnOnce() -> Result<(), Error> + Send>,
    pub db: DbIndex,
    pub key: Vec<u8>,
    /// `None`: there are none, so the key goes.
    pub kept: Option<Kept>,
    /// The answer but for its last word, which tells how many were kept.
    pub reply: Reply,
    pub count: usize,
    pub fence: u64,
}

/// A value, and as DUMP has it, for the log.
pub struct Kept {
    pub record: Record<Object>,
    pub dump: Vec<u8>,
}
