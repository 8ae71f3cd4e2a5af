//! What is known of a command without running it: its row in the command table.
//!
//! Everything that COMMAND, COMMAND DOCS and COMMAND GETKEYS report, what slots a call locks and
//! what docs/commands.md prints is derived from these rows. Words, flags and shapes follow
//! <https://redis.io/docs/latest/commands/command-docs/>.

use bitflags::bitflags;

/// One command or subcommand, as COMMAND and COMMAND DOCS describe it.
pub struct Spec {
    /// Lower case; a subcommand carries its own word only (`setname`, not `client|setname`).
    pub name: &'static str,
    pub summary: &'static str,
    pub since: &'static str,
    pub group: Group,
    pub complexity: &'static str,
    /// Number of arguments with the command's name; negative: at least that many.
    pub arity: i32,
    pub flags: Flags,
    pub traits: Traits,
    /// ACL categories beside those that follow from `flags` and `group`.
    pub categories: Categories,
    pub keys: &'static [KeySpec],
    pub tips: &'static [&'static str],
    /// Pairs of version and change.
    pub history: &'static [(&'static str, &'static str)],
    /// Since when another command is preferred, and which.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// No client calls it but those of the system itself.
    pub is_for_system: bool,
    pub arguments: &'static [Argument],
}

impl Spec {
    /// The row from which others take what they do not name.
    pub const BLANK: Spec = Spec {
        name: "",
        summary: "",
        since: "1.0.0",
        group: Group::Generic,
        complexity: "O(1)",
        arity: 1,
        flags: Flags::empty(),
        traits: Traits::empty(),
        categories: Categories::empty(),
        keys: &[],
        tips: &[],
        history: &[],
        deprecated: None,
        is_for_system: false,
        arguments: &[],
    };

    /// Whether a call with `count` arguments, the name included, has the right number.
    pub fn accepts_count(&self, count: usize) -> bool {
        match self.arity {
            exact if exact >= 0 => count == exact as usize,
            least => count >= least.unsigned_abs() as usize,
        }
    }
}

/// The group of COMMAND DOCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Bitmap,
    Hyperloglog,
    Geo,
    Stream,
    Pubsub,
    Connection,
    Transactions,
    Scripting,
    Server,
    Analytics,
    Cluster,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::Bitmap => "bitmap",
            Group::Hyperloglog => "hyperloglog",
            Group::Geo => "geo",
            Group::Stream => "stream",
            Group::Pubsub => "pubsub",
            Group::Connection => "connection",
            Group::Transactions => "transactions",
            Group::Scripting => "scripting",
            Group::Server => "server",
            Group::Analytics => "analytics",
            Group::Cluster => "cluster",
        }
    }
}

bitflags! {
    /// The flags of COMMAND INFO.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u32 {
        const WRITE = 1 << 0;
        const READONLY = 1 << 1;
        const DENYOOM = 1 << 2;
        const ADMIN = 1 << 3;
        const PUBSUB = 1 << 4;
        const NOSCRIPT = 1 << 5;
        const BLOCKING = 1 << 6;
        const LOADING = 1 << 7;
        const STALE = 1 << 8;
        const SKIP_MONITOR = 1 << 9;
        const SKIP_SLOWLOG = 1 << 10;
        const ASKING = 1 << 11;
        const FAST = 1 << 12;
        const NO_AUTH = 1 << 13;
        const NO_ASYNC_LOADING = 1 << 14;
        const NO_MULTI = 1 << 15;
        const MOVABLEKEYS = 1 << 16;
        const ALLOW_BUSY = 1 << 17;
        const NO_MANDATORY_KEYS = 1 << 18;
        const PROTECTED = 1 << 19;
    }

    /// What others have to know of a command, and COMMAND INFO does not tell. Rules that hold for
    /// some commands ask for these, never for names: subcommands share names with commands.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Traits: u32 {
        /// A transaction does not queue it, and it runs whatever memory there is.
        const NOT_QUEUED = 1 << 0;
        /// It runs what was queued.
        const RUNS_QUEUED = 1 << 1;
        /// A RESP2 client may call it while it subscribes to something: it could not tell the
        /// reply to anything else from a message.
        const WHILE_SUBSCRIBED = 1 << 2;
        /// It may change data, or reach clients of other servers, without being a write.
        const MAY_REPLICATE = 1 << 3;
        /// Sends a message to whoever listens, here or elsewhere.
        const PUBLISHES = 1 << 4;
        /// Its options may name patterns of keys, which are found out while it runs.
        const READS_PATTERNS = 1 << 5;
        /// Changes every key of a database, by removing it.
        const EMPTIES = 1 << 6;
        /// Works on all databases.
        const EVERY_DATABASE = 1 << 7;
        /// Works on databases that it names, whole, and not on the one that is selected.
        const NAMED_DATABASES = 1 << 8;
        /// Has another database selected.
        const SELECTS = 1 << 9;
        /// May put a key into another database.
        const LEAVES_DATABASE = 1 << 10;
        /// Looks how a key is kept, which is no use of it.
        const LOOKS = 1 << 11;
        /// It sends keys of a slot that moves, from wherever they are.
        const SENDS_KEYS = 1 << 12;
        /// Whoever looks after servers asks by it whether this one is well.
        const TELLS_HEALTH = 1 << 13;
    }

    /// ACL categories that a row names itself.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Categories: u32 {
        const KEYSPACE = 1 << 0;
        const DANGEROUS = 1 << 1;
        const CONNECTION = 1 << 2;
        const TRANSACTION = 1 << 3;
        const SCRIPTING = 1 << 4;
        /// Works on lists, sets and sorted sets, and is no command for keys of any type.
        const SORTABLE = 1 << 5;
        /// For administrators, and so dangerous, without the flag that says so.
        const ADMIN = 1 << 6;
    }

    /// What a command does with the keys of one key specification.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct KeyFlags: u32 {
        const RO = 1 << 0;
        const RW = 1 << 1;
        const OW = 1 << 2;
        const RM = 1 << 3;
        const ACCESS = 1 << 4;
        const UPDATE = 1 << 5;
        const INSERT = 1 << 6;
        const DELETE = 1 << 7;
        const NOT_KEY = 1 << 8;
        const INCOMPLETE = 1 << 9;
        const VARIABLE_FLAGS = 1 << 10;
    }
}

