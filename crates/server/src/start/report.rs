//! `kvasir-server report FILE`: what fills a snapshot, told to programs or to people.
//!
//! The snapshot is loaded as a server with the usual options would load it, into databases that
//! nobody uses, so bytes are those that this server would take, whoever wrote the file. It takes
//! the memory that the server would take.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use kvasir_analytics::budget::Budget;
use kvasir_analytics::job::Job;
use kvasir_analytics::report::answer::Report;
use kvasir_analytics::report::by::{By, DEPTH_MAX, NAMES};
use kvasir_analytics::report::survey::{Survey, Wish};
use kvasir_config::arguments::{self, ReportFormat};
use kvasir_keyspace::compression::Compression;
use kvasir_keyspace::snapshot::Sink;

use crate::start::apart::Apart;

/// Records that are summed up together.
const TOGETHER: usize = 64;

/// Prints the report.
pub fn main(wish: &arguments::Report) -> ExitCode {
    let report = match make(wish) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("no report: {error}");
            return ExitCode::FAILURE;
        }
    };
    let text = match wish.format {
        ReportFormat::Json => report.to_json(),
        ReportFormat::Csv => report.to_csv(),
        ReportFormat::Html => report.to_html(&wish.path.display().to_string()),
    };
    // A reader that went away is no failure of ours.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn make(wish: &arguments::Report) -> Result<Report, String> {
    // Before the work.
    let (separator, depth) = (wish.separator.as_bytes(), usize::from(wish.depth));
    if depth > DEPTH_MAX {
        return Err(format!("--depth is at most {DEPTH_MAX}"));
    }
    let by = By::from_name(wish.by.as_bytes(), separator, depth);
    let by = by.ok_or_else(|| format!("--by is one of {}", NAMES.join(", ")))?;
    let apart = Apart::load(&wish.path, wish.skips_modules).map_err(|error| error.to_string())?;
    let Apart { keyspace, gate, env, .. } = apart;
    let budget = Arc::new(Budget::default());
    budget.set_max(usize::MAX / 2);
    let job = Arc::new(Job::new(0, 0, 0, "report", budget.share()));
    let (top, compression) = (usize::from(wish.top), Compression::MOST);
    let survey = Survey::new(Wish { by, top, env, compression, may_read: None }, job)?;
    let pass = gate.exclusive();
    for db in keyspace.indexes() {
        let database = keyspace.database(db, &pass);
        if !database.was_used() {
            continue;
        }
        for slot in database.slots().iter().filter(|slot| !slot.is_empty()) {
            let (slot, mut records) = (slot.lock(&pass), Vec::new());
            slot.for_each(|record| records.push(record));
            records.chunks(TOGETHER).for_each(|some| survey.take(db, some));
        }
        survey.sum_up();
    }
    Ok(survey.finish())
}
