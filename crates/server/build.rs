//! Embeds the console's page, if it was built: `cargo xtask console`.

use std::path::Path;
use std::{env, fs};

const NAMES: [&str; 3] = ["index.html", "console.js", "console.css"];

fn main() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/dist");
    println!("cargo::rerun-if-changed={}", built.display());
    let is_there = NAMES.iter().all(|name| built.join(name).is_file());
    let text = match is_there {
        true => {
            let include = NAMES.map(|name| format!("include_bytes!({:?})", built.join(name)));
            format!("Some([{}])", include.join(", "))
        }
        false => "None".to_owned(),
    };
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    let line = format!("const BUILT: Option<[&[u8]; 3]> = {text};\n");
    fs::write(Path::new(&out).join("console.rs"), line).expect("cargo has made the directory");
}
