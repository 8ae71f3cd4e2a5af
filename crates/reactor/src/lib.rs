//! The only crate that makes system calls for sockets, files and time.
