//! A key and its value in one allocation.
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 1 | tag: what the owner says the value is; this module does not read it |
//! | 1 | 1 | flags: 1 expiry, 2 object, 4 long key, 8 parts of the object expire, 16 compressed, 32 |
//! | | | trailer, 64 mark: free for the owner, gone when the value is replaced |
//! | 2 | 2 | length of the inline value in bytes, little endian |
//! | 4 | 1 | length of the key, if it is not long |
//! | 5 | 3 | access clock, little endian, free for the owner |
//! | 8 | 8 | expiry in ms since 1970, if flag 1 |
//! | | 8 | pointer to the object, if flag 2 |
//! | | 4 | length of the key, if flag 4 |
//! | | | key, then inline value |
//! | | 13 | trailer, if flag 32: free for the owner |
//!
//! A value is either inline bytes, up to 64 KiB, or an object of type `T` that lives elsewhere.
//! A record of a 16-byte key and a 64-byte value takes 88 bytes. Inline bytes that are a compressed
//! text (`compressed`) are counted there as long as the record lives, so they are never changed in
//! place.
//!
//! # Safety
//! `Record` owns its allocation and its object. `RecordRef` and `RecordMut` borrow them: the
//! lifetime says for how long. All of them are made from a pointer to an initialised record; only
//! this module knows the layout. The fixed part is 8-byte aligned, so expiry and object are too.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::{compressed, slab};

/// The longest value that can stand in the record itself.
pub const INLINE_MAX: usize = u16::MAX as usize;
/// The longest key: as in Redis.
pub const KEY_MAX: usize = 512 << 20;

const HAS_EXPIRY: u8 = 1;
const HAS_OBJECT: u8 = 2;
const LONG_KEY: u8 = 4;
const PARTS_EXPIRE: u8 = 8;
const COMPRESSED: u8 = 16;
const HAS_TRAILER: u8 = 32;
const MARKED: u8 = 64;
const HEADER_BYTES: usize = 8;
/// Size of a trailer.
pub const TRAILER_BYTES: usize = 13;

/// What the owner notes of a record beside its value.
pub type Trailer = [u8; TRAILER_BYTES];

/// An owned record.
pub struct Record<T> {
    start: NonNull<u8>,
    owns: PhantomData<Box<T>>,
}

/// A record that someone else owns, for reading.
pub struct RecordRef<'a, T> {
    start: NonNull<u8>,
    borrows: PhantomData<&'a T>,
}

/// A record that someone else owns, for changing it in place.
pub struct RecordMut<'a, T> {
    start: NonNull<u8>,
    borrows: PhantomData<&'a mut T>,
}

