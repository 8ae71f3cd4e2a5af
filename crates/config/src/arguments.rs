//! The command line: `kvasir-server [file] [--option value ...] [-]`, by redis-server's rules.
//!
//! A word that starts with `--` begins an option; what follows, up to the next such word, are its
//! values. The word right after an option is always its value, so that a password may start with
//! `--`; only `--save --other` means an empty value. An option and its values may be one argument
//! too (`"--port 7777"`). The result is text in the syntax of the file, so that one parser reads
//! both.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use kvasir_resp::inline;

use crate::from_memcached::{self, Translated};
use crate::load::Ignored;
use crate::syntax;

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    Serve(Sources),
    Version,
    Help,
    /// Print the sample configuration file.
    PrintConfig,
    /// Look whether a snapshot is sound.
    CheckRdb(CheckRdb),
    /// Look whether an append-only file is sound.
    CheckAof(CheckAof),
    /// Make one RDB file of a snapshot.
    ExportRdb(ExportRdb),
    /// Tell what fills a snapshot.
    Report(Report),
    /// Run a cluster on this machine.
    Cluster(LocalCluster),
    /// Say what is wrong with the command line.
    Misuse(String),
}

/// What is asked of `check-rdb`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CheckRdb {
    pub path: PathBuf,
    /// Data of modules is left out, as `rdb-skip-modules yes` has it.
    pub skips_modules: bool,
}

/// What is asked of `export-rdb`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ExportRdb {
    /// An RDB file, or a manifest of several.
    pub from: PathBuf,
    /// The file to make.
    pub to: PathBuf,
    /// As of `check-rdb`.
    pub skips_modules: bool,
}

/// What is asked of `report`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// An RDB file, or a manifest of several.
    pub path: PathBuf,
    /// `prefix` and so on.
    pub by: String,
    pub separator: String,
    /// Separators in a prefix.
    pub depth: u16,
    /// Rows that are told.
    pub top: u16,
    pub format: ReportFormat,
    /// As of `check-rdb`.
    pub skips_modules: bool,
}

/// What a report is printed as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    #[default]
    Json,
    Csv,
    Html,
}

/// What is asked of `check-aof`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CheckAof {
    /// A manifest, or one of the files.
    pub path: PathBuf,
    /// Cut off a torn end.
    pub fixes: bool,
    /// Cut off what came after this time, in seconds since 1970.
    pub until_s: Option<u64>,
    /// As of `check-rdb`.
    pub skips_modules: bool,
}

/// What is asked of `cluster`.
#[derive(Debug, PartialEq, Eq)]
pub struct LocalCluster {
    pub nodes: usize,
    /// How many each primary has.
    pub replicas: usize,
    /// The first node's; the others follow.
    pub port: u16,
    /// Each node has a folder in it, named by its port.
    pub dir: PathBuf,
    /// Options of every node.
    pub options: Vec<OsString>,
}

impl LocalCluster {
    /// Those that share the slots; the others are their replicas.
    pub fn primaries(&self) -> usize {
        self.nodes / (self.replicas + 1)
    }
}

/// Where the configuration comes from; what comes later wins.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// May be a pattern that names several files.
    pub file: Option<PathBuf>,
    pub stdin: bool,
    /// Directives from the command line, one a line.
    pub options: Vec<u8>,
    /// Options of memcached that ask for what there is none of.
    pub ignored: Vec<Ignored>,
}

