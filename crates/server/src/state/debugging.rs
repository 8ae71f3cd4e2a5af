//! How tests have the server behave: what DEBUG turns on and off.

use std::sync::atomic::AtomicBool;

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
}

impl Default for Debugging {
    fn default() -> Debugging {
        Debugging {
            expires_actively: AtomicBool::new(true),
            pauses_cron: AtomicBool::new(false),
            frees_scripts: AtomicBool::new(false),
            skips_checksums: AtomicBool::new(false),
        }
    }
}
