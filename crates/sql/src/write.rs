//! INSERT INTO: rows become hashes, strings, members of sets and of sorted sets, by pipelines.
//!
//! A null is not written: what the key holds there stays.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{not_impl_err, plan_err};
use datafusion::datasource::sink::DataSink;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::StreamExt;
use redis::cluster::ClusterConnection;
use redis::{Cmd, Connection, Value};

use crate::definition::{Definition, KEY, Kind, MEMBER, SCORE, TTL, VALUE};
use crate::node::{failed, refused};
use crate::table::Place;

/// Calls on their way before their answers are read.
const PIPELINE: usize = 1000;

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
        if self.definition.pattern.excludes(&name) {
            let pattern = &self.definition.pattern;
            return Err(failed(format_args!("the key '{name}' is not one of {pattern}")));
        }
        let wanted = |column: &str| {
            let missing = || failed(format_args!("the row of '{name}' has no {column}"));
            row.text(column).ok_or_else(missing)
        };
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

    fn write(&self, link: &mut Link, batch: &RecordBatch) -> Result<()> {
        let columns = batch.columns().iter().map(to_bytes);
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut calls = Vec::with_capacity(PIPELINE + 1);
        for at in 0..batch.num_rows() {
            let row = Row { schema: &self.definition.schema, columns: &columns, at };
            self.calls(&row, &mut calls)?;
            if calls.len() >= PIPELINE {
                link.send(std::mem::take(&mut calls))?;
            }
        }
        link.send(calls)
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
        mut data: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
    ) -> Result<u64> {
        let mut link = tokio::task::block_in_place(|| Link::new(&self.place))?;
        let mut rows = 0;
        while let Some(batch) = data.next().await.transpose()? {
            tokio::task::block_in_place(|| self.write(&mut link, &batch))?;
            rows += batch.num_rows() as u64;
        }
        Ok(rows)
    }
}

/// A row, every value of which is bytes.
struct Row<'a> {
    schema: &'a SchemaRef,
    columns: &'a [ArrayRef],
    at: usize,
}

impl Row<'_> {
    fn text(&self, column: &str) -> Option<&[u8]> {
        let column = &self.columns[self.schema.index_of(column).ok()?];
        column.is_valid(self.at).then(|| column.as_binary::<i32>().value(self.at))
    }
}

/// As the values are kept: numbers in their shortest form, timestamps as RFC 3339.
fn to_bytes(column: &ArrayRef) -> Result<ArrayRef> {
    if let DataType::Float64 = column.data_type() {
        let floats = column.as_primitive::<datafusion::arrow::datatypes::Float64Type>();
        let texts = floats.iter().map(|float| float.map(|float| float.to_string()));
        let texts: datafusion::arrow::array::StringArray = texts.collect();
        return Ok(cast(&texts, &DataType::Binary)?);
    }
    let texts = match column.data_type() {
        DataType::Utf8 | DataType::Binary => Arc::clone(column),
        _ => cast(column, &DataType::Utf8)?,
    };
    Ok(cast(&texts, &DataType::Binary)?)
}

/// A connection that is written to.
enum Link {
    One(Box<Connection>),
    All(Box<ClusterConnection>),
}

impl Link {
    fn new(place: &Place) -> Result<Link> {
        Ok(match place.is_cluster {
            true => Link::All(Box::new(place.node.connect_to_all()?)),
            false => Link::One(Box::new(place.node.connect()?)),
        })
    }

    fn send(&mut self, calls: Vec<Cmd>) -> Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let sent: redis::RedisResult<Vec<Value>> = match self {
            Link::One(connection) => {
                let mut pipeline = redis::Pipeline::with_capacity(calls.len());
                for call in calls {
                    pipeline.add_command(call);
                }
                pipeline.query(connection)
            }
            Link::All(connection) => {
                let mut pipeline = redis::cluster::ClusterPipeline::with_capacity(calls.len());
                for call in calls {
                    pipeline.add_command(call);
                }
                pipeline.query(connection)
            }
        };
        sent.map(drop).map_err(refused)
    }
}
