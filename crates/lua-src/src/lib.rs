//! Builds Lua 5.1.5, as the build script of `mlua-sys` asks for it.
//!
//! The interface is that part of the crate `lua-src` which `mlua-sys` uses, so that this one can
//! take its place. The sources are that crate's, as they were released; `patches/` says what is
//! changed in them while they are built, and why (see `patch`), and `c/host.c` is our own.
#![forbid(unsafe_code)]

mod patch;

use std::path::{Path, PathBuf};
use std::{env, fs};

pub use Version::Lua51;

/// The versions that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Lua51,
}

const LIBRARY: &str = "lua5.1";

/// Libraries that scripts must not have, and what would open them all. `c/host.c` has what else is
/// linked for their names, and `os.clock`.
const LEFT_OUT: [&str; 5] = ["liolib.c", "loslib.c", "ldblib.c", "loadlib.c", "linit.c"];

/// A build for the target of the running build script, into its OUT_DIR.
#[derive(Debug, Default)]
pub struct Build;

impl Build {
    pub fn new() -> Build {
        Build
    }

    /// Compiles Lua. Panics where that fails, as build scripts do.
    pub fn build(&self, _version: Version) -> Artifacts {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("it is called by a build script"));
        let (lib_dir, edited) = (out.join("lib"), out.join("lua-edited"));
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let host = home.join("c");
        fs::create_dir_all(&edited).expect("OUT_DIR can be written");
        let mut config = cc::Build::new();
        if cfg!(debug_assertions) {
            config.define("LUA_USE_APICHECK", None);
        }
        config
            .cargo_metadata(false)
            .warnings(false)
            .define("LUA_USE_POSIX", None)
            .flag_if_supported("-fno-common")
            .include(&edited)
            .include(&host)
            .files(patch_sources(Path::new(env!("LUA_SOURCES")), &home.join("patches"), &edited))
            .file(host.join("host.c"))
            .out_dir(&lib_dir)
            .compile(LIBRARY);
        Artifacts { lib_dir, ours: [host, home.join("patches")] }
    }
}

/// Writes the sources with their changes into a folder; the C files of what is built.
fn patch_sources(from: &Path, patches: &Path, to: &Path) -> Vec<PathBuf> {
    let places = patch::read_all(patches);
    let entries = fs::read_dir(from).expect("the folder of the sources");
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !LEFT_OUT.contains(&&**name));
    names.sort();
    let is_c = |name: &&String| name.ends_with(".c") || name.ends_with(".h");
    for name in names.iter().filter(is_c) {
        let text = fs::read_to_string(from.join(name)).expect("Lua's sources are ASCII");
        fs::write(to.join(name), patch::apply(&places, name, &text))
            .expect("OUT_DIR can be written");
    }
    names.iter().filter(|name| name.ends_with(".c")).map(|name| to.join(name)).collect()
}

/// What was built.
#[derive(Clone, Debug)]
pub struct Artifacts {
    lib_dir: PathBuf,
    /// Folders that it was built from, beside the sources.
    ours: [PathBuf; 2],
}

impl Artifacts {
    /// Tells cargo what to link, and when to build again.
    pub fn print_cargo_metadata(&self) {
        println!("cargo:rustc-link-search=native={}", self.lib_dir.display());
        println!("cargo:rustc-link-lib=static={LIBRARY}");
        for folder in &self.ours {
            println!("cargo:rerun-if-changed={}", folder.display());
        }
    }
}
