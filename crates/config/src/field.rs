//! How a field of `Config` takes and gives a `Value`.
//!
//! A row of the table pairs a kind with a field; a pair that does not fit is a mistake in the
//! table, found by its tests, and panics here.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use kvasir_keyspace::access::Policy;
use kvasir_keyspace::event::Class;

use crate::analytics::AnalyticsMemory;
use crate::aof::{Fsync, Liburing, Size};
use crate::cluster::{Endpoint, SaveBehavior};
use crate::kind::Value;
use crate::memory::{HugePages, ValueCompression};
use crate::persistence::RdbVersion;
use crate::replication::{DisklessLoad, LogCompression, PropagationError};
use crate::tls::AuthClients;
use crate::{
    FileMode, IoBackend, LogFormat, Loglevel, OomScoreAdj, PubsubDefault, Supervised,
    SyslogFacility, Threads, TimestampFormat, WhoMay,
};

/// A type that a field of `Config` may have.
pub trait Field {
    fn value(&self) -> Value;
    fn assign(&mut self, value: Value);
}

impl Field for bool {
    fn value(&self) -> Value {
        Value::Bool(*self)
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Bool(value) => *self = value,
            other => misfit("a switch", &other),
        }
    }
}

/// A number; the range of its row lies within the type's.
macro_rules! number {
    ($($type:ty),+) => {$(
        impl Field for $type {
            fn value(&self) -> Value {
                Value::Integer(i64::try_from(*self).expect("range of the row"))
            }

            fn assign(&mut self, value: Value) {
                match value {
                    Value::Integer(number) => {
                        *self = <$type>::try_from(number).expect("range of the row");
                    }
                    other => misfit("a number", &other),
                }
            }
        }
    )+};
}

number!(u8, u16, u32, u64, i64);

impl Field for FileMode {
    fn value(&self) -> Value {
        Value::Octal(self.0)
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Octal(bits) => *self = FileMode(bits),
            other => misfit("permissions", &other),
        }
    }
}

impl Field for Vec<u8> {
    fn value(&self) -> Value {
        Value::Text(self.clone())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = text,
            other => misfit("text", &other),
        }
    }
}

impl Field for PathBuf {
    fn value(&self) -> Value {
        Value::Text(self.as_os_str().as_bytes().to_vec())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = PathBuf::from(OsString::from_vec(text)),
            other => misfit("a path", &other),
        }
    }
}

impl Field for Class {
    fn value(&self) -> Value {
        Value::Events(*self)
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Events(classes) => *self = classes,
            other => misfit("classes of events", &other),
        }
    }
}

impl Field for Vec<String> {
    fn value(&self) -> Value {
        Value::Words(self.clone())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Words(words) => *self = words,
            other => misfit("words", &other),
        }
    }
}

impl Field for Threads {
    fn value(&self) -> Value {
        match *self {
            Threads::Auto => Value::Choice("auto"),
            Threads::Count(count) => Value::Integer(count.into()),
        }
    }

    fn assign(&mut self, value: Value) {
        *self = match value {
            Value::Choice("auto") => Threads::Auto,
            Value::Integer(count) => {
                Threads::Count(u16::try_from(count).expect("range of the row"))
            }
            other => misfit("a number of threads", &other),
        }
    }
}

impl Field for AnalyticsMemory {
    fn value(&self) -> Value {
        match *self {
            AnalyticsMemory::Auto => Value::Choice("auto"),
            AnalyticsMemory::Bytes(bytes) => bytes.value(),
        }
    }

    fn assign(&mut self, value: Value) {
        *self = match value {
            Value::Choice("auto") => AnalyticsMemory::Auto,
            other => {
                let mut bytes = 0;
                Field::assign(&mut bytes, other);
                AnalyticsMemory::Bytes(bytes)
            }
        }
    }
}

/// An enum that is written as one of a few words.
macro_rules! choice {
    ($type:ident, $($variant:ident = $word:literal),+) => {
        impl $type {
            /// The words, for the row's `Kind::Choice`.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl Field for $type {
            fn value(&self) -> Value {
                Value::Choice(match self {
                    $($type::$variant => $word),+
                })
            }

            fn assign(&mut self, value: Value) {
                *self = match value {
                    $(Value::Choice($word) => $type::$variant,)+
                    other => misfit("a word", &other),
                }
            }
        }
    };
}

choice!(
    DisklessLoad,
    Disabled = "disabled",
    OnEmptyDb = "on-empty-db",
    SwapDb = "swapdb",
    FlushBeforeLoad = "flush-before-load"
);
choice!(
    PropagationError,
    Ignore = "ignore",
    Panic = "panic",
    PanicOnReplicas = "panic-on-replicas"
);
choice!(Fsync, Always = "always", EverySecond = "everysec", No = "no");
choice!(Liburing, Auto = "auto", Yes = "yes", No = "no");
choice!(Size, Xs = "xs", S = "s", M = "m", L = "l", Xl = "xl", Xxl = "xxl");
choice!(AuthClients, No = "no", Yes = "yes", Optional = "optional");
choice!(
    Loglevel,
    Debug = "debug",
    Verbose = "verbose",
    Notice = "notice",
    Warning = "warning",
    Nothing = "nothing"
);
choice!(LogFormat, Legacy = "legacy", Logfmt = "logfmt", Json = "json");
choice!(TimestampFormat, Legacy = "legacy", Iso8601 = "iso8601", Milliseconds = "milliseconds");
choice!(Supervised, Upstart = "upstart", Systemd = "systemd", Auto = "auto", No = "no");
choice!(OomScoreAdj, No = "no", Yes = "yes", Relative = "relative", Absolute = "absolute");
choice!(
    SyslogFacility,
    User = "user",
    Local0 = "local0",
    Local1 = "local1",
    Local2 = "local2",
    Local3 = "local3",
    Local4 = "local4",
    Local5 = "local5",
    Local6 = "local6",
    Local7 = "local7"
);
choice!(IoBackend, Auto = "auto", IoUring = "io_uring", Epoll = "epoll");
choice!(Endpoint, Ip = "ip", Hostname = "hostname", Unknown = "unknown-endpoint");
choice!(SaveBehavior, Sync = "sync", BestEffort = "best-effort");
choice!(HugePages, Auto = "auto", Yes = "yes", No = "no");
choice!(RdbVersion, Auto = "auto", Redis70 = "10", Redis72 = "11", Redis74 = "12", Valkey90 = "80");
choice!(ValueCompression, No = "no", Lzf = "lzf", Lz4 = "lz4", Zstd = "zstd");
choice!(LogCompression, No = "no", Lzf = "lzf", Lz4 = "lz4", Zstd = "zstd");
choice!(WhoMay, No = "no", Yes = "yes", Local = "local");
choice!(PubsubDefault, AllChannels = "allchannels", ResetChannels = "resetchannels");

impl Field for Policy {
    fn value(&self) -> Value {
        Value::Choice(self.name())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Choice(name) => *self = Policy::named(name).expect("a word of the row"),
            other => misfit("a word", &other),
        }
    }
}

fn misfit(field: &str, value: &Value) -> ! {
    unreachable!("a row of the option table gives {value:?} to {field}")
}
