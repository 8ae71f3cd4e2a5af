//! The calls of Flight SQL, each as what the shell would do with its text.
//!
//! A ticket is the statement itself: to ask where rows are plans it, to ask for them runs it, and
//! nothing has to be kept between the two. What writes has run when it is asked where its rows are.

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, CommandGetCatalogs, CommandGetDbSchemas,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse, Ticket,
};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use futures::future::ready;
use futures::{Stream, TryStreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use crate::flight::answer::{self, Data, info, no_columns, schema_bytes, status};
use crate::flight::guests::{Guest, Guests};
use crate::flight::prepared::Statement;
use crate::session::{CATALOG, SCHEMA, Session};

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
        let counts = batches.iter().filter_map(|batch| {
            let counts = batch.column_by_name("count")?.as_primitive_opt::<UInt64Type>()?;
            Some(counts.values().iter().sum::<u64>())
        });
        Ok(counts.sum::<u64>() as i64)
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

fn sql_info() -> Result<SqlInfoData, Status> {
    let mut facts = SqlInfoDataBuilder::new();
    facts.append(SqlInfo::FlightSqlServerName, "Kvasir");
    facts.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    facts.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    facts.append(SqlInfo::FlightSqlServerReadOnly, false);
    facts.append(SqlInfo::FlightSqlServerSql, true);
    facts.append(SqlInfo::FlightSqlServerTransaction, 0i32);
    facts.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    facts.build().map_err(|error| Status::internal(error.to_string()))
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
        let facts = sql_info()?;
        info(&command.clone().into_builder(&facts).schema(), &command, request.into_inner())
    }

    async fn do_get_sql_info(
        &self,
        command: CommandGetSqlInfo,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.guests.find(request.metadata()).await?;
        let facts = sql_info()?;
        let rows = command.into_builder(&facts);
        answer::batch(rows.schema(), rows.build().map_err(of_flight))
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
    let data = data.map_err(|status| FlightError::Tonic(Box::new(status)));
    let data = data.try_filter(|data| ready(!data.data_header.is_empty()));
    let batches = FlightRecordBatchStream::new_from_flight_data(data).try_collect::<Vec<_>>();
    match &batches.await.map_err(Status::from)?[..] {
        [] => Ok(()),
        batches => guest.prepared.bind(handle, batches),
    }
}

fn of_flight(error: FlightError) -> datafusion::arrow::error::ArrowError {
    datafusion::arrow::error::ArrowError::from_external_error(Box::new(error))
}
