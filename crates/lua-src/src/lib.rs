//! Builds Lua 5.1.5, as the build script of `mlua-sys` asks for it.
//!
//! The interface is that part of the crate `lua-src` which `mlua-sys` uses, so that this one can
//! take its place. What is changed in Lua, and why, stands in README.md.
#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};

pub use Version::Lua51;

/// The versions that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Lua51,
}

const LIBRARY: &str = "lua5.1";

/// A build for the target of the running build script, into its OUT_DIR.
#[derive(Debug, Default)]
pub struct Build;

impl Build {
    pub fn new() -> Build {
        Build
    }

    /// Compiles Lua. Panics where that fails, as build scripts do.
    pub fn build(&self, _version: Version) -> Artifacts {
        let out = env::var_os("OUT_DIR").expect("it is called by a build script");
        let lib_dir = PathBuf::from(out).join("lib");
        let source_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua-5.1.5");
        let mut config = cc::Build::new();
        if cfg!(debug_assertions) {
            config.define("LUA_USE_APICHECK", None);
        }
        config
            .cargo_metadata(false)
            .warnings(false)
            .define("LUA_USE_POSIX", None)
            .flag_if_supported("-fno-common")
            .include(&source_dir)
            .files(sources(&source_dir))
            .out_dir(&lib_dir)
            .compile(LIBRARY);
        Artifacts { lib_dir, source_dir }
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the folder of the C files");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "c"));
    files.sort();
    files
}

/// What was built.
#[derive(Clone, Debug)]
pub struct Artifacts {
    lib_dir: PathBuf,
    source_dir: PathBuf,
}

impl Artifacts {
    /// Tells cargo what to link, and when to build again.
    pub fn print_cargo_metadata(&self) {
        println!("cargo:rustc-link-search=native={}", self.lib_dir.display());
        println!("cargo:rustc-link-lib=static={LIBRARY}");
        println!("cargo:rerun-if-changed={}", self.source_dir.display());
    }
}
