//! A network for each node, all of them joined by a bridge, and none of it seen by anybody else.
//!
//! The command runs itself again in a network and a tree of mounts of its own. What is made there,
//! networks, links and folders, goes with its last process, whatever ends it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use kvasir_harness::server::Home;
use kvasir_harness::workspace::which;

/// Hidden by an empty one: there `ip` keeps its networks, and servers have their folders.
const HIDDEN: &str = "/run";
/// Nobody has this address.
const NOBODY: &str = "02:00:00:00:ff:ff";
const OURS: u8 = 254;
const PORT: u16 = 6379;

/// Whether all that is needed is there.
pub fn check() -> Result<()> {
    let needed = [
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
        ("mount", "mount"),
    ];
    for (program, package) in needed {
        if which(program).is_none() {
            bail!("{program} is not on the PATH: each node needs a network (package {package})");
        }
    }
    let output = leave().arg("true").output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("no right to make a network for each node, root has it: {}", why.trim());
    }
    Ok(())
}

/// Runs this program again, alone with what it makes; returns if that fails only.
pub fn enter(program: &Path) -> Result<()> {
    let mut again = leave();
    again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    again.arg("--inside").arg(program).env("TMPDIR", HIDDEN);
    Err(again.exec()).context("unshare")
}

fn leave() -> Command {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    unshare.args(["--net", "--mount"]);
    unshare
}

/// What all networks share: a bridge, at which clients are, too.
pub fn furnish() -> Result<()> {
    run("mount", &format!("-t tmpfs kvasir {HIDDEN}"))?;
    ip("link add bridge type bridge")?;
    ip(&format!("address add {}/24 dev bridge", address(OURS)))?;
    ip("link set bridge up")?;
    ip("link set lo up")
}

/// A new network at the bridge, for a node that nobody else has been.
pub fn join(node: usize) -> Result<Home> {
    let (name, ip_address) = (name(node), address_of(node));
    ip(&format!("netns add {name}"))?;
    ip(&format!("link add port{node} type veth peer name eth0 netns {name}"))?;
    ip(&format!("link set port{node} master bridge up"))?;
    ip(&format!("-n {name} address add {ip_address}/24 dev eth0"))?;
    ip(&format!("-n {name} link set eth0 up"))?;
    ip(&format!("-n {name} link set lo up"))?;
    let network = Some(PathBuf::from(format!("{HIDDEN}/netns/{name}")));
    Ok(Home { address: SocketAddr::from((ip_address, PORT)), network })
}

/// The networks of a cluster that is over.
pub fn remove(nodes: usize) -> Result<()> {
    (0..nodes).try_for_each(|node| {
        // By itself the link goes a moment after its network.
        ip(&format!("link delete port{node}"))?;
        ip(&format!("netns delete {}", name(node)))
    })
}

/// What two nodes send each other is lost from now on; nobody is told.
pub fn cut(one: usize, other: usize) -> Result<()> {
    for (from, to) in [(one, other), (other, one)] {
        let (name, to) = (name(from), address_of(to));
        ip(&format!("-n {name} neighbour replace {to} lladdr {NOBODY} nud permanent dev eth0"))?;
    }
    Ok(())
}

/// It arrives again.
pub fn mend(one: usize, other: usize) -> Result<()> {
    for (from, to) in [(one, other), (other, one)] {
        ip(&format!("-n {} neighbour delete {} dev eth0", name(from), address_of(to)))?;
    }
    Ok(())
}

/// Whose address it is.
pub fn node_at(address: &str) -> Option<usize> {
    let last: u8 = address.strip_suffix(&format!(":{PORT}"))?.rsplit('.').next()?.parse().ok()?;
    usize::from(last).checked_sub(1)
}

fn name(node: usize) -> String {
    format!("node{node}")
}

fn address_of(node: usize) -> Ipv4Addr {
    address(node as u8 + 1)
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 83, 0, last)
}

fn ip(line: &str) -> Result<()> {
    run("ip", line)
}

fn run(program: &str, line: &str) -> Result<()> {
    let output = Command::new(program).args(line.split(' ')).output()?;
    if !output.status.success() {
        bail!("{program} {line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_known_by_their_addresses() {
        assert_eq!(node_at("10.83.0.1:6379"), Some(0));
        assert_eq!(node_at("10.83.0.6:6379"), Some(5));
        assert_eq!(node_at("10.83.0.6:7000"), None);
        assert_eq!(node_at(":6379"), None);
    }
}
