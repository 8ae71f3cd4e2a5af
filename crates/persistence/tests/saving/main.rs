//! Saving and loading, on disks that fail and with files that were tampered with.

mod cancel;
mod crash;
mod damage;
mod hang;
mod old;
mod support;
