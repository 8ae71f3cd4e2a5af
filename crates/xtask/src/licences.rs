//! `cargo xtask licences`: what is linked into the server, and under which licences.
//!
//! Cargo says what is linked and what it is licensed under; `ALLOWED` says which of that we take.
//! Whose it is stands in the crates' own licence files. All of it is printed to `NOTICE`, which
//! goes where the program goes, and has to be what would be printed today.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kvasir_harness::workspace::{cargo, host_triple, output, root};
use serde_json::Value;

/// Licences that a crate may have. Where it leaves the choice, the first of them is ours.
const ALLOWED: [&str; 5] = ["Apache-2.0", "MIT", "ISC", "BSD-3-Clause", "BSL-1.0"];
/// The texts of all but Apache-2.0, which is the file LICENSE.
const TEXTS: &str = include_str!("licences.txt");
/// Needed for building alone, as cargo sees it, but it is their C that is built. What carries its
/// C and is called by us is found without.
const SOURCES: [&str; 1] = ["lua-src"];
/// Cargo does not speak of it.
const STANDARD_LIBRARY: (&str, &str, &str) =
    ("the standard library of Rust", "MIT OR Apache-2.0", "The Rust Project contributors");
/// What the page of the console is made of, which a server that was built with it carries.
const OF_CONSOLE: [(&str, &str, &str); 2] = [
    ("preact, in the console", "MIT", "Copyright (c) 2015-present Jason Miller"),
    ("uPlot, in the console", "MIT", "Copyright (c) 2022 Leon Sorokin"),
];
/// Folders inside of each other in which a crate may keep what it has from others.
const DEPTH_MAX: usize = 4;

#[derive(clap::Args)]
pub struct Options {
    /// Write NOTICE anew instead of comparing it
    #[arg(long)]
    write: bool,
}

/// Something that is linked.
struct Part {
    name: String,
    /// As SPDX has it.
    licence: String,
    holders: BTreeSet<String>,
}

pub fn main(options: &Options) -> Result<()> {
    let (path, notice) = (root().join("NOTICE"), notice(&parts()?)?);
    if options.write {
        return Ok(fs::write(path, notice)?);
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    ensure!(found == notice, "NOTICE is out of date: cargo xtask licences --write");
    println!("licences: {} are allowed, and NOTICE is right", ALLOWED.join(", "));
    Ok(())
}

/// The step of `xtask ci`.
pub fn check() -> Result<()> {
    main(&Options { write: false })
}

/// What the file NOTICE has to say. Fails if we may not link something.
fn notice(parts: &[Part]) -> Result<String> {
    let mut text = "Kvasir is licensed under Apache-2.0, see LICENSE. Its server contains what\n\
         others have made, under the licences named here (where they leave the choice, this is\n\
         it). The texts of the licences follow. This file is printed by `cargo xtask licences`.\n\n"
        .to_string();
    for Part { name, licence, holders } in parts {
        let choice = choose(licence)
            .with_context(|| format!("{name} has the licence {licence}, which is not allowed"))?;
        text += &format!("{name}: {}\n", choice.join(" and "));
        holders.iter().for_each(|holder| text += &format!("    {holder}\n"));
    }
    Ok(text + "\n" + TEXTS)
}

fn parts() -> Result<Vec<Part>> {
    let others = [STANDARD_LIBRARY].into_iter().chain(OF_CONSOLE).map(|(name, licence, holder)| {
        let holders = BTreeSet::from([holder.to_string()]);
        Part { name: name.to_string(), licence: licence.to_string(), holders }
    });
    let linked = linked()?;
    // A crate may be linked in two versions.
    let mut found: BTreeMap<(String, String), Part> = BTreeMap::new();
    for package in packages()? {
        let (name, version) = (text(&package, "name")?, text(&package, "version")?);
        if linked.contains(&format!("{name} v{version}")) || SOURCES.contains(&name) {
            let part = Part::of(&package)?;
            let key = (part.name.clone(), part.licence.clone());
            found
                .entry(key)
                .and_modify(|known| known.holders.extend(part.holders.clone()))
                .or_insert(part);
        }
    }
    Ok(found.into_values().chain(others).collect())
}

/// Names and versions of the crates that end in the server.
fn linked() -> Result<BTreeSet<String>> {
    let args = ["tree", "-p", "kvasir-server", "--edges", "normal,no-proc-macro", "--prefix"];
    let tree = output(cargo(&args).args(["none", "--no-dedupe", "--format", "{p}"]))?;
    let id = |line: &str| line.split(" (").next().unwrap_or_default().to_string();
    Ok(tree.lines().map(id).collect())
}

/// All packages of others that cargo has here.
fn packages() -> Result<Vec<Value>> {
    let args = ["metadata", "--format-version", "1", "--filter-platform", &host_triple()?];
    let metadata: Value = serde_json::from_str(&output(&mut cargo(&args))?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has changed")?;
    Ok(packages.iter().filter(|package| !package["source"].is_null()).cloned().collect())
}

fn text<'a>(package: &'a Value, field: &str) -> Result<&'a str> {
    package[field].as_str().with_context(|| format!("a package without {field}"))
}

impl Part {
    fn of(package: &Value) -> Result<Part> {
        let manifest = Path::new(text(package, "manifest_path")?);
        let mut holders = BTreeSet::new();
        for file in licence_files(manifest.parent().context("it is in a folder")?, DEPTH_MAX)? {
            let text = String::from_utf8_lossy(&fs::read(file)?).into_owned();
            holders.extend(text.lines().filter_map(holder));
        }
        if holders.is_empty() {
            let authors = package["authors"].as_array().into_iter().flatten();
            let name = |author: &Value| Some(author.as_str()?.split(" <").next()?.to_string());
            holders.extend(authors.filter_map(name));
        }
        // Some have no licence but a file of their own, which nobody has read yet.
        let licence = package["license"].as_str().unwrap_or("of its own").to_string();
        Ok(Part { name: text(package, "name")?.to_string(), licence, holders })
    }
}

