//! What the process may use and what it has used.
//!
//! # Safety
//!
//! The only `unsafe` is `getrusage`, which fills a struct on the stack.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows `wanted` open files, or as many as the system lets us. How many it is now; more than
/// wanted if it was more already.
pub fn raise_open_files(wanted: u64) -> u64 {
    /// As Redis steps down when the system refuses.
    const STEP: u64 = 16;
    let limit = getrlimit(Resource::Nofile);
    let before = limit.current.unwrap_or(u64::MAX);
    let mut next = wanted;
    while next > before {
        let maximum = limit.maximum.map(|maximum| maximum.max(next));
        let raised = Rlimit { current: Some(next), maximum };
        let kept = Rlimit { current: Some(next), maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised)
            .or_else(|_| setrlimit(Resource::Nofile, kept))
            .is_ok()
        {
            return next;
        }
        // Straight to the hard limit, if that is lower than the next step.
        next = next.saturating_sub(STEP).min(limit.maximum.unwrap_or(u64::MAX).max(before));
    }
    before
}

/// Processor time this process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

pub fn cpu_time() -> CpuTime {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for the call; all fields are integers, for which any bytes
    // are valid, zeros if the call should fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

/// Processor time of the calling thread, both kinds together.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory of this process that is in RAM.
pub fn resident_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(pages.saturating_mul(page_size() as u64))
}

pub fn total_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

pub fn page_size() -> usize {
    rustix::param::page_size()
}

pub fn pid() -> u32 {
    std::process::id()
}

/// Leaves the terminal: the process becomes the leader of a session of its own.
pub fn start_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// System, release and machine, as `os` in INFO: "Linux 6.1.0 x86_64".
pub fn system_name() -> String {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {} {}", text(name.sysname()), text(name.release()), text(name.machine()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_raised_to_what_is_possible() {
        let now = raise_open_files(64);
        assert!(now >= 64);
        assert_eq!(raise_open_files(now), now);
        assert!(raise_open_files(1 << 40) >= now);
    }

    #[test]
    fn facts_are_plausible() {
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(total_memory_bytes() > resident_bytes().unwrap());
        assert!(page_size().is_power_of_two() && pid() > 0);
        assert!(system_name().starts_with("Linux "));
        let start = cpu_time();
        while cpu_time().user == start.user {
            std::hint::spin_loop();
        }
    }
}
