//! DELETE and UPDATE: what they mean is read as a query is, all filters with it, and each row of it
//! becomes calls. The planner's own way would hand over those filters that it can tell apart, and
//! of a subquery none: all rows would go.

use std::sync::Arc;

use datafusion::common::{DFSchema, not_impl_err, plan_err};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::dml::{DmlStatement, WriteOp};
use datafusion::logical_expr::{Expr, LogicalPlan, ident};
use datafusion::prelude::SessionContext;
use redis::Cmd;

use crate::create::count;
use crate::definition::{Definition, ID, INDEX, KEY, Kind, MEMBER, SCORE, SLOT, TTL, TYPE, VALUE};
use crate::node::failed;
use crate::send::{Row, Rows, send_all};
use crate::table::Table;

/// A hash that has gone since it was read stays gone.
const SET_FIELDS: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then \
                          redis.call('HSET', KEYS[1], unpack(ARGV)) end";

/// Does it; returns how many rows it met.
pub async fn change(context: &SessionContext, statement: DmlStatement) -> Result<DataFrame> {
    let provider = source_as_provider(&statement.target)?;
    let provider: &dyn std::any::Any = provider.as_ref();
    let name = &statement.table_name;
    let Some(table) = provider.downcast_ref::<Table>() else {
        return not_impl_err!("{name} is no table of keys, and only these are changed");
    };
    if table.persisted.is_some() {
        return not_impl_err!("a persisted table is not written to");
    }
    let mut change = Change::of(&statement, &table.definition)?;
    let columns: Vec<Expr> = change.columns().map(ident).collect();
    let rows = DataFrame::new(context.state(), Arc::unwrap_or_clone(statement.input));
    let rows = rows.select(columns)?.execute_stream().await?;
    let met = send_all(&table.place, &context.runtime_env(), rows, &mut change).await?;
    count(context, met)
}

/// What becomes of a row.
enum Change {
    /// Its key goes.
    Delete,
    /// It goes from its key: the call, and the column that says which of the key's it is.
    Remove(&'static str, &'static str),
    /// These columns get other values.
    Update(Option<Kind>, Vec<String>),
}

impl Change {
    fn of(statement: &DmlStatement, definition: &Definition) -> Result<Change> {
        let change = match (&statement.op, definition.kind) {
            (WriteOp::Delete, None | Some(Kind::String | Kind::Hash)) => Change::Delete,
            (WriteOp::Delete, Some(Kind::Set)) => Change::Remove("SREM", MEMBER),
            (WriteOp::Delete, Some(Kind::SortedSet)) => Change::Remove("ZREM", MEMBER),
            (WriteOp::Delete, Some(Kind::Stream)) => Change::Remove("XDEL", ID),
            (WriteOp::Delete, Some(Kind::List)) => {
                return not_impl_err!("rows of a list are not deleted: LREM and LTRIM do");
            }
            (_, kind) => Change::Update(kind, assigned(&statement.input, kind)?),
        };
        let is_there = |column: &str| definition.schema.column_with_name(column).is_some();
        if let Some(column) = change.columns().find(|column| !is_there(column)) {
            return plan_err!("{} has no column {column}", statement.table_name);
        }
        Ok(change)
    }

    /// Those of its rows that it needs.
    fn columns(&self) -> impl Iterator<Item = &str> {
        let (one, many): (_, &[String]) = match self {
            Change::Delete => (None, &[]),
            Change::Remove(_, column) => (Some(*column), &[]),
            Change::Update(Some(Kind::SortedSet), names) if names.iter().any(|n| n == SCORE) => {
                (Some(MEMBER), names)
            }
            Change::Update(_, names) => (None, names),
        };
        [KEY].into_iter().chain(one).chain(many.iter().map(String::as_str))
    }
}

impl Rows for Change {
    fn look(&mut self, row: &Row<'_>) -> Result<()> {
        self.calls(row, &mut Vec::new())
    }