/// What `--help` prints.
pub const USAGE: &str = "\
Usage: kvasir-server [/path/to/redis.conf] [--option value ...] [-]
       kvasir-server -                 read the configuration from standard input
       kvasir-server -v or --version
       kvasir-server -h or --help or help
       kvasir-server --print-config    print a configuration file with every option
       kvasir-server check-rdb [--skip-modules] FILE
                                       tell what a snapshot holds and whether it is sound,
                                       to a server with 'rdb-skip-modules yes' if so asked
       kvasir-server export-rdb [--skip-modules] FROM TO
                                       make one RDB file of a snapshot in several, or in
                                       a later version: of the lowest that carries the data
       kvasir-server report [--by prefix|type|ttl|encoding|slot] [--separator :]
                            [--depth 1] [--top 100] [--format json|csv|html]
                            [--skip-modules] FILE
                                       tell what fills a snapshot, to programs or, as one
                                       page with a map, to people
       kvasir-server check-aof [--fix] [--truncate-to-timestamp SECONDS] [--skip-modules]
                               FILE|MANIFEST
                                       tell whether an append-only file is sound;
                                       cut off a torn end, or what came after a time
       kvasir-server cluster [--nodes 6] [--replicas 1] [--port 7001] [--dir cluster]
                             [--option value ...]
                                       run a cluster on this machine, for development:
                                       what comes behind these goes to every node
       kvasir-server memcached [memcached's options] [-- --option value ...]
                                       serve memcached's clients alone, as its own
                                       command line says

Examples:
       kvasir-server
       kvasir-server /etc/redis/redis.conf
       kvasir-server --port 7777 --io-threads 4
       kvasir-server /etc/redis/redis.conf --loglevel verbose
       kvasir-server memcached -m 1024 -c 4096 -l 127.0.0.1
       echo 'port 7777' | kvasir-server -
";

/// Reads the arguments after the program's name.
pub fn parse(arguments: &[OsString]) -> Invocation {
    let rest = arguments.get(1..).unwrap_or_default();
    match arguments.first().map(|word| word.as_bytes()) {
        Some(b"-v" | b"--version") => Invocation::Version,
        Some(b"-h" | b"--help" | b"help") => Invocation::Help,
        Some(b"--print-config") => Invocation::PrintConfig,
        Some(b"check-rdb") => check_rdb(rest).map_or_else(Invocation::Misuse, Invocation::CheckRdb),
        Some(b"check-aof") => check_aof(rest).map_or_else(Invocation::Misuse, Invocation::CheckAof),
        Some(b"export-rdb") => {
            export_rdb(rest).map_or_else(Invocation::Misuse, Invocation::ExportRdb)
        }
        Some(b"report") => report(rest).map_or_else(Invocation::Misuse, Invocation::Report),
        Some(b"memcached") if has(rest, ["-V", "--version"]) => Invocation::Version,
        Some(b"memcached") if has(rest, ["-h", "--help"]) => Invocation::Help,
        Some(b"memcached") => as_memcached(rest).map_or_else(Invocation::Misuse, Invocation::Serve),
        Some(b"cluster") => cluster(rest).map_or_else(Invocation::Misuse, Invocation::Cluster),
        // As the first word or the last one.
        Some(b"-") => Invocation::Serve(Sources { stdin: true, ..sources(rest) }),
        Some(word) if !word.starts_with(b"-") => {
            let file = Some(PathBuf::from(&arguments[0]));
            Invocation::Serve(Sources { file, ..sources(&arguments[1..]) })
        }
        _ => Invocation::Serve(sources(arguments)),
    }
}

const SKIP_MODULES: &[u8] = b"--skip-modules";

fn check_rdb(words: &[OsString]) -> Result<CheckRdb, String> {
    let (skips_modules, paths) = snapshots(words);
    match paths[..] {
        [path] => Ok(CheckRdb { path: path.into(), skips_modules }),
        [] => Err("check-rdb needs a file".into()),
        _ => Err("check-rdb looks at one file".into()),
    }
}

fn export_rdb(words: &[OsString]) -> Result<ExportRdb, String> {
    let (skips_modules, paths) = snapshots(words);
    match paths[..] {
        [from, to] => Ok(ExportRdb { from: from.into(), to: to.into(), skips_modules }),
        _ => Err("export-rdb needs two files: the snapshot, and the one to make".into()),
    }
}

/// Whether data of modules is left out, and the files.
fn snapshots(words: &[OsString]) -> (bool, Vec<&OsString>) {
    let (options, paths): (Vec<_>, Vec<_>) =
        words.iter().partition(|word| word.as_bytes() == SKIP_MODULES);
    (!options.is_empty(), paths)
}

/// Rows of a report that is not asked for another number.
const REPORT_TOP: u16 = 100;

fn report(words: &[OsString]) -> Result<Report, String> {
    let (by, separator) = ("prefix".into(), ":".into());
    let mut report = Report { by, separator, depth: 1, top: REPORT_TOP, ..Report::default() };
    let (mut path, mut words) = (None, words.iter());
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{} needs a value", word.display()));
        let text = |value: &OsString| {
            let text = value.to_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or(format!("{} needs a text", word.display()))
        };
        match word.as_bytes() {
            b"--by" => report.by = text(value()?)?,
            b"--separator" => report.separator = text(value()?)?,
            b"--depth" => report.depth = number(word, value()?)?,
            b"--top" => report.top = number(word, value()?)?,
            b"--format" => {
                report.format = match value()?.as_bytes() {
                    b"json" => ReportFormat::Json,
                    b"csv" => ReportFormat::Csv,
                    b"html" => ReportFormat::Html,
                    _ => return Err("--format is json, csv or html".into()),
                };
            }
            SKIP_MODULES => report.skips_modules = true,
            _ if path.is_none() => path = Some(word.into()),
            _ => return Err(format!("report is of one file, not also of {}", word.display())),
        }
    }
    report.path = path.ok_or("report needs a file")?;
    if report.depth == 0 || report.top == 0 {
        return Err("--depth and --top are at least 1".into());
    }
    Ok(report)
}

