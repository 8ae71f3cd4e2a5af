//! Reading the configuration at start: the file, standard input, the command line, in this order.
//!
//! The first directive that is wrong ends the start with its line, in the form that Redis prints.
//! What Kvasir knows but cannot do is collected: whether it matters is known only at the end,
//! since a later directive takes an earlier one back (`daemonize yes` in a packaged file,
//! `--daemonize no` in the service that uses it).

use std::ffi::OsString;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use kvasir_keyspace::access::Policy;

use crate::arguments::Sources;
use crate::kind::{Kind, Value};
use crate::metrics;
use crate::reasons::why;
use crate::row::{Otherwise, Place, Row};
use crate::unsupported::Unsupported;
use crate::{Config, syntax};

/// Files may include files; deeper than this, they include each other.
const INCLUDE_DEPTH_MAX: usize = 16;

const BAD_DIRECTIVE: &str = "Bad directive or wrong number of arguments";

/// A configuration, and what of it is not obeyed.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// In order of appearance; each is to be named in the log.
    pub ignored: Vec<Ignored>,
    /// `rename-command`: a name and what takes its place.
    pub renames: Vec<Directive>,
    /// `user`: a name and rules.
    pub users: Vec<Directive>,
    /// The last `metrics-user`: whether there is that user is known once all are.
    pub metrics_user: Option<Directive>,
}

/// A directive that says something about commands or users, which are not known here.
#[derive(Debug)]
pub struct Directive {
    at: Origin,
    line: String,
    /// What stands behind the directive's name.
    pub words: Vec<Vec<u8>>,
}

impl Directive {
    /// Whether it stands in a file.
    pub fn is_in_file(&self) -> bool {
        matches!(self.at, Origin::File { .. })
    }

    /// Where it stands, as a part of a sentence.
    pub fn place(&self) -> String {
        match &self.at {
            Origin::File { path, line } => format!("line {line} of {}", path.display()),
            Origin::Stdin { line } => format!("line {line} of standard input"),
            Origin::CommandLine { option } => format!("option {option} of the command line"),
        }
    }

    pub fn wrong(&self, reason: &str) -> LoadError {
        let (at, line) = (self.at.clone(), self.line.clone());
        LoadError::Directive { at, line, reason: reason.into() }
    }
}

/// A directive without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    pub name: &'static str,
    pub why: &'static str,
}

/// Why the configuration cannot be used. Displayed, it is the whole message for the user.
#[derive(Debug)]
pub enum LoadError {
    /// A directive is wrong.
    Directive { at: Origin, line: String, reason: String },
    /// A configuration file cannot be read.
    Unreadable { path: PathBuf, error: std::io::Error },
}

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    File {
        path: PathBuf,
        line: usize,
    },
    Stdin {
        line: usize,
    },
    /// Counted in options, from 1.
    CommandLine {
        option: usize,
    },
}

/// Reads all sources.
pub fn load(sources: &Sources) -> Result<Loaded, LoadError> {
    let mut loader = Loader::new();
    if let Some(path) = &sources.file {
        loader.files(path)?;
    }
    if sources.stdin {
        let text = read(Path::new("/dev/stdin"), std::io::stdin())?;
        loader.text(&text, |line| Origin::Stdin { line })?;
    }
    loader.text(&sources.options, |option| Origin::CommandLine { option })?;
    let mut loaded = loader.finish()?;
    loaded.ignored.extend(sources.ignored.iter().cloned());
    Ok(loaded)
}

/// The users that a configuration file has from files that it includes. `start_dir` is where the
/// server was started: names of files may be relative to it.
pub fn included_users(file: &Path, start_dir: &Path) -> Result<Vec<Directive>, LoadError> {
    let mut loader = Loader { start_dir: start_dir.to_owned(), only_users: true, ..Loader::new() };
    match loader.files(file) {
        // It was deleted, and includes nothing any more.
        Err(LoadError::Unreadable { path, error })
            if error.kind() == ErrorKind::NotFound && path.ends_with(file) => {}
        result => result?,
    }
    let is_included =
        |user: &Directive| !matches!(&user.at, Origin::File { path, .. } if path == file);
    loader.users.retain(is_included);
    Ok(loader.users)
}

