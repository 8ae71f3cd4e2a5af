//! Lua scripts as Redis runs them: the sandbox, `redis.*`, the libraries, and what a script's
//! source tells about the keys it will touch.
//!
//! An [`interpreter::Interpreter`] is one Lua state and belongs to one thread. It knows no command
//! and no key: what a script asks of the server goes through [`host::Host`].
#![forbid(unsafe_code)]

pub mod debugger;
pub mod failure;
pub mod host;
pub mod interpreter;
pub mod shebang;

pub mod analysis;

mod api;
mod arguments;
mod bit;
mod cjson;
mod cmsgpack;
mod entry;
mod from_reply;
mod function;
#[cfg(test)]
mod interpreter_tests;
pub mod library;
mod number;
mod random;
mod sandbox;
mod structs;
#[cfg(test)]
mod structs_tests;
#[cfg(test)]
mod testing;
mod to_reply;
mod work;
