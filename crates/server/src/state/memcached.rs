//! What clients of memcached's protocol need beside the data.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use kvasir_memcached::request::{Call, Mode};
use kvasir_resp::args::Args;
use kvasir_table::Table;

/// Of all workers.
pub struct Memcached {
    commands: Commands,
    /// When database 0 is to be flushed, in ms since 1970; 0: not.
    flush_at_ms: AtomicU64,
    /// Whether `stats detail` counts.
    counts_prefixes: AtomicBool,
}

/// The commands that its calls count as, and need the right to, by their places in the table.
struct Commands {
    get: u16,
    get_many: u16,
    get_and_expire: u16,
    set: u16,
    append: u16,
    increment: u16,
    decrement: u16,
    expire: u16,
    delete: u16,
    keys: u16,
    flush: u16,
    info: u16,
    reset: u16,
    list_clients: u16,
    configure: u16,
    shutdown: u16,
    authenticate: u16,
}

impl Memcached {
    pub fn new(table: &Table, counts_prefixes: bool) -> Memcached {
        let find = |name: &str| {
            table.find_original(name.as_bytes()).expect("there is such a command").index as u16
        };
        let commands = Commands {
            get: find("get"),
            get_many: find("mget"),
            get_and_expire: find("getex"),
            set: find("set"),
            append: find("append"),
            increment: find("incr"),
            decrement: find("decr"),
            expire: find("expire"),
            delete: find("del"),
            keys: find("keys"),
            flush: find("flushdb"),
            info: find("info"),
            reset: find("config|resetstat"),
            list_clients: find("client|list"),
            configure: find("config|set"),
            shutdown: find("shutdown"),
            authenticate: find("auth"),
        };
        let counts_prefixes = counts_prefixes.into();
        Memcached { commands, flush_at_ms: AtomicU64::new(0), counts_prefixes }
    }

    /// The command that a call counts as; none if it is answered whatever there is.
    pub fn command_of(&self, call: Call, args: Args<'_>) -> Option<u16> {
        let commands = &self.commands;
        Some(match call {
            Call::Say(_) | Call::SayAndClose(_) | Call::Binary | Call::Quit => return None,
            Call::Get { .. } if args.len() > 2 => commands.get_many,
            Call::Get { .. } | Call::MetaDebug => commands.get,
            Call::GetAndTouch { .. } => commands.get_and_expire,
            Call::MetaGet(flags) if flags.vivify.is_some() => commands.set,
            Call::MetaGet(flags) if flags.ttl.is_some() => commands.get_and_expire,
            Call::MetaGet(_) => commands.get,
            Call::Store(store) => self.storing(store.mode),
            Call::MetaSet(_, mode) => self.storing(mode),
            Call::Delta { is_increment: true, .. } | Call::MetaArithmetic(_, true) => {
                commands.increment
            }
            Call::Delta { .. } | Call::MetaArithmetic(..) => commands.decrement,
            Call::Touch { .. } => commands.expire,
            Call::Delete { .. } | Call::MetaDelete(_) | Call::TooLarge { .. } => commands.delete,
            Call::FlushAll { .. } => commands.flush,
            Call::Stats => match args.get(1) {
                Some(b"reset" | b"detail") => commands.reset,
                Some(b"conns") => commands.list_clients,
                _ => commands.info,
            },
            Call::Dump { .. } | Call::DumpAll { .. } => commands.keys,
            Call::MemoryLimit { .. } => commands.configure,
            Call::Shutdown { .. } => commands.shutdown,
            Call::Login => commands.authenticate,
        })
    }

    fn storing(&self, mode: Mode) -> u16 {
        match mode {
            Mode::Append | Mode::Prepend => self.commands.append,
            Mode::Set | Mode::Add | Mode::Replace | Mode::Cas => self.commands.set,
        }
    }

    pub fn counts_prefixes(&self) -> bool {
        self.counts_prefixes.load(Relaxed)
    }

    pub fn count_prefixes(&self, counts: bool) {
        self.counts_prefixes.store(counts, Relaxed);
    }

    /// The place of CONFIG SET.
    pub fn configure_command(&self) -> usize {
        usize::from(self.commands.configure)
    }

    /// The place of FLUSHDB.
    pub fn flush_command(&self) -> usize {
        usize::from(self.commands.flush)
    }

    /// Has database 0 flushed at a time instead of any that was said before; 0: never.
    pub fn set_flush_at(&self, at_ms: u64) {
        self.flush_at_ms.store(at_ms, Relaxed);
    }

    pub fn flush_at_ms(&self) -> Option<u64> {
        Some(self.flush_at_ms.load(Relaxed)).filter(|at_ms| *at_ms != 0)
    }

    /// Says once that the time to flush has come.
    pub fn take_due(&self, now_ms: u64) -> bool {
        let at_ms = self.flush_at_ms.load(Relaxed);
        at_ms != 0
            && at_ms <= now_ms
            && self.flush_at_ms.compare_exchange(at_ms, 0, Relaxed, Relaxed).is_ok()
    }
}
