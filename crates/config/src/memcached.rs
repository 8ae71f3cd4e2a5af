//! The options of memcached's protocol.

use std::path::PathBuf;

use crate::kind::{Kind, Value};
use crate::row::{Group, Row};
use crate::table::{field, integer};
use crate::{Config, FileMode};

/// Where it is spoken, and the limit of an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemcachedConfig {
    /// 0: none.
    pub port: u16,
    /// Empty: none.
    pub unixsocket: PathBuf,
    /// 0: as the umask leaves them.
    pub unixsocketperm: FileMode,
    /// Bytes.
    pub item_size_max: u64,
    pub flush_all: bool,
    pub shutdown: bool,
    pub dump: bool,
    /// Empty: a colon, and nothing is counted before a client asks for it.
    pub detail_delimiter: Vec<u8>,
}

impl MemcachedConfig {
    /// The byte that ends a key's prefix.
    pub fn delimiter(&self) -> u8 {
        self.detail_delimiter.first().copied().unwrap_or(b':')
    }
}

impl Config {
    pub fn serves_memcached(&self) -> bool {
        self.memcached.port != 0 || !self.memcached.unixsocket.as_os_str().is_empty()
    }

    /// Whether Redis's protocol is spoken nowhere.
    pub fn serves_only_memcached(&self) -> bool {
        let speaks_resp =
            self.port != 0 || self.tls.port != 0 || !self.unixsocket.as_os_str().is_empty();
        self.serves_memcached() && !speaks_resp
    }
}

pub const PORT: Row = Row::new(
    "memcached-port",
    Group::Network,
    integer(0, 65535),
    "0",
    field!(memcached.port),
    "\
TCP port for clients of memcached, at the addresses of bind: text and meta
commands, on the strings of database 0. 0: none. With `port 0`, and no other way
in for clients of Redis, maxmemory-policy is allkeys-lru unless it is set.",
)
.at_start();

pub const UNIXSOCKET: Row = Row::new(
    "memcached-unixsocket",
    Group::Network,
    Kind::Text,
    "",
    field!(memcached.unixsocket),
    "Path of a unix socket for clients of memcached. Empty: none.",
)
.at_start();

pub const UNIXSOCKETPERM: Row = Row::new(
    "memcached-unixsocketperm",
    Group::Network,
    Kind::Octal { max: 0o777 },
    "0",
    field!(memcached.unixsocketperm),
    "Permissions of that socket, in octal. 0 leaves what the umask gives.",
)
.at_start();

pub const ITEM_SIZE_MAX: Row = Row::new(
    "memcached-item-size-max",
    Group::Network,
    Kind::Memory { min: 1024, max: 1 << 30 },
    "1mb",
    field!(memcached.item_size_max),
    "\
The largest item that a client of memcached may store: key, value and what
memcached itself adds to them. As `memcached -I`.",
);

pub const FLUSH_ALL: Row = Row::new(
    "memcached-flush-all",
    Group::Network,
    Kind::Bool,
    "yes",
    field!(memcached.flush_all),
    "Whether clients of memcached may flush_all, if their user may FLUSHDB. `no` is\n`memcached -F`.",
);

pub const SHUTDOWN: Row = Row::new(
    "memcached-shutdown",
    Group::Network,
    Kind::Bool,
    "no",
    field!(memcached.shutdown),
    "\
Whether clients of memcached may end the server by `shutdown`, if their user may
SHUTDOWN. `yes` is `memcached -A`.",
);

pub const DUMP: Row = Row::new(
    "memcached-dump",
    Group::Network,
    Kind::Bool,
    "yes",
    field!(memcached.dump),
    "\
Whether clients of memcached may list keys by `stats cachedump` and
`lru_crawler metadump`, if their user may KEYS. `no` is `memcached -X`.",
);

pub const DETAIL_DELIMITER: Row = Row::new(
    "memcached-detail-delimiter",
    Group::Network,
    Kind::Text,
    "",
    field!(memcached.detail_delimiter),
    "\
The character that ends a key's prefix, for `stats detail`: prefixes are counted
from the start on, as by `memcached -D`. Empty: a colon, and they are counted
while a client has said `stats detail on`.",
)
.check(check_delimiter)
.at_start();

fn check_delimiter(value: &Value) -> Result<(), String> {
    match value {
        Value::Text(text) if text.len() > 1 => Err("it is one character".into()),
        _ => Ok(()),
    }
}
