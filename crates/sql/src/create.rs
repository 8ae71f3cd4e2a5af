//! CREATE TABLE AS: the rows of a query become keys, `NAME:` and what tells them apart.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::{TableReference, plan_datafusion_err, plan_err};
use datafusion::dataframe::{DataFrame, DataFrameWriteOptions};
use datafusion::error::Result;
use datafusion::logical_expr::{CreateMemoryTable, Expr, Operator, binary_expr, cast, ident, lit};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use crate::definition::{Definition, KEY, MEMBER, SCORE, column_type};
use crate::keys::Pattern;
use crate::table::{Place, Table};

/// Creates the table and writes its rows; returns how many.
pub async fn create(
    context: &SessionContext,
    place: &Arc<Place>,
    command: CreateMemoryTable,
) -> Result<DataFrame> {
    let CreateMemoryTable { name, input, if_not_exists, or_replace, .. } = command;
    if or_replace {
        return plan_err!("OR REPLACE would delete keys, and SQL here does not");
    }
    if context.table_exist(name.clone())? {
        if if_not_exists {
            return count(context, 0);
        }
        return plan_err!("there is a table {name} already");
    }
    let rows = DataFrame::new(context.state(), Arc::unwrap_or_clone(input));
    create_table(context, place, name, rows).await
}

/// Creates a table, which there is not yet, of rows, and writes them; returns how many.
pub async fn create_table(
    context: &SessionContext,
    place: &Arc<Place>,
    name: TableReference,
    rows: DataFrame,
) -> Result<DataFrame> {
    let table = Definition::declared(
        pattern(name.table(), rows.schema().as_arrow()),
        None,
        rows.schema().as_arrow(),
        false,
    )?;
    let Some(definition) = table else {
        return plan_err!("members without {SCORE}: CREATE EXTERNAL TABLE with a type, and INSERT");
    };
    let columns = columns(name.table(), &definition, rows.schema().as_arrow())?;
    check_free(context, place, &name, &definition).await?;
    let table = Arc::new(Table { definition, place: Arc::clone(place), persisted: None });
    context.register_table(name.clone(), table)?;
    let written = write(context, rows, columns, &name.to_quoted_string()).await;
    if written.is_err() {
        context.deregister_table(name)?;
    }
    written
}

/// What is answered: how many rows were written.
pub fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("count", DataType::UInt64, false)]))
}

/// How many rows an answer says.
pub fn counted(batches: &[RecordBatch]) -> u64 {
    let counts = batches.iter().filter_map(|batch| {
        let counts = batch.column_by_name("count")?.as_primitive_opt::<UInt64Type>()?;
        Some(counts.values().iter().sum::<u64>())
    });
    counts.sum()
}

/// An answer of so many rows.
pub fn count(context: &SessionContext, rows: u64) -> Result<DataFrame> {
    let rows = Arc::new(UInt64Array::from(vec![rows])) as ArrayRef;
    context.read_batch(RecordBatch::try_new(count_schema(), vec![rows])?)
}

/// Keys of any type would be in the way.
async fn check_free(
    context: &SessionContext,
    place: &Arc<Place>,
    name: &TableReference,
    definition: &Definition,
) -> Result<()> {
    let definition = Definition::new(definition.pattern.clone(), None, Vec::new(), false);
    let keys = Table { definition, place: Arc::clone(place), persisted: None };
    let there = context.read_table(Arc::new(keys))?.limit(0, Some(1))?.count().await?;
    if there > 0 {
        return plan_err!("there are keys of {name} already: INSERT INTO writes to them");
    }
    Ok(())
}

/// Writes rows to a table that is there already; returns how many. Its columns are told apart by
/// their names.
pub async fn append(
    context: &SessionContext,
    name: &TableReference,
    definition: &Definition,
    rows: DataFrame,
) -> Result<DataFrame> {
    let schema = rows.schema().as_arrow();
    let is_unknown = |field: &&Arc<Field>| definition.schema.index_of(field.name()).is_err();
    if let Some(unknown) = schema.fields().iter().find(is_unknown) {
        return plan_err!("{name} has no column {}", unknown.name());
    }
    let column = |field: &Arc<Field>| match schema.column_with_name(field.name()) {
        Some(_) => Ok(cast(ident(field.name()), field.data_type().clone()).alias(field.name())),
        None => Ok(lit(ScalarValue::try_from(field.data_type())?).alias(field.name())),
    };
    let columns = definition.schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    write(context, rows, columns, &name.to_quoted_string()).await
}

async fn write(
    context: &SessionContext,
    rows: DataFrame,
    columns: Vec<Expr>,
    name: &str,
) -> Result<DataFrame> {
    let counts = rows.select(columns)?.write_table(name, DataFrameWriteOptions::new()).await?;
    context.read_batches(counts)
}

/// One sorted set has the table's name; of others there is a key for each row.
fn pattern(name: &str, columns: &Schema) -> Pattern {
    let has = |column: &str| columns.column_with_name(column).is_some();
    match has(SCORE) && has(MEMBER) && !has(KEY) {
        true => Pattern::Key(name.to_string()),
        false => Pattern::Prefix(format!("{name}:")),
    }
}

/// What is written, column by column of the table.
fn columns(name: &str, definition: &Definition, rows: &Schema) -> Result<Vec<Expr>> {
    let first = rows.fields().first().ok_or_else(|| plan_datafusion_err!("a query has columns"))?;
    let key = || match &definition.pattern {
        Pattern::Key(key) => lit(key.as_str()),
        _ => {
            // A null stays one, and is no key.
            let id = cast(ident(first.name()), DataType::Utf8);
            binary_expr(lit(format!("{name}:")), Operator::StringConcat, id)
        }
    };
    let column = |field: &Arc<Field>| {
        let found = rows.column_with_name(field.name());
        let value = match found {
            Some((_, found)) if column_type(found.data_type()).is_none() => {
                return plan_err!("column '{}' cannot be {}", field.name(), found.data_type());
            }
            Some(_) => cast(ident(field.name()), field.data_type().clone()),
            None if field.name() == KEY => cast(key(), DataType::Utf8),
            None => lit(ScalarValue::try_from(field.data_type())?),
        };
        Ok(value.alias(field.name()))
    };
    definition.schema.fields().iter().map(column).collect()
}
