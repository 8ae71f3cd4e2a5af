//! `client-output-buffer-limit` and `maxmemory-clients`: what clients may make the server keep.

use crate::Config;
use crate::field::Field;
use crate::kind::{Kind, Value, memory};
use crate::row::{Group, Row};
use crate::table::{field, integer};

pub(super) const CLIENT_OUTPUT_BUFFER_LIMIT: Row = Row::new(
    "client-output-buffer-limit",
    Group::Clients,
    Kind::OutputLimits,
    "normal 0 0 0 slave 0 0 0 pubsub 33554432 8388608 60",
    field!(client_output_buffer_limit),
    "\
What may wait to be sent to a client before it is disconnected, for each class
of clients: `normal`, `replica` (or `slave`), `pubsub`. Behind the class stand a
hard limit, and a soft one with the seconds for which it may be exceeded.
0: no limit. A class that is not named keeps its limits. What a replica has to
get waits in the log (`repl-log-memory`) and costs little, so replicas need no
limit: one that is disconnected comes again and lacks no less. Its hard limit is
at least `repl-backlog-size`, and what it lacked when it came does not count.",
);

pub(super) const MAXMEMORY_CLIENTS: Row = Row::new(
    "maxmemory-clients",
    Group::Clients,
    Kind::MemoryOrPercent,
    "0",
    field!(memory.maxmemory_clients),
    "\
What all clients together may take up, in bytes or, with a `%`, of maxmemory.
When it is more, those that take up the most are disconnected, but for those
that called CLIENT NO-EVICT. 0: no limit.",
);

pub(super) const TRACKING_TABLE_MAX_KEYS: Row = Row::new(
    "tracking-table-max-keys",
    Group::Clients,
    integer(0, i64::MAX),
    "1000000",
    field!(tracking_table_max_keys),
    "\
Keys that are remembered for clients that cache them (CLIENT TRACKING). With
more of them some are forgotten, and clients told as if they had changed.
0: no limit.",
);

/// The kinds of clients that have limits of their own, in the order in which they are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Normal,
    Replica,
    PubSub,
}

impl Class {
    const NAMES: [(&str, Class); 4] = [
        ("normal", Class::Normal),
        ("slave", Class::Replica),
        ("replica", Class::Replica),
        ("pubsub", Class::PubSub),
    ];

    fn named(word: &str) -> Option<Class> {
        let found = Class::NAMES.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
        found.map(|(_, class)| *class)
    }

    /// As CONFIG GET prints it.
    pub fn name(self) -> &'static str {
        Class::NAMES.iter().find(|(_, class)| *class == self).expect("each has a name").0
    }
}

/// What may wait to be sent to a client before it is closed; 0: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputLimit {
    /// Bytes, at any moment.
    pub hard: u64,
    /// Bytes, for `soft_seconds` without a break.
    pub soft: u64,
    pub soft_seconds: u64,
}

/// A limit for each class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputLimits([OutputLimit; 3]);

impl OutputLimits {
    pub fn of(&self, class: Class) -> OutputLimit {
        self.0[class as usize]
    }

    /// No output below this is too much for anybody.
    pub fn smallest(&self) -> u64 {
        let all = self.0.iter().flat_map(|limit| [limit.hard, limit.soft]);
        all.filter(|bytes| *bytes > 0).min().unwrap_or(u64::MAX)
    }
}

impl Config {
    /// What may wait for a client of this class. What the backlog has a replica would get again if
    /// it came again, so a smaller hard limit counts as that.
    pub fn output_limit(&self, class: Class) -> OutputLimit {
        let mut limit = self.client_output_buffer_limit.of(class);
        if class == Class::Replica && limit.hard > 0 {
            limit.hard = limit.hard.max(self.replication.backlog_size);
        }
        limit
    }
}

/// What a directive's words say: limits of some classes, each four words.
pub fn parse_limits(words: &[String]) -> Result<Value, String> {
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let limits = words.chunks(4).map(|words| {
        let class = Class::named(&words[0])
            .ok_or("Invalid client class specified in buffer limit configuration.")?;
        let bytes = |word: &String| memory(word.as_bytes()).filter(|_| starts_with_digit(word));
        let seconds = words[3].parse::<u32>().ok().map(u64::from);
        let limit = match (bytes(&words[1]), bytes(&words[2]), seconds) {
            (Some(hard), Some(soft), Some(soft_seconds)) => {
                OutputLimit { hard, soft, soft_seconds }
            }
            _ => {
                return Err("Error in hard, soft or soft_seconds setting in buffer limit \
                            configuration."
                    .to_string());
            }
        };
        Ok((class, limit))
    });
    limits.collect::<Result<_, _>>().map(Value::OutputLimits)
}

fn starts_with_digit(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
}

