//! A value that everyone inside the gate may read and that is exchanged while the gate is closed.
//!
//! # Safety
//! `value` is read through a [`Pass`] of the same gate and changed through its [`ExclusivePass`],
//! borrowed exclusively; while that exists nobody else is inside, and a reference that was read
//! through it borrows it. That the gate is the same one is checked.

use core::cell::UnsafeCell;

use crate::gate::{ExclusivePass, Gate, Pass};

pub struct GateCell<T> {
    /// Identifies the gate; never followed.
    gate: *const Gate,
    value: UnsafeCell<T>,
}

// SAFETY: see the module's header; `gate` is only compared.
unsafe impl<T: Send + Sync> Sync for GateCell<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for GateCell<T> {}

impl<T> GateCell<T> {
    /// The gate must not move while the cell is used.
    pub fn new(gate: &Gate, value: T) -> GateCell<T> {
        GateCell { gate, value: UnsafeCell::new(value) }
    }

    #[inline(always)]
    pub fn get<'p>(&'p self, pass: &'p Pass<'_>) -> &'p T {
        self.check(pass);
        // SAFETY: changing takes an exclusive pass of the same gate, which cannot exist while
        // `pass` does, unless `pass` is part of it and then stays borrowed.
        unsafe { &*self.value.get() }
    }

    /// Returns the old value.
    pub fn replace(&self, pass: &mut ExclusivePass<'_>, value: T) -> T {
        self.check(pass);
        // SAFETY: nobody else is inside the gate, and no reference borrows this pass.
        unsafe { core::mem::replace(&mut *self.value.get(), value) }
    }

    pub fn swap(&self, other: &GateCell<T>, pass: &mut ExclusivePass<'_>) {
        self.check(pass);
        other.check(pass);
        if !core::ptr::eq(self, other) {
            // SAFETY: as in `replace`, and the two are different.
            unsafe { core::ptr::swap(self.value.get(), other.value.get()) }
        }
    }

    #[inline(always)]
    fn check(&self, pass: &Pass<'_>) {
        assert!(core::ptr::eq(self.gate, pass.gate()), "a pass of another gate");
    }
}
