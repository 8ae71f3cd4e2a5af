//! Which keys, channels and databases a selector covers.

use std::collections::BTreeSet;

use kvasir_keyspace::spec::KeyFlags;
use kvasir_structures::glob::{self, Case};

use crate::rule::{RuleError, has_spaces};

/// `~x`, `%R~x`, `%W~x`, allkeys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    pub all: bool,
    patterns: Vec<KeyPattern>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct KeyPattern {
    pattern: Vec<u8>,
    reads: bool,
    writes: bool,
}

impl Keys {
    pub const ALL: Keys = Keys { all: true, patterns: Vec::new() };

    /// Adds the pattern of a rule that starts with `~` or `%`.
    pub fn add(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all {
            return Err(RuleError::AfterAllKeys);
        }
        let new = KeyPattern::parse(rule)?;
        match self.patterns.iter_mut().find(|known| known.pattern == new.pattern) {
            Some(known) => {
                known.reads |= new.reads;
                known.writes |= new.writes;
            }
            None => self.patterns.push(new),
        }
        Ok(())
    }

    /// Whether a call may do to this key what the flags say.
    pub fn cover(&self, key: &[u8], flags: KeyFlags) -> bool {
        let matches = |pattern: &KeyPattern| {
            pattern.covers(flags) && glob::matches(&pattern.pattern, key, Case::Sensitive)
        };
        self.all || self.patterns.iter().any(matches)
    }

    /// Whether this key may be read.
    pub fn cover_read(&self, key: &[u8]) -> bool {
        self.cover(key, KeyFlags::RO.union(KeyFlags::ACCESS))
    }

    /// Whether every key may be read.
    pub fn cover_all_reads(&self) -> bool {
        self.all || self.patterns.iter().any(|known| known.reads && known.pattern == b"*")
    }

    /// Whether every pattern of another's that lets keys be read is one of these too, or all are.
    pub fn cover_reads_of(&self, other: &Keys) -> bool {
        let is_known = |wanted: &KeyPattern| {
            let mut all = self.patterns.iter();
            all.any(|known| known.reads && known.pattern == wanted.pattern)
        };
        let mut wanted = other.patterns.iter().filter(|pattern| pattern.reads);
        self.cover_all_reads() || !other.all && wanted.all(is_known)
    }

    /// The rules that give the same, in order.
    pub fn rules(&self) -> Vec<Vec<u8>> {
        if self.all {
            vec![b"~*".to_vec()]
        } else {
            self.patterns.iter().map(KeyPattern::rule).collect()
        }
    }
}

impl KeyPattern {
    fn parse(rule: &[u8]) -> Result<KeyPattern, RuleError> {
        let (mut reads, mut writes) = (false, false);
        let mut rest = match rule {
            [b'~', pattern @ ..] => {
                return KeyPattern { pattern: pattern.to_vec(), reads: true, writes: true }
                    .checked();
            }
            [b'%', rest @ ..] => rest,
            _ => return Err(RuleError::Syntax),
        };
        loop {
            match rest {
                [b'r' | b'R', after @ ..] if !reads => (reads, rest) = (true, after),
                [b'w' | b'W', after @ ..] if !writes => (writes, rest) = (true, after),
                // Redis takes an end for a `~` with nothing behind it.
                [] | [b'~', ..] if reads || writes => {
                    let pattern = rest.get(1..).unwrap_or_default().to_vec();
                    return KeyPattern { pattern, reads, writes }.checked();
                }
                _ => return Err(RuleError::Syntax),
            }
        }
    }

    fn checked(self) -> Result<KeyPattern, RuleError> {
        if has_spaces(&self.pattern) { Err(RuleError::Syntax) } else { Ok(self) }
    }

    /// A command that only asks whether a key is there needs no particular right to it.
    fn covers(&self, flags: KeyFlags) -> bool {
        const WRITES: KeyFlags = KeyFlags::INSERT.union(KeyFlags::DELETE).union(KeyFlags::UPDATE);
        (self.reads || !flags.contains(KeyFlags::ACCESS))
            && (self.writes || !flags.intersects(WRITES))
    }

    fn rule(&self) -> Vec<u8> {
        let right: &[u8] = match (self.reads, self.writes) {
            (true, false) => b"%R~",
            (false, _) => b"%W~",
            (true, true) => b"~",
        };
        [right, &self.pattern].concat()
    }
}

/// `&x`, allchannels.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Channels {
    pub all: bool,
    patterns: Vec<Vec<u8>>,
}

impl Channels {
    pub const ALL: Channels = Channels { all: true, patterns: Vec::new() };

    pub fn add(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all {
            return Err(RuleError::AfterAllChannels);
        }
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.patterns.iter().any(|known| known == pattern) {
            self.patterns.push(pattern.to_vec());
        }
        Ok(())
    }

    /// A pattern to subscribe to is covered only by the very same one.
    pub fn cover(&self, channel: &[u8], is_pattern: bool) -> bool {
        let covers = |known: &Vec<u8>| match is_pattern {
            true => known == channel,
            false => glob::matches(known, channel, Case::Sensitive),
        };
        self.all || self.patterns.iter().any(covers)
    }

    /// The rules that give the same, in order.
    pub fn rules(&self) -> Vec<Vec<u8>> {
        if self.all {
            return vec![b"&*".to_vec()];
        }
        self.patterns.iter().map(|pattern| [b"&", &pattern[..]].concat()).collect()
    }
}

/// `db=0,2`, alldbs, resetdbs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Databases {
    All,
    Some(BTreeSet<u32>),
}

impl Databases {
    pub const NONE: Databases = Databases::Some(BTreeSet::new());

    /// What stands behind `db=`: numbers with commas between them. They need not exist: how many
    /// databases there are may change from one start to the next.
    pub fn parse(list: &[u8]) -> Result<Databases, RuleError> {
        let number = |word: &[u8]| {
            let word = word.trim_ascii_start();
            let (sign, digits) = match word {
                [sign @ (b'-' | b'+'), digits @ ..] => (Some(*sign), digits),
                digits => (None, digits),
            };
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return Err(RuleError::Syntax);
            }
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            let number: i32 = number.ok_or(RuleError::DatabaseOutOfRange)?;
            match (sign, u32::try_from(number)) {
                (Some(b'-'), _) if number > 0 => Err(RuleError::DatabaseOutOfRange),
                (_, number) => number.map_err(|_| RuleError::DatabaseOutOfRange),
            }
        };
        list.split(|byte| *byte == b',').map(number).collect::<Result<_, _>>().map(Databases::Some)
    }

    pub fn cover(&self, db: u32) -> bool {
        match self {
            Databases::All => true,
            Databases::Some(set) => set.contains(&db),
        }
    }

    /// As GETUSER shows it.
    pub fn describe(&self) -> String {
        match self {
            Databases::All => "alldbs".into(),
            Databases::Some(set) if set.is_empty() => String::new(),
            Databases::Some(set) => {
                let numbers: Vec<_> = set.iter().map(u32::to_string).collect();
                format!("db={}", numbers.join(","))
            }
        }
    }
}
