//! Name, processors and urgency of the calling thread.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sandbox::Optional;

/// The kernel keeps 15 bytes of a thread's name.
const NAME_BYTES_MAX: usize = 15;

/// The name that `top` and debuggers show; cut to 15 bytes.
pub fn set_name(name: &str) -> io::Result<()> {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let name = std::ffi::CString::new(&name[..end])?;
    Ok(rustix::thread::set_name(&name)?)
}

/// Gives the calling thread turns of a tenth of a millisecond on its processor, the shortest there
/// are: when it wakes while a thread with longer ones runs, that one has to give way. Kernels
/// before 6.12 take it without effect.
pub fn wake_early() -> io::Result<()> {
    change_scheduling(|attributes| attributes.sched_runtime = SHORT_NS)
}

/// Has the calling thread, and those it starts from now on, work in the background: when one wakes,
/// it leaves the processor to who runs there until that one waits. Its turns are short as well,
/// since newer kernels take the whole of a turn from who yields; but longer than those of
/// [`wake_early`], since on waking only a thread of shorter turns takes the processor at once.
pub fn wake_late() -> io::Result<()> {
    change_scheduling(|attributes| {
        attributes.sched_policy = libc::SCHED_BATCH as u32;
        attributes.sched_runtime = 2 * SHORT_NS;
    })
}

/// Gives the calling thread, and those it starts from now on, a third of the time that another one
/// gets who wants the same processor: however many of them there are, who waits for them waits for
/// a third as long.
pub fn work_less() -> io::Result<()> {
    change_scheduling(|attributes| {
        attributes.sched_nice = (attributes.sched_nice + NICE_THIRD).min(NICE_MAX);
    })
}

/// Each step of niceness takes a fifth of what is left.
const NICE_THIRD: i32 = 5;
const NICE_MAX: i32 = 19;

/// The shortest turn that the kernel gives.
const SHORT_NS: u64 = 100_000;

/// Asks for the scheduling that the calling thread has.
pub(crate) fn keep_scheduling() -> io::Result<()> {
    set_scheduling(|_| {})
}

fn change_scheduling(change: impl FnOnce(&mut libc::sched_attr)) -> io::Result<()> {
    Optional::Scheduling.check()?;
    set_scheduling(change)
}

fn set_scheduling(change: impl FnOnce(&mut libc::sched_attr)) -> io::Result<()> {
    const SIZE: usize = size_of::<libc::sched_attr>();
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes no more than the size that it is told.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) })?;
    change(&mut attributes);
    // SAFETY: the kernel only reads the attributes, which outlive the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the calling thread, and those it starts from now on, run on these processors only.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The processors on which the calling thread may run.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Reads a list as Redis's `server-cpulist`: "0,2-4,8-14:2" is 0, 2, 3, 4, 8, 10, 12, 14.
/// `None` if it is not such a list, or names a processor that no kernel numbers.
pub fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (parse_number(first)?, parse_number(last)?);
        let step = parse_number(step)?;
        if first > last || step == 0 || last >= CpuSet::MAX_CPU {
            return None;
        }
        cpus.extend((first..=last).step_by(step));
    }
    Some(cpus)
}

fn parse_number(text: &str) -> Option<usize> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_redis_reads_them() {
        let check = |text: &str, expect: Option<&[usize]>| {
            assert_eq!(parse_cpu_list(text).as_deref(), expect, "{text}");
        };
        check("0", Some(&[0]));
        check("0,2-4, 8-14:2", Some(&[0, 2, 3, 4, 8, 10, 12, 14]));
        check("1-1", Some(&[1]));
        for wrong in ["", "a", "1-", "3-1", "1,,2", "0-4:0", "+1", "-1", "0-99999999999"] {
            check(wrong, None);
        }
    }

    #[test]
    fn threads_wake_early_or_late() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, fields) = stat.rsplit_once(')').unwrap();
            // The 41st of all fields; two stand before the bracket.
            fields.split_whitespace().nth(38).unwrap().parse::<i32>().unwrap()
        };
        // 0 where the kernel knows no such thing, both times.
        let turn_ns = || {
            let mut turn_ns = 0;
            change_scheduling(|attributes| turn_ns = attributes.sched_runtime).unwrap();
            turn_ns
        };
        let early = std::thread::spawn(move || {
            wake_early().unwrap();
            assert_eq!(policy(), libc::SCHED_OTHER);
            turn_ns()
        });
        let late = std::thread::spawn(move || {
            wake_late().unwrap();
            assert_eq!(policy(), libc::SCHED_BATCH);
            turn_ns()
        });
        assert_eq!(2 * early.join().unwrap(), late.join().unwrap());
    }

    #[test]
    fn a_thread_works_less_and_less() {
        let nices = std::thread::spawn(|| {
            let mut nice = 0;
            let mut nices = Vec::new();
            for _ in 0..5 {
                work_less().unwrap();
                change_scheduling(|attributes| nice = attributes.sched_nice).unwrap();
                nices.push(nice);
            }
            nices
        });
        let nices = nices.join().unwrap();
        let first = nices[0];
        let expect =
            [first, first + 5, first + 10, first + 15, first + 20].map(|nice| nice.min(19));
        assert!(first > 0);
        assert_eq!(nices, expect);
    }

    #[test]
    fn a_thread_is_named_and_pinned() {
        let thread = std::thread::spawn(|| {
            set_name("worker-0-and-some-more").unwrap();
            let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            assert_eq!(comm, "worker-0-and-so\n");
            let last = *allowed_cpus().unwrap().last().unwrap();
            pin(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
            assert!(pin(&[]).is_err() && pin(&[1 << 20]).is_err());
        });
        thread.join().unwrap();
    }
}
