//! `kvasir-server check-aof [--fix] FILE|MANIFEST`: whether an append-only file is sound.
//!
//! Every byte is looked at that a server would look at: a snapshot at the beginning is loaded into
//! databases that nobody uses, and of a log each call is read, and judged as the server judges it,
//! though not run. Only the end of the
//! last file is ever cut off, and only what a power cut may leave there: damage anywhere else is
//! for people to look at.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;

use kvasir_persistence::aof::load::{AofError, End, Replay, load};
use kvasir_persistence::aof::manifest::Manifest;
use kvasir_persistence::load::FileError;
use kvasir_resp::args::Args;

use crate::aof::replay::judge;
use crate::check_rdb;
use crate::config::arguments::CheckAof;
use crate::dispatch::Table;

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

fn say(line: &str) {
    // A reader that went away is no failure of ours.
    let _ = writeln!(io::stdout(), "{line}");
}

fn check(wish: &CheckAof) -> Result<(), Finding> {
    let paths = files(&wish.path)?;
    for (index, path) in paths.iter().enumerate() {
        let is_last = index + 1 == paths.len();
        let found = look(path, wish)?;
        say(&found.describe(path));
        match (found.late_at, found.torn_at()) {
            (Some(_), _) if !is_last => {
                let file = path.display();
                return Err(Finding::NotCut(format!(
                    "file={file} has later calls than that time, but is not the last file"
                )));
            }
            (Some(offset), _) => cut(path, offset, found.bytes)?,
            (None, Some(offset)) if is_last && wish.fixes => cut(path, offset, found.bytes)?,
            (None, Some(offset)) if is_last => {
                let bytes = found.bytes - offset;
                return Err(Finding::Torn { path: path.clone(), offset, bytes });
            }
            _ => {
                let bytes = found.bytes;
                match found.check_end(path)? {
                    0 => {}
                    room if !is_last => {
                        return Err(damaged(path, &format!("{room} zeros at its end")));
                    }
                    // Other servers take it for damage.
                    room if wish.fixes => cut(path, bytes - room, bytes)?,
                    room => say(&format!("its last {room} bytes are room for more")),
                }
            }
        }
    }
    Ok(())
}

/// The files that make up the append-only file, in the order in which they are loaded.
fn files(path: &Path) -> Result<Vec<PathBuf>, Finding> {
    let unknown = |error| Finding::Unknown(path.to_owned(), error);
    let (_, start) = open(path).map_err(unknown)?;
    let is_named_so = path.extension().is_some_and(|extension| extension == "manifest");
    if !is_named_so && !start.to_ascii_lowercase().starts_with(MANIFEST_START) {
        return Ok(vec![path.to_owned()]);
    }
    let text = fs::read(path).map_err(unknown)?;
    let manifest = Manifest::parse(&text)
        .map_err(|(line, what)| damaged(path, &format!("{what} in line {line}")))?;
    let parts = manifest.base.iter().chain(&manifest.increments);
    Ok(parts.map(|part| path.with_file_name(&part.name)).collect())
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

    fn torn_at(&self) -> Option<u64> {
        match self.end {
            Err(AofError::Torn { offset }) => Some(offset),
            _ => None,
        }
    }

    /// How many zeros stand at its end.
    fn check_end(self, path: &Path) -> Result<u64, Finding> {
        match self.end {
            Ok(End { room, .. }) => Ok(room),
            Err(AofError::Io(error)) => Err(Finding::Unknown(path.to_owned(), error)),
            Err(error) => Err(damaged(path, &error)),
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
    let mut calls = Calls { table: Table::new(), count: 0, until_s, late_at: None };
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
        judge(&self.table, args)?;
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

/// Cuts off what stands behind `offset`. A person is asked, a program knows what it has asked for.
fn cut(path: &Path, offset: u64, bytes: u64) -> Result<(), Finding> {
    let file = path.display();
    let what = format!("{} bytes behind byte {offset} of {file}", bytes - offset);
    if io::stdin().is_terminal() && !ask(&what) {
        return Err(Finding::NotCut("as you wish".into()));
    }
    let unknown = |error| Finding::Unknown(path.to_owned(), error);
    let file = OpenOptions::new().write(true).open(path).map_err(unknown)?;
    // Where a file system has no locks nobody can tell.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(Finding::NotCut("a server is writing the file".into()));
    }
    file.set_len(offset).and_then(|()| file.sync_all()).map_err(unknown)?;
    say(&format!("cut off {what}"));
    Ok(())
}

fn ask(what: &str) -> bool {
    eprint!("Cut off {what}? [y/N] ");
    let mut answer = String::new();
    // Who says nothing has not said yes.
    let _ = io::stdin().read_line(&mut answer);
    answer.trim().eq_ignore_ascii_case("y")
}
