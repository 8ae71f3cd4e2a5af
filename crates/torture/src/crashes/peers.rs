//! The way back after a crash: Redis's checkers accept what is left, Redis and Valkey start on it.
//!
//! They work on copies: a peer that starts cuts off what is torn, and rewrites.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use kvasir_harness::link::Link;
use kvasir_harness::oracle::Oracle;
use kvasir_harness::server::{Launch, Server};

const LOG: &str = "appendonlydir";
const MANIFEST: &str = "appendonly.aof.manifest";

pub struct Peers {
    redis: Oracle,
    valkey: Oracle,
}

impl Peers {
    pub fn new() -> Result<Peers> {
        Ok(Peers { redis: Oracle::redis()?, valkey: Oracle::valkey()? })
    }

    /// Has all of them look at the files of a server that was killed; the digests of what the
    /// servers among them have loaded, unless the last group of the log is torn: of that Kvasir
    /// takes nothing, as no checksum says that it is right, and Redis what looks whole.
    pub fn digests(&self, dir: &Path) -> Result<Vec<(String, String)>> {
        let is_whole = self.check_files(dir)?;
        let mut digests = Vec::new();
        for (name, oracle) in [("redis-server", &self.redis), ("valkey-server", &self.valkey)] {
            let copy = Copy::of(dir, name)?;
            let options = format!(
                "--dir {dir} --appendonly yes --enable-debug-command yes --unixsocket {dir}/socket",
                dir = copy.0.display()
            );
            let args = options.split_whitespace().map(str::to_owned).collect();
            let launch = Launch { program: oracle.program.clone(), args, cores: None };
            let _server = Server::start(&launch).context("it does not start on what is left")?;
            let mut link = Link::connect(&copy.0.join("socket"))?;
            digests.push((name.to_owned(), digest(&mut link)?));
        }
        Ok(if is_whole { digests } else { Vec::new() })
    }

    /// By the checkers that redis-server becomes under another name, which cut off what is torn at
    /// the end of the log; says whether nothing is.
    fn check_files(&self, dir: &Path) -> Result<bool> {
        let copy = Copy::of(dir, "checkers")?;
        let log = copy.0.join(LOG);
        for entry in std::fs::read_dir(&log)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "rdb") {
                self.accept("redis-check-rdb", &[], &path)?;
            }
        }
        let manifest = log.join(MANIFEST);
        let (is_whole, _) = self.run("redis-check-aof", &[], &manifest)?;
        if !is_whole {
            // It asks whether to go on.
            self.run("redis-check-aof", &["--fix"], &manifest)?;
            self.accept("redis-check-aof", &[], &manifest)?;
        }
        Ok(is_whole)
    }

    fn accept(&self, checker: &str, options: &[&str], file: &Path) -> Result<()> {
        let (is_accepted, said) = self.run(checker, options, file)?;
        ensure!(is_accepted, "{checker} {}: {said}", file.display());
        Ok(())
    }

    fn run(&self, checker: &str, options: &[&str], file: &Path) -> Result<(bool, String)> {
        let mut command = Command::new(&self.redis.program);
        command.arg0(checker).args(options).arg(file);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{checker} can't be run"))?;
        if let Some(mut input) = child.stdin.take() {
            // One that asks nothing may have ended.
            let _ = std::io::Write::write_all(&mut input, b"y\n");
        }
        let output = child.wait_with_output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

pub fn digest(link: &mut Link) -> Result<String> {
    let reply = link.ask(&["DEBUG", "DIGEST"])?;
    let digest = reply.text().context("a digest is a text")?;
    Ok(String::from_utf8_lossy(digest).into_owned())
}

/// The files of a server, for somebody else; removed with this.
struct Copy(PathBuf);

impl Copy {
    fn of(dir: &Path, name: &str) -> Result<Copy> {
        let copy = Copy(dir.with_extension(name));
        let log = copy.0.join(LOG);
        std::fs::create_dir_all(&log)?;
        for entry in std::fs::read_dir(dir.join(LOG))? {
            let entry = entry?;
            std::fs::copy(entry.path(), log.join(entry.file_name()))?;
        }
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // What remains is in a temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
