//! What happens to keys, for those who asked to be told: keyspace notifications and the caches of
//! clients.
//!
//! A command says what it changed with [`View::changed`](crate::view::View::changed), once for each
//! change that Redis signals. Whoever ran the command takes the events out of the tally and tells
//! those whom they concern. Classes and names are those of
//! <https://redis.io/docs/latest/develop/use/keyspace-notifications/>.

use bitflags::bitflags;

use crate::database::DbIndex;

bitflags! {
    /// Classes of events, and the two ways to be told: `notify-keyspace-events`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Class: u16 {
        /// `K`: a channel for each key, the event is the message.
        const KEYSPACE = 1 << 0;
        /// `E`: a channel for each event, the key is the message.
        const KEYEVENT = 1 << 1;
        const GENERIC = 1 << 2;
        const STRING = 1 << 3;
        const LIST = 1 << 4;
        const SET = 1 << 5;
        const HASH = 1 << 6;
        const SORTED_SET = 1 << 7;
        const EXPIRED = 1 << 8;
        const EVICTED = 1 << 9;
        const STREAM = 1 << 10;
        /// `m`: a key that was asked for is not there. Not in `A`.
        const MISS = 1 << 11;
        const MODULE = 1 << 12;
        /// `n`: a key is new. Not in `A`.
        const NEW = 1 << 13;
    }
}

/// One thing that happened to one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub db: DbIndex,
    pub key: Vec<u8>,
    pub class: Class,
    pub name: &'static str,
}

impl Event {
    /// Whether what the key holds is another than before: caches of it are stale.
    pub fn is_change(&self) -> bool {
        !self.class.intersects(Class::MISS | Class::NEW)
    }
}
