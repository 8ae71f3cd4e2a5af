//! A user: passwords, and selectors that say what it may do.

use crate::call::Call;
use crate::check::{Denied, Reason};
use crate::password::PasswordHash;
use crate::patterns::{Databases, Keys};
use crate::rule::RuleError;
use crate::selector::Selector;
use kvasir_table::Table;

/// A user as it is at one moment; a change makes a new one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub name: Box<[u8]>,
    /// Tells a user from a later one of the same name.
    pub id: u64,
    pub is_on: bool,
    /// `nopass`: any password is right.
    pub takes_any_password: bool,
    pub passwords: Vec<PasswordHash>,
    pub root: Selector,
    pub selectors: Vec<Selector>,
}

/// What the rules of a user are read with.
#[derive(Clone, Copy)]
pub struct Grammar<'a> {
    pub table: &'a Table,
    /// `acl-pubsub-default allchannels`: new selectors allow every channel.
    pub with_all_channels: bool,
}

impl User {
    /// Off, without password, and allowed nothing.
    pub fn new(name: &[u8], id: u64, grammar: Grammar<'_>) -> User {
        User {
            name: name.into(),
            id,
            is_on: false,
            takes_any_password: false,
            passwords: Vec::new(),
            root: Selector::new(grammar.with_all_channels),
            selectors: Vec::new(),
        }
    }

    /// The user that connections have until they say who they are: at first it may do everything.
    pub fn new_default(id: u64, grammar: Grammar<'_>) -> User {
        let mut user = User::new(b"default", id, grammar);
        for rule in ["on", "nopass", "~*", "&*", "+@all"] {
            user.apply(rule.as_bytes(), grammar).expect("a rule of ours");
        }
        user
    }

    /// Applies one rule. After an error the user may be changed in part.
    pub fn apply(&mut self, rule: &[u8], grammar: Grammar<'_>) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => (self.takes_any_password, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.takes_any_password, self.passwords) = (false, Vec::new()),
            // RESTORE checks every payload; who may skip that in Redis may say so here too.
            b"sanitize-payload" | b"skip-sanitize-payload" => {}
            b"clearselectors" => self.selectors.clear(),
            b"reset" => *self = User::new(&self.name, self.id, grammar),
            [b'>', ..] => self.add_password(PasswordHash::of(&rule[1..])),
            [b'#', ..] => self.add_password(PasswordHash::parse(&rule[1..])?),
            [b'<', ..] => self.remove_password(PasswordHash::of(&rule[1..]))?,
            [b'!', ..] => self.remove_password(PasswordHash::parse(&rule[1..])?)?,
            [b'(', .., b')'] => {
                let Grammar { table, with_all_channels } = grammar;
                self.selectors.push(Selector::parse(rule, with_all_channels, table)?);
            }
            _ => self.root.apply(rule, grammar.table)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.takes_any_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: PasswordHash) -> Result<(), RuleError> {
        let known = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(known.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// `requirepass`: this password and no other; an empty one: any.
    pub fn set_only_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.takes_any_password = password.is_empty();
        if !password.is_empty() {
            self.add_password(PasswordHash::of(password));
        }
    }

    /// Whether this password opens the user. Every known password is compared.
    pub fn takes(&self, password: &[u8]) -> bool {
        let hash = PasswordHash::of(password);
        let is_known =
            self.passwords.iter().fold(false, |found, known| found | known.equals(&hash));
        self.is_on && (self.takes_any_password || is_known)
    }

    /// Whether nobody is asked for this user's password.
    pub fn is_open(&self) -> bool {
        self.is_on && self.takes_any_password
    }

    /// Whether nothing is forbidden.
    pub fn is_free(&self, table: &Table) -> bool {
        self.root.is_free(table)
    }

    /// Whether every command of a category is allowed, by the rules outside of parentheses.
    pub fn may_call_all_of(&self, category: &str, table: &Table) -> bool {
        self.root.commands.cover(category, table)
    }

    /// Whether one of the selectors covers the call; else the gravest reason why none does.
    pub fn check(&self, call: &Call<'_>) -> Result<(), Denied> {
        let mut gravest = match self.root.check(call) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        for selector in &self.selectors {
            match selector.check(call) {
                Ok(()) => return Ok(()),
                Err(denied) => gravest = gravest.max(denied),
            }
        }
        Err(gravest)
    }

    /// Whether a selector that covers the call also lets every key be read: what SORT BY and GET
    /// want, whose keys nobody can tell before.
    pub fn may_read_all_keys(&self, call: &Call<'_>) -> bool {
        let mut selectors = std::iter::once(&self.root).chain(&self.selectors);
        selectors.any(|selector| selector.keys.cover_all_reads() && selector.check(call).is_ok())
    }

    /// Which keys may be read by those selectors that cover the call; `None`: all.
    pub fn readable_keys(&self, call: &Call<'_>) -> Option<Vec<Keys>> {
        let selectors = std::iter::once(&self.root).chain(&self.selectors);
        let covering = selectors.filter(|selector| selector.check(call).is_ok());
        let keys: Vec<Keys> = covering.map(|selector| selector.keys.clone()).collect();
        (!keys.iter().any(Keys::cover_all_reads)).then_some(keys)
    }

    /// As [`User::readable_keys`], with the databases that they may be read in.
    pub fn readable(&self, call: &Call<'_>) -> Option<Vec<(Keys, Databases)>> {
        let selectors = std::iter::once(&self.root).chain(&self.selectors);
        let covering = selectors.filter(|selector| selector.check(call).is_ok());
        let all: Vec<(Keys, Databases)> =
            covering.map(|selector| (selector.keys.clone(), selector.databases.clone())).collect();
        let is_all = |(keys, databases): &(Keys, Databases)| {
            keys.cover_all_reads() && *databases == Databases::All
        };
        (!all.iter().any(is_all)).then_some(all)
    }

    /// Whether one selector covers each of these channels, or patterns to subscribe to.
    pub fn may_use_channels<'c>(
        &self,
        channels: impl IntoIterator<Item = &'c [u8]>,
        are_patterns: bool,
    ) -> bool {
        let mut all = channels.into_iter();
        all.all(|channel| {
            let mut selectors = std::iter::once(&self.root).chain(&self.selectors);
            selectors.any(|selector| selector.channels.cover(channel, are_patterns))
        })
    }

    /// The line of ACL LIST and of the ACL file.
    pub fn describe(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = vec![b"user".to_vec(), self.name.to_vec()];
        words.push(if self.is_on { b"on".to_vec() } else { b"off".to_vec() });
        if self.takes_any_password {
            words.push(b"nopass".to_vec());
        }
        words.extend(self.passwords.iter().map(|hash| format!("#{}", hash.to_hex()).into_bytes()));
        words.push(self.root.describe(true));
        words.extend(self.selectors.iter().map(|s| [b"(", &s.describe(false)[..], b")"].concat()));
        words.join(&b' ')
    }
}

impl Denied {
    /// The one that came further: a reason that is looked at later, or a later argument.
    fn max(self, other: Denied) -> Denied {
        let rank = |denied: &Denied| (denied.reason as u8, denied.arg);
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// In the order in which they outweigh each other.
const _: () = assert!(
    (Reason::Database as u8) < Reason::Command as u8
        && (Reason::Command as u8) < Reason::Key as u8
        && (Reason::Key as u8) < Reason::Channel as u8
);
