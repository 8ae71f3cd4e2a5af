//! The process among others: in the background, under a service manager, before the kernel when
//! memory runs out.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{env, io};

use kvasir_config::{Config, OomScoreAdj, Supervised};
use kvasir_reactor::{limits, signal};

use crate::log::{notice, warning};

/// Set for the process that goes on in the background.
const BACKGROUND: &str = "KVASIR_BACKGROUND";
/// Where systemd wants to hear from its services.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const UPSTART_JOB: &str = "UPSTART_JOB";
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// What a process has to do that was asked to go to the background.
pub enum Role {
    /// Go on.
    Server,
    /// End: the server was started.
    Parent,
}

/// Starts this program again without a terminal, unless that was done or is not wanted. Threads do
/// not survive a fork; a fresh process has none. Returns when that one can be connected to, which
/// it tells by a byte into its standard input.
pub fn go_to_background(config: &Config) -> std::io::Result<Role> {
    if !config.daemonize {
        return Ok(Role::Server);
    }
    if env::var_os(BACKGROUND).is_some() {
        limits::start_session()?;
        return Ok(Role::Server);
    }
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(BACKGROUND, "1");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // It holds the other end as well, whose end says that the server has ended.
    drop(command);
    match ours.read(&mut [0]) {
        Ok(1) => Ok(Role::Parent),
        _ => Err(io::Error::other(format!("the server has ended, see its log: {}", child.wait()?))),
    }
}

/// The name of a file in the present directory that nobody else has.
pub fn temporary_name(what: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("temp-{}-{}.{what}", limits::pid(), COUNT.fetch_add(1, Relaxed)).into()
}

/// Tells who has started this process in the background that it can be connected to.
pub fn tell_parent() {
    if env::var_os(BACKGROUND).is_none() {
        return;
    }
    let told = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).and_then(|mut to| {
        // Anything else there is somebody's who has set the variable.
        to.peer_addr()?;
        to.write_all(b".")
    });
    if let Err(error) = told {
        notice!("nobody waits for the server in the background error={error}");
    }
}

/// Tells whoever supervises the process that it serves now.
pub fn notify_ready(config: &Config) {
    match supervisor(config) {
        Supervised::Systemd => {
            if tell_systemd("STATUS=Ready to accept connections\nREADY=1\n") {
                notice!("systemd told that the server is ready");
            }
        }
        Supervised::Upstart if env::var_os(UPSTART_JOB).is_some() => {
            notice!("stopping until upstart goes on");
            signal::stop_until_continued();
        }
        Supervised::Upstart => warning!("supervised by upstart, but {UPSTART_JOB} is not set"),
        Supervised::Auto | Supervised::No => {}
    }
}

/// Has `systemctl status` say why the server is not ready yet.
pub fn notify_loading(config: &Config) {
    if let Supervised::Systemd = supervisor(config) {
        tell_systemd("STATUS=Loading data\n");
    }
}

/// Tells systemd that the process ends of its own will, after a SHUTDOWN too. Data was saved by
/// then: from now on systemd counts the time that the end may take.
pub fn notify_stopping(config: &Config) {
    if let Supervised::Systemd = supervisor(config) {
        tell_systemd("STATUS=Ready to exit\nSTOPPING=1\n");
    }
}

/// Who wants to hear of the server.
fn supervisor(config: &Config) -> Supervised {
    match config.supervised {
        Supervised::Auto if env::var_os(UPSTART_JOB).is_some() => Supervised::Upstart,
        Supervised::Auto if env::var_os(NOTIFY_SOCKET).is_some() => Supervised::Systemd,
        wanted => wanted,
    }
}

/// Whether that was heard.
fn tell_systemd(text: &str) -> bool {
    let Some(socket) = env::var_os(NOTIFY_SOCKET) else {
        warning!("supervised by systemd, but {NOTIFY_SOCKET} is not set");
        return false;
    };
    let told = tell(socket.as_bytes(), text);
    told.inspect_err(|error| warning!("can't tell systemd error={error}")).is_ok()
}

/// A name that starts with `@` lies outside of the file system.
fn tell(socket: &[u8], text: &str) -> std::io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}

/// Tells the kernel how soon to kill this process, as the configuration wants it.
pub fn adjust_oom_score(config: &Config) -> Result<(), String> {
    static AT_START: OnceLock<i32> = OnceLock::new();
    let read = || std::fs::read_to_string(OOM_SCORE).ok()?.trim().parse().ok();
    let at_start = *AT_START.get_or_init(|| read().unwrap_or(0));
    // Of a primary, and of a replica.
    let role = usize::from(!config.replication.primary.is_empty());
    let own = config.oom_score_adj_values.get(role).and_then(|score| score.parse::<i32>().ok());
    let own = own.unwrap_or(0);
    let score = match config.oom_score_adj {
        OomScoreAdj::No => at_start,
        OomScoreAdj::Yes | OomScoreAdj::Relative => at_start.saturating_add(own),
        OomScoreAdj::Absolute => own,
    };
    let score = score.clamp(-1000, 1000);
    if read() == Some(score) {
        return Ok(());
    }
    let written = std::fs::write(OOM_SCORE, score.to_string());
    written.map_err(|error| format!("can't set the score to {score}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_is_told_by_path_and_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("kvasir-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        let abstract_name = format!("@{name}");
        let both = [(by_path, path.as_os_str().as_bytes()), (by_name, abstract_name.as_bytes())];
        for (socket, address) in both {
            tell(address, "READY=1\n").unwrap();
            let mut text = [0; 32];
            let len = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..len], b"READY=1\n");
        }
    }
}
