//! redis-rs writes to a cluster until its input ends, then reads all that was acknowledged.
//!
//! cluster PORT
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{Read, stdin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{ErrorKind, RedisError, RedisResult, TypedCommands};

const WRITERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(20);

/// What was seen of a cluster.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<(String, String)>,
    errors: BTreeMap<String, usize>,
    longest: Duration,
}

fn kind(error: &RedisError) -> String {
    match error.kind() {
        _ if error.is_timeout() => "timeout".into(),
        ErrorKind::Io => "network".into(),
        kind => error.code().map_or_else(|| format!("{kind:?}"), str::to_owned),
    }
}

fn connect(client: &ClusterClient) -> RedisResult<ClusterConnection> {
    let connection = client.get_connection()?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    Ok(connection)
}

fn write(client: &ClusterClient, writer: usize, is_over: &AtomicBool, seen: &Mutex<Seen>) {
    let mut connection = None;
    for number in 1.. {
        if is_over.load(Relaxed) {
            break;
        }
        let (key, value, since) =
            (format!("{writer}:{number}"), number.to_string(), Instant::now());
        let result = match connection.take().map_or_else(|| connect(client), Ok) {
            Ok(mut open) => {
                let result = open.set(&key, &value);
                connection = Some(open);
                result
            }
            Err(error) => Err(error),
        };
        let mut seen = seen.lock().expect("nobody panics with it");
        match result {
            Ok(()) => seen.acknowledged.push((key, value)),
            Err(error) => *seen.errors.entry(kind(&error)).or_default() += 1,
        }
        seen.longest = seen.longest.max(since.elapsed());
        drop(seen);
        thread::sleep(PAUSE);
    }
}

/// A cluster may need a moment; what is not there is not there.
fn read(
    client: &ClusterClient,
    key: &str,
    connection: &mut Option<ClusterConnection>,
) -> RedisResult<Option<String>> {
    let since = Instant::now();
    loop {
        let result = match connection.take().map_or_else(|| connect(client), Ok) {
            Ok(mut open) => open.get(key).inspect(|_| *connection = Some(open)),
            Err(error) => Err(error),
        };
        if result.is_ok() || since.elapsed() > PATIENCE {
            return result;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn main() -> RedisResult<()> {
    let port = std::env::args().nth(1).expect("a port");
    let client = ClusterClient::new(vec![format!("redis://127.0.0.1:{port}")])?;
    let (is_over, seen) = (AtomicBool::new(false), Mutex::<Seen>::default());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (client, is_over, seen) = (&client, &is_over, &seen);
            scope.spawn(move || write(client, writer, is_over, seen));
        }
        // Whether it ends well or not, it ends.
        let _ = stdin().read_to_end(&mut Vec::new());
        is_over.store(true, Relaxed);
    });
    let seen = seen.into_inner().expect("nobody panics with it");
    let (mut lost, mut connection) = (0, None);
    for (key, value) in &seen.acknowledged {
        lost += usize::from(read(&client, key, &mut connection)?.as_ref() != Some(value));
    }
    let errors = seen.errors.iter().map(|(kind, count)| format!("\"{kind}\": {count}"));
    println!(
        "{{\"client\": \"redis-rs 1.8.1\", \"acknowledged\": {}, \"errors\": {{{}}}, \"lost\": {lost}, \
         \"longest_ms\": {}}}",
        seen.acknowledged.len(),
        errors.collect::<Vec<_>>().join(", "),
        seen.longest.as_millis()
    );
    Ok(())
}
