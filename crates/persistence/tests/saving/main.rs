//! Saving and loading, on disks that fail and with files that were tampered with.
// Clippy lets tests unwrap, but not the functions that they share.
#![allow(clippy::unwrap_used)]

mod cancel;
mod crash;
mod damage;
mod hang;
mod old;
mod support;
