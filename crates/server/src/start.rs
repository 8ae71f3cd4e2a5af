//! From the configuration to running workers, and the orderly end.

use std::process::ExitCode;
use std::sync::mpsc;

use kvasir_keyspace::database::Keyspace;
use kvasir_reactor::{BackendChoice, Listener, Options, Reactor, Waker, clock};
use kvasir_structures::gate::Gate;

use crate::config::Config;
use crate::shared::{Facts, Shared};
use crate::worker::Worker;

pub fn main() -> ExitCode {
    let config = Config::from_args();
    let listener = Listener::tcp(([127, 0, 0, 1], config.port).into(), 511).expect("listen");
    let (ready, wakers) = mpsc::channel::<(usize, Waker)>();
    let mut starts = Vec::new();
    let mut threads = Vec::new();
    let mut listener = Some(listener);
    for index in 0..config.io_threads {
        let (start, begin) = mpsc::channel::<&'static Shared>();
        starts.push(start);
        let ready = ready.clone();
        let options = Options {
            backend: match config.io_backend.as_str() {
                "epoll" => BackendChoice::Epoll,
                "io_uring" => BackendChoice::Uring,
                _ => BackendChoice::Auto,
            },
            ..Options::default()
        };
        let listener = listener.take();
        threads.push(std::thread::spawn(move || {
            let mut reactor = Reactor::new(&options).expect("reactor");
            ready.send((index, reactor.waker())).unwrap();
            let shared = begin.recv().unwrap();
            if let Some(listener) = listener {
                reactor.listen(listener);
            }
            Worker::new(index, shared, reactor).run()
        }));
    }
    let mut all: Vec<(usize, Waker)> = wakers.iter().take(config.io_threads).collect();
    all.sort_by_key(|(index, _)| *index);
    let gate: &'static Gate = Box::leak(Box::new(Gate::new(config.io_threads)));
    let facts = Facts {
        run_id: "0".repeat(40),
        started_ms: clock::now_unix_ms(),
        backend: String::new(),
        executable: String::new(),
        config_file: String::new(),
        hash_seed: 1,
        maxclients: 10000,
    };
    let keyspace = Keyspace::new(gate, config.databases);
    let shared: &'static Shared = Box::leak(Box::new(Shared::new(
        gate,
        keyspace,
        config,
        facts,
        all.into_iter().map(|(_, waker)| waker).collect(),
    )));
    starts.iter().for_each(|start| start.send(shared).unwrap());
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    ExitCode::SUCCESS
}
