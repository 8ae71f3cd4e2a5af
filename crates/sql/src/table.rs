//! A table as DataFusion sees it: what is pushed down to the servers, and what is asked of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::not_impl_err;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;

use crate::definition::{Definition, SLOT, export_name};
use crate::fit::fit;
use crate::keys::{Keys, Pattern, Selection, Understood};
use crate::node::{Node, Part, slot_of};
use crate::pull::{Pull, Wish};
use crate::scan::{Progress, Scan};
use crate::write::Writer;

/// The servers, as a session knows them.
#[derive(Debug)]
pub struct Place {
    pub node: Node,
    pub is_cluster: bool,
    pub progress: Arc<Progress>,
}

impl Place {
    pub fn new(node: Node) -> Result<Place> {
        let is_cluster = node.is_of_cluster()?;
        Ok(Place { node, is_cluster, progress: Arc::default() })
    }

    /// All nodes; of one that is alone no slots are named.
    pub fn parts(&self) -> Result<Vec<Part>> {
        if self.is_cluster {
            return self.node.parts();
        }
        Ok(vec![Part { node: self.node.clone(), ranges: Vec::new() }])
    }
}

#[derive(Debug)]
pub struct Table {
    pub definition: Definition,
    pub place: Arc<Place>,
    /// Its rows as they were once, if they are kept here.
    pub persisted: Option<MemTable>,
}

impl Table {
    /// The same table with the rows of this moment, which later queries find unchanged.
    pub fn persist(self) -> Result<Table> {
        let schema = self.schema();
        let mut batches = Vec::new();
        if let Some((parts, wish)) = self.ask(&[], &schema)? {
            for part in parts {
                let mut pull = Pull::begin(&part, &wish)?;
                while let Some(batch) = pull.next(|| true)? {
                    let columns = fit(&batch, &schema, wish.nulls_misfits)?;
                    batches.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
                }
            }
        }
        let persisted = Some(MemTable::try_new(schema, vec![batches])?);
        Ok(Table { persisted, ..self })
    }

    /// Whether EXPORT can be told of these keys: in a cluster names must have one slot.
    fn can_name(&self, keys: &BTreeSet<String>) -> bool {
        let slots: BTreeSet<u16> = keys.iter().map(|key| slot_of(key)).collect();
        !self.place.is_cluster || slots.len() <= 1
    }

    fn push_down(&self, filter: &Expr) -> TableProviderFilterPushDown {
        let is_exact = |keys: &Keys| match keys {
            Keys::All => false,
            Keys::Prefix(_) => !matches!(self.definition.pattern, Pattern::Glob(_)),
            Keys::These(keys) => self.can_name(keys),
        };
        match Keys::of(filter) {
            Some(Understood { keys, is_whole: true }) if is_exact(&keys) => {
                TableProviderFilterPushDown::Exact
            }
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        }
    }

    /// What nodes are asked, and which; `None` if there can be no rows.
    fn ask(&self, filters: &[Expr], schema: &SchemaRef) -> Result<Option<(Vec<Part>, Wish)>> {
        let understood = filters.iter().filter_map(Keys::of).map(|understood| understood.keys);
        let keys = understood.fold(Keys::All, Keys::and);
        let Some(Selection { pattern, keys }) = Selection::new(&self.definition.pattern, keys)
        else {
            return Ok(None);
        };
        let keys = keys.filter(|keys| self.can_name(keys));
        let slots = keys.as_ref().and_then(|keys| {
            let slots = keys.iter().map(|key| slot_of(key));
            Some((slots.clone().min()?, slots.max()?))
        });
        let mut parts = self.place.parts()?;
        if let (true, Some((slot, _))) = (self.place.is_cluster, slots) {
            let has = |part: &Part| part.ranges.iter().any(|(a, b)| (a..=b).contains(&&slot));
            parts.retain(has);
        }
        let columns = schema.fields().iter();
        let columns = columns.map(|field| (field.name().clone(), export_name(field.data_type())));
        let mut columns: Vec<_> = columns.collect();
        if columns.is_empty() {
            // Rows are counted: that which is cheapest.
            columns.push((SLOT.to_string(), "int64"));
        }
        let names_one = matches!(&pattern, Pattern::Key(_)) && keys.is_some();
        let wish = Wish {
            pattern: (!names_one).then(|| pattern.to_string()),
            keys,
            slots,
            kind: self.definition.kind,
            columns,
            nulls_misfits: self.definition.nulls_misfits,
        };
        Ok(Some((parts, wish)))
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.definition.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let none = self.persisted.is_some().then_some(TableProviderFilterPushDown::Unsupported);
        let push_down = |filter: &&Expr| none.clone().unwrap_or_else(|| self.push_down(filter));
        Ok(filters.iter().map(push_down).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(persisted) = &self.persisted {
            return persisted.scan(session, projection, filters, limit).await;
        }
        let schema = match projection {
            Some(columns) => Arc::new(self.definition.schema.project(columns)?),
            None => self.schema(),
        };
        // To ask who has which slots takes a moment, in a cluster.
        let asked = tokio::task::block_in_place(|| self.ask(filters, &schema))?;
        Ok(match asked {
            Some((parts, wish)) => {
                let progress = Arc::clone(&self.place.progress);
                Arc::new(Scan::new(parts, wish, schema, limit, progress))
            }
            None => Arc::new(EmptyExec::new(schema)),
        })
    }

    async fn insert_into(
        &self,
        _: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.persisted.is_some() {
            return not_impl_err!("a persisted table is not written to");
        }
        if insert_op != InsertOp::Append {
            return not_impl_err!("{insert_op}: rows are written over those of the same key");
        }
        let writer = Writer::new(self.definition.clone(), Arc::clone(&self.place))?;
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(writer), None)))
    }
}
