//! Folders for what servers write.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Made anew among the temporary ones.
pub fn temporary_dir() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("kvasir-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// One that goes from server to server, and goes away with its owner.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Result<Directory> {
        Ok(Directory(temporary_dir()?))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// As an argument.
    pub fn text(&self) -> Result<&str> {
        self.0.to_str().context("a path of text")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What remains is in a temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}
