//! memcached itself, in a process of its own: what its clients expect, and what it costs.

use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Where it listens.
#[derive(Clone, Debug)]
pub enum Place {
    Socket(PathBuf),
    /// Of this machine's own address.
    Port(u16),
}

/// A running memcached; it is killed when this is dropped, and by the kernel when we die.
pub struct Memcached {
    process: Child,
    place: Place,
}

impl Memcached {
    /// Starts it, and waits until it listens. `cores`: those that it may use, as `taskset` takes
    /// them; all if `None`.
    pub fn start(
        program: &Path,
        place: Place,
        args: &[&str],
        cores: Option<&str>,
    ) -> Result<Memcached> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(cores) = cores {
            command.args(["taskset", "--cpu-list", cores]);
        }
        command.arg(program).args(["-u", "root"]);
        match &place {
            Place::Socket(path) => command.arg("-s").arg(path),
            Place::Port(port) => {
                command.args(["-U", "0", "-l", "127.0.0.1", "-p", &port.to_string()])
            }
        };
        let process = command.args(args).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut memcached = Memcached { process, place };
        let start = Instant::now();
        while !memcached.listens() {
            if let Some(status) = memcached.process.try_wait()? {
                bail!("memcached has ended with {status}");
            }
            ensure!(start.elapsed() < START_TIMEOUT, "memcached does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(memcached)
    }

    fn listens(&self) -> bool {
        match &self.place {
            Place::Socket(path) => UnixStream::connect(path).is_ok(),
            Place::Port(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // One that is gone already is what we want.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Place::Socket(path) = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }
}
