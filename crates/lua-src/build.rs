//! Finds the folder into which cargo has unpacked the sources of Lua, and tells the library.
//!
//! A dependency's path is known to cargo only. It is asked about a package that depends on the
//! sources and on nothing else, offline, so that it looks no further than at what is here already.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The version that Cargo.toml names as `sources`.
const SOURCES: &str = "550.1.1";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let folder = sources(&out.join("asking")).join("lua-5.1.5");
    println!("cargo:rustc-env=LUA_SOURCES={}", folder.display());
}

fn sources(package: &Path) -> PathBuf {
    fs::create_dir_all(package.join("src")).expect("OUT_DIR can be written");
    let manifest = format!(
        "[workspace]\n[package]\nname = \"asking\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\nlua-src = \"={SOURCES}\"\n"
    );
    fs::write(package.join("Cargo.toml"), manifest).expect("OUT_DIR can be written");
    fs::write(package.join("src/lib.rs"), "").expect("OUT_DIR can be written");
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo.args(["metadata", "--format-version", "1", "--offline", "--manifest-path"]);
    let output = cargo.arg(package.join("Cargo.toml")).output().expect("cargo can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo does not say where lua-src is: {errors}");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let found = packages.iter().find(|package| package["name"] == "lua-src");
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let manifest = Path::new(manifest.expect("the package was asked for"));
    manifest.parent().expect("a manifest stands in a folder").to_owned()
}
