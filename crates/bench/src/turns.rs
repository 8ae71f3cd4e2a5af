//! An earlier program and today's by turns: server CPU per operation, as a ratio.
//!
//! Both servers run all the time, on the same core, and are asked in turn for a moment each; only
//! ratios of neighbouring moments count, so that what drifts in the machine meets both alike. What
//! the ratio is without any difference shows where both programs are the same one.

use std::path::Path;

use anyhow::{Result, ensure};
use kvasir_harness::server::Server;

use super::kv::{self, Load, Point};
use super::scripts;
use super::{Lab, Target};

/// Fewer tell nothing about 3 %.
pub const ROUNDS: u32 = 15;

const KEYS: u64 = 1_000_000;
const PIPELINES: [u32; 3] = [1, 16, 64];

/// What is asked, and of servers with which options.
struct Case {
    name: String,
    load: Load,
    options: &'static [&'static str],
}

/// Prints a table of all cases whose name is wanted.
pub fn main(lab: &Lab, before: &Path, now: &Path, rounds: u32) -> Result<()> {
    ensure!(before.is_file() && now.is_file(), "two programs are compared: --before and --kvasir");
    println!(
        "| case | CPU us before | now | now to before: median | quartiles | calls per second |"
    );
    println!("|---|---:|---:|---:|---|---:|");
    for mut case in cases().into_iter().filter(|case| lab.wants(&case.name)) {
        let pair = [start(lab, before, &mut case)?, start(lab, now, &mut case)?];
        let (mut us, mut rates) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for round in 0..rounds {
            lab.say(&format!("{}, round {} of {rounds}", case.name, round + 1));
            // Who is first changes, since the second finds caches that the first has filled.
            for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let seen = kv::measure(lab, &pair[which], &case.load, &lab.load_core())?;
                us[which].push(seen["cpu_us"]);
                rates[which].push(seen["ops_s"]);
            }
        }
        let [first, median, third] = quartiles(ratios(&us));
        let rate = quartiles(ratios(&rates))[1];
        let [before_us, now_us] = us.map(|us| quartiles(us)[1]);
        let figures = format!("{before_us:.3} | {now_us:.3} | {median:.3}");
        let line = format!("| {} | {figures} | {first:.3} to {third:.3} | {rate:.3} |", case.name);
        lab.bar.suspend(|| println!("{line}"));
    }
    Ok(())
}

fn start(lab: &Lab, program: &Path, case: &mut Case) -> Result<Server> {
    let target = Target::new("kvasir", "Kvasir".into(), program, &[]);
    let server = lab.start_with(&target, 1, &lab.server_core(), case.options)?;
    kv::fill(lab, &server, &target, KEYS)?;
    let mut client = server.client()?;
    (0..20).try_for_each(|field: u32| {
        client.call(&[b"HSET", b"hash", field.to_string().as_bytes(), b"value"]).map(drop)
    })?;
    let sha = scripts::load_script(&server)?;
    if let [command, code, ..] = &mut case.load.call[..]
        && command == "EVALSHA"
    {
        *code = sha;
    }
    Ok(server)
}

fn cases() -> Vec<Case> {
    const PLAIN: &[&str] = &[];
    const ALWAYS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
    let mut cases = Vec::new();
    let mut add = |name, load, options| cases.push(Case { name, load, options });
    for command in ["GET", "SET"] {
        for pipeline in PIPELINES {
            let point = Point { command, pipeline };
            add(point.name(), point.load(KEYS), PLAIN);
        }
    }
    for (name, call) in [
        ("HGETALL of 20 fields", "HGETALL hash"),
        ("ZADD", "ZADD zset __rand_int__ element:__rand_int__"),
    ] {
        let point = Point { command: "GET", pipeline: 16 };
        let call = call.split(' ').map(str::to_owned).collect();
        add(format!("{name}, pipeline 16"), Load { call, ..point.load(KEYS) }, PLAIN);
    }
    for pipeline in [1, 16] {
        let load = scripts::load("EVALSHA", "its name", pipeline);
        add(format!("EVALSHA, pipeline {pipeline}"), load, PLAIN);
    }
    let set = Point { command: "SET", pipeline: 1 };
    add("SET, pipeline 1, always".to_owned(), set.load(KEYS), ALWAYS);
    cases
}

/// Of now to before.
fn ratios([before, now]: &[Vec<f64>; 2]) -> Vec<f64> {
    now.iter().zip(before).map(|(now, before)| now / before).collect()
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    [1, 2, 3].map(|part| values.get(last * part / 4).copied().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_stand_in_order() {
        assert_eq!(quartiles(vec![5.0, 1.0, 2.0, 4.0, 3.0]), [2.0, 3.0, 4.0]);
        assert!(quartiles(Vec::new())[0].is_nan());
    }
}
