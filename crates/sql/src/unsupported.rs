//! What the parser takes and the planner leaves out: a text with such words means something else
//! than what would be answered, so it is refused.

use std::ops::ControlFlow;

use datafusion::common::not_impl_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    GroupByExpr, OrderByKind, Query, Select, Statement, TableFactor, Visit, Visitor,
};

/// Fails if a statement, or a query in it, has words that would go unheeded.
pub fn check(statement: &Statement) -> Result<()> {
    match statement.visit(&mut Unheeded) {
        ControlFlow::Break(words) => not_impl_err!("{words} is not done"),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Unheeded;

impl Visitor for Unheeded {
    type Break = &'static str;

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<&'static str> {
        match table {
            TableFactor::Table { sample: Some(_), .. }
            | TableFactor::Derived { sample: Some(_), .. } => ControlFlow::Break("TABLESAMPLE"),
            TableFactor::Table { with_ordinality: true, .. } => {
                ControlFlow::Break("WITH ORDINALITY")
            }
            TableFactor::Table { version: Some(_), .. } => {
                ControlFlow::Break("a table at another time (FOR SYSTEM_TIME, VERSION)")
            }
            TableFactor::Table { partitions, .. } if !partitions.is_empty() => {
                ControlFlow::Break("PARTITION")
            }
            TableFactor::Table { with_hints, .. } if !with_hints.is_empty() => {
                ControlFlow::Break("a hint to the planner")
            }
            TableFactor::Table { index_hints, .. } if !index_hints.is_empty() => {
                ControlFlow::Break("a hint to the planner")
            }
            TableFactor::Table { json_path: Some(_), .. } => ControlFlow::Break("a path into JSON"),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<&'static str> {
        if !query.locks.is_empty() {
            return ControlFlow::Break("FOR UPDATE and FOR SHARE: nothing is locked, and that");
        }
        if query.for_clause.is_some() {
            return ControlFlow::Break("FOR XML, JSON and BROWSE");
        }
        if query.settings.is_some() || query.format_clause.is_some() {
            return ControlFlow::Break("SETTINGS and FORMAT");
        }
        if let Some(OrderByKind::Expressions(columns)) = query.order_by.as_ref().map(|by| &by.kind)
            && columns.iter().any(|column| column.with_fill.is_some())
        {
            return ControlFlow::Break("WITH FILL");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<&'static str> {
        unheeded_of_select(select)
    }
}

fn unheeded_of_select(select: &Select) -> ControlFlow<&'static str> {
    if select.prewhere.is_some() {
        return ControlFlow::Break("PREWHERE");
    }
    if !select.connect_by.is_empty() {
        return ControlFlow::Break("CONNECT BY");
    }
    if select.exclude.is_some() {
        return ControlFlow::Break("EXCLUDE behind all columns");
    }
    let (GroupByExpr::Expressions(_, modifiers) | GroupByExpr::All(modifiers)) = &select.group_by;
    if !modifiers.is_empty() {
        return ControlFlow::Break("GROUP BY ... WITH ROLLUP, CUBE and TOTALS");
    }
    if select.value_table_mode.is_some() {
        return ControlFlow::Break("SELECT AS STRUCT or VALUE");
    }
    ControlFlow::Continue(())
}
