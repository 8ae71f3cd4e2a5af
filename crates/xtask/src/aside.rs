//! What long work prints goes to a file, so that a run of many steps can be read: the terminal
//! is told how far the work is, and, when it fails, the lines that tell why.

use std::fs::{self, File};
use std::io::{Write, stderr, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdout};

/// How often the terminal hears of work that goes on.
const BEAT: Duration = Duration::from_secs(30);

/// What marks a line that tells why something failed.
const SIGNS: [&str; 6] = ["FAILED", "panicked at", "error:", "error[", "ERROR:", "Error:"];
/// Such a line is shown with so many behind it.
const LINES_BEHIND: usize = 5;
/// The end of the output, which is shown as well.
const LINES_AT_END: usize = 25;
/// Of all that could be shown, the last.
const LINES_MAX: usize = 150;
const COLUMNS_MAX: usize = 240;

/// Runs the work with the output of this process, and so of its children, in the file. A panic
/// is a failure like another.
pub fn run(file: &Path, work: fn() -> Result<()>) -> Result<()> {
    fs::create_dir_all(file.parent().expect("a file lies in a folder"))?;
    let log = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    let terminal = Terminal::leave_for(&log)?;
    let result = thread::scope(|scope| {
        let (at_work, is_over) = mpsc::channel();
        scope.spawn(|| tell(terminal.out.as_fd(), file, is_over));
        let result = catch_unwind(AssertUnwindSafe(work));
        drop::<mpsc::Sender<()>>(at_work);
        result
    });
    terminal.come_back()?;
    result.unwrap_or_else(|_| bail!("it panicked"))
}

/// Where the output went before.
struct Terminal {
    out: OwnedFd,
    err: OwnedFd,
}

impl Terminal {
    fn leave_for(log: &File) -> Result<Self> {
        stdout().flush()?;
        let out = fcntl_dupfd_cloexec(stdout(), 0)?;
        let err = fcntl_dupfd_cloexec(stderr(), 0)?;
        dup2_stdout(log)?;
        dup2_stderr(log)?;
        Ok(Self { out, err })
    }

    fn come_back(self) -> Result<()> {
        stdout().flush()?;
        dup2_stdout(self.out)?;
        dup2_stderr(self.err)?;
        Ok(())
    }
}

/// Tells the terminal the last line of the file, now and then, until the work is over.
fn tell(terminal: impl AsFd, file: &Path, is_over: Receiver<()>) {
    let start = Instant::now();
    while is_over.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        let text = read(file);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing yet");
        let line = format!("     {:>4} s: {}\n", start.elapsed().as_secs(), shortened(last));
        // Nobody may be listening; the work does not need it.
        let _ = rustix::io::write(&terminal, line.as_bytes());
    }
}

/// What of the output tells why the work failed.
pub fn reasons(file: &Path) -> String {
    let text = read(file);
    let lines: Vec<&str> = text.lines().collect();
    let picked = pick(&lines);
    let skipped = picked.len().saturating_sub(LINES_MAX);
    let shown = picked[skipped..].iter().map(|index| format!("  | {}\n", shortened(lines[*index])));
    shown.collect()
}

/// The numbers of the lines to show, in order.
fn pick(lines: &[&str]) -> Vec<usize> {
    let end = lines.len().saturating_sub(LINES_AT_END);
    let mut until = 0;
    let mut picked = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if SIGNS.iter().any(|sign| line.contains(sign)) {
            until = index + LINES_BEHIND + 1;
        }
        if index < until || index >= end {
            picked.push(index);
        }
    }
    picked
}

/// The file as it is by now: programs print what they like, so not all of it need be text.
fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

fn shortened(line: &str) -> &str {
    let end = line.char_indices().nth(COLUMNS_MAX).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_and_the_end_are_picked() {
        let mut lines = vec!["fine"; 100];
        lines[10] = "test a::b ... FAILED";
        lines[13] = "thread 'a::b' panicked at src/a.rs:1:1:";
        let expected: Vec<usize> = (10..19).chain(75..100).collect();
        assert_eq!(pick(&lines), expected);
        assert_eq!(pick(&["error: nothing"]), [0]);
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        assert_eq!(shortened("kurz"), "kurz");
        assert_eq!(shortened(&"ä".repeat(1000)).chars().count(), COLUMNS_MAX);
    }
}
