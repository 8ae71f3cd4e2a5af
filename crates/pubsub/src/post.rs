//! What one worker has for the connections of another: a box for each worker, emptied by its owner
//! once a turn.
//!
//! Nobody waits: a sender holds the lock of one box for a push. Owners look at a flag, so that a
//! turn without post pays one load; sleeping owners are woken once for all that a turn sends them.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use kvasir_structures::locks::lock;

/// Where something happened that is told.
#[derive(Clone, Copy)]
pub struct Origin {
    pub worker: usize,
    /// So far must the log be on disk before it is told.
    pub fence: u64,
}

/// A box that held more at once gives the memory back.
const KEPT_MAX: usize = 1024;

pub struct Post<T> {
    /// By worker.
    boxes: Box<[PostBox<T>]>,
}

#[repr(align(128))]
struct PostBox<T> {
    letters: Mutex<Vec<T>>,
    has_mail: AtomicBool,
    /// Another worker has sent something, and nobody has woken this one since.
    needs_waking: AtomicBool,
    /// This worker has sent something to another.
    has_sent: AtomicBool,
    /// What this worker sends is kept.
    is_held: AtomicBool,
    /// To whom it is to be sent.
    held: Mutex<Vec<(usize, T)>>,
}

impl<T> Post<T> {
    pub fn new(workers: usize) -> Post<T> {
        let empty = |_| PostBox {
            letters: Mutex::default(),
            has_mail: AtomicBool::default(),
            needs_waking: AtomicBool::default(),
            has_sent: AtomicBool::default(),
            is_held: AtomicBool::default(),
            held: Mutex::default(),
        };
        Post { boxes: (0..workers).map(empty).collect() }
    }

    pub fn send(&self, from: usize, to: usize, letter: T) {
        if self.boxes[from].is_held.load(Relaxed) {
            return lock(&self.boxes[from].held).push((to, letter));
        }
        self.boxes[to].put(letter, to != from);
        if to != from {
            self.boxes[from].has_sent.store(true, Relaxed);
        }
    }

    /// Keeps what a worker sends until it lets it go.
    pub fn hold(&self, from: usize) {
        self.boxes[from].is_held.store(true, Relaxed);
    }

    /// Sends what was kept, each letter as `prepare` leaves it.
    #[inline]
    pub fn release(&self, from: usize, prepare: impl FnMut(&mut T)) {
        if self.boxes[from].is_held.load(Relaxed) {
            self.send_held(from, prepare);
        }
    }

    #[cold]
    fn send_held(&self, from: usize, mut prepare: impl FnMut(&mut T)) {
        self.boxes[from].is_held.store(false, Relaxed);
        let held = std::mem::take(&mut *lock(&self.boxes[from].held));
        for (to, mut letter) in held {
            prepare(&mut letter);
            self.send(from, to, letter);
        }
    }

    /// Appends what was sent to a worker since the last time.
    #[inline]
    pub fn take(&self, worker: usize, letters: &mut Vec<T>) {
        if self.boxes[worker].has_mail.load(Acquire) {
            self.boxes[worker].take(letters);
        }
    }

    /// Wakes the workers that this one has sent something, once for all of it.
    #[inline]
    pub fn wake_others(&self, worker: usize, wake: impl Fn(usize)) {
        let has_sent = &self.boxes[worker].has_sent;
        if has_sent.load(Relaxed) {
            has_sent.store(false, Relaxed);
            for (to, other) in self.boxes.iter().enumerate() {
                if other.needs_waking.swap(false, AcqRel) {
                    wake(to);
                }
            }
        }
    }
}

impl<T> PostBox<T> {
    fn put(&self, letter: T, is_from_another: bool) {
        let mut letters = lock(&self.letters);
        letters.push(letter);
        self.has_mail.store(true, Release);
        if is_from_another {
            self.needs_waking.store(true, Release);
        }
    }

    fn take(&self, letters: &mut Vec<T>) {
        let mut all = lock(&self.letters);
        letters.append(&mut all);
        if all.capacity() > KEPT_MAX {
            *all = Vec::new();
        }
        self.has_mail.store(false, Relaxed);
        self.needs_waking.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_others_are_woken_and_only_while_they_have_mail() {
        let post = Post::new(2);
        post.send(0, 0, 'a');
        post.send(0, 1, 'b');
        let waking = |worker: usize| post.boxes[worker].needs_waking.load(Relaxed);
        assert_eq!([waking(0), waking(1)], [false, true]);
        assert!(post.boxes[0].has_sent.load(Relaxed) && !post.boxes[1].has_sent.load(Relaxed));
        let mut letters = Vec::new();
        post.take(1, &mut letters);
        assert!(letters == ['b'] && !waking(1));
        post.take(1, &mut letters);
        assert_eq!(letters, ['b']);
    }

    #[test]
    fn what_is_held_goes_when_it_is_released() {
        let post = Post::new(2);
        let taken = |worker| {
            let mut letters = Vec::new();
            post.take(worker, &mut letters);
            letters
        };
        post.hold(0);
        post.send(0, 1, 'a');
        post.send(0, 0, 'b');
        post.send(1, 1, 'x');
        assert_eq!((taken(0), taken(1)), (vec![], vec!['x']));
        post.release(0, char::make_ascii_uppercase);
        assert_eq!((taken(0), taken(1)), (vec!['B'], vec!['A']));
        post.release(0, |_| unreachable!("nothing is held"));
        post.send(0, 1, 'c');
        assert_eq!(taken(1), ['c']);
    }
}
