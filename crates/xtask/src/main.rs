//! All automation of the repository: checks, tests, oracles, benchmarks.
#![forbid(unsafe_code)]

fn main() {}