struct Loader {
    config: Config,
    doubtful: Vec<Doubtful>,
    /// Whether a line has chosen what is evicted.
    has_policy: bool,
    /// Whether a line has set save points.
    has_save_points: bool,
    renames: Vec<Directive>,
    users: Vec<Directive>,
    metrics_user: Option<Directive>,
    /// Number of files that are open around the current line.
    depth: usize,
    /// What names of files are relative to; empty: the present directory.
    start_dir: PathBuf,
    /// Nothing else is read.
    only_users: bool,
}

/// A directive that is known, but not obeyed.
struct Doubtful {
    name: &'static str,
    otherwise: Otherwise,
    why: &'static str,
    at: Origin,
    line: String,
}

impl Loader {
    fn new() -> Loader {
        Loader {
            config: Config::of_table(),
            doubtful: Vec::new(),
            renames: Vec::new(),
            users: Vec::new(),
            metrics_user: None,
            depth: 0,
            has_policy: false,
            has_save_points: false,
            start_dir: PathBuf::new(),
            only_users: false,
        }
    }

    /// Reads the file, or, where `pattern` is one, every file that matches, in order of name.
    fn files(&mut self, pattern: &Path) -> Result<(), LoadError> {
        for path in matching(&self.start_dir.join(pattern)) {
            let text = std::fs::File::open(&path)
                .map_err(|error| LoadError::Unreadable { path: path.clone(), error })
                .and_then(|file| read(&path, file))?;
            self.depth += 1;
            self.text(&text, |line| Origin::File { path: path.clone(), line })?;
            self.depth -= 1;
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8], origin: impl Fn(usize) -> Origin) -> Result<(), LoadError> {
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if !line.is_empty() && !line.starts_with(b"#") {
                self.line(line, origin(index + 1))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], at: Origin) -> Result<(), LoadError> {
        let text = String::from_utf8_lossy(line).into_owned();
        let wrong =
            |at: Origin, reason: String| LoadError::Directive { at, line: text.clone(), reason };
        let Some(words) = syntax::split(line) else {
            return Err(wrong(at, "Unbalanced quotes in configuration line".into()));
        };
        let Some((name, values)) = words.split_first() else { return Ok(()) };
        if name.eq_ignore_ascii_case(b"include") {
            return self.include(values, |reason| wrong(at.clone(), reason));
        }
        if let Some((list, is_complete)) = self.kept_list(name, values.len()) {
            if !is_complete {
                return Err(wrong(at, BAD_DIRECTIVE.into()));
            }
            list.push(Directive { at, line: text, words: values.to_vec() });
            return Ok(());
        }
        if self.only_users {
            return Ok(());
        }
        let outcome = if let Some((row, _)) = Row::find(name) {
            self.option(row, values)
        } else if let Some(entry) = Unsupported::find(name) {
            Ok(unsupported(entry, values))
        } else {
            Err(BAD_DIRECTIVE.into())
        };
        match outcome {
            Ok(Outcome::Obeyed(name)) => {
                self.doubtful.retain(|earlier| earlier.name != name);
                if name == metrics::USER.name {
                    self.metrics_user = Some(Directive { at, line: text, words: values.to_vec() });
                }
            }
            Ok(Outcome::Doubtful { name, otherwise, why }) => {
                self.doubtful.retain(|earlier| earlier.name != name);
                self.doubtful.push(Doubtful { name, otherwise, why, at, line: text });
            }
            Err(reason) => return Err(wrong(at, reason)),
        }
        Ok(())
    }

    /// Of a directive that is kept for later: where, and whether so many words are right.
    fn kept_list(&mut self, name: &[u8], count: usize) -> Option<(&mut Vec<Directive>, bool)> {
        match name.to_ascii_lowercase().as_slice() {
            b"rename-command" => Some((&mut self.renames, count == 2)),
            b"user" => Some((&mut self.users, count >= 1)),
            _ => None,
        }
    }

