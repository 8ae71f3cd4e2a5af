//! The program as it is, against servers as they are: what it answers, what it pushes down, what it
//! refuses.

mod cluster;
mod flight;
#[path = "../../src/glob.rs"]
mod glob;
mod graphs;
mod jobs;
mod pushdown;
mod queries;
mod refused;
mod support;
mod writing;
