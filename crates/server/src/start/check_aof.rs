//! `kvasir-server check-aof [--fix] FILE|MANIFEST`: whether an append-only file is sound.
//!
//! Every byte is looked at that a server would look at: a snapshot at the beginning is loaded into
//! databases that nobody uses, and of a log each call is read, and judged as the server judges it,
//! though not run. Nothing is changed unless that is asked for; then what is sound at the beginning
//! is kept (`aof_repair.rs`).

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;

use kvasir_config::arguments::CheckAof;
use kvasir_persistence::aof::load::{AofError, End, Replay, load};
use kvasir_persistence::aof::manifest::Manifest;
use kvasir_persistence::load::FileError;
use kvasir_resp::args::Args;
use kvasir_table::Table;

use crate::commands;
use crate::loading::replay::{judge, of_file};
use crate::start::aof_repair::{self, NotCut, say};
use crate::start::check_rdb;

/// The exit statuses beside 0: nobody can tell, an end that was to be cut off and was not, damage.
const UNKNOWN: u8 = 1;
const TORN: u8 = 2;
const DAMAGED: u8 = 3;

/// How the line of a manifest begins, where another file has a call, a comment, or a snapshot.
const MANIFEST_START: &[u8] = b"file ";
/// How much of a file tells what it is.
const START_SIZE: u64 = 6;
/// How a comment with the time in seconds since 1970 begins.
const TIME: &[u8] = b"#TS:";

/// Why the file is not sound.
enum Finding {
    Unknown(PathBuf, io::Error),
    Torn {
        path: PathBuf,
        offset: u64,
        bytes: u64,
    },
    Damaged(String),
    /// Why it was left.
    NotCut(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unknown(path, error) => {
                write!(f, "can't look at it: file={} error={error}", path.display())
            }
            Finding::Torn { path, offset, bytes } => {
                let path = path.display();
                write!(
                    f,
                    "torn: file={path} is whole up to byte {offset}, the {bytes} behind it can be \
                     cut off by --fix"
                )
            }
            Finding::Damaged(what) => write!(f, "not sound: {what}"),
            Finding::NotCut(why) => write!(f, "nothing was cut off: {why}"),
        }
    }
}

impl From<NotCut> for Finding {
    fn from(why: NotCut) -> Finding {
        match why {
            NotCut::Why(why) => Finding::NotCut(why),
            NotCut::Io(path, error) => Finding::Unknown(path, error),
        }
    }
}

impl Finding {
    fn status(&self) -> u8 {
        match self {
            Finding::Unknown(..) => UNKNOWN,
            Finding::Torn { .. } | Finding::NotCut(_) => TORN,
            Finding::Damaged(_) => DAMAGED,
        }
    }
}

/// Prints what there is to say; the exit status says whether the file is sound.
pub fn main(wish: &CheckAof) -> ExitCode {
    match check(wish) {
        Ok(()) => {
            say("sound");
            ExitCode::SUCCESS
        }
        Err(finding) => {
            eprintln!("{finding}");
            ExitCode::from(finding.status())
        }
    }
}

fn check(wish: &CheckAof) -> Result<(), Finding> {
    let (paths, manifest) = files(&wish.path)?;
    for (index, path) in paths.iter().enumerate() {
        let is_last = index + 1 == paths.len();
        let found = look(path, wish)?;
        say(&found.describe(path));
        if found.late_at.is_some() && !is_last {
            let file = path.display();
            return Err(Finding::NotCut(format!(
                "file={file} has later calls than that time, but is not the last file"
            )));
        }
        let room = found.room().filter(|room| *room > 0 && !is_last);
        let good_to = found.good_to().or(room.map(|room| found.bytes - room));
        let offset = match (found.late_at, good_to) {
            (Some(late_at), _) => late_at,
            (None, Some(good_to)) if wish.fixes => good_to,
            _ => {
                found.check_end(path, is_last, wish.fixes)?;
                continue;
            }
        };
        let _claim = manifest.as_ref().map(|_| aof_repair::claim(&wish.path)).transpose()?;
        say(&aof_repair::cut(path, offset, false)?);
        if let Some(manifest) = &manifest {
            let kept = index + 1 - manifest.base.iter().len();
            aof_repair::leave_out(&wish.path, manifest, kept)?.iter().for_each(|line| say(line));
        }
        return Ok(());
    }
    Ok(())
}

/// The files that make up the append-only file, in the order in which they are loaded, and the
/// manifest that names them, if there is one.
fn files(path: &Path) -> Result<(Vec<PathBuf>, Option<Manifest>), Finding> {
    let unknown = |error| Finding::Unknown(path.to_owned(), error);
    let (_, start) = open(path).map_err(unknown)?;
    let is_named_so = path.extension().is_some_and(|extension| extension == "manifest");
    if !is_named_so && !start.to_ascii_lowercase().starts_with(MANIFEST_START) {
        return Ok((vec![path.to_owned()], None));
    }
    let text = Manifest::read(path).map_err(unknown)?;
    let manifest = Manifest::parse(&text)
        .map_err(|(line, what)| damaged(path, &format!("{what} in line {line}")))?;
    let parts = manifest.base.iter().chain(&manifest.increments);
    let paths = parts.map(|part| path.with_file_name(&part.name)).collect();
    Ok((paths, Some(manifest)))
}

