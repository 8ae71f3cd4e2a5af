//! The log: lines to standard output or to a file, and to the system's log.
//!
//! A message is an event, then fields: `notice!("listening port={port}")`. Below the level in
//! force a message costs one load and is not formatted. The file is opened for each line, so that
//! it may be moved away at any time; nothing is logged per command.

pub mod line;
pub mod syslog;

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock};

use jiff::Zoned;
use kvasir_config::{Config, LogFormat, Loglevel, TimestampFormat};
use kvasir_structures::locks::lock;

use crate::log::line::{Look, escaped, line};
use crate::log::syslog::Syslog;

static LOG: Log = Log::new();

/// Takes level and file from the configuration; fails where the file cannot be written. To be
/// called once, after the process has gone to its `dir`.
pub fn init(config: &Config) -> io::Result<()> {
    LOG.init(config)
}

/// Takes what CONFIG SET may have changed: level and formats.
pub fn refresh(config: &Config) {
    LOG.refresh(config);
}

/// Whether a message of this severity is written.
pub fn is_enabled(severity: Loglevel) -> bool {
    LOG.is_enabled(severity)
}

/// Writes one line if the level allows. A line that cannot be written is lost.
pub fn write(severity: Loglevel, message: fmt::Arguments<'_>) {
    if is_enabled(severity) {
        LOG.write(severity, &message.to_string());
    }
}

/// Writes text of several lines as it is, whatever the level: the crash report.
pub fn write_raw(text: &str) {
    let _ = LOG.append(text);
}

/// Where lines go to; standard output if nowhere else.
pub fn file() -> Option<&'static Path> {
    LOG.file.get().map(PathBuf::as_path)
}

/// What went wrong as the system says it, without the number.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Logs what only matters when looking for a mistake.
#[macro_export]
macro_rules! log_debug {
    ($($message:tt)+) => {
        $crate::log::write(::kvasir_config::Loglevel::Debug, format_args!($($message)+))
    };
}

/// Logs what is rarely of interest.
#[macro_export]
macro_rules! log_verbose {
    ($($message:tt)+) => {
        $crate::log::write(::kvasir_config::Loglevel::Verbose, format_args!($($message)+))
    };
}

/// Logs that a state changed.
#[macro_export]
macro_rules! log_notice {
    ($($message:tt)+) => {
        $crate::log::write(::kvasir_config::Loglevel::Notice, format_args!($($message)+))
    };
}

/// Logs what a person should look at.
#[macro_export]
macro_rules! log_warning {
    ($($message:tt)+) => {
        $crate::log::write(::kvasir_config::Loglevel::Warning, format_args!($($message)+))
    };
}

pub use {
    log_debug as debug, log_notice as notice, log_verbose as verbose, log_warning as warning,
};

struct Log {
    /// The least severity that is written, as a number.
    level: AtomicU8,
    look: Mutex<Look>,
    /// Unset: standard output.
    file: OnceLock<PathBuf>,
    /// Unset: not wanted.
    syslog: OnceLock<Syslog>,
}

impl Log {
    const fn new() -> Log {
        let look = Look { format: LogFormat::Legacy, timestamp: TimestampFormat::Legacy };
        Log {
            level: AtomicU8::new(Loglevel::Notice as u8),
            look: Mutex::new(look),
            file: OnceLock::new(),
            syslog: OnceLock::new(),
        }
    }

    fn init(&self, config: &Config) -> io::Result<()> {
        self.refresh(config);
        if !config.logfile.as_os_str().is_empty() {
            let file = std::path::absolute(&config.logfile)?;
            // One that cannot be opened takes no message either, least of all this one.
            OpenOptions::new().create(true).append(true).open(&file)?;
            let _ = self.file.set(file);
        }
        if let Some(syslog) = Syslog::open(config) {
            let _ = self.syslog.set(syslog);
        }
        Ok(())
    }

    fn refresh(&self, config: &Config) {
        self.level.store(config.loglevel as u8, Ordering::Relaxed);
        let (format, timestamp) = (config.log_format, config.log_timestamp_format);
        *lock(&self.look) = Look { format, timestamp };
    }

    fn write(&self, severity: Loglevel, message: &str) {
        let look = *lock(&self.look);
        let _ = self.append(&line(look, severity, &Zoned::now(), message));
        if let Some(syslog) = self.syslog.get() {
            syslog.send(severity, &escaped(message, ""));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_filters_at_run_time() {
        let log = Log::new();
        let enabled = |log: &Log| {
            [Loglevel::Debug, Loglevel::Verbose, Loglevel::Notice, Loglevel::Warning]
                .map(|severity| log.is_enabled(severity))
        };
        assert_eq!(enabled(&log), [false, false, true, true]);
        let set = |loglevel| log.refresh(&Config { loglevel, ..Config::of_table() });
        set(Loglevel::Debug);
        assert_eq!(enabled(&log), [true; 4]);
        set(Loglevel::Warning);
        assert_eq!(enabled(&log), [false, false, false, true]);
        set(Loglevel::Nothing);
        assert_eq!(enabled(&log), [false; 4]);
    }

    #[test]
    fn file_may_move_away_and_must_be_writable() {
        let dir = tempfile::tempdir().unwrap();
        let logfile = dir.path().join("a.log");
        let log = Log::new();
        log.init(&Config { logfile: logfile.clone(), ..Config::of_table() }).unwrap();
        log.append("one\n").unwrap();
        std::fs::rename(&logfile, dir.path().join("b.log")).unwrap();
        log.append("two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&logfile).unwrap(), "two\n");
        let logfile = dir.path().join("nosuch/a.log");
        assert!(Log::new().init(&Config { logfile, ..Config::of_table() }).is_err());
    }
}
