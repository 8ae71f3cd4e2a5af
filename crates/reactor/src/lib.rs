//! System calls for sockets, time, signals and threads, and for chains of writes to a file; other
//! crates reach files by the standard library.
//!
//! A worker thread owns one `Reactor` and calls `wait` in a loop: each call submits what was
//! queued and takes every completion there is. Two backends do the work behind one interface:
//! `uring` where the kernel allows io_uring, else `epoll`. What an event means, what the bytes say
//! and who the client is, is not known here.
//!
//! # Safety
//!
//! A buffer given to the kernel belongs to the operation until its completion. Each file with
//! `unsafe` says in its header which memory that is and who may touch it when.
#![deny(unsafe_op_in_unsafe_fn)]

mod accept;
mod backoff;
pub mod clock;
pub mod crash;
mod epoll;
mod event;
mod file_ring;
pub mod limits;
mod memory;
pub mod outgoing;
mod payload;
pub mod random;
mod reactor;
pub mod ring;
pub mod sandbox;
pub mod signal;
#[cfg(feature = "sim")]
pub mod sim;
mod slab;
mod socket;
pub mod thread;
mod token;
mod uring;
mod waker;

pub use event::{ConnectionId, Event, ListenerId};
pub use file_ring::{Chain, FileRing};
pub use memory::Buffer;
pub use payload::{Cursor, Payload};
pub use reactor::{Backend, BackendChoice, Options, Reactor};
pub use socket::{Address, Listener, ListenerHold, Socket};
pub use waker::Waker;