/// A file and how it begins.
fn open(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let (mut file, mut start) = (File::open(path)?, Vec::new());
    Read::by_ref(&mut file).take(START_SIZE).read_to_end(&mut start)?;
    Ok((file, start))
}

/// What a file holds.
struct Found {
    bytes: u64,
    is_snapshot: bool,
    calls: u64,
    /// Where the log ends, if it is sound.
    end: Result<End, AofError>,
    /// Everything before it is not later than the time that is asked for, and this is.
    late_at: Option<u64>,
}

impl Found {
    fn describe(&self, path: &Path) -> String {
        let Found { bytes, calls, .. } = self;
        let snapshot = if self.is_snapshot { " snapshot" } else { "" };
        format!("file {} bytes {bytes}{snapshot} calls {calls}", path.display())
    }

    /// Where the sound beginning of what is not sound ends.
    fn good_to(&self) -> Option<u64> {
        match self.end {
            Err(AofError::Torn { offset: good_to } | AofError::Broken { good_to, .. }) => {
                Some(good_to)
            }
            _ => None,
        }
    }

    /// How many zeros stand at its end.
    fn room(&self) -> Option<u64> {
        self.end.as_ref().ok().map(|end| end.room)
    }

    /// Whether it is sound. Others take zeros at the end for damage: they are cut off if that is
    /// wished.
    fn check_end(self, path: &Path, is_last: bool, fixes: bool) -> Result<(), Finding> {
        let good_to = self.good_to();
        match self.end {
            Ok(End { room: 0, .. }) => Ok(()),
            Ok(End { room, .. }) if !is_last => {
                Err(damaged(path, &format!("{room} zeros at its end")))
            }
            Ok(End { offset, .. }) if fixes => {
                say(&aof_repair::cut(path, offset, true)?);
                Ok(())
            }
            Ok(End { room, .. }) => {
                say(&format!("its last {room} bytes are room for more"));
                Ok(())
            }
            Err(AofError::Torn { offset }) if is_last => {
                let bytes = self.bytes - offset;
                Err(Finding::Torn { path: path.to_owned(), offset, bytes })
            }
            Err(AofError::Io(error)) => Err(Finding::Unknown(path.to_owned(), error)),
            Err(error) => {
                let good_to = good_to.unwrap_or(0);
                let kept = format!("--fix keeps what is before byte {good_to}");
                Err(damaged(path, &format!("{error}; {kept}")))
            }
        }
    }
}

fn damaged(path: &Path, what: &dyn fmt::Display) -> Finding {
    Finding::Damaged(format!("file={} error={what}", path.display()))
}

/// Reads one file to its end.
fn look(path: &Path, wish: &CheckAof) -> Result<Found, Finding> {
    let unknown = |error| Finding::Unknown(path.to_owned(), error);
    let (mut file, start) = open(path).map_err(unknown)?;
    let bytes = file.metadata().map_err(unknown)?.len();
    let is_snapshot = start.starts_with(b"REDIS") || start.starts_with(b"VALKEY");
    let offset = match is_snapshot {
        true => {
            let damaged = |error: FileError| Finding::Damaged(error.to_string());
            check_rdb::check(path, wish.skips_modules).map_err(damaged)?.end
        }
        false => 0,
    };
    file.seek(SeekFrom::Start(offset)).map_err(unknown)?;
    let until_s = wish.until_s;
    let mut calls = Calls { table: commands::table(), count: 0, until_s, late_at: None };
    let end = load(file, offset, &AtomicU64::new(0), &mut calls);
    Ok(Found { bytes, is_snapshot, calls: calls.count, end, late_at: calls.late_at })
}

/// Counts calls, and finds the first that is too late.
struct Calls {
    table: Table,
    count: u64,
    until_s: Option<u64>,
    late_at: Option<u64>,
}

impl Replay for Calls {
    fn call(&mut self, args: Args<'_>) -> Result<(), String> {
        judge(&self.table, args).map_err(of_file)?;
        self.count += 1;
        Ok(())
    }

    fn line(&mut self, good_to: u64, text: &[u8]) {
        let time = text.strip_prefix(TIME).and_then(|time| std::str::from_utf8(time).ok());
        let time_s: Option<u64> = time.and_then(|time| time.trim_end().parse().ok());
        if self.late_at.is_none() && self.until_s.is_some_and(|until| time_s > Some(until)) {
            self.late_at = Some(good_to);
        }
    }
}
