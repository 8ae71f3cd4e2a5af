//! A member: its score and its bytes in one allocation, named by one word.
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 8 | score, f64 |
//! | 8 | 4 | length, only if it is 255 or more |
//! | 8 or 12 | | bytes |
//!
//! | Bits of the word | Field |
//! |---|---|
//! | 0 to 44 | address, divided by 8 |
//! | 45 to 52 | length of the bytes; 255: see the allocation |
//! | 53 to 63 | 0, free for who keeps the word |
//!
//! With the length in the word a member of 16 bytes takes 24, not 32.
//!
//! # Safety
//! A `Member` is a name, not an owner: whoever made it frees it, once, and reads it only before. It
//! is made from a pointer that [`slab::allocate`] returned, which is 8-byte aligned and, in user
//! space, below 2^48.

use core::ptr::NonNull;

use crate::prefetch;
use crate::slab;

/// How many bits of a word name a member.
pub(super) const WORD_BITS: u32 = ADDRESS_BITS + 8;

const ADDRESS_BITS: u32 = 45;
/// In place of a length that does not fit.
const LONG: u64 = 255;
const SCORE_SIZE: usize = 8;
const LONG_LEN_SIZE: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Member(u64);

impl Member {
    pub(super) fn new(bytes: &[u8], score: f64) -> Member {
        let len_code = (bytes.len() as u64).min(LONG);
        let offset = offset(len_code);
        let start = slab::allocate(offset + bytes.len());
        // SAFETY: the allocation has room for all of it and is 8-byte aligned.
        unsafe {
            start.cast::<f64>().write(score);
            if len_code == LONG {
                let len = u32::try_from(bytes.len()).expect("a member is at most 512 MiB");
                start.add(SCORE_SIZE).cast::<u32>().write(len);
            }
            start.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        let address = start.as_ptr().expose_provenance() as u64;
        debug_assert!(address.is_multiple_of(8) && address >> (ADDRESS_BITS + 3) == 0);
        Member(len_code << ADDRESS_BITS | address >> 3)
    }

    /// The member that a word names, whatever stands in the word's free bits.
    #[inline]
    pub(super) fn from_word(word: u64) -> Member {
        Member(word & ((1 << WORD_BITS) - 1))
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// # Safety
    /// The member is not freed while the bytes are used.
    #[inline]
    pub(super) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the member is live, so its bytes are initialised.
        unsafe {
            let start = self.start().add(offset(self.len_code())).as_ptr();
            core::slice::from_raw_parts(start, self.len())
        }
    }

    /// # Safety
    /// The member is live.
    #[inline]
    pub(super) unsafe fn score(self) -> f64 {
        // SAFETY: a live member starts with its score.
        unsafe { self.start().cast::<f64>().read() }
    }

    /// # Safety
    /// The member is live and nobody reads it meanwhile.
    #[inline]
    pub(super) unsafe fn set_score(self, score: f64) {
        // SAFETY: a live member starts with its score.
        unsafe { self.start().cast::<f64>().write(score) }
    }

    /// # Safety
    /// The member is live; it is not used any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: allocated with this size by `new`.
        unsafe { slab::deallocate(self.start(), self.size()) }
    }

    /// Bytes that the allocation takes.
    ///
    /// # Safety
    /// The member is live.
    pub(super) unsafe fn allocated_bytes(self) -> usize {
        // SAFETY: as the caller promises.
        slab::usable_size(unsafe { self.size() })
    }

    #[inline]
    pub(super) fn prefetch(self) {
        prefetch::read(self.start().as_ptr());
    }

    /// # Safety
    /// The member is live.
    unsafe fn size(self) -> usize {
        // SAFETY: as the caller promises.
        offset(self.len_code()) + unsafe { self.len() }
    }

    /// # Safety
    /// The member is live.
    #[inline]
    unsafe fn len(self) -> usize {
        match self.len_code() {
            // SAFETY: the length stands behind the score of a live member of such a word.
            LONG => unsafe { self.start().add(SCORE_SIZE).cast::<u32>().read() as usize },
            len => len as usize,
        }
    }

    #[inline]
    fn len_code(self) -> u64 {
        self.0 >> ADDRESS_BITS & LONG
    }

    #[inline]
    fn start(self) -> NonNull<u8> {
        let address = (self.0 & ((1 << ADDRESS_BITS) - 1)) << 3;
        let start = core::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the address of an allocation is not 0.
        unsafe { NonNull::new_unchecked(start) }
    }
}

#[inline]
fn offset(len_code: u64) -> usize {
    if len_code == LONG { SCORE_SIZE + LONG_LEN_SIZE } else { SCORE_SIZE }
}
