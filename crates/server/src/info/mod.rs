//! INFO: sections of `field:value` lines, named and ordered as in Redis 7.2.
//!
//! A figure that does not exist here is 0 where clients expect its field, and is left out
//! otherwise; none is made up.

pub mod activity;
pub mod analytics;
pub mod census;
pub mod cluster;
pub mod compression;
pub mod crash;
pub mod data;
mod machine;
pub mod memory;
mod replication;
pub mod scripts;

use std::fmt::Display;
use std::io::Write;

use kvasir_config::Config;
use kvasir_structures::gate::Pass;

use crate::info::census::Counted;
use crate::state::shared::Shared;
use crate::stats::{Counter, WorkerStats};

/// What the sections are written from.
pub struct Source<'a> {
    pub shared: &'static Shared,
    pub config: &'a Config,
    /// Without one, of the data only what `counted` says is told: whoever fails may hold its locks.
    pub pass: Option<&'a Pass<'a>>,
    /// What was counted a moment ago.
    pub counted: Option<&'a Counted>,
    pub now_ms: u64,
}

/// One section.
struct Section {
    name: &'static str,
    /// Shown when nothing, or `default`, is asked for.
    is_default: bool,
    write: fn(&Source<'_>, &mut Lines),
}

const fn section(name: &'static str, write: fn(&Source<'_>, &mut Lines)) -> Section {
    Section { name, is_default: true, write }
}

/// In the order of the reply, whatever the order of the request.
static SECTIONS: &[Section] = &[
    section("Server", machine::server),
    section("Clients", activity::clients),
    section("Memory", memory::memory),
    section("Persistence", data::persistence),
    section("Stats", activity::stats),
    section("Replication", replication::replication),
    section("CPU", machine::cpu),
    Section { is_default: false, ..section("TLS", machine::tls) },
    section("Modules", |_, _| {}),
    Section { is_default: false, ..section("Commandstats", activity::commandstats) },
    section("Errorstats", activity::errorstats),
    Section { is_default: false, ..section("Latencystats", activity::latencystats) },
    section("Cluster", replication::cluster),
    section("Keyspace", data::keyspace),
    Section { is_default: false, ..section("Analytics", analytics::analytics) },
];

/// The lines of a reply. Whatever a name or a value quotes, it can't add lines or sections.
#[derive(Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    fn field(&mut self, name: &str, value: impl Display) {
        self.bytes_field(name.as_bytes(), value);
    }

    /// One whose name may be any bytes. Those that have a meaning become `_`, as in Redis.
    fn bytes_field(&mut self, name: &[u8], value: impl Display) {
        let start = self.0.len();
        self.0.extend_from_slice(name);
        self.hide(start, b"#:\r\n");
        self.0.push(b':');
        let start = self.0.len();
        let _ = write!(self.0, "{value}");
        self.hide(start, b"\r\n");
        self.0.extend_from_slice(b"\r\n");
    }

    fn hide(&mut self, start: usize, bytes: &[u8]) {
        self.0[start..]
            .iter_mut()
            .filter(|byte| bytes.contains(byte))
            .for_each(|byte| *byte = b'_');
    }

    /// Fields that are always 0 here.
    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.field(name, 0));
    }

    /// A number of bytes, for programs and for people.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human(bytes));
    }

    fn head(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\r\n" };
        let _ = write!(self.0, "{gap}# {name}\r\n");
    }
}

impl Source<'_> {
    /// A counter, summed over all workers.
    fn sum(&self, counter: fn(&WorkerStats) -> &Counter) -> u64 {
        self.shared.workers.stats().map(|stats| counter(stats).value()).sum()
    }
}

/// The sections that these words name, in any case; without words, the default ones.
pub fn report(source: &Source<'_>, words: &[&[u8]]) -> Vec<u8> {
    let mut lines = Lines::default();
    for section in SECTIONS.iter().filter(|section| is_wanted(section, words)) {
        lines.head(section.name);
        (section.write)(source, &mut lines);
    }
    lines.0
}

fn is_wanted(section: &Section, words: &[&[u8]]) -> bool {
    let is_named = |word: &&[u8]| match word.to_ascii_lowercase().as_slice() {
        b"default" => section.is_default,
        b"all" | b"everything" => true,
        b"module_list" => section.name == "Modules",
        word => word.eq_ignore_ascii_case(section.name.as_bytes()),
    };
    match words {
        [] => is_named(&b"default".as_slice()),
        words => words.iter().any(is_named),
    }
}

/// As Redis shows sizes to people: `1.50M`.
pub fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T", "P", "E"];
    let (mut size, mut unit) = (bytes as f64, 0);
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{size:.2}{}", units[unit]) }
}

/// A ratio with two digits; 0 where there is nothing to compare with.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_adds_no_lines() {
        let mut lines = Lines::default();
        lines.bytes_field(b"a:b#c\r\nd\xff", "1\r\n# e\nf:2");
        assert_eq!(lines.0, b"a_b_c__d\xff:1__# e_f:2\r\n");
    }

    #[test]
    fn sizes_for_people() {
        let cases = [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (990_392, "967.18K")];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
        assert_eq!(human(25_274_793_984), "23.54G");
    }

    fn wanted(words: &[&str]) -> Vec<&'static str> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let sections = SECTIONS.iter().filter(|section| is_wanted(section, &words));
        sections.map(|section| section.name).collect()
    }

    #[test]
    fn words_choose_sections() {
        assert_eq!(wanted(&["KEYSPACE", "server", "keyspace"]), ["Server", "Keyspace"]);
        assert_eq!(wanted(&["nonsense"]), [""; 0]);
        assert_eq!(wanted(&[]), wanted(&["default"]));
        assert_eq!(
            wanted(&["default", "commandstats", "latencystats", "tls", "analytics"]),
            wanted(&["ALL"])
        );
        assert_eq!(wanted(&["everything"]).len(), SECTIONS.len());
    }
}
