//! memcached's options, one row each.

/// An option, by its letter and by its long name.
pub struct Known {
    pub letter: char,
    long: &'static str,
    /// As the log names it.
    pub shown: &'static str,
    pub meaning: Meaning,
}

/// What is made of an option.
#[derive(Clone, Copy)]
pub enum Meaning {
    Port,
    Socket,
    SocketMode,
    Addresses,
    Megabytes,
    KeepsAll,
    Connections,
    Threads,
    Backlog,
    ItemSize,
    /// A file of names and passwords.
    Users,
    Protocol,
    /// UDP's port.
    Datagrams,
    /// `-o`, a list.
    Extended,
    /// This directive.
    Line(&'static str, &'static str),
    /// A directive with the option's value.
    Value(&'static str),
    /// It tunes what is not there.
    Ignored(&'static str),
    /// Somebody relies on it.
    Refused(&'static str),
}

impl Known {
    pub fn has_value(&self) -> bool {
        match self.meaning {
            Meaning::KeepsAll | Meaning::Line(..) => false,
            Meaning::Ignored(_) | Meaning::Refused(_) => WITH_VALUE.contains(self.letter),
            _ => true,
        }
    }
}

/// Of those that are ignored or refused, those with a value.
const WITH_VALUE: &str = "ufnReN";

const SLABS: &str = "there are no slab classes";

macro_rules! option {
    ($letter:literal, $long:literal, $meaning:expr) => {
        Known { letter: $letter, long: $long, shown: concat!("-", $letter), meaning: $meaning }
    };
}

static OPTIONS: &[Known] = &[
    option!('p', "port", Meaning::Port),
    option!('U', "udp-port", Meaning::Datagrams),
    option!('s', "unix-socket", Meaning::Socket),
    option!('a', "unix-mask", Meaning::SocketMode),
    option!('A', "enable-shutdown", Meaning::Line("memcached-shutdown", "yes")),
    option!('l', "listen", Meaning::Addresses),
    option!('d', "daemon", Meaning::Line("daemonize", "yes")),
    option!('r', "enable-coredumps", Meaning::Ignored("the limit is the service manager's")),
    option!('u', "user", Meaning::Value("run-as-user")),
    option!('m', "memory-limit", Meaning::Megabytes),
    option!('M', "disable-evictions", Meaning::KeepsAll),
    option!('c', "conn-limit", Meaning::Connections),
    option!('k', "lock-memory", Meaning::Ignored("memory is not locked")),
    option!('v', "verbose", Meaning::Line("loglevel", "verbose")),
    option!('P', "pidfile", Meaning::Value("pidfile")),
    option!('f', "slab-growth-factor", Meaning::Ignored(SLABS)),
    option!('n', "slab-min-size", Meaning::Ignored(SLABS)),
    option!('L', "enable-largepages", Meaning::Line("huge-pages", "yes")),
    option!('D', "prefix-delimiter", Meaning::Value("memcached-detail-delimiter")),
    option!('t', "threads", Meaning::Threads),
    option!('R', "max-reqs-per-event", Meaning::Ignored("a batch has its own limit")),
    option!('C', "disable-cas", Meaning::Ignored("an id costs memory only where one is asked for")),
    option!('b', "listen-backlog", Meaning::Backlog),
    option!('B', "protocol", Meaning::Protocol),
    option!('I', "max-item-size", Meaning::ItemSize),
    option!('S', "enable-sasl", Meaning::Refused("SASL is not spoken, see -Y")),
    option!('F', "disable-flush-all", Meaning::Line("memcached-flush-all", "no")),
    option!('X', "disable-dumping", Meaning::Line("memcached-dump", "no")),
    option!('W', "disable-watch", Meaning::Ignored("nothing can be watched")),
    option!('Y', "auth-file", Meaning::Users),
    option!('e', "memory-file", Meaning::Refused("see `save` and `appendonly`")),
    option!('Z', "enable-ssl", Meaning::Line("tls-memcached", "yes")),
    option!('N', "napi_ids", Meaning::Ignored("connections go to the thread that has fewest")),
    option!('o', "extended", Meaning::Extended),
];

pub fn find_short(letter: u8) -> Option<&'static Known> {
    OPTIONS.iter().find(|option| option.letter == char::from(letter))
}

pub fn find_long(name: &str) -> Option<&'static Known> {
    OPTIONS.iter().find(|option| option.long == name)
}
