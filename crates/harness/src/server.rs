//! A server process that lives as long as its guard.
//!
//! It gets a free port, a temporary directory as working directory, and the cores it may use. It
//! is killed when the guard is dropped, and by the kernel when xtask itself dies.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kvasir_resp::value::Value;

use crate::client::{Client, TIMEOUT};
use crate::directory::temporary_dir;

/// Longer than any server needs to start with an empty data set on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Another process may take the port between our choice and the server's bind.
const START_ATTEMPTS: u32 = 3;

/// Below those of `ip_local_port_range`.
const PORTS: Range<u16> = 10_000..32_000;
/// Processes that run at once begin so far apart.
const PORTS_APART: u32 = 101;

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    pub program: PathBuf,
    /// In redis.conf's words; `--port` is added.
    pub args: Vec<String>,
    /// A list as `taskset --cpu-list` takes it; all cores if `None`.
    pub cores: Option<String>,
}

/// Where it is found.
#[derive(Clone, Debug)]
pub struct Home {
    pub address: SocketAddr,
    /// The file of a network namespace; ours if `None`.
    pub network: Option<PathBuf>,
}

impl Home {
    /// In our own network.
    pub fn at(port: u16) -> Home {
        Home { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), network: None }
    }
}

/// A running server.
pub struct Server {
    child: Child,
    address: SocketAddr,
    dir: PathBuf,
}

impl Server {
    /// Starts the server and waits until it answers PING.
    pub fn start(launch: &Launch) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::start_at(launch, free_port()?) {
                Err(_) if attempt < START_ATTEMPTS => attempt += 1,
                other => return other,
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The working directory, which holds the log and what the options put there.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the process is still there; why it ended if it is not.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server ended with {status}; its log:\n{}", self.log()),
        }
    }

    /// Ends the process now, before the guard is dropped.
    pub fn kill(&mut self) {
        // A server that is gone already is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What the server has printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A new connection.
    pub fn client(&self) -> Result<Client> {
        Client::connect_at(self.address, TIMEOUT)
    }

    /// Sends a signal, in the words of `kill`: `-STOP`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill").args([name, &self.pid().to_string()]).status()?;
        ensure!(sent.success(), "kill {name}");
        Ok(())
    }

    /// Starts it on a port that is known to be free.
    pub fn start_at(launch: &Launch, port: u16) -> Result<Self> {
        Self::start_in(launch, &Home::at(port))
    }

    /// Starts it at a place where nobody else is.
    pub fn start_in(launch: &Launch, home: &Home) -> Result<Self> {
        let dir = temporary_dir()?;
        let log = File::create(dir.join("log"))?;
        let child = launch
            .command(home)
            // Nobody saves unless asked to.
            .args(["--save", ""])
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", launch.program.display()))?;
        let mut server = Self { child, address: home.address, dir };
        server.wait_until_ready().with_context(|| {
            format!("{} does not serve; its log:\n{}", launch.program.display(), server.log())
        })?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let mut deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}");
            }
            let reply = self.client().and_then(|mut client| client.call(&[b"PING"]));
            match reply {
                Ok(Value::Simple(text)) if text == b"PONG" => return Ok(()),
                // As long as its data takes.
                Ok(Value::Error(text)) if text.starts_with(b"LOADING") => {
                    deadline = Instant::now() + START_TIMEOUT;
                }
                // It serves those who know its password.
                Ok(Value::Error(text)) if text.starts_with(b"NOAUTH") => return Ok(()),
                _ => {}
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("no answer to PING in {START_TIMEOUT:?}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // What remains is in a temporary directory.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Launch {
    /// The same server with its files in another directory.
    pub fn with_dir(&self, dir: &Path) -> Launch {
        let mut launch = self.clone();
        launch.args.extend(["--dir".to_string(), dir.display().to_string()]);
        launch
    }

    /// `setpriv` and those behind it replace themselves, so the child's id is the server's.
    fn command(&self, home: &Home) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(network) = &home.network {
            command.arg("nsenter").arg(format!("--net={}", network.display()));
        }
        if let Some(cores) = &self.cores {
            command.args(["taskset", "--cpu-list", cores]);
        }
        let port = home.address.port().to_string();
        command.arg(&self.program).args(["--port", &port]).args(&self.args);
        command
    }
}

/// A port that nobody listens on. None is given away twice, or one server would answer for another
/// that is still starting; and none is among those that the system gives to whoever connects.
pub fn free_port() -> Result<u16> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_APART);
    for _ in PORTS {
        let place = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        let port = PORTS.start + place as u16;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_away_twice() {
        let all = |_| (0..50).map(|_| free_port().expect("some are free")).collect::<Vec<_>>();
        let ports = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || all(n))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 200);
    }
}
