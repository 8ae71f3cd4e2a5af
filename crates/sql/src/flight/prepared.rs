//! Statements that a client has prepared, and the parameters that it has bound.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use tonic::Status;

/// A client that prepares more has forgotten to close them.
const STATEMENTS_MAX: usize = 1024;

/// The statements of one guest, by their handles.
#[derive(Default)]
pub struct Prepared(Mutex<HashMap<Vec<u8>, Statement>>);

#[derive(Clone)]
pub struct Statement {
    pub text: String,
    /// Rows of parameters.
    pub bound: Vec<Vec<ScalarValue>>,
}

impl Prepared {
    pub fn add(&self, text: String) -> Result<Vec<u8>, Status> {
        let mut all = self.all();
        if all.len() >= STATEMENTS_MAX {
            let text = format!("there are no more than {STATEMENTS_MAX} prepared statements");
            return Err(Status::resource_exhausted(text));
        }
        let handle = uuid::Uuid::new_v4().as_bytes().to_vec();
        all.insert(handle.clone(), Statement { text, bound: Vec::new() });
        Ok(handle)
    }

    pub fn find(&self, handle: &[u8]) -> Result<Statement, Status> {
        self.all().get(handle).cloned().ok_or_else(unknown)
    }

    pub fn bind(&self, handle: &[u8], batches: &[RecordBatch]) -> Result<(), Status> {
        let bound = batches.iter().flat_map(rows).collect::<Result<Vec<_>>>();
        let bound = bound.map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.all().get_mut(handle).ok_or_else(unknown)?.bound = bound;
        Ok(())
    }

    pub fn close(&self, handle: &[u8]) {
        self.all().remove(handle);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Statement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rows(batch: &RecordBatch) -> impl Iterator<Item = Result<Vec<ScalarValue>>> {
    (0..batch.num_rows()).map(|row| {
        let values = batch.columns().iter();
        values.map(|column| ScalarValue::try_from_array(column, row)).collect()
    })
}

fn unknown() -> Status {
    Status::not_found("this statement is not prepared, or was closed")
}
