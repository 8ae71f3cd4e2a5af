//! A scan of a table: a partition for each node, each one stream of EXPORT, begun when its first
//! rows are asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, stream};

use crate::fit::fit;
use crate::node::Part;
use crate::pull::{Pull, Wish};

/// Batches that wait for who reads them, each of about 1 MiB.
const BATCHES_MAX: usize = 2;

/// What queries have read until now, for who watches.
#[derive(Default, Debug)]
pub struct Progress {
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
}

/// The part of a plan that reads a table.
#[derive(Debug)]
pub struct Scan {
    pub parts: Vec<Part>,
    pub wish: Wish,
    pub limit: Option<usize>,
    schema: SchemaRef,
    progress: Arc<Progress>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    pub fn new(
        parts: Vec<Part>,
        wish: Wish,
        schema: SchemaRef,
        limit: Option<usize>,
        progress: Arc<Progress>,
    ) -> Scan {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(parts.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Scan { parts, wish, limit, schema, progress, properties, metrics }
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wish { pattern, keys, slots, kind, columns, nulls_misfits } = &self.wish;
        write!(f, "KvasirScan: nodes={}", self.parts.len())?;
        if let Some(pattern) = pattern {
            write!(f, ", match={pattern}")?;
        }
        if let Some(keys) = keys {
            write!(f, ", keys={:?}", keys.iter().collect::<Vec<_>>())?;
        }
        if let Some((first, last)) = slots {
            write!(f, ", slots={first}-{last}")?;
        }
        if let Some(kind) = kind {
            write!(f, ", type={}", kind.name())?;
        }
        let columns = columns.iter().map(|(name, data_type)| format!("{name} {data_type}"));
        write!(f, ", columns=[{}]", columns.collect::<Vec<_>>().join(", "))?;
        if *nulls_misfits {
            f.write_str(", misfits=null")?;
        }
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &'static str {
        "KvasirScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reading = Reading {
            part: self.parts[partition].clone(),
            wish: self.wish.clone(),
            schema: Arc::clone(&self.schema),
            left: self.limit,
            progress: Arc::clone(&self.progress),
            rows: MetricBuilder::new(&self.metrics).output_rows(partition),
        };
        // Begun only now, a stream does not stall while the query is busy with another table.
        let begun = stream::once(async move { reading.begin() }).flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), begun)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// A partition that is read by a thread of its own, as connections here wait for answers.
struct Reading {
    part: Part,
    wish: Wish,
    schema: SchemaRef,
    left: Option<usize>,
    progress: Arc<Progress>,
    rows: Count,
}

impl Reading {
    fn begin(mut self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let mut builder = RecordBatchReceiverStream::builder(schema, BATCHES_MAX);
        let rows = builder.tx();
        builder.spawn_blocking(move || {
            let mut pull = Pull::begin(&self.part, &self.wish)?;
            let mut seen_bytes = 0;
            while self.left != Some(0)
                && let Some(batch) = pull.next(|| !rows.is_closed())?
            {
                let batch = self.shape(batch)?;
                self.progress.rows.fetch_add(batch.num_rows() as u64, Relaxed);
                self.progress.bytes.fetch_add(pull.pulled_bytes - seen_bytes, Relaxed);
                seen_bytes = pull.pulled_bytes;
                self.rows.add(batch.num_rows());
                if rows.blocking_send(Ok(batch)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }

    /// As the plan has it: without the column that only counts rows, and no more rows than are
    /// wanted.
    fn shape(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let wanted = self.left.map_or(batch.num_rows(), |left| left.min(batch.num_rows()));
        self.left = self.left.map(|left| left - wanted);
        let columns = fit(&batch.slice(0, wanted), &self.schema, self.wish.nulls_misfits)?;
        let options = RecordBatchOptions::new().with_row_count(Some(wanted));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
