//! Where things are in the repository, and how other programs are run.
//!
//! Every program gets an empty stdin, so that no step can wait for a person. What a failing
//! program was asked to do stands in its error.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the checkout that `cargo xtask` was called in.
pub fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    Path::new(&manifest).ancestors().nth(2).expect("a crate lies two below").to_path_buf()
}

/// Cargo's output folder; everything that is made or installed goes below it.
pub fn target_dir() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A program to be run in the root, without stdin and without what `cargo run` set for xtask.
pub fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir(root()).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    // Who looks on while a test is built does not look on at what the test builds.
    command.env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

/// `cargo` of the toolchain that runs xtask.
pub fn cargo(args: &[&str]) -> Command {
    let mut cargo = command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args);
    cargo
}

/// `cargo` of the nightly toolchain, which is installed first if there is none.
pub fn nightly_cargo(args: &[&str]) -> Result<Command> {
    let list = output(command("rustup").args(["toolchain", "list"]))
        .context("nightly is needed, and rustup is not here to provide it")?;
    if !list.lines().any(|line| line.starts_with("nightly")) {
        println!("installing the nightly toolchain");
        let install = ["toolchain", "install", "nightly", "--profile", "minimal"];
        run(command("rustup").args(install))?;
    }
    let mut cargo = command("rustup");
    cargo.args(["run", "nightly", "cargo"]).args(args);
    Ok(cargo)
}

/// The triple of this machine, which builds with a sanitizer must name.
pub fn host_triple() -> Result<String> {
    let version = output(command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_string())
}

/// Shows the command, runs it with its output visible, fails if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", describe(command));
    let status = command.status().with_context(|| format!("cannot run {}", describe(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", describe(command));
    }
    Ok(())
}

/// Runs the command silently and returns what it printed; its errors are part of the failure.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", describe(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", describe(command), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where a program lies on the PATH.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Installs Debian packages, as root or through sudo, without a question.
pub fn apt_install(packages: &[&str]) -> Result<()> {
    println!("installing Debian packages: {}", packages.join(" "));
    let install = [&["install", "-y", "--no-install-recommends"], packages].concat();
    if run(&mut apt_get(&install)).is_ok() {
        return Ok(());
    }
    println!("apt-get knows no such package yet; reading the package lists");
    run(&mut apt_get(&["update"]))?;
    run(&mut apt_get(&install))
}

/// `apt-get` with the rights it needs.
pub fn apt_get(args: &[&str]) -> Command {
    let mut apt = as_root("apt-get");
    apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

/// A program run as root: directly if we are, else through sudo, which may not ask.
pub fn as_root(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return command(program);
    }
    let mut sudo = command("sudo");
    sudo.args(["--non-interactive", "--preserve-env=DEBIAN_FRONTEND", program]);
    sudo
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