fn licence_files(dir: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let name = name.to_string_lossy().to_uppercase();
        let starts = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
        if path.is_dir() && depth > 0 {
            files.extend(licence_files(&path, depth - 1)?);
        } else if path.is_file() && starts.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    Ok(files)
}

/// The line of a licence file if it says whose copyright it is: not of the licence itself, and no
/// form to be filled in.
fn holder(line: &str) -> Option<String> {
    let line = line.trim_start_matches(['#', '/', '*', ';', ' ']).trim_end();
    let line = line.trim_end_matches("All rights reserved.").trim_end();
    let rest = line.strip_prefix("Copyright ")?;
    let of = ["(c) ", "(C) ", "© "].into_iter().find_map(|sign| rest.strip_prefix(sign));
    let is_notice = of.is_some() || rest.starts_with(|first: char| first.is_ascii_digit());
    let names_someone = of.unwrap_or(rest).contains(char::is_alphabetic);
    let is_form = rest.contains(['<', '[']) && rest.contains("year") || rest.contains("[yyyy]");
    let is_of_licence = rest.contains("Free Software Foundation");
    (is_notice && names_someone && !is_form && !is_of_licence).then(|| line.to_string())
}

/// Which licences we take of what an expression of SPDX offers; none if none is allowed.
fn choose(expression: &str) -> Option<Vec<&'static str>> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let choice = any_of(&mut words)?;
    words.is_empty().then_some(choice)?
}

/// The outer option: whether it is an expression; the inner: whether it is allowed.
type Choice = Option<Vec<&'static str>>;

fn any_of(words: &mut Vec<&str>) -> Option<Choice> {
    let rank = |choice: &Vec<&str>| {
        choice.iter().filter_map(|one| ALLOWED.iter().position(|name| name == one)).max()
    };
    let mut best = all_of(words)?;
    while words.last() == Some(&"OR") {
        words.pop();
        best = [best, all_of(words)?].into_iter().flatten().min_by_key(rank);
    }
    Some(best)
}

fn all_of(words: &mut Vec<&str>) -> Option<Choice> {
    let mut all = one(words)?;
    while words.last() == Some(&"AND") {
        words.pop();
        let (left, right) = (all, one(words)?);
        all = left.zip(right).map(|(left, right)| [left, right].concat());
    }
    Some(all)
}

fn one(words: &mut Vec<&str>) -> Option<Choice> {
    let word = words.pop()?;
    if word == "(" {
        let inner = any_of(words)?;
        return (words.pop()? == ")").then_some(inner);
    }
    let known = ALLOWED.into_iter().find(|name| *name == word).map(|name| vec![name]);
    if words.last() != Some(&"WITH") {
        return Some(known);
    }
    // A licence with an exception is another one, which nobody has allowed.
    words.truncate(words.len().saturating_sub(2));
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(licence: &str) -> Part {
        let holders = BTreeSet::from(["Copyright (c) 2020 Somebody".to_string()]);
        Part { name: "some".to_string(), licence: licence.to_string(), holders }
    }

    #[test]
    fn a_licence_that_is_not_allowed_is_found() {
        let refused = notice(&[part("MIT"), part("GPL-3.0-only")]).err();
        let words = "some has the licence GPL-3.0-only, which is not allowed";
        assert_eq!(refused.map(|error| error.to_string()).as_deref(), Some(words));
        let taken = notice(&[part("MIT")]).expect("allowed");
        assert!(taken.contains("\nsome: MIT\n    Copyright (c) 2020 Somebody\n\n"), "{taken}");
    }

    #[test]
    fn of_a_choice_the_first_that_we_take_is_taken() {
        let cases: [(&str, Option<&[&str]>); 12] = [
            ("MIT", Some(&["MIT"])),
            ("MIT OR Apache-2.0", Some(&["Apache-2.0"])),
            ("MIT/Apache-2.0", Some(&["Apache-2.0"])),
            ("Unlicense OR MIT", Some(&["MIT"])),
            ("Apache-2.0 AND ISC", Some(&["Apache-2.0", "ISC"])),
            ("Apache-2.0 WITH LLVM-exception OR MIT", Some(&["MIT"])),
            ("(MIT OR GPL-2.0) AND (ISC)", Some(&["MIT", "ISC"])),
            ("MIT AND GPL-2.0", None),
            ("GPL-2.0", None),
            ("Apache-2.0 WITH LLVM-exception", None),
            ("of its own", None),
            ("MIT OR", None),
        ];
        for (expression, choice) in cases {
            assert_eq!(choose(expression).as_deref(), choice, "{expression}");
        }
    }

    #[test]
    fn forms_and_words_of_licences_name_nobody() {
        let cases = [
            ("Copyright (c) 2016 A. All rights reserved.", Some("Copyright (c) 2016 A.")),
            ("// Copyright 2015 B", Some("Copyright 2015 B")),
            (
                "Copyright © 1994–2017 Lua.org, PUC-Rio.",
                Some("Copyright © 1994–2017 Lua.org, PUC-Rio."),
            ),
            ("Copyright [yyyy] [name of copyright owner]", None),
            ("Copyright (C) <year>  <name of author>", None),
            ("Copyright (C) 1989, 1991 Free Software Foundation, Inc.,", None),
            ("copyright notice and this permission notice", None),
            ("Copyright (c) 2015", None),
        ];
        for (line, name) in cases {
            assert_eq!(holder(line).as_deref(), name, "{line}");
        }
    }
}