    fn include(
        &mut self,
        values: &[Vec<u8>],
        wrong: impl Fn(String) -> LoadError,
    ) -> Result<(), LoadError> {
        let [path] = values else { return Err(wrong(BAD_DIRECTIVE.into())) };
        if self.depth >= INCLUDE_DEPTH_MAX {
            return Err(wrong(format!("more than {INCLUDE_DEPTH_MAX} files include each other")));
        }
        self.files(&to_path(path.clone()))
    }

    fn option(&mut self, row: &'static Row, words: &[Vec<u8>]) -> Result<Outcome, String> {
        let value = row.parse(words)?;
        self.has_policy |= row.name == "maxmemory-policy";
        match row.place {
            Place::Field { assign, .. } => {
                check_directory(row, &value)?;
                let value = match value {
                    Value::Words(points) if matches!(row.kind, Kind::SavePoints) => {
                        Value::Words(self.added_save_points(points))
                    }
                    value => value,
                };
                assign(&mut self.config, value);
                Ok(Outcome::Obeyed(row.name))
            }
            _ if value == row.default_value() => {
                // It may have had another one.
                row.assign(&mut self.config, value);
                Ok(Outcome::Obeyed(row.name))
            }
            Place::Kept { why } => {
                row.assign(&mut self.config, value);
                Ok(Outcome::Doubtful { name: row.name, otherwise: Otherwise::Ignored, why })
            }
        }
    }

    /// Save points of several lines add up; the first ones replace the default, and an empty line
    /// forgets all before it.
    fn added_save_points(&mut self, points: Vec<String>) -> Vec<String> {
        let adds = std::mem::replace(&mut self.has_save_points, true) && !points.is_empty();
        let mut all = if adds { self.config.persistence.save.clone() } else { Vec::new() };
        all.extend(points);
        all
    }

    fn finish(mut self) -> Result<Loaded, LoadError> {
        if !self.has_policy && self.config.serves_only_memcached() {
            self.config.memory.maxmemory_policy = Policy::AllKeysLru;
        }
        let mut ignored = Vec::new();
        for Doubtful { name, otherwise, why, at, line } in self.doubtful {
            match otherwise {
                Otherwise::Ignored => ignored.push(Ignored { name, why }),
                Otherwise::Refused => {
                    return Err(LoadError::Directive { at, line, reason: why.into() });
                }
            }
        }
        let (renames, users, metrics_user) = (self.renames, self.users, self.metrics_user);
        Ok(Loaded { config: self.config, ignored, renames, users, metrics_user })
    }
}

