//! Scripts and libraries as all workers share them; running them is `run/scripting`.

pub mod cache;
pub mod commands;
pub mod libraries;
pub mod state;
pub mod writes;
