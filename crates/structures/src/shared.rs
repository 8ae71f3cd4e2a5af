//! A part of a large value that its copies share until one of them changes it: so a copy costs as
//! much as there are parts, and a change of one of them no more than a part.

use core::ops::{Deref, DerefMut};

use triomphe::Arc;

/// Reads as a `T`. Who is about to write gets one of its own if others have it too.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }

    #[cfg(test)]
    pub(crate) fn is_shared(&self) -> bool {
        !self.0.is_unique()
    }

    /// Bytes beside those of `T`.
    pub(crate) const OVERHEAD: usize = size_of::<usize>();
}

impl<T: Clone> Shared<T> {
    pub(crate) fn into_inner(self) -> T {
        Arc::try_unwrap(self.0).unwrap_or_else(|shared| T::clone(&shared))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_who_made_it_only() {
        let mut one = Shared::new(vec![1]);
        let mut other = one.clone();
        assert!(core::ptr::eq(&*one, &*other));
        one.push(2);
        assert_eq!((&**one, &**other), (&[1, 2][..], &[1][..]));
        let place = other.as_ptr();
        other[0] = 3;
        assert_eq!(other.as_ptr(), place, "nobody shares it any more");
        assert_eq!(other.into_inner(), [3]);
    }
}
