//! What Spark takes for what is asked of Kvasir: PageRank of a graph, one record among many.
//!
//! PySpark on two cores, by its example's joins, of a part of the edges, and by blocks of rows in
//! numpy, which is the fastest that we know.

use anyhow::Result;
use kvasir_harness::python::spark;
use kvasir_harness::workspace::{command, output, root};

use super::analytics::{Metrics, count_edges, edges, figures, metrics_of, of_all, python};
use super::report::Measurement;
use super::{Lab, Target};

/// Of single records.
const RECORDS: [f64; 3] = [1e4, 1e5, 1e6];
const RECORDS_MIN: f64 = 1000.0;

pub fn run(lab: &Lab, target: &Target) -> Result<Vec<Measurement>> {
    let (python, path) = (python()?, edges(lab)?);
    let edge_count = count_edges(&path)?;
    let server = lab.start_with(target, 1, &lab.both_cores(), &["--maxmemory", "0"])?;
    let (port, path) = (server.port().to_string(), path.to_string_lossy().into_owned());
    let ask = |words: &[&str]| figures(&python, words);
    let is_ours = target.name.starts_with("kvasir");
    let mut measurements = Vec::new();
    let mut add = |part: &'static str, case: String, metrics: Metrics| {
        measurements.push(Measurement::new(part, case, metrics));
    };
    if is_ours {
        lab.say(&format!("{}: a graph, and Spark's", target.label));
        ask(&["load", &port, &path])?;
        add("graph", "GRAPH.PAGERANK".to_string(), ask(&["graph", &port, &path])?);
        add("graph", "Spark, blocks of numpy".to_string(), ask_spark(&["blocks", &path])?);
        let example = of_all(ask_spark(&["stock", &path])?, edge_count)?;
        add("graph", "Spark, its example".to_string(), example);
    }
    for most in RECORDS {
        let count = ((most * lab.scale()).max(RECORDS_MIN) as u64).to_string();
        lab.say(&format!("{}: one of {count} records", target.label));
        let get = ask(&["lookup", &port, &count])?;
        add("lookup", format!("GET by redis-py, one of {count}"), get);
        if is_ours {
            let found = ask_spark(&["lookup", &count])?;
            add("lookup", format!("RDD.lookup, one of {count}"), found);
        }
    }
    Ok(measurements)
}

fn ask_spark(words: &[&str]) -> Result<Metrics> {
    let script = root().join("crates/bench/programs/spark.py");
    metrics_of(&output(command(spark()?).arg(script).args(words))?)
}
