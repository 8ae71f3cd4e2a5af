//! What is answered, in Flight's forms.

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::ProstMessageExt;
use arrow_flight::{
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use prost::bytes::Bytes;
use tonic::{Response, Status};

pub type Data = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// The rows of a query as they come.
pub fn rows(batches: SendableRecordBatchStream) -> Response<Data> {
    let schema = batches.schema();
    let batches = batches.map_err(|error| FlightError::Tonic(Box::new(status(&error))));
    let data = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
    Response::new(Box::pin(data.map_err(Status::from)))
}

/// A few rows that are there already.
pub fn batch(
    schema: SchemaRef,
    batch: Result<RecordBatch, ArrowError>,
) -> Result<Response<Data>, Status> {
    let batch = batch.map_err(|error| Status::internal(error.to_string()))?;
    let data = FlightDataEncoderBuilder::new().with_schema(schema);
    let data = data.build(stream::once(async { Ok(batch) })).map(|data| data.map_err(Status::from));
    Ok(Response::new(Box::pin(data)))
}

/// Where rows are to be had: here, for a ticket that is a command.
pub fn info(
    schema: &Schema,
    command: &impl ProstMessageExt,
    descriptor: FlightDescriptor,
) -> Result<Response<FlightInfo>, Status> {
    let ticket = Ticket::new(command.as_any().encode_to_vec());
    let info = FlightInfo::new().try_with_schema(schema);
    let info = info.map_err(|error| Status::internal(error.to_string()))?;
    let endpoint = FlightEndpoint::new().with_ticket(ticket);
    Ok(Response::new(info.with_endpoint(endpoint).with_descriptor(descriptor)))
}

/// There are no rows.
pub fn nowhere(
    schema: &Schema,
    descriptor: FlightDescriptor,
) -> Result<Response<FlightInfo>, Status> {
    let info = FlightInfo::new().try_with_schema(schema);
    let info = info.map_err(|error| Status::internal(error.to_string()))?;
    Ok(Response::new(info.with_descriptor(descriptor)))
}

pub fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: Result<IpcMessage, ArrowError> = SchemaAsIpc::new(schema, &options).try_into();
    message.map(|IpcMessage(bytes)| bytes).map_err(|error| Status::internal(error.to_string()))
}

/// What a client is told of an error.
pub fn status(error: &DataFusionError) -> Status {
    let text = error.strip_backtrace();
    let says = |code: &str| text.contains(code);
    if says("WRONGPASS") || says("NOAUTH") || says("authentication failed") {
        return Status::unauthenticated(text);
    }
    if says("NOPERM") {
        return Status::permission_denied(text);
    }
    match error.find_root() {
        DataFusionError::Plan(_)
        | DataFusionError::SQL(..)
        | DataFusionError::SchemaError(..)
        | DataFusionError::NotImplemented(_) => Status::invalid_argument(text),
        DataFusionError::ResourcesExhausted(_) => Status::resource_exhausted(text),
        _ => Status::internal(text),
    }
}

/// A schema with no columns: of a statement that answers no rows.
pub fn no_columns() -> SchemaRef {
    Arc::new(Schema::empty())
}
