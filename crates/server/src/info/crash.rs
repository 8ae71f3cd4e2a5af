//! The last words of a server that fails: a report that a person can send.
//!
//! A worker that panics has left locks behind in an unknown state, so the process ends, always: a
//! server that is half alive is worse than none. The report says what happened and where, and what
//! the server was doing, in names and figures; no key, value or password is in it.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_reactor::{clock, crash};
use kvasir_structures::heap;

use crate::info::{Source, report};
use crate::log;
use crate::state::shared::Shared;

/// The server to tell of; unset until it runs.
static SHARED: OnceLock<&'static Shared> = OnceLock::new();
/// A report is being written.
static IS_REPORTING: AtomicBool = AtomicBool::new(false);

const BEGINS: &str = "\n=== KVASIR CRASH REPORT BEGINS: send what follows ===\n";
const ENDS: &str = "=== KVASIR CRASH REPORT ENDS ===\n";

/// A report that takes longer is stuck, perhaps at a lock of the thread that failed.
const REPORT_TIME_MAX: Duration = Duration::from_secs(5);
/// What of INFO is in the report; the other sections need locks or tell of no more.
const SECTIONS: [&[u8]; 8] = [
    b"server",
    b"clients",
    b"memory",
    b"persistence",
    b"stats",
    b"replication",
    b"cpu",
    b"commandstats",
];

/// From now on a panic of any thread ends the process with a report.
pub fn install(shared: &'static Shared) {
    let _ = SHARED.set(shared);
    watch_signals(shared);
    std::panic::set_hook(Box::new(|panic| end(&message(panic), &place(panic))));
    heap::on_failure(end_for_want_of_memory);
}

/// Signals that end the process are told of, too, by what a handler of signals may do.
fn watch_signals(shared: &'static Shared) {
    let head = format!("{BEGINS}version: {} ({})\n", env!("CARGO_PKG_VERSION"), build());
    let report = crash::Report { head, describe, foot: ENDS };
    crash::want(shared.config().crash_log_enabled);
    if let Err(error) = crash::watch(report, log::file()) {
        log::warning!("signals that end the server will not be told of: {error}");
    }
}

/// What the workers are at, from figures alone.
fn describe(out: &mut crash::Words) {
    let Some(shared) = SHARED.get() else { return };
    let _ = writeln!(out, "uptime_s: {}", uptime_s(shared));
    write_workers(out, shared);
}

/// A report would want memory too. The line may have some, where what failed was large.
fn end_for_want_of_memory(bytes: usize) {
    crash::note_told();
    if !IS_REPORTING.swap(true, Relaxed) {
        log::warning!("out of memory, so the server ends: the system has no more bytes={bytes}");
    }
    std::process::abort();
}

/// Ends the process with a report, for failures that are no panics.
#[track_caller]
pub fn fatal(message: &str) -> ! {
    end(message, &std::panic::Location::caller().to_string())
}

fn message(panic: &PanicHookInfo<'_>) -> String {
    panic.payload_as_str().unwrap_or("no message").to_owned()
}

fn place(panic: &PanicHookInfo<'_>) -> String {
    panic.location().map_or_else(|| "an unknown place".into(), ToString::to_string)
}

fn end(message: &str, place: &str) -> ! {
    crash::note_told();
    // A second failure, perhaps of the report itself, must not start over.
    if !IS_REPORTING.swap(true, Relaxed) {
        abort_later();
        if SHARED.get().is_none_or(|shared| shared.config().crash_log_enabled) {
            log::write_raw(&text(message, place));
        }
        log::warning!("the server failed and ends message={message} at={place}");
    }
    std::process::abort();
}

fn abort_later() {
    // Without the thread, a report that hangs hangs.
    let _ = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(REPORT_TIME_MAX);
        std::process::abort();
    });
}

/// The report, with its first and last line.
fn text(message: &str, place: &str) -> String {
    let mut out = String::from(BEGINS);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let _ = writeln!(out, "message: {message}\nplace: {place}\nthread: {thread}");
    let _ = writeln!(out, "version: {} ({})", env!("CARGO_PKG_VERSION"), build());
    if let Some(shared) = SHARED.get() {
        write_state(&mut out, shared);
    }
    let _ = writeln!(out, "\n------ BACKTRACE ------\n{}", Backtrace::force_capture());
    out + ENDS
}

fn build() -> String {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{profile}, {}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

fn write_state(out: &mut String, shared: &'static Shared) {
    let now_ms = clock::now_unix_ms();
    let _ = writeln!(out, "uptime_s: {}", uptime_s(shared));
    write_workers(out, shared);
    let config = shared.config();
    let source = Source { shared, config: &config, pass: None, counted: None, now_ms };
    let info = report(&source, &SECTIONS);
    let _ = write!(out, "\n------ INFO ------\n{}", String::from_utf8_lossy(&info));
}

fn uptime_s(shared: &Shared) -> u64 {
    clock::now_unix_ms().saturating_sub(shared.facts.started_ms) / 1000
}

/// Without a lock, and without memory of its own.
fn write_workers(out: &mut impl Write, shared: &Shared) {
    let _ = writeln!(out, "clients: {}", shared.clients.count());
    for (index, worker) in shared.workers.iter().enumerate() {
        let last = shared.table.entries().get(worker.stats.last_command.load(Relaxed));
        let name = last.map_or("none", |entry| &entry.full_name);
        let connections = worker.connection_count.load(Relaxed);
        let _ = writeln!(out, "worker-{index}: last_command={name} connections={connections}");
    }
}
