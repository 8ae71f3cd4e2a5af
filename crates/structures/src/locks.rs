//! The standard library's locks, around data that stays whole when a holder panics.
//!
//! The thread sanitizer does not see what the standard library does where a lock has to be waited
//! for, since that is not built with it. It sees what is tried in vain, so under it there is no
//! other waiting.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::sync::{Mutex, MutexGuard, TryLockError};

/// Waits until the mutex is free, and takes it.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if SPINS {
        return spin(|| mutex.try_lock());
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until nobody writes.
#[inline]
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    if SPINS {
        return spin(|| lock.try_read());
    }
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until nobody reads or writes.
#[inline]
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    if SPINS {
        return spin(|| lock.try_write());
    }
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the mutex back and takes it again when the condition is told of, or sooner.
#[cfg(not(loom))]
pub fn wait<'m, T>(
    condition: &std::sync::Condvar,
    mutex: &'m Mutex<T>,
    held: MutexGuard<'m, T>,
) -> MutexGuard<'m, T> {
    if SPINS {
        drop(held);
        std::thread::sleep(std::time::Duration::from_millis(1));
        return lock(mutex);
    }
    condition.wait(held).unwrap_or_else(PoisonError::into_inner)
}

/// The canary of the sanitizer is blind to locks that were waited for.
const SPINS: bool = cfg!(all(kvasir_sanitized, not(kvasir_blind)));

#[cold]
fn spin<G>(try_lock: impl Fn() -> Result<G, TryLockError<G>>) -> G {
    loop {
        match try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    #[test]
    fn who_panicked_with_a_lock_keeps_nobody_out() {
        let shared = Arc::new((Mutex::new(1), RwLock::new(2)));
        let with_locks = Arc::clone(&shared);
        let panicked = thread::spawn(move || {
            let _guards = (lock(&with_locks.0), write(&with_locks.1));
            panic!("as the test wants it");
        });
        assert!(panicked.join().is_err());
        assert_eq!((*lock(&shared.0), *read(&shared.1)), (1, 2));
        *write(&shared.1) = 3;
    }

    #[test]
    fn a_lock_is_waited_for() {
        let (mutex, (sender, receiver)) = (Mutex::new(0), mpsc::channel());
        let held = lock(&mutex);
        thread::scope(|scope| {
            scope.spawn(|| {
                *lock(&mutex) += 1;
                sender.send(()).unwrap();
            });
            assert!(receiver.recv_timeout(std::time::Duration::from_millis(20)).is_err());
            drop(held);
            receiver.recv().unwrap();
        });
        assert_eq!(*lock(&mutex), 1);
    }
}
