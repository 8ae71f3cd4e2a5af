//! The house rules that a machine can check, apart from those of clippy (`[workspace.lints]`).
//!
//! A rule is one row of `RULES`: a name, the reason, and a function from a file to the lines that
//! break it. There are no exceptions: a rule that needs one is wrong and gets changed.

use std::path::Path;

use anyhow::{Result, bail};
use kvasir_harness::workspace::{command, output, root};

use crate::source::{Source, words};
use crate::{layers, parameters};

const FILE_LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;

/// The crates that may contain `unsafe`, each use with its reason.
const UNSAFE_CRATES: [&str; 3] = ["structures", "reactor", "lua-stack"];

/// One rule about Rust files.
struct Rule {
    name: &'static str,
    why: &'static str,
    check: fn(&File) -> Vec<Finding>,
}

/// A Rust file with its path from the root.
struct File<'a> {
    path: &'a str,
    source: Source,
}

/// A broken rule: line from 0, and what stands there.
type Finding = (usize, String);

static RULES: &[Rule] = &[
    Rule { name: "header", why: "a reader must learn a file's one idea first", check: header },
    Rule { name: "file-size", why: "a long file holds more than one idea", check: file_size },
    Rule {
        name: "unsafe",
        why: "only structures, reactor and lua-stack may contain it, so that the rest needs no audit",
        check: unsafe_code,
    },
    Rule {
        name: "forbid-unsafe",
        why: "the compiler shall refuse `unsafe` in this crate, not a reviewer",
        check: forbid_unsafe,
    },
    Rule {
        name: "unfinished",
        why: "what is committed is used, and its tests run",
        check: unfinished,
    },
    Rule { name: "todo", why: "what is left to do belongs to an issue: TODO(#12)", check: todo },
    Rule { name: "columns", why: "two files must fit side by side", check: columns },
    Rule {
        name: "tuple",
        why: "a struct has a name for each part, a parameter of its own has one",
        check: tuple,
    },
];

/// Checks every file that git knows or would add.
pub fn main() -> Result<()> {
    let list = output(command("git").args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ]))?;
    let mut findings = Vec::new();
    let mut files = 0;
    for path in list.lines().filter(|path| is_text(path)) {
        // A file that was deleted but not yet committed is still listed.
        let Ok(text) = std::fs::read_to_string(root().join(path)) else { continue };
        files += 1;
        findings.extend(check(path, &text));
    }
    findings.extend(layers::check()?);
    findings.iter().for_each(|finding| println!("{finding}"));
    if !findings.is_empty() {
        bail!("tidy: {} findings in {files} files", findings.len());
    }
    println!("tidy: {files} files are in order");
    Ok(())
}

/// Findings of all rules in one file, ready to print.
fn check(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut report = |name: &str, why: &str, findings: Vec<Finding>| {
        for (line, what) in findings {
            found.push(format!("{path}:{}: {name}: {what} ({why})", line + 1));
        }
    };
    report("white-space", "it shows up in every diff", trailing_space(text));
    if has_extension(path, "rs") {
        let file = File { path, source: Source::parse(text) };
        RULES.iter().for_each(|rule| report(rule.name, rule.why, (rule.check)(&file)));
    }
    found
}

fn is_text(path: &str) -> bool {
    ["rs", "toml", "md", "py", "sh", "yml", "conf"].iter().any(|end| has_extension(path, end))
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|end| end == extension)
}

impl File<'_> {
    /// `Some("resp")` for `crates/resp/src/reply.rs`; none for its tests and fuzz targets.
    fn crate_of_source(&self) -> Option<&str> {
        let mut parts = self.path.split('/');
        let is_crate = parts.next() == Some("crates");
        let name = parts.next();
        if is_crate && parts.next() == Some("src") { name } else { None }
    }

    /// Lines of code in which the pattern stands, white space aside.
    fn code_with(&self, pattern: &str) -> Vec<Finding> {
        let matches = |(line, code): (usize, &String)| {
            let dense: String = code.split_whitespace().collect();
            dense.contains(pattern).then(|| (line, format!("`{pattern}`")))
        };
        self.source.code.iter().enumerate().filter_map(matches).collect()
    }
}

fn trailing_space(text: &str) -> Vec<Finding> {
    let at_end = |(_, line): &(usize, &str)| line.ends_with([' ', '\t', '\r']);
    let lines = text.split('\n').enumerate();
    lines.filter(at_end).map(|(line, _)| (line, "white space at the end".to_string())).collect()
}

fn header(file: &File) -> Vec<Finding> {
    let opens = file.source.lines.first().is_some_and(|line| line.starts_with("//!"));
    if opens { Vec::new() } else { vec![(0, "the file does not open with `//!`".to_string())] }
}

fn file_size(file: &File) -> Vec<Finding> {
    let lines = file.source.lines.len();
    if lines <= FILE_LINES_MAX {
        return Vec::new();
    }
    vec![(lines - 1, format!("{lines} lines, at most {FILE_LINES_MAX}"))]
}

fn unsafe_code(file: &File) -> Vec<Finding> {
    let allowed = UNSAFE_CRATES.map(|name| format!("crates/{name}/"));
    if allowed.iter().any(|start| file.path.starts_with(start)) {
        return Vec::new();
    }
    let lines = file.source.code.iter().enumerate();
    let found = lines.filter(|(_, code)| words(code, "unsafe").next().is_some());
    found.map(|(line, _)| (line, "`unsafe`".to_string())).collect()
}

