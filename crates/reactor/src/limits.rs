//! What the process may use and what it has used.
//!
//! # Safety
//!
//! The only `unsafe` is `getrusage`, which fills a struct on the stack.

use std::io;
use std::time::Duration;

use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread;

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

/// Whether the process may do what root may.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Has the process, of which there is but this thread, be another user from now on, in these
/// groups. There is no way back.
pub fn give_up_root(user: u32, group: u32, groups: &[u32]) -> io::Result<()> {
    if groups.iter().chain([&user, &group]).any(|id| *id == u32::MAX) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let groups: Vec<Gid> = groups.iter().map(|id| Gid::from_raw(*id)).collect();
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    thread::set_thread_groups(&groups)?;
    thread::set_thread_res_gid(group, group, group)?;
    thread::set_thread_res_uid(user, user, user)?;
    Ok(())
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

/// Of a thread of this process by its name, to a hundredth of a second; nothing where it is not
/// known.
pub fn cpu_time_of(name: &str) -> CpuTime {
    let none = CpuTime { user: Duration::ZERO, system: Duration::ZERO };
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return none };
    let stats = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("stat")).ok()?;
        cpu_time_in(&text, name)
    });
    stats.into_iter().next().unwrap_or(none)
}

/// What a line of /proc tells of a thread, if it has this name, which stands in parentheses.
fn cpu_time_in(stat: &str, name: &str) -> Option<CpuTime> {
    let (_, rest) = stat.split_once('(')?;
    let fields = rest.strip_prefix(name)?.strip_prefix(") ")?;
    let hundredths = |index: usize| {
        let count = fields.split(' ').nth(index)?.parse().ok()?;
        Some(Duration::from_millis(10).saturating_mul(count))
    };
    // Fields 14 and 15 of the line, which begins with three of which two are gone.
    Some(CpuTime { user: hundredths(11)?, system: hundredths(12)? })
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
    fn a_thread_is_found_by_its_name() {
        let line = "17 (worker-0) S 1 1 1 0 -1 4194560 10 0 0 0 250 7 0 0 20 0 5 0 123";
        let millis = Duration::from_millis;
        let time = CpuTime { user: millis(2500), system: millis(70) };
        assert_eq!(cpu_time_in(line, "worker-0"), Some(time));
        assert_eq!(cpu_time_in(line, "worker-"), None);
        assert_eq!(cpu_time_of("nobody").user, Duration::ZERO);
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