/// Where keys stand among the arguments of a call.
pub struct KeySpec {
    pub flags: KeyFlags,
    pub notes: Option<&'static str>,
    pub begin: Begin,
    pub find: Find,
}

impl KeySpec {
    /// The first argument is the only key.
    pub const fn first(flags: KeyFlags) -> KeySpec {
        KeySpec::range(flags, 1, 0, 1)
    }

    /// Keys from argument `first`; `last` counts from there, or from the end where negative.
    pub const fn range(flags: KeyFlags, first: u16, last: i32, step: u16) -> KeySpec {
        KeySpec {
            flags,
            notes: None,
            begin: Begin::Index(first),
            find: Find::Range { last, step, limit: 0 },
        }
    }
}

/// Where the search for keys starts.
#[derive(Clone, Copy)]
pub enum Begin {
    /// At this argument; the command's name is argument 0.
    Index(u16),
    /// After this word, searched from argument `from` (from the end where negative).
    Keyword { word: &'static str, from: i32 },
    /// Not by the arguments' places: see the notes.
    Unknown,
}

/// How the keys follow from where the search starts.
#[derive(Clone, Copy)]
pub enum Find {
    /// `last` is relative to the start; negative: from the end of the arguments (-1 is the last
    /// one). `limit` 2 means the first half of what remains, 3 a third; 0 and 1 no limit.
    Range {
        last: i32,
        step: u16,
        limit: u16,
    },
    /// A count of keys stands at `count`, the first key at `first`, both relative to the start.
    Count {
        count: u16,
        first: u16,
        step: u16,
    },
    Unknown,
}

/// One argument of COMMAND DOCS.
pub struct Argument {
    pub name: &'static str,
    pub kind: ArgumentKind,
    /// Index of the key specification that a key argument belongs to.
    pub key_spec: Option<u8>,
    pub token: Option<&'static str>,
    pub since: Option<&'static str>,
    pub optional: bool,
    pub multiple: bool,
    pub multiple_token: bool,
    /// The parts of a block or the choices of a one-of.
    pub parts: &'static [Argument],
}

/// The type of an argument in COMMAND DOCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentKind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl ArgumentKind {
    pub fn name(self) -> &'static str {
        match self {
            ArgumentKind::String => "string",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Double => "double",
            ArgumentKind::Key => "key",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::UnixTime => "unix-time",
            ArgumentKind::PureToken => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
        }
    }
}

/// Builders, so that a row of the table reads like the command's synopsis.
impl Argument {
    pub const fn new(name: &'static str, kind: ArgumentKind) -> Argument {
        Argument {
            name,
            kind,
            key_spec: None,
            token: None,
            since: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            parts: &[],
        }
    }

    pub const fn key(name: &'static str, key_spec: u8) -> Argument {
        Argument { key_spec: Some(key_spec), ..Argument::new(name, ArgumentKind::Key) }
    }

    pub const fn string(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::String)
    }

    pub const fn integer(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Integer)
    }

    /// A word that stands for itself.
    pub const fn word(name: &'static str, token: &'static str) -> Argument {
        Argument { token: Some(token), ..Argument::new(name, ArgumentKind::PureToken) }
    }

    pub const fn one_of(name: &'static str, parts: &'static [Argument]) -> Argument {
        Argument { parts, ..Argument::new(name, ArgumentKind::OneOf) }
    }

    pub const fn block(name: &'static str, parts: &'static [Argument]) -> Argument {
        Argument { parts, ..Argument::new(name, ArgumentKind::Block) }
    }

    pub const fn token(self, token: &'static str) -> Argument {
        Argument { token: Some(token), ..self }
    }

    pub const fn since(self, version: &'static str) -> Argument {
        Argument { since: Some(version), ..self }
    }

    pub const fn optional(self) -> Argument {
        Argument { optional: true, ..self }
    }

    pub const fn multiple(self) -> Argument {
        Argument { multiple: true, ..self }
    }
}
