//! A snapshot in databases that nobody uses: what programs beside the server work on.
//!
//! It is loaded as a server would load it, so every byte is looked at that a server would look at,
//! and a key that occurs twice is found. It takes the memory that the server would take.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_keyspace::database::Keyspace;
use kvasir_keyspace::view::Env;
use kvasir_persistence::delay::KeyDelay;
use kvasir_persistence::load::{Entrance, FileError, Listener, Progress, Target, load};
use kvasir_persistence::rdb::unknown_module;
use kvasir_reactor::{clock, thread};
use kvasir_structures::gate::Gate;

/// More databases than any server is known to have.
const DATABASES: u16 = 1024;
/// How often a terminal is told how far it is.
const TELL: Duration = Duration::from_millis(100);

/// What was loaded.
pub struct Apart {
    pub keyspace: &'static Keyspace,
    pub gate: &'static Gate,
    pub env: Env,
    pub progress: Progress,
    pub found: Found,
}

impl Apart {
    /// Loads a snapshot, one with data of modules only if that is to be left out.
    pub fn load(path: &Path, skips_modules: bool) -> Result<Apart, FileError> {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new(1)));
        // Freeing all keys one by one would take as long as loading them.
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(gate, DATABASES)));
        let env = Env { now_ms: clock::now_unix_ms(), ..Env::default() };
        let target = Target {
            key_delay: &KeyDelay::default(),
            keyspace,
            entrance: Entrance::Gate(gate),
            env: &env,
            threads: thread::allowed_cpus().map_or(1, |cpus| cpus.len()),
            drops_expired: false,
            keeps_present: false,
        };
        let (progress, mut found, is_over) =
            (Progress::default(), Found { skips_modules, ..Found::default() }, false.into());
        std::thread::scope(|scope| {
            let tell = || tell(&progress, &is_over);
            let teller = std::thread::Builder::new().spawn_scoped(scope, tell);
            let loaded = load(path, &target, &progress, &mut found);
            is_over.store(true, Relaxed);
            teller.iter().for_each(|teller| teller.thread().unpark());
            loaded
        })?;
        Ok(Apart { keyspace, gate, env, progress, found })
    }
}

/// Says on a terminal how far it is until it is over.
fn tell(progress: &Progress, is_over: &AtomicBool) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    while !is_over.load(Relaxed) {
        std::thread::park_timeout(TELL);
        let (bytes, total) = (progress.bytes.load(Relaxed), progress.bytes_total.load(Relaxed));
        let percent = (bytes * 100).checked_div(total).unwrap_or(0);
        eprint!("\r{percent} % {} keys", progress.keys.load(Relaxed));
    }
    eprintln!();
}

/// What stands beside the keys.
#[derive(Default)]
pub struct Found {
    skips_modules: bool,
    /// Once, though each file of a set has its own.
    pub aux: BTreeMap<String, String>,
    /// The code of each.
    pub libraries: Vec<Vec<u8>>,
    /// Values of each module.
    pub modules: BTreeMap<String, usize>,
    /// Collections without elements.
    pub empty: usize,
}

impl Listener for Found {
    fn aux(&mut self, name: &[u8], value: &[u8]) {
        self.aux.insert(name.escape_ascii().to_string(), value.escape_ascii().to_string());
    }

    fn library(&mut self, code: &[u8]) -> Result<(), String> {
        self.libraries.push(code.to_owned());
        Ok(())
    }

    fn module(&mut self, module: &str, key: Option<&[u8]>) -> Result<(), String> {
        if !self.skips_modules {
            return Err(unknown_module(module, key.is_some()));
        }
        *self.modules.entry(module.to_owned()).or_default() += 1;
        Ok(())
    }

    fn empty(&mut self, _key: &[u8]) {
        self.empty += 1;
    }
}
