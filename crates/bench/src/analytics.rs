//! Analytics where the data is: PageRank and columns, beside clients, a script, scipy, DuckDB, C.
//!
//! The graph is a text of edges that `--graph` names, or an R-MAT graph of a fixed seed. What
//! clients and scripts need is taken from a part of it, since the whole would take hours, and
//! grows with the edges. Python's packages are installed below `target/analytics`.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kvasir_harness::python::venv;
use kvasir_harness::random::Random;
use kvasir_harness::server::Server;
use kvasir_harness::workspace::{command, output, root, run as run_command, target_dir};
use kvasir_resp::value::Value;

use super::report::Measurement;
use super::watch::{quantile_ms, watch_while};
use super::{Lab, Target};

/// As many nodes and edges as SNAP's web-Google, before those of equal ends are left out.
const LEVELS: u32 = 20;
const EDGES: f64 = 5_105_039.0;
const RECORDS: f64 = 60_000.0;
const ITERATIONS: &str = "10";
const PACKAGES: &str =
    "redis==6.4.0\npyarrow==26.0.1\nnumpy==2.4.6\nscipy==1.17.1\nduckdb==2.0.1\n";

pub type Metrics = BTreeMap<&'static str, f64>;

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let (python, edges) = (python()?, edges(lab)?);
    let edge_count = count_edges(&edges)?;
    let server = lab.start_with(target, 1, &lab.both_cores(), &["--maxmemory", "0"])?;
    let port = server.port().to_string();
    let edges = edges.to_string_lossy().into_owned();
    let ask = |words: &[&str]| figures(&python, words);
    lab.say(&format!("{}: loading the graph", target.label));
    ask(&["load", &port, &edges])?;
    let mut measurements = Vec::new();
    let mut add = |case: &str, metrics: Metrics| {
        measurements.push(Measurement::new("graph", case.to_string(), metrics));
    };
    if target.name.starts_with("kvasir") {
        let alone = get_p99_ms(&server, || {
            std::thread::sleep(PAUSE);
            Ok(())
        })?
        .0;
        let (p99_ms, mut metrics) = get_p99_ms(&server, || ask(&["graph", &port, &edges]))?;
        metrics.extend([("get_p99_ms", p99_ms), ("get_alone_p99_ms", alone)]);
        add("GRAPH.PAGERANK", metrics);
        let program = compile()?;
        for threads in ["1", "2"] {
            let text = output(command(&program).args([&edges, ITERATIONS, threads]))?;
            add(&format!("C, {threads} thread(s)"), metrics_of(&text)?);
        }
        add("scipy", ask(&["scipy", &edges])?);
        add("DuckDB", ask(&["duckdb", &edges])?);
    }
    for (word, case) in [("client", "redis-py"), ("script", "a script in the server")] {
        lab.say(&format!("{}: {case}", target.label));
        add(case, of_all(ask(&[word, &port, &edges])?, edge_count)?);
    }
    columns(lab, target, &server, &ask, &mut measurements)?;
    Ok(measurements)
}

/// What took a part of the edges, as if it grew with them.
pub fn of_all(mut metrics: Metrics, edge_count: f64) -> Result<Metrics> {
    let share = edge_count / metrics.remove("edges").context("how many edges it had")?;
    metrics.entry("iteration_s").and_modify(|seconds| *seconds *= share);
    // It is that of the part.
    metrics.remove("sum");
    Ok(metrics)
}

const PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

