//! One row of the option table: what is known of an option.

use crate::kind::{Kind, Value};
use crate::{Config, table};

/// One option.
pub struct Row {
    pub name: &'static str,
    /// Older names; CONFIG GET reports the option under each.
    pub aliases: &'static [&'static str],
    pub group: Group,
    pub kind: Kind,
    /// As it would stand in the file.
    pub default: &'static str,
    pub change: Change,
    pub place: Place,
    /// CONFIG GET shows it by its exact name only.
    pub is_hidden: bool,
    /// What the kind cannot say.
    pub check: fn(&Value) -> Result<(), String>,
    /// Sentences, in lines that fit a file of 80 columns.
    pub doc: &'static str,
}

/// Chapter of the sample file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Network,
    Tls,
    Clients,
    Security,
    Threads,
    Keys,
    Memory,
    Persistence,
    Process,
    Monitoring,
    Replication,
    Cluster,
    Analytics,
    Compatibility,
}

/// When an option may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By CONFIG SET too.
    AtRunTime,
    /// By CONFIG SET of those whom `enable-protected-configs` allows it.
    Protected,
    /// By the file and the command line only.
    AtStart,
}

/// Where the value of an option lives.
pub enum Place {
    Field {
        value: fn(&Config) -> Value,
        assign: fn(&mut Config, Value),
    },
    /// Among those that are kept, and shown, and have no effect so far, for this reason.
    Kept {
        why: &'static str,
    },
}

/// What a configuration file that asks for something Kvasir cannot do leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The server starts, and names the option in the log.
    Ignored,
    /// The server does not start: somebody relies on it for safety, durability or topology.
    Refused,
}

impl Group {
    pub const ALL: &[Group] = &[
        Group::Network,
        Group::Tls,
        Group::Clients,
        Group::Security,
        Group::Threads,
        Group::Keys,
        Group::Memory,
        Group::Persistence,
        Group::Process,
        Group::Monitoring,
        Group::Replication,
        Group::Cluster,
        Group::Analytics,
        Group::Compatibility,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Group::Network => "Network",
            Group::Tls => "TLS",
            Group::Clients => "Clients",
            Group::Security => "Security",
            Group::Threads => "Threads",
            Group::Keys => "Keys",
            Group::Memory => "Memory",
            Group::Persistence => "Persistence",
            Group::Process => "Process and log",
            Group::Monitoring => "Monitoring",
            Group::Replication => "Replication",
            Group::Cluster => "Cluster",
            Group::Analytics => "Exports and graphs",
            Group::Compatibility => "For files and tests of others",
        }
    }
}

impl Row {
    pub(super) const fn new(
        name: &'static str,
        group: Group,
        kind: Kind,
        default: &'static str,
        place: Place,
        doc: &'static str,
    ) -> Row {
        Row {
            name,
            aliases: &[],
            group,
            kind,
            default,
            change: Change::AtRunTime,
            place,
            is_hidden: false,
            check: |_| Ok(()),
            doc,
        }
    }

    pub(super) const fn at_start(self) -> Row {
        Row { change: Change::AtStart, ..self }
    }

    pub(super) const fn hidden(self) -> Row {
        Row { is_hidden: true, ..self }
    }

    pub(super) const fn protected(self) -> Row {
        Row { change: Change::Protected, ..self }
    }

    pub(super) const fn aliases(self, aliases: &'static [&'static str]) -> Row {
        Row { aliases, ..self }
    }

    pub(super) const fn check(self, check: fn(&Value) -> Result<(), String>) -> Row {
        Row { check, ..self }
    }

    /// The row that `name` means, in any case, with the name as the table spells it.
    pub fn find(name: &[u8]) -> Option<(&'static Row, &'static str)> {
        table::all().find_map(|row| {
            let name = row.names().find(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
            Some((row, name))
        })
    }

    /// The name and the older ones.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The value of a directive's words, within every limit of this row.
    pub fn parse(&self, words: &[Vec<u8>]) -> Result<Value, String> {
        let value = self.kind.parse(words)?;
        (self.check)(&value)?;
        Ok(value)
    }

    pub fn value(&self, config: &Config) -> Value {
        match self.place {
            Place::Field { value, .. } => value(config),
            Place::Kept { .. } => {
                config.others.kept.get(self.name).cloned().unwrap_or_else(|| self.default_value())
            }
        }
    }

    pub fn assign(&self, config: &mut Config, value: Value) {
        match self.place {
            Place::Field { assign, .. } => assign(config, value),
            Place::Kept { .. } if value == self.default_value() => {
                config.others.kept.remove(self.name);
            }
            Place::Kept { .. } => {
                config.others.kept.insert(self.name, value);
            }
        }
    }

    /// Sets the field to the default; nothing where the option has no field.
    pub fn reset(&self, config: &mut Config) {
        if let Place::Field { assign, .. } = self.place {
            assign(config, self.default_value());
        }
    }

    pub fn default_value(&self) -> Value {
        let words: Vec<_> = self.default.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        self.parse(&words).expect("the table's defaults are valid")
    }
}
