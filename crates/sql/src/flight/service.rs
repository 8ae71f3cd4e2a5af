//! The calls of Flight SQL, each as what the shell would do with its text.
//!
//! A ticket is the statement itself: to ask where rows are plans it, to ask for them runs it, and
//! nothing has to be kept between the two. What writes has run when it is asked where its rows are.

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, CommandGetCatalogs, CommandGetCrossReference,
    CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, DoPutPreparedStatementResult, ProstMessageExt,
    SqlInfo, TableExistsOption, TableNotExistOption, TicketStatementQuery,
};
use arrow_flight::{
    Action, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse, Ticket,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use futures::future::ready;
use futures::{Stream, TryStreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use crate::create::counted;
use crate::flight::answer::{self, Data, info, no_columns, schema_bytes, status};
use crate::flight::facts;
use crate::flight::guests::{Guest, Guests};
use crate::flight::prepared::Statement;
use crate::session::{CATALOG, Ingest, SCHEMA, Session};

pub struct Service {
    pub guests: Guests,
}

type Handshakes = Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>;

impl Guest {
    async fn plan(&self, text: &str, row: Option<&[ScalarValue]>) -> Result<LogicalPlan, Status> {
        let plan = self.session.plan_text(text).await.map_err(|error| status(&error))?;
        match row {
            Some(row) => plan.with_param_values(row.to_vec()).map_err(|error| status(&error)),
            None => Ok(plan),
        }
    }

    async fn rows(
        &self,
        text: &str,
        row: Option<&[ScalarValue]>,
    ) -> Result<Response<Data>, Status> {
        let plan = self.plan(text, row).await?;
        let run = async { self.session.run(plan).await?.execute_stream().await };
        run.await.map(answer::rows).map_err(|error| status(&error))
    }

    /// Runs a statement for what it does; returns how many rows it wrote.
    async fn update(&self, text: &str, row: Option<&[ScalarValue]>) -> Result<i64, Status> {
        let plan = self.plan(text, row).await?;
        self.run(plan).await
    }

    /// Where the rows of a plan are. What changes something is done at once, and once: a client may
    /// go on with its next statement before it asks for the rows of this one, or never ask.
    async fn info(
        &self,
        plan: LogicalPlan,
        command: &impl ProstMessageExt,
        descriptor: FlightDescriptor,
    ) -> Result<Response<FlightInfo>, Status> {
        let schema = Session::schema_of(&plan);
        if !matches!(plan, LogicalPlan::Dml(_) | LogicalPlan::Ddl(_)) {
            return info(&schema, command, descriptor);
        }
        let written = self.run(plan).await?;
        if schema.fields().is_empty() {
            return answer::nowhere(&schema, descriptor);
        }
        let count = format!("SELECT CAST({written} AS BIGINT UNSIGNED) AS count");
        info(&schema, &TicketStatementQuery { statement_handle: count.into() }, descriptor)
    }

    async fn run(&self, plan: LogicalPlan) -> Result<i64, Status> {
        let run = async { self.session.run(plan).await?.collect().await };
        let batches = run.await.map_err(|error| status(&error))?;
        Ok(counted(&batches) as i64)
    }
}

impl Statement {
    /// The one row of parameters that a query may have.
    fn row(&self) -> Result<Option<&[ScalarValue]>, Status> {
        match &self.bound[..] {
            [] => Ok(None),
            [row] => Ok(Some(row)),
            _ => Err(Status::invalid_argument("a query takes one row of parameters")),
        }
    }
}

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Service;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Handshakes>, Status> {
        let token = self.guests.log_in(request.metadata()).await?;
        let bearer = format!("Bearer {token}").parse();
        let answer = HandshakeResponse { protocol_version: 0, payload: token.into() };
        let answer: Handshakes = Box::pin(stream::iter([Ok(answer)]));
        let mut response = Response::new(answer);
        let bearer = bearer.map_err(|_| Status::internal("a token is a header"))?;
        response.metadata_mut().insert("authorization", bearer);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let plan = guest.plan(&query.query, None).await?;
        let ticket = TicketStatementQuery { statement_handle: query.query.into() };
        guest.info(plan, &ticket, request.into_inner()).await
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let text = String::from_utf8(ticket.statement_handle.to_vec());
        let text = text.map_err(|_| Status::invalid_argument("a ticket is a statement"))?;
        guest.rows(&text, None).await
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        guest.update(&command.query, None).await
    }

    async fn do_put_statement_ingest(
        &self,
        command: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let to = ingest_of(&command)?;
        let rows = batches(request.into_inner(), self.guests.memory_bytes()).await?;
        let written = guest.session.ingest(&command.table, rows, to).await;
        written.map(|rows| rows as i64).map_err(|error| status(&error))
    }

    async fn do_action_create_prepared_statement(
        &self,
        command: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let plan = guest.plan(&command.query, None).await?;
        // Clients take what answers no columns for an update.
        let is_update = matches!(plan, LogicalPlan::Dml(_) | LogicalPlan::Ddl(_));
        let schema = if is_update { no_columns() } else { Session::schema_of(&plan) };
        let parameters = plan.get_parameter_types().map_err(|error| status(&error))?;
        let mut parameters: Vec<_> = parameters.into_iter().collect();
        parameters.sort_by_key(|(name, _)| (name.len(), name.clone()));
        let fields = parameters
            .into_iter()
            .map(|(name, data_type)| Field::new(name, data_type.unwrap_or(DataType::Utf8), true));
        let parameter_schema = Schema::new(fields.collect::<Vec<_>>());
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: guest.prepared.add(command.query)?.into(),
            dataset_schema: schema_bytes(&schema)?,
            parameter_schema: schema_bytes(&parameter_schema)?,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        command: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        let guest = self.guests.find(request.metadata()).await?;
        guest.prepared.close(&command.prepared_statement_handle);
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let handle = command.prepared_statement_handle;
        bind(&guest, &handle, request.into_inner()).await?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        command: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let handle = command.prepared_statement_handle;
        bind(&guest, &handle, request.into_inner()).await?;
        let Statement { text, bound } = guest.prepared.find(&handle)?;
        if bound.is_empty() {
            return guest.update(&text, None).await;
        }
        let mut written = 0;
        for row in &bound {
            written += guest.update(&text, Some(row)).await?;
        }
        Ok(written)
    }

    async fn get_flight_info_prepared_statement(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let statement = guest.prepared.find(&command.prepared_statement_handle)?;
        let plan = guest.plan(&statement.text, statement.row()?).await?;
        guest.info(plan, &command, request.into_inner()).await
    }

    async fn do_get_prepared_statement(
        &self,
        command: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let statement = guest.prepared.find(&command.prepared_statement_handle)?;
        guest.rows(&statement.text, statement.row()?).await
    }

    async fn get_flight_info_catalogs(
        &self,
        command: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&command.into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_catalogs(
        &self,
        command: CommandGetCatalogs,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let mut rows = command.into_builder();
        rows.append(CATALOG);
        answer::batch(rows.schema(), rows.build().map_err(of_flight))
    }

    async fn get_flight_info_schemas(
        &self,
        command: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&command.clone().into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_schemas(
        &self,
        command: CommandGetDbSchemas,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let mut rows = command.into_builder();
        rows.append(CATALOG, SCHEMA);
        answer::batch(rows.schema(), rows.build().map_err(of_flight))
    }

    async fn get_flight_info_tables(
        &self,
        command: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&command.clone().into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_tables(
        &self,
        command: CommandGetTables,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let tables = guest.session.tables().await.map_err(|error| status(&error))?;
        let mut rows = command.into_builder();
        for (name, schema) in tables {
            rows.append(CATALOG, SCHEMA, name, "TABLE", &schema).map_err(Status::from)?;
        }
        answer::batch(rows.schema(), rows.build().map_err(of_flight))
    }

    async fn get_flight_info_table_types(
        &self,
        command: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&command.into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_table_types(
        &self,
        command: CommandGetTableTypes,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let mut rows = command.into_builder();
        rows.append("TABLE");
        answer::batch(rows.schema(), rows.build().map_err(of_flight))
    }

    async fn get_flight_info_sql_info(
        &self,
        command: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let facts = facts::of_sql()?;
        info(&command.clone().into_builder(&facts).schema(), &command, request.into_inner())
    }

    async fn do_get_sql_info(
        &self,
        command: CommandGetSqlInfo,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let facts = facts::of_sql()?;
        let rows = command.into_builder(&facts);
        answer::batch(rows.schema(), rows.build().map_err(of_flight))
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        command: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let types = facts::of_types()?;
        info(&command.into_builder(&types).schema(), &command, request.into_inner())
    }

    async fn do_get_xdbc_type_info(
        &self,
        command: CommandGetXdbcTypeInfo,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let types = facts::of_types()?;
        let rows = command.into_builder(&types);
        answer::batch(rows.schema(), rows.build().map_err(of_flight))
    }

    async fn get_flight_info_primary_keys(
        &self,
        command: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&facts::primary_keys_schema(), &command, request.into_inner())
    }

    async fn do_get_primary_keys(
        &self,
        command: CommandGetPrimaryKeys,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let guest = self.guests.find(request.metadata()).await?;
        let found = guest.session.definition(&command.table).await;
        let schema = facts::primary_keys_schema();
        let rows = match found.map_err(|error| status(&error))? {
            Some(definition) => facts::primary_keys(&command.table, definition.kind),
            None => Ok(RecordBatch::new_empty(Arc::clone(&schema))),
        };
        answer::batch(schema, rows)
    }

    async fn get_flight_info_exported_keys(
        &self,
        command: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&facts::foreign_keys_schema(), &command, request.into_inner())
    }

    async fn do_get_exported_keys(
        &self,
        _: CommandGetExportedKeys,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let schema = facts::foreign_keys_schema();
        answer::batch(Arc::clone(&schema), Ok(RecordBatch::new_empty(schema)))
    }

    async fn get_flight_info_imported_keys(
        &self,
        command: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&facts::foreign_keys_schema(), &command, request.into_inner())
    }

    async fn do_get_imported_keys(
        &self,
        _: CommandGetImportedKeys,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let schema = facts::foreign_keys_schema();
        answer::batch(Arc::clone(&schema), Ok(RecordBatch::new_empty(schema)))
    }

    async fn get_flight_info_cross_reference(
        &self,
        command: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&facts::foreign_keys_schema(), &command, request.into_inner())
    }

    async fn do_get_cross_reference(
        &self,
        _: CommandGetCrossReference,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let schema = facts::foreign_keys_schema();
        answer::batch(Arc::clone(&schema), Ok(RecordBatch::new_empty(schema)))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

/// Keeps the parameters that a client sends, if it sends any: an update may come with none, for
/// those that were bound before it.
async fn bind(
    guest: &Arc<Guest>,
    handle: &[u8],
    data: PeekableFlightDataStream,
) -> Result<(), Status> {
    match &batches(data, usize::MAX).await?[..] {
        [] => Ok(()),
        batches => guest.prepared.bind(handle, batches),
    }
}

/// The rows that a client sends, which fails past so many bytes.
async fn batches(
    data: PeekableFlightDataStream,
    bytes_max: usize,
) -> Result<Vec<RecordBatch>, Status> {
    let data = data.map_err(|status| FlightError::Tonic(Box::new(status)));
    let data = data.try_filter(|data| ready(!data.data_header.is_empty()));
    let mut data = FlightRecordBatchStream::new_from_flight_data(data);
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = data.try_next().await.map_err(Status::from)? {
        bytes += batch.get_array_memory_size();
        if bytes > bytes_max {
            let text = "the rows take more than --memory: send them in parts, and append";
            return Err(Status::resource_exhausted(text));
        }
        batches.push(batch);
    }
    Ok(batches)
}

/// What a client wants of the rows that it sends; fails where that cannot be.
fn ingest_of(command: &CommandStatementIngest) -> Result<Ingest, Status> {
    let is_other = |name: &Option<String>, own: &str| {
        name.as_deref().is_some_and(|name| !name.is_empty() && name != own)
    };
    if is_other(&command.catalog, CATALOG) || is_other(&command.schema, SCHEMA) {
        return Err(Status::invalid_argument(format!("tables are in {CATALOG}.{SCHEMA}")));
    }
    if command.temporary || command.transaction_id.is_some() {
        return Err(Status::invalid_argument(
            "no table is temporary, and there are no transactions",
        ));
    }
    let options = command.table_definition_options.unwrap_or_default();
    if options.if_exists() == TableExistsOption::Replace {
        return Err(Status::invalid_argument("to replace a table would delete keys: append to it"));
    }
    Ok(Ingest {
        creates: options.if_not_exist() != TableNotExistOption::Fail,
        appends: options.if_exists() == TableExistsOption::Append,
    })
}

fn of_flight(error: FlightError) -> datafusion::arrow::error::ArrowError {
    datafusion::arrow::error::ArrowError::from_external_error(Box::new(error))
}