/// The value of a record.
pub enum Body<'a, T> {
    Bytes(&'a [u8]),
    Object(&'a T),
}

/// The value of a record, to be changed in place.
pub enum BodyMut<'a, T> {
    Bytes(&'a mut [u8]),
    Object(&'a mut T),
}

/// The value that a new record takes.
pub enum NewBody<'a, T> {
    Bytes(&'a [u8]),
    /// Bytes that are a compressed text.
    Compressed(&'a [u8]),
    Object(Box<T>),
}

// SAFETY: a record is a box of bytes and of one `T`.
unsafe impl<T: Send> Send for Record<T> {}
// SAFETY: a shared record gives only shared access to its `T`.
unsafe impl<T: Sync> Sync for Record<T> {}

/// Where the parts of a record with these flags and this key length stand.
#[derive(Clone, Copy)]
struct Shape {
    flags: u8,
    key_len: usize,
}

impl Shape {
    #[inline]
    fn object_at(self) -> usize {
        HEADER_BYTES + if self.flags & HAS_EXPIRY != 0 { 8 } else { 0 }
    }

    #[inline]
    fn key_len_at(self) -> usize {
        self.object_at() + if self.flags & HAS_OBJECT != 0 { 8 } else { 0 }
    }

    #[inline]
    fn key_at(self) -> usize {
        self.key_len_at() + if self.flags & LONG_KEY != 0 { 4 } else { 0 }
    }

    #[inline]
    fn value_at(self) -> usize {
        self.key_at() + self.key_len
    }

    #[inline]
    fn trailer_len(self) -> usize {
        if self.flags & HAS_TRAILER != 0 { TRAILER_BYTES } else { 0 }
    }
}

impl<T> Record<T> {
    /// A record of `key` and `body`; inline bytes must be at most [`INLINE_MAX`] long.
    pub fn new(key: &[u8], tag: u8, body: NewBody<'_, T>, expiry_ms: Option<u64>) -> Record<T> {
        Record::with_trailer(key, tag, body, expiry_ms, None)
    }

    /// As [`Record::new`], with a trailer if there is one.
    pub fn with_trailer(
        key: &[u8],
        tag: u8,
        body: NewBody<'_, T>,
        expiry_ms: Option<u64>,
        trailer: Option<&Trailer>,
    ) -> Record<T> {
        let (object, inline, mut flags) = match body {
            NewBody::Bytes(bytes) => (None, bytes, 0),
            NewBody::Compressed(bytes) => (None, bytes, COMPRESSED),
            NewBody::Object(object) => (Some(Box::into_raw(object)), &[][..], 0),
        };
        assert!(inline.len() <= INLINE_MAX && key.len() <= KEY_MAX);
        if flags & COMPRESSED != 0 {
            compressed::hold(inline);
        }
        flags |= if expiry_ms.is_some() { HAS_EXPIRY } else { 0 };
        flags |= if object.is_some() { HAS_OBJECT } else { 0 };
        flags |= if key.len() > u8::MAX as usize { LONG_KEY } else { 0 };
        flags |= if trailer.is_some() { HAS_TRAILER } else { 0 };
        let shape = Shape { flags, key_len: key.len() };
        let trailer_at = shape.value_at() + inline.len();
        let start = slab::allocate(trailer_at + shape.trailer_len());
        let base = start.as_ptr();
        // SAFETY: the allocation is as long as the shape, the inline value and the trailer say, and
        // 8-byte aligned.
        unsafe {
            base.write(tag);
            base.add(1).write(flags);
            base.add(2).cast::<u16>().write((inline.len() as u16).to_le());
            base.add(4).cast::<u32>().write((key.len() as u32 & 0xff).to_le());
            if let Some(expiry_ms) = expiry_ms {
                base.add(HEADER_BYTES).cast::<u64>().write(expiry_ms);
            }
            if let Some(object) = object {
                base.add(shape.object_at()).cast::<*mut T>().write(object);
            }
            if flags & LONG_KEY != 0 {
                base.add(shape.key_len_at()).cast::<u32>().write(key.len() as u32);
            }
            base.add(shape.key_at()).copy_from_nonoverlapping(key.as_ptr(), key.len());
            base.add(shape.value_at()).copy_from_nonoverlapping(inline.as_ptr(), inline.len());
            if let Some(trailer) = trailer {
                base.add(trailer_at).cast::<Trailer>().write(*trailer);
            }
        }
        Record { start, owns: PhantomData }
    }

    pub fn borrow(&self) -> RecordRef<'_, T> {
        RecordRef { start: self.start, borrows: PhantomData }
    }

    pub fn borrow_mut(&mut self) -> RecordMut<'_, T> {
        RecordMut { start: self.start, borrows: PhantomData }
    }

    /// The same value, access clock and trailer under another key and expiry.
    pub fn rebuilt(self, key: &[u8], expiry_ms: Option<u64>) -> Record<T> {
        let trailer = self.borrow().trailer();
        self.rebuilt_with(key, expiry_ms, trailer.as_ref())
    }

    /// The same with this trailer.
    pub fn trailed(self, trailer: &Trailer) -> Record<T> {
        let (key, expiry_ms) = (self.borrow().key().to_vec(), self.borrow().expiry_ms());
        self.rebuilt_with(&key, expiry_ms, Some(trailer))
    }

    fn rebuilt_with(
        self,
        key: &[u8],
        expiry_ms: Option<u64>,
        trailer: Option<&Trailer>,
    ) -> Record<T> {
        let (tag, clock) = (self.borrow().tag(), self.borrow().clock());
        let (parts_expire, is_marked) = (self.borrow().parts_expire(), self.borrow().is_marked());
        let make = |body| Record::with_trailer(key, tag, body, expiry_ms, trailer);
        let mut new = match self.into_object() {
            Ok(object) => make(NewBody::Object(object)),
            Err(old) => make(old.borrow().inline_body()),
        };
        new.borrow_mut().set_clock(clock);
        new.borrow_mut().set_marked(is_marked);
        new.set_parts_expire(parts_expire);
        new
    }

    /// Notes whether the object has parts that expire on their own.
    pub fn set_parts_expire(&mut self, parts_expire: bool) {
        self.borrow_mut().set_parts_expire(parts_expire);
    }

    /// The object, or the record itself if its value is inline.
    pub fn into_object(self) -> Result<Box<T>, Record<T>> {
        let Some(object) = self.borrow().object_pointer() else { return Err(self) };
        self.into_pointer().free_allocation();
        // SAFETY: the record owned the box, and the record is gone.
        Ok(unsafe { Box::from_raw(object) })
    }

    /// Gives ownership to a table's bucket.
    pub(crate) fn into_pointer(self) -> Owned {
        let start = self.start;
        core::mem::forget(self);
        Owned(start)
    }

    /// Takes ownership back.
    ///
    /// # Safety
    /// `start` came from [`Record::into_pointer`] of a `Record<T>`, and nobody else takes it.
    pub(crate) unsafe fn from_pointer(start: NonNull<u8>) -> Record<T> {
        Record { start, owns: PhantomData }
    }
}

/// The allocation of a record, without its type.
pub(crate) struct Owned(pub(crate) NonNull<u8>);

impl Owned {
    fn free_allocation(self) {
        let record = RecordRef::<()> { start: self.0, borrows: PhantomData };
        let size = record.size();
        // SAFETY: this is the only owner; `size` lies in the class that was allocated, since
        // in-place changes keep the class.
        unsafe { slab::deallocate(self.0, size) }
    }
}

impl<T> Drop for Record<T> {
    fn drop(&mut self) {
        if let Some(object) = self.borrow().object_pointer() {
            // SAFETY: the record owns the box.
            drop(unsafe { Box::from_raw(object) });
        } else if self.borrow().is_compressed() {
            compressed::release(self.borrow().inline());
        }
        Owned(self.start).free_allocation();
    }
}

impl<T> Clone for RecordRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RecordRef<'_, T> {}

impl<'a, T> RecordRef<'a, T> {
    /// # Safety
    /// `start` points to a live record of `T` that nobody changes during `'a`.
    pub(crate) unsafe fn from_pointer(start: NonNull<u8>) -> RecordRef<'a, T> {
        RecordRef { start, borrows: PhantomData }
    }

    #[inline]
    fn byte(self, offset: usize) -> u8 {
        debug_assert!(offset < HEADER_BYTES);
        // SAFETY: every record has a header.
        unsafe { self.start.as_ptr().add(offset).read() }
    }

    #[inline]
    fn shape(self) -> Shape {
        let flags = self.byte(1);
        let mut shape = Shape { flags, key_len: self.byte(4) as usize };
        if flags & LONG_KEY != 0 {
            // SAFETY: the flag says that the field is there; it is 8-byte aligned.
            let len = unsafe { self.start.as_ptr().add(shape.key_len_at()).cast::<u32>().read() };
            shape.key_len = len as usize;
        }
        shape
    }

    #[inline]
    fn slice(self, offset: usize, len: usize) -> &'a [u8] {
        // SAFETY: callers pass parts that lie within the record by its shape, initialised by `new`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    #[inline]
    fn inline_len(self) -> usize {
        u16::from_le_bytes([self.byte(2), self.byte(3)]) as usize
    }

    #[inline]
    fn inline(self) -> &'a [u8] {
        self.slice(self.shape().value_at(), self.inline_len())
    }

    /// The inline value for another record; empty if there is an object.
    pub fn inline_body<U>(self) -> NewBody<'a, U> {
        match self.is_compressed() {
            true => NewBody::Compressed(self.inline()),
            false => NewBody::Bytes(self.inline()),
        }
    }

    fn object_pointer(self) -> Option<*mut T> {
        let shape = self.shape();
        let place = self.start.as_ptr().wrapping_add(shape.object_at()).cast::<*mut T>();
        // SAFETY: the flag says that the field is there.
        (shape.flags & HAS_OBJECT != 0).then(|| unsafe { place.read() })
    }

    #[inline]
    pub fn key(self) -> &'a [u8] {
        let shape = self.shape();
        self.slice(shape.key_at(), shape.key_len)
    }

    #[inline]
    pub fn tag(self) -> u8 {
        self.byte(0)
    }

    /// When the key dies, in ms since 1970.
    #[inline]
    pub fn expiry_ms(self) -> Option<u64> {
        if self.byte(1) & HAS_EXPIRY == 0 {
            return None;
        }
        // SAFETY: the flag says that the field is there.
        Some(unsafe { self.start.as_ptr().add(HEADER_BYTES).cast::<u64>().read() })
    }

    /// Whether the object has parts that expire on their own.
    #[inline]
    pub fn parts_expire(self) -> bool {
        self.byte(1) & PARTS_EXPIRE != 0
    }

    /// Whether the inline value is a compressed text.
    #[inline]
    fn is_compressed(self) -> bool {
        self.byte(1) & COMPRESSED != 0
    }

    /// Whether the key, or a part of its object, expires.
    #[inline]
    pub(crate) fn is_volatile(self) -> bool {
        self.byte(1) & (HAS_EXPIRY | PARTS_EXPIRE) != 0
    }

    /// What the owner has noted beside the value.
    #[inline]
    pub fn trailer(self) -> Option<Trailer> {
        self.has_trailer().then(|| {
            let at = self.shape().value_at() + self.inline_len();
            *self.slice(at, TRAILER_BYTES).first_chunk().expect("it is as long")
        })
    }

    #[inline]
    pub fn has_trailer(self) -> bool {
        self.byte(1) & HAS_TRAILER != 0
    }

    /// Whether the owner has marked it since its value was put here.
    #[inline]
    pub fn is_marked(self) -> bool {
        self.byte(1) & MARKED != 0
    }

    /// 24 bits.
    #[inline]
    pub fn clock(self) -> u32 {
        u32::from_le_bytes([self.byte(5), self.byte(6), self.byte(7), 0])
    }

    #[inline]
    pub fn body(self) -> Body<'a, T> {
        match self.object_pointer() {
            None => Body::Bytes(self.inline()),
            // SAFETY: the record owns the object and is borrowed for 'a.
            Some(object) => Body::Object(unsafe { &*object }),
        }
    }

    pub(crate) fn size(self) -> usize {
        let shape = self.shape();
        shape.value_at() + self.inline_len() + shape.trailer_len()
    }

    /// Bytes that the record takes from the allocator, without its object.
    pub fn allocated_bytes(self) -> usize {
        slab::usable_size(self.size())
    }
}

