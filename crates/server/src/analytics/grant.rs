//! What a user might do when it asked for something, and whether it still may.
//!
//! What the background makes is told later than it was asked for: in between a user may have lost
//! its rights, or be gone, and another have its name.

use std::sync::Arc;

use kvasir_acl::Acl;
use kvasir_acl::call::Call;
use kvasir_acl::patterns::Keys;
use kvasir_acl::user::User;
use kvasir_analytics::budget::{Budget, Share};
use kvasir_analytics::selection::MayRead;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::place::DbIndex;
use kvasir_resp::args::ArgsBuf;
use kvasir_table::Entry;

/// What is said to who has lost them.
pub const LOST: &str = "NOPERM the rights that this was asked for with are gone";

/// Of one call.
pub struct Grant {
    pub acl: &'static Acl,
    pub entry: &'static Entry,
    /// The call, since rights depend on its words.
    pub args: ArgsBuf,
    pub db: DbIndex,
    pub databases: u16,
    /// As it was then.
    pub user: Arc<User>,
    /// Whether it might do everything.
    pub is_free: bool,
}

impl Grant {
    /// Which keys might be read; `None`: all.
    fn readable(&self, user: &User) -> Option<Vec<Keys>> {
        let Grant { entry, args, db, databases, .. } = self;
        user.readable_keys(&Call { entry, args: args.as_args(), db: *db, databases: *databases })
    }

    /// As [`Grant::readable`] of the user as it was, for those who look at keys.
    pub fn may_read(&self) -> Option<MayRead> {
        if self.is_free {
            return None;
        }
        let readable = self.readable(&self.user)?;
        Some(Box::new(move |key| readable.iter().any(|keys| keys.cover_read(key))))
    }

    /// Whether the user is there, may still make the call, and read what it might.
    pub fn holds(&self) -> bool {
        let now = self.acl.find(&self.user.name).filter(|user| user.id == self.user.id);
        let Some(now) = now else { return false };
        if Arc::ptr_eq(&now, &self.user) {
            return true;
        }
        let Some(now) = self.readable(&now) else { return true };
        let before = if self.is_free { None } else { self.readable(&self.user) };
        let is_left = |old: &Keys| now.iter().any(|new| new.cover_reads_of(old));
        before.is_some_and(|before| before.iter().all(is_left))
    }

    /// The error where it does not hold.
    pub fn check(&self) -> Result<(), Error> {
        if self.holds() { Ok(()) } else { Err(Error::fixed(LOST)) }
    }

    /// Whether it may have what all users share to its last part: who may not do everything leaves
    /// half to others.
    pub fn share(&self, budget: &Arc<Budget>) -> Share {
        if self.is_free { budget.share() } else { budget.share_of(self.user.id) }
    }

    /// How many of so many places it may have at most.
    pub fn places(&self, all: usize) -> usize {
        if self.is_free { all } else { all / 2 }
    }
}