/// What became of a valid directive.
enum Outcome {
    Obeyed(&'static str),
    Doubtful { name: &'static str, otherwise: Otherwise, why: &'static str },
}

fn unsupported(entry: &'static Unsupported, words: &[Vec<u8>]) -> Outcome {
    if entry.is_harmless(words) {
        return Outcome::Obeyed(entry.name);
    }
    Outcome::Doubtful { name: entry.name, otherwise: entry.otherwise, why: why(entry.name) }
}

/// The one value that is checked against the machine while the line is known.
fn check_directory(row: &Row, value: &Value) -> Result<(), String> {
    if row.name != "dir" {
        return Ok(());
    }
    match std::fs::read_dir(to_path(value.to_bytes())) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn to_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// The files of a pattern, sorted; a path without wildcards is itself, whether it exists or not.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let text = pattern.to_string_lossy();
    if !text.contains(['*', '?', '[']) {
        return vec![pattern.to_path_buf()];
    }
    match glob::glob(&text) {
        Ok(paths) => paths.flatten().collect(),
        Err(_) => vec![pattern.to_path_buf()],
    }
}

fn read(path: &Path, mut source: impl Read) -> Result<Vec<u8>, LoadError> {
    let mut text = Vec::new();
    match source.read_to_end(&mut text) {
        Ok(_) => Ok(text),
        Err(error) => Err(LoadError::Unreadable { path: path.to_path_buf(), error }),
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = env!("CARGO_PKG_VERSION");
        writeln!(f, "\n*** FATAL CONFIG FILE ERROR (Kvasir {version}) ***")?;
        match self {
            LoadError::Directive { at, line, reason } => write!(f, "{at}\n>>> '{line}'\n{reason}"),
            LoadError::Unreadable { path, error } => {
                write!(f, "Can't open config file '{}': {error}", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => {
                write!(f, "Reading the configuration file, at line {line} of {}", path.display())
            }
            Origin::Stdin { line } => write!(f, "Reading standard input, at line {line}"),
            Origin::CommandLine { option } => {
                write!(f, "Reading the command line, at option {option}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print;
    use crate::table;
    use crate::{Loglevel, Threads};
    use proptest::prelude::*;

    fn from_text(text: &[u8]) -> Result<Loaded, LoadError> {
        let sources = Sources { options: text.to_vec(), ..Sources::default() };
        load(&sources)
    }

    /// `expect` is what follows the first line of the message, with the numbers as options.
    fn check_error(text: &str, expect: &str) {
        let message = from_text(text.as_bytes()).expect_err(text).to_string();
        let (_, rest) = message.trim_start().split_once('\n').unwrap();
        assert_eq!(rest, format!("Reading the command line, at option {expect}"), "{text:?}");
    }

    #[test]
    fn errors_name_line_and_reason() {
        let number = "argument couldn't be parsed into an integer";
        let cases = [
            ("nosuch 1", "nosuch 1", BAD_DIRECTIVE),
            ("  foo ", "foo", BAD_DIRECTIVE),
            ("include a b", "include a b", BAD_DIRECTIVE),
            ("timeout abc", "timeout abc", number),
            (r#"port "abc""#, r#"port "abc""#, number),
            ("timeout", "timeout", "wrong number of arguments"),
            ("timeout 1 2", "timeout 1 2", "wrong number of arguments"),
            (r#"timeout "1"#, r#"timeout "1"#, "Unbalanced quotes in configuration line"),
            ("save 900", "save 900", "Invalid save parameters"),
            ("dir /nosuch/dir", "dir /nosuch/dir", "No such file or directory (os error 2)"),
            ("loadmodule x", "loadmodule x", "modules are not supported"),
        ];
        for (text, line, reason) in cases {
            check_error(text, &format!("1\n>>> '{line}'\n{reason}"));
            check_error(&format!("# x\n\n{text}\nhz 1"), &format!("3\n>>> '{line}'\n{reason}"));
        }
    }

    #[test]
    fn later_directives_win() {
        let loaded = from_text(
            b"daemonize yes\nPORT 1\nloglevel Debug\nio-threads 3\ndynamic-hz yes\n\
              save 900 1\nsave 60 1\nlazyfree-lazy-expire no\nport 2\ndaemonize no\n\
              lazyfree-lazy-expire yes\ndynamic-hz no\nhash-max-ziplist-entries 7",
        )
        .unwrap();
        assert_eq!(loaded.config.port, 2);
        assert_eq!(loaded.config.loglevel, Loglevel::Debug);
        assert_eq!(loaded.config.io_threads, Threads::Count(3));
        assert_eq!(loaded.config.hash_max_listpack_entries, 7);
        let ignored: Vec<_> = loaded.ignored.iter().map(|ignored| ignored.name).collect();
        assert_eq!(ignored, ["dynamic-hz"]);
    }

    #[test]
    fn save_points_add_up() {
        let check = |text: &str, expect: &str| {
            let loaded = from_text(text.as_bytes()).unwrap();
            assert_eq!(loaded.config.persistence.save.join(" "), expect, "{text}");
        };
        check("", "3600 1 300 100 60 10000");
        check("save 900 1\nsave 60 1 30 2", "900 1 60 1 30 2");
        check("save 900 1\nsave \"\"", "");
        check("save 900 1\nsave \"\"\nsave 60 1", "60 1");
    }

    #[test]
    fn files_include_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: String| std::fs::write(path(name), text).unwrap();
        write("a.conf", format!("port 1\ninclude {}\nhz 20", path("part-*.conf").display()));
        write("part-1.conf", "timeout 5\nport 2\n".into());
        write("part-2.conf", "port 3".into());
        write("none.conf", format!("include {}", path("nosuch*").display()));
        write("loop.conf", format!("include {}", path("loop.conf").display()));
        write("missing.conf", format!("include {}", path("nosuch").display()));
        let run = |name: &str| {
            let options = b"timeout 6".to_vec();
            load(&Sources { file: Some(path(name)), options, ..Sources::default() })
        };
        let config = run("a.conf").unwrap().config;
        assert_eq!((config.port, config.timeout, config.hz), (3, 6, 20));
        assert_eq!(run("none.conf").unwrap().config.port, 6379);
        let looped = run("loop.conf").unwrap_err().to_string();
        assert!(looped.contains("at line 1 of") && looped.ends_with("include each other"));
        for name in ["missing.conf", "nosuch.conf"] {
            assert!(run(name).unwrap_err().to_string().contains("Can't open config file"));
        }
    }

    #[test]
    fn stock_file_of_redis_starts() {
        let text = b"bind 127.0.0.1 -::1\nprotected-mode yes\ndaemonize no\nlogfile \"\"\n\
            appendonly no\nlazyfree-lazy-eviction no\nreplica-read-only yes\nhz 10\n\
            client-output-buffer-limit replica 256mb 64mb 60\ntls-port 0\n\
            oom-score-adj-values 0 200 800\nsave 3600 1 300 100 60 10000";
        let loaded = from_text(text).unwrap();
        assert_eq!(loaded.config.bind, ["127.0.0.1", "-::1"]);
        assert_eq!(loaded.ignored.len(), 1);
    }

    proptest! {
        /// What is printed of a configuration reads back as the same configuration.
        #[test]
        fn printed_directives_read_back(
            numbers in prop::collection::vec(any::<u32>(), table::all().count()),
            text in prop::collection::vec(1u8.., 0..20),
        ) {
            let mut config = Config::of_table();
            for (row, number) in table::all().zip(numbers) {
                let value = any_value(row, number, &text);
                // `dir` must exist.
                if row.name != "dir" && (row.check)(&value).is_ok() {
                    row.assign(&mut config, value);
                }
            }
            let printed = print::directives(&config);
            prop_assert_eq!(from_text(&printed).unwrap().config, config);
        }

        #[test]
        fn any_bytes_load_or_are_refused(text in any::<Vec<u8>>()) {
            let _ = from_text(&text);
        }
    }

    /// A value of the row's kind that `number` and `text` choose.
    fn any_value(row: &Row, number: u32, text: &[u8]) -> Value {
        use crate::kind::Kind;
        use kvasir_keyspace::event::Class;
        let within =
            |min: i64, max: i64| Value::Integer(min + i64::from(number) % (max - min + 1).max(1));
        match row.kind {
            Kind::Bool => Value::Bool(number.is_multiple_of(2)),
            Kind::Integer { min, max } | Kind::Clamped { min, max } => {
                within(min, max.min(1 << 40))
            }
            Kind::IntegerOrAuto { min, max } => within(min, max),
            Kind::Memory { min, max } => within(min, max.min(1 << 40)),
            Kind::Octal { max } => Value::Octal(number % (max + 1)),
            Kind::Text | Kind::Secret => Value::Text(text.to_vec()),
            Kind::Address => Value::Text(format!("10.0.{}.1", number % 256).into()),
            Kind::Choice(words) => Value::Choice(words[number as usize % words.len()]),
            Kind::Master => Value::Words(Vec::new()),
            Kind::Words => Value::Words((0..number % 4).map(|n| format!("-host{n}")).collect()),
            Kind::Percentiles => Value::Words((0..number % 4).map(|n| n.to_string()).collect()),
            Kind::SavePoints => {
                let points = (1..number % 4).flat_map(|n| [n.to_string(), (n * 10).to_string()]);
                Value::Words(points.collect())
            }
            Kind::MemoryOrPercent if number.is_multiple_of(2) => Value::Percent(1 + number % 100),
            Kind::MemoryOrPercent | Kind::MemoryOrAuto => within(0, 1 << 40),
            Kind::OutputLimits => {
                use crate::buffers::{Class, OutputLimit};
                let (hard, soft) = (u64::from(number), u64::from(number / 2));
                let limit = OutputLimit { hard, soft, soft_seconds: soft };
                Value::OutputLimits(vec![(Class::Normal, limit), (Class::PubSub, limit)])
            }
            // Behind `A` Redis does not print `n`.
            Kind::Events => Value::Events(Class::from_bits_truncate(number as u16) - Class::NEW),
        }
    }
}
