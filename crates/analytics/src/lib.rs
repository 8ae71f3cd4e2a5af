//! Visitors of an image that make columns, graphs and reports of it.
//!
//! Never on the path of a command: what a call asks for is begun here and computed by threads of
//! the background. Knows no client, no socket and no configuration; who waits for an answer hands
//! in a function that gets it.
#![forbid(unsafe_code)]

pub mod budget;
pub mod column;
pub mod export;
mod flat;
pub mod graph;
pub mod ipc;
pub mod job;
pub mod report;
pub mod rows;
pub mod selection;
pub mod shape;
mod time;
pub mod turns;
pub mod visit;
