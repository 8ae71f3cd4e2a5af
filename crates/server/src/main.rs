//! The program: configuration, workers, connections, dispatch.
#![forbid(unsafe_code)]

fn main() {}
