//! Graphs as table functions: `pagerank('out:*', 'ITERATIONS 20')` asks GRAPH.PAGERANK_RO, and its
//! rows are nodes.
//!
//! The second argument has that command's words, so that nothing needs to be learnt twice.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use redis::Value;

use crate::node::{failed, refused};
use crate::table::Place;

/// A function: its name, the command that it asks, its column, and whether that has fractions.
struct Algorithm {
    name: &'static str,
    command: &'static str,
    column: &'static str,
    is_float: bool,
    /// Words of the command that are followed by a value, and such that are not.
    valued: &'static [&'static str],
    alone: &'static [&'static str],
}

const SOURCE_WORDS: [&str; 3] = ["SEPARATORS", "PACKED", "IDS"];

static ALGORITHMS: [Algorithm; 5] = [
    Algorithm {
        name: "pagerank",
        command: "GRAPH.PAGERANK_RO",
        column: "rank",
        is_float: true,
        valued: &["ITERATIONS", "DAMPING", "DEFINITION"],
        alone: &["WEIGHTED"],
    },
    Algorithm {
        name: "components",
        command: "GRAPH.CONNECTED_RO",
        column: "component",
        is_float: false,
        valued: &[],
        alone: &[],
    },
    Algorithm {
        name: "bfs",
        command: "GRAPH.BFS_RO",
        column: "distance",
        is_float: false,
        valued: &["ROOT", "DIRECTION", "MAXDEPTH"],
        alone: &[],
    },
    Algorithm {
        name: "degree",
        command: "GRAPH.DEGREE_RO",
        column: "degree",
        is_float: false,
        valued: &["DIRECTION"],
        alone: &["WEIGHTED"],
    },
    Algorithm {
        name: "triangles",
        command: "GRAPH.TRIANGLES_RO",
        column: "triangles",
        is_float: false,
        valued: &[],
        alone: &[],
    },
];

pub fn register(context: &SessionContext, place: &Arc<Place>) {
    for algorithm in &ALGORITHMS {
        let function = Function { algorithm, place: Arc::clone(place) };
        context.register_udtf(algorithm.name, Arc::new(function));
    }
}

struct Function {
    algorithm: &'static Algorithm,
    place: Arc<Place>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.algorithm.name)
    }
}

impl TableFunctionImpl for Function {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let name = self.algorithm.name;
        let texts: Option<Vec<_>> = args.exprs().iter().map(text).collect();
        let (source, options) = match texts.as_deref() {
            Some([source]) => (source, ""),
            Some([source, options]) => (source, options.as_str()),
            _ => {
                return plan_err!("{name}('pattern', 'OPTIONS'): one or two texts");
            }
        };
        if self.place.is_cluster {
            return plan_err!("{name}: each node of a cluster has a part of the graph only");
        }
        let options = self.algorithm.words(options)?;
        let is = |word: &str, value: Option<&str>| {
            options.iter().enumerate().any(|(at, found)| {
                let follows = || options.get(at + 1).map(|next| next.to_uppercase());
                found.eq_ignore_ascii_case(word)
                    && (value.is_none() || follows().as_deref() == value)
            })
        };
        let has_texts = is("IDS", Some("STRING"));
        let is_float = self.algorithm.is_float || is("WEIGHTED", None);
        let mut words = match source.strip_prefix("HASH ") {
            Some(key) => vec!["HASH".to_string(), key.to_string()],
            None => vec!["MATCH".to_string(), source.clone()],
        };
        words.extend(options);
        words.push("ALL".to_string());
        let node = if has_texts { DataType::Utf8 } else { DataType::Int64 };
        let value = if is_float { DataType::Float64 } else { DataType::Int64 };
        let schema = Arc::new(Schema::new(vec![
            Field::new("node", node, false),
            Field::new(self.algorithm.column, value, true),
        ]));
        let asking = Asking {
            command: self.algorithm.command,
            words,
            schema: Arc::clone(&schema),
            place: Arc::clone(&self.place),
        };
        Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(asking)])?))
    }
}

impl Algorithm {
    /// The words of its options, each of which it has to know: nothing is stored by a query.
    fn words(&self, options: &str) -> Result<Vec<String>> {
        let words = split(options);
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let upper = word.to_uppercase();
            let is_valued = self.valued.iter().chain(&SOURCE_WORDS).any(|known| *known == upper);
            if is_valued && rest.next().is_none() {
                return plan_err!("{}: {upper} wants a value", self.name);
            }
            if !is_valued && !self.alone.contains(&upper.as_str()) {
                let known: Vec<_> =
                    self.valued.iter().chain(self.alone).chain(&SOURCE_WORDS).copied().collect();
                return plan_err!("{}: '{word}' is none of {}", self.name, known.join(", "));
            }
        }
        Ok(words)
    }
}

/// Words between spaces, or between double quotes.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in text.split('"').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_string)),
            _ => words.push(part.to_string()),
        }
    }
    words
}

fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
            Some(text.clone())
        }
        _ => None,
    }
}

/// The call that computes, made when its rows are wanted.
#[derive(Debug)]
struct Asking {
    command: &'static str,
    words: Vec<String>,
    schema: SchemaRef,
    place: Arc<Place>,
}

impl PartitionStream for Asking {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&schema), 1);
        let (rows, place, command) = (builder.tx(), Arc::clone(&self.place), self.command);
        let words = self.words.clone();
        builder.spawn_blocking(move || {
            let mut connection = place.node.connect()?;
            // A graph may take its time; who does not want it any more closes the connection.
            connection.set_read_timeout(None).map_err(refused)?;
            let answer = redis::cmd(command).arg(words).query(&mut connection).map_err(refused)?;
            let batch = batch(&schema, answer)?;
            // Nobody may be there any more.
            let _ = rows.blocking_send(Ok(batch));
            Ok(())
        });
        builder.build()
    }
}

/// The pairs of the answer's `result`.
fn batch(schema: &SchemaRef, answer: Value) -> Result<RecordBatch> {
    let odd = || failed("a graph was answered oddly");
    let result = match answer {
        Value::Array(facts) => {
            let at = facts.iter().position(|fact| *fact == Value::BulkString(b"result".to_vec()));
            at.and_then(|at| facts.into_iter().nth(at + 1))
        }
        _ => None,
    };
    let Some(Value::Array(pairs)) = result else { return Err(odd()) };
    let pair = |pair: &'_ Value| match pair {
        Value::Array(pair) if pair.len() == 2 => Some((pair[0].clone(), pair[1].clone())),
        _ => None,
    };
    let pairs = pairs.iter().map(pair).collect::<Option<Vec<_>>>().ok_or_else(odd)?;
    let (nodes, values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let columns = [nodes, values].into_iter().zip(schema.fields()).map(|(values, field)| {
        Ok::<ArrayRef, redis::RedisError>(match field.data_type() {
            DataType::Utf8 => Arc::new(read_all::<String, StringArray>(&values)?),
            DataType::Float64 => Arc::new(read_all::<f64, Float64Array>(&values)?),
            _ => Arc::new(read_all::<i64, Int64Array>(&values)?),
        })
    });
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(refused)?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn read_all<T: redis::FromRedisValue, A: FromIterator<Option<T>>>(
    values: &[Value],
) -> redis::RedisResult<A> {
    let read = |value: &Value| Ok(Some(redis::from_redis_value_ref(value)?));
    values.iter().map(read).collect()
}