/// EXPORT beside SCAN and HGETALL of the same hashes.
fn columns(
    lab: &Lab,
    target: &Target,
    server: &Server,
    ask: &dyn Fn(&[&str]) -> Result<Metrics>,
    measurements: &mut Vec<Measurement>,
) -> Result<()> {
    let (port, count) = (server.port().to_string(), (RECORDS * lab.scale()).max(1000.0) as u64);
    lab.say(&format!("{}: {count} hashes as columns", target.label));
    ask(&["records", &port, &count.to_string()])?;
    let mut add = |case: &str, metrics| {
        measurements.push(Measurement::new("columns", case.to_string(), metrics));
    };
    if target.name.starts_with("kvasir") {
        let (p99_ms, mut metrics) = get_p99_ms(server, || ask(&["export", &port]))?;
        metrics.insert("get_p99_ms", p99_ms);
        add("EXPORT to pyarrow", metrics);
    }
    add("SCAN, HGETALL by redis-py", ask(&["scan", &port])?);
    Ok(())
}

/// The slowest of a hundred GETs while there is work to do.
fn get_p99_ms<T>(server: &Server, work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    server.client()?.call(&[b"SET", b"watched", b"value"])?;
    let (watch, worked) = watch_while(
        server,
        |client| {
            let reply = client.call(&[b"GET", b"watched"])?;
            ensure!(reply == Value::Bulk(b"value".to_vec()), "GET was answered with {reply:?}");
            Ok(())
        },
        work,
    )?;
    Ok((quantile_ms(&watch.round_trips, 0.99), worked))
}

pub fn count_edges(path: &Path) -> Result<f64> {
    Ok(fs::read_to_string(path)?.lines().filter(|line| is_edge(line)).count() as f64)
}

pub fn is_edge(line: &str) -> bool {
    !line.starts_with('#')
}

/// The text of edges.
pub fn edges(lab: &Lab) -> Result<PathBuf> {
    if let Some(path) = &lab.graph {
        return Ok(path.clone());
    }
    let count = (EDGES * lab.scale()).max(10_000.0) as usize;
    let path = folder()?.join(format!("rmat-{count}-once.txt"));
    if !path.is_file() {
        fs::write(&path, draw_edges(count))?;
    }
    Ok(path)
}

/// R-MAT: at each level an edge falls into one of four quarters, most often the first. What is
/// drawn twice is there once, as in a set.
fn draw_edges(count: usize) -> String {
    let levels = LEVELS.min((count as f64 / 5.0).log2().ceil() as u32);
    let (mut random, mut text) = (Random::new(20_140_901), String::new());
    let mut drawn = HashSet::new();
    for _ in 0..count {
        let (mut from, mut to) = (0u64, 0u64);
        for _ in 0..levels {
            let quarter = random.below(100);
            (from, to) = (2 * from + u64::from(quarter >= 64), 2 * to);
            to += u64::from((50..64).contains(&quarter) || quarter >= 83);
        }
        if from != to && drawn.insert((from, to)) {
            let _ = writeln!(text, "{from}\t{to}");
        }
    }
    text
}

fn folder() -> Result<PathBuf> {
    let folder = target_dir().join("analytics");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn compile() -> Result<PathBuf> {
    let program = folder()?.join("page_rank");
    let source = root().join("crates/bench/programs/page_rank.c");
    run_command(command("cc").args(["-O3", "-pthread", "-o"]).arg(&program).arg(source))?;
    Ok(program)
}

pub fn python() -> Result<PathBuf> {
    venv(&folder()?.join("venv"), PACKAGES)
}

pub fn figures(python: &Path, words: &[&str]) -> Result<Metrics> {
    let script = root().join("crates/bench/programs/analytics.py");
    metrics_of(&output(command(python).arg(script).args(words))?)
}

/// Those of the names that the report knows.
pub fn metrics_of(text: &str) -> Result<Metrics> {
    const NAMES: [&str; 9] = [
        "nodes",
        "sum",
        "build_s",
        "iteration_s",
        "memory_mb",
        "edges",
        "rows",
        "seconds",
        "rows_s",
    ];
    let found: BTreeMap<String, f64> =
        serde_json::from_str(text).with_context(|| format!("no figures: {text}"))?;
    Ok(NAMES.into_iter().filter_map(|name| Some((name, *found.get(name)?))).collect())
}