fn check_aof(words: &[OsString]) -> Result<CheckAof, String> {
    let (mut check, mut path) = (CheckAof::default(), None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--fix" => check.fixes = true,
            SKIP_MODULES => check.skips_modules = true,
            b"--truncate-to-timestamp" => {
                let time_s = words.next().and_then(|time| time.to_str()?.parse().ok());
                check.until_s =
                    Some(time_s.ok_or("--truncate-to-timestamp needs seconds since 1970")?);
            }
            _ if path.is_none() => path = Some(word.into()),
            _ => {
                return Err(format!("check-aof looks at one file, not also at {}", word.display()));
            }
        }
    }
    check.path = path.ok_or("check-aof needs a file")?;
    Ok(check)
}

/// The bus of a node stands so far behind its clients' port.
const BUS_OFFSET: usize = 10_000;

fn cluster(words: &[OsString]) -> Result<LocalCluster, String> {
    let (mut nodes, mut replicas, mut port, mut dir) = (6, 1, 7001, PathBuf::from("cluster"));
    let mut rest = words;
    while let [word, after @ ..] = rest {
        let value = || after.first().ok_or(format!("{} needs a value", word.display()));
        match word.as_bytes() {
            b"--nodes" => nodes = number(word, value()?)?,
            b"--replicas" => replicas = number(word, value()?)?,
            b"--port" => port = number(word, value()?)?,
            b"--dir" => dir = value()?.into(),
            _ => break,
        }
        rest = &after[1..];
    }
    let (nodes, replicas) = (usize::from(nodes), usize::from(replicas));
    let wish = LocalCluster { nodes, replicas, port, dir, options: rest.to_vec() };
    if wish.primaries() == 0 || wish.primaries() * (replicas + 1) != nodes {
        return Err(format!("{nodes} nodes are not primaries with {replicas} replicas each"));
    }
    if port == 0 || usize::from(port) + nodes + BUS_OFFSET > 1 << 16 {
        return Err(format!("there are no ports for {nodes} nodes and their buses from {port} on"));
    }
    Ok(wish)
}

/// As large as a port at most.
fn number(word: &OsString, value: &OsString) -> Result<u16, String> {
    let number = value.to_str().and_then(|value| value.parse().ok());
    number.ok_or_else(|| format!("{} needs a number", word.display()))
}

/// Whether one of these stands before options of our own.
fn has(words: &[OsString], wanted: [&str; 2]) -> bool {
    let mut own = words.iter().take_while(|word| *word != "--");
    own.any(|word| wanted.iter().any(|wanted| word == wanted))
}

fn as_memcached(words: &[OsString]) -> Result<Sources, String> {
    let Translated { lines, ignored, rest } = from_memcached::translate(words)?;
    let own = sources(&rest);
    Ok(Sources { options: [lines, own.options].concat(), ignored, ..own })
}

fn sources(arguments: &[OsString]) -> Sources {
    let (stdin, arguments) = match arguments.split_last() {
        Some((last, before)) if last == OsStr::new("-") => (true, before),
        _ => (false, arguments),
    };
    Sources { stdin, options: options_as_lines(arguments), ..Sources::default() }
}

