//! Who a connection is.
//!
//! A connection keeps its user as it was at a version of the rules. As long as that is the version,
//! and the user may do everything, one comparison admits a call; else the user is looked at.

use std::sync::Arc;

use crate::Acl;
use crate::user::{Grammar, User};
use kvasir_table::Table;

/// No version of the rules.
const NEVER: u64 = 0;

pub struct Access {
    user: Arc<User>,
    /// Has given a password, or needed none when it came.
    is_authenticated: bool,
    /// The version of the rules that `user` is of.
    version: u64,
    /// The version at which everything was allowed; `NEVER` if it is not.
    free_version: u64,
    /// It is no client's, and everything is allowed whatever the rules become.
    is_unbound: bool,
}

/// The user of a connection was deleted: it is to be closed.
#[derive(PartialEq, Eq, Debug)]
pub struct Gone;

impl Access {
    /// Of a connection that has not said who it is.
    pub fn new(acl: &Acl, table: &Table) -> Access {
        let (user, version) = acl.default_user();
        let is_authenticated = user.is_open();
        let mut access =
            Access { user, is_authenticated, version, free_version: NEVER, is_unbound: false };
        access.note_freedom(acl, table);
        access
    }

    /// Of a log that is loaded: what stands in it was allowed when it was done.
    pub fn unbound(table: &Table) -> Access {
        let grammar = Grammar { table, with_all_channels: true };
        let user = Arc::new(User::new_default(0, grammar));
        let (version, free_version) = (NEVER, NEVER);
        Access { user, is_authenticated: true, version, free_version, is_unbound: true }
    }

    /// Whether the rules don't concern it.
    pub fn is_unbound(&self) -> bool {
        self.is_unbound
    }

    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// Whether nothing has to be looked at before a call.
    #[inline]
    pub fn is_free(&self, acl: &Acl) -> bool {
        self.free_version == acl.version()
    }

    /// Whether it is known who it is, as of the last look.
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    pub fn log_in(&mut self, user: Arc<User>, acl: &Acl, table: &Table) {
        self.user = user;
        self.is_authenticated = true;
        // The user may have changed since it was found.
        self.version = NEVER;
        // If it is gone already, the next call finds out.
        let _ = self.refresh(acl, table);
    }

    /// Looks whether the rules have changed.
    pub fn refresh(&mut self, acl: &Acl, table: &Table) -> Result<(), Gone> {
        if self.version == acl.version() {
            return Ok(());
        }
        let (user, version) = acl.find_at_version(&self.user.name);
        match user.filter(|user| user.id == self.user.id) {
            Some(user) => (self.user, self.version) = (user, version),
            None => return Err(Gone),
        }
        self.note_freedom(acl, table);
        Ok(())
    }

    fn note_freedom(&mut self, acl: &Acl, table: &Table) {
        let is_free = self.may_go_on(acl) && self.user.is_free(table);
        self.free_version = if is_free { self.version } else { NEVER };
    }

    /// Whether it needs no AUTH: while the default user takes any password, nobody does.
    pub fn may_go_on(&self, acl: &Acl) -> bool {
        self.is_authenticated || acl.default_user().0.is_open()
    }
}
