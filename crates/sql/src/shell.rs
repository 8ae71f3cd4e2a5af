//! The shell: lines with history and completion, until the end of input.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Instant;

use datafusion::prelude::SessionContext;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};

use crate::output::{Format, shown};
use crate::script::Script;

const PROMPT: &str = "kvasir> ";
const HISTORY: &str = ".kvasir_sql_history";
const HELP: &str = r#"Statements end with a semicolon. A table is created, or is a pattern of keys:

    SELECT name, age FROM "user:*" WHERE age > 30;
    CREATE EXTERNAL TABLE users (name TEXT, age BIGINT) STORED AS KVASIR LOCATION 'user:*';

\d              the tables
\d TABLE        its columns
\format FORMAT  table, csv, json or parquet
\o [FILE]       where rows go
\q              ends
"#;

const WORDS: &[&str] = &[
    "SELECT",
    "DISTINCT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT JOIN",
    "USING",
    "UNION ALL",
    "WITH",
    "OVER",
    "PARTITION BY",
    "CASE",
    "WHEN",
    "INSERT INTO",
    "VALUES",
    "CREATE EXTERNAL TABLE",
    "CREATE TABLE",
    "CREATE VIEW",
    "STORED AS",
    "KVASIR",
    "LOCATION",
    "OPTIONS",
    "DROP TABLE",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "DESCRIBE",
    "SHOW TABLES",
    "BETWEEN",
    "LIKE",
    "IS NULL",
    "IS NOT NULL",
    "pagerank",
    "components",
    "bfs",
    "degree",
    "triangles",
    "__key",
    "__type",
    "__ttl",
    "__slot",
    "__value",
    "__member",
    "__score",
];

/// Asks for lines until there are no more.
pub fn run(mut script: Script, runtime: &tokio::runtime::Runtime) -> anyhow::Result<()> {
    let mut editor: Editor<Words, FileHistory> = Editor::new()?;
    editor.set_helper(Some(Words { context: script.session.context.clone() }));
    let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY));
    if let Some(history) = &history {
        // The first time there is none.
        let _ = editor.load_history(history);
    }
    println!("\\? for help");
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        editor.add_history_entry(line.as_str())?;
        let line = line.trim();
        match line.strip_prefix('\\') {
            Some("q") => break,
            Some(command) => meta(&mut script, runtime, command),
            None => answer(&script, runtime, line),
        }
    }
    if let Some(history) = &history {
        editor.save_history(history)?;
    }
    Ok(())
}

fn answer(script: &Script, runtime: &tokio::runtime::Runtime, text: &str) {
    let begin = Instant::now();
    match runtime.block_on(script.run(text)) {
        Ok(rows) => println!("{rows} rows in {:.3} s", begin.elapsed().as_secs_f64()),
        Err(error) => eprintln!("{}", shown(&error.strip_backtrace())),
    }
}

fn meta(script: &mut Script, runtime: &tokio::runtime::Runtime, command: &str) {
    let (command, argument) = command.split_once(' ').unwrap_or((command, ""));
    let argument = argument.trim();
    match (command, argument) {
        ("d", "") => answer(
            script,
            runtime,
            "SELECT table_name, table_type FROM information_schema.tables \
             WHERE table_schema = 'public' ORDER BY table_name",
        ),
        ("d", table) => answer(script, runtime, &format!("DESCRIBE {table}")),
        ("format", name) => match <Format as clap::ValueEnum>::from_str(name, true) {
            Ok(format) => script.format = format,
            Err(_) => eprintln!("a format is table, csv, json or parquet"),
        },
        ("o", "") => script.output = None,
        ("o", file) => script.output = Some(PathBuf::from(file)),
        _ => print!("{HELP}"),
    }
}

/// What words are completed to, and when a statement is complete.
struct Words {
    context: SessionContext,
}

impl Words {
    fn all(&self) -> Vec<String> {
        let state = self.context.state();
        let mut words: Vec<String> = WORDS.iter().map(ToString::to_string).collect();
        words.extend(state.scalar_functions().keys().cloned());
        words.extend(state.aggregate_functions().keys().cloned());
        words.extend(state.window_functions().keys().cloned());
        for catalog in self.context.catalog_names() {
            let Some(catalog) = self.context.catalog(&catalog) else { continue };
            let schemas = catalog.schema_names().into_iter();
            words.extend(
                schemas
                    .filter_map(|name| catalog.schema(&name))
                    .flat_map(|schema| schema.table_names()),
            );
        }
        words.sort();
        words.dedup();
        words
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let begin = line[..at]
            .rfind(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(0, |before| before + 1);
        let begun = line[begin..at].to_lowercase();
        if begun.is_empty() {
            return Ok((at, Vec::new()));
        }
        let fits = |word: &String| word.to_lowercase().starts_with(&begun);
        Ok((begin, self.all().into_iter().filter(fits).collect()))
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input().trim();
        let is_complete = text.is_empty() || text.starts_with('\\') || text.ends_with(';');
        Ok(if is_complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        Cow::Borrowed(line)
    }
}

impl Helper for Words {}
