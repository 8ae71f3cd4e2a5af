//! Rows that wait until all of them were looked at: a statement that has to fail has written
//! nothing. What has no room in memory goes to a temporary file, as that of sorts and joins does.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::BufReader;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SpillFile, SpillWriter};

/// What a name takes in a table of names.
const NAME_BYTES: usize = 40;

/// Batches, in the order in which they came.
pub struct Held {
    runtime: Arc<RuntimeEnv>,
    reservation: MemoryReservation,
    bytes_max: usize,
    batches: Vec<RecordBatch>,
    /// Those that came when memory was full.
    spilled: Option<Spilled>,
}

struct Spilled {
    file: Arc<dyn SpillFile>,
    /// Until all are there.
    writer: Option<StreamWriter<Box<dyn SpillWriter>>>,
}

impl Spilled {
    fn new(runtime: &RuntimeEnv, schema: &Schema) -> Result<Spilled> {
        let file = runtime.disk_manager.create_tmp_file("rows to be written")?;
        let writer = StreamWriter::try_new(file.open_writer()?, schema)?;
        Ok(Spilled { writer: Some(writer), file })
    }

    fn read(&mut self) -> Result<StreamReader<BufReader<File>>> {
        if let Some(writer) = self.writer.take() {
            writer.into_inner()?.finish()?;
        }
        let Some(path) = self.file.path() else {
            return internal_err!("a spilled file has a path");
        };
        Ok(StreamReader::try_new(BufReader::new(File::open(path)?), None)?)
    }
}

impl Held {
    pub fn new(runtime: &Arc<RuntimeEnv>) -> Held {
        let consumer = MemoryConsumer::new("rows to be written").with_can_spill(true);
        let reservation = consumer.register(&runtime.memory_pool);
        // The query itself, and the names of its rows, want memory too.
        let bytes_max = match runtime.memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / 4,
            _ => usize::MAX,
        };
        let runtime = Arc::clone(runtime);
        Held { runtime, reservation, bytes_max, batches: Vec::new(), spilled: None }
    }

    pub fn add(&mut self, batch: RecordBatch) -> Result<()> {
        let bytes = batch.get_array_memory_size();
        let has_room = self.reservation.size() + bytes <= self.bytes_max;
        if self.spilled.is_none() && has_room && self.reservation.try_grow(bytes).is_ok() {
            self.batches.push(batch);
            return Ok(());
        }
        if self.spilled.is_none() {
            self.spilled = Some(Spilled::new(&self.runtime, &batch.schema())?);
        }
        match self.spilled.as_mut().and_then(|spilled| spilled.writer.as_mut()) {
            Some(writer) => Ok(writer.write(&batch)?),
            None => internal_err!("all rows were there"),
        }
    }

    /// Gives all of them, one after the other; no more come then.
    pub fn for_each(&mut self, mut take: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        self.batches.iter().try_for_each(&mut take)?;
        if let Some(spilled) = &mut self.spilled {
            for batch in spilled.read()? {
                take(&batch?)?;
            }
        }
        Ok(())
    }
}

/// Names that were seen, to find one that comes twice. Each is kept as 128 bits of two hashes that
/// nobody can foresee: two names that share them are not met with.
pub struct Seen {
    reservation: MemoryReservation,
    hashers: [RandomState; 2],
    names: HashSet<[u64; 2]>,
}

impl Seen {
    pub fn new(runtime: &RuntimeEnv) -> Seen {
        let reservation = MemoryConsumer::new("names of rows").register(&runtime.memory_pool);
        let hashers = [RandomState::new(), RandomState::new()];
        Seen { reservation, hashers, names: HashSet::new() }
    }

    /// Whether it is the first of its name; fails if there is no memory for more of them.
    pub fn is_first(&mut self, name: &[&[u8]]) -> Result<bool> {
        let wanted = self.names.len().next_power_of_two() * NAME_BYTES;
        if wanted > self.reservation.size() {
            self.reservation.try_resize(wanted)?;
        }
        let [one, other] = &self.hashers;
        Ok(self.names.insert([one.hash_one(name), other.hash_one(name)]))
    }
}
