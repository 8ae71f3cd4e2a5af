//! Rows as bytes, and calls on their way to servers, in pipelines.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use futures::StreamExt;
use redis::cluster::ClusterConnection;
use redis::{Cmd, Connection, Value};
use tokio::task::block_in_place;

use crate::definition::{KEY, Kind};
use crate::hold::Held;
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
fn to_bytes(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(column_to_bytes).collect::<Result<Vec<_>>>()?;
    let schema = batch.schema();
    let fields = schema.fields().iter();
    let fields: Vec<_> =
        fields.map(|field| Field::new(field.name(), DataType::Binary, true)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

fn column_to_bytes(column: &ArrayRef) -> Result<ArrayRef> {
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

/// What is written of rows.
pub trait Rows {
    /// Fails if a statement with this row is not to write anything. Every row is looked at before
    /// the first is written.
    fn look(&mut self, row: &Row<'_>) -> Result<()>;

    /// The calls that write a row.
    fn calls(&self, row: &Row<'_>, calls: &mut Vec<Cmd>) -> Result<()>;

    /// The only type that keys may have which are there already, where the calls themselves do
    /// not see to that.
    fn only_kind(&self) -> Option<Kind> {
        None
    }
}

/// Sends what all rows become, once all of them are there and fit to be written; returns how many
/// there were.
pub async fn send_all(
    place: &Place,
    runtime: &Arc<RuntimeEnv>,
    mut rows: SendableRecordBatchStream,
    what: &mut impl Rows,
) -> Result<u64> {
    let (mut held, mut count) = (Held::new(runtime), 0);
    while let Some(batch) = rows.next().await.transpose()? {
        let batch = to_bytes(&batch)?;
        for_each(&batch, |row| what.look(row))?;
        count += batch.num_rows() as u64;
        held.add(batch)?;
    }
    block_in_place(|| {
        let mut link = Link::new(place)?;
        if let Some(kind) = what.only_kind() {
            held.for_each(|batch| link.check_kinds(batch, kind))?;
        }
        held.for_each(|batch| link.send_rows(batch, &*what))
    })?;
    Ok(count)
}

fn for_each(batch: &RecordBatch, mut take: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
    let schema = batch.schema();
    let row = |at| Row { schema: &schema, columns: batch.columns(), at };
    (0..batch.num_rows()).try_for_each(|at| take(&row(at)))
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
    fn send_rows(&mut self, batch: &RecordBatch, what: &impl Rows) -> Result<()> {
        let mut calls = Vec::with_capacity(PIPELINE + 1);
        for_each(batch, |row| {
            what.calls(row, &mut calls)?;
            if calls.len() >= PIPELINE {
                self.send(std::mem::take(&mut calls))?;
            }
            Ok(())
        })?;
        self.send(calls).map(drop)
    }

    /// Fails if one of the keys is there with another type.
    fn check_kinds(&mut self, batch: &RecordBatch, kind: Kind) -> Result<()> {
        let (mut keys, mut calls) = (Vec::new(), Vec::new());
        for_each(batch, |row| {
            let key = row.text(KEY).unwrap_or_default().to_vec();
            let mut call = redis::cmd("TYPE");
            call.arg(&key);
            calls.push(call);
            keys.push(key);
            Ok(())
        })?;
        for (keys, calls) in keys.chunks(PIPELINE).zip(calls.chunks(PIPELINE)) {
            for (key, found) in keys.iter().zip(self.send(calls.to_vec())?) {
                let found: String = redis::from_redis_value(found)
                    .map_err(|_| failed("TYPE was answered oddly"))?;
                if found != "none" && found != kind.name() {
                    let name = String::from_utf8_lossy(key);
                    let wanted = kind.name();
                    return Err(failed(format_args!(
                        "WRONGTYPE the key '{name}' is a {found}, which a {wanted} would overwrite"
                    )));
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, calls: Vec<Cmd>) -> Result<Vec<Value>> {
        if calls.is_empty() {
            return Ok(Vec::new());
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
        sent.map_err(refused)
    }
}
