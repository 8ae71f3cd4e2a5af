//! The append-only file as Redis 7 has it: a directory with a base, increments and a manifest.
//!
//! The base is the data at one moment, an RDB file or a log; the increments are logs of what came
//! after it, in their order. The manifest names them; what it does not name does not count.
//!
//! A log is RESP arrays of strings, one for each call, and lines that begin with `#`, which readers
//! of Redis pass over. Kvasir puts such a line before each group of whole entries that it writes at
//! once:
//!
//! | Bytes | Meaning |
//! |---|---|
//! | `#KVG:` | a group follows the line |
//! | digits, `:` | its bytes |
//! | digits, `:` | the bytes of the file that were on disk when it was written |
//! | 16 hexadecimal digits, CR LF | CRC64, as in RDB files, of the line up to here and of the group |

pub mod files;
pub mod load;
pub mod manifest;
pub mod output;
pub mod proof;
pub mod record;
pub mod writer;