/// The words that say this.
pub fn print_limits(limits: &[(Class, OutputLimit)]) -> Vec<String> {
    let words = |(class, limit): &(Class, OutputLimit)| {
        let numbers = [limit.hard, limit.soft, limit.soft_seconds].map(|number| number.to_string());
        std::iter::once(class.name().to_string()).chain(numbers)
    };
    limits.iter().flat_map(words).collect()
}

impl Field for OutputLimits {
    fn value(&self) -> Value {
        let all = [Class::Normal, Class::Replica, Class::PubSub];
        Value::OutputLimits(all.map(|class| (class, self.of(class))).to_vec())
    }

    /// Classes that are not named keep their limits.
    fn assign(&mut self, value: Value) {
        match value {
            Value::OutputLimits(limits) => {
                limits.into_iter().for_each(|(class, limit)| self.0[class as usize] = limit);
            }
            other => unreachable!("a row of the option table gives {other:?} to limits"),
        }
    }
}

/// What all clients together may take up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientMemory {
    /// 0: no limit.
    Bytes(u64),
    /// Of `maxmemory`.
    Percent(u32),
}

impl Default for ClientMemory {
    fn default() -> ClientMemory {
        ClientMemory::Bytes(0)
    }
}

impl ClientMemory {
    /// In bytes; 0: no limit.
    pub fn limit(self, maxmemory: u64) -> u64 {
        match self {
            ClientMemory::Bytes(bytes) => bytes,
            ClientMemory::Percent(percent) => {
                let part = u128::from(maxmemory) * u128::from(percent) / 100;
                u64::try_from(part).unwrap_or(u64::MAX)
            }
        }
    }
}

/// A number of bytes, or a percentage.
pub fn parse_memory_or_percent(word: &[u8]) -> Result<Value, String> {
    let none = "argument must be a memory or percent value";
    if let Some(number) = word.strip_suffix(b"%") {
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        return match number.ok_or(none)? {
            0u32 => Ok(Value::Integer(0)),
            percent if percent <= 100 => Ok(Value::Percent(percent)),
            _ => Err("percentage argument must be less or equal to 100".into()),
        };
    }
    let bytes = memory(word).and_then(|bytes| i64::try_from(bytes).ok());
    bytes.map(Value::Integer).ok_or_else(|| none.into())
}

impl Field for ClientMemory {
    fn value(&self) -> Value {
        match *self {
            ClientMemory::Bytes(bytes) => Value::Integer(bytes as i64),
            ClientMemory::Percent(percent) => Value::Percent(percent),
        }
    }

    fn assign(&mut self, value: Value) {
        *self = match value {
            Value::Integer(bytes) => ClientMemory::Bytes(bytes as u64),
            Value::Percent(percent) => ClientMemory::Percent(percent),
            other => unreachable!("a row of the option table gives {other:?} to memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_may_be_behind_by_the_backlog() {
        let limit = |hard| OutputLimit { hard, soft: 5, soft_seconds: 1 };
        let mut config = Config::of_table();
        config.replication.backlog_size = 1000;
        for (hard, expect) in [(0, 0), (10, 1000), (2000, 2000)] {
            config.client_output_buffer_limit = OutputLimits([limit(hard); 3]);
            assert_eq!(config.output_limit(Class::Replica), limit(expect));
            assert_eq!(config.output_limit(Class::Normal), limit(hard));
        }
    }

    fn check(words: &str, expect: Result<&str, &str>) {
        let words: Vec<String> = words.split_whitespace().map(String::from).collect();
        let printed = parse_limits(&words).map(|value| {
            let Value::OutputLimits(limits) = value else { panic!("{value:?}") };
            print_limits(&limits).join(" ")
        });
        assert_eq!(printed, expect.map(String::from).map_err(String::from), "{words:?}");
    }

    #[test]
    fn limits_are_read_and_printed() {
        check("normal 1mb 2kb 60", Ok("normal 1048576 2048 60"));
        check("Replica 1 2 3 pubsub 0 0 0", Ok("slave 1 2 3 pubsub 0 0 0"));
        check("", Ok(""));
        let count = Err("Wrong number of arguments in buffer limit configuration.");
        check("normal 1 2", count);
        let class = Err("Invalid client class specified in buffer limit configuration.");
        check("x 1 2 3", class);
        let number =
            Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.");
        check("normal a 1 1", number);
        check("normal 1 1 -1", number);
    }

    #[test]
    fn a_percentage_is_of_maxmemory() {
        let value = parse_memory_or_percent(b"5%").unwrap();
        let mut memory = ClientMemory::Bytes(0);
        memory.assign(value);
        assert_eq!((memory.limit(1000), memory.limit(0)), (50, 0));
        assert!(
            parse_memory_or_percent(b"101%").is_err() && parse_memory_or_percent(b"x").is_err()
        );
    }
}
