//! `cargo xtask memcached-clients`: memcached's clients, each with its own tests, against Kvasir
//! and against memcached.
//!
//! A test that passes on memcached and not on Kvasir is a fault of Kvasir. What the tests are and
//! where they come from stands in `programs/memcached_suites.py`; what is fetched or installed lies
//! below `target/memcached-clients`. No registry has the tests of two clients: they are read from
//! clones in `SUITES_DIR`, and are left out, with a line, where there are none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kvasir_harness::kvasir::{self, BACKENDS};
use kvasir_harness::memcached::{Memcached, Place};
use kvasir_harness::oracle::Oracle;
use kvasir_harness::python::venv;
use kvasir_harness::server::{Server, free_port};
use kvasir_harness::workspace::{apt_install, command, output, root, target_dir, which};

/// Of a client, the program that its tests need beside Python, and Debian's packages for it.
struct Client {
    name: &'static str,
    program: &'static str,
    packages: &'static [&'static str],
}

static CLIENTS: &[Client] = &[
    Client { name: "pymemcache", program: "python3", packages: &[] },
    Client { name: "python-memcached", program: "python3", packages: &[] },
    Client { name: "pylibmc", program: "memcping", packages: &LIBMEMCACHED },
    Client { name: "django", program: "python3", packages: &[] },
    Client { name: "gomemcache", program: "go", packages: &["golang-go"] },
    Client { name: "xmemcached", program: "mvn", packages: &["maven"] },
    Client { name: "php-sessions", program: "php", packages: &["php-cli", "php-memcached"] },
];

/// For pylibmc, whose source is built.
const LIBMEMCACHED: [&str; 3] = ["libmemcached-tools", "libmemcached-dev", "zlib1g-dev"];

#[derive(clap::Args)]
pub struct Options {
    /// Only these clients
    names: Vec<String>,
    /// Kvasir's I/O backend
    #[arg(long, default_value = "io_uring", value_parser = BACKENDS)]
    backend: String,
    /// Kvasir's program, instead of building it
    #[arg(long, value_name = "PATH")]
    kvasir: Option<PathBuf>,
}

/// Tests by name, and whether each has passed.
type Results = BTreeMap<String, bool>;

pub fn main(options: &Options) -> Result<()> {
    let known = |name: &String| CLIENTS.iter().any(|client| client.name == *name);
    if let Some(name) = options.names.iter().find(|name| !known(name)) {
        let names: Vec<_> = CLIENTS.iter().map(|client| client.name).collect();
        bail!("no client {name}; the clients are {}", names.join(", "));
    }
    let is_wanted =
        |client: &&Client| options.names.is_empty() || options.names.contains(&client.name.into());
    let program = match &options.kvasir {
        Some(program) => fs::canonicalize(program)?,
        None => kvasir::program()?,
    };
    let theirs = Oracle::memcached()?;
    let mut faults = Vec::new();
    for client in CLIENTS.iter().filter(is_wanted) {
        if which(client.program).is_none() {
            apt_install(client.packages)?;
        }
        python()?;
        if client.needs_clone() {
            println!(
                "{}: left out, there is no clone of it in {}",
                client.name,
                suites().display()
            );
            continue;
        }
        let on_kvasir = client.on_kvasir(&program, &options.backend)?;
        let on_memcached = client.on_memcached(&theirs.program)?;
        faults.extend(tell(client.name, &on_kvasir, &on_memcached));
    }
    ensure!(faults.is_empty(), "passed on memcached only: {}", faults.join(", "));
    Ok(())
}

/// Prints how many passed on each; the tests that passed on memcached only.
fn tell(name: &str, ours: &Results, theirs: &Results) -> Vec<String> {
    let passed = |results: &Results| results.values().filter(|passed| **passed).count();
    println!(
        "{name}: {} of {} on Kvasir, {} of {} on memcached",
        passed(ours),
        ours.len(),
        passed(theirs),
        theirs.len()
    );
    let fails = |name: &String| !ours.get(name).copied().unwrap_or(false);
    let both = theirs.iter().filter(|(test, passed)| !**passed && fails(test));
    both.for_each(|(test, _)| println!("  fails on both: {test}"));
    let faults = theirs.iter().filter(|(test, passed)| **passed && fails(test));
    faults.map(|(test, _)| format!("{name} {test}")).collect()
}

impl Client {
    fn needs_clone(&self) -> bool {
        ["python-memcached", "xmemcached"].contains(&self.name)
            && !suites().join(self.name).is_dir()
    }

    fn on_kvasir(&self, program: &Path, backend: &str) -> Result<Results> {
        let port = free_port()?;
        let options = ["--memcached-port", &port.to_string()];
        let launch = kvasir::launch_build(program.to_path_buf(), backend, 2, &options);
        let mut server = Server::start(&launch)?;
        let as_memcached = format!("{} memcached", program.display());
        let results = self.run(port, &as_memcached).context("on Kvasir")?;
        server.check_alive()?;
        Ok(results)
    }

    fn on_memcached(&self, program: &Path) -> Result<Results> {
        let port = free_port()?;
        let _server = Memcached::start(program, Place::Port(port), &["-t", "2"], None)?;
        let as_root = format!("{} -u root", program.display());
        self.run(port, &as_root).context("on memcached")
    }

    fn run(&self, port: u16, program: &str) -> Result<Results> {
        let script = root().join("crates/torture/programs/memcached_suites.py");
        let mut call = command(python()?);
        call.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg(self.name);
        let text = output(call.arg(port.to_string()).arg(program).arg(folder()))?;
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line).with_context(|| format!("{}: {text}", self.name))
    }
}

fn suites() -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default().join(".cache/kvasir-suites/src");
    std::env::var_os("SUITES_DIR").map_or_else(home, PathBuf::from)
}

fn folder() -> PathBuf {
    target_dir().join("memcached-clients")
}

fn python() -> Result<PathBuf> {
    let wanted = root().join("crates/torture/programs/memcached_requirements.txt");
    venv(&folder().join("venv"), &fs::read_to_string(wanted)?)
}
