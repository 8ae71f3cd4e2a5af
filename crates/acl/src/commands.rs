//! Which commands a selector allows: `+get`, `-@write`, `+select|0`.

use std::collections::{BTreeMap, BTreeSet};

use kvasir_keyspace::spec::Flags;
use kvasir_resp::args::Args;

use crate::rule::{RuleError, has_spaces};
use kvasir_table::categories::every_category;
use kvasir_table::{Entry, Table};

/// Allowed commands, and the rules that say so.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commands {
    /// A bit for each entry of the table; empty while none was ever set.
    allowed: Vec<u64>,
    /// The rules start with `+@all`, not with `-@all`.
    starts_with_all: bool,
    /// First arguments, in lower case, with which a command that is not allowed may be called.
    first_args: BTreeMap<usize, BTreeSet<Vec<u8>>>,
    /// The rules behind the first, in the order in which they were given, each target once.
    rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    allows: bool,
    /// In lower case: `get`, `config|get`, `@read`.
    target: Vec<u8>,
}

impl Commands {
    pub fn all(table: &Table) -> Commands {
        let allowed = vec![u64::MAX; table.len().div_ceil(64)];
        Commands { allowed, starts_with_all: true, ..Commands::default() }
    }

    /// Applies a rule that starts with `+` or `-`.
    pub fn apply(&mut self, rule: &[u8], table: &Table) -> Result<(), RuleError> {
        match rule {
            _ if rule.eq_ignore_ascii_case(b"+@all") => *self = Commands::all(table),
            _ if rule.eq_ignore_ascii_case(b"-@all") => *self = Commands::default(),
            [sign, b'@', category @ ..] => self.set_category(*sign == b'+', category, table)?,
            [b'+', target @ ..] if target.contains(&b'|') => self.allow_part(target, table)?,
            [sign, name @ ..] => {
                let entry = table.find_original(name).ok_or(RuleError::UnknownCommand)?;
                self.set(entry, *sign == b'+');
                self.note(*sign == b'+', entry.full_name.as_bytes());
            }
            [] => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn set_category(&mut self, allows: bool, name: &[u8], table: &Table) -> Result<(), RuleError> {
        let name = name.to_ascii_lowercase();
        let mut is_known = false;
        for entry in table.entries() {
            let mut categories = every_category(entry).into_iter();
            let category = categories.find(|(category, _)| category.as_bytes() == name);
            is_known = category.is_some();
            if let Some((_, true)) = category {
                self.set(entry, allows);
            }
        }
        if !is_known {
            return Err(RuleError::UnknownCommand);
        }
        self.note(allows, &[b"@", &name[..]].concat());
        Ok(())
    }

    /// A subcommand, or a first argument of a command that has none.
    fn allow_part(&mut self, target: &[u8], table: &Table) -> Result<(), RuleError> {
        let bar = target.iter().rposition(|byte| *byte == b'|').ok_or(RuleError::Syntax)?;
        let (command, word) = (&target[..bar], &target[bar + 1..]);
        let container = table.find_original(command).ok_or(RuleError::UnknownCommand)?;
        if container.full_name.contains('|') {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        // What would not read back from a file is refused; Redis takes it and fails later.
        if word.is_empty() || has_spaces(word) {
            return Err(RuleError::Syntax);
        }
        if container.subcommands.is_empty() {
            let known = self.first_args.entry(container.index).or_default();
            known.insert(word.to_ascii_lowercase());
        } else {
            let entry = table.find_original(target).ok_or(RuleError::UnknownCommand)?;
            self.set(entry, true);
        }
        self.note(true, target);
        Ok(())
    }

    /// Of a container, for its subcommands too.
    fn set(&mut self, entry: &Entry, allows: bool) {
        self.first_args.remove(&entry.index);
        self.set_bit(entry.index, allows);
        entry.subcommands.iter().for_each(|sub| self.set_bit(*sub, allows));
    }

    fn set_bit(&mut self, index: usize, is_on: bool) {
        let (word, bit) = (index / 64, 1 << (index % 64));
        if word >= self.allowed.len() {
            self.allowed.resize(word + 1, 0);
        }
        if is_on {
            self.allowed[word] |= bit;
        } else {
            self.allowed[word] &= !bit;
        }
    }

    /// Adds a rule; those on the same target, or on a part of it, have no effect any more.
    fn note(&mut self, allows: bool, target: &[u8]) {
        let target = target.to_ascii_lowercase();
        self.rules.retain(|rule| match rule.target.strip_prefix(&target[..]) {
            Some(rest) => !rest.is_empty() && rest[0] != b'|',
            None => true,
        });
        self.rules.push(Rule { allows, target });
    }

    pub fn allow(&self, entry: &Entry, args: Args<'_>) -> bool {
        let word = self.allowed.get(entry.index / 64).copied().unwrap_or_default();
        word >> (entry.index % 64) & 1 != 0
            || entry.spec.flags.contains(Flags::NO_AUTH)
            || self.allow_first_arg(entry, args)
    }

    fn allow_first_arg(&self, entry: &Entry, args: Args<'_>) -> bool {
        match (self.first_args.get(&entry.index), args.get(1)) {
            (Some(known), Some(arg)) => known.iter().any(|word| arg.eq_ignore_ascii_case(word)),
            _ => false,
        }
    }

    /// Whether every command of the table is allowed.
    pub fn are_all(&self, table: &Table) -> bool {
        (0..table.len()).all(|index| self.is_allowed(index))
    }

    /// Whether every command of a category is allowed.
    pub fn cover(&self, category: &str, table: &Table) -> bool {
        let is_of = |entry: &&Entry| {
            every_category(entry).iter().any(|(name, is_in)| *is_in && *name == category)
        };
        table.entries().iter().filter(is_of).all(|entry| self.is_allowed(entry.index))
    }

    fn is_allowed(&self, index: usize) -> bool {
        self.allowed.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// The rules that give the same, in order.
    pub fn rules(&self) -> Vec<Vec<u8>> {
        let rule = |allows: bool, target: &[u8]| {
            let sign: &[u8] = if allows { b"+" } else { b"-" };
            [sign, target].concat()
        };
        let first = rule(self.starts_with_all, b"@all");
        let others = self.rules.iter().map(|known| rule(known.allows, &known.target));
        std::iter::once(first).chain(others).collect()
    }
}
