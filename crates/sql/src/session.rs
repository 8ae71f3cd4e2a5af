//! A session: what its statements know of tables, what they may do, how much they may take.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider};
use datafusion::common::{TableReference, plan_err};
use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::dml::WriteOp;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::object_store::ObjectStore;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Statement as SqlStatement, TableObject};

use crate::definition::Definition;
use crate::digest::{Hash, Kind};
use crate::exact::ExactIntegers;
use crate::flags::Limits;
use crate::graph;
use crate::like::LikeEscape;
use crate::names::{Maker, Names};
use crate::node::Node;
use crate::sum::ExactSum;
use crate::table::{Place, Table};
use crate::{change, create, statement};

pub const CATALOG: &str = "kvasir";
pub const SCHEMA: &str = "public";
pub const MIB: usize = 1024 * 1024;

/// What all sessions of the program have together: their memory, and whether there are files.
pub fn runtime(limits: &Limits) -> Result<Arc<RuntimeEnv>> {
    let pool = Arc::new(FairSpillPool::new(limits.memory.saturating_mul(MIB)));
    let mut builder = RuntimeEnvBuilder::new().with_memory_pool(pool);
    if !limits.allow_files {
        builder = builder.with_object_store_registry(Arc::new(NoFiles));
    }
    builder.build_arc()
}

/// What becomes of rows that come without SQL.
#[derive(Clone, Copy)]
pub struct Ingest {
    /// Of a table that is not there.
    pub creates: bool,
    /// To one that is.
    pub appends: bool,
}

pub struct Session {
    pub context: SessionContext,
    pub place: Arc<Place>,
    limits: Limits,
}

