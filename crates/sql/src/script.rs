//! Runs statements one after the other and shows their rows.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use futures::StreamExt;
use indicatif::{HumanBytes, HumanCount, ProgressBar};

use crate::node::failed;
use crate::output::{Format, Sink};
use crate::scan::Progress;
use crate::session::Session;
use crate::statement;

const TICK: Duration = Duration::from_millis(100);

/// A session, and how it shows rows.
pub struct Script {
    pub session: Session,
    pub format: Format,
    pub output: Option<PathBuf>,
}

impl Script {
    /// Runs all statements of a text, up to the first that fails; returns how many rows there were.
    pub async fn run(&self, text: &str) -> Result<usize> {
        let mut rows = 0;
        for statement in statement::parse(text)? {
            rows += tokio::select! {
                shown = self.run_one(statement) => shown?,
                _ = tokio::signal::ctrl_c() => return Err(failed("interrupted")),
            };
        }
        Ok(rows)
    }

    async fn run_one(&self, statement: Statement) -> Result<usize> {
        let plan = self.session.plan(statement).await?;
        let watch = self.watch();
        let shown = async { self.show(self.session.run(plan).await?, &watch).await };
        let shown = shown.await;
        watch.finish_and_clear();
        shown
    }

    async fn show(&self, frame: DataFrame, watch: &ProgressBar) -> Result<usize> {
        let schema = Arc::clone(frame.schema().inner());
        let (mut batches, mut rows) = (frame.execute_stream().await?, 0);
        if schema.fields().is_empty() {
            // A statement that has no rows to show.
            while batches.next().await.transpose()?.is_some() {}
            return Ok(0);
        }
        let mut sink = Sink::new(self.format, self.output.as_deref(), &schema)?;
        while let Some(batch) = batches.next().await.transpose()? {
            rows += batch.num_rows();
            sink.write(batch)?;
        }
        watch.finish_and_clear();
        sink.finish(rows)?;
        Ok(rows)
    }

    /// Shows what has been read, where it is in nobody's way.
    fn watch(&self) -> ProgressBar {
        let shows_rows_at_once = self.output.is_none() && self.format != Format::Table;
        if shows_rows_at_once || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new_spinner();
        let (shown, progress) = (bar.clone(), Arc::clone(&self.session.place.progress));
        let read =
            |progress: &Progress| (progress.rows.load(Relaxed), progress.bytes.load(Relaxed));
        let before = read(&progress);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(TICK);
            while !shown.is_finished() {
                tick.tick().await;
                let (rows, bytes) = read(&progress);
                let (rows, bytes) = (HumanCount(rows - before.0), HumanBytes(bytes - before.1));
                shown.set_message(format!("{rows} rows read, {bytes}"));
                shown.tick();
            }
        });
        bar
    }
}
