//! How bytes get into a file: a write and behind it a sync, as one step.
//!
//! Who takes the step may do so by system calls or otherwise, and may do less than it was asked
//! for. What is left is asked for again here, at its place.

use std::io::{self, IoSlice};

use crate::disk::{DiskFile, SLICES_MAX};

/// Who writes.
pub trait Output<F> {
    /// Writes slices at a place in the file and, once all of them are written, syncs if that is
    /// asked for. There may be none.
    fn write(&mut self, file: &mut F, at: u64, slices: &[IoSlice<'_>], syncs: bool) -> Outcome;

    /// How often a write is tried again that has failed.
    fn retries(&self) -> u32;
}

/// What has become of it.
#[derive(Debug)]
pub enum Outcome {
    /// So many bytes are written; all of them: it is also synced, if that was asked for.
    Written(usize),
    /// Behind so many bytes writing has failed.
    WriteFailed(usize, io::Error),
    /// All is written.
    SyncFailed(io::Error),
}

/// Where it has failed for good.
#[derive(Debug)]
pub enum Failed {
    Write(io::Error),
    Sync(io::Error),
}

/// By system calls, one after the other.
pub struct Plain;

impl<F: DiskFile> Output<F> for Plain {
    fn write(&mut self, file: &mut F, at: u64, slices: &[IoSlice<'_>], syncs: bool) -> Outcome {
        let written = match slices {
            [] => 0,
            _ => match file.write_at(at, &slices[..slices.len().min(SLICES_MAX)]) {
                Ok(written) => written,
                Err(error) => return Outcome::WriteFailed(0, error),
            },
        };
        let synced = if syncs && written == len_of(slices) { file.sync() } else { Ok(()) };
        match synced {
            Ok(()) => Outcome::Written(written),
            Err(error) => Outcome::SyncFailed(error),
        }
    }

    fn retries(&self) -> u32 {
        0
    }
}

/// Writes all, and syncs if that is asked for. A sync is never tried again: after one that failed
/// the system calls pages clean that never reached the disk.
pub fn write_all<F>(
    output: &mut impl Output<F>,
    file: &mut F,
    mut at: u64,
    mut slices: &mut [IoSlice<'_>],
    syncs: bool,
) -> Result<(), Failed> {
    let mut retries = output.retries();
    loop {
        let (written, error) = match output.write(file, at, slices, syncs) {
            Outcome::Written(written) if written == len_of(slices) => return Ok(()),
            Outcome::Written(0) => (0, io::ErrorKind::WriteZero.into()),
            Outcome::Written(written) => (written, io::ErrorKind::Interrupted.into()),
            Outcome::WriteFailed(written, error) => (written, error),
            Outcome::SyncFailed(error) => return Err(Failed::Sync(error)),
        };
        at += written as u64;
        IoSlice::advance_slices(&mut slices, written);
        if error.kind() != io::ErrorKind::Interrupted {
            retries = retries.checked_sub(1).ok_or(Failed::Write(error))?;
        }
    }
}

fn len_of(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file, and an output that does what it was told to, step by step.
    #[derive(Default)]
    struct Script {
        steps: Vec<(usize, Option<i32>)>,
        retries: u32,
        is_synced: bool,
    }

    impl Output<Vec<u8>> for Script {
        fn write(
            &mut self,
            file: &mut Vec<u8>,
            at: u64,
            slices: &[IoSlice<'_>],
            syncs: bool,
        ) -> Outcome {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let (count, error) =
                if self.steps.is_empty() { (100, None) } else { self.steps.remove(0) };
            let count = count.min(all.len());
            assert_eq!(at, file.len() as u64);
            file.extend(&all[..count]);
            let error = error.map(io::Error::from_raw_os_error);
            match error {
                Some(error) if count == all.len() => return Outcome::SyncFailed(error),
                Some(error) => return Outcome::WriteFailed(count, error),
                None => {}
            }
            self.is_synced = syncs && count == all.len();
            Outcome::Written(count)
        }

        fn retries(&self) -> u32 {
            self.retries
        }
    }

    fn check(steps: &[(usize, Option<i32>)], retries: u32, result: &str, file: &str) {
        let mut output = Script { steps: steps.to_vec(), retries, is_synced: false };
        let mut bytes = Vec::new();
        let mut slices = [IoSlice::new(b"abc"), IoSlice::new(b"defgh")];
        let written = match write_all(&mut output, &mut bytes, 0, &mut slices, true) {
            Ok(()) => "done".into(),
            Err(Failed::Write(error)) => format!("write {}", error.kind()),
            Err(Failed::Sync(error)) => format!("sync {}", error.kind()),
        };
        assert_eq!((written.as_str(), String::from_utf8(bytes).unwrap().as_str()), (result, file));
        assert_eq!(output.is_synced, result == "done");
    }

    #[test]
    fn what_is_left_is_written_at_its_place() {
        const FULL: Option<i32> = Some(28);
        const INTERRUPTED: Option<i32> = Some(4);
        check(&[], 0, "done", "abcdefgh");
        check(&[(2, None), (4, None), (1, None)], 0, "done", "abcdefgh");
        check(&[(2, INTERRUPTED), (0, INTERRUPTED), (1, None)], 0, "done", "abcdefgh");
        check(&[(2, FULL)], 0, "write no storage space", "ab");
        check(&[(2, FULL), (3, None), (0, FULL)], 2, "done", "abcdefgh");
        check(&[(2, FULL), (0, FULL), (0, FULL)], 2, "write no storage space", "ab");
        check(&[(3, None), (0, None)], 0, "write write zero", "abc");
        check(&[(3, None), (5, FULL)], 9, "sync no storage space", "abcdefgh");
    }
}
