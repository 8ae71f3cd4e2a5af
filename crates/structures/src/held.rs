//! A pass and what was locked with it, in one value that can be kept and handed on.
//!
//! A guard borrows the pass it was locked with, so a function can return the one only together
//! with the other.
//!
//! # Safety
//!
//! | Field | Who touches it, and when |
//! |---|---|
//! | `pass` | made by `new`, shared by `locked` and by whoever asks, freed by `drop` |
//! | `locked` | whoever has the value; dropped by `drop`, before the pass that it borrows |
//!
//! The borrow's true lifetime is that of the value, which no type can say; inside it is written as
//! `'static`. Nobody gets to rely on that, since whoever sees `locked` sees it for all lifetimes.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::gate::Pass;

/// A type that borrows a pass.
pub trait Locked {
    type With<'a>;
}

/// See the module.
pub struct Held<L: Locked> {
    locked: ManuallyDrop<L::With<'static>>,
    pass: NonNull<Pass<'static>>,
}

impl<L: Locked> Held<L> {
    /// Keeps a pass and what `lock` locks with it.
    pub fn new<E>(
        pass: Pass<'static>,
        lock: impl for<'a> FnOnce(&'a Pass<'a>) -> Result<L::With<'a>, E>,
    ) -> Result<Held<L>, E> {
        let pass = NonNull::from(Box::leak(Box::new(pass)));
        // SAFETY: the pass stays where it is, and is only read, until it is freed.
        match lock(unsafe { pass.as_ref() }) {
            Ok(locked) => Ok(Held { locked: ManuallyDrop::new(locked), pass }),
            Err(error) => {
                // SAFETY: it came from a box, and `lock`, which knew no lifetime for it, kept none.
                drop(unsafe { Box::from_raw(pass.as_ptr()) });
                Err(error)
            }
        }
    }

    pub fn pass(&self) -> &Pass<'static> {
        // SAFETY: as in `new`.
        unsafe { self.pass.as_ref() }
    }

    /// Works with what is locked.
    pub fn with<R>(&self, f: impl for<'a> FnOnce(&L::With<'a>) -> R) -> R {
        f(&self.locked)
    }

    /// As [`Held::with`], to change it.
    pub fn with_mut<R>(&mut self, f: impl for<'a> FnOnce(&mut L::With<'a>) -> R) -> R {
        f(&mut self.locked)
    }
}

impl<L: Locked> Drop for Held<L> {
    fn drop(&mut self) {
        // SAFETY: `locked` is not used again; the pass came from a box, and nothing borrows it any
        // more.
        unsafe {
            ManuallyDrop::drop(&mut self.locked);
            drop(Box::from_raw(self.pass.as_ptr()));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::gate::Gate;
    use crate::slot::{SlotGuard, Slots};

    struct OneSlot;

    impl Locked for OneSlot {
        type With<'a> = SlotGuard<'a, u64>;
    }

    #[test]
    fn what_is_held_can_be_moved_and_is_let_go_in_the_end() {
        static GATE: LazyLock<Gate> = LazyLock::new(|| Gate::new(1));
        static SLOTS: LazyLock<Slots<u64>> = LazyLock::new(Slots::new);
        let (gate, slots): (&'static Gate, &'static Slots<u64>) = (&GATE, &SLOTS);
        for _ in 0..2 {
            let held = Held::<OneSlot>::new(gate.enter(0), |pass| Ok::<_, ()>(slots[7].lock(pass)));
            let mut moved = Box::new(held.expect("it was locked"));
            assert!(std::ptr::eq(moved.pass().gate(), gate));
            assert_eq!(moved.with(|slot| slot.len()), 0);
            moved.with_mut(|slot| slot.keeper().note_expiry(5));
        }
        assert_eq!(slots[7].next_expiry_ms(), Some(5));
        assert_eq!(Held::<OneSlot>::new(gate.enter(0), |_| Err(1)).err(), Some(1));
        // Neither the gate nor the slot would open otherwise.
        let pass = gate.exclusive();
        drop(slots[7].lock(&pass));
    }
}
