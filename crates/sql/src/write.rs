//! INSERT INTO: rows become hashes, strings, members of sets and of sorted sets, by pipelines.
//!
//! A null is not written: what the key holds there stays. A statement whose rows cannot all be
//! written writes none of them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{not_impl_err, plan_err};
use datafusion::datasource::sink::DataSink;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use redis::Cmd;

use crate::definition::{Definition, KEY, Kind, MEMBER, SCORE, TTL, VALUE};
use crate::hold::Seen;
use crate::node::failed;
use crate::send::{Row, Rows, send_all};
use crate::table::Place;

/// Writes the rows of a table.
#[derive(Debug)]
pub struct Writer {
    definition: Definition,
    kind: Kind,
    place: Arc<Place>,
}

impl Writer {
    pub fn new(definition: Definition, place: Arc<Place>) -> Result<Writer> {
        let Some(kind) = definition.kind else {
            return plan_err!("keys of any type cannot be written to: name a type");
        };
        if matches!(kind, Kind::List | Kind::Stream) {
            return not_impl_err!(
                "a {} is not written by SQL: its order is its meaning",
                kind.name()
            );
        }
        Ok(Writer { definition, kind, place })
    }

    /// The call that writes a row, and one that lets its key expire.
    fn calls(&self, row: &Row<'_>, calls: &mut Vec<Cmd>) -> Result<()> {
        let key = row.text(KEY).ok_or_else(|| failed("a row without __key cannot be written"))?;
        let name = String::from_utf8_lossy(key);
        if self.definition.pattern.excludes(key) {
            let pattern = &self.definition.pattern;
            return Err(failed(format_args!("the key '{name}' is not one of {pattern}")));
        }
        let wanted = |column: &str| row.wanted(&name, column);
        let mut call = Cmd::new();
        match self.kind {
            Kind::String => {
                call.arg("SET").arg(key).arg(wanted(VALUE)?);
            }
            Kind::Set => {
                call.arg("SADD").arg(key).arg(wanted(MEMBER)?);
            }
            Kind::SortedSet => {
                call.arg("ZADD").arg(key).arg(wanted(SCORE)?).arg(wanted(MEMBER)?);
            }
            _ => {
                call.arg("HSET").arg(key);
                let mut fields = self.definition.written_columns().filter(|name| *name != KEY);
                let written = fields.try_fold(0, |written, field| {
                    let Some(value) = row.text(field) else { return Some(written) };
                    call.arg(field).arg(value);
                    Some(written + 1)
                });
                if written == Some(0) {
                    return Err(failed(format_args!("the row of '{name}' has no field")));
                }
            }
        }
        calls.push(call);
        if let Some(ttl_ms) = row.text(TTL) {
            let mut call = redis::cmd("PEXPIRE");
            call.arg(key).arg(ttl_ms);
            calls.push(call);
        }
        Ok(())
    }
}

/// The rows of one statement. A key, or a member of it, that comes twice would leave one row of
/// two, and nobody could say which.
struct Writing<'a> {
    writer: &'a Writer,
    seen: Seen,
}

impl Rows for Writing<'_> {
    fn look(&mut self, row: &Row<'_>) -> Result<()> {
        self.writer.calls(row, &mut Vec::new())?;
        let key = row.text(KEY).unwrap_or_default();
        let member = match self.writer.kind {
            Kind::Set | Kind::SortedSet => row.text(MEMBER),
            _ => None,
        };
        let is_first = match member {
            Some(member) => self.seen.is_first(&[key, member])?,
            None => self.seen.is_first(&[key])?,
        };
        if is_first {
            return Ok(());
        }
        let key = String::from_utf8_lossy(key);
        Err(match member.map(String::from_utf8_lossy) {
            Some(member) => failed(format_args!(
                "two rows have the key '{key}' and the member '{member}': none is written"
            )),
            None => failed(format_args!("two rows have the key '{key}': none is written")),
        })
    }

    fn calls(&self, row: &Row<'_>, calls: &mut Vec<Cmd>) -> Result<()> {
        self.writer.calls(row, calls)
    }

    /// SET alone takes the place of whatever is there.
    fn only_kind(&self) -> Option<Kind> {
        (self.writer.kind == Kind::String).then_some(Kind::String)
    }
}

impl DisplayAs for Writer {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KvasirWriter: keys={}, type={}", self.definition.pattern, self.kind.name())
    }
}

#[async_trait]
impl DataSink for Writer {
    fn schema(&self) -> &SchemaRef {
        &self.definition.schema
    }

    async fn write_all(
        &self,
        rows: SendableRecordBatchStream,
        task: &Arc<TaskContext>,
    ) -> Result<u64> {
        let runtime = task.runtime_env();
        let mut writing = Writing { writer: self, seen: Seen::new(&runtime) };
        send_all(&self.place, &runtime, rows, &mut writing).await
    }
}
