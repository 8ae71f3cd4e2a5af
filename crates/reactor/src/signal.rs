//! SIGTERM and SIGINT ask for a shutdown: a flag is set and workers are woken. A SIGINT after that
//! ends the process at once, as Redis does. SIGPIPE, SIGHUP, SIGXFSZ and SIGALRM are ignored. Those
//! by which a failure ends the process are for `crash.rs`.
//!
//! # Safety
//!
//! A handler may only do what is async-signal-safe: here atomic operations, `write` to an eventfd,
//! and `_exit`. It allocates nothing and takes no lock.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use crate::Waker;

/// Exit status after the second SIGINT, as Redis's.
const INSISTED: i32 = 1;

/// The signal that came first, 0 if none did.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    pub fn name(self) -> &'static str {
        match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
        }
    }
}

/// From now on both signals set the flag that `shutdown_requested` reads, and wake all `wakers`.
/// To be called once, before there is anything to lose.
pub fn watch_shutdown(wakers: &[Waker]) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let wakers = wakers.to_vec();
        let action = move || {
            let is_first =
                REQUESTED.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if !is_first && signal == SIGINT {
                low_level::exit(INSISTED);
            }
            wakers.iter().for_each(Waker::wake);
        };
        // SAFETY: the action does only what the header allows.
        unsafe { low_level::register(signal, action)? };
    }
    Ok(())
}

/// The signal that asked for a shutdown, if one did.
pub fn shutdown_requested() -> Option<Signal> {
    match REQUESTED.load(Ordering::Acquire) {
        SIGINT => Some(Signal::Interrupt),
        SIGTERM => Some(Signal::Terminate),
        _ => None,
    }
}

/// Asks for a shutdown as SIGTERM does.
pub fn request_shutdown() {
    // It is caught, unless nobody watches.
    let _ = low_level::raise(SIGTERM);
}

/// Asks a child process for a shutdown, unless it has ended.
pub fn terminate(child: &std::process::Child) {
    let _ = rustix::process::kill_process(Pid::from_child(child), rustix::process::Signal::TERM);
}

/// Forgets the request, for a shutdown that was called off.
pub fn forget_shutdown() {
    REQUESTED.store(0, Ordering::Release);
}

/// Ends the process as an access to memory that is not there does.
pub fn die_of_segfault() -> ! {
    let _ = low_level::raise(libc::SIGSEGV);
    std::process::abort()
}

/// Stops the process until somebody sends SIGCONT.
pub fn stop_until_continued() {
    let _ = low_level::raise(libc::SIGSTOP);
}

/// A peer that is gone is an error of the send, a file that may not grow is one of the write, and a
/// closed terminal is no reason to end. SIGALRM has Redis tell what it is at.
pub fn ignore_what_need_not_end_it() {
    for signal in [libc::SIGPIPE, libc::SIGHUP, libc::SIGXFSZ, libc::SIGALRM] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{Event, Options, Reactor};

    /// Set in the child process that the signals go to.
    const CHILD: &str = "KVASIR_TEST_SIGNAL_CHILD";

    /// Signals hit the whole process, so the body runs in one of its own.
    #[test]
    fn the_first_signal_wakes_and_a_second_interrupt_exits() {
        if std::env::var_os(CHILD).is_some() {
            return receive_signals();
        }
        let name = "signal::tests::the_first_signal_wakes_and_a_second_interrupt_exits";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let status = command.args([name, "--exact"]).env(CHILD, "1").output().unwrap().status;
        assert_eq!(status.code(), Some(INSISTED));
    }

    fn receive_signals() {
        ignore_what_need_not_end_it();
        low_level::raise(libc::SIGHUP).unwrap();
        let mut reactor = Reactor::new(&Options::default()).unwrap();
        watch_shutdown(&[reactor.waker()]).unwrap();
        assert_eq!(shutdown_requested(), None);
        low_level::raise(SIGTERM).unwrap();
        assert_eq!(shutdown_requested(), Some(Signal::Terminate));
        let mut events = Vec::new();
        while events.is_empty() {
            reactor.wait(None, &mut events).unwrap();
        }
        assert!(matches!(events[..], [Event::Woken]));
        low_level::raise(SIGTERM).unwrap();
        forget_shutdown();
        assert_eq!(shutdown_requested(), None);
        low_level::raise(SIGINT).unwrap();
        assert_eq!(shutdown_requested(), Some(Signal::Interrupt));
        low_level::raise(SIGINT).unwrap();
        // Not reached; a status other than the expected one.
        std::process::exit(INSISTED + 1);
    }
}
