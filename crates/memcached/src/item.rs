//! What a call on one item works with, and what is counted of it.

use kvasir_keyspace::view::View;
use kvasir_resp::number::write_unsigned;
use kvasir_resp::reply::Reply;

/// One key in its locked slot, and where the answer goes.
pub struct Cx<'c, 'a, 'g> {
    pub view: &'c mut View<'a, 'g>,
    pub reply: &'c mut Reply,
    pub count: &'c dyn Fn(Count),
    /// `memcached-item-size-max`
    pub item_size_max: usize,
}

/// What `stats` tells of, by the names it has there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Count {
    GetHits,
    GetMisses,
    GetExpired,
    Sets,
    DeleteHits,
    DeleteMisses,
    IncrementHits,
    IncrementMisses,
    DecrementHits,
    DecrementMisses,
    CasHits,
    CasMisses,
    CasBad,
    TouchHits,
    TouchMisses,
    TooLarge,
    NoMemory,
    Flushes,
    Logins,
    LoginErrors,
    Meta,
}

/// How many there are.
pub const COUNTS: usize = Count::Meta as usize + 1;

impl Cx<'_, '_, '_> {
    pub fn now_ms(&self) -> u64 {
        self.view.env.now_ms
    }
}

/// What the longest number has.
const DIGITS_MAX: usize = 20;

/// Appends a number.
pub fn number(reply: &mut Reply, value: u64) {
    reply.raw_appended(DIGITS_MAX, |bytes| write_unsigned(value, bytes));
}

/// A line, unless it is to be left out.
pub fn say(reply: &mut Reply, text: &str, is_quiet: bool) {
    if !is_quiet && !text.is_empty() {
        reply.raw(text.as_bytes());
        reply.raw(b"\r\n");
    }
}
