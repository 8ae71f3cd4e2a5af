//! How the thread `log` writes: by system calls, or by chains of io_uring.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use kvasir_config::aof::{AofConfig, Liburing};
use kvasir_persistence::aof::output::{Outcome, Output as Writes, Plain};
use kvasir_reactor::{Chain, FileRing};

use crate::log::notice;

pub enum Output {
    Plain,
    Ring(Box<FileRing>, u32),
}

impl Output {
    /// As it is configured. Where io_uring is asked for and cannot be had, that is an error.
    pub fn new(config: &AofConfig) -> io::Result<Output> {
        if config.liburing == Liburing::No {
            return Ok(Output::Plain);
        }
        let depth = config.liburing_queue_depth.count();
        match FileRing::new(depth, config.liburing_sqpoll) {
            Ok(ring) => {
                notice!("the append-only file is written by io_uring depth={depth}");
                Ok(Output::Ring(Box::new(ring), config.liburing_retry_count.count()))
            }
            Err(error) if config.liburing == Liburing::Auto => {
                notice!("the append-only file is written without io_uring reason={error}");
                Ok(Output::Plain)
            }
            Err(error) => Err(error),
        }
    }

    /// As INFO names it.
    pub fn name(&self) -> &'static str {
        match self {
            Output::Plain => "plain",
            Output::Ring(..) => "io_uring",
        }
    }
}

impl Writes<File> for Output {
    fn write(&mut self, file: &mut File, at: u64, slices: &[IoSlice<'_>], syncs: bool) -> Outcome {
        match self {
            Output::Plain => Plain.write(file, at, slices, syncs),
            Output::Ring(ring, _) => match ring.write(file.as_fd(), at, slices, syncs) {
                Chain { synced: Some(Err(error)), .. } => Outcome::SyncFailed(error),
                Chain { written, write_error: Some(error), .. } => {
                    Outcome::WriteFailed(written, error)
                }
                Chain { written, .. } => Outcome::Written(written),
            },
        }
    }

    fn retries(&self) -> u32 {
        match self {
            Output::Plain => 0,
            Output::Ring(_, retries) => *retries,
        }
    }
}
