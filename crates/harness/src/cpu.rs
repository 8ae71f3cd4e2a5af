//! What a process costs, as the kernel counts it: CPU time of all its threads, resident memory.
//!
//! Also the few settings of our own process that measuring needs: the core it runs on, how many
//! sockets it may open.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use crate::workspace::output;

/// A machine with a higher load average over the last minute is not idle.
const LOAD_AVERAGE_MAX: f64 = 0.7;

/// A server that uses less of a core does nothing but its housekeeping.
const IDLE_SHARE: f64 = 0.03;
/// Longer than the thread that moves memory rests while others work.
const LOOK: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// CPU time of a process up to one moment.
pub struct CpuTime {
    /// Nanoseconds on a core for each thread alive, from the scheduler's own account.
    threads_ns: BTreeMap<String, u64>,
    /// Nanoseconds in which they could have run but another had the core.
    waited_ns: BTreeMap<String, u64>,
    /// User and system time of the whole process in clock ticks: coarse, but it includes threads
    /// that have ended.
    ticks: u64,
    /// Of these, what was spent in the kernel.
    system_ticks: u64,
}

/// CPU time between two moments, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct CpuSpent {
    pub scheduler_s: f64,
    pub waited_s: f64,
    pub ticks_s: f64,
    pub system_s: f64,
}

impl CpuTime {
    pub fn of(pid: u32) -> Result<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let (mut threads_ns, mut waited_ns) = (BTreeMap::new(), BTreeMap::new());
        for thread in fs::read_dir(process.join("task"))? {
            let thread = thread?;
            // A thread may end between being listed and being read.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let id = thread.file_name().to_string_lossy().into_owned();
            let mut numbers = text.split_whitespace().map(str::parse);
            threads_ns.insert(id.clone(), numbers.next().context("an empty schedstat")??);
            waited_ns.insert(id, numbers.next().context("a short schedstat")??);
        }
        let fields = stat_fields(&fs::read_to_string(process.join("stat"))?)?;
        let (ticks, system_ticks) = (fields[UTIME..=STIME].iter().sum(), fields[STIME]);
        Ok(Self { threads_ns, waited_ns, ticks, system_ticks })
    }

    /// What was spent since an earlier moment.
    pub fn since(&self, earlier: &Self) -> CpuSpent {
        CpuSpent {
            scheduler_s: grown_s(&self.threads_ns, &earlier.threads_ns),
            waited_s: grown_s(&self.waited_ns, &earlier.waited_ns),
            ticks_s: seconds(self.ticks.saturating_sub(earlier.ticks)),
            system_s: seconds(self.system_ticks.saturating_sub(earlier.system_ticks)),
        }
    }
}

/// By how many seconds the threads' counters grew; a thread that is new began at 0.
fn grown_s(now: &BTreeMap<String, u64>, earlier: &BTreeMap<String, u64>) -> f64 {
    let grown =
        |(id, now): (&String, &u64)| now.saturating_sub(earlier.get(id).copied().unwrap_or(0));
    now.iter().map(grown).sum::<u64>() as f64 / 1e9
}

/// Waits until a server has put everything away that came with its data: a peer may be growing its
/// tables, Kvasir be moving memory to huge pages.
pub fn wait_until_idle(pid: u32) -> Result<()> {
    let start = Instant::now();
    let mut before = CpuTime::of(pid)?;
    while start.elapsed() < PATIENCE {
        thread::sleep(LOOK);
        let now = CpuTime::of(pid)?;
        if now.since(&before).scheduler_s < IDLE_SHARE * LOOK.as_secs_f64() {
            return Ok(());
        }
        before = now;
    }
    bail!("the server is still busy after {PATIENCE:?}, with nothing to do")
}

/// A warning if the machine has other work to do, which spoils what is measured.
pub fn other_load() -> Result<Option<String>> {
    let average = fs::read_to_string("/proc/loadavg")?;
    let minute: f64 = average.split(' ').next().context("an empty loadavg")?.parse()?;
    let note = || format!("the machine was not idle: its load average was {minute} at the start");
    Ok((minute > LOAD_AVERAGE_MAX).then(note))
}

/// CPU seconds of all children of xtask that have ended.
pub fn of_children() -> Result<f64> {
    let fields = stat_fields(&fs::read_to_string("/proc/self/stat")?)?;
    Ok(seconds(fields[CUTIME..=CSTIME].iter().sum()))
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

/// Seconds for which the host of a virtual machine gave a core to others, since the start.
pub fn stolen_s(core: usize) -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let name = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name));
    let ticks = line.and_then(|line| line.split_whitespace().nth(STEAL)).context("no such core")?;
    Ok(seconds(ticks.parse()?))
}

/// Keeps the calling thread, and what it starts from now on, on these cores.
pub fn pin(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on the cores {cores:?}"))
}

/// Cores as `taskset --cpu-list` takes them, without ranges.
pub fn parse_list(list: &str) -> Result<Vec<usize>> {
    let number = |text: &str| text.parse().with_context(|| format!("no list of cores: {list}"));
    list.split(',').map(number).collect()
}

/// Lets the calling thread run before any other on its core; false where that is not allowed.
pub fn prefer_this_thread() -> bool {
    let id = gettid().as_raw_nonzero().to_string();
    output(Command::new("chrt").args(["--fifo", "--pid", "10", &id])).is_ok()
}

/// Raises the number of open files to what the system allows, and returns it.
pub fn raise_file_limit() -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

// Places in the fields that follow the program's name in /proc/PID/stat; see proc_pid_stat(5),
// which counts from 1 and has the process id and the name before them.
const UTIME: usize = 14 - 3;
const STIME: usize = 15 - 3;
const CUTIME: usize = 16 - 3;
const CSTIME: usize = 17 - 3;
/// Place among the numbers of a core in /proc/stat.
const STEAL: usize = 7;

/// The numbers behind the name; what is no number counts as 0.
fn stat_fields(stat: &str) -> Result<Vec<u64>> {
    // The name stands in parentheses and may hold any character.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat without a name")?;
    let fields: Vec<u64> =
        fields.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    (fields.len() > CSTIME).then_some(fields).context("/proc/PID/stat is short")
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 5 6";
        let fields = stat_fields(stat).expect("enough fields");
        assert_eq!(fields[UTIME..=STIME], [100, 20]);
        assert_eq!(fields[CUTIME..=CSTIME], [3, 4]);
        assert!(stat_fields("7 (a) S 1").is_err());
    }

    #[test]
    fn cores_are_read_from_a_list() {
        assert_eq!(parse_list("0,11").expect("a list"), [0, 11]);
        assert!(parse_list("0,x").is_err());
    }

    #[test]
    fn own_cost_is_seen() {
        let pid = std::process::id();
        let before = CpuTime::of(pid).expect("own process");
        let work = (0..20_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        let spent = CpuTime::of(pid).expect("own process").since(&before);
        assert!(spent.scheduler_s > 0.0 && spent.scheduler_s < 60.0, "{spent:?} {work}");
        assert!(resident_bytes(pid).expect("own process") > 1e5);
        assert!(stolen_s(0).expect("there is a core") >= 0.0);
        assert!(stolen_s(1 << 20).is_err());
    }
}