fn options_as_lines(arguments: &[OsString]) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut is_value = false;
    let mut rest = arguments.iter().map(|word| word.as_bytes()).peekable();
    while let Some(word) = rest.next() {
        match word.strip_prefix(b"--") {
            Some(option) if !is_value => {
                if !lines.is_empty() {
                    lines.push(b'\n');
                }
                lines.extend(option);
                let next_is_option = rest.peek().is_none_or(|next| next.starts_with(b"--"));
                if option.eq_ignore_ascii_case(b"save") && next_is_option {
                    lines.extend(br#" """#);
                } else {
                    is_value = syntax::split(option).is_some_and(|words| words.len() == 1);
                }
            }
            _ => {
                is_value = false;
                lines.push(b' ');
                lines.extend(inline::quoted(word));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Invocation {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn check(words: &[&str], file: Option<&str>, stdin: bool, options: &str) {
        let options = options.as_bytes().to_vec();
        let file = file.map(PathBuf::from);
        let expect = Sources { file, stdin, options, ignored: Vec::new() };
        assert_eq!(run(words), Invocation::Serve(expect), "{words:?}");
    }

    #[test]
    fn words_become_directives_as_in_redis() {
        check(&[], None, false, "");
        check(&["a.conf"], Some("a.conf"), false, "");
        check(&["-"], None, true, "");
        check(&["-", "--port", "1"], None, true, r#"port "1""#);
        check(&["--port", "1", "-"], None, true, r#"port "1""#);
        check(&["a.conf", "--port", "1", "-"], Some("a.conf"), true, r#"port "1""#);
        check(&["--port", "1", "--timeout", "2"], None, false, "port \"1\"\ntimeout \"2\"");
        check(&["--bind", "a", "b"], None, false, r#"bind "a" "b""#);
        check(&["--port 1", "--timeout 2"], None, false, "port 1\ntimeout 2");
        check(
            &["--requirepass", "--x", "--port", "1"],
            None,
            false,
            "requirepass \"--x\"\nport \"1\"",
        );
        check(&["--save", "", "--port", "1"], None, false, "save \"\"\nport \"1\"");
        check(&["--save", "--port", "1"], None, false, "save \"\"\nport \"1\"");
        check(&["--SAVE"], None, false, "SAVE \"\"");
        check(&["--port=1"], None, false, "port=1");
        check(&["--port"], None, false, "port");
        check(&["-x"], None, false, r#" "-x""#);
    }

    #[test]
    fn first_word_may_ask_for_text() {
        assert_eq!(run(&["--version"]), Invocation::Version);
        assert_eq!(run(&["-v"]), Invocation::Version);
        assert_eq!(run(&["-h"]), Invocation::Help);
        assert_eq!(run(&["help"]), Invocation::Help);
        assert_eq!(run(&["memcached", "-Z", "--version"]), Invocation::Version);
        assert_eq!(run(&["memcached", "-h"]), Invocation::Help);
        assert_eq!(run(&["--print-config"]), Invocation::PrintConfig);
        let check_rdb = |skips_modules| CheckRdb { path: "f".into(), skips_modules };
        assert_eq!(run(&["check-rdb", "f"]), Invocation::CheckRdb(check_rdb(false)));
        let skipping = run(&["check-rdb", "f", "--skip-modules"]);
        assert_eq!(skipping, Invocation::CheckRdb(check_rdb(true)));
        for wrong in [&["check-rdb", "f", "g"][..], &["check-rdb"], &["check-aof"]] {
            assert!(matches!(run(wrong), Invocation::Misuse(_)), "{wrong:?}");
        }
        let export = |skips_modules| ExportRdb { from: "a".into(), to: "b".into(), skips_modules };
        assert_eq!(run(&["export-rdb", "a", "b"]), Invocation::ExportRdb(export(false)));
        let skipping = run(&["export-rdb", "--skip-modules", "a", "b"]);
        assert_eq!(skipping, Invocation::ExportRdb(export(true)));
        assert!(matches!(run(&["export-rdb", "a"]), Invocation::Misuse(_)));
        assert_eq!(
            run(&["check-aof", "--truncate-to-timestamp", "17", "f", "--fix"]),
            Invocation::CheckAof(CheckAof {
                path: "f".into(),
                fixes: true,
                until_s: Some(17),
                skips_modules: false
            })
        );
        let report = Report {
            path: "f".into(),
            by: "type".into(),
            separator: "/".into(),
            depth: 2,
            top: 7,
            format: ReportFormat::Html,
            skips_modules: true,
        };
        let words = "report --by type --separator / f --depth 2 --top 7 --format html \
                     --skip-modules";
        assert_eq!(run(&words.split(' ').collect::<Vec<_>>()), Invocation::Report(report));
        for wrong in ["", " f g", " f --format xml", " f --top 0", " f --by", " --depth x f"] {
            let words = format!("report{wrong}");
            let found = run(&words.split(' ').collect::<Vec<_>>());
            assert!(matches!(found, Invocation::Misuse(_)), "{wrong}");
        }
        let cluster = |nodes, replicas, options: &[&str]| {
            let options = options.iter().map(OsString::from).collect();
            let (port, dir) = (7001, "cluster".into());
            Invocation::Cluster(LocalCluster { nodes, replicas, port, dir, options })
        };
        assert_eq!(run(&["cluster"]), cluster(6, 1, &[]));
        let words = ["cluster", "--replicas", "0", "--nodes", "3", "--appendonly", "yes"];
        assert_eq!(run(&words), cluster(3, 0, &["--appendonly", "yes"]));
        for wrong in [
            "--nodes 5",
            "--nodes x",
            "--replicas 18446744073709551615",
            "--nodes",
            "--port 55531",
            "--nodes 0",
            "--port 0",
        ] {
            let words: Vec<_> = ["cluster"].into_iter().chain(wrong.split(' ')).collect();
            assert!(matches!(run(&words), Invocation::Misuse(_)), "{wrong}");
        }
        for wrong in [&["--fix"][..], &["a", "b"], &["--truncate-to-timestamp", "x", "f"]] {
            let found = run(&[&["check-aof"], wrong].concat());
            assert!(matches!(found, Invocation::Misuse(_)), "{found:?}");
        }
    }
}
