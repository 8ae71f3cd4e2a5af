//! The process and its machine: memory, pages, what the system is told of the process.

pub mod memory;
pub mod paging;
pub mod process;
pub mod user;
pub mod version;
