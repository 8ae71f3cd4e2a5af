//! Rows as bytes, and calls on their way to servers, in pipelines.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, SchemaRef};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use redis::cluster::ClusterConnection;
use redis::{Cmd, Connection, Value};
use tokio::task::block_in_place;

use crate::node::{failed, refused};
use crate::table::Place;

/// Calls on their way before their answers are read.
const PIPELINE: usize = 1000;

/// A row, every value of which is bytes.
pub struct Row<'a> {
    schema: &'a SchemaRef,
    columns: &'a [ArrayRef],
    at: usize,
}

impl Row<'_> {
    /// `None`: it is null, or there is no such column.
    pub fn text(&self, column: &str) -> Option<&[u8]> {
        let column = &self.columns[self.schema.index_of(column).ok()?];
        column.is_valid(self.at).then(|| column.as_binary::<i32>().value(self.at))
    }

    /// What a key cannot do without.
    pub fn wanted(&self, name: &str, column: &str) -> Result<&[u8]> {
        let missing = || failed(format_args!("the row of '{name}' has no {column}"));
        self.text(column).ok_or_else(missing)
    }
}

/// As the values are kept: numbers in their shortest form, timestamps as RFC 3339.
fn to_bytes(column: &ArrayRef) -> Result<ArrayRef> {
    if let DataType::Float64 = column.data_type() {
        let floats = column.as_primitive::<Float64Type>();
        let texts = floats.iter().map(|float| float.map(|float| float.to_string()));
        let texts: StringArray = texts.collect();
        return Ok(cast(&texts, &DataType::Binary)?);
    }
    let texts = match column.data_type() {
        DataType::Utf8 | DataType::Binary => Arc::clone(column),
        _ => cast(column, &DataType::Utf8)?,
    };
    Ok(cast(&texts, &DataType::Binary)?)
}

/// Sends what all rows become as they come; returns how many there were.
pub async fn send_all(
    place: &Place,
    mut rows: SendableRecordBatchStream,
    to_calls: impl Fn(&Row<'_>, &mut Vec<Cmd>) -> Result<()>,
) -> Result<u64> {
    let mut link = block_in_place(|| Link::new(place))?;
    let mut count = 0;
    while let Some(batch) = rows.next().await.transpose()? {
        block_in_place(|| link.send_rows(&batch, &to_calls))?;
        count += batch.num_rows() as u64;
    }
    Ok(count)
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

    /// Each row becomes calls, and these pipelines.
    fn send_rows(
        &mut self,
        batch: &RecordBatch,
        to_calls: &impl Fn(&Row<'_>, &mut Vec<Cmd>) -> Result<()>,
    ) -> Result<()> {
        let columns = batch.columns().iter().map(to_bytes);
        let (schema, columns) = (batch.schema(), columns.collect::<Result<Vec<_>>>()?);
        let mut calls = Vec::with_capacity(PIPELINE + 1);
        for at in 0..batch.num_rows() {
            to_calls(&Row { schema: &schema, columns: &columns, at }, &mut calls)?;
            if calls.len() >= PIPELINE {
                self.send(std::mem::take(&mut calls))?;
            }
        }
        self.send(calls)
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
