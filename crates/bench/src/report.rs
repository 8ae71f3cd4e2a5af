//! Raw results to disk, medians to tables, charts beside them.
//!
//! Every measurement is appended to `runs.jsonl` as soon as it is made, so that a run that is cut
//! off leaves what it measured. Tables and charts are derived from those records alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};
use kvasir_harness::workspace::{command, output};
use serde::Serialize;

use super::plot::{self, Chart};
use super::tables::{Column, TABLES, Table};

/// What a scenario returns: numbers by name, for one case of one table.
pub struct Measurement {
    pub table: &'static str,
    pub case: String,
    pub metrics: BTreeMap<&'static str, f64>,
}

impl Measurement {
    pub fn new(table: &'static str, case: String, metrics: BTreeMap<&'static str, f64>) -> Self {
        Self { table, case, metrics }
    }
}

/// One line of `runs.jsonl`.
#[derive(Serialize)]
pub struct Record {
    pub table: String,
    pub case: String,
    pub server: String,
    pub run: u32,
    pub metrics: BTreeMap<String, f64>,
}

/// Where and when it was measured.
#[derive(Serialize)]
pub struct Machine {
    date: String,
    commit: String,
    kernel: String,
    cpu: String,
    cores: usize,
    memory: String,
}

/// The servers that others are compared with.
const PEERS: [&str; 3] = ["redis", "valkey", "memcached"];

/// The results of one call of `cargo xtask bench`.
pub struct Report {
    dir: PathBuf,
    machine: Machine,
    raw: File,
    records: Vec<Record>,
}

