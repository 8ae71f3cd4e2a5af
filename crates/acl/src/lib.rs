//! Access control: users, what each may do, and the check of every call.
//!
//! A user is a snapshot behind an `Arc`; a change publishes a new one and counts up the version.
//! A connection holds its user's snapshot and looks for a newer one only if the version differs,
//! so a change holds for the next call on every worker, and a call takes no lock.
//!
//! Semantics and texts are those of Valkey 9.1, which are Redis 7.2's plus rules about databases:
//! <https://valkey.io/topics/acl/>.
#![forbid(unsafe_code)]

pub mod access;
pub mod call;
pub mod check;
pub mod commands;
pub mod file;
pub mod log;
pub mod password;
pub mod patterns;
pub mod rule;
pub mod selector;
pub mod start;
pub mod user;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kvasir_structures::locks::{read, write};

use crate::log::Log;
use crate::rule::RuleError;
use crate::user::{Grammar, User};

/// The users by name, and the log of what was denied.
pub struct Acl {
    /// Changes whenever a user does; never 0.
    version: AtomicU64,
    next_id: AtomicU64,
    users: RwLock<Users>,
    log: Mutex<Log>,
}

/// A rule that is wrong, for which nothing was changed.
#[derive(Debug)]
pub struct Refused {
    pub rule: Vec<u8>,
    pub error: RuleError,
}

type Users = BTreeMap<Box<[u8]>, Arc<User>>;

impl Acl {
    /// With the default user only.
    pub fn new(grammar: Grammar<'_>) -> Acl {
        let user = User::new_default(0, grammar);
        let users = BTreeMap::from([(user.name.clone(), Arc::new(user))]);
        Acl {
            version: AtomicU64::new(1),
            next_id: AtomicU64::new(1),
            users: RwLock::new(users),
            log: Mutex::default(),
        }
    }

    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.read().get(name).cloned()
    }

    /// A user, and a version at which it was so.
    pub fn find_at_version(&self, name: &[u8]) -> (Option<Arc<User>>, u64) {
        let users = self.read();
        (users.get(name).cloned(), self.version())
    }

    pub fn default_user(&self) -> (Arc<User>, u64) {
        let (user, version) = self.find_at_version(b"default");
        (user.expect("it cannot be deleted"), version)
    }

    /// All users, in order of name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.read().values().cloned().collect()
    }

    /// The user whose password this is, if it is on.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.find(name).filter(|user| user.takes(password))
    }

    /// Creates or changes a user by all of these rules, or by none. Returns what became of it.
    pub fn set(
        &self,
        name: &[u8],
        rules: &[Vec<u8>],
        grammar: Grammar<'_>,
    ) -> Result<Arc<User>, Refused> {
        let mut users = self.write();
        let mut user = match users.get(name) {
            Some(user) => User::clone(user),
            None => User::new(name, self.new_id(), grammar),
        };
        for rule in rules {
            user.apply(rule, grammar).map_err(|error| Refused { rule: rule.clone(), error })?;
        }
        let user = Arc::new(user);
        users.insert(name.into(), Arc::clone(&user));
        self.publish();
        Ok(user)
    }

    /// `requirepass`: the default user's only password; an empty one: any.
    pub fn set_default_password(&self, password: &[u8]) {
        let mut users = self.write();
        let user = users.get_mut(&b"default"[..]).expect("it cannot be deleted");
        Arc::make_mut(user).set_only_password(password);
        self.publish();
    }

    /// Forgets users; returns those that there were. The default user cannot be deleted.
    pub fn delete<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> Vec<Arc<User>> {
        let mut users = self.write();
        let names = names.filter(|name| *name != b"default");
        let deleted: Vec<_> = names.filter_map(|name| users.remove(name)).collect();
        self.publish();
        deleted
    }

    /// Replaces all users by those of a file. Who had the name of one becomes that one; a default
    /// user there always is. Returns the users before.
    pub fn replace(&self, new: Vec<User>, grammar: Grammar<'_>) -> Vec<Arc<User>> {
        let mut users = self.write();
        let mut all: Users = new.into_iter().map(|user| (user.name.clone(), user.into())).collect();
        let default = || User::new_default(self.new_id(), grammar).into();
        all.entry(b"default"[..].into()).or_insert_with(default);
        for (name, user) in &mut all {
            if let Some(before) = users.get(name) {
                Arc::make_mut(user).id = before.id;
            }
        }
        let before = std::mem::replace(&mut *users, all);
        self.publish();
        before.into_values().collect()
    }

    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The text of the ACL file.
    pub fn file_text(&self) -> Vec<u8> {
        let line = |user: Arc<User>| [user.describe(), b"\n".to_vec()].concat();
        self.all().into_iter().flat_map(line).collect()
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        kvasir_structures::locks::lock(&self.log)
    }

    /// Called with the users locked, so that a version is not found before its users.
    fn publish(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> RwLockReadGuard<'_, Users> {
        read(&self.users)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Users> {
        write(&self.users)
    }
}