    fn calls(&self, row: &Row<'_>, calls: &mut Vec<Cmd>) -> Result<()> {
        let key = row.text(KEY).ok_or_else(|| failed("a row without __key is none of a key"))?;
        let name = String::from_utf8_lossy(key);
        match self {
            Change::Delete => calls.push(call("UNLINK", &[key])),
            Change::Remove(word, column) => {
                calls.push(call(word, &[key, row.wanted(&name, column)?]));
            }
            Change::Update(kind, columns) => update(*kind, row, key, columns, calls)?,
        }
        Ok(())
    }
}

fn update(
    kind: Option<Kind>,
    row: &Row<'_>,
    key: &[u8],
    columns: &[String],
    calls: &mut Vec<Cmd>,
) -> Result<()> {
    let name = String::from_utf8_lossy(key);
    let (of_key, fields): (Vec<&str>, Vec<&str>) =
        columns.iter().map(String::as_str).partition(|column| *column == TTL);
    match kind {
        _ if fields.is_empty() => {}
        Some(Kind::String) => {
            calls.push(call("SET", &[key, row.wanted(&name, VALUE)?, b"XX", b"KEEPTTL"]));
        }
        Some(Kind::SortedSet) => {
            let (score, member) = (row.wanted(&name, SCORE)?, row.wanted(&name, MEMBER)?);
            calls.push(call("ZADD", &[key, b"XX", score, member]));
        }
        _ => set_fields(row, key, &fields, calls),
    }
    if !of_key.is_empty() {
        calls.push(match row.text(TTL) {
            Some(ttl_ms) => call("PEXPIRE", &[key, ttl_ms]),
            None => call("PERSIST", &[key]),
        });
    }
    Ok(())
}

/// Fields with values are set, those that are null go.
fn set_fields(row: &Row<'_>, key: &[u8], fields: &[&str], calls: &mut Vec<Cmd>) {
    let (mut set, mut gone) = (Vec::new(), vec![key]);
    for field in fields {
        match row.text(field) {
            Some(value) => set.extend([field.as_bytes(), value]),
            None => gone.push(field.as_bytes()),
        }
    }
    if !set.is_empty() {
        let mut words = vec![SET_FIELDS.as_bytes(), b"1", key];
        words.append(&mut set);
        calls.push(call("EVAL", &words));
    }
    if gone.len() > 1 {
        calls.push(call("HDEL", &gone));
    }
}

fn call(word: &str, arguments: &[&[u8]]) -> Cmd {
    let mut call = redis::cmd(word);
    for argument in arguments {
        call.arg(*argument);
    }
    call
}

/// The columns that an UPDATE names: the planner selects all, and the others are what they were.
fn assigned(input: &LogicalPlan, kind: Option<Kind>) -> Result<Vec<String>> {
    let LogicalPlan::Projection(projection) = input else {
        return plan_err!("an UPDATE is a selection of columns");
    };
    let is_kept = |expr: &Expr, name: &str| match expr {
        Expr::Alias(alias) => matches!(&*alias.expr, Expr::Column(column) if column.name == name),
        expr => matches!(expr, Expr::Column(column) if column.name == name),
    };
    let schema: &DFSchema = &projection.schema;
    let columns = projection.expr.iter().zip(schema.fields());
    let columns = columns.filter(|(expr, field)| !is_kept(expr, field.name()));
    let columns: Vec<_> = columns.map(|(_, field)| field.name().clone()).collect();
    for column in &columns {
        let is_field = kind == Some(Kind::Hash);
        match column.as_str() {
            TTL => {}
            KEY | TYPE | SLOT => return plan_err!("{column} says which key it is: it stays"),
            MEMBER | INDEX | ID if !is_field => {
                return plan_err!("{column} says which row it is: DELETE and INSERT");
            }
            _ if matches!(kind, Some(Kind::Stream)) => {
                return plan_err!(
                    "an entry of a stream stays as it is: only its key's __ttl changes"
                );
            }
            _ => {}
        }
    }
    Ok(columns)
}