impl Report {
    pub fn new(dir: &Path, machine: Machine) -> Result<Self> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("machine.json"), serde_json::to_string_pretty(&machine)? + "\n")?;
        let raw = File::create(dir.join("runs.jsonl"))
            .with_context(|| format!("cannot write to {}", dir.display()))?;
        Ok(Self { dir: dir.to_path_buf(), machine, raw, records: Vec::new() })
    }

    pub fn add(&mut self, record: Record) -> Result<()> {
        writeln!(self.raw, "{}", serde_json::to_string(&record)?)?;
        self.records.push(record);
        Ok(())
    }

    /// Prints the tables and writes them and the charts; servers stand in the given order.
    pub fn finish(
        &self,
        servers: &[(&'static str, String)],
        notes: &[String],
        method: &str,
    ) -> Result<()> {
        let mut text = self.machine.headline();
        let _ = writeln!(text, "{method}\n");
        notes.iter().for_each(|note| text.push_str(&format!("Note: {note}.\n\n")));
        for table in TABLES {
            let cases = self.cases(table.name);
            if cases.is_empty() {
                continue;
            }
            let rows = self.rows(table, &cases, servers);
            let _ = writeln!(text, "## {}\n\n{}\n{}\n", table.title, markdown(&rows), table.note);
            text.push_str(&self.ratios(table, &cases, servers));
            for column in table.columns.iter().filter(|column| column.compared) {
                let chart = self.chart(table, column, &cases, servers);
                let file = format!("{}-{}.svg", table.name, column.metric);
                fs::write(self.dir.join(&file), plot::svg(&chart))?;
                let _ = writeln!(text, "![{}]({file})\n", chart.title);
            }
        }
        let summary = self.dir.join("summary.md");
        fs::write(&summary, text.trim_end().to_string() + "\n")?;
        println!("{text}{}", summary.display());
        Ok(())
    }

    /// The cases of a table, in the order in which they were measured.
    fn cases(&self, table: &str) -> Vec<&str> {
        let mut cases = Vec::new();
        for record in self.records.iter().filter(|record| record.table == table) {
            if !cases.contains(&record.case.as_str()) {
                cases.push(&record.case);
            }
        }
        cases
    }

    fn statistics(&self, table: &str, case: &str, server: &str, metric: &str) -> Option<Spread> {
        let same = |record: &&Record| {
            record.table == table && record.case == case && record.server == server
        };
        let values = self.records.iter().filter(same).filter_map(|record| {
            let value = record.metrics.get(metric)?;
            Some(*value)
        });
        Spread::of(values.collect())
    }

    fn rows(
        &self,
        table: &Table,
        cases: &[&str],
        servers: &[(&'static str, String)],
    ) -> Vec<Vec<String>> {
        let mut head = vec!["case".to_string(), "server".to_string()];
        head.extend(table.columns.iter().map(|column| column.title.to_string()));
        let ratios: Vec<_> = table.columns.iter().filter(|column| column.compared).collect();
        let peers: Vec<_> = servers.iter().filter(|(name, _)| PEERS.contains(name)).collect();
        for column in &ratios {
            head.extend(peers.iter().map(|(peer, _)| format!("{} / {peer}", column.title)));
        }
        let mut rows = vec![head];
        for case in cases {
            for (server, label) in servers {
                let value = |column: &Column, server: &str| {
                    self.statistics(table.name, case, server, column.metric)
                };
                let cell = |column: &Column| {
                    value(column, server).map_or(String::new(), |found| found.show(column))
                };
                let mut row = vec![case.to_string(), label.clone()];
                row.extend(table.columns.iter().map(cell));
                for column in &ratios {
                    let own = value(column, server).map(|found| found.median);
                    let ratio = |peer: &str| Some(own? / value(column, peer)?.median);
                    row.extend(peers.iter().map(|(peer, _)| show_ratio(ratio(peer))));
                }
                rows.push(row);
            }
        }
        rows
    }

    /// Of tables with many cases: the median and the largest of the ratios to each peer.
    fn ratios(&self, table: &Table, cases: &[&str], servers: &[(&'static str, String)]) -> String {
        const MANY: usize = 7;
        let mut text = String::new();
        let peers = || servers.iter().filter(|(name, _)| PEERS.contains(name));
        let own = servers.iter().filter(|(name, _)| !PEERS.contains(name));
        for (((server, label), column), (peer, peer_label)) in own
            .flat_map(|own| table.columns.iter().map(move |column| (own, column)))
            .filter(|(_, column)| column.compared && cases.len() >= MANY)
            .flat_map(|row| peers().map(move |peer| (row, peer)))
        {
            let value = |case: &str, server: &str| {
                Some(self.statistics(table.name, case, server, column.metric)?.median)
            };
            let ratio = |case: &&str| Some(value(case, server)? / value(case, peer)?);
            if let Some(spread) = Spread::of(cases.iter().filter_map(ratio).collect()) {
                let Spread { median, high, .. } = spread;
                let _ = writeln!(
                    text,
                    "{}, {label} to {peer_label}: median {median:.2}, largest {high:.2}.\n",
                    column.title
                );
            }
        }
        text
    }

    fn chart(
        &self,
        table: &Table,
        column: &Column,
        cases: &[&str],
        servers: &[(&'static str, String)],
    ) -> Chart {
        let bars = |case: &str| {
            let bar = |(server, label): &(&'static str, String)| {
                let found = self.statistics(table.name, case, server, column.metric)?;
                Some((label.clone(), found.median))
            };
            servers.iter().map(bar).collect::<Vec<_>>()
        };
        Chart {
            title: format!("{}: {}", table.title, column.title),
            decimals: column.decimals,
            groups: cases.iter().map(|case| (case.to_string(), bars(case))).collect(),
        }
    }
}

/// Several runs in one value.
struct Spread {
    median: f64,
    low: f64,
    high: f64,
    count: usize,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let count = values.len();
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        Some(Self { median, low, high, count })
    }

    /// The median, for compared columns with half the distance from smallest to largest.
    fn show(&self, column: &Column) -> String {
        let median = format!("{:.*}", column.decimals, self.median);
        if !column.compared || self.count < 2 || self.median == 0.0 {
            return median;
        }
        format!("{median} ±{:.1} %", 50.0 * (self.high - self.low) / self.median.abs())
    }
}

fn show_ratio(ratio: Option<f64>) -> String {
    let known = ratio.filter(|ratio| ratio.is_finite());
    known.map_or(String::new(), |ratio| format!("{ratio:.2}"))
}

/// A table that can be read as it is, and as Markdown. The first row is the head.
fn markdown(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(2)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (place, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0 | 1 => write!(text, "| {cell:<width$} "),
                _ => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
        if place == 0 {
            for (column, width) in widths.iter().enumerate() {
                let end = if column < 2 { '-' } else { ':' };
                let _ = write!(text, "|{}{end}", "-".repeat(width + 1));
            }
            text.push_str("|\n");
        }
    }
    text
}

impl Machine {
    pub fn this() -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let print = |program: &str, args: &[&str]| -> Result<String> {
            Ok(output(command(program).args(args))?.trim().to_string())
        };
        Ok(Self {
            date: print("date", &["--utc", "+%Y-%m-%d"])?,
            commit: print("git", &["describe", "--always", "--dirty", "--exclude=*"])?,
            kernel: print("uname", &["--kernel-release"])?,
            cpu: model
                .and_then(|line| line.split_once(": "))
                .map_or("unknown", |(_, cpu)| cpu)
                .into(),
            cores: thread::available_parallelism()?.get(),
            memory: memory.map_or("unknown", str::trim).to_string(),
        })
    }

    /// When and of what: with this the name of the folder begins that the results go to.
    pub fn id(&self) -> String {
        format!("{}-{}", self.date, self.commit)
    }

    fn headline(&self) -> String {
        let Self { date, commit, kernel, cpu, cores, memory } = self;
        format!(
            "# Benchmark of {date}\n\n\
             Commit {commit}, kernel {kernel}, {cpu}, {cores} cores, {memory} of memory.\n\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{column, compared};

    #[test]
    fn medians_and_their_spread() {
        let spread = Spread::of(vec![12.0, 10.0, 11.0]).expect("three values");
        assert_eq!(spread.show(&compared("x", "x", 1)), "11.0 ±9.1 %");
        assert_eq!(spread.show(&column("x", "x", 0)), "11");
        assert_eq!(Spread::of(vec![1.0, 2.0]).expect("two values").median, 1.5);
        assert!(Spread::of(Vec::new()).is_none());
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [["a", "b", "c"], ["long", "x", "1"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        let wanted = "| a    | b  |  c |\n|------|----|---:|\n| long | x  |  1 |\n";
        assert_eq!(markdown(&rows), wanted);
    }
}
