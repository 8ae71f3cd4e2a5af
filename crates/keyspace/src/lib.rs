//! Databases, slots, values, expiry, and every data command.
//!
//! Deterministic: reads no clock, draws no random number, does no I/O and starts no thread.
//! Time, the random generator and the limits come in through the context of a call, so the same
//! state, context and arguments give the same reply and the same effect.
//!
//! Life of a call: [`plan`] finds its keys, their slots and hashes; the caller may prefetch them;
//! [`execute`] locks the slots in ascending order and runs the command on a [`view`] of them.
#![forbid(unsafe_code)]

pub mod access;
pub mod busy;
pub mod calls;
pub mod command;
pub mod commands;
pub mod compression;
pub mod database;
pub mod defragment;
pub mod digest;
pub mod effect;
pub mod entry;
pub mod error;
pub mod event;
pub mod evict;
pub mod execute;
pub mod expire;
pub mod found;
mod gone;
pub mod hash_expiring;
pub mod hash_expiry;
pub mod hash_update;
pub mod hash_value;
pub mod hidden;
pub mod item;
pub mod list_value;
pub mod load;
pub mod log_db;
pub mod logging;
pub mod long_double;
pub mod place;
pub mod plan;
mod put;
pub mod replace;
pub mod rng;
pub mod serial;
pub mod set_probe;
pub mod set_value;
pub mod slot_keys;
pub mod snapshot;
pub mod sorted_set_value;
pub mod spec;
pub mod stream_value;
pub mod text_value;
pub mod usage;
pub mod value;
pub mod view;
pub mod waiting;
pub mod watching;

#[cfg(test)]
mod calls_tests;
#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod describe;
#[cfg(test)]
mod number_tests;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod waiting_tests;
