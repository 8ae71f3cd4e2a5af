//! Columns of types that EXPORT has no words for: they come as texts, and are read here.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::error::Result;

use crate::definition::sql_name;
use crate::node::failed;

/// The columns of a batch in the types of a schema. What does not fit is null, or an error.
pub fn fit(batch: &RecordBatch, schema: &SchemaRef, nulls_misfits: bool) -> Result<Vec<ArrayRef>> {
    let columns = batch.columns().iter().zip(schema.fields());
    columns.map(|(column, field)| fit_column(column, field, nulls_misfits)).collect()
}

fn fit_column(column: &ArrayRef, field: &FieldRef, nulls_misfits: bool) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let fitted = cast_with_options(column, field.data_type(), &options)?;
    if nulls_misfits || fitted.null_count() == column.null_count() {
        return Ok(fitted);
    }
    let misfit = (0..column.len()).find(|at| column.is_valid(*at) && fitted.is_null(*at));
    let value = misfit.and_then(|at| Some(column.as_string_opt::<i32>()?.value(at)));
    Err(failed(format_args!(
        "'{}' does not fit column '{}' of type {}: declare another type, or OPTIONS (misfits \
         'null')",
        value.unwrap_or_default(),
        field.name(),
        sql_name(field.data_type())
    )))
}
