//! PySpark, half a gigabyte, below `target/programs/spark`, where a test or a benchmark asks for it.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::oracle::create_venv;
use crate::workspace::{apt_install, command, run, target_dir, which};

const PACKAGES: [&str; 5] =
    ["pyspark==4.1.3", "pyarrow==21.0.0", "pandas==3.1.1", "numpy==2.4.6", "redis==6.4.0"];

/// Installs what lacks; returns the Python that has it.
pub fn python() -> Result<PathBuf> {
    if which("java").is_none() {
        apt_install(&["default-jre-headless"])?;
    }
    let venv = target_dir().join("programs/spark");
    let (python, installed) = (venv.join("bin/python"), venv.join("installed.txt"));
    let wanted = PACKAGES.join("\n");
    if !fs::read_to_string(&installed).is_ok_and(|there| there == wanted) {
        println!("installing {} into {}", PACKAGES.join(" "), venv.display());
        create_venv(&venv)?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(command(&python).args(pip).args(PACKAGES))?;
        fs::write(&installed, wanted)?;
    }
    Ok(python)
}