impl Session {
    /// Asks the server once, as the user that asks it later.
    pub fn new(
        node: Node,
        limits: &Limits,
        runtime: &Arc<RuntimeEnv>,
        tell: fn(&str),
    ) -> Result<Session> {
        let place = Arc::new(Place::new(node)?);
        let maker = Maker { place: Arc::clone(&place), limits: limits.clone(), tell };
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            // Readers of Arrow know the older of the two forms of texts.
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
        let mut builder = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(runtime))
            .with_expr_planners(SessionStateDefaults::default_expr_planners())
            .with_scalar_functions(SessionStateDefaults::default_scalar_functions())
            .with_higher_order_functions(SessionStateDefaults::default_higher_order_functions())
            .with_aggregate_functions(SessionStateDefaults::default_aggregate_functions())
            .with_window_functions(SessionStateDefaults::default_window_functions())
            .with_table_function_list(SessionStateDefaults::default_table_functions());
        if limits.allow_files {
            builder = builder
                .with_file_formats(SessionStateDefaults::default_file_formats())
                .with_table_factories(SessionStateDefaults::default_table_factories());
        }
        let builder = builder
            .with_table_factory("KVASIR".into(), Arc::new(maker.clone()))
            .with_analyzer_rule(Arc::new(LikeEscape))
            .with_analyzer_rule(Arc::new(ExactIntegers));
        let context = SessionContext::new_with_state(builder.build());
        context.register_udaf(ExactSum::default().into());
        context.register_udf(Hash::new(Kind::Md5).into());
        context.register_udf(Hash::new(Kind::Sha256).into());
        let catalog = MemoryCatalogProvider::new();
        let names = Names { created: MemorySchemaProvider::new(), maker };
        catalog.register_schema(SCHEMA, Arc::new(names))?;
        context.register_catalog(CATALOG, Arc::new(catalog));
        graph::register(&context, &place);
        let context = if limits.allow_files { context.enable_url_table() } else { context };
        Ok(Session { context, place, limits: limits.clone() })
    }

    /// What a statement means, if it may run.
    pub async fn plan(&self, mut statement: Statement) -> Result<LogicalPlan> {
        statement::check_text(&statement, self.limits.allow_files)?;
        if let Statement::Statement(sql) = &mut statement {
            self.name_columns(sql).await?;
        }
        let plan = self.context.state().statement_to_plan(statement).await?;
        statement::check(&plan, self.limits.allow_files)?;
        Ok(plan)
    }

    /// The only statement of a text.
    pub async fn plan_text(&self, text: &str) -> Result<LogicalPlan> {
        let mut statements = statement::parse(text)?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(statement), true) => self.plan(statement).await,
            _ => plan_err!("one statement at a time"),
        }
    }

    /// Does what is no query; the rows of a query are read from the frame.
    pub async fn run(&self, plan: LogicalPlan) -> Result<DataFrame> {
        match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(command)) => {
                create::create(&self.context, &self.place, command).await
            }
            LogicalPlan::Dml(statement)
                if matches!(statement.op, WriteOp::Delete | WriteOp::Update) =>
            {
                change::change(&self.context, statement).await
            }
            plan => self.context.execute_logical_plan(plan).await,
        }
    }

    /// What the rows of a plan are, once it has run.
    pub fn schema_of(plan: &LogicalPlan) -> SchemaRef {
        match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(_)) => create::count_schema(),
            plan => Arc::clone(plan.schema().inner()),
        }
    }

    /// The tables that were created, and their columns.
    pub async fn tables(&self) -> Result<Vec<(String, SchemaRef)>> {
        let catalog = self.context.catalog(CATALOG);
        let Some(schema) = catalog.and_then(|catalog| catalog.schema(SCHEMA)) else {
            return Ok(Vec::new());
        };
        let mut tables = Vec::new();
        for name in schema.table_names() {
            // Another call may drop it meanwhile.
            if let Some(table) = schema.table(&name).await? {
                tables.push((name, table.schema()));
            }
        }
        Ok(tables)
    }

    /// A table of keys, if there is one of this name.
    pub async fn definition(&self, table: &str) -> Result<Option<Definition>> {
        let catalog = self.context.catalog(CATALOG);
        let Some(schema) = catalog.and_then(|catalog| catalog.schema(SCHEMA)) else {
            return Ok(None);
        };
        let provider = schema.table(table).await?;
        let provider = provider.as_deref().map(|provider| provider as &dyn std::any::Any);
        let table = provider.and_then(|provider| provider.downcast_ref::<Table>());
        Ok(table.map(|table| table.definition.clone()))
    }

    /// Writes rows to a table, or makes one of them; returns how many.
    pub async fn ingest(&self, table: &str, rows: Vec<RecordBatch>, to: Ingest) -> Result<u64> {
        let name = TableReference::bare(table);
        let rows = self.context.read_batches(rows)?;
        let written = match (self.definition(table).await?, to) {
            (Some(_), Ingest { appends: false, .. }) => {
                return plan_err!("there is a table {table} already");
            }
            (None, Ingest { creates: false, .. }) => return plan_err!("there is no table {table}"),
            (Some(definition), _) => {
                create::append(&self.context, &name, &definition, rows).await?
            }
            (None, _) => create::create_table(&self.context, &self.place, name, rows).await?,
        };
        Ok(create::counted(&written.collect().await?))
    }

    /// INSERT without columns means the key and what was declared, not what the server says of it.
    async fn name_columns(&self, sql: &mut SqlStatement) -> Result<()> {
        let SqlStatement::Insert(insert) = sql else { return Ok(()) };
        let TableObject::TableName(name) = &insert.table else { return Ok(()) };
        if !insert.columns.is_empty() {
            return Ok(());
        }
        let parts: Option<Vec<_>> = name.0.iter().map(|part| part.as_ident()).collect();
        let Some([.., table]) = parts.as_deref() else { return Ok(()) };
        let name = match table.quote_style {
            Some(_) => table.value.clone(),
            None => table.value.to_lowercase(),
        };
        let Ok(provider) = self.context.table_provider(TableReference::bare(name.as_str())).await
        else {
            // The planner says it better.
            return Ok(());
        };
        let provider: &dyn std::any::Any = provider.as_ref();
        if let Some(table) = provider.downcast_ref::<Table>() {
            let columns = table.definition.written_columns();
            let named = columns.map(|column| ObjectName::from(Ident::with_quote('"', column)));
            insert.columns = named.collect();
        }
        Ok(())
    }
}

/// There are no files: whatever URL a text names, nothing is there.
#[derive(Debug)]
struct NoFiles;

impl ObjectStoreRegistry for NoFiles {
    fn register_store(
        &self,
        _: &url::Url,
        _: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &url::Url) -> Result<Arc<dyn ObjectStore>> {
        plan_err!("{url} is a file or a URL, and these are only read with --allow-files")
    }
}
