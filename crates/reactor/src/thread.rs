//! Name and processors of the calling thread.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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