fn forbid_unsafe(file: &File) -> Vec<Finding> {
    let Some(name) = file.crate_of_source() else { return Vec::new() };
    let is_root = ["src/lib.rs", "src/main.rs"].iter().any(|end| file.path.ends_with(end));
    let is_program = file.path.starts_with(&format!("crates/{name}/src/bin/"));
    if !(is_root || is_program) || UNSAFE_CRATES.contains(&name) {
        return Vec::new();
    }
    if file.code_with("#![forbid(unsafe_code)]").is_empty() {
        return vec![(0, "`#![forbid(unsafe_code)]` lacks".to_string())];
    }
    Vec::new()
}

fn unfinished(file: &File) -> Vec<Finding> {
    const PATTERNS: [&str; 4] =
        ["#[ignore", "allow(dead_code)", "allow(unused)", "#![allow(warnings"];
    PATTERNS.iter().flat_map(|pattern| file.code_with(pattern)).collect()
}

fn todo(file: &File) -> Vec<Finding> {
    let open = |comment: &str| {
        let marks = ["TODO", "FIXME", "XXX"].into_iter().flat_map(|mark| words(comment, mark));
        let issue = |at: usize| {
            let rest = &comment[at..];
            rest.split_once("(#")
                .is_some_and(|(_, id)| id.starts_with(|c: char| c.is_ascii_digit()))
        };
        marks.into_iter().any(|at| !issue(at))
    };
    let lines = file.source.comments.iter().enumerate();
    let found = lines.filter(|(_, comment)| open(comment));
    found.map(|(line, _)| (line, "a mark without an issue".to_string())).collect()
}

/// Strings and tables in comments may be longer: cutting them would harm them.
fn columns(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let layers = file.source.lines.iter().zip(&file.source.code).zip(&file.source.comments);
    for (line, ((whole, code), comment)) in layers.enumerate() {
        let columns = whole.chars().count();
        let text = comment.trim().trim_start_matches(['/', '!', '*', ' ']);
        let is_table = text.starts_with('|') || text.starts_with("http");
        if columns > COLUMNS_MAX && !is_table && !code.contains('"') {
            findings.push((line, format!("{columns} columns, at most {COLUMNS_MAX}")));
        }
    }
    findings
}

/// A parameter that is a tuple; tests may have them.
fn tuple(file: &File) -> Vec<Finding> {
    if file.crate_of_source().is_none() || file.path.ends_with("tests.rs") {
        return Vec::new();
    }
    let found = parameters::tuples(&file.source.code).into_iter();
    found.map(|(line, parameter)| (line, format!("`{parameter}`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the rules that the file breaks.
    fn broken(path: &str, text: &str) -> Vec<String> {
        let name = |finding: String| finding.split(": ").nth(1).unwrap_or_default().to_string();
        check(path, text).into_iter().map(name).collect()
    }

    /// A file in a crate's source that breaks nothing but what the body breaks.
    fn source(body: &str) -> Vec<String> {
        broken("crates/keyspace/src/x.rs", &format!("//! Header.\n{body}"))
    }

    #[test]
    fn a_good_file_passes() {
        let body = "/// A doc with `unsafe` and \"#[ignore]\" in it. TODO(#7): more.\nfn f() {}\n";
        assert!(source(body).is_empty());
        assert!(source("const A: &str = \"#[ignore] unsafe\";\n").is_empty());
        assert!(source(&format!("// | {} |\n", "x".repeat(120))).is_empty());
        assert!(source(&format!("f(\"{}\");\n", "x".repeat(120))).is_empty());
    }

    #[test]
    fn each_rule_finds_its_breach() {
        assert_eq!(broken("crates/resp/src/x.rs", "fn f() {}\n"), ["header"]);
        assert_eq!(source(&"\n".repeat(600)), ["file-size"]);
        assert_eq!(source("fn f() { unsafe { g() } }\n"), ["unsafe"]);
        assert_eq!(source("// TODO: later\n"), ["todo"]);
        assert_eq!(source(&format!("// {}\n", "x".repeat(120))), ["columns"]);
        assert_eq!(source("fn f() {} \n"), ["white-space"]);
        assert_eq!(source("fn f((a, b): (u8, u8)) {}\n"), ["tuple"]);
        assert_eq!(broken("README.md", "text \n"), ["white-space"]);
    }

    #[test]
    fn unfinished_work_is_found() {
        let bodies = ["#[ignore]\nfn f() {}\n", "#[allow( dead_code )]\nfn f() {}\n"];
        for body in bodies {
            assert_eq!(source(body), ["unfinished"], "{body}");
        }
    }

    #[test]
    fn tests_may_take_tuples() {
        let text = "//! Header.\nfn f((a, b): (u8, u8)) {}\n";
        assert!(broken("crates/resp/src/x_tests.rs", text).is_empty());
        assert!(broken("crates/resp/tests/x.rs", text).is_empty());
        assert_eq!(broken("crates/resp/src/testing.rs", text), ["tuple"]);
    }

    #[test]
    fn unsafe_belongs_to_two_crates() {
        let text = "//! Header.\nfn f() { unsafe { g() } }\n";
        assert!(broken("crates/structures/src/x.rs", text).is_empty());
        assert!(broken("crates/reactor/tests/x.rs", text).is_empty());
        assert_eq!(broken("crates/server/tests/x.rs", text), ["unsafe"]);
    }

    #[test]
    fn crate_roots_forbid_unsafe() {
        let (bare, forbidding) = ("//! Header.\n", "//! Header.\n#![forbid(unsafe_code)]\n");
        assert_eq!(broken("crates/resp/src/lib.rs", bare), ["forbid-unsafe"]);
        assert_eq!(broken("crates/server/src/bin/tool.rs", bare), ["forbid-unsafe"]);
        assert!(broken("crates/resp/src/lib.rs", forbidding).is_empty());
        assert!(broken("crates/structures/src/lib.rs", bare).is_empty());
        assert!(broken("crates/resp/src/reply.rs", bare).is_empty());
    }
}
