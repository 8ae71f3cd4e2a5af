//! Rows as text or files: a table, CSV, JSON by lines, Parquet.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::csv;
use arrow::json::LineDelimitedWriter;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::error::{DataFusionError, Result};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::node::failed;

/// Nobody reads a longer table; CSV and the others have all rows.
const SHOWN_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    Table,
    Csv,
    Json,
    Parquet,
}

/// Takes the rows of one query.
pub enum Sink {
    Table { schema: SchemaRef, batches: Vec<RecordBatch>, out: Out },
    Csv(Box<csv::Writer<Out>>),
    Json(LineDelimitedWriter<Out>),
    Parquet(Box<ArrowWriter<File>>),
}

/// A file, or the terminal.
pub type Out = Box<dyn Write + Send>;

impl Sink {
    pub fn new(format: Format, path: Option<&Path>, schema: &SchemaRef) -> Result<Sink> {
        let create = |path: &Path| {
            File::create(path).map_err(|error| failed(format_args!("{}: {error}", path.display())))
        };
        if format == Format::Parquet {
            let path = path.ok_or_else(|| failed("parquet wants a file: --output FILE"))?;
            let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
            let schema = SchemaRef::clone(schema);
            let writer = ArrowWriter::try_new(create(path)?, schema, Some(properties.build()));
            return Ok(Sink::Parquet(Box::new(writer.map_err(of_parquet)?)));
        }
        let out: Out = match path {
            Some(path) => Box::new(io::BufWriter::new(create(path)?)),
            None => Box::new(io::stdout()),
        };
        Ok(match format {
            Format::Csv => Sink::Csv(Box::new(csv::WriterBuilder::new().build(out))),
            Format::Json => Sink::Json(LineDelimitedWriter::new(out)),
            _ => {
                let schema = SchemaRef::clone(schema);
                Sink::Table { schema, batches: Vec::new(), out }
            }
        })
    }

    pub fn write(&mut self, batch: RecordBatch) -> Result<()> {
        match self {
            Sink::Table { batches, .. } => {
                let kept: usize = batches.iter().map(RecordBatch::num_rows).sum();
                let more = batch.num_rows().min(SHOWN_MAX - kept);
                if more > 0 {
                    batches.push(to_show(&batch.slice(0, more))?);
                }
                Ok(())
            }
            Sink::Csv(writer) => Ok(writer.write(&batch)?),
            Sink::Json(writer) => Ok(writer.write(&batch)?),
            Sink::Parquet(writer) => writer.write(&batch).map_err(of_parquet),
        }
    }

    /// Ends with how many rows there were.
    pub fn finish(self, rows: usize) -> Result<()> {
        match self {
            Sink::Table { schema, mut batches, mut out } => {
                if batches.is_empty() {
                    batches.push(to_show(&RecordBatch::new_empty(schema))?);
                }
                writeln!(out, "{}", pretty_format_batches(&batches)?)?;
                if rows > SHOWN_MAX {
                    writeln!(out, "{rows} rows, of which the first {SHOWN_MAX} are shown")?;
                }
                Ok(out.flush()?)
            }
            Sink::Csv(writer) => Ok(writer.into_inner().flush()?),
            Sink::Json(mut writer) => {
                writer.finish()?;
                Ok(writer.into_inner().flush()?)
            }
            Sink::Parquet(writer) => writer.close().map(drop).map_err(of_parquet),
        }
    }
}

/// A text that a terminal shows as it is and does not obey: control characters are written as
/// redis-cli writes them, all but the end of a line.
pub fn shown(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\x07' => escaped.push_str("\\a"),
            '\x08' => escaped.push_str("\\b"),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                let bytes = c.encode_utf8(&mut bytes).bytes();
                escaped.extend(bytes.map(|byte| format!("\\x{byte:02x}")));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Names and texts of a table are escaped, wherever in a column they stand.
fn to_show(batch: &RecordBatch) -> Result<RecordBatch> {
    let options = FormatOptions::default();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let data_type = field.data_type();
        let is_plain = data_type.is_numeric() || data_type.is_temporal() || data_type.is_binary();
        let column: ArrayRef = match is_plain || *data_type == DataType::Boolean {
            true => Arc::clone(column),
            false => {
                let formatter = ArrayFormatter::try_new(column, &options)?;
                let text = |at| column.is_valid(at).then(|| formatter.value(at).try_to_string());
                let texts = (0..column.len()).map(|at| text(at).transpose());
                let texts = texts.map(|text| Ok(text?.as_deref().map(escaped)));
                Arc::new(texts.collect::<Result<StringArray, ArrowError>>()?)
            }
        };
        fields.push(Field::new(escaped(field.name()), column.data_type().clone(), true));
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

fn of_parquet(error: parquet::errors::ParquetError) -> DataFusionError {
    failed(error)
}
