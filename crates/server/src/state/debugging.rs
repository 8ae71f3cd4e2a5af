//! How tests have the server behave: what DEBUG turns on and off.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};

use kvasir_structures::locks::lock;

#[derive(Debug)]
pub struct Debugging {
    /// SET-ACTIVE-EXPIRE: expired keys are deleted before somebody asks for them.
    pub expires_actively: AtomicBool,
    /// PAUSE-CRON: nothing is done by the clock.
    pub pauses_cron: AtomicBool,
    /// SET-DISABLE-DENY-SCRIPTS: scripts may make calls that they must not make otherwise.
    pub frees_scripts: AtomicBool,
    /// SET-SKIP-CHECKSUM-VALIDATION: of files and of what RESTORE gets.
    pub skips_checksums: AtomicBool,
    /// Held while SLEEP lasts.
    asleep: Mutex<()>,
}

impl Debugging {
    /// To be kept by who sleeps.
    pub fn fall_asleep(&self) -> MutexGuard<'_, ()> {
        lock(&self.asleep)
    }

    /// Returns once nobody sleeps: threads that the gate does not stop are to stand still as well.
    pub fn wait_while_asleep(&self) {
        drop(lock(&self.asleep));
    }
}

impl Default for Debugging {
    fn default() -> Debugging {
        Debugging {
            expires_actively: AtomicBool::new(true),
            pauses_cron: AtomicBool::new(false),
            frees_scripts: AtomicBool::new(false),
            skips_checksums: AtomicBool::new(false),
            asleep: Mutex::default(),
        }
    }
}
