//! Asking the processor to fetch a cache line before it is needed: into the second-level cache,
//! since a core can have some ten to sixteen lines on their way into the first.
//!
//! # Safety
//! A prefetch is a hint: it never faults and reads nothing that the program can see, so any address
//! will do, also one that was freed.

/// Fetches the line at `address` for reading.
#[inline(always)]
pub fn read<P>(address: *const P) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint without architectural effect, for any address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