impl<'a, T> RecordMut<'a, T> {
    /// # Safety
    /// `start` points to a live record of `T` that nobody else reaches during `'a`.
    pub(crate) unsafe fn from_pointer(start: NonNull<u8>) -> RecordMut<'a, T> {
        RecordMut { start, borrows: PhantomData }
    }

    #[inline]
    pub fn shared(&self) -> RecordRef<'_, T> {
        RecordRef { start: self.start, borrows: PhantomData }
    }

    #[inline]
    pub fn into_shared(self) -> RecordRef<'a, T> {
        RecordRef { start: self.start, borrows: PhantomData }
    }

    #[inline]
    pub fn set_tag(&mut self, tag: u8) {
        // SAFETY: every record has a header.
        unsafe { self.start.as_ptr().write(tag) }
    }

    /// The lowest 24 bits count.
    #[inline]
    pub fn set_clock(&mut self, clock: u32) {
        let [low, middle, high, _] = clock.to_le_bytes();
        // SAFETY: every record has a header.
        unsafe { self.start.as_ptr().add(5).cast::<[u8; 3]>().write([low, middle, high]) }
    }

    pub(crate) fn set_parts_expire(&mut self, parts_expire: bool) {
        self.set_flag(PARTS_EXPIRE, parts_expire);
    }

    /// Marks it, or takes the mark away.
    #[inline]
    pub fn set_marked(&mut self, is_marked: bool) {
        self.set_flag(MARKED, is_marked);
    }

    #[inline]
    fn set_flag(&mut self, flag: u8, is_set: bool) {
        let set = if is_set { flag } else { 0 };
        // SAFETY: every record has a header.
        unsafe { self.start.as_ptr().add(1).write(self.shared().byte(1) & !flag | set) }
    }

    /// Overwrites the trailer of a record that has one; says whether it did.
    pub fn set_trailer(&mut self, trailer: &Trailer) -> bool {
        let shared = self.shared();
        let (has, at) = (shared.has_trailer(), shared.shape().value_at() + shared.inline_len());
        if has {
            // SAFETY: the trailer is there, behind the inline value.
            unsafe { self.start.as_ptr().add(at).cast::<Trailer>().write(*trailer) };
        }
        has
    }

    /// Changes the expiry of a record that has one; says whether it did.
    pub(crate) fn set_expiry(&mut self, expiry_ms: u64) -> bool {
        let has = self.shared().expiry_ms().is_some();
        if has {
            // SAFETY: the field is there.
            unsafe { self.start.as_ptr().add(HEADER_BYTES).cast::<u64>().write(expiry_ms) };
        }
        has
    }

    /// Replaces an inline value if the new one has room in the same allocation and size class;
    /// says whether it did. A record with a trailer has to be made anew.
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        let shape = self.shared().shape();
        let room = slab::usable_size(self.shared().size());
        let size = shape.value_at() + bytes.len();
        if shape.flags & (HAS_OBJECT | COMPRESSED | HAS_TRAILER) != 0
            || bytes.len() > INLINE_MAX
            || slab::usable_size(size) != room
        {
            return false;
        }
        // SAFETY: the allocation is `room` bytes long and `size` is at most that. `bytes` cannot
        // overlap: it was borrowed while this exclusive borrow exists.
        unsafe {
            let base = self.start.as_ptr();
            base.add(1).write(shape.flags & !MARKED);
            base.add(2).cast::<u16>().write((bytes.len() as u16).to_le());
            base.add(shape.value_at()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        true
    }

    /// Has `edit` change an inline value to one of `len` bytes where it stands, if the new one has
    /// room in the same size class; says whether it did. `edit` gets as many bytes as the longer of
    /// the two has, zeros behind the old value.
    pub fn try_edit(&mut self, len: usize, edit: impl FnOnce(&mut [u8])) -> bool {
        let (shape, old_len) = (self.shared().shape(), self.shared().inline_len());
        let room = slab::usable_size(self.shared().size());
        if shape.flags & (HAS_OBJECT | COMPRESSED | HAS_TRAILER) != 0
            || len > INLINE_MAX
            || slab::usable_size(shape.value_at() + len) != room
        {
            return false;
        }
        let longer = len.max(old_len);
        // SAFETY: the allocation is `room` bytes long, and both lengths lie in its class; what
        // stands behind the old value is written before it is lent, and the record is borrowed
        // exclusively.
        let bytes = unsafe {
            let base = self.start.as_ptr();
            base.add(2).cast::<u16>().write((len as u16).to_le());
            let value = base.add(shape.value_at());
            value.add(old_len).write_bytes(0, longer - old_len);
            core::slice::from_raw_parts_mut(value, longer)
        };
        edit(bytes);
        true
    }

    pub fn body_mut(&mut self) -> BodyMut<'_, T> {
        RecordMut { start: self.start, borrows: PhantomData }.into_body_mut()
    }

    /// As [`RecordMut::body_mut`], for as long as the record is borrowed.
    pub fn into_body_mut(self) -> BodyMut<'a, T> {
        let shared = self.shared();
        assert!(!shared.is_compressed(), "a compressed text is replaced as a whole");
        match shared.object_pointer() {
            // SAFETY: the record owns the object and is borrowed exclusively for 'a.
            Some(object) => BodyMut::Object(unsafe { &mut *object }),
            None => {
                let (at, len) = (shared.shape().value_at(), shared.inline_len());
                // SAFETY: the inline value lies there, and the record is borrowed exclusively.
                let bytes =
                    unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr().add(at), len) };
                BodyMut::Bytes(bytes)
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "record_tests.rs"]
mod tests;
