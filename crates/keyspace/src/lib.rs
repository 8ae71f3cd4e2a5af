//! Databases, slots, values, expiry, and every data command.
//!
//! Deterministic: reads no clock, draws no random number, does no I/O and starts no thread.
//! Time, the random generator and the limits come in through the context of a call, so the same
//! state, context and arguments give the same reply and the same effect.
#![forbid(unsafe_code)]

pub mod spec;
