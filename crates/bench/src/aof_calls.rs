//! The system calls that a server makes for its log: how many for a request, and how long they
//! take.
//!
//! strace counts them in a run of its own, which it makes much slower: nothing else is measured.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kvasir_harness::server::Server;

use super::aof::{self, Way};
use super::kv;
use super::report::Measurement;
use super::{Lab, Target};

/// As long as strace takes to attach itself to all threads.
const ATTACH: Duration = Duration::from_millis(500);
const REQUESTS: u64 = 20_000;

/// Names of system calls by what they are for; others are counted together.
const KINDS: [(&str, &[&str]); 6] = [
    ("reads", &["read", "readv", "recvfrom", "recvmsg"]),
    ("writes", &["write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg"]),
    ("syncs", &["fsync", "fdatasync"]),
    ("polls", &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll"]),
    ("rings", &["io_uring_enter"]),
    ("futexes", &["futex"]),
];
const OTHERS: &str = "others";

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        lab.note("strace is not here: no system calls were counted");
        return Ok(Vec::new());
    }
    let name = |way: &Way| format!("system calls, {}", way.name);
    let wanted = aof::ways(target).into_iter().filter(|way| lab.wants(&name(way)));
    wanted.map(|way| measure(lab, target, &way)).collect()
}

fn measure(lab: &Lab, target: &Target, way: &Way) -> Result<Measurement> {
    let name = way.name;
    lab.say(&format!("{}: system calls, {name}", target.label));
    let server = aof::start(lab, target, way)?;
    let tracer = Tracer::attach(&server)?;
    let load = kv::Load { count_max: Some(REQUESTS), ..aof::first_load(lab) };
    let metrics = kv::measure(lab, &server, &load, &lab.load_core())?;
    let requests = metrics["requests"] + load.calibration as f64;
    let calls = tracer.finish()?;
    let mut figures = BTreeMap::new();
    let (mut sync_us, mut total_us) = (0.0, 0.0);
    for call in parse(&calls)? {
        let kind = KINDS.iter().find(|(_, names)| names.contains(&call.name.as_str()));
        let kind = kind.map_or(OTHERS, |(kind, _)| kind);
        *figures.entry(kind).or_insert(0.0) += 1000.0 * call.count / requests;
        sync_us += if kind == "syncs" { call.us } else { 0.0 };
        total_us += call.us;
    }
    let syncs = figures.get("syncs").copied().unwrap_or_default() * requests / 1000.0;
    figures.insert("sync_us", if syncs > 0.0 { sync_us / syncs } else { 0.0 });
    figures.insert("calls_us", total_us / requests);
    Ok(Measurement::new("aof-calls", format!("SET, 50 connections, {name}"), figures))
}

/// strace, as it counts what a server does.
struct Tracer {
    child: Child,
    file: std::path::PathBuf,
}

impl Tracer {
    fn attach(server: &Server) -> Result<Tracer> {
        let file = server.dir().join("calls");
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-o"]).arg(&file).args(["-p", &server.pid().to_string()]);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.context("cannot start strace")?;
        thread::sleep(ATTACH);
        Ok(Tracer { child, file })
    }

    /// What it has counted.
    fn finish(mut self) -> Result<String> {
        let interrupted =
            Command::new("kill").args(["-INT", &self.child.id().to_string()]).status()?;
        ensure!(interrupted.success(), "strace has ended early");
        self.child.wait()?;
        Ok(fs::read_to_string(&self.file)?)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It is gone already, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, PartialEq)]
struct Call {
    name: String,
    count: f64,
    /// All together, in the kernel.
    us: f64,
}

/// The rows between the lines of the table.
fn parse(text: &str) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    let rows = text.lines().skip_while(|line| !line.starts_with("---")).skip(1);
    for row in rows.take_while(|line| !line.starts_with("---")) {
        // Percent, seconds, us for each, calls, perhaps errors, the name.
        let fields: Vec<_> = row.split_whitespace().collect();
        let [_, seconds, _, count, .., name] = fields[..] else { bail!("strace prints {row:?}") };
        let (seconds, count) = (seconds.parse::<f64>()?, count.parse()?);
        calls.push(Call { name: name.to_owned(), count, us: seconds * 1e6 });
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace_is_read() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n \
                    60.00    0.000300          30        10           fdatasync\n \
                    40.00    0.000200           1       150         3 read\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.000500           3       160         3 total\n";
        let calls = parse(text).unwrap();
        let row = |call: &Call| (call.name.clone(), call.count, call.us.round());
        let seen: Vec<_> = calls.iter().map(row).collect();
        let wanted = [("fdatasync", 10.0, 300.0), ("read", 150.0, 200.0)];
        assert_eq!(seen, wanted.map(|(name, count, us)| (name.to_owned(), count, us)));
        assert!(parse("---\nnonsense\n").is_err());
    }
}
