//! Members that a set has no more, and pictures of it may still have.
//!
//! # Safety
//! What is in the list is named by pictures only, all of which share the list. So they are freed
//! when it is found that nobody shares it, or with its last owner.

use std::sync::{Mutex, PoisonError};

use triomphe::Arc;

use super::member::Member;
use crate::locks::lock;

/// One is the set's, the others are its pictures'.
#[derive(Default)]
pub(super) struct Dead(Arc<List>);

#[derive(Default)]
struct List(Mutex<Vec<Member>>);

impl Dead {
    /// A count and an empty list.
    pub(super) const ALLOCATED_BYTES: usize = size_of::<usize>() + size_of::<List>();

    /// One for a picture.
    pub(super) fn share(&self) -> Dead {
        Dead(Arc::clone(&self.0))
    }

    /// Whether there are pictures. They can become fewer at any time.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        !self.0.is_unique()
    }

    /// Frees members as soon as there are no pictures.
    ///
    /// # Safety
    /// They are live, and nothing names them but pictures that share this.
    pub(super) unsafe fn add(&mut self, members: impl Iterator<Item = Member>) {
        match Arc::get_mut(&mut self.0) {
            Some(list) => {
                list.free();
                // SAFETY: there are no pictures.
                members.for_each(|member| unsafe { member.free() });
            }
            None => {
                lock(&self.0.0).extend(members);
            }
        }
    }
}

impl List {
    fn free(&mut self) {
        let list = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: whoever has the list exclusively is its last owner.
        std::mem::take(list).into_iter().for_each(|member| unsafe { member.free() });
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.free();
    }
}
