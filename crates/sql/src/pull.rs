//! One stream of EXPORT: what is asked for, and the record batches as they are pulled.

use std::collections::BTreeSet;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::error::Result;
use redis::{Cmd, Connection, Value};

use crate::definition::Kind;
use crate::node::{Part, Range, failed, refused};

/// What is asked of a node.
#[derive(Clone, Debug)]
pub struct Wish {
    pub pattern: Option<String>,
    pub keys: Option<BTreeSet<String>>,
    pub slots: Option<Range>,
    pub kind: Option<Kind>,
    /// Names and types.
    pub columns: Vec<(String, &'static str)>,
    pub nulls_misfits: bool,
}

impl Wish {
    fn call(&self) -> Cmd {
        let mut call = redis::cmd("EXPORT");
        call.arg("BEGIN");
        if let Some(pattern) = &self.pattern {
            call.arg("MATCH").arg(pattern);
        }
        if let Some(keys) = &self.keys {
            call.arg("KEYS").arg(keys.len());
            for key in keys {
                call.arg(key);
            }
        }
        if let Some((first, last)) = self.slots {
            call.arg("SLOTS").arg(first).arg(last);
        }
        if let Some(kind) = self.kind {
            call.arg("TYPE").arg(kind.name());
        }
        call.arg("ONMISFIT").arg(if self.nulls_misfits { "NULL" } else { "FAIL" });
        call.arg("COLUMNS");
        for (name, data_type) in &self.columns {
            call.arg(name).arg("AS").arg(*data_type);
        }
        call
    }
}

/// A stream that is being pulled; the server forgets it when this is dropped.
pub struct Pull {
    connection: Connection,
    id: u64,
    decoder: StreamDecoder,
    buffer: Buffer,
    has_ended: bool,
    pub pulled_bytes: u64,
}

impl Pull {
    /// Begins: the stream shows the node's keys as they are now.
    pub fn begin(part: &Part, wish: &Wish) -> Result<Pull> {
        let mut connection = part.node.connect()?;
        let ids: Vec<u64> = wish.call().query(&mut connection).map_err(refused)?;
        let [id] = ids[..] else { return Err(failed("EXPORT BEGIN answered oddly")) };
        let (decoder, buffer) = (StreamDecoder::new(), Buffer::from_vec(Vec::<u8>::new()));
        let mut pull = Pull { connection, id, decoder, buffer, has_ended: false, pulled_bytes: 0 };
        // Slots that came or went between who has what was asked and now would be seen twice, or
        // by nobody.
        if !part.ranges.is_empty() && part.node.own_ranges(&mut pull.connection)? != part.ranges {
            let text = format!("{:?} has other slots than a moment ago: ask again", part.node);
            return Err(failed(text));
        }
        Ok(pull)
    }

    /// The next rows, waited for as long as they are wanted; `None` at the end.
    pub fn next(&mut self, is_wanted: impl Fn() -> bool) -> Result<Option<RecordBatch>> {
        while !self.has_ended && is_wanted() {
            if let Some(batch) = self.decoder.decode(&mut self.buffer)? {
                return Ok(Some(batch));
            }
            let mut call = redis::cmd("EXPORT");
            match call.arg("NEXT").arg(self.id).query(&mut self.connection) {
                Ok(Value::BulkString(bytes)) => {
                    self.pulled_bytes += bytes.len() as u64;
                    self.buffer = Buffer::from_vec(bytes);
                }
                Ok(Value::Nil) => {
                    self.has_ended = true;
                    self.decoder.finish()?;
                }
                Ok(_) => return Err(failed("EXPORT NEXT answered oddly")),
                Err(error) => {
                    // A stream that has failed is none any more.
                    self.has_ended = true;
                    return Err(refused(error));
                }
            }
        }
        Ok(None)
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        if !self.has_ended {
            // The connection's end would do the same.
            let _ = redis::cmd("EXPORT").arg("END").arg(self.id).exec(&mut self.connection);
        }
    }
}
