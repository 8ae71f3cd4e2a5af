//! The log: lines as Redis writes them, to standard output or to a file.
//!
//! ```text
//! 4242:M 21 Nov 2026 11:50:54.400 * listening port=6379
//! pid:role  local date and time   severity  message
//! ```
//!
//! A message is an event, then fields: `notice!("listening port={port}")`. Below the level in
//! force a message costs one load and is not formatted. The file is opened for each line, so that
//! it may be moved away at any time; nothing is logged per command.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use jiff::Zoned;

use crate::config::{Config, Loglevel};

static LOG: Log = Log::new();

/// Takes level and file from the configuration; fails where the file cannot be written. To be
/// called once, after the process has gone to its `dir`.
pub fn init(config: &Config) -> io::Result<()> {
    LOG.init(config)
}

/// Changes the level, for CONFIG SET.
pub fn set_level(level: Loglevel) {
    LOG.set_level(level);
}

/// Whether a message of this severity is written.
pub fn is_enabled(severity: Loglevel) -> bool {
    LOG.is_enabled(severity)
}

/// Writes one line if the level allows. Control characters of the message are escaped: it may
/// quote what a client sent. A line that cannot be written is lost.
pub fn write(severity: Loglevel, message: fmt::Arguments<'_>) {
    if is_enabled(severity) {
        let _ = LOG.append(&line(severity, &Zoned::now(), &message.to_string()));
    }
}

/// Logs what only matters when looking for a mistake.
#[macro_export]
macro_rules! log_debug {
    ($($message:tt)+) => {
        $crate::log::write($crate::config::Loglevel::Debug, format_args!($($message)+))
    };
}

/// Logs what is rarely of interest.
#[macro_export]
macro_rules! log_verbose {
    ($($message:tt)+) => {
        $crate::log::write($crate::config::Loglevel::Verbose, format_args!($($message)+))
    };
}

/// Logs that a state changed.
#[macro_export]
macro_rules! log_notice {
    ($($message:tt)+) => {
        $crate::log::write($crate::config::Loglevel::Notice, format_args!($($message)+))
    };
}

/// Logs what a person should look at.
#[macro_export]
macro_rules! log_warning {
    ($($message:tt)+) => {
        $crate::log::write($crate::config::Loglevel::Warning, format_args!($($message)+))
    };
}

pub use {
    log_debug as debug, log_notice as notice, log_verbose as verbose, log_warning as warning,
};

struct Log {
    /// The least severity that is written, as a number.
    level: AtomicU8,
    /// Unset: standard output.
    file: OnceLock<PathBuf>,
}

impl Log {
    const fn new() -> Log {
        Log { level: AtomicU8::new(Loglevel::Notice as u8), file: OnceLock::new() }
    }

    fn init(&self, config: &Config) -> io::Result<()> {
        self.set_level(config.loglevel);
        if !config.logfile.as_os_str().is_empty() {
            let _ = self.file.set(std::path::absolute(&config.logfile)?);
        }
        self.append("")
    }

    fn set_level(&self, level: Loglevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    fn is_enabled(&self, severity: Loglevel) -> bool {
        severity as u8 >= self.level.load(Ordering::Relaxed)
    }

    /// One write for one line: lines of several threads do not mix.
    fn append(&self, line: &str) -> io::Result<()> {
        match self.file.get() {
            Some(path) => {
                let mut file = OpenOptions::new().create(true).append(true).open(path)?;
                file.write_all(line.as_bytes())
            }
            None => {
                let mut out = io::stdout().lock();
                out.write_all(line.as_bytes())?;
                out.flush()
            }
        }
    }
}

fn line(severity: Loglevel, now: &Zoned, message: &str) -> String {
    let pid = std::process::id();
    let time = now.strftime("%d %b %Y %H:%M:%S.%3f");
    let sign = sign(severity);
    let mut line = format!("{pid}:M {time} {sign} ");
    for char in message.chars() {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line.push('\n');
    line
}

fn sign(severity: Loglevel) -> char {
    match severity {
        Loglevel::Debug => '.',
        Loglevel::Verbose => '-',
        Loglevel::Notice => '*',
        Loglevel::Warning => '#',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_in_redis() {
        let time: Zoned = "2026-11-05T07:08:09.0104[UTC]".parse().unwrap();
        let pid = std::process::id();
        let check = |severity, message, expect: &str| {
            let expect = format!("{pid}:M 05 Nov 2026 07:08:09.010 {expect}\n");
            assert_eq!(line(severity, &time, message), expect);
        };
        check(Loglevel::Debug, "a b=1", ". a b=1");
        check(Loglevel::Verbose, "a", "- a");
        check(Loglevel::Notice, "ä", "* ä");
        check(Loglevel::Warning, "a\nb\x1b", "# a\\nb\\u{1b}");
    }

    #[test]
    fn level_filters_at_run_time() {
        let log = Log::new();
        let enabled = |log: &Log| {
            [Loglevel::Debug, Loglevel::Verbose, Loglevel::Notice, Loglevel::Warning]
                .map(|severity| log.is_enabled(severity))
        };
        assert_eq!(enabled(&log), [false, false, true, true]);
        log.set_level(Loglevel::Debug);
        assert_eq!(enabled(&log), [true; 4]);
        log.set_level(Loglevel::Warning);
        assert_eq!(enabled(&log), [false, false, false, true]);
    }

    #[test]
    fn file_may_move_away_and_must_be_writable() {
        let dir = tempfile::tempdir().unwrap();
        let logfile = dir.path().join("a.log");
        let log = Log::new();
        log.init(&Config { logfile: logfile.clone(), ..Config::default() }).unwrap();
        log.append("one\n").unwrap();
        std::fs::rename(&logfile, dir.path().join("b.log")).unwrap();
        log.append("two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&logfile).unwrap(), "two\n");
        let logfile = dir.path().join("nosuch/a.log");
        assert!(Log::new().init(&Config { logfile, ..Config::default() }).is_err());
    }
}
