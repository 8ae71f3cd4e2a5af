//! Virtual environments of Python, each with what its use names, and Spark's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::workspace::{apt_install, command, output, run, target_dir, which};

/// Half a gigabyte.
const SPARK: &str = "pyspark==4.1.3\npyarrow==21.0.0\npandas==3.1.1\nnumpy==2.4.6\nredis==6.4.0\n";

/// What came later, and has changed what sources call.
const SPARK_NEWEST: &str =
    "pyspark==4.3.0\npyarrow==26.0.1\npandas==3.1.1\nnumpy==2.4.6\nredis==6.4.0\n";

/// The Python of a virtual environment in `folder`, which is made anew unless it was made of the
/// same requirements: pip's, a line each.
pub fn venv(folder: &Path, requirements: &str) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    let (wanted, installed) = (folder.join("wanted.txt"), folder.join("installed.txt"));
    if fs::read_to_string(&installed).is_ok_and(|there| there == requirements) && python.is_file() {
        return Ok(python);
    }
    println!("installing Python packages into {}", folder.display());
    create(folder)?;
    fs::write(&wanted, requirements)?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    run(command(&python).args(pip).arg(&wanted))?;
    fs::rename(&wanted, &installed)?;
    Ok(python)
}

fn create(folder: &Path) -> Result<()> {
    let create = || output(command("python3").args(["-m", "venv", "--clear"]).arg(folder));
    if create().is_err() {
        apt_install(&["python3-venv"])?;
        create()?;
    }
    Ok(())
}

/// One that has PySpark, and what runs it.
pub fn spark() -> Result<PathBuf> {
    if which("java").is_none() {
        apt_install(&["default-jre-headless"])?;
    }
    venv(&target_dir().join("programs/spark"), SPARK)
}

/// As `spark`, the newest.
pub fn spark_newest() -> Result<PathBuf> {
    spark()?;
    venv(&target_dir().join("programs/spark-newest"), SPARK_NEWEST)
}
