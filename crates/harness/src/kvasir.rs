//! The server of this repository, as the tools start it.

use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Result;

use crate::server::Launch;
use crate::workspace::{cargo, run, target_dir};

/// The backends of its I/O.
pub const BACKENDS: [&str; 2] = ["io_uring", "epoll"];

/// Which of them a tool uses.
#[derive(clap::Args)]
pub struct Backends {
    /// Only this I/O backend
    #[arg(long, value_parser = BACKENDS)]
    backend: Option<String>,
}

impl Backends {
    pub fn each(&self, mut work: impl FnMut(&str) -> Result<()>) -> Result<()> {
        let is_wanted = |name: &&str| self.backend.as_deref().is_none_or(|only| only == *name);
        BACKENDS.into_iter().filter(is_wanted).try_for_each(&mut work)
    }
}

/// The release program, where cargo puts it: what is measured.
pub fn path() -> PathBuf {
    target_dir().join("release/kvasir-server")
}

/// The optimised program that tests load, built once by each run of a tool.
pub fn program() -> Result<PathBuf> {
    static IS_BUILT: Mutex<bool> = Mutex::new(false);
    let mut is_built = IS_BUILT.lock().expect("who builds does not panic");
    if !*is_built {
        run(&mut cargo(&["build", "--profile", "tested", "-p", "kvasir-server"]))?;
        *is_built = true;
    }
    Ok(target_dir().join("tested/kvasir-server"))
}

/// How it is started on a backend with so many workers, and the unix socket `socket`.
pub fn launch(backend: &str, workers: usize, options: &[&str]) -> Result<Launch> {
    Ok(launch_build(program()?, backend, workers, options))
}

/// The same with a build of its own.
pub fn launch_build(program: PathBuf, backend: &str, workers: usize, options: &[&str]) -> Launch {
    let line = format!("--unixsocket socket --io-threads {workers} --io-backend {backend}");
    let args = line.split(' ').chain(options.iter().copied()).map(str::to_string).collect();
    Launch { program, args, cores: None }
}
