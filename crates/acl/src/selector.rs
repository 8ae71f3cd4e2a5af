//! A selector: commands, and the keys, channels and databases that they may be used on.
//!
//! A call is allowed if one selector of the user covers all of it.

use kvasir_config::syntax;
use kvasir_keyspace::spec::Traits;
use kvasir_resp::inline;

use crate::call::{Call, works_on_data};
use crate::check::{Denied, Reason};
use crate::commands::Commands;
use crate::patterns::{Channels, Databases, Keys};
use crate::rule::RuleError;
use kvasir_table::Table;
use kvasir_table::keys::each_key_used;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    pub commands: Commands,
    pub keys: Keys,
    pub channels: Channels,
    pub databases: Databases,
}

impl Selector {
    /// Allows nothing, but, where `acl-pubsub-default` says so, every channel.
    pub fn new(with_all_channels: bool) -> Selector {
        Selector {
            commands: Commands::default(),
            keys: Keys::default(),
            channels: if with_all_channels { Channels::ALL } else { Channels::default() },
            databases: Databases::All,
        }
    }

    /// Of the rule that has it in parentheses.
    pub fn parse(
        rule: &[u8],
        with_all_channels: bool,
        table: &Table,
    ) -> Result<Selector, RuleError> {
        let inner = rule.strip_prefix(b"(").and_then(|rule| rule.strip_suffix(b")"));
        let words = syntax::split(inner.ok_or(RuleError::Syntax)?).ok_or(RuleError::Syntax)?;
        let mut selector = Selector::new(with_all_channels);
        words.iter().try_for_each(|word| selector.apply(word, table))?;
        Ok(selector)
    }

    pub fn apply(&mut self, rule: &[u8], table: &Table) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => self.keys = Keys::ALL,
            b"resetkeys" => self.keys = Keys::default(),
            b"allchannels" | b"&*" => self.channels = Channels::ALL,
            b"resetchannels" => self.channels = Channels::default(),
            b"alldbs" => self.databases = Databases::All,
            b"resetdbs" => self.databases = Databases::NONE,
            b"allcommands" => self.commands = Commands::all(table),
            b"nocommands" => self.commands = Commands::default(),
            [b'd', b'b', b'=', list @ ..] => self.databases = Databases::parse(list)?,
            [b'~' | b'%', ..] => self.keys.add(rule)?,
            [b'&', ..] => self.channels.add(&rule[1..])?,
            [b'+' | b'-', ..] => self.commands.apply(rule, table)?,
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    /// Whether nothing is forbidden.
    pub fn is_free(&self, table: &Table) -> bool {
        self.keys.all
            && self.channels.all
            && self.databases == Databases::All
            && self.commands.are_all(table)
    }

    /// In the order of Valkey, which looks at databases first.
    pub fn check(&self, call: &Call<'_>) -> Result<(), Denied> {
        self.check_databases(call)?;
        if !self.commands.allow(call.entry, call.args) {
            return Err(Denied { reason: Reason::Command, arg: 0 });
        }
        self.check_keys(call)?;
        self.check_channels(call)
    }

    fn check_databases(&self, call: &Call<'_>) -> Result<(), Denied> {
        if self.databases == Databases::All {
            return Ok(());
        }
        let denied = |arg| Err(Denied { reason: Reason::Database, arg });
        let mut named = call.databases().into_iter();
        if let Some((arg, _)) = named.find(|(_, db)| !self.databases.cover(*db)) {
            return denied(arg);
        }
        let needs_this =
            works_on_data(call.entry) && !call.swaps() && !self.databases.cover(call.db.0.into());
        if needs_this || call.entry.spec.traits.contains(Traits::EVERY_DATABASE) {
            denied(0)
        } else {
            Ok(())
        }
    }

    /// A call whose keys cannot be found fails when it runs, and touches none.
    fn check_keys(&self, call: &Call<'_>) -> Result<(), Denied> {
        if self.keys.all || call.entry.spec.keys.is_empty() {
            return Ok(());
        }
        let mut denied = None;
        let found = each_key_used(call.entry.spec, call.args, |arg, flags| {
            if denied.is_none() && !self.keys.cover(&call.args[arg], flags) {
                denied = Some(arg);
            }
        });
        match (found, denied) {
            (Ok(()), Some(arg)) => Err(Denied { reason: Reason::Key, arg }),
            _ => Ok(()),
        }
    }

    fn check_channels(&self, call: &Call<'_>) -> Result<(), Denied> {
        let Some((args, is_pattern)) = call.channels() else { return Ok(()) };
        let mut args = args.into_iter();
        match args.find(|arg| !self.channels.cover(&call.args[*arg], is_pattern)) {
            Some(arg) => Err(Denied { reason: Reason::Channel, arg }),
            None => Ok(()),
        }
    }

    /// The rules that make this selector of a new one. Inside parentheses words are quoted where
    /// they would not read back.
    pub fn describe(&self, is_root: bool) -> Vec<u8> {
        let mut words = self.keys.rules();
        if !self.channels.all {
            words.push(b"resetchannels".to_vec());
        }
        words.extend(self.channels.rules());
        match &self.databases {
            Databases::All => {}
            Databases::Some(set) if set.is_empty() => words.push(b"resetdbs".to_vec()),
            some => words.push(some.describe().into_bytes()),
        }
        words.extend(self.commands.rules());
        if !is_root {
            words.iter_mut().for_each(|word| *word = quoted_inside(word));
        }
        words.join(&b' ')
    }
}

/// Quotes are syntax inside a selector, and a parenthesis at a word's end may close it.
fn quoted_inside(word: &[u8]) -> Vec<u8> {
    let is_plain = !word.iter().any(|byte| matches!(byte, b'"' | b'\'')) && !word.ends_with(b")");
    if is_plain { word.to_vec() } else { inline::quoted(word) }
}
